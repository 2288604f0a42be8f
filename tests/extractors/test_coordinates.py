"""Coordinates against kernels and decompositions that are written out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from dualqml._linalg import unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.extractors import (
    Background,
    _coordinates,
    _leave_one_out,
    dual_qml_w,
    within_metric,
)
from dualqml.extractors._coordinates import (
    BackgroundCoordinates,
    InputCoordinates,
    SumCoordinates,
)
from dualqml.extractors.part_sums import InputSums, PartRows
from dualqml.extractors.prepared_samples import PreparedSamples
from dualqml.extractors.within_metric import within_spectrum
from dualqml.images.tangents import tangent_images
from tests.coordinate_systems import (
    SHAPE,
    bandwidth_of,
    by_system,
    make_system,
    slow_coordinates,
)
from tests.problems import make_data


@pytest.fixture
def few_landmarks(monkeypatch):
    """At most 12 landmarks, all directions of which are kept."""
    monkeypatch.setattr(_coordinates, "_MOST_LANDMARKS", 12)
    monkeypatch.setattr(_coordinates, "_MOST_VECTOR_LANDMARKS", 12)


def centred_kernel(rows, X, width):
    """The kernel of rows and X, minus the mean over X on both sides."""
    bandwidth = bandwidth_of(X, width)
    J = np.eye(len(X)) - 1.0 / len(X)
    raw = np.exp(-cdist(rows, X, "sqeuclidean") / (2.0 * bandwidth))
    known = np.exp(-cdist(X, X, "sqeuclidean") / (2.0 * bandwidth))
    return (raw - known.mean(axis=0)) @ J


@pytest.mark.parametrize("kind", ["input", "gram"])
def test_the_gram_matrix_of_linear_coordinates_is_that_of_centred_samples(kind):
    X, _ = make_data([3, 2, 4], 24, unit=False, centre=False)
    A = make_system(kind, X, None).coordinates().training
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(A @ A.T, centred @ centred.T, atol=1e-10)


@pytest.mark.parametrize("width", [0.5, 16.0])
def test_the_gram_matrix_of_kernel_coordinates_is_the_centred_kernel(width):
    X, _ = make_data([3, 2, 4], 24, unit=False, centre=False)
    A = make_system("rbf", X, None, width).coordinates().training
    np.testing.assert_allclose(A @ A.T, centred_kernel(X, X, width), atol=1e-9)
    np.testing.assert_allclose(A.mean(axis=0), 0.0, atol=1e-10)


@by_system
def test_the_projector_places_the_training_samples(kind):
    X, _ = make_data([3, 2, 4, 3], 24, centre=False)
    system = make_system(kind, X, None)
    found = system.coordinates()
    if kind == "rbf":
        rows = system.kernel(X)
    else:
        rows = X - system.mean
        if kind == "gram":
            rows = rows @ system.landmark_deviations.T
    np.testing.assert_allclose(rows @ found.projector, found.training, atol=1e-8)


@by_system
@settings(max_examples=10, deadline=None)
@given(n_samples=st.integers(5, 30), seed=st.integers(0, 999))
def test_the_scatter_of_motions_is_a_mean_at_trace_one(kind, n_samples, seed):
    X, _ = make_data([n_samples], 24, seed=seed, noise=1.0, centre=False)
    tangents = tangent_images(X, SHAPE)
    tangents[2] *= 100.0  # the size of a motion has no effect
    found = make_system(kind, X, tangents).coordinates()
    A, moved = slow_coordinates(kind, X, tangents)
    expected = np.mean([m.T @ m / np.sum(m**2) for m in moved], axis=0)
    assert np.trace(found.tangent_scatter) == pytest.approx(1.0)
    # Coordinates may be rotated; the scatter relative to the samples is the same.
    ours = found.training @ found.tangent_scatter @ found.training.T
    slow = A @ expected @ A.T
    np.testing.assert_allclose(ours, slow, atol=1e-6 * np.abs(slow).max())


@by_system
def test_coarse_coordinates_are_the_leading_ones(kind, monkeypatch):
    X, _ = make_data([4] * 5, 24, centre=False)
    system = make_system(kind, X, tangent_images(X, SHAPE))
    all_of_them, coarse = system.coordinates(), system.coarse()
    variances = np.linalg.svd(all_of_them.training, compute_uv=False)[:19] ** 2
    found = coarse.training.T @ coarse.training
    # Few samples: all of their directions.
    np.testing.assert_allclose(found, np.diag(variances), atol=1e-8)
    monkeypatch.setattr(_coordinates, "_COARSE_DIRECTIONS", 4)
    monkeypatch.setattr(_coordinates, "_COARSE_LANDMARKS", 12)
    coarse = system.coarse()
    assert coarse.training.shape == (20, 4)
    assert coarse.tangent_scatter.shape == (4, 4)
    assert coarse.n_directions == all_of_them.n_directions == 19
    # Those of a part of the samples explain nearly as much.
    explained = np.trace(coarse.training.T @ coarse.training)
    assert 0.7 * variances[:4].sum() < explained <= 1.0001 * variances[:4].sum()


def test_leading_directions_of_many_landmarks(monkeypatch):
    monkeypatch.setattr(_coordinates, "_LEAST_DIRECTIONS", 5)
    X, _ = make_data([4] * 6, 4, noise=1.0, unit=False, centre=False)
    found = make_system("rbf", X, None, 2.0).coordinates()
    assert found.training.shape == (24, 5)
    assert found.n_directions == 5
    variances = np.linalg.eigvalsh(centred_kernel(X, X, 2.0))[::-1]
    scatter = found.training.T @ found.training
    np.testing.assert_allclose(scatter, np.diag(variances[:5]), atol=1e-9)
    # A few more landmarks than directions: all directions.
    monkeypatch.setattr(_coordinates, "_LEAST_DIRECTIONS", 20)
    assert make_system("rbf", X, None, 2.0).coordinates().training.shape == (24, 23)


@pytest.mark.usefixtures("few_landmarks")
@pytest.mark.parametrize("kind", ["gram", "rbf"])
def test_landmarks_come_from_all_classes(kind):
    X, codes = make_data([10] * 6, 20, noise=1.0, centre=False)
    system = make_system(kind, X, None, codes=codes)
    assert system.landmarks.size == 12
    np.testing.assert_array_equal(np.bincount(codes[system.landmarks]), [2] * 6)
    # Classes that alternate would all be missed but one by every sixth row.
    shuffled = np.arange(60).reshape(6, 10).T.ravel()
    system = make_system(kind, X[shuffled], None, codes=codes[shuffled])
    assert np.unique(codes[shuffled][system.landmarks]).size == 6


@pytest.mark.usefixtures("few_landmarks")
@pytest.mark.parametrize("kind", ["gram", "rbf"])
def test_coordinates_of_landmarks_are_projections_to_their_span(kind):
    X, codes = make_data([10] * 6, 30, noise=1.0, centre=False)
    system = make_system(kind, X, None, codes=codes)
    found = system.coordinates()
    assert found.training.shape == (60, 11)
    np.testing.assert_allclose(found.training.mean(axis=0), 0.0, atol=1e-12)
    L = system.landmarks
    if kind == "gram":
        centred = X - X.mean(axis=0)
        span = np.linalg.qr((X[L] - X[L].mean(axis=0)).T)[0][:, :11]
        expected = centred @ span
    else:
        bandwidth = bandwidth_of(X[L])
        K = np.exp(-cdist(X, X[L], "sqeuclidean") / (2.0 * bandwidth))
        J = np.eye(12) - 1.0 / 12.0
        w, V = np.linalg.eigh(J @ K[L] @ J)
        expected = (K - K.mean(axis=0)) @ V[:, 1:] / np.sqrt(w[1:])
    np.testing.assert_allclose(
        found.training @ found.training.T, expected @ expected.T, atol=1e-9
    )


@pytest.mark.usefixtures("few_landmarks")
def test_a_kernel_with_landmarks_keeps_nothing_of_all_pairs():
    X, codes = make_data([10] * 6, 30, noise=1.0, centre=False)
    system = make_system("rbf", X, tangent_images(X, (5, 6)), codes=codes)
    assert system.values.shape == (60, 12)
    assert system.slopes.shape == (6, 60, 12)
    assert system.kernel.samples.shape == (12, 30)
    np.testing.assert_allclose(
        system.kernel(X) @ system.coordinates().projector,
        system.coordinates().training,
        atol=1e-10,
    )


@pytest.mark.parametrize("kind", ["gram", "rbf", "input"])
def test_motions_of_a_bounded_number_of_samples_are_followed(kind, monkeypatch):
    X, codes = make_data([5] * 6, 24, centre=False)
    tangents = tangent_images(X, SHAPE)
    monkeypatch.setattr(_coordinates, "MOST_MOVING", 6)
    found = make_system(kind, X, tangents, codes=codes).coordinates()
    A, moved = slow_coordinates(kind, X, tangents)
    rows = np.linspace(0, 29, 6).round().astype(int)
    expected = np.mean([m[rows].T @ m[rows] / np.sum(m[rows] ** 2) for m in moved], 0)
    ours = found.training @ found.tangent_scatter @ found.training.T
    slow = A @ expected @ A.T
    np.testing.assert_allclose(ours, slow, atol=1e-6 * np.abs(slow).max())


@by_system
def test_equal_samples_are_an_error(kind):
    X = np.tile(unit_rows(np.arange(1.0, 25.0)[None]), (5, 1))
    with pytest.raises(DualQMLError, match="All samples are equal"):
        make_system(kind, X, None).coordinates()


def test_another_width_equals_a_new_coordinate_system():
    rng = np.random.default_rng(0)
    X, tangents = rng.normal(size=(9, 12)), rng.normal(size=(2, 9, 12))
    moved = make_system("rbf", X, tangents, 16.0).at_width(0.25)
    fresh = make_system("rbf", X, tangents, 4.0)
    np.testing.assert_allclose(moved.values, fresh.values, rtol=1e-12)
    np.testing.assert_allclose(moved.kernel(X[:3]), fresh.kernel(X[:3]), atol=1e-12)
    one, other = moved.coordinates(), fresh.coordinates()
    np.testing.assert_allclose(
        np.linalg.eigvalsh(one.tangent_scatter),
        np.linalg.eigvalsh(other.tangent_scatter),
        atol=1e-9,
    )
    np.testing.assert_allclose(
        one.training @ one.training.T, other.training @ other.training.T, atol=1e-9
    )


@by_system
def test_a_motion_that_is_only_rounding_is_left_out(kind):
    # Images with equal rows do not change when they move down.
    bars = np.repeat(np.random.default_rng(0).uniform(size=(9, 6)), 4, axis=0)
    X = unit_rows(bars.reshape(9, 24) / 3.0)
    tangents = tangent_images(X, SHAPE)
    noise = 1e-17 * np.random.default_rng(1).normal(size=tangents[1].shape)
    scatters = []
    for down in (0.0, noise):
        tangents[1] = down
        found = make_system(kind, X, tangents).coordinates()
        rows = found.training
        scatters.append(rows @ found.tangent_scatter @ rows.T)
    np.testing.assert_allclose(*scatters, atol=1e-9 * np.abs(scatters[0]).max())


def test_the_switch_points_are_the_documented_ones():
    guide = (Path(__file__).parents[2] / "docs" / "dual_qml_w.md").read_text()
    table = guide[guide.index("## Many samples") :]
    for number, text in (
        (_coordinates.MOST_MOVING, "| 400 images |"),
        (_coordinates._COARSE_LANDMARKS, "| 400 samples |"),
        (_coordinates._COARSE_DIRECTIONS, "in the 256 leading coordinates"),
        (_coordinates._MOST_VECTOR_LANDMARKS, "| 800 such vectors, or"),
        (
            _coordinates._LEAST_DIRECTIONS,
            "the 400 leading coordinates of the kernel are kept",
        ),
        (_coordinates._MOST_LANDMARKS, "1,280 longer vectors or images |"),
        (_leave_one_out._MOST_CLASSES, "| 1,000 classes, or 32 samples"),
        (_leave_one_out._MOST_PER_CLASS, "or 32 samples of a class |"),
        (within_metric.MOST_KERNEL_SAMPLES, "| 20,000 samples |"),
        (dual_qml_w.MOST_PROFILES // 10**6, "| 25 million pairs"),
    ):
        assert text in table
        assert f"{number:,}" in text


def sums_of(X, codes):
    order = np.argsort(codes, kind="stable")
    return InputSums.of_part(PartRows(X[order], np.bincount(codes)), unit=True)


def background_of(n_features, seed=5):
    X, codes = make_data([3] * 30, n_features, seed=seed, centre=False)
    return Background.from_samples(X + 0.2, codes)


@pytest.mark.parametrize("weight", [None, 0.0, 0.3, 2.0])
@pytest.mark.parametrize("sizes", [[3, 1, 4, 2] * 5, [1, 2], [1] * 15])
@pytest.mark.parametrize("final", [False, True])
def test_coordinates_from_sums_are_those_of_the_samples(
    weight, sizes, final, monkeypatch
):
    # Leading directions only, which depend on the whole scatter.
    monkeypatch.setattr(_coordinates, "_COARSE_DIRECTIONS", 5)
    X, codes = make_data(sizes, 12, centre=False)
    X = unit_rows(X + 0.3)
    samples = PreparedSamples(X, None, X.shape[1])
    background = None if weight is None else background_of(12)
    if weight:
        expected = BackgroundCoordinates(samples, codes, background, weight)
    else:
        expected = InputCoordinates(samples, codes)
    found = SumCoordinates(sums_of(X, codes), X, background, weight or 0.0)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-13)
    ours, theirs = (
        system.coordinates() if final else system.coarse()
        for system in (found, expected)
    )
    assert ours.n_directions == theirs.n_directions
    # Equal up to a rotation: the same products, also of new samples.
    A, B = ours.training, theirs.training
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-10)
    new = np.random.default_rng(0).normal(size=(5, 12)) - found.mean
    ours_new, theirs_new = new @ ours.projector, new @ theirs.projector
    np.testing.assert_allclose(A @ ours_new.T, B @ theirs_new.T, atol=1e-10)
    np.testing.assert_allclose(
        ours_new @ ours_new.T, theirs_new @ theirs_new.T, atol=1e-9
    )
    # And the same variation within classes.
    spectra = [within_spectrum(part, codes, 0.0) for part in (ours, theirs)]
    scales = [spectrum.scale for spectrum in spectra]
    np.testing.assert_allclose(*scales, rtol=1e-10)
    np.testing.assert_allclose(
        *[spectrum.variances for spectrum in spectra], rtol=0, atol=1e-9
    )


def test_coordinates_from_sums_need_only_some_of_the_samples():
    X, codes = make_data([4] * 9, 8, centre=False)
    sums, some = sums_of(X, codes), np.flatnonzero(codes < 3)
    everyone, few = (SumCoordinates(sums, rows) for rows in (X, X[some]))
    for method in ("coordinates", "coarse"):
        whole, part = (getattr(system, method)() for system in (everyone, few))
        np.testing.assert_allclose(part.training, whole.training[some], atol=1e-14)
        np.testing.assert_array_equal(part.within, whole.within)
    two = few.coarse().first(2)
    assert two.training.shape == (some.size, 2)
    np.testing.assert_array_equal(two.within, few.coarse().within[:2, :2])


def test_equal_samples_have_coordinates_with_a_background_only():
    X = np.tile(unit_rows(np.arange(1.0, 9.0)[None]), (4, 1))
    sums = sums_of(X, np.array([0, 0, 1, 1]))
    background = background_of(8)
    for weight in (None, 0.0):
        with pytest.raises(DualQMLError, match="All samples are equal"):
            SumCoordinates(sums, X, background if weight is not None else None, 0.0)
    assert SumCoordinates(sums, X, background, 1.0).coarse().training.shape == (4, 8)


def test_rounding_within_classes_is_no_variation():
    X, codes = make_data([1] * 6, 8, centre=False)
    copies, codes = np.repeat(X, 7, axis=0), np.repeat(codes, 7)
    sums = sums_of(copies, codes)
    assert np.trace(sums.within) > 0.0
    found = SumCoordinates(sums, copies[:1])
    assert (found.coordinates().within == 0.0).all()
    # The one sample is no measure: it may be at the mean.
    assert within_spectrum(found.coarse(), codes, 0.0).scale == 0.0
