# SPDX-License-Identifier: BSD-3-Clause
"""Exact QML for a batch of classes of equal (padded) size.

Each class is solved in a short cascade of growing rational Krylov bases (see
:mod:`dualqml.core.basis`), each a small dense problem for the semismooth
Newton method (:mod:`dualqml.core.reduced`), and is accepted by a residual test
in the full space. All decisions are taken class by class: what a class's
solution is never depends on its company.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array, Index, Mask
from dualqml.core.basis import RationalBasis
from dualqml.core.reduced import ReducedSolution, minimise

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
