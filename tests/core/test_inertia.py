import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.core import scatter_spectrum, solve
from dualqml.core.class_chunks import single_class_chunk
from dualqml.core.inertia import (
    RootCounter,
    one_negative_at_most,
    positive_definite,
)
from dualqml.core.single_class import other_samples, span_coordinates
from dualqml.core.spectrum import sample_spectrum
from tests.problems import make_data, make_problem, members_of, problems


def counter_of(spectrum, own, v):
    chunk = single_class_chunk(own)
    Z = chunk.gather(spectrum.coordinates)
    return RootCounter.among_all_samples(Z, chunk, spectrum, v[None], 1.0)


def roots_of(X, own, v):
    """Minus the eigenvalues of S - X_c' diag(1 + v) X_c, largest first."""
    M = X.T @ X - (X[own].T * (1.0 + v)) @ X[own]
    return -np.linalg.eigvalsh(M)


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 1000))
def test_counts_are_those_of_the_full_matrix(problem, seed):
    spectrum, members, X = problem
    rng = np.random.default_rng(seed)
    for own in members:
        v = rng.exponential(size=own.size) * 10.0
        roots = roots_of(X, own, v)
        largest = max(roots[0], 1e-3)
        # Between the roots, where the number is clear.
        levels = largest * np.array([0.9, 0.3, 0.05, 1.2])
        levels = levels[[np.abs(roots - b).min() > 1e-6 * largest for b in levels]]
        at_most, computed = counter_of(spectrum, own, v).count_all(levels[None])
        expected = [(roots > b).sum() for b in levels]
        np.testing.assert_array_equal(computed[0], expected)
        assert (at_most[0] >= expected).all()


@pytest.mark.parametrize("n_features", [6, 40])
@pytest.mark.parametrize("size", [3, 30])  # with and without products of pairs
def test_bounds_of_roots_are_above_them_and_close(n_features, size):
    X, labels = make_data([size, size, size], n_features, centre=False)
    spectrum, own = scatter_spectrum(X), members_of(labels)[0]
    v = np.random.default_rng(0).exponential(size=size)
    roots = np.maximum(roots_of(X, own, v), 0.0)
    n_roots = int((roots > 1e-4 * roots[0]).sum())
    claimed = np.zeros(size)
    k = min(size, n_features)
    # Claims that are too low are found out.
    claimed[:k] = 0.9 * roots[:k]
    bounds, n_negative = counter_of(spectrum, own, v).root_bounds(
        claimed[None],
        np.ones((1, size)),
        np.array([1e-12]),
        1e-5,
        np.array([k]),
    )
    assert (bounds[0, :n_roots] >= roots[:n_roots]).all()
    np.testing.assert_allclose(bounds[0, :n_roots], roots[:n_roots], rtol=1e-3)
    assert (bounds[0, k:] == 0.0).all()
    assert n_negative[0] >= n_roots


def test_errors_of_the_spectrum_raise_the_count():
    # An error as large as the root itself: it can be anywhere.
    spectrum, members, X = make_problem([2, 2, 2], 12)
    solution = solve(spectrum, members, 1.0)
    own = members[0]
    v = solution.multipliers[own]
    root = roots_of(X, own, v)[0]
    sharp = counter_of(spectrum, own, v)
    at_most, _ = sharp.count_all(np.array([[1.001 * root]]))
    assert at_most[0, 0] == 0
    blurred = RootCounter(**{**vars(sharp), "scatter_error": 0.4 * root})
    at_most, computed = blurred.count_all(np.array([[1.001 * root]]))
    assert (at_most[0, 0], computed[0, 0]) == (2, 0)
    hopeless = RootCounter(**{**vars(sharp), "scatter_error": 10.0 * root})
    assert hopeless.count_all(np.array([[1.001 * root]]))[0][0, 0] == 2


def test_both_scatters_give_the_same_roots():
    # S - X_c'(1 + v)X_c = O_c - X_c'vX_c.
    spectrum, members, X = make_problem([3, 3, 3], 20)
    own, v = members[1], np.array([3.0, 0.0, 5.0])
    root = roots_of(X, own, v)[0]
    others = other_samples(*span_coordinates(X), own)
    of_others = RootCounter.among_others(others, v[None], 1.0)
    of_all = counter_of(spectrum, own, v)
    for counter in (of_all, of_others):
        at_most, _ = counter.count_all(root * np.array([[1.0 - 1e-9, 1.0 + 1e-9]]))
        np.testing.assert_array_equal(at_most[0], [1, 0])


def test_residuals_that_were_computed_are_those_of_the_decomposition():
    _, members, X = make_problem([3, 3, 3], 20)
    others = other_samples(*span_coordinates(X), members[0])
    scatter, skew = others.residuals
    rest = np.delete(X, members[0], axis=0).astype(np.longdouble)
    Q = others.basis.astype(np.longdouble)
    exact = (rest @ Q).T @ (rest @ Q) - np.diag(others.eigenvalues)
    np.testing.assert_allclose(scatter, exact.astype(float), atol=1e-18)
    exact = Q.T @ Q - np.eye(20)
    np.testing.assert_allclose(skew, exact.astype(float), atol=1e-18)
    assert 0.0 < np.linalg.norm(scatter) <= 3.0 * others.error * np.linalg.norm(X)


@pytest.mark.parametrize("n_features", [12, 100])  # with and without residuals
def test_bounds_of_roots_in_the_spectrum_of_the_other_samples(n_features):
    _, members, X = make_problem([3, 3, 3], n_features)
    own, v = members[1], np.array([3.0, 4.0, 5.0])
    roots = roots_of(X, own, v)
    n_roots = int((roots > 1e-4 * roots[0]).sum())
    others = other_samples(*span_coordinates(X), own)
    assert (others.residuals is not None) == (n_features == 12)
    bounds, n_negative = RootCounter.among_others(others, v[None], 1.0).root_bounds(
        0.9 * np.maximum(roots[None, :3], 0.0),
        np.ones((1, 3)),
        np.array([1e-12]),
        1e-5,
        np.array([3]),
    )
    assert (bounds[0, :n_roots] >= roots[:n_roots]).all()
    np.testing.assert_allclose(bounds[0, :n_roots], roots[:n_roots], rtol=1e-5)
    assert n_negative[0] == n_roots


def test_roots_that_are_not_claimed_are_bounded_too():
    # The worst fault of a solver: it has seen the largest root only.
    X, labels = make_data([3, 3, 3], 20)
    spectrum, own = scatter_spectrum(X), members_of(labels)[0]
    v = np.array([3.0, 4.0, 5.0])
    roots = roots_of(X, own, v)[:3]
    assert (roots > 1e-3 * roots[0]).all()
    for n_claimed in (0, 1, 2):
        claimed = np.where(np.arange(3) < n_claimed, roots, 0.0)
        bounds, n_negative = counter_of(spectrum, own, v).root_bounds(
            claimed[None],
            np.ones((1, 3)),
            np.array([1e-9]),
            1e-5,
            np.array([3]),
        )
        assert (bounds[0] >= roots).all()
        if n_claimed:
            assert np.isfinite(bounds).all()
            assert n_negative[0] == 3


def test_singular_values_give_a_sharper_count_than_squares():
    # A root of 1e-9 of the scatter: lost in its error, not in that of the samples.
    X, labels = make_data([3, 3, 3], 40, centre=False)
    own, v = members_of(labels)[0], np.zeros(3)
    X[own] *= 1e-4
    v[:] = 1e3
    root = roots_of(X, own, v)[0]
    level = np.array([[1.001 * root]])
    for spectrum in (scatter_spectrum(X), sample_spectrum(X)):
        at_most, computed = counter_of(spectrum, own, v).count_all(level)
        assert at_most[0, 0] >= computed[0, 0] == 0
    error = [
        counter_of(spectrum, own, v)._spectral_error(level)[0, 0]
        for spectrum in (scatter_spectrum(X), sample_spectrum(X))
    ]
    assert 0.0 < error[1] < error[0]


def test_no_root_is_bounded_where_errors_are_too_large():
    spectrum, members, X = make_problem([2, 2, 2], 12)
    own, v = members[0], np.array([5.0, 5.0])
    root = roots_of(X, own, v)[0]
    sharp = counter_of(spectrum, own, v)
    hopeless = RootCounter(**{**vars(sharp), "scatter_error": 1e9 * root})
    bounds, _ = hopeless.root_bounds(
        np.array([[root, 0.0]]),
        np.ones((1, 2)),
        np.array([1e-12]),
        1e-5,
        np.array([2]),
    )
    # Either infinite or far above: never below the root.
    assert (bounds[0] >= 1e6 * root).all()


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(2, 30),
    n_negative=st.integers(0, 2),
    power=st.floats(-6.0, 6.0),
    seed=st.integers(0, 10_000),
)
def test_cholesky_counts_up_to_one_negative_eigenvalue(k, n_negative, power, seed):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(k, k)))
    w = rng.uniform(0.1, 1.0, size=k)
    n_negative = min(n_negative, k)
    w[:n_negative] *= -(10.0**power)
    S = (Q * w) @ Q.T
    S = 0.5 * (S + S.T)
    assert positive_definite(S[None])[0] == (n_negative == 0)
    direction = Q[:, 0] + 1e-3 * rng.normal(size=k) / 10.0 ** abs(power)
    assert one_negative_at_most(S[None], direction[None])[0] == (n_negative <= 1)
    # A direction that tells nothing must not prove anything that is wrong.
    if n_negative == 2:
        assert not one_negative_at_most(S[None], rng.normal(size=(1, k)))[0]


def test_cholesky_counts_with_a_margin_and_for_each_matrix_by_itself():
    S = np.stack([np.eye(3), np.diag([1.0, 1.0, 0.1]), np.full((3, 3), np.nan)])
    np.testing.assert_array_equal(positive_definite(S), [True, True, False])
    np.testing.assert_array_equal(positive_definite(S, 0.2), [True, False, False])
    margins = np.array([1.1, 0.05, 0.0])
    np.testing.assert_array_equal(positive_definite(S, margins), [False, True, False])
    S = np.stack([np.diag([-1.0, 1.0, 0.1]), np.diag([-1.0, 1.0, 0.3])])
    found = one_negative_at_most(S, np.eye(3)[[0, 0]], 0.2)
    np.testing.assert_array_equal(found, [False, True])
