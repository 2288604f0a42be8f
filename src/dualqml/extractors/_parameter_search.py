# SPDX-License-Identifier: BSD-3-Clause
"""The search for the parameters of DualQML-W on the training set.

The candidates form a grid of rho and lam for each rule and each width of the kernel.
The loss of a candidate is the mean log rank of the true class of left-out samples, in
closed form. Few candidates are tried: the loss changes smoothly over the grid.

1. A sweep over every second rho and lam, with one left-out sample of each class. It
   shows where to start, which rules are hopeless, and how many samples must be left
   out: the more of them are recognised, the less a single one tells.
2. The search walks downhill from the best of the sweep until all neighbours are worse.
3. Differences between neighbours are often smaller than their standard errors. So rho
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
    Rule,
    make_contest,
)
from dualqml.extractors.within_metric import within_spectrum

#: Left-out samples that are not recognised at once tell candidates apart. There should
#: be about this number of them.
_ENOUGH_ERRORS = 25
#: The last rule is preferred unless another one is better by more than this number of
#: standard errors.
_CLEAR_ERRORS = 1.75
#: A rule is not tried any more after the first sweep if it is worse than another one
#: by more than this number of standard errors.
_HOPELESS_ERRORS = 3.0


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
        The mean loss of each of them over both galleries.
    by_probe : ndarray of shape (n_probes,)
        Losses of the left-out samples with the chosen parameters.
    system : CoordinateSystem
        The coordinate system with the chosen width.
    """

    best: Candidate
    tried: list[Candidate]
    losses: list[float]
    by_probe: Array
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
    search = _Search(
        make_contest(codes, random_state), codes, grid, kappa, own_weight, report
    )
    first = float(grid.widths[0])
    losses = search.at_width(system, first)
    starts = search.sweep(losses)
    for rule in search.rules:
        search.walk_downhill(losses, rule, starts[rule])
    rule = search.preferred_rule(losses)
    found = [(losses, system)]
    if isinstance(system, KernelCoordinates):
        i, j = losses.best(rule)
        search.rules = [rule]
        for width in map(float, grid.widths[1:]):
            other = system.at_width(width / first)
            losses = search.at_width(other, width)
            for k in range(max(i - 1, 0), min(i + 2, grid.rhos.size)):
                search.try_cell(losses, k, j)
            found.append((losses, other))
    chosen, system = min(found, key=lambda pair: pair[0].lowest(rule))
    best, by_probe = search.try_mean(chosen, rule)
    return Choice(best, search.tried, search.losses, by_probe, system)


class _WidthLosses:
    """Losses with one width of the kernel, for the cells of the grid that were tried.

    ``cells[i, j][rule]`` are the losses of the i-th rho and the j-th lam, of shape
    (2, n_probes): in both galleries.
    """

    def __init__(self, left_out: LeaveOneOut, width: float) -> None:
        self.left_out, self.width = left_out, width
        self.metrics: dict[int, LeaveOneOutAtRho] = {}
        self.cells: dict[tuple[int, int], dict[Rule, Array]] = {}

    def of_rule(self, rule: Rule) -> dict[tuple[int, int], Array]:
        """Losses of one rule, over both galleries, by cell."""
        return {
            cell: found[rule].mean(axis=0)
            for cell, found in self.cells.items()
            if rule in found
        }

    def best(self, rule: Rule) -> tuple[int, int]:
        """The cell with the lowest mean loss, the first if several are equal."""
        losses = self.of_rule(rule)
        return min(losses, key=lambda cell: float(losses[cell].mean()))

    def lowest(self, rule: Rule) -> float:
        """The lowest mean loss."""
        return float(self.of_rule(rule)[self.best(rule)].mean())


class _Search:
    """The state of a search: which rules are still tried, and what was found."""

    def __init__(
        self,
        contest: Contest,
        codes: Index,
        grid: Grid,
        kappa: float,
        own_weight: float,
        report: Callable[[str], None],
    ) -> None:
        self.contest, self.codes, self.grid = contest, codes, grid
        self.kappa, self.own_weight, self.report = kappa, own_weight, report
        self.rules: list[Rule] = list(grid.rules)
        self.n_slots = 1
        self.tried: list[Candidate] = []
        self.losses: list[float] = []

    def at_width(self, system: CoordinateSystem, width: float) -> _WidthLosses:
        """Prepare the losses with one width."""
        coordinates = system.coarse()
        spectrum = within_spectrum(coordinates, self.codes, self.kappa)
        left_out = LeaveOneOut(
            self.contest,
            coordinates.training @ spectrum.directions,
            self.codes,
            spectrum.variances,
            spectrum.scale,
            own_weight=self.own_weight,
        )
        return _WidthLosses(left_out, width)

    def try_cell(self, losses: _WidthLosses, i: int, j: int) -> None:
        """Compute the losses of a cell, unless they are known."""
        if (i, j) in losses.cells:
            return
        rho, lam = float(self.grid.rhos[i]), float(self.grid.lams[j])
        if i not in losses.metrics:
            losses.metrics[i] = losses.left_out.at(rho, self.n_slots)
        found = losses.metrics[i].losses(lam, self.rules)
        losses.cells[i, j] = {rule: found[:, r] for r, rule in enumerate(self.rules)}
        for rule in self.rules:
            mean = float(losses.cells[i, j][rule].mean())
            self._keep(Candidate(rule, rho, lam, losses.width), mean)

    def sweep(self, losses: _WidthLosses) -> dict[Rule, tuple[int, int]]:
        """Try every second rho and every second lam, leaving out few samples.

        Returns
        -------
        dict
            For each rule that is not hopeless, the best cell.
        """
        for i in range(0, self.grid.rhos.size, 2):
            for j in range(0, self.grid.lams.size, 2):
                self.try_cell(losses, i, j)
        at_best = {rule: self._fair_at_best(losses, rule) for rule in self.rules}
        lowest = min(self.rules, key=lambda rule: float(at_best[rule].mean()))
        self.rules = [
            rule
            for rule in self.rules
            if not is_better(at_best[lowest], at_best[rule], _HOPELESS_ERRORS)
        ]
        starts = {rule: losses.best(rule) for rule in self.rules}
        n_errors = max(1, np.count_nonzero(at_best[lowest]))
        n_slots = self.contest.with_slots(-(-_ENOUGH_ERRORS // n_errors)).n_slots
        if n_slots > self.n_slots:
            # Start again with more samples.
            self.n_slots = n_slots
            losses.metrics, losses.cells = {}, {}
            self.tried, self.losses = [], []
        return starts

    def walk_downhill(
        self, losses: _WidthLosses, rule: Rule, start: tuple[int, int]
    ) -> None:
        """Try the neighbours of the best cell until all of them are worse."""
        n_rhos, n_lams = self.grid.rhos.size, self.grid.lams.size
        untried = [start]
        while untried:
            for cell in untried:
                self.try_cell(losses, *cell)
            i, j = losses.best(rule)
            untried = [
                (k, l)
                for k, l in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))
                if 0 <= k < n_rhos and 0 <= l < n_lams and (k, l) not in losses.cells
            ]

    def try_mean(self, losses: _WidthLosses, rule: Rule) -> tuple[Candidate, Array]:
        """Try the mean of the candidates, each weighted by how likely it is the best.

        The weight is exp(-t^2 / 2), where t is the difference to the lowest loss in
        units of its standard error. The mean is that of the logarithms.
        """
        by_cell = losses.of_rule(rule)
        lowest = by_cell[losses.best(rule)]
        logs, weights = [], []
        for (i, j), values in by_cell.items():
            gain = values - lowest
            error = max(float(gain.std()) / np.sqrt(gain.size), 1e-12)
            weights.append(np.exp(-0.5 * min(float(gain.mean()) / error, 40.0) ** 2))
            logs.append([np.log(self.grid.rhos[i]), np.log(self.grid.lams[j])])
        rho, lam = map(float, np.exp(np.average(logs, axis=0, weights=weights)))
        found = losses.left_out.at(rho, self.n_slots).losses(lam, [rule])
        by_probe = found[:, 0].mean(axis=0)
        candidate = Candidate(rule, rho, lam, losses.width)
        self._keep(candidate, float(by_probe.mean()))
        return candidate, by_probe

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
            if is_better(at_best[rule], at_best[chosen], _CLEAR_ERRORS):
                chosen = rule
        return chosen

    def _fair_at_best(self, losses: _WidthLosses, rule: Rule) -> Array:
        """Losses in the first gallery at the cell where their mean is lowest."""
        fair = [found[rule][0] for found in losses.cells.values() if rule in found]
        return min(fair, key=lambda values: float(values.mean()))


def is_better(losses: Array, others: Array, n_errors: float) -> bool:
    """Whether losses are lower by more than a number of standard errors."""
    gain = others - losses
    return bool(gain.mean() > n_errors * gain.std() / np.sqrt(gain.size))
