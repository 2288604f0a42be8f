import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualqml.evaluation import (
    OpenSetPoint,
    cmc_curve,
    fnir_at_fpir,
    fnir_at_fpir_by_acceptance,
    open_set_curve,
    open_set_curve_by_acceptance,
    true_ranks,
)
from dualqml.exceptions import ScoreError

# Few values, so that there are ties.
VALUES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, -np.inf, np.inf, np.nan])
ORDERED = st.sampled_from([0.0, 0.5, 1.0, 2.0])
THRESHOLDS = [-np.inf, 0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.5, 4.0, np.inf]


@st.composite
def searches(draw, values=VALUES):
    n_subjects = draw(st.integers(1, 5))
    n_mated, n_nonmated = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    mated = draw(arrays(np.float64, (n_mated, n_subjects), elements=values))
    nonmated = draw(arrays(np.float64, (n_nonmated, n_subjects), elements=values))
    codes = draw(arrays(np.int64, n_mated, elements=st.integers(0, n_subjects - 1)))
    return mated, codes, nonmated


def candidates(row, threshold, rank):
    """The candidates that a search returns: best first, equal ones by column."""
    passing = [column for column, score in enumerate(row) if score >= threshold]
    passing.sort(key=lambda column: (-row[column], column))
    return passing[:rank]


def counted(mated, codes, nonmated, threshold, rank):
    """FPIR and FNIR by making all lists of candidates."""
    misses = sum(
        1
        for row, code in zip(mated, codes, strict=True)
        if code not in candidates(row, threshold, rank)
    )
    alarms = sum(1 for row in nonmated if candidates(row, threshold, rank))
    return alarms / len(nonmated), misses / len(mated)


def at(curve, threshold):
    """Rates at any threshold: those at the next threshold of the curve."""
    place = np.searchsorted(curve.thresholds, threshold)
    return curve.fpir[place], curve.fnir[place]


class TestOpenSetCurve:
    @given(searches(), st.integers(1, 4))
    def test_each_point_is_that_of_lists_of_candidates(self, problem, rank):
        curve = open_set_curve(*problem, rank=rank)
        for place, threshold in enumerate(curve.thresholds):
            expected = counted(*problem, threshold, rank)
            assert (curve.fpir[place], curve.fnir[place]) == expected

    @given(searches(), st.integers(1, 4), st.sampled_from(THRESHOLDS))
    def test_no_step_is_left_out(self, problem, rank, threshold):
        curve = open_set_curve(*problem, rank=rank)
        assert at(curve, threshold) == counted(*problem, threshold, rank)

    @given(searches(), st.integers(1, 4))
    def test_rates_are_monotone(self, problem, rank):
        curve = open_set_curve(*problem, rank=rank)
        assert np.all(np.diff(curve.fpir) <= 0.0)
        assert np.all(np.diff(curve.fnir) >= 0.0)
        assert (curve.fpir[-1], curve.fnir[-1]) == (0.0, 1.0)

    @given(searches(ORDERED), st.integers(1, 4))
    def test_without_a_threshold_it_is_the_closed_set(self, problem, rank):
        mated, codes, _ = problem
        ranked = cmc_curve(mated, codes)[min(rank, mated.shape[1]) - 1]
        curve = open_set_curve(*problem, rank=rank)
        assert curve.fnir[0] == pytest.approx(1.0 - ranked)
        assert curve.fpir[0] == 1.0

    @given(searches())
    def test_more_candidates_never_miss_more(self, problem):
        at_zero = [
            at(open_set_curve(*problem, rank=rank), 0.0)[1] for rank in (1, 2, 3, 9)
        ]
        assert at_zero == sorted(at_zero, reverse=True)

    def test_a_score_at_the_threshold_is_returned(self):
        curve = open_set_curve([[0.5, 0.1]], [0], [[0.2, 0.5]])
        assert curve.thresholds.tolist() == [0.5, np.inf]
        assert (curve.fpir.tolist(), curve.fnir.tolist()) == ([1.0, 0.0], [0.0, 1.0])

    def test_searches_without_any_score_are_counted(self):
        nan = np.nan
        mated = [[nan, nan], [nan, 0.4], [0.3, nan]]
        curve = open_set_curve(mated, [0, 0, 0], [[nan, nan], [nan, 0.1]], rank=2)
        assert (curve.n_missing_mated, curve.n_missing_nonmated) == (1, 1)
        # Only the third can be found, and only the second stranger can alarm.
        assert curve.fnir[0] == pytest.approx(2 / 3)
        assert curve.fpir[0] == 0.5


class TestFNIRAtFPIR:
    @given(searches(), st.integers(1, 3), st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    def test_the_threshold_is_the_lowest_allowed(self, problem, rank, fpir):
        point = fnir_at_fpir(*problem, fpir=fpir, rank=rank)
        curve = open_set_curve(*problem, rank=rank)
        allowed = [
            counted(*problem, threshold, rank)
            for threshold in curve.thresholds
            if counted(*problem, threshold, rank)[0] <= fpir
        ]
        # The rates are those of the curve, and those counted at the threshold.
        assert (point.fpir, point.fnir) == allowed[0]
        assert (point.fpir, point.fnir) == counted(*problem, point.threshold, rank)
        assert (point.n_mated, point.n_nonmated) == (len(problem[0]), len(problem[2]))
        assert point.n_missing_mated == curve.n_missing_mated
        assert point.n_missing_nonmated == curve.n_missing_nonmated

    def test_a_case_by_hand(self):
        # Strangers alarm at 0, 1, ..., 199; two in 200 may.
        strangers = np.c_[np.arange(200.0), np.zeros(200)]
        mated = [[196.5, 0.0], [0.0, 300.0], [300.0, 0.0]]
        point = fnir_at_fpir(mated, [0, 1, 1], strangers)
        assert point == OpenSetPoint(197.5, 0.01, 2 / 3, 3, 200)
        point = fnir_at_fpir(mated, [0, 1, 1], strangers, fpir=0.015)
        assert point == OpenSetPoint(196.25, 0.015, 1 / 3, 3, 200)

    @pytest.mark.parametrize("fpir", [-0.1, 1.5, np.nan])
    def test_the_target_must_be_a_share(self, fpir):
        with pytest.raises(ScoreError, match="fpir must be from 0 to 1"):
            fnir_at_fpir([[1.0]], [0], [[0.0]], fpir=fpir)
        with pytest.raises(ScoreError, match="fpir must be from 0 to 1"):
            fnir_at_fpir_by_acceptance([1.0], [True], [0.0], fpir=fpir)


class TestByAcceptance:
    @given(
        arrays(np.float64, 6, elements=VALUES),
        arrays(np.bool_, 6),
        arrays(np.float64, 4, elements=VALUES),
    )
    def test_each_point_is_what_a_loop_counts(self, mated, found, nonmated):
        curve = open_set_curve_by_acceptance(mated, found, nonmated)
        for place, threshold in enumerate(curve.thresholds):
            returned = sum(
                1 for s, f in zip(mated, found, strict=True) if f and s >= threshold
            )
            alarms = sum(1 for s in nonmated if s >= threshold)
            assert curve.fnir[place] == (6 - returned) / 6
            assert curve.fpir[place] == alarms / 4
        assert curve.n_missing_mated == np.isnan(mated).sum()
        assert curve.n_missing_nonmated == np.isnan(nonmated).sum()

    @given(searches(ORDERED))
    def test_accepting_by_the_best_score_is_the_usual_search(self, problem):
        mated, codes, nonmated = problem
        found = true_ranks(mated, codes) <= 1
        reduced = mated.max(axis=1), found, nonmated.max(axis=1)
        curve = open_set_curve(*problem)
        np.testing.assert_equal(
            vars(open_set_curve_by_acceptance(*reduced)), vars(curve)
        )
        point = fnir_at_fpir(*problem, fpir=0.3)
        assert fnir_at_fpir_by_acceptance(*reduced, fpir=0.3) == point

    def test_acceptance_may_differ_from_the_ranking(self):
        # The wrong one is accepted with more confidence than the right ones.
        point = fnir_at_fpir_by_acceptance(
            [9.0, 3.0, 1.0], [False, True, True], [2.0, 0.0], fpir=0.0
        )
        assert point == OpenSetPoint(2.5, 0.0, 2 / 3, 3, 2)

    @pytest.mark.parametrize("found", [[1, 0], [True], [[True], [False]], [0.5, 0.5]])
    def test_found_must_be_true_or_false(self, found):
        with pytest.raises(ScoreError, match="mated_found must be True or False"):
            open_set_curve_by_acceptance([1.0, 2.0], found, [0.0])

    def test_there_must_be_searches(self):
        with pytest.raises(ScoreError, match="no scores in mated_acceptance"):
            open_set_curve_by_acceptance([], [], [0.0])
        with pytest.raises(ScoreError, match="no scores in nonmated_acceptance"):
            open_set_curve_by_acceptance([1.0], [True], [])


@pytest.mark.parametrize("function", [open_set_curve, fnir_at_fpir])
@pytest.mark.parametrize(
    ("mated", "codes", "nonmated", "message"),
    [
        ([0.1, 0.2], [0], [[0.1, 0.2]], "mated_scores must have a row"),
        (np.empty((0, 2)), [], [[0.1, 0.2]], "mated_scores must have a row"),
        ([[0.1, 0.2]], [0], np.empty((0, 2)), "nonmated_scores must have a row"),
        ([[0.1, 0.2]], [0], [[0.1]], "mated_scores have 2 columns and .* 1"),
        ([[0.1, 0.2]], [0.0], [[0.1, 0.2]], "integer for each of the 1 rows"),
        ([[0.1, 0.2]], [0, 1], [[0.1, 0.2]], "integer for each of the 1 rows"),
        ([[0.1, 0.2]], [2], [[0.1, 0.2]], "columns of mated_scores, 0 to 1; got 2"),
        ([[0.1, 0.2]], [-1], [[0.1, 0.2]], "belong to nonmated_scores"),
    ],
)
def test_bad_searches_are_named(function, mated, codes, nonmated, message):
    with pytest.raises(ScoreError, match=message):
        function(mated, codes, nonmated)


@pytest.mark.parametrize("function", [open_set_curve, fnir_at_fpir])
def test_the_rank_must_be_positive(function):
    with pytest.raises(ScoreError, match="rank must be at least 1"):
        function([[0.1]], [0], [[0.1]], rank=0)
