# SPDX-License-Identifier: BSD-3-Clause
"""Files are written whole or not at all, and by one process at a time."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dualqml.exceptions import FileError

#: Characters of a file's name that its temporary file shows: names have a limit.
_SHOWN = 48
# A link of that name, which somebody else has put there, is not followed.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: The byte that Windows locks. It is beyond the content of any file, because others
#: could not read a byte that is locked.
_LOCKED_BYTE = 1 << 40


def write_atomically(
    path: str | os.PathLike[str],
    parts: Iterable[bytes | memoryview],
    *,
    private: bool = False,
) -> None:
    """Write a file so that at any moment the old or the new one is there, whole.

    The content goes to a temporary file in the same folder, which takes the
    place of the old one when it is safe on the disk. A process that is killed
    may leave the temporary file, ``.name.*.tmp``. The next that writes the same
    file, or holds its lock (`exclusive`), removes it.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there. A file that was there
        keeps its permissions and its group.
    parts : iterable of bytes or memoryview
        The content, one part after the other.
    private : bool, default=False
        Whether a new file is for its owner only (0600). Else the user's mask
        decides.

    Raises
    ------
    FileError
        It cannot be written; the old file is untouched.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml._files import write_atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "a.bin"), [b"hel", b"lo"])
    ...     Path(folder, "a.bin").read_bytes()
    b'hello'
    """
    # What a link points to is replaced, not the link: the old content must go.
    path = Path(os.path.realpath(path))
    _remove_left_behind(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.stat() if path.exists() else None
        temporary, file = _new_temporary(path, 0o600 if private or old else 0o666)
        with os.fdopen(file, "wb") as stream:
            if old is not None:
                # Before anything is in it: others see no more of the new content
                # than of the old, not even while it is written.
                _copy_permissions(temporary, old)
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
            if os.name != "nt":
                # While it is open and locked: nobody takes it for left behind.
                os.replace(temporary, path)
        if os.name == "nt":
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
    >>> from dualqml._files import write_text
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

    Temporary files of it that a killed process has left are removed.

    Parameters
    ----------
    path : path
        The file. The lock is on a file beside it, ``.name.lock``, which stays; the
        system gives it back when the process ends, however that ends. The user's
        mask says who else may use it: with 002 it is 0664, and a group can share it.

    Raises
    ------
    FileError
        The lock cannot be made, or what was left cannot be removed.
    """
    path = Path(os.path.realpath(path))
    file: int | None = None
    try:
        try:
            file = _open_lock(path.with_name(_stem(path) + "lock"))
            lock(file)
        except OSError as error:
            raise FileError(f"{path} cannot be locked: {error.strerror}") from error
        _remove_left_behind(path)
        yield
    finally:
        if file is not None:
            os.close(file)


def remove_left_behind(folder: Path, beginning: str) -> None:
    """Remove temporary files of `write_atomically` whose writers were killed.

    Parameters
    ----------
    folder : Path
        The folder.
    beginning : str
        A regular expression of their names up to the last random part.

    Raises
    ------
    FileError
        One cannot be removed.
    """
    pattern = re.compile(beginning + r"[0-9a-f]+\.tmp")
    try:
        names = os.listdir(folder)
    except OSError:
        # There is no such folder yet, or it is not ours to list.
        return
    for name in filter(pattern.fullmatch, names):
        temporary = folder / name
        try:
            _remove_unless_alive(temporary)
        except FileNotFoundError:
            # Another process was quicker, or it has become the file.
            continue
        except OSError as error:
            raise FileError(
                f"{temporary} was left by a process that was killed and cannot be "
                f"removed: {error.strerror}. It may hold what an old file held: remove "
                "it"
            ) from error


def lock(file: int, *, wait: bool = True) -> None:
    """Lock an open file for this process until the file is closed.

    The system gives the lock back when the process ends, also when it is killed.
    Others can still read the file.

    Parameters
    ----------
    file : int
        Descriptor of the open file. On Windows its position changes.
    wait : bool, default=True
        Whether to wait until a lock of another process is gone.

    Raises
    ------
    BlockingIOError
        Somebody else has the lock, and `wait` is false.
    OSError
        The file system has no locks.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml._files import lock
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.lock")
    ...     with path.open("wb") as first, path.open("rb") as second:
    ...         lock(first.fileno())
    ...         try:
    ...             lock(second.fileno(), wait=False)
    ...         except BlockingIOError:
    ...             print("somebody else has it")
    somebody else has it
    """
    try:
        if os.name == "nt":
            import msvcrt

            os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
            kind = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK  # type: ignore[attr-defined,unused-ignore]
            msvcrt.locking(file, kind, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except PermissionError as error:
        # Windows, and some file systems of networks, say so that it is taken.
        raise BlockingIOError(error.errno, error.strerror) from error


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
    except PermissionError:
        # Somebody else's: on most systems it is enough that we may read it.
        return os.open(path, os.O_RDONLY | _NO_LINK)


def _stem(path: Path) -> str:
    """How the names of the files beside a file begin: no two files share one."""
    name = path.name
    if len(name) > _SHOWN:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        name = f"{name[:_SHOWN]}~{digest}"
    return f".{name}."


def _new_temporary(path: Path, mode: int) -> tuple[Path, int]:
    """A temporary file for a file, open and locked."""
    while True:
        temporary = path.with_name(f"{_stem(path)}{secrets.token_hex(8)}.tmp")
        file = os.open(temporary, _NEW, mode)
        if os.name != "nt":
            # Not all file systems have locks; a file can be written on all.
            with suppress(OSError):
                lock(file)
        # Between these two somebody may have taken it for left behind.
        if temporary.exists():
            return temporary, file
        os.close(file)


def _remove_left_behind(path: Path) -> None:
    """Remove temporary files of a file whose writers were killed."""
    remove_left_behind(path.parent, re.escape(_stem(path)))


def _remove_unless_alive(temporary: Path) -> None:
    """Remove a temporary file that no living process writes: those lock their own."""
    if os.name == "nt":
        # There a file that is open cannot be removed.
        with suppress(PermissionError):
            temporary.unlink()
        return
    file = os.open(temporary, os.O_RDONLY | _NO_LINK)
    try:
        try:
            lock(file, wait=False)
        except OSError:
            # Its writer has the lock, or this file system has no locks.
            return
        temporary.unlink()
    finally:
        os.close(file)


def _copy_permissions(temporary: Path, old: os.stat_result) -> None:
    """Give a file the group and the permissions of another."""
    mode = old.st_mode & 0o777
    if os.name != "nt" and temporary.stat().st_gid != old.st_gid:
        try:
            os.chown(temporary, -1, old.st_gid)
        except OSError:
            # What the old group could do is not meant for another group.
            mode &= ~0o070
    os.chmod(temporary, mode)


def _sync_folder(folder: Path) -> None:
    """Have the new name survive a loss of power, where the system can do that."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
