# SPDX-License-Identifier: BSD-3-Clause
"""The spectrum of the total scatter, shared by every class and every lambda.

The matrix whose negative part gives P_c is, by O_c = S - X_c' X_c,

    lam O_c - sum_i u_i x_i x_i' = lam S - X_c' diag(u + lam) X_c,

one matrix S = X'X for all classes minus a term of rank n_c. Everything the
solvers do therefore happens in the eigenbasis of S, where S is diagonal.
"""

from dataclasses import dataclass

import numpy as np

from dualqml.core.arrays import Array

#: Eigenvalues of the scatter at or below this fraction of the largest are noise.
RANK_TOLERANCE = 1e-12

#: Rows multiplied at a time when temporaries would otherwise grow with n. A
#: constant, so that results do not depend on how the caller splits the work.
_ROW_BLOCK = 2048


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
    basis : ndarray of shape (n_features, rank) or None
        Q where it was computed explicitly (n_samples > n_features). Otherwise
        Q = X' Z diag(1/L) is applied in factored form and never formed.
    """

    eigenvalues: Array
    coordinates: Array
    samples: Array
    basis: Array | None

    @property
    def rank(self) -> int:
        """Dimension of the span of the samples."""
        return int(self.eigenvalues.shape[0])

    def project(self, rows: Array) -> Array:
        """Coordinates in the eigenbasis of row vectors given as samples are.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Vectors; what lies outside the span of the samples is lost.

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
            # For so many rows, forming Q first is the shorter way.
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
    instead, so nothing of size n_features x n_features is formed.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples of all classes, one a row.
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
    if n_samples <= n_features:
        # XX' = U diag(L) U'  gives  Z = XQ = U diag(sqrt L) without a product.
        eigenvalues, vectors = np.linalg.eigh(X @ X.T)
        kept = _above_tolerance(eigenvalues, rank_tolerance)
        eigenvalues = eigenvalues[kept:]
        coordinates = vectors[:, kept:] * np.sqrt(eigenvalues)
        return ScatterSpectrum(eigenvalues, coordinates, X, None)
    eigenvalues, vectors = np.linalg.eigh(X.T @ X)
    kept = _above_tolerance(eigenvalues, rank_tolerance)
    basis = np.ascontiguousarray(vectors[:, kept:])
    return ScatterSpectrum(eigenvalues[kept:], X @ basis, X, basis)


def _above_tolerance(ascending: Array, rank_tolerance: float) -> int:
    """Index of the first eigenvalue that counts as non-zero."""
    floor = rank_tolerance * max(float(ascending[-1]), 0.0)
    return int(np.searchsorted(ascending, floor, side="right"))
