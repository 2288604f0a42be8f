# SPDX-License-Identifier: BSD-3-Clause
"""Classes whose solution has rank one, many at a time.

Most classes of many samples have a solution P = lam w w' of rank one. Then w'x has the
same sign for all own samples x if each of them is turned to the right side, and

    min 1/2 |w|^4 + w'Ow   subject to   z_i'w >= 1 / sqrt(lam)

is convex in w. In the notation of :mod:`dualqml.core.krylov_solver` its solution is an
eigenvector of M(v) = diag(L) - Z' D Z, D = diag(1 + v), with the root t = |w|^2:

    w = (L + t)^-1 Z' y,    y = D Z w.

For a fixed t the unknowns are the k numbers y. With G = Z (L + t)^-1 Z' they solve a
linear complementarity problem: an own sample either is *active*, with response
(Gy)_i = 1 / sqrt(lam) and multiplier v_i >= 0, or has v_i = 0, which is ((I - G)y)_i =
0, and a response that is larger. Block principal pivoting finds the active samples in a
few rounds of one linear system each, and t follows by Newton's method on
ln |w(t)|^2 = ln t, a falling function of ln t with slopes between -3 and -1.

So a class costs a few products and linear systems of size k. Whether ww' solves the
whole problem is decided by the inertia of M(v): it does if and only if -t is the only
negative eigenvalue. All other classes are left to the general solver.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.inertia import one_negative_at_most
from dualqml.core.krylov_solver import BatchSolution
from dualqml.core.non_negative import non_negative

#: Power iterations that find the main direction of the own samples. Only the signs of
#: the responses are used, so a few are enough.
_POWER_ITERATIONS = 8
#: Share of the samples, or of the dimensions if they are fewer, that are taken to be
#: active at first. Between 10 and 90 per cent are in the end.
_ACTIVE_SHARE = 0.4
#: Newton steps for the root. Two or three are needed as a rule.
_MAX_NEWTON_STEPS = 30
#: Bounds of d ln |w|^2 / d ln t - 1, the slope that a Newton step divides by.
_STEEPEST, _FLATTEST = -3.0, -1.0
#: A Newton step of at most this size in ln t, in units of the square root of the
#: tolerance, is the last one. It is taken to first order, without a new evaluation.
#: That leaves out its square, 1e-10 at a tolerance of 1e-6.
_LAST_STEP = 0.01
#: Rounds of pivoting for one t. Three to ten are needed at the first t, one or two
#: then. If the own samples do not fit on one side there is no solution, and no end.
_MAX_ROUNDS = 15
#: Added to the diagonal of the complementarity problem, relative to its entries. Equal
#: samples, and more samples than dimensions, make it singular.
_RIDGE = 1e-13
#: A multiplier counts as negative below minus this fraction of the largest one.
_ZERO_MULTIPLIER = 1e-12
#: A response may be too small by this fraction, in units of the tolerance, between a
#: limit set by rounding and one that costs nothing.
_SHORTFALL, _MIN_SHORTFALL, _MAX_SHORTFALL = 1e-3, 1e-12, 1e-9
#: Roots below this fraction of the largest, in units of the square root of the
#: tolerance, are ignored: k of them change the gap by k / 10,000 of the tolerance.
_IGNORED_ROOT = 0.01
#: Accepted gap and violation of the KKT conditions, in units of the tolerance.
_ACCEPTED_GAP, _ACCEPTED_VIOLATION = 0.25, 0.1


@dataclass(frozen=True)
class RankOneSolution:
    """Solutions of rank one of a batch, scaled: u = lam v, P = lam root q q'."""

    v: Array  # (C, k): scaled multipliers
    root: Array  # (C,): |w|^2
    vector: Array  # (C, rank): q = w / |w|, in the eigenbasis
    root_shift: Array  # (C,): by about how much larger the root of M(v) is
    gap: Array  # (C,): estimated relative duality gap
    violation: Array  # (C,): largest relative violation of the KKT conditions
    accepted: Mask  # (C,): whether it solves the problem of the class
    n_iter: NDArray[np.int64]  # (C,): values of t that were tried

    def as_batch(self) -> BatchSolution:
        """The same as the general solver returns it."""
        (n_classes, k), rank = self.v.shape, self.vector.shape[1]
        roots, root_shifts = np.zeros((n_classes, k)), np.zeros((n_classes, k))
        # Rows without a root stay as they are: memory that is not touched is not used.
        vectors = np.empty((n_classes, k, rank))
        roots[:, 0], root_shifts[:, 0] = self.root, self.root_shift
        vectors[:, 0] = self.vector
        return BatchSolution(
            self.v, roots, vectors, root_shifts, self.gap, self.violation, self.n_iter
        )


def solve_rank_one(
    Z: Array, L: Array, real: Mask, inv_lam: float, root: Array, *, tol: float
) -> RankOneSolution:
    """Find the best P of rank one of every class, and whether it is optimal.

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
    root : ndarray of shape (n_classes,)
        Estimate of each class's root to start from.
    tol : float
        Relative duality gap asked for.

    Returns
    -------
    RankOneSolution
        Meaningful for the accepted classes. The multipliers of the others are finite
        and may serve as a start for the general solver.
    """
    # Numbers that overflow become NaN, and their class is not accepted.
    with np.errstate(all="ignore"):
        problem, active = _turned_to_one_side(Z, L, real, inv_lam, root)
        found = _follow_root(problem, active, np.log(root), tol)
        return _judged(problem, *found, tol)


@dataclass(frozen=True)
class _Problem:
    """A batch of classes, in units in which every response has to be at least 1."""

    Z: Array  # own samples, turned to one side
    L: Array
    real: Mask
    inv_lam: float

    def products(self, rows: Index, t: Array) -> tuple[Array, Array, Array]:
        """Own samples Z of some classes, (L + t)^-1 and G = Z (L + t)^-1 Z'."""
        Z = self.Z[rows]
        inverse = 1.0 / (self.L + t[:, None])
        weighted = Z * np.sqrt(inverse)[:, None]
        return Z, inverse, weighted @ weighted.transpose(0, 2, 1)


def _turned_to_one_side(
    Z: Array, L: Array, real: Mask, inv_lam: float, root: Array
) -> tuple[_Problem, Mask]:
    """Turn each sample to the side of the main direction of its class.

    x and -x are equal for P. The main direction is the leading eigenvector of G.
    The second result is a guess which samples are active.
    """
    given = _Problem(Z, L, real, inv_lam)
    _, _, G = given.products(np.arange(Z.shape[0]), root)
    longest = np.einsum("cii->ci", G).argmax(axis=1)
    direction = G[np.arange(Z.shape[0]), longest]
    for _ in range(_POWER_ITERATIONS):
        direction = _apply(G, direction)
        direction = direction / _norms(direction)[:, None]
    side = np.where(direction < 0.0, -1.0, 1.0)
    # The samples that respond least to the main direction are likely to be active.
    response = np.where(real, side * direction, np.inf)
    n_active = _ACTIVE_SHARE * np.minimum(real.sum(axis=1), L.size)
    active = real & (_positions(response) <= n_active[:, None])
    return _Problem(side[:, :, None] * Z, L, real, inv_lam), active


def _follow_root(
    problem: _Problem, active: Mask, log_t: Array, tol: float
) -> tuple[Array, Array, Mask, NDArray[np.int64]]:
    """Newton's method on ln |w(t)|^2 = ln t, within bounds that it finds itself.

    Returns y, t, which samples are active, and the number of evaluations; y is NaN
    where it did not converge.
    """
    n_classes, k, _ = problem.Z.shape
    y = np.full((n_classes, k), np.nan)
    low, high = np.full(n_classes, -np.inf), np.full(n_classes, np.inf)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    shortfall = float(np.clip(_SHORTFALL * tol, _MIN_SHORTFALL, _MAX_SHORTFALL))
    active, log_t, todo = active.copy(), log_t.copy(), np.arange(n_classes)
    for _ in range(_MAX_NEWTON_STEPS):
        at, real = log_t[todo], problem.real[todo]
        Z, inverse, G = problem.products(todo, np.exp(at))
        pivoted = _Complementarity.of(G, real).solve(active[todo], shortfall)
        active[todo] = pivoted.active
        w = _combine(pivoted.y, Z) * inverse
        squared = problem.inv_lam * (w * w).sum(axis=1)
        value = np.log(squared) - at
        # y' and d |w|^2 / dt at fixed active samples: the same matrix once more.
        bent = _apply(Z, w * inverse)
        y_slope = pivoted.again(bent)
        slope = (bent * y_slope).sum(axis=1) - (w * w * inverse).sum(axis=1)
        slope = 2.0 * problem.inv_lam * np.exp(at) * slope / squared - 1.0
        step = -value / np.clip(slope, _STEEPEST, _FLATTEST)
        n_iter[todo] += 1
        last = np.abs(step) <= _LAST_STEP * np.sqrt(tol)
        small = np.where(last, np.expm1(step), 0.0)[:, None] * np.exp(at)[:, None]
        solved = (last & pivoted.converged)[:, None]
        y[todo] = np.where(solved, pivoted.y + small * y_slope, np.nan)
        low[todo] = np.where(value > 0.0, at, low[todo])
        high[todo] = np.where(value < 0.0, at, high[todo])
        new = at + step
        inside = last | ((new > low[todo]) & (new < high[todo]))
        log_t[todo] = np.where(inside, new, 0.5 * (low[todo] + high[todo]))
        todo = todo[~last & pivoted.converged & np.isfinite(value)]
        if todo.size == 0:
            break
    return y, np.exp(log_t), active, n_iter


def _judged(
    problem: _Problem,
    y: Array,
    t: Array,
    active: Mask,
    n_iter: NDArray[np.int64],
    tol: float,
) -> RankOneSolution:
    """The solution that belongs to y and t, and whether it is optimal."""
    Z, L, inv_lam = problem.Z, problem.L, problem.inv_lam
    w = _combine(y, Z) / (L + t[:, None])
    responses = _apply(Z, w)
    v = np.where(active, np.maximum(y / responses - 1.0, 0.0), 0.0)
    v = np.where(np.isfinite(v), v, 0.0)
    D = 1.0 + v
    squared = (w * w).sum(axis=1)
    # (L + t) w - Z' D Z w = Z'(y - D Z w) is not quite zero. By how much that moves the
    # root, to first and to second order.
    left = y - D * responses
    residual = _combine(left, Z)
    shift = (residual * residual / (L + t[:, None])).sum(axis=1)
    shift = (shift - (responses * left).sum(axis=1)) / squared
    root = inv_lam * squared
    root_shift = (t - root) + shift
    excess = responses * responses - 1.0
    violation = np.where(v > 0.0, np.abs(excess), np.maximum(-excess, 0.0))
    violation = np.where(problem.real, violation, 0.0).max(axis=1)
    value = inv_lam * v.sum(axis=1) - 0.5 * (root + root_shift) ** 2
    gap = 0.5 * root_shift**2 + inv_lam * np.abs((v * excess).sum(axis=1))
    gap = gap / value
    good = (value > 0.0) & (gap <= _ACCEPTED_GAP * tol)
    good &= violation <= _ACCEPTED_VIOLATION * tol
    accepted = np.zeros(t.shape, dtype=bool)
    rows = np.flatnonzero(good)
    if rows.size:
        # The counting matrix of dualqml.core.inertia, with Y = D^{1/2} Z.
        _, _, counting = problem.products(rows, _IGNORED_ROOT * np.sqrt(tol) * t[rows])
        weights = np.sqrt(D[rows])
        counting *= -weights[:, :, None] * weights[:, None, :]
        np.einsum("cii->ci", counting)[...] += 1.0
        accepted[rows] = one_negative_at_most(counting, weights * responses[rows])
    vector = w / np.sqrt(squared)[:, None]
    return RankOneSolution(
        v, root, vector, root_shift, gap, violation, accepted, n_iter
    )


@dataclass(frozen=True)
class _Pivoted:
    """What block principal pivoting has found."""

    y: Array  # (C, k)
    active: Mask  # (C, k)
    converged: Mask  # (C,)
    matrix: Array  # (C, k, k): of the last linear system
    scale: Array  # (C, k): factors of its rows

    def again(self, h: Array) -> Array:
        """dy/dt, which solves the system with G' = -h for the active samples' rows."""
        right = np.where(self.active, h, -h) * self.scale
        return _solve(self.matrix, right)


@dataclass(frozen=True)
class _Complementarity:
    """Find y with Gy >= 1, (I - G)y >= 0, and equality in one of them for each sample.

    With W = G (I - G)^-1 and m = (I - G)y this is the linear complementarity problem
    Wm >= 1, m >= 0, m'(Wm - 1) = 0 of non-negative least squares, whose solution is
    unique. W itself is not needed.
    """

    G: Array
    real: Mask
    active_rows: Array  # rows of G, scaled to a unit diagonal, with a ridge
    passive_rows: Array  # rows of I - G, scaled to a unit diagonal
    active_scale: Array  # (C, k): the factors
    passive_scale: Array

    @classmethod
    def of(cls, G: Array, real: Mask) -> "_Complementarity":
        """The problem with matrices G; a padded sample has the equation y = 0."""
        diagonal = np.einsum("cii->ci", G)
        active_scale = np.where(diagonal > 0.0, 1.0 / diagonal, 0.0)
        passive_scale = np.where(diagonal < 1.0, 1.0 / (1.0 - diagonal), 1.0)
        passive_rows = G * -passive_scale[:, :, None]
        np.einsum("cii->ci", passive_rows)[...] += passive_scale
        active_rows = G * active_scale[:, :, None]
        active_rows += _RIDGE * passive_rows
        return cls(G, real, active_rows, passive_rows, active_scale, passive_scale)

    def solve(self, active: Mask, shortfall: float) -> _Pivoted:
        """Block principal pivoting, from a guess of the active samples.

        Samples with the wrong sign change sides, all at once. With more samples than
        dimensions the active sets may cycle. Then SciPy's non-negative least squares
        make a better guess, which pivoting confirms or rejects.
        """
        n_classes, k = active.shape
        found = _Pivoted(
            np.zeros((n_classes, k)),
            active & self.real,
            np.zeros(n_classes, dtype=bool),
            np.empty_like(self.G),
            np.empty((n_classes, k)),
        )
        self._pivot(found, np.arange(n_classes), shortfall)
        left = np.flatnonzero(~found.converged)
        if left.size:
            for c in left:
                found.active[c] = self._guess(int(c))
            self._pivot(found, left, shortfall)
        np.copyto(found.scale, self.passive_scale)
        np.copyto(found.scale, self.active_scale, where=found.active)
        return found

    def _pivot(self, found: _Pivoted, todo: Index, shortfall: float) -> None:
        """Improve what was found for some classes, until nothing is wrong."""
        for _ in range(_MAX_ROUNDS):
            active = found.active[todo]
            system = np.where(
                active[:, :, None], self.active_rows[todo], self.passive_rows[todo]
            )
            y = _solve(system, np.where(active, self.active_scale[todo], 0.0))
            found.matrix[todo], found.y[todo] = system, y
            responses = _apply(self.G[todo], y)
            m = y - responses
            floor = -_ZERO_MULTIPLIER * np.abs(m).max(axis=1, keepdims=True)
            wrong = np.where(active, m < floor, responses < 1.0 - shortfall)
            wrong &= self.real[todo]
            right = ~wrong.any(axis=1) & np.isfinite(y).all(axis=1)
            found.converged[todo] = right
            todo, active = todo[~right], (active ^ wrong)[~right]
            if todo.size == 0:
                break
            found.active[todo] = active

    def _guess(self, c: int) -> Mask:
        """The active samples of one class, by non-negative least squares."""
        real = self.real[c]
        G = self.G[c][np.ix_(real, real)]
        active: Mask = np.zeros(real.size, dtype=bool)
        try:
            W = np.linalg.solve(np.eye(G.shape[0]) - G, G)
            unit = 1.0 / np.sqrt(np.diagonal(W))
            active[real] = non_negative(W * np.outer(unit, unit), unit) > 0.0
        except (np.linalg.LinAlgError, RuntimeError, ValueError):
            # Singular, no convergence, not finite: there is no guess.
            pass
        return active


def _apply(matrices: Array, vectors: Array) -> Array:
    """Each matrix times the vector of its class."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _combine(weights: Array, rows: Array) -> Array:
    """Each class's rows, summed with its weights."""
    return np.asarray((weights[:, None, :] @ rows)[:, 0])


def _positions(values: Array) -> Index:
    """The position of each value in the ascending order of its class."""
    order = np.argsort(values, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable")


def _norms(vectors: Array) -> Array:
    return np.asarray(np.sqrt((vectors * vectors).sum(axis=1)))


def _solve(matrices: Array, right: Array) -> Array:
    """Solve the linear system of each class; NaN where the matrix is singular."""
    try:
        return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        out = np.full_like(right, np.nan)
        for c, matrix in enumerate(matrices):
            try:
                out[c] = np.linalg.solve(matrix, right[c])
            except np.linalg.LinAlgError:
                continue
        return out
