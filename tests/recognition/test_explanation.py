"""Why an answer was given."""

import json
import math

import numpy as np
import pytest

from dualqml.data import load_orl
from dualqml.exceptions import NoThresholdError, RecognitionError
from dualqml.extractors import Background
from dualqml.extractors.methods import METHODS
from dualqml.recognition import Recognizer
from tests.people import make_people, make_vectors
from tests.recognition.test_recognizer import enrolled, vectors

OTHERS = Background.from_samples(*make_vectors(40, 3, size=40, noise=0.4, seed=5))


def check_sums(recognizer, probes):
    """The parts add up to the score, of the first two candidates."""
    found = recognizer.explain_many(probes)
    scores = recognizer.scores(probes)
    for explained, row in zip(found, scores, strict=True):
        total = sum(part.value for part in explained.parts)
        assert total == pytest.approx(explained.identification.score, abs=1e-9)
        assert total == pytest.approx(row.max(), abs=1e-9)
        if row.size > 1:
            second = sum(part.runner_up for part in explained.parts)
            assert second == pytest.approx(np.sort(row)[-2], abs=1e-9)
            assert explained.runner_up.score == pytest.approx(second, abs=1e-9)
            assert explained.gap == pytest.approx(total - second, abs=1e-9)
        assert explained.margin == pytest.approx(
            total - explained.identification.threshold
        )
    return found


@pytest.mark.parametrize("weight", [None, 0.0, 0.7])
def test_parts_of_vectors(weight):
    people = vectors()
    recognizer = enrolled(people, cosine_weight=weight, threshold=1.5)
    found = check_sums(recognizer, people[:, 3])
    names = [part.name for part in found[0].parts]
    cosine = (
        ["cosine to the mean"] if recognizer.chosen_parameters["cosine_weight"] else []
    )
    assert names == ["quadratic form", *cosine, "constant"]
    # The cosine part is what the formula says.
    matcher = recognizer._matcher
    if cosine:
        units = people[2, 3] / np.linalg.norm(people[2, 3])
        standard = (
            units @ matcher.means[2] - matcher.cosine_mean
        ) / matcher.cosine_spread
        value = matcher.slope / matcher.scale * matcher.cosine_weight * standard
        assert found[2].parts[1].value == pytest.approx(value, rel=1e-5)
    constant = matcher.offset - matcher.slope * matcher.mean / matcher.scale
    assert found[0].parts[-1].value == pytest.approx(constant)
    assert [e.identification for e in found] == recognizer.identify_many(people[:, 3])


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_all_methods(method):
    people = make_people(n_images=4)
    images = people.images.reshape(6, 4, 8, 8)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0, cosine_weight=0.3)
    for number, own in enumerate(images):
        recognizer.enroll(f"{number}", own[:3])
    found = check_sums(recognizer, images[:, 3])
    first = "quadratic form" if method == "DualQML-W" else method
    assert [part.name for part in found[0].parts][:2] == [first, "cosine to the mean"]
    assert (found[0].times is None) == (method != "DualQML-W")
    assert ("likely than needed" in found[0].in_words()) == (method == "DualQML-W")


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_parts_of_both_rules(rule):
    recognizer = enrolled(vectors(), rule=rule, cosine_weight=0.5)
    check_sums(recognizer, vectors()[:, 3])


def test_parts_of_photographs():
    faces = load_orl()
    images = faces.images.reshape(40, 10, *faces.images.shape[1:])[:8]
    recognizer = Recognizer(threshold=0.0)
    for number, own in enumerate(images):
        names = [f"{number}/{k}.png" for k in range(5)]
        recognizer.enroll(f"{number}", own[:5], names=names)
    found = check_sums(recognizer, images[:, 5])
    for number, explained in enumerate(found):
        assert explained.nearest.subject == f"{number}"
        assert explained.nearest.name == f"{number}/{explained.nearest.index}.png"
    # An enrolled image is nearest to itself.
    same = recognizer.explain(images[3, 2]).nearest
    assert (same.subject, same.index) == ("3", 2)
    assert same.cosine == pytest.approx(1.0)


def test_one_person_with_a_background():
    recognizer = Recognizer(threshold=0.0, background=OTHERS)
    recognizer.enroll("Ann", vectors()[0, :2])
    found = check_sums(recognizer, vectors()[0, 3:])[0]
    assert found.runner_up is None
    assert found.gap is None
    assert all(part.runner_up is None for part in found.parts)
    assert found.nearest_of_all is None
    assert "Next is" not in found.in_words()


def test_nearest_samples_have_the_largest_cosines():
    people = vectors(noise=1.5)
    recognizer = enrolled(people, cosine_weight=0.3)
    units = people / np.linalg.norm(people, axis=2, keepdims=True)
    others = 0
    for probe, unit in zip(people[:, 3], units[:, 3], strict=True):
        found = recognizer.explain(probe, top=1)
        assert len(found.identification.candidates) == 1
        assert found.runner_up == recognizer.identify(probe).candidates[1]
        cosines = units[:, :3] @ unit
        best = int(found.identification.candidates[0].subject[-1])
        assert found.nearest.subject == f"person {best}"
        assert found.nearest.index == cosines[best].argmax()
        assert found.nearest.cosine == pytest.approx(cosines[best].max(), abs=1e-6)
        who = int(cosines.max(axis=1).argmax())
        if who == best:
            assert found.nearest_of_all is None
        else:
            others += 1
            assert found.nearest_of_all.subject == f"person {who}"
            assert found.nearest_of_all.index == cosines[who].argmax()
            assert f"A sample of person {who} is nearer" in found.in_words()
    assert others > 0


def test_margins_in_words():
    recognizer = enrolled(vectors())
    probe = vectors()[1, 3]
    score = recognizer.scores(probe).max()
    for margin, words in [
        (math.log(20.0), "20 times more likely"),
        (-math.log(20.0), "20 times less likely"),
        (math.log(2.5), "2.5 times more likely"),
        (30.0, "10^13 times more likely"),
        (0.0, "1.0 times more likely"),
    ]:
        found = recognizer.explain(probe, threshold=score - margin)
        assert found.margin == pytest.approx(margin, abs=1e-9)
        assert found.times == pytest.approx(math.exp(margin), rel=1e-6)
        assert words in found.in_words()
        above = "above" if found.margin >= 0 else "below"
        assert f"{abs(found.margin):.2f} {above} the threshold" in found.in_words()
    assert recognizer.explain(probe, threshold=score - 1e6).times < math.inf


def test_explanations_are_ready_for_json():
    recognizer = enrolled(vectors())
    found = recognizer.explain(vectors()[1, 3])
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["nearest"]["subject"] == "person 1"
    assert again["identification"]["decision"] == "match"
    assert sum(part["value"] for part in again["parts"]) == pytest.approx(
        again["identification"]["score"]
    )
    assert found.in_words().isprintable()


def test_a_loaded_recogniser_explains_the_same(tmp_path):
    recognizer = enrolled(vectors(), cosine_weight=0.3)
    recognizer.save(tmp_path / "model")
    loaded = Recognizer.load(tmp_path / "model")
    assert loaded.explain(vectors()[1, 3]) == recognizer.explain(vectors()[1, 3])


def test_what_cannot_be_explained():
    recognizer = enrolled(vectors())
    template = recognizer.template(vectors()[1, 3])
    for wrong in (template, [template]):
        with pytest.raises(RecognitionError, match="cannot be explained"):
            recognizer.explain_many(wrong)
    with pytest.raises(RecognitionError, match="One sample was expected"):
        recognizer.explain(vectors()[:, 3])
    with pytest.raises(RecognitionError, match="top must be at least 1"):
        recognizer.explain(vectors()[0, 3], top=0)
    with pytest.raises(NoThresholdError):
        enrolled(vectors(), threshold=None).explain(vectors()[0, 3])
