# SPDX-License-Identifier: BSD-3-Clause
"""How good a solution of any solver is, rounding errors included.

What is certified are the numbers as they are stored: the factors of P_c in the space
of the samples and the multipliers u. The bounds hold in exact arithmetic: every
computed quantity that they are based on is moved to the safe side by a bound on its
error, from rounding and from directions that the spectrum leaves out.

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
from dualqml.core.class_chunks import (
    ClassChunk,
    class_chunks,
    single_class_chunk,
)
from dualqml.core.double_double import MAX_DOUBLE_DOUBLE_SIZE, double_double_product
from dualqml.core.inertia import OtherSamples, RootCounter
from dualqml.core.problem import QMLSolution
from dualqml.core.spectrum import EPSILON, ScatterSpectrum, dot_error

#: Bytes of own samples in a chunk of classes.
_CHUNK_BYTES = 2_000_000
#: The bounds on the roots are tried a little above the claimed roots. By how much this
#: may raise the relative gap, in units of the tolerance.
_TRIAL_MARGIN = 0.01
#: Roots below this fraction of the largest share one bound, at a tolerance of 1e-6.
_SMALLEST_ROOT_RATIO = 3e-5
#: The first trial is raised by this multiple of the solver's estimate of the root's
#: error. Estimates above this fraction of the largest root are not used: they are bad.
_ROOT_SHIFT_FACTOR, _MAX_ROOT_SHIFT_RATIO = 1.3, 1e-6


@dataclass(frozen=True)
class Certificate:
    """Bounds on the optimum and KKT residuals, one value per class.

    Attributes
    ----------
    primal : ndarray of shape (n_classes,)
        Upper bound of the objective (5) at the solution rescaled to feasibility,
        and so of the optimum.
    dual : ndarray of shape (n_classes,)
        Lower bound of the dual value (12), and so of the optimum.
    gap : ndarray of shape (n_classes,)
        Relative duality gap, (primal - dual) / primal; never negative.
    violation : ndarray of shape (n_classes,)
        Upper bound of the largest shortfall of x'Px below 1 over the own samples,
        before rescaling.
    complementarity : ndarray of shape (n_classes,)
        Largest ``u_i |x_i'Px_i - 1|``, relative to the sum of the u_i.
    n_negative : ndarray of shape (n_classes,)
        Number of negative eigenvalues of ``lam O_c - sum u_i x_i x_i'``. Those that
        are too small to matter, below 3e-5 of the largest in magnitude, are not
        counted.
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
        """The certificates of some of the classes.

        Parameters
        ----------
        classes : ndarray of int or bool
            Which classes.

        Returns
        -------
        Certificate
            With one value per chosen class.
        """
        return Certificate(
            **{field.name: getattr(self, field.name)[classes] for field in fields(self)}
        )

    def with_part(self, classes: Index, part: "Certificate") -> "Certificate":
        """A certificate with other values for some of the classes.

        Parameters
        ----------
        classes : ndarray of int
            Which classes.
        part : Certificate
            Their new values.

        Returns
        -------
        Certificate
            With one value per class; this one is not changed.
        """
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
        The solution that a solver returned.
    components : ndarray of shape (sum of ranks, n_features), optional
        The factors as they are stored, in the space of the samples. By default they
        are computed by ``spectrum.back_project``.
    tol : float, default=1e-6
        The gap asked for. Bounds are sharp to about a hundredth of it.
    rounding : bool, default=True
        False leaves out the errors of rounding and of dropped directions. The bounds
        prove nothing then; the difference tells why a class failed.

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
    stored = _StoredFactors.of(spectrum, solution, components, error)
    chunks = class_chunks(members, spectrum.rank, _CHUNK_BYTES)
    parts = []
    # An overflow or 0 / 0 proves nothing: the gap becomes infinite.
    with np.errstate(all="ignore"):
        for chunk in chunks:
            v = np.where(
                chunk.real, solution.multipliers[chunk.samples] / solution.lam, 0.0
            )
            Z = chunk.gather(spectrum.coordinates)
            bounds = stored.bounds(chunk, Z, spectrum, solution)
            counter = RootCounter.among_all_samples(Z, chunk, spectrum, v, error)
            parts.append(
                _certificate(bounds, solution.lam, v, chunk.real, counter, tol)
            )
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

    Slower than :func:`certify`, with sharper bounds: the responses of the stored
    factors are computed and not bounded. Meant for spectra with a small error.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        From :func:`~dualqml.core.spectrum.sample_spectrum`.
    members : sequence of ndarray
        For each class, the indices of its samples.
    solution : QMLSolution
        The solution that a solver returned.
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
            rows = _at_least_one_row(rows)
            chunk = single_class_chunk(own)
            v = solution.multipliers[own][None] / solution.lam
            Z = chunk.gather(spectrum.coordinates)
            counter = RootCounter.among_all_samples(Z, chunk, spectrum, v, 1.0)
            bounds = _direct_bounds(spectrum.samples, own, rows, 1.0)
            # The roots are counted in the scatter of all samples, own ones included.
            own_part = (spectrum.samples[own] @ rows.T) ** 2
            bounds = replace(bounds, energies=bounds.energies + own_part.sum(axis=0))
            parts.append(
                _certificate(bounds, solution.lam, v, chunk.real, counter, tol)
            )
    return _stacked(parts)


def certify_class(
    X: Array,
    own: Index,
    lam: float,
    components: Array,
    multipliers: Array,
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
        The indices of the samples of the class.
    lam : float
        The regularisation parameter.
    components : ndarray of shape (rank, n_features)
        The factor of P.
    multipliers : ndarray of shape (n_own,)
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
        bounds = _direct_bounds(X, own, _at_least_one_row(components), float(rounding))
        v = multipliers[None] / lam
        counter = RootCounter.among_others(spectrum, v, float(rounding))
        real = np.ones((1, own.size), dtype=bool)
        return _certificate(bounds, lam, v, real, counter, tol)


def _at_least_one_row(rows: Array) -> Array:
    """The rows, or a row of zeros if there are none."""
    return rows if rows.shape[0] else np.zeros((1, rows.shape[1]))


def _stacked(parts: Sequence[Certificate]) -> Certificate:
    """The certificates of all classes from those of the parts."""
    return Certificate(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Certificate)
        }
    )


@dataclass(frozen=True)
class _FactorBounds:
    """Values and bounds that follow from the stored factors of some classes."""

    own: Array  # (C, k): x'P_c x of the own samples
    own_lower: Array  # (C, k): lower bound of x'P_c x
    extra: Array  # (C,): upper bound of tr(P_c O_c)
    norm: Array  # (C,): upper bound of |P_c|_F
    squared: Array  # (C, rank): |f|^2 of each factor row f
    energies: Array  # (C, rank): f'Sf, S the scatter in which roots are counted
    root_shifts: Array  # (C, rank): see QMLSolution.root_shifts
    first: Array | None = None  # (C, rank of the spectrum): the first factor row


def _direct_bounds(X: Array, own: Index, rows: Array, rounding: float) -> _FactorBounds:
    """Bounds of one class, by the responses of its factors to all samples."""
    lengths = np.sqrt((rows * rows).sum(axis=1))
    if max(X.shape) <= MAX_DOUBLE_DOUBLE_SIZE:
        product, _ = double_double_product(X, rows.T)
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
    return _FactorBounds(
        (mine * mine).sum(axis=1)[None],
        (lower * lower).sum(axis=1)[None],
        energies.sum(keepdims=True) * (1.0 + dot_error(X.shape[0])),
        np.sqrt((gram * gram).sum(keepdims=True))[0],
        (lengths * lengths)[None],
        energies[None],
        np.zeros((1, lengths.size)),
    )


@dataclass(frozen=True)
class _StoredFactors:
    """The stored factors g of all classes, by the solver's f in the eigenbasis.

    g = Qf up to rounding. A bound on the rounding error follows from how
    :meth:`~dualqml.core.ScatterSpectrum.back_project` computes g, so only norms have
    to be computed in the space of the samples.
    """

    factors: Array  # rows f
    squared: Array  # |g|^2
    response_error: Array  # upper bound of |Xg - Zf|
    product_error: Array  # |g_a'g_b - f_a'f_b| is at most the product of two of these
    total: Array  # upper bound of |Xg|^2
    root_shifts: Array

    @classmethod
    def of(
        cls,
        spectrum: ScatterSpectrum,
        solution: QMLSolution,
        components: Array,
        rounding: float,
    ) -> "_StoredFactors":
        f, L = _at_least_one_row(solution.factors), spectrum.eigenvalues
        n_samples, n_features = spectrum.samples.shape
        largest, size = np.sqrt(L[-1]), np.sqrt(L.sum())
        squares = f * f
        lengths = np.sqrt(squares.sum(axis=1))
        energies = squares @ L
        if spectrum.basis is None:
            # g = X'w and w = Z(f / L): the rounding of two products, and the error of
            # the Gram matrix times w.
            w = np.sqrt(squares @ (1.0 / L))
            in_w = rounding * np.sqrt(n_samples) * dot_error(spectrum.rank)
            in_g = rounding * dot_error(n_samples) * size
            response_error = (
                spectrum.scatter_error + L[-1] * in_w + largest * in_g
            ) * w
            product_error = np.sqrt(spectrum.scatter_error) * w
            product_error += np.sqrt(2.0 * (largest * in_w + in_g) * w * lengths)
            energies *= 1.0 + rounding * 8.0 * EPSILON * n_samples
        else:
            # g = Qf: the rounding of a product, and how far Q is from orthogonal. And
            # the rounding of the product Z = XQ.
            in_g = np.sqrt(spectrum.rank) * dot_error(spectrum.rank)
            in_g = rounding * (in_g + 8.0 * EPSILON * n_features)
            in_z = rounding * np.sqrt(spectrum.rank) * dot_error(n_features)
            response_error = (largest * in_g + size * in_z) * lengths
            product_error = np.sqrt(3.0 * in_g) * lengths
            energies += spectrum.scatter_error * lengths**2
        shifts = solution.root_shifts
        components = _at_least_one_row(components)
        return cls(
            f,
            np.einsum("ij,ij->i", components, components),
            response_error,
            product_error,
            (np.sqrt(energies) + response_error) ** 2,
            np.zeros_like(lengths) if shifts is None or not shifts.size else shifts,
        )

    def bounds(
        self,
        chunk: ClassChunk,
        Z: Array,
        spectrum: ScatterSpectrum,
        solution: QMLSolution,
    ) -> _FactorBounds:
        """Bounds of the classes of a chunk with own samples Z."""
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
        lower = np.maximum(own - of_rows(self.response_error)[:, None, :], 0.0)
        own, lower = (own * own).sum(axis=2), (lower * lower).sum(axis=2)
        total = of_rows(self.total)
        # tr(P O_c): all samples less the own ones.
        own_sum = np.where(chunk.real, lower, 0.0).sum(axis=1)
        extra = np.maximum(total.sum(axis=1) - own_sum, 0.0)
        extra += dot_error(chunk.real.shape[1] + 8) * total.sum(axis=1)
        squared = of_rows(self.squared)
        error = of_rows(self.product_error)
        gram = np.abs(factors @ factors_T) + error[:, :, None] * error[:, None, :]
        np.einsum("cii->ci", gram)[...] = squared
        norm = np.sqrt((gram * gram).sum(axis=(1, 2)))
        return _FactorBounds(
            own,
            lower,
            extra,
            norm,
            squared,
            total,
            of_rows(self.root_shifts),
            factors[:, 0],
        )


def _certificate(
    bounds: _FactorBounds,
    lam: float,
    v: Array,
    real: Mask,
    counter: RootCounter,
    tol: float,
) -> Certificate:
    """The certificate of some classes from the bounds of their factors."""
    lowest = np.where(real, bounds.own_lower, np.inf).min(axis=1)
    feasible = lowest > 0.0
    scale = np.maximum(1.0, 1.0 / np.where(feasible, lowest, 1.0))
    # Covers the rounding of short sums and of the norms of factors.
    slack = 1.0 + dot_error(counter.L.size + real.shape[1] + 16)
    primal = 0.5 * (bounds.norm * scale) ** 2 + lam * bounds.extra * scale
    # Where a response is zero, no scale makes P feasible.
    primal = np.where(feasible, primal * slack, np.inf)

    squared = bounds.squared
    roots = squared / lam
    largest = roots.max(axis=1, keepdims=True, initial=0.0)
    small = bounds.root_shifts <= _MAX_ROOT_SHIFT_RATIO * largest
    roots = np.where(small, roots + _ROOT_SHIFT_FACTOR * bounds.root_shifts, roots)
    # How far a root moves with its eigenvalue of the counting matrix: t + q'Sq.
    sensitivity = roots + bounds.energies / np.where(squared > 0.0, squared, 1.0)
    order = np.argsort(-roots, axis=1)
    roots, sensitivity = (
        np.take_along_axis(a, order, axis=1) for a in (roots, sensitivity)
    )
    # Trials are a distance d above the roots t. Summed over the roots, t d and d^2 / 2
    # raise the gap by no more than the margin.
    trace = squared.sum(axis=1)
    above = np.minimum(
        _TRIAL_MARGIN * tol * primal / (lam * np.where(trace > 0.0, trace, np.inf)),
        np.sqrt(_TRIAL_MARGIN * tol * primal / real.shape[1]) / lam,
    )
    limits, n_negative = counter.root_bounds(
        roots,
        sensitivity,
        np.where(feasible, above, 0.0),
        _SMALLEST_ROOT_RATIO * min(1.0, float(np.sqrt(tol / 1e-6))),
        np.minimum(real.sum(axis=1), counter.n_features),
        bounds.first,
    )
    sum_v = v.sum(axis=1)
    half = 0.5 * lam * (limits * limits).sum(axis=1)
    dual = lam * (sum_v / slack - half * slack)
    exceeding = np.where(real, v * np.abs(bounds.own - 1.0), 0.0).max(axis=1)
    complementarity = np.where(sum_v > 0.0, exceeding / sum_v, np.inf)
    gap = np.where(feasible & np.isfinite(primal), (primal - dual) / primal, np.inf)
    gap = np.where(np.isnan(gap), np.inf, gap)
    violation = np.maximum(1.0 - lowest / slack, 0.0)
    return Certificate(primal, dual, gap, violation, complementarity, n_negative)
