import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from dualqml.extractors._motions import (
    image_gradients,
    tangent_features,
    tangent_images,
)

SHAPE = (24, 30)

#: How the sampling points move, in the documented order.
MOTIONS = {
    "shift x": lambda x, y: (1.0, 0.0),
    "shift y": lambda x, y: (0.0, 1.0),
    "zoom": lambda x, y: (x, y),
    "rotation": lambda x, y: (y, -x),
    "shear along y": lambda x, y: (0.0, x),
    "shear along x": lambda x, y: (y, 0.0),
}


def smooth_images(n_images, shape, seed):
    """Sums of waves that are long beside a pixel."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(shape)
    images = np.zeros((n_images, *shape))
    for image in images:
        for _ in range(6):
            down, right = rng.uniform(-0.25, 0.25, size=2)
            phase = rng.uniform(0.0, 2.0 * np.pi)
            image += rng.normal() * np.cos(down * rows + right * columns + phase)
    return images


def moved(image, motion, step):
    """The image sampled at points moved by step * v(x, y), by cubic splines."""
    height, width = image.shape
    rows, columns = np.indices(image.shape).astype(float)
    x, y = 2.0 * columns / (width - 1) - 1.0, 2.0 * rows / (height - 1) - 1.0
    along_x, along_y = MOTIONS[motion](x, y)
    # Two units of the coordinates are the whole width or height.
    columns = columns + step * along_x * (width - 1) / 2.0
    rows = rows + step * along_y * (height - 1) / 2.0
    return map_coordinates(image, [rows, columns], order=3, mode="mirror")


@pytest.mark.parametrize("motion", MOTIONS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_tangents_are_the_change_of_images_that_really_move(motion, seed):
    images = smooth_images(2, SHAPE, seed)
    tangents = tangent_images(images.reshape(2, -1), SHAPE)
    assert tangents.shape == (6, 2, 24 * 30)
    step = 0.05 / 15.0  # a twentieth of a pixel
    inside = np.s_[3:-3, 3:-3]
    for image, tangent in zip(
        images, tangents[list(MOTIONS).index(motion)], strict=True
    ):
        change = moved(image, motion, step) - moved(image, motion, -step)
        expected = change[inside].ravel() / (2.0 * step)
        actual = tangent.reshape(SHAPE)[inside].ravel()
        assert np.corrcoef(actual, expected)[0, 1] > 0.999
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        assert error < 0.03


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_small_motion_is_the_image_plus_its_tangent(motion):
    (image,) = smooth_images(1, SHAPE, seed=3)
    tangents = tangent_images(image.reshape(1, -1), SHAPE)
    tangent = tangents[list(MOTIONS).index(motion), 0].reshape(SHAPE)
    step = 0.2 / 15.0
    inside = np.s_[3:-3, 3:-3]
    exact = moved(image, motion, step)[inside]
    without = np.linalg.norm(exact - image[inside])
    assert np.linalg.norm(exact - (image + step * tangent)[inside]) < 0.1 * without


def test_gradients_of_a_plane_are_its_slopes_up_to_the_edge():
    rows, columns = np.indices((5, 7))
    images = np.stack([3.0 * rows - 2.0 * columns, 0.5 * columns])
    down, right = image_gradients(images)
    np.testing.assert_allclose(down, np.full((2, 5, 7), [[[3.0]], [[0.0]]]))
    np.testing.assert_allclose(right, np.full((2, 5, 7), [[[-2.0]], [[0.5]]]))


def test_gradients_inside_are_central_differences(rng):
    images = rng.normal(size=(3, 6, 5))
    down, right = image_gradients(images)
    for n in range(3):
        for i in range(1, 5):
            for j in range(1, 4):
                above, below = images[n, i - 1, j], images[n, i + 1, j]
                before, after = images[n, i, j - 1], images[n, i, j + 1]
                assert down[n, i, j] == pytest.approx((below - above) / 2.0)
                assert right[n, i, j] == pytest.approx((after - before) / 2.0)


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (1, 1)])
def test_there_is_no_slope_along_an_axis_of_one_pixel(shape, rng):
    images = rng.normal(size=(3, *shape))
    for axis, slope in enumerate(image_gradients(images)):
        assert slope.shape == images.shape
        assert slope.any() == (shape[axis] > 1)


@pytest.mark.parametrize("shape", [(1, 9), (9, 1)])
def test_images_of_one_row_only_shift_and_stretch_along_it(shape, rng):
    X = rng.normal(size=(4, 9))
    slope = np.gradient(X, axis=1) * 4.0  # half of the 8 steps from -1 to 1
    position = np.linspace(-1.0, 1.0, 9)
    tangents = tangent_images(X, shape)
    shift = 0 if shape[0] == 1 else 1
    np.testing.assert_allclose(tangents[shift], slope)
    np.testing.assert_allclose(tangents[2], position * slope)
    rest = [k for k in range(6) if k not in (shift, 2)]
    np.testing.assert_array_equal(tangents[rest], 0.0)


def test_an_image_of_one_pixel_does_not_move(rng):
    X = rng.normal(size=(4, 1))
    np.testing.assert_array_equal(tangent_images(X, (1, 1)), 0.0)
    np.testing.assert_array_equal(tangent_features(X, (1, 1), np.exp), 0.0)


@pytest.mark.parametrize("shape", [(4, 6), (1, 24), (24, 1)])
def test_through_the_identity_tangents_stay_as_they_are(shape, rng):
    X = rng.normal(size=(5, 24))
    expected = tangent_images(X, shape)
    actual = tangent_features(X, shape, lambda rows: rows)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_through_a_linear_descriptor_tangents_are_mapped_by_it(rng):
    X, M, offset = (rng.normal(size=size) for size in [(5, 24), (24, 7), 7])
    actual = tangent_features(X, (4, 6), lambda rows: rows @ M + offset)
    assert actual.shape == (6, 5, 7)
    np.testing.assert_allclose(actual, tangent_images(X, (4, 6)) @ M, atol=1e-11)


def test_through_a_smooth_descriptor_tangents_follow_the_chain_rule(rng):
    X = smooth_images(5, SHAPE, seed=1).reshape(5, -1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    M = rng.normal(size=(24 * 30, 8))
    actual = tangent_features(X, SHAPE, lambda rows: np.tanh(rows @ M))
    slope = 1.0 - np.tanh(X @ M) ** 2
    expected = slope * (tangent_images(X, SHAPE) @ M)
    for ours, exact in zip(actual, expected, strict=True):
        assert np.linalg.norm(ours - exact) < 0.02 * np.linalg.norm(exact)


def test_differences_through_a_descriptor_are_of_half_a_pixel_at_the_edge():
    ramp = np.arange(9.0)[None]  # a shift by a pixel changes it by 1
    asked = []

    def spy(rows):
        asked.append(rows.copy())
        return rows

    tangent_features(ramp, (1, 9), spy)
    np.testing.assert_allclose(asked[0] - ramp, 0.5)
    np.testing.assert_allclose(asked[1] - ramp, -0.5)
