# SPDX-License-Identifier: BSD-3-Clause
"""The within-class metric, at one rho or at all of them.

A direction in which the images of one person differ should be expensive. The
metric is S_rho = S_w + rho B, where S_w is the within-class scatter at trace 1
and B is a prior of trace 1: the identity, mixed for images with the scatter of
their small affine motions. One generalised eigenproblem S_w e = w B e serves
every rho, since S_rho is diagonal, w + rho, in its eigenvectors. For one rho a
Cholesky factor does, many times faster.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, eigh, qr, solve_triangular
from scipy.linalg.lapack import dpotrf

from dualqml.core.arrays import Array, Index
from dualqml.extractors._geometry import Placement
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._subspace import within_contrasts

#: Below this weight, a sum with the prior has too few digits of it.
_LEAST_RHO = 1e-7


def whitened_at(
    placement: Placement, codes: Index, *, kappa: float, rho: float
) -> tuple[Array, Array]:
    """Training samples and the projector in the metric of one rho.

    Parameters
    ----------
    placement : Placement
        Coordinates of the training samples.
    codes : ndarray of shape (n_train,)
        Their classes, each class with at least one sample.
    kappa : float
        Share of the tangents in the prior, where there are any.
    rho : float
        Weight of the prior.

    Returns
    -------
    training : ndarray of shape (n_train, d)
        The training samples as ``F^-1 a``, where ``F F' = S_rho``.
    coefficients : ndarray
        The projector to the same.
    """
    factor = None
    if rho >= _LEAST_RHO:
        factor = _metric_factor(placement, codes, kappa, rho)
    if factor is None:
        spectrum = within_spectrum(placement, codes, kappa)
        scaled = spectrum.directions / np.sqrt(spectrum.variances + rho)
        return placement.training @ scaled, placement.projector @ scaled
    training, coefficients = (
        solve_triangular(factor, rows.T, lower=True, check_finite=False).T
        for rows in (placement.training, placement.projector)
    )
    return training, coefficients


def _metric_factor(
    placement: Placement, codes: Index, kappa: float, rho: float
) -> Array | None:
    """The Cholesky factor of S_rho; None where rounding has made it indefinite."""
    contrasts = _unit_contrasts(placement.training, codes)
    metric = contrasts.T @ contrasts
    if _has_motions(placement, kappa):
        metric += rho * _prior(placement, kappa)
    else:
        metric[np.diag_indices(len(metric))] += rho / len(metric)
    # The matrix is symmetric: its transpose is in the order of LAPACK.
    factor, failed = dpotrf(metric.T, lower=1, overwrite_a=1)
    return None if failed else np.asarray(factor)


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
    contrasts = _unit_contrasts(placement.training, codes)
    size = contrasts.shape[1]
    if not _has_motions(placement, kappa):
        variances, directions = np.linalg.eigh(size * (contrasts.T @ contrasts))
        directions *= np.sqrt(size)
    else:
        prior = _prior(placement, kappa)
        if 2 * len(contrasts) <= size:
            variances, directions = _low_rank_eigh(contrasts, prior)
        else:
            variances, directions = eigh(
                contrasts.T @ contrasts, prior, overwrite_a=True, overwrite_b=True
            )
    return WithinSpectrum(np.maximum(variances, 0.0), directions)


def _unit_contrasts(A: Array, codes: Index) -> Array:
    """Rows H with H'H = S_w, of trace 1; none where no class varies."""
    contrasts = within_contrasts(A, codes)
    total = float(np.vdot(contrasts, contrasts))
    # Differences of equal rows are not exact.
    if total <= 1e-20 * np.einsum("ij,ij->", A, A):
        return contrasts[:0]
    contrasts /= np.sqrt(total)
    return contrasts


def _has_motions(placement: Placement, kappa: float) -> bool:
    return placement.tangent_scatter is not None and kappa > 0.0


def _prior(placement: Placement, kappa: float) -> Array:
    """The prior B, for images."""
    assert placement.tangent_scatter is not None
    prior = kappa * placement.tangent_scatter
    # kappa = 1 leaves motions that no sample shows without a prior.
    prior[np.diag_indices(len(prior))] += max(1.0 - kappa, 1e-6) / len(prior)
    return np.asarray(prior)


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
