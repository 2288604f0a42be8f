# SPDX-License-Identifier: BSD-3-Clause
"""The store of results: a file with one line of JSON for each result.

The first line says what the file is. Results are appended as they come. A process that
is killed can leave at most one incomplete line, the last. It is cut off when the store
is opened again, and its unit is run again.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dualqml._files import lock
from dualqml._text import printable, read_json
from dualqml.exceptions import StoreError
from dualqml.experiments.results import Result

#: Version of the format. Files of other versions are refused.
FORMAT = 1
_HEADER = "dualqml results"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class ResultStore:
    """Append results to a file; use it as a context manager.

    Parameters
    ----------
    path : path
        The file. The file and its folder are made if they do not exist.

    Raises
    ------
    StoreError
        On entering: the file cannot be written, is not a store, has another format,
        or another process is writing to it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.experiments.store import ResultStore, read_results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "results.jsonl")
    ...     with ResultStore(path) as store:
    ...         len(store.results)
    ...     read_results(path)
    0
    []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: The results that were in the file on entering.
        self.results: list[Result] = []

    def __enter__(self) -> Self:
        with _explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, _FLAGS, 0o644)
        try:
            with _explained(self.path):
                try:
                    lock(self._file, wait=False)
                except BlockingIOError as error:
                    raise StoreError(
                        f"{self.path} is being written by another process. Wait for "
                        "it, or choose another folder."
                    ) from error
                content = _read_all(self._file)
                whole = _complete_part(content)
                if not whole and not _header_line().startswith(content):
                    raise StoreError(
                        f"{self.path} is no store of results of dualqml; choose "
                        "another folder"
                    )
                # Checked before anything is cut off: it may not be our file.
                self.results = _parsed(self.path, whole) if whole else []
                os.ftruncate(self._file, len(whole))
                self._end = os.lseek(self._file, 0, os.SEEK_END)
            if not whole:
                self._write({_HEADER: FORMAT})
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def append(self, result: Result) -> None:
        """Write a result to the disk at once.

        Parameters
        ----------
        result : Result
            The result.

        Raises
        ------
        StoreError
            It cannot be written, for example because the disk is full. The earlier
            results are still there.
        """
        self._write(result.as_dict())

    def _write(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        with _explained(self.path):
            try:
                rest = line
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                os.fsync(self._file)
            except OSError:
                # No incomplete line stays behind.
                os.ftruncate(self._file, self._end)
                os.lseek(self._file, self._end, os.SEEK_SET)
                raise
        self._end += len(line)


def read_results(path: str | os.PathLike[str]) -> list[Result]:
    """Read a store, also while it is being written.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    list of Result
        In the order in which they were written.

    Raises
    ------
    StoreError
        There is no such file, it is not a store, has another format, or is damaged.
    """
    path = Path(path)
    with _explained(path):
        content = path.read_bytes()
    whole = _complete_part(content)
    if not whole:
        raise StoreError(f"{path} is empty: it is no store of results")
    return _parsed(path, whole)


def _header_line() -> bytes:
    return (json.dumps({_HEADER: FORMAT}) + "\n").encode()


def _parsed(path: Path, content: bytes) -> list[Result]:
    first, *lines = content.split(b"\n")[:-1]
    try:
        header = read_json(first)
    except ValueError:
        header = None
    if not isinstance(header, dict) or _HEADER not in header:
        raise StoreError(
            f"{path} is no store of results of dualqml; choose another folder"
        )
    if header[_HEADER] != FORMAT:
        found = printable(repr(header[_HEADER]), 20)
        raise StoreError(
            f"{path} has format {found}; this version of dualqml reads "
            f"format {FORMAT}. Choose another folder, or use the version that wrote it."
        )
    results = []
    for number, line in enumerate(lines, start=2):
        try:
            record = read_json(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
            results.append(Result.from_dict(record))
        except (ValueError, StoreError) as error:
            reason = printable(str(error), 200)
            raise StoreError(
                f"{path}, line {number}, is damaged ({reason}). Delete that line to "
                "run its unit again."
            ) from error
    return results


def _complete_part(content: bytes) -> bytes:
    """All lines but an incomplete last one."""
    return content[: content.rfind(b"\n") + 1]


def _read_all(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    parts = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the system into a StoreError that names the file."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
