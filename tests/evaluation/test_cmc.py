import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualqml.evaluation import cmc_curve, true_ranks
from dualqml.exceptions import DualQMLError

# Few values, so that there are ties.
VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.5, -np.inf, np.inf, np.nan])


@st.composite
def problems(draw, values=VALUES):
    n_probes = draw(st.integers(1, 8))
    n_subjects = draw(st.integers(1, 6))
    scores = draw(arrays(np.float64, (n_probes, n_subjects), elements=values))
    codes = draw(arrays(np.int64, n_probes, elements=st.integers(0, n_subjects - 1)))
    return scores, codes


def sorted_rank(row, code):
    """Rank by sorting: descending, missing scores last, equal ones by column."""
    keys = [(bool(np.isnan(s)), 0.0 if np.isnan(s) else -s) for s in row]
    order = sorted(range(len(row)), key=lambda column: (keys[column], column))
    return 1 + order.index(code)


@given(problems())
def test_ranks_are_those_of_a_sort(problem):
    scores, codes = problem
    expected = [sorted_rank(row, code) for row, code in zip(scores, codes, strict=True)]
    assert true_ranks(scores, codes).tolist() == expected


@given(problems(st.sampled_from([0.0, 1.0, 2.0, -np.inf])))
def test_rank_1_is_what_argmax_recognises(problem):
    scores, codes = problem
    accuracy = np.mean(scores.argmax(axis=1) == codes)
    assert cmc_curve(scores, codes)[0] == pytest.approx(accuracy)


@given(problems())
def test_curves_rise_to_one(problem):
    scores, codes = problem
    curve = cmc_curve(scores, codes)
    assert curve.shape == (scores.shape[1],)
    assert np.all(np.diff(curve) >= 0.0)
    assert curve[0] >= 0.0
    assert curve[-1] == 1.0


@given(problems(), st.integers(1, 9))
def test_curves_count_probes_within_a_rank(problem, max_rank):
    scores, codes = problem
    curve = cmc_curve(scores, codes, max_rank=max_rank)
    ranks = true_ranks(scores, codes)
    expected = [
        np.mean(ranks <= k) for k in range(1, min(max_rank, scores.shape[1]) + 1)
    ]
    assert curve == pytest.approx(expected)


def test_ties_go_to_the_first_column():
    assert true_ranks([[1.0, 1.0, 1.0]] * 3, [0, 1, 2]).tolist() == [1, 2, 3]


def test_missing_scores_are_last():
    assert true_ranks([[np.nan, -9.0, np.nan]] * 3, [0, 1, 2]).tolist() == [2, 1, 3]


def test_scores_are_left_as_they_are():
    scores = np.array([[np.nan, 1.0]])
    true_ranks(scores, [0])
    assert np.isnan(scores[0, 0])


def test_there_may_be_no_probes_to_rank():
    assert true_ranks(np.empty((0, 3)), np.empty(0, dtype=int)).shape == (0,)


@pytest.mark.parametrize(
    ("scores", "codes"),
    [
        ([0.1, 0.2], [0]),
        ([[0.1, 0.2]], [0, 1]),
        ([[0.1, 0.2]], [[0]]),
        ([[[0.1]]], [0]),
    ],
)
def test_shapes_must_fit(scores, codes):
    with pytest.raises(DualQMLError, match="a row for each probe"):
        true_ranks(scores, codes)


@pytest.mark.parametrize("code", [-1, 2])
def test_codes_must_be_columns(code):
    with pytest.raises(DualQMLError, match=r"columns of scores, 0 to 1; got"):
        true_ranks([[0.1, 0.2], [0.3, 0.4]], [0, code])


def test_a_curve_needs_probes():
    with pytest.raises(DualQMLError, match="no probes"):
        cmc_curve(np.empty((0, 3)), np.empty(0, dtype=int))


def test_a_missing_score_is_below_the_lowest():
    scores = [[np.nan, -np.inf, -np.inf], [np.nan, -np.inf, np.nan]]
    np.testing.assert_array_equal(true_ranks(scores, [1, 1]), [1, 1])
    np.testing.assert_array_equal(true_ranks(scores, [2, 2]), [2, 3])
    np.testing.assert_array_equal(true_ranks(scores, [0, 0]), [3, 2])
