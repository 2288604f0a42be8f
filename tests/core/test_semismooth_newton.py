from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.core import semismooth_newton as newton
from tests.problems import make_data

REAL = np.ones((1, 4), dtype=bool)


def small_problem(seed=0, k=4, d=6):
    """A (positive semidefinite) and B of one class, dense."""
    X, labels = make_data([k, k, k], d, seed=seed)
    return (X.T @ X)[None], X[labels == 0][None]


@pytest.mark.parametrize("inv_lam", [0.01, 1.0, 50.0])
def test_gradient_matches_finite_differences(inv_lam, rng):
    A, B = small_problem()
    v = rng.exponential(size=(1, 4)) * 5.0
    at = newton.evaluate(A, B, v, inv_lam, REAL)
    for i in range(4):
        step = np.zeros((1, 4))
        step[0, i] = 1e-5
        up = newton.evaluate(A, B, v + step, inv_lam, REAL).value[0]
        down = newton.evaluate(A, B, v - step, inv_lam, REAL).value[0]
        assert at.gradient[0, i] == pytest.approx((up - down) / 2e-5, abs=1e-5)


def test_hessian_matches_finite_differences_of_the_gradient(rng):
    A, B = small_problem()
    v = rng.exponential(size=(1, 4)) * 5.0
    H = newton.generalised_hessian(newton.evaluate(A, B, v, 1.0, REAL))[0]
    for i in range(4):
        step = np.zeros((1, 4))
        step[0, i] = 1e-5
        up = newton.evaluate(A, B, v + step, 1.0, REAL).gradient[0]
        down = newton.evaluate(A, B, v - step, 1.0, REAL).gradient[0]
        np.testing.assert_allclose(H[i], (up - down) / 2e-5, atol=1e-5)


def test_hessian_in_blocks_is_the_same(rng, monkeypatch):
    A, B = small_problem()
    at = newton.evaluate(A, B, rng.exponential(size=(1, 4)) * 5.0, 1.0, REAL)
    whole = newton.generalised_hessian(at)
    monkeypatch.setattr(newton, "_HESSIAN_BLOCK", 6)
    np.testing.assert_allclose(newton.generalised_hessian(at), whole, rtol=1e-12)


def test_hessian_of_large_classes_uses_only_the_roots_there_are(rng, monkeypatch):
    problems = [small_problem(seed, k=12, d=9) for seed in range(6)]
    A, B = (np.concatenate(arrays) for arrays in zip(*problems, strict=True))
    # From no root to as many as dimensions.
    v = rng.exponential(size=(6, 12)) * 10.0 ** np.arange(-3.0, 3.0)[:, None]
    v[0] = 0.0
    at = newton.evaluate(A, B, v, 1.0, np.ones((6, 12), dtype=bool))
    n_roots = (at.eigenvalues < 0.0).sum(axis=1)
    assert n_roots.min() == 0
    assert n_roots.max() > 4
    found = newton.generalised_hessian(at)
    monkeypatch.setattr(newton, "_LARGE_CLASS", 13)
    whole = newton.generalised_hessian(at)
    np.testing.assert_allclose(found, whole, rtol=1e-10, atol=1e-12 * whole.max())


@pytest.mark.parametrize("rounds", [0, 6])
def test_bounded_step_of_large_classes_satisfies_the_kkt_conditions(
    rng, monkeypatch, rounds
):
    monkeypatch.setattr(newton, "_MAX_ROUNDS_LARGE", rounds)
    factor = rng.normal(size=(8, 20, 15))
    H = factor @ factor.transpose(0, 2, 1) + 1e-3 * np.eye(20)
    g = rng.normal(size=(8, 20))
    v = np.maximum(rng.normal(size=(8, 20)), 0.0)
    step = newton.bounded_newton_step(H, g, v, np.ones((8, 20), dtype=bool))
    multiplier = g + (H @ step[:, :, None])[:, :, 0]
    assert (step >= -v).all()
    assert multiplier.min() >= -1e-6
    assert np.abs(multiplier * (step + v)).max() <= 1e-6


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 6))
def test_bounded_step_satisfies_the_kkt_conditions(seed, rank):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(8, 6, rank))
    H = factor @ factor.transpose(0, 2, 1) + 1e-6 * np.eye(6)
    g = rng.normal(size=(8, 6))
    v = np.maximum(rng.normal(size=(8, 6)), 0.0)
    real = rng.random((8, 6)) > 0.1
    v, g = np.where(real, v, 0.0), np.where(real, g, 0.0)
    step = newton.bounded_newton_step(H, g, v, real)
    multiplier = g + (H @ step[:, :, None])[:, :, 0]
    scale = np.abs(step).max() + np.abs(g).max()
    assert (v + step >= -1e-9 * scale).all()
    assert (step[~real] == 0.0).all()
    inside = real & (v + step > 1e-7 * scale)
    at_bound = real & ~inside
    assert np.abs(multiplier[inside]).max(initial=0.0) < 1e-5 * scale
    assert multiplier[at_bound].min(initial=0.0) > -1e-5 * scale


def test_least_squares_fallback_solves_the_same_problem(rng):
    factor = rng.normal(size=(5, 5))
    H, g = factor @ factor.T + 0.1 * np.eye(5), rng.normal(size=5)
    v = np.maximum(rng.normal(size=5), 0.0)
    real = np.array([True, True, False, True, True])
    v, g = np.where(real, v, 0.0), np.where(real, g, 0.0)
    batched = newton.bounded_newton_step(H[None], g[None], v[None], real[None])[0]
    single = newton._bounded_step_by_nnls(H, g, v, real)
    np.testing.assert_allclose(single, batched, atol=1e-8)


@pytest.mark.parametrize("inv_lam", [1e-3, 1.0, 1e3])
def test_minimise_reaches_the_kkt_conditions(inv_lam):
    A, B = small_problem()
    found = newton.minimise(
        A, B, np.ones((1, 4)), inv_lam, REAL, tol=1e-9, max_evaluations=100
    )
    at = newton.evaluate(A, B, found.v, inv_lam, REAL)
    assert found.violation[0] <= 1e-9
    assert (found.v >= 0.0).all()
    assert (at.gradient >= -1e-9 * inv_lam).all()
    assert np.abs(found.v * at.gradient).max() < 1e-7 * inv_lam * found.v.max()


def test_minimise_leaves_a_flat_start():
    # At v = 0 the matrix is positive semidefinite and has no curvature.
    A, B = small_problem()
    found = newton.minimise(
        A, B, np.zeros((1, 4)), 1.0, REAL, tol=1e-8, max_evaluations=100
    )
    assert found.violation[0] <= 1e-8


def test_minimise_does_not_depend_on_the_other_classes():
    problems = [small_problem(seed) for seed in range(7)]
    A = np.concatenate([p[0] for p in problems])
    B = np.concatenate([p[1] for p in problems])
    real = np.ones((7, 4), dtype=bool)
    together = newton.minimise(
        A, B, np.ones((7, 4)), 1.0, real, tol=1e-8, max_evaluations=50
    )
    for i in range(7):
        alone = newton.minimise(
            A[i : i + 1],
            B[i : i + 1],
            np.ones((1, 4)),
            1.0,
            REAL,
            tol=1e-8,
            max_evaluations=50,
        )
        np.testing.assert_array_equal(alone.v[0], together.v[i])
        np.testing.assert_array_equal(alone.vectors[0], together.vectors[i])
        assert alone.n_evaluations[0] == together.n_evaluations[i]


def test_padded_samples_keep_zero_multipliers():
    A, B = small_problem()
    padded = np.concatenate([B, np.zeros((1, 2, 6))], axis=1)
    real = np.array([[True] * 4 + [False] * 2])
    with_padding = newton.minimise(
        A, padded, np.ones((1, 6)), 1.0, real, tol=1e-9, max_evaluations=50
    )
    without = newton.minimise(
        A, B, np.ones((1, 4)), 1.0, REAL, tol=1e-9, max_evaluations=50
    )
    np.testing.assert_array_equal(with_padding.v[:, 4:], 0.0)
    np.testing.assert_allclose(with_padding.v[:, :4], without.v, rtol=1e-6)


def test_least_squares_that_do_not_end_give_a_feasible_descent_step(rng, monkeypatch):
    def endless(A, b):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(newton, "nnls", endless)
    factor = rng.normal(size=(4, 4))
    H, g = factor @ factor.T, rng.normal(size=4)
    v = np.array([0.0, 1.0, 0.0, 2.0])
    step = newton._bounded_step_by_nnls(H, g, v, REAL[0])
    assert (v + step >= 0.0).all()
    assert g @ step < 0.0


def test_active_sets_that_cycle_are_solved_by_least_squares(monkeypatch):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(2, 4, 4))
    H = factor @ factor.transpose(0, 2, 1)
    g, v = rng.normal(size=(2, 4)), np.maximum(rng.normal(size=(2, 4)), 0.0)
    expected = newton.bounded_newton_step(H, g, v, np.ones((2, 4), dtype=bool))
    used = []
    real = newton._bounded_step_by_nnls

    def spy(*args):
        used.append(args)
        return real(*args)

    monkeypatch.setattr(newton, "_bounded_step_by_nnls", spy)
    # Without any iteration of the active-set method no active set is final.
    monkeypatch.setattr(newton, "range", lambda n: (), raising=False)
    step = newton.bounded_newton_step(H, g, v, np.ones((2, 4), dtype=bool))
    assert len(used) == 2
    np.testing.assert_allclose(step, expected, atol=1e-8)


def test_minimise_stops_at_the_largest_number_of_evaluations():
    A, B = small_problem()
    found = newton.minimise(
        A, B, np.zeros((1, 4)), 1e-3, REAL, tol=1e-12, max_evaluations=2
    )
    assert found.n_evaluations[0] == 2
    assert found.violation[0] > 1e-12


def test_minimise_stops_where_rounding_allows_no_progress():
    A, B = small_problem()
    found = newton.minimise(
        A, B, np.ones((1, 4)), 1.0, REAL, tol=0.0, max_evaluations=1000
    )
    assert found.n_evaluations[0] < 50
    assert found.violation[0] < 1e-12


def test_parts_of_a_solution_are_taken_and_put_back():
    problems = [small_problem(seed) for seed in range(3)]
    A, B = (np.concatenate(arrays) for arrays in zip(*problems, strict=True))
    real = np.ones((3, 4), dtype=bool)
    options = {"tol": 1e-8, "max_evaluations": 50}
    found = newton.minimise(A, B, np.ones((3, 4)), 1.0, real, **options)
    rows = np.array([2, 0])
    part = found.take(rows)
    for field in fields(found):
        whole, taken = getattr(found, field.name), getattr(part, field.name)
        np.testing.assert_array_equal(taken, whole[rows])
    other = newton.minimise(A, B, np.ones((3, 4)), 2.0, real, **options)
    kept, n_evaluations = other.v[1].copy(), other.n_evaluations.copy()
    other.put(rows, part)
    for name in ("v", "eigenvalues", "vectors", "violation"):
        np.testing.assert_array_equal(getattr(other, name)[rows], getattr(part, name))
    np.testing.assert_array_equal(other.v[1], kept)
    np.testing.assert_array_equal(other.n_evaluations, n_evaluations)


@pytest.mark.parametrize("inv_lam", [0.1, 10.0])
def test_scatter_of_the_other_samples_alone_gives_the_same_solution(inv_lam):
    # base = 0: S - B'(1 + v)B = (S - B'B) - B'vB.
    A, B = small_problem()
    others = A - B.transpose(0, 2, 1) @ B
    options = {"tol": 1e-9, "max_evaluations": 100}
    a = newton.minimise(A, B, np.ones((1, 4)), inv_lam, REAL, **options)
    b = newton.minimise(others, B, np.ones((1, 4)), inv_lam, REAL, base=0.0, **options)
    np.testing.assert_allclose(a.v, b.v, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(a.eigenvalues, b.eigenvalues, atol=1e-8)


def test_relative_violation_counts_excess_only_where_the_multiplier_is_positive():
    v = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    gradient = np.array([[3.0, 0.5], [3.0, -0.2], [0.0, -0.4]])
    violation = newton.relative_violation(v, gradient, 2.0)
    np.testing.assert_allclose(violation, [0.25, 0.1, 0.2])
