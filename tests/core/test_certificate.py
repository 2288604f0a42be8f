import numpy as np
import pytest
from hypothesis import given, settings

from dualqml.core import QMLSolution, certify, solve
from dualqml.core.problem import dual_value_and_gradient, objective, responses
from tests.problems import dense_matrices, extra_scatter, lams, make_problem, problems


@settings(max_examples=40, deadline=None)
@given(problem=problems(), lam=lams)
def test_bounds_enclose_the_values_of_the_full_matrices(problem, lam):
    spectrum, members, X = problem
    solution = solve(spectrum, members, lam)
    certificate = certify(spectrum, members, solution)
    for c, (own, P) in enumerate(
        zip(members, dense_matrices(spectrum, solution), strict=True)
    ):
        O, F = extra_scatter(X, own), responses(P, X[own])
        primal = objective(P * max(1.0, 1.0 / F.min()), O, lam)
        dual, _ = dual_value_and_gradient(solution.multipliers[own], X[own], O, lam)
        # Proven bounds, and where lambda is not extreme, not loose ones.
        close = 1e-6 if lam <= 10.0 else 1e-3
        assert primal * (1.0 - 1e-9) <= certificate.primal[c] <= primal * (1.0 + close)
        assert certificate.dual[c] <= dual + 1e-9 * abs(dual)
        assert certificate.dual[c] >= dual - close * abs(dual)
        violation = max(0.0, 1.0 - F.min())
        assert violation - 1e-12 <= certificate.violation[c] <= violation + close


def spoiled(solution, **changes):
    fields = {
        name: getattr(solution, name)
        for name in ("lam", "factors", "ranks", "multipliers", "n_iter")
    }
    return QMLSolution(**{**fields, **changes})


@pytest.fixture
def solved():
    spectrum, members, _ = make_problem([3, 4, 2, 3], 30)
    return spectrum, members, solve(spectrum, members, 10.0, tol=1e-8)


def test_a_good_solution_is_certified(solved):
    certificate = certify(*solved)
    assert certificate.gap.max() <= 1e-7
    assert certificate.gap.min() >= -1e-12
    assert certificate.violation.max() <= 1e-7
    assert certificate.complementarity.max() <= 1e-6
    np.testing.assert_array_equal(certificate.n_negative, solved[2].ranks)


def test_wrong_multipliers_are_found(solved):
    spectrum, members, solution = solved
    for factor in (0.9, 1.1):
        wrong = spoiled(solution, multipliers=solution.multipliers * factor)
        assert certify(spectrum, members, wrong).gap.min() > 1e-3


def test_a_missing_direction_is_found(solved):
    # The solver's worst fault: a root that its bases did not see.
    spectrum, members, solution = solved
    smallest = np.array([solution.first_rows[c + 1] - 1 for c in range(4)])
    wrong = spoiled(
        solution,
        factors=np.delete(solution.factors, smallest, axis=0),
        ranks=solution.ranks - 1,
    )
    certificate = certify(spectrum, members, wrong)
    assert (np.maximum(certificate.gap, certificate.violation) > 1e-4).all()


def test_a_shrunk_matrix_is_a_violation_and_is_rescaled(solved):
    spectrum, members, solution = solved
    wrong = spoiled(solution, factors=solution.factors * np.sqrt(0.5))
    certificate = certify(spectrum, members, wrong)
    np.testing.assert_allclose(certificate.violation, 0.5, atol=1e-6)
    # Rescaled to feasibility it is the solution again.
    right = certify(spectrum, members, solution)
    np.testing.assert_allclose(certificate.primal, right.primal, rtol=1e-6)


def test_a_class_without_a_matrix_has_an_infinite_gap(solved):
    spectrum, members, solution = solved
    wrong = spoiled(
        solution,
        factors=solution.factors[solution.ranks[0] :],
        ranks=np.array([0, *solution.ranks[1:]]),
    )
    certificate = certify(spectrum, members, wrong)
    assert certificate.gap[0] == np.inf
    assert certificate.violation[0] == 1.0
    assert certificate.gap[1:].max() <= 1e-6


def test_order_of_classes_is_kept_for_mixed_sizes():
    spectrum, members, _ = make_problem([5, 1, 3, 2, 5, 1], 40)
    solution = solve(spectrum, members, 1.0)
    whole = certify(spectrum, members, solution)
    first = solution.first_rows
    for c in range(6):
        # The same solution with the class in question moved to the front.
        order = [c, *(i for i in range(6) if i != c)]
        moved = spoiled(
            solution,
            factors=np.concatenate(
                [solution.factors[first[i] : first[i + 1]] for i in order]
            ),
            ranks=solution.ranks[order],
        )
        part = certify(spectrum, [members[i] for i in order], moved)
        assert part.primal[0] == pytest.approx(whole.primal[c], rel=1e-12)
        # Sharp to a hundredth of the tolerance.
        assert part.dual[0] == pytest.approx(whole.dual[c], rel=1e-8)
