import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualqml import DualQML
from dualqml.core import certify, solve, solve_certified
from dualqml.core import solve as solve_function
from tests.problems import make_data, make_problem, members_of

#: The module; `dualqml.core.solve` is the function.
MODULE = sys.modules[solve_function.__module__]


def test_easy_classes_are_those_of_the_shared_solver():
    spectrum, members, X = make_problem([3, 4, 2, 3], 30)
    found = solve_certified(X, members, 1.0)
    shared = solve(spectrum, members, 1.0)
    np.testing.assert_array_equal(
        found.components, spectrum.back_project(shared.factors)
    )
    np.testing.assert_array_equal(found.multipliers, shared.multipliers)
    np.testing.assert_array_equal(found.ranks, shared.ranks)
    certificate = certify(spectrum, members, shared)
    np.testing.assert_array_equal(found.certificate.gap, certificate.gap)
    assert not found.rounding_limited.any()


@pytest.fixture
def steps(monkeypatch):
    """Which of the further steps were taken, and for how many classes."""
    taken = []
    for name in ("certify_directly", "solve_class"):
        real = getattr(MODULE, name)

        def spy(*args, name=name, real=real, **kwargs):
            taken.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(MODULE, name, spy)
    return taken


def test_singular_values_prove_what_squares_cannot(steps):
    # Wide and well conditioned: solved by the shared solver for any lambda, but the
    # bound on rounding grows with it.
    X, labels = make_data([3] * 20, 200)
    assert solve_certified(X, members_of(labels), 1.0).certificate.worst.max() <= 1e-6
    assert steps == []
    found = solve_certified(X, members_of(labels), 1e7)
    assert found.certificate.worst.max() <= 1e-6
    assert steps == ["certify_directly"]


def test_classes_that_are_still_rejected_are_solved_alone(steps):
    X, labels = make_data([2, 2, 2], 6)
    X[labels == 1] *= 1e-9
    found = solve_certified(X, members_of(labels), 1.0)
    assert found.certificate.worst.max() <= 1e-6
    assert steps == ["solve_class"]


def test_solutions_of_other_solvers_are_not_improved(steps):
    X, labels = make_data([2, 2, 2], 6)
    found = solve_certified(X, members_of(labels), 1e3, solver="lbfgs", max_iter=1)
    assert found.certificate.worst.max() > 1e-6
    assert steps == []


def test_work_on_single_classes_is_limited(monkeypatch):
    monkeypatch.setattr(MODULE, "_MAX_SINGLE_CLASS_OPERATIONS", 1.0)
    X, labels = make_data([2, 2, 2, 2], 6)
    X[labels > 1] *= 1e-9
    with pytest.warns(ConvergenceWarning, match="1 of 4 classes"):
        model = DualQML().fit(X, labels)
    assert list(model.status_) == ["optimal"] * 3 + ["inaccurate"]


def test_a_processor_that_rounds_differently_changes_no_result(monkeypatch):
    # Random noise stands for the kernels that this processor cannot run.
    exact, rng = np.linalg.eigh, np.random.default_rng(0)

    def noisy(matrix):
        w, vectors = exact(matrix)
        noise = 4e-16 * np.abs(w).max(axis=-1, keepdims=True)
        w = w + noise * rng.normal(size=w.shape)
        return w, vectors + 4e-16 * rng.normal(size=vectors.shape)

    monkeypatch.setattr(np.linalg, "eigh", noisy)
    X, labels = make_data([3, 4, 1, 3], 12)
    for lam in 10.0 ** np.arange(-6.0, 9.0):
        found = solve_certified(X, members_of(labels), lam)
        assert found.certificate.worst.max() <= 1e-6


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "sdp"])
def test_all_solvers_find_the_same_optimum(solver):
    if solver == "sdp":
        pytest.importorskip("cvxpy")
    spectrum, members, X = make_problem([2, 3, 1], 8)
    expected = certify(spectrum, members, solve(spectrum, members, 1.0, tol=1e-9))
    found = solve(spectrum, members, 1.0, solver=solver, tol=1e-8)
    certificate = certify(spectrum, members, found)
    np.testing.assert_allclose(certificate.primal, expected.primal, rtol=1e-6)
    certified = solve_certified(X, members, 1.0, solver=solver)
    np.testing.assert_allclose(certified.certificate.primal, expected.primal, rtol=1e-5)


@pytest.mark.parametrize("factor", [2.0**-7, 1.0, 1000.0])
def test_scale_of_the_samples_is_undone(factor):
    # P(s X, lam) = P(X, lam s^4) / s^2; the objective scales with 1 / s^4.
    _, members, X = make_problem([2, 3, 2], 8)
    plain = solve_certified(X, members, 1.0)
    scaled = solve_certified(factor * X, members, factor**-4.0)
    np.testing.assert_allclose(
        scaled.components.T @ scaled.components * factor**2,
        plain.components.T @ plain.components,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        scaled.certificate.primal * factor**4, plain.certificate.primal, rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.certificate.dual * factor**4, plain.certificate.dual, rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.multipliers * factor**4, plain.multipliers, rtol=1e-3, atol=1e-6
    )


@pytest.fixture
def rejected(monkeypatch):
    """Solve with a certificate that rejects all for what rounding may have done."""

    def rejecting(name):
        real = getattr(MODULE, name)

        def certify(*args, rounding=True, **kwargs):
            found = real(*args, rounding=rounding, **kwargs)
            return replace(found, gap=found.gap + 1.0) if rounding else found

        monkeypatch.setattr(MODULE, name, certify)

    rejecting("certify")
    return rejecting


def test_classes_rejected_for_rounding_alone_are_named(rejected, monkeypatch):
    # None can be improved: nothing is tried.
    monkeypatch.setattr(MODULE, "_MIN_REJECTED_FOR_SVD", 99)
    monkeypatch.setattr(
        MODULE._ImprovableSolution, "solve_one_by_one", lambda self, tol, max_iter: None
    )
    X, labels = make_data([2, 2, 2], 6)
    found = solve_certified(X, members_of(labels), 1.0)
    assert (found.certificate.gap > 0.5).all()
    assert found.rounding_limited.all()


def test_classes_solved_alone_and_rejected_for_rounding_are_named(
    rejected, monkeypatch
):
    # The result of the single-class solver is better than the shared one, but still
    # rejected for rounding; what is computed without rounding is good enough.
    real = MODULE.solve_class

    def solve_class(*args, **kwargs):
        found = real(*args, **kwargs)
        certificate = replace(found.certificate, gap=found.certificate.gap + 0.5)
        return replace(found, certificate=certificate)

    monkeypatch.setattr(MODULE, "solve_class", solve_class)
    X, labels = make_data([2, 2, 2], 6)
    found = solve_certified(X, members_of(labels), 1.0)
    np.testing.assert_allclose(found.certificate.gap, 0.5, atol=1e-6)
    assert found.rounding_limited.all()


def test_a_worse_solution_of_a_class_alone_is_not_kept(rejected, monkeypatch):
    real = MODULE.solve_class

    def solve_class(*args, **kwargs):
        found = real(*args, **kwargs)
        return replace(
            found,
            components=np.zeros_like(found.components),
            certificate=replace(found.certificate, gap=found.certificate.gap + 2.0),
        )

    monkeypatch.setattr(MODULE, "solve_class", solve_class)
    X, labels = make_data([2, 2, 2], 6)
    found = solve_certified(X, members_of(labels), 1.0)
    assert np.abs(found.components).sum(axis=1).min() > 0.0
    assert (found.certificate.gap < 1.5).all()
