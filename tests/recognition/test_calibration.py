import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualqml.evaluation import binomial_interval
from dualqml.exceptions import RecognitionError
from dualqml.recognition.calibration import Trials, calibrate, left_out_trials
from dualqml.recognition.recognizer import Recognizer
from tests.recognition.test_recognizer import enrolled, vectors


@pytest.fixture(scope="module")
def recognizer():
    return enrolled(vectors(n_people=20), threshold=None)


def strangers(n_people=400, seed=7):
    rows = vectors(n_people=n_people, n_samples=1, seed=seed)[:, 0]
    return rows, [f"stranger {n}" for n in range(n_people)]


def with_known(rows, names):
    own = vectors(n_people=20)[:, 3]
    known = [f"person {n}" for n in range(20)]
    return np.concatenate([rows, own]), names + known


@pytest.mark.parametrize("fpir", [0.05, 0.2])
def test_the_rate_of_searches_is_kept(recognizer, fpir):
    calibration = recognizer.calibrate(*with_known(*strangers()), fpir=fpir)
    assert calibration.kind == "fpir"
    assert calibration.achieved <= fpir
    assert (calibration.n_comparisons, calibration.n_mated) == (400, 20)
    assert "400 samples of people who are not enrolled" in calibration.source
    fresh, _ = strangers(seed=8)
    answers = recognizer.identify_many(fresh)
    alarms = np.mean([answer.decision == "match" for answer in answers])
    # On other strangers, within the precision of 400 searches.
    low, high = (
        getattr(binomial_interval(int(fpir * 400), 400), e) for e in ("low", "high")
    )
    assert 0.3 * low <= alarms <= 1.8 * high
    interval = binomial_interval(round(calibration.achieved * 400), 400)
    assert (calibration.low, calibration.high) == (interval.low, interval.high)


def test_the_rate_of_comparisons_is_kept(recognizer):
    calibration = recognizer.calibrate(*with_known(*strangers()), fmr=0.01)
    assert calibration.kind == "fmr"
    assert calibration.n_comparisons == 400 * 20
    scores = recognizer.scores(strangers()[0])
    assert np.mean(scores >= calibration.threshold) == pytest.approx(
        calibration.achieved
    )
    assert calibration.achieved <= 0.01
    lower = np.nextafter(calibration.threshold, -np.inf)
    below = scores[scores < calibration.threshold].max()
    assert np.mean(scores >= below) > 0.01
    assert lower < calibration.threshold


def test_a_lower_target_has_a_higher_threshold_and_misses_more(recognizer):
    data = with_known(*strangers())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [recognizer.calibrate(*data, fpir=rate) for rate in (0.3, 0.1, 0.01)]
    assert found[0].threshold < found[1].threshold < found[2].threshold
    assert found[0].missed <= found[1].missed <= found[2].missed


def test_too_few_comparisons_raise_a_warning(recognizer):
    with pytest.warns(UserWarning, match=r"rule of three.*at least 3000"):
        recognizer.calibrate(*strangers(), fpir=0.001)


def test_without_other_people_the_enrolled_are_left_out(recognizer):
    calibration = recognizer.calibrate(fpir=0.1)
    assert calibration.n_comparisons == 60
    # One sample of each subject, three times.
    assert calibration.n_mated == 60
    assert "20 enrolled subjects left out in turn" in calibration.source
    assert recognizer.threshold == calibration.threshold
    fresh, _ = strangers(seed=9)
    answers = recognizer.identify_many(fresh)
    alarms = np.mean([answer.decision == "match" for answer in answers])
    assert alarms < 0.3


def test_left_out_subjects_were_not_seen():
    people = vectors(n_people=6, noise=0.05)
    recognizer = enrolled(people)
    before = recognizer.model_id
    recognizer.fit()
    trials = left_out_trials(
        recognizer._gallery, recognizer._matcher, recognizer._cache, n_folds=3
    )
    assert recognizer.model_id == before
    # Samples of an own person would score about one or more above.
    assert trials.mated[:, 0].min() > trials.nonmated[:, 0].max()
    assert trials.nonmated.shape == (18, 4)
    assert trials.mated.shape[1] == 4


def test_single_samples_have_no_mated_trials():
    recognizer = enrolled(vectors(n_people=20), n_samples=1)
    calibration = recognizer.calibrate(fpir=0.2)
    assert calibration.missed is None
    assert calibration.n_mated == 0


def test_separable_scores_get_a_threshold_between():
    nonmated = np.array([[0.1, 0.0], [0.2, 0.1]])
    mated = np.array([[0.9, 0.1]])
    trials = Trials(mated, np.array([0]), nonmated)
    with pytest.warns(UserWarning, match="rule of three"):
        found = calibrate(trials, kind="fpir", target=0.1, source="made up")
    assert 0.2 < found.threshold <= 0.9
    assert found.achieved == 0.0
    assert found.missed == 0.0


SCORES = st.sampled_from([-1.0, 0.0, 0.1, 0.3, 0.30001, 0.7, 1.0, 2.5])


@st.composite
def made_up_trials(draw):
    n_subjects, n_mated = draw(st.integers(1, 4)), draw(st.integers(0, 6))
    n_strangers = draw(st.integers(1, 12))
    mated = draw(arrays(np.float64, (n_mated, n_subjects), elements=SCORES))
    codes = draw(arrays(np.int64, n_mated, elements=st.integers(0, n_subjects - 1)))
    strangers = draw(arrays(np.float64, (n_strangers, n_subjects), elements=SCORES))
    return Trials(mated, codes, strangers)


@given(made_up_trials(), st.sampled_from(["fmr", "fpir"]), st.floats(0.01, 0.99))
def test_the_rate_on_the_data_is_the_highest_up_to_the_target(trials, kind, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = calibrate(trials, kind=kind, target=target, source="made up")
    best = trials.nonmated.max(axis=1)
    scores = trials.nonmated.ravel() if kind == "fmr" else best
    assert np.mean(scores >= found.threshold) == found.achieved <= target
    # One stranger more, and it would be.
    below = scores[scores < found.threshold]
    if below.size:
        assert np.mean(scores >= below.max()) > target
    # No enrolled person is missed for nothing.
    if found.n_mated:
        own = trials.mated[np.arange(found.n_mated), trials.codes]
        if kind == "fpir":
            own = own[trials.mated.argmax(axis=1) == trials.codes]
        kept = int(np.sum(own > below.max(initial=-np.inf)))
        assert found.missed == pytest.approx(1.0 - kept / found.n_mated)
    else:
        assert found.missed is None


def test_the_top_stranger_stays_unknown():
    recognizer = enrolled(vectors(n_people=20), threshold=None)
    rows, names = strangers(30)
    with pytest.warns(UserWarning, match="rule of three"):
        calibration = recognizer.calibrate(rows, names, fpir=0.01)
    assert calibration.achieved == 0.0
    top = recognizer.scores(rows).max()
    assert top < calibration.threshold < top + 1e-6
    # Also one by one, where scores are rounded in another way.
    decisions = {recognizer.identify(row).decision for row in rows}
    assert decisions == {"unknown"}


def test_few_people_get_a_threshold_between_strangers_and_enrolled():
    recognizer = enrolled(vectors(n_people=7, noise=0.05), threshold=None)
    with pytest.warns(UserWarning, match="rule of three"):
        calibration = recognizer.calibrate(fpir=0.01)
    trials = left_out_trials(
        recognizer._gallery, recognizer._matcher, recognizer._cache
    )
    strangers_end, own_begin = trials.nonmated.max(), trials.mated[:, 0].min()
    assert strangers_end < own_begin
    middle = (strangers_end + own_begin) / 2
    assert calibration.threshold == pytest.approx(middle, rel=1e-6)
    assert calibration.missed == 0.0


def test_wrong_arguments_of_calibrate_raise_errors(recognizer):
    rows, names = strangers()
    with pytest.raises(RecognitionError, match="either fmr"):
        recognizer.calibrate(rows, names)
    with pytest.raises(RecognitionError, match="either fmr"):
        recognizer.calibrate(rows, names, fmr=0.1, fpir=0.1)
    with pytest.raises(RecognitionError, match="both images and labels"):
        recognizer.calibrate(rows, fmr=0.1)
    with pytest.raises(RecognitionError, match="between 0 and 1"):
        recognizer.calibrate(rows, names, fmr=1.5)
    with pytest.raises(RecognitionError, match="as many labels"):
        recognizer.calibrate(rows, names[:-1], fmr=0.1)
    own = vectors(n_people=20)[:, 3]
    with pytest.raises(RecognitionError, match="no strangers"):
        recognizer.calibrate(own, [f"person {n}" for n in range(20)], fmr=0.1)
    few = Recognizer()
    few.enroll("Ann", np.ones(3))
    few.enroll("Bob", -np.ones(3))
    with pytest.raises(RecognitionError, match="at least four"):
        few.calibrate(fpir=0.1)
