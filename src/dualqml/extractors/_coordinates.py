# SPDX-License-Identifier: BSD-3-Clause
"""Coordinates of training samples, learnt from all or some of them.

They are principal coordinates, of the samples as they are or in the space of a Gaussian
kernel. Any rotation of them can be used as well. The matrices of all pairs and the
scatter of the motions are computed once. The folds of a cross-validation share them.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.linalg.lapack import dpocon, dpotrf, dsygst, dtrtri

from dualqml._linalg import SAME_SAMPLE, deviations, span_pca
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError
from dualqml.extractors._memory import require_pairs
from dualqml.extractors.kernels import centred_kernel
from dualqml.extractors.prepared_samples import PreparedSamples

#: Variances of coordinates at or below this fraction of the largest count as zero.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class LearntCoordinates:
    """Coordinates a(x) learnt from some of the training samples.

    Attributes
    ----------
    training : ndarray of shape (n_train, d)
        Coordinates of those samples; their Gram matrix is the centred kernel.
    origin : ndarray
        The mean of those samples, or of the rows of their matrix of all pairs.
    projector : ndarray of shape (n_features or n_train, d)
        The linear map from the centred sample, or from its centred row of the matrix
        of all pairs, to the coordinates.
    tangent_scatter : ndarray of shape (d, d) or None
        Scatter of the tangents in these coordinates, at trace 1.
    """

    training: Array
    origin: Array
    projector: Array
    tangent_scatter: Array | None


class CoordinateSystem(Protocol):
    """A training set whose coordinates can be learnt from any part of it."""

    def learnt_from(self, train: Index) -> LearntCoordinates:
        """Coordinates learnt from some of the training samples."""

    def coordinates_of(
        self, learnt: LearntCoordinates, train: Index, rows: Index
    ) -> Array:
        """Coordinates of other training samples, by what was learnt from some."""


class InputCoordinates:
    """Principal coordinates in the space of the samples.

    Used if there are more samples than features.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    """

    def __init__(self, samples: PreparedSamples) -> None:
        self.inputs = samples.inputs
        self._whole = span_pca(self.inputs)
        self._tangents: list[Array] = []
        self._weights: list[float] = []
        self._motion_scatter = np.zeros(2 * (self.inputs.shape[1],))
        basis = self._whole.basis
        tangents = samples.tangents if samples.tangents is not None else ()
        for k in _effective_motions(
            [float(np.vdot(tangent, tangent)) for tangent in tangents]
        ):
            tangent = tangents[k]
            scatter = tangent.T @ tangent
            # The weights give each motion the same trace in the coordinates of the
            # whole set. Then the scatter of all motions is one matrix, and a fold
            # subtracts the scatter of its held-out samples.
            trace = float(np.vdot(scatter @ basis, basis))
            if trace > 0.0:
                self._tangents.append(tangent)
                self._weights.append(1.0 / trace)
                self._motion_scatter += scatter / trace

    def learnt_from(self, train: Index) -> LearntCoordinates:
        """Coordinates learnt from some of the training samples."""
        pca, motion = self._whole, self._motion_scatter
        if train.size < self.inputs.shape[0]:
            pca = span_pca(self.inputs[train])
            rows = np.setdiff1d(np.arange(self.inputs.shape[0]), train)
            if self._tangents:
                changes = [tangent[rows] for tangent in self._tangents]
                motion = motion - _weighted_scatter(changes, self._weights)
        scatter = _in_coordinates(motion, pca.basis) if self._tangents else None
        return LearntCoordinates(pca.coordinates, pca.mean, pca.basis, scatter)

    def coordinates_of(
        self, learnt: LearntCoordinates, train: Index, rows: Index
    ) -> Array:
        """Coordinates of other training samples, by what was learnt from some."""
        centred = self.inputs[rows] - learnt.origin
        return np.asarray(centred @ learnt.projector)


class PairwiseCoordinates:
    """Principal coordinates from a matrix of all pairs of samples.

    Used if there are fewer samples than features, or with a kernel.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_samples)
        The kernel of all pairs, not centred.
    slopes : ndarray of shape (n_motions, n_samples, n_samples)
        Derivative of each row of the kernel by each motion of its sample.
    relative_slopes : bool
        Whether the slopes are relative to the kernel values.
    """

    def __init__(self, values: Array, slopes: Array, *, relative_slopes: bool) -> None:
        self.values, self.slopes = values, slopes
        self._relative_slopes = relative_slopes
        self._whole = _pairwise_basis(values)
        self._motions: list[int] = []
        self._weights: list[float] = []
        self._motion_scatter = np.zeros_like(values)
        projector = self._whole.projector
        inverse = projector @ projector.T if len(slopes) else values
        energies = []
        for k in range(len(slopes)):
            change = self._centred_change(k)
            energies.append(float(np.vdot(change, change)))
        for k in _effective_motions(energies):
            change = self._centred_change(k)
            scatter = change.T @ change
            # Weights as in InputCoordinates.
            trace = float(np.vdot(scatter, inverse))
            if trace > 0.0:
                self._motions.append(k)
                self._weights.append(1.0 / trace)
                scatter /= trace
                self._motion_scatter += scatter

    def _centred_change(self, motion: int) -> Array:
        """The change of the whole kernel, minus the mean of each row.

        Only differences within a row matter, and centred rows keep more digits.
        """
        whole = slice(None)
        change = self._change(motion, (whole, whole))
        change -= change.mean(axis=1, keepdims=True)
        return change

    def _change(self, motion: int, part: tuple[Any, ...]) -> Array:
        """The change of a part of the kernel by a motion of the samples of its rows."""
        slopes = self.slopes[motion][part]
        return slopes * self.values[part] if self._relative_slopes else slopes.copy()

    def learnt_from(self, train: Index) -> LearntCoordinates:
        """Coordinates learnt from some of the training samples."""
        n_samples = self.values.shape[0]
        values, motion = self.values, self._motion_scatter
        coordinates = self._whole
        if train.size < n_samples:
            part = np.ix_(train, train)
            values = values[part]
            coordinates = _pairwise_basis(values)
            held_out = np.ix_(np.setdiff1d(np.arange(n_samples), train), train)
            if self._motions:
                changes = [self._change(k, held_out) for k in self._motions]
                motion = _doubly_centred(motion[part])
                motion -= _doubly_centred(_weighted_scatter(changes, self._weights))
        return LearntCoordinates(
            coordinates.training,
            values.mean(axis=0),
            coordinates.projector,
            coordinates.scatter(motion) if self._motions else None,
        )

    def coordinates_of(
        self, learnt: LearntCoordinates, train: Index, rows: Index
    ) -> Array:
        """Coordinates of other training samples, by what was learnt from some."""
        values = self.values[np.ix_(rows, train)]
        own = values.mean(axis=1, keepdims=True)
        origin = learnt.origin
        return np.asarray((values - own - origin + origin.mean()) @ learnt.projector)


class GramCoordinates(PairwiseCoordinates):
    """Principal coordinates from the scalar products of the samples.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples, at most as many as features.
    """

    def __init__(self, samples: PreparedSamples) -> None:
        self.mean, self.centred = deviations(samples.inputs)
        products = samples.products()
        super().__init__(products.gram, products.slopes, relative_slopes=False)


class KernelCoordinates(PairwiseCoordinates):
    """Principal coordinates in the space of a Gaussian kernel.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    width : float
        The variance of the kernel in units of the median squared distance.
    """

    def __init__(self, samples: PreparedSamples, *, width: float) -> None:
        n_matrices = 8 if samples.tangents is None else 22
        require_pairs("The Gaussian kernel", samples.inputs.shape[0], n_matrices)
        products = samples.products()
        self.kernel, values = centred_kernel(
            "rbf", samples.inputs, width=width, image_shape=None, gram=products.gram
        )
        # The derivative of the kernel k(x, z) along t is t'(z - x) k / s2.
        slopes = products.slopes
        own = np.einsum("kii->ki", slopes)[:, :, None]
        super().__init__(values, slopes - own, relative_slopes=True)

    def at_width(self, factor: float) -> "KernelCoordinates":
        """The same samples with a kernel of `factor` times the variance."""
        other = object.__new__(KernelCoordinates)
        values = self.values ** (1.0 / factor)
        other.kernel = replace(
            self.kernel,
            bandwidth=factor * self.kernel.bandwidth,
            row_means=values.mean(axis=0),
        )
        PairwiseCoordinates.__init__(other, values, self.slopes, relative_slopes=True)
        return other


@dataclass(frozen=True)
class PairwiseBasis:
    """All principal coordinates of a matrix of all pairs.

    Attributes
    ----------
    training : ndarray of shape (n_samples, d)
        The coordinates; their Gram matrix is the centred matrix of all pairs.
    projector : ndarray of shape (n_samples, d)
        The linear map from centred rows of the matrix to coordinates.
    factor : ndarray of shape (d, d) or None
        The Cholesky factor in the complement of the mean; None if eigenvectors were
        used.
    """

    training: Array
    projector: Array
    factor: Array | None

    def scatter(self, rows_scatter: Array) -> Array:
        """A scatter of centred rows of the matrix, in the coordinates, at trace 1."""
        if self.factor is None:
            return _in_coordinates(rows_scatter, self.projector)
        inner = _complement(rows_scatter, _mirror(len(rows_scatter)))
        found, _ = dsygst(inner, self.factor, lower=1, overwrite_a=1)
        found = np.tril(found) + np.tril(found, -1).T
        return _at_unit_trace(found)


def _pairwise_basis(values: Array) -> PairwiseBasis:
    """Coordinates from a matrix of all pairs, not centred.

    Any rotation of the coordinates can be used. So if the matrix has full rank in
    the complement of the mean, its Cholesky factor there is used, which is ten times
    faster than eigenvectors.
    """
    n_samples = values.shape[0]
    if n_samples > 1:
        mirror = _mirror(n_samples)
        inner = _complement(values, mirror)
        norm = np.abs(inner).sum(axis=0).max()
        factor, failed = dpotrf(inner, lower=1, overwrite_a=1)
        if not failed and dpocon(factor, norm, uplo="L")[0] > _TOLERANCE:
            inverse, _ = dtrtri(factor, lower=1)
            return PairwiseBasis(
                _reflected(factor, mirror), _reflected(inverse.T, mirror), factor
            )
    eigenvalues, vectors = np.linalg.eigh(_doubly_centred(values))
    # Rounding errors of the matrix of equal samples.
    noise = n_samples * np.finfo(np.float64).eps * np.abs(values).max()
    kept = eigenvalues > max(_TOLERANCE * eigenvalues[-1], noise)
    if not kept.any():
        raise DualQMLError(
            "All samples are equal: there is no direction to learn. Check that the "
            "rows of X are different images."
        )
    roots, vectors = np.sqrt(eigenvalues[kept]), vectors[:, kept]
    return PairwiseBasis(vectors * roots, vectors / roots, None)


def _effective_motions(energies: list[float]) -> list[int]:
    """Indices of the motions that change the samples by more than rounding."""
    least = SAME_SAMPLE * max(energies, default=0.0)
    return [k for k, energy in enumerate(energies) if energy > least]


def _mirror(n_samples: int) -> Array:
    """The Householder vector that reflects the mean direction to the first axis."""
    mirror = np.full(n_samples, n_samples**-0.5)
    mirror[0] += 1.0
    return np.asarray(mirror / np.linalg.norm(mirror))


def _complement(values: Array, mirror: Array) -> Array:
    """A symmetric matrix in the complement of the mean, in LAPACK's order."""
    image = values @ mirror
    image = 2.0 * (image - (mirror @ image) * mirror)
    reflected = values - np.outer(mirror, image) - np.outer(image, mirror)
    return np.array(reflected[1:, 1:], order="F")


def _reflected(rows: Array, mirror: Array) -> Array:
    """Rows in the complement of the mean, reflected back to all samples."""
    padded = np.concatenate([np.zeros((1, rows.shape[1])), rows])
    return np.asarray(padded - np.outer(2.0 * mirror, mirror @ padded))


def _doubly_centred(values: Array) -> Array:
    rows, columns = values.mean(axis=1, keepdims=True), values.mean(axis=0)
    return np.asarray(values - rows - columns + columns.mean())


def _weighted_scatter(changes: list[Array], weights: list[float]) -> Array:
    """The weighted sum of scatters, by one matrix product."""
    scaled = [np.sqrt(w) * rows for rows, w in zip(changes, weights, strict=True)]
    stacked = np.concatenate(scaled)
    return np.asarray(stacked.T @ stacked)


def _in_coordinates(scatter: Array, projector: Array) -> Array:
    """A scatter in the coordinates, at trace 1."""
    found = projector.T @ (scatter @ projector)
    return _at_unit_trace((found + found.T) / 2.0)


def _at_unit_trace(scatter: Array) -> Array:
    trace = float(np.trace(scatter))
    return scatter / trace if trace > 0.0 else scatter
