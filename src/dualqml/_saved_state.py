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
a file is checked against these declarations before it is used. No check
allocates memory of a size that a file only states.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._text import printable

#: Most characters of a message. A message may quote a large value.
_LONGEST_MESSAGE = 500
#: Most pixels of an image, 1024 x 1024. A file can state any image size.
MOST_PIXELS = 1 << 20
#: Most threads. A thread pool starts as many as it is told to.
_MOST_JOBS = 256
#: Most numbers in the parameters of a method, and most characters of a text.
_MOST_PLAIN = 1_000
#: Number of values of a large array that are checked at a time.
_BLOCK = 1 << 20

#: Where a value is: names of parameters and attributes, keys and positions in lists.
#: It is not one string: that would be copied for every value, and names in a file may
#: be very long.
Path = tuple[str, ...]


class ValueProblem(ValueError):
    """A value cannot be saved or loaded. The message says where it is."""

    def __init__(self, path: Path, what: str) -> None:
        # The names may come from a file.
        where = ".".join(printable(name, 80) for name in path)
        what = printable(what, _LONGEST_MESSAGE)
        super().__init__(f"{where or 'the model'} {what}")


@dataclass(frozen=True)
class Kind:
    """A kind of values, such as a matrix or a whole number.

    Attributes
    ----------
    name : str
        The kind in words, for messages.
    holds : callable
        Whether a value is of this kind. It checks types and shapes, and the values of
        small objects only.
    finite : bool
        Whether all numbers of an array must be finite.
    axes : tuple of str
        The length of each axis of an array, by name; empty if the shape is free. A
        name stands for the same number everywhere in an object: "n_features" is
        `n_features_in_`, "n_classes" is the number of classes, and any other name is
        the length that the first array has.
    """

    name: str
    holds: Callable[[Any], bool]
    finite: bool = False
    axes: tuple[str, ...] = ()

    def of(self, *axes: str) -> "Kind":
        """Arrays of this kind whose axes have these lengths."""
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
    """Arrays of some NumPy types and of a number of dimensions.

    Parameters
    ----------
    name : str
        The kind in words.
    types : str
        Names of types, as "float64 int32", or letters of `dtype.kind`, as "U".
    ndim : int
        The number of dimensions.
    finite : bool, default=False
        Whether its numbers must be finite.
    empty : bool, default=True
        Whether it may have no elements.

    Returns
    -------
    Kind
        The kind.
    """
    names = types.split()
    return Kind(
        name,
        lambda v: (
            isinstance(v, np.ndarray)
            and (v.dtype.name in names or v.dtype.kind in names)
            and v.ndim == ndim
            and (empty or v.size > 0)
        ),
        finite,
    )


def instance_of(*types: type) -> Kind:
    """Objects of one of the given classes."""
    return Kind(" or ".join(t.__name__ for t in types), lambda v: isinstance(v, types))


def one_of(values: Collection[str]) -> Kind:
    """One of the given strings."""
    return Kind(
        "one of " + ", ".join(map(repr, values)),
        lambda v: type(v) is str and v in values,
    )


def plain_number(name: str, low: float, high: float = math.inf) -> Kind:
    """Finite Python numbers in a range, both ends included."""
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


def _is_estimator(value: object) -> bool:
    # Imported when first used: declarations alone do not need scikit-learn.
    from sklearn.base import BaseEstimator

    return isinstance(value, BaseEstimator)


def _is_plain(value: object) -> bool:
    """Whether a value consists of a few numbers and short texts."""
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
# The score is NaN if a search could not hold out any sample.
SCORE = Kind("a number", lambda v: isinstance(v, Real) and not isinstance(v, bool))
COUNT = Kind("a whole number", _is_count)
TEXT = instance_of(str)
DICT = instance_of(dict)
ESTIMATOR = Kind("an estimator", _is_estimator)
# NumPy has no linear algebra in half precision.
_FLOATS = "float32 float64"
VECTOR = array_of("a vector", _FLOATS, 1, finite=True, empty=False)
MATRIX = array_of("a matrix", _FLOATS, 2, finite=True, empty=False)
# Reported by a fit, not used by predictions. A fit that failed reports NaN.
REPORT = array_of("a vector", _FLOATS, 1)
REPORT_MATRIX = array_of("a matrix", _FLOATS, 2)
# Sums and differences of shorter or unsigned integers could overflow.
CODES = array_of("a vector of whole numbers", "int32 int64", 1, empty=False)
# Arrays of objects hold strings: other objects cannot be saved.
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

#: The attribute that `set_output` sets.
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
        Attributes that an object has. An estimator that is not fitted has none of
        them.
    optional : dict of str to Kind
        Attributes that an object may have.
    parameters : dict of str to Kind
        Parameters that are checked here. A fitted estimator also validates its
        parameters itself.
    """

    attributes: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    parameters: Mapping[str, Kind] = field(default_factory=dict)

    def extended(self, **attributes: Kind) -> "Saved":
        """The same with more attributes, for a subclass."""
        return replace(self, attributes={**self.attributes, **attributes})


#: An estimator that learns nothing. Any estimator may have names of features.
STATELESS = Saved(
    optional={"feature_names_in_": STRINGS.of("n_features"), **OUTPUT},
    parameters={"n_jobs": JOBS},
)


def fitted(**attributes: Kind) -> Saved:
    """What a file keeps of a fitted estimator: `n_features_in_` and attributes."""
    return STATELESS.extended(n_features_in_=COUNT, **attributes)


def check_kind(value: Any, kind: Kind, path: Path, *, values: bool = True) -> None:
    """Raise if a value is not of a kind.

    Parameters
    ----------
    value : object
        The value.
    kind : Kind
        The kind.
    path : tuple of str
        Where the value is, for messages.
    values : bool, default=True
        Whether to check all numbers of arrays.

    Raises
    ------
    ValueProblem
        The value is of another kind.
    """
    if not kind.holds(value):
        raise ValueProblem(path, f"is not {kind.name}")
    check_values = values and kind.finite and isinstance(value, np.ndarray)
    if check_values and not _all_finite(value):
        raise ValueProblem(path, "has numbers that are not finite")


def check_fields(
    record: Any, kinds: Mapping[str, Kind], path: Path, *, values: bool = True
) -> None:
    """Raise if a dictionary does not have exactly the given fields.

    Parameters
    ----------
    record : object
        The dictionary.
    kinds : dict of str to Kind
        The kind of each field, by name.
    path : tuple of str
        Where the value is, for messages.
    values : bool, default=True
        Whether to check all numbers of arrays.

    Raises
    ------
    ValueProblem
        A field is missing, unknown or of another kind, or it is no dictionary.
    """
    if not isinstance(record, dict):
        raise ValueProblem(path, "does not have the fields it should")
    for name in kinds:
        if name not in record:
            raise ValueProblem((*path, name), "is missing")
    for name, value in record.items():
        if name not in kinds:
            raise ValueProblem((*path, name), "is a field that is not known")
        check_kind(value, kinds[name], (*path, name), values=values)


def check_shapes(loaded: Any, saved: Saved, path: Path) -> None:
    """Raise if the shapes of the arrays of an object do not fit together.

    A model with wrong shapes would fail when it is used, or use the wrong rows.

    Parameters
    ----------
    loaded : object
        A fitted estimator or a dataclass, with attributes of the right kinds. The
        objects that it holds have been checked.
    saved : Saved
        The declaration of its class.
    path : tuple of str
        Where the value is, for messages.

    Raises
    ------
    ValueProblem
        The shapes do not fit.
    """
    values = vars(loaded)
    # The length of each named axis, and the attribute that it comes from.
    known: dict[str, tuple[int, str]] = {}
    if "n_features_in_" in values:
        known["n_features"] = values["n_features_in_"], "n_features_in_"
        expect(known["n_features"][0] > 0, path, "n_features_in_", "is zero")
    kinds = {**saved.parameters, **saved.attributes, **saved.optional}
    for name, kind in kinds.items():
        array = values.get(name)
        # Some are None; StandardScaler counts samples in a number or an array.
        if not isinstance(array, np.ndarray) or not kind.axes:
            continue
        lengths = zip(kind.axes, array.shape, strict=True)
        for axis, (axis_name, size) in enumerate(lengths):
            wanted, source = known.setdefault(axis_name, (size, name))
            what = (
                f"has the shape {array.shape}, but for {source} it needs {wanted} "
                f"along axis {axis}"
            )
            expect(size == wanted, path, name, what)
    if "n_classes" in known:
        expect(known["n_classes"][0] > 0, path, "classes_", "is empty")


def expect(holds: bool, path: Path, name: str, what: str) -> None:
    """Raise for an attribute unless a condition holds."""
    if not holds:
        raise ValueProblem((*path, name), what)


def expect_equal(
    found: int, wanted: int, path: Path, name: str, unit: str, source: str
) -> None:
    """Raise unless an attribute has as many items as another attribute needs."""
    what = f"has {found} {unit}, but for {source} it needs {wanted}"
    expect(found == wanted, path, name, what)


def expect_codes(codes: NDArray[Any], size: int, path: Path, name: str) -> None:
    """Raise unless codes are the numbers 0 to size - 1, each at least once."""
    # In this order: counting takes memory for the largest code, so it comes last.
    holds = (
        0 < size <= codes.size
        and codes.min() == 0
        and codes.max() == size - 1
        and bool(np.bincount(codes, minlength=size).all())
    )
    what = f"does not have the whole numbers from 0 to {size - 1}, each at least once"
    expect(holds, path, name, what)


def from_parameters(compute: Callable[[], Any], path: Path) -> Any:
    """Compute a value from parameters of a file, which may not be valid."""
    try:
        return compute()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = f"has parameters that do not fit: {error}"
        raise ValueProblem(path, what) from error


def _all_finite(array: NDArray[Any]) -> bool:
    # Block by block, as the result of isfinite takes one byte per number.
    flat = array.reshape(-1, order="A")
    starts = range(0, flat.size, _BLOCK)
    return all(np.isfinite(flat[start : start + _BLOCK]).all() for start in starts)
