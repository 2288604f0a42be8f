import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.core.class_chunks import class_chunks

sizes_lists = st.lists(st.integers(1, 30), min_size=1, max_size=80)


def members_from(sizes):
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


@given(sizes=sizes_lists, chunk_bytes=st.sampled_from([1, 4000, 10**7]))
def test_every_class_is_in_one_chunk_with_all_its_samples(sizes, chunk_bytes):
    members = members_from(sizes)
    seen = []
    for chunk in class_chunks(members, 50, chunk_bytes):
        for row, c in enumerate(chunk.classes):
            seen.append(c)
            own = chunk.samples[row][chunk.real[row]]
            np.testing.assert_array_equal(own, members[c])
    assert sorted(seen) == list(range(len(sizes)))


@given(sizes=sizes_lists)
def test_padding_depends_on_the_size_of_the_class_alone(sizes):
    def padded(sizes, chunk_bytes):
        return {
            sizes[c]: chunk.samples.shape[1]
            for chunk in class_chunks(members_from(sizes), 50, chunk_bytes)
            for c in chunk.classes
        }

    together = padded(sizes, 10**9)
    assert together == padded(sizes, 1) == padded(sizes, 10_000)
    assert together == {size: padded([size], 1)[size] for size in sizes}


@given(sizes=sizes_lists)
def test_padding_is_bounded(sizes):
    for chunk in class_chunks(members_from(sizes), 50, 10**9):
        k = chunk.samples.shape[1]
        smallest = chunk.real.sum(axis=1).min()
        assert k <= 1.25 * smallest


def test_chunks_respect_the_memory_limit():
    members = members_from([4] * 100)
    for chunk in class_chunks(members, 1000, 320_000):
        assert chunk.classes.size == pytest.approx(10)


def test_gather_zeroes_padded_rows():
    (chunk,) = class_chunks(members_from([9, 10]), 4, 10**6)
    rows = np.arange(76.0).reshape(19, 4) + 1.0
    gathered = chunk.gather(rows)
    np.testing.assert_array_equal(gathered[0], [*rows[:9], np.zeros(4)])
    np.testing.assert_array_equal(gathered[1], rows[9:])


def test_classes_of_similar_sizes_are_in_one_chunk():
    found = class_chunks(members_from([17, 4, 20, 9, 10]), 50, 10**9)
    assert [chunk.samples.shape for chunk in found] == [(1, 4), (2, 10), (2, 20)]


def test_classes_without_samples_are_in_no_chunk():
    members = [np.arange(2), np.arange(0), np.arange(2, 4)]
    (chunk,) = class_chunks(members, 50, 10**9)
    assert sorted(chunk.classes) == [0, 2]
    assert class_chunks([np.arange(0)], 50, 10**9) == []


def test_gather_leaves_the_data_alone():
    members = members_from([9, 10])
    (chunk,) = class_chunks(members, 4, 10**6)
    rows = np.ones((19, 4))
    chunk.gather(rows)[:] = 7.0
    assert (rows == 1.0).all()
