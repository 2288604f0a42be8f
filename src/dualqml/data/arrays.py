# SPDX-License-Identifier: BSD-3-Clause
"""Images that are already arrays: NumPy archives and MATLAB files."""

import os
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from dualqml.data.database import Database, DatabaseError
from dualqml.extractors._images import SizeLike, read_size


def load_npz(
    path: str | os.PathLike[str],
    *,
    key: Literal["images32", "images"] | None = None,
) -> Database:
    """Load images from a NumPy archive.

    Parameters
    ----------
    path : path
        An ``.npz`` file with ``images32`` or ``images``, 8-bit and of shape
        (n_images, height, width), ``labels``, integers or text, and where known
        ``visits``, integers. Archives that need pickle are refused.
    key : {"images32", "images"}, optional
        Which images to load; by default ``images32`` where the file has it.

    Returns
    -------
    Database
        The images. Integer labels become text padded with zeros, so that their
        order stays.

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
        labels=_text(path, labels),
        citation="",
        terms="",
        visits=None if visits is None else visits.astype(np.int64),
    )


def load_mat(path: str | os.PathLike[str], *, shape: SizeLike = (32, 32)) -> Database:
    """Load images from a MATLAB file in the manner of Deng Cai's collections.

    Parameters
    ----------
    path : path
        A ``.mat`` file, of version 7 or older, with ``fea``, one image a row, its
        pixels column after column with values from 0 to 255, and ``gnd``, the
        integer subject of each row.
    shape : sequence of int, default=(32, 32)
        Height and width of the images, which the file does not say.

    Returns
    -------
    Database
        The images; the subjects are the integers as text padded with zeros.

    Raises
    ------
    DatabaseError
        The file is missing, damaged, of version 7.3, lacks an array, or its images
        are not of that shape.
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
    rows, subjects = (_numbers(path, content, name) for name in ("fea", "gnd"))
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
    # Transposed, because MATLAB stores column after column.
    images = np.round(rows).astype(np.uint8).reshape(-1, width, height)
    return Database(
        name=path.stem,
        images=np.ascontiguousarray(images.transpose(0, 2, 1)),
        labels=_text(path, subjects.ravel().astype(np.int64)),
        citation="",
        terms="",
    )


def _numbers(path: Path, content: dict[str, Any], name: str) -> NDArray[Any]:
    values = content.get(name)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "uif":
        raise DatabaseError(f"{path} has no array of numbers {name!r}")
    return values


def _text(path: Path, labels: NDArray[Any]) -> NDArray[np.str_]:
    if labels.dtype.kind == "U":
        return labels
    if labels.dtype.kind not in "iu":
        raise DatabaseError(
            f"{path}: labels must be integers or text, not {labels.dtype}"
        )
    values = labels.ravel().tolist()
    width = max((len(str(value)) for value in values), default=1)
    return np.array([f"{value:0{width}d}" for value in values]).reshape(labels.shape)
