# SPDX-License-Identifier: BSD-3-Clause
"""Labelled rows in blocks, from arrays, files, Dask, Zarr, Parquet or a stream.

A source can give some of its rows: `Memory`, `_MappedFile`, `_Dask`, `_Zarr` or
`ParquetRows`. It is cut into blocks once, by its own shape and the wanted size alone. A
`BlockReader` has what one block needs and nothing of the others, so that it can be
sent to a worker. All blocks go through `checked`.

All numbers of rows, blocks, chunks and row groups count from 0.
"""

import itertools
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import BlockError, MissingDependencyError
from dualqml.scale._parquet_rows import ParquetRows, open_parquet, parquet_files_in
from dualqml.scale._row_source import (
    Block,
    Cut,
    Expected,
    Memory,
    Part,
    Source,
    checked,
    in_memory,
    kind_of_labels,
    named,
    precision,
    rows_text,
    two_dimensions,
)


@dataclass(frozen=True)
class BlockReader:
    """Reads one block when it is called, also in another process.

    It has nothing of the other blocks, so that it is small to send. Of a source that
    only this process can read it has the rows themselves.
    """

    _cut: Cut
    _expected: Expected
    _rows: Part
    #: None if the labels are a column of the table that has the rows.
    _labels: Part | None

    def __call__(self) -> Block:
        """Read the block.

        Returns
        -------
        Block
            The rows and their labels.

        Raises
        ------
        BlockError
            It cannot be read, or has values that cannot be used.
        """
        with named(self._cut.name):
            rows, labels = _loaded(self._rows), _loaded(self._labels)
            if labels is None:
                rows, labels = rows
            return checked(rows, labels, self._cut, self._expected)


def _loaded(part: Part) -> Any:
    return part() if callable(part) else part


class RowBlocks:
    """Blocks of labelled rows that can be read in any order; made by `row_blocks`.

    All blocks have rows of the same length and precision, and either whole numbers or
    text as labels.

    Attributes
    ----------
    n_rows : int
        Number of rows of all blocks.
    n_features : int
        Number of values in a row.
    dtype : dtype
        Of the rows: float32 or float64.
    on_workers : bool
        Whether this object works in another process too, so that workers read the
        blocks from where they are. If not, the rows are in this process, and
        `reader` reads them here.
    """

    def __init__(
        self, rows: Source, labels: Source | None, cuts: Sequence[Cut]
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._cuts = tuple(cuts)
        self.n_rows, self.n_features = rows.shape
        self.dtype = precision(rows.dtype, "X")
        self.on_workers = rows.on_workers
        if labels is None:
            assert isinstance(rows, ParquetRows)
            assert rows.label_kind is not None
            kind = rows.label_kind
        else:
            if labels.shape != (self.n_rows,):
                raise BlockError(
                    f"X has {self.n_rows:,} rows, and y has the shape {labels.shape}: "
                    "each row needs one label"
                )
            kind = kind_of_labels(labels)
            # Labels in memory are few bytes beside the rows, and can be sent.
            self.on_workers &= labels.on_workers or isinstance(labels, Memory)
        self._expected = Expected(self.n_features, self.dtype, kind)

    def __len__(self) -> int:
        return len(self._cuts)

    def read(self, number: int) -> Block:
        """Read a block.

        Parameters
        ----------
        number : int
            Number of the block, from 0.

        Returns
        -------
        Block
            Its rows and their labels.

        Raises
        ------
        BlockError
            It cannot be read, or has values that cannot be used.
        """
        return self.reader(number)()

    def reader(self, number: int) -> BlockReader:
        """What a worker needs for one block.

        Send this rather than the whole object, which has the labels of all blocks and,
        for a Dask array, the tasks of all chunks.

        Parameters
        ----------
        number : int
            Number of the block, from 0.

        Returns
        -------
        BlockReader
            Call it for the block. It can be sent to another process by cloudpickle. If
            `on_workers` is false it has the rows in it: make few at a time.

        Raises
        ------
        BlockError
            The block had to be read here, and cannot be read.
        """
        cut = self._cuts[number]
        with named(cut.name):
            rows = self._rows.part(cut.start, cut.stop)
            labels = self._labels and self._labels.part(cut.start, cut.stop)
        return BlockReader(cut, self._expected, rows, labels)

    def describe(self, number: int) -> str:
        """Name a block in words.

        Parameters
        ----------
        number : int
            Number of the block, from 0.

        Returns
        -------
        str
            Such as "rows 65,536 to 131,071 of people.npy".
        """
        return self._cuts[number].name


class BlockStream:
    """Blocks that come one after the other and once; made by `row_blocks`.

    Iterate over it for the blocks.

    Parameters
    ----------
    pairs : iterator of (X_block, y_block)
        Rows and their labels.
    """

    def __init__(self, pairs: Iterator[Any]) -> None:
        self._pairs: Iterator[Any] | None = pairs

    def __iter__(self) -> Iterator[Block]:
        if self._pairs is None:
            raise BlockError("A stream of blocks can be read once, and it has been")
        pairs, self._pairs = self._pairs, None
        return self._blocks(pairs)

    def _blocks(self, pairs: Iterator[Any]) -> Iterator[Block]:
        expected: Expected | None = None
        start = 0
        for number, pair in enumerate(pairs):
            name = self.describe(number)
            # An array of two rows is not meant as rows and labels.
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise BlockError(f"{name} is not a pair of rows and labels")
            with named(name):
                rows, labels = _view(pair[0]), in_memory(pair[1])
                if rows.ndim != 2 or not rows.shape[1]:
                    raise BlockError(f"{name}: {two_dimensions(rows.shape)}")
                if not len(rows) and not len(labels):
                    continue
                cut = Cut(start, start + len(rows), name, start)
                if expected is None:
                    dtype = precision(rows.dtype, name)
                    kind = kind_of_labels(Memory(labels), name)
                    expected = Expected(rows.shape[1], dtype, kind)
                block = checked(rows, labels, cut, expected)
            yield block
            start = cut.stop
        if expected is None:
            raise BlockError("The stream of blocks has no rows")

    def describe(self, number: int) -> str:
        """Name a block in words.

        Parameters
        ----------
        number : int
            Number of the block, from 0.

        Returns
        -------
        str
            Such as "block 3 of the stream".
        """
        return f"block {number:,} of the stream"


def row_blocks(
    X: Any, y: Any = None, *, block_bytes: int = 16_000_000
) -> RowBlocks | BlockStream:
    """Cut labelled rows into blocks, which are read when they are needed.

    Parameters
    ----------
    X : array, path, list of paths, or iterator
        The rows:

        - an array in memory, or what NumPy makes one of;
        - the path of an ``.npy`` file, or a memory map (`numpy.memmap`). A part of a
          memory map that is not one piece of its file is read in this process only;
        - a Dask array. Its chunks along the rows are the blocks, whatever their size.
          If it is persisted on a cluster, it is read through this process;
        - a Zarr array, or the path of one. Blocks are whole chunks;
        - the path of a Parquet file, of a folder of them, or a list of files. The
          vector is the only column of lists of numbers, and other columns are not read;
          or it is all columns except the label, which are numbers then. Blocks are row
          groups; large ones are cut and small ones of a file joined;
        - an iterator of pairs (X_block, y_block), which is read once.

        Whole numbers become float64, and float16 becomes float32.
    y : array-like, Dask array, path or str
        The labels, whole numbers or text: in memory, as a Dask array, as the path of an
        ``.npy`` file, or as the name of a column of the Parquet files. None for an
        iterator.
    block_bytes : int, default=16_000_000
        Size that the rows of a block should not exceed.

    Returns
    -------
    RowBlocks or BlockStream
        The blocks: a stream for an iterator. They depend on the source and on
        `block_bytes` only.

    Raises
    ------
    BlockError
        X or y cannot be used, or a file cannot be read.
    MissingDependencyError
        What reads the file is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.scale import row_blocks
    >>> blocks = row_blocks(np.eye(5), ["Ann", "Ann", "Zoe", "Zoe", "Zoe"],
    ...                     block_bytes=80)
    >>> len(blocks), blocks.describe(1)
    (3, 'rows 1 to 2 of the array')
    >>> blocks.read(1).labels.tolist()
    ['Ann', 'Zoe']
    """
    if block_bytes < 1:
        raise BlockError(f"block_bytes must be at least 1, not {block_bytes}")
    if isinstance(X, Iterator):
        if y is not None:
            raise BlockError("An iterator gives pairs (X_block, y_block): leave out y")
        return BlockStream(X)
    if y is None:
        raise BlockError("y is missing. Only an iterator of pairs has its own labels")
    rows = _rows_source(X, y, block_bytes)
    if len(rows.shape) != 2:
        raise BlockError(f"X: {two_dimensions(rows.shape)}")
    if 0 in rows.shape:
        raise BlockError(f"X is empty: its shape is {rows.shape}")
    in_table = isinstance(rows, ParquetRows) and rows.label_kind is not None
    labels = None if in_table else _labels_source(y)
    return RowBlocks(rows, labels, _cuts(rows, block_bytes))


def _rows_source(X: Any, y: Any, block_bytes: int) -> Source:
    if _is_path(X):
        X = Path(X)
        kind = _kind_of_path(X)
        if kind == "npy":
            return _open_npy(X)
        if kind == "zarr":
            with named(str(X)):
                return _from_zarr(_zarr().open_array(store=str(X), mode="r"), str(X))
        return open_parquet(
            [X] if kind == "parquet" else parquet_files_in(X), y, block_bytes
        )
    if isinstance(X, (list, tuple)) and X and all(map(_is_path, X)):
        return open_parquet([Path(path) for path in X], y, block_bytes)
    if _is_instance(X, "dask", "Array"):
        return _from_dask(X, "X")
    if _is_instance(X, "zarr", "Array"):
        return _from_zarr(X, "the Zarr array")
    try:
        return _mapped_file(X) or Memory(_view(X))
    except (TypeError, ValueError) as error:
        raise BlockError(f"X cannot be made an array of numbers: {error}") from error


def _labels_source(y: Any) -> Source:
    if _is_path(y):
        if Path(y).suffix.lower() != ".npy":
            raise BlockError(
                f"y is {str(y)!r}: it can be the path of an .npy file, or a column "
                "if X is a Parquet file"
            )
        return _open_npy(Path(y))
    if _is_instance(y, "dask", "Array"):
        return _from_dask(y, "y")
    return _mapped_file(y) or Memory(in_memory(y))


def _cuts(rows: Source, block_bytes: int) -> list[Cut]:
    """Where the blocks of a source are."""
    if isinstance(rows, ParquetRows):
        return [part.cut for part in rows.parts.values()]
    if isinstance(rows, _Dask):
        bounds = itertools.accumulate(rows.array.chunks[0], initial=0)
        return [
            Cut(start, stop, f"chunk {number:,} of the Dask array", start)
            for number, (start, stop) in enumerate(itertools.pairwise(bounds))
            if start < stop
        ]
    unit = rows.chunk_rows if isinstance(rows, _Zarr) else 1
    name = rows.name if isinstance(rows, (_Zarr, _MappedFile)) else "the array"
    row_bytes = rows.shape[1] * precision(rows.dtype, "X").itemsize
    return [
        Cut(start, stop, f"{rows_text(start, stop)} of {name}", start)
        for start, stop in _even(rows.shape[0], block_bytes // row_bytes, unit)
    ]


def _even(n_rows: int, most: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """Pieces of nearly equal size: whole units, and if possible at most `most` rows."""
    n_units = -(-n_rows // unit)
    pieces = -(-n_units // max(1, most // unit))
    bounds = (piece * n_units // pieces * unit for piece in range(pieces + 1))
    return itertools.pairwise(min(n_rows, bound) for bound in bounds)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_instance(value: Any, package: str, name: str) -> bool:
    """`isinstance` without the import of a package that may not be there."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(value).__mro__
    )


def _view(values: Any) -> NDArray[Any]:
    """An array that is not copied and cannot be changed through the result."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


# Memory and .npy files


@dataclass(frozen=True)
class _MappedFile:
    """An array that is one piece of a file."""

    name: str
    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    on_workers = True

    def part(self, start: int, stop: int) -> Part:
        return partial(self._load, start, stop)

    def _load(self, start: int, stop: int) -> NDArray[Any]:
        whole: NDArray[Any] = np.memmap(
            self.path, self.dtype, "r", self.offset, self.shape, self.order
        )
        # A copy, so that the pages of the file do not stay in this process, and the
        # values that are checked are those that are used.
        return np.array(whole[start:stop], order="C")


def _open_npy(path: Path) -> Source:
    with named(str(path)):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return _mapped_file(array, str(path)) or Memory(array)


def _mapped_file(array: Any, name: str | None = None) -> _MappedFile | None:
    """Where in its file a memory map is; None if other processes cannot read that."""
    if not isinstance(array, np.memmap) or not array.filename or not array.size:
        return None
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    # Changes of a map in mode "c" are not in the file.
    if not isinstance(owner, mmap.mmap) or not contiguous or array.mode == "c":
        return None
    if array.mode != "r":
        array.flush()
    # A slice has the offset of the array that it was cut from.
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(owner, np.uint8).ctypes.data
    return _MappedFile(
        name or str(array.filename),
        # Workers may run in other folders.
        os.path.abspath(array.filename),
        begin + array.ctypes.data - address,
        array.shape,
        array.dtype,
        "C" if array.flags.c_contiguous else "F",
    )


def _kind_of_path(path: Path) -> str:
    with named(str(path)):
        if path.is_dir():
            marks = ("zarr.json", ".zarray")
            return "zarr" if any((path / mark).exists() for mark in marks) else "folder"
        with path.open("rb") as file:
            start = file.read(6)
    if start == b"\x93NUMPY":
        return "npy"
    if start[:4] == b"PAR1":
        return "parquet"
    raise BlockError(
        f"{path} is neither an .npy file nor a Parquet file nor a Zarr array"
    )


# Dask arrays


@dataclass(frozen=True)
class _Dask:
    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    on_workers: bool

    def part(self, start: int, stop: int) -> Part:
        wanted = self.array[start:stop].rechunk(-1)
        if not self.on_workers:
            return wanted.compute()
        # It has the tasks of these rows only. It runs inside a task of a worker, which
        # must not wait for other tasks.
        return partial(wanted.to_delayed().item().compute, scheduler="synchronous")


def _from_dask(array: Any, name: str) -> _Dask:
    if any(size != size for size in array.shape):
        raise BlockError(
            f"{name} is a Dask array with chunks of unknown size: call "
            f"{name}.compute_chunk_sizes() first"
        )
    # Results that a cluster holds can be read through its client only.
    distributed = sys.modules.get("distributed")
    held = distributed is not None and bool(distributed.futures_of(array))
    return _Dask(array, array.shape, array.dtype, not held)


# Zarr arrays


@dataclass(frozen=True)
class _Zarr:
    name: str
    #: A path or a store of Zarr.
    store: Any
    #: Of the array in the store.
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    on_workers: bool

    def part(self, start: int, stop: int) -> Part:
        if self.on_workers:
            return partial(self._load, start, stop)
        return self._load(start, stop)

    def _load(self, start: int, stop: int) -> Any:
        # Opened again: an array that comes from another process does not notice that
        # its files are gone, and has zeros then.
        array = _zarr().open_array(store=self.store, path=self.path or None, mode="r")
        if array.shape != self.shape:
            raise BlockError(f"{self.name} has changed since it was opened")
        return array[start:stop]


def _from_zarr(array: Any, name: str) -> _Zarr:
    store = array.store
    if _is_instance(store, "zarr", "LocalStore"):
        # It may have a relative path, and workers may run in other folders.
        store = os.path.abspath(store.root)
    in_memory = _is_instance(store, "zarr", "MemoryStore")
    shape, dtype = array.shape, np.dtype(array.dtype)
    rows = (*array.chunks, 1)[0]
    return _Zarr(name, store, array.path, shape, dtype, rows, not in_memory)


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise MissingDependencyError(
            'Zarr arrays need zarr: pip install "zarr>=3"'
        ) from error
    return zarr
