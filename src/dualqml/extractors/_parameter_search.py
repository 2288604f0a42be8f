# SPDX-License-Identifier: BSD-3-Clause
"""The search for the parameters of DualQML-W on the training set.

The candidates form a grid of rho and lam for each rule and each width of the kernel.
The loss of a candidate is the mean log rank of the true class of left-out samples, in
closed form. Few candidates are tried: the loss changes smoothly over the grid, so the
search walks downhill from the best of a coarse sweep until all neighbours are worse.
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

#: A rule is not tried any more after the first sweep if it is worse than another one
#: by more than this number of standard errors.
_HOPELESS_ERRORS = 5.0


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
    search.sweep(losses)
    for rule in search.rules:
        search.walk_downhill(losses, rule)
    rule = search.preferred_rule(losses)
    i, j = losses.best(rule)
    best, lowest = (i, j, first), losses.mean(rule, i, j)
    chosen, chosen_losses = system, losses
    if isinstance(system, KernelCoordinates):
        search.rules = [rule]
        for width in map(float, grid.widths[1:]):
            other = system.at_width(width / first)
            found = search.at_width(other, width)
            for k in range(max(i - 1, 0), min(i + 2, grid.rhos.size)):
                search.try_cell(found, k, j)
            k, _ = found.best(rule)
            if found.mean(rule, k, j) < lowest:
                best, lowest = (k, j, width), found.mean(rule, k, j)
                chosen, chosen_losses = other, found
    by_probe = chosen_losses.cells[best[0], best[1]][rule].mean(axis=0)
    candidate = search.candidate(rule, *best)
    return Choice(candidate, search.tried, search.losses, by_probe, chosen)


class _WidthLosses:
    """Losses with one width of the kernel, for the cells of the grid that were tried.

    ``cells[i, j][rule]`` are the losses of the i-th rho and the j-th lam, of shape
    (2, n_probes): in both galleries.
    """

    def __init__(self, left_out: LeaveOneOut, width: float) -> None:
        self.left_out, self.width = left_out, width
        self.metrics: dict[int, LeaveOneOutAtRho] = {}
        self.cells: dict[tuple[int, int], dict[Rule, Array]] = {}

    def mean(self, rule: Rule, i: int, j: int) -> float:
        """The mean loss of a cell over both galleries."""
        return float(self.cells[i, j][rule].mean())

    def best(self, rule: Rule) -> tuple[int, int]:
        """The cell with the lowest mean loss, the first if several are equal."""
        tried = [cell for cell, found in self.cells.items() if rule in found]
        return min(tried, key=lambda cell: self.mean(rule, *cell))


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

    def candidate(self, rule: Rule, i: int, j: int, width: float) -> Candidate:
        """The parameters of a cell of the grid."""
        return Candidate(
            rule, float(self.grid.rhos[i]), float(self.grid.lams[j]), width
        )

    def try_cell(self, losses: _WidthLosses, i: int, j: int) -> None:
        """Compute the losses of a cell, unless they are known."""
        if (i, j) in losses.cells:
            return
        if i not in losses.metrics:
            losses.metrics[i] = losses.left_out.at(float(self.grid.rhos[i]))
        found = losses.metrics[i].losses(float(self.grid.lams[j]), self.rules)
        losses.cells[i, j] = {rule: found[:, r] for r, rule in enumerate(self.rules)}
        for rule in self.rules:
            candidate = self.candidate(rule, i, j, losses.width)
            self.tried.append(candidate)
            self.losses.append(losses.mean(rule, i, j))
            self.report(f"{candidate.params}: loss {self.losses[-1]:.4f}")

    def sweep(self, losses: _WidthLosses) -> None:
        """Try every second rho with the middle lam, and drop hopeless rules."""
        n_rhos, middle = self.grid.rhos.size, (self.grid.lams.size - 1) // 2
        for i in range(0, n_rhos, 2):
            self.try_cell(losses, i, middle)
        at_best = {rule: self._fair_at_best(losses, rule) for rule in self.rules}
        lowest = min(self.rules, key=lambda rule: float(at_best[rule].mean()))
        self.rules = [
            rule
            for rule in self.rules
            if not is_better(at_best[lowest], at_best[rule], _HOPELESS_ERRORS)
        ]

    def walk_downhill(self, losses: _WidthLosses, rule: Rule) -> None:
        """Try the neighbours of the best cell until all of them are worse."""
        n_rhos, n_lams = self.grid.rhos.size, self.grid.lams.size
        while True:
            i, j = losses.best(rule)
            neighbours = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
            untried = [
                (k, l)
                for k, l in neighbours
                if 0 <= k < n_rhos and 0 <= l < n_lams and (k, l) not in losses.cells
            ]
            if not untried:
                return
            for cell in untried:
                self.try_cell(losses, *cell)

    def preferred_rule(self, losses: _WidthLosses) -> Rule:
        """The last rule, unless another one is better by more than a standard error.

        Rules that compare different things are compared by the first gallery, which
        is fair to them, each at its best cell.
        """
        chosen = self.rules[-1]
        at_best = {rule: self._fair_at_best(losses, rule) for rule in self.rules}
        for rule in reversed(self.rules[:-1]):
            if is_better(at_best[rule], at_best[chosen], 1.0):
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
