import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml.data import preprocessing as module
from dualqml.data.preprocessing import (
    PhotometricNormaliser,
    align_eyes,
    crop,
    resize,
    to_grey,
)

METHODS = ["unit-norm", "z-score", "equalise", "tan-triggs", "none"]
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
    "unit-norm": lambda x: (x - x.mean()) / np.linalg.norm(x - x.mean()),
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
    np.testing.assert_allclose(normalised.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normalised, axis=1), 1.0, rtol=1e-12)


def test_equalised_ties_stay_ties_and_the_range_is_full():
    row = [[5.0, 5.0, 2.0, 9.0, 9.0, 2.0, 7.0]]
    normalised = PhotometricNormaliser(method="equalise").fit_transform(row)
    # Of 7 pixels 2, 4, 5 and 7 are not brighter.
    np.testing.assert_allclose(normalised, [[0.4, 0.4, 0, 1, 1, 0, 0.6]])


@pytest.mark.parametrize("method", CHANGING)
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
    monkeypatch.setattr(module, "_TEMPORARY_BYTES", 3 * 48 * 30)
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


@pytest.mark.parametrize("new", [(32, 32), (7, 50), (60, 45), (41, 1), (1, 3)])
def test_resize_is_that_of_pillow(new, rng):
    images = rng.random((2, 41, 30)).astype(np.float32)
    for image, resized in zip(images, resize(images, new), strict=True):
        reference = np.asarray(
            Image.fromarray(image).resize(new[::-1], Image.Resampling.LANCZOS)
        )
        reference = reference.clip(image.min(), image.max())
        np.testing.assert_allclose(resized, reference, atol=1e-5)


def test_resize_of_bytes_is_that_of_pillow(rng):
    smooth = gaussian_filter(rng.random((112, 92)), 3.0)
    image = np.uint8(60 + 100 * (smooth - smooth.min()) / np.ptp(smooth))
    reference = Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS)
    resized = resize(image, (32, 32))
    assert resized.dtype == np.uint8
    # Pillow rounds between its two passes as well.
    assert np.abs(resized.astype(int) - np.asarray(reference)).max() <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_resize_stays_within_the_values_of_the_image(dtype):
    image = np.zeros((20, 20), dtype=dtype)
    image[:, 10:] = np.array(200, dtype=dtype)
    resized = resize(image, (33, 33))
    assert resized.dtype == dtype
    assert (resized.min(), resized.max()) == (0, 200)


def test_resize_to_the_same_size_changes_nothing(rng):
    image = rng.random((2, 3, 12, 9))
    np.testing.assert_allclose(resize(image, (12, 9)), image, atol=1e-14)


def test_resize_filters_out_what_is_too_fine():
    stripes = np.tile([0.0, 1.0], (64, 32))
    inner = resize(stripes, (16, 16))[:, 2:-2]
    np.testing.assert_allclose(inner, 0.5, atol=0.03)


def test_crop_cuts_the_box_out():
    images = np.arange(2 * 5 * 6).reshape(2, 5, 6)
    np.testing.assert_array_equal(crop(images, (1, 2, 4, 6)), images[:, 1:4, 2:6])
    np.testing.assert_array_equal(crop(images[0], (0, 0, 5, 6)), images[0])


def test_grey_is_that_of_pillow(rng):
    colours = rng.integers(0, 256, size=(20, 30, 3), dtype=np.uint8)
    grey = to_grey(colours)
    assert grey.dtype == np.uint8
    reference = np.asarray(Image.fromarray(colours).convert("L"))
    assert np.abs(grey.astype(int) - reference).max() <= 1
    opacity = rng.integers(0, 256, size=(20, 30, 1), dtype=np.uint8)
    np.testing.assert_array_equal(to_grey(np.dstack([colours, opacity])), grey)


def test_grey_of_floats_and_of_stacks(rng):
    colours = rng.random((4, 6, 5, 3)).astype(np.float32)
    grey = to_grey(colours)
    assert grey.dtype == np.float32
    expected = np.average(colours, axis=-1, weights=[299, 587, 114])
    np.testing.assert_allclose(grey, expected, rtol=1e-6)
    np.testing.assert_array_equal(to_grey(np.full((2, 2, 3), 255, np.uint8)), 255)


def two_dots(shape, dots, width):
    row, column = np.indices(shape)
    return sum(
        np.exp(-((row - y) ** 2 + (column - x) ** 2) / (2.0 * width**2))
        for y, x in dots
    )


def centres(image):
    """Centres of mass of the dots in the left and the right half."""
    row, column = np.indices(image.shape)
    left = column < image.shape[1] / 2
    return [
        [np.average(at[half], weights=image[half]) for at in (row, column)]
        for half in (left, ~left)
    ]


@settings(max_examples=60, deadline=None)
@given(
    degrees=st.floats(-75, 75),
    distance=st.floats(12, 90),
    eye_row=st.floats(0.3, 0.6),
    eye_distance=st.floats(0.4, 0.6),
    size=st.sampled_from([(40, 40), (48, 32), (33, 47)]),
)
def test_eyes_land_where_they_should(degrees, distance, eye_row, eye_distance, size):
    angle = np.radians(degrees)
    half = 0.5 * distance * np.array([np.sin(angle), np.cos(angle)])
    middle = np.array([81.3, 77.8])
    eyes = middle - half, middle + half
    # As large in every result: neither lost between pixels nor merged.
    width = max(1.5, distance / 16)
    aligned = align_eyes(
        two_dots((160, 160), eyes, width), *eyes, size, eye_row, eye_distance
    )
    assert aligned.shape == size
    at_row = eye_row * size[0] - 0.5
    at_column = size[1] / 2 - 0.5 + np.array([-0.5, 0.5]) * eye_distance * size[1]
    for found, column in zip(centres(aligned), at_column, strict=True):
        assert np.hypot(found[0] - at_row, found[1] - column) < 0.5


def test_eyes_in_place_leave_the_image(rng):
    image = rng.integers(0, 256, size=(20, 32), dtype=np.uint8)
    # Row 0.35 * 20 - 0.5, and columns 0.25 and 0.75 of 32 less 0.5.
    aligned = align_eyes(image, (6.5, 7.5), (6.5, 23.5), (20, 32))
    assert aligned.dtype == np.uint8
    np.testing.assert_array_equal(aligned, image)


def test_beyond_the_image_its_edge_goes_on():
    image = np.full((10, 10), 0.7)
    aligned = align_eyes(image, (1.0, 0.0), (3.0, 9.0), (30, 30), eye_row=0.9)
    np.testing.assert_allclose(aligned, 0.7)


GREY = np.zeros((10, 12))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: to_grey(np.zeros((5, 5, 2))), "have 2 channels, not 3"),
        (lambda: to_grey(np.zeros((5, 5))), r"shape \(5, 5\), but \(..., height"),
        (lambda: crop(np.zeros(5), (0, 0, 1, 1)), r"shape \(5,\), but \(\.\.\., h"),
        (lambda: crop(GREY > 0, (0, 0, 1, 1)), "type bool are not"),
        (lambda: crop(GREY, (0, 0, 11, 12)), "not within images of height 10 and"),
        (lambda: crop(GREY, (-1, 0, 5, 5)), r"box=\(-1, 0, 5, 5\)"),
        (lambda: crop(GREY, (5, 0, 5, 5)), "is empty or not within"),
        (lambda: crop(GREY, (0, 0, 5)), "not four integers: top, left"),
        (lambda: crop(GREY, (0, 0.5, 5, 5)), "not four integers: top, left"),
        (lambda: resize(GREY, (0, 4)), r"size=\(0, 4\) is not a height"),
        (lambda: resize(GREY, (4.0, 4)), r"size=\(4.0, 4\) is not a height"),
        (lambda: resize(GREY, (4, 4, 3)), r"size=\(4, 4, 3\) is not a height"),
        (lambda: resize(GREY[:0], (4, 4)), r"shape \(0, 12\), but"),
        (
            lambda: align_eyes(np.zeros((2, 10, 12)), (5, 3), (5, 8), (4, 4)),
            "must be a single grey image",
        ),
        (lambda: align_eyes(GREY, (5, 8), (5, 3), (4, 4)), "is not to the left of"),
        (lambda: align_eyes(GREY, (5, 3), (5, 3), (4, 4)), "is not to the left of"),
        (
            lambda: align_eyes(GREY, (5, 3), (5, 12), (4, 4)),
            r"right_eye=\(5, 12\) is not a \(row, column\) within .*10 and width 12",
        ),
        (lambda: align_eyes(GREY, (5, np.nan), (5, 8), (4, 4)), "left_eye=.*nan"),
        (lambda: align_eyes(GREY, (5,), (5, 8), (4, 4)), r"left_eye=\(5,\) is not"),
        (
            lambda: align_eyes(GREY, (5, 3), (5, 8), (4, 4), eye_row=1.0),
            "eye_row=1.0 is not between 0 and 1",
        ),
        (
            lambda: align_eyes(GREY, (5, 3), (5, 8), (4, 4), eye_distance=0.0),
            "eye_distance=0.0 is not between 0 and 1",
        ),
        (lambda: align_eyes(GREY, (5, 3), (5, 8), (4,)), r"size=\(4,\) is not"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
