import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from dualqml._linalg import within_deviations
from dualqml.extractors._graphs import laplacian_form, pair_distances
from dualqml.extractors.lda import Fisherfaces, reduced_pca
from dualqml.extractors.mfa import MFA, marginal_graphs
from dualqml.images.tangents import tangent_images
from tests.problems import make_data


def gram_of_pca(X, n_components):
    scores = PCA(n_components).fit_transform(X)
    return scores @ scores.T


def laplacian(weights):
    return np.diag(weights.sum(axis=1)) - weights


@pytest.mark.parametrize("n_within", [1, 3, 20])
def test_both_matrices_are_positive_semidefinite(n_within):
    Z, codes = make_data([4, 7, 1, 5], 6)
    for graph in marginal_graphs(Z, codes, n_within, 5):
        form = laplacian_form(Z, graph)
        values = np.linalg.eigvalsh(form)
        assert values[0] >= -1e-12 * values[-1]
        assert values[-1] > 0


def test_the_intrinsic_laplacian_annihilates_class_indicators():
    Z, codes = make_data([4, 7, 1, 5], 6)
    intrinsic, penalty = marginal_graphs(Z, codes, 2, 5)
    indicators = np.eye(4)[codes]
    np.testing.assert_allclose(laplacian(intrinsic) @ indicators, 0.0, atol=1e-12)
    # The penalty graph joins classes, so it must not.
    assert np.abs(laplacian(penalty) @ indicators).max() >= 1


def test_complete_class_graphs_give_the_within_class_scatter():
    q = 5
    Z, codes = make_data([q] * 4, 8)
    intrinsic, _ = marginal_graphs(Z, codes, q - 1, 5)
    deviations = within_deviations(Z, codes)
    np.testing.assert_allclose(
        laplacian_form(Z, intrinsic), q * deviations.T @ deviations, atol=1e-12
    )
    sparse, _ = marginal_graphs(Z, codes, 1, 5)
    assert sparse.sum() < intrinsic.sum()


@pytest.mark.parametrize("n_between", [1, 6, 1000])
def test_the_penalty_graph_has_the_closest_pairs_of_every_class(n_between):
    Z, codes = make_data([3, 4, 5], 6, noise=1.0)
    distances = pair_distances(Z)
    expected = np.zeros((12, 12))
    for c in range(3):
        pairs = [
            (distances[i, j], i, j)
            for i in np.flatnonzero(codes == c)
            for j in np.flatnonzero(codes != c)
        ]
        for _, i, j in sorted(pairs)[:n_between]:
            expected[i, j] = expected[j, i] = 1.0
    np.testing.assert_array_equal(marginal_graphs(Z, codes, 2, n_between)[1], expected)


@pytest.mark.parametrize("q", [2, 4])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_it_is_fisherfaces_where_graphs_are_complete_and_nothing_is_dropped(
    q, shrinkage
):
    X, y = make_data([q] * 8, 50, noise=2.0)
    new, _ = make_data([5] * 8, 50, seed=1)
    options = {"pca_dim": 6, "n_components": 6, "shrinkage": shrinkage}
    mfa = MFA(n_within=q - 1, n_between=3, **options).fit(X, y)
    lda = Fisherfaces(**options).fit(X, y)
    assert mfa.components_.shape == (6, 50)
    for samples in (X, new):
        np.testing.assert_allclose(
            cosine_similarity(mfa.transform(samples)),
            cosine_similarity(lda.transform(samples)),
            atol=1e-9,
        )


def test_it_is_not_fisherfaces_where_directions_are_dropped():
    X, y = make_data([2] * 8, 50, noise=2.0)
    mfa, lda = MFA().fit(X, y), Fisherfaces().fit(X, y)
    # n_samples - n_classes is 8 here.
    assert mfa.components_.shape[0] == 4
    assert lda.components_.shape[0] == 7
    same = Fisherfaces(n_components=4).fit(X, y)
    difference = cosine_similarity(mfa.transform(X)) - cosine_similarity(
        same.transform(X)
    )
    assert np.abs(difference).max() > 0.01


def test_default_number_of_features_is_at_most_n_classes_minus_one():
    X, y = make_data([10] * 4, 50)
    assert MFA().fit(X, y).transform(X).shape == (40, 3)
    assert MFA(pca_dim=4).fit(X, y).transform(X).shape == (40, 2)
    assert MFA(pca_dim=1).fit(X, y).transform(X).shape == (40, 1)
    # Unlike Fisherfaces it has more directions than that to give.
    assert MFA(n_components=9).fit(X, y).transform(X).shape == (40, 9)
    assert MFA(n_components=9, pca_dim=5).fit(X, y).transform(X).shape == (40, 5)


def test_one_sample_in_every_class_gives_principal_components():
    X, y = make_data([1] * 7, 20)
    expected = PCA(3).fit_transform(X)
    features = MFA(n_components=3).fit(X, y).transform(X)
    np.testing.assert_allclose(
        cosine_similarity(features), cosine_similarity(expected), atol=1e-9
    )
    assert MFA().fit(X, y).transform(X).shape == (7, 6)


def test_scale_and_shift_of_the_samples_do_not_matter():
    X, y = make_data([3] * 6, 30, noise=1.0)
    before = MFA().fit(X, y).transform(X)
    after = MFA().fit(100 * X + 5, y).transform(100 * X + 5)
    np.testing.assert_allclose(
        cosine_similarity(before), cosine_similarity(after), atol=1e-8
    )


def test_copies_of_samples_are_allowed():
    X, y = make_data([3] * 5, 30)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    features = MFA().fit(X, y).transform(X)
    np.testing.assert_array_equal(features[:15], features[15:])
    # Different samples stay different.
    assert np.unique(features.round(9), axis=0).shape == (15, 4)


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_copies_of_one_sample_in_every_class_give_principal_components(shrinkage):
    X, y = make_data([1] * 5, 30)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    features = MFA(n_components=3, shrinkage=shrinkage).fit(X, y).transform(X)
    np.testing.assert_allclose(features @ features.T, gram_of_pca(X, 3), atol=1e-9)


def mean_motion_scatter(tangents):
    scatters = [rows.T @ rows for rows in tangents]
    return np.mean([S / np.trace(S) for S in scatters], axis=0)


@pytest.mark.parametrize("q", [1, 4])
def test_tangents_join_the_matrix_within_classes(q):
    X, y = make_data([q] * 6, 36, noise=1.0)
    model = MFA(tangents=0.4, image_shape=(4, 9), n_components=4).fit(X, y)
    pca = reduced_pca(X, "n-c", 6)
    Z = pca.coordinates
    intrinsic, penalty = marginal_graphs(Z, y, 5, 20)
    within = laplacian_form(Z, intrinsic)
    size = np.trace(within) if q > 1 else np.sum(Z**2)
    motions = mean_motion_scatter(tangent_images(X, (4, 9)) @ pca.basis)
    S = within + 0.4 * size * motions
    S += 0.1 * np.trace(S) / S.shape[0] * np.eye(S.shape[0])
    A = pca.basis.T @ model.components_.T
    np.testing.assert_allclose(A.T @ S @ A, np.eye(4), atol=1e-9)
    wanted = laplacian_form(Z, penalty)
    ratios = eigh(wanted, S, eigvals_only=True)[::-1][:4]
    np.testing.assert_allclose(A.T @ wanted @ A, np.diag(ratios), atol=1e-8 * ratios[0])
