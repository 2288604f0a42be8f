import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import cosine_similarity

from dualqml.exceptions import DualQMLError
from dualqml.extractors.ere import ERE
from dualqml.extractors.erkda import ERKDA
from dualqml.images.tangents import tangent_images
from tests.problems import make_data

KERNELS = ["rbf", "linear", "igo"]


@pytest.fixture
def faces():
    return make_data([4] * 6, 100, unit=False, centre=False, noise=1.0)


@pytest.mark.parametrize(
    ("sizes", "n_features"), [([4] * 6, 100), ([2, 5, 1, 3], 40), ([20] * 3, 6)]
)
@pytest.mark.parametrize("mu", [0.5, 1.0])
def test_linear_kernel_gives_the_cosines_of_ere(sizes, n_features, mu, rng):
    X, y = make_data(sizes, n_features, unit=False, centre=False)
    both = np.vstack([X, rng.normal(size=(10, n_features))])
    expected = cosine_similarity(ERE(mu=mu).fit(X, y).transform(both))
    actual = cosine_similarity(ERKDA(kernel="linear", mu=mu).fit(X, y).transform(both))
    np.testing.assert_allclose(actual, expected, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_are_decorrelated_and_of_zero_mean(faces, kernel):
    features = ERKDA(kernel=kernel).fit_transform(*faces)
    assert features.shape == (24, 23)
    covariance = np.cov(features.T, bias=True)
    variances = np.diag(covariance)
    atol = 1e-9 * variances[0]
    np.testing.assert_allclose(covariance, np.diag(variances), atol=atol)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-9)


def test_fewer_features_are_the_first_ones(faces):
    X, y = faces
    few = ERKDA(n_components=3).fit_transform(X, y)
    expected = ERKDA().fit_transform(X, y)[:, :3]
    np.testing.assert_allclose(few @ few.T, expected @ expected.T, atol=1e-7)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_cosines_do_not_depend_on_gain_and_offset(faces, kernel):
    X, y = faces
    expected = cosine_similarity(ERKDA(kernel=kernel).fit_transform(X, y))
    actual = cosine_similarity(ERKDA(kernel=kernel).fit_transform(3.0 * X - 5.0, y))
    np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_orientation_kernel_ignores_the_gain_and_offset_of_each_image(faces, rng):
    X, y = faces
    fitted = ERKDA(kernel="igo").fit(X, y)
    changed = rng.uniform(0.2, 5, size=(24, 1)) * X + rng.normal(size=(24, 1))
    np.testing.assert_allclose(
        fitted.transform(changed), fitted.transform(X), atol=1e-9
    )


def test_width_and_mu_change_the_features(faces):
    X, y = faces
    usual = cosine_similarity(ERKDA().fit_transform(X, y))
    for other in (ERKDA(width=0.2), ERKDA(mu=0.0)):
        assert np.abs(cosine_similarity(other.fit_transform(X, y)) - usual).max() > 1e-3


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_of_a_sample_do_not_depend_on_the_others(faces, kernel, rng):
    X, y = faces
    fitted = ERKDA(kernel=kernel).fit(X, y)
    new = rng.normal(size=(5, 100)) + 2.0
    together = fitted.transform(new)
    alone = np.vstack([fitted.transform(row[None]) for row in new])
    np.testing.assert_allclose(alone, together, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("copies", [1, 3])
def test_one_image_per_class_gives_kernel_principal_components(kernel, copies, rng):
    X = np.repeat(rng.normal(size=(9, 25)), copies, axis=0)
    model = ERKDA(kernel=kernel, image_shape=(5, 5))
    fitted = model.fit(X, np.repeat(np.arange(9), copies))
    features = fitted.transform(X)
    expected = KernelPCA(8, kernel="precomputed").fit_transform(fitted.kernel_(X))
    assert features.shape[1] == 8
    np.testing.assert_allclose(features @ features.T, expected @ expected.T, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 100), (100, 1), (4, 25)])
def test_images_of_any_shape(faces, shape):
    features = ERKDA(kernel="igo", image_shape=shape).fit_transform(*faces)
    assert np.isfinite(features).all()
    assert np.abs(features).max() > 0


def test_constant_image_has_the_features_of_no_gradient(faces):
    X, y = faces
    X[3] = 0.1
    model = ERKDA(kernel="igo").fit(X, y)
    features = model.transform(X)
    assert np.isfinite(features).all()
    # All constant images are alike.
    other = model.transform(np.full_like(X[:1], 0.7))
    np.testing.assert_allclose(other[0], features[3], atol=1e-10)


def test_single_precision_comes_back_as_single(faces):
    X, y = faces
    fitted = ERKDA().fit(X, y)
    single = fitted.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    double = fitted.transform(X.astype(np.float32).astype(float))
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-6)


def test_equal_samples_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        ERKDA().fit(np.ones((4, 3)), [0, 0, 1, 1])


@pytest.mark.parametrize("sizes", [[4] * 6, [2, 5, 1, 3], [1] * 7])
def test_linear_kernel_with_tangents_gives_the_cosines_of_ere(sizes, rng):
    X, y = make_data(sizes, 36, unit=False, centre=False)
    both = np.vstack([X, rng.normal(size=(10, 36))])
    options = {"tangents": 0.4, "image_shape": (4, 9)}
    expected = cosine_similarity(ERE(**options).fit(X, y).transform(both))
    actual = cosine_similarity(
        ERKDA(kernel="linear", **options).fit(X, y).transform(both)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_tangents_make_the_features_blind_to_motions(faces):
    X, y = faces
    tangents = tangent_images(X, (10, 10))

    def change(weight):
        fitted = ERKDA(tangents=weight).fit(X, y)
        features = fitted.transform(X)
        moved = [fitted.transform(X + 1e-3 * tangent) for tangent in tangents]
        return np.linalg.norm(moved - features) / np.linalg.norm(features)

    assert change(10.0) < 0.9 * change(0.0)


def test_tangents_of_the_orientation_kernel_are_an_error(faces):
    with pytest.raises(ValueError, match="kernel='igo'"):
        ERKDA(kernel="igo", tangents=0.1).fit(*faces)
