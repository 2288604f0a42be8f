import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dualqml.images.geometry import align_eyes, crop, resize, to_8_bits, to_grey


@pytest.mark.parametrize("new", [(32, 32), (7, 50), (60, 45), (41, 1), (1, 3)])
def test_resize_is_that_of_pillow(new, rng):
    images = rng.random((2, 41, 30)).astype(np.float32)
    for image, resized in zip(images, resize(images, new), strict=True):
        reference = np.asarray(
            Image.fromarray(image).resize(new[::-1], Image.Resampling.LANCZOS)
        )
        reference = reference.clip(image.min(), image.max())
        np.testing.assert_allclose(resized, reference, atol=1e-5)


SIDES = st.integers(1, 70)


@settings(max_examples=80, deadline=None)
@given(
    old=st.tuples(SIDES, SIDES),
    new=st.tuples(SIDES, SIDES),
    two_values=st.booleans(),
    seed=st.integers(0, 99),
)
def test_resize_of_bytes_is_that_of_pillow(old, new, two_values, seed):
    image = np.random.default_rng(seed).integers(0, 256, size=old, dtype=np.uint8)
    if two_values:
        # Overshoots at every edge.
        image = np.where(image > 127, np.uint8(255), np.uint8(0))
    lanczos = Image.Resampling.LANCZOS
    # Across, then down: which comes first is not the same in all versions of Pillow.
    reference = Image.fromarray(image).resize((new[1], old[0]), lanczos)
    reference = reference.resize((new[1], new[0]), lanczos)
    resized = resize(image, new)
    assert resized.dtype == np.uint8
    np.testing.assert_array_equal(resized, np.asarray(reference))


def test_a_stack_of_bytes_is_resized_image_by_image(rng):
    images = rng.integers(0, 256, size=(2, 3, 40, 31), dtype=np.uint8)
    resized = resize(images, [12, 17])
    for place in np.ndindex(2, 3):
        np.testing.assert_array_equal(resized[place], resize(images[place], (12, 17)))


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.float32, np.float64])
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
    np.testing.assert_array_equal(
        grey, np.asarray(Image.fromarray(colours).convert("L"))
    )


def test_grey_over_black_is_that_of_pillow(rng):
    # All pairs of a value and an opacity.
    value, opacity = np.meshgrid(*2 * [np.arange(256, dtype=np.uint8)])
    pixels = np.dstack([value, value[::-1], value[:, ::-1], opacity])
    image = Image.fromarray(pixels)
    black = Image.new("RGBA", image.size, (0, 0, 0, 255))
    reference = Image.alpha_composite(black, image).convert("L")
    np.testing.assert_array_equal(to_grey(pixels), np.asarray(reference))
    two = np.dstack([value, opacity])
    four = np.dstack([value, value, value, opacity])
    np.testing.assert_array_equal(to_grey(two), to_grey(four))


@pytest.mark.parametrize("n_colours", [1, 3])
def test_what_is_transparent_is_black_in_every_type(n_colours, rng):
    colours = rng.integers(0, 256, size=(6, 7, n_colours), dtype=np.uint8)
    opacity = rng.integers(0, 2, size=(6, 7, 1), dtype=np.uint8)
    pixels = np.concatenate([colours, 255 * opacity], axis=2)
    grey = to_grey(colours) if n_colours == 3 else colours[..., 0]
    expected = grey * opacity[..., 0]
    np.testing.assert_array_equal(to_grey(pixels), expected)
    np.testing.assert_array_equal(to_grey(pixels.astype(np.int64)), expected)
    deep = to_grey(np.uint16(257) * pixels)
    assert deep.dtype == np.uint16
    np.testing.assert_array_equal(to_8_bits(deep), expected)
    real = to_grey(pixels / 255.0)
    np.testing.assert_allclose(255.0 * real, expected, atol=0.51)


def test_pixels_of_any_type_become_8_bits():
    every = np.arange(256, dtype=np.uint8)
    assert to_8_bits(every) is every
    for same in (
        every.astype(np.int64),
        every / 255.0,
        (every / 255.0).astype(np.float32),
        (every / 255.0).astype(np.float16),
        np.uint16(257) * every,
    ):
        np.testing.assert_array_equal(to_8_bits(same), every)
    np.testing.assert_array_equal(to_8_bits([[True, False]]), [[255, 0]])
    deep = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(to_8_bits(deep), np.round(deep / 257.0))
    # The type decides, not the values.
    assert to_8_bits(np.array([255], dtype=np.uint16)) == [1]
    assert to_8_bits(np.empty((0, 3))).dtype == np.uint8


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
        (lambda: to_grey(np.zeros((5, 5, 5))), "have 5 channels, not 3"),
        (lambda: to_8_bits([0, 256]), "other whole numbers from 0 to 255; got int"),
        (lambda: to_8_bits([-1, 0]), "from -1 to 0"),
        (lambda: to_8_bits([0.0, 1.01]), "got float64 from 0 to 1.01"),
        (lambda: to_8_bits([0.0, np.nan]), "got float64 from nan to nan"),
        (lambda: to_8_bits(["a"]), "must be numbers"),
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
