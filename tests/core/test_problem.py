import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dualqml.core import problem
from tests.problems import extra_scatter, make_data

X, labels = make_data([3, 4, 3], 6)
OWN = np.flatnonzero(labels == 1)
O_MATRIX = extra_scatter(X, OWN)
U = np.array([0.5, 1.0, 2.0, 0.1])


def test_extra_class_scatter_is_the_sum_of_outer_products():
    extra = X[labels != 1]
    expected = sum(np.outer(x, x) for x in extra)
    np.testing.assert_allclose(problem.extra_class_scatter(extra), expected)


def test_objective_is_norm_plus_weighted_extra_class_responses(rng):
    P = rng.normal(size=(6, 6))
    P = P @ P.T
    expected = 0.5 * np.linalg.norm(P, "fro") ** 2 + 3.0 * sum(
        x @ P @ x for x in X[labels != 1]
    )
    assert problem.objective(P, O_MATRIX, 3.0) == pytest.approx(expected)


def test_responses_are_quadratic_forms(rng):
    P = rng.normal(size=(6, 6))
    np.testing.assert_allclose(problem.responses(P, X), [x @ P @ x for x in X])


def test_parts_add_up_and_are_orthogonal(rng):
    A = rng.normal(size=(6, 6))
    A = A + A.T
    positive, negative = problem.split_parts(A)
    np.testing.assert_allclose(positive + negative, A, atol=1e-12)
    assert np.linalg.eigvalsh(positive).min() > -1e-12
    assert np.linalg.eigvalsh(negative).max() < 1e-12
    np.testing.assert_allclose(positive @ negative, 0.0, atol=1e-12)


@pytest.mark.parametrize("lam", [0.01, 1.0, 30.0])
def test_gradient_is_the_derivative_of_the_dual_value(lam):
    def value(u):
        return problem.dual_value_and_gradient(u, X[OWN], O_MATRIX, lam)[0]

    _, gradient = problem.dual_value_and_gradient(U, X[OWN], O_MATRIX, lam)
    numeric = approx_fprime(U, value, 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)


def test_recovered_matrix_satisfies_the_stationarity_condition():
    # (7): P = K - lam O + sum u I, with K of (11) positive semidefinite.
    P = problem.recover(U, X[OWN], O_MATRIX, 0.3)
    A = problem.dual_matrix(U, X[OWN], O_MATRIX, 0.3)
    K = problem.split_parts(A)[0]
    np.testing.assert_allclose(P, K - A, atol=1e-12)
    assert np.linalg.eigvalsh(P).min() > -1e-12


def test_gradient_is_one_minus_the_response_of_the_recovered_matrix():
    P = problem.recover(U, X[OWN], O_MATRIX, 0.3)
    _, gradient = problem.dual_value_and_gradient(U, X[OWN], O_MATRIX, 0.3)
    np.testing.assert_allclose(gradient, 1.0 - problem.responses(P, X[OWN]))


def test_dual_value_is_a_lower_bound_of_the_objective(rng):
    # Weak duality at any feasible P and any u >= 0.
    A = rng.normal(size=(6, 6))
    P = A @ A.T
    P /= problem.responses(P, X[OWN]).min()
    for _ in range(20):
        u = rng.exponential(size=OWN.size)
        value, _ = problem.dual_value_and_gradient(u, X[OWN], O_MATRIX, 0.3)
        assert value <= problem.objective(P, O_MATRIX, 0.3)


def test_first_rows_tell_where_the_factors_of_a_class_begin():
    ranks = np.array([2, 0, 3])
    factors = np.arange(20.0).reshape(5, 4)
    solution = problem.QMLSolution(1.0, factors, ranks, np.zeros(6), ranks)
    np.testing.assert_array_equal(solution.first_rows, [0, 2, 2, 5])


def test_dual_matrix_has_at_most_as_many_negative_eigenvalues_as_samples():
    for lam in (0.01, 1.0):
        w = np.linalg.eigvalsh(problem.dual_matrix(100.0 * U, X[OWN], O_MATRIX, lam))
        assert 1 <= (w < -1e-9).sum() <= OWN.size
