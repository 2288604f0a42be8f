import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.decomposition import KernelPCA

from dualqml.exceptions import DualQMLError
from dualqml.extractors.klda import KernelLDA
from dualqml.extractors.nearest import NearestSample
from dualqml.images.tangents import tangent_images
from tests.problems import make_data

KERNELS = ["rbf", "linear", "igo"]


@pytest.fixture
def faces():
    return make_data([4] * 6, 100, unit=False, centre=False, noise=1.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_training_features_have_zero_mean(faces, kernel):
    features = KernelLDA(kernel=kernel).fit_transform(*faces)
    scale = np.abs(features).max()
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12 * scale)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [[4] * 6, [2, 5, 3, 1]])
def test_ratios_are_those_of_the_full_problem(kernel, sizes):
    X, y = make_data(sizes, 100, unit=False)
    fitted = KernelLDA(kernel=kernel, regularisation=1e-2, n_components=50).fit(X, y)
    K, n = fitted.kernel_(X), y.size
    W = np.equal.outer(y, y) / np.bincount(y)[y]
    ridge = 1e-2 * np.trace(K @ K) / n * np.eye(n)
    ratios = eigh(K @ W @ K, K @ (np.eye(n) - W) @ K + ridge, eigvals_only=True)[::-1]
    n_features = len(sizes) - 1
    assert fitted.transform(X).shape == (n, n_features)
    np.testing.assert_allclose(fitted.eigenvalues_, ratios[:n_features], rtol=1e-8)
    assert np.abs(ratios[n_features:]).max() < 1e-10 * ratios[0]


def test_fewer_features_are_the_first_ones(faces):
    X, y = faces
    few = KernelLDA(n_components=2).fit_transform(X, y)
    expected = KernelLDA().fit_transform(X, y)[:, :2]
    np.testing.assert_allclose(few @ few.T, expected @ expected.T, rtol=1e-6)


def test_class_means_on_a_line_give_one_feature(rng):
    X = rng.normal(size=(12, 1)) + np.repeat([0.0, 5.0, 10.0], 4)[:, None]
    fitted = KernelLDA(kernel="linear").fit(X, np.repeat([0, 1, 2], 4))
    assert fitted.coefficients_.shape == (12, 1)


def test_linear_kernel_without_regularisation_makes_classes_points(faces):
    X, y = faces

    def spread(regularisation):
        features = KernelLDA(
            kernel="linear", regularisation=regularisation
        ).fit_transform(X, y)
        means = np.array([features[y == c].mean(axis=0) for c in range(6)])
        return np.linalg.norm(features - means[y]) / np.linalg.norm(means[y])

    assert spread(1e-10) < 1e-6 < 1e-2 < spread(1.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_of_a_sample_do_not_depend_on_the_others(faces, kernel, rng):
    X, y = faces
    fitted = KernelLDA(kernel=kernel).fit(X, y)
    new = rng.normal(size=(5, 100)) + 2.0
    together = fitted.transform(new)
    alone = np.vstack([fitted.transform(row[None]) for row in new])
    np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-9)


def test_features_are_the_coefficients_of_the_centred_kernel(faces, rng):
    X, y = faces
    fitted = KernelLDA().fit(X, y)
    new = rng.normal(size=(3, 100))
    expected = fitted.kernel_(new) @ fitted.coefficients_
    np.testing.assert_allclose(fitted.transform(new), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_sample_per_class_gives_kernel_principal_components(kernel, rng):
    X = rng.normal(size=(8, 25))
    fitted = KernelLDA(kernel=kernel, image_shape=(5, 5)).fit(X, np.arange(8))
    pca = KernelPCA(7, kernel="precomputed").fit(fitted.kernel_(X))
    # Both scaled to unit deviation: only the directions are compared.
    features = fitted.transform(X)
    np.testing.assert_allclose(
        np.abs(features.T @ pca.eigenvectors_) / np.linalg.norm(features, axis=0),
        np.eye(7),
        atol=1e-7,
    )


def test_single_precision_comes_back_as_single(faces):
    X, y = faces
    fitted = KernelLDA().fit(X, y)
    single = fitted.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    double = fitted.transform(X.astype(np.float32).astype(float))
    np.testing.assert_allclose(single, double, rtol=1e-6)


def test_image_shape_is_used_by_the_orientation_kernel_only(faces):
    X, y = faces
    with pytest.raises(ValueError, match="image_shape"):
        KernelLDA(kernel="igo", image_shape=(3, 3)).fit(X, y)
    KernelLDA(image_shape=(3, 3)).fit(X, y)
    square, flat = (
        KernelLDA(kernel="igo", image_shape=shape).fit(X, y).eigenvalues_
        for shape in [None, (5, 20)]
    )
    assert np.abs(square / square[0] - flat / flat[0]).max() > 1e-3


@pytest.mark.parametrize(
    "wrong", [{"width": 0.0}, {"regularisation": 0.0}, {"kernel": "poly"}]
)
def test_wrong_parameters_are_refused(faces, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        KernelLDA(**wrong).fit(*faces)


def test_equal_samples_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        KernelLDA().fit(np.ones((4, 3)), [0, 0, 1, 1])


def test_copies_of_samples_do_no_harm(faces):
    X, y = faces
    again = np.repeat(np.arange(24), 2)
    fitted = KernelLDA().fit(X[again], y[again])
    features = fitted.transform(X)
    assert features.shape == (24, 5)
    np.testing.assert_array_equal(NearestSample().fit(features, y).predict(features), y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("q", [1, 4])
def test_tangents_join_the_within_class_scatter(kernel, q):
    X, y = make_data([q] * 6, 36, unit=False, noise=1.0)
    options = {"kernel": kernel, "regularisation": 1e-2}
    fitted = KernelLDA(tangents=0.4, image_shape=(4, 9), **options).fit(X, y)
    K, n = fitted.kernel_(X), y.size
    W = np.equal.outer(y, y) / q
    total, within = K @ K, K @ (np.eye(n) - W) @ K
    motions = []
    for tangents in tangent_images(X, (4, 9)):
        step = 1e-5
        change = fitted.kernel_(X + step * tangents) - fitted.kernel_(
            X - step * tangents
        )
        rows = change / (2 * step)
        motions.append(rows.T @ rows / np.sum(rows**2))
    size = np.trace(within) if q > 1 else np.trace(total)
    unwanted = within + 0.4 * size * np.mean(motions, axis=0)
    unwanted += 1e-2 * np.trace(total) / n * np.eye(n)
    ratios = eigh(K @ W @ K, unwanted, eigvals_only=True)[::-1]
    np.testing.assert_allclose(fitted.eigenvalues_, ratios[:5], rtol=1e-6)
    A = fitted.coefficients_
    np.testing.assert_allclose(A.T @ unwanted @ A, np.eye(5), atol=1e-6)


def test_tangents_of_the_orientation_kernel_are_an_error(faces):
    with pytest.raises(ValueError, match="kernel='igo'"):
        KernelLDA(kernel="igo", tangents=0.1).fit(*faces)
