# SPDX-License-Identifier: BSD-3-Clause
"""The FRGC version 2.0 faces: controlled and uncontrolled still images."""

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Literal

import numpy as np

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
    title="FRGC v2.0",
    expects=(
        "files such as Fall2003/04203d432.jpg (subject, d, number of the recording)"
    ),
    ask="apply to the Computer Vision Research Laboratory, University of Notre Dame, "
    "which distributes it for NIST",
    citation="P. J. Phillips et al., Overview of the face recognition grand "
    "challenge, CVPR 2005.",
    terms=RESEARCH_ONLY,
    subjects=300,
    images=6000,
    training_sizes=(2, 4, 6, 8),
)

_NAME = re.compile(r"(\d{5})d(\d+)", re.IGNORECASE)
# The .ppm files of the distribution are textures of three-dimensional scans.
_STILLS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pgm"})
_PER_SUBJECT = SOURCE.images // SOURCE.subjects


def load_frgc(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Literal["paper", "all"] = "paper",
    per_subject: int = _PER_SUBJECT,
) -> Database:
    """Load the still images of FRGC version 2.0 from its files.

    Files are named ``04203d432.jpg``, the subject before the ``d`` and the number
    of the recording after it, in folders of semesters. Which images are controlled
    is told only by the owners' XML lists, which are not read. Faces are not
    cropped.

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
        The paper uses 300 people and does not list them. Here they are the first
        300, in the order of their numbers, with at least `per_subject` images; of
        each, `per_subject` images evenly spread over the recordings, which cover
        controlled and uncontrolled conditions in turn. ``"all"`` reads every image.
    per_subject : int, default=20
        Images of each subject in the subset. The paper says both "6,000 images of
        300 subjects" and "40 images for each subject", which disagree; 20 gives
        the 6,000.

    Returns
    -------
    Database
        Subjects such as ``04203``.

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
    files = find_named(root, _parse, SOURCE, _STILLS)
    if subset == "paper":
        files = _spread(files, per_subject)
        warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error)


def _spread(files: list[ImageFile], per_subject: int) -> list[ImageFile]:
    """Take evenly spread images of the first subjects that have enough."""
    if per_subject < 1:
        raise DatabaseError(f"per_subject must be at least 1, not {per_subject}")
    images_of: dict[str, list[ImageFile]] = defaultdict(list)
    for file in files:
        images_of[file.subject].append(file)
    enough = [images for images in images_of.values() if len(images) >= per_subject]
    if not enough:
        raise DatabaseError(
            f"{SOURCE.title}: none of the {len(images_of)} subjects found has "
            f'{per_subject} images. Lower per_subject, or pass subset="all".'
        )
    return [
        images[place]
        for images in enough[: SOURCE.subjects]
        for place in np.linspace(0, len(images) - 1, per_subject).round().astype(int)
    ]


def _parse(path: Path) -> ImageFile | None:
    match = _NAME.fullmatch(path.stem)
    if match is None:
        return None
    # Padded, so that the order of names is that of recordings.
    return ImageFile(path=path, subject=match[1], number=f"{int(match[2]):06d}")
