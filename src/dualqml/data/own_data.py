# SPDX-License-Identifier: BSD-3-Clause
"""Your own images: one folder for each person, a CSV list, NumPy or MATLAB files."""

import csv
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from dualqml._text import first_few
from dualqml.data.database import Database
from dualqml.data.image_files import OnError, find_people, read_images
from dualqml.exceptions import DatabaseError
from dualqml.images.shapes import SizeLike, read_size

#: Columns of a CSV list.
_REQUIRED_COLUMNS = ("path", "subject")
_OPTIONAL_COLUMNS = ("visit", "view")


def load_folder(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load images from one folder for each person.

    The name of a folder is the subject. It may have spaces and letters of any
    script. Images in folders below a person's folder belong to that person too.
    Files without the extension of an image, hidden files and ``Thumbs.db`` are
    ignored.

    Parameters
    ----------
    root : path
        The folder that holds one folder for each person.
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
        There are no images, some images are not in a person's folder, or files
        cannot be read.

    Warns
    -----
    UserWarning
        A person's folder has no image, or a folder is hidden.
    """
    root = Path(root)
    found = find_people(root)
    for folders, why in ((found.empty, "have no images"), (found.hidden, "are hidden")):
        if folders:
            warnings.warn(
                f"{len(folders)} folders in {root} {why}: {first_few(folders)}",
                UserWarning,
                stacklevel=2,
            )
    images, kept, skipped = read_images(found.paths, size, on_error)
    return Database(
        name=root.resolve().name,
        images=images,
        labels=np.array(found.people)[kept],
        citation="",
        terms="",
        skipped=skipped,
        files=np.array(found.files)[kept],
    )


def load_csv(
    path: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load the images that a CSV file lists.

    Parameters
    ----------
    path : path
        The list, in UTF-8, separated by commas. Its first line names the columns,
        in any order: ``path`` and ``subject``, and optionally ``visit`` (an integer)
        and ``view`` (any text). Relative paths start at the folder of the list.
    size : sequence of int, default=(32, 32)
        Height and width to which the images are resized, with antialiasing.
    on_error : {"raise", "skip"}, default="raise"
        What happens to images that are missing or cannot be read: an error that
        names them and their lines, or they are left out and listed in ``skipped``.

    Returns
    -------
    Database
        The images in the order of the list.

    Raises
    ------
    DatabaseError
        The list is missing, or a line of it is wrong: the message names the line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(_csv_rows(path, stream))
    except OSError as error:
        raise DatabaseError(f"The list cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise DatabaseError(f"{path} is not in UTF-8: {error}") from error
    if not rows:
        raise DatabaseError(f"{path} lists no image")
    files = [path.parent / row["path"] for _, row in rows]
    names = [f"line {line}" for line, _ in rows]
    images, kept, skipped = read_images(files, size, on_error, names=names)
    chosen = [rows[place][1] for place in kept]
    return Database(
        name=path.stem,
        images=images,
        labels=np.array([row["subject"] for row in chosen]),
        citation="",
        terms="",
        visits=(
            np.array([int(row["visit"]) for row in chosen], dtype=np.int64)
            if "visit" in chosen[0]
            else None
        ),
        views=(
            np.array([row["view"] for row in chosen]) if "view" in chosen[0] else None
        ),
        skipped=skipped,
    )


def load_npz(
    path: str | os.PathLike[str],
    *,
    key: Literal["images32", "images"] | None = None,
) -> Database:
    """Load images from a NumPy archive.

    Parameters
    ----------
    path : path
        An ``.npz`` file with the arrays ``images32`` or ``images`` (8-bit, of shape
        (n_images, height, width)), ``labels`` (integers or text) and optionally
        ``visits`` (integers). Archives that need pickle are refused.
    key : {"images32", "images"}, optional
        Which images to load; by default ``images32`` if the file has it, else
        ``images``.

    Returns
    -------
    Database
        The images. Integer labels become text padded with zeros, which keeps
        their order.

    Raises
    ------
    DatabaseError
        The file is missing, damaged, needs pickle or lacks an array.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from dualqml.data import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.npz")
    ...     np.savez(path, images=np.zeros((12, 4, 4), np.uint8), labels=range(12))
    ...     load_npz(path).labels[-3:].tolist()
    ['09', '10', '11']
    """
    path = Path(path)
    if key not in (None, "images32", "images"):
        raise DatabaseError(f'key must be "images32" or "images", not {key!r}')
    try:
        opened = np.load(path, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise DatabaseError(f"{path} is a single array, not an .npz archive")
        with opened as archive:
            present = archive.files
            default = "images32" if "images32" in present else "images"
            chosen: str = key or default
            for name in (chosen, "labels"):
                if name not in present:
                    raise DatabaseError(
                        f"{path} has no array {name!r}; it has {', '.join(present)}"
                    )
            images, labels = archive[chosen], archive["labels"]
            visits = archive["visits"] if "visits" in present else None
    except DatabaseError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DatabaseError(f"{path} cannot be read as an archive: {error}") from error
    if visits is not None and visits.dtype.kind not in "iu":
        raise DatabaseError(f"{path}: visits must be integers, not {visits.dtype}")
    return Database(
        name=path.stem,
        images=images,
        labels=_text_labels(path, labels),
        citation="",
        terms="",
        visits=None if visits is None else visits.astype(np.int64),
    )


def load_mat(path: str | os.PathLike[str], *, shape: SizeLike = (32, 32)) -> Database:
    """Load images from a MATLAB file with the layout of Deng Cai's collections.

    Parameters
    ----------
    path : path
        A ``.mat`` file, of version 7 or older, with two arrays. ``fea`` has one row
        per image, with its pixels column after column and values from 0 to 255.
        ``gnd`` has the subject of each row, an integer.
    shape : sequence of int, default=(32, 32)
        Height and width of the images. The file does not record them.

    Returns
    -------
    Database
        The images. The subjects are the integers as text, padded with zeros.

    Raises
    ------
    DatabaseError
        The file is missing, damaged, of version 7.3, or lacks an array, or its
        images do not have that shape.
    """
    path = Path(path)
    try:
        height, width = read_size(shape, "shape")
    except ValueError as error:
        raise DatabaseError(str(error)) from error
    try:
        content = loadmat(path, variable_names=("fea", "gnd"))
    except NotImplementedError as error:
        raise DatabaseError(
            f"{path} is a MATLAB file of version 7.3, which is not read. Save it in "
            "MATLAB with save(..., '-v7')."
        ) from error
    # SciPy's reader raises almost anything on damaged files.
    except Exception as error:
        raise DatabaseError(
            f"{path} cannot be read as a MATLAB file: {error}"
        ) from error
    rows, subjects = (_number_array(path, content, name) for name in ("fea", "gnd"))
    if rows.ndim != 2 or rows.shape[1] != height * width:
        raise DatabaseError(
            f"{path}: fea has shape {rows.shape}; images of {height} x {width} need "
            f"{height * width} columns. Pass the right shape."
        )
    low, high = (rows.min(), rows.max()) if rows.size else (0, 0)
    if not (low >= 0 and high <= 255):
        raise DatabaseError(
            f"{path}: fea has values from {low} to {high}; 0 to 255 were expected"
        )
    if 0 < high <= 1:
        raise DatabaseError(
            f"{path}: fea has values up to {high}, as if scaled to 0..1; multiply them "
            "by 255"
        )
    if (subjects != np.round(subjects)).any():
        raise DatabaseError(f"{path}: gnd must be integers")
    # Transposed, because MATLAB stores images column after column.
    images = np.round(rows).astype(np.uint8).reshape(-1, width, height)
    return Database(
        name=path.stem,
        images=np.ascontiguousarray(images.transpose(0, 2, 1)),
        labels=_text_labels(path, subjects.ravel().astype(np.int64)),
        citation="",
        terms="",
    )


def _csv_rows(
    path: Path, stream: Iterator[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Check each line; yield its number and its cells by the names of the columns."""
    reader = csv.reader(stream, strict=True)
    columns: list[str] = []
    first_line: dict[str, int] = {}
    try:
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if not columns:
                columns = _csv_columns(where, cells)
                continue
            if len(cells) != len(columns):
                raise DatabaseError(
                    f"{where}: {len(cells)} cells, the header names {len(columns)} "
                    "columns"
                )
            row = dict(zip(columns, cells, strict=True))
            for column, cell in row.items():
                if not cell:
                    raise DatabaseError(f"{where}: no {column}")
            if "visit" in row:
                _check_integer(where, row["visit"])
            earlier = first_line.setdefault(row["path"], reader.line_num)
            if earlier != reader.line_num:
                raise DatabaseError(
                    f"{where}: {row['path']} is already on line {earlier}"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise DatabaseError(f"{path}, line {reader.line_num}: {error}") from error


def _csv_columns(where: str, cells: list[str]) -> list[str]:
    columns = [cell.lower() for cell in cells]
    known = {*_REQUIRED_COLUMNS, *_OPTIONAL_COLUMNS}
    complete = set(columns) >= set(_REQUIRED_COLUMNS)
    if not complete or not known >= set(columns) or len(set(columns)) < len(columns):
        raise DatabaseError(
            f"{where}: expected a header with the columns path, subject and where "
            f"known visit and view, found {', '.join(cells)}"
        )
    return columns


def _check_integer(where: str, text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise DatabaseError(f"{where}: the visit {text!r} is not an integer") from error


def _number_array(path: Path, content: dict[str, Any], name: str) -> NDArray[Any]:
    values = content.get(name)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "uif":
        raise DatabaseError(f"{path} has no array of numbers {name!r}")
    return values


def _text_labels(path: Path, labels: NDArray[Any]) -> NDArray[np.str_]:
    if labels.dtype.kind == "U":
        return labels
    if labels.dtype.kind not in "iu":
        raise DatabaseError(
            f"{path}: labels must be integers or text, not {labels.dtype}"
        )
    values = labels.ravel().tolist()
    width = max((len(str(value)) for value in values), default=1)
    return np.array([f"{value:0{width}d}" for value in values]).reshape(labels.shape)
