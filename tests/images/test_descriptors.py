import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml._linalg import unit_rows
from dualqml.images import _descriptor_parts, descriptors, shapes, tangents
from dualqml.images.descriptors import (
    ALL_PARTS,
    LocalDescriptors,
    gabor_magnitudes,
    local_descriptors,
    moving_descriptors,
    orientation_histograms,
)
from dualqml.images.tangents import tangent_features

TINY = [(1, 1), (1, 2), (2, 1), (1, 7), (3, 3), (2, 5)]


def reference_points(length, stride):
    return range(stride // 2 if length >= stride else length // 2, length, stride)


def reference_slope(image, axis):
    return np.gradient(image, axis=axis) if image.shape[axis] > 1 else 0 * image


def reference_orientation(image, stride):
    height, width = image.shape
    down, right = (reference_slope(image, axis) for axis in (0, 1))
    maps = np.zeros((8, height, width))
    for i in range(height):
        for j in range(width):
            degrees = np.degrees(np.arctan2(down[i, j], right[i, j])) % 360.0
            below = int(degrees // 45.0)
            near = degrees / 45.0 - below
            length = np.hypot(down[i, j], right[i, j])
            maps[below % 8, i, j] += length * (1.0 - near)
            maps[(below + 1) % 8, i, j] += length * near
    maps = np.array([gaussian_filter(one, 2.0, mode="nearest") for one in maps])
    energy = gaussian_filter((maps**2).sum(axis=0), 4.0, mode="nearest")
    maps /= np.sqrt(energy + 1e-4 * energy.mean())
    return [
        np.sqrt(maps[k, i, j])
        for i in reference_points(height, stride)
        for j in reference_points(width, stride)
        for k in range(8)
    ]


def reference_gabor(image, stride):
    height, width = image.shape
    centred = image - image.mean()
    rounding = 1e-12 * np.abs(centred).max()
    spectrum = np.fft.fft2(np.pad(centred, 8, mode="edge"))
    fy = np.fft.fftfreq(height + 16)[:, None]
    fx = np.fft.fftfreq(width + 16)[None, :]
    points = np.ix_(reference_points(height, stride), reference_points(width, stride))
    responses = []
    for wavelength in (4, 6, 8):
        for degrees in (0, 30, 60, 90, 120, 150):
            angle, sigma = np.radians(degrees), 0.56 * wavelength
            off_x = fx - np.cos(angle) / wavelength
            off_y = fy - np.sin(angle) / wavelength
            passed = np.exp(-2.0 * (np.pi * sigma) ** 2 * (off_x**2 + off_y**2))
            response = np.abs(np.fft.ifft2(spectrum * passed))[8:-8, 8:-8][points]
            level = np.sqrt((response**2).mean()) + rounding
            responses.append(np.sqrt(response / level))
    return np.stack(responses, axis=-1).ravel()


REFERENCES = {
    "orientation": reference_orientation,
    "gabor": reference_gabor,
    "pixels": lambda image, stride: image.ravel(),
}


@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("shape", [(12, 9), (1, 17), (17, 1), (3, 5), (2, 2)])
def test_equals_loops_over_pixels_and_filters(shape, stride, rng):
    X = rng.random((3, shape[0] * shape[1]))
    expected = []
    for row in X:
        parts = [REFERENCES[p](row.reshape(shape), stride) for p in ALL_PARTS]
        expected.append(np.hstack([part / np.linalg.norm(part) for part in parts]))
    features = local_descriptors(X, shape, stride=stride)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-12)


def test_long_axes_give_the_same(rng, monkeypatch):
    X = rng.random((3, 15 * 20))
    expected = local_descriptors(X, (15, 20))
    monkeypatch.setattr(_descriptor_parts, "_LONG_AXIS", 17)
    features = local_descriptors(X, (15, 20))
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("turn", "direction"), [(0, 0), (3, 2), (2, 4), (1, 6)])
def test_a_ramp_has_one_direction(turn, direction):
    # rot90 turns counterclockwise; the first ramp rises to the right.
    ramp = np.rot90(np.tile(np.arange(10.0), (10, 1)), turn)
    histograms = orientation_histograms(ramp[None], stride=2)[0]
    # The square root enlarges the rounding error of the angle.
    assert histograms[..., direction].min() > 0.9
    assert np.delete(histograms, direction, axis=-1).max() < 1e-6


def test_half_a_turn_reverses_points_and_directions(rng):
    # With these sizes the grid of the turned image is the turned grid.
    image = rng.random((1, 9, 12))
    turned = image[:, ::-1, ::-1]
    np.testing.assert_allclose(
        orientation_histograms(turned, stride=3),
        np.roll(orientation_histograms(image, stride=3)[:, ::-1, ::-1], 4, axis=-1),
        atol=1e-12,
    )
    # A Gabor filter and its opposite have the same magnitude.
    np.testing.assert_allclose(
        gabor_magnitudes(turned, stride=3),
        gabor_magnitudes(image, stride=3)[:, ::-1, ::-1],
        atol=1e-12,
    )


@pytest.mark.parametrize("gain", [3.7, 1e-200, 1e200])
def test_gain_changes_nothing(gain, rng):
    X = rng.normal(size=(4, 100))
    np.testing.assert_allclose(
        local_descriptors(gain * X, (10, 10)),
        local_descriptors(X, (10, 10)),
        rtol=0,
        atol=1e-11,
    )


def test_an_offset_changes_the_pixels_only(rng):
    X = rng.normal(size=(4, 100))
    change = local_descriptors(X + 2.0, (10, 10)) - local_descriptors(X, (10, 10))
    np.testing.assert_allclose(change[:, :-100], 0.0, atol=1e-11)
    assert np.abs(change[:, -100:]).max() > 0.01


@pytest.mark.parametrize("shape", [(16, 16), (5, 20), (1, 30)])
def test_every_part_has_unit_norm(shape, rng):
    X = rng.normal(size=(4, shape[0] * shape[1]))
    for part in ALL_PARTS:
        features = local_descriptors(X, shape, parts=[part])
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-12)


def test_parts_come_in_the_order_asked_for(rng):
    X = rng.normal(size=(2, 64))
    parts = ["pixels", "orientation"]
    alone = [local_descriptors(X, (8, 8), parts=[part]) for part in parts]
    together = local_descriptors(X, (8, 8), parts=parts)
    np.testing.assert_array_equal(together, np.hstack(alone))


@pytest.mark.parametrize("stride", [1, 4, 9])
@pytest.mark.parametrize("shape", TINY)
def test_tiny_images(shape, stride, rng):
    X = rng.normal(size=(3, shape[0] * shape[1]))
    model = LocalDescriptors(image_shape=shape, stride=stride)
    features = model.fit_transform(X)
    n_points = int(np.prod([len(reference_points(n, stride)) for n in shape]))
    assert n_points >= 1
    assert features.shape == (3, 26 * n_points + X.shape[1])
    assert len(model.get_feature_names_out()) == features.shape[1]
    assert np.isfinite(features).all()


@pytest.mark.parametrize("shape", [(10, 10), *TINY])
@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3, 255.0])
def test_images_without_contrast_have_zeros(shape, value):
    X = np.full((2, shape[0] * shape[1]), value)
    features = local_descriptors(X, shape, parts=["orientation", "gabor"])
    np.testing.assert_array_equal(features, 0.0)
    pixels = local_descriptors(X, shape, parts=["pixels"])
    np.testing.assert_allclose(np.linalg.norm(pixels, axis=1), float(value != 0.0))


def test_features_of_an_image_do_not_depend_on_the_others(rng, monkeypatch):
    X = rng.normal(size=(7, 144))
    X[3] = 0.0
    together = local_descriptors(X, (12, 12))
    alone = np.vstack([local_descriptors(row[None], (12, 12)) for row in X])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-12)
    three_images = 3 * 144 * descriptors._BYTES_PER_PIXEL
    monkeypatch.setattr(shapes, "_TEMPORARY_BYTES", three_images)
    chunked = local_descriptors(X, (12, 12))
    np.testing.assert_allclose(chunked, together, rtol=0, atol=1e-12)


def differences(X, shape, monkeypatch, **options):
    """Derivatives by differences with a step that is tiny, from now on.

    It also bounds the slopes of square roots, which then are hardly bounded.
    """
    monkeypatch.setattr(tangents, "_STEP_PIXELS", 1e-6)
    return tangent_features(
        X, shape, lambda rows: unit_rows(local_descriptors(rows, shape, **options))
    )


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(12, 9), (1, 17), (17, 1), (5, 5)])
@pytest.mark.parametrize("part", ALL_PARTS)
def test_motions_follow_the_chain_rule(shape, part, rng, monkeypatch):
    X = rng.random((4, shape[0] * shape[1]))
    options = {"parts": [part], "stride": 3}
    expected = differences(X, shape, monkeypatch, **options)
    rows, motions = moving_descriptors(X, shape, **options)
    np.testing.assert_allclose(
        rows, unit_rows(local_descriptors(X, shape, **options)), atol=1e-14
    )
    assert motions.shape == (6, *rows.shape)
    assert relative_error(motions, expected) < 1e-5
    for ours, exact in zip(motions, expected, strict=True):
        np.testing.assert_allclose(ours, exact, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(32, 32), (21, 34), (40, 3)])
def test_every_second_pixel_is_enough_for_motions(shape, rng, monkeypatch):
    images = gaussian_filter(rng.random((4, *shape)), (0, 1, 1))
    X = images.reshape(4, -1)
    expected = differences(X, shape, monkeypatch, parts=["orientation"])
    _, motions = moving_descriptors(X, shape, parts=["orientation"])
    assert relative_error(motions, expected) < 0.15


def test_motions_of_several_parts_are_those_of_the_whole_row(rng, monkeypatch):
    X = rng.random((5, 12 * 10))
    X[3] = 0.5  # the only part that is not zero is the pixels
    options = {"parts": ["pixels", "gabor", "orientation"], "stride": 3}
    expected = differences(X, (12, 10), monkeypatch, **options)
    rows, motions = moving_descriptors(X, (12, 10), **options)
    np.testing.assert_allclose(
        rows, unit_rows(local_descriptors(X, (12, 10), **options)), atol=1e-14
    )
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    np.testing.assert_array_equal(motions[:, 3], 0.0)
    assert relative_error(motions, expected) < 1e-5


def test_motions_where_roots_are_zero_are_bounded_as_differences_are(rng):
    # Half of each image is flat, and ramps have no gradient in most directions.
    X = np.zeros((4, 24, 24))
    X[:2, :, 12:] = rng.random((2, 24, 12))
    X[2], X[3] = np.arange(24.0), np.eye(24)
    X = X.reshape(4, -1)
    _, motions = moving_descriptors(X, (24, 24))
    by_differences = tangent_features(
        X, (24, 24), lambda rows: unit_rows(local_descriptors(rows, (24, 24)))
    )
    assert np.isfinite(motions).all()
    assert np.abs(motions).max() < 3.0 * np.abs(by_differences).max()


@pytest.mark.parametrize("shape", [(10, 10), *TINY])
@pytest.mark.parametrize("value", [0.0, 0.1, 255.0])
def test_motions_of_images_without_contrast_are_zero(shape, value):
    X = np.full((2, shape[0] * shape[1]), value)
    rows, motions = moving_descriptors(X, shape)
    np.testing.assert_array_equal(motions, 0.0)
    np.testing.assert_allclose(rows, unit_rows(local_descriptors(X, shape)))


def test_motions_on_long_axes_and_in_small_blocks_are_the_same(rng, monkeypatch):
    X = rng.random((5, 15 * 20))
    expected = moving_descriptors(X, (15, 20))
    monkeypatch.setattr(descriptors, "_BLOCK_PIXELS", 2 * 15 * 20)
    for actual, one in zip(moving_descriptors(X, (15, 20)), expected, strict=True):
        np.testing.assert_allclose(actual, one, rtol=0, atol=1e-11)
    for longest in (17, 3):
        monkeypatch.setattr(_descriptor_parts, "_LONG_AXIS", longest)
        for actual, one in zip(moving_descriptors(X, (15, 20)), expected, strict=True):
            np.testing.assert_allclose(actual, one, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gain", [3.7, 1e-200, 1e200])
def test_gain_does_not_change_motions(gain, rng):
    X = rng.random((3, 100))
    _, expected = moving_descriptors(X, (10, 10))
    _, motions = moving_descriptors(gain * X, (10, 10))
    np.testing.assert_allclose(motions, expected, rtol=0, atol=1e-10)


def test_no_images_have_no_features():
    rows, motions = moving_descriptors(np.empty((0, 64)), (8, 8))
    assert rows.shape == (0, 168)
    assert motions.shape == (6, 0, 168)


def test_single_precision_comes_back_as_single(rng):
    X = rng.random((4, 100)).astype(np.float32)
    model = LocalDescriptors().fit(X)
    single = model.transform(X)
    assert single.dtype == np.float32
    # Computed in double precision.
    np.testing.assert_array_equal(
        single, model.transform(X.astype(float)).astype(np.float32)
    )


def test_the_estimator_is_the_function(rng):
    X = rng.random((4, 60))
    model = LocalDescriptors(image_shape=(6, 10), parts=["gabor"], stride=3).fit(X)
    assert model.image_shape_ == (6, 10)
    expected = local_descriptors(X, (6, 10), parts=["gabor"], stride=3)
    np.testing.assert_array_equal(model.transform(X), expected)
    assert len(model.get_feature_names_out()) == expected.shape[1]


class DescriptorsOfAnyRows(LocalDescriptors):
    """Takes each row of scikit-learn's checks for an image of one row of pixels."""

    def _shape(self, n_features):
        return 1, n_features

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@parametrize_with_checks([DescriptorsOfAnyRows()])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_images_are_square_unless_told():
    assert LocalDescriptors().fit(np.ones((2, 100))).image_shape_ == (10, 10)
    told = LocalDescriptors(image_shape=[1, 60]).fit(np.ones((2, 60)))
    assert told.image_shape_ == (1, 60)
    # 127 features would have become 959 columns.
    for n_features in (127, 128, 49):
        with pytest.raises(ValueError, match=f"have {n_features} features, wh"):
            LocalDescriptors().fit(np.ones((2, n_features)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"parts": ()}, "parts.* is empty"),
        ({"parts": ["pixels", "sift"]}, "'sift', which is none of"),
        ({"parts": ["gabor", "pixels", "gabor"]}, "'gabor' more than once"),
        ({"parts": "pixels"}, "parts"),
        ({"stride": 0}, "stride"),
        ({"stride": 1.5}, "stride"),
        ({"image_shape": (3, 3)}, r"image_shape=\(3, 3\)"),
    ],
)
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        LocalDescriptors(**wrong).fit(np.ones((2, 100)))


def test_the_function_refuses_unknown_parts():
    with pytest.raises(ValueError, match="'sift'"):
        local_descriptors(np.ones((2, 100)), (10, 10), parts=["sift"])
