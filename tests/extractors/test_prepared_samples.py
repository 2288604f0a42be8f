"""Products of samples that come and go, against plain products."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.extractors import DualQMLW, DualQMLWCV
from dualqml.extractors.prepared_samples import (
    _N_BUCKETS,
    PreparedSamples,
    ProductCache,
    _bucket_of,
    fit_prepared,
    needs_products,
    prepare_samples,
    spread_rows,
)

NAMES = [f"person {number}" for number in range(40)]


def person(name, *, n_motions=2, seed=0):
    """Samples that depend on the name alone."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    size = int(rng.integers(1, 5))
    tangents = rng.normal(size=(n_motions, size, 7)) if n_motions else None
    return PreparedSamples(rng.normal(size=(size, 7)), tangents, 9)


def people(names, **options):
    return {name: person(name, **options) for name in sorted(names)}


@pytest.mark.parametrize("n_motions", [0, 1, 3])
@pytest.mark.parametrize("n_people", [1, 2, 40])
def test_products_are_those_of_all_pairs(n_motions, n_people):
    parts = people(NAMES[:n_people], n_motions=n_motions)
    whole = PreparedSamples.joined(list(parts.values()))
    samples, order = ProductCache().joined(parts)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(order)))
    np.testing.assert_array_equal(samples.inputs, whole.inputs[order])
    assert samples.n_features == 9
    found = samples.known_products
    X = whole.inputs[order]
    np.testing.assert_allclose(found.gram, X @ X.T, atol=1e-13)
    np.testing.assert_array_equal(found.gram, found.gram.T)
    assert found.slopes.shape == (n_motions, len(X), len(X))
    for k in range(n_motions):
        expected = whole.tangents[k, order] @ X.T
        np.testing.assert_allclose(found.slopes[k], expected, atol=1e-13)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(NAMES), st.booleans(), st.booleans()), max_size=25
    )
)
def test_subjects_that_were_removed_leave_no_trace(steps):
    cache, parts = ProductCache(), people(NAMES[:3])
    for name, is_added, is_joined in steps:
        if is_added:
            # A known subject may be added again with other samples.
            parts[name] = person(name, seed=int(name in parts))
        elif len(parts) > 1 and parts.pop(name, None) is not None:
            cache.forget(name)
        parts = dict(sorted(parts.items()))
        if is_joined:
            cache.joined(parts)
    (ours, order), (fresh, expected) = cache.joined(parts), ProductCache().joined(parts)
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(ours.inputs, fresh.inputs)
    ours, fresh = ours.known_products, fresh.known_products
    np.testing.assert_array_equal(ours.gram, fresh.gram)
    np.testing.assert_array_equal(ours.slopes, fresh.slopes)


def test_a_new_subject_changes_one_row_and_one_column_of_blocks():
    cache, parts = ProductCache(), people(NAMES[:-1])
    cache.joined(parts)
    before = dict(cache._blocks)
    assert len(before) == _N_BUCKETS**2
    cache.joined(people(NAMES) | parts)
    changed = [pair for pair in before if cache._blocks[pair] is not before[pair]]
    assert len(changed) == 2 * _N_BUCKETS - 1
    assert all(_bucket_of(NAMES[-1]) in pair for pair in changed)


def test_a_forgotten_subject_is_deleted_at_once():
    cache, parts = ProductCache(), people(NAMES)
    cache.joined(parts)
    cache.forget(NAMES[5])
    bucket = _bucket_of(NAMES[5])
    assert bucket not in cache._members
    assert all(bucket not in pair for pair in cache._blocks)
    assert len(cache._blocks) == (_N_BUCKETS - 1) ** 2


def test_a_subject_that_is_no_longer_given_is_deleted():
    cache, parts = ProductCache(), people(NAMES)
    cache.joined(parts)
    del parts[NAMES[0]]
    cache.joined(parts)
    assert all(NAMES[0] not in members for members in cache._members.values())


def test_a_part_has_the_products_of_its_samples():
    samples, _ = ProductCache().joined(people(NAMES))
    rows = np.array([9, 3, 4, 20])
    part = samples.take(rows)
    np.testing.assert_array_equal(part.inputs, samples.inputs[rows])
    products = part.known_products
    np.testing.assert_allclose(products.gram, part.inputs @ part.inputs.T, atol=1e-13)
    np.testing.assert_array_equal(
        products.slopes, samples.known_products.slopes[:, rows][:, :, rows]
    )


@pytest.mark.parametrize("known", [True, False])
def test_products_with_landmarks_are_a_part_of_all_products(known):
    parts = people(NAMES[:12])
    samples, order = ProductCache().joined(parts)
    X = samples.inputs
    T = PreparedSamples.joined(list(parts.values())).tangents[:, order]
    if not known:
        # Products of deviations from the mean: only differences count.
        samples = PreparedSamples(X, T, 9)
        X = X - X.mean(axis=0)
    landmarks, moving = np.array([1, 4, 5]), np.array([0, 2, 7, 8])
    found = samples.products(landmarks, moving)
    np.testing.assert_allclose(found.gram, X @ X[landmarks].T, atol=1e-13)
    np.testing.assert_allclose(found.squares, np.sum(X * X, axis=1), atol=1e-13)
    expected = T[:, moving] @ X[landmarks].T
    np.testing.assert_allclose(found.slopes, expected, atol=1e-12)
    expected = np.sum(T[:, moving] * X[moving], axis=2)
    np.testing.assert_allclose(found.own_slopes, expected, atol=1e-12)


def test_tangents_of_some_samples_are_found_by_their_rows():
    whole = PreparedSamples.joined(list(people(NAMES[:6]).values()))
    moving = np.array([0, 2, 3, 7])
    some = PreparedSamples(whole.inputs, whole.tangents[:, moving], 9, moving=moving)
    rows = np.array([2, 7])
    np.testing.assert_array_equal(some.moved(rows), whole.moved(rows))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    most=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_rows_are_spread_over_all_classes(sizes, most, seed):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.random.default_rng(seed).permutation(codes)
    rows = spread_rows(codes, most)
    assert rows.size == min(most, codes.size)
    assert (np.diff(rows) > 0).all()
    taken = np.bincount(codes[rows], minlength=len(sizes))
    shares = np.array(sizes) * rows.size / codes.size
    # No class has more than its share, but for rounding at both ends.
    assert (np.abs(taken - shares) < 2.0).all()


@pytest.mark.parametrize(
    ("kernel", "shape"), [("rbf", None), ("rbf", (8, 8)), ("linear", (8, 8))]
)
def test_known_products_do_not_change_the_fit(kernel, shape):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(8), 3)
    X = rng.normal(size=(8, 64))[codes] + 0.5 * rng.normal(size=(24, 64))
    model = DualQMLW(kernel=kernel, image_shape=shape, rule="max")
    parts = {NAMES[c]: prepare_samples(model, X[codes == c]) for c in range(8)}
    assert needs_products(model, 24, 64)
    samples, order = ProductCache().joined(parts)
    assert samples.tangents is None
    new = rng.normal(size=(5, 64))
    expected = model.fit(X, codes).transform(new)
    found = fit_prepared(model, samples, codes[order]).transform(new)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_products_are_for_kernels_and_for_few_samples():
    assert needs_products(DualQMLW(kernel="rbf"), 3000, 10)
    assert needs_products(DualQMLW(kernel="auto"), 3000, 10)
    # More products than that are not kept.
    assert not needs_products(DualQMLW(kernel="rbf"), 3001, 10)
    images = DualQMLW(kernel="linear", image_shape=(2, 5))
    assert needs_products(images, 10, 10)
    assert not needs_products(images, 11, 10)
    assert not needs_products(DualQMLW(kernel="linear"), 10, 10)
    # Principal components of so many features would take too long.
    assert needs_products(DualQMLW(kernel="linear"), 2500, 2000)


def test_a_fit_without_probabilities_is_the_same_otherwise():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(8), 3)
    X = rng.normal(size=(8, 30))[codes] + 0.5 * rng.normal(size=(24, 30))
    new = rng.normal(size=(5, 30))
    for model in (DualQMLW(rule="max"), DualQMLWCV(random_state=0)):
        samples = prepare_samples(model, X)
        expected = fit_prepared(model, samples, codes).class_scores(new)
        assert model.predict_proba(new).shape == (5, 8)
        fit_prepared(model, samples, codes, probabilities=False)
        np.testing.assert_array_equal(model.class_scores(new), expected)
        with pytest.raises(AttributeError, match="without probabilities"):
            model.predict_proba(new)


@pytest.mark.parametrize("n_samples", [1, 3, 19, 40])
def test_images_have_the_same_bits_in_any_company(n_samples):
    # BLAS kernels for AVX-512 round the last columns of a product in another way.
    X = np.random.default_rng(3).integers(0, 255, size=(41, 1024)).astype(np.float64)
    model = DualQMLW(rule="max", descriptor="local", image_shape=(32, 32))
    everybody, some = prepare_samples(model, X), prepare_samples(model, X[:n_samples])
    np.testing.assert_array_equal(everybody.inputs[:n_samples], some.inputs)
    np.testing.assert_array_equal(everybody.tangents[:, :n_samples], some.tangents)
