# SPDX-License-Identifier: BSD-3-Clause
"""From objects to JSON and arrays, and back.

JSON has no arrays of numbers, tuples, NaN or objects. What it has stands for itself,
and everything else is a JSON object with one key that says what it is:

========== ===============================================================
"float"    "nan", "inf" or "-inf"
"tuple"    a list of its elements
"dict"     a JSON object, as keys are strings
"scalar"   a scalar of NumPy: "dtype" and "value"
"array"    "tensor", the name of an array of the file, and where needed "as" and
           "order", the note of `to_plain`
"object"   "class", a name in `CLASSES`, "parameters" and "attributes"
========== ===============================================================
"""

import inspect
import math
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml.recognition._arrays import NUMBERS, from_plain, to_plain
from dualqml.recognition._classes import CLASSES, SavedClass
from dualqml.recognition._kinds import check_kind
from dualqml.recognition._problems import Path, ValueProblem
from dualqml.recognition._shapes import check_shapes

#: Levels of objects in objects; more are taken for an object that holds itself.
_MOST_LEVELS = 50
#: Objects of a file. Several may share an array, which is checked with each of them.
_MOST_OBJECTS = 100


def is_saved(value: Any) -> bool:
    """Whether it is an object of a class in the list, and not of a subclass."""
    saved = CLASSES.get(type(value).__name__)
    return saved is not None and saved.type is type(value)


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

    def encode(self, value: Any, path: Path = (), level: int = 0) -> Any:
        """The JSON of a value.

        Parameters
        ----------
        value : object
            What to encode.
        path : tuple of str
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
                self.encode(item, (*path, str(place)), level + 1)
                for place, item in enumerate(value)
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
            # A dictionary may have the key "a.b" beside "a".
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
        Whether to look at all numbers of arrays; else they stay in the file.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], *, values: bool = True
    ) -> None:
        self._arrays = arrays
        self._values = values
        self._n_objects = 0
        self._made: dict[tuple[tuple[str, str], ...], NDArray[Any]] = {}
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """Arrays that nothing has asked for."""
        return sorted(set(self._arrays) - self._used)

    def decode(self, node: Any, path: Path = (), level: int = 0) -> Any:
        """The value that `Encoder.encode` made a piece of JSON of.

        Parameters
        ----------
        node : object
            What `json.loads` returned.
        path : tuple of str
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
        if node is None or isinstance(node, bool | float | str):
            return node
        if isinstance(node, int) and node.bit_length() <= 64:
            return node
        if isinstance(node, list):
            return [
                self.decode(item, (*path, str(place)), level + 1)
                for place, item in enumerate(node)
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
        if tag == "scalar" and _has(content, "dtype", "value"):
            return self._decode_scalar(content, path, level)
        if tag == "array" and isinstance(content, dict):
            return self._decode_array(content, path)
        if tag == "object" and _has(content, "class", "parameters", "attributes"):
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
        saved = CLASSES[name]
        parameters = self._decode_all(node["parameters"], path, level)
        attributes = self._decode_all(node["attributes"], path, level)
        made = _made(name, saved, parameters, path, values=self._values)
        _check_attributes(name, saved, attributes, path, values=self._values)
        for key, value in attributes.items():
            setattr(made, key, value)
        if isinstance(made, BaseEstimator):
            if not _is_fitted(saved, attributes):
                # It will check itself when it is.
                return made
            try:
                made._validate_params()
            except (TypeError, ValueError) as error:
                raise ValueProblem(path, f"is not a valid {name}: {error}") from error
        check_shapes(made, path)
        return made

    def _decode_scalar(self, node: Mapping[str, Any], path: Path, level: int) -> Any:
        name, value = node["dtype"], self.decode(node["value"], path, level + 1)
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        dtype = NUMBERS.get(name) if isinstance(name, str) else None
        expected = {"b": bool, "i": int, "u": int, "f": float}
        if dtype is not None and type(value) is expected[dtype.kind]:
            with np.errstate(over="ignore"), suppress(OverflowError):
                scalar = np.array(value).astype(dtype)[()]
                # What was cut off or rounded was not written by us. NaN is NaN.
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
        # Strings are copied, and a file may ask for them any number of times.
        if key not in self._made:
            note = {k: v for k, v in node.items() if k != "tensor"}
            try:
                self._made[key] = from_plain(self._arrays[name], note)
            except ValueError as error:
                raise ValueProblem(path, str(error)) from error
            self._used.add(name)
        return self._made[key]


def _made(
    name: str,
    saved: SavedClass,
    parameters: dict[str, Any],
    path: Path,
    *,
    values: bool,
) -> Any:
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
            raise ValueProblem((*path, key), what)
    for key, parameter in known.items():
        if key not in parameters and parameter.default is inspect.Parameter.empty:
            raise ValueProblem((*path, key), f"is missing, and {name} needs it")
    for key, kind in saved.parameters.items():
        if key in parameters:
            check_kind(parameters[key], kind, (*path, key), values=values)
    return saved.type(**parameters) if known else object.__new__(saved.type)


def _check_attributes(
    name: str,
    saved: SavedClass,
    attributes: Mapping[str, Any],
    path: Path,
    *,
    values: bool,
) -> None:
    kinds = {**saved.attributes, **saved.optional}
    for key, value in attributes.items():
        if key not in kinds:
            what = f"is an attribute that {name} does not have"
            raise ValueProblem((*path, key), what)
        check_kind(value, kinds[key], (*path, key), values=values)
    if issubclass(saved.type, BaseEstimator) and not _is_fitted(saved, attributes):
        return
    for key in saved.attributes:
        if key not in attributes:
            raise ValueProblem((*path, key), f"is missing, and {name} needs it")


def _is_fitted(saved: SavedClass, attributes: Mapping[str, Any]) -> bool:
    return not saved.attributes or any(key in saved.attributes for key in attributes)


def _has(node: Any, *keys: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(node, dict) and set(node) == set(keys)
