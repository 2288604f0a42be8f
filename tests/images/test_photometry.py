import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml.images import photometry, shapes
from dualqml.images.photometry import PhotometricNormaliser

METHODS = ["unit-norm", "mean-removed", "z-score", "equalise", "tan-triggs", "none"]
CHANGING = METHODS[:-1]


@parametrize_with_checks([PhotometricNormaliser(method=method) for method in METHODS])
def test_scikit_learn(estimator, check):
    check(estimator)


def reference_tan_triggs(image):
    image = image**0.2
    image = gaussian_filter(image, 1.0, mode="nearest") - gaussian_filter(
        image, 2.0, mode="nearest"
    )
    image = image / np.mean(np.abs(image) ** 0.1) ** 10
    image = image / np.mean(np.minimum(10, np.abs(image)) ** 0.1) ** 10
    return 10 * np.tanh(image / 10)


def reference_equalised(image):
    values = image.ravel()
    below = np.array([np.sum(values <= value) for value in values])
    return ((below - below.min()) / (values.size - below.min())).reshape(image.shape)


REFERENCES = {
    "unit-norm": lambda x: x / np.linalg.norm(x),
    "mean-removed": lambda x: (x - x.mean()) / np.linalg.norm(x - x.mean()),
    "z-score": lambda x: (x - x.mean()) / x.std(),
    "equalise": reference_equalised,
    "tan-triggs": reference_tan_triggs,
    "none": lambda x: x,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(12, 9), (1, 17), (17, 1), (3, 5)])
def test_equals_the_definition_image_by_image(method, shape, rng):
    images = rng.integers(0, 20, size=(6, *shape)).astype(float)
    expected = [REFERENCES[method](image).ravel() for image in images]
    model = PhotometricNormaliser(method=method, image_shape=shape)
    normalised = model.fit_transform(images.reshape(6, -1))
    np.testing.assert_allclose(normalised, expected, rtol=0, atol=1e-10)


def test_unit_norm_is_the_default(rng):
    X = rng.random((5, 30)) + 3.0
    normalised = PhotometricNormaliser().fit_transform(X)
    np.testing.assert_allclose(normalised, normalize(X), rtol=1e-12)
    removed = PhotometricNormaliser(method="mean-removed").fit_transform(X)
    np.testing.assert_allclose(removed.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(removed, axis=1), 1.0, rtol=1e-12)


def test_equalised_ties_stay_ties_and_the_range_is_full():
    row = [[5.0, 5.0, 2.0, 9.0, 9.0, 2.0, 7.0]]
    normalised = PhotometricNormaliser(method="equalise").fit_transform(row)
    # Of 7 pixels 2, 4, 5 and 7 are not brighter.
    np.testing.assert_allclose(normalised, [[0.4, 0.4, 0, 1, 1, 0, 0.6]])


@pytest.mark.parametrize("method", CHANGING[1:])
@pytest.mark.parametrize("grey", [0.0, 0.1, 1 / 3, 255.0, 1e-40, 1e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images_without_contrast_are_zeros(method, grey, dtype, rng):
    X = rng.random((3, 49)).astype(dtype)
    X[1] = grey
    normalised = PhotometricNormaliser(method=method).fit_transform(X)
    np.testing.assert_array_equal(normalised[1], 0.0)
    assert np.abs(normalised[[0, 2]]).max(axis=1).min() > 0.1


@pytest.mark.parametrize("method", CHANGING)
@pytest.mark.parametrize("gain", [255.0, 1e-200, 1e200])
def test_gain_changes_nothing(method, gain, rng):
    X = rng.random((4, 64))
    model = PhotometricNormaliser(method=method)
    np.testing.assert_allclose(
        model.fit_transform(gain * X), model.fit_transform(X), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_stays_and_is_as_exact(method, rng):
    X = rng.random((4, 64)).astype(np.float32)
    model = PhotometricNormaliser(method=method)
    single = model.fit_transform(X)
    assert single.dtype == np.float32
    double = model.fit_transform(X.astype(np.float64))
    assert double.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_needs_no_fit_and_does_not_write_to_the_input(method, rng):
    X = rng.random((4, 64))
    X.setflags(write=False)
    model = PhotometricNormaliser(method=method)
    unfitted = clone(model).transform(X)
    np.testing.assert_array_equal(unfitted, model.fit_transform(X))


@pytest.mark.parametrize("method", CHANGING)
def test_chunks_change_nothing(method, rng, monkeypatch):
    X = rng.random((7, 30))
    model = PhotometricNormaliser(method=method, image_shape=(5, 6))
    expected = model.fit_transform(X)
    three_images = 3 * 30 * photometry._BYTES_PER_PIXEL
    monkeypatch.setattr(shapes, "_TEMPORARY_BYTES", three_images)
    np.testing.assert_array_equal(model.fit_transform(X), expected)


def test_tan_triggs_takes_out_a_shadow(rng):
    texture = 1.0 + 0.3 * rng.random((40, 40))
    shadow = np.linspace(0.2, 1.0, 40)
    X = np.array([texture.ravel(), (texture * shadow).ravel()])

    def likeness(rows):
        return np.corrcoef(rows)[0, 1]

    normalised = PhotometricNormaliser(method="tan-triggs").fit_transform(X)
    assert likeness(X) < 0.5 < 0.9 < likeness(normalised)


def test_feature_names_are_kept():
    model = PhotometricNormaliser().fit([[1.0, 2.0]])
    assert list(model.get_feature_names_out(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "bright"}, "'method' parameter.*must be a str among"),
        ({"image_shape": (4, 4)}, "has 16 pixels, but the rows of X have 9"),
        ({"image_shape": 3}, "'image_shape' parameter"),
    ],
)
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_bad_parameters_are_named(parameters, message, step):
    model = PhotometricNormaliser(**parameters)
    with pytest.raises(ValueError, match=message):
        getattr(model, step)(np.ones((2, 9)))


def test_tan_triggs_names_negative_pixels():
    model = PhotometricNormaliser(method="tan-triggs")
    for step in (model.fit, model.transform):
        with pytest.raises(ValueError, match=r"black for zero: the least is -0\.5"):
            step([[0.0, 1.0, -0.5, 2.0]])
