import numpy as np
import pytest

from dualqml.core import scatter_spectrum, single_class, solve
from dualqml.core.problem import objective, responses
from dualqml.core.single_class import other_samples, solve_class, span_coordinates
from tests.problems import dense_matrices, extra_scatter, make_data, members_of


def alone(X, own, lam, tol=1e-6):
    others = other_samples(*span_coordinates(X), own)
    return solve_class(X, own, lam, others, tol=tol, max_iter=50)


@pytest.mark.parametrize("n_features", [3, 20, 100])
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
def test_what_all_classes_at_once_give(n_features, lam):
    X, labels = make_data([3, 1, 4, 2], n_features)
    spectrum, members = scatter_spectrum(X), members_of(labels)
    together = dense_matrices(spectrum, solve(spectrum, members, lam, tol=1e-9))
    for own, P in zip(members, together, strict=True):
        found = alone(X, own, lam, tol=1e-9)
        assert found.certificate.worst[0] <= 1e-9
        R = found.components.T @ found.components
        O = extra_scatter(X, own)
        assert objective(R, O, lam) == pytest.approx(objective(P, O, lam), rel=1e-8)
        np.testing.assert_allclose(R, P, atol=1e-3 * np.linalg.norm(P), rtol=0)
        assert responses(R, X[own]).min() >= 1.0


@pytest.mark.parametrize("power", [-20, -6, 6, 14, 20])
def test_orthogonal_samples_have_the_closed_form_for_any_lambda(power):
    # O_c x = 0, so P = x x' / |x|^4 and u = 1 / |x|^4.
    X = np.diag([2.0, 3.0, 0.5])
    for i in range(3):
        found = alone(X, np.array([i]), 10.0**power)
        assert found.certificate.worst[0] <= 1e-6
        expected = np.zeros((3, 3))
        expected[i, i] = 1.0 / X[i, i] ** 2
        P = found.components.T @ found.components
        np.testing.assert_allclose(P, expected, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(found.multipliers, X[i, i] ** -4.0, rtol=1e-6)


def test_more_samples_than_features_at_an_extreme_lambda():
    # The roots, 1e-16 of the scatter, are rounding noise to Newton's method alone.
    X, labels = make_data([4, 5, 6], 3, noise=1.0, centre=False, seed=2)
    for own in members_of(labels):
        assert alone(X, own, 1e16).certificate.worst[0] <= 1e-6


def test_a_class_of_several_directions():
    # Two samples at right angles need two factors: the rank-one candidate fails.
    X = np.array([[1.0, 0.0, 0.1], [0.0, 1.0, -0.1], [0.3, 0.3, 1.0], [0.1, -0.2, 0.9]])
    found = alone(X, np.array([0, 1]), 0.01)
    assert found.components.shape[0] == 2
    assert found.certificate.worst[0] <= 1e-6


def test_samples_on_both_sides_of_the_origin():
    # x and -x are the same to P.
    X, labels = make_data([3, 3], 10, noise=0.1)
    own = members_of(labels)[0]
    turned = X.copy()
    turned[own[1]] *= -1.0
    a, b = alone(X, own, 1.0), alone(turned, own, 1.0)
    np.testing.assert_allclose(
        a.components.T @ a.components, b.components.T @ b.components, atol=1e-8
    )


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (5, 3), (3, 5), (9, 90), (90, 9)])
def test_singular_vectors_of_all_shapes(shape, rng):
    matrix = rng.normal(size=shape)
    matrix[-1] = matrix[0]
    values, vectors, error = single_class._right_singular_vectors(matrix)
    assert (np.diff(values) >= 0.0).all()
    n = shape[1]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-13)
    scatter = (vectors * values**2) @ vectors.T
    np.testing.assert_allclose(
        scatter, matrix.T @ matrix, atol=3.0 * error * values[-1]
    )


def test_nothing_usable_is_told(monkeypatch):
    X, labels = make_data([2, 2], 5)
    monkeypatch.setattr(single_class._ClassProblem, "candidates", lambda self: iter(()))
    found = alone(X, members_of(labels)[0], 1.0)
    assert found.components.shape == (0, 5)
    assert np.isinf(found.certificate.gap[0])
    assert found.certificate.violation[0] == 1.0


def test_candidates_that_cannot_be_scaled_are_left_out(monkeypatch):
    X, labels = make_data([2, 2], 5)
    real = single_class._ClassProblem.candidates

    def with_bad_ones(self):
        yield np.full((1, 5), np.nan), np.ones(2)
        yield np.zeros((1, 5)), np.ones(2)
        yield from real(self)

    own = members_of(labels)[0]
    expected = alone(X, own, 1.0)
    monkeypatch.setattr(single_class._ClassProblem, "candidates", with_bad_ones)
    found = alone(X, own, 1.0)
    np.testing.assert_array_equal(found.components, expected.components)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, RuntimeError, ValueError])
def test_a_method_that_fails_makes_way_for_the_next(monkeypatch, error):
    def failing(self, low, high):
        yield from ()
        raise error("no")

    X, labels = make_data([3, 3], 8, noise=0.02, centre=False)
    own = members_of(labels)[0]
    expected = alone(X, own, 1.0)
    assert expected.n_iter == 0  # by the rank-one problem
    monkeypatch.setattr(single_class._ClassProblem, "rank_one", failing)
    found = alone(X, own, 1.0)
    assert found.n_iter > 0
    assert found.certificate.worst[0] <= 1e-6
    P = expected.components.T @ expected.components
    np.testing.assert_allclose(
        found.components.T @ found.components, P, atol=1e-4 * np.linalg.norm(P)
    )


def test_rank_one_solution_does_not_depend_on_the_signs_of_samples():
    X, labels = make_data([3, 3], 8, noise=0.02, centre=False)
    own = members_of(labels)[0]
    expected = alone(X, own, 1.0)
    for signs in ([1, -1, 1], [-1, 1, 1], [-1, -1, -1]):
        turned = X.copy()
        turned[own] *= np.array(signs)[:, None]
        found = alone(turned, own, 1.0)
        assert found.n_iter == 0
        np.testing.assert_allclose(
            found.components.T @ found.components,
            expected.components.T @ expected.components,
            rtol=1e-9,
        )


def rank_one_problem():
    X, labels = make_data([3, 3], 8)
    own = members_of(labels)[0]
    others = other_samples(*span_coordinates(X), own)
    side = np.where(others.own @ others.own[0] < 0.0, -1.0, 1.0)
    return single_class._RankOneProblem(
        others.eigenvalues, side[:, None] * others.own, 1.0
    )


def test_bounds_of_the_rank_one_root_are_widened_on_both_sides():
    problem = rank_one_problem()
    w, v = problem.solve(-20.0, 20.0)
    root = np.log(w[0] @ w[0])
    for shift in (-9.0, 9.0):
        again, _ = problem.solve(root + shift, root + shift + 0.5)
        np.testing.assert_allclose(again, w, rtol=1e-9)
    # The optimality conditions: z_i'w >= 1, with equality where v_i > 0.
    responses_ = problem.Z @ w[0]
    assert responses_.min() >= 1.0 - 1e-9
    np.testing.assert_allclose(v * (responses_ - 1.0), 0.0, atol=1e-9)


def test_a_rank_one_problem_without_bounds_of_its_root_has_no_solution(monkeypatch):
    monkeypatch.setattr(single_class, "_MAX_WIDENINGS", 1)
    assert rank_one_problem().solve(90.0, 91.0) is None


def test_proximal_steps_end_where_nothing_changes():
    X, labels = make_data([4, 5, 6], 3, noise=1.0, centre=False, seed=2)
    own = members_of(labels)[0]
    others = other_samples(*span_coordinates(X), own)
    problem = single_class._ClassProblem(others, 1e6, 50)
    found = list(problem.proximal_steps(np.eye(3), np.ones(4), 1e-4))
    assert 1 < len(found) <= single_class._MAX_PROXIMAL_STEPS
    last, before = (
        (vectors.T * roots) @ vectors for _, roots, vectors in found[:-3:-1]
    )
    np.testing.assert_allclose(last, before, atol=1e-6 * np.linalg.norm(last))
    # One step is Newton's method alone.
    assert len(list(problem.proximal_steps(np.eye(3), np.ones(4), 0.0))) == 1


def test_many_features_are_reduced_to_the_span():
    X, _ = make_data([2, 2], 100)
    coordinates, basis = span_coordinates(X)
    assert coordinates.shape == (4, 4)
    np.testing.assert_allclose(coordinates @ basis.T, X, atol=1e-14)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-14)
    few, identity = span_coordinates(X[:, :5])
    np.testing.assert_array_equal(few, X[:, :5])
    np.testing.assert_array_equal(identity, np.eye(5))
