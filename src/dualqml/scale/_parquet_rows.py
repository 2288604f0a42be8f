# SPDX-License-Identifier: BSD-3-Clause
"""Labelled rows of Parquet files, read row group by row group."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml.exceptions import BlockError, MissingDependencyError
from dualqml.scale._row_source import (
    MISSING,
    USABLE,
    Cut,
    LabelKind,
    Part,
    named,
    precision,
    refuse,
    rows_text,
)

#: Bytes of a column that are read from the file at once. Without a limit a whole column
#: of a row group is in memory, however few of its rows are wanted.
_BUFFER = 1 << 16


class _Layout(NamedTuple):
    """What is read of a table."""

    #: One column of lists, or a column for each feature.
    vector: tuple[str, ...]
    are_lists: bool
    n_features: int
    dtype: np.dtype[Any]
    #: None if the labels are elsewhere.
    label: str | None
    label_kind: LabelKind | None


@dataclass(frozen=True)
class ParquetRows:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    label_kind: LabelKind | None
    #: By the numbers of their first rows.
    parts: Mapping[int, "_ParquetPart"]
    on_workers = True

    def part(self, start: int, stop: int) -> Part:
        return self.parts[start]


class _Piece(NamedTuple):
    """Some rows of row groups that follow each other."""

    groups: tuple[int, ...]
    #: Rows of all these groups.
    n_rows: int
    #: The rows among them that are wanted.
    start: int
    stop: int
    #: Rows of a batch: what is wanted is whole batches.
    batch: int


@dataclass(frozen=True)
class _ParquetPart:
    cut: Cut
    #: Absolute, because workers may run in other folders.
    path: str
    piece: _Piece
    layout: _Layout

    def __call__(self) -> Any:
        table = _pyarrow().Table.from_batches(_batches(self))
        vector, label = self.layout.vector, self.layout.label
        if self.layout.are_lists:
            rows = self._rows_of_lists(table.column(vector[0]).combine_chunks())
        else:
            rows = np.empty((table.num_rows, len(vector)), self.layout.dtype)
            for number, name in enumerate(vector):
                column = table.column(name)
                self._refuse_nulls(column, f"has a null in the column {name!r}")
                rows[:, number] = column.to_numpy()
        if label is None:
            return rows
        column = table.column(label)
        if _pyarrow().types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        self._refuse_nulls(column, MISSING)
        return rows, column.to_numpy()

    def _rows_of_lists(self, column: Any) -> NDArray[Any]:
        self._refuse_nulls(column, "has no vector")
        n_features = self.layout.n_features
        lengths = np.asarray(column.value_lengths())
        wrong = lengths != n_features
        if wrong.any():
            found = lengths[wrong.argmax()]
            message = f"has a list of {found} values instead of {n_features}"
            refuse(wrong, message, self.cut)
        values = column.flatten()
        if values.null_count:
            missing = np.asarray(values.is_null()).reshape(-1, n_features)
            refuse(missing.max(axis=1), "has a vector with a null", self.cut)
        flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return flat.reshape(-1, n_features)

    def _refuse_nulls(self, column: Any, message: str) -> None:
        if column.null_count:
            refuse(np.asarray(column.is_null()), message, self.cut)


@dataclass
class _Reading:
    """Row groups that are read batch by batch."""

    key: tuple[Any, ...]
    batches: Iterator[Any]
    #: Number of the next row.
    position: int = 0


#: What this thread reads. A Parquet file can be decoded only from the beginning of a
#: row group, so parts of a large one that are read in order share one pass.
_thread = threading.local()


def _batches(part: _ParquetPart) -> list[Any]:
    """The batches of a part."""
    groups, n_rows, start, stop, batch_rows = part.piece
    state = os.stat(part.path)
    changes = (state.st_size, state.st_mtime_ns)
    key = (part.path, changes, groups, batch_rows, part.layout)
    reading: _Reading | None = getattr(_thread, "reading", None)
    # After an error nobody continues.
    _thread.reading = None
    if reading is None or reading.key != key or reading.position > start:
        reading = _Reading(key, _read_from_beginning(part))
    wanted = []
    while reading.position < stop:
        batch = next(reading.batches)
        if reading.position >= start:
            wanted.append(batch)
        reading.position += batch.num_rows
    if reading.position < n_rows:
        _thread.reading = reading
    return wanted


def _read_from_beginning(part: _ParquetPart) -> Iterator[Any]:
    groups, n_rows, _, _, batch_rows = part.piece
    file = _pyarrow().parquet.ParquetFile(part.path, buffer_size=_BUFFER)
    sizes = _group_sizes(file.metadata)
    if sum(sizes.get(group, 0) for group in groups) != n_rows:
        raise BlockError(f"{part.cut.name} has changed since it was opened")
    label = part.layout.label
    batches: Iterator[Any] = file.iter_batches(
        batch_size=batch_rows,
        row_groups=list(groups),
        columns=[*part.layout.vector, *([] if label is None else [label])],
        # Workers have one core each.
        use_threads=False,
    )
    return batches


def parquet_files_in(folder: Path) -> list[Path]:
    """The Parquet files of a folder and the folders in it, in a fixed order."""
    files = sorted(
        path
        for path in folder.rglob("*.parquet")
        if not path.name.startswith(("_", "."))
    )
    if not files:
        raise BlockError(f"{folder} has no .parquet files, and is not a Zarr array")
    return files


def open_parquet(paths: Sequence[Path], y: Any, block_bytes: int) -> ParquetRows:
    parts: dict[int, _ParquetPart] = {}
    common: _Layout | None = None
    start = 0
    for path in paths:
        with named(str(path)):
            file = _pyarrow().parquet.ParquetFile(path)
            groups = _group_sizes(file.metadata)
            if not groups:
                continue
            layout = _layout(path, file, groups, y)
        if common is None:
            common = layout
        if layout != common:
            raise BlockError(
                f"{path} differs from {paths[0]}: all files need the same columns, "
                "types and lengths of lists"
            )
        in_file = 0
        row_bytes = layout.n_features * layout.dtype.itemsize
        for piece in _pieces(groups, max(1, block_bytes // row_bytes)):
            size = piece.stop - piece.start
            cut = Cut(start, start + size, f"{_piece_text(piece)} of {path}", in_file)
            parts[start] = _ParquetPart(cut, os.path.abspath(path), piece, layout)
            start += size
            in_file += size
    if common is None:
        raise BlockError(f"X is empty: {paths[0]} has no rows, nor have other files")
    return ParquetRows(
        (start, common.n_features), common.dtype, common.label_kind, parts
    )


def _pieces(groups: Mapping[int, int], most: int) -> list[_Piece]:
    """Cut large row groups and join small ones; `groups` has their numbers of rows."""
    found: list[_Piece] = []
    for group, size in groups.items():
        last = found[-1] if found else None
        if size > most:
            # All but the last are equal: they are batches of the reader.
            batch = -(-size // -(-size // most))
            found += [
                _Piece((group,), size, start, min(size, start + batch), batch)
                for start in range(0, size, batch)
            ]
        elif last is not None and last.batch == last.n_rows <= most - size:
            joined = last.n_rows + size
            found[-1] = _Piece((*last.groups, group), joined, 0, joined, joined)
        else:
            found.append(_Piece((group,), size, 0, size, size))
    return found


def _piece_text(piece: _Piece) -> str:
    first, last = piece.groups[0], piece.groups[-1]
    if first != last:
        return f"row groups {first:,} to {last:,}"
    if piece.batch == piece.n_rows:
        return f"row group {first:,}"
    return f"{rows_text(piece.start, piece.stop)} of row group {first:,}"


def _group_sizes(metadata: Any) -> dict[int, int]:
    """Numbers of rows of the row groups that have rows."""
    sizes = (metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
    return {group: size for group, size in enumerate(sizes) if size}


def _layout(path: Path, file: Any, groups: Mapping[int, int], y: Any) -> _Layout:
    """Find the columns of the vector and of the label."""
    schema = file.schema_arrow
    types = dict(zip(schema.names, schema.types, strict=True))
    label = _label_column(path, types, y)
    kind = None if label is None else _label_kind(path, label, types.pop(label))
    # pandas keeps an index as a column.
    for name in (schema.pandas_metadata or {}).get("index_columns", []):
        if isinstance(name, str):
            types.pop(name, None)
    lists = [name for name, found in types.items() if _is_list_of_numbers(found)]
    if len(lists) == 1:
        vector = tuple(lists)
        n_features = _list_length(path, file, groups, lists[0])
        numbers = [types[lists[0]].value_type]
    else:
        others = [repr(name) for name in types if not _is_number(types[name])]
        if others or not types:
            raise BlockError(
                f"{path} needs, beside the label, one column of lists of numbers, or a "
                "column of numbers for each feature; found "
                f"{first_few(others) or 'nothing'}"
            )
        vector, n_features = tuple(types), len(types)
        numbers = list(types.values())
    dtypes = {np.dtype(number.to_pandas_dtype()) for number in numbers}
    dtype = np.result_type(*(precision(found, str(path)) for found in dtypes))
    return _Layout(vector, bool(lists), n_features, dtype, label, kind)


def _label_column(path: Path, types: Mapping[str, Any], y: Any) -> str | None:
    if not isinstance(y, str) or y in types:
        return y if isinstance(y, str) else None
    if y.lower().endswith(".npy"):
        return None
    names = first_few([repr(name) for name in types])
    raise BlockError(f"{path} has no column {y!r} for the labels; it has {names}")


def _label_kind(path: Path, name: str, found: Any) -> LabelKind:
    types = _pyarrow().types
    value = found.value_type if types.is_dictionary(found) else found
    if types.is_integer(value):
        return "i"
    if types.is_string(value) or types.is_large_string(value):
        return "U"
    raise BlockError(
        f"{path}: {USABLE}, but the column {name!r} has the type {found}; convert it"
    )


def _is_number(found: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_integer(found) or types.is_floating(found))


def _is_list_of_numbers(found: Any) -> bool:
    types = _pyarrow().types
    kinds = (types.is_fixed_size_list, types.is_list, types.is_large_list)
    return any(is_kind(found) for is_kind in kinds) and _is_number(found.value_type)


def _list_length(path: Path, file: Any, groups: Mapping[int, int], name: str) -> int:
    """Length of the lists of a column, without reading any row."""
    found = file.schema_arrow.field(name).type
    if _pyarrow().types.is_fixed_size_list(found):
        return int(found.list_size)
    metadata = file.metadata
    column = next(
        number
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).path.startswith(f"{name}.")
    )
    length = 0
    for group, size in groups.items():
        n_values = metadata.row_group(group).column(column).num_values
        length = length or n_values // size
        if n_values != length * size:
            raise BlockError(
                f"row group {group:,} of {path}: the lists of the column {name!r} have "
                "different lengths, or some are null"
            )
    return length


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet files need pyarrow: pip install pyarrow"
        ) from error
    return pyarrow
