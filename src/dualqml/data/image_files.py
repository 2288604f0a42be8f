# SPDX-License-Identifier: BSD-3-Clause
"""Find the image files of a database and read them as small grey images."""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml.exceptions import DatabaseError
from dualqml.images.files import IMAGE_EXTENSIONS, extension, read_image
from dualqml.images.shapes import SizeLike, read_size

OnError = Literal["raise", "skip"]
#: Files and folders that file managers leave behind, in lower case.
_LEFTOVERS = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def find_files(root: str | os.PathLike[str]) -> list[Path]:
    """Find all files below a folder.

    Hidden files and those that file managers leave behind (such as ``Thumbs.db``)
    are not listed. Links to folders are followed; each folder is visited once.

    Parameters
    ----------
    root : path
        The folder.

    Returns
    -------
    list of Path
        The files, sorted.

    Raises
    ------
    DatabaseError
        There is no such folder, or a folder below it may not be read.
    """
    root = Path(root)
    if not root.exists():
        raise DatabaseError(f"There is no folder {root}")
    if not root.is_dir():
        raise DatabaseError(f"{root} is a file; a folder was expected")

    def refuse(error: OSError) -> None:
        raise DatabaseError(f"A folder cannot be read: {error}") from error

    files: list[Path] = []
    visited: set[str] = set()
    for folder, inner, names in os.walk(root, onerror=refuse, followlinks=True):
        # Without this a link to a folder above would never end.
        real = os.path.realpath(folder)
        if real in visited:
            inner.clear()
            continue
        visited.add(real)
        inner[:] = sorted(name for name in inner if not _is_ignored(name))
        files += [Path(folder, name) for name in names if not _is_ignored(name)]
    return sorted(files)


def find_images(
    root: str | os.PathLike[str], extensions: Collection[str] = IMAGE_EXTENSIONS
) -> list[Path]:
    """Find the image files below a folder by their extensions.

    Parameters
    ----------
    root : path
        The folder.
    extensions : collection of str
        Extensions of images, in lower case and with their dot. Those of the files
        may be in upper case.

    Returns
    -------
    list of Path
        The files, sorted.
    """
    return [path for path in find_files(root) if extension(path) in extensions]


def read_images(
    paths: Sequence[Path],
    size: SizeLike,
    on_error: OnError = "raise",
    *,
    names: Sequence[str] | None = None,
    read: Callable[[Path, tuple[int, int]], NDArray[np.uint8]] = read_image,
) -> tuple[NDArray[np.uint8], NDArray[np.intp], tuple[str, ...]]:
    """Read many image files and report every file that cannot be read.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    size : sequence of int
        Height and width of the images.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: one error after all files were
        tried, or they are left out and listed in the result.
    names : sequence of str, optional
        Put before the paths of files in messages.
    read : callable, default=read_image
        Reads one file, given its path and the size.

    Returns
    -------
    images : ndarray of shape (n_kept, height, width)
        The images that could be read.
    kept : ndarray of shape (n_kept,)
        Their indices in `paths`.
    skipped : tuple of str
        The files that could not be read, with the reasons.

    Raises
    ------
    DatabaseError
        Files cannot be read and `on_error` is ``"raise"``, or no file can be
        read, or an option is wrong.
    """
    if on_error not in ("raise", "skip"):
        raise DatabaseError(f'on_error must be "raise" or "skip", not {on_error!r}')
    try:
        shape = read_size(size)
    except ValueError as error:
        raise DatabaseError(str(error)) from error
    images = np.empty((len(paths), *shape), dtype=np.uint8)
    kept: list[int] = []
    skipped: list[str] = []
    for place, path in enumerate(paths):
        try:
            images[place] = read(path, shape)
        except DatabaseError as error:
            prefix = f"{names[place]}: " if names is not None else ""
            skipped.append(f"{prefix}{error}")
        else:
            kept.append(place)
    if skipped and (on_error == "raise" or not kept):
        advice = ' Mend or remove them, or pass on_error="skip".' if kept else ""
        raise DatabaseError(
            f"{len(skipped)} of {len(paths)} images cannot be read: "
            f"{first_few(skipped, '; ')}.{advice}"
        )
    places = np.array(kept, dtype=np.intp)
    return images[places], places, tuple(skipped)


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _LEFTOVERS
