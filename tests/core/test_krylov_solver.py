"""The batched solver against the dense one, CVXPY and closed forms; its branches."""

from dataclasses import replace

import numpy as np
import pytest

from dualqml.core import class_chunks, krylov_solver, scatter_spectrum
from dualqml.core.initial_point import single_sample_table
from dualqml.core.krylov_solver import (
    BatchSolution,
    RationalBasis,
    _Batch,
    _inverse_cholesky,
    solve_batch,
)
from dualqml.core.reference import solve_class_sdp
from dualqml.core.semismooth_newton import ReducedSolution, minimise
from tests.problems import make_problem

TOL = 1e-8


def batch_of(spectrum, members, lam):
    """Own samples, which of them are real, and the single-sample start."""
    sizes = np.array([own.size for own in members])
    chunk = class_chunks._chunk(np.argsort(sizes, kind="stable"), members, sizes.max())
    L, Z = spectrum.eigenvalues, spectrum.coordinates
    v, t = single_sample_table(L, Z, 1.0 / lam, 1.0 / lam).start(1.0 / lam)
    v = np.where(chunk.real, v[chunk.samples], 0.0)
    t = np.where(chunk.real, t[chunk.samples], 0.0).max(axis=1)
    return chunk.gather(Z), chunk.real, v, t


def solved(spectrum, members, lam, *, tol=TOL, max_iter=50):
    Z, real, v, t = batch_of(spectrum, members, lam)
    return solve_batch(
        Z,
        spectrum.eigenvalues,
        real,
        1.0 / lam,
        v,
        t,
        tol=tol,
        max_iter=max_iter,
        continuation_decades=8,
    )


def solved_densely(spectrum, members, lam):
    """The same by the semismooth Newton method without any reduction."""
    Z, real, v, _ = batch_of(spectrum, members, lam)
    A = np.broadcast_to(
        np.diag(spectrum.eigenvalues), (len(members), *[Z.shape[2]] * 2)
    )
    for decade in range(8, -1, -1):
        inv_lam = 10.0**decade / lam
        found = minimise(A, Z, v, inv_lam, real, tol=1e-10, max_evaluations=200)
        v = found.v
    assert found.violation.max() <= TOL
    return found


def matrices(found, lam):
    """P of every class, in the eigenbasis."""
    return (
        lam * (found.vectors.transpose(0, 2, 1) * found.roots[:, None]) @ found.vectors
    )


def dense_matrices(found, lam):
    roots = np.maximum(-found.eigenvalues, 0.0)
    return lam * (found.vectors * roots[:, None]) @ found.vectors.transpose(0, 2, 1)


def assert_close_matrices(found, expected, tolerance):
    scale = np.linalg.norm(expected, axis=(1, 2))
    error = np.linalg.norm(found - expected, axis=(1, 2))
    assert (error <= tolerance * scale).all()


@pytest.fixture
def steps(monkeypatch):
    """Calls of the solver's stages: name and what tells them apart."""
    taken = []
    details = {
        "solve_dense": lambda args, kwargs: None,
        "newton": lambda args, kwargs: kwargs.get("reduction", 1.0),
        "add_blocks": lambda args, kwargs: args[2],
        "add_refined_vectors": lambda args, kwargs: args[2].shape,
        "enlarge_basis": lambda args, kwargs: args[0].size,
    }

    def spy(name, detail):
        real = getattr(_Batch, name)

        def wrapped(self, *args, **kwargs):
            taken.append((name, detail(args, kwargs)))
            return real(self, *args, **kwargs)

        monkeypatch.setattr(_Batch, name, wrapped)

    for name, detail in details.items():
        spy(name, detail)
    return taken


def details_of(steps, name):
    return [detail for step, detail in steps if step == name]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("lam", [0.1, 10.0, 1e3])
def test_solution_equals_that_of_the_dense_newton_method(size, lam, steps):
    spectrum, members, _ = make_problem([size] * 7, 60, centre=False)
    found = solved(spectrum, members, lam)
    assert details_of(steps, "solve_dense") == []
    expected = solved_densely(spectrum, members, lam)
    assert max(found.gap.max(), found.violation.max()) <= TOL
    assert (found.n_iter > 0).all()
    np.testing.assert_allclose(found.v, expected.v, rtol=1e-4, atol=1e-6)
    assert_close_matrices(matrices(found, lam), dense_matrices(expected, lam), 1e-4)
    # The dual value is flat at the optimum: it agrees to more digits.
    value = found.v.sum(axis=1) / lam - 0.5 * (found.roots**2).sum(axis=1)
    t = np.maximum(-expected.eigenvalues, 0.0)
    right = expected.v.sum(axis=1) / lam - 0.5 * (t**2).sum(axis=1)
    np.testing.assert_allclose(value, right, rtol=1e-7)


def test_dense_solution_where_a_basis_would_fill_the_space(steps):
    # More samples of a class than dimensions.
    spectrum, members, _ = make_problem([6] * 5, 4, noise=1.0, centre=False)
    found = solved(spectrum, members, 1.0)
    assert details_of(steps, "solve_dense") == [None]
    assert details_of(steps, "add_blocks") == []
    expected = solved_densely(spectrum, members, 1.0)
    assert found.violation.max() <= TOL
    assert_close_matrices(matrices(found, 1.0), dense_matrices(expected, 1.0), 1e-6)
    # No more roots than dimensions.
    assert (found.roots[:, 4:] == 0.0).all()


@pytest.mark.parametrize("lam", [0.1, 10.0])
def test_matrices_equal_those_of_clarabel(lam):
    pytest.importorskip("cvxpy")
    spectrum, members, _ = make_problem([2] * 6, 30, centre=False)
    L, Z = spectrum.eigenvalues, spectrum.coordinates
    found = solved(spectrum, members, lam)
    for own, P, v in zip(members, matrices(found, lam), found.v, strict=True):
        O = np.diag(L) - Z[own].T @ Z[own]
        R, u, _ = solve_class_sdp(Z[own], O, lam, tol=1e-9)
        np.testing.assert_allclose(P, R, atol=1e-4 * np.linalg.norm(R))
        np.testing.assert_allclose(lam * v, u, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
def test_orthogonal_samples_have_the_closed_form(size, lam):
    # O_c x = 0 for all own samples, so P = sum x x' / |x|^4 and u = 1 / |x|^4.
    norms = np.random.default_rng(0).uniform(0.5, 2.0, size=18)
    spectrum = scatter_spectrum(np.diag(norms))
    members = list(np.arange(18).reshape(-1, size))
    found = solved(spectrum, members, lam)
    P = matrices(found, lam)
    for c, own in enumerate(members):
        np.testing.assert_allclose(lam * found.v[c], norms[own] ** -4.0, rtol=1e-6)
        rows = spectrum.coordinates[own] / norms[own, None] ** 2
        np.testing.assert_allclose(P[c], rows.T @ rows, atol=1e-6)


def test_padded_classes_are_solved_as_without_padding():
    spectrum, members, _ = make_problem([3, 4, 3, 4, 4, 3], 60, centre=False)
    _, real, _, _ = batch_of(spectrum, members, 10.0)
    assert list(real.sum(axis=1)) == [3, 3, 3, 4, 4, 4]
    together = solved(spectrum, members, 10.0)
    small = [own for own in members if own.size == 3]
    alone = solved(spectrum, small, 10.0)
    assert (together.v[:3, 3] == 0.0).all()
    assert (together.roots[:3, 3] == 0.0).all()
    assert (together.root_shifts[:3, 3] == 0.0).all()
    np.testing.assert_allclose(together.v[:3, :3], alone.v, rtol=1e-4)
    assert_close_matrices(matrices(together, 10.0)[:3], matrices(alone, 10.0), 1e-4)


def hard_problem():
    """Many samples in few dimensions: a large lambda is hard for Newton's method."""
    return make_problem([4] * 20, 20, noise=1.0, centre=False)[:2]


def test_large_lambda_is_approached_from_smaller_ones(steps, monkeypatch):
    spectrum, members = hard_problem()
    found = solved(spectrum, members, 1e4)
    assert max(found.gap.max(), found.violation.max()) <= TOL
    reductions = [r for r in details_of(steps, "newton") if r > 1.0]
    np.testing.assert_allclose(reductions, 10.0 ** np.arange(8, 0, -1))
    expected = solved_densely(spectrum, members, 1e4)
    assert_close_matrices(matrices(found, 1e4), dense_matrices(expected, 1e4), 1e-3)
    # Without continuation the iterates are others.
    monkeypatch.setattr(krylov_solver, "_CONTINUATION_STEPS", ())
    steps.clear()
    without = solved(spectrum, members, 1e4)
    assert max(details_of(steps, "newton")) == 1.0
    assert not np.array_equal(without.v, found.v)


def test_reduction_divides_lambda():
    spectrum, members, _ = make_problem([3] * 4, 12, centre=False)
    L = spectrum.eigenvalues
    Z, real, v, _ = batch_of(spectrum, members, 1.0)
    A = np.broadcast_to(np.diag(L), (4, L.size, L.size))
    batch = bare_batch(Z, L, real, v, lam=5.0)
    found = batch.newton(np.arange(4), A, Z, 1e-9, reduction=10.0)
    expected = minimise(A, Z, v, 10.0 / 5.0, real, tol=1e-9, max_evaluations=50)
    np.testing.assert_array_equal(found.v, expected.v)
    np.testing.assert_array_equal(batch.out.n_iter, expected.n_evaluations)


def test_small_lambda_needs_no_continuation(steps):
    spectrum, members, _ = make_problem([3] * 6, 60, centre=False)
    solved(spectrum, members, 1.0)
    assert set(details_of(steps, "newton")) == {1.0}


def test_continuation_takes_finer_steps_where_coarse_ones_fail(steps):
    spectrum, members = hard_problem()
    # Two iterations are too few for steps of a whole power of ten.
    solved(spectrum, members, 1e6, max_iter=2)
    reductions = np.array([r for r in details_of(steps, "newton") if r > 1.0])
    for steps_per_decade in (1, 4, 16):
        start = np.log10(reductions) * steps_per_decade
        assert np.isclose(start, 1.0).any()
    assert reductions.max() == 1e8


def test_continuation_keeps_the_better_solution():
    # One iteration from an easy lambda is worse than eight from the start.
    spectrum, members, _ = make_problem([3] * 4, 12, centre=False)
    Z, real, v, _ = batch_of(spectrum, members, 1.0)
    A = np.broadcast_to(
        np.diag(spectrum.eigenvalues), (4, spectrum.rank, spectrum.rank)
    )
    direct = minimise(A, Z, v, 1.0, real, tol=0.0, max_evaluations=8)
    batch = bare_batch(Z, spectrum.eigenvalues, real, v, max_iter=1, decades=3)
    found = batch.newton_with_continuation(np.arange(4), A, Z, 0.0)
    assert (found.violation <= direct.violation).all()
    np.testing.assert_array_equal(batch.v, found.v)


def bare_batch(Z, L, real, v, *, lam=1.0, tol=TOL, max_iter=50, decades=4):
    n_classes, k, rank = Z.shape
    out = BatchSolution(
        np.zeros_like(v),
        np.zeros((n_classes, k)),
        np.zeros((n_classes, k, rank)),
        np.zeros((n_classes, k)),
        np.full(n_classes, np.inf),
        np.full(n_classes, np.inf),
        np.zeros(n_classes, dtype=np.int64),
    )
    return _Batch(Z, L, real, 1.0 / lam, tol, max_iter, decades, v.copy(), out)


def test_small_classes_begin_with_two_blocks_and_have_one_level_less(steps):
    spectrum, members, _ = make_problem([2] * 6, 60, centre=False)
    solved(spectrum, members, 1.0)
    assert details_of(steps, "add_blocks") == [(krylov_solver._SMALL_CLASS_SHIFT,)]
    assert len(details_of(steps, "newton")) == 2


def test_clustered_and_spread_roots_get_their_own_shifts(steps):
    spectrum, members = hard_problem()
    found = solved(spectrum, members, 100.0)
    assert details_of(steps, "add_blocks") == [(0.06,), (0.1, 0.01)]
    assert max(found.gap.max(), found.violation.max()) <= TOL


def test_each_class_gets_as_many_refined_vectors_as_it_has_candidates(steps):
    spectrum, members = hard_problem()
    solved(spectrum, members, 100.0)
    shapes = details_of(steps, "add_refined_vectors")
    # None, one, half or all of the four samples.
    assert {n_refined for _, _, n_refined in shapes} <= {1, 2, 4}
    assert len({n_refined for _, _, n_refined in shapes}) > 1
    assert sum(n_classes for n_classes, _, _ in shapes) <= 20


def test_roots_far_below_the_spectrum_need_no_refined_vectors(steps):
    spectrum, members, _ = make_problem([1] * 6, 40, centre=False)
    found = solved(spectrum, members, 1e5)
    assert (found.roots[:, 0] < 1e-4 * spectrum.eigenvalues[0]).all()
    assert details_of(steps, "add_refined_vectors") == []
    expected = solved_densely(spectrum, members, 1e5)
    assert_close_matrices(matrices(found, 1e5), dense_matrices(expected, 1e5), 1e-4)


def test_basis_of_a_class_that_is_not_accepted_is_enlarged(steps):
    spectrum, members, _ = make_problem([3, 4] * 4, 60, centre=False)
    found = solved(spectrum, members, 10.0)
    # Three of the eight classes fail the first test, and pass after one more block.
    assert details_of(steps, "enlarge_basis") == [3]
    assert details_of(steps, "add_refined_vectors")[1:] == [(3, 4, 4)]
    assert max(found.gap.max(), found.violation.max()) <= TOL
    expected = solved_densely(spectrum, members, 10.0)
    np.testing.assert_allclose(found.v, expected.v, rtol=1e-4, atol=1e-6)


@pytest.fixture
def _bad_shifts(monkeypatch):
    """Blocks far from all roots: only larger bases can solve a problem."""
    monkeypatch.setattr(krylov_solver, "_FIRST_SHIFT", 1e4)
    monkeypatch.setattr(krylov_solver, "_SPREAD_SHIFTS", (3e3,))
    monkeypatch.setattr(krylov_solver, "_CLUSTERED_SHIFTS", (3e3,))
    monkeypatch.setattr(krylov_solver, "_FAR_BELOW_SPECTRUM", np.inf)


@pytest.mark.usefixtures("_bad_shifts")
def test_bases_are_enlarged_until_all_classes_are_accepted(steps):
    spectrum, members, _ = make_problem([4] * 30, 300, noise=1.0, centre=False)
    found = solved(spectrum, members, 1.0)
    assert details_of(steps, "enlarge_basis") == [30]
    assert max(found.gap.max(), found.violation.max()) <= TOL
    expected = solved_densely(spectrum, members, 1.0)
    np.testing.assert_allclose(found.v, expected.v, rtol=1e-4, atol=1e-6)
    # Some classes need more blocks than others: the batch shrinks.
    sizes = [n_classes for n_classes, _, _ in details_of(steps, "add_refined_vectors")]
    assert sizes[0] == 30
    assert 0 < sizes[1] < 30


@pytest.mark.usefixtures("_bad_shifts")
def test_classes_that_are_not_solved_have_a_large_gap_or_violation(monkeypatch):
    monkeypatch.setattr(krylov_solver, "_MAX_ENLARGEMENTS", 0)
    spectrum, members, _ = make_problem([3] * 8, 200, centre=False)
    found = solved(spectrum, members, 100.0)
    assert (np.maximum(found.gap, found.violation) > 0.5 * TOL).all()
    # The best solution so far is kept.
    assert np.isfinite(found.vectors).all()
    assert (found.roots[:, 0] > 0.0).all()


@pytest.fixture
def accepted_case():
    """A batch, and the arguments of `accept` with which it is accepted."""
    spectrum, members, _ = make_problem([3] * 4, 60, centre=False)
    L = spectrum.eigenvalues
    Z, real, v, _ = batch_of(spectrum, members, 1.0)
    A = np.broadcast_to(np.diag(L), (4, L.size, L.size))
    final = minimise(A, Z, v, 1.0, real, tol=1e-10, max_evaluations=100)
    vectors = final.vectors[:, :, :3].transpose(0, 2, 1)
    responses = Z @ final.vectors[:, :, :3]
    largest = -final.eigenvalues[:, 0]
    batch = bare_batch(Z, L, real, v)
    return batch, [np.arange(4), Z, final, vectors, responses, largest]


def test_exact_eigenvectors_are_accepted_and_kept(accepted_case):
    batch, arguments = accepted_case
    accepted, _ = batch.accept(*arguments)
    assert accepted.all()
    final = arguments[2]
    assert batch.out.gap.max() <= 1e-12
    assert batch.out.root_shifts.max() <= 1e-12
    np.testing.assert_array_equal(batch.out.v, final.v)
    np.testing.assert_array_equal(
        batch.out.roots, np.maximum(-final.eigenvalues[:, :3], 0.0)
    )


def test_vectors_that_are_not_orthonormal_are_not_accepted(accepted_case):
    batch, arguments = accepted_case
    arguments[3] = arguments[3].copy()
    arguments[3][1] *= 1.0 + 1e-6
    accepted, _ = batch.accept(*arguments)
    np.testing.assert_array_equal(accepted, [True, False, True, True])
    assert batch.out.gap[1] == np.inf


def test_wrong_roots_are_not_accepted_and_the_worst_is_named(accepted_case):
    batch, arguments = accepted_case
    final, turned = arguments[2], arguments[3].copy()
    # Turn the second eigenvector of class 2 a little.
    other = final.vectors[2, :, -1]
    turned[2, 1] = (turned[2, 1] + 0.01 * other) / np.hypot(1.0, 0.01)
    arguments[3] = turned
    arguments[4] = arguments[1] @ turned.transpose(0, 2, 1)
    accepted, worst_root = batch.accept(*arguments)
    np.testing.assert_array_equal(accepted, [True, True, False, True])
    root = max(-final.eigenvalues[2, 1], 0.002 * arguments[5][2])
    assert worst_root[2] == root
    assert batch.out.root_shifts[2, 1] > 1e-6


def test_violated_constraints_are_not_accepted(accepted_case):
    batch, arguments = accepted_case
    violation = arguments[2].violation.copy()
    violation[3] = 2.0 * TOL
    arguments[2] = replace(arguments[2], violation=violation)
    accepted, _ = batch.accept(*arguments)
    np.testing.assert_array_equal(accepted, [True, True, True, False])


def test_only_what_is_better_than_before_is_kept(accepted_case):
    batch, arguments = accepted_case
    batch.accept(*arguments)
    right = batch.out.v.copy()
    rows, Z, final, vectors, responses, largest = arguments
    # A later attempt at classes 1 and 2 has a violation of 1e-3. It is worse than what
    # there is of class 1, and better than what there is of class 2.
    batch.out.violation[2] = 1.0
    part = final.take(np.array([1, 2]))
    part = ReducedSolution(
        part.v + 1.0,
        part.eigenvalues,
        part.vectors,
        np.full(2, 1e-3),
        part.n_evaluations,
    )
    batch.accept(rows[1:3], Z[1:3], part, vectors[1:3], responses[1:3], largest[1:3])
    np.testing.assert_array_equal(batch.out.v[[0, 1, 3]], right[[0, 1, 3]])
    np.testing.assert_array_equal(batch.out.v[2], right[2] + 1.0)


def test_no_class_depends_on_the_others_of_its_batch():
    spectrum, members = hard_problem()
    together = solved(spectrum, members, 1e4)
    for c in (0, 7, 19):
        alone = solved(spectrum, [members[c]], 1e4)
        np.testing.assert_array_equal(alone.v[0], together.v[c])
        np.testing.assert_array_equal(alone.vectors[0], together.vectors[c])
        assert alone.n_iter[0] == together.n_iter[c]


def test_start_is_not_changed():
    spectrum, members, _ = make_problem([3] * 4, 60, centre=False)
    Z, real, v, t = batch_of(spectrum, members, 1.0)
    before = v.copy()
    options = {"tol": TOL, "max_iter": 50, "continuation_decades": 4}
    solve_batch(Z, spectrum.eigenvalues, real, 1.0, v, t, **options)
    np.testing.assert_array_equal(v, before)


def test_indefinite_gram_matrix_gets_a_larger_ridge_and_others_do_not():
    good = np.array([[1.0, 0.5], [0.5, 1.0]])
    bad = np.array([[1.0, 1.0 + 1e-7], [1.0 + 1e-7, 1.0]])
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(bad + krylov_solver._GRAM_RIDGE * np.eye(2))
    both = _inverse_cholesky(np.stack([good, bad]))
    np.testing.assert_array_equal(both[0], _inverse_cholesky(good[None])[0])
    assert np.isfinite(both[1]).all()
    # It can only shrink a direction.
    factor = np.linalg.inv(both[1])
    ridge = np.linalg.eigvalsh(factor @ factor.T - bad)
    assert ridge.min() > 1e-7
    assert ridge.max() < 1e-5


@pytest.fixture
def batch():
    spectrum, members, _ = make_problem([3] * 5, 40)
    return spectrum.coordinates[np.array(members)], spectrum.eigenvalues


def filled_basis(batch):
    Z, L = batch
    basis = RationalBasis(Z, L, 9)
    basis.add_block(np.linspace(1.0, 2.0, 5))
    basis.add_block(np.linspace(0.05, 0.1, 5))
    coefficients = np.random.default_rng(0).normal(size=(5, 3, 2))
    basis.add_vectors(coefficients, np.full((5, 2), 0.4))
    return basis


@pytest.mark.parametrize("method", ["reduced", "reduced_by_qr"])
def test_reduced_problem_is_the_problem_in_an_orthonormal_basis(batch, method):
    Z, L = batch
    basis = filled_basis(batch)
    A, B, T = getattr(basis, method)()
    vectors = T if method == "reduced_by_qr" else basis.lift(T)
    for c in range(5):
        V = vectors[c]
        np.testing.assert_allclose(V @ V.T, np.eye(8), atol=1e-7)
        np.testing.assert_allclose(A[c], (V * L) @ V.T, atol=1e-7)
        np.testing.assert_allclose(B[c], Z[c] @ V.T, atol=1e-7)


def test_block_holds_shifted_solves(batch):
    Z, L = batch
    basis = RationalBasis(Z, L, 3)
    shifts = np.linspace(0.5, 1.0, 5)
    basis.add_block(shifts)
    rows = basis.lift(np.broadcast_to(np.eye(3), (5, 3, 3)))
    for c in range(5):
        expected = np.linalg.solve(np.diag(L + shifts[c]), Z[c].T).T
        np.testing.assert_allclose(rows[c], expected)


def test_selected_part_goes_on_as_the_whole_does(batch):
    whole = filled_basis(batch)
    part = filled_basis(batch).select(np.array([1, 3]), 20)
    whole_next, part_next = whole.select(np.arange(5), 20), part
    whole_next.add_block(np.full(5, 0.3))
    part_next.add_block(np.full(2, 0.3))
    for a, b in zip(whole_next.reduced(), part_next.reduced(), strict=True):
        np.testing.assert_array_equal(a[[1, 3]], b)


def test_duplicate_samples_do_not_break_the_basis(batch):
    Z, L = batch
    Z = Z.copy()
    Z[2, 1] = Z[2, 0]  # a duplicate sample
    basis = RationalBasis(Z, L, 9)
    for shift in (1.0, 0.1, 0.01):
        basis.add_block(np.full(5, shift))
    A, B, _ = basis.reduced()
    assert np.isfinite(A).all()
    assert np.isfinite(B).all()
    assert np.linalg.eigvalsh(A).min() > -1e-6


def test_shift_near_keeps_its_distance(batch):
    basis = filled_basis(batch)
    t1 = np.ones(5)
    for root in (0.07, 1.0, 3.0):
        shift = basis.shift_near(np.full(5, root), t1)
        distance = np.abs(np.log(shift[:, None] / basis.block_shifts)).min(axis=1)
        assert (distance > 0.3).all()


def test_clashing_shift_is_moved(batch):
    Z, L = batch
    basis = RationalBasis(Z, L, 6)
    basis.add_block(np.full(5, 1e-9 * L[0]))
    moved = basis.clear_of_blocks(np.full(5, 1e-10 * L[0]))
    assert (moved >= L[0]).all()
    kept = basis.clear_of_blocks(np.full(5, 10.0 * L[0]))
    np.testing.assert_array_equal(kept, 10.0 * L[0])
