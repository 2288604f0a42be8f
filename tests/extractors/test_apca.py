import numpy as np
import pytest
from sklearn.decomposition import PCA

from dualqml.extractors import APCA
from dualqml.extractors.apca import inverse_count_weights, mixture_factors
from dualqml.images.tangents import tangent_images
from tests.problems import make_data

X, y = make_data([4] * 6, 40, noise=1.0)


def test_full_weight_of_the_means_and_equal_classes_is_pca():
    model = APCA(eta=1.0, n_components=10, whiten=False).fit(X, y)
    pca = PCA(10).fit(X)
    np.testing.assert_allclose(
        model.eigenvalues_, pca.explained_variance_ * 23 / 24, rtol=1e-9
    )
    np.testing.assert_allclose(
        np.abs(np.sum(model.components_ * pca.components_, axis=1)), 1.0, atol=1e-8
    )


def test_unequal_classes_differ_from_pca():
    data, labels = make_data([2, 3, 9, 9], 40, noise=1.0)
    model = APCA(eta=1.0, n_components=5, whiten=False).fit(data, labels)
    pca = PCA(5).fit(data)
    assert np.abs(model.eigenvalues_ / pca.explained_variance_ - 1).max() > 1e-2


def test_weights_sum_to_one_and_favour_small_classes():
    weights = inverse_count_weights(np.array([2, 4, 1, 8]))
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] == 2 * weights[1] == 4 * weights[3]
    assert weights[2] == 0.0
    np.testing.assert_allclose(inverse_count_weights(np.ones(4, dtype=int)), 0.25)


def test_whitened_features_have_unit_within_covariance():
    model = APCA(ridge=0.0, n_components=12).fit(X, y)
    features = model.transform(X)
    covariance = sum(
        np.cov(features[y == c].T, bias=True) * model.class_weights_[c]
        for c in range(6)
    )
    np.testing.assert_allclose(covariance, np.eye(12), atol=1e-9)


def test_euclidean_distance_of_whitened_features_is_mahalanobis():
    white = APCA(n_components=8).fit(X, y)
    plain = APCA(n_components=8, whiten=False).fit(X, y)
    np.testing.assert_allclose(white.precision_, plain.precision_)
    f, g = plain.transform(X[:1])[0], plain.transform(X[5:6])[0]
    expected = (f - g) @ plain.precision_ @ (f - g)
    a, b = white.transform(X[:1])[0], white.transform(X[5:6])[0]
    assert np.sum((a - b) ** 2) == pytest.approx(expected, rel=1e-9)


def test_one_sample_per_class_uses_the_mixture():
    data, labels = make_data([1] * 6, 20)
    model = APCA().fit(data, labels)
    other = APCA(covariance="mixture").fit(data, labels)
    np.testing.assert_allclose(model.components_, other.components_)


def test_energy_decides_the_number_of_features():
    few = APCA(energy=0.5).fit(X, y).components_.shape[0]
    many = APCA(energy=0.99).fit(X, y).components_.shape[0]
    assert 1 <= few < many


def mean_motion_scatter(tangents):
    scatters = [rows.T @ rows for rows in tangents]
    return np.mean([S / np.trace(S) for S in scatters], axis=0)


@pytest.mark.parametrize("q", [1, 4])
def test_tangents_join_the_within_class_covariance(q):
    data, labels = make_data([q] * 6, 36, noise=1.0)
    n = 4 if q == 1 else 8
    options = {"n_components": n, "tangents": 0.4, "image_shape": (4, 9)}
    model = APCA(**options, whiten=False).fit(data, labels)
    within, between = mixture_factors(data, labels, model.class_weights_)
    within, between = within.T @ within, between.T @ between
    size = np.trace(within if q > 1 else between)
    # Of the motions, what lies in the span of the samples.
    span = np.linalg.svd(data - data.mean(axis=0))[2][: len(data) - 1]
    tangents = tangent_images(data, (4, 9)) @ span.T @ span
    within += 0.4 * size * mean_motion_scatter(tangents)
    mixture = within + 0.25 * between
    np.testing.assert_allclose(
        model.eigenvalues_, np.linalg.eigvalsh(mixture)[::-1][:n], rtol=1e-9
    )
    basis = model.components_
    np.testing.assert_allclose(
        basis @ mixture @ basis.T, np.diag(model.eigenvalues_), atol=1e-9
    )
    covariance = basis @ within @ basis.T
    covariance += 1e-3 * np.trace(covariance) / n * np.eye(n)
    np.testing.assert_allclose(model.precision_ @ covariance, np.eye(n), atol=1e-8)
