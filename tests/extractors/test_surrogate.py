import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.extractors._surrogate import SurrogateFilters, class_blocks
from tests.problems import make_data


def slow_filters(Z, codes, lam):
    """Each filter from the optimality conditions of its own small problem."""
    n_features = Z.shape[1]
    filters = []
    for c in range(codes.max() + 1):
        # Copies ask for the same: a constraint may be stated once.
        own, others = np.unique(Z[codes == c], axis=0), Z[codes != c]
        n_own = own.shape[0]
        hessian = 2.0 * (lam * others.T @ others + np.eye(n_features))
        system = np.block([[hessian, -own.T], [own, np.zeros((n_own, n_own))]])
        target = np.concatenate([np.zeros(n_features), np.ones(n_own)])
        filters.append(np.linalg.solve(system, target)[:n_features])
    return np.array(filters)


def both_forms(Z, probes, codes, lam):
    for by_samples in (True, False):
        filters = SurrogateFilters(Z, probes, codes)
        if filters.uses_samples != by_samples:
            filters.uses_samples = by_samples
            if by_samples:
                filters.gram = filters.Z @ filters.Z.T
                filters.cross = probes @ filters.Z.T
            else:
                filters.gram = filters.Z.T @ filters.Z
        yield filters.responses(lam)


def check(Z, probes, codes, lam):
    filters = slow_filters(Z, codes, lam)
    blocks = [np.unique(Z[codes == c], axis=0) for c in range(codes.max() + 1)]
    # The ridge against copies, 1e-9, is felt where samples are nearly dependent.
    worst = max(np.linalg.cond(own @ own.T) for own in blocks)
    tolerance = 1e-7 + 3e-8 * worst
    for training, asked in both_forms(Z, probes, codes, lam):
        for actual, rows in [(training, Z), (asked, probes)]:
            expected = rows @ filters.T
            scale = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(actual, expected, atol=tolerance * scale)
        own = training[np.arange(codes.size), codes]
        np.testing.assert_allclose(own, 1.0, atol=tolerance)


def shuffled(sizes, n_features, seed, noise=0.5):
    Z, codes = make_data(sizes, n_features, noise=noise, seed=seed, centre=False)
    order = np.random.default_rng(seed).permutation(codes.size)
    return Z[order], codes[order]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6),
    n_features=st.integers(8, 30),
    lam=st.sampled_from([1e-3, 0.03, 0.3, 1.0, 30.0]),
    seed=st.integers(0, 10_000),
)
def test_both_forms_are_the_filters_of_the_constrained_problem(
    sizes, n_features, lam, seed
):
    Z, codes = shuffled(sizes, n_features, seed)
    probes = np.random.default_rng(seed + 1).normal(size=(4, n_features))
    check(Z, probes, codes, lam)


@pytest.mark.parametrize(
    ("n_samples", "by_samples"), [(12, True), (15, True), (16, False)]
)
def test_the_form_is_chosen_by_the_shape(n_samples, by_samples, rng):
    Z = rng.normal(size=(n_samples, 10))
    assert SurrogateFilters(Z, Z, np.arange(n_samples) % 4).uses_samples == by_samples


def test_the_two_forms_agree_when_chosen_by_shape(rng):
    # Zero features change no scalar product, but make the by_samples form the choice.
    Z, codes = shuffled([3, 4, 2, 4, 3, 4], 10, seed=2)
    probes = rng.normal(size=(5, 10))
    by_features = SurrogateFilters(Z, probes, codes)
    by_samples = SurrogateFilters(
        *(np.hstack([rows, np.zeros((len(rows), 40))]) for rows in (Z, probes)), codes
    )
    assert by_samples.uses_samples
    assert not by_features.uses_samples
    for lam in (0.03, 1.0):
        for ours, theirs in zip(
            by_features.responses(lam), by_samples.responses(lam), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_filters_of_one_lam_do_not_change_those_of_another(rng):
    Z, codes = shuffled([3, 4, 2], 20, seed=1)
    for n_features in (20, 4):
        part = Z[:, :n_features]
        reused = SurrogateFilters(part, part, codes)
        reused.responses(10.0)
        fresh = SurrogateFilters(part, part, codes)
        for ours, theirs in zip(
            reused.responses(0.1), fresh.responses(0.1), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_features", [12, 60])
def test_classes_of_very_different_sizes(n_features, rng):
    Z, codes = shuffled([1, 9, 2, 1, 5], n_features, seed=4)
    check(Z, rng.normal(size=(3, n_features)), codes, 0.3)


@pytest.mark.parametrize("n_features", [4, 40])
def test_one_sample_in_every_class(n_features, rng):
    Z, codes = shuffled([1] * 7, n_features, seed=5)
    check(Z, rng.normal(size=(3, n_features)), codes, 0.3)


@pytest.mark.parametrize("n_features", [6, 40])
def test_copies_of_a_sample_in_a_class_share_its_weight(n_features, rng):
    Z, codes = shuffled([2, 3, 2, 3], n_features, seed=6)
    again = np.concatenate([np.arange(10), [0, 0, 3]])
    probes = rng.normal(size=(3, n_features))
    check(Z[again], probes, codes[again], 0.3)


@pytest.mark.parametrize("n_features", [6, 40])
def test_the_same_sample_in_two_classes(n_features, rng):
    Z, codes = shuffled([2, 3, 2, 3], n_features, seed=7)
    first, second = np.flatnonzero(codes == 0)[0], np.flatnonzero(codes == 1)[0]
    Z[second] = Z[first]
    check(Z, rng.normal(size=(3, n_features)), codes, 0.3)


@pytest.mark.parametrize("n_features", [6, 40])
def test_a_sample_of_zeros_changes_nothing_and_is_not_nan(n_features, rng):
    Z, codes = shuffled([2, 3, 2, 3], n_features, seed=8)
    probes = rng.normal(size=(3, n_features))
    filters = slow_filters(Z, codes, 0.3)
    with_zero = np.vstack([Z, np.zeros((1, n_features))])
    for training, asked in both_forms(with_zero, probes, np.append(codes, 1), 0.3):
        np.testing.assert_allclose(training[:-1], Z @ filters.T, atol=1e-5)
        np.testing.assert_allclose(training[-1], 0.0, atol=1e-5)
        np.testing.assert_allclose(asked, probes @ filters.T, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(n_features=st.sampled_from([5, 30]), seed=st.integers(0, 10_000))
def test_the_order_of_the_samples_does_not_matter(n_features, seed):
    Z, codes = make_data([2, 3, 1, 3], n_features, seed=seed, centre=False)
    probes = Z[::2] + 0.1
    training, asked = SurrogateFilters(Z, probes, codes).responses(0.3)
    order = np.random.default_rng(seed).permutation(codes.size)
    again, asked_again = SurrogateFilters(Z[order], probes, codes[order]).responses(0.3)
    np.testing.assert_allclose(again, training[order], atol=1e-6)
    np.testing.assert_allclose(asked_again, asked, atol=1e-6)


def test_blocks_are_the_sorted_samples_of_each_class(rng):
    codes = np.array([2, 0, 1, 0, 2, 0])
    blocks = class_blocks(codes, 3)
    np.testing.assert_array_equal(blocks.order, [1, 3, 5, 2, 0, 4])
    np.testing.assert_array_equal(blocks.sorted_codes, [0, 0, 0, 1, 2, 2])
    np.testing.assert_array_equal(blocks.real.sum(axis=1), [3, 1, 2])
    for c in range(3):
        rows = blocks.order[blocks.index[c][blocks.real[c]]]
        np.testing.assert_array_equal(rows, np.flatnonzero(codes == c))
