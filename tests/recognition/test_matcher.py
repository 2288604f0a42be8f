import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml._linalg import class_means, unit_rows
from dualqml.extractors import DualQMLW
from dualqml.extractors.open_set_search import CosineScale
from dualqml.recognition import Recognizer
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.matcher import SCALE_FIELDS, Matcher, SampleCache


@settings(max_examples=60, deadline=None)
@given(
    n_classes=st.integers(2, 60),
    n_features=st.integers(1, 12),
    bounded=st.booleans(),
    seed=st.integers(0, 10_000),
    offset=st.sampled_from([0.0, 3.0]),
)
def test_cosines_of_others_are_those_of_all_pairs(
    n_classes, n_features, bounded, seed, offset
):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), rng.integers(1, 4, size=n_classes))
    rng.shuffle(codes)
    units = unit_rows(offset + rng.normal(size=(codes.size, n_features)))
    means = unit_rows(class_means(units, codes)[0])
    cosines = [
        units[i] @ means[c]
        for i in range(codes.size)
        for c in range(n_classes)
        if c != codes[i]
    ]
    found = CosineScale.fitted(units, means, codes, bounded=bounded)
    assert found.mean == pytest.approx(np.mean(cosines), abs=1e-12)
    spread = np.std(cosines)
    if bounded and n_classes < 50:
        # Few people show too little of it: at least that of any directions.
        spread = max(spread, (1.0 - np.mean(cosines)) / np.sqrt(n_features))
    if spread > 2e-6:
        assert found.spread == pytest.approx(spread, abs=1e-7)
        expected = (cosines[0] - np.mean(cosines)) / spread
        assert found(np.array(cosines))[0] == pytest.approx(expected, abs=1e-3)
    elif spread < 5e-7:
        assert found.spread == 1.0


def test_the_spread_of_one_cosine_is_not_used():
    units = unit_rows(np.random.default_rng(0).normal(size=(2, 50)))
    found = CosineScale.fitted(units, units, np.arange(2))
    assert found.mean == pytest.approx(units[0] @ units[1])
    assert found.spread == pytest.approx((1.0 - found.mean) / np.sqrt(50))
    plain = CosineScale.fitted(units, units, np.arange(2), bounded=False)
    assert plain.spread == 1.0
    # Equal samples have no spread at all.
    assert CosineScale.fitted(units[[0, 0]], units[[0, 0]], np.arange(2)).spread == 1.0


@pytest.mark.parametrize("shape", [None, (8, 8)])
@pytest.mark.parametrize("method", ["DualQML-W", "LDA"])
@pytest.mark.parametrize("each", [3, 30])
def test_a_fit_to_a_part_equals_a_fit_to_a_gallery_of_that_part(shape, method, each):
    # With 30 samples each there are more samples than features.
    rng = np.random.default_rng(each)
    rows = rng.normal(size=(5, 1, 64)) + rng.normal(size=(5, each, 64))
    whole, part = Gallery(), Gallery()
    kept = {}
    for number, own in enumerate(rows):
        whole.add(f"s{number}", own)
        if number != 2:
            kept[f"s{number}"] = np.delete(np.arange(each), number % each)
            part.add(f"s{number}", own[kept[f"s{number}"]])
    matcher = Matcher(method, shape, None, {})
    cache = SampleCache()
    matcher.fit(whole, cache)
    before = matcher.scores(rows[2])
    # Nothing is chosen again, and scores keep their meaning.
    fresh = Matcher(method, shape, matcher.cosine_weight, matcher.parameters)
    fresh.fit(part, SampleCache())
    for name in SCALE_FIELDS:
        setattr(fresh, name, getattr(matcher, name))
    found = matcher.fitted_to_part(whole, kept, cache)
    assert found.subjects == fresh.subjects == list(part)
    np.testing.assert_allclose(found.scores(rows[2]), fresh.scores(rows[2]), atol=1e-6)
    np.testing.assert_array_equal(matcher.scores(rows[2]), before)


def test_the_cache_deletes_all_results_of_a_subject():
    rng = np.random.default_rng(0)
    recognizer = Recognizer(kernel="rbf")
    for number in range(6):
        recognizer.enroll(f"s{number}", rng.normal(size=(2, 40)))
    recognizer.fit()
    cache = recognizer._cache
    known = [len(members) for members in cache._products._members.values()]
    assert sum(known) == len(cache._prepared) == 6
    samples = cache._prepared["s3"]
    recognizer.remove("s3")
    assert "s3" not in cache._prepared
    assert all("s3" not in own for own in cache._products._members.values())
    assert not samples.inputs.any()
    assert recognizer._matcher is None


def test_samples_of_many_subjects_may_come_in_any_order():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 9))
    names = [f"s{number % 4}" for number in range(12)]
    together, apart = Recognizer(), Recognizer()
    together.enroll_many(rows, names)
    for number in range(4):
        apart.enroll(f"s{number}", rows[number::4])
    assert together.model_id == apart.model_id


@pytest.mark.parametrize("offset", [30.0, 1e4, 1e5])
def test_samples_that_are_nearly_equal_keep_their_digits(offset):
    rng = np.random.default_rng(0)
    spread = np.logspace(0, -3, 64)
    people = rng.normal(size=(10, 1, 64)) + 0.5 * rng.normal(size=(10, 3, 64))
    rows = (offset + people * spread).reshape(30, 64)
    parameters = {"kernel": "linear", "rule": "max", "rho": 0.1, "lam": 0.1}
    gallery = Gallery()
    for number in range(10):
        gallery.add(f"s{number}", rows[3 * number : 3 * number + 3])
    matcher = Matcher("DualQML-W", None, 0.0, parameters)
    matcher.fit(gallery, SampleCache())
    plain = DualQMLW(**parameters).fit(rows, gallery.codes)
    new = offset + rng.normal(size=(5, 64)) * spread
    standard = (matcher.scores(new) - matcher.offset) / matcher.slope
    responses = matcher.spread * (matcher.scale * standard + matcher.mean)
    np.testing.assert_allclose(responses, plain.transform(new), atol=1e-6)
