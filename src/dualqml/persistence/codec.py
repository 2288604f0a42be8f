# SPDX-License-Identifier: BSD-3-Clause
"""From objects to JSON and arrays, and back.

JSON has no NumPy arrays, tuples, NaN or objects. What JSON has is written as it is.
Everything else is a JSON object with one key that says what it is:

========== ===============================================================
"float"    "nan", "inf" or "-inf"
"tuple"    a list of its elements
"dict"     a JSON object, as keys are strings
"scalar"   a scalar of NumPy: "dtype" and "value"
"array"    "tensor", the name of an array of the file, and if needed "as" and
           "order", the note of `to_plain`
"object"   "class", a name in `CLASSES`, "parameters" and "attributes"
========== ===============================================================
"""

import inspect
import math
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml._saved_state import Path, Saved, ValueProblem, check_kind
from dualqml.persistence.schema import CLASSES
from dualqml.persistence.tensors import DTYPES

#: Most levels of nested objects. An object with more levels may contain itself.
_MOST_LEVELS = 50
#: Most objects of a file. Several may share an array, which is then checked several
#: times.
_MOST_OBJECTS = 100

#: Most characters of a string of an array. All strings take the room of the longest.
LONGEST_TEXT = 1_000_000
#: Most strings of an array of objects. Each takes some dozens of bytes more.
_MOST_TEXTS = 1_000_000
_LAST_CHARACTER = 0x10FFFF

#: Types of single numbers, by their NumPy names.
NUMBERS: Mapping[str, np.dtype[Any]] = {
    dtype.name: dtype for dtype in DTYPES.values() if dtype.kind in "biuf"
}


class Encoder:
    """Turns an object into JSON, and collects its arrays.

    Attributes
    ----------
    arrays : dict of str to ndarray
        The arrays, by names that say where they are. An array that is used in
        several places is there once.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        # Arrays by id. They are kept alive: the id of a deleted array is used again.
        self._seen: dict[int, tuple[NDArray[Any], dict[str, Any]]] = {}

    def encode(self, value: Any, path: Path = (), level: int = 0) -> Any:
        """The JSON of a value.

        Parameters
        ----------
        value : object
            The value.
        path : tuple of str
            Where the value is, for names and messages.
        level : int
            Number of objects that the value is nested in.

        Returns
        -------
        object
            A value that `json.dumps` takes.

        Raises
        ------
        ValueProblem
            A file cannot hold the value.
        """
        if level > _MOST_LEVELS:
            raise ValueProblem(path, "has too many levels: does it hold itself?")
        kind = type(value)
        # Exact types only: a subclass would be loaded as another type.
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            if value.bit_length() > 64:
                raise ValueProblem(path, "is a number of more than 64 bits")
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list or kind is tuple:
            items = [
                self.encode(item, (*path, str(position)), level + 1)
                for position, item in enumerate(value)
            ]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            return {"dict": self._encode_all(value, path, level)}
        if isinstance(value, np.generic):
            return self._encode_scalar(value, path)
        if kind is np.ndarray or kind is np.memmap:
            return self._encode_array(value, path)
        if is_saved(value):
            return self._encode_object(value, path, level)
        raise ValueProblem(path, f"is of type {kind.__name__}, which cannot be saved")

    def _encode_all(
        self, values: Mapping[Any, Any], path: Path, level: int
    ) -> dict[str, Any]:
        for key in values:
            if type(key) is not str:
                raise ValueProblem(path, f"has the key {key!r}, which is no string")
        return {
            key: self.encode(value, (*path, key), level + 1)
            for key, value in values.items()
        }

    def _encode_object(self, value: Any, path: Path, level: int) -> dict[str, Any]:
        name = type(value).__name__
        saved = CLASSES[name].saved
        if isinstance(value, BaseEstimator):
            parameters = value.get_params(deep=False)
        else:
            parameters = {f.name: getattr(value, f.name) for f in fields(value)}
        attributes = {k: v for k, v in vars(value).items() if k not in parameters}
        for key in attributes:
            if key not in saved.attributes and key not in saved.optional:
                what = f"is an attribute that a file has no place for in {name}"
                raise ValueProblem((*path, key), what)
        return {
            "object": {
                "class": name,
                "parameters": self._encode_all(parameters, path, level),
                "attributes": self._encode_all(attributes, path, level),
            }
        }

    def _encode_scalar(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, np.str_):
            return {"scalar": {"dtype": "str", "value": str(value)}}
        name = value.dtype.name
        if name not in NUMBERS:
            raise ValueProblem(path, f"is of type {name}, which cannot be saved")
        return {"scalar": {"dtype": name, "value": self.encode(value.item(), path)}}

    def _encode_array(self, value: NDArray[Any], path: Path) -> dict[str, Any]:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        try:
            plain, note = to_plain(np.asarray(value))
        except ValueError as error:
            raise ValueProblem(path, str(error)) from error
        name = ".".join(path)
        while name in self.arrays:
            # A dictionary may have both keys "a.b" and "a".
            name += "'"
        self.arrays[name] = plain
        node = {"array": {"tensor": name, **note}}
        self._seen[id(value)] = value, node
        return node


class Decoder:
    """Makes an object from JSON and arrays.

    Parameters
    ----------
    arrays : dict of str to ndarray
        The arrays of the file.
    values : bool, default=True
        Whether to check all numbers of arrays. If not, they are not read yet.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], *, values: bool = True
    ) -> None:
        self._arrays = arrays
        self._values = values
        self._n_objects = 0
        self._decoded_arrays: dict[tuple[tuple[str, str], ...], NDArray[Any]] = {}
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """Names of arrays that have not been used."""
        return sorted(set(self._arrays) - self._used)

    def decode(self, node: Any, path: Path = (), level: int = 0) -> Any:
        """The value that `Encoder.encode` has turned into JSON.

        Parameters
        ----------
        node : object
            A value that `json.loads` returned.
        path : tuple of str
            Where the value is, for messages.
        level : int
            Number of objects that the value is nested in.

        Returns
        -------
        object
            The value.

        Raises
        ------
        ValueProblem
            The JSON stands for no value, or an object is not valid for its class.
        """
        if level > _MOST_LEVELS:
            raise ValueProblem(path, "has too many levels")
        if node is None or isinstance(node, bool | float | str):
            return node
        if isinstance(node, int) and node.bit_length() <= 64:
            return node
        if isinstance(node, list):
            return [
                self.decode(item, (*path, str(position)), level + 1)
                for position, item in enumerate(node)
            ]
        tag, content = "", None
        if isinstance(node, dict) and len(node) == 1:
            tag, content = next(iter(node.items()))
        if tag == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if tag == "tuple" and isinstance(content, list):
            return tuple(self.decode(content, path, level))
        if tag == "dict" and isinstance(content, dict):
            return self._decode_all(content, path, level)
        if tag == "scalar" and _has_keys(content, "dtype", "value"):
            return self._decode_scalar(content, path, level)
        if tag == "array" and isinstance(content, dict):
            return self._decode_array(content, path)
        if tag == "object" and _has_keys(content, "class", "parameters", "attributes"):
            return self._decode_object(content, path, level)
        raise ValueProblem(path, f"is not a value: {reprlib.repr(node)}")

    def _decode_all(self, nodes: Any, path: Path, level: int) -> dict[str, Any]:
        if not isinstance(nodes, dict):
            raise ValueProblem(path, f"has no names: {reprlib.repr(nodes)}")
        return {
            key: self.decode(node, (*path, key), level + 1)
            for key, node in nodes.items()
        }

    def _decode_object(self, node: Mapping[str, Any], path: Path, level: int) -> Any:
        name = node["class"]
        if not isinstance(name, str) or name not in CLASSES:
            what = f"is of the class {reprlib.repr(name)}, which is not known"
            raise ValueProblem(path, what)
        self._n_objects += 1
        if self._n_objects > _MOST_OBJECTS:
            raise ValueProblem(path, f"is one of more than {_MOST_OBJECTS} objects")
        listed = CLASSES[name]
        saved = listed.saved
        parameters = self._decode_all(node["parameters"], path, level)
        attributes = self._decode_all(node["attributes"], path, level)
        loaded = _construct(listed.type, saved, parameters, path, values=self._values)
        _check_attributes(loaded, saved, attributes, path, values=self._values)
        for key, value in attributes.items():
            setattr(loaded, key, value)
        if isinstance(loaded, BaseEstimator):
            if not _is_fitted(saved, attributes):
                # It validates its parameters when it is fitted.
                return loaded
            try:
                loaded._validate_params()
            except (TypeError, ValueError) as error:
                raise ValueProblem(path, f"is not a valid {name}: {error}") from error
        listed.check_loaded(loaded, path)
        return loaded

    def _decode_scalar(self, node: Mapping[str, Any], path: Path, level: int) -> Any:
        name, value = node["dtype"], self.decode(node["value"], path, level + 1)
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        dtype = NUMBERS.get(name) if isinstance(name, str) else None
        expected = {"b": bool, "i": int, "u": int, "f": float}
        if dtype is not None and type(value) is expected[dtype.kind]:
            with np.errstate(over="ignore"), suppress(OverflowError):
                scalar = np.array(value).astype(dtype)[()]
                # A value that does not fit its type was not written by dualqml. NaN is
                # not equal to itself.
                if scalar.item() == value or value != value:
                    return scalar
        raise ValueProblem(path, f"is not a scalar: {reprlib.repr(dict(node))}")

    def _decode_array(self, node: Mapping[str, Any], path: Path) -> NDArray[Any]:
        if "tensor" not in node or not all(isinstance(v, str) for v in node.values()):
            raise ValueProblem(path, f"is not an array: {reprlib.repr(dict(node))}")
        name = node["tensor"]
        if name not in self._arrays:
            what = f"needs the array {reprlib.repr(name)}, which is not there"
            raise ValueProblem(path, what)
        key = tuple(sorted(node.items()))
        # Decoding copies strings, and a file may use the same array many times.
        if key not in self._decoded_arrays:
            note = {k: v for k, v in node.items() if k != "tensor"}
            try:
                self._decoded_arrays[key] = from_plain(self._arrays[name], note)
            except ValueError as error:
                raise ValueProblem(path, str(error)) from error
            self._used.add(name)
        return self._decoded_arrays[key]


def is_saved(value: Any) -> bool:
    """Whether the class of an object is in `CLASSES`; a subclass does not count."""
    saved = CLASSES.get(type(value).__name__)
    return saved is not None and saved.type is type(value)


def to_plain(array: NDArray[Any]) -> tuple[NDArray[Any], dict[str, str]]:
    """Turn an array into one of numbers or booleans, with a note how to undo it.

    Parameters
    ----------
    array : ndarray
        Numbers, booleans or strings.

    Returns
    -------
    plain : ndarray
        An array of a type that the format has. It is a copy only if needed.
    note : dict of str to str
        What `from_plain` needs; mostly empty.

    Raises
    ------
    ValueError
        A file cannot hold the array.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.persistence.codec import from_plain, to_plain
    >>> plain, note = to_plain(np.array(["Anna", "Bo"]))
    >>> plain
    array([[ 65, 110, 110,  97],
           [ 66, 111,   0,   0]], dtype=uint32)
    >>> from_plain(plain, note)
    array(['Anna', 'Bo'], dtype='<U4')
    """
    note = {}
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        # The order is kept: products of arrays of another order differ in the last
        # bits.
        array, note["order"] = array.T, "F"
    if array.dtype.kind in "UO":
        note["as"] = "text" if array.dtype.kind == "U" else "objects"
        return _code_points(array), note
    if array.dtype.kind == "c" and array.dtype.itemsize <= 16:
        note["as"] = "complex"
        whole = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        parts = whole.view(f"<f{whole.itemsize // 2}")
        return parts.reshape(*array.shape, 2), note
    if array.dtype.name not in NUMBERS:
        raise ValueError(f"is an array of type {array.dtype}, which cannot be saved")
    return array, note


def from_plain(plain: NDArray[Any], note: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `to_plain` has turned into another.

    Parameters
    ----------
    plain : ndarray
        An array of a type that the format has, in C order.
    note : dict
        The note from a file, which may be anything.

    Returns
    -------
    ndarray
        The array. It is a copy if its strings are objects.

    Raises
    ------
    ValueError
        The note is not valid, or does not fit the array.
    """
    kind, order = note.get("as"), note.get("order")
    if not set(note) <= {"as", "order"} or order not in (None, "F"):
        raise ValueError("is an array of an unknown form")
    array = plain
    if kind == "complex":
        array = _complex_numbers(plain)
    elif kind in ("text", "objects"):
        array = _strings(plain)
        if kind == "objects":
            if array.size > _MOST_TEXTS:
                raise ValueError(f"has more than {_MOST_TEXTS:,} strings")
            array = array.astype(object)
    elif kind is not None:
        raise ValueError("is an array of an unknown form")
    return array.T if order == "F" else array


def _construct(
    kind: type,
    saved: Saved,
    parameters: dict[str, Any],
    path: Path,
    *,
    values: bool,
) -> Any:
    """Make an object from parameters; missing ones take their defaults."""
    known = inspect.signature(kind).parameters
    for key in parameters:
        if key not in known:
            what = (
                f"is a parameter that {kind.__name__} does not have. The file may "
                "come from a newer version"
            )
            raise ValueProblem((*path, key), what)
    for key, parameter in known.items():
        if key not in parameters and parameter.default is inspect.Parameter.empty:
            raise ValueProblem(
                (*path, key), f"is missing, and {kind.__name__} needs it"
            )
    for key, wanted in saved.parameters.items():
        if key in parameters:
            check_kind(parameters[key], wanted, (*path, key), values=values)
    return kind(**parameters)


def _check_attributes(
    loaded: Any,
    saved: Saved,
    attributes: Mapping[str, Any],
    path: Path,
    *,
    values: bool,
) -> None:
    """Raise if an attribute is missing, unknown or of another kind."""
    name = type(loaded).__name__
    kinds = {**saved.attributes, **saved.optional}
    for key, value in attributes.items():
        if key not in kinds:
            what = f"is an attribute that {name} does not have"
            raise ValueProblem((*path, key), what)
        check_kind(value, kinds[key], (*path, key), values=values)
    if isinstance(loaded, BaseEstimator) and not _is_fitted(saved, attributes):
        return
    for key in saved.attributes:
        if key not in attributes:
            raise ValueProblem((*path, key), f"is missing, and {name} needs it")


def _is_fitted(saved: Saved, attributes: Mapping[str, Any]) -> bool:
    return not saved.attributes or any(key in saved.attributes for key in attributes)


def _has_keys(node: Any, *keys: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(node, dict) and set(node) == set(keys)


def _code_points(array: NDArray[Any]) -> NDArray[np.uint32]:
    """The code points of strings, along a last axis."""
    too_long = f"has strings of more than {LONGEST_TEXT:,} characters"
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.flat):
            raise ValueError("is an array of objects that are not all strings")
        if max(map(len, array.flat), default=0) > LONGEST_TEXT:
            raise ValueError(too_long)
        text = array.astype(np.str_)
        if text.tolist() != array.tolist():
            # NumPy ignores zero characters at the end of a string.
            raise ValueError("has strings that end in a zero character")
        array = text
    width = max(array.dtype.itemsize // 4, 1)
    if width > LONGEST_TEXT:
        raise ValueError(too_long)
    flat = np.ascontiguousarray(array, np.dtype(f"<U{width}")).reshape(-1)
    return flat.view("<u4").reshape(*array.shape, width)


def _strings(codes: NDArray[Any]) -> NDArray[Any]:
    """The strings of code points along the last axis."""
    width = codes.shape[-1] if codes.ndim else 0
    if (
        codes.dtype != np.uint32
        or not 1 <= width <= LONGEST_TEXT
        or codes.max(initial=0) > _LAST_CHARACTER
    ):
        raise ValueError("has strings that are no code points")
    return codes.reshape(-1).view(f"<U{width}").reshape(codes.shape[:-1])


def _complex_numbers(parts: NDArray[Any]) -> NDArray[Any]:
    """The complex numbers of real and imaginary parts along the last axis."""
    if parts.shape[-1:] != (2,) or parts.dtype.name not in ("float32", "float64"):
        raise ValueError("has no pairs of real and imaginary parts")
    whole = parts.reshape(-1).view(f"<c{2 * parts.itemsize}")
    return whole.reshape(parts.shape[:-1])
