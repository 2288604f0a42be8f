# SPDX-License-Identifier: BSD-3-Clause
"""The batched solver: every class reduced to a small problem by a Krylov basis.

The matrix of a class's scaled dual is M(v) = diag(L) - Z' D Z, D = diag(1 + v), with
the eigenvalues L of the total scatter, the class's own samples Z in its eigenbasis and
the scaled multipliers v = u / lam. A *root* t of a class is minus a negative eigenvalue
of M(v). Its eigenvector is q ~ (L + t)^-1 Z' c with c = D Z q, so all eigenvectors of
roots lie close to a rational Krylov space: the span of (L + s)^-1 Z' over a few shifts
s near the roots.

:func:`solve_batch` solves the dual in a sequence of growing bases of that kind, called
levels. At each level the problems of all classes of the batch are small and dense, and
:func:`dualqml.core.semismooth_newton.minimise` solves them together. At the end the
residuals in the full space tell which classes are solved; the basis of the others is
enlarged.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.semismooth_newton import ReducedSolution, minimise

# The constants of the first three groups decide how much work a class takes. They do
# not decide its accuracy: a class that they do not suit fails the acceptance test and
# gets a larger basis. There is no record of how they were tuned; benchmarks/solver.py
# measures their effect on speed.

# --- Levels and their shifts ---

#: The dense problem is solved without a basis where `_MAX_BASIS_RATIO` vectors per own
#: sample, the size of the last level, would fill this fraction of the space.
_MAX_BASIS_RATIO, _DENSE_FRACTION = 4, 0.9
#: Relative KKT violation at which all levels but the last one stop.
_COARSE_TOL = 3e-2
#: Shift of the first block, in units of the largest single-sample root.
_FIRST_SHIFT = 1.15
#: Classes of at most this many samples begin with two blocks, the second one at this
#: shift: a first level of their own would cost as much as the second level.
_SMALL_CLASS, _SMALL_CLASS_SHIFT = 2, 0.07
#: Shifts of the second level, in units of the largest root. Roots that spread over
#: decades need two more blocks, others need one.
_SPREAD_SHIFTS, _CLUSTERED_SHIFTS = (0.1, 0.01), (0.06,)
#: A class counts as one with a single root if only one Ritz value of the first level is
#: below this multiple of the largest root.
_SINGLE_ROOT_RATIO = 0.3
#: Largest shift, in units of the largest eigenvalue of the scatter. Far above the
#: spectrum all shifts give nearly parallel vectors.
_MAX_SHIFT_RATIO = 0.5

# --- Refined vectors, one for each root, at the last level ---

#: Ritz values below this multiple of the largest root get a refined vector: a small
#: positive one may turn into a root in a larger basis.
_CANDIDATE_RATIO = 0.05
#: Smallest shift of a refined vector, in units of the largest root.
_MIN_REFINED_SHIFT = 0.002
#: No refined vectors for classes whose largest root is below this fraction of the
#: smallest eigenvalue of the scatter: blocks are exact there, the rest is noise.
_FAR_BELOW_SPECTRUM = 1e-4

# --- Shifts that keep their distance from the blocks in use ---

#: Two shifts clash if their distances from the spectrum differ by less than this, as
#: natural logarithms. A clashing shift becomes `_REPLACEMENT_FACTOR` times the largest
#: one in use, or times `_REPLACEMENT_FLOOR` of the smallest eigenvalue.
_CLASH_DISTANCE = 0.02
_REPLACEMENT_FACTOR, _REPLACEMENT_FLOOR = 8.0, 0.3
#: Shifts that a larger basis may choose from, in units of the largest root.
_SHIFT_GRID = 10.0 ** np.linspace(-4.0, 1.0, 21)
#: They should be a factor of two away from those in use.
_APART_DISTANCE = np.log(2.0)

# --- Continuation in lambda ---

#: Newton iterations after which a class is taken to be hard, and its lambda approached
#: from smaller ones.
_DIRECT_ITERATIONS = 8
#: Steps per power of ten of lambda; the next number is tried where one does not do.
_CONTINUATION_STEPS = (1, 4, 16)
#: Violations below this are not worth finer steps: they may be rounding.
_ROUNDING_VIOLATION = 1e-4

# --- Accuracy ---

#: Violation at which the last level stops, in units of the tolerance.
_FINAL_TOL = 0.1
#: Estimated gap, in units of the tolerance, at which a class is accepted. It is an
#: estimate: the certificate tells what was reached.
_ACCEPTED_GAP = 0.5
#: Allowed deviation of a Ritz vector's norm from one in the full space.
_NORM_TOLERANCE = 1e-7
#: How often the basis of a class that is not accepted is enlarged.
_MAX_ENLARGEMENTS = 8
#: Added to the unit diagonal of the Gram matrix of the basis. It can only shrink a
#: degenerate direction, so the reduced problem stays a restriction of the full one.
_GRAM_RIDGE = 1e-12
#: Factor by which the ridge grows where the Gram matrix is numerically indefinite.
_RIDGE_GROWTH = 100.0


@dataclass
class BatchSolution:
    """Solutions of a batch, scaled: u = lam v, P = lam sum_a t_a q_a q_a'."""

    v: Array  # (C, k): scaled multipliers
    roots: Array  # (C, k): t_a in falling order, zero where there is none
    vectors: Array  # (C, k, rank): q_a as rows, in the eigenbasis
    root_shifts: Array  # (C, k): by about how much larger than t_a the true roots are
    gap: Array  # (C,): estimated relative duality gap
    violation: Array  # (C,): largest relative violation of the KKT conditions
    n_iter: NDArray[np.int64]  # (C,): eigendecompositions of reduced problems

    def put(self, rows: Index, part: "BatchSolution") -> None:
        """Replace the solutions of some classes; add up their iterations."""
        self.v[rows], self.roots[rows] = part.v, part.roots
        self.vectors[rows], self.root_shifts[rows] = part.vectors, part.root_shifts
        self.gap[rows], self.violation[rows] = part.gap, part.violation
        self.n_iter[rows] += part.n_iter


def solve_batch(
    Z: Array,
    L: Array,
    real: Mask,
    inv_lam: float,
    v: Array,
    largest_root: Array,
    *,
    tol: float,
    max_iter: int,
    continuation_decades: int,
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
        Scaled multipliers to start from: those of every sample alone, or those of
        a neighbouring lambda.
    largest_root : ndarray of shape (n_classes,)
        Estimate of each class's largest root that goes with them.
    tol : float
        Relative duality gap asked for.
    max_iter : int
        Newton iterations allowed at each level.
    continuation_decades : int
        How many powers of ten below lambda the continuation starts, for classes
        that Newton's method does not solve directly.

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
        root_shifts=np.zeros((n_classes, k)),
        gap=np.full(n_classes, np.inf),
        violation=np.full(n_classes, np.inf),
        n_iter=np.zeros(n_classes, dtype=np.int64),
    )
    batch = _Batch(
        Z, L, real, inv_lam, tol, max_iter, continuation_decades, np.array(v), out
    )
    if _MAX_BASIS_RATIO * k >= _DENSE_FRACTION * rank:
        batch.solve_dense()
    else:
        batch.solve_by_levels(largest_root)
    return out


class RationalBasis:
    """Vectors w_j = (L + s_j)^-1 Z' c_j, one set per class of a batch.

    The sets grow by blocks (one shift, all own samples) and by single vectors (any
    shift and combination c_j of the own samples).

    Parameters
    ----------
    Z : ndarray of shape (n_classes, k, rank)
        Own samples in the eigenbasis of the scatter; zero rows where padded.
    L : ndarray of shape (rank,)
        Eigenvalues of the scatter.
    capacity : int
        Largest number of vectors of each class.
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
        """Copy the sets of some classes, with room for `capacity` vectors."""
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
        """Append (L + s)^-1 z_i for every own sample z_i, one shift s per class."""
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
        distance = np.abs(np.log((shifts[:, None] + L_min) / (used + L_min)))
        clash = (distance < _CLASH_DISTANCE).any(axis=1)
        highest = np.maximum(used.max(axis=1), _REPLACEMENT_FLOOR * L_min)
        return np.where(clash, _REPLACEMENT_FACTOR * highest, shifts)

    def shift_near(self, root: Array, largest_root: Array) -> Array:
        """The shift nearest to `root` that is well apart from all blocks in use."""
        L_min = self.L[0]
        grid = largest_root[:, None] * _SHIFT_GRID
        apart = np.abs(
            np.log((grid[:, :, None] + L_min) / (self.block_shifts[:, None] + L_min))
        ).min(axis=2)
        distance = np.abs(np.log(grid / root[:, None]))
        # If none is well apart, take the one farthest from all.
        distance = np.where(apart > _APART_DISTANCE, distance, 1e3 - apart)
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

        Several times slower, but without the loss of orthogonality that the Gram
        matrix of nearly dependent vectors brings. The third array holds the
        orthonormal vectors themselves, one vector per row.
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
        """Combine the vectors held, with the columns of `vectors` as weights."""
        return vectors.transpose(0, 2, 1) @ self._W[:, : self.size]


@dataclass
class _Batch:
    """The batch being solved; methods write their results to `out`.

    The argument `rows` of the methods says which classes of the batch their arrays
    belong to.
    """

    Z: Array
    L: Array
    real: Mask
    inv_lam: float
    tol: float
    max_iter: int
    continuation_decades: int
    v: Array  # the present iterate; `out` keeps the best
    out: BatchSolution

    def solve_dense(self) -> None:
        """Solve without a reduction, where a basis would fill the space anyway."""
        n_classes, k, rank = self.Z.shape
        A = np.broadcast_to(np.diag(self.L), (n_classes, rank, rank))
        final = self.newton_with_continuation(
            np.arange(n_classes), A, self.Z, _FINAL_TOL * self.tol
        )
        n_low = min(k, rank)
        self.out.v[:], self.out.violation[:] = final.v, final.violation
        self.out.gap[:] = 0.0
        self.out.roots[:, :n_low] = np.maximum(-final.eigenvalues[:, :n_low], 0.0)
        self.out.vectors[:, :n_low] = final.vectors[:, :, :n_low].transpose(0, 2, 1)

    def solve_by_levels(self, start_root: Array) -> None:
        """Solve in growing bases, from an estimate of each class's largest root."""
        n_classes, k, _ = self.Z.shape
        all_rows = np.arange(n_classes)
        basis = RationalBasis(self.Z, self.L, _MAX_BASIS_RATIO * k)
        basis.add_block(_FIRST_SHIFT * start_root)
        if k <= _SMALL_CLASS:
            self.add_blocks(basis, start_root, (_SMALL_CLASS_SHIFT,))
        problem = basis.reduced()
        found = self.newton_with_continuation(all_rows, *problem[:2], _COARSE_TOL)
        lowest = found.eigenvalues[:, 0]
        largest_root = np.where(lowest < 0.0, -lowest, start_root)
        if k <= _SMALL_CLASS:
            self.solve_last_level(all_rows, basis, problem, found, largest_root)
            return
        below = found.eigenvalues < _SINGLE_ROOT_RATIO * largest_root[:, None]
        clustered = (below.sum(axis=1) == 1) | (largest_root > self.L[-1])
        groups = ((clustered, _CLUSTERED_SHIFTS), (~clustered, _SPREAD_SHIFTS))
        for group, shifts in groups:
            rows = np.flatnonzero(group)
            if rows.size == 0:
                continue
            part = basis
            if rows.size < n_classes:
                part = basis.select(rows, _MAX_BASIS_RATIO * k)
            self.add_blocks(part, largest_root[rows], shifts)
            problem = part.reduced()
            found = self.newton(rows, *problem[:2], _COARSE_TOL)
            self.solve_last_level(rows, part, problem, found, largest_root[rows])

    def solve_last_level(
        self,
        rows: Index,
        basis: RationalBasis,
        problem: tuple[Array, Array, Array],
        found: ReducedSolution,
        largest_root: Array,
    ) -> None:
        """Refined vectors for each candidate root, then the full accuracy."""
        k = self.Z.shape[1]
        low = found.eigenvalues[:, :k]
        n_candidates = (low < _CANDIDATE_RATIO * largest_root[:, None]).sum(axis=1)
        n_candidates[largest_root < _FAR_BELOW_SPECTRUM * self.L[0]] = 0
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
                own, at = rows[here], found.take(here)
                A, B, T = (array[here] for array in problem)
            if n_refined:
                vectors = at.vectors[:, :, :n_refined]
                self.add_refined_vectors(part, at, B @ vectors, largest_root[here])
                A, B, T = part.reduced()
            final = self.newton(own, A, B, _FINAL_TOL * self.tol)
            vectors = final.vectors[:, :, :k]
            responses = B @ vectors
            vectors = part.lift(T @ vectors)
            accepted, worst_root = self.accept(
                own, part.Z, final, vectors, responses, largest_root[here]
            )
            again = np.flatnonzero(~accepted)
            if again.size:
                self.enlarge_basis(
                    own[again],
                    part.select(again, part.size + _MAX_ENLARGEMENTS * 2 * k),
                    final.take(again),
                    responses[again],
                    largest_root[here[again]],
                    worst_root[again],
                )

    def enlarge_basis(
        self,
        rows: Index,
        basis: RationalBasis,
        final: ReducedSolution,
        responses: Array,
        largest_root: Array,
        worst_root: Array,
    ) -> None:
        """Add blocks near the worst root until the classes are accepted."""
        k = self.Z.shape[1]
        for _ in range(_MAX_ENLARGEMENTS):
            basis.add_block(basis.shift_near(worst_root, largest_root))
            self.add_refined_vectors(basis, final, responses, largest_root)
            A, B, Q = basis.reduced_by_qr()
            final = self.newton(rows, A, B, _FINAL_TOL * self.tol)
            vectors = final.vectors[:, :, :k]
            responses = B @ vectors
            vectors = vectors.transpose(0, 2, 1) @ Q
            accepted, worst_root = self.accept(
                rows, basis.Z, final, vectors, responses, largest_root
            )
            again = np.flatnonzero(~accepted)
            if again.size == 0:
                return
            rows, largest_root = rows[again], largest_root[again]
            worst_root = worst_root[again]
            responses, final = responses[again], final.take(again)
            basis = basis.select(again, basis.capacity)

    def accept(
        self,
        rows: Index,
        Z: Array,
        final: ReducedSolution,
        vectors: Array,
        responses: Array,
        largest_root: Array,
    ) -> tuple[Mask, Array]:
        """Test residuals in the full space; keep what is better than before.

        Returns which classes are accepted, and near which root each class needs
        more vectors most.

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
        floor = np.maximum(t, _MIN_REFINED_SHIFT * largest_root[:, None])
        np.add(self.L, floor[:, :, None], out=weights)
        residual /= weights
        root_shift = residual.sum(axis=2)
        # A class has no more roots than samples, padded ones not counted.
        root_shift[np.arange(k) >= self.real[rows].sum(axis=1)[:, None]] = 0.0
        worst_root = floor[np.arange(rows.size), root_shift.argmax(axis=1)]
        roots = np.maximum(t, 0.0)
        change = np.maximum(t + root_shift, 0.0) ** 2 - roots**2
        value = self.inv_lam * v.sum(axis=1) - 0.5 * (roots * roots).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.where(value > 0.0, 0.5 * change.sum(axis=1) / value, np.inf)
        norm_error = np.where(roots > 0.0, np.abs(norms - 1.0), 0.0).max(axis=1)
        # Vectors that are not orthonormal make the roots meaningless.
        gap = np.where(norm_error > _NORM_TOLERANCE, np.inf, gap)
        error = np.maximum(gap, final.violation)
        better = error < np.maximum(out.gap[rows], out.violation[rows])
        better |= ~np.isfinite(out.violation[rows])
        if better.all() and rows.size == out.gap.size:
            out.v, out.roots = v, roots
            out.vectors, out.root_shifts = vectors, root_shift
            out.gap, out.violation = gap, final.violation
        else:
            kept = rows[better]
            out.v[kept], out.roots[kept] = v[better], roots[better]
            out.vectors[kept] = vectors[better]
            out.root_shifts[kept] = root_shift[better]
            out.gap[kept], out.violation[kept] = gap[better], final.violation[better]
        failed = (gap > _ACCEPTED_GAP * self.tol) | (final.violation > self.tol)
        return ~failed, worst_root

    def newton(
        self,
        rows: Index,
        A: Array,
        B: Array,
        tol: float,
        *,
        max_iter: int | None = None,
        reduction: float = 1.0,
    ) -> ReducedSolution:
        """Newton's method from the present v of the classes, for lam / reduction."""
        found = minimise(
            A,
            B,
            self.v[rows],
            self.inv_lam * reduction,
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
        found = self.newton(rows, A, B, tol, max_iter=_DIRECT_ITERATIONS)
        limit = tol
        for steps_per_decade in _CONTINUATION_STEPS:
            hard = np.flatnonzero(found.violation > limit)
            if hard.size == 0:
                break
            limit = max(tol, _ROUNDING_VIOLATION)
            A_hard, B_hard = A[hard], B[hard]
            for step in range(self.continuation_decades * steps_per_decade, 0, -1):
                reduction = 10.0 ** (step / steps_per_decade)
                self.newton(
                    rows[hard], A_hard, B_hard, _COARSE_TOL, reduction=reduction
                )
            again = self.newton(rows[hard], A_hard, B_hard, tol)
            better = np.flatnonzero(again.violation < found.violation[hard])
            found.put(hard[better], again.take(better))
            self.v[rows] = found.v
        return found

    def add_blocks(
        self, basis: RationalBasis, largest_root: Array, factors: tuple[float, ...]
    ) -> None:
        """Add blocks at the given multiples of the largest root."""
        for factor in factors:
            shift = np.minimum(factor * largest_root, _MAX_SHIFT_RATIO * self.L[-1])
            basis.add_block(basis.clear_of_blocks(shift))

    def add_refined_vectors(
        self,
        basis: RationalBasis,
        at: ReducedSolution,
        responses: Array,
        largest_root: Array,
    ) -> None:
        """Add (L + t_a)^-1 Z' D Z q_a for the lowest Ritz pairs (-t_a, q_a).

        The columns of `responses` are Z q_a.
        """
        n_refined = responses.shape[2]
        roots = np.maximum(
            -at.eigenvalues[:, :n_refined], _MIN_REFINED_SHIFT * largest_root[:, None]
        )
        basis.add_vectors((1.0 + at.v)[:, :, None] * responses, roots)


def _inverse_cholesky(gram: Array) -> Array:
    """Inverse lower Cholesky factors of unit-diagonal Gram matrices.

    The ridge grows for a class whose matrix is numerically indefinite. It grows
    class by class, so that no class's result depends on the others.
    """
    n = gram.shape[1]
    identity = np.eye(n)
    try:
        factor = np.linalg.cholesky(gram + _GRAM_RIDGE * identity)
    except np.linalg.LinAlgError:
        factor = np.stack([_ridged_cholesky(matrix) for matrix in gram])
    return np.asarray(np.linalg.inv(factor), dtype=np.float64)


def _ridged_cholesky(matrix: Array) -> Array:
    """Lower Cholesky factor with the smallest ridge that makes it possible."""
    ridge = _GRAM_RIDGE
    while True:
        try:
            shifted = matrix + ridge * np.eye(matrix.shape[0])
            return np.asarray(np.linalg.cholesky(shifted), dtype=np.float64)
        except np.linalg.LinAlgError:
            ridge *= _RIDGE_GROWTH
