# SPDX-License-Identifier: BSD-3-Clause
"""Your own photographs: tell them from crops, and read them as vectors of faces."""

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dualqml._text import first_few
from dualqml.data.database import VectorDatabase
from dualqml.data.image_files import OnError, check_on_error, find_people
from dualqml.exceptions import DatabaseError, MissingDependencyError, NoFaceError
from dualqml.images.face_networks import INSTALL
from dualqml.images.faces import find_faces
from dualqml.images.files import photograph_size

if TYPE_CHECKING:
    from dualqml.images.face_steps import FaceEmbedder

ImageKind = Literal["photographs", "crops"]

#: Images of one size with sides up to this are crops: a database of research.
_SMALL = 128
#: Number of files whose size is looked at, and of images on which faces are searched.
_N_SIZES, _N_TRIED = 200, 12
#: Part of the image that a face fills in a crop.
_CROP_SHARE = 0.4


class ImageGuess(NamedTuple):
    """What images seem to be.

    Attributes
    ----------
    kind : {"photographs", "crops"}
        Photographs, in which faces must be found first; or crops, which show the face,
        ear or palm and nothing else.
    reason : str
        Why, in words.
    """

    kind: ImageKind
    reason: str


def guess_images(paths: Sequence[Path]) -> ImageGuess:
    """Find out whether images are photographs or crops.

    Small images of one size are crops. Otherwise faces are searched in a few images
    from all over the list.

    Parameters
    ----------
    paths : sequence of Path
        The files, at least one.

    Returns
    -------
    ImageGuess
        What they are, and why.

    Raises
    ------
    DatabaseError
        None of the files can be read.
    MissingDependencyError
        Faces would have to be searched, and the optional packages are not installed.
    """
    sizes, problems = [], []
    for path in _spread(paths, _N_SIZES):
        try:
            sizes.append(photograph_size(path, str(path)))
        except DatabaseError as error:
            problems.append(error)
    if not sizes:
        raise DatabaseError(f"No image can be read: {problems[0]}")
    one_size = len(set(sizes)) == 1
    words = (
        "all of {} x {} pixels".format(*sizes[0]) if one_size else "of several sizes"
    )
    if one_size and max(sizes[0]) <= _SMALL:
        return ImageGuess("crops", words)
    shares, n_tried = [], 0
    for path in _spread(paths, _N_TRIED):
        try:
            height, width = photograph_size(path, str(path))
            faces = find_faces(path)
        except DatabaseError:
            continue
        except MissingDependencyError as error:
            raise MissingDependencyError(
                f"The images are {words}, so they may be photographs, in which faces "
                f"must be found first. Photographs need an optional part: {INSTALL}. "
                "If the images are crops, give --input crops."
            ) from error
        n_tried += 1
        if faces:
            shares.append(faces[0].side ** 2 / (height * width))
    tried = f"a face was found in {len(shares)} of {n_tried} tried"
    if 2 * len(shares) < n_tried or not shares:
        return ImageGuess("crops", f"{words}; {tried}")
    share = statistics.median(shares)
    if one_size and share >= _CROP_SHARE:
        fills = f"it fills {100 * share:.0f} % of the image"
        return ImageGuess("crops", f"{words}; {tried}, and {fills}")
    return ImageGuess("photographs", f"{words}; {tried}")


def load_photographs(
    root: str | os.PathLike[str],
    *,
    embedder: "FaceEmbedder | None" = None,
    on_error: OnError = "raise",
    progress: Callable[[int, int], object] | None = None,
) -> VectorDatabase:
    """Load photographs from one folder for each person, as vectors of their faces.

    Parameters
    ----------
    root : path
        The folder that holds one folder for each person.
    embedder : FaceEmbedder, optional
        Finds and describes the faces; one with default parameters if it is not given.
    on_error : {"raise", "skip"}, default="raise"
        What happens to photographs that cannot be used: one error that lists them, or
        they are left out and listed in ``skipped``.
    progress : callable, optional
        Called with the number of photographs done and of all.

    Returns
    -------
    VectorDatabase
        One vector for each photograph that can be used.

    Raises
    ------
    DatabaseError
        There are no photographs, or none can be used, or some cannot be used and
        `on_error` is ``"raise"``. It is a `NoFaceError` if the only reason is that no
        face was found.

    Examples
    --------
    >>> from dualqml.data.photographs import load_photographs
    >>> people = load_photographs("people", on_error="skip")  # doctest: +SKIP
    >>> people.vectors.shape, people.skipped  # doctest: +SKIP
    ((40, 128), ())
    """
    check_on_error(on_error)
    if embedder is None:
        from dualqml.images.face_steps import FaceEmbedder

        embedder = FaceEmbedder()
    root = Path(root)
    found = find_people(root)
    vectors, kept, errors = [], [], []
    remarks = [f"{name}: a hidden folder, not looked into" for name in found.hidden]
    described = embedder.describe(found.paths, all_faces=False, progress=progress)
    for place, seen in enumerate(described):
        try:
            main = seen.main_face(embedder.several, embedder.min_quality)
        except DatabaseError as error:
            errors.append(error)
            continue
        remarks += [f"{seen.name}: {remark}" for remark in seen.remarks]
        vectors.append(main.vector)
        kept.append(place)
    skipped = [f"{name}: no image in this folder" for name in found.empty]
    skipped += [str(error) for error in errors]
    if errors and (on_error == "raise" or not kept):
        kind = NoFaceError if all(isinstance(e, NoFaceError) for e in errors) else None
        raise (kind or DatabaseError)(
            f"{len(errors)} of {len(found.paths)} photographs cannot be used: "
            f"{first_few(list(map(str, errors)), ' ')}"
        )
    return VectorDatabase(
        name=root.resolve().name,
        vectors=np.array(vectors),
        labels=np.array(found.people)[kept],
        files=np.array(found.files)[kept],
        skipped=tuple(skipped),
        remarks=tuple(remarks),
    )


def _spread(paths: Sequence[Path], most: int) -> list[Path]:
    """At most so many paths, from all over the list."""
    places = np.unique(np.linspace(0, len(paths) - 1, min(most, len(paths))).round())
    return [paths[int(place)] for place in places]
