import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.evaluation import (
    FailureCounts,
    count_failures,
    generalised_rates,
    rates_at_threshold,
)
from dualqml.exceptions import ScoreError

SHARES = st.floats(0.0, 1.0)


@st.composite
def failures(draw):
    n_enrolments, n_acquisitions = draw(st.integers(1, 99)), draw(st.integers(1, 99))
    return FailureCounts(
        n_enrolments,
        draw(st.integers(0, n_enrolments)),
        n_acquisitions,
        draw(st.integers(0, n_acquisitions)),
    )


def test_failures_are_counted():
    counts = count_failures([True] * 8 + [False] * 2, np.array([False, True, True]))
    assert counts == FailureCounts(10, 2, 3, 1)
    assert counts.fte == pytest.approx(0.2)
    assert counts.fta == pytest.approx(1 / 3)


def test_rates_by_hand():
    # 10 % do not enrol, 20 % are not acquired.
    rates = generalised_rates(0.01, 0.05, FailureCounts(10, 1, 10, 2))
    assert rates.far == pytest.approx(0.008)
    assert rates.frr == pytest.approx(0.24)
    assert rates.gfar == pytest.approx(0.0072)
    assert rates.gfrr == pytest.approx(0.316)


@given(SHARES, SHARES, failures())
def test_rates_are_those_of_the_standard(fmr, fnmr, failures):
    fte, fta = failures.fte, failures.fta
    rates = generalised_rates(fmr, fnmr, failures)
    # ISO/IEC 19795-1, written out for transactions of a single attempt.
    assert rates.gfar == pytest.approx(fmr * (1 - fta) * (1 - fte))
    completed = (1 - fte) * (1 - fta)
    assert rates.gfrr == pytest.approx(fte + (1 - fte) * fta + completed * fnmr)


@given(SHARES, SHARES, failures())
def test_failures_only_reject(fmr, fnmr, failures):
    rates = generalised_rates(fmr, fnmr, failures)
    slack = 1e-12
    assert rates.gfar <= rates.far + slack
    assert rates.far <= fmr + slack
    assert rates.gfrr >= rates.frr - slack
    assert rates.frr >= fnmr - slack


def test_missing_scores_give_the_same_rates(rng):
    # Every probe against every reference; failures leave rows and columns missing.
    enrolled, acquired = rng.random(40) > 0.2, rng.random(50) > 0.3
    truth = rng.integers(40, size=50)
    scores = rng.normal(size=(50, 40)) + 2.0 * np.eye(40)[truth]
    done = acquired[:, None] & enrolled
    missing = np.where(done, scores, np.nan)
    counted = rates_at_threshold([0.0], missing.ravel(), 1.0)
    completed = rates_at_threshold([0.0], scores[done], 1.0)
    counts = count_failures(enrolled, acquired)
    rates = generalised_rates(completed.fmr, 0.0, counts)
    assert rates.gfar == pytest.approx(counted.fmr, abs=1e-12)

    mated = np.where(np.tile(acquired, (40, 1)) & enrolled[:, None], 0.5, np.nan)
    counted = rates_at_threshold(mated.ravel(), [0.0], 0.0)
    assert generalised_rates(0.0, 0.0, counts).gfrr == pytest.approx(counted.fnmr)


@pytest.mark.parametrize("values", [[], [1, 0], [[True]], [0.5], True])
def test_successes_must_be_true_or_false(values):
    with pytest.raises(ScoreError, match="enrolled must be a list with at least one"):
        count_failures(values, [True])
    with pytest.raises(ScoreError, match="acquired must be a list with at least one"):
        count_failures([True], values)


@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ((0, 0, 1, 0), "enrolments"),
        ((1, 2, 1, 0), "enrolments"),
        ((1, 0, 0, 0), "acquisitions"),
        ((1, 0, 3, -1), "acquisitions"),
    ],
)
def test_counts_must_make_sense(counts, what):
    with pytest.raises(ScoreError, match=f"at least one of the {what}"):
        FailureCounts(*counts)


@pytest.mark.parametrize(("fmr", "fnmr", "name"), [(2.0, 0.0, "fmr"), (0, -1, "fnmr")])
def test_rates_must_be_shares(fmr, fnmr, name):
    with pytest.raises(ScoreError, match=f"^{name} must be from 0 to 1"):
        generalised_rates(fmr, fnmr, FailureCounts(1, 0, 1, 0))
