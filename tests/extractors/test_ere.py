import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from dualqml._linalg import span_pca
from dualqml.exceptions import DualQMLError
from dualqml.extractors._eigenspectrum import regularised_spectrum
from dualqml.extractors.ere import ERE
from dualqml.extractors.nearest import NearestSample
from dualqml.images.tangents import tangent_images
from tests.problems import make_data


@pytest.fixture
def faces():
    X, y = make_data([4] * 8, 80, unit=False, centre=False)
    return X / np.sqrt(np.arange(1, 81)), y


def test_features_are_decorrelated_and_sorted(faces):
    features = ERE().fit_transform(*faces)
    covariance = np.cov(features.T, bias=True)
    variances = np.diag(covariance)
    np.testing.assert_allclose(covariance, np.diag(variances), atol=1e-9)
    assert np.all(np.diff(variances) <= 1e-9)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-10)


def test_all_features_are_one_fewer_than_samples(faces):
    X, y = faces
    assert ERE().fit(X, y).components_.shape == (31, 80)
    assert ERE(n_components=100).fit(X, y).components_.shape == (31, 80)


def test_fewer_features_are_the_first_ones(faces):
    X, y = faces
    all_of_them = ERE().fit_transform(X, y)[:, :3]
    few = ERE(n_components=3).fit_transform(X, y)
    np.testing.assert_allclose(few @ few.T, all_of_them @ all_of_them.T, atol=1e-9)


@pytest.mark.parametrize(("gain", "offset"), [(7.0, 0.0), (1.0, 30.0), (0.01, -2.0)])
def test_cosines_do_not_depend_on_gain_and_offset(faces, gain, offset):
    X, y = faces
    expected = cosine_similarity(ERE().fit_transform(X, y))
    actual = cosine_similarity(ERE().fit_transform(gain * X + offset, y))
    np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_within_class_scatter_shrinks_against_that_of_pca(faces):
    X, y = faces

    def share(features):
        means = np.array([features[y == c].mean(axis=0) for c in range(8)])
        return np.square(features - means[y]).sum() / np.square(features).sum()

    assert share(ERE().fit_transform(X, y)) < 0.5 * share(PCA().fit_transform(X))


def test_without_centring_samples_are_projected_as_they_are(faces):
    X, y = faces
    plain, centred = ERE(centre=False).fit(X, y), ERE().fit(X, y)
    assert plain.mean_ is None
    np.testing.assert_array_equal(plain.components_, centred.components_)
    np.testing.assert_allclose(plain.transform(X), X @ plain.components_.T)
    np.testing.assert_allclose(centred.mean_, X.mean(axis=0))


def test_mu_changes_the_features(faces):
    X, y = faces
    low, high = (cosine_similarity(ERE(mu=mu).fit_transform(X, y)) for mu in (0.0, 2.0))
    assert np.abs(low - high).max() > 1e-3


def test_classes_weigh_the_same_whatever_their_sizes(faces):
    # A class given twice over has more samples and the same scatter.
    X, y = faces
    again = np.concatenate([np.arange(32), np.flatnonzero(y == 2)])
    once, twice = ERE(centre=False).fit(X, y), ERE(centre=False).fit(X[again], y[again])
    # Only the part in the span tells: the mean of the samples has changed.
    differences = X - X[0]
    grams = [
        differences @ e.components_.T @ e.components_ @ differences.T
        for e in (once, twice)
    ]
    np.testing.assert_allclose(*grams, atol=1e-8)


@pytest.mark.parametrize("copies", [1, 3])
def test_one_image_per_class_gives_principal_components(copies, rng):
    X = np.repeat(rng.normal(size=(9, 30)), copies, axis=0)
    y = np.repeat(np.arange(9), copies)
    features, expected = ERE().fit_transform(X, y), PCA(8).fit_transform(X)
    assert features.shape[1] == 8
    np.testing.assert_allclose(features @ features.T, expected @ expected.T, atol=1e-10)


def test_more_samples_than_features(rng):
    X, y = make_data([20] * 3, 5, unit=False)
    features = ERE().fit_transform(X, y)
    assert features.shape == (60, 5)
    # Five features of five pixels: nothing is lost.
    assert np.linalg.matrix_rank(features) == 5


def test_classes_of_different_sizes_and_copies(rng):
    X, y = make_data([1, 2, 5, 3], 30, unit=False)
    X[y == 2] = X[y == 2][0]
    features = ERE().fit_transform(X, y)
    np.testing.assert_allclose(features[y == 2], features[[3] * 5], atol=1e-12)
    model = NearestSample().fit(features, y)
    np.testing.assert_array_equal(model.predict(features), y)


def test_equal_samples_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        ERE().fit(np.ones((4, 3)), [0, 0, 1, 1])


@pytest.mark.parametrize("q", [1, 4])
def test_tangents_join_the_within_class_scatter(q):
    X, y = make_data([q] * 8, 36, unit=False)
    model = ERE(tangents=0.4, image_shape=(4, 9)).fit(X, y)
    # In the span of the samples, with all classes of the same size.
    pca = span_pca(X)
    Z = pca.coordinates
    means = np.array([Z[y == c].mean(axis=0) for c in range(8)])
    within = (Z - means[y]).T @ (Z - means[y]) / y.size
    size = np.trace(within) if q > 1 else np.trace(Z.T @ Z) / y.size
    scatters = [rows.T @ rows for rows in tangent_images(X, (4, 9)) @ pca.basis]
    within += 0.4 * size * np.mean([S / np.trace(S) for S in scatters], axis=0)
    values, vectors = np.linalg.eigh(within)
    modelled = regularised_spectrum(values[::-1], 1.0).values[::-1]
    whitened = Z @ (vectors / np.sqrt(modelled)) @ vectors.T
    features = model.transform(X)
    np.testing.assert_allclose(
        features @ features.T, whitened @ whitened.T, rtol=1e-7, atol=1e-7
    )
