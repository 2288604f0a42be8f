"""Motions of images in the within-class scatter of the methods that have one."""

import numpy as np
import pytest

from dualqml.extractors import APCA, ERE, ERKDA, MFA, Fisherfaces, KernelLDA
from dualqml.extractors._motions import tangent_images
from dualqml.extractors._tangents import (
    motion_rows,
    sample_tangents,
    scaled_motions,
    with_motions,
)
from tests.problems import make_data

METHODS = [APCA, ERE, ERKDA, MFA, Fisherfaces, KernelLDA]

by_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)


def scatter_of(rows):
    return rows.T @ rows


def gram_of_pca(X, n_components):
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    scores = (U * s)[:, :n_components]
    return scores @ scores.T


def test_rows_have_the_mean_scatter_at_unit_trace_times_the_weight(rng):
    tangents = rng.normal(size=(6, 5, 4)) * np.arange(1, 7)[:, None, None]
    scatters = [scatter_of(rows) for rows in tangents]
    expected = 0.3 * np.mean([S / np.trace(S) for S in scatters], axis=0)
    np.testing.assert_allclose(scatter_of(motion_rows(tangents, 0.3)), expected)


def test_motions_that_change_nothing_are_left_out(rng):
    tangents = rng.normal(size=(6, 5, 4))
    tangents[[1, 4]] = 0.0
    rows = motion_rows(tangents, 2.0)
    assert rows.shape == (20, 4)
    assert np.trace(scatter_of(rows)) == pytest.approx(2.0)
    assert motion_rows(np.zeros((6, 5, 4)), 2.0).shape == (0, 4)
    assert motion_rows(np.empty((0, 5, 4)), 0.0).shape == (0, 4)


def test_tangents_without_weight_are_none_and_need_no_images(rng):
    X = rng.normal(size=(5, 12))
    assert sample_tangents(X, (7, 7), 0.0).shape == (0, 5, 12)
    np.testing.assert_array_equal(
        sample_tangents(X, (3, 4), 0.1), tangent_images(X, (3, 4))
    )
    # Of a single row of pixels one motion in three is left.
    assert motion_rows(sample_tangents(X, [1, 12], 0.1), 0.1).shape == (10, 12)
    with pytest.raises(ValueError, match=r"have 12 features.*tangents=0"):
        sample_tangents(X, None, 0.1)


def test_the_share_is_of_the_within_class_trace_if_there_is_one(rng):
    motions = motion_rows(rng.normal(size=(6, 5, 4)), 0.3)
    for within, expected in [(2.0, 2.0), (0.0, 9.0), (1e-15, 9.0)]:
        rows = scaled_motions(motions, within, 9.0)
        np.testing.assert_allclose(scatter_of(rows), expected * scatter_of(motions))


def test_motions_join_the_deviations(rng):
    within = rng.normal(size=(5, 4))
    motions = motion_rows(rng.normal(size=(6, 5, 4)), 0.3)
    S = scatter_of(within)
    np.testing.assert_allclose(
        scatter_of(with_motions(within, motions, 100.0)),
        S + np.trace(S) * scatter_of(motions),
    )
    assert with_motions(within, None, 100.0) is within
    np.testing.assert_array_equal(with_motions(within, motions[:0], 100.0), within)


@by_method
def test_the_default_is_the_method_as_published(method):
    X, y = make_data([3] * 5, 36, unit=False)
    published = method().fit(X, y).transform(X)
    # Rows need not be images then, and their shape is not looked at.
    explicit = method(tangents=0.0, image_shape=(5, 5)).fit(X, y).transform(X)
    np.testing.assert_array_equal(published, explicit)
    with_tangents = method(tangents=0.3, image_shape=(6, 6)).fit(X, y).transform(X)
    assert published.shape[0] == with_tangents.shape[0]
    if published.shape == with_tangents.shape:
        assert np.abs(published - with_tangents).max() > 1e-3


# Not for the models of the spectrum: they count the variances, and motions of
# whatever weight add some where none was measured.
@pytest.mark.parametrize("method", [APCA, MFA, Fisherfaces, KernelLDA])
def test_motions_matter_less_with_less_weight(method):
    X, y = make_data([3] * 5, 36, unit=False)
    options = {"n_components": 4, "image_shape": (6, 6)}

    def gram(**more):
        features = method(**options, **more).fit(X, y).transform(X)
        return features @ features.T

    published = gram()
    differences = [
        np.linalg.norm(gram(tangents=weight) - published) for weight in (1e-6, 0.3)
    ]
    assert differences[0] < 1e-2 * np.linalg.norm(published)
    assert differences[0] < 0.1 * differences[1]


@by_method
@pytest.mark.parametrize("copies", [1, 2])
def test_without_differences_in_a_class_motions_are_all_there_is(method, copies):
    X, y = make_data([1] * 6, 36, unit=False)
    X, y = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    model = method(tangents=0.3, image_shape=(6, 6)).fit(X, y)
    features = model.transform(X)
    assert np.isfinite(features).all()
    assert np.linalg.matrix_rank(features) == min(features.shape[1], 5)
    # Not principal components of the samples: these know nothing of motions.
    actual, pca = features @ features.T, gram_of_pca(X, features.shape[1])
    cosine = np.vdot(actual, pca) / (np.linalg.norm(actual) * np.linalg.norm(pca))
    assert cosine < 0.999


@by_method
def test_rows_of_one_pixel_have_no_motions(method):
    X = np.array([[0.0], [1.0], [5.0], [6.0], [9.0], [9.5]])
    y = [0, 0, 1, 1, 2, 2]
    moved = method(tangents=0.3, image_shape=(1, 1)).fit(X, y)
    np.testing.assert_array_equal(moved.transform(X), method().fit(X, y).transform(X))


@by_method
def test_a_wrong_image_shape_is_an_error(method):
    X, y = make_data([3] * 4, 30)
    with pytest.raises(ValueError, match="32 pixels, but the rows of X have 30"):
        method(tangents=0.1, image_shape=(4, 8)).fit(X, y)


@by_method
def test_the_image_shape_is_used(method):
    X, y = make_data([3] * 4, 30)
    features = [
        method(tangents=0.3, n_components=2, image_shape=shape).fit(X, y).transform(X)
        for shape in [(5, 6), (3, 10)]
    ]
    grams = [f @ f.T for f in features]
    assert np.abs(grams[0] - grams[1]).max() > 1e-3 * np.abs(grams[0]).max()


@by_method
def test_a_negative_weight_is_an_error(method):
    X, y = make_data([3] * 4, 36)
    with pytest.raises(ValueError, match="tangents"):
        method(tangents=-0.1).fit(X, y)
