import numpy as np
import pytest

from dualqml.core import scatter_spectrum
from dualqml.core.spectrum import decomposition_error, dot_error, sample_spectrum
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


@pytest.mark.parametrize("make", [scatter_spectrum, sample_spectrum])
@pytest.mark.parametrize("shape", [(6, 40), (30, 12), (12, 12), (2, 3)])
@pytest.mark.parametrize("spread", [0.0, 3.0, 8.0])
def test_what_is_left_of_the_samples_is_within_the_bounds(make, shape, spread, rng):
    # Rows whose small directions drown in rounding, in extended precision.
    X = rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, 0.0, size=shape[1])
    X += 3.0 * rng.normal(size=shape[1])
    spectrum = make(X)
    Z, Q = spectrum.coordinates, spectrum.back_project(np.eye(spectrum.rank)).T
    exact = X.astype(np.longdouble)
    if make is sample_spectrum:
        left = exact - Z.astype(np.longdouble) @ Q.T.astype(np.longdouble)
        assert np.linalg.norm(left.astype(float), 2) <= spectrum.sample_error
    elif shape[0] <= shape[1]:
        left = exact @ exact.T - Z.astype(np.longdouble) @ Z.T
        assert np.linalg.norm(left.astype(float), 2) <= spectrum.scatter_error
    else:
        Q = Q.astype(np.longdouble)
        left = exact.T @ exact - (Q * spectrum.eigenvalues) @ Q.T
        assert np.linalg.norm(left.astype(float), 2) <= spectrum.scatter_error
        outside = exact - (exact @ Q) @ Q.T
        norms = np.sqrt((outside**2).sum(axis=1)).astype(float)
        rounding = 1e-14 * np.sqrt(spectrum.squared_norms)
        assert (norms <= spectrum.dropped + rounding).all()


def test_singular_values_see_directions_that_squares_do_not():
    X = np.diag([1.0, 1e-4, 1e-9])
    assert scatter_spectrum(X).rank == 2
    precise = sample_spectrum(X)
    np.testing.assert_allclose(precise.eigenvalues, [1e-18, 1e-8, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(scatter_spectrum(X).unresolved, [False, False, True])
    assert not precise.unresolved.any()


def test_error_grows_by_the_largest_dropped_singular_value():
    spectrum = sample_spectrum(np.diag([1.0, 0.5, 2e-14, 1e-14]))
    assert spectrum.rank == 2
    error = decomposition_error(4, singular_values=True)
    assert spectrum.sample_error == pytest.approx(error + 2e-14, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_dropped_singular_values_are_part_of_the_error(shape, rng):
    # Rank three up to rounding: the other singular values are dropped.
    X = rng.normal(size=(shape[0], 3)) @ rng.normal(size=(3, shape[1]))
    spectrum = sample_spectrum(X)
    assert spectrum.rank == 3
    singular = np.linalg.svd(X, compute_uv=False)
    assert spectrum.sample_error > singular[3]
    assert (spectrum.dropped > 0.0).all()


def test_error_of_a_scalar_product_is_bounded_in_any_order(rng):
    for length in (1, 10, 1000):
        a, b = rng.normal(size=(2, length))
        exact = np.sum(a.astype(np.longdouble) * b)
        backwards = sum((x * y for x, y in zip(a[::-1], b[::-1], strict=True)), 0.0)
        bound = dot_error(length) * np.linalg.norm(a) * np.linalg.norm(b)
        assert abs(backwards - exact) <= bound
        assert abs(a @ b - exact) <= bound
        assert bound <= 1e-12 * length


def test_error_of_singular_values_is_larger_than_that_of_eigenvectors():
    assert decomposition_error(10) < decomposition_error(100) < 1e-13
    assert decomposition_error(10, singular_values=True) > 2 * decomposition_error(10)
