"""The search over surfaces of losses that are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.extractors import _parameter_search
from dualqml.extractors._parameter_search import (
    Grid,
    _Search,
    _WidthLosses,
    is_better,
    search_parameters,
)
from tests.coordinate_systems import make_system
from tests.problems import make_data

GRID = Grid(
    rhos=np.array([0.01, 0.1, 1.0, 10.0, 100.0]),
    lams=np.array([0.01, 0.1, 1.0]),
    rules=("cosine", "max"),
    widths=np.array([4.0, 16.0]),
)


class KnownLosses:
    """In place of leave-one-out: losses of a function of rule, rho and lam."""

    def __init__(self, loss, n_probes=100, seed=0, spread=0.01):
        self.loss, self.n_probes, self.spread = loss, n_probes, spread
        self.noise = np.random.default_rng(seed)
        self.asked = []

    def at(self, rho, n_slots):
        outer = self

        class Metric:
            def losses(self, lam, rules, *, quick=False):
                outer.asked.append((rho, lam))
                values = np.array([outer.loss(rule, rho, lam) for rule in rules])
                size = (2, len(rules), outer.n_probes * n_slots)
                spread = outer.noise.normal(size=size, scale=outer.spread)
                return values[None, :, None] + spread

        return Metric()


def make_search(rules=GRID.rules, sizes=(4,) * 6):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    contest = _parameter_search.make_contest(codes, np.random.RandomState(0))
    grid = Grid(GRID.rhos, GRID.lams, rules, GRID.widths)
    return _Search([contest], codes, grid, 0.2, 0.5, lambda text: None)


def bowl(i, j, steepness=1.0):
    """A loss with one minimum, at the i-th rho and the j-th lam."""
    centre = np.log([GRID.rhos[i], GRID.lams[j]])

    def loss(rule, rho, lam):
        return 1.0 + steepness * np.sum((np.log([rho, lam]) - centre) ** 2)

    return loss


@pytest.mark.parametrize("start", [(0, 0), (4, 2), (2, 1)])
@settings(max_examples=15, deadline=None)
@given(i=st.integers(0, 4), j=st.integers(0, 2))
def test_walking_downhill_finds_the_minimum_of_a_bowl(start, i, j):
    search, known = make_search(("max",)), KnownLosses(bowl(i, j))
    losses = _WidthLosses([known], 4.0, GRID)
    search.walk_downhill(losses, "max", start)
    assert losses.best("max") == (i, j)
    # No cell is tried twice.
    assert len(known.asked) == len(set(known.asked)) == len(losses.cells)
    tried = [(c.rho, c.lam) for c in search.tried]
    assert tried == known.asked


def test_the_sweep_tries_every_second_rho_and_every_third_lam():
    search, known = make_search(("max",)), KnownLosses(bowl(2, 1))
    losses = _WidthLosses([known], 4.0, GRID)
    starts = search.sweep(losses)
    assert known.asked == [(rho, 0.1) for rho in GRID.rhos[::2]]
    assert starts == {"max": (2, 1)}
    # They are only the start.
    assert not losses.cells
    assert not search.tried


def test_after_the_sweep_other_rules_must_be_promising():
    for gap, left in ((1.0, ["cosine", "max"]), (-1.0, ["max"]), (0.0, ["max"])):

        def loss(rule, rho, lam, gap=gap):
            return 1.0 + (gap if rule == "max" else 0.0)

        search = make_search()
        search.sweep(_WidthLosses([KnownLosses(loss)], 4.0, GRID))
        assert search.rules == left


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1), (0.2, 3), (0.0, 4)])
def test_more_samples_are_left_out_where_most_are_recognised(share, expected):
    class Recognised(KnownLosses):
        def at(self, rho, n_slots):
            class Metric:
                def losses(self, lam, rules, *, quick=False):
                    found = np.zeros((2, len(rules), 100 * n_slots))
                    found[..., : int(100 * share)] = 0.7
                    return found

            return Metric()

    search = make_search()
    search.sweep(_WidthLosses([Recognised(None)], 4.0, GRID))
    # Classes of four samples: at most four slots.
    assert search.n_slots == expected


def test_of_equal_losses_the_usual_values_are_chosen():
    search = make_search(("max",))
    losses = _WidthLosses([KnownLosses(lambda *_: 0.0, spread=0.0)], 4.0, GRID)
    search.walk_downhill(losses, "max", (4, 2))
    # 1 and 0.03 are usual for "max".
    assert losses.best("max") == (2, 0)
    # One sample at rank two of a hundred per power of ten, squared.
    expected = 0.01 * np.log(2.0) * (4.0 + np.log10(1.0 / 0.03) ** 2)
    assert losses.penalised("max")[4, 2] == pytest.approx(expected)


def test_values_half_way_to_the_neighbours_are_tried_last():
    def loss(rule, rho, lam):
        return 1.0 + np.log(rho / 0.3) ** 2 + np.log(lam / 0.35) ** 2

    search = make_search(("max",))
    losses = _WidthLosses([KnownLosses(loss)], 4.0, GRID)
    search.walk_downhill(losses, "max", (2, 1))
    assert losses.best("max") == (1, 2)
    search.refine(losses, "max")
    assert losses.best("max") == (1.5, 1.5)
    assert search.tried[-1].lam == pytest.approx(np.sqrt(0.1))


def test_the_mean_is_that_of_the_candidates_that_cannot_be_told_apart():
    def loss(rule, rho, lam):
        # The first rho is clearly worse, the others are alike.
        return 2.0 if rho < 0.05 else 1.0

    search = make_search(("max",))
    losses = _WidthLosses([KnownLosses(loss, seed=1)], 4.0, GRID)
    for i in range(5):
        search.try_cell(losses, i, 1)
    best, by_probe = search.try_mean(losses, "max")
    assert best.lam == pytest.approx(0.1)
    # With equal weights the mean of 0.1 to 100 would be 3.2.
    assert 0.3 < best.rho < 30.0
    assert by_probe.shape == (100,)
    assert search.tried[-1] == best

    clear = _WidthLosses([KnownLosses(bowl(3, 1))], 4.0, GRID)
    for i in range(5):
        search.try_cell(clear, i, 1)
    assert search.try_mean(clear, "max")[0].rho == pytest.approx(10.0)


def test_the_last_rule_is_taken_unless_another_is_clearly_better():
    # The standard error is 0.0014.
    cases = [
        (0.0, ("cosine", "max"), "max"),
        (0.0045, ("cosine", "max"), "max"),
        (0.02, ("cosine", "max"), "cosine"),
        (0.0, ("max", "cosine"), "cosine"),
        (-0.0015, ("max", "cosine"), "cosine"),
        (-0.0045, ("max", "cosine"), "max"),
    ]
    for gain, rules, expected in cases:

        def loss(rule, rho, lam, gain=gain):
            return 1.0 - (gain if rule == "cosine" else 0.0)

        search = make_search(rules)
        losses = _WidthLosses([KnownLosses(loss)], 4.0, GRID)
        search.try_cell(losses, 0, 0)
        assert search.preferred_rule(losses) == expected


def test_losses_of_a_sample_are_means_over_all_shuffles():
    codes = np.repeat(np.arange(4), 2)
    contests = [
        _parameter_search.make_contest(codes, np.random.RandomState(seed))
        for seed in range(3)
    ]
    search = _Search(contests, codes, GRID, 0.2, 0.5, lambda text: None)
    rows = np.concatenate([c.rows[c.probes] for c in contests])
    assert rows.size == 12
    found = search.by_sample(rows.astype(float))
    left_out = np.isin(np.arange(8), rows)
    np.testing.assert_array_equal(found[left_out], np.flatnonzero(left_out))
    assert np.isnan(found[~left_out]).all()


def test_better_means_by_a_number_of_standard_errors():
    rng = np.random.default_rng(0)
    others = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= noise.mean()
    noise /= noise.std()
    # A gain of 0.1 with a standard error of 0.05 is two standard errors.
    losses = others - 0.1 - noise
    assert is_better(losses, others, 1.9)
    assert not is_better(losses, others, 2.1)
    assert not is_better(others, others, 0.0)
    # Samples that only one of them knows do not count.
    more = np.append(losses, [np.nan, 100.0])
    assert is_better(more, np.append(others, [1.0, np.nan]), 1.9)


def test_other_widths_are_tried_next_to_the_choice():
    X, codes = make_data([3] * 8, 12, noise=0.8, centre=False)
    choice = search_parameters(
        make_system("rbf", X, None, 4.0, codes),
        codes,
        GRID,
        kappa=0.2,
        own_weight=0.5,
        random_state=np.random.RandomState(0),
    )
    on_grid = [c for c in choice.tried if {c.rho, c.lam} <= {*GRID.rhos, *GRID.lams}]
    others = [c for c in on_grid if c.width == 16.0]
    assert 2 <= len(others) <= 3
    assert len({(c.rule, c.lam) for c in others}) == 1
    assert choice.best.width in (4.0, 16.0)
    assert choice.tried[-1] == choice.best
    factor = choice.best.width / 4.0
    expected = factor * make_system("rbf", X, None, 4.0, codes).kernel.bandwidth
    assert choice.system.kernel.bandwidth == pytest.approx(expected)
    # Without a kernel there is no width.
    linear = search_parameters(
        make_system("input", X, None, codes=codes),
        codes,
        GRID,
        kappa=0.2,
        own_weight=0.5,
        random_state=np.random.RandomState(0),
    )
    assert {c.width for c in linear.tried} == {4.0}
