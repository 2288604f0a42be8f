# SPDX-License-Identifier: BSD-3-Clause
"""Semismooth Newton method for many small dense QML duals at once.

For each class, with scaled multipliers v = u / lam >= 0 and matrices ``A`` (d x d,
positive semidefinite) and ``B`` (k x d) in an orthonormal basis,

    minimise  f(v) = 1/2 |M(v)_-|_F^2 - sum(v) / lam,
    M(v) = A - B' diag(base + v) B,

which is problem (12) of the paper divided by -lam^2. If A is the total scatter, base is
1; if A is the scatter of the other classes' samples alone, base is 0. f is convex and
continuously differentiable, its gradient (13) is ``F - 1/lam`` with the own-class
responses ``F_i = b_i' (-M)_+ b_i``, and it has an exact generalised Hessian. All
arrays have a leading class axis, and every operation works class by class, so a result
never depends on which classes share a batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from dualqml._typing import Array, Index, Mask

#: Eigenvalues of M count as zero if they are this small relative to the lowest one.
_ZERO_EIGENVALUE = 1e-11
#: Added to the unit diagonal of the scaled Hessian: duplicate samples make it singular.
_HESSIAN_RIDGE = 1e-13
#: Sufficient-decrease constant of the line search. If rounding hides the decrease
#: (within the slack), a smaller violation is accepted instead.
_ARMIJO, _ROUNDING_SLACK = 1e-4, 1e-9
#: A violation counts as smaller if it is below this fraction of the one before.
_SMALLER_VIOLATION = 0.7
#: A rejected step is first halved, then shortened faster once it is short already.
_SHORT_STEP, _FIRST_SHRINKING, _FURTHER_SHRINKING = 0.2, 0.5, 0.2
#: Columns of the Hessian's factor computed at a time, so that large classes do not need
#: temporaries of k * k * d numbers.
_HESSIAN_BLOCK = 4096
#: In classes of at least this many samples the Hessian is computed from the roots that
#: there are, in groups of classes whose number of roots is the same multiple of this.
_LARGE_CLASS, _ROOT_GROUP = 10, 4
#: Rounds of the active-set method in such classes. Active sets that have not converged
#: then may cycle for long, and non-negative least squares are faster.
_MAX_ROUNDS_LARGE = 6
#: A class stops after this many evaluations without progress, if its violation is
#: already this small: the rest is rounding.
_STALL_EVALUATIONS, _STALL_VIOLATION = 4, 1e-5


@dataclass
class Evaluation:
    """f, its gradient and the eigensystem of M(v), for a batch of classes."""

    value: Array  # (C,)
    gradient: Array  # (C, k), zero at padded samples
    eigenvalues: Array  # (C, d) ascending
    vectors: Array  # (C, d, d)
    responses: Array  # (C, k, d): B @ vectors

    def take(self, keep: Mask) -> "Evaluation":
        """The part that belongs to some of the classes."""
        return Evaluation(
            self.value[keep],
            self.gradient[keep],
            self.eigenvalues[keep],
            self.vectors[keep],
            self.responses[keep],
        )

    def where(self, mine: Mask, other: "Evaluation") -> "Evaluation":
        """Combine two evaluations: this one where `mine` is true, else `other`."""
        row, cube = mine[:, None], mine[:, None, None]
        return Evaluation(
            np.where(mine, self.value, other.value),
            np.where(row, self.gradient, other.gradient),
            np.where(row, self.eigenvalues, other.eigenvalues),
            np.where(cube, self.vectors, other.vectors),
            np.where(cube, self.responses, other.responses),
        )


@dataclass
class ReducedSolution:
    """Where the Newton method stopped, class by class."""

    v: Array  # (C, k)
    eigenvalues: Array  # (C, d) of M(v)
    vectors: Array  # (C, d, d)
    violation: Array  # (C,) largest relative violation of the KKT conditions
    n_evaluations: NDArray[np.int64]  # (C,)

    def take(self, rows: Index) -> "ReducedSolution":
        """The part that belongs to some of the classes."""
        return ReducedSolution(
            self.v[rows],
            self.eigenvalues[rows],
            self.vectors[rows],
            self.violation[rows],
            self.n_evaluations[rows],
        )

    def put(self, rows: Index, part: "ReducedSolution") -> None:
        """Replace the solutions of some classes; evaluations stay as they are."""
        self.v[rows], self.violation[rows] = part.v, part.violation
        self.eigenvalues[rows], self.vectors[rows] = part.eigenvalues, part.vectors


def minimise(
    A: Array,
    B: Array,
    v: Array,
    inv_lam: float,
    real: Mask,
    *,
    tol: float,
    max_evaluations: int,
    base: float = 1.0,
) -> ReducedSolution:
    """Minimise f over v >= 0 for every class of the batch.

    Parameters
    ----------
    A : ndarray of shape (n_classes, d, d)
        The scatter in an orthonormal basis.
    B : ndarray of shape (n_classes, k, d)
        The own samples in that basis; zero rows where padded.
    v : ndarray of shape (n_classes, k)
        Scaled multipliers to start from.
    inv_lam : float
        1 / lam.
    real : boolean ndarray of shape (n_classes, k)
        False at padded samples.
    tol : float
        Relative violation of the KKT conditions at which a class is done.
    max_evaluations : int
        Eigendecompositions allowed for a class.
    base : float, default=1.0
        1 if A is the scatter of all samples, 0 if it leaves out the own samples.

    Returns
    -------
    ReducedSolution
        The last accepted point of each class; `violation` tells how good it is.
    """
    n_classes, _, d = B.shape
    out = ReducedSolution(
        v=np.empty_like(v),
        eigenvalues=np.empty((n_classes, d)),
        vectors=np.empty((n_classes, d, d)),
        violation=np.empty(n_classes),
        n_evaluations=np.empty(n_classes, dtype=np.int64),
    )
    search = _LineSearches.begin(
        A, B, np.where(real, np.maximum(v, 0.0), 0.0), real, base
    )
    for n_evaluations in range(1, max_evaluations + 1):
        finished = search.advance(inv_lam, tol)
        if n_evaluations == max_evaluations:
            finished[:] = True
        if finished.any():
            search.write(out, finished, n_evaluations)
            if finished.all():
                break
            search = search.select(~finished)
        search.update_directions()
    return out


def evaluate(
    A: Array, B: Array, v: Array, inv_lam: float, real: Mask, base: float = 1.0
) -> Evaluation:
    """Value (12), gradient (13) and eigensystem at v, in scaled variables."""
    M = A - B.transpose(0, 2, 1) @ (B * (base + v)[:, :, None])
    w, Q = np.linalg.eigh(M)
    responses = B @ Q
    roots = _roots(w)
    F = ((responses * responses) @ roots[:, :, None])[:, :, 0]
    value = 0.5 * (roots * roots).sum(axis=1) - inv_lam * v.sum(axis=1)
    return Evaluation(value, np.where(real, F - inv_lam, 0.0), w, Q, responses)


def relative_violation(v: Array, gradient: Array, inv_lam: float) -> Array:
    """Largest |F_i - 1/lam| where v_i > 0, shortfall of F_i where v_i = 0.

    Relative to 1/lam, so it tells by how much a constraint x'Px >= 1 is violated, or
    by how much x'Px exceeds 1 although the multiplier is positive.
    """
    residual = np.where(v > 0.0, np.abs(gradient), np.maximum(-gradient, 0.0))
    return np.asarray(residual.max(axis=1) / inv_lam)


def generalised_hessian(at: Evaluation) -> Array:
    """Generalised Hessian of f from the eigensystem of M(v).

    With a over the negative eigenvalues -t_a and b over all of them,
    H_ij = sum_ab om_ab r_ia r_ib r_ja r_jb, where om is 1 for two negative
    eigenvalues and 2 t_a / (t_a + w_b) for a negative and a positive one.
    """
    w, responses = at.eigenvalues, at.responses
    n_classes, k, d = responses.shape
    # M is a positive semidefinite matrix minus one of rank k: at most k
    # eigenvalues are negative, and they come first.
    n_low = min(k, d)
    if k < _LARGE_CLASS:
        return _hessian_of_lowest(w, responses, n_low)
    # Large classes have far fewer roots than samples. Sizes depend on each class alone.
    n_roots = (_roots(w) > 0.0).sum(axis=1)
    sizes = np.minimum(n_low, _ROOT_GROUP * -(-n_roots // _ROOT_GROUP))
    H = np.zeros((n_classes, k, k))
    for size in np.unique(sizes[sizes > 0]):
        rows = np.flatnonzero(sizes == size)
        H[rows] = _hessian_of_lowest(w[rows], responses[rows], int(size))
    return H


def _hessian_of_lowest(w: Array, responses: Array, n_low: int) -> Array:
    """The generalised Hessian if only the n_low lowest eigenvalues are negative."""
    n_classes, k, d = responses.shape
    t = _roots(w)
    low = t[:, :n_low, None]
    positive = np.maximum(w, 0.0)[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        om = np.where(t[:, None, :] > 0.0, 1.0, 2.0 * low / (low + positive))
    om = np.sqrt(np.where(low > 0.0, om, 0.0))
    H = np.zeros((n_classes, k, k))
    width = max(1, _HESSIAN_BLOCK // d)
    for start in range(0, n_low, width):
        part = slice(start, min(start + width, n_low))
        phi = responses[:, :, part, None] * responses[:, :, None, :]
        phi *= om[:, None, part]
        phi = phi.reshape(n_classes, k, -1)
        H += phi @ phi.transpose(0, 2, 1)
    return H


def bounded_newton_step(H: Array, g: Array, v: Array, real: Mask) -> Array:
    """Minimise 1/2 s'Hs + g's over s >= -v by the primal-dual active-set method.

    Padded samples never move. The step is clipped at the end, so it is feasible even
    if the active sets have not converged.
    """
    k = H.shape[1]
    diagonal = np.arange(k)
    # Scaled to a unit diagonal, since samples may have very different norms.
    unit = H[:, diagonal, diagonal]
    unit = 1.0 / np.sqrt(np.where(unit > 0.0, unit, 1.0))
    H = H * unit[:, :, None] * unit[:, None, :]
    H[:, diagonal, diagonal] += _HESSIAN_RIDGE
    g, v = g * unit, v / unit
    bound = ~real | ((v <= 0.0) & (g > 0.0))
    step = np.empty_like(v)
    todo = np.arange(H.shape[0])
    for _ in range(2 * k + 2 if k < _LARGE_CLASS else _MAX_ROUNDS_LARGE):
        Ht, gt, vt, at_bound = H[todo], g[todo], v[todo], bound[todo]
        free = ~at_bound
        matrix, rhs = Ht, -gt
        if at_bound.any():
            fixed = np.where(at_bound, -vt, 0.0)
            rhs = np.where(at_bound, -vt, rhs - (Ht @ fixed[:, :, None])[:, :, 0])
            matrix = np.where(free[:, :, None] & free[:, None, :], Ht, 0.0)
            matrix[:, diagonal, diagonal] += at_bound
        s = np.linalg.solve(matrix, rhs[:, :, None])[:, :, 0]
        step[todo] = s
        multiplier = gt + (Ht @ s[:, :, None])[:, :, 0]
        new = (free & (s < -vt)) | (at_bound & (multiplier > 0.0)) | ~real[todo]
        changed = (new != at_bound).any(axis=1)
        todo = todo[changed]
        if todo.size == 0:
            break
        bound[todo] = new[changed]
    for c in todo:
        step[c] = _bounded_step_by_nnls(H[c], g[c], v[c], real[c])
    return np.asarray(unit * np.maximum(step, -v))


@dataclass
class _LineSearches:
    """Line searches of the classes that are not finished yet."""

    index: NDArray[np.intp]  # which classes of the batch they are
    A: Array
    B: Array
    real: Mask
    base: float
    v: Array  # accepted points
    at: Evaluation  # evaluation at the accepted points
    violation: Array
    step: Array  # directions
    slope: Array  # derivatives of f along them
    length: Array  # step lengths to try next; 0 where the last point was accepted
    best: Array  # smallest violations so far
    stalled: NDArray[np.int64]  # evaluations since they last became smaller

    @classmethod
    def begin(
        cls, A: Array, B: Array, v: Array, real: Mask, base: float
    ) -> "_LineSearches":
        n_classes = B.shape[0]
        infinite = np.full(n_classes, np.inf)
        nothing = np.zeros(n_classes)
        empty = np.empty((n_classes, 0))
        return cls(
            index=np.arange(n_classes),
            A=A,
            B=B,
            real=real,
            base=base,
            v=v,
            # An infinite value: the first point is always accepted.
            at=Evaluation(infinite, empty, empty, empty, empty),
            violation=infinite,
            step=np.zeros_like(v),
            slope=nothing,
            length=np.ones(n_classes),
            best=infinite,
            stalled=np.zeros(n_classes, dtype=np.int64),
        )

    def advance(self, inv_lam: float, tol: float) -> Mask:
        """Try the next point of every class; return which classes are finished."""
        trial = np.maximum(self.v + self.length[:, None] * self.step, 0.0)
        at = evaluate(self.A, self.B, trial, inv_lam, self.real, self.base)
        violation = relative_violation(trial, at.gradient, inv_lam)
        value = self.at.value
        good = at.value <= value + _ARMIJO * self.length * self.slope
        good |= (violation <= _SMALLER_VIOLATION * self.violation) & (
            at.value <= value + _ROUNDING_SLACK * np.abs(at.value)
        )
        if good.all():
            self.v, self.at, self.violation = trial, at, violation
            self.length = np.zeros_like(self.length)
        else:
            shrunk = self.length * np.where(
                self.length > _SHORT_STEP, _FIRST_SHRINKING, _FURTHER_SHRINKING
            )
            self.length = np.where(good, 0.0, shrunk)
            self.v = np.where(good[:, None], trial, self.v)
            self.at = at.where(good, self.at)
            self.violation = np.where(good, violation, self.violation)
        improved = self.violation < _SMALLER_VIOLATION * self.best
        self.stalled = np.where(improved, 0, self.stalled + 1)
        self.best = np.minimum(self.best, self.violation)
        stuck = (self.stalled >= _STALL_EVALUATIONS) & (self.best < _STALL_VIOLATION)
        return (self.violation <= tol) | stuck

    def update_directions(self) -> None:
        """Compute a new direction for every class whose last point was accepted."""
        moved = self.length == 0.0
        if moved.all():
            self.step = self.direction()
            self.slope = (self.at.gradient * self.step).sum(axis=1)
            self.length = np.ones_like(self.length)
        elif moved.any():
            part = self.select(moved)
            part.update_directions()
            self.step[moved], self.slope[moved] = part.step, part.slope
            self.length[moved] = 1.0

    def direction(self) -> Array:
        """Newton directions at the accepted points."""
        step = bounded_newton_step(
            generalised_hessian(self.at), self.at.gradient, self.v, self.real
        )
        flat = self.at.eigenvalues[:, 0] >= 0.0
        if flat.any():
            # M(v) is positive semidefinite: f is linear and falls in every direction.
            # Double the weights until M(v) has a negative eigenvalue.
            step[flat] = np.where(self.real[flat], self.base + self.v[flat], 0.0)
        return step

    def select(self, keep: Mask) -> "_LineSearches":
        """The line searches of some of the classes."""
        return _LineSearches(
            self.index[keep],
            self.A[keep],
            self.B[keep],
            self.real[keep],
            self.base,
            self.v[keep],
            self.at.take(keep),
            self.violation[keep],
            self.step[keep],
            self.slope[keep],
            self.length[keep],
            self.best[keep],
            self.stalled[keep],
        )

    def write(self, out: ReducedSolution, finished: Mask, n_evaluations: int) -> None:
        """Write the accepted points of the finished classes to `out`."""
        if finished.all() and self.index.size == out.violation.size:
            out.v, out.violation = self.v, self.violation
            out.eigenvalues, out.vectors = self.at.eigenvalues, self.at.vectors
            out.n_evaluations[:] = n_evaluations
            return
        rows = self.index[finished]
        out.v[rows], out.violation[rows] = self.v[finished], self.violation[finished]
        out.eigenvalues[rows] = self.at.eigenvalues[finished]
        out.vectors[rows] = self.at.vectors[finished]
        out.n_evaluations[rows] = n_evaluations


def _roots(eigenvalues: Array) -> Array:
    """The positive parts of -eigenvalues, rounding noise set to zero."""
    noise = -_ZERO_EIGENVALUE * np.abs(eigenvalues[:, :1])
    return np.where(eigenvalues < noise, -eigenvalues, 0.0)


def _bounded_step_by_nnls(H: Array, g: Array, v: Array, real: Mask) -> Array:
    """The same minimiser for one class whose active sets cycle.

    In y = s + v >= 0 the problem is non-negative least squares with a square root of
    H. This is slower, but always ends.
    """
    step = np.zeros_like(g)
    H, g, v = H[np.ix_(real, real)], g[real], v[real]
    w, Q = np.linalg.eigh(H)
    root = np.sqrt(np.maximum(w, _HESSIAN_RIDGE * w[-1]))
    try:
        y, _ = nnls(root[:, None] * Q.T, (Q.T @ (H @ v - g)) / root)
        step[real] = y - v
    except RuntimeError:
        # Its iteration limit, in degenerate cases. Take a projected gradient step.
        step[real] = np.maximum(-g / w[-1], -v)
    return step
