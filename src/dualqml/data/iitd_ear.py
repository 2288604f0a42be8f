# SPDX-License-Identifier: BSD-3-Clause
"""The IIT Delhi ears."""

import os
import re
from pathlib import Path

from dualqml.data.database import Database
from dualqml.data.image_files import OnError
from dualqml.data.named import (
    RESEARCH_ONLY,
    ImageFile,
    Source,
    find_named,
    read_named,
    warn_if_incomplete,
)
from dualqml.images.shapes import SizeLike

SOURCE = Source(
    title="IIT Delhi ear",
    expects="files such as 001_1.bmp (subject, number)",
    ask="apply to the Biometrics Research Laboratory, Indian Institute of Technology "
    "Delhi (Ajay Kumar)",
    citation="A. Kumar, C. Wu, Automated human identification using ear imaging, "
    "Pattern Recognition 45 (3), 2012.",
    terms=RESEARCH_ONLY,
    subjects=212,
    images=754,
    training_sizes=(2, 3),
)

_NAME = re.compile(r"(\d{1,3})_(\d{1,2})")


def load_iitd_ear(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load the IIT Delhi ear database from its files.

    Files are named ``001_1.bmp``: subject, number. The owners ship several versions
    (raw and normalised, 125 and 221 subjects) with the same names: give the folder
    of one. The paper uses a whole database of 754 images of 212 subjects; today's
    has 793 images of 221. Which subjects were added is not recorded, so all that
    are there are read.

    Parameters
    ----------
    root : path
        Folder of the files, which may be in folders below it.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: an error that names them, or
        they are left out and listed in ``skipped``.

    Returns
    -------
    Database
        Subjects such as ``001``.

    Raises
    ------
    DatabaseError
        The folder has no image of the database, or files cannot be read.

    Warns
    -----
    UserWarning
        There are fewer subjects or images than the paper used.
    """
    files = find_named(root, _parse, SOURCE)
    warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error)


def _parse(path: Path) -> ImageFile | None:
    match = _NAME.fullmatch(path.stem)
    if match is None:
        return None
    return ImageFile(
        path=path, subject=f"{int(match[1]):03d}", number=f"{int(match[2]):02d}"
    )
