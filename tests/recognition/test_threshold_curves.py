"""Thresholds for several rates are those of `calibrate`, and come from the scores."""

import threading
import warnings

import numpy as np
import pytest

import dualqml.recognition.calibration as calibration_module
from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.recognition import Recognizer, Trials, threshold_curve
from dualqml.recognition.calibration import left_out_trials
from tests.people import make_people, make_vectors
from tests.recognition.test_recognizer import enrolled, vectors
from tests.recognition.test_with_background import OTHERS, SIZE, people_of

TARGETS = (0.3, 0.0005, 0.01, 0.1, 0.7)


def noisy_background():
    rows, labels = make_vectors(60, 4, size=SIZE, noise=2.2, seed=100)
    return Background.from_samples(rows, labels)


def noisy_people(n_people, n_samples):
    rows, _ = make_vectors(n_people, n_samples, size=SIZE, noise=2.2)
    return rows.reshape(n_people, n_samples, SIZE)


def images_of(n_people, n_images):
    people = make_people(n_people, n_images, noise=0.6)
    return people.images.reshape(n_people, n_images, 8, 8)


#: Recognisers by name: whether the threshold is a prior, and how to make one.
GALLERIES = {
    "left out": (False, lambda: enrolled(vectors(20, noise=1.5), threshold=None)),
    "few without a background": (
        False,
        lambda: enrolled(vectors(5, noise=1.5), threshold=None),
    ),
    "many with a background": (
        False,
        lambda: enrolled(people_of(20, 3), background=OTHERS, threshold=None),
    ),
    "scores that are no log ratios": (
        False,
        lambda: enrolled(
            people_of(6, 3), background=OTHERS, threshold=None, rule="cosine"
        ),
    ),
    "another method": (
        False,
        lambda: enrolled(vectors(8, noise=1.5), method="LDA", threshold=None),
    ),
    "images": (
        False,
        lambda: enrolled(images_of(12, 3), size=(8, 8), threshold=None),
    ),
    "single samples": (False, lambda: enrolled(vectors(20), 1, threshold=None)),
    "prior": (True, lambda: enrolled(people_of(4, 2), background=OTHERS)),
    "prior of one": (True, lambda: enrolled(people_of(1, 1), background=OTHERS)),
    "prior of 19": (True, lambda: enrolled(people_of(19, 2), background=OTHERS)),
    "prior without a gap": (
        True,
        lambda: enrolled(noisy_people(6, 2), background=noisy_background()),
    ),
}


@pytest.fixture(params=GALLERIES)
def gallery(request):
    is_prior, make = GALLERIES[request.param]
    return is_prior, make()


def test_each_threshold_is_that_of_calibrate(gallery):
    is_prior, recognizer = gallery
    curve = threshold_curve(recognizer, fpir=TARGETS)
    assert len(curve.calibrations) == len(TARGETS)
    for target, found in zip(TARGETS, curve.calibrations, strict=True):
        assert found.prior == is_prior
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert found == recognizer.calibrate(fpir=target)
        assert found.rate == ("fpir", target)


def test_the_scores_have_the_rates(gallery):
    is_prior, recognizer = gallery
    curve = threshold_curve(recognizer, fpir=TARGETS)
    assert curve.enrolled.shape == curve.ranked_first.shape
    for found in curve.calibrations:
        assert found.n_comparisons == curve.strangers.size
        assert np.mean(curve.strangers >= found.threshold) == found.achieved
        assert found.n_mated == curve.enrolled.size
        if found.n_mated:
            hit = curve.ranked_first & (curve.enrolled >= found.threshold)
            assert np.mean(~hit) == pytest.approx(found.missed, abs=1e-12)
        else:
            assert is_prior or found.missed is None
    if is_prior:
        assert curve.strangers.size == 3000
        assert curve.enrolled.size == 0


def test_some_enrolled_people_are_missed_though_their_score_is_high():
    """Without `ranked_first` the rates would be too low."""
    curve = threshold_curve(enrolled(vectors(20, noise=2.0)), fpir=[0.7])
    (found,) = curve.calibrations
    assert not curve.ranked_first.all()
    assert np.mean(curve.enrolled < found.threshold) < found.missed


def test_both_ways_to_simulate_strangers_count():
    """At any threshold, the higher rate of both."""
    recognizer = enrolled(noisy_people(6, 2), background=noisy_background())
    matcher, background = recognizer._fitted_matcher(), recognizer.background
    strangers = threshold_curve(recognizer, fpir=[]).strangers
    ways = [
        matcher.drawn_scores(background, 3000).max(axis=1),
        matcher.simulated_scores(background, 3000).max(axis=1),
    ]
    for limit in np.quantile(strangers, np.linspace(0.0, 1.0, 101)):
        rates = [np.mean(way >= limit) for way in ways]
        assert np.mean(strangers >= limit) == max(rates)


@pytest.mark.parametrize("before", [None, "given", "fpir", "prior", "due"])
def test_the_recogniser_keeps_its_calibration(tmp_path, before):
    people = people_of(6, 3)
    background = OTHERS if before in ("prior", "due") else None
    recognizer = enrolled(people, threshold=None, background=background)
    if before == "given":
        recognizer.set_threshold(1.25)
    elif before is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            recognizer.calibrate(fpir=0.2)
    if before == "due":
        recognizer.remove("person 2")
        assert recognizer._prior_due == ("fpir", 0.2)
    kept, due = recognizer._calibration, recognizer._prior_due
    model_id = recognizer.model_id
    threshold_curve(recognizer, fpir=TARGETS)
    assert recognizer._calibration is kept
    assert recognizer._prior_due == due
    assert recognizer.model_id == model_id
    recognizer.save(tmp_path / "after")
    fresh = enrolled(people, threshold=None, background=background)
    if before == "due":
        fresh.remove("person 2")
    fresh.calibration = recognizer.calibration
    fresh.save(tmp_path / "fresh")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "fresh").read_bytes()


@pytest.mark.parametrize("background", [None, OTHERS])
def test_there_are_no_warnings(background):
    recognizer = enrolled(people_of(6, 3), background=background)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threshold_curve(recognizer, fpir=[0.00001])
    with pytest.warns(UserWarning, match="rule of three"):
        recognizer.calibrate(fpir=0.00001)


@pytest.mark.parametrize("background", [None, OTHERS])
def test_scores_are_computed_once(monkeypatch, background):
    name = "left_out_trials" if background is None else "simulated_strangers"
    compute, calls = getattr(calibration_module, name), []

    def counted(*args, **options):
        calls.append(args)
        return compute(*args, **options)

    monkeypatch.setattr(calibration_module, name, counted)
    recognizer = enrolled(people_of(6, 3), background=background)
    threshold_curve(recognizer, fpir=TARGETS)
    assert len(calls) == 1


def test_a_loaded_recogniser_has_the_same_curve(tmp_path):
    recognizer = enrolled(vectors(20, noise=1.5))
    recognizer.save(tmp_path / "model")
    curve = threshold_curve(recognizer, fpir=TARGETS)
    loaded = threshold_curve(Recognizer.load(tmp_path / "model"), fpir=TARGETS)
    assert loaded.calibrations == curve.calibrations
    np.testing.assert_array_equal(loaded.strangers, curve.strangers)
    np.testing.assert_array_equal(loaded.enrolled, curve.enrolled)


def test_wrong_rates_and_small_galleries_raise_errors():
    recognizer = enrolled(vectors(8))
    for wrong in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(RecognitionError, match="between 0 and 1"):
            threshold_curve(recognizer, fpir=[0.1, wrong])
    assert threshold_curve(recognizer, fpir=[]).calibrations == ()
    with pytest.raises(RecognitionError, match="at least four"):
        threshold_curve(enrolled(vectors(3)), fpir=[0.1])
    with pytest.raises(RecognitionError, match="at least two"):
        threshold_curve(Recognizer(), fpir=[0.1])


class TestLeftOutTrials:
    @pytest.mark.parametrize("n_samples", [1, 3])
    def test_they_are_those_of_calibrate(self, n_samples):
        recognizer = enrolled(vectors(20, noise=1.5), n_samples, threshold=None)
        found = recognizer.left_out_trials()
        assert isinstance(found, Trials)
        expected = left_out_trials(
            recognizer._gallery, recognizer._matcher, recognizer._cache
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        assert recognizer.calibration is None
        calibration = recognizer.calibrate(fpir=0.2)
        best = found.nonmated.max(axis=1)
        assert np.mean(best >= calibration.threshold) == calibration.achieved
        assert (len(best), len(found.mated)) == (20 * n_samples, calibration.n_mated)

    def test_a_background_does_not_replace_them(self):
        recognizer = enrolled(people_of(6, 3), background=OTHERS)
        assert recognizer.left_out_trials().nonmated.shape[0] == 18

    def test_four_subjects_are_needed(self):
        assert len(enrolled(vectors(4)).left_out_trials().nonmated) == 12
        with pytest.raises(RecognitionError, match="at least four"):
            enrolled(vectors(3)).left_out_trials()
        with pytest.raises(RecognitionError, match="at least two"):
            Recognizer().left_out_trials()

    @pytest.mark.parametrize(
        "ask",
        [Recognizer.left_out_trials, lambda r: threshold_curve(r, fpir=[0.1])],
    )
    def test_changes_wait(self, monkeypatch, ask):
        """A removal during the trials would wipe samples that they still need."""
        recognizer = enrolled(vectors(6)).fit()
        matcher_kind = type(recognizer._matcher)
        fitted, held = matcher_kind.fitted_to_part, []

        def watched(*args):
            def acquire():
                free = recognizer._lock.acquire(blocking=False)
                held.append(not free)
                if free:
                    recognizer._lock.release()

            other = threading.Thread(target=acquire)
            other.start()
            other.join()
            return fitted(*args)

        monkeypatch.setattr(matcher_kind, "fitted_to_part", watched)
        ask(recognizer)
        assert held
        assert all(held)
