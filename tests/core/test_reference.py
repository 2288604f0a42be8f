"""The three solvers against each other, and against the paper's statements."""

import numpy as np
import pytest

from dualqml.core import certify, reference, scatter_spectrum, solve
from dualqml.core.problem import objective, responses
from dualqml.core.reference import solve_class_sdp, solve_lbfgs
from dualqml.exceptions import MissingDependencyError, SolverError
from tests.problems import dense_matrices, extra_scatter, make_problem

LAMS = [0.01, 1.0, 100.0, 1e4]


@pytest.mark.parametrize(
    ("lam", "n_features"),
    # Not 4 features at 1e4: there L-BFGS-B stops early in some versions of SciPy.
    [(lam, p) for lam in LAMS for p in (4, 12, 30) if (lam, p) != (1e4, 4)],
)
def test_objective_equals_that_of_the_papers_algorithm(lam, n_features):
    spectrum, members, _ = make_problem([3, 1, 4, 2], n_features)
    newton = certify(spectrum, members, solve(spectrum, members, lam, tol=1e-8))
    paper = solve(spectrum, members, lam, solver="lbfgs", tol=1e-8)
    reference = certify(spectrum, members, paper)
    np.testing.assert_allclose(newton.dual, reference.dual, rtol=1e-6)
    np.testing.assert_allclose(newton.primal, reference.primal, rtol=1e-6)


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("n_features", [3, 20])
def test_objective_and_matrices_equal_those_of_clarabel(lam, n_features):
    pytest.importorskip("cvxpy")
    spectrum, members, _ = make_problem([3, 1, 2], n_features)
    ours = solve(spectrum, members, lam, tol=1e-9)
    oracle = solve(spectrum, members, lam, solver="sdp", tol=1e-8)
    np.testing.assert_allclose(
        certify(spectrum, members, ours).primal,
        certify(spectrum, members, oracle).primal,
        rtol=1e-6,
    )
    for P, R in zip(
        dense_matrices(spectrum, ours), dense_matrices(spectrum, oracle), strict=True
    ):
        np.testing.assert_allclose(P, R, atol=2e-3 * np.linalg.norm(R), rtol=0)


def test_objective_equals_that_of_scs():
    pytest.importorskip("cvxpy")
    spectrum, members, X = make_problem([3, 2, 2], 6)
    ours = dense_matrices(spectrum, solve(spectrum, members, 1.0, tol=1e-9))
    for own, P in zip(members, ours, strict=True):
        O = extra_scatter(X, own)
        R, u, n_iter = solve_class_sdp(X[own], O, 1.0, tol=1e-8, backend="scs")
        assert objective(R, O, 1.0) == pytest.approx(objective(P, O, 1.0), rel=1e-5)
        assert (u > -1e-6).all()
        assert n_iter > 0


def test_without_the_regulariser_the_extra_class_responses_are_smaller():
    # Problem (1) is the limit of (2) for a large lambda; its matrix is larger.
    pytest.importorskip("cvxpy")
    spectrum, members, X = make_problem([3, 3, 3], 4)
    regularised = dense_matrices(spectrum, solve(spectrum, members, 1.0))
    nearly_free = dense_matrices(spectrum, solve(spectrum, members, 1e6))
    for own, P, limit in zip(members, regularised, nearly_free, strict=True):
        O = extra_scatter(X, own)
        free, _, _ = solve_class_sdp(X[own], O, None)
        assert responses(free, X[own]).min() >= 1.0 - 1e-5
        assert np.sum(free * O) <= np.sum(P * O)
        assert np.linalg.norm(free) >= np.linalg.norm(P)
        assert np.sum(limit * O) == pytest.approx(np.sum(free * O), rel=1e-3)


def test_lbfgs_can_solve_a_part_of_the_classes():
    spectrum, members, _ = make_problem([2, 2, 2], 8)
    part = solve_lbfgs(spectrum, members, 1.0, classes=[1])
    np.testing.assert_array_equal(part.ranks > 0, [False, True, False])
    whole = solve_lbfgs(spectrum, members, 1.0)
    np.testing.assert_allclose(
        part.multipliers[members[1]], whole.multipliers[members[1]]
    )
    assert (part.multipliers[members[0]] == 0.0).all()


def test_sdp_without_cvxpy_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(reference.importlib, "import_module", missing)
    spectrum, members, _ = make_problem([1, 1], 3)
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[sdp\]"):
        solve(spectrum, members, 1.0, solver="sdp")


def test_sdp_failure_is_a_typed_error():
    pytest.importorskip("cvxpy")
    # No P makes 0'P0 >= 1.
    with pytest.raises(SolverError, match="clarabel"):
        solve_class_sdp(np.zeros((1, 2)), np.eye(2), 1.0)


def test_error_of_the_conic_solver_is_a_typed_error(monkeypatch):
    cvxpy = pytest.importorskip("cvxpy")

    def failing(self, **options):
        raise cvxpy.error.SolverError("out of luck")

    monkeypatch.setattr(cvxpy.Problem, "solve", failing)
    with pytest.raises(SolverError, match="scs failed: out of luck"):
        solve_class_sdp(np.ones((1, 2)), np.eye(2), 1.0, backend="scs")


def test_lbfgs_solves_one_sample_without_others_at_its_start():
    # The start is exact where O_c x = 0: P = x x' / |x|^4.
    spectrum = scatter_spectrum(np.diag([2.0, 0.5]))
    found = solve_lbfgs(spectrum, [np.array([0]), np.array([1])], 3.0)
    np.testing.assert_array_equal(found.n_iter, [0, 0])
    np.testing.assert_allclose(found.multipliers, [1.0 / 16.0, 16.0])
    for i, P in enumerate(dense_matrices(spectrum, found)):
        np.testing.assert_allclose(P[i, i], [0.25, 4.0][i])


def test_factors_of_the_reference_solvers_have_at_most_the_rank_of_the_class():
    pytest.importorskip("cvxpy")
    spectrum, members, _ = make_problem([3, 1, 2], 8)
    for solver in ("lbfgs", "sdp"):
        found = solve(spectrum, members, 0.1, solver=solver)
        assert (found.ranks <= [3, 1, 2]).all()
        assert found.factors.shape == (found.ranks.sum(), spectrum.rank)
        assert (found.multipliers >= 0.0).all()
