# SPDX-License-Identifier: BSD-3-Clause
"""The FERET faces, of which the paper uses the small poses."""

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
    complete_subjects,
    find_named,
    read_named,
    warn_if_incomplete,
)
from dualqml.images.shapes import SizeLike

SOURCE = Source(
    title="FERET",
    expects=(
        "files such as 01013ba010_960521.tif or 00002_940928_fa.ppm (subject of five "
        "digits, code of the pose, date)"
    ),
    ask="apply to the US National Institute of Standards and Technology (NIST)",
    citation="P. J. Phillips, H. Moon, S. A. Rizvi, P. J. Rauss, The FERET evaluation "
    "methodology for face-recognition algorithms, IEEE TPAMI 22 (10), 2000.",
    terms=RESEARCH_ONLY,
    subjects=200,
    images=1400,
    training_sizes=(2, 4, 6),
)

# Grey: subject, pose, three flags, a letter where something is special, date.
_GREY = re.compile(r"(\d{5})([a-z]{2})(\d{3}[a-z]?_\d{6}[a-z]?)", re.IGNORECASE)
# Colour: subject, date, pose, a letter where something is special.
_COLOUR = re.compile(r"(\d{5})_(\d{6})_([a-z]{2})(_[a-z])?", re.IGNORECASE)
_SMALL_POSES = frozenset({"ba", "bd", "be", "bf", "bg", "bj", "bk"})


def load_feret(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Literal["paper", "all"] = "paper",
) -> Database:
    """Load the FERET face database from its files.

    Files of the grey distribution are named ``01013ba010_960521.tif``: subject,
    code of the pose, three flags, date; those of the colour distribution
    ``00002_940928_fa.ppm``: subject, date, pose. Both may be compressed one by one
    (``.bz2``). The colour discs hold each image in several sizes: give the folder
    of one of them. Faces are not cropped. Copies with one folder a person are read
    with `load_folder`.

    Parameters
    ----------
    root : path
        Folder of the files, which may be in folders below it.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: an error that names them, or
        they are left out and listed in ``skipped``.
    subset : {"paper", "all"}, default="paper"
        The paper uses 7 images of each of 200 people with poses from -25 to 25
        degrees: ``ba`` (frontal), ``bd``, ``be``, ``bf``, ``bg`` (25, 15, -15, -25
        degrees), ``bj`` (another expression) and ``bk`` (another illumination).
        People who lack one of the 7 are left out. ``"all"`` reads every image.

    Returns
    -------
    Database
        Subjects such as ``01013``, views such as ``ba``.

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
        files = complete_subjects(files, _SMALL_POSES, SOURCE)
        warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error)


def _parse(path: Path) -> ImageFile | None:
    stem = path.name.split(".", 1)[0]
    if match := _GREY.fullmatch(stem):
        pose = match[2].lower()
    elif match := _COLOUR.fullmatch(stem):
        pose = match[3].lower()
    else:
        return None
    return ImageFile(path=path, subject=match[1], number=stem.lower(), view=pose)
