# SPDX-License-Identifier: BSD-3-Clause
"""Named arrays in a file of the safetensors format, with a checksum.

The format is public and simple: eight bytes with the length of the header, the
header in JSON, which gives the type, shape and place of every array and a few
strings (`__metadata__`), and the arrays, little-endian, without gaps. Nothing in
such a file can be executed. Only NumPy is needed here.

The checksum is the metadata string "dualqml.sha256": the SHA-256 of the whole file
with its own 64 hexadecimal digits replaced by zeros. It finds damage of every bit.
It is no signature: whoever can write the file can write a checksum as well.
"""

import hashlib
import json
import math
import mmap
import os
import re
import reprlib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dualqml._files import write_atomically
from dualqml._text import printable, read_json
from dualqml.exceptions import ModelFileError

#: The string of the metadata that holds the checksum.
CHECKSUM = "dualqml.sha256"

#: Most bytes of a header. The format allows ten times more, but JSON takes many
#: times its size once read, and the header of a model has some kilobytes.
MAX_HEADER = 10_000_000

#: Most arrays of a file; a model has some dozens.
MAX_ARRAYS = 1_000

#: Names of the format and types of NumPy. The format has more, NumPy has not.
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "BOOL": "|b1",
        "U8": "|u1",
        "I8": "|i1",
        "U16": "<u2",
        "I16": "<i2",
        "U32": "<u4",
        "I32": "<i4",
        "U64": "<u8",
        "I64": "<i8",
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
        "C64": "<c8",
    }.items()
}
_NAMES = {dtype.str: name for name, dtype in DTYPES.items()}

_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}
_LENGTH_BYTES = 8
#: The data start at a multiple of this, a line of the processor's cache.
_ALIGNMENT = 64
#: The oldest NumPy that is supported has arrays of so many dimensions.
_MOST_DIMENSIONS = 32
_BLANK = "0" * 64


def write_tensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str],
) -> None:
    """Write arrays to a safetensors file, whole or not at all.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there. A new file is for its owner
        only (0600); one that was there keeps its permissions.
    arrays : dict of str to ndarray
        Numbers or booleans. Types of larger items come first in the file, so that
        all are aligned.
    metadata : dict of str to str
        Strings to keep with them. The checksum is added.

    Raises
    ------
    ModelFileError
        The format has no place for an array or for the metadata.
    FileError
        The file cannot be written. The old one is untouched.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from dualqml.recognition import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.safetensors")
    ...     write_tensors(path, {"x": np.arange(3.0)}, {"of": "Anna"})
    ...     arrays, metadata = read_tensors(path)
    ...     print(arrays["x"], metadata)
    [0. 1. 2.] {'of': 'Anna'}
    """
    path = Path(path)
    strings = dict(metadata) | {CHECKSUM: _BLANK}
    if CHECKSUM in metadata or not all(
        isinstance(text, str) for item in strings.items() for text in item
    ):
        what = f"metadata must be strings, and {CHECKSUM!r} is ours"
        raise ModelFileError(f"{path} cannot be written: {what}")
    entries: dict[str, Any] = {_METADATA: strings}
    ordered: list[NDArray[Any]] = []
    end = 0
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):
        little = array.dtype.newbyteorder("<")
        if name == _METADATA or little.str not in _NAMES:
            what = f"array {name!r} of type {array.dtype} has no place in the format"
            raise ModelFileError(f"{path} cannot be written: {what}")
        start, end = end, end + array.nbytes
        entries[name] = {
            "dtype": _NAMES[little.str],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        ordered.append(np.ascontiguousarray(array, little))
    if len(arrays) > MAX_ARRAYS:
        what = f"it would have {len(arrays):,} arrays, at most {MAX_ARRAYS:,}"
        raise ModelFileError(f"{path} cannot be written: {what}")
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(_LENGTH_BYTES + len(header)) % _ALIGNMENT)
    if len(header) > MAX_HEADER:
        what = f"the header would have {len(header):,} bytes, at most {MAX_HEADER:,}"
        raise ModelFileError(f"{path} cannot be written: {what}")
    length = len(header).to_bytes(_LENGTH_BYTES, "little")
    # Views, not copies: the arrays may fill most of the memory.
    data = [array.reshape(-1).view(np.uint8).data for array in ordered]
    digest = _sha256([length, header, *data])
    header = header.replace(_sealed(_BLANK), _sealed(digest))
    write_atomically(path, [length, header, *data], private=True)


def read_tensors(
    path: str | os.PathLike[str], *, verify: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read a safetensors file.

    Parameters
    ----------
    path : path
        The file.
    verify : bool, default=True
        Whether to check the checksum, which reads the whole file once. Without,
        files of other programs, which have none, can be read too.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only arrays that the system reads from the file where they are used,
        and that all processes which read the file share. Do not change the file in
        place; it may be replaced, as `write_tensors` does.
    metadata : dict of str to str
        The strings, without the checksum.

    Raises
    ------
    ModelFileError
        There is no such file, or it is damaged or not of the format.

    Notes
    -----
    Beyond the file's own pages, which the system may drop at any time, memory is
    bounded by the limits of the header, whatever the file says.
    """
    path = Path(path)
    content = _mapped(path)
    header = _header(path, content)
    start = _LENGTH_BYTES + len(header)
    entries = _parsed(path, header)
    metadata = entries.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        _refuse(path, f"{_METADATA} is not an object of strings")
    arrays = _arrays(path, entries, content[start:])
    digest = metadata.pop(CHECKSUM, None)
    if verify:
        _check_sum(path, content, header, digest)
    return arrays, metadata


def strict_json(text: str) -> Any:
    """Parse JSON that can be read in one way only.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    object
        What it says.

    Raises
    ------
    ValueError
        It is not JSON, has a key twice or a number that is not finite, or is beyond
        the bounds of `read_json`.

    Examples
    --------
    >>> from dualqml.persistence.tensors import strict_json
    >>> strict_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is there twice
    """
    return read_json(
        text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
    )


def _mapped(path: Path) -> NDArray[np.uint8]:
    """All bytes of a file, read where they are used."""
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            _refuse(path, "it is not a file")
        with open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size < _LENGTH_BYTES:
                _refuse(path, "it is too short")
            # Not np.memmap: joblib passes that to other processes by the name of
            # the file, which may be another file by then.
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}") from error
    return np.frombuffer(content, np.uint8)


def _header(path: Path, content: NDArray[np.uint8]) -> bytes:
    length = int.from_bytes(content[:_LENGTH_BYTES].tobytes(), "little")
    if length > MAX_HEADER:
        what = f"it gives its header {length:,} bytes, more than {MAX_HEADER:,}"
        _refuse(path, f"{what}, and is no model file")
    if length > content.size - _LENGTH_BYTES:
        _refuse(path, "it is shorter than its header")
    header = content[_LENGTH_BYTES : _LENGTH_BYTES + length].tobytes()
    if not header.startswith(b"{"):
        _refuse(path, "its header is not JSON, and it is no model file")
    return header


def _parsed(path: Path, header: bytes) -> dict[str, Any]:
    try:
        entries = strict_json(header.decode())
    except ValueError as error:
        what = f"its header is not JSON that can be read: {printable(str(error), 200)}"
        raise ModelFileError(f"{path} is refused: {what}") from error
    # It starts with a brace.
    assert isinstance(entries, dict)
    return entries


def _arrays(
    path: Path, entries: Mapping[str, Any], data: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    """The arrays of all entries, which must cover the data without gaps."""
    if len(entries) > MAX_ARRAYS:
        _refuse(path, f"it has {len(entries):,} arrays, more than {MAX_ARRAYS:,}")
    arrays, places = {}, []
    for name, entry in entries.items():
        try:
            dtype, shape, start, end = _placed(entry)
        except ValueError as error:
            _refuse(path, f"array {reprlib.repr(name)} {error}")
        places.append((start, end, name))
        if end <= data.size:
            arrays[name] = data[start:end].view(dtype).reshape(shape)
    reached = 0
    for start, end, name in sorted(places):
        if start != reached:
            _refuse(
                path, f"array {reprlib.repr(name)} overlaps another or leaves a gap"
            )
        reached = end
    if reached != data.size:
        what = "shorter" if reached > data.size else "longer"
        _refuse(path, f"its data are {what} than its header says")
    for name, array in arrays.items():
        # Computations with other bytes have no defined result.
        if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            _refuse(path, f"array {reprlib.repr(name)} has bytes that are no booleans")
    return arrays


def _placed(entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    """Type, shape, start and end of an array, or ValueError with what is wrong."""
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise ValueError("needs dtype, shape and data_offsets and no more")
    name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ValueError(f"has the unknown dtype {reprlib.repr(name)}")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("has an impossible shape")
    # As Python computes them, products of sizes do not overflow. An array of no
    # elements may have other dimensions, but no more than NumPy can count.
    if math.prod(max(size, 1) for size in shape) > np.iinfo(np.intp).max // 16:
        raise ValueError("has an impossible shape")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError("has impossible data_offsets")
    start, end = offsets
    n_bytes = dtype.itemsize * math.prod(shape)
    if end - start != n_bytes:
        raise ValueError(f"is given {end - start} bytes and needs {n_bytes}")
    return dtype, shape, start, end


def _check_sum(
    path: Path, content: NDArray[np.uint8], header: bytes, digest: str | None
) -> None:
    if digest is None:
        _refuse(
            path,
            f"it has no checksum {CHECKSUM!r} and was not written by dualqml. Pass "
            "verify=False to read it all the same",
        )
    if not re.fullmatch("[0-9a-f]{64}", digest) or header.count(_sealed(digest)) != 1:
        _refuse(path, "its checksum is damaged")
    blank = header.replace(_sealed(digest), _sealed(_BLANK))
    start = _LENGTH_BYTES + len(header)
    if digest != _sha256([content[:_LENGTH_BYTES].data, blank, content[start:].data]):
        _refuse(path, "it is damaged: its checksum does not fit its content")


def _sealed(digest: str) -> bytes:
    """The checksum as it stands in the header, once: inside strings quotes differ."""
    return f'"{CHECKSUM}":"{digest}"'.encode()


def _sha256(parts: Iterable[bytes | memoryview]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def _are_counts(values: object) -> bool:
    """Whether it is a list of whole numbers, none negative."""
    return isinstance(values, list) and all(
        type(value) is int and value >= 0 for value in values
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {reprlib.repr(key)} is there twice")
        found[key] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value


def _refuse(path: Path, what: str) -> NoReturn:
    raise ModelFileError(f"{path} is refused: {what}")
