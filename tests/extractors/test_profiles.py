import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._profiles import centred, profile_gallery


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
