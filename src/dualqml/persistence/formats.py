# SPDX-License-Identifier: BSD-3-Clause
"""Versions of file formats."""

import os
from collections.abc import Mapping

from dualqml import __version__
from dualqml.exceptions import ModelFileError

#: The version of dualqml that wrote a file.
VERSION_KEY = "dualqml.version"


def check_format(
    path: str | os.PathLike[str], metadata: Mapping[str, str], key: str, known: int
) -> None:
    """Raise if a file has another format.

    Parameters
    ----------
    path : path
        The file.
    metadata : dict of str to str
        The strings of the file.
    key : str
        The key of the version of the format.
    known : int
        The version that is read.

    Raises
    ------
    ModelFileError
        The file has another version.
    """
    if metadata[key] != str(known):
        raise ModelFileError(
            f"{path} has format {metadata[key][:20]!r}, written by dualqml "
            f"{metadata.get(VERSION_KEY, '?')[:20]!r}; dualqml {__version__} reads "
            f"format {known}. Load it with the version that wrote it."
        )
