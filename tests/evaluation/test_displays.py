import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from dualqml.evaluation import (
    CMCDisplay,
    DETDisplay,
    OpenSetDisplay,
    ROCDisplay,
    ScoreHistogramDisplay,
    error_curve,
    fnir_at_fpir,
    fnmr_at_fmr,
    open_set_curve,
    open_set_curve_by_acceptance,
)
from dualqml.exceptions import MissingDependencyError, ScoreError

MATED, NONMATED = [0.9, 0.5, 0.7, 0.3], [0.5, 0.1, 0.2, 0.4]
SEARCHES = [[0.9, 0.2], [0.3, 0.6], [0.5, 0.4]], [0, 1, 1], [[0.1, 0.7], [0.3, 0.2]]


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().add_subplot()


@pytest.fixture
def scores(rng):
    return rng.normal(2.0, 1.0, 300).round(1), rng.normal(0.0, 1.0, 500).round(1)


def draw(ax):
    """Render the figure: only then errors of scales and ticks appear."""
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    backend.FigureCanvasAgg(ax.figure).draw()


def height(line, x):
    """Height of the drawn steps at x; of a vertical line its start."""
    cbook = pytest.importorskip("matplotlib.cbook")
    to_steps = cbook.STEP_LOOKUP_MAP[line.get_drawstyle()]
    xs, ys = to_steps(line.get_xdata(), line.get_ydata())
    # The curve runs to the left.
    return ys[np.argmax(xs <= x)]


CURVES = [
    (ROCDisplay, (MATED, NONMATED)),
    (DETDisplay, (MATED, NONMATED)),
    (OpenSetDisplay, SEARCHES),
]


class TestCurves:
    @pytest.mark.parametrize(("display", "given"), CURVES)
    def test_name_and_style(self, ax, display, given):
        made = display.from_scores(*given, name="mine")
        assert made.plot(ax) is made
        assert made.ax_ is ax
        assert made.line_ in ax.lines
        assert made.line_.get_label() == "mine"
        assert made.line_.get_drawstyle() == "steps-pre"
        line = made.plot(ax, "other", color="red", drawstyle="default").line_
        assert (line.get_label(), line.get_color()) == ("other", "red")
        assert line.get_drawstyle() == "default"
        assert len(ax.lines) == 2
        draw(ax)

    @pytest.mark.parametrize(("display", "given"), CURVES)
    def test_without_axes_new_ones_are_made(self, monkeypatch, display, given):
        matplotlib = pytest.importorskip("matplotlib")
        monkeypatch.setitem(matplotlib.rcParams, "backend", "agg")
        from matplotlib import pyplot

        made = display.from_scores(*given).plot()
        try:
            assert made.ax_.figure.number in pyplot.get_fignums()
        finally:
            pyplot.close(made.ax_.figure)

    @pytest.mark.parametrize(("display", "given"), CURVES)
    def test_without_matplotlib_it_is_said_what_to_install(
        self, monkeypatch, display, given
    ):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        made = display.from_scores(*given)
        with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
            made.plot()

    @pytest.mark.parametrize("display", [ROCDisplay, DETDisplay])
    @pytest.mark.parametrize(
        ("mated", "nonmated"),
        [
            ([1.0], [0.0]),
            ([0.0], [1.0]),
            ([1.0], [1.0]),
            ([np.nan], [np.nan]),
            ([np.inf], [np.inf, -np.inf]),
        ],
    )
    def test_odd_scores_can_be_drawn(self, ax, display, mated, nonmated):
        line = display.from_scores(mated, nonmated).plot(ax).line_
        assert np.isfinite(line.get_xydata()).all()
        draw(ax)

    def test_straight_runs_are_drawn_by_their_ends(self, ax):
        mated, nonmated = [1000.0, 2000.0], np.arange(1000.0)
        line = ROCDisplay.from_scores(mated, nonmated).plot(ax).line_
        expected = [[100, 100], [0, 100], [0, 0]]
        assert line.get_xydata().tolist() == expected


class TestROC:
    def test_it_draws_true_against_false_matches_in_per_cent(self, ax):
        display = ROCDisplay.from_scores(MATED, NONMATED).plot(ax)
        assert display.line_.get_xydata().tolist() == [
            [100.0, 100.0],
            [50.0, 100.0],
            [50.0, 75.0],
            [25.0, 75.0],
            [0.0, 50.0],
            [0.0, 0.0],
        ]
        labels = ax.get_xlabel(), ax.get_ylabel()
        assert labels == ("false match rate, %", "true match rate, %")

    def test_it_takes_a_curve(self, ax):
        curve = error_curve(MATED, NONMATED)
        display = ROCDisplay(curve, name="a")
        assert display.curve is curve
        line = ROCDisplay.from_scores(MATED, NONMATED).plot(ax).line_
        got = display.plot(ax).line_.get_xydata()
        np.testing.assert_array_equal(got, line.get_xydata())

    def test_heights_are_those_at_a_false_match_rate(self, ax, scores):
        line = ROCDisplay.from_scores(*scores).plot(ax).line_
        for fmr in (0.0, 0.001, 0.01, 0.033, 0.1, 0.5, 1.0):
            fnmr = fnmr_at_fmr(*scores, fmr=fmr).fnmr
            assert height(line, 100.0 * fmr) == pytest.approx(100.0 * (1.0 - fnmr))


class TestDET:
    def test_it_draws_normal_deviates(self, ax, scores):
        line = DETDisplay.from_scores(*scores).plot(ax).line_
        for fmr in (0.005, 0.033, 0.1, 0.2, 0.5):
            fnmr = fnmr_at_fmr(*scores, fmr=fmr).fnmr
            assert height(line, norm.ppf(fmr)) == pytest.approx(norm.ppf(fnmr))

    def test_normal_scores_give_a_straight_line(self, ax):
        quantiles = norm.ppf((np.arange(2000) + 0.5) / 2000)
        line = DETDisplay.from_scores(quantiles + 2.0, quantiles).plot(ax).line_
        x, y = line.get_xydata().T
        shown = (np.abs(x) < 2.0) & (np.abs(y) < 2.0)
        assert shown.sum() > 100
        assert np.abs(x + y + 2.0)[shown].max() < 0.05

    def test_rates_of_0_and_1_are_out_of_sight(self, ax, scores):
        line = DETDisplay.from_scores(*scores).plot(ax).line_
        (x_low, x_high), (y_low, y_high) = ax.get_xlim(), ax.get_ylim()
        x, y = line.get_xydata().T
        assert np.isfinite([x, y]).all()
        assert x[0] > x_high
        assert y[0] < y_low
        assert x[-1] < x_low
        assert y[-1] > y_high

    def test_ticks_are_in_per_cent(self, ax, scores):
        DETDisplay.from_scores(*scores).plot(ax)
        draw(ax)
        for axis in (ax.xaxis, ax.yaxis):
            marks = dict(
                zip(
                    [label.get_text() for label in axis.get_ticklabels()],
                    axis.get_ticklocs(),
                    strict=True,
                )
            )
            assert marks["1"] == pytest.approx(norm.ppf(0.01))
            assert marks["0.1"] == pytest.approx(norm.ppf(0.001))
            assert marks["40"] == pytest.approx(norm.ppf(0.4))
        labels = ax.get_xlabel(), ax.get_ylabel()
        assert labels == ("false match rate, %", "false non-match rate, %")

    @pytest.mark.parametrize("n_scores", [300, 30_000, 300_000])
    def test_labels_do_not_meet_on_small_axes(self, rng, n_scores):
        figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(4.4, 3.6))
        ax = figure.add_subplot()
        own, other = rng.normal(2.0, size=n_scores), rng.normal(size=n_scores)
        DETDisplay.from_scores(own, other).plot(ax)
        draw(ax)
        renderer = figure.canvas.get_renderer()
        low, high = ax.get_xlim()
        shown = [
            label
            for place, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
            if low <= place <= high and label.get_text()
        ]
        boxes = [label.get_window_extent(renderer) for label in shown]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
        # The axis begins with a label, and common rates have theirs.
        texts = [label.get_text() for label in shown]
        assert shown[0].get_position()[0] == low
        assert {"1", "5", "20", "80", "99"} <= set(texts)

    def test_axes_widen_for_finer_curves_and_stay_for_coarser(self, ax, rng):
        coarse = DETDisplay.from_scores(rng.normal(1, 1, 50), rng.normal(0, 1, 50))
        fine = DETDisplay.from_scores(rng.normal(1, 1, 50), rng.normal(0, 1, 5000))
        coarse.plot(ax)
        assert ax.get_xlim()[0] == pytest.approx(norm.ppf(0.01))
        fine.plot(ax)
        assert ax.get_xlim()[0] == pytest.approx(norm.ppf(1e-4))
        coarse.plot(ax)
        assert ax.get_xlim()[0] == ax.get_ylim()[0] == pytest.approx(norm.ppf(1e-4))


class TestOpenSet:
    def test_it_draws_fnir_against_fpir_in_per_cent(self, ax):
        display = OpenSetDisplay.from_scores(*SEARCHES).plot(ax)
        curve = open_set_curve(*SEARCHES)
        assert display.line_.get_xdata().tolist() == (100.0 * curve.fpir).tolist()
        assert display.line_.get_ydata().tolist() == (100.0 * curve.fnir).tolist()
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert ax.get_xlabel() == "false-positive identification rate, %"
        assert ax.get_ylabel() == "false-negative identification rate, %"

    def test_the_rank_matters(self, ax):
        display = OpenSetDisplay.from_scores(*SEARCHES, rank=2).plot(ax)
        curve = open_set_curve(*SEARCHES, rank=2)
        assert display.curve.fnir.tolist() == curve.fnir.tolist()
        assert curve.fnir[0] == 0.0

    def test_heights_are_those_at_a_false_positive_rate(self, ax, rng):
        codes = rng.integers(5, size=100)
        mated = 2.0 * np.eye(5)[codes] + rng.normal(size=(100, 5)).round(1)
        nonmated = rng.normal(size=(150, 5)).round(1)
        line = OpenSetDisplay.from_scores(mated, codes, nonmated).plot(ax).line_
        for fpir in (0.0, 0.01, 0.05, 0.2, 1.0):
            fnir = fnir_at_fpir(mated, codes, nonmated, fpir=fpir).fnir
            assert height(line, 100.0 * fpir) == pytest.approx(100.0 * fnir)

    def test_axes_show_all_rates_but_0_in_plain_numbers(self, ax):
        # The smallest rate is 1 in 400.
        curve = open_set_curve_by_acceptance([9.0], [True], np.arange(400.0))
        OpenSetDisplay(curve).plot(ax)
        draw(ax)
        assert ax.get_xlim() == ax.get_ylim() == pytest.approx((0.1, 100.0))
        texts = {label.get_text() for label in ax.get_xticklabels()}
        assert {"0.1", "1", "10", "100"} <= texts
        OpenSetDisplay.from_scores(*SEARCHES).plot(ax)
        assert ax.get_xlim() == ax.get_ylim() == pytest.approx((0.1, 100.0))

    def test_what_was_drawn_on_linear_axes_before_does_not_matter(self, ax):
        ax.plot([0.0, 100.0], [0.0, 100.0])
        OpenSetDisplay.from_scores(*SEARCHES).plot(ax)
        draw(ax)
        assert ax.get_xlim() == ax.get_ylim() == pytest.approx((1.0, 100.0))

    def test_separable_searches_can_be_drawn(self, ax):
        curve = open_set_curve_by_acceptance([1.0], [True], [0.0])
        OpenSetDisplay(curve).plot(ax)
        draw(ax)
        assert ax.get_xlim() == pytest.approx((1.0, 100.0))


class TestHistogram:
    def test_it_draws_shares_in_per_cent(self, ax):
        display = ScoreHistogramDisplay.from_scores(
            [0.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.5, 1.0, 0.1], bins=2, name="mine"
        )
        assert display.plot(ax) is display
        assert display.ax_ is ax
        for patch, shares, label in (
            (display.mated_, [25.0, 75.0], "mine, mated"),
            (display.nonmated_, [80.0, 20.0], "mine, non-mated"),
        ):
            values, edges, _ = patch.get_data()
            assert edges.tolist() == [0.0, 1.0, 2.0]
            assert values.tolist() == pytest.approx(shares)
            assert patch.get_label() == label
            assert patch in ax.patches
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("score", "comparisons, %")
        draw(ax)

    def test_names_and_style(self, ax):
        display = ScoreHistogramDisplay.from_scores([1.0], [0.0]).plot(ax, fill=False)
        labels = display.mated_.get_label(), display.nonmated_.get_label()
        assert labels == ("mated", "non-mated")
        assert not display.mated_.get_fill()
        display.plot(ax, name="other", alpha=0.2)
        assert display.mated_.get_label() == "other, mated"
        assert display.mated_.get_alpha() == 0.2
        assert display.mated_.get_facecolor() != display.nonmated_.get_facecolor()

    def test_missing_and_infinite_scores_are_in_no_bin(self):
        display = ScoreHistogramDisplay.from_scores(
            [np.nan, np.inf, 1.0, 3.0], [-np.inf, 2.0], bins=[0.0, 2.0, 4.0]
        )
        assert display.mated.tolist() == [0.25, 0.25]
        assert display.nonmated.tolist() == [0.0, 0.5]

    def test_all_scores_may_be_equal(self, ax):
        display = ScoreHistogramDisplay.from_scores([1.0], [1.0, np.nan]).plot(ax)
        assert display.mated.sum() == 1.0
        assert display.nonmated.sum() == 0.5
        draw(ax)

    def test_bad_scores_and_bins_are_named(self):
        with pytest.raises(ScoreError, match="No score is finite"):
            ScoreHistogramDisplay.from_scores([np.nan], [np.inf])
        with pytest.raises(ScoreError, match="no scores in nonmated"):
            ScoreHistogramDisplay.from_scores([1.0], [])
        with pytest.raises(ScoreError, match="bins=0 does not suit"):
            ScoreHistogramDisplay.from_scores([1.0], [0.0], bins=0)

    def test_without_matplotlib_it_is_said_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        display = ScoreHistogramDisplay.from_scores([1.0], [0.0])
        with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
            display.plot()


class TestCMC:
    def test_it_draws_the_curve_in_per_cent(self, ax):
        scores, codes = [[0.9, 0.2, 0.5], [0.1, 0.8, 0.7]], [2, 1]
        display = CMCDisplay.from_scores(scores, codes, max_rank=2, name="mine")
        assert display.plot(ax) is display
        assert display.ax_ is ax
        assert display.line_.get_xdata().tolist() == [1, 2]
        assert display.line_.get_ydata().tolist() == [50.0, 100.0]
        assert display.line_.get_label() == "mine"
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("rank", "identified, %")

    def test_the_line_can_be_styled(self, ax):
        line = CMCDisplay([0.5], name="a").plot(ax, color="red", label="b").line_
        assert (line.get_color(), line.get_label()) == ("red", "b")

    def test_the_first_rank_has_a_tick(self, ax):
        CMCDisplay(np.linspace(0.5, 1.0, 10)).plot(ax)
        assert ax.get_xticks().tolist() == list(range(1, 11))
        CMCDisplay(np.linspace(0.5, 1.0, 30)).plot(ax)
        CMCDisplay([0.5, 0.6]).plot(ax)
        assert ax.get_xticks().tolist() == [1, 5, 10, 15, 20, 25, 30]
        draw(ax)

    @pytest.mark.parametrize("last", [1, 2, 11, 99, 100, 2345])
    def test_there_are_few_ticks(self, last, ax):
        CMCDisplay(np.ones(last)).plot(ax)
        ticks = ax.get_xticks()
        assert ticks[0] == 1
        assert ticks.size <= 11
        assert 2 * ticks[-1] > last

    def test_a_logarithmic_axis_keeps_its_ticks(self, ax):
        ax.set_xscale("log")
        CMCDisplay(np.ones(100)).plot(ax)
        assert ax.get_xscale() == "log"
        draw(ax)

    def test_without_matplotlib_it_is_said_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
            CMCDisplay([0.5]).plot()


EVERY = [
    *CURVES,
    (CMCDisplay, SEARCHES[:2]),
    (ScoreHistogramDisplay, (MATED, NONMATED)),
]


@pytest.mark.parametrize(("display", "given"), EVERY)
def test_given_axes_are_used_and_kept(ax, display, given):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    made = display.from_scores(*given)
    assert made.plot(ax) is made
    assert made.ax_ is ax
    assert made.figure_ is ax.figure
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(("display", "given"), EVERY)
def test_what_are_no_axes_is_refused(ax, display, given):
    for wrong in (ax.figure, [ax], "axes"):
        with pytest.raises(TypeError, match="ax must be one matplotlib Axes, got"):
            display.from_scores(*given).plot(wrong)
