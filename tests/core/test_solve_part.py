"""Classes that are solved apart from the others, by the scatter of all samples."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.core import shared_spectrum, solve_certified, solve_part
from dualqml.core.spectrum import norm_scale, scatter_spectrum
from tests.core.families import FAMILIES, true_gap_and_violation
from tests.problems import make_data, members_of

TOL = 1e-6


def spectrum_of(X, **options):
    """What a part has to know of all samples."""
    squares = np.einsum("ij,ij->i", X, X)
    norms = float(squares.min()), float(squares.max())
    return shared_spectrum(X.T @ X, len(X), norms, **options)


def parts_of(labels, part_of_class):
    """Classes of each part, its rows, and the members among these rows."""
    for part in np.unique(part_of_class):
        classes = np.flatnonzero(part_of_class == part)
        own = [np.flatnonzero(labels == c) for c in classes]
        ends = np.cumsum([rows.size for rows in own])
        yield classes, np.concatenate(own), np.split(np.arange(ends[-1]), ends[:-1])


def solved_in_parts(X, labels, lam, part_of_class, shared, **options):
    """Factors, multipliers, gap, violation and rounding limit of each class."""
    found = {}
    for classes, rows, members in parts_of(labels, part_of_class):
        part = solve_part(X[rows], members, lam, shared, **options)
        first = np.concatenate([[0], np.cumsum(part.ranks)])
        for k, c in enumerate(classes):
            found[int(c)] = (
                part.components[first[k] : first[k + 1]],
                part.multipliers[members[k]],
                part.certificate.gap[k],
                part.certificate.violation[k],
                part.rounding_limited[k],
            )
    return [found[c] for c in range(len(found))]


def responses(X, factors):
    return ((X @ factors.T) ** 2).sum(axis=1)


@st.composite
def divided_problems(draw):
    """Rows, labels and the part of each class; few classes or samples, or many."""
    n_classes = draw(st.integers(1, 8))
    largest = draw(st.sampled_from([1, 4, 30, 200]))
    sizes = draw(
        st.lists(st.integers(1, largest), min_size=n_classes, max_size=n_classes)
    )
    n_features = draw(st.integers(2, 24))
    X, labels = make_data(
        sizes,
        n_features,
        noise=draw(st.sampled_from([0.1, 0.5, 2.0])),
        seed=draw(st.integers(0, 10_000)),
        centre=False,
        unit=draw(st.booleans()),
    )
    n_parts = draw(st.integers(1, n_classes))
    part_of_class = draw(
        st.lists(st.integers(0, n_parts - 1), min_size=n_classes, max_size=n_classes)
    )
    return X, labels, np.array(part_of_class)


@settings(max_examples=60, deadline=None)
@given(
    problem=divided_problems(),
    lam=st.floats(-3.0, 6.0).map(lambda power: 10.0**power),
    scale=st.sampled_from([1.0, 1e3, 1e-3]),
)
def test_any_division_of_the_classes_is_the_local_solution(problem, lam, scale):
    X, labels, part_of_class = problem
    # Samples of another scale are the same problem with another lambda.
    X = scale * X
    lam = lam / float(np.einsum("ij,ij->", X, X) / len(X)) ** 2
    local = solve_certified(X, members_of(labels), lam)
    found = solved_in_parts(X, labels, lam, part_of_class, spectrum_of(X))
    blocks = np.split(local.components, np.cumsum(local.ranks)[:-1])
    squares = np.einsum("ij,ij->i", X, X)
    bounds = zip(local.certificate.gap, local.certificate.primal, strict=True)
    for block, (local_gap, primal), (factors, _, gap, violation, limited) in zip(
        blocks, bounds, found, strict=True
    ):
        if max(gap, violation) > TOL:
            # Only as far as rounding goes: with fewer samples than features and a large
            # lambda, only the local fit can prove more.
            assert limited
            continue
        # The objective is strongly convex: solutions within their gaps are so near to
        # each other. Mostly they are equal to 1e-8, but on some processors one of them
        # ends a step earlier.
        near = np.sqrt(2.0 * primal) * (np.sqrt(gap) + np.sqrt(local_gap)) * squares
        expected = responses(X, block)
        difference = np.abs(responses(X, factors) - expected)
        assert (difference <= 2.0 * near + 1e-6 * expected.max()).all()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_certificates_of_parts_are_true_in_60_digits(family):
    for seed in range(8):
        rng = np.random.default_rng([seed, len(family.__name__), 5])
        problem = family(rng)
        X = problem.X
        squares = np.einsum("ij,ij->i", X, X)
        hard = problem.lam * squares.mean() ** 2 > 1e6
        # One sample after the other in a tree, as the sums of parts are merged.
        scatter, depth = [np.outer(x, x) for x in X], 1
        while len(scatter) > 1:
            pairs = itertools.zip_longest(scatter[::2], scatter[1::2])
            scatter = [a if b is None else a + b for a, b in pairs]
            depth += 1
        norms = float(squares.min()), float(squares.max())
        shared = shared_spectrum(scatter[0], len(X), norms, longest_sum=depth)
        part_of_class = rng.integers(0, 3, problem.sizes.size)
        found = solved_in_parts(X, problem.labels, problem.lam, part_of_class, shared)
        for own, (factors, dual, gap, violation, limited) in zip(
            problem.members, found, strict=True
        ):
            truth = true_gap_and_violation(X, own, problem.lam, factors, dual)
            assert gap >= truth[0] >= -1e-40
            assert violation >= truth[1]
            # Classes that are extremely hard are not solved again, one by one.
            assert max(gap, violation) <= TOL or limited or hard


@pytest.mark.parametrize("sizes", [[3] * 40, [1] * 60, [1, 200, 7, 2, 90, 30]])
def test_a_class_does_not_depend_on_its_part(sizes):
    X, labels = make_data(sizes, 20, centre=False)
    shared = spectrum_of(X)
    each = np.arange(len(sizes))
    together = solved_in_parts(X, labels, 1.0, 0 * each, shared)
    for part_of_class in (each, each % 2, each // 3):
        found = solved_in_parts(X, labels, 1.0, part_of_class, shared)
        for one, other in zip(found, together, strict=True):
            # Products of other numbers of rows may round differently.
            for ours, theirs in zip(one[:2], other[:2], strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
            assert max(one[2:4]) <= TOL


def test_a_part_is_the_same_to_the_last_bit_in_any_number_of_threads():
    X, labels = make_data([3] * 300, 16, centre=False)
    shared, members = spectrum_of(X), members_of(labels)
    one, four = (solve_part(X, members, 1.0, shared, n_jobs=n) for n in (1, 4))
    np.testing.assert_array_equal(one.components, four.components)
    np.testing.assert_array_equal(one.multipliers, four.multipliers)
    np.testing.assert_array_equal(one.certificate.gap, four.certificate.gap)


def test_directions_without_samples_and_scaled_rows():
    X, labels = make_data([4] * 12, 6, centre=False)
    basis, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(10, 10)))
    wide = 1e4 * X @ basis[:6]
    shared = spectrum_of(wide)
    assert shared.eigenvalues.size == 6
    assert shared.outside.shape == (10, 4)
    found = solved_in_parts(wide, labels, 2e-16, np.arange(12) % 3, shared)
    expected = solve_certified(X, members_of(labels), 2.0)
    blocks = np.split(expected.components, np.cumsum(expected.ranks)[:-1])
    for block, (factors, _, gap, violation, _) in zip(blocks, found, strict=True):
        np.testing.assert_allclose(
            responses(wide, factors), responses(X, block), rtol=0, atol=1e-9
        )
        assert max(gap, violation) <= TOL


def test_samples_within_the_error_of_the_scatter_have_no_constraint():
    # In a part, there may be no others.
    X, labels = make_data([3, 3, 3], 4, centre=False)
    X[labels == 1] *= 1e-9
    found = solved_in_parts(X, labels, 1.0, np.arange(3), spectrum_of(X))
    factors, multipliers, gap, violation, limited = found[1]
    assert factors.shape == (0, 4)
    assert (multipliers == 0.0).all()
    assert gap == np.inf
    assert violation == 1.0
    assert not limited
    assert all(max(found[c][2:4]) <= TOL for c in (0, 2))


def test_the_shared_spectrum_is_that_of_the_samples():
    X, _ = make_data([3] * 30, 12, unit=False)
    X *= 100.0
    shared, scale = spectrum_of(X), norm_scale(float(np.vdot(X, X)) / len(X))
    assert shared.scale == scale
    assert np.log2(scale) == np.round(np.log2(scale))
    local = scatter_spectrum(X / scale)
    np.testing.assert_allclose(shared.eigenvalues, local.eigenvalues, rtol=1e-12)
    np.testing.assert_allclose(shared.scatter_error, local.scatter_error, rtol=1e-9)
    rows = shared.of_rows(X[:5] / scale)
    assert rows.n_samples == len(X)
    np.testing.assert_allclose(rows.squared_norms, local.squared_norms[:5], rtol=1e-14)
    np.testing.assert_allclose(
        abs(rows.coordinates), abs(local.coordinates[:5]), atol=1e-12
    )


def test_many_samples_are_certified_by_how_their_scatter_was_summed():
    # A hundred thousand times as many people as there are here.
    X, labels = make_data([3] * 40, 16, centre=False)
    X *= 0.7 ** np.arange(16)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    many = 100_000
    scatter, n_samples = many * (X.T @ X), many * len(X)
    squares = np.einsum("ij,ij->i", X, X)
    norms = float(squares.min()), float(squares.max())
    members = members_of(labels)
    plain = shared_spectrum(scatter, n_samples, norms)
    assert solve_part(X, members, 10.0, plain).rounding_limited.all()
    summed = shared_spectrum(scatter, n_samples, norms, longest_sum=8000)
    assert summed.scatter_error < 1e-2 * plain.scatter_error
    found = solve_part(X, members, 10.0, summed)
    assert found.certificate.worst.max() <= TOL
    assert not found.rounding_limited.any()
