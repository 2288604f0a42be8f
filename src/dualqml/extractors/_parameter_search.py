# SPDX-License-Identifier: BSD-3-Clause
"""The search for the parameters of DualQML-W on the training set.

The candidates form a grid of rho and lam for each rule and each width of the kernel.
The loss of a candidate is the mean log rank of the true class of left-out samples, in
closed form. Few candidates are tried: the loss changes smoothly over the grid.

1. A sweep over every second rho and every third lam, with one left-out sample of each
   class. It shows where to start, whether another rule may be better than the preferred
   one, and how many samples must be left out: the more of them are recognised, the less
   a single one tells.
2. The search walks downhill from the best of the sweep until all neighbours are worse,
   and then tries values half-way to the neighbours.
3. Often only a few left-out samples are not recognised, and candidates differ by one or
   two of them. So values far from usual ones must be better by more than that: a small
   penalty is added to the loss.
4. Differences between neighbours are often smaller than their standard errors. So rho
   and lam are not those of the lowest loss, but means over all candidates, each with
   the weight that its difference to the lowest loss allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualqml._typing import Array, Index
from dualqml.extractors._coordinates import CoordinateSystem, KernelCoordinates
from dualqml.extractors._leave_one_out import (
    Contest,
    LeaveOneOut,
    LeaveOneOutAtRho,
    make_contest,
)
from dualqml.extractors.dual_qml import Rule
from dualqml.extractors.within_metric import within_spectrum

#: Left-out samples that are not recognised at once tell candidates apart. There should
#: be about this number of them, but not many more left-out samples than the second.
_ENOUGH_ERRORS, _ENOUGH_PROBES = 50, 600
#: The gallery that the parameters of each rule are chosen by: the fair one (0), or that
#: of all other samples (1), which is nearer to the final one.
_GALLERY: dict[Rule, int] = {"max": 0, "cosine": 1}
#: Usual values of rho and lam. For each power of ten squared that a candidate is away
#: from them, its loss must be lower by that of one left-out sample at rank two.
_USUAL: dict[Rule, tuple[float, float]] = {"max": (1.0, 0.03), "cosine": (0.3, 0.2)}
_DEVIATION_LOSS = float(np.log(2.0))
#: Samples in the metrics of the last values of rho are kept, up to this number of them.
_MOST_METRICS = 3
#: Small sets of two or three samples per class are put into slots several times, up to
#: this number of left-out samples, as each time the gallery is another one.
_FEW_PROBES = 300
#: The last rule is preferred unless another one is better by more than this number of
#: standard errors. Where "max" is preferred, "cosine" is either far better or worse.
_CLEAR_ERRORS: dict[Rule, float] = {"max": 2.25, "cosine": 4.0}
#: After the sweep, another rule than the last one is tried only if it is better by more
#: than this number of standard errors.
_PROMISING_ERRORS = 1.0


@dataclass(frozen=True)
class Candidate:
    """Parameters that were tried, or chosen."""

    rule: Rule
    rho: float
    lam: float
    width: float

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {
            "rule": self.rule,
            "rho": self.rho,
            "lam": self.lam,
            "width": self.width,
        }


@dataclass(frozen=True)
class Grid:
    """The values to try; the order of rhos and lams is ascending.

    Attributes
    ----------
    rhos, lams : ndarray
        Weights of the prior and values of lambda.
    rules : sequence of {"cosine", "max"}
        Decision rules. The last one is preferred.
    widths : ndarray
        Variances of the kernel. The first one is that of the coordinate system.
    """

    rhos: Array
    lams: Array
    rules: Sequence[Rule]
    widths: Array


@dataclass(frozen=True)
class Choice:
    """The result of a search.

    Attributes
    ----------
    best : Candidate
        The chosen parameters.
    tried : list of Candidate
        All candidates, in the order in which they were tried.
    losses : list of float
        The mean loss of each of them.
    by_sample : ndarray of shape (n_samples,)
        Mean loss of each sample with the chosen parameters; NaN if it was not left out.
    system : CoordinateSystem
        The coordinate system with the chosen width.
    """

    best: Candidate
    tried: list[Candidate]
    losses: list[float]
    by_sample: Array
    system: CoordinateSystem


def search_parameters(
    system: CoordinateSystem,
    codes: Index,
    grid: Grid,
    *,
    kappa: float,
    own_weight: float,
    random_state: np.random.RandomState,
    report: Callable[[str], None] = lambda text: None,
) -> Choice:
    """Choose the parameters with the lowest loss.

    Parameters
    ----------
    system : CoordinateSystem
        Coordinates of the training samples, with the first width.
    codes : ndarray of shape (n_samples,)
        Their classes; at least one class has several samples.
    grid : Grid
        The values to try.
    kappa : float
        Weight of the motions in the prior.
    own_weight : float
        Factor of the response of its own class, for rule "cosine".
    random_state : RandomState
        Source of the order of the samples.
    report : callable, optional
        Called with a line of text after each step.

    Returns
    -------
    Choice
        The chosen parameters, and all that were tried.
    """
    contest = make_contest(codes, random_state)
    n_several = contest.left_out(0).size
    n_shuffles = 1
    if contest.has_fair_gallery:
        n_probes = min(contest.real.shape[1], 3) * n_several
        n_shuffles = max(1, _FEW_PROBES // n_probes)
    contests = [contest]
    contests += [make_contest(codes, random_state) for _ in range(n_shuffles - 1)]
    search = _Search(contests, codes, grid, kappa, own_weight, report)
    first = float(grid.widths[0])
    losses = search.at_width(system, first)
    starts = search.sweep(losses)
    for rule in search.rules:
        search.walk_downhill(losses, rule, starts[rule])
    rule = search.preferred_rule(losses)
    search.rules = [rule]
    found = [(losses, system)]
    if isinstance(system, KernelCoordinates):
        i, j = losses.best(rule)
        for width in map(float, grid.widths[1:]):
            other = system.at_width(width / first)
            losses = search.at_width(other, width)
            for k in (i - 1.0, i, i + 1.0):
                search.try_cell(losses, k, j)
            found.append((losses, other))
    chosen, system = min(found, key=lambda pair: pair[0].lowest(rule))
    search.refine(chosen, rule)
    best, by_probe = search.try_mean(chosen, rule)
    by_sample = search.by_sample(by_probe)
    return Choice(best, search.tried, search.losses, by_sample, system)


#: A place in the grid: the numbers of rho and lam. Halves are between two values.
Cell = tuple[float, float]


class _WidthLosses:
    """Losses with one width of the kernel, for the cells of the grid that were tried.

    ``cells[i, j][rule]`` are the losses of the i-th rho and the j-th lam, of shape
    (2, n_probes): in both galleries.
    """

    def __init__(
        self, left_out: Sequence[LeaveOneOut], width: float, grid: Grid
    ) -> None:
        self.left_out, self.width, self.grid = left_out, width, grid
        self.metrics: dict[float, list[LeaveOneOutAtRho]] = {}
        self.cells: dict[Cell, dict[Rule, Array]] = {}

    def of_rule(self, rule: Rule) -> dict[Cell, Array]:
        """Losses of one rule by which its parameters are chosen, by cell."""
        return {
            cell: found[rule][_GALLERY[rule]]
            for cell, found in self.cells.items()
            if rule in found
        }

    def penalised(self, rule: Rule) -> dict[Cell, float]:
        """Mean losses of one rule with the penalty of unusual values, by cell."""
        return {
            cell: float(losses.mean()) + self._penalty(rule, *cell) / losses.size
            for cell, losses in self.of_rule(rule).items()
        }

    def best(self, rule: Rule) -> Cell:
        """The cell with the lowest penalised loss, the first if several are equal."""
        losses = self.penalised(rule)
        return min(losses, key=lambda cell: losses[cell])

    def lowest(self, rule: Rule) -> float:
        """The lowest penalised loss."""
        return min(self.penalised(rule).values())

    def _penalty(self, rule: Rule, i: float, j: float) -> float:
        values = [_between(self.grid.rhos, i), _between(self.grid.lams, j)]
        powers = np.log10(np.divide(values, _USUAL[rule]))
        return _DEVIATION_LOSS * float(np.sum(powers**2))


class _Search:
    """The state of a search: which rules are still tried, and what was found."""

    def __init__(
        self,
        contests: Sequence[Contest],
        codes: Index,
        grid: Grid,
        kappa: float,
        own_weight: float,
        report: Callable[[str], None],
    ) -> None:
        self.contests, self.codes, self.grid = contests, codes, grid
        self.kappa, self.own_weight, self.report = kappa, own_weight, report
        self.rules: list[Rule] = list(grid.rules)
        self.n_slots = 1
        self.tried: list[Candidate] = []
        self.losses: list[float] = []

    def at_width(self, system: CoordinateSystem, width: float) -> _WidthLosses:
        """Prepare the losses with one width."""
        coordinates = system.coarse()
        spectrum = within_spectrum(coordinates, self.codes, self.kappa)
        projected = coordinates.training @ spectrum.directions
        left_out = [
            LeaveOneOut(
                contest,
                projected,
                self.codes,
                spectrum.variances,
                spectrum.scale,
                own_weight=self.own_weight,
            )
            for contest in self.contests
        ]
        return _WidthLosses(left_out, width, self.grid)

    def try_cell(
        self, losses: _WidthLosses, i: float, j: float, *, quick: bool = False
    ) -> None:
        """Compute the losses of a cell, unless it is known or outside of the grid."""
        last_i, last_j = self.grid.rhos.size - 1, self.grid.lams.size - 1
        inside = 0 <= i <= last_i and 0 <= j <= last_j
        if (i, j) in losses.cells or not inside:
            return
        rho, lam = _between(self.grid.rhos, i), _between(self.grid.lams, j)
        if i not in losses.metrics:
            if len(losses.metrics) == _MOST_METRICS:
                losses.metrics.pop(next(iter(losses.metrics)))
            losses.metrics[i] = [
                left_out.at(rho, self.n_slots) for left_out in losses.left_out
            ]
        found = _joined(losses.metrics[i], lam, self.rules, quick=quick)
        losses.cells[i, j] = {rule: found[:, r] for r, rule in enumerate(self.rules)}
        for rule in self.rules:
            mean = float(losses.of_rule(rule)[i, j].mean())
            self._keep(Candidate(rule, rho, lam, losses.width), mean)

    def sweep(self, losses: _WidthLosses) -> dict[Rule, Cell]:
        """Try every second rho and every third lam, leaving out few samples.

        Returns
        -------
        dict
            The best cell of the last rule, and of those that may be better.
        """
        for i in range(0, self.grid.rhos.size, 2):
            for j in range(min(1, self.grid.lams.size - 1), self.grid.lams.size, 3):
                self.try_cell(losses, i, j, quick=True)
        at_best = {rule: self._fair_at_best(losses, rule) for rule in self.rules}
        *others, last = self.rules
        self.rules = [
            rule
            for rule in others
            if is_better(at_best[rule], at_best[last], _PROMISING_ERRORS)
        ]
        self.rules.append(last)
        lowest = min(self.rules, key=lambda rule: float(at_best[rule].mean()))
        starts = {rule: losses.best(rule) for rule in self.rules}
        n_errors = max(1, int(np.count_nonzero(at_best[lowest])))
        wanted = min(_ENOUGH_ERRORS / n_errors, _ENOUGH_PROBES / at_best[lowest].size)
        self.n_slots = self.contests[0].with_slots(int(np.ceil(wanted))).n_slots
        # Start again with more samples, and with both galleries. Only the fair gallery
        # depends on how the samples are put into slots.
        if self.rules == ["cosine"]:
            self.contests = self.contests[:1]
            losses.left_out = losses.left_out[:1]
        losses.metrics, losses.cells = {}, {}
        self.tried, self.losses = [], []
        return starts

    def walk_downhill(self, losses: _WidthLosses, rule: Rule, start: Cell) -> None:
        """Try the neighbours of the best cell until all of them are worse.

        The sweep may mislead, so the walk starts from its best cell or from usual
        values, whichever is better.
        """
        self.try_cell(losses, *start)
        self.try_cell(losses, *self._usual_cell(rule))
        before = None
        while before != losses.best(rule):
            before = i, j = losses.best(rule)
            for cell in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                self.try_cell(losses, *cell)

    def _usual_cell(self, rule: Rule) -> Cell:
        """The cell that is nearest to the usual values of a rule."""
        usual = zip((self.grid.rhos, self.grid.lams), _USUAL[rule], strict=True)
        i, j = (int(np.abs(np.log(values / value)).argmin()) for values, value in usual)
        return i, j

    def refine(self, losses: _WidthLosses, rule: Rule) -> None:
        """Try values half-way from the best cell to its neighbours."""
        i, j = losses.best(rule)
        for half in (-0.5, 0.5):
            self.try_cell(losses, i, j + half)
        _, j = losses.best(rule)
        for half in (-0.5, 0.5):
            self.try_cell(losses, i + half, j)

    def try_mean(self, losses: _WidthLosses, rule: Rule) -> tuple[Candidate, Array]:
        """Try the mean of the candidates, each weighted by how likely it is the best.

        The weight is exp(-t^2 / 2), where t is the difference to the lowest loss in
        units of its standard error. The mean is that of the logarithms.
        """
        by_cell, penalised = losses.of_rule(rule), losses.penalised(rule)
        best = losses.best(rule)
        logs, weights = [], []
        for (i, j), values in by_cell.items():
            gain = values - by_cell[best]
            # Not below the standard error of a difference of one sample at rank two.
            error = max(float(gain.std()), np.log(2.0) / np.sqrt(gain.size))
            error /= np.sqrt(gain.size)
            t = (penalised[i, j] - penalised[best]) / error
            weights.append(np.exp(-0.5 * min(t, 30.0) ** 2))
            logs.append([_between(self.grid.rhos, i), _between(self.grid.lams, j)])
        means = np.average(np.log(logs), axis=0, weights=weights)
        rho, lam = map(float, np.exp(means))
        metrics = [left_out.at(rho, self.n_slots) for left_out in losses.left_out]
        found = _joined(metrics, lam, [rule])
        by_probe = found[_GALLERY[rule], 0]
        candidate = Candidate(rule, rho, lam, losses.width)
        self._keep(candidate, float(by_probe.mean()))
        return candidate, by_probe

    def by_sample(self, by_probe: Array) -> Array:
        """Mean losses of samples, from the losses of all times they were left out."""
        contests = [contest.with_slots(self.n_slots) for contest in self.contests]
        rows = np.concatenate([contest.rows[contest.probes] for contest in contests])
        sums = np.bincount(rows, by_probe, minlength=self.codes.size)
        counts = np.bincount(rows, minlength=self.codes.size)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def _keep(self, candidate: Candidate, loss: float) -> None:
        self.tried.append(candidate)
        self.losses.append(loss)
        self.report(f"{candidate.params}: loss {loss:.4f}")

    def preferred_rule(self, losses: _WidthLosses) -> Rule:
        """The last rule, unless another one is clearly better.

        Rules that compare different things are compared by the first gallery, which
        is fair to them, each at its best cell.
        """
        chosen = self.rules[-1]
        at_best = {rule: self._fair_at_best(losses, rule) for rule in self.rules}
        for rule in reversed(self.rules[:-1]):
            if is_better(at_best[rule], at_best[chosen], _CLEAR_ERRORS[rule]):
                chosen = rule
        return chosen

    def _fair_at_best(self, losses: _WidthLosses, rule: Rule) -> Array:
        """Losses in the first gallery at the cell where their mean is lowest."""
        fair = [found[rule][0] for found in losses.cells.values() if rule in found]
        return min(fair, key=lambda values: float(values.mean()))


def _between(values: Array, place: float) -> float:
    """The value at a place of a list; at a half, the geometric mean of two."""
    lower, upper = int(np.floor(place)), int(np.ceil(place))
    if lower == upper:
        return float(values[lower])
    return float(np.sqrt(values[lower] * values[upper]))


def _joined(
    metrics: Sequence[LeaveOneOutAtRho],
    lam: float,
    rules: Sequence[Rule],
    *,
    quick: bool = False,
) -> Array:
    """Losses of all left-out samples of all contests."""
    found = [at.losses(lam, rules, quick=quick) for at in metrics]
    return np.concatenate(found, axis=-1)


def is_better(losses: Array, others: Array, n_errors: float) -> bool:
    """Whether losses are lower by more than a number of standard errors.

    Samples of which one loss is not known (NaN) do not count.
    """
    gain = others - losses
    gain = gain[~np.isnan(gain)]
    return bool(gain.mean() > n_errors * gain.std() / np.sqrt(gain.size))
