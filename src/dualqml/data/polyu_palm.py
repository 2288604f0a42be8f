# SPDX-License-Identifier: BSD-3-Clause
"""The PolyU palmprints, version 2: 386 palms in two visits."""

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
    title="PolyU palmprint",
    expects=(
        "files such as PolyU_001_F_01.bmp (palm, first or second visit F or S, number)"
    ),
    ask="apply to the Biometrics Research Centre, The Hong Kong Polytechnic University",
    citation="D. Zhang, W.-K. Kong, J. You, M. Wong, Online palmprint identification, "
    "IEEE TPAMI 25 (9), 2003.",
    terms=RESEARCH_ONLY,
    subjects=386,
    images=7752,
    training_sizes=(2, 4, 6, 8),
)

_NAME = re.compile(r"PolyU_(\d{1,4})_([FS])_(\d{1,2})", re.IGNORECASE)


def load_polyu_palm(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load the PolyU palmprint database from its files.

    Files are named ``PolyU_001_F_01.bmp``: palm, visit (``F`` first, ``S`` second),
    number. A subject is a palm, not a person. The paper uses all 7,752 images of
    386 palms, so there is no subset to choose. The region of interest is not cut
    out.

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
        Subjects such as ``001``, visits 1 and 2.

    Raises
    ------
    DatabaseError
        The folder has no image of the database, or files cannot be read.

    Warns
    -----
    UserWarning
        There are fewer palms or images than the paper used.
    """
    files = find_named(root, _parse, SOURCE)
    warn_if_incomplete(files, SOURCE)
    return read_named(files, SOURCE, size, on_error)


def _parse(path: Path) -> ImageFile | None:
    match = _NAME.fullmatch(path.stem)
    if match is None:
        return None
    visit = match[2].upper()
    return ImageFile(
        path=path,
        subject=f"{int(match[1]):03d}",
        number=f"{visit}_{int(match[3]):02d}",
        visit=1 if visit == "F" else 2,
    )
