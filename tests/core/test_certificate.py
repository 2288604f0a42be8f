import numpy as np
import pytest
from hypothesis import given, settings

from dualqml.core import QMLSolution, certify, solve
from dualqml.core.certificate import certify_class, certify_directly
from dualqml.core.problem import dual_value_and_gradient, objective, responses
from dualqml.core.single_class import other_samples, span_coordinates
from dualqml.core.spectrum import sample_spectrum
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


@pytest.fixture
def stored(solved):
    spectrum, _, solution = solved
    return spectrum.back_project(solution.factors)


def test_worst_is_the_larger_of_gap_and_violation(solved):
    spectrum, members, solution = solved
    wrong = spoiled(solution, factors=solution.factors * np.sqrt(0.5))
    certificate = certify(spectrum, members, wrong)
    np.testing.assert_array_equal(certificate.worst, certificate.violation)
    wrong = spoiled(solution, multipliers=solution.multipliers * 0.5)
    certificate = certify(spectrum, members, wrong)
    np.testing.assert_array_equal(certificate.worst, certificate.gap)


def test_parts_of_a_certificate(solved):
    certificate = certify(*solved)
    rows = np.array([2, 0])
    part = certificate.of(rows)
    np.testing.assert_array_equal(part.primal, certificate.primal[rows])
    np.testing.assert_array_equal(part.n_negative, certificate.n_negative[rows])
    changed = certificate.with_part(np.array([1, 3]), part)
    np.testing.assert_array_equal(changed.dual, certificate.dual[[0, 2, 2, 0]])
    assert changed.dual is not certificate.dual


def test_without_rounding_the_gap_is_smaller(solved):
    rigorous, plain = certify(*solved), certify(*solved, rounding=False)
    assert (plain.gap < rigorous.gap).all()
    assert (plain.primal < rigorous.primal).all()
    assert (plain.violation <= rigorous.violation).all()
    np.testing.assert_allclose(plain.primal, rigorous.primal, rtol=1e-7)


def test_components_that_are_given_are_those_that_are_computed(solved, stored):
    a, b = certify(*solved), certify(*solved, components=stored)
    np.testing.assert_array_equal(a.gap, b.gap)


# More than 64 features: without double-double products.
@pytest.mark.parametrize("n_features", [30, 80])
def test_direct_certificates_agree_with_the_shared_one(n_features):
    spectrum, members, X = make_problem([3, 4, 2, 3], n_features)
    solution = solve(spectrum, members, 10.0, tol=1e-8)
    stored = spectrum.back_project(solution.factors)
    shared = certify(spectrum, members, solution)
    precise = sample_spectrum(X)
    direct = certify_directly(
        precise,
        members,
        spoiled(solution, factors=precise.project(stored)),
        stored,
    )
    np.testing.assert_array_equal(direct.n_negative, shared.n_negative)
    coordinates, basis = span_coordinates(X)
    for c, own in enumerate(members):
        rows = stored[solution.first_rows[c] : solution.first_rows[c + 1]]
        u = solution.multipliers[own]
        others = other_samples(coordinates, basis, own)
        single = certify_class(X, own, 10.0, rows, u, others)
        plain = certify_class(X, own, 10.0, rows, u, others, rounding=False)
        P, O = rows.T @ rows, extra_scatter(X, own)
        primal = objective(P * max(1.0, 1.0 / responses(P, X[own]).min()), O, 10.0)
        dual, _ = dual_value_and_gradient(u, X[own], O, 10.0)
        for found in (direct.of(np.array([c])), single, plain):
            assert found.primal[0] == pytest.approx(primal, rel=1e-8)
            assert found.dual[0] == pytest.approx(dual, rel=1e-6)
            assert found.primal[0] >= primal * (1.0 - 1e-12)
            assert found.dual[0] <= dual * (1.0 + 1e-12)
        assert plain.gap[0] <= single.gap[0]


def test_direct_certificates_find_wrong_multipliers_and_missing_factors(solved, stored):
    spectrum, members, solution = solved
    precise = sample_spectrum(spectrum.samples)
    right = spoiled(solution, factors=precise.project(stored))
    wrong = spoiled(right, multipliers=1.1 * solution.multipliers)
    assert certify_directly(precise, members, wrong, stored).gap.min() > 1e-3
    nothing = spoiled(
        right, factors=right.factors[:0], ranks=np.zeros_like(solution.ranks)
    )
    empty = certify_directly(precise, members, nothing, stored[:0])
    assert (empty.gap == np.inf).all()
    assert (empty.violation == 1.0).all()
