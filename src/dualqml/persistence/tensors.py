# SPDX-License-Identifier: BSD-3-Clause
"""Named arrays in a file of the safetensors format, with a checksum.

The format is public and simple. First come eight bytes with the length of the header.
Then comes the header in JSON, with the type, shape and position of every array and a
few strings (`__metadata__`). Then come the arrays, little-endian, without gaps.
Nothing in such a file can be executed. Only NumPy is needed here.

The checksum is the metadata string "dualqml.sha256": the SHA-256 of the whole file
with its own 64 hexadecimal digits replaced by zeros. It finds damage of every bit.
It is no signature: a person who can write the file can also write its checksum.
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

#: The key of the checksum in the metadata.
CHECKSUM = "dualqml.sha256"

#: Most bytes of a header. The format allows ten times more, but JSON takes many
#: times its size once read, and the header of a model has some kilobytes.
MAX_HEADER = 10_000_000

#: Most arrays of a file; a model has some dozens.
MAX_ARRAYS = 1_000

#: NumPy types by their names in the format. Types that NumPy does not have are missing.
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
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_LENGTH_BYTES = 8
#: The data start at a multiple of this number of bytes, a line of the processor's
#: cache.
_ALIGNMENT = 64
#: Most dimensions of an array in the oldest NumPy that is supported.
_MOST_DIMENSIONS = 32
_BLANK_DIGEST = "0" * 64


def write_tensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str],
) -> None:
    """Write arrays to a safetensors file, whole or not at all.

    Parameters
    ----------
    path : path
        The file. Its folder is made if it does not exist. Only the owner may read a
        new file (0600); a file that is replaced keeps its permissions.
    arrays : dict of str to ndarray
        Numbers or booleans. Arrays with larger items come first in the file, so that
        all arrays are aligned.
    metadata : dict of str to str
        Strings to keep with the arrays. The checksum is added.

    Raises
    ------
    ModelFileError
        The format cannot hold an array or the metadata.
    FileError
        The file cannot be written. An old file is not changed.

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
    write_atomically(path, tensor_parts(arrays, metadata, Path(path)), private=True)


def tensor_parts(
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str],
    path: Path = Path("the file"),
) -> list[bytes | memoryview]:
    """The content of a safetensors file, one part after the other.

    Parameters
    ----------
    arrays : dict of str to ndarray
        As for `write_tensors`.
    metadata : dict of str to str
        As for `write_tensors`.
    path : Path, optional
        The name of the file in messages.

    Returns
    -------
    list of bytes or memoryview
        The content.

    Raises
    ------
    ModelFileError
        The format cannot hold an array or the metadata.
    """
    strings = dict(metadata) | {CHECKSUM: _BLANK_DIGEST}
    if CHECKSUM in metadata or not all(
        isinstance(text, str) for item in strings.items() for text in item
    ):
        what = f"metadata must be strings, and the key {CHECKSUM!r} is reserved"
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
    header = header.replace(_checksum_entry(_BLANK_DIGEST), _checksum_entry(digest))
    return [length, header, *data]


def read_tensors(
    path: str | os.PathLike[str], *, verify: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read a safetensors file.

    Parameters
    ----------
    path : path
        The file.
    verify : bool, default=True
        Whether to check the checksum, which reads the whole file once. If False, files
        of other programs, which have no checksum, can be read too.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only arrays. The system reads them from the file when they are used, and
        processes that read the same file share them. Do not change the file in
        place. It may be replaced, as `write_tensors` does.
    metadata : dict of str to str
        The strings, without the checksum.

    Raises
    ------
    ModelFileError
        The file does not exist, is damaged, or has another format.

    Notes
    -----
    The pages of the file take memory that the system may free at any time. All other
    memory is limited by the largest header, whatever the file contains.
    """
    path = Path(path)
    return tensors_of(_memory_map(path), path, verify=verify)


def stored_checksum(path: str | os.PathLike[str]) -> str:
    """The checksum that a file says it has; it is not computed again.

    Parameters
    ----------
    path : path
        A file that `write_tensors` has written.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    ModelFileError
        The file cannot be read, or has no checksum.
    """
    path = Path(path)
    metadata = _parse_header(path, _read_header(path, _memory_map(path))).get(_METADATA)
    if not isinstance(metadata, dict) or CHECKSUM not in metadata:
        _refuse(path, f"it has no checksum {CHECKSUM!r}")
    return str(metadata[CHECKSUM])


def tensors_of(
    content: NDArray[np.uint8], path: Path = Path("the file"), *, verify: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and the strings of the content of a safetensors file.

    Parameters
    ----------
    content : ndarray of bytes
        The content.
    path : Path, optional
        The name of the file in messages.
    verify : bool, default=True
        Whether to check the checksum.

    Returns
    -------
    arrays, metadata : dict of str to ndarray, dict of str to str
        As for `read_tensors`. The arrays are views of the content.

    Raises
    ------
    ModelFileError
        The content is damaged, or has another format.
    """
    if content.size < _LENGTH_BYTES:
        _refuse(path, "it is too short")
    header = _read_header(path, content)
    start = _LENGTH_BYTES + len(header)
    entries = _parse_header(path, header)
    metadata = entries.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        _refuse(path, f"{_METADATA} is not an object of strings")
    arrays = _read_arrays(path, entries, content[start:])
    digest = metadata.pop(CHECKSUM, None)
    if verify:
        _verify_checksum(path, content, header, digest)
    return arrays, metadata


def strict_json(text: str) -> Any:
    """Parse JSON that has only one meaning.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    object
        The value.

    Raises
    ------
    ValueError
        The text is not JSON, has a key twice or a number that is not finite, or is
        beyond the limits of `read_json`.

    Examples
    --------
    >>> from dualqml.persistence.tensors import strict_json
    >>> strict_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is there twice
    """
    return read_json(
        text,
        object_pairs_hook=_without_duplicates,
        parse_float=_finite_float,
        parse_constant=_finite_float,
    )


def _memory_map(path: Path) -> NDArray[np.uint8]:
    """All bytes of a file, read when they are used."""
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            _refuse(path, "it is not a file")
        with open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size < _LENGTH_BYTES:
                _refuse(path, "it is too short")
            # Not np.memmap: joblib passes its file name to other processes, and the
            # file may have been replaced by then.
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}") from error
    return np.frombuffer(content, np.uint8)


def _read_header(path: Path, content: NDArray[np.uint8]) -> bytes:
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


def _parse_header(path: Path, header: bytes) -> dict[str, Any]:
    try:
        entries = strict_json(header.decode())
    except ValueError as error:
        what = f"its header is not JSON that can be read: {printable(str(error), 200)}"
        raise ModelFileError(f"{path} is refused: {what}") from error
    # The header starts with a brace.
    assert isinstance(entries, dict)
    return entries


def _read_arrays(
    path: Path, entries: Mapping[str, Any], data: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    """The arrays of all entries, which must cover the data without gaps."""
    if len(entries) > MAX_ARRAYS:
        _refuse(path, f"it has {len(entries):,} arrays, more than {MAX_ARRAYS:,}")
    arrays, positions = {}, []
    for name, entry in entries.items():
        try:
            dtype, shape, start, end = _array_layout(entry)
        except ValueError as error:
            _refuse(path, f"array {reprlib.repr(name)} {error}")
        positions.append((start, end, name))
        if end <= data.size:
            arrays[name] = data[start:end].view(dtype).reshape(shape)
    reached = 0
    for start, end, name in sorted(positions):
        if start != reached:
            _refuse(
                path, f"array {reprlib.repr(name)} overlaps another or leaves a gap"
            )
        reached = end
    if reached != data.size:
        what = "shorter" if reached > data.size else "longer"
        _refuse(path, f"its data are {what} than its header says")
    for name, array in arrays.items():
        # Computations with booleans of other bytes have no defined result.
        if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            _refuse(path, f"array {reprlib.repr(name)} has bytes that are no booleans")
    return arrays


def _array_layout(entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    """Type, shape, start and end of an array; ValueError if they are not valid."""
    if not isinstance(entry, dict) or set(entry) != _ENTRY_KEYS:
        raise ValueError("needs dtype, shape and data_offsets and no more")
    name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ValueError(f"has the unknown dtype {reprlib.repr(name)}")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("has an impossible shape")
    # Products of Python integers do not overflow. An array without elements may have
    # any other dimensions, but no more than NumPy can count.
    if math.prod(max(size, 1) for size in shape) > np.iinfo(np.intp).max // 16:
        raise ValueError("has an impossible shape")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError("has impossible data_offsets")
    start, end = offsets
    n_bytes = dtype.itemsize * math.prod(shape)
    if end - start != n_bytes:
        raise ValueError(f"is given {end - start} bytes and needs {n_bytes}")
    return dtype, shape, start, end


def _verify_checksum(
    path: Path, content: NDArray[np.uint8], header: bytes, digest: str | None
) -> None:
    if digest is None:
        _refuse(
            path,
            f"it has no checksum {CHECKSUM!r} and was not written by dualqml. Pass "
            "verify=False to read it all the same",
        )
    if (
        not re.fullmatch("[0-9a-f]{64}", digest)
        or header.count(_checksum_entry(digest)) != 1
    ):
        _refuse(path, "its checksum is damaged")
    blank = header.replace(_checksum_entry(digest), _checksum_entry(_BLANK_DIGEST))
    start = _LENGTH_BYTES + len(header)
    if digest != _sha256([content[:_LENGTH_BYTES].data, blank, content[start:].data]):
        _refuse(path, "it is damaged: its checksum does not fit its content")


def _checksum_entry(digest: str) -> bytes:
    """The checksum as written in the header; in strings the quotes are escaped."""
    return f'"{CHECKSUM}":"{digest}"'.encode()


def _sha256(parts: Iterable[bytes | memoryview]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def _are_counts(values: object) -> bool:
    """Whether a value is a list of whole numbers, none of them negative."""
    return isinstance(values, list) and all(
        type(value) is int and value >= 0 for value in values
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {reprlib.repr(key)} is there twice")
        found[key] = value
    return found


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value


def _refuse(path: Path, what: str) -> NoReturn:
    raise ModelFileError(f"{path} is refused: {what}")
