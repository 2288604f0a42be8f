# SPDX-License-Identifier: BSD-3-Clause
"""What the values of a model file must be: types, ranges and lengths.

A checksum finds damage, but whoever forges a file writes one that fits. Whatever a
file says is checked against one of these before anything is done with it.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml.persistence._problems import Path, ValueProblem

#: Pixels of an image, 1024 x 1024. Files state sizes of images that they do not have.
MOST_PIXELS = 1 << 20
#: Threads. A thread pool makes as many as it is told.
_MOST_JOBS = 256
#: Numbers in the parameters of a method, and characters of a text.
_MOST_PLAIN = 1_000
#: Values of a large array that are looked at together.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Kind:
    """What a value must be.

    Attributes
    ----------
    name : str
        In words.
    holds : callable
        Whether a value is. It looks at types and shapes, and at values only of what
        is small.
    finite : bool
        Whether the numbers of an array must be finite, which takes a look at each.
    """

    name: str
    holds: Callable[[Any], bool]
    finite: bool = False

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(
            f"{self.name} or {other.name}",
            lambda v: self.holds(v) or other.holds(v),
            self.finite or other.finite,
        )


def check_kind(value: Any, kind: Kind, path: Path, *, values: bool = True) -> None:
    """Refuse a value that is not what it must be.

    Parameters
    ----------
    value : object
        The value.
    kind : Kind
        What it must be.
    path : tuple of str
        Where it is, for messages.
    values : bool, default=True
        Whether to look at all numbers of arrays.

    Raises
    ------
    ValueProblem
        It is something else.
    """
    if not kind.holds(value):
        raise ValueProblem(path, f"is not {kind.name}")
    looked_at = values and kind.finite and isinstance(value, np.ndarray)
    if looked_at and not _all_finite(value):
        raise ValueProblem(path, "has numbers that are not finite")


def check_fields(record: Any, kinds: Mapping[str, Kind], path: Path) -> None:
    """Refuse a dictionary that does not have exactly the fields that it must have.

    Parameters
    ----------
    record : object
        The dictionary.
    kinds : dict of str to Kind
        Its fields.
    path : tuple of str
        Where it is, for messages.

    Raises
    ------
    ValueProblem
        It is something else, or one of its fields is.
    """
    if not isinstance(record, dict):
        raise ValueProblem(path, "does not have the fields it should")
    for name in kinds:
        if name not in record:
            raise ValueProblem((*path, name), "is missing")
    for name, value in record.items():
        if name not in kinds:
            raise ValueProblem((*path, name), "is a field that is not known")
        check_kind(value, kinds[name], (*path, name))


def _all_finite(array: NDArray[Any]) -> bool:
    # Block by block, as the answer takes a byte for each number.
    flat = array.reshape(-1, order="A")
    starts = range(0, flat.size, _BLOCK)
    return all(np.isfinite(flat[start : start + _BLOCK]).all() for start in starts)


def array_of(
    name: str, types: str, ndim: int, *, finite: bool = False, empty: bool = True
) -> Kind:
    """An array of some of NumPy's types and a number of dimensions.

    Parameters
    ----------
    name : str
        In words.
    types : str
        Names of types like "float64 int32", or of kinds of types like "U".
    ndim : int
        The number of dimensions.
    finite : bool, default=False
        Whether its numbers must be finite.
    empty : bool, default=True
        Whether it may have no elements.

    Returns
    -------
    Kind
        Such arrays.
    """
    known = types.split()
    return Kind(
        name,
        lambda v: (
            isinstance(v, np.ndarray)
            and (v.dtype.name in known or v.dtype.kind in known)
            and v.ndim == ndim
            and (empty or v.size > 0)
        ),
        finite,
    )


def instance_of(*types: type) -> Kind:
    """An object of one of some classes."""
    return Kind(" or ".join(t.__name__ for t in types), lambda v: isinstance(v, types))


def one_of(values: Collection[str]) -> Kind:
    """One of some texts."""
    return Kind(
        "one of " + ", ".join(map(repr, values)),
        lambda v: type(v) is str and v in values,
    )


def plain_number(name: str, low: float, high: float = math.inf) -> Kind:
    """A finite number of Python in a range, both ends in it."""
    return Kind(
        name,
        lambda v: type(v) in (int, float) and math.isfinite(v) and low <= v <= high,
    )


def _is_finite_number(value: object) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and 0 <= int(value) < 1 << 53  # type: ignore[call-overload]


def _is_plain(value: object) -> bool:
    """Whether it is made of a few numbers and short texts."""
    left, rest = _MOST_PLAIN, [value]
    while rest and left:
        left -= 1
        inner = rest.pop()
        if type(inner) in (list, tuple):
            rest.extend(inner[: left + 1])  # type: ignore[index]
        elif type(inner) is str:
            if len(inner) > _MOST_PLAIN or not inner.isprintable():
                return False
        elif inner is not None and type(inner) not in (bool, int, float):
            return False
    return not rest


NOTHING = Kind("None", lambda v: v is None)
NUMBER = Kind("a finite number", _is_finite_number)
COUNT = Kind("a whole number", _is_count)
TEXT = instance_of(str)
DICT = instance_of(dict)
ESTIMATOR = Kind("an estimator", lambda v: isinstance(v, BaseEstimator))
# In half precision there is no linear algebra.
_FLOATS = "float32 float64"
VECTOR = array_of("a vector", _FLOATS, 1, finite=True, empty=False)
MATRIX = array_of("a matrix", _FLOATS, 2, finite=True, empty=False)
# What a fit reports, and no prediction uses: a fit that failed has NaN.
REPORT = array_of("a vector", _FLOATS, 1)
REPORT_MATRIX = array_of("a matrix", _FLOATS, 2)
REPORT_CUBE = array_of("an array of three dimensions", _FLOATS, 3)
# Sums and differences of shorter or unsigned ones wrap around.
CODES = array_of("a vector of whole numbers", "int32 int64", 1, empty=False)
# Those of objects are strings: no others can be saved.
LABELS = array_of("a vector of labels", "b i u f U O", 1, finite=False)
STRINGS = array_of("a vector of strings", "U O", 1)
SHAPE = Kind(
    "a height and a width",
    lambda v: (
        isinstance(v, tuple)
        and len(v) == 2
        and all(_is_count(size) and size > 0 for size in v)
    ),
)
SIZE = Kind(
    f"a height and a width of at most {MOST_PIXELS:,} pixels",
    lambda v: SHAPE.holds(v) and math.prod(map(int, v)) <= MOST_PIXELS,
)
JOBS = Kind(
    f"None or a number of threads up to {_MOST_JOBS}",
    lambda v: (
        v is None or (isinstance(v, Integral) and -_MOST_JOBS <= int(v) <= _MOST_JOBS)
    ),
)
PLAIN = Kind("a few numbers and short texts", _is_plain)
#: A text that a command may print.
LINE = Kind(
    f"a line of at most {_MOST_PLAIN:,} characters",
    lambda v: type(v) is str and len(v) <= _MOST_PLAIN and v.isprintable(),
)
