# SPDX-License-Identifier: BSD-3-Clause
"""Writing a file whole or not at all."""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dualqml.core.exceptions import FileError

#: Characters of a file's name that its temporary file shows: names have a limit.
_SHOWN = 48
# A link of that name, which somebody else has put there, is not followed.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write_atomically(
    path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]
) -> None:
    """Write a file so that at any moment the old or the new one is there, whole.

    The content goes to a temporary file in the same folder, which takes the
    place of the old one when it is safe on the disk. A process that is killed
    may leave the temporary file, whose name starts with a dot.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there. A file that was there
        keeps its permissions.
    parts : iterable of bytes or memoryview
        The content, one part after the other.

    Raises
    ------
    FileError
        It cannot be written; the old file is untouched.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.core.files import write_atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "a.bin"), [b"hel", b"lo"])
    ...     Path(folder, "a.bin").read_bytes()
    b'hello'
    """
    # What a link points to is replaced, not the link: the old content must go.
    path = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}.tmp"
        temporary = path.parent / name
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        # The system applies the user's mask to these permissions. Others see no
        # more of the new content than of the old, not even while it is written.
        file = os.open(temporary, _FLAGS, 0o666 if mode is None else mode)
        with os.fdopen(file, "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"{path} cannot be written: {reason}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8 by `write_atomically`.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there.
    text : str
        The content.

    Raises
    ------
    FileError
        It cannot be written; the old file is untouched.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.core.files import write_text
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "new", "a.txt"), "hello")
    ...     Path(folder, "new", "a.txt").read_text()
    'hello'
    """
    # As text files are written elsewhere: with the line ends of the system.
    write_atomically(path, [text.replace("\n", os.linesep).encode()])


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other processes that ask the same from changing a file meanwhile.

    Parameters
    ----------
    path : path
        The file. The lock is on a file beside it, ``.name.lock``, which stays; the
        system gives it back when the process ends, however that ends.

    Raises
    ------
    FileError
        The lock cannot be made.
    """
    path = Path(os.path.realpath(path))
    try:
        file = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise FileError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    """Have the new name survive a loss of power, where the system can do that."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
