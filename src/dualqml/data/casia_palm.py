# SPDX-License-Identifier: BSD-3-Clause
"""The CASIA palmprints: both hands of 312 people."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

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
from dualqml.exceptions import DatabaseError
from dualqml.images.shapes import SizeLike

_PEOPLE = 312
SOURCE = Source(
    title="CASIA palmprint",
    expects=(
        "files such as 0001/0001_m_l_01.jpg (person, m or f, left or right hand l or "
        "r, number)"
    ),
    ask="apply to the Institute of Automation, Chinese Academy of Sciences (CASIA)",
    citation="Z. Sun, T. Tan, Y. Wang, S. Z. Li, Ordinal palmprint representation for "
    "personal identification, CVPR 2005. Portions of the research use the CASIA "
    "Palmprint Database collected by the Chinese Academy of Sciences.",
    terms=RESEARCH_ONLY,
    subjects=2 * _PEOPLE,
    images=5502,
    training_sizes=(2, 4, 6, 8),
)

_NAME = re.compile(r"(\d{4})_([mf])_([lr])_(\d{1,2})", re.IGNORECASE)


def load_casia_palm(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subject: Literal["hand", "person"] = "hand",
) -> Database:
    """Load the CASIA palmprint database from its files.

    Files are named ``0001_m_l_01.jpg``: person, sex, hand (left or right), number.
    The paper uses all 5,502 images of 312 people, so there is no subset to choose.
    The region of interest is not cut out.

    Parameters
    ----------
    root : path
        Folder of the files, which may be in folders below it.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: an error that names them, or
        they are left out and listed in ``skipped``.
    subject : {"hand", "person"}, default="hand"
        What is to be recognised. The two palms of a person differ, so that most
        work on this database counts each hand as a subject; the paper does not say.

    Returns
    -------
    Database
        Subjects such as ``0001_l`` (or ``0001``), views ``l`` and ``r``.

    Raises
    ------
    DatabaseError
        The folder has no image of the database, or files cannot be read.

    Warns
    -----
    UserWarning
        There are fewer subjects or images than the paper used.
    """
    if subject not in ("hand", "person"):
        raise DatabaseError(f'subject must be "hand" or "person", not {subject!r}')
    by_hand = subject == "hand"
    files = find_named(root, _parser(by_hand), SOURCE)
    warn_if_incomplete(files, SOURCE if by_hand else replace(SOURCE, subjects=_PEOPLE))
    return read_named(files, SOURCE, size, on_error)


def _parser(by_hand: bool) -> Callable[[Path], ImageFile | None]:
    def parse(path: Path) -> ImageFile | None:
        match = _NAME.fullmatch(path.stem)
        if match is None:
            return None
        hand = match[3].lower()
        return ImageFile(
            path=path,
            subject=f"{match[1]}_{hand}" if by_hand else match[1],
            number=f"{hand}_{int(match[4]):02d}",
            view=hand,
        )

    return parse
