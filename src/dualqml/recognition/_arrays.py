# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that the file's format has no type for, as arrays that it has.

Strings become their code points and complex numbers their parts, along one more
axis. A note says what to do on the way back: "as" is "text", "objects" (strings
too) or "complex", and "order" is "F" for arrays that have their columns first.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml.recognition.tensors import DTYPES

#: Characters of the longest string of an array, all of which take its room.
LONGEST_TEXT = 1_000_000
#: Strings of an array of objects, each of which takes some dozens of bytes more.
_MOST_TEXTS = 1_000_000
_LAST_CHARACTER = 0x10FFFF

#: Types of single numbers, by their names in NumPy.
NUMBERS: Mapping[str, np.dtype[Any]] = {
    dtype.name: dtype for dtype in DTYPES.values() if dtype.kind in "biuf"
}


def to_plain(array: NDArray[Any]) -> tuple[NDArray[Any], dict[str, str]]:
    """An array of numbers or booleans, and a note how to get the given one back.

    Parameters
    ----------
    array : ndarray
        Numbers, booleans or strings.

    Returns
    -------
    plain : ndarray
        Of a type that the format has. Not a copy where it need not be.
    note : dict of str to str
        For `from_plain`; mostly empty.

    Raises
    ------
    ValueError
        A file cannot hold it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition._arrays import from_plain, to_plain
    >>> plain, note = to_plain(np.array(["Anna", "Bo"]))
    >>> plain
    array([[ 65, 110, 110,  97],
           [ 66, 111,   0,   0]], dtype=uint32)
    >>> from_plain(plain, note)
    array(['Anna', 'Bo'], dtype='<U4')
    """
    note = {}
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        # Products of these are computed in another order, and would differ in
        # their last bits.
        array, note["order"] = array.T, "F"
    if array.dtype.kind in "UO":
        note["as"] = "text" if array.dtype.kind == "U" else "objects"
        return _characters(array), note
    if array.dtype.kind == "c" and array.dtype.itemsize <= 16:
        note["as"] = "complex"
        whole = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        parts = whole.view(f"<f{whole.itemsize // 2}")
        return parts.reshape(*array.shape, 2), note
    if array.dtype.name not in NUMBERS:
        raise ValueError(f"is an array of type {array.dtype}, which cannot be saved")
    return array, note


def from_plain(plain: NDArray[Any], note: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `to_plain` has made another of.

    Parameters
    ----------
    plain : ndarray
        Of a type that the format has, its rows first.
    note : dict
        From a file: it may be anything.

    Returns
    -------
    ndarray
        The array; strings as objects are a copy.

    Raises
    ------
    ValueError
        The note is none, or does not fit the array.
    """
    kind, order = note.get("as"), note.get("order")
    if not set(note) <= {"as", "order"} or order not in (None, "F"):
        raise ValueError("is an array of an unknown form")
    array = plain
    if kind == "complex":
        array = _complex(plain)
    elif kind in ("text", "objects"):
        array = _text(plain)
        if kind == "objects":
            if array.size > _MOST_TEXTS:
                raise ValueError(f"has more than {_MOST_TEXTS:,} strings")
            array = array.astype(object)
    elif kind is not None:
        raise ValueError("is an array of an unknown form")
    return array.T if order == "F" else array


def _characters(array: NDArray[Any]) -> NDArray[np.uint32]:
    """The code points of strings, along a last axis."""
    too_long = f"has strings of more than {LONGEST_TEXT:,} characters"
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.flat):
            raise ValueError("is an array of objects that are not all strings")
        if max(map(len, array.flat), default=0) > LONGEST_TEXT:
            raise ValueError(too_long)
        text = array.astype(np.str_)
        if text.tolist() != array.tolist():
            # NumPy takes zeros at the end for no characters.
            raise ValueError("has strings that end in a zero character")
        array = text
    width = max(array.dtype.itemsize // 4, 1)
    if width > LONGEST_TEXT:
        raise ValueError(too_long)
    flat = np.ascontiguousarray(array, np.dtype(f"<U{width}")).reshape(-1)
    return flat.view("<u4").reshape(*array.shape, width)


def _text(codes: NDArray[Any]) -> NDArray[Any]:
    """The strings of code points along the last axis."""
    width = codes.shape[-1] if codes.ndim else 0
    if (
        codes.dtype != np.uint32
        or not 1 <= width <= LONGEST_TEXT
        or codes.max(initial=0) > _LAST_CHARACTER
    ):
        raise ValueError("has strings that are no code points")
    return codes.reshape(-1).view(f"<U{width}").reshape(codes.shape[:-1])


def _complex(parts: NDArray[Any]) -> NDArray[Any]:
    """The complex numbers of real and imaginary parts along the last axis."""
    if parts.shape[-1:] != (2,) or parts.dtype.name not in ("float32", "float64"):
        raise ValueError("has no pairs of real and imaginary parts")
    whole = parts.reshape(-1).view(f"<c{2 * parts.itemsize}")
    return whole.reshape(parts.shape[:-1])
