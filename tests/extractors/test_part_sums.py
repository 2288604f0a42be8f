"""Sums over parts against the same sums over all samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml._linalg import class_means, unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.extractors import part_sums
from dualqml.extractors.part_sums import (
    CoordinateSums,
    CosineSums,
    InputSums,
    PartRows,
    count_parts,
    input_rows,
    label_hashes,
    merged_in_tree,
    part_numbers,
)
from tests.problems import make_data

words = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)


@given(
    n_samples=st.integers(1, 10**9),
    n_features=st.integers(1, 1280),
    part_bytes=st.sampled_from([1000, 64_000_000]),
)
def test_parts_are_as_large_as_asked_for(n_samples, n_features, part_bytes):
    n_parts = count_parts(n_samples, n_features, part_bytes)
    n_bytes = 8 * n_samples * n_features
    if n_samples <= n_features:
        assert n_parts == 1
        return
    assert n_parts >= 1
    assert n_parts * part_bytes >= n_bytes
    assert n_parts == 1 or (n_parts - 1) * part_bytes < n_bytes


def test_a_million_people_are_in_48_parts():
    assert count_parts(3_000_000, 128) == 48
    assert count_parts(1, 1) == 1


@given(labels=st.lists(words, min_size=1, max_size=30), wider=st.integers(0, 40))
def test_text_has_the_same_hash_at_any_width(labels, wider):
    given_labels = np.array(labels)
    width = max(1, given_labels.dtype.itemsize // 4) + wider
    hashes = label_hashes(given_labels)
    np.testing.assert_array_equal(
        hashes, label_hashes(given_labels.astype(f"U{width}"))
    )
    each = [label_hashes(np.array([label]))[0] for label in labels]
    np.testing.assert_array_equal(hashes, each)
    # 64 bits: two of thirty words are equal by chance once in 10^16 times.
    assert np.unique(hashes).size == len(set(labels))


@given(
    labels=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50),
)
def test_different_numbers_have_different_hashes(labels):
    hashes = label_hashes(np.array(labels, dtype=np.int64))
    # Each step of the hash can be undone, so there are no exceptions at all.
    assert np.unique(hashes).size == len(set(labels))


def test_hashes_are_those_of_the_published_generator():
    # The first numbers of SplitMix64 with seed 0, and files that were written before.
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        labels = (np.arange(3, dtype=np.uint64) * step).view(np.int64)
    assert [hex(value) for value in label_hashes(labels)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_hashes_of_small_numbers_are_those_of_wide_ones():
    labels = np.array([0, 1, 7, 100])
    for dtype in (np.int8, np.uint8, np.int32):
        np.testing.assert_array_equal(
            label_hashes(labels.astype(dtype)), label_hashes(labels)
        )


def test_equal_letters_in_another_order_have_other_hashes():
    assert np.unique(label_hashes(np.array(["ab", "ba", "aab", "aba", ""]))).size == 5


@given(
    hashes=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50),
    n_parts=st.integers(1, 10**6),
)
def test_parts_are_in_the_order_of_the_hashes(hashes, n_parts):
    values = np.array(sorted(hashes), dtype=np.uint64)
    parts = part_numbers(values, n_parts)
    assert (np.diff(parts) >= 0).all()
    assert parts[0] >= 0
    assert parts[-1] < n_parts
    assert part_numbers(np.array([2**64 - 1], dtype=np.uint64), n_parts) == n_parts - 1


@pytest.mark.parametrize("text", [False, True])
def test_classes_are_spread_evenly(text):
    labels = np.arange(20_000)
    hashes = label_hashes(
        np.char.add("person ", labels.astype(str)) if text else labels
    )
    counts = np.bincount(part_numbers(hashes, 20), minlength=20)
    # Six standard deviations of a fair division.
    assert abs(counts - 1000).max() < 6 * np.sqrt(1000)


@pytest.mark.parametrize("n_parts", range(1, 20))
def test_the_tree_keeps_the_order_and_is_shallow(n_parts):
    # The leaves in order, and the depth.
    def merge(a, b):
        return a[0] + b[0], max(a[1], b[1]) + 1

    leaves, depth = merged_in_tree((((k,), 0) for k in range(n_parts)), merge)
    assert leaves == tuple(range(n_parts))
    assert depth == int(np.ceil(np.log2(n_parts)))


def part_of(counts, n_features, *, seed=0, scale=1.0):
    X, codes = make_data(counts, n_features, seed=seed, centre=False, unit=False)
    return PartRows(scale * (X + 3.0), np.array(counts)), codes


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    most=st.integers(1, 40),
)
def test_chunks_have_whole_classes_and_all_rows(counts, most):
    part, codes = part_of(counts, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_sums, "_CHUNK_BYTES", 8 * 3 * most)
        chunks = list(part.chunks())
    rows = np.concatenate([np.arange(rows.start, rows.stop) for rows, _ in chunks])
    np.testing.assert_array_equal(rows, np.arange(codes.size))
    np.testing.assert_array_equal(part.codes, codes)
    for rows, classes in chunks:
        assert set(codes[rows]) == set(range(classes.start, classes.stop))
        # More than asked for only if a class is.
        n_rows = rows.stop - rows.start
        assert n_rows <= most or classes.stop - classes.start == 1


@settings(deadline=None)
@given(
    sizes=st.lists(
        st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6
    ),
    unit=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    chunk_rows=st.sampled_from([1, 7, 1000]),
)
def test_merged_sums_are_those_of_all_samples(sizes, unit, scale, chunk_rows):
    parts = [part_of(s, 5, seed=k, scale=scale)[0] for k, s in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_sums, "_CHUNK_BYTES", 8 * 5 * chunk_rows)
        found = merged_in_tree(
            (InputSums.of_part(part, unit=unit, cosines=True) for part in parts),
            InputSums.merged,
        )
    X = input_rows(np.concatenate([part.rows for part in parts]), unit=unit)
    codes = np.repeat(np.arange(sum(map(len, sizes))), np.concatenate(sizes))
    means, _ = class_means(X, codes)
    squares = np.einsum("ij,ij->i", X, X)
    centred, inner = X - X.mean(axis=0), X - means[codes]
    assert found.n_samples == codes.size
    assert found.n_classes == codes.max() + 1
    tolerance = {"rtol": 1e-11, "atol": 1e-11 * float(squares.sum())}
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.total, centred.T @ centred, **tolerance)
    np.testing.assert_allclose(found.within, inner.T @ inner, **tolerance)
    np.testing.assert_allclose(found.class_mean_sum, means.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.input_scatter, X.T @ X, **tolerance)
    np.testing.assert_allclose(found.square_sum, squares.sum(), rtol=1e-12)
    assert found.largest_square == squares.max()
    cosines, directions = found.cosines, unit_rows(means)
    own = np.einsum("ij,ij->i", X, directions[codes])
    np.testing.assert_allclose(
        cosines.mean_scatter, directions.T @ directions, rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(cosines.mean_sum, directions.sum(axis=0), atol=1e-11)
    np.testing.assert_allclose(cosines.own, own.sum(), rtol=1e-11)
    np.testing.assert_allclose(cosines.own_squares, own @ own, rtol=1e-11)


def test_sums_without_cosines_have_none():
    part, _ = part_of([2, 3], 4)
    found = InputSums.of_part(part, unit=True)
    with_them = InputSums.of_part(part, unit=True, cosines=True)
    assert found.cosines is None
    assert isinstance(with_them.cosines, CosineSums)
    assert found.merged(with_them).cosines is None


def test_a_scatter_of_samples_far_from_zero_keeps_its_digits():
    # Not by the difference of two large sums.
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(4000, 3))
    parts = np.split(1e7 + spread, 4)
    counts = np.full(500, 2)
    found = merged_in_tree(
        (InputSums.of_part(PartRows(rows, counts), unit=False) for rows in parts),
        InputSums.merged,
    )
    centred = spread - spread.mean(axis=0)
    np.testing.assert_allclose(found.total, centred.T @ centred, rtol=1e-6, atol=1e-4)


def test_equal_samples_are_an_error_and_others_are_not():
    rows = np.full((4, 3), 0.1)
    counts = np.array([2, 2])
    same = InputSums.of_part(PartRows(rows, counts), unit=True)
    with pytest.raises(DualQMLError, match="All samples are equal"):
        same.check_different()
    with pytest.raises(DualQMLError, match="All samples are equal"):
        InputSums.of_part(PartRows(0.0 * rows, counts), unit=True).check_different()
    rows[0, 0] += 1e-9
    InputSums.of_part(PartRows(rows, counts), unit=True).check_different()


def test_a_single_feature_is_not_scaled():
    rows = np.array([[2.0], [-3.0]])
    np.testing.assert_array_equal(input_rows(rows, unit=True), rows)
    wide = np.array([[3.0, 4.0]], dtype=np.float32)
    np.testing.assert_allclose(input_rows(wide, unit=True), [[0.6, 0.8]])
    assert input_rows(wide, unit=False).dtype == np.float64


def test_merged_coordinate_sums():
    one = CoordinateSums(np.eye(2), 3, (0.5, 2.0), 3)
    other = CoordinateSums(2.0 * np.eye(2), 4, (0.25, 1.0), 9)
    found = one.merged(other)
    np.testing.assert_array_equal(found.scatter, 3.0 * np.eye(2))
    assert found.n_used == 7
    assert found.squared_norm_range == (0.25, 2.0)
    assert found.longest_sum == 10
