"""Matchers that are fitted in parts, against matchers that see all samples at once."""

from functools import partial

import numpy as np
import pytest

from dualqml.exceptions import MethodError
from dualqml.extractors import Background
from dualqml.extractors.part_sums import count_parts, label_hashes, part_numbers
from dualqml.recognition import Recognizer, gallery_parts
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.gallery_parts import GalleryParts
from dualqml.recognition.matcher import SCALE_FIELDS, Matcher, SampleCache
from dualqml.recognition.matcher_parts import MatcherInParts


def gallery_of(counts, n_features=12, *, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    gallery = Gallery()
    for number, count in enumerate(counts):
        # Two samples of a person must not be opposite: their response would be zero but
        # for rounding, and its sign is a part of the score.
        mean = 2.0 * rng.normal(size=n_features)
        rows = mean + 0.6 * rng.normal(size=(count, n_features)) + 1.0
        gallery.add(f"person {number}", rows.astype(dtype))
    return gallery


def ragged(n_subjects, seed=0):
    return np.random.default_rng(seed).integers(1, 7, size=n_subjects)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of 4 kB instead of 64 MB."""
    monkeypatch.setattr(
        gallery_parts, "count_parts", partial(count_parts, part_bytes=4_000)
    )


def fitted(gallery, *, parts=None, background=None, **parameters):
    weight = parameters.pop("cosine_weight", None)
    matcher = Matcher("DualQML-W", None, weight, parameters, background)
    matcher.fit(gallery, SampleCache() if parts is None else parts)
    return matcher


def background_of(n_people, n_features=12):
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(n_people), 3)
    rows = 1.5 * rng.normal(size=(n_people, n_features))[labels]
    rows += rng.normal(size=(labels.size, n_features)) + 1.0
    return Background.from_samples(rows, labels)


CASES = {
    "ragged": (ragged(70), {}, None),
    "few": (ragged(9), {}, None),
    "two": ([4, 3], {}, None),
    "one sample each": ([1] * 60, {}, None),
    "searched on a part": (ragged(1300), {}, None),
    "given": (ragged(40), {"rho": 1.0, "lam": 0.3, "cosine_weight": 0.5}, None),
    "no cosine": (ragged(40), {"cosine_weight": 0.0}, None),
    "background": (ragged(70), {}, 40),
    "few with a background": (ragged(9), {}, 40),
    "one with a background": ([3], {}, 40),
    "one sample each with a background": ([1] * 60, {}, 40),
    "many with one sample and a background": ([1] * 1100, {}, 40),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_a_usual_fit(case, monkeypatch):
    counts, parameters, n_others = CASES[case]
    gallery = gallery_of(counts)
    background = None if n_others is None else background_of(n_others)
    usual = fitted(gallery, background=background, **parameters)
    # Parts so small that even two subjects are in different ones.
    size = 4_000 if len(counts) > 20 else 96
    monkeypatch.setattr(
        gallery_parts, "count_parts", partial(count_parts, part_bytes=size)
    )
    found = fitted(gallery, background=background, **parameters)
    assert found.parameters.keys() == usual.parameters.keys()
    for name, value in usual.parameters.items():
        same = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
        assert found.parameters[name] == same, name
    for name in (*SCALE_FIELDS, "cosine_weight", "cosine_mean", "cosine_spread"):
        expected = pytest.approx(getattr(usual, name), rel=1e-8, abs=1e-10)
        assert getattr(found, name) == expected, name
    probes = np.random.default_rng(9).normal(size=(20, 12)) + 1.0
    np.testing.assert_allclose(found.scores(probes), usual.scores(probes), atol=1e-8)
    assert found.subjects == usual.subjects
    model, known = found.model.qml_, usual.model.qml_
    np.testing.assert_allclose(model.dual_coef_, known.dual_coef_, atol=1e-6)
    assert (model.status_ == "optimal").all()
    assert np.maximum(model.duality_gap_, model.violation_).max() <= 1e-6
    # What is saved of both has the same types and shapes.
    assert vars(model).keys() == vars(known).keys()
    assert vars(found.model).keys() == vars(usual.model).keys()
    assert found.model.background is None


def bits(matcher):
    model = matcher.model
    arrays = [matcher.means, model.metric_.coefficients_, model.qml_.components_]
    arrays += [model.qml_.mean_responses_, model.qml_.dual_coef_]
    numbers = [getattr(matcher, name) for name in SCALE_FIELDS]
    return [array.tobytes() for array in arrays], numbers, matcher.parameters


@pytest.mark.usefixtures("small_parts")
def test_any_order_of_changes_gives_the_same_bits():
    final = gallery_of(ragged(60))
    names = list(final)
    cache, gallery = SampleCache(), Gallery()
    rng = np.random.default_rng(3)
    for name in rng.permutation(names):
        gallery.add(str(name), final[str(name)])
    fresh = bits(fitted(final))
    assert bits(fitted(gallery, parts=cache)) == fresh
    for round_ in range(4):
        gone = [str(name) for name in rng.choice(names, size=5, replace=False)]
        cache.forget("someone")
        gallery.add("someone", gallery_of([2], seed=round_)["person 0"])
        for name in gone:
            cache.forget(name)
            gallery.remove(name)
        fitted(gallery, parts=cache)
        for name in gone:
            cache.forget(name)
            gallery.add(name, final[name])
        cache.forget("someone")
        gallery.remove("someone")
        assert bits(fitted(gallery, parts=cache)) == fresh


@pytest.mark.usefixtures("small_parts")
def test_sums_of_parts_without_changes_are_used_again(monkeypatch):
    gallery, cache = gallery_of(ragged(60)), SampleCache()
    fitted(gallery, parts=cache)
    n_parts = count_parts(gallery.n_samples, 12, 4_000)
    kept = dict(cache.sums.of_parts(n_parts))
    assert len(kept) == n_parts > 3
    cache.forget("person 7")
    (part,) = part_numbers(label_hashes(np.array(["person 7"])), n_parts)
    # Nothing of the subject is left in what is kept.
    assert set(cache.sums.of_parts(n_parts)) == set(kept) - {int(part)}
    computed = []
    found = GalleryParts._part
    monkeypatch.setattr(
        GalleryParts, "_part", lambda s, p: computed.append(p) or found(s, p)
    )
    people = {name: gallery[name] for name in gallery}
    parts = GalleryParts(people, cache.sums)
    parts.input_sums(MatcherInParts(Matcher("DualQML-W", None, None, {})).recipe)
    assert len(computed) == 1
    # With another number of parts, each has other subjects.
    assert cache.sums.of_parts(n_parts + 1) == {}


def test_a_part_of_the_gallery_is_fitted_with_the_same_parameters(monkeypatch):
    gallery = gallery_of(ragged(60))
    kept = {
        name: np.arange(len(gallery[name]))[-3:]
        for number, name in enumerate(gallery)
        if number % 3
    }
    usual = fitted(gallery)
    expected = usual.fitted_to_part(gallery, kept, SampleCache())
    monkeypatch.setattr(
        gallery_parts, "count_parts", partial(count_parts, part_bytes=4_000)
    )
    found = usual.fitted_to_part(gallery, kept, SampleCache())
    probes = np.random.default_rng(9).normal(size=(20, 12)) + 1.0
    assert found.subjects == expected.subjects
    np.testing.assert_allclose(found.scores(probes), expected.scores(probes), atol=1e-8)


def test_calibrations_are_those_of_a_usual_fit(monkeypatch):
    gallery = gallery_of(ragged(60))
    found = []
    for size in (64_000_000, 4_000):
        monkeypatch.setattr(
            gallery_parts, "count_parts", partial(count_parts, part_bytes=size)
        )
        recognizer = Recognizer()
        for name in gallery:
            recognizer.enroll(name, gallery[name])
        found.append(recognizer.calibrate(fpir=0.1).threshold)
    assert found[1] == pytest.approx(found[0], abs=1e-8)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("method", "shape", "parameters", "text"),
    [
        ("LDA", None, {}, "LDA"),
        ("DualQML-W", None, {"rule": "cosine"}, "rule='max'"),
        ("DualQML-W", None, {"kernel": "rbf"}, "kernel='linear'"),
        ("DualQML-W", (8, 8), {}, "images"),
    ],
)
def test_other_matchers_are_refused(method, shape, parameters, text):
    matcher = Matcher(method, shape, None, parameters)
    with pytest.raises(MethodError, match=text):
        MatcherInParts(matcher)
    # They are fitted as usual, however large the gallery is.
    gallery = gallery_of([3] * 60, n_features=64, dtype=np.float64)
    matcher.fit(gallery, SampleCache())
    assert matcher.subjects == list(gallery)
