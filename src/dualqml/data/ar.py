# SPDX-License-Identifier: BSD-3-Clause
"""The AR faces: expressions, lights and occlusions, in two visits."""

import os
import re
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
from dualqml.exceptions import DatabaseError
from dualqml.images.files import IMAGE_EXTENSIONS, read_image
from dualqml.images.geometry import standard_grey
from dualqml.images.shapes import SizeLike

SOURCE = Source(
    title="AR",
    expects=(
        "files such as m-001-01.bmp and w-001-14.bmp (man or woman, person, image 01 "
        "to 26)"
    ),
    ask="apply to Aleix Martinez, The Ohio State University",
    citation="A. M. Martinez, R. Benavente, The AR face database, CVC Technical "
    "Report 24, 1998.",
    terms=RESEARCH_ONLY,
    subjects=120,
    images=1680,
    training_sizes=(2, 4, 6, 8),
)

# The owners' page writes F for women, their files w.
_NAME = re.compile(r"([mwf])-(\d{1,3})-(\d{1,2})", re.IGNORECASE)
_VISIT_1 = 13
_IMAGES = 26
_UNOCCLUDED = frozenset(f"{n:02d}" for n in [*range(1, 8), *range(14, 21)])
_RAW_HEIGHT, _RAW_WIDTH = 576, 768


def load_ar(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Literal["paper", "all"] = "paper",
) -> Database:
    """Load the AR face database from its files.

    The files are named ``m-xxx-yy`` for men and ``w-xxx-yy`` for women (``f`` is
    taken for ``w``): person xxx, image yy from 01 to 26. Images 01 to 13 are of
    the first visit and 14 to 26 of the second, in the same order: neutral, smile,
    anger, scream, light from the left, the right, both; then the same three lights
    with sun glasses and with a scarf. The usual image formats are read, and the
    owners' ``.raw``: 768 x 576 pixels, one plane of red, green and blue after the
    other. Faces are not cropped.

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
        The paper uses the 14 images without occlusion (01 to 07 and 14 to 20) of
        the 120 people, 65 men and 55 women, who came twice: people who lack one of
        the 14 are left out. ``"all"`` reads every image.

    Returns
    -------
    Database
        Subjects such as ``m-001``, visits 1 and 2, views ``01`` to ``26``.

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
    files = find_named(root, _parse, SOURCE, IMAGE_EXTENSIONS | {".raw"})
    if subset == "paper":
        files = complete_subjects(files, _UNOCCLUDED, SOURCE)
        warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error, _read)


def _parse(path: Path) -> ImageFile | None:
    match = _NAME.fullmatch(path.stem)
    if match is None or not 1 <= int(match[3]) <= _IMAGES:
        return None
    sex = "m" if match[1].lower() == "m" else "w"
    number = int(match[3])
    view = f"{number:02d}"
    return ImageFile(
        path=path,
        subject=f"{sex}-{int(match[2]):03d}",
        number=view,
        visit=1 if number <= _VISIT_1 else 2,
        view=view,
    )


def _read(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    if path.suffix.lower() != ".raw":
        return read_image(path, size)
    try:
        pixels = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DatabaseError(f"{path}: {error}") from error
    expected = 3 * _RAW_HEIGHT * _RAW_WIDTH
    if pixels.size != expected:
        raise DatabaseError(
            f"{path}: {pixels.size} bytes, a raw image of AR has {expected}"
        )
    planes = pixels.reshape(3, _RAW_HEIGHT, _RAW_WIDTH)
    return standard_grey(planes.transpose(1, 2, 0), size, colour=True)
