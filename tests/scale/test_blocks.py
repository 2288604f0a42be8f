import math
import multiprocessing
import operator
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import cloudpickle
import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import BlockError, DatabaseError, MissingDependencyError
from dualqml.scale import _parquet_rows as module
from dualqml.scale.blocks import Block, BlockStream, RowBlocks, row_blocks

N, P = 103, 4
ROWS = np.random.default_rng(0).normal(size=(N, P))
NUMBERS = np.arange(N) // 3
NAMES = [f"Zoë {number}" for number in NUMBERS]


class Sent:
    """What Dask sends to a worker, for a pool that pickles."""

    def __init__(self, value):
        self.bytes = cloudpickle.dumps(value)

    def __reduce__(self):
        return cloudpickle.loads, (self.bytes,)


@pytest.fixture(scope="module")
def other_process(tmp_path_factory):
    """A process that runs in another folder, where relative paths are wrong."""
    with ProcessPoolExecutor(
        1,
        multiprocessing.get_context("spawn"),
        initializer=os.chdir,
        initargs=(tmp_path_factory.mktemp("elsewhere"),),
    ) as pool:
        yield lambda call: pool.submit(operator.call, Sent(call)).result()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Relative paths are allowed, and shorter in messages."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def client():
    with Client(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
    ) as client:
        yield client


def saved(name, array):
    np.save(name, array)
    return name


def as_npy(rows, labels):
    return saved("people.npy", rows), labels


def as_npy_of_both(rows, labels):
    return Path(saved("people.npy", rows)), Path(saved("names.npy", labels))


def as_fortran_npy(rows, labels):
    return saved("people.npy", np.asfortranarray(rows)), labels


def as_memory_map(rows, labels):
    return np.load(saved("people.npy", rows), mmap_mode="r"), labels


def as_raw_memory_map(rows, labels):
    # The rows are not at the beginning of the file, and not of the map.
    whole = np.memmap("raw", rows.dtype, "w+", offset=8, shape=(N + 2000, P))
    whole[1500 : 1500 + N] = rows
    return whole[1500 : 1500 + N], np.load(saved("y.npy", labels), mmap_mode="r")


def as_dask(rows, labels):
    chunks = ((20, 0, 50, 33), (1, 3))
    rows = da.from_array(rows, chunks=chunks).map_blocks(lambda block: -block)
    return -rows, da.from_array(np.array(labels), chunks=13)


def as_dask_with_labels_in_memory(rows, labels):
    return da.from_array(rows, chunks=(40, P)), labels


def as_zarr(rows, labels):
    array = zarr.create_array("people.zarr", data=rows, chunks=(10, 3))
    return array, labels


def as_zarr_path(rows, labels):
    group = zarr.create_group("people.zarr")
    group.create_array("rows", data=rows, chunks=(5, P), shards=(20, P))
    return Path("people.zarr", "rows"), labels


def as_zarr_in_group(rows, labels):
    as_zarr_path(rows, labels)
    return zarr.open_group("people.zarr", mode="r")["rows"], da.from_array(labels)


def as_zarr_of_version_2(rows, labels):
    zarr.create_array("people.zarr", data=rows, chunks=(10, P), zarr_format=2)
    return "people.zarr", labels


def vectors(rows, kind=pa.FixedSizeListArray):
    values = pa.array(rows.ravel())
    if kind is pa.FixedSizeListArray:
        return kind.from_arrays(values, rows.shape[1])
    ends = np.arange(len(rows) + 1) * rows.shape[1]
    return kind.from_arrays(pa.array(ends, kind_of_ends(kind)), values)


def kind_of_ends(kind):
    return pa.int64() if kind is pa.LargeListArray else pa.int32()


def table(rows, labels, kind=pa.FixedSizeListArray):
    # Columns beside a vector are not read.
    columns = {"city": ["?"] * len(rows), "vector": vectors(rows, kind)}
    return pa.table(columns | {"label": labels})


def written(path, found, group=30):
    pq.write_table(found, path, row_group_size=group)
    return str(path)


def as_parquet(rows, labels):
    return written("people.parquet", table(rows, labels)), "label"


def as_parquet_of_lists(rows, labels):
    found = table(rows, labels, pa.ListArray)
    return written("people.parquet", found, group=7), "label"


def as_parquet_of_large_lists(rows, labels):
    found = table(rows, pa.array(labels).dictionary_encode(), pa.LargeListArray)
    return Path(written("people.parquet", found)), "label"


def as_parquet_of_columns(rows, labels):
    frame = pd.DataFrame(rows, columns=[f"x.{k}" for k in range(P)])
    frame["label"] = labels
    # pandas keeps such an index as a column of numbers.
    frame.index = np.arange(N)[::-1]
    frame.to_parquet("people", row_group_size=25)
    return "people", "label"


def as_folder_of_parquet(rows, labels):
    os.makedirs("people/b")
    for name, part in [("a", slice(50)), ("b/a", slice(50, 51)), ("c", slice(51, N))]:
        written(f"people/{name}.parquet", table(rows[part], labels[part]))
    written("people/empty.parquet", table(rows, labels).slice(0, 0))
    Path("people/_metadata.parquet").write_text("not a table")
    return Path("people"), "label"


def as_list_of_parquet(rows, labels):
    as_folder_of_parquet(rows, labels)
    return [f"people/{name}.parquet" for name in ("a", "b/a", "c")], "label"


def as_parquet_with_labels_elsewhere(rows, labels):
    found = pa.table({f"{k}": rows[:, k] for k in range(P)})
    return written("people.parquet", found), saved("labels.npy", labels)


def as_array(rows, labels):
    return rows, labels


def as_fortran_array(rows, labels):
    return np.asfortranarray(rows), tuple(labels)


def as_frame(rows, labels):
    return pd.DataFrame(rows), pd.Series(labels, index=np.arange(N)[::-1])


def as_changed_memory_map(rows, labels):
    # The changes of such a map are not in the file.
    changed = np.load(saved("people.npy", np.zeros_like(rows)), mmap_mode="c")
    changed[:] = rows
    return changed, labels


def as_part_of_memory_map(rows, labels):
    wide = np.load(saved("people.npy", np.hstack([rows, rows])), mmap_mode="r")
    return wide[:, P:], labels


def as_zarr_in_memory(rows, labels):
    return zarr.create_array({}, data=rows, chunks=(10, P)), labels


ON_WORKERS = [
    as_npy,
    as_npy_of_both,
    as_fortran_npy,
    as_memory_map,
    as_raw_memory_map,
    as_dask,
    as_dask_with_labels_in_memory,
    as_zarr,
    as_zarr_path,
    as_zarr_in_group,
    as_zarr_of_version_2,
    as_parquet,
    as_parquet_of_lists,
    as_parquet_of_large_lists,
    as_parquet_of_columns,
    as_folder_of_parquet,
    as_list_of_parquet,
    as_parquet_with_labels_elsewhere,
]
HERE_ONLY = [
    as_array,
    as_fortran_array,
    as_frame,
    as_changed_memory_map,
    as_part_of_memory_map,
    as_zarr_in_memory,
]


def assert_same(blocks, rows, labels):
    start = 0
    for block in blocks:
        size = len(block.rows)
        assert block.first_row == start
        assert size > 0
        assert block.rows.flags.c_contiguous
        assert type(block.rows) is np.ndarray
        assert block.rows.dtype == rows.dtype
        np.testing.assert_array_equal(block.rows, rows[start : start + size])
        assert block.labels.dtype.kind == ("U" if isinstance(labels[0], str) else "i")
        assert block.labels.dtype.isnative
        assert block.labels.tolist() == list(labels[start : start + size])
        start += size
    assert start == len(rows)


def read_all(blocks):
    return [blocks.read(number) for number in range(len(blocks))]


@pytest.mark.parametrize("source", ON_WORKERS + HERE_ONLY)
def test_every_source_gives_the_same_rows_here_and_elsewhere(
    here, other_process, source
):
    for case, block_bytes in enumerate((1, 10 * P * 4, 77 * P * 8, 10**6)):
        folder = here / str(case)
        folder.mkdir()
        os.chdir(folder)
        rows = ROWS.astype("f4") if case % 2 else ROWS
        labels = NAMES if case < 2 else NUMBERS
        blocks = row_blocks(*source(rows, labels), block_bytes=block_bytes)
        assert isinstance(blocks, RowBlocks)
        assert (blocks.n_rows, blocks.n_features) == (N, P)
        assert blocks.dtype == rows.dtype
        assert blocks.on_workers is (source in ON_WORKERS)
        found = read_all(blocks)
        assert_same(found, rows, labels)
        numbers = range(len(blocks))
        assert_same([blocks.read(k) for k in numbers[::-1]][::-1], rows, labels)
        # Few of the many small blocks, to be quick.
        for k in numbers[:: 1 + len(blocks) // 3]:
            assert_same_block(other_process(blocks.reader(k)), found[k])
        if blocks.on_workers:
            last = numbers[-1]
            assert_same_block(other_process(partial(blocks.read, last)), found[last])


def assert_same_block(one, other):
    assert one.first_row == other.first_row
    assert one.rows.dtype == other.rows.dtype
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.labels, other.labels)


def test_blocks_of_an_array_are_views_that_cannot_be_written():
    rows = ROWS.copy()
    for block in read_all(row_blocks(rows, NUMBERS, block_bytes=500)):
        assert np.shares_memory(block.rows, rows)
        assert not block.rows.flags.writeable
    assert rows.flags.writeable


@pytest.mark.parametrize("source", [as_npy, as_dask_with_labels_in_memory])
def test_a_reader_has_nothing_of_other_blocks(here, source):
    rows, labels = np.zeros((20_000, P)), np.arange(20_000)
    blocks = row_blocks(*source(rows, labels), block_bytes=40 * P * 8)
    block = blocks.read(3)
    size = block.rows.nbytes + block.labels.nbytes
    assert len(cloudpickle.dumps(blocks.reader(3))) < size + 2000
    assert len(cloudpickle.dumps(blocks)) > labels.nbytes


@pytest.mark.parametrize(
    ("source", "block_bytes", "names"),
    [
        (as_array, 2000, ["rows 0 to 50 of the array", "rows 51 to 102 of the array"]),
        (as_npy, 10**6, ["rows 0 to 102 of people.npy"]),
        (as_dask, 1, [f"chunk {k} of the Dask array" for k in (0, 2, 3)]),
        (
            # Whole chunks of ten rows.
            as_zarr,
            70 * P * 8,
            ["rows 0 to 49 of the Zarr array", "rows 50 to 102 of the Zarr array"],
        ),
        (as_zarr_path, 10**6, ["rows 0 to 102 of people.zarr/rows"]),
        (
            as_parquet,
            60 * P * 8,
            [
                "row groups 0 to 1 of people.parquet",
                "row groups 2 to 3 of people.parquet",
            ],
        ),
        (
            as_parquet,
            20 * P * 8,
            [
                f"{name} of people.parquet"
                for name in (
                    "rows 0 to 14 of row group 0",
                    "rows 15 to 29 of row group 0",
                    "rows 0 to 14 of row group 1",
                    "rows 15 to 29 of row group 1",
                    "rows 0 to 14 of row group 2",
                    "rows 15 to 29 of row group 2",
                    "row group 3",
                )
            ],
        ),
        (
            as_folder_of_parquet,
            50 * P * 8,
            [
                "row groups 0 to 1 of people/a.parquet",
                "row group 0 of people/b/a.parquet",
                "row group 0 of people/c.parquet",
                "row group 1 of people/c.parquet",
            ],
        ),
    ],
)
def test_how_sources_are_cut_and_blocks_are_named(here, source, block_bytes, names):
    blocks = row_blocks(*source(ROWS, NUMBERS), block_bytes=block_bytes)
    assert [blocks.describe(number) for number in range(len(blocks))] == names


@given(
    n_rows=st.integers(1, 300),
    n_features=st.integers(1, 5),
    chunk=st.integers(1, 40),
    block_bytes=st.integers(1, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_cutting_covers_all_rows_once(n_rows, n_features, chunk, block_bytes):
    rows = np.arange(n_rows * n_features, dtype="f4").reshape(n_rows, n_features)
    labels = np.arange(n_rows)
    in_chunks = zarr.create_array({}, data=rows, chunks=(chunk, n_features))
    for X, unit in ((rows, 1), (in_chunks, chunk)):
        blocks = row_blocks(X, labels, block_bytes=block_bytes)
        found = read_all(blocks)
        assert_same(found, rows, labels)
        most = max(unit, block_bytes // (4 * n_features))
        sizes = [len(block.rows) for block in found]
        assert max(sizes) <= most
        # No fewer blocks would do, and none is much smaller than others.
        n_units = math.ceil(n_rows / unit)
        assert len(sizes) == math.ceil(n_units / (most // unit))
        assert all(block.first_row % unit == 0 for block in found)
        assert max(sizes) - min(sizes[:-1], default=max(sizes)) <= unit


@given(
    groups=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    block_bytes=st.integers(1, 400),
)
@settings(max_examples=60, deadline=None)
def test_row_groups_are_cut_and_joined(tmp_path_factory, groups, block_bytes):
    path = tmp_path_factory.getbasetemp() / "groups.parquet"
    rows = np.arange(2.0 * sum(groups), dtype="f4").reshape(-1, 2)
    labels = np.arange(len(rows))
    whole = table(rows, labels)
    ends = np.cumsum(groups)
    with pq.ParquetWriter(path, whole.schema) as writer:
        for size, end in zip(groups, ends, strict=True):
            writer.write_table(whole.slice(end - size, size))
    found = read_all(row_blocks(path, "label", block_bytes=block_bytes))
    assert_same(found, rows, labels)
    most = max(1, block_bytes // 8)
    bounds = [*(block.first_row for block in found), len(rows)]
    assert np.diff(bounds).max() <= most
    ends = {0, *ends}
    are_whole = [{start, stop} <= ends for start, stop in pairwise(bounds)]
    for (start, stop), is_whole in zip(pairwise(bounds), are_whole, strict=True):
        # A row group is joined with others or cut, not both.
        assert is_whole or not ends & set(range(start + 1, stop))
    for k, both in enumerate(pairwise(are_whole)):
        # What can be joined is joined.
        assert not all(both) or bounds[k + 2] - bounds[k] > most


def test_pieces_of_a_row_group_are_decoded_in_one_pass(here, monkeypatch):
    started = []
    begin = module._read_from_beginning

    def counting(part):
        started.append(part.cut.name)
        return begin(part)

    monkeypatch.setattr(module, "_read_from_beginning", counting)
    path = written("people.parquet", table(ROWS, NUMBERS), group=60)
    blocks = row_blocks(path, "label", block_bytes=10 * P * 8)
    assert_same(read_all(blocks), ROWS, NUMBERS)
    assert len(started) == 2
    # Workers leave out the blocks of others.
    for number in (0, 2, 5):
        blocks.read(number)
    assert len(started) == 3
    blocks.read(1)
    assert len(started) == 4


def test_peak_memory_is_that_of_a_block(tmp_path):
    # Files with holes take no time to write.
    np.lib.format.open_memmap(tmp_path / "big.npy", "w+", "f4", (400_000, 125))
    group = pa.table({"v": vectors(np.zeros((60_000, 125), "f4")), "y": range(60_000)})
    # Zeros would be a few bytes as a dictionary.
    pq.write_table(group, tmp_path / "big.parquet", use_dictionary=False)
    script = """
import sys
import numpy as np, pyarrow.parquet
from dualqml.scale import row_blocks
from tests.peak_memory import peak_bytes
labels = np.zeros(400_000, int)
for X, y in (("big.npy", labels), ("big.parquet", "y")):
    blocks = row_blocks(f"{sys.argv[1]}/{X}", y, block_bytes=2_000_000)
    blocks.read(0)
    before = peak_bytes()
    assert sum(len(blocks.read(number).rows) for number in range(len(blocks))) > 50_000
    print(peak_bytes() - before)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    mapped, parquet = map(int, run.stdout.split())
    assert mapped < 10_000_000
    assert parquet < 15_000_000


# Types


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        (">f8", "f8"),
        ("i1", "f8"),
        ("u8", "f8"),
        (">i4", "f8"),
    ],
)
def test_rows_of_all_types(here, found, wanted):
    rows = (10 * np.abs(ROWS)).astype(found)
    for source in (as_array, as_npy, as_dask):
        blocks = row_blocks(*source(rows, NUMBERS))
        assert_same(read_all(blocks), rows.astype(wanted), NUMBERS)


def test_columns_of_several_types_become_one(here):
    columns = {"a": pa.array(ROWS[:, 0], pa.float32()), "b": NUMBERS, "y": NAMES}
    blocks = row_blocks(written("t.parquet", pa.table(columns)), "y")
    rows = np.column_stack([ROWS[:, 0].astype("f4"), NUMBERS])
    assert_same(read_all(blocks), rows, NAMES)


@pytest.mark.parametrize("found", ["?", "c8", "O", "g", "M8[s]"])
def test_rows_that_are_no_numbers_are_refused(found):
    with pytest.raises(BlockError, match=r"X has values of type .*: convert them"):
        row_blocks(np.ones((3, 2)).astype(found), [1, 2, 3])


@pytest.mark.parametrize(
    "labels",
    [
        [2, 1, 3],
        (np.int8(2), 1, np.uint64(3)),
        np.array([2, 1, 3], "u1"),
        np.array([2, 1, 3], ">u8"),
        np.array([2, 1, 3], object),
        pd.Series([2, 1, 3], dtype="Int64"),
        da.from_array(np.array([2, 1, 3], "i2"), chunks=2),
        ["Zoë", "", "a"],
        np.array(["Zoë", "", "a"]),
        np.array(["Zoë", "", "a"], ">U9"),
        np.array(["Zoë", "", "a"], object),
        pd.Series(["Zoë", "", "a"]),
        pd.Categorical(["Zoë", "", "a"]),
        da.from_array(np.array(["Zoë", "", "a"], object), chunks=2),
    ],
    ids=str,
)
def test_labels_of_all_types(labels):
    wanted = [2, 1, 3] if 2 in list(np.asarray(labels)) else ["Zoë", "", "a"]
    for block_bytes in (1, 1000):
        blocks = row_blocks(ROWS[:3], labels, block_bytes=block_bytes)
        assert_same(read_all(blocks), ROWS[:3], wanted)
    # NumPy makes floats of whole numbers of some types.
    given = labels if isinstance(labels, tuple) else np.asarray(labels)
    (block,) = row_blocks(iter([(ROWS[:3], given)]))
    assert_same([block], ROWS[:3], wanted)


@pytest.mark.parametrize("text", ["T", "O"])
def test_text_of_any_length(text):
    if text == "T" and not hasattr(np.dtypes, "StringDType"):
        pytest.skip("NumPy 1 has no such type")
    kind = np.dtypes.StringDType() if text == "T" else object
    labels = np.array(NAMES, kind)
    assert_same(read_all(row_blocks(ROWS, labels, block_bytes=900)), ROWS, NAMES)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", None, "b"], r"rows 0 to 2 of the array: row 1 has no label"),
        (
            ["a", "b", "a\0"],
            "row 2 has a label that ends with a character of code zero",
        ),
        ([1, 2, None], "row 2 has no label"),
        ([1, float("nan"), 2], "row 1 has no label"),
        (["a", np.float32("nan"), "b"], "row 1 has no label"),
        (pd.Series(["a", "b", None]), "row 2 has no label"),
        (pd.Series([1, None, 2]), "row 1 has no label"),
        (pd.Series([1, None, 2], dtype="Int64"), "row 1 has no label"),
        (np.array([1.0, np.nan, 2.0]), "y: row 1 has no label"),
        (np.array([1.0, 2.0, 3.0]), r"whole numbers or text, not float64; .*astype"),
        ([1.0, 2.0, 3.0], "row 0 has a label of type float; labels must be whole"),
        ([1, 2, True], "row 2 has a label of type bool; labels must be whole"),
        (np.array([True, False, True]), "whole numbers or text, not bool; convert"),
        (np.array([b"a", b"b", b"c"]), r"not \|S1; convert them with np.char.decode"),
        (["a", b"b", "c"], "row 1 has a label of type bytes"),
        ([1, "a", 2], "some labels are text and some whole numbers"),
        (np.array([1, 2, 2**63], "u8"), "row 2 has a label beyond the range of int64"),
        ([1, 2**63, 2], "row 1 has a label beyond the range of int64"),
        (
            da.from_array(np.array([1, 2, 3], object), chunks=3),
            "some labels are text and some",
        ),
        (np.ones((3, 1), int), r"X has 3 rows, and y has the shape \(3, 1\)"),
        ([1, 2], r"X has 3 rows, and y has the shape \(2,\)"),
        ({1, 2, 3}, r"y has the shape \(\)"),
        ("label", "y is 'label': it can be the path of an .npy file, or a column"),
        ("nowhere.npy", "nowhere.npy cannot be read: .*No such file"),
        (None, "y is missing"),
    ],
    ids=str,
)
def test_labels_that_cannot_be_used(here, labels, message):
    with pytest.raises(BlockError, match=message):
        read_all(row_blocks(ROWS[:3], labels))


def test_labels_of_one_kind_in_all_blocks():
    blocks = row_blocks(ROWS[:2], [1, "a"], block_bytes=1)
    assert blocks.read(0).labels.tolist() == [1]
    with pytest.raises(
        BlockError, match=r"rows 1 to 1 .* some labels are text and some"
    ):
        blocks.read(1)


# Wrong values


def damaged(value):
    rows = ROWS.copy()
    rows[71, 2] = value
    rows[90] = value
    return rows


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("source", "name"),
    [
        (as_array, "rows 68 to 102 of the array"),
        (as_npy, "rows 68 to 102 of people.npy"),
        (as_dask, "chunk 3 of the Dask array"),
        (as_zarr, "rows 70 to 102 of the Zarr array"),
        (as_parquet, "row group 2 of people.parquet"),
    ],
)
def test_values_that_are_not_finite(here, source, name, value):
    X, y = source(damaged(value), NUMBERS)
    blocks = row_blocks(X, y, block_bytes=40 * P * 8)
    message = f"^{name}: row 71 has values that are not finite$"
    with pytest.raises(BlockError, match=message):
        read_all(blocks)
    assert isinstance(BlockError("text"), DatabaseError)


def test_rows_of_parquet_files_are_counted_in_their_file(here):
    X, y = as_folder_of_parquet(damaged(np.nan), NUMBERS)
    message = r"^row groups 0 to 1 of people/c.parquet: row 20 has values"
    with pytest.raises(BlockError, match=message):
        read_all(row_blocks(X, y))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), r"X: rows need an array of two dimensions, .* \(3,\)"),
        (np.ones((3, 2, 2)), r"two dimensions, not of the shape \(3, 2, 2\)"),
        (da.ones(3), r"two dimensions, not of the shape \(3,\)"),
        (zarr.ones(3), r"two dimensions, not of the shape \(3,\)"),
        (zarr.ones(()), r"two dimensions, not of the shape \(\)"),
        (np.ones((0, 2)), r"X is empty: its shape is \(0, 2\)"),
        (np.ones((3, 0)), "X is empty"),
        (da.ones((0, 2)), "X is empty"),
        ([], "two dimensions"),
        ([[1, 2], [3]], "X cannot be made an array of numbers"),
        (object(), "two dimensions"),
        (da.ones((4, 2))[da.ones(4) > 0], r"unknown size: call X.compute_chunk_sizes"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_table_of_numbers(X, message):
    with pytest.raises(BlockError, match=message):
        row_blocks(X, [1, 2, 3])


def test_the_size_of_blocks_is_positive():
    with pytest.raises(BlockError, match="block_bytes must be at least 1, not 0"):
        row_blocks(ROWS, NUMBERS, block_bytes=0)


# Files


def test_files_that_cannot_be_read(here):
    Path("text.csv").write_text("1,2,3")
    Path("short.npy").write_bytes(Path(saved("a.npy", ROWS)).read_bytes()[:-1])
    np.save("objects.npy", np.array([[None]]))
    np.save("empty.npy", np.ones((0, 2)))
    Path("folder").mkdir()
    Path("broken.zarr").mkdir()
    Path("broken.zarr/zarr.json").write_text("{")
    zarr.create_group("group.zarr")
    Path("bad.parquet").write_bytes(b"PAR1 and nothing else")
    for path, message in {
        "nowhere.npy": "nowhere.npy cannot be read: .*No such file",
        "text.csv": "text.csv is neither an .npy file nor a Parquet file nor a Zarr",
        "short.npy": "short.npy cannot be read: mmap length",
        "objects.npy": "objects.npy cannot be read: .*(pickle|objects)",
        "empty.npy": "X is empty",
        "folder": "folder has no .parquet files, and is not a Zarr array",
        "broken.zarr": "broken.zarr cannot be read",
        "group.zarr": "group.zarr cannot be read",
        "bad.parquet": "bad.parquet cannot be read",
    }.items():
        with pytest.raises(BlockError, match=message):
            row_blocks(path, NUMBERS)
    with pytest.raises(BlockError, match=r"nowhere.parquet cannot be read"):
        row_blocks(["nowhere.parquet"], NUMBERS)


def test_files_that_change_or_go_away_are_noticed(here):
    def blocks_of(source):
        shutil.rmtree("people.zarr", ignore_errors=True)
        return row_blocks(*source(ROWS, NUMBERS), block_bytes=1000)

    blocks = blocks_of(as_npy)
    os.truncate("people.npy", 1000)
    with pytest.raises(BlockError, match=r"rows 0 to .* of people.npy cannot be read"):
        blocks.read(0)
    blocks = blocks_of(as_zarr)
    zarr.open_array("people.zarr").resize((50, P))
    with pytest.raises(BlockError, match="the Zarr array has changed"):
        blocks.read(0)
    blocks = blocks_of(as_zarr)
    Path("people.zarr/c/0/0").write_bytes(b"not compressed")
    with pytest.raises(BlockError, match=r"rows 0 to .* Zarr array cannot be read"):
        blocks.read(0)
    blocks = blocks_of(as_zarr)
    shutil.rmtree("people.zarr")
    with pytest.raises(BlockError, match=r"rows 0 to .* Zarr array cannot be read"):
        blocks.read(0)
    blocks = blocks_of(as_parquet)
    blocks.read(0)
    as_parquet(ROWS[:10], NUMBERS[:10])
    with pytest.raises(BlockError, match=r"row group 1 of people.parquet has changed"):
        blocks.read(1)
    Path("people.parquet").unlink()
    with pytest.raises(
        BlockError, match=r"row group 1 of people.parquet cannot be read"
    ):
        blocks.read(1)


def test_a_damaged_page_of_a_parquet_file_is_named(here):
    path = written("people.parquet", table(ROWS, NUMBERS))
    column = pq.ParquetFile(path).metadata.row_group(2).column(1)
    with open(path, "r+b") as file:
        file.seek(column.dictionary_page_offset or column.data_page_offset)
        file.write(b"\xff" * 40)
    blocks = row_blocks(path, "label", block_bytes=30 * P * 8)
    blocks.read(1)
    with pytest.raises(
        BlockError, match=r"row group 2 of people.parquet cannot be read"
    ):
        blocks.read(2)


def lists(values, kind=None):
    return pa.table({"v": pa.array(values, pa.list_(pa.float64(), *(kind or ())))})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lists([[1, 2], [3]]), "row group 0 of .*'v' have different lengths, or some"),
        (lists([[1, 2], None]), "row group 0 of .*'v' have different lengths, or some"),
        # These have the right number of values.
        (lists([[1, 2], [1, 2, 3], [4]]), "row 1 has a list of 3 values instead of 2"),
        (lists([[1, None], [1, 2]]), "row 0 has a vector with a null"),
        (lists([[1, 2], [1, 2], None], (2,)), "row 2 has no vector"),
        (lists([[1, 2], [None, 2]], (2,)), "row 1 has a vector with a null"),
        (
            pa.table({"a": [1.0, None], "b": [1, 2]}),
            "row 1 has a null in the column 'a'",
        ),
        (pa.table({"a": [1.0], "b": ["x"]}), "lists of numbers, or .*; found 'b'"),
        (pa.table({"a": [["x"]]}), "lists of numbers, or .*; found 'a'"),
        (pa.table({"a": [[1]], "b": [[1]]}), "found 'a', 'b'"),
        (pa.table({}), "X is empty: t.parquet has no rows"),
        (pa.table({"a": [True]}), "found 'a'"),
        (lists([]), "X is empty: t.parquet has no rows"),
    ],
)
def test_wrong_tables(here, found, message):
    path = written("t.parquet", found)
    with pytest.raises(BlockError, match=message) as caught:
        read_all(row_blocks(path, [1] * found.num_rows))
    assert "t.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, None, 3], "row group 0 of t.parquet: row 1 has no label"),
        (["a", "b", None], "row 2 has no label"),
        (pa.array(["a", None, "a"]).dictionary_encode(), "row 1 has no label"),
        (pa.array([1, 2, 2**63], pa.uint64()), "row 2 has a label beyond the range"),
        (
            [1.0, 2.0, 3.0],
            r"t.parquet: labels must be .* 'y' has the type double; conv",
        ),
        ([b"a", b"b", b"c"], "'y' has the type binary"),
        ([True, True, False], "'y' has the type bool"),
    ],
    ids=str,
)
def test_wrong_labels_of_tables(here, labels, message):
    path = written("t.parquet", pa.table({"a": [1.0, 2.0, 3.0], "y": labels}))
    with pytest.raises(BlockError, match=message):
        read_all(row_blocks(path, "y"))


def test_tables_without_what_is_asked_for(here):
    path = written("t.parquet", pa.table({"a": [1.0], "y": [1]}))
    message = "t.parquet has no column 'label' for the labels; it has 'a', 'y'"
    with pytest.raises(BlockError, match=message):
        row_blocks(path, "label")
    with pytest.raises(BlockError, match=r"one column of lists .* found nothing"):
        row_blocks(written("u.parquet", pa.table({"y": [1]})), "y")


@pytest.mark.parametrize(
    "other",
    [
        table(ROWS[:, :3], NUMBERS),
        table(ROWS.astype("f4"), NUMBERS),
        table(ROWS, NAMES),
        table(ROWS, NUMBERS).rename_columns(["city", "other", "label"]),
    ],
)
def test_files_of_a_table_are_alike(here, other):
    paths = [written("a.parquet", table(ROWS, NUMBERS)), written("b.parquet", other)]
    with pytest.raises(
        BlockError, match=r"b.parquet differs from a.parquet: all files"
    ):
        row_blocks(paths, "label")


@pytest.mark.parametrize(
    ("source", "package", "message"),
    [
        (as_parquet, "pyarrow", "Parquet files need pyarrow: pip install pyarrow"),
        (as_zarr_path, "zarr", r'Zarr arrays need zarr: pip install "zarr>=3"'),
    ],
)
def test_without_what_reads_the_file(here, monkeypatch, source, package, message):
    X, y = source(ROWS, NUMBERS)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=message):
        row_blocks(X, y)


# Dask


def test_chunks_are_computed_inside_a_task(client):
    X, y = as_dask(ROWS, NAMES)
    blocks = row_blocks(X, y)
    tasks = [client.submit(blocks.reader(number)) for number in range(len(blocks))]
    assert_same(client.gather(tasks), ROWS, NAMES)


def test_results_that_a_cluster_holds_are_read_through_the_client(client):
    X, y = as_dask(ROWS, NUMBERS)
    for rows, labels in ((X.persist(), y), (X, y.persist())):
        blocks = row_blocks(rows, labels)
        assert not blocks.on_workers
        tasks = [client.submit(blocks.reader(number)) for number in range(len(blocks))]
        assert_same(client.gather(tasks), ROWS, NUMBERS)


def fail(block):
    raise RuntimeError("the disk is full")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (fail, "cannot be read: the disk is full"),
        (lambda block: block[1:], r"has the shape \(49, 4\) instead of \(50, 4\)"),
        (lambda block: block[:, 1:], r"has the shape \(50, 3\) instead of \(50, 4\)"),
        (lambda block: block.astype("f4"), "becomes float32, but other blocks float64"),
    ],
)
def test_wrong_chunks_are_named(change, message):
    array = da.from_array(ROWS, chunks=(50, P)).map_blocks(
        change, dtype=ROWS.dtype, meta=ROWS[:0]
    )
    blocks = row_blocks(array, NUMBERS)
    with pytest.raises(BlockError, match=f"chunk 1 of the Dask array {message}"):
        blocks.read(1)


# Streams


def pairs(rows, labels, sizes=(20, 0, 50, 33)):
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        yield rows[start:stop], labels[start:stop]


@pytest.mark.parametrize("labels", [NAMES, NUMBERS, NUMBERS.tolist()])
def test_a_stream_is_read_once(labels):
    rows = ROWS.astype("f2")
    stream = row_blocks(pairs(rows, labels))
    assert isinstance(stream, BlockStream)
    assert_same(list(stream), rows.astype("f4"), labels)
    with pytest.raises(BlockError, match="can be read once"):
        iter(stream)
    assert stream.describe(3) == "block 3 of the stream"


def test_a_stream_is_read_block_by_block():
    def endless():
        while True:
            yield ROWS, NUMBERS

    blocks = iter(row_blocks(endless()))
    assert isinstance(next(blocks), Block)
    assert next(blocks).first_row == N


def test_blocks_of_a_stream_are_views_that_cannot_be_written():
    rows = ROWS.copy()
    (block,) = row_blocks(iter([(rows, NUMBERS)]))
    assert np.shares_memory(block.rows, rows)
    assert not block.rows.flags.writeable


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (ROWS[:2], "is not a pair of rows and labels"),
        ((ROWS, NUMBERS, NUMBERS), "is not a pair of rows and labels"),
        ((ROWS[:, 1:], NUMBERS), r"has the shape \(103, 3\) instead of \(103, 4\)"),
        ((ROWS[0], NUMBERS[:1]), "rows need an array of two dimensions"),
        ((ROWS[:, :0], NUMBERS), "rows need an array of two dimensions"),
        ((ROWS, NUMBERS[1:]), "has 103 rows and 102 labels"),
        ((ROWS[:0], NUMBERS), "has 0 rows and 103 labels"),
        ((ROWS, NAMES), "some labels are text and some whole numbers"),
        ((ROWS.astype("f4"), NUMBERS), "becomes float32, but other blocks float64"),
        ((damaged(np.nan), NUMBERS), "row 174 has values that are not finite"),
        ((ROWS, [None, *NUMBERS[1:]]), "row 103 has no label"),
        ((ROWS, 3), "labels need one dimension, not 0"),
        ((ROWS, NUMBERS.reshape(-1, 1)), "labels need one dimension, not 2"),
        (([[1, 2], [3]], [1, 2]), "cannot be read"),
    ],
)
def test_wrong_blocks_of_a_stream_are_named(second, message):
    stream = row_blocks(iter([(ROWS, NUMBERS), second]))
    with pytest.raises(BlockError, match=f"^block 1 of the stream:? {message}"):
        list(stream)


def test_wrong_first_blocks_of_a_stream():
    for first, message in (
        ((ROWS.astype(complex), NUMBERS), "block 0 of the stream has values of type"),
        ((ROWS, NUMBERS / 2), "block 0 of the stream: labels must be whole numbers"),
        ((ROWS, []), "block 0 of the stream has 103 rows and 0 labels"),
    ):
        with pytest.raises(BlockError, match=message):
            list(row_blocks(iter([first])))
    with pytest.raises(BlockError, match="The stream of blocks has no rows"):
        list(row_blocks(pairs(ROWS, NUMBERS, sizes=[0])))
    with pytest.raises(BlockError, match="leave out y"):
        row_blocks(pairs(ROWS, NUMBERS), NUMBERS)


def test_errors_of_the_stream_itself_stay_as_they_are():
    def broken():
        yield ROWS, NUMBERS
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(row_blocks(broken()))
