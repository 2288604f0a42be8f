import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dualqml.exceptions import NoThresholdError, RecognitionError, UnknownSubjectError
from dualqml.extractors.methods import METHODS
from dualqml.recognition.recognizer import Recognizer
from tests.people import make_people


def vectors(n_people=6, n_samples=4, *, size=40, noise=0.4, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_people, 1, size))
    return centres + noise * rng.normal(size=(n_people, n_samples, size))


def enrolled(people, n_samples=3, **settings):
    # A score of 0 means that the same person and another one are equally likely.
    recognizer = Recognizer(**{"threshold": 0.5, "cosine_weight": 0.0} | settings)
    for number, own in enumerate(people):
        recognizer.enroll(f"person {number}", own[:n_samples])
    return recognizer


def test_vectors_are_recognised():
    people = vectors()
    recognizer = enrolled(people)
    assert recognizer.subjects() == [f"person {n}" for n in range(6)]
    assert recognizer.n_samples == 18
    for number, own in enumerate(people):
        found = recognizer.identify(own[3], top=3)
        assert found.decision == "match"
        assert found.subject == f"person {number}"
        assert [c.score for c in found.candidates] == sorted(
            (c.score for c in found.candidates), reverse=True
        )
        assert len(found.candidates) == 3
        assert found.score == found.candidates[0].score
        assert found.threshold == 0.5
        assert found.model_id == recognizer.model_id
        claim = recognizer.verify(f"person {number}", own[3])
        assert claim.decision == "match"
        assert claim.score == pytest.approx(found.score)
        other = recognizer.verify(f"person {(number + 1) % 6}", own[3])
        assert other.decision == "no match"


def test_strangers_are_unknown():
    recognizer = enrolled(vectors())
    strangers = vectors(n_people=30, n_samples=1, seed=9)[:, 0]
    found = recognizer.identify_many(strangers, threshold=5.0)
    unknown = [answer for answer in found if answer.decision == "unknown"]
    assert len(unknown) > 25
    assert all(answer.subject is None for answer in unknown)
    assert all(len(answer.candidates) == 5 for answer in unknown)


def test_batches_give_the_same_results_as_single_samples():
    people = vectors()
    recognizer = enrolled(people)
    probes = people[:, 3]
    many = recognizer.identify_many(probes)
    for answer, probe in zip(many, probes, strict=True):
        assert answer.subject == recognizer.identify(probe).subject
        assert answer.score == pytest.approx(recognizer.identify(probe).score, abs=1e-9)
    names = recognizer.subjects()
    verified = recognizer.verify_many(names[::-1], probes)
    for name, answer, probe in zip(names[::-1], verified, probes, strict=True):
        assert answer.subject == name
        assert answer.score == pytest.approx(recognizer.verify(name, probe).score)
    together = Recognizer(threshold=0.5, cosine_weight=0.0)
    together.enroll_many(people[:, :3].reshape(18, -1), np.repeat(names, 3).tolist())
    np.testing.assert_allclose(together.scores(probes), recognizer.scores(probes))
    assert together.model_id == recognizer.model_id


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_used(method):
    people = make_people(n_images=4, noise=0.1)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    images = people.images.reshape(6, 4, 8, 8)
    for subject, own in zip(people.subjects.tolist(), images, strict=True):
        recognizer.enroll(subject, own[:3])
    found = recognizer.identify_many(images[:, 3])
    right = [
        f.candidates[0].subject == s
        for f, s in zip(found, people.subjects, strict=True)
    ]
    assert sum(right) >= 3


def test_two_subjects_and_single_samples():
    people = vectors(n_people=2, noise=0.1)
    recognizer = enrolled(people, n_samples=1)
    assert recognizer.identify(people[1, 2]).candidates[0].subject == "person 1"
    assert recognizer.scores(people[:, 2]).shape == (2, 2)


def test_fewer_than_two_subjects_is_an_error():
    recognizer = Recognizer(threshold=0.0)
    with pytest.raises(RecognitionError, match="Nobody is enrolled"):
        recognizer.identify(np.ones(3))
    recognizer.enroll("Ann", np.ones(3))
    with pytest.raises(RecognitionError, match=r"at least two subjects, or.* 1 is"):
        recognizer.identify(np.ones(3))


def test_a_removed_subject_is_gone():
    people = vectors()
    recognizer = enrolled(people)
    recognizer.identify(people[0, 3])
    recognizer.remove("person 2")
    assert "person 2" not in recognizer.subjects()
    with pytest.raises(UnknownSubjectError, match="'person 2' is not enrolled; 5"):
        recognizer.verify("person 2", people[2, 3])
    with pytest.raises(UnknownSubjectError):
        recognizer.remove("person 2")
    fresh = enrolled(vectors())
    fresh.remove("person 2")
    np.testing.assert_array_equal(
        recognizer.scores(people[:, 3]), fresh.scores(people[:, 3])
    )
    for subject in recognizer.subjects():
        recognizer.remove(subject)
    # An empty recogniser may begin with another kind.
    recognizer.enroll("Ann", np.zeros((32, 32), dtype=np.uint8))


def test_samples_of_a_removed_subject_are_overwritten():
    recognizer = enrolled(vectors())
    kept = recognizer._gallery["person 1"]
    assert kept.any()
    recognizer.remove("person 1")
    assert not kept.any()


class Enrolment(RuleBasedStateMachine):
    """Any sequence of enrolments and removals leaves what a fresh fit gives."""

    people = vectors(n_people=12, n_samples=6)
    probes = vectors(n_people=4, n_samples=1, seed=5)[:, 0]

    def __init__(self):
        super().__init__()
        self.recognizer = Recognizer(threshold=0.0)
        self.present = {}

    @rule(who=st.integers(0, 11), samples=st.sets(st.integers(0, 5), min_size=1))
    def enroll(self, who, samples):
        rows = self.people[who][sorted(samples)]
        self.recognizer.enroll(f"{who}", rows)
        self.present.setdefault(f"{who}", []).append(rows)

    @precondition(lambda self: self.present)
    @rule(choice=st.integers(0, 11))
    def remove(self, choice):
        subject = sorted(self.present)[choice % len(self.present)]
        self.recognizer.remove(subject)
        del self.present[subject]

    @precondition(lambda self: len(self.present) >= 2)
    @rule()
    def fit(self):
        self.recognizer.fit()

    @invariant()
    def equals_a_fresh_fit(self):
        assert self.recognizer.subjects() == sorted(self.present)
        if len(self.present) < 2:
            return
        fresh = Recognizer(threshold=0.0)
        for subject, parts in self.present.items():
            fresh.enroll(subject, np.concatenate(parts))
        np.testing.assert_allclose(
            self.recognizer.scores(self.probes), fresh.scores(self.probes), atol=1e-6
        )
        assert self.recognizer.model_id == fresh.model_id


Enrolment.TestCase.settings = settings(
    max_examples=5, stateful_step_count=40, deadline=None
)
test_enrolment_and_removal_are_exact = Enrolment.TestCase


def test_after_two_hundred_changes_the_model_equals_a_fresh_fit(tmp_path):
    people = vectors(n_people=30, n_samples=4)
    rng = np.random.default_rng(3)
    recognizer, present = Recognizer(threshold=0.0), {}
    for step in range(200):
        who = int(rng.integers(30))
        if f"{who}" in present and rng.random() < 0.6:
            recognizer.remove(f"{who}")
            del present[f"{who}"]
        else:
            rows = people[who, : rng.integers(1, 5)]
            recognizer.enroll(f"{who}", rows)
            present.setdefault(f"{who}", []).append(rows)
        if step % 10 == 9 and len(present) > 1:
            recognizer.fit()
    fresh = Recognizer(threshold=0.0)
    for subject, parts in present.items():
        fresh.enroll(subject, np.concatenate(parts))
    probes = vectors(n_people=20, n_samples=1, seed=4)[:, 0]
    np.testing.assert_allclose(
        recognizer.scores(probes), fresh.scores(probes), atol=1e-6
    )
    recognizer.save(tmp_path / "after.dualqml")
    fresh.save(tmp_path / "fresh.dualqml")
    after, never = (
        (tmp_path / f"{n}.dualqml").read_bytes() for n in ("after", "fresh")
    )
    assert after == never


def test_templates_work_with_their_own_model_only():
    people = vectors()
    recognizer = enrolled(people)
    template = recognizer.template(people[2, 3])
    assert template.model_id == recognizer.model_id
    assert recognizer.identify(template).subject == "person 2"
    direct = recognizer.verify("person 2", people[2, 3])
    assert recognizer.verify("person 2", template) == direct
    assert len(recognizer.identify_many([template, template])) == 2
    with pytest.raises(RecognitionError, match="cannot be mixed"):
        recognizer.identify_many([template, people[2, 3]])
    recognizer.enroll("person 2", people[2, 3])
    with pytest.raises(RecognitionError, match="make it again"):
        recognizer.identify(template)
    other = enrolled(people, lam=0.5)
    with pytest.raises(RecognitionError, match="this is model"):
        other.verify("person 2", template)


def test_images_of_any_kind(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    people = make_people(n_images=3, size=32)
    images = people.images.reshape(6, 3, 32, 32)
    recognizer = Recognizer(threshold=0.0)
    for number, own in enumerate(images):
        recognizer.enroll(f"{number}", own[:2])
    path = tmp_path / "probe.png"
    image_module.fromarray(images[4, 2]).save(path)
    expected = recognizer.identify(images[4, 2])
    assert expected.candidates[0].subject == "4"
    for same in (path, str(path), image_module.open(path), images[4, 2] / 255.0):
        found = recognizer.identify(same)
        assert found.score == pytest.approx(expected.score, abs=1e-9)
    mixed = recognizer.identify_many([path, image_module.open(path)])
    assert [f.subject for f in mixed] == [expected.subject] * 2


def test_an_embedding_can_be_plugged_in():
    people = make_people(n_images=3)
    images = people.images.reshape(6, 3, 8, 8)
    seen = []

    def embed(batch):
        seen.append(len(batch))
        return np.array([np.asarray(image, dtype=float).ravel() for image in batch])

    recognizer = Recognizer(threshold=0.0, embedding=embed)
    for number, own in enumerate(images):
        recognizer.enroll(f"{number}", own[:2])
    assert recognizer.identify(images[3, 2]).candidates[0].subject == "3"
    assert seen == [2] * 6 + [1]


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("", "not blank"),
        ("  ", "not blank"),
        ("a\nb", "printable"),
        (7, "named by text"),
    ],
)
def test_invalid_names_are_refused(subject, message):
    recognizer = Recognizer()
    with pytest.raises(RecognitionError, match=message):
        recognizer.enroll(subject, np.ones(3))
    with pytest.raises(RecognitionError, match="200 characters"):
        recognizer.enroll("x" * 201, np.ones(3))
    assert recognizer.subjects() == []


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(3), "vector of zeros"),
        (np.array([1.0, np.nan, 0.0]), "not finite"),
        (np.ones((2, 3, 4, 5)), r"got \(2, 3, 4, 5\)"),
        (np.empty((0, 3)), "no sample"),
        (np.ones(4), "have 3 values, not 4"),
        (["a.png", np.ones((4, 4))], "a.png"),
        (np.full((2, 9, 9), 300), "whole numbers from 0 to 255"),
        (np.array(["x"]), "must be numbers"),
    ],
)
def test_invalid_samples_are_refused(samples, message):
    recognizer = Recognizer()
    recognizer.enroll("Ann", np.ones(3))
    with pytest.raises((RecognitionError, ValueError), match=message):
        recognizer.enroll("Bob", samples)
    assert recognizer.subjects() == ["Ann"]


def test_kinds_are_not_mixed():
    recognizer = enrolled(vectors())
    with pytest.raises(RecognitionError, match="knows vectors, and was given images"):
        recognizer.identify(np.zeros((2, 8, 8), dtype=np.uint8))


def test_decisions_need_a_threshold():
    recognizer = enrolled(vectors(), threshold=None)
    for ask in (
        lambda: recognizer.identify(np.ones(40)),
        lambda: recognizer.verify("person 1", np.ones(40)),
    ):
        with pytest.raises(NoThresholdError, match="calibrate"):
            ask()
    assert recognizer.scores(np.ones(40)).shape == (1, 6)
    assert recognizer.identify(np.ones(40), threshold=100.0).decision == "unknown"
    recognizer.set_threshold(-100.0)
    assert recognizer.identify(np.ones(40)).decision == "match"
    assert recognizer.calibration.kind == "given"
    with pytest.raises(RecognitionError, match="finite"):
        recognizer.set_threshold(np.nan)


def test_wrong_arguments_raise_errors():
    with pytest.raises(RecognitionError, match="'PCA' is not a method"):
        Recognizer("PCA")
    recognizer = enrolled(vectors())
    with pytest.raises(RecognitionError, match="One sample was expected, got 3"):
        recognizer.identify(vectors()[0, :3])
    with pytest.raises(RecognitionError, match="top must be at least 1"):
        recognizer.identify(np.ones(40), top=0)
    with pytest.raises(RecognitionError, match="2 samples need as many subjects"):
        recognizer.verify_many(["person 1"], vectors()[0, :2])
    with pytest.raises(RecognitionError, match="no parameter 'colour'"):
        Recognizer(colour=1)


def test_different_models_have_different_ids():
    people = vectors()
    ids = {
        enrolled(people).model_id,
        enrolled(people, lam=0.3).model_id,
        enrolled(people, cosine_weight=0.5).model_id,
        enrolled(people[:5]).model_id,
        enrolled(people, n_samples=2).model_id,
        enrolled(people, method="LDA").model_id,
    }
    assert len(ids) == 6


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("n_people", [2, 3, 5, 12, 40])
def test_small_galleries_are_not_sure_of_strangers(n_people, n_samples):
    """Without many people, little is known about strangers."""
    strangers, own = [], []
    for seed in range(3):
        people = vectors(n_people, n_samples + 1, size=100, seed=seed)
        recognizer = Recognizer()
        for number, rows in enumerate(people):
            recognizer.enroll(f"{number:02d}", rows[:n_samples])
        others = vectors(200, 1, size=100, seed=seed + 10)[:, 0]
        strangers.append(recognizer.scores(others).ravel())
        own.append(np.diag(recognizer.scores(people[:, -1])))
    strangers, own = np.concatenate(strangers), np.concatenate(own)
    assert own.min() > 0.0
    # Of many scores of strangers, a share of exp(-s) may be above s, not more.
    for score in (2.0, 4.0, 8.0):
        assert (strangers > score).mean() < np.exp(-score) + 0.003


def test_after_a_removal_only_the_threshold_of_a_calibration_stays():
    recognizer = enrolled(vectors(n_people=8))
    calibration = recognizer.calibrate(fpir=0.3)
    assert calibration.model_id == recognizer.model_id
    recognizer.remove("person 3")
    kept = recognizer.calibration
    assert kept.threshold == calibration.threshold
    assert (kept.kind, kept.n_comparisons, kept.missed) == ("given", 0, None)
    assert "calibrate again" in kept.source
    for subject in recognizer.subjects():
        recognizer.remove(subject)
    assert recognizer.calibration is None


def test_samples_are_copies():
    recognizer = enrolled(vectors())
    own = recognizer.samples("person 1")
    recognizer.remove("person 1")
    assert own.any()
    recognizer.enroll("renamed", own)
    assert recognizer.identify(vectors()[1, 3]).subject == "renamed"


def test_colour_and_grey_images_of_all_layouts():
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (4, 3, 20, 16), dtype=np.uint8)
    colour = np.repeat(grey[..., None], 3, axis=-1)
    recognizer = Recognizer(threshold=0.0)
    for number, own in enumerate(colour):
        recognizer.enroll(f"{number}", own[:2])
    assert recognizer.n_samples == 8
    recognizer.enroll("4", colour[0, 2])
    assert recognizer.n_samples == 9
    plain = recognizer.scores(grey[1, 2])
    for same in (colour[1, 2], grey[1, 2] / 255.0, grey[1, 2].astype(np.int64)):
        np.testing.assert_allclose(recognizer.scores(same), plain, atol=1e-9)
    for wrong, message in [
        (rng.random((1, 128)), "at least 8 x 8"),
        (255.0 * rng.random((20, 16)), "real numbers from 0 to 1"),
        (np.empty((0, 20, 16)), "no sample"),
    ]:
        with pytest.raises(RecognitionError, match=message):
            recognizer.identify_many(wrong)


def test_pillow_images_are_read_like_files(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    recognizer = Recognizer(threshold=0.0)
    for number in range(3):
        recognizer.enroll(
            f"{number}", rng.integers(0, 256, (2, 20, 16), dtype=np.uint8)
        )
    deep = image_module.fromarray(rng.integers(0, 65536, (20, 16), dtype=np.uint16))
    clear = image_module.fromarray(rng.integers(0, 256, (20, 16, 4), dtype=np.uint8))
    for image in (deep, clear):
        path = tmp_path / "probe.png"
        image.save(path)
        np.testing.assert_array_equal(
            recognizer.scores(path), recognizer.scores(image_module.open(path))
        )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda batch: np.ones(8), r"shape \(8,\) for 2 images"),
        (lambda batch: np.ones((8, 2)), r"shape \(8, 2\) for 2 images"),
        (lambda batch: [["a"]] * len(batch), "must be numbers"),
    ],
)
def test_invalid_embeddings_are_refused(output, message):
    recognizer = Recognizer(embedding=output)
    with pytest.raises(RecognitionError, match=message):
        recognizer.enroll("Ann", np.zeros((2, 8, 8), dtype=np.uint8))
    with pytest.raises(RecognitionError, match="no sample"):
        recognizer.enroll("Ann", [])
    assert recognizer.inputs is None


def test_a_failed_enrolment_changes_nothing():
    recognizer = Recognizer()
    with pytest.raises(RecognitionError):
        recognizer.enroll_many(np.ones((2, 3)), ["a", ""])
    with pytest.raises(RecognitionError):
        recognizer.enroll_many(np.ones((2, 3)), ["a"])
    assert recognizer.inputs is None
    recognizer.enroll("a", np.zeros((32, 32), dtype=np.uint8))


def test_vectors_of_another_length_raise_a_recognition_error():
    with pytest.raises(RecognitionError, match="have 40 values, not 7"):
        enrolled(vectors()).identify(np.ones(7))


@pytest.mark.parametrize("size", [32, (32,), (0, 3), (8.5, 8)])
def test_invalid_sizes_are_refused(size):
    with pytest.raises(RecognitionError, match="height and a width"):
        Recognizer(size=size)


def test_parameters_may_be_numpy_scalars():
    plain, same = (enrolled(vectors(), rho=rho) for rho in (0.5, np.float64(0.5)))
    assert plain.model_id == same.model_id


def test_two_subjects_need_a_score_for_each():
    recognizer = enrolled(vectors(n_people=2), method="LDA")
    with pytest.raises(RecognitionError, match="enrol a third"):
        recognizer.identify(vectors()[0, 3])


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_two_subjects_have_two_scores(rule):
    people = vectors(n_people=2)
    recognizer = enrolled(people, rule=rule)
    scores = recognizer.scores(people[:, 3])
    assert scores.shape == (2, 2)
    assert scores.argmax(axis=1).tolist() == [0, 1]


def test_labels_of_a_calibration_are_names():
    recognizer = enrolled(vectors())
    with pytest.raises(RecognitionError, match="named by text"):
        recognizer.calibrate(vectors()[:, 3], list(range(6)), fpir=0.1)
