# SPDX-License-Identifier: BSD-3-Clause
"""Rational Krylov bases in which each class's problem becomes small.

The eigenvectors of M(v) = diag(L) - Z' D Z, D = diag(1 + v), for its negative
eigenvalues -t are q ~ (L + t)^-1 Z' c with c = D Z q: they lie in the span of
(L + s)^-1 Z' over a few shifts s near the roots t. A basis is a batch of such
vectors, one set a class, grown by blocks (one shift, all own samples) and by
refined vectors (the best shift and combination for one root).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.semismooth_newton import ReducedSolution, minimise

#: Added to the unit diagonal of the Gram matrix of the basis. It can only
#: shrink a degenerate direction, so the reduced problem stays a restriction.
_GRAM_RIDGE = 1e-12

#: Relative KKT violation at which the first two levels hand over to the next.
_COARSE_TOL = 3e-2
#: Newton iterations within which an easy lambda is solved.
_EASY_ITERATIONS = 8
#: A hard one is approached from smaller ones, in steps of these many a decade.
_CONTINUATION_STEPS = (1, 4, 16)
#: Smaller violations than this are not worth finer steps: it may be rounding.
_ROUNDING_VIOLATION = 1e-4
#: First shift, in units of the largest single-sample root.
_FIRST_SHIFT = 1.15
#: Further shifts, in units of t1, the largest root found at level 1: three
#: blocks where a class's roots spread over decades, else two.
_SPREAD_SHIFTS = (0.1, 0.01)
_NARROW_SHIFT = 0.06
#: A class has but one root if one Ritz value only is below this fraction of t1.
_LONE_ROOT = 0.3
#: Classes up to this size start with two blocks, the second at this shift.
_SMALL_CLASS, _SMALL_CLASS_SHIFT = 2, 0.07
#: Ritz values below this fraction of t1 may hide a root: refine them too.
_CANDIDATE = 0.05
#: Smallest shift of a refined vector, in units of t1.
_SMALLEST_SHIFT = 0.002
#: Below this fraction of the smallest eigenvalue of the scatter, blocks are
#: already exact and refined vectors are only noise.
_FAR_BELOW_SPECTRUM = 1e-4
#: Estimated gap, in units of the tolerance, at which a class is accepted. It is
#: an estimate: the certificate tells what was reached.
_ACCEPTED_GAP = 0.5
#: Allowed deviation of a Ritz vector's norm from one in the full space.
_NORM_TOLERANCE = 1e-7
#: Passes for classes that fail the test, one more block each.
_MAX_PASSES = 8


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


@dataclass
class BatchSolution:
    """Solutions of a batch, scaled: u = lam v, P = lam sum_a t_a q_a q_a'."""

    v: Array  # (C, k)
    roots: Array  # (C, k): t_a in falling order, zero where there is none
    vectors: Array  # (C, k, rank): q_a as rows, in the eigenbasis
    shifts: Array  # (C, k): estimated errors of the roots
    gap: Array  # (C,) estimated relative duality gap
    violation: Array  # (C,)
    n_iter: NDArray[np.int64]  # (C,) eigendecompositions of reduced problems


def solve_batch(
    Z: Array,
    L: Array,
    real: Mask,
    inv_lam: float,
    v: Array,
    t: Array,
    *,
    tol: float,
    max_iter: int,
    n_easings: int,
) -> BatchSolution:
    """Solve the scaled dual of every class of a batch.

    Parameters
    ----------
    Z : ndarray of shape (n_classes, k, rank)
        Own samples in the eigenbasis of the scatter; zero rows where padded.
    L : ndarray of shape (rank,)
        Eigenvalues of the scatter, ascending.
    real : boolean ndarray of shape (n_classes, k)
        False at padded samples.
    inv_lam : float
        1 / lam.
    v : ndarray of shape (n_classes, k)
        Start: from every sample alone, or from a neighbouring lambda.
    t : ndarray of shape (n_classes,)
        Estimate of the largest root that goes with it.
    tol : float
        Relative duality gap asked for.
    max_iter : int
        Newton iterations allowed at each level.
    n_easings : int
        How many powers of ten below lambda to start from where it is hard.

    Returns
    -------
    BatchSolution
        The solutions, with an estimate of the gap reached.
    """
    n_classes, k, rank = Z.shape
    out = BatchSolution(
        v=np.zeros_like(v),
        roots=np.zeros((n_classes, k)),
        vectors=np.empty((n_classes, k, rank)),
        shifts=np.zeros((n_classes, k)),
        gap=np.full(n_classes, np.inf),
        violation=np.full(n_classes, np.inf),
        n_iter=np.zeros(n_classes, dtype=np.int64),
    )
    batch = _Batch(Z, L, real, inv_lam, tol, max_iter, n_easings, np.array(v), out)
    if 4 * k >= 0.9 * rank:
        batch.solve_densely()
    else:
        batch.solve_by_levels(t)
    return out


@dataclass
class _Batch:
    """The batch being solved; methods write their results to `out`."""

    Z: Array
    L: Array
    real: Mask
    inv_lam: float
    tol: float
    max_iter: int
    n_easings: int
    v: Array  # the present iterate; `out` keeps the best
    out: BatchSolution

    def newton(
        self,
        rows: Index,
        A: Array,
        B: Array,
        tol: float,
        *,
        max_iter: int | None = None,
        easing: float = 1.0,
    ) -> ReducedSolution:
        """Newton from the present v of the classes `rows`, for lam / easing."""
        found = minimise(
            A,
            B,
            self.v[rows],
            self.inv_lam * easing,
            self.real[rows],
            tol=tol,
            max_evaluations=max_iter or self.max_iter,
        )
        self.v[rows] = found.v
        self.out.n_iter[rows] += found.n_evaluations
        return found

    def newton_with_continuation(
        self, rows: Index, A: Array, B: Array, tol: float
    ) -> ReducedSolution:
        """As :meth:`newton`; a hard (large) lambda is approached from smaller ones."""
        found = self.newton(rows, A, B, tol, max_iter=_EASY_ITERATIONS)
        limit = tol
        for steps_a_decade in _CONTINUATION_STEPS:
            hard = np.flatnonzero(found.violation > limit)
            if hard.size == 0:
                break
            limit = max(tol, _ROUNDING_VIOLATION)
            A_hard, B_hard = A[hard], B[hard]
            for step in range(self.n_easings * steps_a_decade, 0, -1):
                easing = 10.0 ** (step / steps_a_decade)
                self.newton(rows[hard], A_hard, B_hard, _COARSE_TOL, easing=easing)
            again = self.newton(rows[hard], A_hard, B_hard, tol)
            better = np.flatnonzero(again.violation < found.violation[hard])
            _put(found, hard[better], _take(again, better))
            self.v[rows] = found.v
        return found

    def solve_densely(self) -> None:
        """Where the bases would fill the space anyway: no reduction at all."""
        n_classes, k, rank = self.Z.shape
        A = np.broadcast_to(np.diag(self.L), (n_classes, rank, rank))
        final = self.newton_with_continuation(
            np.arange(n_classes), A, self.Z, 0.1 * self.tol
        )
        n_low = min(k, rank)
        self.out.v[:], self.out.violation[:] = final.v, final.violation
        self.out.gap[:] = 0.0
        self.out.roots[:, :n_low] = np.maximum(-final.eigenvalues[:, :n_low], 0.0)
        self.out.vectors[:, :n_low] = final.vectors[:, :, :n_low].transpose(0, 2, 1)

    def solve_by_levels(self, t: Array) -> None:
        """The cascade, from an estimate t of each class's largest root."""
        n_classes, k, _ = self.Z.shape
        everyone = np.arange(n_classes)
        basis = RationalBasis(self.Z, self.L, 4 * k)
        basis.add_block(_FIRST_SHIFT * t)
        if k <= _SMALL_CLASS:
            # So small that the first level would cost as much as the second.
            self.add_blocks(basis, t, (_SMALL_CLASS_SHIFT,))
        problem = basis.reduced()
        found = self.newton_with_continuation(everyone, *problem[:2], _COARSE_TOL)
        lowest = found.eigenvalues[:, 0]
        t1 = np.where(lowest < 0.0, -lowest, t)
        if k <= _SMALL_CLASS:
            self.last_level(everyone, basis, problem, found, t1)
            return
        lone = (found.eigenvalues < _LONE_ROOT * t1[:, None]).sum(axis=1) == 1
        narrow = lone | (t1 > self.L[-1])
        for group, shifts in ((narrow, (_NARROW_SHIFT,)), (~narrow, _SPREAD_SHIFTS)):
            rows = np.flatnonzero(group)
            if rows.size == 0:
                continue
            part = basis if rows.size == n_classes else basis.select(rows, 4 * k)
            self.add_blocks(part, t1[rows], shifts)
            problem = part.reduced()
            found = self.newton(rows, *problem[:2], _COARSE_TOL)
            self.last_level(rows, part, problem, found, t1[rows])

    def add_blocks(
        self, basis: RationalBasis, t1: Array, factors: tuple[float, ...]
    ) -> None:
        """Blocks at the given multiples of the largest root."""
        for factor in factors:
            # Far above the spectrum all shifts give nearly parallel vectors.
            shift = np.minimum(factor * t1, 0.5 * self.L[-1])
            basis.add_block(basis.clear_of_blocks(shift))

    def last_level(
        self,
        rows: Index,
        basis: RationalBasis,
        problem: tuple[Array, Array, Array],
        found: ReducedSolution,
        t1: Array,
    ) -> None:
        """Refined vectors for each candidate root, then the full accuracy."""
        k = self.Z.shape[1]
        low = found.eigenvalues[:, :k]
        n_candidates = (low < _CANDIDATE * t1[:, None]).sum(axis=1)
        n_candidates[t1 < _FAR_BELOW_SPECTRUM * self.L[0]] = 0
        # Few distinct sizes, by each class's own need: none, one, half or all.
        half = (k + 1) // 2
        size = np.where(n_candidates > half, k, half)
        size = np.where(n_candidates < 2, n_candidates, size)
        for n_refined in np.unique(size):
            here = np.flatnonzero(size == n_refined)
            if here.size == rows.size:
                part, own, at, A, B, T = basis, rows, found, *problem
            else:
                part = basis.select(here, basis.size + n_refined)
                own, at = rows[here], _take(found, here)
                A, B, T = (array[here] for array in problem)
            if n_refined:
                vectors = at.vectors[:, :, :n_refined]
                self.refine(part, at, B @ vectors, t1[here])
                A, B, T = part.reduced()
            final = self.newton(own, A, B, 0.1 * self.tol)
            vectors = final.vectors[:, :, :k]
            responses = B @ vectors
            vectors = part.lift(T @ vectors)
            failed, worst = self.judge(own, part.Z, final, vectors, responses, t1[here])
            again = np.flatnonzero(failed)
            if again.size:
                self.insist(
                    own[again],
                    part.select(again, part.size + _MAX_PASSES * 2 * k),
                    _take(final, again),
                    responses[again],
                    t1[here[again]],
                    worst[again],
                )

    def refine(
        self, basis: RationalBasis, at: ReducedSolution, responses: Array, t1: Array
    ) -> None:
        """Append (L + t_a)^-1 Z' D Z q_a for the lowest Ritz pairs (-t_a, q_a).

        The columns of `responses` are Z q_a.
        """
        n_refined = responses.shape[2]
        roots = np.maximum(
            -at.eigenvalues[:, :n_refined], _SMALLEST_SHIFT * t1[:, None]
        )
        basis.add_vectors((1.0 + at.v)[:, :, None] * responses, roots)

    def judge(
        self,
        rows: Index,
        Z: Array,
        final: ReducedSolution,
        vectors: Array,
        responses: Array,
        t1: Array,
    ) -> tuple[Mask, Array]:
        """Residual test in the full space; keeps what is better than before.

        Tells which classes fail, and near which root each needs more vectors.

        The residual R_a = M q_a + t_a q_a shifts the root t_a by about
        e_a = R_a' (L + t_a)^-1 R_a, also for roots that the basis sees as
        small positive eigenvalues; the change of the dual value follows.
        """
        k = vectors.shape[1]
        t, v, out = -final.eigenvalues[:, :k], final.v, self.out
        weighted = (1.0 + v)[:, :, None] * responses
        residual = np.matmul(weighted.transpose(0, 2, 1), Z)
        weights = self.L + t[:, :, None]
        norms = (vectors * vectors).sum(axis=2)
        residual -= vectors * weights
        residual *= residual
        floor = np.maximum(t, _SMALLEST_SHIFT * t1[:, None])
        np.add(self.L, floor[:, :, None], out=weights)
        residual /= weights
        shift = residual.sum(axis=2)
        # A class has no more roots than samples, padded ones not counted.
        shift[np.arange(k) >= self.real[rows].sum(axis=1)[:, None]] = 0.0
        worst = floor[np.arange(rows.size), shift.argmax(axis=1)]
        roots = np.maximum(t, 0.0)
        change = np.maximum(t + shift, 0.0) ** 2 - roots**2
        value = self.inv_lam * v.sum(axis=1) - 0.5 * (roots * roots).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.where(value > 0.0, 0.5 * change.sum(axis=1) / value, np.inf)
        drift = np.where(roots > 0.0, np.abs(norms - 1.0), 0.0).max(axis=1)
        # Vectors that are not orthonormal make the roots meaningless.
        gap = np.where(drift > _NORM_TOLERANCE, np.inf, gap)
        badness = np.maximum(gap, final.violation)
        better = badness < np.maximum(out.gap[rows], out.violation[rows])
        better |= ~np.isfinite(out.violation[rows])
        if better.all() and rows.size == out.gap.size:
            out.v, out.roots, out.vectors, out.shifts = v, roots, vectors, shift
            out.gap, out.violation = gap, final.violation
        else:
            keep = rows[better]
            out.v[keep], out.roots[keep] = v[better], roots[better]
            out.vectors[keep], out.shifts[keep] = vectors[better], shift[better]
            out.gap[keep], out.violation[keep] = gap[better], final.violation[better]
        failed = (gap > _ACCEPTED_GAP * self.tol) | (final.violation > self.tol)
        return failed, worst

    def insist(
        self,
        rows: Index,
        basis: RationalBasis,
        final: ReducedSolution,
        responses: Array,
        t1: Array,
        worst: Array,
    ) -> None:
        """More blocks where the worst root needs them, until the test is passed."""
        k = self.Z.shape[1]
        for _ in range(_MAX_PASSES):
            basis.add_block(basis.shift_near(worst, t1))
            self.refine(basis, final, responses, t1)
            A, B, Q = basis.reduced_by_qr()
            final = self.newton(rows, A, B, 0.1 * self.tol)
            vectors = final.vectors[:, :, :k]
            responses = B @ vectors
            vectors = vectors.transpose(0, 2, 1) @ Q
            failed, worst = self.judge(rows, basis.Z, final, vectors, responses, t1)
            again = np.flatnonzero(failed)
            if again.size == 0:
                return
            rows, t1, worst = rows[again], t1[again], worst[again]
            responses, final = responses[again], _take(final, again)
            basis = basis.select(again, basis.capacity)


def _take(found: ReducedSolution, rows: Index) -> ReducedSolution:
    return ReducedSolution(
        found.v[rows],
        found.eigenvalues[rows],
        found.vectors[rows],
        found.violation[rows],
        found.n_evaluations[rows],
    )


def _put(found: ReducedSolution, rows: Index, part: ReducedSolution) -> None:
    found.v[rows], found.violation[rows] = part.v, part.violation
    found.eigenvalues[rows], found.vectors[rows] = part.eigenvalues, part.vectors
