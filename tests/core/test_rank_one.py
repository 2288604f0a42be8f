from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from dualqml.core import (
    certify,
    inertia,
    newton,
    newton_path,
    rank_one,
    scatter_spectrum,
    solve,
    solve_certified,
)
from dualqml.core.initial_point import single_sample_table
from dualqml.core.problem import dual_value_and_gradient, objective, recover, responses
from dualqml.core.rank_one import solve_rank_one
from tests.problems import (
    dense_matrices,
    extra_scatter,
    lams,
    make_data,
    make_problem,
    members_of,
)


@st.composite
def large_classes(draw):
    """Spectrum, members and rows with classes of 10 to 40 samples, n > p."""
    sizes = draw(st.lists(st.integers(10, 40), min_size=3, max_size=5))
    n_features = draw(st.integers(3, 20))
    noise = draw(st.sampled_from([0.1, 0.4, 1.0]))
    seed = draw(st.integers(0, 10_000))
    return make_problem(sizes, n_features, noise=noise, seed=seed, centre=False)


def rank_one_of(spectrum, members, lam, tol=1e-6):
    """The batch of one class each, unpadded: a list of solutions."""
    L, il = spectrum.eigenvalues, 1.0 / lam
    table = single_sample_table(L, spectrum.coordinates, il, il)
    _, t = table.start(il)
    return [
        solve_rank_one(
            spectrum.coordinates[own][None],
            L,
            np.ones((1, own.size), dtype=bool),
            il,
            t[own].max(keepdims=True),
            tol=tol,
        )
        for own in members
    ]


def dual_eigenvalues(spectrum, own, v):
    """Eigenvalues of M(v) = diag(L) - Z' diag(1 + v) Z, ascending."""
    Z = spectrum.coordinates[own]
    return np.linalg.eigvalsh(np.diag(spectrum.eigenvalues) - (Z.T * (1.0 + v)) @ Z)


@settings(max_examples=40, deadline=None)
@given(problem=large_classes(), lam=lams)
def test_accepted_classes_fulfil_the_conditions_of_the_whole_problem(problem, lam):
    spectrum, members, X = problem
    for own, found in zip(members, rank_one_of(spectrum, members, lam), strict=True):
        if not found.accepted[0]:
            continue
        (w,) = spectrum.back_project(np.sqrt(lam * found.root)[:, None] * found.vector)
        P, u, O = np.outer(w, w), lam * found.v[0], extra_scatter(X, own)
        F = responses(P, X[own])
        assert (u >= 0.0).all()
        assert F.min() >= 1.0 - 1e-8
        assert np.abs(u * (F - 1.0)).max() <= 1e-7 * u.max()
        scale = np.linalg.norm(P)
        # Rounding moves the eigenvalue by 1e-16 of the scatter.
        noise = 1e-13 * lam * np.linalg.norm(O, 2)
        recovered = recover(u, X[own], O, lam)
        np.testing.assert_allclose(P, recovered, atol=1e-4 * scale + noise)
        dual, _ = dual_value_and_gradient(u, X[own], O, lam)
        primal = objective(P / F.min(), O, lam)
        assert primal - dual <= 1e-7 * primal + noise * scale


@settings(max_examples=40, deadline=None)
@given(problem=large_classes(), lam=st.floats(-3.0, 3.0).map(lambda power: 10.0**power))
def test_a_class_is_accepted_if_there_is_one_negative_eigenvalue(problem, lam):
    spectrum, members, _ = problem
    for own, found in zip(members, rank_one_of(spectrum, members, lam), strict=True):
        if not np.isfinite(found.gap[0]):
            assert not found.accepted[0]
            continue
        w = dual_eigenvalues(spectrum, own, found.v[0]) / found.root[0]
        if found.accepted[0]:
            # The root, and its estimate.
            shift = found.root_shift[0] / found.root[0]
            assert w[0] == pytest.approx(-1.0 - shift, abs=1e-7)
            assert w[1] > -1.1e-5
        elif found.violation[0] < 1e-9:
            assert w[1] < -0.9e-5


def test_classes_of_unit_norm_around_a_centre_are_accepted():
    # So that the conditional tests above have something to test.
    spectrum, members, _ = make_problem([30] * 12, 10, noise=0.3, centre=False)
    for lam in (0.1, 10.0, 1e4):
        found = rank_one_of(spectrum, members, lam)
        assert all(one.accepted[0] for one in found)
        assert max(one.n_iter[0] for one in found) <= 5


@pytest.mark.parametrize("lam", [1e-2, 0.1, 1.0])
def test_a_class_with_two_directions_is_rejected_and_solved_in_general(lam):
    rng = np.random.default_rng(0)
    X, labels = make_data([40, 40], 8, noise=0.3, centre=False)
    own = np.repeat(np.eye(8)[:2], 10, axis=0) + 0.02 * rng.normal(size=(20, 8))
    X, labels = np.vstack([X, own]), np.append(labels, [2] * 20)
    spectrum, members = scatter_spectrum(X), members_of(labels)
    (found,) = rank_one_of(spectrum, members[2:], lam)
    assert not found.accepted[0]
    assert dual_eigenvalues(spectrum, members[2], found.v[0])[1] < 0.0
    solution = solve(spectrum, members, lam)
    assert solution.ranks[2] >= 2
    assert certify(spectrum, members, solution).worst.max() <= 1e-6


@settings(max_examples=20, deadline=None)
@given(problem=large_classes(), lam=lams)
def test_the_objective_is_that_of_the_general_solver(problem, lam):
    spectrum, members, _ = problem
    first = certify(spectrum, members, solve(spectrum, members, lam), rounding=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newton, "_may_have_rank_one", lambda spectrum, k: False)
        general = solve(spectrum, members, lam)
    second = certify(spectrum, members, general, rounding=False)
    assert first.gap.max() <= 1e-6
    np.testing.assert_allclose(first.primal, second.primal, rtol=2e-6)


def test_the_solution_is_that_of_a_conic_solver():
    pytest.importorskip("cvxpy")
    spectrum, members, _ = make_problem([12, 15, 11], 4, noise=0.4, centre=False)
    ours = dense_matrices(spectrum, solve(spectrum, members, 1.0, tol=1e-9))
    conic = dense_matrices(spectrum, solve(spectrum, members, 1.0, solver="sdp"))
    for P, R in zip(ours, conic, strict=True):
        np.testing.assert_allclose(P, R, atol=1e-3 * np.linalg.norm(R))


def test_the_sign_of_a_sample_does_not_matter():
    X, labels = make_data([30] * 12, 20, noise=0.2, centre=False)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(X.shape[0], 1))
    members = members_of(labels)
    a, b = scatter_spectrum(X), scatter_spectrum(signs * X)
    assert all(found.accepted[0] for found in rank_one_of(b, members, 1.0))
    for P, R in zip(
        dense_matrices(a, solve(a, members, 1.0)),
        dense_matrices(b, solve(b, members, 1.0)),
        strict=True,
    ):
        np.testing.assert_allclose(P, R, atol=1e-8 * np.linalg.norm(P))


@settings(max_examples=50, deadline=None)
@given(k=st.integers(2, 30), rank=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_pivoting_finds_what_non_negative_least_squares_finds(k, rank, seed):
    # W = G (I - G)^-1 for G = U diag(g) U', as a square root for SciPy's nnls.
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(k, rank)) + 2.0
    G = 0.9 / np.linalg.norm(B, 2) ** 2 * B @ B.T + 1e-3 * np.eye(k)
    g, U = np.linalg.eigh(G)
    root = np.sqrt(g / (1.0 - g))
    m, _ = nnls(root[:, None] * U.T, (U.T @ np.ones(k)) / root)
    real = np.ones((1, k), dtype=bool)
    start = rng.random((1, k)) < 0.5
    found = rank_one._Complementarity.of(G[None], real).solve(start, 1e-10)
    assert found.converged[0]
    y = found.y[0]
    np.testing.assert_allclose(y - G @ y, m, atol=1e-7 * np.abs(m).max())
    # The derivative of y, if G changes by -h h' eps: (G y)_active stays 1.
    h = rng.normal(size=k)
    slope = found.again((np.outer(h, h) @ y)[None])[0]
    changed = rank_one._Complementarity.of((G - 1e-7 * np.outer(h, h))[None], real)
    again = changed.solve(found.active, 1e-10)
    if (again.active == found.active).all():
        difference = (again.y[0] - y) / 1e-7
        error = np.abs(difference - slope).max()
        assert error <= 1e-3 * np.abs(slope).max() + 1e-6 * np.abs(y).max()


@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0, 1e3, 1e8])
@pytest.mark.parametrize(
    ("sizes", "n_features", "noise"),
    [
        ([10, 60, 120, 11, 35], 16, 0.4),  # unequal
        ([60, 50, 70], 6, 1.5),  # k > p, samples on all sides
        ([100, 120], 30, 0.7),
        ([12, 12, 12], 40, 0.5),  # n <= p
        ([30, 12], 35, 0.5),  # other samples do not span the space
    ],
)
def test_every_class_is_certified(sizes, n_features, noise, lam):
    X, labels = make_data(sizes, n_features, noise=noise, centre=False)
    found = solve_certified(X, members_of(labels), lam)
    assert found.certificate.worst.max() <= 1e-6


@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("distance", [0.0, 1e-9])
def test_equal_samples_in_a_class(lam, distance):
    X, labels = make_data([30, 30, 30], 10, noise=0.4, centre=False)
    rng = np.random.default_rng(0)
    X[1:15] = X[0] + distance * rng.normal(size=(14, 10))
    found = solve_certified(X, members_of(labels), lam)
    assert found.certificate.worst.max() <= 1e-6


def test_a_class_without_one_side_ends_and_is_not_accepted():
    # 200 samples in all directions of a plane: no w has w'x > 0 for all of them.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    spectrum = scatter_spectrum(X)
    members = [np.arange(200), np.arange(200, 400)]
    for found in rank_one_of(spectrum, members, 1.0):
        assert not found.accepted[0]
        assert np.isfinite(found.v).all()
    solution = solve(spectrum, members, 1.0)
    assert certify(spectrum, members, solution).worst.max() <= 1e-6


SIZES = [10] * 8 + [12] * 30 + [20, 21, 33, 34, 50, 51, 60, 90]


@pytest.mark.parametrize("noise", [0.4, 1.5])
def test_results_are_bitwise_equal_for_any_chunk_size_and_n_jobs(noise):
    spectrum, members, _ = make_problem(SIZES, 48, noise=noise, centre=False)
    path = [0.1, 10.0]
    reference = list(newton_path(spectrum, members, path))
    ranks = np.concatenate([solution.ranks for solution in reference])
    # Both ways are taken.
    assert (ranks == 1).any()
    assert (ranks > 1).any() == (noise > 1.0)
    options = [
        {"chunk_bytes": 1},
        {"chunk_bytes": 100_000},
        {"n_jobs": 2, "chunk_bytes": 50_000},
        {"n_jobs": 3},
    ]
    for option in options:
        for a, b in zip(
            reference, newton_path(spectrum, members, path, **option), strict=True
        ):
            np.testing.assert_array_equal(a.multipliers, b.multipliers)
            np.testing.assert_array_equal(a.factors, b.factors)
            np.testing.assert_array_equal(a.ranks, b.ranks)
            np.testing.assert_array_equal(a.n_iter, b.n_iter)


def test_padding_changes_nothing_but_rounding():
    spectrum, members, _ = make_problem([30] * 12, 20, noise=0.2, centre=False)
    L, own = spectrum.eigenvalues, members[0]
    Z = np.zeros((1, 37, L.size))
    Z[0, :30] = spectrum.coordinates[own]
    real = np.arange(37)[None] < 30
    (alone,) = rank_one_of(spectrum, [own], 1.0)
    root = 0.7 * alone.root
    padded = solve_rank_one(Z, L, real, 1.0, root, tol=1e-6)
    assert padded.accepted[0]
    assert (padded.v[0, 30:] == 0.0).all()
    np.testing.assert_allclose(padded.v[0, :30], alone.v[0], atol=1e-7)
    np.testing.assert_allclose(padded.root, alone.root, rtol=1e-8)


def test_only_classes_among_enough_other_samples_are_tried():
    tall, _, _ = make_problem([20] * 4, 30, centre=False)
    wide, _, _ = make_problem([20] * 4, 100, centre=False)
    assert newton._may_have_rank_one(tall, 1)
    assert newton._may_have_rank_one(tall, 50)
    assert not newton._may_have_rank_one(tall, 51)
    assert not newton._may_have_rank_one(wide, 20)


def test_a_singular_system_leaves_the_other_classes_alone():
    matrices = np.stack([np.eye(3), np.zeros((3, 3)), 2.0 * np.eye(3)])
    out = rank_one._solve(matrices, np.ones((3, 3)))
    np.testing.assert_array_equal(out[0], 1.0)
    assert np.isnan(out[1]).all()
    np.testing.assert_array_equal(out[2], 0.5)


@pytest.mark.parametrize("noise", [0.4, 1.5])
def test_the_fast_count_of_the_certificate_agrees_with_eigenvalues(noise, monkeypatch):
    spectrum, members, _ = make_problem([30] * 20, 24, noise=noise, centre=False)
    solution = solve(spectrum, members, 0.3)
    fast = certify(spectrum, members, solution)
    monkeypatch.setattr(inertia, "_MAX_PAIRED_SIZE", 10**6)
    slow = certify(spectrum, members, solution)
    np.testing.assert_array_equal(fast.n_negative, slow.n_negative)
    np.testing.assert_allclose(fast.dual, slow.dual, rtol=1e-9)
    np.testing.assert_array_equal(fast.primal, slow.primal)


def test_the_certificate_sees_a_root_that_a_claim_of_rank_one_hides():
    # The best P of rank one and its multipliers, for a class that needs more.
    spectrum, members, _ = make_problem([40] * 6, 20, noise=0.7, centre=False)
    lam = 0.1
    found = rank_one_of(spectrum, members, lam)
    solution = solve(spectrum, members, lam)
    assert not any(one.accepted[0] for one in found)
    forged = newton.QMLSolution(
        lam,
        np.stack([np.sqrt(lam * one.root[0]) * one.vector[0] for one in found]),
        np.ones(6, dtype=np.int64),
        np.concatenate([lam * one.v[0] for one in found]),
        solution.n_iter,
    )
    certificate = certify(spectrum, members, forged)
    assert (certificate.n_negative > 1).all()
    assert (certificate.gap > 1e-6).all()
    assert (certificate.dual <= certify(spectrum, members, solution).primal).all()


def test_the_certificate_sees_that_a_claimed_root_is_too_small():
    # Larger multipliers have a larger root than the factor tells.
    spectrum, members, _ = make_problem([30] * 12, 20, noise=0.2, centre=False)
    solution = solve(spectrum, members, 1.0)
    good = certify(spectrum, members, solution)
    forged = replace(solution, multipliers=1.01 * solution.multipliers)
    certificate = certify(spectrum, members, forged)
    assert (solution.ranks == 1).all()
    assert (certificate.n_negative == 1).all()
    assert (certificate.dual <= good.primal).all()
    assert (certificate.gap > 1e-6).all()


def test_the_estimate_of_the_root_is_exact_to_second_order():
    # A large tolerance, so that the last step to first order leaves something to see.
    spectrum, members, _ = make_problem([30] * 12, 20, noise=0.2, centre=False)
    seen = 0.0
    for own, found in zip(
        members, rank_one_of(spectrum, members, 1.0, tol=1e-2), strict=True
    ):
        shift = found.root_shift[0] / found.root[0]
        root = -dual_eigenvalues(spectrum, own, found.v[0])[0] / found.root[0]
        assert root - 1.0 == pytest.approx(shift, rel=1e-3, abs=1e-12)
        seen = max(seen, abs(shift))
    assert seen > 1e-9


def test_least_squares_help_where_pivoting_does_not_converge(monkeypatch):
    spectrum, members, _ = make_problem([30] * 12, 10, noise=0.2, centre=False)
    before = rank_one_of(spectrum, members, 10.0)
    # One round can only confirm a guess.
    monkeypatch.setattr(rank_one, "_MAX_ROUNDS", 1)
    for a, b in zip(before, rank_one_of(spectrum, members, 10.0), strict=True):
        assert a.accepted[0]
        assert b.accepted[0]
        np.testing.assert_allclose(a.v, b.v, atol=1e-6 * a.v.max())


def test_without_convergence_the_general_solver_starts_as_usual(monkeypatch):
    spectrum, members, _ = make_problem([30] * 4, 10, noise=0.2, centre=False)
    monkeypatch.setattr(rank_one, "_MAX_NEWTON_STEPS", 0)
    for found in rank_one_of(spectrum, members, 1.0):
        assert not found.accepted[0]
        assert (found.v == 0.0).all()
    solution = solve(spectrum, members, 1.0)
    assert certify(spectrum, members, solution).worst.max() <= 1e-6
