# SPDX-License-Identifier: BSD-3-Clause
"""How good a solution is, whoever computed it, rounding included.

What is certified are numbers as they are stored: the factors of P_c in the space
of the samples and the multipliers u. The bounds hold in exact arithmetic: every
computed quantity that they rest on is moved to the safe side by what rounding, and
directions left out of the spectrum, can have done to it.

The upper bound of the optimum is the objective (5) at a feasible P: the stored one
rescaled so that every constraint holds. The lower bound is the dual value (12), with
bounds on the negative eigenvalues of ``lam O_c - sum u_i x_i x_i'`` that are found by
counting (:mod:`dualqml.core.inertia`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.class_chunks import ClassChunk, class_chunks
from dualqml.core.double_double import MAX_LONG, long_product
from dualqml.core.inertia import OtherSamples, RootCounter
from dualqml.core.problem import QMLSolution
from dualqml.core.spectrum import EPSILON, ScatterSpectrum, dot_error

#: Bytes of own samples in a chunk of classes.
_CHUNK_BYTES = 2_000_000
#: By how much the trials for the roots may raise the relative gap, in units of the
#: tolerance.
_MARGIN = 0.01
#: Roots below this fraction of the largest are not told apart, at a tolerance of 1e-6.
_SMALLEST = 3e-5
#: By how much a root's estimated error is enlarged for the first trial, and how large
#: it may be in units of the largest root: a large estimate is a bad one.
_SHIFT_MARGIN, _SMALL_SHIFT = 1.3, 1e-6


@dataclass(frozen=True)
class Certificate:
    """Bounds on the optimum and the KKT residuals, one value a class.

    Attributes
    ----------
    primal : ndarray of shape (n_classes,)
        Upper bound of objective (5) at the solution rescaled to feasibility,
        hence of the optimum.
    dual : ndarray of shape (n_classes,)
        Lower bound of the dual value (12), hence of the optimum.
    gap : ndarray of shape (n_classes,)
        Relative duality gap, (primal - dual) / primal; never negative.
    violation : ndarray of shape (n_classes,)
        Largest shortfall of x'Px below 1 over the own samples, before
        rescaling; an upper bound too.
    complementarity : ndarray of shape (n_classes,)
        Largest ``u_i |x_i'Px_i - 1|``, relative to the sum of the u_i.
    n_negative : ndarray of shape (n_classes,)
        Negative eigenvalues of ``lam O_c - sum u_i x_i x_i'``. Those that are too
        small to matter, below 3e-5 of the largest in magnitude, are not counted.
    """

    primal: Array
    dual: Array
    gap: Array
    violation: Array
    complementarity: Array
    n_negative: NDArray[np.int64]

    @property
    def worst(self) -> Array:
        """The larger of gap and violation."""
        return np.maximum(self.gap, self.violation)

    def of(self, classes: Index | Mask) -> "Certificate":
        """The certificates of some of the classes."""
        return Certificate(
            **{field.name: getattr(self, field.name)[classes] for field in fields(self)}
        )

    def with_part(self, classes: Index, part: "Certificate") -> "Certificate":
        """A certificate with other values for some of the classes."""
        columns = {}
        for field in fields(self):
            columns[field.name] = column = getattr(self, field.name).copy()
            column[classes] = getattr(part, field.name)
        return Certificate(**columns)


def certify(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    solution: QMLSolution,
    *,
    components: Array | None = None,
    tol: float = 1e-6,
    rounding: bool = True,
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
    components : ndarray of shape (sum of ranks, n_features), optional
        What ``spectrum.back_project`` has made of the solution's factors, where that
        is at hand: the factors as they are stored.
    tol : float, default=1e-6
        The gap that matters. Bounds are sharp to about a hundredth of it.
    rounding : bool, default=True
        False leaves out what rounding and dropped directions may have done to the
        bounds. They prove nothing then; the difference tells why a class failed.

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
    if components is None:
        components = spectrum.back_project(solution.factors)
    if not rounding:
        nothing = np.zeros_like(spectrum.dropped)
        spectrum = replace(
            spectrum, scatter_error=0.0, sample_error=0.0, dropped=nothing
        )
    error = float(rounding)
    stored = _Stored.of(spectrum, solution, components, error)
    chunks = class_chunks(members, spectrum.rank, _CHUNK_BYTES)
    parts = []
    # What overflows, or is 0 / 0, is not proven: an infinite gap.
    with np.errstate(all="ignore"):
        for chunk in chunks:
            v = np.where(chunk.real, solution.dual[chunk.samples] / solution.lam, 0.0)
            Z = chunk.gather(spectrum.coordinates)
            facts = stored.facts(chunk, Z, spectrum, solution)
            counter = RootCounter.among_all_samples(Z, chunk, spectrum, v, error)
            parts.append(_bounds(facts, solution.lam, v, chunk.real, counter, tol))
    order = np.argsort(np.concatenate([chunk.classes for chunk in chunks]))
    return _stacked(parts).of(order)


def certify_directly(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    solution: QMLSolution,
    components: Array,
    *,
    tol: float = 1e-6,
) -> Certificate:
    """Certify the solution of every class by its responses to all samples.

    Slower than :func:`certify`, and closer: the responses of the stored factors are
    computed and not bounded. Meant for spectra with a small error.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        From :func:`~dualqml.core.spectrum.sample_spectrum`.
    members : sequence of ndarray
        For each class, the indices of its samples.
    solution : QMLSolution
        What a solver returned.
    components : ndarray of shape (sum of ranks, n_features)
        The factors in the space of the samples as they are stored.
    tol : float, default=1e-6
        As in :func:`certify`.

    Returns
    -------
    Certificate
        Bounds and residuals, class by class.
    """
    parts = []
    with np.errstate(all="ignore"):
        for c, own in enumerate(members):
            rows = components[solution.first_rows[c] : solution.first_rows[c + 1]]
            rows = _at_least_one(rows)
            (chunk,) = class_chunks([own], spectrum.rank, _CHUNK_BYTES)
            v = solution.dual[own][None] / solution.lam
            Z = chunk.gather(spectrum.coordinates)
            counter = RootCounter.among_all_samples(Z, chunk, spectrum, v, 1.0)
            facts = _direct_facts(spectrum.samples, own, rows, 1.0)
            # The roots are counted in the scatter of all samples, own ones included.
            own_part = (spectrum.samples[own] @ rows.T) ** 2
            facts = replace(facts, energies=facts.energies + own_part.sum(axis=0))
            parts.append(_bounds(facts, solution.lam, v, chunk.real, counter, tol))
    return _stacked(parts)


def certify_class(
    X: Array,
    own: Index,
    lam: float,
    components: Array,
    dual: Array,
    spectrum: OtherSamples,
    *,
    tol: float = 1e-6,
    rounding: bool = True,
) -> Certificate:
    """Certify one class by the spectrum of the other samples.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples.
    own : ndarray of shape (n_own,)
        Those of the class.
    lam : float
        The regularisation parameter.
    components : ndarray of shape (rank, n_features)
        The factor of P.
    dual : ndarray of shape (n_own,)
        The multipliers u.
    spectrum : OtherSamples
        The spectrum of O_c and the own samples in its eigenbasis.
    tol : float, default=1e-6
        As in :func:`certify`.
    rounding : bool, default=True
        As in :func:`certify`.

    Returns
    -------
    Certificate
        Bounds and residuals of the one class.
    """
    if not rounding:
        nothing = np.zeros_like(spectrum.own_errors)
        spectrum = replace(spectrum, error=0.0, own_errors=nothing, residuals=None)
    with np.errstate(all="ignore"):
        facts = _direct_facts(X, own, _at_least_one(components), float(rounding))
        v = dual[None] / lam
        counter = RootCounter.among_others(spectrum, v, float(rounding))
        real = np.ones((1, own.size), dtype=bool)
        return _bounds(facts, lam, v, real, counter, tol)


def _at_least_one(rows: Array) -> Array:
    """A row of zeros in place of no factors."""
    return rows if rows.shape[0] else np.zeros((1, rows.shape[1]))


def _stacked(parts: Sequence[Certificate]) -> Certificate:
    return Certificate(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Certificate)
        }
    )


@dataclass(frozen=True)
class _Facts:
    """What is known of the stored factors of some classes."""

    own: Array  # (C, k): x'P_c x of the own samples ...
    own_lower: Array  # (C, k): ... and what it is at least
    extra: Array  # (C,): tr(P_c O_c) at most
    norm: Array  # (C,): |P_c|_F at most
    squared: Array  # (C, rank): |f|^2 of each factor f
    energies: Array  # (C, rank): f'Sf, S the scatter in which roots are counted
    shifts: Array  # (C, rank): by how much more than |f|^2 / lam the roots are, about


def _direct_facts(X: Array, own: Index, rows: Array, rounding: float) -> _Facts:
    """Of one class, by the responses of its factors to all samples."""
    lengths = np.sqrt((rows * rows).sum(axis=1))
    if max(X.shape) <= MAX_LONG:
        product, _ = long_product(X, rows.T)
        off = rounding * EPSILON * np.abs(product)
    else:
        product = X @ rows.T
        norms = np.sqrt((X * X).sum(axis=1))
        off = rounding * dot_error(X.shape[1]) * np.outer(norms, lengths)
    mine = np.abs(product[own])
    lower = np.maximum(mine - off[own], 0.0)
    extra = np.abs(product) + off
    extra[own] = 0.0
    energies = (extra * extra).sum(axis=0)
    error = rounding * dot_error(X.shape[1])
    gram = np.abs(rows @ rows.T) + error * np.outer(lengths, lengths)
    return _Facts(
        (mine * mine).sum(axis=1)[None],
        (lower * lower).sum(axis=1)[None],
        energies.sum(keepdims=True) * (1.0 + dot_error(X.shape[0])),
        np.sqrt((gram * gram).sum(keepdims=True))[0],
        (lengths * lengths)[None],
        energies[None],
        np.zeros((1, lengths.size)),
    )


@dataclass(frozen=True)
class _Stored:
    """The stored factors v of all classes, by the solver's f in the eigenbasis.

    v = Qf up to rounding. What that can have done follows from how
    :meth:`~dualqml.core.ScatterSpectrum.back_project` computes v, so that nothing but
    norms has to be computed in the space of the samples.
    """

    factors: Array  # rows f
    squared: Array  # |v|^2
    drift: Array  # |Xv - Zf| at most
    cross: Array  # |v_a'v_b - f_a'f_b| is at most the product of two of these
    total: Array  # |Xv|^2 at most
    shifts: Array

    @classmethod
    def of(
        cls,
        spectrum: ScatterSpectrum,
        solution: QMLSolution,
        components: Array,
        rounding: float,
    ) -> "_Stored":
        f, L = _at_least_one(solution.factors), spectrum.eigenvalues
        n_samples, n_features = spectrum.samples.shape
        largest, size = np.sqrt(L[-1]), np.sqrt(L.sum())
        squares = f * f
        lengths = np.sqrt(squares.sum(axis=1))
        energies = squares @ L
        if spectrum.basis is None:
            # v = X'w and w = Z(f / L), two products with their rounding; and the
            # error of the Gram matrix times w.
            w = np.sqrt(squares @ (1.0 / L))
            in_w = rounding * np.sqrt(n_samples) * dot_error(spectrum.rank)
            in_v = rounding * dot_error(n_samples) * size
            drift = (spectrum.scatter_error + L[-1] * in_w + largest * in_v) * w
            cross = np.sqrt(spectrum.scatter_error) * w
            cross += np.sqrt(2.0 * (largest * in_w + in_v) * w * lengths)
            energies *= 1.0 + rounding * 8.0 * EPSILON * n_samples
        else:
            # v = Qf, a product and the orthogonality of Q; and Z = XQ, a product.
            in_v = np.sqrt(spectrum.rank) * dot_error(spectrum.rank)
            in_v = rounding * (in_v + 8.0 * EPSILON * n_features)
            in_z = rounding * np.sqrt(spectrum.rank) * dot_error(n_features)
            drift = (largest * in_v + size * in_z) * lengths
            cross = np.sqrt(3.0 * in_v) * lengths
            energies += spectrum.scatter_error * lengths**2
        shifts = solution.root_shifts
        components = _at_least_one(components)
        return cls(
            f,
            np.einsum("ij,ij->i", components, components),
            drift,
            cross,
            (np.sqrt(energies) + drift) ** 2,
            np.zeros_like(lengths) if shifts is None or not shifts.size else shifts,
        )

    def facts(
        self,
        chunk: ClassChunk,
        Z: Array,
        spectrum: ScatterSpectrum,
        solution: QMLSolution,
    ) -> _Facts:
        """What is known of the classes of a chunk with own samples Z."""
        ranks = solution.ranks[chunk.classes]
        width = max(int(ranks.max()), 1)
        held = np.arange(width) < ranks[:, None]
        index = solution.first_rows[chunk.classes][:, None] + np.arange(width)
        index = np.where(held, index, 0)

        def of_rows(values: Array) -> Array:
            return np.where(held, values[index], 0.0)

        factors = self.factors[index]
        if not held.all():
            factors[~held] = 0.0
        factors_T = factors.transpose(0, 2, 1)
        own = np.abs(Z @ factors_T)
        lower = np.maximum(own - of_rows(self.drift)[:, None, :], 0.0)
        own, lower = (own * own).sum(axis=2), (lower * lower).sum(axis=2)
        total = of_rows(self.total)
        # tr(P O_c): all samples less the own ones.
        own_sum = np.where(chunk.real, lower, 0.0).sum(axis=1)
        extra = np.maximum(total.sum(axis=1) - own_sum, 0.0)
        extra += dot_error(chunk.real.shape[1] + 8) * total.sum(axis=1)
        squared, cross = of_rows(self.squared), of_rows(self.cross)
        gram = np.abs(factors @ factors_T) + cross[:, :, None] * cross[:, None, :]
        np.einsum("cii->ci", gram)[...] = squared
        norm = np.sqrt((gram * gram).sum(axis=(1, 2)))
        return _Facts(own, lower, extra, norm, squared, total, of_rows(self.shifts))


def _bounds(
    facts: _Facts,
    lam: float,
    v: Array,
    real: Mask,
    counter: RootCounter,
    tol: float,
) -> Certificate:
    """Upper and lower bound of the optimum of each class."""
    lowest = np.where(real, facts.own_lower, np.inf).min(axis=1)
    feasible = lowest > 0.0
    scale = np.maximum(1.0, 1.0 / np.where(feasible, lowest, 1.0))
    # For sums of a few terms, and the norms of factors.
    slack = 1.0 + dot_error(counter.L.size + real.shape[1] + 16)
    primal = 0.5 * (facts.norm * scale) ** 2 + lam * facts.extra * scale
    primal = np.where(feasible, primal * slack, np.inf)  # else no scale makes it so

    squared = facts.squared
    roots = squared / lam
    largest = roots.max(axis=1, keepdims=True, initial=0.0)
    small = facts.shifts <= _SMALL_SHIFT * largest
    roots = np.where(small, roots + _SHIFT_MARGIN * facts.shifts, roots)
    # By how much a root moves when its eigenvalue in the count does: t + q'Sq.
    lever = roots + facts.energies / np.where(squared > 0.0, squared, 1.0)
    order = np.argsort(-roots, axis=1)
    roots, lever = (np.take_along_axis(a, order, axis=1) for a in (roots, lever))
    # Trials a little above the roots t: by d, where t d and d^2 / 2, summed over the
    # roots, raise the gap by no more than the margin.
    trace = squared.sum(axis=1)
    above = np.minimum(
        _MARGIN * tol * primal / (lam * np.where(trace > 0.0, trace, np.inf)),
        np.sqrt(_MARGIN * tol * primal / real.shape[1]) / lam,
    )
    limits, n_negative = counter.root_bounds(
        roots,
        lever,
        np.where(feasible, above, 0.0),
        _SMALLEST * min(1.0, float(np.sqrt(tol / 1e-6))),
        np.minimum(real.sum(axis=1), counter.n_features),
    )
    sum_v = v.sum(axis=1)
    half = 0.5 * lam * (limits * limits).sum(axis=1)
    dual = lam * (sum_v / slack - half * slack)
    exceeding = np.where(real, v * np.abs(facts.own - 1.0), 0.0).max(axis=1)
    complementarity = np.where(sum_v > 0.0, exceeding / sum_v, np.inf)
    gap = np.where(feasible & np.isfinite(primal), (primal - dual) / primal, np.inf)
    gap = np.where(np.isnan(gap), np.inf, gap)
    violation = np.maximum(1.0 - lowest / slack, 0.0)
    return Certificate(primal, dual, gap, violation, complementarity, n_negative)
