# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra that estimators share: norms, distances, class means, scatters, PCA.

A vector of zeros never yields NaN.
"""

from dataclasses import dataclass

import numpy as np

from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError

#: Variances at or below this fraction of the largest count as zero.
VARIANCE_TOLERANCE = 1e-10
#: Squared distances at or below this fraction of the largest count as zero.
SAME_SAMPLE = 1e-12
#: Rows whose products are added at a time where sums must be exact.
_EXACT_ROWS = 4096
#: Samples of a class that are added one by one; more of them are added in pairs, which
#: rounds less.
_MANY_SAMPLES = 32


def unit_rows(features: Array) -> Array:
    """Rows scaled to unit norm; a row of zeros stays zero, never NaN."""
    norms = np.sqrt(np.einsum("ij,ij->i", features, features))
    return features / np.where(norms > 0.0, norms, 1.0)[:, None]


def squared_distances(A: Array, B: Array) -> Array:
    """Squared Euclidean distances between the rows of A and those of B."""
    square_a, square_b = np.einsum("ij,ij->i", A, A), np.einsum("ij,ij->i", B, B)
    return _distances(square_a, square_b, A @ B.T)


def gram_distances(gram: Array, squares: Array, others: Index) -> Array:
    """Squared Euclidean distances between rows, from their scalar products.

    Parameters
    ----------
    gram : ndarray of shape (n_rows, n_others)
        Scalar products of all rows and some of them.
    squares : ndarray of shape (n_rows,)
        Squared norms of all rows.
    others : ndarray of shape (n_others,)
        Which rows these are.

    Returns
    -------
    ndarray of shape (n_rows, n_others)
        The squared distances.
    """
    return _distances(squares, squares[others], gram.copy())


def _distances(square_a: Array, square_b: Array, products: Array) -> Array:
    """Squared distances from squared norms and products, which are overwritten."""
    products *= -2.0
    products += square_a[:, None] + square_b
    return np.maximum(products, 0.0, out=products)


@dataclass(frozen=True)
class SpanPCA:
    """Principal components of all samples, largest first.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        The mean of the samples.
    basis : ndarray of shape (n_features, rank)
        Orthonormal principal directions, one per column.
    coordinates : ndarray of shape (n_samples, rank)
        The centred samples in that basis.
    variances : ndarray of shape (rank,)
        Variance along each direction (divided by n_samples).
    """

    mean: Array
    basis: Array
    coordinates: Array
    variances: Array

    def first(self, n_components: int) -> "SpanPCA":
        """Keep the first directions only."""
        n = max(1, n_components)
        return SpanPCA(
            self.mean, self.basis[:, :n], self.coordinates[:, :n], self.variances[:n]
        )

    def n_for_energy(self, energy: float) -> int:
        """Number of directions that hold a fraction of the total variance."""
        shares = np.cumsum(self.variances) / self.variances.sum()
        return int(np.searchsorted(shares, energy * (1.0 - 1e-12)) + 1)


def principal_directions(factor: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of ``factor' factor``, largest first.

    Parameters
    ----------
    factor : ndarray of shape (n_rows, n_features)
        A factor of a positive semidefinite matrix, not all zeros.

    Returns
    -------
    eigenvalues : ndarray of shape (rank,)
        The non-zero eigenvalues.
    basis : ndarray of shape (n_features, rank)
        Orthonormal eigenvectors, one per column.
    """
    from dualqml.core import scatter_spectrum

    spectrum = scatter_spectrum(factor, rank_tolerance=VARIANCE_TOLERANCE)
    basis = spectrum.back_project(np.eye(spectrum.rank)[::-1]).T
    return spectrum.eigenvalues[::-1], basis


def deviations(X: Array) -> tuple[Array, Array]:
    """The mean of the samples, and their deviations from it.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.

    Returns
    -------
    mean : ndarray of shape (n_features,)
        Their mean.
    centred : ndarray of shape (n_samples, n_features)
        The samples minus their mean.

    Raises
    ------
    DualQMLError
        All samples are equal.
    """
    mean = X.mean(axis=0)
    centred = X - mean
    if not (np.abs(centred).max() > 1e-14 * np.abs(X).max()):
        raise DualQMLError(
            "All samples are equal: there is no direction to learn. Check that the "
            "rows of X are different images."
        )
    return mean, centred


def span_pca(X: Array) -> SpanPCA:
    """All principal components of the samples with non-zero variance.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.

    Returns
    -------
    SpanPCA
        The components.

    Raises
    ------
    DualQMLError
        All samples are equal.
    """
    mean, centred = deviations(X)
    eigenvalues, basis = principal_directions(centred)
    return SpanPCA(mean, basis, centred @ basis, eigenvalues / X.shape[0])


def nearly_exact_gram(Z: Array, largest_square: float) -> tuple[Array, int]:
    """``Z'Z`` with rounding errors that hardly grow with the number of rows.

    The rows are cut into two parts. The first has so few digits that all products and
    sums of it are exact in double precision; the second is so small that errors of its
    sums do not matter.

    Parameters
    ----------
    Z : ndarray of shape (n, d)
        Rows.
    largest_square : float
        Not less than the largest squared norm of a row.

    Returns
    -------
    gram : ndarray of shape (d, d)
        The products.
    n_errors : int
        How many rounding errors a term of an entry has met at most, relative to the sum
        of the squared norms of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml._linalg import nearly_exact_gram
    >>> gram, n_errors = nearly_exact_gram(np.full((3000, 1), 0.1), 0.01)
    >>> bool(abs(gram[0, 0] - 30.0) < 1e-14), n_errors
    (True, 6)
    """
    gram, n_errors = np.zeros((Z.shape[1], Z.shape[1])), 0
    if not len(Z):
        return gram, n_errors
    # A power of two above all numbers, and the distance of those that are kept.
    bound = 2.0 ** np.ceil(0.5 * np.log2(largest_square) + 0.5)
    step = bound * 2.0**-20
    # Adding and subtracting it rounds to a multiple of the step.
    shift = 1.5 * 2.0**52 * step
    for start in range(0, len(Z), _EXACT_ROWS):
        rows = Z[start : start + _EXACT_ROWS]
        # At most 2^20 steps: products have 40 bits, and sums of 2^12 of them 52.
        large = (rows + shift) - shift
        small = rows - large
        mixed = large.T @ small
        gram += large.T @ large + (mixed + mixed.T + small.T @ small)
        squares = float(np.einsum("ij,ij->", rows, rows))
        # The small part is at most half a step, so with n rows of squares T its sums
        # are wrong by at most n errors of sqrt(n T) steps in all.
        n_rows = len(rows)
        wrong = n_rows * np.sqrt(n_rows / squares) * step if squares else 0.0
        n_errors = max(n_errors, 4 + int(np.ceil(2.0 * wrong))) + 1
    return gram, n_errors


def class_means(Z: Array, codes: Index) -> tuple[Array, Index]:
    """Mean of each class, and its number of samples."""
    counts = np.bincount(codes)
    in_order = bool((codes[1:] >= codes[:-1]).all())
    ordered = Z if in_order else Z[np.argsort(codes, kind="stable")]
    first = np.cumsum(counts) - counts
    if int(counts.max(initial=0)) > _MANY_SAMPLES:
        return np.add.reduceat(ordered, first, axis=0) / counts[:, None], counts
    # Several times faster for many small classes.
    sums = ordered[first]
    for k in range(1, int(counts.max(initial=0))):
        longer = np.flatnonzero(counts > k)
        sums[longer] += ordered[first[longer] + k]
    return sums / counts[:, None], counts


def within_deviations(Z: Array, codes: Index) -> Array:
    """Each sample minus the mean of its class."""
    means, _ = class_means(Z, codes)
    return np.asarray(Z - means[codes])


def within_contrasts(Z: Array, codes: Index) -> Array:
    """The smallest number of rows that have the within-class scatter.

    A class of q samples gives its q - 1 Helmert contrasts: each sample against the
    mean of the samples before it.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.
    codes : ndarray of shape (n_samples,)
        Their classes.

    Returns
    -------
    ndarray of shape (n_samples - n_classes, d)
        Rows H. ``H'H`` is the sum of the outer products of the deviations.
    """
    order = np.argsort(codes, kind="stable")
    ordered, own = Z[order], codes[order]
    is_first = np.concatenate([[True], own[1:] != own[:-1]])
    first = np.flatnonzero(is_first)
    place = np.arange(own.size) - np.repeat(first, np.diff(np.append(first, own.size)))
    contrasts = np.empty((own.size - first.size, Z.shape[1]))
    row_of = np.cumsum(~is_first) - 1
    before = np.zeros_like(ordered)
    for k in range(1, int(place.max()) + 1):
        rows = np.flatnonzero(place == k)
        # The sum of the first k samples of each class that has more.
        before[rows] = before[rows - 1] + ordered[rows - 1]
        scale = 1.0 / np.sqrt(k * (k + 1.0))
        contrasts[row_of[rows]] = scale * (before[rows] - k * ordered[rows])
    return contrasts


def shrunk(S: Array, shrinkage: float) -> Array:
    """S with `shrinkage` times its mean diagonal element added to the diagonal."""
    size = S.shape[0]
    return np.asarray(S + shrinkage * np.trace(S) / size * np.eye(size))


def discriminant_directions(
    wanted: Array, unwanted: Array, n_components: int
) -> tuple[Array, Array]:
    """Directions a of the largest ``a'Wa / a'Ua``, scaled to ``a'Ua = 1``.

    Parameters
    ----------
    wanted, unwanted : ndarray of shape (d, d)
        Symmetric; the second positive definite.
    n_components : int
        Number of directions.

    Returns
    -------
    ratios : ndarray of shape (n_components,)
        The generalised eigenvalues, largest first.
    directions : ndarray of shape (d, n_components)
        The directions, one per column.

    Raises
    ------
    DualQMLError
        The second matrix is singular.
    """
    size = wanted.shape[0]
    n_components = max(1, min(n_components, size))
    if definite_factor(unwanted) is None:
        raise DualQMLError(
            "The within-class scatter is singular. Use a shrinkage above 0 or fewer "
            "dimensions before the discriminant step."
        )
    from scipy.linalg import eigh

    ratios, directions = eigh(
        wanted, unwanted, subset_by_index=(size - n_components, size - 1)
    )
    return ratios[::-1], directions[:, ::-1]


def definite_factor(S: Array) -> tuple[Array, bool] | None:
    """Cholesky factor for ``scipy.linalg.cho_solve``; None if S is singular.

    Because of rounding, the factorisation of a singular matrix may succeed, so
    its condition number is estimated as well.
    """
    from scipy.linalg import LinAlgError, cho_factor
    from scipy.linalg.lapack import dpocon

    try:
        factor: tuple[Array, bool] = cho_factor(S, lower=True)
    except LinAlgError:
        return None
    norm = np.abs(S).sum(axis=0).max()
    reciprocal_condition, _ = dpocon(factor[0], norm, uplo="L")
    if reciprocal_condition <= S.shape[0] * np.finfo(np.float64).eps:
        return None
    return factor
