# SPDX-License-Identifier: BSD-3-Clause
"""How good a solution is, whoever computed it.

The certificate works in the full span of the data, not in the reduced bases of
the solver. Its upper bound is the objective (5) at a feasible P: the solution
rescaled so that every constraint holds. Its lower bound is the dual value (12)
with the negative eigenvalues of

    M(v) = diag(L) - Z' D Z,   D = diag(1 + v),  v = u / lam,

bounded from above by Sylvester's law of inertia: M has exactly as many
eigenvalues below -b as the k x k matrix D^-1 - Z (L + b)^-1 Z' has negative
ones, or D^{1/2} times it from both sides. No eigenvalue can hide from that
count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array, Index
from dualqml.core.chunks import ClassChunk, class_chunks
from dualqml.core.solution import QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

#: Chunks small enough for their temporaries to stay in a core's own cache.
_CHUNK_BYTES = 500_000
#: Margin above a root at which it is counted, and the smallest root counted,
#: both in units of the class's largest root.
_MARGIN, _FLOOR = 1e-11, 3e-6
#: By how much a root's estimated error is enlarged for the first trial, and how
#: large it may be in units of the largest root.
_SHIFT_MARGIN, _SMALL_SHIFT = 1.3, 1e-6
#: A Newton step below this fraction of the largest root is the last one.
_LAST_STEP = 1e-4
#: Counts tried for a root before its bound is given up.
_MAX_ATTEMPTS = 12


@dataclass(frozen=True)
class Certificate:
    """Bounds on the optimum and the KKT residuals, one value a class.

    Attributes
    ----------
    primal : ndarray of shape (n_classes,)
        Objective (5) at the solution rescaled to feasibility: an upper bound.
    dual : ndarray of shape (n_classes,)
        Lower bound of the dual value (12), hence of the optimum.
    gap : ndarray of shape (n_classes,)
        Relative duality gap, (primal - dual) / primal.
    violation : ndarray of shape (n_classes,)
        Largest shortfall of x'Px below 1 over the own samples, before
        rescaling; zero where all constraints hold.
    complementarity : ndarray of shape (n_classes,)
        Largest ``u_i |x_i'Px_i - 1|``, relative to the sum of the u_i.
    n_negative : ndarray of shape (n_classes,)
        Negative eigenvalues of ``lam O_c - sum u_i x_i x_i'``, those below a
        fraction 3e-6 of the largest in magnitude not counted.
    """

    primal: Array
    dual: Array
    gap: Array
    violation: Array
    complementarity: Array
    n_negative: NDArray[np.int64]


def certify(
    spectrum: ScatterSpectrum, members: Sequence[Index], solution: QMLSolution
) -> Certificate:
    """Certify the solution of every class.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum of the scatter of all samples.
    members : sequence of ndarray
        For each class, the indices of its samples.
    solution : QMLSolution
        What a solver returned.

    Returns
    -------
    Certificate
        Bounds and residuals, class by class.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import certify, scatter_spectrum, solve
    >>> X = np.array([[1.0, 0.1], [0.9, -0.1], [0.1, 1.0], [-0.1, 0.8]])
    >>> members = [np.array([0, 1]), np.array([2, 3])]
    >>> spectrum = scatter_spectrum(X)
    >>> certificate = certify(spectrum, members, solve(spectrum, members, 1.0))
    >>> bool((certificate.gap < 1e-6).all())
    True
    """
    chunks = class_chunks(members, spectrum.rank, _CHUNK_BYTES)
    parts = [_certify_chunk(chunk, spectrum, solution) for chunk in chunks]
    order = np.argsort(np.concatenate([chunk.classes for chunk in chunks]))
    columns = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])[order]
        for field in fields(Certificate)
    }
    return Certificate(**columns)


def _certify_chunk(
    chunk: ClassChunk, spectrum: ScatterSpectrum, solution: QMLSolution
) -> Certificate:
    lam, L = solution.lam, spectrum.eigenvalues
    Z = chunk.gather(spectrum.coordinates)
    v = np.where(chunk.real, solution.dual[chunk.samples] / lam, 0.0)
    factors = _factors_of(chunk, solution)
    own = Z @ factors.transpose(0, 2, 1)
    gram = factors @ factors.transpose(0, 2, 1)
    F = (own * own).sum(axis=2)
    lowest = np.where(chunk.real, F, np.inf).min(axis=1)
    scale = np.maximum(1.0, 1.0 / np.where(lowest > 0.0, lowest, 1.0))
    # tr(P O_c) = sum over all samples of x'Px, less the own ones.
    total = ((factors * factors) @ L).sum(axis=1)
    extra = np.maximum(total - F.sum(axis=1), 0.0)
    squared_norm = (gram * gram).sum(axis=(1, 2))
    primal = 0.5 * squared_norm * scale**2 + lam * extra * scale
    primal = np.where(lowest > 0.0, primal, np.inf)  # no scale makes it feasible
    n_possible = np.minimum(chunk.real.sum(axis=1), spectrum.rank)
    claimed = _claimed_roots(Z, L, v, lam, factors, own, gram)
    bounds, n_negative = _root_bounds(Z, L, v, n_possible, claimed)
    sum_v = v.sum(axis=1)
    dual = lam * (sum_v - 0.5 * lam * (bounds * bounds).sum(axis=1))
    slack = np.where(chunk.real, v * np.abs(F - 1.0), 0.0).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        complementarity = np.where(sum_v > 0.0, slack / sum_v, np.inf)
        gap = np.where(lowest > 0.0, (primal - dual) / primal, np.inf)
    violation = np.maximum(1.0 - lowest, 0.0)
    return Certificate(primal, dual, gap, violation, complementarity, n_negative)


def _claimed_roots(
    Z: Array, L: Array, v: Array, lam: float, factors: Array, own: Array, gram: Array
) -> Array:
    """Where the solution says that the roots of M(v) are, in falling order.

    A factor row f = sqrt(lam t) q stands for the root t. By the residual
    R = (M + t) f, the true root is larger by about R' (L + t)^-1 R / |f|^2.
    """
    squared = gram[:, np.arange(gram.shape[1]), np.arange(gram.shape[1])]
    t = squared / lam
    residual = (own * (1.0 + v)[:, :, None]).transpose(0, 2, 1) @ Z
    weights = L + t[:, :, None]
    residual -= factors * weights
    residual *= residual
    residual /= weights
    shift = residual.sum(axis=2) / np.where(squared > 0.0, squared, 1.0)
    # A large estimate is a bad one: better to search upwards from the root.
    small = shift <= _SMALL_SHIFT * t.max(axis=1, keepdims=True)
    roots = np.where(small, t + _SHIFT_MARGIN * shift, t)
    return np.asarray(-np.sort(-roots, axis=1))


def _factors_of(chunk: ClassChunk, solution: QMLSolution) -> Array:
    """Factor rows of each class of a chunk, zero rows where it has fewer."""
    ranks = solution.ranks[chunk.classes]
    width = max(int(ranks.max()), chunk.samples.shape[1])
    held = np.arange(width) < ranks[:, None]
    rows = solution.first_rows[chunk.classes][:, None] + np.arange(width)
    out = np.zeros((ranks.size, width, solution.factors.shape[1]))
    out[held] = solution.factors[rows[held]]
    return out


def _root_bounds(
    Z: Array, L: Array, v: Array, n_possible: Index, roots: Array
) -> tuple[Array, NDArray[np.int64]]:
    """Proven upper bounds on the roots (minus the negative eigenvalues) of M(v).

    The a-th largest root is at most b as soon as no more than a - 1 roots are
    counted above b. The claimed root is tried first, then Newton steps on the
    eigenvalue of the counting matrix that has to become non-negative.
    """
    n_classes, k, _ = Z.shape
    largest = np.maximum(roots[:, :1], np.finfo(np.float64).tiny)
    floor = _FLOOR * largest
    position = np.arange(k)
    possible = position < n_possible[:, None]
    bounds = np.where(possible, np.maximum(roots[:, :k] + _MARGIN * largest, floor), 0)
    # One count settles all roots at the floor. It is the last of each class.
    above = bounds > floor
    n_above = above.sum(axis=1)
    owner, allowed = np.nonzero(above)
    owner = np.concatenate([owner, np.arange(n_classes)])
    allowed = np.concatenate([allowed, n_above])
    trial = np.concatenate([bounds[above], floor[:, 0]])
    is_floor = np.arange(owner.size) >= owner.size - n_classes
    n_negative = np.zeros(n_classes, dtype=np.int64)
    Y = np.sqrt(1.0 + v)[:, :, None] * Z
    for attempt in range(_MAX_ATTEMPTS):
        count, step = _count_roots_above(Y, L, owner, trial, allowed)
        if attempt == 0:
            n_negative[owner[is_floor]] = count[is_floor]
        failed = count > allowed
        for proven_floor in (False, True):
            done = ~failed & (is_floor == proven_floor)
            _record(bounds, owner[done], allowed[done], trial[done], proven_floor)
        if not failed.any():
            return bounds, n_negative
        # The lowest eigenvalue is concave in b, so its Newton steps never go too
        # far. The last, small one is enlarged to get past the root.
        scale = largest[owner, 0]
        step = np.where(step < _LAST_STEP * scale, 1.02 * step, step)
        trial = (trial + step + _MARGIN * 8.0**attempt * scale)[failed]
        owner, allowed = owner[failed], allowed[failed]
        is_floor = is_floor[failed]
    # Never proven: no root exceeds the trace of Z'DZ.
    trace = (Y * Y).sum(axis=(1, 2))
    for proven_floor in (False, True):
        rest = is_floor == proven_floor
        _record(bounds, owner[rest], allowed[rest], trace[owner[rest]], proven_floor)
    return bounds, n_negative


def _record(
    bounds: Array, owner: Index, position: Index, value: Array, is_floor: bool
) -> None:
    """Write proven bounds; one at the floor holds for all further roots too."""
    if not is_floor:
        bounds[owner, position] = value
        return
    further = (np.arange(bounds.shape[1]) >= position[:, None]) & (bounds[owner] > 0)
    bounds[owner] = np.where(further, value[:, None], bounds[owner])


def _count_roots_above(
    weighted_own: Array, L: Array, owner: Index, b: Array, allowed: Index
) -> tuple[Index, Array]:
    """Number of eigenvalues of M(v) below -b, for pairs of a class and a b.

    Also returns the Newton step in b after which only `allowed` remain: the
    eigenvalues of I - Y (L + b)^-1 Y' with Y = D^{1/2} Z rise with b, at the
    rate |(L + b)^-1 Y'y|^2 for the unit eigenvector y.
    """
    k, rank = weighted_own.shape[1:]
    count = np.empty(owner.size, dtype=np.intp)
    newton_step = np.zeros(owner.size)
    size = max(1, _CHUNK_BYTES // (8 * k * rank))
    diagonal = np.arange(k)
    for start in range(0, owner.size, size):
        part = slice(start, start + size)
        root_weight = 1.0 / np.sqrt(L + b[part, None])
        weighted = weighted_own[owner[part]]
        weighted *= root_weight[:, None, :]
        S = -(weighted @ weighted.transpose(0, 2, 1))
        # A padded sample has a zero row: its unit diagonal counts nothing.
        S[:, diagonal, diagonal] += 1.0
        w, vectors = np.linalg.eigh(S)
        count[part] = (w < 0.0).sum(axis=1)
        failed = np.flatnonzero(count[part] > allowed[part])
        index = allowed[part][failed]
        y = vectors[failed, :, index]
        direction = (y[:, None, :] @ weighted[failed])[:, 0] * root_weight[failed]
        rate = (direction * direction).sum(axis=1)
        newton_step[start + failed] = -w[failed, index] / rate
    return count, newton_step
