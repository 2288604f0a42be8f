# SPDX-License-Identifier: BSD-3-Clause
"""How a class declares what a model file keeps of it, and how that is checked.

A class that can be saved has an attribute ``_saved`` of type `Saved`. It names every
fitted attribute with its kind and its shape. What must hold beyond that is checked by
a method ``_check_saved(path)``, if the class has one. For example::

    class Means(SupervisedExtractor):
        _saved = fitted(
            classes_=LABELS.of("n_classes"),
            means_=MATRIX.of("n_classes", "n_features"),
        )

A checksum finds damage, but a forged file has a checksum that fits. So every value of
a file is checked against these declarations before it is used. No check takes memory
by a number that a file only states.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml._text import printable

#: Characters of a message about a value, which may be a large one.
_LONGEST_MESSAGE = 500
#: Pixels of an image, 1024 x 1024. Files state sizes of images that they do not have.
MOST_PIXELS = 1 << 20
#: Threads. A thread pool makes as many as it is told.
_MOST_JOBS = 256
#: Numbers in the parameters of a method, and characters of a text.
_MOST_PLAIN = 1_000
#: Values of a large array that are looked at together.
_BLOCK = 1 << 20

#: Where a value is: names of parameters and attributes, keys and places in lists.
#: A text would be copied for every value, and names in a file may be very long.
Path = tuple[str, ...]


class ValueProblem(ValueError):
    """What cannot be saved or loaded, and where it is."""

    def __init__(self, path: Path, what: str) -> None:
        # A file may have chosen the names.
        where = ".".join(printable(name, 80) for name in path)
        what = printable(what, _LONGEST_MESSAGE)
        super().__init__(f"{where or 'the model'} {what}")


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
    axes : tuple of str
        The length of each axis of an array, by name; empty where it is free. A name
        stands for the same number everywhere in an object: "n_features" is
        `n_features_in_`, "n_classes" the number of classes, and any other name is
        the length that the first array has.
    """

    name: str
    holds: Callable[[Any], bool]
    finite: bool = False
    axes: tuple[str, ...] = ()

    def of(self, *axes: str) -> "Kind":
        """An array of this kind whose axes have these lengths."""
        return replace(self, axes=axes)

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(
            f"{self.name} or {other.name}",
            lambda v: self.holds(v) or other.holds(v),
            self.finite or other.finite,
            self.axes or other.axes,
        )


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
# The score of a search in which nothing could be held out is not a number.
SCORE = Kind("a number", lambda v: isinstance(v, Real) and not isinstance(v, bool))
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

#: What `set_output` leaves.
_CONTAINER = one_of(("default", "pandas", "polars"))
OUTPUT: Mapping[str, Kind] = {
    "_sklearn_output_config": Kind(
        f"a choice of {_CONTAINER.name}",
        lambda v: (
            isinstance(v, dict)
            and set(v) <= {"transform"}
            and all(map(_CONTAINER.holds, v.values()))
        ),
    )
}


@dataclass(frozen=True)
class Saved:
    """What a model file keeps of an object.

    Attributes
    ----------
    attributes : dict of str to Kind
        What an object has. An estimator that is not fitted has none of them.
    optional : dict of str to Kind
        What it may have.
    parameters : dict of str to Kind
        Parameters that are checked here. Those of a fitted estimator are also
        checked by itself.
    """

    attributes: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    parameters: Mapping[str, Kind] = field(default_factory=dict)

    def extended(self, **attributes: Kind) -> "Saved":
        """The same with more attributes, as a subclass has them."""
        return replace(self, attributes={**self.attributes, **attributes})


#: An estimator that learns nothing. Any estimator may have names of columns.
STATELESS = Saved(
    optional={"feature_names_in_": STRINGS.of("n_features"), **OUTPUT},
    parameters={"n_jobs": JOBS},
)


def fitted(**attributes: Kind) -> Saved:
    """What a file keeps of an estimator: `n_features_in_` and what else it learns."""
    return STATELESS.extended(n_features_in_=COUNT, **attributes)


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


def check_shapes(made: Any, saved: Saved, path: Path) -> None:
    """Raise if arrays of an object do not fit together.

    With shapes that do not fit, a model would be loaded and would fail when it is
    used, or answer from the wrong rows.

    Parameters
    ----------
    made : object
        A fitted estimator or a dataclass, with attributes of the right kinds. The
        objects that it holds have been checked.
    saved : Saved
        What it declares.
    path : tuple of str
        Where it is, for messages.

    Raises
    ------
    ValueProblem
        They do not fit.
    """
    values = vars(made)
    #: By name the length, and the attribute that says so.
    known: dict[str, tuple[int, str]] = {}
    if "n_features_in_" in values:
        known["n_features"] = values["n_features_in_"], "n_features_in_"
        expect(known["n_features"][0] > 0, path, "n_features_in_", "is zero")
    kinds = {**saved.parameters, **saved.attributes, **saved.optional}
    for name, kind in kinds.items():
        array = values.get(name)
        # Many may be None, and StandardScaler counts in a number or an array.
        if not isinstance(array, np.ndarray) or not kind.axes:
            continue
        for axis, (letter, size) in enumerate(zip(kind.axes, array.shape, strict=True)):
            wanted, source = known.setdefault(letter, (size, name))
            what = (
                f"has the shape {array.shape}, but for {source} it needs {wanted} "
                f"along axis {axis}"
            )
            expect(size == wanted, path, name, what)
    if "n_classes" in known:
        expect(known["n_classes"][0] > 0, path, "classes_", "is empty")


def expect(holds: bool, path: Path, name: str, what: str) -> None:
    """Refuse an attribute unless something holds."""
    if not holds:
        raise ValueProblem((*path, name), what)


def expect_equal(
    found: int, wanted: int, path: Path, name: str, unit: str, source: str
) -> None:
    what = f"has {found} {unit}, but for {source} it needs {wanted}"
    expect(found == wanted, path, name, what)


def expect_codes(codes: NDArray[Any], size: int, path: Path, name: str) -> None:
    """Refuse codes unless they are 0 to size - 1, each of them used."""
    # In this order: counting takes memory by the largest code and by nothing stated.
    holds = (
        0 < size <= codes.size
        and codes.min() == 0
        and codes.max() == size - 1
        and bool(np.bincount(codes, minlength=size).all())
    )
    what = f"does not have the whole numbers from 0 to {size - 1}, each at least once"
    expect(holds, path, name, what)


def asked(question: Callable[[], Any], path: Path) -> Any:
    """An answer that depends on parameters, which may be anything."""
    try:
        return question()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = f"has parameters that do not fit: {error}"
        raise ValueProblem(path, what) from error


def _all_finite(array: NDArray[Any]) -> bool:
    # Block by block, as the answer takes a byte for each number.
    flat = array.reshape(-1, order="A")
    starts = range(0, flat.size, _BLOCK)
    return all(np.isfinite(flat[start : start + _BLOCK]).all() for start in starts)
