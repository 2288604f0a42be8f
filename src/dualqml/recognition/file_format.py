# SPDX-License-Identifier: BSD-3-Clause
"""How the file of a recogniser is told from other files, and its version."""

import os
from collections.abc import Mapping

from dualqml.exceptions import ModelFileError
from dualqml.persistence.formats import check_format

#: Version of the format. It changes with a major version of dualqml at most.
FORMAT = 2

FORMAT_KEY = "dualqml.recognizer"
ID_KEY = "dualqml.model_id"
STATE_KEY = "dualqml.state"


def check_recognizer(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> None:
    """Raise if a file is not that of a recogniser, or of another version.

    Parameters
    ----------
    path : path
        The file.
    metadata : dict of str to str
        The strings of the file.

    Raises
    ------
    ModelFileError
        It cannot be read.
    """
    if FORMAT_KEY not in metadata or STATE_KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but no recogniser")
    check_format(path, metadata, FORMAT_KEY, FORMAT)
