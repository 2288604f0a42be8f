"""What is called optimal is optimal: every class is checked in 60 digits."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualqml import DualQML
from dualqml.core import solve_certified
from tests.core.families import FAMILIES, near_identical, true_gap_and_violation

TOL = 1e-6
#: 34 problems of each of the 18 families: 612, about 2,100 classes.
PER_FAMILY = 34


def judged(family, seed):
    """Status of each class, its reported and its true gap and violation."""
    problem = family(np.random.default_rng([seed, len(family.__name__)]))
    with warnings.catch_warnings():
        # No NumPy warning is allowed, only the one that a class is inaccurate.
        warnings.simplefilter("error")
        warnings.simplefilter("default", ConvergenceWarning)
        model = DualQML(problem.lam, tol=TOL).fit(problem.X, problem.labels)
    first = np.concatenate([[0], np.cumsum(model.ranks_)])
    for c, own in enumerate(problem.members):
        truth = true_gap_and_violation(
            problem.X,
            own,
            problem.lam,
            model.components_[first[c] : first[c + 1]],
            model.dual_coef_[own],
        )
        yield model.status_[c], (model.duality_gap_[c], model.violation_[c]), truth


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_what_is_reported_is_never_less_than_the_truth(family):
    n_classes = n_inaccurate = 0
    for seed in range(PER_FAMILY):
        for status, reported, truth in judged(family, seed):
            n_classes += 1
            n_inaccurate += status != "optimal"
            assert reported[0] >= 0.0
            # Weak duality. The check itself rounds in the 60th digit.
            assert truth[0] >= -1e-40
            assert reported[0] >= truth[0]
            assert reported[1] >= truth[1]
            if status == "optimal":
                assert max(truth) <= TOL
    # Not by calling everything inaccurate.
    assert n_inaccurate <= 0.02 * n_classes


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_nearly_identical_samples():
    found = [item for seed in range(30) for item in judged(near_identical, seed)]
    assert all(max(truth) <= TOL for status, _, truth in found if status == "optimal")
    assert np.mean([status == "optimal" for status, _, _ in found]) >= 0.95


def test_a_class_in_dropped_directions_is_solved():
    # The second sample is a millionth of the first: its square is rounding noise.
    e, a = 1.2e-6, np.deg2rad(44.0)
    X = np.array([[1.0, 0.0], [e * np.cos(a), e * np.sin(a)]])
    model = DualQML(1.0).fit(X, [0, 1])
    assert list(model.status_) == ["optimal", "optimal"]
    P = model.quadratic_matrix(1)
    own = X[1]
    rival = np.outer(own, own) / (own @ own) ** 2  # feasible too

    def objective(P):
        return 0.5 * np.sum(P * P) + X[0] @ P @ X[0]

    assert own @ P @ own >= 1.0 - 1e-6
    assert objective(P) <= objective(rival) * (1.0 + 1e-6)


@pytest.mark.parametrize("family", ["plain", "spread_norms", "near_identical"])
@pytest.mark.parametrize("power", [-20, -10, 10, 20])
def test_powers_of_two_change_nothing_but_the_scale(family, power):
    # P(s X, lam) = P(X, lam s^4) / s^2: the same floating-point numbers.
    make = {**FAMILIES, "near_identical": near_identical}[family]
    problem = make(np.random.default_rng(3))
    scale = 2.0**power
    plain = solve_certified(problem.X, problem.members, problem.lam)
    scaled = solve_certified(scale * problem.X, problem.members, problem.lam / scale**4)
    np.testing.assert_array_equal(scaled.components, plain.components / scale)
    np.testing.assert_array_equal(scaled.multipliers, plain.multipliers / scale**4)
    np.testing.assert_array_equal(scaled.certificate.gap, plain.certificate.gap)
    np.testing.assert_allclose(
        scaled.certificate.primal, plain.certificate.primal / scale**4, rtol=1e-15
    )
