import numpy as np
import pytest

from dualqml.core.krylov_solver import RationalBasis
from tests.problems import make_problem


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
