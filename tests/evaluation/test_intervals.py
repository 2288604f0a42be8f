import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from dualqml.evaluation import (
    Interval,
    binomial_interval,
    bootstrap_interval,
    cmc_curve,
    equal_error_rate,
    fnir_at_fpir,
    fnmr_at_fmr,
    rule_of_three,
)
from dualqml.exceptions import ScoreError


class TestRuleOfThree:
    @pytest.mark.parametrize(
        ("n", "bound"), [(1, 1.0), (3, 1.0), (6, 0.5), (300, 0.01)]
    )
    def test_it_is_three_in_n(self, n, bound):
        assert rule_of_three(n) == bound

    def test_it_is_nearly_the_exact_bound(self):
        # No error in n trials has probability 5 % at this rate.
        assert binom.pmf(0, 1000, rule_of_three(1000)) == pytest.approx(0.05, rel=0.01)

    def test_it_needs_a_trial(self):
        with pytest.raises(ScoreError, match="at least 1 trial; got 0"):
            rule_of_three(0)


class TestBinomialInterval:
    @given(
        st.integers(1, 5000).flatmap(
            lambda n: st.tuples(st.integers(0, n), st.just(n))
        ),
        st.sampled_from([0.5, 0.9, 0.95, 0.999]),
    )
    def test_it_is_scipys_exact_interval(self, count, confidence):
        k, n = count
        interval = binomial_interval(k, n, confidence=confidence)
        exact = binomtest(k, n).proportion_ci(confidence, method="exact")
        assert interval.low == pytest.approx(exact.low, rel=1e-8, abs=1e-12)
        assert interval.high == pytest.approx(exact.high, rel=1e-8, abs=1e-12)
        assert interval.estimate == k / n
        assert interval.confidence == confidence

    def test_the_ends_are_closed(self):
        assert binomial_interval(0, 10).low == 0.0
        assert binomial_interval(10, 10).high == 1.0
        assert binomial_interval(0, 10).high == pytest.approx(1 - 0.025**0.1)

    @pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 5), (6, 5)])
    def test_counts_must_make_sense(self, k, n):
        with pytest.raises(ScoreError, match=f"got k={k} and n={n}"):
            binomial_interval(k, n)

    @pytest.mark.parametrize("confidence", [0.0, 1.0, 95, np.nan])
    def test_confidence_is_between_0_and_1(self, confidence):
        with pytest.raises(ScoreError, match="confidence must be between 0 and 1"):
            binomial_interval(1, 2, confidence=confidence)


def clustered(rng, n_subjects, n_each, spread):
    """Scores with an effect of the subject, and the subjects."""
    people = np.repeat(np.arange(n_subjects), n_each)
    own = rng.normal(0.0, spread, n_subjects)
    return own[people] + rng.normal(0.0, 1.0, people.size), people


class TestBootstrapInterval:
    def test_the_mean_has_the_interval_of_the_central_limit(self, rng):
        values = rng.normal(0.0, 1.0, 400)
        interval = bootstrap_interval(np.mean, (values, np.arange(400)))
        half = 1.96 * values.std() / 20.0
        assert interval.estimate == values.mean()
        assert interval.low == pytest.approx(values.mean() - half, abs=0.2 * half)
        assert interval.high == pytest.approx(values.mean() + half, abs=0.2 * half)

    def test_95_per_cent_of_intervals_hold_the_true_value(self, rng):
        # 40 subjects of 5 correlated scores; the true mean is 0.
        hits = 0
        for trial in range(200):
            interval = bootstrap_interval(
                np.mean,
                clustered(rng, 40, 5, 1.0),
                n_resamples=200,
                random_state=trial,
            )
            hits += interval.low <= 0.0 <= interval.high
        # Percentile intervals of 40 subjects fall short by about 1 %.
        assert 0.88 <= hits / 200 <= 0.99

    def test_intervals_that_ignore_subjects_hold_the_true_value_too_rarely(self, rng):
        hits = 0
        for trial in range(100):
            values, _ = clustered(rng, 40, 5, 1.0)
            interval = bootstrap_interval(
                np.mean,
                (values, np.arange(values.size)),
                n_resamples=200,
                random_state=trial,
            )
            hits += interval.low <= 0.0 <= interval.high
        assert hits / 100 < 0.88

    @pytest.mark.parametrize(
        "statistic",
        [equal_error_rate, lambda m, n: fnmr_at_fmr(m, n, fmr=0.05).fnmr],
    )
    def test_correlated_scores_make_it_wider(self, rng, statistic):
        mated, people = clustered(rng, 60, 20, 1.5)
        nonmated, _ = clustered(rng, 60, 20, 0.0)
        rows = np.arange(people.size)
        by_subject = bootstrap_interval(
            statistic, (mated + 3.0, people), (nonmated, people), n_resamples=300
        )
        naive = bootstrap_interval(
            statistic, (mated + 3.0, rows), (nonmated, rows), n_resamples=300
        )
        assert by_subject.estimate == naive.estimate
        assert naive.low < naive.estimate < naive.high
        wide, narrow = (one.high - one.low for one in (by_subject, naive))
        assert wide > 1.5 * narrow

    def test_a_subject_brings_all_its_rows_of_all_groups(self):
        people = np.array(["a", "b", "b", "c", "c", "c"])
        values = np.array([1.0, 2.0, 2.0, 3.0, 3.0, 3.0])
        seen = []

        def statistic(first, second, third):
            seen.append((first.tolist(), second.tolist(), third.tolist()))
            return 0.0

        groups = (values, 10.0 * values, people), (np.arange(3.0), ["c", "b", "a"])
        bootstrap_interval(statistic, *groups, n_resamples=50)
        assert seen[0] == (values.tolist(), (10.0 * values).tolist(), [0.0, 1.0, 2.0])
        assert len({str(draw) for draw in seen}) > 5
        for first, second, third in seen:
            assert second == [10.0 * value for value in first]
            times = {v: first.count(v) // int(v) for v in (1.0, 2.0, 3.0)}
            assert all(first.count(v) == int(v) * times[v] for v in times)
            # c is the first row of the second group, b the second and a the last.
            assert [third.count(row) for row in (2.0, 1.0, 0.0)] == list(times.values())
            assert sum(times.values()) == 3

    def test_groups_without_a_common_subject_are_drawn_apart(self):
        sizes = set()

        def statistic(first, second):
            sizes.add((first.size, second.size))
            return float(first.sum() + second.sum())

        groups = (np.arange(7.0), list("abcdefg")), (np.arange(3.0), list("xyz"))
        interval = bootstrap_interval(statistic, *groups, n_resamples=60)
        assert sizes == {(7, 3)}
        assert interval.low < interval.high

    def test_groups_with_a_common_subject_are_never_left_empty(self):
        sizes = set()

        def statistic(first, second):
            sizes.add(second.size)
            return 0.0

        people = np.arange(10)
        groups = (people, people), (np.arange(2.0), [0, 1])
        bootstrap_interval(statistic, *groups, n_resamples=300)
        assert 0 not in sizes
        assert {1, 2, 3} <= sizes

    def test_pairs_are_there_as_often_as_both_subjects(self):
        pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 2]])
        people = np.arange(3)
        seen = []

        def statistic(persons, rows):
            times = [np.sum(persons == person) for person in people]
            expected = [times[0] * times[1], times[0] * times[2], times[1] * times[2]]
            # A pair of the same subject counts once for this subject.
            expected.append(times[2])
            seen.append(tuple(times))
            assert [np.sum(rows == row) for row in range(4)] == expected
            return 0.0

        groups = (people, people), (np.arange(4), pairs)
        bootstrap_interval(statistic, *groups, n_resamples=100)
        assert len(set(seen)) >= 5

    def test_pairs_that_share_references_make_it_wider(self, rng):
        # References differ much in how they score; probes do not.
        probes, references = np.divmod(np.arange(40 * 40), 40)
        distinct = probes != references
        pairs = np.c_[probes, references][distinct]
        values = rng.normal(0.0, 1.0, 40)[pairs[:, 1]] + rng.normal(size=len(pairs))
        by_both = bootstrap_interval(np.mean, (values, pairs), n_resamples=300)
        by_probe = bootstrap_interval(np.mean, (values, pairs[:, 0]), n_resamples=300)
        assert by_both.high - by_both.low > 2.0 * (by_probe.high - by_probe.low)

    def test_open_set_and_rank_1(self, rng):
        codes = rng.integers(20, size=300)
        mated = 2.5 * np.eye(20)[codes] + rng.normal(size=(300, 20))
        nonmated = rng.normal(size=(200, 20))
        strangers = 1000 + np.arange(200) // 4
        fnir = bootstrap_interval(
            lambda m, c, n: fnir_at_fpir(m, c, n, fpir=0.1).fnir,
            (mated, codes, codes),
            (nonmated, strangers),
            n_resamples=200,
        )
        assert fnir.estimate == fnir_at_fpir(mated, codes, nonmated, fpir=0.1).fnir
        assert 0.0 < fnir.low < fnir.estimate < fnir.high < 1.0
        rank_1 = bootstrap_interval(
            lambda s, c: cmc_curve(s, c)[0], (mated, codes, codes), n_resamples=200
        )
        assert rank_1.estimate == cmc_curve(mated, codes)[0]
        assert 0.0 < rank_1.low < rank_1.estimate < rank_1.high < 1.0

    def test_the_seed_decides(self, rng):
        group = (rng.normal(size=30), np.arange(30))
        first = bootstrap_interval(np.mean, group, n_resamples=50)
        assert bootstrap_interval(np.mean, group, n_resamples=50) == first
        other = bootstrap_interval(np.mean, group, n_resamples=50, random_state=1)
        assert other != first
        generator = np.random.default_rng(0)
        again = bootstrap_interval(
            np.mean, group, n_resamples=50, random_state=generator
        )
        assert again == first

    def test_more_confidence_is_wider(self, rng):
        group = (rng.normal(size=30), np.arange(30))
        half = bootstrap_interval(np.mean, group, confidence=0.5)
        most = bootstrap_interval(np.mean, group, confidence=0.99)
        assert most.low < half.low < half.high < most.high
        assert (half.confidence, most.confidence) == (0.5, 0.99)

    def test_infinite_measures_have_an_interval(self):
        interval = bootstrap_interval(
            np.max, (np.array([0.0, np.inf]), [0, 1]), n_resamples=100
        )
        assert interval == Interval(np.inf, 0.0, np.inf, 0.95)

    def test_without_errors_it_is_empty(self):
        people = np.arange(5)
        groups = (people + 10.0, people), (people - 10.0, people)
        interval = bootstrap_interval(equal_error_rate, *groups, n_resamples=20)
        assert (interval.low, interval.high) == (0.0, 0.0)

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            ((), "no groups"),
            (([1.0, 2.0],), "Group 0 must be a tuple"),
            (((np.ones(2),),), "Group 0 must be a tuple"),
            (((np.ones(2), [0, 1, 2]),), r"group 0 .* \[\(2,\), \(3,\)\]"),
            (((np.ones(0), []),), "as many rows, at least one"),
            (((1.0, [0]),), "as many rows"),
            (((np.ones(2), 0),), "as many rows"),
            (((np.ones(2), np.zeros((2, 3))),), "one column or two"),
            (((np.ones(2), [0, 1]), (np.ones(3), [4, 4, 4])), "Group 1 has one subj"),
            (((np.ones(1), [0]),), "use binomial_interval"),
        ],
    )
    def test_bad_groups_are_named(self, groups, message):
        with pytest.raises(ScoreError, match=message):
            bootstrap_interval(lambda *arrays: 0.0, *groups)

    def test_the_statistic_must_be_a_number(self):
        people = np.arange(4)
        groups = (people + 1.0, people), (people - 1.0, people)
        with pytest.raises(ScoreError, match="it returned OperatingPoint"):
            bootstrap_interval(fnmr_at_fmr, *groups)
        with pytest.raises(ScoreError, match="is NaN"):
            bootstrap_interval(lambda *arrays: np.nan, *groups)

    def test_options_must_make_sense(self):
        group = (np.ones(2), [0, 1])
        with pytest.raises(ScoreError, match="n_resamples must be at least 1"):
            bootstrap_interval(np.mean, group, n_resamples=0)
        with pytest.raises(ScoreError, match="confidence must be between 0 and 1"):
            bootstrap_interval(np.mean, group, confidence=95)
