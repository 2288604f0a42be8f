import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dualqml._linalg import class_means, span_pca, unit_rows, within_deviations
from dualqml.exceptions import DualQMLError
from dualqml.extractors import Fisherfaces
from dualqml.extractors.lda import fisher_directions, reduced_pca
from dualqml.images.tangents import tangent_images
from tests.problems import make_data

X, y = make_data([4] * 6, 40, noise=1.0)


def scatters(Z, codes):
    means, counts = class_means(Z, codes)
    within = within_deviations(Z, codes)
    between = np.sqrt(counts)[:, None] * (means - Z.mean(axis=0))
    return within.T @ within, between.T @ between


def test_directions_diagonalise_both_scatters():
    Z = reduced_pca(X, "n-c", 6).coordinates
    assert Z.shape[1] == 24 - 6
    Sw, Sb = scatters(Z, y)
    A = fisher_directions(Z, y, 0.1, 5)
    regularised = Sw + 0.1 * np.trace(Sw) / 18 * np.eye(18)
    np.testing.assert_allclose(A.T @ regularised @ A, np.eye(5), atol=1e-9)
    ratios = A.T @ Sb @ A
    np.testing.assert_allclose(ratios, np.diag(np.diag(ratios)), atol=1e-9)
    assert (np.diff(np.diag(ratios)) <= 1e-9).all()
    assert np.linalg.matrix_rank(Sb, tol=1e-9) == 5


def test_without_shrinkage_decisions_ignore_a_change_of_coordinates(rng):
    Z = span_pca(X).first(12).coordinates
    mixed = Z @ rng.normal(size=(12, 12))
    a = unit_rows(Z @ fisher_directions(Z, y, 0.0, 5))
    b = unit_rows(mixed @ fisher_directions(mixed, y, 0.0, 5))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)


def test_plain_form_in_enough_samples_equals_scikit_learn():
    data, labels = make_data([30] * 4, 6, noise=1.0)
    ours = Fisherfaces(shrinkage=0.0).fit(data, labels).transform(data)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit_transform(data, labels)
    ours, theirs = ours - ours.mean(0), theirs - theirs.mean(0)
    ratio = np.linalg.norm(theirs) / np.linalg.norm(ours)
    np.testing.assert_allclose(ratio**2 * ours @ ours.T, theirs @ theirs.T, atol=1e-6)


@pytest.mark.parametrize(
    ("pca_dim", "expected"), [("n-c", 18), (7, 7), (0.999999999, 23)]
)
def test_dimension_of_the_pca(pca_dim, expected):
    assert reduced_pca(X, pca_dim, 6).coordinates.shape[1] == expected


def test_one_sample_per_class_is_pca():
    data, labels = make_data([1] * 6, 20)
    features = Fisherfaces().fit(data, labels).transform(data)
    centred = data - data.mean(axis=0)
    np.testing.assert_allclose(features @ features.T, centred @ centred.T, atol=1e-9)


def test_singular_scatter_is_an_error_that_says_what_to_do():
    data = X.copy()
    data[1::2] = data[::2]  # every image twice
    with pytest.raises(DualQMLError, match="shrinkage above 0"):
        Fisherfaces(shrinkage=0.0).fit(data, y)
    Fisherfaces().fit(data, y)


def test_equal_samples_only_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        Fisherfaces().fit(np.ones((4, 3)), [0, 0, 1, 1])


def test_a_scatter_of_too_low_rank_is_singular_whatever_rounding_does():
    # Seven samples of three classes: within-class rank 4 in six dimensions.
    for seed in range(20):
        data, labels = make_data([3, 2, 2], 30, seed=seed)
        with pytest.raises(DualQMLError, match="singular"):
            Fisherfaces(shrinkage=0.0, pca_dim=6).fit(data, labels)


def mean_motion_scatter(tangents):
    scatters = [rows.T @ rows for rows in tangents]
    return np.mean([S / np.trace(S) for S in scatters], axis=0)


@pytest.mark.parametrize("q", [1, 4])
def test_tangents_join_the_within_class_scatter(q):
    data, labels = make_data([q] * 6, 36, noise=1.0)
    model = Fisherfaces(tangents=0.4, image_shape=(4, 9)).fit(data, labels)
    pca = reduced_pca(data, "n-c", 6)
    Sw, Sb = scatters(pca.coordinates, labels)
    size = np.trace(Sw) if q > 1 else np.trace(Sb)
    motions = mean_motion_scatter(tangent_images(data, (4, 9)) @ pca.basis)
    S = Sw + 0.4 * size * motions
    S += 0.1 * np.trace(S) / S.shape[0] * np.eye(S.shape[0])
    A = pca.basis.T @ model.components_.T
    np.testing.assert_allclose(A.T @ S @ A, np.eye(5), atol=1e-9)
    ratios = eigh(Sb, S, eigvals_only=True)[::-1][:5]
    np.testing.assert_allclose(A.T @ Sb @ A, np.diag(ratios), atol=1e-8 * ratios[0])
