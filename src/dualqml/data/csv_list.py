# SPDX-License-Identifier: BSD-3-Clause
"""Your own images: a list of files in CSV."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dualqml.data.database import Database, DatabaseError
from dualqml.data.images import OnError, read_images
from dualqml.extractors._images import SizeLike

_COLUMNS = ("path", "subject", "visit", "view")
_REQUIRED = 2


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
        The list, in UTF-8, separated by commas. Its first line names the columns:
        ``path`` and ``subject``, and where you have them ``visit`` (an integer) and
        ``view`` (any text), in any order. Relative paths start at the folder of the
        list.
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
            rows = list(_rows(path, stream))
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


def _rows(path: Path, stream: Iterator[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the cells of each line, checked."""
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
                columns = _header(where, cells)
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


def _header(where: str, cells: list[str]) -> list[str]:
    columns = [cell.lower() for cell in cells]
    wrong = [name for name in columns if name not in _COLUMNS]
    missing = [name for name in _COLUMNS[:_REQUIRED] if name not in columns]
    if wrong or missing or len(set(columns)) < len(columns):
        raise DatabaseError(
            f"{where}: expected a header with the columns path, subject and where "
            f"known visit and view, found {', '.join(cells)}"
        )
    return columns


def _check_integer(where: str, text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise DatabaseError(f"{where}: the visit {text!r} is no integer") from error
