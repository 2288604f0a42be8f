import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from dualqml.extractors import APCA, ERE, ERKDA, MFA, Fisherfaces, KernelLDA
from dualqml.images.tangents import (
    image_gradients,
    motion_rows,
    sample_tangents,
    scaled_motions,
    tangent_features,
    tangent_images,
    with_motions,
)
from tests.problems import make_data

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
    """Sums of waves whose lengths are many pixels."""
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


METHODS = [APCA, ERE, ERKDA, MFA, Fisherfaces, KernelLDA]

by_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)


def scatter_of(rows):
    return rows.T @ rows


def gram_of_pca(X, n_components):
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    scores = (U * s)[:, :n_components]
    return scores @ scores.T


def test_rows_have_the_mean_scatter_at_unit_trace_times_the_weight(rng):
    tangents = rng.normal(size=(6, 5, 4)) * np.arange(1, 7)[:, None, None]
    scatters = [scatter_of(rows) for rows in tangents]
    expected = 0.3 * np.mean([S / np.trace(S) for S in scatters], axis=0)
    np.testing.assert_allclose(scatter_of(motion_rows(tangents, 0.3)), expected)


def test_motions_that_change_nothing_are_left_out(rng):
    tangents = rng.normal(size=(6, 5, 4))
    tangents[[1, 4]] = 0.0
    rows = motion_rows(tangents, 2.0)
    assert rows.shape == (20, 4)
    assert np.trace(scatter_of(rows)) == pytest.approx(2.0)
    assert motion_rows(np.zeros((6, 5, 4)), 2.0).shape == (0, 4)
    assert motion_rows(np.empty((0, 5, 4)), 0.0).shape == (0, 4)


def test_tangents_without_weight_are_none_and_need_no_images(rng):
    X = rng.normal(size=(5, 12))
    assert sample_tangents(X, (7, 7), 0.0).shape == (0, 5, 12)
    np.testing.assert_array_equal(
        sample_tangents(X, (3, 4), 0.1), tangent_images(X, (3, 4))
    )
    # Of a single row of pixels two of the six motions are left.
    assert motion_rows(sample_tangents(X, [1, 12], 0.1), 0.1).shape == (10, 12)
    with pytest.raises(ValueError, match=r"have 12 features.*tangents=0"):
        sample_tangents(X, None, 0.1)


def test_the_share_is_of_the_within_class_trace_if_there_is_one(rng):
    motions = motion_rows(rng.normal(size=(6, 5, 4)), 0.3)
    for within, expected in [(2.0, 2.0), (0.0, 9.0), (1e-15, 9.0)]:
        rows = scaled_motions(motions, within, 9.0)
        np.testing.assert_allclose(scatter_of(rows), expected * scatter_of(motions))


def test_motions_join_the_deviations(rng):
    within = rng.normal(size=(5, 4))
    motions = motion_rows(rng.normal(size=(6, 5, 4)), 0.3)
    S = scatter_of(within)
    np.testing.assert_allclose(
        scatter_of(with_motions(within, motions, 100.0)),
        S + np.trace(S) * scatter_of(motions),
    )
    assert with_motions(within, None, 100.0) is within
    np.testing.assert_array_equal(with_motions(within, motions[:0], 100.0), within)


@by_method
def test_the_default_is_the_method_as_published(method):
    X, y = make_data([3] * 5, 36, unit=False)
    published = method().fit(X, y).transform(X)
    # Then the rows need not be images, and the shape is not used.
    explicit = method(tangents=0.0, image_shape=(5, 5)).fit(X, y).transform(X)
    np.testing.assert_array_equal(published, explicit)
    with_tangents = method(tangents=0.3, image_shape=(6, 6)).fit(X, y).transform(X)
    assert published.shape[0] == with_tangents.shape[0]
    if published.shape == with_tangents.shape:
        assert np.abs(published - with_tangents).max() > 1e-3


# Without the methods that model the spectrum: they count the variances, and motions
# of any weight add variances in new directions.
@pytest.mark.parametrize("method", [APCA, MFA, Fisherfaces, KernelLDA])
def test_motions_matter_less_with_less_weight(method):
    X, y = make_data([3] * 5, 36, unit=False)
    options = {"n_components": 4, "image_shape": (6, 6)}

    def gram(**more):
        features = method(**options, **more).fit(X, y).transform(X)
        return features @ features.T

    published = gram()
    differences = [
        np.linalg.norm(gram(tangents=weight) - published) for weight in (1e-6, 0.3)
    ]
    assert differences[0] < 1e-2 * np.linalg.norm(published)
    assert differences[0] < 0.1 * differences[1]


@by_method
@pytest.mark.parametrize("copies", [1, 2])
def test_without_differences_in_a_class_motions_are_all_there_is(method, copies):
    X, y = make_data([1] * 6, 36, unit=False)
    X, y = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    model = method(tangents=0.3, image_shape=(6, 6)).fit(X, y)
    features = model.transform(X)
    assert np.isfinite(features).all()
    assert np.linalg.matrix_rank(features) == min(features.shape[1], 5)
    # Not principal components of the samples: these know nothing of motions.
    actual, pca = features @ features.T, gram_of_pca(X, features.shape[1])
    cosine = np.vdot(actual, pca) / (np.linalg.norm(actual) * np.linalg.norm(pca))
    assert cosine < 0.999


@by_method
def test_rows_of_one_pixel_have_no_motions(method):
    X = np.array([[0.0], [1.0], [5.0], [6.0], [9.0], [9.5]])
    y = [0, 0, 1, 1, 2, 2]
    moved = method(tangents=0.3, image_shape=(1, 1)).fit(X, y)
    np.testing.assert_array_equal(moved.transform(X), method().fit(X, y).transform(X))


@by_method
def test_a_wrong_image_shape_is_an_error(method):
    X, y = make_data([3] * 4, 30)
    with pytest.raises(ValueError, match="32 pixels, but the rows of X have 30"):
        method(tangents=0.1, image_shape=(4, 8)).fit(X, y)


@by_method
def test_the_image_shape_is_used(method):
    X, y = make_data([3] * 4, 30)
    features = [
        method(tangents=0.3, n_components=2, image_shape=shape).fit(X, y).transform(X)
        for shape in [(5, 6), (3, 10)]
    ]
    grams = [f @ f.T for f in features]
    assert np.abs(grams[0] - grams[1]).max() > 1e-3 * np.abs(grams[0]).max()


@by_method
def test_a_negative_weight_is_an_error(method):
    X, y = make_data([3] * 4, 36)
    with pytest.raises(ValueError, match="tangents"):
        method(tangents=-0.1).fit(X, y)
