import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml._linalg import unit_rows
from dualqml.extractors import quadratic_features as module
from dualqml.extractors.quadratic_features import (
    centred,
    profile_gallery,
    quadratic_features,
    signed_root_features,
)


def slow_gallery(features, codes, own_weight, centre):
    """The profiles one entry at a time."""
    n_samples, n_classes = features.shape
    weighted = [
        [
            features[i, c] * (own_weight if codes[i] == c else 1.0)
            for c in range(n_classes)
        ]
        for i in range(n_samples)
    ]
    mean = [sum(row[c] for row in weighted) / n_samples for c in range(n_classes)]
    gallery = np.zeros((n_samples, n_classes))
    for i, row in enumerate(weighted):
        about = np.array(row) - (mean if centre else 0.0)
        length = np.sqrt((about**2).sum())
        gallery[i] = about / length if length > 0 else about
    return gallery, np.array(mean) if centre else None


@pytest.mark.parametrize("ranks", [[1, 1, 1], [2, 2, 2], [1, 3, 2], [0, 2, 1], [2, 0]])
@pytest.mark.parametrize("product_bytes", [1, 10**7])
def test_features_are_segmented_sums_of_squares(ranks, product_bytes, rng, monkeypatch):
    monkeypatch.setattr(module, "_PRODUCT_BYTES", product_bytes)
    ranks = np.array(ranks)
    components, X = rng.normal(size=(ranks.sum(), 7)), rng.normal(size=(50, 7))
    first = np.concatenate([[0], np.cumsum(ranks)])
    expected = np.column_stack(
        [
            ((X @ components[first[c] : first[c + 1]].T) ** 2).sum(axis=1)
            for c in range(ranks.size)
        ]
    )
    out = quadratic_features(X, components, ranks)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_no_samples_give_no_features():
    out = quadratic_features(np.empty((0, 3)), np.ones((2, 3)), np.array([1, 1]))
    assert out.shape == (0, 2)


def test_single_precision_input_is_summed_in_double(rng):
    X = rng.normal(size=(5, 4)).astype(np.float32)
    components = rng.normal(size=(2, 4))
    out = quadratic_features(X, components, np.array([1, 1]))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, (X.astype(float) @ components.T) ** 2)


@pytest.mark.parametrize(
    "ranks", [[1, 1, 1], [2, 2, 2], [1, 3, 2], [0, 2, 1], [2, 0], [0, 0]]
)
@pytest.mark.parametrize("product_bytes", [1, 10**7])
def test_signed_roots_are_those_of_full_matrices(
    ranks, product_bytes, rng, monkeypatch
):
    monkeypatch.setattr(module, "_PRODUCT_BYTES", product_bytes)
    ranks = np.array(ranks)
    components, X = rng.normal(size=(ranks.sum(), 7)), rng.normal(size=(50, 7))
    means = rng.normal(size=(ranks.size, 7))
    responses = np.einsum("ij,ij->i", components, np.repeat(means, ranks, axis=0))
    first = np.concatenate([[0], np.cumsum(ranks)])
    expected = np.empty((50, ranks.size))
    for c, mean in enumerate(means):
        factor = components[first[c] : first[c + 1]]
        P = factor.T @ factor
        for i, x in enumerate(X):
            expected[i, c] = np.sqrt(x @ P @ x) * np.sign(x @ P @ mean)
    out = signed_root_features(X, components, ranks, responses)
    np.testing.assert_allclose(out, expected, atol=1e-7)
    # The other sample of each pair x, -x, and the features that know no sign.
    mirrored = signed_root_features(-X, components, ranks, responses)
    np.testing.assert_array_equal(mirrored, -out)
    squares = quadratic_features(X, components, ranks)
    np.testing.assert_allclose(out**2, squares, rtol=1e-12)
    if ranks.sum():
        assert (out < 0).any()
        assert (out > 0).any()


def test_signed_roots_at_a_right_angle_to_the_mean_are_positive():
    components, X = np.eye(2), np.array([[0.0, -3.0]])
    out = signed_root_features(X, components, np.array([2]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(out, [[3.0]])


def test_signed_roots_of_single_precision_are_in_double(rng):
    X = rng.normal(size=(5, 4)).astype(np.float32)
    components = rng.normal(size=(2, 4))
    out = signed_root_features(X, components, np.array([1, 1]), np.array([1.0, -1.0]))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, X.astype(float) @ components.T * [1.0, -1.0])


def test_with_weight_1_about_zero_the_gallery_is_the_rows_at_unit_norm(rng):
    features = rng.normal(size=(9, 4))
    codes = rng.integers(0, 4, size=9)
    gallery, mean = profile_gallery(features, codes, own_weight=1.0, centre=False)
    np.testing.assert_array_equal(gallery, unit_rows(features))
    assert mean is None
    assert centred(features, mean) is features


@settings(max_examples=40, deadline=None)
@given(
    n_classes=st.integers(2, 6),
    n_samples=st.integers(2, 12),
    own_weight=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    centre=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_gallery_is_that_of_a_slow_loop(
    n_classes, n_samples, own_weight, centre, seed
):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_samples, n_classes))
    codes = rng.integers(0, n_classes, size=n_samples)
    expected, about = slow_gallery(features, codes, own_weight, centre)
    gallery, mean = profile_gallery(
        features, codes, own_weight=own_weight, centre=centre
    )
    np.testing.assert_allclose(gallery, expected, atol=1e-10)
    probes = rng.normal(size=(3, n_classes))
    if centre:
        np.testing.assert_allclose(mean, about)
        np.testing.assert_allclose(centred(probes, mean), probes - about)
    else:
        assert mean is None


def test_the_mean_is_that_of_the_weighted_features():
    features = np.array([[1.0, 0.2], [0.4, 1.0]])
    _, mean = profile_gallery(features, np.array([0, 1]), own_weight=0.5, centre=True)
    np.testing.assert_allclose(mean, [(0.5 + 0.4) / 2, (0.2 + 0.5) / 2])


@pytest.mark.parametrize("own_weight", [0.5, 1.0])
@pytest.mark.parametrize("centre", [False, True])
def test_what_is_given_is_not_modified(own_weight, centre, rng):
    features = rng.normal(size=(6, 3))
    before = features.copy()
    _, mean = profile_gallery(
        features, np.array([0, 0, 1, 1, 2, 2]), own_weight=own_weight, centre=centre
    )
    centred(features, mean)
    np.testing.assert_array_equal(features, before)


def test_equal_features_about_their_mean_are_zero_and_not_nan():
    features = np.ones((4, 3))
    codes = np.array([0, 0, 1, 2])
    gallery, _ = profile_gallery(features, codes, own_weight=1.0, centre=True)
    np.testing.assert_array_equal(gallery, 0.0)
