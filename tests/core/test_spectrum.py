import numpy as np
import pytest

from dualqml.core import scatter_spectrum
from tests.problems import make_data


@pytest.mark.parametrize("n_features", [3, 15, 40])
def test_decomposition_reproduces_the_scatter(n_features):
    X, _ = make_data([5, 5, 5], n_features, centre=False)
    spectrum = scatter_spectrum(X)
    basis = spectrum.back_project(np.eye(spectrum.rank))
    np.testing.assert_allclose(basis @ basis.T, np.eye(spectrum.rank), atol=1e-10)
    np.testing.assert_allclose(
        (basis.T * spectrum.eigenvalues) @ basis, X.T @ X, atol=1e-10
    )
    np.testing.assert_allclose(spectrum.coordinates, X @ basis.T, atol=1e-10)
    assert (np.diff(spectrum.eigenvalues) >= 0).all()


@pytest.mark.parametrize("n_features", [3, 40])
def test_projection_and_back_projection_are_inverse_in_the_span(n_features, rng):
    X, _ = make_data([5, 5, 5], n_features, centre=False)
    spectrum = scatter_spectrum(X)
    rows = rng.normal(size=(4, 15)) @ X
    there = spectrum.project(rows)
    np.testing.assert_allclose(spectrum.back_project(there), rows, atol=1e-9)


def test_many_rows_are_back_projected_as_few_are(rng):
    X, _ = make_data([5, 5], 12, centre=False)
    spectrum = scatter_spectrum(X)
    rows = rng.normal(size=(40, spectrum.rank))
    few = np.concatenate([spectrum.back_project(rows[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(spectrum.back_project(rows), few, atol=1e-10)


def test_rank_counts_independent_directions():
    X, _ = make_data([4, 4], 30, centre=False)
    assert scatter_spectrum(X).rank == 8
    assert scatter_spectrum(X - X.mean(axis=0)).rank == 7
    assert scatter_spectrum(np.vstack([X, X])).rank == 8
    assert scatter_spectrum(X[:, :1]).rank == 1


def test_rank_tolerance_is_relative():
    X = np.diag([1.0, 1e-3, 1e-7])
    assert scatter_spectrum(X).rank == 2
    assert scatter_spectrum(1e-9 * X).rank == 2
    assert scatter_spectrum(X, rank_tolerance=1e-5).rank == 1


def test_nothing_of_size_features_squared_is_formed():
    X, _ = make_data([2, 2], 3000)
    spectrum = scatter_spectrum(X)
    assert spectrum.basis is None
