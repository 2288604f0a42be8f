import numpy as np
import pytest

from dualqml._linalg import unit_rows
from dualqml.evaluation import binomial_interval, equal_error_rate
from dualqml.exceptions import DatabaseError, RecognitionError
from dualqml.experiments.open_set import (
    CLASS_MEAN,
    MEASURES,
    NEAREST,
    OF_DESCRIPTORS,
    check_thresholds,
    evaluate_open_set,
    threshold_table,
)
from dualqml.experiments.table_formats import to_markdown
from dualqml.images.descriptors import local_descriptors
from dualqml.recognition import Recognizer
from dualqml.recognition.inputs import InputReader
from tests.people import make_people, make_vectors

OTHERS, LEFT_OUT = "other people", "the enrolled, left out in turn"


def people(n_people=30):
    return make_vectors(n_people, 8, size=20, noise=0.9)


@pytest.fixture(scope="module")
def recognizer():
    rows, labels = people()
    enrolled = np.flatnonzero(labels < "p20").reshape(20, 8)[:, :4].ravel()
    made = Recognizer()
    made.enroll_many(rows[enrolled], labels[enrolled].tolist())
    return made


@pytest.fixture(scope="module")
def scored(recognizer):
    rows, labels = people()
    asked = np.flatnonzero(labels < "p20").reshape(20, 8)[:, 4:].ravel()
    strangers = labels >= "p20"
    return {
        "mated": recognizer.scores(rows[asked]),
        "codes": np.repeat(np.arange(20), 4),
        "nonmated": recognizer.scores(rows[strangers]),
        "strangers": labels[strangers],
    }


def test_rates_are_those_of_the_decisions(recognizer, scored):
    rows, labels = people()
    asked = np.flatnonzero(labels < "p20").reshape(20, 8)[:, 4:].ravel()
    others, left_out = check_thresholds(recognizer, **scored, fpir=0.1)
    assert (others.way, left_out.way) == (OTHERS, LEFT_OUT)
    assert recognizer.calibration == left_out.calibration
    # Those who set the threshold are not asked.
    half = np.isin(labels, np.unique(scored["strangers"])[1::2])
    for check, strangers in ((others, half), (left_out, labels >= "p20")):
        limit = check.calibration.threshold
        found = recognizer.identify_many(rows[strangers], threshold=limit)
        false = sum(answer.decision == "match" for answer in found)
        assert check.fpir == binomial_interval(false, strangers.sum())
        found = recognizer.identify_many(rows[asked], threshold=limit)
        missed = sum(a.subject != n for a, n in zip(found, labels[asked], strict=True))
        assert check.fnir == binomial_interval(missed, asked.size)
        assert (check.n_strangers, check.n_mated) == (strangers.sum(), 80)
    assert others.calibration.n_comparisons == 40
    assert others.calibration.achieved <= 0.1
    assert left_out.calibration.n_comparisons == 80


def test_the_half_that_set_it_keeps_the_rate(recognizer, scored):
    others, _ = check_thresholds(recognizer, **scored, fpir=0.1)
    first = np.isin(scored["strangers"], np.unique(scored["strangers"])[::2])
    best = scored["nonmated"][first].max(axis=1)
    assert np.mean(best >= others.calibration.threshold) <= 0.1
    # The lowest such threshold: one error more would be too many.
    below = np.sort(best)[::-1][4]
    assert others.calibration.threshold > below


def test_one_stranger_cannot_be_halved(recognizer, scored):
    one = scored["strangers"] == "p20"
    part = scored | {
        "nonmated": scored["nonmated"][one],
        "strangers": scored["strangers"][one],
    }
    (check,) = check_thresholds(recognizer, **part, fpir=0.1)
    assert check.way == LEFT_OUT


def test_a_rate_that_is_none_is_an_error(recognizer, scored):
    with pytest.raises(RecognitionError, match="between 0 and 1"):
        check_thresholds(recognizer, **scored, fpir=1.5)


def test_the_table_says_where_searches_are_too_few(recognizer, scored):
    checks = check_thresholds(recognizer, **scored, fpir=0.1)
    table = threshold_table("made up", [checks, checks[:1]])
    text = to_markdown(table)
    assert "made up: does a threshold for an FPIR of 10 % hold?" in text
    assert [row.label for row in table.rows] == ["1", "1", "2"]
    rate = checks[0].fpir
    expected = f"{100 * rate.estimate:.1f} ({100 * rate.low:.1f} to "
    assert expected in text
    assert "too few" not in text
    few = check_thresholds(recognizer, **scored, fpir=0.01)
    assert "40 searches are too few" in to_markdown(threshold_table("x", [few]))


def test_a_rate_that_is_none_is_told_before_the_work():
    with pytest.raises(RecognitionError, match="between 0 and 1"):
        evaluate_open_set(*people(), m=3, fpir=7.0, progress=lambda done, n: 1 / 0)


def open_set_people(n_people=12, n_samples=5, noise=1.2, seed=0):
    return make_vectors(n_people, n_samples, size=30, noise=noise, seed=seed)


@pytest.fixture(scope="module")
def found():
    return evaluate_open_set(*open_set_people(), m=3, repeats=2, name="made up")


def test_sizes_and_rows(found):
    assert (found.n_enrolled, found.n_strangers) == (8, 4)
    assert list(found.trials) == ["DualQML-W", NEAREST, CLASS_MEAN]
    for trials in found.trials.values():
        assert len(trials) == 2
        for trial in trials:
            assert trial.mated.shape == (16, 8)
            assert trial.nonmated.shape == (20, 8)
            assert len(set(trial.strangers)) == 4
    # All rows have the same divisions, and repetitions have others.
    own, other = found.trials["DualQML-W"], found.trials[NEAREST]
    np.testing.assert_array_equal(own[0].strangers, other[0].strangers)
    assert set(own[0].strangers) != set(own[1].strangers)


def test_scores_are_those_of_the_recogniser_and_of_cosines():
    rows, labels = open_set_people()
    seen = {}

    class Spy(Recognizer):
        def enroll_many(self, images, subjects):
            seen["rows"], seen["names"] = images, subjects
            super().enroll_many(images, subjects)

    import dualqml.experiments.open_set as module

    original = module.Recognizer
    module.Recognizer = Spy
    try:
        found = evaluate_open_set(rows, labels, m=3, repeats=1)
    finally:
        module.Recognizer = original
    names = sorted(set(seen["names"]))
    strangers = ~np.isin(labels, names)
    units = seen["rows"] / np.linalg.norm(seen["rows"], axis=1, keepdims=True)
    asked = rows[strangers] / np.linalg.norm(rows[strangers], axis=1, keepdims=True)
    own = np.array(seen["names"])
    nearest = np.array([(asked @ units[own == n].T).max(axis=1) for n in names]).T
    np.testing.assert_allclose(found.trials[NEAREST][0].nonmated, nearest)
    fresh = Recognizer()
    fresh.enroll_many(seen["rows"], seen["names"])
    np.testing.assert_allclose(
        found.trials["DualQML-W"][0].nonmated, fresh.scores(rows[strangers]), atol=1e-9
    )


def test_images_are_also_compared_by_their_descriptors():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(6, 1, 20, 16))
    images = np.clip(images + rng.normal(0, 60, size=(6, 4, 20, 16)), 0, 255)
    images = images.astype(np.uint8).reshape(-1, 20, 16)
    labels = np.repeat([f"p{n}" for n in range(6)], 4)
    found = evaluate_open_set(images, labels, m=2, repeats=1, size=(16, 16))
    rows = [NEAREST, CLASS_MEAN]
    expected = ["DualQML-W", *rows, *(row + OF_DESCRIPTORS for row in rows)]
    assert list(found.trials) == expected
    reader = InputReader(size=(16, 16))
    described = unit_rows(local_descriptors(reader.read(images) * 1.0, (16, 16)))
    trial = found.trials[NEAREST + OF_DESCRIPTORS][0]
    strangers = np.isin(labels, trial.strangers)
    pairs = described[strangers] @ described[~strangers].T
    # Each is the cosine of a pair; which were enrolled is not known here.
    gaps = np.abs(trial.nonmated[:, :, None] - pairs[:, None, :]).min(axis=2)
    assert gaps.max() < 1e-12


def test_measures(found):
    for row in found.trials:
        for measure in MEASURES:
            values = found.values(row, measure)
            assert values.shape == (2,)
            assert ((values >= 0) & (values <= 100)).all()
    trial = found.trials[NEAREST][1]
    expected = 100 * equal_error_rate(trial.genuine, trial.impostor)
    assert found.values(NEAREST, "EER")[1] == pytest.approx(expected)
    top = trial.mated.argmax(axis=1)
    error = 100 * np.mean(top != trial.codes)
    assert found.values(NEAREST, "rank-1 error")[1] == pytest.approx(error)


def test_intervals_hold_the_estimate(found):
    interval = found.interval("DualQML-W", 0.1, n_resamples=50)
    assert interval.low <= interval.estimate <= interval.high
    expected = found.values("DualQML-W", "FNIR at FPIR 10 %")[0]
    assert 100 * interval.estimate == pytest.approx(expected)


def test_the_same_seed_gives_the_same(found):
    again = evaluate_open_set(*open_set_people(), m=3, repeats=2)
    other = evaluate_open_set(*open_set_people(), m=3, repeats=1, seed=1)
    for row in found.trials:
        np.testing.assert_array_equal(
            again.trials[row][1].mated, found.trials[row][1].mated
        )
    assert set(other.trials[NEAREST][0].strangers) != set(
        found.trials[NEAREST][0].strangers
    )


def test_images_and_uneven_people():
    some = make_people(n_people=6, n_images=4, noise=0.2)
    # One person has two images, one has one and takes no part.
    keep = np.ones(24, dtype=bool)
    keep[[2, 3, 5, 6, 7]] = False
    found = evaluate_open_set(
        some.images[keep], some.labels[keep], m=3, repeats=1, size=(8, 8)
    )
    assert found.n_enrolled + found.n_strangers == 5


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_too_few_people_is_an_error(share):
    rows, labels = open_set_people(n_people=4)
    with pytest.raises(DatabaseError, match="too few to enrol two"):
        evaluate_open_set(rows, labels, strangers=share)
    with pytest.raises(DatabaseError, match="2 people with two images"):
        evaluate_open_set(rows[:10], labels[:10])
