"""Every class of the research databases, certified in the full space."""

import numpy as np
import pytest

from dualqml.core import certify, newton_path, scatter_spectrum, solve, solve_certified
from dualqml.core.reference import solve_lbfgs
from tests.datasets import training_set

LAMS = [0.01, 1.0, 100.0, 1e4, 1e6, 1e8]


def case(name, per_class):
    marks = pytest.mark.realdata(name)
    return pytest.param(name, per_class, marks=marks, id=f"{name}-{per_class}")


CASES = [
    case("ar", 2),
    case("ar", 4),
    case("ar", 8),
    case("feret", 2),
    case("feret", 6),
    case("pie", 2),
    case("pie", 8),
    case("iitd_ear", 2),
    case("iitd_ear", None),
]


def problem(name, per_class):
    data = training_set(name, per_class)
    labels = np.unique(data.y)
    return scatter_spectrum(data.X), [np.flatnonzero(data.y == c) for c in labels]


@pytest.mark.parametrize(("name", "per_class"), CASES)
def test_every_class_is_proven_optimal_for_every_lambda(name, per_class):
    spectrum, members = problem(name, per_class)
    for lam in LAMS:
        found = solve_certified(spectrum.samples, members, lam)
        assert found.certificate.worst.max() <= 1e-6


@pytest.mark.parametrize(("name", "per_class"), CASES[:1] + CASES[-1:])
def test_every_class_is_solved_along_a_path(name, per_class):
    spectrum, members = problem(name, per_class)
    for solution in newton_path(spectrum, members, LAMS[:5]):
        certificate = certify(spectrum, members, solution, rounding=False)
        assert certificate.worst.max() <= 1e-6


@pytest.mark.realdata("ar")
def test_dual_values_equal_those_of_the_papers_algorithm():
    spectrum, members = problem("ar", 2)
    ours = solve(spectrum, members, 100.0, tol=1e-8)
    paper = solve_lbfgs(spectrum, members, 100.0, tol=1e-7, classes=[17])
    np.testing.assert_allclose(
        certify(spectrum, members, ours).dual[17],
        certify(spectrum, members, paper).dual[17],
        rtol=1e-7,
    )


@pytest.mark.realdata("ar")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bitwise_equal_on_real_data(n_jobs):
    spectrum, members = problem("ar", 8)
    (reference,) = newton_path(spectrum, members, [100.0])
    (other,) = newton_path(
        spectrum, members, [100.0], n_jobs=n_jobs, chunk_bytes=700_000
    )
    np.testing.assert_array_equal(reference.factors, other.factors)
