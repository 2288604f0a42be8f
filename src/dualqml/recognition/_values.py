# SPDX-License-Identifier: BSD-3-Clause
"""From objects to JSON and arrays, and back.

JSON has no arrays of numbers, tuples, NaN or objects. What it has stands for itself,
and everything else is a JSON object with one key that says what it is:

========== ===============================================================
"float"    "nan", "inf" or "-inf"
"tuple"    a list of its elements
"dict"     a JSON object, as keys are strings
"scalar"   a scalar of NumPy: "dtype" and "value"
"array"    "tensor", the name of an array; and where needed "order", "F" for
           columns first, and "as", for types that the file's format has not:
           "text", "objects" (strings too) or "complex"
"object"   "class", a name in `CLASSES`, "parameters" and "attributes"
========== ===============================================================
"""

import inspect
import math
import reprlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml.recognition._classes import CLASSES, SavedClass
from dualqml.recognition.tensors import DTYPES

#: Levels of objects in objects; more are taken for an object that holds itself.
_MOST_LEVELS = 50
#: Characters of the longest string of an array, all of which take its room.
_LONGEST_TEXT = 1_000_000
_LAST_CHARACTER = 0x10FFFF
_NAMES = {saved.type: name for name, saved in CLASSES.items()}
_SCALARS = {dtype.name: dtype for dtype in DTYPES.values() if dtype.kind in "biuf"}


class ValueProblem(Exception):
    """What cannot be saved or loaded, and where it is."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path or 'the model'} {what}")


class Encoder:
    """Turns an object into JSON, and collects its arrays.

    Attributes
    ----------
    arrays : dict of str to ndarray
        By names that say where they are. An array that is held in several places
        is there once.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        # The arrays themselves are kept, as an id is of a living object only.
        self._seen: dict[int, tuple[NDArray[Any], dict[str, Any]]] = {}

    def encode(self, value: Any, path: str = "", level: int = 0) -> Any:
        """The JSON of a value.

        Parameters
        ----------
        value : object
            What to encode.
        path : str
            Where it is, for names and messages.
        level : int
            How many objects hold it.

        Returns
        -------
        object
            What `json.dumps` takes.

        Raises
        ------
        ValueProblem
            A file cannot hold it.
        """
        if level > _MOST_LEVELS:
            raise ValueProblem(path, "has too many levels: does it hold itself?")
        kind = type(value)
        # Types as they are: subclasses would come back as something else.
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
                self.encode(item, _inside(path, str(place)), level + 1)
                for place, item in enumerate(value)
            ]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            return {"dict": self._encode_all(value, path, level)}
        if isinstance(value, np.generic):
            return self._encode_scalar(value, path)
        if kind is np.ndarray or kind is np.memmap:
            return self._encode_array(value, path)
        if kind in _NAMES:
            return self._encode_object(value, path, level)
        raise ValueProblem(path, f"is of type {kind.__name__}, which cannot be saved")

    def _encode_all(
        self, values: Mapping[Any, Any], path: str, level: int
    ) -> dict[str, Any]:
        for key in values:
            if type(key) is not str:
                raise ValueProblem(path, f"has the key {key!r}, which is no string")
        return {
            key: self.encode(value, _inside(path, key), level + 1)
            for key, value in values.items()
        }

    def _encode_object(self, value: Any, path: str, level: int) -> dict[str, Any]:
        name = _NAMES[type(value)]
        saved = CLASSES[name]
        parameters: dict[str, Any] = {}
        if isinstance(value, BaseEstimator):
            parameters = value.get_params(deep=False)
        elif is_dataclass(value):
            parameters = {f.name: getattr(value, f.name) for f in fields(value)}
        attributes = {k: v for k, v in vars(value).items() if k not in parameters}
        for key in attributes:
            if key not in saved.attributes and key not in saved.optional:
                what = f"is an attribute that a file has no place for in {name}"
                raise ValueProblem(_inside(path, key), what)
        return {
            "object": {
                "class": name,
                "parameters": self._encode_all(parameters, path, level),
                "attributes": self._encode_all(attributes, path, level),
            }
        }

    def _encode_scalar(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, np.str_):
            return {"scalar": {"dtype": "str", "value": str(value)}}
        name = value.dtype.name
        if name not in _SCALARS:
            raise ValueProblem(path, f"is of type {name}, which cannot be saved")
        return {"scalar": {"dtype": name, "value": self.encode(value.item(), path)}}

    def _encode_array(self, value: NDArray[Any], path: str) -> dict[str, Any]:
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        node: dict[str, Any] = {}
        array = np.asarray(value)
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            # Products are computed in another order for these, and would differ in
            # their last bits.
            array, node["order"] = array.T, "F"
        if array.dtype.kind in "UO":
            node["as"] = "text" if array.dtype.kind == "U" else "objects"
            array = _characters(array, path)
        elif array.dtype.kind == "c" and array.dtype.itemsize <= 16:
            node["as"] = "complex"
            array = np.ascontiguousarray(array)
            part = np.float32 if array.dtype.itemsize == 8 else np.float64
            array = array.reshape(-1).view(part).reshape(*array.shape, 2)
        elif array.dtype.name not in _SCALARS:
            what = f"is an array of type {array.dtype}, which cannot be saved"
            raise ValueProblem(path, what)
        name = path
        while name in self.arrays:
            # A dictionary may have the key "a.b" beside "a".
            name += "'"
        self.arrays[name] = array
        result = {"array": {"tensor": name, **node}}
        self._seen[id(value)] = value, result
        return result


class Decoder:
    """Makes an object from JSON and arrays.

    Parameters
    ----------
    arrays : dict of str to ndarray
        The arrays of the file.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self.used: set[str] = set()

    def decode(self, node: Any, path: str = "", level: int = 0) -> Any:
        """The value that `Encoder.encode` made a piece of JSON of.

        Parameters
        ----------
        node : object
            What `json.loads` returned.
        path : str
            Where it is, for messages.
        level : int
            How many objects hold it.

        Returns
        -------
        object
            The value.

        Raises
        ------
        ValueProblem
            No value has this JSON, or an object is not what its class asks for.
        """
        if level > _MOST_LEVELS:
            raise ValueProblem(path, "has too many levels")
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return [
                self.decode(item, _inside(path, str(place)), level + 1)
                for place, item in enumerate(node)
            ]
        tag, content = next(iter(node.items())) if len(node) == 1 else ("", None)
        if tag == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if tag == "tuple" and isinstance(content, list):
            return tuple(self.decode(content, path, level))
        if tag == "dict" and isinstance(content, dict):
            return self._decode_all(content, path, level)
        if tag == "scalar" and _has(content, "dtype", "value"):
            return self._decode_scalar(content, path)
        if tag == "array" and _has(content, "tensor", optional=("order", "as")):
            return self._decode_array(content, path)
        if tag == "object" and _has(content, "class", "parameters", "attributes"):
            return self._decode_object(content, path, level)
        raise ValueProblem(path, f"is not a value: {reprlib.repr(node)}")

    def _decode_all(self, nodes: Any, path: str, level: int) -> dict[str, Any]:
        if not isinstance(nodes, dict):
            raise ValueProblem(path, f"has no names: {reprlib.repr(nodes)}")
        return {
            key: self.decode(node, _inside(path, key), level + 1)
            for key, node in nodes.items()
        }

    def _decode_object(self, node: Mapping[str, Any], path: str, level: int) -> Any:
        name = node["class"]
        if not isinstance(name, str) or name not in CLASSES:
            what = f"is of the class {reprlib.repr(name)}, which is not known"
            raise ValueProblem(path, what)
        saved = CLASSES[name]
        parameters = self._decode_all(node["parameters"], path, level)
        attributes = self._decode_all(node["attributes"], path, level)
        made = _made(name, saved, parameters, path)
        estimator = isinstance(made, BaseEstimator)
        if attributes or not estimator:
            _check_attributes(name, saved, attributes, path)
            for key, value in attributes.items():
                object.__setattr__(made, key, value)
        if attributes and estimator:
            # One that is not fitted will check itself when it is.
            try:
                made._validate_params()
            except (TypeError, ValueError) as error:
                raise ValueProblem(path, f"is not a valid {name}: {error}") from error
        return made

    def _decode_scalar(self, node: Mapping[str, Any], path: str) -> Any:
        name, value = node["dtype"], self.decode(node["value"], path)
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        dtype = _SCALARS.get(name) if isinstance(name, str) else None
        expected = {"b": bool, "i": int, "u": int, "f": float}
        if dtype is not None and type(value) is expected[dtype.kind]:
            try:
                with np.errstate(over="ignore"):
                    scalar = np.array(value).astype(dtype)[()]
            except OverflowError:
                scalar = None
            if scalar == value or value != value:
                return scalar
        raise ValueProblem(path, f"is not a scalar: {reprlib.repr(dict(node))}")

    def _decode_array(self, node: Mapping[str, Any], path: str) -> NDArray[Any]:
        name, kind, order = node["tensor"], node.get("as"), node.get("order")
        if not isinstance(name, str) or name not in self._arrays:
            what = f"needs the array {reprlib.repr(name)}, which is not there"
            raise ValueProblem(path, what)
        self.used.add(name)
        array = self._arrays[name]
        if kind in ("text", "objects"):
            array = _text(array, path)
            array = array.astype(object) if kind == "objects" else array
        elif kind == "complex" and array.shape[-1:] == (2,) and array.dtype.kind == "f":
            whole = np.dtype(f"<c{2 * array.dtype.itemsize}")
            if whole.itemsize < 8:
                raise ValueProblem(path, "has complex numbers of an unknown type")
            array = array.reshape(-1).view(whole).reshape(array.shape[:-1])
        elif kind is not None:
            raise ValueProblem(path, f"is not {reprlib.repr(kind)}")
        if order not in (None, "F"):
            raise ValueProblem(path, f"has the order {reprlib.repr(order)}")
        return array.T if order == "F" else array


def _made(name: str, saved: SavedClass, parameters: dict[str, Any], path: str) -> Any:
    """An object of a class with given parameters, and the defaults of the others."""
    known: Mapping[str, inspect.Parameter] = {}
    if issubclass(saved.type, BaseEstimator) or is_dataclass(saved.type):
        known = inspect.signature(saved.type).parameters
    for key in parameters:
        if key not in known:
            what = (
                f"is a parameter that {name} does not have. The file may come from a "
                "newer version"
            )
            raise ValueProblem(_inside(path, key), what)
    for key, parameter in known.items():
        if key not in parameters and parameter.default is inspect.Parameter.empty:
            raise ValueProblem(_inside(path, key), f"is missing, and {name} needs it")
    for key, kind in saved.parameters.items():
        if key in parameters and not kind.holds(parameters[key]):
            raise ValueProblem(_inside(path, key), f"is not {kind.name}")
    return saved.type(**parameters) if known else object.__new__(saved.type)


def _check_attributes(
    name: str, saved: SavedClass, attributes: Mapping[str, Any], path: str
) -> None:
    kinds = {**saved.attributes, **saved.optional}
    for key, value in attributes.items():
        if key not in kinds:
            what = f"is an attribute that {name} does not have"
            raise ValueProblem(_inside(path, key), what)
        if not kinds[key].holds(value):
            raise ValueProblem(_inside(path, key), f"is not {kinds[key].name}")
    for key in saved.attributes:
        if key not in attributes:
            raise ValueProblem(_inside(path, key), f"is missing, and {name} needs it")


def _characters(array: NDArray[Any], path: str) -> NDArray[np.uint32]:
    """The code points of strings, along a last axis."""
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.flat):
            raise ValueProblem(path, "is an array of objects that are not all strings")
        if max(map(len, array.flat), default=0) <= _LONGEST_TEXT:
            text = array.astype(np.str_)
            if text.tolist() != array.tolist():
                # NumPy takes zeros at the end for no characters.
                raise ValueProblem(path, "has strings that end in a zero character")
            array = text
    width = max(array.dtype.itemsize // 4, 1)
    if array.dtype.kind == "O" or width > _LONGEST_TEXT:
        raise ValueProblem(path, f"has strings of more than {_LONGEST_TEXT:,} letters")
    plain = np.ascontiguousarray(array, np.dtype(f"<U{width}")).reshape(-1)
    return plain.view("<u4").reshape(*array.shape, width)


def _text(codes: NDArray[Any], path: str) -> NDArray[np.str_]:
    """The strings of code points along the last axis."""
    if codes.dtype != np.uint32 or codes.ndim == 0:
        raise ValueProblem(path, "has strings that are no code points")
    width = codes.shape[-1]
    if not 1 <= width <= _LONGEST_TEXT or codes.max(initial=0) > _LAST_CHARACTER:
        raise ValueProblem(path, "has strings that are no code points")
    return codes.reshape(-1).view(f"<U{width}").reshape(codes.shape[:-1])


def _has(node: Any, *keys: str, optional: tuple[str, ...] = ()) -> bool:
    return isinstance(node, dict) and set(keys) <= set(node) <= {*keys, *optional}


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
