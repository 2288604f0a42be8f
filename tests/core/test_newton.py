import itertools
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualqml.core import certify, newton, newton_path, scatter_spectrum, solve
from dualqml.core.problem import dual_value_and_gradient, objective, recover, responses
from tests.problems import (
    dense_matrices,
    extra_scatter,
    lams,
    make_data,
    make_problem,
    members_of,
    problems,
)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), lam=lams)
def test_kkt_conditions_hold_in_the_space_of_the_samples(problem, lam):
    spectrum, members, X = problem
    solution = solve(spectrum, members, lam)
    for own, P in zip(members, dense_matrices(spectrum, solution), strict=True):
        u, O = solution.multipliers[own], extra_scatter(X, own)
        F = responses(P, X[own])
        assert (u >= 0.0).all()
        # primal feasibility and complementarity
        assert F.min() >= 1.0 - 1e-6
        assert np.abs(u * (F - 1.0)).max() <= 1e-5 * u.max()
        # no duality gap
        dual, _ = dual_value_and_gradient(u, X[own], O, lam)
        feasible = P / F.min()
        primal = objective(feasible, O, lam)
        assert primal - dual <= 2e-6 * primal
        # stationarity (7): P is recovered from u. The Lagrangian is strongly convex, so
        # half of the squared distance is at most the gap.
        distance = np.linalg.norm(feasible - recover(u, X[own], O, lam))
        assert distance <= np.sqrt(2.0 * 2e-6 * primal)


@settings(max_examples=30, deadline=None)
@given(problem=problems(), lam=lams)
def test_rank_is_at_most_the_number_of_samples(problem, lam):
    spectrum, members, _ = problem
    ranks = solve(spectrum, members, lam).ranks
    assert (ranks >= 1).all()
    assert (ranks <= [own.size for own in members]).all()


@settings(max_examples=25, deadline=None)
@given(problem=problems(), lam=lams, seed=st.integers(0, 100))
def test_rotation_of_the_data_leaves_features_unchanged(problem, lam, seed):
    spectrum, members, X = problem
    n_features = X.shape[1]
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    turned = scatter_spectrum(X @ Q)
    a = dense_matrices(spectrum, solve(spectrum, members, lam, tol=1e-9))
    b = dense_matrices(turned, solve(turned, members, lam, tol=1e-9))
    for P, R in zip(a, b, strict=True):
        np.testing.assert_allclose(Q.T @ P @ Q, R, atol=2e-3 * np.linalg.norm(P))


@settings(max_examples=25, deadline=None)
@given(problem=problems(), lam=lams, scale=st.sampled_from([0.1, 3.0, 255.0]))
def test_scaling_the_data_by_s_scales_lambda_by_s_to_the_fourth(problem, lam, scale):
    # P(s X, lam) = P(X, lam s^4) / s^2.
    spectrum, members, X = problem
    assume(1e-5 < lam * scale**4 < 1e7)
    scaled = scatter_spectrum(scale * X)
    a = dense_matrices(scaled, solve(scaled, members, lam, tol=1e-9))
    b = dense_matrices(spectrum, solve(spectrum, members, lam * scale**4, tol=1e-9))
    for P, R in zip(a, b, strict=True):
        np.testing.assert_allclose(
            scale**2 * P, R, atol=2e-3 * np.linalg.norm(R), rtol=0
        )


@settings(max_examples=25, deadline=None)
@given(problem=problems(), lam=lams, seed=st.integers(0, 100))
def test_permuting_classes_permutes_the_matrices(problem, lam, seed):
    spectrum, members, _ = problem
    order = np.random.default_rng(seed).permutation(len(members))
    a = dense_matrices(spectrum, solve(spectrum, members, lam))
    permuted = [members[c] for c in order]
    b = dense_matrices(spectrum, solve(spectrum, permuted, lam))
    for position, c in enumerate(order):
        np.testing.assert_allclose(
            b[position], a[c], atol=2e-3 * np.linalg.norm(a[c]), rtol=0
        )


@settings(max_examples=25, deadline=None)
@given(problem=problems(), lam=lams)
def test_extra_class_responses_fall_and_the_norm_rises_with_lambda(problem, lam):
    # Both follow from optimality of each P in its own problem.
    spectrum, members, X = problem
    low = dense_matrices(spectrum, solve(spectrum, members, lam, tol=1e-8))
    high = dense_matrices(spectrum, solve(spectrum, members, 4.0 * lam, tol=1e-8))
    for own, P, R in zip(members, low, high, strict=True):
        O = extra_scatter(X, own)
        slack = 1e-5 * (np.linalg.norm(P) + np.linalg.norm(R)) * np.trace(O)
        assert np.sum(R * O) <= np.sum(P * O) + slack
        assert np.linalg.norm(R) >= (1.0 - 1e-3) * np.linalg.norm(P)


def test_a_far_away_class_in_new_directions_changes_nothing():
    # Samples orthogonal to all others add to O_c only where P_c vanishes.
    X, labels = make_data([3, 3, 3], 20, centre=False)
    wide = np.hstack([X, np.zeros((9, 4))])
    far = np.hstack([np.zeros((2, 20)), 50.0 * np.eye(2, 4)])
    before = scatter_spectrum(X)
    after = scatter_spectrum(np.vstack([wide, far]))
    a = dense_matrices(before, solve(before, members_of(labels), 1.0, tol=1e-9))
    b = dense_matrices(
        after, solve(after, members_of(np.append(labels, [3, 3])), 1.0, tol=1e-9)
    )
    for P, R in zip(a, b[:3], strict=True):
        np.testing.assert_allclose(R[:20, :20], P, atol=1e-4 * np.linalg.norm(P))
        np.testing.assert_allclose(R[20:], 0.0, atol=1e-4 * np.linalg.norm(P))


def test_one_sample_without_others_in_its_span_has_the_closed_form():
    # Orthogonal samples: O_c x = 0, so P = x x' / |x|^4 and u = 1 / |x|^4.
    X = np.diag([2.0, 3.0, 0.5])
    spectrum = scatter_spectrum(X)
    solution = solve(spectrum, [np.array([i]) for i in range(3)], 10.0, tol=1e-9)
    for i, P in enumerate(dense_matrices(spectrum, solution)):
        expected = np.zeros((3, 3))
        expected[i, i] = 1.0 / X[i, i] ** 2
        np.testing.assert_allclose(P, expected, atol=1e-9 * expected[i, i])
        assert solution.multipliers[i] == pytest.approx(X[i, i] ** -4.0, rel=1e-6)


SIZES = [1] * 5 + [2] * 40 + [3] * 40 + [4, 5, 5, 6, 9, 9]


@pytest.mark.parametrize("n_features", [60, 400])
def test_results_are_bitwise_equal_for_any_chunk_size_and_n_jobs(n_features):
    spectrum, members, _ = make_problem(SIZES, n_features)
    options = [
        {"chunk_bytes": 1},
        {"chunk_bytes": 100_000},
        {"n_jobs": 2, "chunk_bytes": 50_000},
        {"n_jobs": 3},
    ]
    path = [0.1, 10.0, 1e4]
    reference = list(newton_path(spectrum, members, path))
    for option in options:
        for a, b in zip(
            reference, newton_path(spectrum, members, path, **option), strict=True
        ):
            np.testing.assert_array_equal(a.multipliers, b.multipliers)
            np.testing.assert_array_equal(a.factors, b.factors)
            np.testing.assert_array_equal(a.ranks, b.ranks)
            np.testing.assert_array_equal(a.n_iter, b.n_iter)


@settings(max_examples=20, deadline=None)
@given(problem=problems())
def test_a_path_gives_what_cold_fits_give(problem):
    spectrum, members, _ = problem
    path = np.logspace(-2, 3, 6)
    for lam, warm in zip(path, newton_path(spectrum, members, path), strict=True):
        assert warm.lam == lam
        cold = solve(spectrum, members, lam)
        a = certify(spectrum, members, warm, rounding=False)
        b = certify(spectrum, members, cold, rounding=False)
        # The solver of all classes stops where rounding does not let it go on. Then
        # the certificate says so, and the class is solved alone (solve_certified).
        assert a.gap.max() <= 1e-5
        np.testing.assert_allclose(a.primal, b.primal, rtol=1e-5)


def test_a_path_may_run_in_any_order_and_can_be_left():
    spectrum, members, _ = make_problem([2] * 5, 30)
    path = newton_path(spectrum, members, [100.0, 0.01, 1.0])
    first = next(path)
    assert first.lam == 100.0
    path.close()
    downward = list(newton_path(spectrum, members, [1e4, 1.0, 1e-4]))
    for solution in downward:
        certificate = certify(spectrum, members, solution, rounding=False)
        assert certificate.gap.max() <= 1e-6


def test_memory_of_the_temporaries_is_bounded():
    spectrum, members, _ = make_problem([4] * 600, 64)
    (solution,) = newton_path(spectrum, members, [1.0], chunk_bytes=100_000)
    tracemalloc.start()
    (solution,) = newton_path(spectrum, members, [1.0], chunk_bytes=100_000)
    _held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kept = solution.factors.nbytes
    # The chunks' own results are kept until they are gathered: one more copy.
    table = 2 * 8 * spectrum.coordinates.shape[0] * 20 * 2
    assert peak < 4 * kept + table + 20 * 100_000


def test_interrupt_is_prompt_and_leaves_no_thread_working(monkeypatch):
    started, cancelled = [], threading.Event()
    numbers, batch = itertools.count(), threading.local()

    class Pool(ThreadPoolExecutor):
        """Lets the batches end only when those that wait have been cancelled.

        The first batch ends at once: its result is waited for first.
        """

        def submit(self, work, /, *args):
            number = next(numbers)

            def numbered(*args):
                batch.number = number
                return work(*args)

            return super().submit(numbered, *args)

        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    def interrupted(*args, **kwargs):
        started.append(1)
        if getattr(batch, "number", 0) > 0:
            assert cancelled.wait(60.0)
        raise KeyboardInterrupt

    spectrum, members, _ = make_problem([2] * 200, 30)
    monkeypatch.setattr(newton, "solve_rank_one", interrupted)
    monkeypatch.setattr(newton, "ThreadPoolExecutor", Pool)
    before = threading.active_count()
    for n_jobs in (1, 2):
        started.clear()
        cancelled.clear()
        with pytest.raises(KeyboardInterrupt):
            list(newton_path(spectrum, members, [1.0], n_jobs=n_jobs, chunk_bytes=1))
        # The first one, and in a pool those that had begun.
        assert len(started) <= n_jobs + 1
    assert threading.active_count() == before


def test_samples_that_the_spectrum_does_not_resolve_get_no_constraint():
    X, labels = make_data([3, 3, 3], 20, centre=False)
    tiny = X.copy()
    tiny[4] *= 1e-9
    spectrum, members = scatter_spectrum(tiny), members_of(labels)
    np.testing.assert_array_equal(np.flatnonzero(spectrum.unresolved), [4])
    found = solve(spectrum, members, 1.0)
    assert found.multipliers[4] == 0.0
    # As if it were not there.
    rest = scatter_spectrum(np.delete(X, 4, axis=0))
    without = solve(rest, members_of(np.delete(labels, 4)), 1.0)
    np.testing.assert_allclose(
        np.delete(found.multipliers, 4), without.multipliers, rtol=1e-4, atol=1e-8
    )


@pytest.mark.parametrize(
    ("lam", "scale", "decades"),
    [(1.0, 1.0, 4), (1e6, 1.0, 4), (1e8, 1.0, 6), (1e8, 10.0, 10), (1e8, 0.1, 4)],
)
def test_continuation_starts_at_an_easy_lambda(lam, scale, decades):
    # lam = 100 on unit-norm rows is easy; rows s times as long have lam s^4.
    X, _ = make_data([3, 3], 10, centre=False)
    spectrum = scatter_spectrum(scale * X)
    # A little less than the power of ten, for rounding.
    assert newton._continuation_decades(spectrum, 0.999 * lam) == decades


def test_warm_starts_can_be_switched_off():
    spectrum, members, _ = make_problem([3, 2, 4], 40)
    path = [0.1, 10.0]
    cold = newton_path(spectrum, members, path, warm_start=False)
    for lam, solution in zip(path, cold, strict=True):
        (alone,) = newton_path(spectrum, members, [lam])
        np.testing.assert_allclose(
            solution.multipliers, alone.multipliers, rtol=1e-4, atol=1e-9
        )
    warm = list(newton_path(spectrum, members, path))
    cold = list(newton_path(spectrum, members, path, warm_start=False))
    np.testing.assert_array_equal(warm[0].multipliers, cold[0].multipliers)
    assert not np.array_equal(warm[1].multipliers, cold[1].multipliers)
