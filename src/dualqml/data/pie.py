# SPDX-License-Identifier: BSD-3-Clause
"""The CMU PIE faces: 13 cameras, 43 illuminations, expressions."""

import os
import re
from pathlib import Path
from typing import Literal

from dualqml.data.database import Database
from dualqml.data.image_files import OnError
from dualqml.data.named import (
    RESEARCH_ONLY,
    ImageFile,
    Source,
    check_subset,
    find_named,
    read_named,
    warn_if_incomplete,
)
from dualqml.exceptions import DatabaseError
from dualqml.images.shapes import SizeLike

SOURCE = Source(
    title="CMU PIE",
    expects=(
        "files such as 04002/illum/27_05.ppm (subject of five digits; illum, lights, "
        "expression or talking; camera_number)"
    ),
    ask="apply to The Robotics Institute, Carnegie Mellon University",
    citation="T. Sim, S. Baker, M. Bsat, The CMU pose, illumination, and expression "
    "database, IEEE TPAMI 25 (12), 2003.",
    terms=RESEARCH_ONLY,
    subjects=68,
    images=68 * 46,
    training_sizes=(2, 4, 6, 8),
)

_SUBJECT = re.compile(r"\d{5}")
_NAME = re.compile(r"(\d{2})_\w+")
_PARTS = {
    "illum": "illum",
    "illumination": "illum",
    "lights": "lights",
    "expression": "expression",
    "expressions": "expression",
    "talking": "talking",
}
_FRONTAL = "27"


def load_pie(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Literal["paper", "all"] = "paper",
) -> Database:
    """Load the CMU PIE face database from its files.

    A file counts where the folders above it name the subject (five digits, such as
    ``04002``) and the part of the recording (``illum``: flashes without room
    lights, ``lights``: flashes with room lights, ``expression`` or ``talking``, in
    any case and any order), and its name begins with the camera, such as
    ``27_05.ppm``. Other copies, one folder a person, are read with `load_folder`,
    and the widely shared ``.mat`` files with `load_mat`. Faces are not cropped.

    Parameters
    ----------
    root : path
        Folder of the subjects' folders.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: an error that names them, or
        they are left out and listed in ``skipped``.
    subset : {"paper", "all"}, default="paper"
        The paper uses the frontal images with all illuminations and expressions:
        camera 27, 43 illuminations and 3 expressions, 46 images of each of 68
        people. ``"all"`` reads every camera, and people who talk.

    Returns
    -------
    Database
        Subjects such as ``04002``, views such as ``illum/27_05``.

    Raises
    ------
    DatabaseError
        The folder has no image of the database, or files cannot be read.

    Warns
    -----
    UserWarning
        There are fewer subjects or images than the paper used.
    """
    check_subset(subset)
    files = find_named(root, _parse, SOURCE)
    if subset == "paper":
        frontal = [file for file in files if _in_paper(file)]
        if not frontal:
            raise DatabaseError(
                f"{SOURCE.title}: none of the {len(files)} images in {root} is of "
                f"camera {_FRONTAL}, which the paper uses. Copy its images, or pass "
                'subset="all".'
            )
        files = frontal
        warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error)


def _parse(path: Path) -> ImageFile | None:
    match = _NAME.fullmatch(path.stem)
    # The nearest folder counts: the way to the database may hold digits too.
    above = [folder.name.lower() for folder in path.parents]
    subject = next((name for name in above if _SUBJECT.fullmatch(name)), None)
    part = next((_PARTS[name] for name in above if name in _PARTS), None)
    if match is None or subject is None or part is None:
        return None
    view = f"{part}/{path.stem}"
    return ImageFile(path=path, subject=subject, number=view, view=view)


def _in_paper(file: ImageFile) -> bool:
    part, _, name = file.number.partition("/")
    return part != "talking" and name.startswith(f"{_FRONTAL}_")
