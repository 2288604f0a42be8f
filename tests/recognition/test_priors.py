"""Thresholds from a background, before anything is measured; and stale ones."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dualqml.evaluation import binomial_interval, threshold_for_rate
from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.extractors import Background
from dualqml.recognition import Calibration, Recognizer
from dualqml.recognition.calibration import _interval_of_people
from tests.datasets import load_samples
from tests.people import make_vectors
from tests.persistence.sealed import Forged
from tests.recognition.test_recognizer import enrolled, vectors
from tests.recognition.test_with_background import (
    NOISE,
    OTHERS,
    SIZE,
    people_of,
    recogniser_of,
)


def with_prior(people, **options):
    recognizer = recogniser_of(people, background=OTHERS, threshold=None, **options)
    recognizer.calibrate(fpir=0.1)
    return recognizer


class TestPrior:
    def test_only_simulated_strangers_make_a_prior(self):
        recognizer = with_prior(people_of(3, 2))
        assert recognizer.calibration.prior
        assert recognizer.calibrate(fmr=0.01).prior
        rows = people_of(50, 1, seed=9)[:, 0]
        names = [f"x{n}" for n in range(50)]
        assert not recognizer.calibrate(rows, names, fpir=0.1).prior
        assert not with_prior(people_of(20, 2)).calibration.prior
        recognizer.set_threshold(0.0)
        assert not recognizer.calibration.prior

    def test_scores_that_are_no_log_ratios_have_none(self):
        """Strangers are simulated in units of log ratios."""
        recognizer = recogniser_of(people_of(6, 3), background=OTHERS, rule="cosine")
        with pytest.warns(UserWarning, match="rule of three"):
            found = recognizer.calibrate(fpir=0.1)
        assert not found.prior
        assert found.source == "6 enrolled subjects left out in turn"

    def test_the_interval_counts_people_and_not_simulations(self):
        recognizer = with_prior(people_of(3, 2))
        found = recognizer.calibration
        assert found.n_comparisons == 3000
        low, high = _interval_of_people(found.achieved, 60)
        assert (found.low, found.high) == (low, high)
        assert high - low > 5 * (0.1 * 0.9 / 3000) ** 0.5
        # People with one sample have no scores of their own.
        rows, labels = make_vectors(30, 3, size=SIZE, noise=NOISE, seed=100)
        single, names = make_vectors(90, 1, size=SIZE, noise=NOISE, seed=200)
        names = np.array([f"single {name}" for name in names])
        many = Background.from_samples(
            np.concatenate([rows, single]), np.concatenate([labels, names])
        )
        assert (many.n_people, many.n_repeats) == (120, 60)
        recognizer = recogniser_of(people_of(3, 2), background=many, threshold=None)
        found = recognizer.calibrate(fpir=0.1)
        assert found.high == _interval_of_people(found.achieved, 60)[1]

    @pytest.mark.parametrize(("k", "n"), [(0, 7), (1, 7), (7, 7), (30, 151)])
    def test_whole_numbers_have_the_interval_of_clopper_and_pearson(self, k, n):
        expected = binomial_interval(k, n)
        assert _interval_of_people(k / n, n) == pytest.approx(
            (expected.low, expected.high)
        )

    def test_too_few_simulations_still_warn_at_the_call(self):
        recognizer = recogniser_of(people_of(3, 2), background=OTHERS)
        with pytest.warns(UserWarning, match="too few") as caught:
            recognizer.calibrate(fpir=0.0005)
        assert caught[0].filename == __file__

    def test_a_prior_that_cannot_be_set_changes_nothing(self):
        recognizer = with_prior(people_of(3, 2))
        before = recognizer.calibration
        with pytest.raises(RecognitionError, match="between 0 and 1"):
            recognizer.calibrate(fpir=1.5)
        assert recognizer.calibration == before
        few = replace(OTHERS, scores_by_size=None, scores_of_others=None)
        recognizer = recogniser_of(people_of(3, 2), background=few, threshold=0.5)
        with pytest.raises(RecognitionError, match="too few to set a threshold"):
            recognizer.calibrate(fpir=0.1)
        assert recognizer.threshold == 0.5

    @pytest.mark.parametrize("kind", ["fmr", "fpir"])
    def test_the_threshold_is_in_the_middle_of_the_gap(self, kind):
        """Between strangers, simulated in two ways, and people's own samples."""
        recognizer = with_prior(people_of(3, 2))
        matcher = recognizer._fitted_matcher()
        limits = [0.0]
        for scores in (
            matcher.drawn_scores(OTHERS, 3000),
            matcher.simulated_scores(OTHERS, 3000),
        ):
            strangers = scores.ravel() if kind == "fmr" else scores.max(axis=1)
            limits.append(threshold_for_rate(strangers, 0.1))
        mean, spread = OTHERS.own_scores(2)
        standard = mean + norm.ppf(0.01) * spread
        reached = matcher.slope * standard + matcher.offset
        assert reached > max(limits)
        found = recognizer.calibrate(**{kind: 0.1})
        assert found.threshold == pytest.approx(0.5 * (reached + max(limits)))

    def test_without_a_gap_strangers_decide(self):
        """And the same person is always at least as likely as another one."""
        rows, labels = make_vectors(60, 4, size=SIZE, noise=2.2, seed=100)
        background = Background.from_samples(rows, labels)
        people, _ = make_vectors(6, 1, size=SIZE, noise=2.2)
        recognizer = recogniser_of(
            people.reshape(6, 1, SIZE), background=background, threshold=None
        )
        strict = recognizer.calibrate(fpir=0.01)
        assert 0.0 < strict.achieved <= 0.01
        assert strict.threshold > 0.0
        assert recognizer.calibrate(fpir=0.99).threshold == 0.0

    def test_strangers_that_are_like_the_enrolled_count(self):
        """The normal simulation goes through the model, the drawn one does not."""
        recognizer = with_prior(people_of(3, 2))
        matcher = recognizer._fitted_matcher()
        simulated = matcher.simulated_scores(OTHERS, 500)
        rows = OTHERS.strangers(500)
        expected = recognizer.scores(rows.astype(np.float32))
        np.testing.assert_allclose(simulated, expected, atol=1e-3)

    @pytest.mark.parametrize("n_samples", [1, 2, 4])
    @pytest.mark.parametrize("kind", ["fmr", "fpir"])
    def test_missed_people_are_as_expected(self, n_samples, kind):
        """With so much noise that many are missed."""
        rows, labels = make_vectors(100, 8, size=SIZE, noise=2.2, seed=100)
        background = Background.from_samples(rows, labels)
        expected, missed = [], []
        for seed in range(12):
            people, _ = make_vectors(5, n_samples + 20, size=SIZE, noise=2.2, seed=seed)
            people = people.reshape(5, -1, SIZE)
            recognizer = recogniser_of(
                people, n_samples, background=background, threshold=None
            )
            found = recognizer.calibrate(**{kind: 0.05})
            assert found.n_mated == 0
            expected.append(found.missed)
            for number, own in enumerate(people[:, n_samples:]):
                scores = recognizer.scores(own)
                wrong = scores[:, number] < found.threshold
                if kind == "fpir":
                    wrong |= scores.argmax(axis=1) != number
                missed.append(wrong.mean())
        assert np.mean(missed) > 0.1
        assert np.mean(expected) == pytest.approx(np.mean(missed), rel=0.35)

    def test_a_search_misses_more_than_a_comparison(self):
        rows, labels = make_vectors(60, 4, size=SIZE, noise=2.2, seed=100)
        background = Background.from_samples(rows, labels)
        people, _ = make_vectors(8, 1, size=SIZE, noise=2.2)
        recognizer = recogniser_of(
            people.reshape(8, 1, SIZE), background=background, threshold=None
        )
        search = recognizer.calibrate(fpir=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The same threshold, nearly.
            compare = recognizer.calibrate(fmr=1.0 - 0.5 ** (1 / 8))
        assert search.threshold == pytest.approx(compare.threshold, abs=0.3)
        assert search.missed > compare.missed

    def test_the_expected_rate_is_never_zero(self):
        recognizer = with_prior(people_of(3, 2))
        assert recognizer.calibration.missed >= 0.5 / 61


@pytest.mark.realdata("agegap_sface")
def test_missed_real_people_are_about_as_expected():
    X, y = load_samples("agegap_sface")
    people = np.flatnonzero(np.bincount(y) >= 3)
    expected, missed = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = rng.permutation(people)
        others = np.isin(y, order[:45])
        background = Background.from_samples(X[others], y[others])
        for start in range(45, 85, 5):
            recognizer = Recognizer(background=background)
            probes, codes = [], []
            for number, person in enumerate(order[start : start + 5]):
                own = rng.permutation(np.flatnonzero(y == person))
                recognizer.enroll(f"{number}", X[own[:2]])
                probes += own[2:6].tolist()
                codes += [number] * len(own[2:6])
            expected.append(recognizer.calibrate(fpir=0.01).missed)
            found = recognizer.identify_many(X[probes])
            right = [f.subject == f"{c}" for f, c in zip(found, codes, strict=True)]
            missed.append(1.0 - np.mean(right))
    assert np.mean(expected) == pytest.approx(np.mean(missed), rel=0.4)


class TestStale:
    def test_no_calibration_and_given_ones_are_not_stale(self):
        recognizer = enrolled(vectors(n_people=8), threshold=None)
        assert not recognizer.calibration_is_stale
        recognizer.set_threshold(1.0)
        recognizer.enroll("new", vectors(seed=3)[0])
        assert not recognizer.calibration_is_stale
        recognizer.remove("new")
        assert not recognizer.calibration_is_stale
        assert recognizer.calibration.source == "given by the user"

    def test_enrolment_and_removal_make_a_calibration_stale(self):
        recognizer = enrolled(vectors(n_people=8), threshold=None)
        recognizer.calibrate(fpir=0.3)
        assert not recognizer.calibration_is_stale
        recognizer.enroll("new", vectors(seed=3)[0])
        assert recognizer.calibration_is_stale
        assert recognizer.calibration.kind == "fpir"
        recognizer.calibrate(fpir=0.3)
        assert not recognizer.calibration_is_stale
        recognizer.remove("new")
        assert recognizer.calibration_is_stale
        assert recognizer.calibration.kind == "given"
        assert not recognizer.refresh_prior()
        assert recognizer.calibration_is_stale

    def test_it_is_stale_in_a_file_too(self, tmp_path):
        recognizer = enrolled(vectors(n_people=8), threshold=None)
        recognizer.calibrate(fpir=0.3)
        recognizer.remove("person 3")
        recognizer.save(tmp_path / "model")
        assert Recognizer.load(tmp_path / "model").calibration_is_stale


class TestRefresh:
    def test_a_prior_is_stale_after_an_enrolment_until_it_is_refreshed(self):
        recognizer = with_prior(people_of(3, 2))
        before = recognizer.calibration
        recognizer.enroll("new", people_of(1, 2, seed=8)[0])
        assert recognizer.calibration == before
        assert recognizer.calibration_is_stale
        assert recognizer.refresh_prior()
        assert not recognizer.calibration_is_stale
        after = recognizer.calibration
        assert (after.prior, after.rate) == (True, ("fpir", 0.1))
        assert after.threshold != before.threshold
        assert after == recognizer.calibrate(fpir=0.1)

    def test_it_stays_a_prior_however_many_people_come(self):
        recognizer = with_prior(people_of(19, 2))
        recognizer.enroll("new", people_of(1, 2, seed=8)[0])
        assert recognizer.refresh_prior()
        assert recognizer.calibration.prior

    def test_nothing_else_is_refreshed(self):
        recognizer = enrolled(vectors(n_people=8), threshold=None)
        assert not recognizer.refresh_prior()
        recognizer.set_threshold(1.0)
        assert not recognizer.refresh_prior()
        assert recognizer.threshold == 1.0
        recognizer.calibrate(fpir=0.3)
        before = recognizer.calibration
        assert not recognizer.refresh_prior()
        assert recognizer.calibration == before
        lost = with_prior(people_of(3, 2))
        lost.background = None
        before = lost.calibration
        assert not lost.refresh_prior()
        assert lost.calibration == before


class TestRemoval:
    def test_a_removal_is_cheap_and_the_prior_computed_when_needed(self):
        recognizer = with_prior(people_of(4, 2))
        recognizer.remove("002")
        assert recognizer._matcher is None
        assert not recognizer.calibration_is_stale
        assert recognizer._matcher is None
        found = recognizer.calibration
        assert found.prior
        assert found == recognizer.calibrate(fpir=0.1)
        assert found.model_id == recognizer.model_id

    @pytest.mark.parametrize("ask", ["save", "threshold", "copy"])
    def test_nothing_of_a_removed_subject_is_in_the_prior(self, tmp_path, ask):
        people = people_of(4, 3)
        removed, fresh = with_prior(people), with_prior(people[[0, 1, 3]])
        before = removed.threshold
        removed.remove("002")
        if ask == "threshold":
            assert removed.threshold != before
        if ask == "copy":
            removed = copy.deepcopy(removed)
        fresh = recogniser_of([], background=OTHERS, threshold=None)
        for number in (3, 0, 1):
            fresh.enroll(f"{number:03d}", people[number])
        fresh.calibrate(fpir=0.1)
        removed.save(tmp_path / "removed")
        fresh.save(tmp_path / "fresh")
        content = (tmp_path / "removed").read_bytes()
        assert content == (tmp_path / "fresh").read_bytes()
        assert repr(before).encode() not in content

    def test_searches_use_the_new_prior(self):
        people = people_of(4, 3)
        recognizer = with_prior(people)
        recognizer.remove("002")
        fresh = with_prior(people[:2])
        fresh.enroll("003", people[3])
        fresh.refresh_prior()
        assert recognizer.identify(people[0, 0]).threshold == fresh.threshold

    def test_no_warning_when_it_is_computed_again(self):
        recognizer = with_prior(people_of(4, 2))
        with pytest.warns(UserWarning, match="too few"):
            recognizer.calibrate(fpir=0.0005)
        recognizer.remove("002")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recognizer.calibration.target == 0.0005

    def test_a_threshold_set_in_the_meantime_stays(self):
        recognizer = with_prior(people_of(4, 2))
        recognizer.remove("002")
        recognizer.set_threshold(1.25)
        assert recognizer.threshold == 1.25
        recognizer.calibration = None
        assert recognizer.calibration is None

    def test_a_new_background_comes_after_the_prior_of_the_old_one(self):
        people = people_of(4, 2)
        recognizer, other = with_prior(people), with_prior(people)
        recognizer.remove("002")
        other.remove("002")
        expected = other.calibration
        recognizer.background = None
        assert recognizer.calibration == expected
        assert recognizer.calibration_is_stale

    def test_an_empty_gallery_has_no_prior(self):
        recognizer = with_prior(people_of(2, 2))
        recognizer.remove("000")
        recognizer.remove("001")
        assert recognizer.calibration is None
        assert not recognizer.refresh_prior()


class TestFiles:
    def test_priors_come_back(self, tmp_path):
        recognizer = with_prior(people_of(3, 2))
        recognizer.save(tmp_path / "model")
        loaded = Recognizer.load(tmp_path / "model")
        assert loaded.calibration == recognizer.calibration
        assert loaded.calibration.prior
        assert not loaded.calibration_is_stale

    def test_old_files_have_no_priors(self, tmp_path):
        recognizer = with_prior(people_of(3, 2))
        recognizer.save(tmp_path / "model")
        forged = Forged((tmp_path / "model").read_bytes())
        del forged.state["calibration"]["dict"]["prior"]
        (tmp_path / "model").write_bytes(forged.seal())
        loaded = Recognizer.load(tmp_path / "model")
        assert loaded.calibration == replace(recognizer.calibration, prior=False)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"prior": 1}, "prior is not true or false"),
            ({"prior": None}, "prior is not true or false"),
            ({"kind": "given"}, "prior is set for a given threshold"),
        ],
    )
    def test_wrong_values_are_refused(self, tmp_path, changes, message):
        with_prior(people_of(3, 2)).save(tmp_path / "model")
        forged = Forged((tmp_path / "model").read_bytes())
        forged.state["calibration"]["dict"].update(changes)
        (tmp_path / "model").write_bytes(forged.seal())
        with pytest.raises(ModelFileError, match=message):
            Recognizer.load(tmp_path / "model")


class TestDescribe:
    def test_a_prior(self):
        found = Calibration(
            4.213, "fpir", 0.01, 0.0099, 0.001, 0.04, 0.0213, 3000, 0,
            "strangers simulated from a background of 151 people", "x", prior=True,
        )  # fmt: skip
        assert found.describe() == (
            "Threshold 4.213: a prior, from strangers simulated from a background of "
            "151 people, for a false positive identification rate of 1 %. About 2.13 % "
            "of searches for enrolled people would be missed. Nothing was measured on "
            "this gallery yet: calibrate it, with photographs of other people if "
            "you have them."
        )
        assert "missed" not in replace(found, missed=None).describe()

    def test_measured(self):
        recognizer = enrolled(vectors(n_people=20), threshold=None)
        text = recognizer.calibrate(fmr=0.1).describe()
        assert "measured on 20 enrolled subjects left out in turn" in text
        assert "for a false match rate of 10 %" in text
        assert "of 60 comparisons for enrolled people were missed" in text
        rows = vectors(n_people=40, n_samples=1, seed=7)[:, 0]
        names = [f"x{n}" for n in range(40)]
        text = recognizer.calibrate(rows, names, fpir=0.2).describe()
        assert "measured on 40 samples of people who are not enrolled" in text
        assert "of 40 searches (95 % interval" in text
        assert "is not known" in text
        assert text.isprintable()

    def test_given_and_kept(self):
        recognizer = enrolled(vectors(n_people=8), threshold=1.5)
        assert recognizer.calibration.describe() == "Threshold 1.5: given by the user."
        recognizer.calibrate(fpir=0.3)
        recognizer.remove("person 3")
        text = recognizer.calibration.describe()
        assert "kept from a calibration before a removal; calibrate again." in text
        assert Calibration(2.0, "given").describe() == "Threshold 2: given by hand."
