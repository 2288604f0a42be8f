# SPDX-License-Identifier: BSD-3-Clause
"""The within-class metric: coordinates, scatters and their common spectrum.

A direction in which the images of one person differ should be expensive. The
metric is S_rho = S_w + rho B, where S_w is the within-class scatter at trace 1
and B is a prior of trace 1: the identity, mixed for images with the scatter of
their small affine motions. One generalised eigenproblem S_w e = w B e serves
every rho, since S_rho is diagonal, w + rho, in its eigenvectors.

Training samples are placed once (`KernelGeometry`, `LinearGeometry`); folds of
a cross-validation are restrictions that share the kernel and the tangents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from scipy.linalg import cholesky, eigh, qr, solve_triangular
from scipy.linalg.lapack import dpocon, dpotrf, dtrtri

from dualqml.core import DualQMLError
from dualqml.core.arrays import Array, Index
from dualqml.extractors._kernels import CentredKernel, centred_kernel
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._subspace import span_pca, within_contrasts

Kernel = Literal["rbf", "linear"]

#: Variances of kernel coordinates at or below this fraction of the largest are noise.
_KERNEL_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Training samples with what is computed of each by itself.

    Attributes
    ----------
    inputs : ndarray of shape (n_samples, d)
        Pixels, descriptors or vectors, at unit norm.
    tangents : ndarray of shape (n_motions, n_samples, d) or None
        How each sample may change.
    n_features : int
        Number of features of the samples before.
    """

    inputs: Array
    tangents: Array | None
    n_features: int

    def take(self, rows: Index) -> "PreparedSamples":
        """Some of the samples."""
        tangents = None if self.tangents is None else self.tangents[:, rows]
        return PreparedSamples(self.inputs[rows], tangents, self.n_features)

    @classmethod
    def joined(cls, parts: Sequence["PreparedSamples"]) -> "PreparedSamples":
        """The samples of all parts, one after the other; all of the same kind."""
        tangents = [part.tangents for part in parts if part.tangents is not None]
        return cls(
            np.concatenate([part.inputs for part in parts]),
            np.concatenate(tangents, axis=1) if tangents else None,
            parts[0].n_features,
        )


@dataclass(frozen=True)
class Placement:
    """Coordinates a(x) learnt from some of the training samples.

    Attributes
    ----------
    training : ndarray of shape (n_train, d)
        Coordinates of those samples; their Gram matrix is the centred kernel.
    origin : ndarray
        What is subtracted from a sample (linear), or the mean kernel values of
        the training samples, by which a row of the kernel is centred.
    projector : ndarray of shape (n_features or n_train, d)
        From the centred sample or the centred row of the kernel to coordinates.
    tangent_scatter : ndarray of shape (d, d) or None
        Scatter of the tangents in these coordinates, at trace 1.
    """

    training: Array
    origin: Array
    projector: Array
    tangent_scatter: Array | None


class Geometry(Protocol):
    """A training set that can be placed from any part of it."""

    def restricted(self, train: Index) -> Placement:
        """Coordinates learnt from some of the training samples."""

    def place(self, placement: Placement, train: Index, rows: Index) -> Array:
        """Coordinates of other training samples under such a placement."""


class LinearGeometry:
    """Principal coordinates of the samples themselves.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Training samples.
    tangents : ndarray of shape (n_motions, n_samples, n_features) or None
        How each sample may change.
    """

    def __init__(self, X: Array, tangents: Array | None) -> None:
        self.X, self.tangents = X, tangents

    def restricted(self, train: Index) -> Placement:
        """Coordinates learnt from some of the training samples."""
        pca = span_pca(self.X[train])
        scatter = None
        if self.tangents is not None:
            projected = self.tangents[:, train] @ pca.basis
            scatter = np.zeros((pca.basis.shape[1], pca.basis.shape[1]))
            for rows in projected:
                scatter += _at_unit_trace(rows.T @ rows)
            scatter = _at_unit_trace(scatter) if scatter.any() else None
        return Placement(pca.coordinates, pca.mean, pca.basis, scatter)

    def place(self, placement: Placement, train: Index, rows: Index) -> Array:
        """Coordinates of other training samples under such a placement."""
        return np.asarray((self.X[rows] - placement.origin) @ placement.projector)


class KernelGeometry:
    """All principal coordinates in the space of a Gaussian kernel.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Training samples.
    tangents : ndarray of shape (n_motions, n_samples, n_features) or None
        How each sample may change.
    width : float
        The variance of the kernel in units of the median squared distance.
    """

    def __init__(self, X: Array, tangents: Array | None, *, width: float) -> None:
        kernel = centred_kernel("rbf", X, width=width, image_shape=None)
        linear = centred_kernel("linear", X, width=1.0, image_shape=None)
        rows = np.arange(X.shape[0])
        slopes = []
        for tangent in tangents if tangents is not None else ():
            # The derivative of the kernel k(x, z) along t is this times k / s2.
            slope = linear.raw_derivatives(rows, tangent)
            slopes.append(slope - np.diag(slope)[:, None])
        self._set_up(kernel, kernel.raw(X), slopes)

    def _set_up(
        self, kernel: CentredKernel, values: Array, slopes: list[Array]
    ) -> None:
        self.kernel, self.values = kernel, values
        self._whole = _kernel_coordinates(values)
        self._slopes: list[Array] = []
        self._weights: list[float] = []
        self._motion = np.zeros_like(values)
        projector = self._whole[1]
        inverse = projector @ projector.T if slopes else values
        for slope in slopes:
            change = slope * values
            scatter = change.T @ change
            # Weighted so that each motion has the same trace in the coordinates
            # of the whole set. Then the scatter of the kernel rows of all motions
            # is one matrix, from which a fold subtracts the rows it holds out.
            trace = float(np.vdot(_doubly_centred(scatter), inverse))
            if trace > 0.0:
                self._slopes.append(slope)
                self._weights.append(1.0 / trace)
                self._motion += scatter / trace

    def at_width(self, factor: float) -> "KernelGeometry":
        """The same samples under a kernel of `factor` times the variance."""
        other = object.__new__(KernelGeometry)
        values = self.values ** (1.0 / factor)
        kernel = replace(
            self.kernel,
            bandwidth=factor * self.kernel.bandwidth,
            row_means=values.mean(axis=0),
        )
        other._set_up(kernel, values, self._slopes)
        return other

    def restricted(self, train: Index) -> Placement:
        """Coordinates learnt from some of the training samples."""
        n_samples = self.values.shape[0]
        values, motion = self.values, self._motion
        training, projector = self._whole
        if train.size < n_samples:
            part = np.ix_(train, train)
            values, motion = values[part], motion[part]
            training, projector = _kernel_coordinates(values)
            rows = np.setdiff1d(np.arange(n_samples), train)
            held_out = np.ix_(rows, train)
            own = self.values[held_out]
            changes = [
                (np.sqrt(weight) * own) * slope[held_out]
                for slope, weight in zip(self._slopes, self._weights, strict=True)
            ]
            if changes:
                # All motions in one product.
                stacked = np.concatenate(changes)
                motion -= stacked.T @ stacked
        scatter = None
        if self._slopes:
            scatter = projector.T @ (_doubly_centred(motion) @ projector)
            scatter = _at_unit_trace((scatter + scatter.T) / 2.0)
        return Placement(training, values.mean(axis=0), projector, scatter)

    def place(self, placement: Placement, train: Index, rows: Index) -> Array:
        """Coordinates of other training samples under such a placement."""
        values = self.values[np.ix_(rows, train)]
        own = values.mean(axis=1, keepdims=True)
        origin = placement.origin
        return np.asarray((values - own - origin + origin.mean()) @ placement.projector)


@dataclass(frozen=True)
class WithinSpectrum:
    """Eigenvalues and eigenvectors of S_w relative to the prior B.

    Attributes
    ----------
    variances : ndarray of shape (d,)
        The eigenvalues w, in rising order.
    directions : ndarray of shape (d, d)
        The eigenvectors E, one a column: E'BE = I and E'S_w E = diag(w).
    """

    variances: Array
    directions: Array

    def whitened(self, projected: Array, rho: float) -> Array:
        """Rows E'a brought to the metric S_w + rho B, and to unit norm."""
        return unit_rows(projected / np.sqrt(self.variances + rho))


def within_spectrum(placement: Placement, codes: Index, kappa: float) -> WithinSpectrum:
    """Solve the generalised eigenproblem that serves every rho.

    Parameters
    ----------
    placement : Placement
        Coordinates of the training samples.
    codes : ndarray of shape (n_train,)
        Their classes, each class with at least one sample.
    kappa : float
        Share of the tangents in the prior, where there are any.

    Returns
    -------
    WithinSpectrum
        The common spectrum. All variances are zero where no class varies.
    """
    A = placement.training
    size = A.shape[1]
    contrasts = within_contrasts(A, codes)
    total = float(np.vdot(contrasts, contrasts))
    # Differences of equal rows are not exact.
    if total <= 1e-20 * np.einsum("ij,ij->", A, A):
        contrasts, total = contrasts[:0], 1.0
    contrasts /= np.sqrt(total)
    if placement.tangent_scatter is None or kappa == 0.0:
        variances, directions = np.linalg.eigh(size * (contrasts.T @ contrasts))
        directions *= np.sqrt(size)
    else:
        prior = kappa * placement.tangent_scatter
        # kappa = 1 leaves motions that no sample shows without a prior.
        prior[np.diag_indices(size)] += max(1.0 - kappa, 1e-6) / size
        if 2 * len(contrasts) <= size:
            variances, directions = _low_rank_eigh(contrasts, prior)
        else:
            variances, directions = eigh(
                contrasts.T @ contrasts, prior, overwrite_a=True, overwrite_b=True
            )
    return WithinSpectrum(np.maximum(variances, 0.0), directions)


def _low_rank_eigh(factor: Array, prior: Array) -> tuple[Array, Array]:
    """Generalised eigenproblem of F'F relative to the prior, for a low F.

    With few samples a class, most directions have no variance within classes, and
    any basis of them serves: a QR factorisation of the rows of F finds it, and the
    eigenproblem that is left has the size of F's rows.
    """
    lower = cholesky(prior, lower=True, overwrite_a=True, check_finite=False)
    rows = solve_triangular(lower, factor.T, lower=True, check_finite=False)
    basis, triangle = qr(rows, overwrite_a=True, check_finite=False)
    rank = len(factor)
    triangle = triangle[:rank]
    variances, vectors = np.linalg.eigh(triangle @ triangle.T)
    # Rising order: the directions without variance come first.
    ordered = np.concatenate([basis[:, rank:], basis[:, :rank] @ vectors], axis=1)
    directions = solve_triangular(
        lower, ordered, lower=True, trans="T", check_finite=False
    )
    return np.concatenate([np.zeros(len(prior) - rank), variances]), directions


def _kernel_coordinates(values: Array) -> tuple[Array, Array]:
    """All principal coordinates of a kernel matrix, and the projector to them.

    Any rotation of them serves as well. So where the centred kernel has full
    rank but for the centring, a Cholesky factor in the complement of the mean
    is taken, ten times faster than eigenvectors.
    """
    n_samples = values.shape[0]
    if n_samples > 1:
        # A Householder reflection takes the mean direction to the first axis.
        mirror = np.full(n_samples, n_samples**-0.5)
        mirror[0] += 1.0
        mirror /= np.linalg.norm(mirror)
        image = values @ mirror
        image = 2.0 * (image - (mirror @ image) * mirror)
        reflected = values - np.outer(mirror, image) - np.outer(image, mirror)
        inner = np.array(reflected[1:, 1:], order="F")
        norm = np.abs(inner).sum(axis=0).max()
        factor, failed = dpotrf(inner, lower=1, overwrite_a=1)
        if not failed and dpocon(factor, norm, uplo="L")[0] > _KERNEL_TOLERANCE:
            inverse, _ = dtrtri(factor, lower=1)
            return _reflected(factor, mirror), _reflected(inverse.T, mirror)
    eigenvalues, vectors = np.linalg.eigh(_doubly_centred(values))
    kept = eigenvalues > _KERNEL_TOLERANCE * eigenvalues[-1]
    if not kept.any():
        raise DualQMLError(
            "All samples are equal: there is no direction to learn. Check that the "
            "rows of X are different images."
        )
    roots, vectors = np.sqrt(eigenvalues[kept]), vectors[:, kept]
    return vectors * roots, vectors / roots


def _reflected(rows: Array, mirror: Array) -> Array:
    """Rows in the complement of the mean, brought back to the samples."""
    padded = np.concatenate([np.zeros((1, rows.shape[1])), rows])
    return np.asarray(padded - np.outer(2.0 * mirror, mirror @ padded))


def _doubly_centred(values: Array) -> Array:
    means = values.mean(axis=0)
    return np.asarray(values - means - means[:, None] + means.mean())


def _at_unit_trace(scatter: Array) -> Array:
    trace = float(np.trace(scatter))
    return scatter / trace if trace > 0.0 else scatter
