# SPDX-License-Identifier: BSD-3-Clause
"""Databases whose file names say who is on an image: what their readers share."""

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml.data.database import Database
from dualqml.data.image_files import OnError, find_files, read_images
from dualqml.exceptions import DatabaseError
from dualqml.images.files import IMAGE_EXTENSIONS, extension, read_image
from dualqml.images.shapes import SizeLike


@dataclass(frozen=True)
class Source:
    """What is known of a database before it is read.

    Attributes
    ----------
    title : str
        Its name in print.
    expects : str
        The files that its reader understands, in one line.
    ask : str
        Whom to ask for it.
    citation, terms : str
        As in `Database`.
    subjects, images : int
        How many the paper used.
    training_sizes : tuple of int
        The numbers m of training images a subject in the paper; empty where the
        paper does not use the database.
    may_be_shown : bool
        Whether its images may be shown in documents and reports.
    """

    title: str
    expects: str
    ask: str
    citation: str
    terms: str
    subjects: int
    images: int
    training_sizes: tuple[int, ...]
    may_be_shown: bool = False


RESEARCH_ONLY = (
    "For research only, under an agreement with the owners; not to be passed on, and "
    "its images are not to be shown without their consent."
)


@dataclass(frozen=True)
class ImageFile:
    """One file and what its name says.

    Attributes
    ----------
    path : Path
        The file.
    subject : str
        Who is on it.
    number : str
        Which of the subject's images it is: no two have the same.
    visit : int, optional
        The visit in which it was taken.
    view : str, optional
        Its code of pose, illumination or expression.
    """

    path: Path
    subject: str
    number: str
    visit: int | None = None
    view: str | None = None


def find_named(
    root: str | os.PathLike[str],
    parse: Callable[[Path], ImageFile | None],
    source: Source,
    extensions: Collection[str] = IMAGE_EXTENSIONS,
) -> list[ImageFile]:
    """Find the files of a database by their names.

    Parameters
    ----------
    root : path
        Folder of the database; the files may be in folders below it.
    parse : callable
        Returns what a name says, or None where it is not one of the database.
    source : Source
        The database, for messages.
    extensions : collection of str
        Extensions that count, in lower case.

    Returns
    -------
    list of ImageFile
        The files, in the order of subjects and numbers.

    Raises
    ------
    DatabaseError
        The folder is missing, empty or another one, or has an image twice.
    """
    expected = f"Expected: {source.expects}. To get the data: {source.ask}."
    try:
        paths = find_files(root)
    except DatabaseError as error:
        raise DatabaseError(f"{source.title}: {error}. {expected}") from error
    if not paths:
        raise DatabaseError(f"{source.title}: the folder {root} is empty. {expected}")
    parsed = [parse(path) for path in paths if extension(path) in extensions]
    found = [file for file in parsed if file is not None]
    if not found:
        names = first_few([str(path.relative_to(root)) for path in paths])
        raise DatabaseError(
            f"{source.title}: none of the {len(paths)} files in {root} is one of its "
            f"images. {expected} Found: {names}."
        )
    # The same picture in training and test set would flatter every method.
    seen: dict[tuple[str, str], Path] = {}
    for file in found:
        first = seen.setdefault((file.subject, file.number), file.path)
        if first != file.path:
            raise DatabaseError(
                f"{source.title}: image {file.number} of subject {file.subject} is "
                f"there twice: {first} and {file.path}. Give the folder that has one "
                "version of each image."
            )
    return sorted(found, key=lambda file: (file.subject, file.number))


def complete_subjects(
    files: list[ImageFile], views: Collection[str], source: Source
) -> list[ImageFile]:
    """Keep the images with the given views, of subjects that have all of them.

    Raises
    ------
    DatabaseError
        No subject has all of them.
    """
    wanted = [file for file in files if file.view in views]
    have: dict[str, set[str | None]] = defaultdict(set)
    for file in wanted:
        have[file.subject].add(file.view)
    kept = [file for file in wanted if len(have[file.subject]) == len(views)]
    if not kept:
        raise DatabaseError(
            f"{source.title}: none of the {len({file.subject for file in files})} "
            f"subjects found has all images of the paper's subset "
            f"({', '.join(sorted(views))}). Copy the rest, or pass "
            'subset="all".'
        )
    return kept


def check_subset(subset: str) -> None:
    """Refuse a subset that is neither the paper's nor everything."""
    if subset not in ("paper", "all"):
        raise DatabaseError(f'subset must be "paper" or "all", not {subset!r}')


def warn_if_incomplete(files: list[ImageFile], source: Source) -> None:
    """Warn where there are fewer subjects or images than the paper used."""
    subjects = len({file.subject for file in files})
    if subjects < source.subjects or len(files) < source.images:
        warnings.warn(
            f"{source.title}: the paper used {source.images} images of "
            f"{source.subjects} subjects, found {len(files)} of {subjects}. If the "
            "copy should be complete, compare it with the original.",
            UserWarning,
            stacklevel=3,
        )


def read_named(
    files: list[ImageFile],
    source: Source,
    size: SizeLike,
    on_error: OnError,
    read: Callable[[Path, tuple[int, int]], NDArray[np.uint8]] = read_image,
) -> Database:
    """Read the files of a database.

    Visits and views are given where every file has one.
    """
    paths = [file.path for file in files]
    images, kept, skipped = read_images(paths, size, on_error, read=read)
    chosen = [files[place] for place in kept]
    visits = [file.visit for file in chosen if file.visit is not None]
    views = [file.view for file in chosen if file.view is not None]
    return Database(
        name=source.title,
        images=images,
        labels=np.array([file.subject for file in chosen]),
        citation=source.citation,
        terms=source.terms,
        visits=np.array(visits) if len(visits) == len(chosen) else None,
        views=np.array(views) if len(views) == len(chosen) else None,
        skipped=skipped,
    )
