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
    _coordinates,
    _leave_one_out,
    dual_qml_w,
    within_metric,
)
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
    table = guide[guide.index("## Any number of samples") :]
    for number, text in (
        (_coordinates.MOST_MOVING, "| 400 images |"),
        (_coordinates._COARSE_LANDMARKS, "| 400 samples |"),
        (_coordinates._COARSE_DIRECTIONS, "in the 256 leading coordinates"),
        (_coordinates._MOST_VECTOR_LANDMARKS, "| 800 vectors of up to 400 features |"),
        (_coordinates._LEAST_DIRECTIONS, "keeps the 400 leading coordinates"),
        (_coordinates._MOST_LANDMARKS, "| 1,280 images or longer vectors |"),
        (_leave_one_out._MOST_CLASSES, "| 1,000 classes, or 32 samples"),
        (_leave_one_out._MOST_PER_CLASS, "or 32 samples of a class |"),
        (within_metric._MOST_KERNEL_SAMPLES, "| 20,000 samples |"),
        (dual_qml_w._MOST_PROFILES // 10**6, "| 25 million pairs"),
    ):
        assert text in table
        assert f"{number:,}" in text
