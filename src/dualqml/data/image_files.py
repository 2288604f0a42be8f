# SPDX-License-Identifier: BSD-3-Clause
"""Find the image files of a database and read them as small grey images."""

import os
import unicodedata
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

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


class PeopleFiles(NamedTuple):
    """The image files of people, from one folder for each person.

    Attributes
    ----------
    paths : list of Path
        The files, sorted by person.
    people : list of str
        The person of each file.
    files : list of str
        The paths relative to the folder.
    empty : tuple of str
        People's folders without any image.
    hidden : tuple of str
        Hidden folders, which are not looked into.
    """

    paths: list[Path]
    people: list[str]
    files: list[str]
    empty: tuple[str, ...]
    hidden: tuple[str, ...]


def find_people(root: str | os.PathLike[str]) -> PeopleFiles:
    """Find the image files in one folder for each person.

    The name of a folder is the person. Images in folders below a person's folder
    belong to that person too.

    Parameters
    ----------
    root : path
        The folder that holds one folder for each person.

    Returns
    -------
    PeopleFiles
        The files and their people.

    Raises
    ------
    DatabaseError
        There are no images, or some images are not in a person's folder.
    """
    root = Path(root)
    paths = find_images(root)
    expected = "Expected: one folder for each person with image files in it"
    if not paths:
        others = [str(path.relative_to(root)) for path in find_files(root)]
        found = f"found {first_few(others)}" if others else "the folder is empty"
        raise DatabaseError(f"No images in {root}: {found}. {expected}.")
    loose = [path.name for path in paths if path.parent == root]
    if loose:
        raise DatabaseError(
            f"{len(loose)} images in {root} are in no person's folder: "
            f"{first_few(loose)}. {expected}."
        )
    inner = [path.relative_to(root) for path in paths]
    folders = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    known = {path.parts[0] for path in inner}
    return PeopleFiles(
        paths,
        # File systems store the same accented name in different forms.
        [unicodedata.normalize("NFC", path.parts[0]) for path in inner],
        [path.as_posix() for path in inner],
        tuple(n for n in folders if not _is_ignored(n) and n not in known),
        tuple(n for n in folders if n.startswith(".")),
    )


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
    check_on_error(on_error)
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


def check_on_error(on_error: str) -> None:
    """Raise an error if this is no value of the option `on_error`."""
    if on_error not in ("raise", "skip"):
        raise DatabaseError(f'on_error must be "raise" or "skip", not {on_error!r}')


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _LEFTOVERS
