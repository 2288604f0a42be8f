# SPDX-License-Identifier: BSD-3-Clause
"""Your own images: one folder for each person."""

import os
import unicodedata
import warnings
from pathlib import Path

import numpy as np

from dualqml.data.database import Database, DatabaseError
from dualqml.data.images import OnError, find_files, find_images, first_few, read_images
from dualqml.extractors._images import SizeLike


def load_folder(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load images from one folder for each person.

    The folder's name is the subject; spaces and any script are fine. Images in
    folders below a person's folder are of that person too. Files that are not
    images by their extension, hidden files and ``Thumbs.db`` are ignored.

    Parameters
    ----------
    root : path
        Folder of the people's folders.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: an error that names them, or
        they are left out and listed in ``skipped``.

    Returns
    -------
    Database
        The images in the order of people and file names.

    Raises
    ------
    DatabaseError
        There are no images, images outside people's folders, or files that cannot
        be read.

    Warns
    -----
    UserWarning
        A person's folder has no image.
    """
    root = Path(root)
    paths = find_images(root)
    expected = "Expected: one folder for each person with image files in it"
    if not paths:
        others = [str(path.relative_to(root)) for path in find_files(root)]
        found = f"found {first_few(others)}" if others else "the folder is empty"
        raise DatabaseError(f"No images in {root}: {found}. {expected}.")
    loose = [path.name for path in paths if path.parent == root]
    if loose:
        raise DatabaseError(
            f"{len(loose)} images in {root} are in no person's folder: "
            f"{first_few(loose)}. {expected}."
        )
    people = [path.relative_to(root).parts[0] for path in paths]
    without = sorted(
        folder.name
        for folder in root.iterdir()
        if folder.is_dir()
        and not folder.name.startswith(".")
        and folder.name not in people
    )
    if without:
        warnings.warn(
            f"{len(without)} folders in {root} have no images: {first_few(without)}",
            UserWarning,
            stacklevel=2,
        )
    images, kept, skipped = read_images(paths, size, on_error)
    # The same name is stored differently by different file systems.
    labels = [unicodedata.normalize("NFC", people[place]) for place in kept]
    return Database(
        name=root.resolve().name,
        images=images,
        labels=np.array(labels),
        citation="",
        terms="",
        skipped=skipped,
    )
