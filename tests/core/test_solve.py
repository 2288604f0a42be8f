import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualqml import DualQML
from dualqml.core import certify, solve, solve_certified
from dualqml.core import solve as solve_function
from tests.problems import make_data, make_problem, members_of

MODULE = __import__("sys").modules[solve_function.__module__]


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


def test_other_solvers_are_taken_at_their_word(steps):
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


def test_a_processor_that_rounds_otherwise_changes_no_verdict(monkeypatch):
    # Stands in for the kernels that this processor cannot run.
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
