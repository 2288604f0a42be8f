from math import copysign, inf, nextafter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm
from sklearn.metrics import auc, det_curve, roc_auc_score, roc_curve

from dualqml.evaluation import (
    OperatingPoint,
    equal_error_rate,
    error_curve,
    fnmr_at_fmr,
    rates_at_threshold,
    threshold_for_rate,
)
from dualqml.exceptions import DualQMLError, ScoreError

# Few values, so that there are ties.
FINITE = st.sampled_from([-1.5, 0.0, 0.1, 0.2, 0.3, 1.0, 7.0])
ANY = st.sampled_from([-1.5, 0.0, 0.1, 0.3, 1.0, -np.inf, np.inf, np.nan])
RATES = st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.9, 1.0])


def vectors(elements):
    return arrays(np.float64, st.integers(1, 30), elements=elements)


def labelled(mated, nonmated):
    truth = np.r_[np.ones(mated.size), np.zeros(nonmated.size)]
    return truth, np.r_[mated, nonmated]


def counted(mated, nonmated, threshold):
    """FMR and FNMR by a loop over the comparisons."""
    false_matches = sum(1 for score in nonmated if score >= threshold)
    matches = sum(1 for score in mated if score >= threshold)
    return false_matches / len(nonmated), (len(mated) - matches) / len(mated)


class TestErrorCurve:
    @given(vectors(FINITE), vectors(FINITE))
    def test_it_is_scikit_learns_roc_curve(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        fpr, tpr, thresholds = roc_curve(
            *labelled(mated, nonmated), drop_intermediate=False
        )
        assert curve.thresholds.tolist() == thresholds[::-1].tolist()
        assert np.abs(curve.fmr - fpr[::-1]).max() <= 1e-12
        assert np.abs(1.0 - curve.fnmr - tpr[::-1]).max() <= 1e-12

    @given(vectors(FINITE), vectors(FINITE))
    def test_it_is_scikit_learns_det_curve(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        fpr, fnr, thresholds = det_curve(*labelled(mated, nonmated))
        # That leaves out thresholds beyond the first and the last without errors.
        kept = np.isin(curve.thresholds, thresholds)
        assert kept.sum() == thresholds.size
        assert np.abs(curve.fmr[kept] - fpr).max() <= 1e-12
        assert np.abs(curve.fnmr[kept] - fnr).max() <= 1e-12

    def test_large_samples_agree_with_scikit_learn(self, rng):
        mated = rng.normal(1.0, 1.0, 3000).round(2)
        nonmated = rng.normal(0.0, 1.0, 20000).round(2)
        curve = error_curve(mated, nonmated)
        truth, scores = labelled(mated, nonmated)
        fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
        assert np.abs(curve.fmr - fpr[::-1]).max() <= 1e-12
        assert np.abs(1.0 - curve.fnmr - tpr[::-1]).max() <= 1e-12
        area = auc(curve.fmr, 1.0 - curve.fnmr)
        assert area == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)

    @given(vectors(ANY), vectors(ANY))
    def test_each_point_is_what_a_loop_counts(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        expected = [counted(mated, nonmated, t) for t in curve.thresholds]
        assert list(zip(curve.fmr, curve.fnmr, strict=True)) == expected

    @given(vectors(ANY), vectors(ANY))
    def test_thresholds_are_the_distinct_scores_and_the_end(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        both = np.r_[mated, nonmated]
        present = sorted({float(score) for score in both if not np.isnan(score)})
        assert curve.thresholds[:-1].tolist() == present
        top = np.nan if np.inf in present else np.inf
        np.testing.assert_equal(curve.thresholds[-1], top)

    @given(vectors(ANY), vectors(ANY))
    def test_rates_are_monotone_from_all_to_nothing(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        assert np.all(np.diff(curve.fmr) <= 0.0)
        assert np.all(np.diff(curve.fnmr) >= 0.0)
        assert (curve.fmr[-1], curve.fnmr[-1]) == (0.0, 1.0)
        assert curve.fmr[0] == np.mean(~np.isnan(nonmated))
        assert curve.fnmr[0] == np.mean(np.isnan(mated))

    @given(vectors(ANY), vectors(ANY))
    def test_missing_scores_are_counted(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        assert curve.n_missing_mated == np.isnan(mated).sum()
        assert curve.n_missing_nonmated == np.isnan(nonmated).sum()

    def test_missing_scores_never_match(self):
        curve = error_curve([0.9, np.nan], [0.1, np.nan, np.nan, np.nan])
        assert curve.fnmr.tolist() == [0.5, 0.5, 1.0]
        assert curve.fmr.tolist() == [0.25, 0.0, 0.0]

    def test_all_scores_may_be_missing(self):
        curve = error_curve([np.nan], [np.nan, np.nan])
        assert curve.thresholds.tolist() == [np.inf]
        assert (curve.fmr.tolist(), curve.fnmr.tolist()) == ([0.0], [1.0])

    def test_scores_are_left_as_they_are(self):
        mated, nonmated = np.array([3.0, 1.0, 2.0]), np.array([2.0, 0.0])
        error_curve(mated, nonmated)
        assert mated.tolist() == [3.0, 1.0, 2.0]
        assert nonmated.tolist() == [2.0, 0.0]

    def test_zero_has_no_sign(self):
        curve = error_curve([0.0], [-0.0])
        assert curve.thresholds.tolist() == [0.0, np.inf]
        assert (curve.fmr.tolist(), curve.fnmr.tolist()) == ([1.0, 0.0], [0.0, 1.0])


class TestEqualErrorRate:
    @pytest.mark.parametrize(
        ("mated", "nonmated", "expected"),
        [
            pytest.param([2.0, 3.0], [0.0, 1.0], 0.0, id="separable"),
            pytest.param([0.0, 1.0], [2.0, 3.0], 1.0, id="the wrong way round"),
            pytest.param([1.0], [0.0], 0.0, id="one each, right"),
            pytest.param([0.0], [1.0], 1.0, id="one each, wrong"),
            pytest.param([1.0], [1.0], 0.5, id="one each, tied"),
            pytest.param([1.0] * 3, [1.0] * 50, 0.5, id="all equal"),
            pytest.param([np.inf], [-np.inf], 0.0, id="infinitely separable"),
            pytest.param([np.inf] * 2, [np.inf], 0.5, id="all infinite"),
            pytest.param([-np.inf] * 2, [-np.inf], 0.5, id="all minus infinite"),
            pytest.param([0, 2, 2, 2], [1, 1, 1, 1], 0.25, id="exact crossing"),
            # FNMR steps over an FMR of 0.5 from 0 to 1/2 at one mated score of two.
            pytest.param([1.0, 3.0], [0.0, 2.0], 0.5, id="crossing at a step"),
            # From (FMR, FNMR) = (1, 0) to (1/2, 1) along the tie: at t, 1 - t/2 = t.
            pytest.param([1.0], [1.0, 2.0], 2 / 3, id="crossing within a tie"),
            pytest.param([np.nan, 1.0], [0.0], 0.5, id="half the mated missing"),
            pytest.param([1.0], [np.nan, 0.0], 0.0, id="separable with a missing"),
            pytest.param([np.nan], [np.nan], 1.0, id="all missing"),
        ],
    )
    def test_cases_by_hand(self, mated, nonmated, expected):
        assert equal_error_rate(mated, nonmated) == pytest.approx(expected, abs=1e-15)

    @given(vectors(ANY), vectors(ANY))
    def test_it_is_the_least_rate_that_neither_need_exceed(self, mated, nonmated):
        curve = error_curve(mated, nonmated)
        # Oracle: on a fine grid along the polygon through all points of the curve.
        places = np.arange(curve.fmr.size)
        fine = np.linspace(0, places[-1], 2520 * places[-1] + 1)
        fmr = np.interp(fine, places, curve.fmr)
        fnmr = np.interp(fine, places, curve.fnmr)
        least = np.maximum(fmr, fnmr).min()
        rate = equal_error_rate(mated, nonmated)
        assert rate == pytest.approx(least, abs=1e-3)
        assert rate <= least + 1e-12

    @given(vectors(FINITE), vectors(FINITE))
    def test_turning_the_scores_round_turns_the_rate_round(self, mated, nonmated):
        rate = equal_error_rate(mated, nonmated)
        assert equal_error_rate(-nonmated, -mated) == pytest.approx(rate)
        assert equal_error_rate(nonmated, mated) == pytest.approx(1.0 - rate)

    @given(vectors(ANY), vectors(ANY))
    def test_only_the_order_of_scores_matters(self, mated, nonmated):
        expected = equal_error_rate(mated, nonmated)
        assert equal_error_rate(np.arctan(mated), np.arctan(nonmated)) == expected

    @pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
    def test_normal_scores_have_the_closed_form(self, rng, distance):
        mated = rng.normal(distance, 1.0, 40000)
        nonmated = rng.normal(0.0, 1.0, 40000)
        expected = norm.cdf(-distance / 2.0)
        # Four standard errors.
        assert equal_error_rate(mated, nonmated) == pytest.approx(expected, abs=0.008)


class TestRatesAtThreshold:
    @given(vectors(ANY), vectors(ANY), st.sampled_from([-np.inf, 0.1, 0.15, np.inf]))
    def test_they_are_what_a_loop_counts(self, mated, nonmated, threshold):
        point = rates_at_threshold(mated, nonmated, threshold)
        assert (point.fmr, point.fnmr) == counted(mated, nonmated, threshold)
        assert point.threshold == threshold
        assert (point.n_mated, point.n_nonmated) == (mated.size, nonmated.size)
        assert point.n_missing_mated == np.isnan(mated).sum()
        assert point.n_missing_nonmated == np.isnan(nonmated).sum()

    def test_a_score_at_the_threshold_matches(self):
        point = rates_at_threshold([0.5], [0.5], 0.5)
        assert (point.fmr, point.fnmr) == (1.0, 0.0)
        point = rates_at_threshold([0.5], [0.5], np.nextafter(0.5, 1.0))
        assert (point.fmr, point.fnmr) == (0.0, 1.0)

    def test_infinite_scores_match_at_infinity(self):
        point = rates_at_threshold([np.inf, 1.0], [np.inf, -np.inf], np.inf)
        assert (point.fmr, point.fnmr) == (0.5, 0.5)

    def test_nothing_matches_at_nan(self):
        point = rates_at_threshold([np.inf], [np.inf], np.nan)
        assert (point.fmr, point.fnmr) == (0.0, 1.0)


# Scores of all sizes, and some that occur again and again.
MANY = st.one_of(ANY, st.floats(allow_nan=True, allow_infinity=True))
OWN = st.one_of(st.none(), vectors(MANY))


def share(scores, threshold):
    """Share of the scores that match; a missing score never does."""
    return sum(1 for score in scores if score >= threshold) / len(scores)


def refused(strangers, rate):
    """The highest score that must not match, by trying them all; None if all may."""
    return max((s for s in strangers if share(strangers, s) > rate), default=None)


def occurring(strangers, own):
    scores = list(strangers) + ([] if own is None else list(own))
    return [float(score) for score in scores if not np.isnan(score)]


class TestThresholdForRate:
    @given(vectors(MANY), RATES, OWN)
    def test_no_more_match_than_allowed(self, strangers, rate, own):
        threshold = threshold_for_rate(strangers, rate, others=own)
        assert share(strangers, threshold) <= rate

    @given(vectors(MANY), RATES, OWN)
    def test_at_the_next_stranger_below_more_would_match(self, strangers, rate, own):
        threshold = threshold_for_rate(strangers, rate, others=own)
        limit = np.inf if np.isnan(threshold) else threshold
        below = [
            s for s in strangers if s < limit or (np.isnan(threshold) and s == limit)
        ]
        for score in below:
            assert share(strangers, score) > rate

    @given(vectors(MANY), RATES, OWN)
    def test_it_is_not_above_the_next_score_that_occurred(self, strangers, rate, own):
        threshold = threshold_for_rate(strangers, rate, others=own)
        limit = refused(strangers, rate)
        scores = occurring(strangers, own)
        if limit is None:
            assert threshold == min(scores, default=np.inf)
        elif above := [score for score in scores if score > limit]:
            assert limit < threshold <= min(above)
        elif limit < np.inf:
            just_above = float(limit) * (1.0 + copysign(1e-8, limit))
            assert limit < threshold <= max(just_above, nextafter(limit, inf))
        else:
            assert np.isnan(threshold)

    @given(vectors(MANY), RATES, vectors(MANY), st.randoms(use_true_random=False))
    def test_the_order_does_not_matter(self, strangers, rate, own, random):
        expected = threshold_for_rate(strangers, rate, others=own)
        mixed, other = strangers.tolist(), own.tolist()
        random.shuffle(mixed)
        random.shuffle(other)
        found = threshold_for_rate(mixed, rate, others=other)
        np.testing.assert_equal(found, expected)

    @given(vectors(MANY), OWN)
    def test_a_higher_rate_never_asks_for_more(self, strangers, own):
        rates = np.linspace(0.0, 1.0, 21)
        found = [threshold_for_rate(strangers, rate, others=own) for rate in rates]
        # NaN rejects more than any number.
        ordered = [(np.isnan(t), 0.0 if np.isnan(t) else t) for t in found]
        assert ordered == sorted(ordered, reverse=True)

    @given(vectors(FINITE), RATES, vectors(FINITE))
    def test_it_is_the_middle_of_the_gap(self, strangers, rate, own):
        limit = refused(strangers, rate)
        above = [s for s in occurring(strangers, own) if limit is None or s > limit]
        if limit is not None and above:
            expected = (limit + min(above)) / 2
            found = threshold_for_rate(strangers, rate, others=own)
            assert found == pytest.approx(expected, abs=1e-15)

    def test_cases_by_hand(self):
        strangers = [0.5, 0.25, 0.75, 0.125]
        assert threshold_for_rate(strangers, 0.25) == 0.625
        assert threshold_for_rate(strangers, 0.26) == 0.625
        assert threshold_for_rate(strangers, 0.24, others=[1.0, 7.0]) == 0.875
        # Scores that should match do not move it if a stranger is nearer.
        assert threshold_for_rate(strangers, 0.25, others=[0.8]) == 0.625
        assert threshold_for_rate(strangers, 1.0) == 0.125
        # Seven people: the strangers end at 0.782, and the others begin at 1.0013.
        seven = threshold_for_rate([0.3, 0.782], 0.01, others=[1.0013, 1.2])
        assert seven == pytest.approx(0.89165)

    @pytest.mark.parametrize("top", [0.782, -3.0, 1e-30, 1e12, 0.0])
    def test_above_all_scores_it_is_above_rounding(self, top):
        threshold = threshold_for_rate([top, top - abs(top)], 0.0)
        rounded = top + 1e-12 * abs(top)
        assert rounded <= threshold <= top + 1e-8 * abs(top) + 1e-300
        assert threshold > top

    def test_shares_are_those_measured(self):
        # 0.7 * 10 is less than 7 in binary, and 7 / 10 is 0.7.
        for n in range(1, 200):
            scores = np.arange(n)
            for k in range(n):
                assert share(scores, threshold_for_rate(scores, k / n)) == k / n

    @pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
    def test_the_rate_must_be_a_share(self, rate):
        with pytest.raises(ScoreError, match="rate must be from 0 to 1, a share"):
            threshold_for_rate([1.0], rate)

    def test_there_must_be_scores(self):
        with pytest.raises(ScoreError, match="no scores in nonmated"):
            threshold_for_rate([], 0.1)
        with pytest.raises(ScoreError, match="no scores in others"):
            threshold_for_rate([1.0], 0.1, others=[])
        assert threshold_for_rate([np.nan], 0.1) == np.inf


class TestFNMRAtFMR:
    @given(vectors(ANY), vectors(ANY), RATES)
    def test_no_threshold_of_the_curve_is_better(self, mated, nonmated, fmr):
        point = fnmr_at_fmr(mated, nonmated, fmr=fmr)
        curve = error_curve(mated, nonmated)
        assert point.fmr <= fmr
        assert point.fnmr == curve.fnmr[curve.fmr <= fmr].min()

    @given(vectors(ANY), vectors(ANY), RATES)
    def test_the_threshold_is_that_for_the_rate(self, mated, nonmated, fmr):
        point = fnmr_at_fmr(mated, nonmated, fmr=fmr)
        expected = threshold_for_rate(nonmated, fmr, others=mated)
        np.testing.assert_equal(point.threshold, expected)

    @given(vectors(ANY), vectors(ANY), RATES)
    def test_its_rates_are_those_at_its_threshold(self, mated, nonmated, fmr):
        point = fnmr_at_fmr(mated, nonmated, fmr=fmr)
        again = rates_at_threshold(mated, nonmated, point.threshold)
        np.testing.assert_equal(vars(point), vars(again))

    @given(vectors(ANY), vectors(ANY))
    def test_more_false_matches_allow_fewer_false_non_matches(self, mated, nonmated):
        allowed = [0.0, 0.1, 0.2, 0.5, 1.0]
        fnmrs = [fnmr_at_fmr(mated, nonmated, fmr=fmr).fnmr for fmr in allowed]
        assert fnmrs == sorted(fnmrs, reverse=True)

    def test_a_target_is_reached_exactly(self):
        # 3 of 30: rounding must not lose the point where the FMR is the target.
        nonmated = np.arange(30.0)
        point = fnmr_at_fmr([25.5, 40.0], nonmated, fmr=0.1)
        assert point == OperatingPoint(26.5, 0.1, 0.5, 2, 30)

    def test_ties_are_not_split(self):
        point = fnmr_at_fmr([2.0, 3.0], [0.0, 1.0, 2.0, 2.0], fmr=0.25)
        assert point == OperatingPoint(2.5, 0.0, 0.5, 2, 4)

    def test_the_default_allows_one_in_a_thousand(self):
        nonmated = np.arange(2000.0)
        point = fnmr_at_fmr([1996.5, 1998.0], nonmated)
        assert point == OperatingPoint(1997.5, 0.001, 0.5, 2, 2000)

    def test_where_nothing_may_match_the_threshold_is_above_all(self):
        point = fnmr_at_fmr([0.0], [1.0], fmr=0.5)
        assert point == OperatingPoint(1.0 + 1e-9, 0.0, 1.0, 1, 1)

    def test_no_number_rejects_infinite_scores(self):
        point = fnmr_at_fmr([np.inf], [np.inf], fmr=0.5)
        assert np.isnan(point.threshold)
        assert (point.fmr, point.fnmr) == (0.0, 1.0)

    def test_normal_scores_have_the_closed_form(self, rng):
        mated, nonmated = rng.normal(3.0, 1.0, 20000), rng.normal(0.0, 1.0, 100000)
        point = fnmr_at_fmr(mated, nonmated, fmr=0.01)
        threshold = norm.ppf(0.99)
        assert point.threshold == pytest.approx(threshold, abs=0.05)
        assert point.fnmr == pytest.approx(norm.cdf(threshold - 3.0), abs=0.02)

    @pytest.mark.parametrize("fmr", [-0.1, 1.1, np.nan])
    def test_the_target_must_be_a_share(self, fmr):
        with pytest.raises(ScoreError, match="fmr must be from 0 to 1, a share"):
            fnmr_at_fmr([1.0], [0.0], fmr=fmr)


FUNCTIONS = [
    error_curve,
    equal_error_rate,
    fnmr_at_fmr,
    lambda mated, nonmated: rates_at_threshold(mated, nonmated, 0.5),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("mated", "nonmated", "message"),
    [
        ([], [0.1], "no scores in mated"),
        ([0.1], [], "no scores in nonmated"),
        ([[0.1, 0.2]], [0.1], r"mated must be a list .* \(1, 2\). Flatten"),
        ([0.1], 0.2, r"nonmated must be a list"),
        (["a"], [0.1], "mated must be real numbers"),
        ([0.1], [1j], "nonmated must be real numbers"),
        ([0.1], [object()], "nonmated must be numbers"),
    ],
)
def test_bad_scores_are_named(function, mated, nonmated, message):
    with pytest.raises(ScoreError, match=message) as caught:
        function(mated, nonmated)
    assert isinstance(caught.value, DualQMLError)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_none_is_a_missing_score_and_integers_are_scores(function):
    got = function([3, None, 1], [0, 2])
    expected = function([3.0, np.nan, 1.0], [0.0, 2.0])
    if isinstance(got, float):
        assert got == expected
    else:
        np.testing.assert_equal(vars(got), vars(expected))
