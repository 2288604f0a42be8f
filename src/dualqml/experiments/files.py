# SPDX-License-Identifier: BSD-3-Clause
"""Writing a file whole or not at all."""

import os
import tempfile
from pathlib import Path

from dualqml.experiments.results import StoreError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that at any moment the old or the new one is there.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there.
    text : str
        The content.

    Raises
    ------
    StoreError
        It cannot be written; the old file is untouched.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.experiments.files import write_text
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "new", "a.txt"), "hello")
    ...     Path(folder, "new", "a.txt").read_text()
    'hello'
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp keeps others out; a report is meant to be read.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
