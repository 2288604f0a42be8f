import numpy as np
import pytest

from dualqml.evaluation import binomial_interval
from dualqml.experiments.open_set import evaluate_open_set
from dualqml.experiments.open_set_report import write_open_set
from dualqml.experiments.rendering import to_markdown
from dualqml.experiments.threshold_checks import check_thresholds, threshold_table
from dualqml.recognition import RecognitionError, Recognizer
from tests.people import make_vectors

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


def test_the_evaluation_writes_it(tmp_path):
    plain = evaluate_open_set(*people(), m=3, repeats=1)
    assert plain.thresholds == []
    found = evaluate_open_set(*people(), m=3, repeats=2, fpir=0.1)
    assert [len(checks) for checks in found.thresholds] == [2, 2]
    page, text = write_open_set(found, tmp_path)
    for written in (page.read_text(), text, (tmp_path / "open-set.md").read_text()):
        assert "does a threshold for an FPIR of 10 % hold?" in written
    _, without = write_open_set(plain, tmp_path)
    assert "threshold" not in without
    assert "One random division." in without


def test_a_rate_that_is_none_is_told_before_the_work():
    with pytest.raises(RecognitionError, match="between 0 and 1"):
        evaluate_open_set(*people(), m=3, fpir=7.0, progress=lambda done, n: 1 / 0)


def test_one_stranger_is_enough_for_a_report(tmp_path):
    found = evaluate_open_set(*people(5), m=3, strangers=0.2, repeats=1, fpir=0.1)
    assert found.n_strangers == 1
    page, _ = write_open_set(found, tmp_path)
    assert "<ul></ul>" not in page.read_text()
