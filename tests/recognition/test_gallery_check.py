"""Faults that are planted in galleries are found, and clean galleries have none."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.extractors.methods import METHODS
from dualqml.recognition import Recognizer, SampleScore, check_gallery
from dualqml.recognition.gallery_check import _Check
from dualqml.recognition.matcher import SCALE_FIELDS
from tests.datasets import load_samples
from tests.people import make_people, make_vectors

SIZE = 60
OTHERS = Background.from_samples(*make_vectors(40, 3, size=SIZE, noise=0.6, seed=5))


def people_of(n_people, n_samples, *, seed=0, noise=0.6):
    rows, _ = make_vectors(n_people, n_samples, size=SIZE, noise=noise, seed=seed)
    return rows.reshape(n_people, n_samples, SIZE)


def gallery_of(people, **options):
    recognizer = Recognizer(**options)
    for number, own in enumerate(people):
        names = [f"{number:02d}/{k}" for k in range(len(own))]
        recognizer.enroll(f"{number:02d}", own, names=names)
    return recognizer


def kinds(check):
    return Counter(finding.kind for finding in check.findings)


@pytest.mark.parametrize("n_people", [3, 6, 12, 30])
@pytest.mark.parametrize("n_samples", [2, 3, 5])
def test_clean_galleries_have_no_findings(n_people, n_samples):
    for seed in range(2):
        check = check_gallery(gallery_of(people_of(n_people, n_samples, seed=seed)))
        assert check.findings == ()
        assert check.not_checked == ()
        assert check.n_checked == check.n_samples == n_people * n_samples
        assert check.n_pairs == n_people * (n_people - 1) // 2
        assert check.typical > check.own_limit == 0.0
        assert check.other_limit == pytest.approx(math.log(n_people - 1))


def test_planted_faults_are_all_found_and_nothing_else():
    centres = np.random.default_rng(3).normal(size=(15, SIZE))
    rng = np.random.default_rng(4)
    rows = centres[:, None] + 0.6 * rng.normal(size=(15, 7, SIZE))
    people = [list(own[:4]) for own in rows[:14]]
    people[0][1], people[1][2] = people[1][2], people[0][1]
    people[4][3] = rows[14, 0]
    recognizer = gallery_of(people)
    recognizer.enroll("06 again", rows[6, 4:])
    recognizer.enroll("single", rng.normal(size=SIZE), names=["alone.jpg"])
    before = recognizer.model_id
    steps = []
    check = check_gallery(recognizer, progress=lambda *at: steps.append(at))
    assert [
        (f.kind, f.subject, f.index) for f in check.findings if f.index is None
    ] == [
        ("same person", "06", None),
        ("few samples", "single", None),
    ]
    wrong = {
        (f.kind, f.subject, f.index) for f in check.findings if f.index is not None
    }
    assert wrong == {
        ("fits another", "00", 1),
        ("fits another", "01", 2),
        ("outlier", "04", 3),
    }
    found = {(f.subject, f.index): f for f in check.findings}
    twins = found["06", None]
    assert twins.other == "06 again"
    mean = (twins.score + twins.other_score) / 2
    assert mean >= twins.limit == check.other_limit
    assert twins.severity == mean - twins.limit
    swapped = found["00", 1]
    assert (swapped.name, swapped.other) == ("00/1", "01")
    assert swapped.other_score > swapped.score
    assert swapped.severity == swapped.other_score - swapped.score
    units = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    near = [0, 1, 3]
    cosines = units[1, near] @ units[1, 2]
    assert swapped.nearest.subject == "01"
    assert swapped.nearest.index == near[cosines.argmax()]
    assert swapped.nearest.name == f"01/{swapped.nearest.index}"
    assert swapped.nearest.cosine == pytest.approx(cosines.max(), abs=1e-6)
    outlier = found["04", 3]
    assert outlier.score < outlier.limit == 0.0 < outlier.typical == check.typical
    assert (outlier.n_samples, outlier.name) == (4, "04/3")
    assert found["single", None].n_samples == 1
    # The order of kinds, and the same at every call.
    assert list(kinds(check)) == [
        "same person",
        "fits another",
        "outlier",
        "few samples",
    ]
    assert check_gallery(recognizer) == check
    assert recognizer.model_id == before == check.model_id
    done, total = zip(*steps, strict=True)
    assert done == tuple(range(1, len(steps) + 1))
    assert done[-1] == total[-1]
    words = [finding.in_words() for finding in check.findings]
    assert all(text.isprintable() and "None" not in text for text in words)
    assert "06 and 06 again may be one person" in words[0]
    assert "00/1 of 00 fits 01 better" in " ".join(words)
    assert "04/3 of 04 does not fit the 3 other samples" in " ".join(words)
    again = json.loads(json.dumps(check.as_dict(), allow_nan=False))
    assert len(again["findings"]) == 5


def test_a_person_under_two_names_does_not_make_its_photographs_wrong():
    """Each of its samples fits the other name as well as its own."""
    people = people_of(6, 6, seed=2)
    recognizer = gallery_of(people[:, :3])
    recognizer.enroll("02 again", people[2, 3:])
    check = check_gallery(recognizer)
    assert [(f.kind, f.subject, f.other) for f in check.findings] == [
        ("same person", "02", "02 again")
    ]


def test_a_calibrated_threshold_hides_nothing():
    """A person under two names raises the threshold of a calibration on the gallery."""
    people = people_of(8, 6, seed=2)
    recognizer = gallery_of(people[:, :3])
    recognizer.enroll("02 again", people[2, 3:])
    plain = check_gallery(recognizer)
    recognizer.set_threshold(30.0)
    assert check_gallery(recognizer) == plain
    assert kinds(plain) == {"same person": 1}
    # A low one accepts more samples.
    recognizer.set_threshold(-3.0)
    assert check_gallery(recognizer).own_limit == -3.0


def test_one_wrong_sample_of_three_does_not_spoil_the_others():
    for seed in range(3):
        people = people_of(10, 3, seed=seed)
        people[3, 0] = people_of(1, 1, seed=60 + seed)[0, 0]
        check = check_gallery(gallery_of(people))
        assert [(f.subject, f.index) for f in check.findings] == [("03", 0)]


@pytest.mark.parametrize("n_samples", [3, 4])
@pytest.mark.parametrize("noise", [0.6, 1.0])
def test_two_swapped_samples_are_the_only_findings(n_samples, noise):
    """The right samples fit less well, and the two people look like one."""
    right = 0
    for seed in range(8):
        people = people_of(10, n_samples, seed=seed, noise=noise)
        people[[3, 4], 0] = people[[4, 3], 0]
        found = check_gallery(gallery_of(people)).findings
        places = {(f.subject, f.index) for f in found}
        right += places == {("03", 0), ("04", 0)}
    # A third of the samples may be too many to tell which are wrong.
    assert right >= (7 if n_samples == 3 else 8)


def test_two_samples_that_do_not_fit_are_one_finding():
    people = people_of(10, 2)
    people[3, 0] = people_of(1, 1, seed=60)[0, 0]
    check = check_gallery(gallery_of(people))
    assert [f.subject for f in check.findings] == ["03"]
    assert "the other sample" in check.findings[0].in_words()


def test_several_wrong_samples_of_a_person_are_all_found():
    people = people_of(10, 8)
    people[3, :2] = people_of(2, 1, seed=60)[:, 0]
    check = check_gallery(gallery_of(people))
    assert sorted((f.subject, f.index) for f in check.findings) == [
        ("03", 0),
        ("03", 1),
    ]
    assert len({f.typical for f in check.findings}) == 1


def test_a_single_sample_is_listed_once():
    check = check_gallery(gallery_of(people_of(5, 1)))
    assert kinds(check) == {"few samples": 5}
    assert (check.n_checked, check.typical) == (0, None)
    assert check.not_checked == ("samples: nobody has two",)
    assert "has 1 sample:" in check.findings[0].in_words()
    two = gallery_of(people_of(5, 2))
    assert check_gallery(two).findings == ()
    three = check_gallery(two, few=3)
    assert kinds(three) == {"few samples": 5}
    assert three.n_checked == 10
    assert check_gallery(gallery_of(people_of(5, 1)), few=0).findings == ()
    with pytest.raises(RecognitionError, match="few must not be negative"):
        check_gallery(two, few=-1)


class TestFewPeople:
    def test_one_person_with_a_background(self):
        people = people_of(1, 4)
        assert check_gallery(gallery_of(people, background=OTHERS)).findings == ()
        people[0, 2] = people_of(1, 1, seed=60)[0, 0]
        check = check_gallery(gallery_of(people, background=OTHERS))
        (found,) = check.findings
        assert (found.kind, found.index, found.other) == ("outlier", 2, None)
        assert check.n_pairs == 0

    def test_two_people(self):
        people = people_of(2, 4)
        people[0, 1], people[1, 1] = people[1, 1].copy(), people[0, 1].copy()
        check = check_gallery(gallery_of(people))
        assert {(f.subject, f.index) for f in check.findings} >= {("00", 1), ("01", 1)}
        assert check.n_pairs == 0
        assert check.not_checked == ("people under two names: 3 subjects are needed",)

    def test_two_names_with_a_background(self):
        rows = people_of(1, 6)[0]
        check = check_gallery(gallery_of([rows[:3], rows[3:]], background=OTHERS))
        assert kinds(check) == {"same person": 1}
        assert check.n_pairs == 1

    def test_nobody(self):
        with pytest.raises(RecognitionError, match="at least two"):
            check_gallery(Recognizer())


@pytest.mark.parametrize("n_people", [2, 3, 9, 10, 11, 12, 16, 17, 37])
def test_any_two_people_are_in_different_groups_once(n_people):
    recognizer = gallery_of(people_of(n_people, 1)).fit()
    check = _Check(
        recognizer._gallery, recognizer._matcher, recognizer._cache,
        own_limit=0.0, other_limit=0.0, least=1, progress=None,
    )  # fmt: skip
    groups = [set(group.tolist()) for group in check._groups_of_people()]
    most = n_people if n_people <= 10 else 2 * math.ceil(math.sqrt(n_people))
    assert len(groups) <= most
    for one in range(n_people):
        for other in range(n_people):
            if one != other:
                assert any(one in g and other not in g for g in groups)


@pytest.mark.parametrize("n_samples", [2, 7, 10, 11, 25])
def test_each_sample_is_held_out_once_and_some_stay(n_samples):
    people = [people_of(1, n, seed=n)[0] for n in (1, 2)]
    people.append(people_of(1, n_samples, seed=99)[0])
    recognizer = gallery_of(people).fit()
    check = _Check(
        recognizer._gallery, recognizer._matcher, recognizer._cache,
        own_limit=0.0, other_limit=0.0, least=2, progress=None,
    )  # fmt: skip
    folds = check._folds()
    assert len(folds) == min(10, max(2, n_samples))
    places = [tuple(place) for fold in folds for place in fold]
    assert sorted(places) == [(c, k) for c in (1, 2) for k in range(len(people[c]))]
    if n_samples <= 10:
        assert all(len({p.column for p in fold}) == len(fold) for fold in folds)
    assert len(check._held_out(folds, {})) == 2 + n_samples


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_find_a_swapped_image(method):
    people = make_people(n_people=6, n_images=5, noise=0.1)
    images = people.images.reshape(6, 5, 8, 8).copy()
    images[[0, 1], 2] = images[[1, 0], 2]
    recognizer = Recognizer(method, size=(8, 8))
    for number, own in enumerate(images):
        recognizer.enroll(f"{number}", own)
    check = check_gallery(recognizer)
    found = {(f.kind, f.subject, f.index) for f in check.findings}
    assert {("fits another", "0", 2), ("fits another", "1", 2)} <= found
    if method == "DualQML-W":
        assert len(found) == 2
        assert check.n_pairs == 15
    else:
        # There is no threshold, and so no limit.
        assert check.own_limit is check.other_limit is None
        assert check.not_checked == ("people under two names: there is no threshold",)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("counts", [(2, 2, 2, 2), (1, 1, 1, 2), (1, 3, 1, 2)])
def test_galleries_of_few_samples_are_checked_as_far_as_possible(
    tmp_path, method, counts
):
    people = make_people(n_people=4, n_images=3, noise=0.1)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    for number, count in enumerate(counts):
        images = people.images.reshape(4, 3, 8, 8)[number, :count]
        recognizer.enroll(f"{number}", images)
    recognizer.save(tmp_path / "model")
    check = check_gallery(recognizer)
    assert kinds(check)["few samples"] == counts.count(1)
    n_repeated = sum(count for count in counts if count > 1)
    assert check.n_checked == n_repeated or any(
        text.startswith("samples: ") for text in check.not_checked
    )
    assert check_gallery(Recognizer.load(tmp_path / "model")) == check


def test_other_methods_use_the_threshold():
    people = people_of(8, 6)
    people[3, 2] = people_of(1, 1, seed=60)[0, 0]
    recognizer = gallery_of(people[:, :3], method="LDA")
    recognizer.enroll("05 again", people[5, 3:])
    own = recognizer.scores(people[:, 4]).max(axis=1)
    strangers = recognizer.scores(people_of(30, 1, seed=9)[:, 0])
    recognizer.set_threshold(float(np.median(own) + strangers.max()) / 2)
    check = check_gallery(recognizer)
    assert check.own_limit == check.other_limit == recognizer.threshold
    found = {(f.kind, f.subject, f.index) for f in check.findings}
    assert ("same person", "05", None) in found
    assert ("outlier", "03", 2) in found


def refitted(recognizer, left_out):
    """A new recogniser without some samples, with the same meaning of scores."""
    chosen = recognizer.chosen_parameters
    fresh = Recognizer(recognizer.method, **chosen)
    for number, subject in enumerate(recognizer.subjects()):
        own = np.delete(recognizer.samples(subject), left_out.get(number, []), axis=0)
        fresh.enroll(subject, own)
    matcher = fresh.fit()._matcher
    if matcher.has_log_ratios:
        for name in SCALE_FIELDS:
            setattr(matcher, name, getattr(recognizer._matcher, name))
    return fresh


class TestOwnScores:
    @pytest.mark.parametrize("method", ["DualQML-W", "LDA"])
    def test_they_are_those_of_models_without_the_samples(self, method):
        people = [people_of(1, n, seed=n)[0] for n in (2, 3, 4)]
        # A wrong sample has the highest score for another subject.
        people[2][1] = people_of(1, 3, seed=3)[0, 0] + 0.01
        recognizer = gallery_of(people, method=method)
        check = check_gallery(recognizer)
        # The first sample of everybody is held out, then the second, and so on.
        expected = {}
        for fold in range(4):
            probes = {n: fold for n, own in enumerate(people) if fold < len(own)}
            fresh = refitted(recognizer, {n: [k] for n, k in probes.items()})
            for number, k in probes.items():
                row = fresh.scores(people[number][k])[0]
                score = row[number]
                if (number, k) == (2, 1):
                    assert row.argmax() == 1
                expected[f"{number:02d}", k, f"{number:02d}/{k}"] = score
        found = {(s.subject, s.index, s.name): s.score for s in check.own_scores}
        assert found == pytest.approx(expected, abs=1e-6)

    def test_one_sample_at_a_time(self):
        """Where one person has several samples, each fold has one of them."""
        people = [*people_of(4, 1, seed=7), people_of(1, 3)[0]]
        recognizer = gallery_of(people)
        check = check_gallery(recognizer, few=0)
        assert sorted(s.index for s in check.own_scores) == [0, 1, 2]
        for sample in check.own_scores:
            fresh = refitted(recognizer, {4: [sample.index]})
            score = fresh.scores(people[4][sample.index])[0, 4]
            assert sample.score == pytest.approx(score, abs=1e-6)

    def test_the_worst_are_first(self):
        people = people_of(10, 4)
        people[3, 2] = people_of(1, 1, seed=60)[0, 0]
        check = check_gallery(gallery_of(people))
        scores = [sample.score for sample in check.own_scores]
        assert scores == sorted(scores)
        assert len(scores) == check.n_checked == 40
        assert np.median(scores) == check.typical
        worst = check.own_scores[0]
        assert (worst.subject, worst.index, worst.name) == ("03", 2, "03/2")
        (finding,) = check.findings
        assert (finding.subject, finding.index) == ("03", 2)
        assert worst.score < check.own_limit < check.own_scores[1].score

    def test_plain_values(self):
        check = check_gallery(gallery_of(people_of(3, 2)))
        again = json.loads(json.dumps(check.as_dict(), allow_nan=False))["own_scores"]
        assert [SampleScore(**record) for record in again] == list(check.own_scores)
        assert len(again) == 6

    def test_samples_that_cannot_be_held_out_have_none(self):
        assert check_gallery(gallery_of(people_of(5, 1))).own_scores == ()
        people = [*people_of(3, 2), people_of(1, 1, seed=7)[0]]
        check = check_gallery(gallery_of(people))
        assert {s.subject for s in check.own_scores} == {"00", "01", "02"}


def real_gallery(name, *, planted, seed=0):
    X, y = load_samples(name)
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.flatnonzero(np.bincount(y) >= 8))[:40]
    rows = {p: rng.permutation(np.flatnonzero(y == p))[:8] for p in people}
    recognizer = Recognizer()
    for number, person in enumerate(people):
        own = rows[person][:4].copy()
        if planted and number in (0, 1):
            own[1] = rows[people[1 - number]][1]
        recognizer.enroll(f"{number:02d}", X[own])
    if planted:
        recognizer.enroll("07 again", X[rows[people[7]][4:]])
    return recognizer


@pytest.mark.realdata("lfw_sface")
@pytest.mark.parametrize("seed", [0, 2])
def test_faults_among_real_people_are_found(seed):
    clean = check_gallery(real_gallery("lfw_sface", planted=False, seed=seed))
    # Some photographs of the database are of other people, or hardly show a face.
    assert set(kinds(clean)) <= {"outlier"}
    assert len(clean.findings) <= 4
    recognizer = real_gallery("lfw_sface", planted=True, seed=seed)
    recognizer.calibrate(fpir=0.1)
    found = check_gallery(recognizer).findings
    swapped = {(f.subject, f.index): f.other for f in found if f.kind == "fits another"}
    assert swapped == {("00", 1): "01", ("01", 1): "00"}
    pairs = [(f.subject, f.other) for f in found if f.kind == "same person"]
    assert pairs == [("07", "07 again")]
