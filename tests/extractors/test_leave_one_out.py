"""Closed forms against dense matrices and against real leave-one-out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml._linalg import unit_rows
from dualqml.extractors import _leave_one_out
from dualqml.extractors._leave_one_out import (
    GalleryFilters,
    LeaveOneOut,
    LeftOutPeople,
    LeftOutSlot,
    contest_classes,
    make_contest,
)
from dualqml.extractors.class_sizes import pooled_correlation
from tests.problems import make_data

RULES = ("cosine", "max")
OWN_WEIGHT = 0.5


def contest_of(codes, n_slots=None, seed=0):
    contest = make_contest(codes, np.random.RandomState(seed))
    return contest.with_slots(
        int(np.bincount(codes).max()) if n_slots is None else n_slots
    )


def make_left_out(sizes, n_features=14, *, noise=0.6, seed=0, n_slots=None):
    """Samples in the eigenvectors of the metric, and what is left out of them."""
    A, codes = make_data(sizes, n_features, noise=noise, seed=seed, unit=False)
    return in_eigenvectors(A, codes, contest_of(codes, n_slots, seed))


def in_eigenvectors(A, codes, contest):
    means = np.array([A[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
    within = (A - means[codes]).T @ (A - means[codes])
    scale = 1.0 / np.sqrt(np.trace(within))
    w, E = np.linalg.eigh(within * scale**2)
    left_out = LeaveOneOut(
        contest,
        A @ E,
        codes,
        np.maximum(w, 0.0),
        scale,
        own_weight=OWN_WEIGHT,
    )
    return A @ E, codes, scale, left_out


def slow_filter(Z, codes, c, lam):
    """The filter of a class, from its optimality conditions."""
    own, others = Z[codes == c], Z[codes != c]
    n_own, size = own.shape
    hessian = 2.0 * (lam * others.T @ others + np.eye(size))
    system = np.block([[hessian, -own.T], [own, np.zeros((n_own, n_own))]])
    return np.linalg.solve(system, np.append(np.zeros(size), np.ones(n_own)))[:size]


def slow_scores(rule, Z, probe, codes, lam):
    """Scores of a probe by filters learnt from a gallery, one class at a time."""
    classes = np.arange(codes.max() + 1)
    W = np.array([slow_filter(Z, codes, c, lam) for c in classes])
    answer = W @ probe
    if rule == "max":
        return answer
    profiles = Z @ W.T
    profiles[np.arange(len(Z)), codes] *= OWN_WEIGHT
    mean = profiles.mean(axis=0)
    cosines = unit_rows(profiles - mean) @ unit_rows((answer - mean)[None])[0]
    return np.array([cosines[codes == c].max() for c in classes])


def slow_losses(P, codes, scale, contest, rho, lam, rule, *, fair):
    """Log ranks by fitting metric and filters again without each left-out sample."""
    classes = np.arange(codes.max() + 1)
    out = []
    for slot, owners, _ in contest.parts():
        left = contest.rows[contest.index[owners, slot]]
        for i in left:
            known = np.delete(np.arange(len(P)), i)
            means = np.array(
                [P[known][codes[known] == c].mean(axis=0) for c in classes]
            )
            deviations = P[known] - means[codes[known]]
            S = scale**2 * deviations.T @ deviations + rho * np.eye(P.shape[1])
            Z = unit_rows(np.linalg.solve(np.linalg.cholesky(S), P.T).T)
            gallery = np.setdiff1d(known, left) if fair else known
            scores = slow_scores(rule, Z[gallery], Z[i], codes[gallery], lam)
            out.append(np.log(np.sum(scores >= scores[codes[i]])))
    return np.array(out)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=7).filter(
        lambda sizes: max(sizes) > 1
    ),
    n_slots=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_a_contest_has_every_sample_once(sizes, n_slots, seed):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    contest = make_contest(codes, np.random.RandomState(seed)).with_slots(n_slots)
    np.testing.assert_array_equal(np.sort(contest.rows), np.arange(codes.size))
    np.testing.assert_array_equal(codes[contest.rows], contest.codes)
    for c, size in enumerate(sizes):
        places = contest.index[c, contest.real[c]]
        assert places.size == size
        assert (contest.codes[places] == c).all()
    probes = contest.probes
    assert np.unique(probes).size == probes.size
    # The only sample of a class is never left out.
    assert (np.array(sizes)[contest.codes[probes]] > 1).all()
    assert probes.size == sum(min(n_slots, size) for size in sizes if size > 1)
    assert contest.has_fair_gallery == (np.median(sizes) < 4)


def test_a_contest_is_bounded(monkeypatch):
    monkeypatch.setattr(_leave_one_out, "_MOST_CLASSES", 5)
    monkeypatch.setattr(_leave_one_out, "_MOST_PER_CLASS", 3)
    codes = np.repeat(np.arange(12), [1, 5] * 6)
    contest = make_contest(codes, np.random.RandomState(0))
    assert contest.index.shape == (5, 3)
    assert contest.rows.size == 15
    # Classes of several samples first.
    assert set(codes[contest.rows]) <= set(range(1, 12, 2))
    assert contest.n_slots == 1
    assert contest.with_slots(9).n_slots == 3
    # If there are too few of them, all of them.
    few = make_contest(
        np.repeat(np.arange(9), [2] * 3 + [1] * 6), np.random.RandomState(0)
    )
    assert few.index.shape[0] == 5
    assert (few.real.sum(axis=1) > 1).any()


def test_the_order_of_a_contest_depends_on_the_random_state_only():
    codes = np.repeat(np.arange(6), 4)
    first, again, other = (contest_of(codes, seed=seed).rows for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=6).filter(
        lambda sizes: max(sizes) > 1
    ),
    lam=st.sampled_from([0.01, 0.3, 10.0]),
    fair=st.booleans(),
    seed=st.integers(0, 999),
)
def test_filters_meet_their_optimality_conditions(sizes, lam, fair, seed):
    _, codes, _, left_out = make_left_out(sizes, seed=seed)
    at = left_out.at(0.5, 4)
    contest = at.contest
    slot = 0 if fair else None
    found = GalleryFilters(at, lam, slot)
    used = np.ones(codes.size, dtype=bool)
    if fair:
        used[contest.index[contest.left_out(0), 0]] = False
    for c in range(len(sizes)):
        expected = slow_filter(at.Z[used], contest.codes[used], c, lam)
        np.testing.assert_allclose(
            found.T @ found.filters[c], at.Z @ expected, atol=1e-6
        )


@pytest.mark.parametrize("fair", [True, False])
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=2, max_size=5),
    lam=st.sampled_from([0.03, 0.3, 3.0]),
    rho=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 999),
)
def test_changes_of_low_rank_equal_dense_matrices(fair, sizes, lam, rho, seed):
    _, _, _, left_out = make_left_out(sizes, seed=seed)
    at = left_out.at(rho, 2)
    contest = at.contest
    for slot, classes, part in contest.parts():
        filters = GalleryFilters(at, lam, slot if fair else None)
        found = LeftOutSlot(filters, slot, classes, part)
        places = contest.index[classes, slot]
        for k, (c, i) in enumerate(zip(classes, places, strict=True)):
            u = at.U[part][k]
            metric = np.eye(u.size) - np.outer(u, u)
            gallery = np.setdiff1d(np.arange(len(at.Z)), places if fair else [i])
            scatter = at.Z[gallery].T @ at.Z[gallery]
            R = np.linalg.inv(scatter + metric / lam)
            lengths = np.sqrt(np.einsum("ij,ij->i", at.Z @ np.linalg.inv(metric), at.Z))
            own = np.intersect1d(gallery, np.flatnonzero(contest.codes == c))
            blocks = at.Z[own] @ R @ at.Z[own].T
            weights = np.linalg.solve(blocks, lengths[own])
            expected = weights @ at.Z[own] @ R @ at.Z[i] / lengths[i]
            assert found.responses[k, c] == pytest.approx(expected, abs=1e-6)
            # Other filters keep their weights; their samples are not in R z_i.
            L = filters.factor
            probe = np.linalg.solve(np.tril(L), R_inverse_product(R, at.Z[i], L))
            np.testing.assert_allclose(
                found.probes[k] * lengths[i], probe, atol=1e-7 * np.abs(probe).max()
            )


def R_inverse_product(R, z, factor):
    """R_i z in the coordinates of the filters, before the triangular system."""
    lower = np.tril(factor)
    return lower @ lower.T @ (R @ z)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("sizes", "gallery"),
    [([2] * 12, 0), ([2] * 12, 1), ([3] * 9, 0), ([5] * 8, 0), ([1, 2, 3, 2] * 3, 0)],
)
def test_losses_are_close_to_those_of_real_leave_one_out(rule, sizes, gallery):
    found, expected = [], []
    fair = np.median(sizes) < 4 and gallery == 0
    for seed in range(2):
        P, codes, scale, left_out = make_left_out(sizes, 30, noise=1.1, seed=seed)
        for rho, lam in ((0.01, 0.3), (0.1, 0.05), (1.0, 1.0)):
            at = left_out.at(rho, 3)
            losses = at.losses(lam, RULES)[gallery, RULES.index(rule)]
            if gallery == 1 and rule == "max":
                # Judged by the fair gallery alone.
                np.testing.assert_array_equal(losses, at.losses(lam, ["max"])[0, 0])
                continue
            slow = slow_losses(P, codes, scale, at.contest, rho, lam, rule, fair=fair)
            found.append(losses)
            expected.append(slow)
    if not found:
        return
    found, expected = np.concatenate(found), np.concatenate(expected)
    assert expected.std() > 0.1
    assert np.corrcoef(found, expected)[0, 1] > 0.93
    assert abs(found.mean() - expected.mean()) < 0.1 * expected.mean() + 0.02


def test_a_sample_left_out_of_the_filters_alone_would_be_judged_too_well():
    """The metric must not have seen the sample either."""
    _, _, _, left_out = make_left_out([2] * 15, 30, noise=1.2)
    at = left_out.at(0.003, 2)
    honest = at.losses(0.3, ["max"]).mean()
    at.U = np.zeros_like(at.U)
    at.growth = np.ones_like(at.growth)
    assert at.losses(0.3, ["max"]).mean() < 0.6 * honest


def test_the_number_of_probes_is_that_of_the_slots():
    _, _, _, left_out = make_left_out([4] * 6)
    assert left_out.at(0.1, 1).losses(0.1, ["max"]).shape == (2, 1, 6)
    assert left_out.at(0.1, 3).losses(0.1, RULES).shape == (2, 2, 18)


@pytest.mark.parametrize("rules", [("cosine",), ("max",), ("max", "cosine")])
def test_rules_do_not_influence_each_other(rules):
    _, _, _, left_out = make_left_out([3] * 7, noise=1.0)
    at = left_out.at(0.1, 3)
    both, some = at.losses(0.1, RULES), at.losses(0.1, rules)
    for r, rule in enumerate(rules):
        # Rule "cosine" alone is not compared in the fair gallery.
        gallery = 1 if rules == ("cosine",) else slice(None)
        np.testing.assert_array_equal(
            some[gallery, r], both[gallery, RULES.index(rule)]
        )
    quick = at.losses(0.1, RULES, quick=True)
    np.testing.assert_array_equal(quick, both[[0, 0]])


def test_profiles_are_computed_in_chunks(monkeypatch):
    _, _, _, left_out = make_left_out([3, 2, 4, 1, 3, 5], noise=1.0)
    whole = left_out.at(0.1, 5).losses(0.1, ["cosine"])
    monkeypatch.setattr(_leave_one_out, "_PROFILE_BYTES", 1)
    np.testing.assert_array_equal(left_out.at(0.1, 5).losses(0.1, ["cosine"]), whole)


@pytest.mark.parametrize("what", ["copies", "zero", "equal class"])
def test_degenerate_samples_give_finite_scores(what):
    A, codes = make_data([3] * 6, 14, unit=False)
    if what == "copies":
        A[1] = A[0]
        A[4] = A[0]
    elif what == "zero":
        A[2] = 0.0
    else:
        A[codes == 3] = A[codes == 3][0]
    _, _, _, left_out = in_eigenvectors(A, codes, contest_of(codes))
    at = left_out.at(1e-6, 3)
    for lam in (1e-3, 1.0, 1e3):
        assert np.isfinite(at.losses(lam, RULES)).all()


def without_class(P, codes, scale, c, rho):
    """The metric of all samples but those of a class, from its scatter."""
    known = codes != c
    S = rho * np.eye(P.shape[1])
    for other in np.unique(codes[known]):
        deviations = P[codes == other] - P[codes == other].mean(axis=0)
        S += scale**2 * deviations.T @ deviations
    return S


@pytest.mark.parametrize("fair", [True, False])
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=6).filter(
        lambda sizes: max(sizes) > 1
    ),
    lam=st.sampled_from([0.03, 0.3, 3.0]),
    rho=st.sampled_from([0.05, 1.0]),
    n_each=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_left_out_people_equal_dense_matrices(fair, sizes, lam, rho, n_each, seed):
    """The probes R z, with R and norms from the metric without the whole class."""
    P, codes, scale, left_out = make_left_out(sizes, seed=seed)
    at = left_out.at(rho, 2)
    contest = at.contest
    chosen = np.arange(len(sizes))[::-1][: max(2, len(sizes) - 1)]
    root = np.sqrt(left_out.variances + rho)
    slots = range(contest.n_slots) if fair else [None]
    for slot in slots:
        filters = GalleryFilters(at, lam, slot)
        found = LeftOutPeople(
            filters, left_out.class_deviations(rho, chosen), chosen, n_each
        )
        L = np.tril(filters.factor)
        in_gallery = np.ones(codes.size, dtype=bool)
        if fair:
            missing = contest.left_out(slot)
            in_gallery[contest.index[missing, slot]] = False
        wanted = [
            (c, place)
            for c in chosen
            for place in contest.index[c, contest.real[c]][:n_each]
        ]
        assert found.own_classes.tolist() == [c for c, _ in wanted]
        assert found.places.tolist() == [place for _, place in wanted]
        responses = found.responses()
        sizes_now = np.bincount(contest.codes[in_gallery], minlength=len(sizes))
        for k, (c, i) in enumerate(wanted):
            # The whole metric, in coordinates in which that of everyone is I.
            metric = without_class(P, codes, scale, c, rho) / np.outer(root, root)
            kept = in_gallery & (contest.codes != c)
            scatter = at.Z[kept].T @ at.Z[kept]
            R = np.linalg.inv(scatter + metric / lam)
            length = np.sqrt(at.Z[i] @ np.linalg.solve(metric, at.Z[i]))
            # In coordinates in which R of everyone is I.
            expected = L.T @ R @ at.Z[i] / length
            np.testing.assert_allclose(
                found.probes[k], expected, atol=1e-6 * np.abs(expected).max()
            )
            # The class was part of the centre.
            n_own, n_all = len(contest.index[c, contest.real[c]]), codes.size
            share = n_own / (n_all - n_own)
            answers = filters.filters @ expected + share * (0.5 + 0.5 / n_own)
            if filters.correlation is not None:
                r = filters.correlation
                gains = sizes_now / (1 + (sizes_now - 1) * r)
                scales = gains**0.375
                answers /= scales / np.exp(np.log(scales).mean())
            others = np.arange(len(sizes)) != c
            np.testing.assert_allclose(
                responses[k, others], answers[others], rtol=1e-6, atol=1e-6
            )
            assert responses[k, c] == -np.inf


@pytest.mark.parametrize("sizes", [[2] * 10, [4] * 8, [1, 2, 3, 2] * 3])
@pytest.mark.parametrize("lam", [0.03, 1.0])
@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_left_out_people_are_close_to_a_real_refit(sizes, lam, rho):
    """Filters learnt from scratch without the class give nearly these responses."""
    P, codes, scale, left_out = make_left_out(sizes, 30, noise=0.8)
    at = left_out.at(rho, 1)
    contest = at.contest
    everyone = np.arange(len(sizes))
    filters = GalleryFilters(at, lam, None)
    deviations = left_out.class_deviations(rho, everyone)
    people = LeftOutPeople(filters, deviations, everyone, 9)
    found = people.probes @ filters.filters.T
    rows = contest.rows[people.places]
    expected, got = [], []
    for k, (c, i) in enumerate(zip(people.own_classes, rows, strict=True)):
        S = without_class(P, codes, scale, c, rho)
        Z = unit_rows(np.linalg.solve(np.linalg.cholesky(S), P.T).T)
        known = codes != c
        for other in everyone[everyone != c]:
            expected.append(slow_filter(Z[known], codes[known], other, lam) @ Z[i])
            got.append(found[k, other])
    # Weights of other classes are kept, which is a change of second order.
    assert np.corrcoef(expected, got)[0, 1] > 0.98
    assert np.abs(np.subtract(expected, got)).mean() < 0.25 * np.std(expected)


def test_people_of_copies_are_left_out_too():
    A, codes = make_data([3] * 6, 14, unit=False)
    A[1] = A[0]
    A[codes == 3] = A[codes == 3][0]
    P, codes, scale, left_out = in_eigenvectors(A, codes, contest_of(codes))
    rho, lam = 0.3, 0.5
    at = left_out.at(rho, 3)
    everyone = np.arange(6)
    root = np.sqrt(left_out.variances + rho)
    for slot in (None, 0, 2):
        filters = GalleryFilters(at, lam, slot)
        found = LeftOutPeople(
            filters, left_out.class_deviations(rho, everyone), everyone, 3
        )
        assert np.isfinite(found.probes).all()
        contest = at.contest
        kept = np.ones(18, dtype=bool)
        if slot is not None:
            kept[contest.index[:, slot]] = False
        for k, (c, i) in enumerate(zip(found.own_classes, found.places, strict=True)):
            metric = without_class(P, codes, scale, c, rho) / np.outer(root, root)
            rest = at.Z[kept & (contest.codes != c)]
            z = np.linalg.solve(rest.T @ rest + metric / lam, at.Z[i])
            length = np.sqrt(at.Z[i] @ np.linalg.solve(metric, at.Z[i]))
            expected = np.tril(filters.factor).T @ z / length
            np.testing.assert_allclose(found.probes[k], expected, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6).filter(
        lambda sizes: max(sizes) > 1
    ),
    lam=st.sampled_from([0.03, 0.3, 3.0]),
    fair=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_correlation_is_that_of_energies_of_a_loop(sizes, lam, fair, seed):
    _, _, _, left_out = make_left_out(sizes, seed=seed)
    at = left_out.at(0.5, 1)
    contest = at.contest
    filters = GalleryFilters(at, lam, 0 if fair else None)
    used = np.ones(contest.codes.size, dtype=bool)
    if fair:
        used[contest.index[contest.left_out(0), 0]] = False
    counts = np.bincount(contest.codes[used], minlength=len(sizes))
    if np.ptp(counts) == 0:
        assert filters.correlation is None
        return
    energies = []
    for c in range(len(sizes)):
        weights = slow_filter(at.Z[used], contest.codes[used], c, lam)
        others = at.Z[used & (contest.codes != c)]
        energies.append(np.mean([(row @ weights) ** 2 for row in others]))
    # At the ends of the interval the likelihood is flat.
    expected = pooled_correlation(np.array(energies), counts)
    assert filters.correlation == pytest.approx(expected, abs=2e-3)


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 5), min_size=2, max_size=6),
    lam=st.sampled_from([0.03, 0.3, 3.0]),
    seed=st.integers(0, 999),
)
def test_responses_to_single_samples_are_those_of_a_loop(sizes, lam, seed):
    """Each other sample of the class alone has the filter R z / (z'R z)."""
    _, _, _, left_out = make_left_out(sizes, seed=seed)
    at = left_out.at(0.5, 2)
    contest = at.contest
    filters = GalleryFilters(at, lam, None)
    for slot, classes, part in contest.parts():
        found = LeftOutSlot(filters, slot, classes, part)
        for k, c in enumerate(classes):
            i = contest.index[c, slot]
            u = at.U[part][k]
            metric = np.eye(u.size) - np.outer(u, u)
            rest = np.delete(at.Z, i, axis=0)
            R = np.linalg.inv(rest.T @ rest + metric / lam)
            whole = np.linalg.inv(at.Z.T @ at.Z + np.eye(u.size) / lam)
            length = np.sqrt(at.Z[i] @ np.linalg.solve(metric, at.Z[i]))
            own = contest.index[c, contest.real[c]]
            single = [
                at.Z[j] @ R @ at.Z[i] / length / (at.Z[j] @ whole @ at.Z[j])
                for j in own[own != i]
            ]
            assert found.single_responses[k] == pytest.approx(
                np.mean(single), rel=1e-6, abs=1e-8
            )


def test_classes_of_a_contest(monkeypatch):
    monkeypatch.setattr(_leave_one_out, "_MOST_CLASSES", 5)
    assert contest_classes(np.array([1, 2, 1, 3, 1])).tolist() == [0, 1, 2, 3, 4]
    # Evenly spaced among those of several samples.
    counts = np.where(np.arange(30) % 3 == 0, 1, 4)
    found = contest_classes(counts)
    assert found.size == 5
    assert (np.diff(found) > 0).all()
    assert (counts[found] > 1).all()
    assert (found[0], found[-1]) == (1, 29)
    # All of these, and some of one sample.
    few = contest_classes(np.where(np.arange(30) > 26, 2, 1))
    assert {27, 28, 29} <= set(few.tolist())
    assert few.size == 5


@pytest.mark.parametrize("seed", [None, 3])
def test_a_contest_is_the_same_without_the_classes_that_take_no_part(monkeypatch, seed):
    # In a fit in parts, only the samples that take part are at hand, by class.
    monkeypatch.setattr(_leave_one_out, "_MOST_CLASSES", 5)

    def contest_of_codes(codes):
        state = None if seed is None else np.random.RandomState(seed)
        return make_contest(codes, state)

    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat(np.arange(12), [1, 5, 3] * 4))
    classes = contest_classes(np.bincount(codes))
    rows = np.concatenate([np.flatnonzero(codes == c) for c in classes])
    everyone = contest_of_codes(codes)
    alone = contest_of_codes(np.searchsorted(classes, codes[rows]))
    np.testing.assert_array_equal(rows[alone.rows], everyone.rows)
    np.testing.assert_array_equal(alone.index, everyone.index)
    np.testing.assert_array_equal(alone.real, everyone.real)
