# SPDX-License-Identifier: BSD-3-Clause
"""A model of the within-class eigenspectrum, and features that use it.

With few samples, small within-class variances are underestimated, and many are zero.
Their inverses would dominate the features. The model replaces them by a curve through
the large variances, which are reliable [1]_. It is used in the space of the images and
in the space of a kernel.

References
----------
.. [1] X. Jiang, B. Mandal, A. Kot, "Eigenfeature regularization and extraction
   in face recognition", IEEE PAMI, 2008.
"""

from dataclasses import dataclass

import numpy as np

from dualqml._linalg import principal_directions, within_deviations
from dualqml._typing import Array, Index
from dualqml.images.tangents import with_motions


@dataclass(frozen=True)
class RegularisedSpectrum:
    """Within-class variances as measured and as modelled.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        The non-zero measured variances, largest first.
    values : ndarray of shape (rank,)
        The modelled variances.
    null_value : float
        The modelled variance in directions where the measured variance is zero.
    n_reliable : int
        Number of variances that stay as measured. The curve goes through the first
        and the last of them. 0 if nothing was measured.
    """

    eigenvalues: Array
    values: Array
    null_value: float
    n_reliable: int


def regularised_spectrum(eigenvalues: Array, mu: float) -> RegularisedSpectrum:
    """Replace unreliable variances by the curve ``alpha / (k + beta)``.

    Parameters
    ----------
    eigenvalues : ndarray of shape (rank,)
        Positive variances, largest first; may be empty.
    mu : float
        How far above the median a variance must be to count as reliable, in
        units of the distance from the median down to the smallest.

    Returns
    -------
    RegularisedSpectrum
        The model. If at most one variance is reliable, there is no second point for
        a curve, and the model is constant. It is 1 if nothing was measured.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors._eigenspectrum import regularised_spectrum
    >>> model = regularised_spectrum(np.array([12.0, 6.0, 1.0, 0.5, 0.1]), 1.0)
    >>> model.n_reliable, model.values.round(2)
    (2, array([12. ,  6. ,  4. ,  3. ,  2.4]))
    """
    rank = eigenvalues.size
    if rank == 0:
        return RegularisedSpectrum(eigenvalues, eigenvalues, 1.0, 0)
    median = float(np.median(eigenvalues))
    limit = median + mu * (median - float(eigenvalues[-1]))
    # With two variances and mu=1 the limit equals the first one, up to rounding.
    reliable = max(1, int(np.count_nonzero(eigenvalues >= limit)))
    if reliable == 1:
        flat = np.full(rank, eigenvalues[0])
        return RegularisedSpectrum(eigenvalues, flat, float(flat[0]), 1)
    first, last = float(eigenvalues[0]), float(eigenvalues[reliable - 1])
    # The paper counts from 1. The direction after the last measured one has number
    # rank + 1, and stands for all directions without a measured variance.
    k = np.arange(1.0, rank + 2.0)
    # alpha / (k + beta), multiplied out by first - last. So equal variances need no
    # special case: then the curve is constant.
    curve = first * last * (reliable - 1) / ((k - 1) * first + (reliable - k) * last)
    values = np.where(k[:-1] <= reliable, eigenvalues, curve[:-1])
    return RegularisedSpectrum(eigenvalues, values, float(curve[-1]), reliable)


@dataclass(frozen=True)
class Whitening:
    """The symmetric matrix T that divides by the modelled deviations.

    Attributes
    ----------
    spectrum : RegularisedSpectrum
        The model.
    vectors : ndarray of shape (d, rank)
        Orthonormal directions of the measured variances, one per column.
    """

    spectrum: RegularisedSpectrum
    vectors: Array

    def apply(self, rows: Array) -> Array:
        """The product ``rows @ T``.

        ``T = V diag(w - w0) V' + w0 I``, so no d x d matrix is formed.
        """
        null_weight = self.spectrum.null_value**-0.5
        extra = self.spectrum.values**-0.5 - null_weight
        inside = ((rows @ self.vectors) * extra) @ self.vectors.T
        return np.asarray(inside + null_weight * rows)


def balanced_weights(codes: Index) -> Array:
    """Weights of samples such that all classes have equal sums; the total is 1."""
    counts = np.bincount(codes)
    return np.asarray(1.0 / (counts.size * counts[codes]))


def regularised_whitening(
    Z: Array, codes: Index, mu: float, motions: Array | None = None
) -> Whitening:
    """Whiten the within-class scatter under the model of its spectrum.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples in any orthonormal coordinates.
    codes : ndarray of shape (n_samples,)
        Their classes.
    mu : float
        See :func:`regularised_spectrum`.
    motions : ndarray of shape (n_rows, d), optional
        Added to the within-class scatter, see
        :func:`~dualqml.images.tangents.motion_rows`.

    Returns
    -------
    Whitening
        The identity if no class varies, as with one sample per class, and there are
        no motions.
    """
    deviations = within_deviations(Z, codes)
    weights = balanced_weights(codes)
    weighted = np.sqrt(weights)[:, None] * deviations
    if _is_rounding(deviations, Z):
        weighted = weighted[:0]
    total_trace = float(weights @ np.square(Z - weights @ Z).sum(axis=1))
    weighted = with_motions(weighted, motions, total_trace)
    if weighted.size == 0:
        empty = regularised_spectrum(np.empty(0), mu)
        return Whitening(empty, np.empty((Z.shape[1], 0)))
    measured, vectors = principal_directions(weighted)
    return Whitening(regularised_spectrum(measured, mu), vectors)


def eigenspectrum_directions(
    Z: Array,
    codes: Index,
    *,
    mu: float,
    n_components: int | None,
    motions: Array | None = None,
) -> Array:
    """Regularised whitening, then the principal components of the result.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples in any orthonormal coordinates, not all equal.
    codes : ndarray of shape (n_samples,)
        Their classes.
    mu : float
        See :func:`regularised_spectrum`.
    n_components : int or None
        Number of directions; None means all.
    motions : ndarray of shape (n_rows, d), optional
        See :func:`regularised_whitening`.

    Returns
    -------
    ndarray of shape (d, n_components)
        The directions in the coordinates of Z, one per column; at most
        n_samples - 1 and d.
    """
    whitening = regularised_whitening(Z, codes, mu, motions)
    whitened = whitening.apply(Z)
    weights = balanced_weights(codes)
    centred = whitened - weights @ whitened
    _, principal = principal_directions(np.sqrt(weights)[:, None] * centred)
    # T is symmetric, so it is applied to a direction in the same way as to a sample.
    return np.asarray(whitening.apply(principal[:, :n_components].T).T)


def _is_rounding(deviations: Array, Z: Array) -> bool:
    """Whether samples differ from their class mean by rounding errors only.

    Means of equal rows are not exact, and coordinates from a kernel are less exact
    than the samples.
    """
    size = np.abs(deviations).max()
    spread = np.abs(Z - Z.mean(axis=0)).max()
    return bool(size <= max(1e-14 * np.abs(Z).max(), 1e-10 * spread))
