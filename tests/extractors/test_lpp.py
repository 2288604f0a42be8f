import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from dualqml._linalg import span_pca
from dualqml.extractors._graphs import laplacian_form, pair_distances
from dualqml.extractors.lpp import LPP, heat_weights, locality_directions
from tests.problems import make_data


@pytest.fixture
def data():
    X, y = make_data([4, 5, 6, 7], 40, noise=1.0)
    return X, y, span_pca(X).first(10).coordinates


@pytest.mark.parametrize("supervised", [False, True])
def test_the_laplacian_is_positive_semidefinite_and_ignores_constants(data, supervised):
    _, y, Z = data
    weights = heat_weights(Z, 3, None, y if supervised else None)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    np.testing.assert_allclose(laplacian @ np.ones(22), 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(laplacian)[0] >= -1e-12
    assert np.linalg.eigvalsh(laplacian_form(Z, weights))[0] >= -1e-12


def test_weights_are_those_of_the_definition(data):
    _, y, Z = data
    distances = pair_distances(Z)
    mean = distances[~np.eye(22, dtype=bool)].mean()
    order = np.argsort(distances, axis=1)
    nearest = np.zeros((22, 22), dtype=bool)
    np.put_along_axis(nearest, order[:, 1:4], True, axis=1)
    expected = np.where(nearest | nearest.T, np.exp(-distances / mean), 0.0)
    np.testing.assert_allclose(heat_weights(Z, 3, None), expected)
    expected = np.where(nearest | nearest.T, np.exp(-distances / 0.7), 0.0)
    np.testing.assert_allclose(heat_weights(Z, 3, 0.7), expected)
    assert not heat_weights(Z, 3, None, y)[y[:, None] != y].any()


@pytest.mark.parametrize("supervised", [False, True])
def test_directions_are_scaled_and_eigenvalues_are_bounded(data, supervised):
    _, y, Z = data
    weights = heat_weights(Z, 3, None, y if supervised else None)
    ratios, A = locality_directions(Z, weights, 10)
    spread = Z.T @ np.diag(weights.sum(axis=1)) @ Z
    np.testing.assert_allclose(A.T @ spread @ A, np.eye(10), atol=1e-6)
    np.testing.assert_allclose(
        A.T @ laplacian_form(Z, weights) @ A, np.diag(ratios), atol=1e-6
    )
    assert ratios[0] >= -1e-9
    assert ratios[-1] <= 2 + 1e-9
    assert (np.diff(ratios) >= 0).all()


def test_the_smallest_eigenvalues_are_kept_and_the_first_is_not_dropped(data):
    _, _, Z = data
    weights = heat_weights(Z, 3, None)
    ratios, A = locality_directions(Z, weights, 10)
    some_ratios, some = locality_directions(Z, weights, 3)
    np.testing.assert_allclose(some_ratios, ratios[:3], rtol=1e-6)
    np.testing.assert_allclose(some @ some.T, A[:, :3] @ A[:, :3].T, rtol=1e-5)
    assert ratios[9] > 1.5 * ratios[0]


def test_a_uniform_graph_prefers_no_direction(data):
    _, _, Z = data
    ratios, _ = locality_directions(Z, np.full((22, 22), 1 / 22), 10)
    np.testing.assert_allclose(ratios, 1.0, atol=1e-6)
    # Without the loops, the degrees are smaller and all ratios larger alike.
    loopless = np.full((22, 22), 1 / 22) - np.eye(22) / 22
    ratios, _ = locality_directions(Z, loopless, 10)
    np.testing.assert_allclose(ratios, 22 / 21, atol=1e-6)


def test_it_is_the_directions_after_pca(data):
    X, y, _ = data
    pca = PCA(0.9).fit(X)
    Z = pca.transform(X)
    _, A = locality_directions(Z, heat_weights(Z, 4, None), 3)
    features = LPP(n_neighbors=4, energy=0.9).fit(X, y).transform(X)
    assert features.shape == (22, 3)
    np.testing.assert_allclose(
        cosine_similarity(features), cosine_similarity(Z @ A), atol=1e-6
    )


def test_labels_matter_only_where_supervised(data):
    X, y, _ = data
    other = np.roll(y, 3)
    options = {"n_components": 4}
    plain = LPP(**options).fit(X, y).transform(X)
    np.testing.assert_array_equal(plain, LPP(**options).fit(X, other).transform(X))
    one = LPP(supervised=True, **options).fit(X, y).transform(X)
    two = LPP(supervised=True, **options).fit(X, other).transform(X)
    assert np.abs(cosine_similarity(one) - cosine_similarity(two)).max() > 0.01


def test_number_of_features(data):
    X, y, _ = data
    assert LPP().fit(X, y).transform(X).shape == (22, 3)
    assert LPP(n_components=99, energy=1.0).fit(X, y).transform(X).shape == (22, 21)


@pytest.mark.parametrize("options", [{"supervised": True}, {"width": 1e-9}])
def test_principal_components_for_want_of_edges(options):
    X, y = make_data([1] * 7, 20)
    expected = PCA(3).fit_transform(X)
    features = LPP(n_components=3, **options).fit(X, y).transform(X)
    np.testing.assert_allclose(
        cosine_similarity(features), cosine_similarity(expected), atol=1e-9
    )


def test_samples_without_neighbours_do_not_blow_up_the_features():
    X, y = make_data([1, 4, 4, 1, 4], 30, noise=1.0)
    features = LPP(supervised=True).fit(X, y).transform(X)
    assert np.isfinite(features).all()
    # The scaled directions bound every feature of a training sample.
    lone = np.isin(y, [0, 3])
    assert np.abs(features[lone]).max() <= 1 + 1e-6


def test_copies_of_samples_are_allowed():
    X, y = make_data([3] * 5, 30)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    features = LPP().fit(X, y).transform(X)
    np.testing.assert_array_equal(features[:15], features[15:])
    # Different samples stay different.
    assert np.unique(features.round(9), axis=0).shape == (15, 4)
