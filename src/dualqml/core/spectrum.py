# SPDX-License-Identifier: BSD-3-Clause
"""The spectrum of the total scatter, shared by every class and every lambda.

The matrix whose negative part gives P_c is, by O_c = S - X_c' X_c,

    lam O_c - sum_i u_i x_i x_i' = lam S - X_c' diag(u + lam) X_c,

one matrix S = X'X for all classes minus a term of rank n_c. So the solvers work in
the eigenbasis of S, where S is diagonal.
"""

from dataclasses import dataclass

import numpy as np

from dualqml._typing import Array, Mask

#: Eigenvalues of the scatter at or below this fraction of the largest are dropped: its
#: numerical rank is the number of the others.
RANK_TOLERANCE = 1e-12

#: Distance from 1 to the next larger floating-point number, which is twice the largest
#: relative rounding error.
EPSILON = float(np.finfo(np.float64).eps)

#: Rows multiplied at a time, which limits the size of temporaries. A constant, so that
#: results do not depend on how the caller splits the work.
_ROW_BLOCK = 2048


def decomposition_error(size: int, *, singular_values: bool = False) -> float:
    """Backward error of LAPACK's decompositions, relative to the norm of the matrix.

    Computed eigenvalues and singular values are those of a matrix that differs from
    the given one by a small multiple of the machine precision. The multiples here are
    at least twice the largest that were measured: 20 to 40 for eigenvectors, growing
    slowly with the size, and 50 for singular values, whose iteration stops there.

    Parameters
    ----------
    size : int
        The larger side of the matrix.
    singular_values : bool, default=False
        Whether singular values were computed by bidiagonalisation.

    Returns
    -------
    float
        The bound.
    """
    return EPSILON * ((100.0 if singular_values else 32.0) + 2.0 * size)


def dot_error(length: int) -> float:
    """Largest error of a scalar product, relative to the norms of the two vectors.

    Parameters
    ----------
    length : int
        Number of terms.

    Returns
    -------
    float
        The bound. It holds for every order in which the terms are added.
    """
    return 0.5 * EPSILON * (length + 4)


@dataclass(frozen=True)
class ScatterSpectrum:
    """Eigendecomposition ``S = Q diag(L) Q'`` of the total scatter ``S = X'X``.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        The eigenvalues L above the rank tolerance, in ascending order.
    coordinates : ndarray of shape (n_samples, rank)
        The rows of X in the eigenbasis, ``Z = X Q``; ``Z'Z = diag(L)``.
    samples : ndarray of shape (n_samples, n_features)
        The rows X themselves.
    squared_norms : ndarray of shape (n_samples,)
        Their squared norms.
    basis : ndarray of shape (n_features, rank) or None
        Q where it was computed explicitly. Otherwise Q = X' Z diag(1/L) is applied
        in factored form and never computed.
    scatter_error : float
        Bound on the norm of the error of the decomposition, caused by rounding and
        by the eigenvalues that were dropped: of ``XX' - ZZ'`` (Gram matrix) if
        n_samples <= n_features, else of ``S - Q diag(L) Q'``.
    sample_error : float
        If the samples themselves were decomposed, a bound on the norm of
        ``X - ZQ'``, and `scatter_error` is zero. Otherwise zero.
    dropped : ndarray of shape (n_samples,)
        How much of each sample lies in the dropped directions. If n_samples <=
        n_features, the sum of its squared entries in the dropped eigenvectors of
        the Gram matrix, else the norm of ``x - QQ'x``.
    shared : SharedSpectrum or None
        Where the samples here are only some of those that the scatter is of, the
        spectrum that they share with the others.
    """

    eigenvalues: Array
    coordinates: Array
    samples: Array
    squared_norms: Array
    basis: Array | None
    scatter_error: float
    sample_error: float
    dropped: Array
    shared: "SharedSpectrum | None" = None

    @property
    def rank(self) -> int:
        """Dimension of the span of the samples."""
        return int(self.eigenvalues.shape[0])

    @property
    def n_samples(self) -> int:
        """Number of samples that the scatter is of, also where these are only some."""
        return len(self.samples) if self.shared is None else self.shared.n_samples

    @property
    def unresolved(self) -> Mask:
        """Samples so much smaller than others that they are within its error."""
        noise = 2.0 * self.scatter_error + 4.0 * self.sample_error**2
        return np.asarray(self.squared_norms <= noise)

    def project(self, rows: Array) -> Array:
        """Map row vectors from the space of the samples to the eigenbasis.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Vectors. The part outside the span of the samples is lost.

        Returns
        -------
        ndarray of shape (n_rows, rank)
            ``rows @ Q``.
        """
        if self.basis is not None:
            return rows @ self.basis
        return (rows @ self.samples.T) @ (self.coordinates / self.eigenvalues)

    def back_project(self, rows: Array) -> Array:
        """Map row vectors from the eigenbasis back to the space of the samples.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, rank)
            Coordinates in the eigenbasis.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            ``rows @ Q'``.
        """
        n_rows, n_features = rows.shape[0], self.samples.shape[1]
        basis_T = None if self.basis is None else self.basis.T
        if basis_T is None and n_rows > n_features:
            # For so many rows it is faster to compute Q first.
            basis_T = (self.coordinates / self.eigenvalues).T @ self.samples
        out = np.empty((n_rows, n_features))
        for start in range(0, n_rows, _ROW_BLOCK):
            block = rows[start : start + _ROW_BLOCK]
            if basis_T is not None:
                out[start : start + _ROW_BLOCK] = block @ basis_T
            else:
                weights = (block / self.eigenvalues) @ self.coordinates.T
                out[start : start + _ROW_BLOCK] = weights @ self.samples
        return out


def scatter_spectrum(
    X: Array, *, rank_tolerance: float = RANK_TOLERANCE
) -> ScatterSpectrum:
    """Eigendecompose the total scatter ``S = X'X`` of all samples.

    With fewer samples than features the n x n Gram matrix is decomposed
    instead, so nothing of size n_features x n_features is computed.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples of all classes, one row per sample.
    rank_tolerance : float, default=1e-12
        Eigenvalues at or below this fraction of the largest are dropped.

    Returns
    -------
    ScatterSpectrum
        The decomposition, to be reused for every class and every lambda.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import scatter_spectrum
    >>> X = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    >>> scatter_spectrum(X).eigenvalues
    array([4., 9.])
    """
    n_samples, n_features = X.shape
    wide = n_samples <= n_features
    # XX' = U diag(L) U'  gives  Z = XQ = U diag(sqrt L) without a product.
    eigenvalues, vectors = np.linalg.eigh(X @ X.T if wide else X.T @ X)
    first = _first_above(eigenvalues, rank_tolerance)
    # Each entry of the product is a sum of n_features or n_samples terms.
    squared_norms = np.einsum("ij,ij->i", X, X)
    error = dot_error(max(X.shape)) * float(squared_norms.sum())
    error += decomposition_error(eigenvalues.size) * float(eigenvalues[-1])
    error += max(float(eigenvalues[first - 1]), 0.0) if first else 0.0
    if wide:
        dropped = (vectors[:, :first] ** 2).sum(axis=1)
        basis, eigenvalues = None, eigenvalues[first:]
        coordinates = vectors[:, first:] * np.sqrt(eigenvalues)
    else:
        basis = np.ascontiguousarray(vectors[:, first:])
        dropped = _norms(X @ vectors[:, :first])
        eigenvalues = eigenvalues[first:]
        coordinates = X @ basis
    return ScatterSpectrum(
        eigenvalues, coordinates, X, squared_norms, basis, error, 0.0, dropped
    )


@dataclass(frozen=True)
class SharedSpectrum:
    """The spectrum of the scatter of all samples, apart from the samples.

    It is all that a part of the classes has to know of the other samples.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        Eigenvalues above the rank tolerance, ascending, of the scatter of the samples
        divided by `scale`.
    basis : ndarray of shape (n_features, rank)
        Their eigenvectors, one per column.
    outside : ndarray of shape (n_features, n_features - rank)
        The other eigenvectors.
    n_samples : int
        Number of all samples.
    squared_norm_range : tuple of float
        Smallest and largest squared norm of a sample, divided by ``scale ** 2``.
    scatter_error : float
        As in :class:`ScatterSpectrum`.
    scale : float
        A power of two, about the norm of the samples.
    """

    eigenvalues: Array
    basis: Array
    outside: Array
    n_samples: int
    squared_norm_range: tuple[float, float]
    scatter_error: float
    scale: float

    def of_rows(self, X: Array) -> ScatterSpectrum:
        """Some of the samples, in the eigenbasis of the scatter of all of them.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Samples divided by `scale`.

        Returns
        -------
        ScatterSpectrum
            For the classes of these samples.
        """
        return ScatterSpectrum(
            self.eigenvalues,
            X @ self.basis,
            X,
            np.einsum("ij,ij->i", X, X),
            self.basis,
            self.scatter_error,
            0.0,
            _norms(X @ self.outside),
            self,
        )


def shared_spectrum(
    scatter: Array,
    n_samples: int,
    squared_norm_range: tuple[float, float],
    *,
    longest_sum: int | None = None,
) -> SharedSpectrum:
    """Eigendecompose the scatter of all samples, given as a sum over parts of them.

    Parameters
    ----------
    scatter : ndarray of shape (n_features, n_features)
        ``X'X`` of all samples.
    n_samples : int
        Their number.
    squared_norm_range : tuple of float
        Their smallest and largest squared norm, both positive.
    longest_sum : int, optional
        Most rounding errors that a term of an entry of the scatter has met: fewer than
        samples if sums over parts were added up. By default the number of samples.
        It makes the certificates of very many samples sharper.

    Returns
    -------
    SharedSpectrum
        The decomposition, for :func:`~dualqml.core.solve_part`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import shared_spectrum
    >>> X = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    >>> found = shared_spectrum(X.T @ X, 3, (4.0, 9.0))
    >>> found.scale, found.eigenvalues * found.scale**2
    (2.0, array([8., 9.]))
    """
    total = float(np.trace(scatter))
    # About the root of the mean squared norm, as in `solve_certified`.
    scale = norm_scale(total / n_samples)
    eigenvalues, vectors = np.linalg.eigh(scatter / scale**2)
    # What is dropped is part of the error, so no more is dropped than rounding hides.
    hidden = 2.0 * decomposition_error(eigenvalues.size)
    first = _first_above(eigenvalues, min(RANK_TOLERANCE, hidden))
    # Each entry is a sum of products. The trace has rounding errors too.
    error = dot_error(n_samples if longest_sum is None else longest_sum)
    error *= (1.0 + dot_error(len(scatter))) * total / scale**2
    error += decomposition_error(eigenvalues.size) * float(eigenvalues[-1])
    error += max(float(eigenvalues[first - 1]), 0.0) if first else 0.0
    smallest, largest = squared_norm_range
    return SharedSpectrum(
        eigenvalues[first:],
        np.ascontiguousarray(vectors[:, first:]),
        np.ascontiguousarray(vectors[:, :first]),
        n_samples,
        (smallest / scale**2, largest / scale**2),
        error,
        scale,
    )


def norm_scale(mean_square: float) -> float:
    """A power of two near the norm of the samples: dividing by it is exact.

    Parameters
    ----------
    mean_square : float
        Mean squared norm of the samples.

    Returns
    -------
    float
        The scale.
    """
    return float(2.0 ** np.round(0.5 * np.log2(mean_square)))


def sample_spectrum(X: Array) -> ScatterSpectrum:
    """The same decomposition from the singular values of the samples.

    Several times slower than :func:`scatter_spectrum`. Its error is relative to
    the samples and not to their squares: a direction in which the samples extend
    by a millionth of their length keeps ten digits instead of four.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples of all classes, one row per sample.

    Returns
    -------
    ScatterSpectrum
        The decomposition, with an explicit basis.
    """
    vectors, singular, basis_T = np.linalg.svd(X, full_matrices=False)
    error = decomposition_error(max(X.shape), singular_values=True)
    error *= float(singular[0])
    kept = int((singular > error).sum())
    # Singular values come largest first; the spectrum is ascending.
    order = np.arange(kept)[::-1]
    basis = np.ascontiguousarray(basis_T[order].T)
    if kept < singular.size:
        error += float(singular[kept])
    if X.shape[0] <= X.shape[1]:
        dropped = (vectors[:, kept:] ** 2).sum(axis=1)
    else:
        dropped = np.full(X.shape[0], error)
    singular = singular[order]
    return ScatterSpectrum(
        singular**2,
        vectors[:, order] * singular,
        X,
        np.einsum("ij,ij->i", X, X),
        basis,
        0.0,
        error,
        dropped,
    )


def _norms(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _first_above(ascending: Array, rank_tolerance: float) -> int:
    """Index of the first eigenvalue that counts as non-zero."""
    floor = rank_tolerance * max(float(ascending[-1]), 0.0)
    return int(np.searchsorted(ascending, floor, side="right"))
