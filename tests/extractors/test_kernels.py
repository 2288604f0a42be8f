import numpy as np
import pytest

from dualqml._linalg import gram_distances, squared_distances
from dualqml.exceptions import DualQMLError
from dualqml.extractors import kernels
from dualqml.extractors.kernels import (
    centred_kernel,
    median_of_pairs,
    orientation_features,
)
from dualqml.images.shapes import shape_or_row

KERNELS = ["rbf", "linear", "igo"]


def prepared(name, X, width=4.0, shape=None):
    # These images are so small that their shape must be given.
    shape = shape_or_row(shape, X.shape[1])
    return centred_kernel(name, X, width=width, image_shape=shape)[0]


def orientation_kernel(X, shape):
    features = orientation_features(X, shape)
    return features @ features.T


def test_squared_distances_are_those_of_the_definition(rng):
    A, B = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    expected = ((A[:, None] - B) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(A, B), expected)


def test_squared_distances_of_copies_are_not_negative(rng):
    A = np.repeat(rng.normal(size=(20, 50)), 2, axis=0)
    assert squared_distances(A, A).min() >= 0


def test_distances_from_products_do_not_depend_on_the_origin(rng):
    X = rng.normal(size=(6, 3))
    expected = squared_distances(X, X)
    for origin in (np.zeros(3), X.mean(axis=0)):
        gram = (X - origin) @ (X - origin).T
        before = gram.copy()
        for others in (np.arange(6), np.array([4, 1])):
            found = gram_distances(gram[:, others], np.diag(gram), others)
            np.testing.assert_allclose(found, expected[:, others], atol=1e-13)
        np.testing.assert_array_equal(gram, before)


@pytest.mark.parametrize("name", KERNELS)
def test_the_values_of_the_training_samples_come_with_the_kernel(name, rng):
    X = rng.normal(size=(9, 25))
    kernel, values = centred_kernel(name, X, width=2.0, image_shape=(5, 5))
    np.testing.assert_allclose(values, kernel.raw(X), atol=1e-14)
    np.testing.assert_allclose(kernel.centred(values), kernel(X), atol=1e-14)


def test_known_distances_give_the_same_kernel(rng):
    X = rng.normal(size=(9, 25))
    options = {"width": 2.0, "image_shape": None}
    plain, expected = centred_kernel("rbf", X, **options)
    kernel, values = centred_kernel(
        "rbf", X, distances=squared_distances(X, X), **options
    )
    np.testing.assert_allclose(values, expected, atol=1e-14)
    assert kernel.bandwidth == pytest.approx(plain.bandwidth)
    np.testing.assert_allclose(kernel(X), plain(X), atol=1e-13)


@pytest.mark.parametrize("name", KERNELS)
def test_landmarks_are_the_samples_that_others_are_compared_with(rng, name):
    X = rng.normal(size=(12, 25))
    landmarks = np.array([1, 4, 5, 9])
    options = {"width": 2.0, "image_shape": (5, 5)}
    whole, _ = centred_kernel(name, X, **options)
    kernel, values = centred_kernel(name, X, landmarks=landmarks, **options)
    assert kernel.samples.shape[0] == 4
    np.testing.assert_allclose(values, kernel.raw(X), atol=1e-14)
    np.testing.assert_allclose(kernel.row_means, values.mean(axis=0), atol=1e-14)
    if name != "rbf":
        np.testing.assert_allclose(values, whole.raw(X)[:, landmarks], atol=1e-13)


def test_median_is_over_pairs_without_the_diagonal():
    X = np.array([[0.0], [1.0], [3.0]])
    assert median_of_pairs(squared_distances(X, X)) == 4.0


def test_median_of_mostly_copies_falls_back_to_the_mean():
    X = np.array([[0.0]] * 5 + [[2.0]])
    assert median_of_pairs(squared_distances(X, X)) == pytest.approx(4 * 5 / 15)


def test_rbf_is_the_formula_in_units_of_the_median(rng):
    X, new = rng.normal(size=(7, 4)) + 50, rng.normal(size=(3, 4)) + 50
    pairs = [((a - b) ** 2).sum() for i, a in enumerate(X) for b in X[:i]]
    distances = ((new[:, None] - X) ** 2).sum(axis=2)
    expected = np.exp(-distances / (2 * 1.5 * np.median(pairs)))
    actual = prepared("rbf", X, width=1.5).raw(new)
    np.testing.assert_allclose(actual, expected)


def test_rbf_keeps_its_digits_when_the_samples_are_far_from_the_origin(rng):
    X = rng.normal(size=(8, 5))
    near, far = prepared("rbf", X), prepared("rbf", X + 1e6)
    np.testing.assert_allclose(far(X + 1e6), near(X), atol=1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_positive_semidefinite(name, rng):
    X = rng.normal(size=(20, 25))
    kernel = prepared(name, X)
    for K in (kernel.raw(X), kernel(X)):
        values = np.linalg.eigvalsh(K)
        assert values[0] > -1e-12 * values[-1]


@pytest.mark.parametrize("name", KERNELS)
def test_centred_training_kernel_is_the_double_centred_one(name, rng):
    X = rng.normal(size=(9, 16))
    kernel = prepared(name, X)
    J = np.eye(9) - 1 / 9
    expected = J @ kernel.raw(X) @ J
    np.testing.assert_allclose(kernel(X), expected, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_new_samples_are_centred_with_the_training_means(name, rng):
    X, new = rng.normal(size=(9, 16)), rng.normal(size=(4, 16)) + 1.0
    kernel = prepared(name, X)
    K, k = kernel.raw(X), kernel.raw(new)
    expected = k - k.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
    np.testing.assert_allclose(kernel(new), expected, atol=1e-12)
    np.testing.assert_allclose(kernel(new[:1]), expected[:1], atol=1e-12)


def test_centred_linear_kernel_is_the_product_of_centred_samples(rng):
    X, new = rng.normal(size=(9, 5)) + 3, rng.normal(size=(4, 5))
    expected = (new - X.mean(axis=0)) @ (X - X.mean(axis=0)).T
    np.testing.assert_allclose(prepared("linear", X)(new), expected, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n_bytes", [1, 300])
def test_projection_in_chunks_equals_projection_at_once(
    name, n_bytes, rng, monkeypatch
):
    X, new = rng.normal(size=(9, 16)), rng.normal(size=(11, 16))
    coefficients = rng.normal(size=(9, 3))
    kernel = prepared(name, X)
    expected = kernel(new) @ coefficients
    monkeypatch.setattr(kernels, "_KERNEL_BYTES", n_bytes)
    actual = kernel.project(new, coefficients)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_chunks_bound_the_rows_held_at_a_time(rng, monkeypatch):
    kernel = prepared("rbf", rng.normal(size=(10, 4)))
    monkeypatch.setattr(kernels, "_KERNEL_BYTES", 240)
    assert [s.indices(8) for s in kernel._chunks(8)] == [
        (0, 3, 1),
        (3, 6, 1),
        (6, 8, 1),
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_projection_computes_single_precision_in_double(name, rng):
    X = rng.normal(size=(9, 16)).astype(np.float32)
    kernel = prepared(name, X.astype(float))
    out = kernel.project(X, np.eye(9))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, kernel(X.astype(float)), atol=1e-12)


def test_orientation_kernel_is_the_mean_cosine_between_gradients(rng):
    a, b = rng.normal(size=(2, 4, 6))
    angles = [np.arctan2(*np.gradient(image)) for image in (a, b)]
    expected = np.cos(angles[0] - angles[1]).mean()
    K = orientation_kernel(np.stack([a.ravel(), b.ravel()]), (4, 6))
    np.testing.assert_allclose(K, [[1.0, expected], [expected, 1.0]])


def test_orientation_kernel_ignores_gain_and_offset(rng):
    X = rng.normal(size=(6, 20))
    changed = rng.uniform(0.1, 9, size=(6, 1)) * X + rng.normal(size=(6, 1))
    np.testing.assert_allclose(
        orientation_features(changed, (4, 5)),
        orientation_features(X, (4, 5)),
        atol=1e-12,
    )


def test_pixels_without_gradient_contribute_nothing():
    flat, ramp = np.full(12, 0.1), np.tile(np.arange(4.0), 3)
    half = np.repeat(np.maximum(np.arange(6.0) - 2, 0)[None], 2, axis=0).ravel()
    K = orientation_kernel(np.stack([flat, ramp, half]), (2, 6))
    assert np.isfinite(K).all()
    np.testing.assert_array_equal(K[0], 0.0)
    # Slope of 0 0 0 1 2 3: zero at the first two of six pixels.
    np.testing.assert_allclose(K[2, 2], 4 / 6)


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_images_of_one_row_or_column_have_the_signs_of_their_slope(shape):
    K = orientation_kernel(np.array([[0, 1, 2, 3, 4, 5.0], [5, 4, 3, 2, 1, 0]]), shape)
    np.testing.assert_allclose(K, [[1, -1], [-1, 1]])


def test_image_shape_matters_and_is_checked(rng):
    X = rng.normal(size=(5, 12))
    tall, wide = (prepared("igo", X, shape=s)(X) for s in [(6, 2), (2, 6)])
    assert np.abs(tall - wide).max() > 0.01
    with pytest.raises(ValueError, match="image_shape"):
        prepared("igo", X, shape=(5, 5))


def test_one_pixel_has_no_gradient():
    with pytest.raises(ValueError, match="n_features=1"):
        prepared("igo", np.arange(5.0)[:, None])


@pytest.mark.parametrize("name", KERNELS)
def test_equal_samples_are_an_error(name):
    with pytest.raises(DualQMLError, match="are equal"):
        prepared(name, np.tile([0.1, 0.7, 0.3, 0.9], (7, 1)))
