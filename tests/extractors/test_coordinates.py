"""Coordinates against kernels and folds that are written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from dualqml._linalg import unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.images.tangents import tangent_images
from tests.coordinate_systems import (
    SHAPE,
    bandwidth_of,
    by_system,
    derivative,
    everyone,
    fold_of,
    make_system,
    slow_coordinates,
)
from tests.problems import make_data


@pytest.mark.parametrize("kind", ["input", "gram"])
def test_the_gram_matrix_of_linear_coordinates_is_that_of_centred_samples(kind):
    X, _ = make_data([3, 2, 4], 24, unit=False, centre=False)
    A = make_system(kind, X, None).learnt_from(everyone(X)).training
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(A @ A.T, centred @ centred.T, atol=1e-10)


@pytest.mark.parametrize("width", [0.5, 16.0])
def test_the_gram_matrix_of_kernel_coordinates_is_the_centred_kernel(width):
    X, _ = make_data([3, 2, 4], 24, unit=False, centre=False)
    A = make_system("rbf", X, None, width).learnt_from(everyone(X)).training
    bandwidth = bandwidth_of(X, width)
    J = np.eye(9) - 1.0 / 9.0
    K = np.exp(-cdist(X, X, "sqeuclidean") / (2.0 * bandwidth))
    np.testing.assert_allclose(A @ A.T, J @ K @ J, atol=1e-9)
    np.testing.assert_allclose(A.mean(axis=0), 0.0, atol=1e-10)


@by_system
def test_training_samples_keep_their_coordinates(kind):
    X, _ = make_data([3, 2, 4, 3], 24, centre=False)
    system = make_system(kind, X, None)
    for train in (everyone(X), fold_of(12)[0]):
        learnt = system.learnt_from(train)
        placed = system.coordinates_of(learnt, train, train)
        np.testing.assert_allclose(placed, learnt.training, atol=1e-8)


@by_system
@pytest.mark.parametrize("n_motions", [0, 1])
@settings(max_examples=10, deadline=None)
@given(
    n_samples=st.integers(9, 30), n_held_out=st.integers(1, 5), seed=st.integers(0, 999)
)
def test_coordinates_of_a_fold_equal_those_of_the_fold_alone(
    kind, n_motions, n_samples, n_held_out, seed
):
    X, _ = make_data([n_samples], 24, seed=seed, noise=1.0, centre=False)
    train, held_out = fold_of(n_samples, n_held_out, seed)
    # With a single motion, its weight drops out.
    tangents = tangent_images(X, SHAPE)[:1] if n_motions else None
    part = tangents[:, train] if n_motions else None
    system = make_system(kind, X, tangents)
    # The bandwidth is that of the whole set.
    width = bandwidth_of(X) / bandwidth_of(X[train], 1.0)
    fresh = make_system(kind, X[train], part, width)
    ours, alone = system.learnt_from(train), fresh.learnt_from(np.arange(train.size))
    A, B = ours.training, alone.training
    assert A.shape == B.shape
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-9)
    if n_motions:
        # Coordinates may be rotated; the scatter relative to the samples is the same.
        scatters = [
            P.training @ P.tangent_scatter @ P.training.T for P in (ours, alone)
        ]
        scale = np.abs(scatters[1]).max()
        np.testing.assert_allclose(*scatters, atol=1e-8 * scale)
        assert np.trace(ours.tangent_scatter) == pytest.approx(1.0)
    placed = system.coordinates_of(ours, train, held_out)
    if kind == "input":
        expected = (X[held_out] - alone.origin) @ alone.projector
    elif kind == "gram":
        expected = (X[held_out] - fresh.mean) @ fresh.centred.T @ alone.projector
    else:
        expected = fresh.kernel(X[held_out]) @ alone.projector
    np.testing.assert_allclose(placed @ A.T, expected @ B.T, atol=1e-8)
    np.testing.assert_allclose(placed @ placed.T, expected @ expected.T, atol=1e-7)


@by_system
def test_folds_keep_the_weights_of_the_motions_of_the_whole_set(kind):
    X, _ = make_data([15], 24, centre=False)
    train, _ = fold_of(15)
    tangents = tangent_images(X, SHAPE)
    tangents[2] *= 100.0  # a weight must undo that
    _, moved = slow_coordinates(kind, X, tangents)
    weights = [1.0 / np.sum(rows**2) for rows in moved]
    learnt = make_system(kind, X, tangents).learnt_from(train)

    def kernel(rows):
        if kind == "input":
            return rows
        if kind == "gram":
            return rows @ X[train].T
        distances = cdist(rows, X[train], "sqeuclidean")
        return np.exp(-distances / (2.0 * bandwidth_of(X)))

    expected = np.zeros_like(learnt.tangent_scatter)
    for weight, tangent in zip(weights, tangents[:, train], strict=True):
        change = derivative(kernel, X[train], tangent)
        if kind != "input":
            change -= change.mean(axis=1, keepdims=True)
        rows = change @ learnt.projector
        expected += weight * rows.T @ rows
    expected /= np.trace(expected)
    np.testing.assert_allclose(learnt.tangent_scatter, expected, atol=1e-7)


@by_system
def test_folds_do_not_change_the_whole_set(kind):
    X, _ = make_data([15], 24, centre=False)
    system = make_system(kind, X, tangent_images(X, SHAPE))
    before = system.learnt_from(everyone(X)).tangent_scatter
    train, _ = fold_of(15)
    first = system.learnt_from(train).tangent_scatter
    np.testing.assert_array_equal(system.learnt_from(train).tangent_scatter, first)
    np.testing.assert_array_equal(
        system.learnt_from(everyone(X)).tangent_scatter, before
    )


@by_system
def test_equal_samples_are_an_error(kind):
    X = np.tile(unit_rows(np.arange(1.0, 25.0)[None]), (5, 1))
    with pytest.raises(DualQMLError, match="All samples are equal"):
        make_system(kind, X, None).learnt_from(everyone(X))


@by_system
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_equal_samples_in_a_fold_are_an_error(kind, seed):
    X, _ = make_data([2], 24, centre=False, seed=seed)
    X = np.vstack([np.tile(X[0], (5, 1)), X[1:]])
    system = make_system(kind, X, None)
    with pytest.raises(DualQMLError, match="All samples are equal"):
        system.learnt_from(np.arange(5))


def test_another_width_equals_a_new_coordinate_system():
    rng = np.random.default_rng(0)
    X, tangents = rng.normal(size=(9, 12)), rng.normal(size=(2, 9, 12))
    moved = make_system("rbf", X, tangents, 16.0).at_width(0.25)
    fresh = make_system("rbf", X, tangents, 4.0)
    np.testing.assert_allclose(moved.values, fresh.values, rtol=1e-12)
    np.testing.assert_allclose(moved.kernel(X[:3]), fresh.kernel(X[:3]), atol=1e-12)
    train = np.array([0, 2, 3, 5, 7, 8])
    for one, other in zip(
        (moved.learnt_from(train), moved.learnt_from(np.arange(9))),
        (fresh.learnt_from(train), fresh.learnt_from(np.arange(9))),
        strict=True,
    ):
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
        learnt = make_system(kind, X, tangents).learnt_from(everyone(X))
        rows = learnt.training
        scatters.append(rows @ learnt.tangent_scatter @ rows.T)
    np.testing.assert_allclose(*scatters, atol=1e-9 * np.abs(scatters[0]).max())
