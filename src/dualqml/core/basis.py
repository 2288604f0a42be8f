# SPDX-License-Identifier: BSD-3-Clause
"""Rational Krylov bases in which each class's problem becomes small.

The eigenvectors of M(v) = diag(L) - Z' D Z, D = diag(1 + v), for its negative
eigenvalues -t are q ~ (L + t)^-1 Z' c with c = D Z q: they lie in the span of
(L + s)^-1 Z' over a few shifts s near the roots t. A basis is a batch of such
vectors, one set a class, grown by blocks (one shift, all own samples) and by
refined vectors (the best shift and combination for one root).
"""

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array

#: Added to the unit diagonal of the Gram matrix of the basis. It can only
#: shrink a degenerate direction, so the reduced problem stays a restriction.
_GRAM_RIDGE = 1e-12


class RationalBasis:
    """Vectors w_j = (L + s_j)^-1 Z' c_j for a batch of classes.

    Parameters
    ----------
    Z : ndarray of shape (n_classes, k, rank)
        Own samples in the eigenbasis of the scatter; zero rows where padded.
    L : ndarray of shape (rank,)
        Eigenvalues of the scatter.
    capacity : int
        Largest number of vectors that will be held.
    """

    def __init__(self, Z: Array, L: Array, capacity: int) -> None:
        n_classes, k, rank = Z.shape
        self.Z, self.L, self.capacity = Z, L, capacity
        self.size = 0
        self.block_shifts = np.empty((n_classes, 0))
        self._W = np.empty((n_classes, capacity, rank))
        self._shifts = np.empty((n_classes, capacity))
        self._coefficients = np.empty((n_classes, k, capacity))
        self._B = np.empty((n_classes, k, capacity))
        self._gram = np.empty((n_classes, capacity, capacity))

    def select(self, rows: NDArray[np.intp], capacity: int) -> "RationalBasis":
        """A copy for some of the classes, with room for `capacity` vectors."""
        part = RationalBasis(self.Z[rows], self.L, capacity)
        part.size = n = self.size
        part.block_shifts = self.block_shifts[rows]
        part._W[:, :n] = self._W[rows, :n]
        part._shifts[:, :n] = self._shifts[rows, :n]
        part._coefficients[:, :, :n] = self._coefficients[rows, :, :n]
        part._B[:, :, :n] = self._B[rows, :, :n]
        part._gram[:, :n, :n] = self._gram[rows, :n, :n]
        return part

    def add_block(self, shifts: Array) -> None:
        """Append (L + s)^-1 z_i for every own sample, one shift a class."""
        k = self.Z.shape[1]
        rows = slice(self.size, self.size + k)
        inverse = 1.0 / (self.L + shifts[:, None])
        np.multiply(self.Z, inverse[:, None, :], out=self._W[:, rows])
        self._coefficients[:, :, rows] = np.eye(k)
        self.block_shifts = np.concatenate([self.block_shifts, shifts[:, None]], 1)
        self._append(k, shifts[:, None])

    def add_vectors(self, coefficients: Array, shifts: Array) -> None:
        """Append (L + s_j)^-1 Z' c_j for the columns c_j of `coefficients`."""
        n_new = coefficients.shape[2]
        rows = slice(self.size, self.size + n_new)
        W = self._W[:, rows]
        np.matmul(coefficients.transpose(0, 2, 1), self.Z, out=W)
        W /= self.L + shifts[:, :, None]
        self._coefficients[:, :, rows] = coefficients
        self._append(n_new, shifts)

    def _append(self, n_new: int, shifts: Array) -> None:
        old, end = self.size, self.size + n_new
        new_T = self._W[:, old:end].transpose(0, 2, 1)
        self._shifts[:, old:end] = shifts
        np.matmul(self.Z, new_T, out=self._B[:, :, old:end])
        cross = self._W[:, :end] @ new_T
        self._gram[:, :end, old:end] = cross
        self._gram[:, old:end, :old] = cross[:, :old].transpose(0, 2, 1)
        self.size = end

    def clear_of_blocks(self, shifts: Array) -> Array:
        """Move shifts that would repeat the vectors of the blocks in use.

        Shifts far below the spectrum all give the same vectors; such a shift
        is replaced by one above the spectrum's lower end.
        """
        L_min = self.L[0]
        used = self.block_shifts
        clash = np.abs(np.log((shifts[:, None] + L_min) / (used + L_min))) < 0.02
        instead = 8.0 * np.maximum(used.max(axis=1), 0.3 * L_min)
        return np.where(clash.any(axis=1), instead, shifts)

    def shift_near(self, root: Array, t1: Array) -> Array:
        """The shift nearest to `root` that is well apart from all blocks in use."""
        L_min = self.L[0]
        grid = t1[:, None] * 10.0 ** np.linspace(-4.0, 1.0, 21)
        apart = np.abs(
            np.log((grid[:, :, None] + L_min) / (self.block_shifts[:, None] + L_min))
        ).min(axis=2)
        distance = np.abs(np.log(grid / root[:, None]))
        # Well apart: a factor of two. If none is, the one farthest from all.
        distance = np.where(apart > np.log(2.0), distance, 1e3 - apart)
        return np.asarray(grid[np.arange(grid.shape[0]), distance.argmin(axis=1)])

    def reduced(self) -> tuple[Array, Array, Array]:
        """The problem in an orthonormal basis of the vectors held.

        Returns
        -------
        A : ndarray of shape (n_classes, size, size)
            diag(L) in that basis.
        B : ndarray of shape (n_classes, k, size)
            The own samples in that basis.
        T : ndarray of shape (n_classes, size, size)
            The basis: its vectors are the rows of ``T' W``.
        """
        n = self.size
        gram = self._gram[:, :n, :n]
        B = self._B[:, :, :n]
        diagonal = np.arange(n)
        squared = gram[:, diagonal, diagonal]
        empty = squared <= 0.0  # padded samples
        scale = 1.0 / np.sqrt(np.where(empty, 1.0, squared))
        scaled_gram = gram * (scale[:, :, None] * scale[:, None, :])
        scaled_gram[:, diagonal, diagonal] += np.where(empty, 1.0, 0.0)
        factor = _inverse_cholesky(scaled_gram)
        T = scale[:, :, None] * factor.transpose(0, 2, 1)
        # L w_j = Z'c_j - s_j w_j  gives  W L W' = B'C - (W W') diag(s).
        scatter = B.transpose(0, 2, 1) @ self._coefficients[:, :, :n]
        scatter -= gram * self._shifts[:, None, :n]
        A = T.transpose(0, 2, 1) @ (scatter @ T)
        A = 0.5 * (A + A.transpose(0, 2, 1))
        # A padded direction must not look like a small eigenvalue.
        A[:, diagonal, diagonal] += np.where(empty, self.L[-1], 0.0)
        return A, B @ T, T

    def reduced_by_qr(self) -> tuple[Array, Array, Array]:
        """As :meth:`reduced`, by an explicit QR factorisation of the vectors.

        Several times slower, and free of the loss of orthogonality that the
        Gram matrix of nearly dependent vectors brings. The third array holds
        the orthonormal vectors themselves, one a row.
        """
        W = self._W[:, : self.size]
        norms = np.sqrt((W * W).sum(axis=2))
        scaled = W / np.where(norms > 0.0, norms, 1.0)[:, :, None]
        Q = np.linalg.qr(scaled.transpose(0, 2, 1))[0].transpose(0, 2, 1)
        Q = np.ascontiguousarray(Q)
        Q_T = Q.transpose(0, 2, 1)
        A = (Q * self.L) @ Q_T
        return 0.5 * (A + A.transpose(0, 2, 1)), self.Z @ Q_T, Q

    def lift(self, vectors: Array) -> Array:
        """Rows in the eigenbasis of the columns of `vectors` (basis weights)."""
        return vectors.transpose(0, 2, 1) @ self._W[:, : self.size]


def _inverse_cholesky(gram: Array) -> Array:
    """Inverse lower Cholesky factors of unit-diagonal Gram matrices.

    The ridge grows for a class whose matrix is numerically indefinite, class
    by class, so that no class's result depends on another's.
    """
    n = gram.shape[1]
    identity = np.eye(n)
    try:
        factor = np.linalg.cholesky(gram + _GRAM_RIDGE * identity)
    except np.linalg.LinAlgError:
        factor = np.stack([_ridged_cholesky(matrix) for matrix in gram])
    return np.asarray(np.linalg.inv(factor), dtype=np.float64)


def _ridged_cholesky(matrix: Array) -> Array:
    ridge = _GRAM_RIDGE
    while True:
        try:
            shifted = matrix + ridge * np.eye(matrix.shape[0])
            return np.asarray(np.linalg.cholesky(shifted), dtype=np.float64)
        except np.linalg.LinAlgError:
            ridge *= 100.0
