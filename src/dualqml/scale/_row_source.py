# SPDX-License-Identifier: BSD-3-Clause
"""What all sources of labelled rows share: blocks, cuts, and checks of values."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import BlockError, DualQMLError

Labels = NDArray[np.int64] | NDArray[np.str_]
#: Whole numbers or text.
LabelKind = Literal["i", "U"]
#: Rows or labels of a block, or what reads them, also in another process.
Part = Any | Callable[[], Any]


@dataclass(frozen=True)
class Block:
    """Some rows that follow each other, with their labels.

    Attributes
    ----------
    first_row : int
        Number of the first row among all rows.
    rows : ndarray of shape (n, n_features)
        In single or double precision, C-contiguous and finite. It may be a view of the
        user's array, and is read-only then.
    labels : ndarray of shape (n,)
        Integers (int64), or text of a fixed width.
    """

    first_row: int
    rows: NDArray[np.floating]
    labels: Labels


class Cut(NamedTuple):
    """Where a block is."""

    start: int
    stop: int
    #: How errors name the block.
    name: str
    #: Number of its first row in the file that the name names.
    row_in_file: int


class Source(Protocol):
    """All rows or all labels."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def on_workers(self) -> bool: ...

    def part(self, start: int, stop: int) -> Part: ...


class Expected(NamedTuple):
    """What all blocks have in common."""

    n_features: int
    dtype: np.dtype[Any]
    label_kind: LabelKind


def rows_text(start: int, stop: int) -> str:
    return f"rows {start:,} to {stop - 1:,}"


@contextmanager
def named(name: str) -> Iterator[None]:
    """Turn the errors of readers into one that names the block."""
    try:
        yield
    except (DualQMLError, MemoryError):
        raise
    # The readers of formats, and the functions of a Dask graph, raise any error.
    except Exception as error:
        raise BlockError(f"{name} cannot be read: {error}") from error


def checked(rows: Any, labels: Any, cut: Cut, expected: Expected) -> Block:
    rows = np.asarray(rows)
    n_rows = cut.stop - cut.start
    if rows.shape != (n_rows, expected.n_features):
        raise BlockError(
            f"{cut.name} has the shape {rows.shape} instead of "
            f"{(n_rows, expected.n_features)}"
        )
    dtype = precision(rows.dtype, cut.name)
    if dtype != expected.dtype:
        raise BlockError(
            f"{cut.name} becomes {dtype}, but other blocks {expected.dtype}: convert "
            "them to one type"
        )
    rows = np.ascontiguousarray(rows, dtype=dtype)
    finite = np.isfinite(rows)
    if not finite.all():
        refuse(~finite.all(axis=1), "has values that are not finite", cut)
    names = _as_labels(labels, cut)
    if len(names) != n_rows:
        raise BlockError(f"{cut.name} has {n_rows:,} rows and {len(names):,} labels")
    if names.dtype.kind != expected.label_kind:
        raise BlockError(f"{cut.name}: {MIXED}")
    return Block(cut.start, rows, names)


def precision(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """The type that rows of a type become."""
    if dtype.kind in "iu" or (dtype.kind, dtype.itemsize) == ("f", 8):
        return np.dtype(np.float64)
    if dtype.kind == "f" and dtype.itemsize in (2, 4):
        return np.dtype(np.float32)
    raise BlockError(
        f"{name} has values of type {dtype}: convert them to float32 or float64"
    )


def two_dimensions(shape: tuple[int, ...]) -> str:
    return f"rows need an array of two dimensions, not of the shape {shape}"


def in_memory(y: Any) -> Sequence[Any] | NDArray[Any]:
    """Labels that can be cut. NumPy would turn a list of 1 and "a" into text."""
    return y if isinstance(y, (list, tuple)) else np.asarray(y)


@dataclass(frozen=True)
class Memory:
    values: Sequence[Any] | NDArray[Any]
    on_workers = False

    @property
    def shape(self) -> tuple[int, ...]:
        if isinstance(self.values, np.ndarray):
            return self.values.shape
        return (len(self.values),)

    @property
    def dtype(self) -> np.dtype[Any]:
        if isinstance(self.values, np.ndarray):
            return self.values.dtype
        return np.dtype(object)

    def part(self, start: int, stop: int) -> Part:
        return self.values[start:stop]


def kind_of_labels(labels: Source, name: str = "y") -> LabelKind:
    """Whether labels are whole numbers or text; an object type is taken for text."""
    sample: Any = np.empty(0, labels.dtype)
    if isinstance(labels, Memory):
        # Among floats, the first that is missing is named.
        sample = labels.values if labels.dtype.kind == "f" else labels.values[:1]
    found = _as_labels(sample, Cut(0, len(sample), name, 0))
    return "i" if found.dtype.kind == "i" else "U"


MISSING = "has no label"
MIXED = "some labels are text and some whole numbers; convert all to one of these"
_TOO_LARGE = "has a label beyond the range of int64"
_ENDS_WITH_ZERO = "has a label that ends with a character of code zero"
USABLE = "labels must be whole numbers or text"


def _as_labels(values: Any, cut: Cut) -> Labels:
    """Labels as int64 or as text of a fixed width."""
    if isinstance(values, (list, tuple)):
        array = np.fromiter(values, dtype=object, count=len(values))
    else:
        array = np.asarray(values)
    kind = array.dtype.kind
    if array.ndim != 1:
        raise BlockError(f"{cut.name}: labels need one dimension, not {array.ndim}")
    if kind in "OT":
        return _labels_of_objects(array.tolist(), cut)
    if kind == "U":
        return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if kind in "iu":
        if kind == "u":
            refuse(array > np.iinfo(np.int64).max, _TOO_LARGE, cut)
        return np.ascontiguousarray(array, dtype=np.int64)
    if kind == "f":
        refuse(np.isnan(array), MISSING, cut)
    how = {"S": ' with np.char.decode(y, "utf-8")', "f": " with y.astype(int)"}
    raise BlockError(
        f"{cut.name}: {USABLE}, not {array.dtype}; convert them{how.get(kind, '')}"
    )


def _labels_of_objects(values: list[Any], cut: Cut) -> Labels:
    are_text = [isinstance(value, str) for value in values]
    if all(are_text):
        # NumPy would take "a" and "a\0" for the same label.
        refuse([value.endswith("\0") for value in values], _ENDS_WITH_ZERO, cut)
        return np.array(values, dtype=np.str_)
    refuse([_is_missing(value) for value in values], MISSING, cut)
    are_whole = [
        isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        for value in values
    ]
    if all(are_whole):
        limits = np.iinfo(np.int64)
        outside = [not limits.min <= value <= limits.max for value in values]
        refuse(outside, _TOO_LARGE, cut)
        return np.array(values, dtype=np.int64)
    other = ~(np.array(are_text) | are_whole)
    if other.any():
        found = type(values[other.argmax()]).__name__
        refuse(other, f"has a label of type {found}; {USABLE}", cut)
    raise BlockError(f"{cut.name}: {MIXED}")


def _is_missing(value: Any) -> bool:
    # NaN is not equal to itself; pandas' NA does not say whether it is.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating)) and bool(value != value))
    )


def refuse(wrong: Sequence[bool] | NDArray[np.bool_], message: str, cut: Cut) -> None:
    """Name the first wrong row, if there is one."""
    if np.any(wrong):
        row = cut.row_in_file + int(np.argmax(wrong))
        raise BlockError(f"{cut.name}: row {row:,} {message}")
