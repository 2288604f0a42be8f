# SPDX-License-Identifier: BSD-3-Clause
"""Vectors instead of images, such as the embeddings of a network, from files."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml.data.database import VectorDatabase
from dualqml.exceptions import DatabaseError, MissingDependencyError

#: Names of the arrays of an archive, and of the columns of a table. The first that is
#: there counts.
_VECTORS = ("embeddings", "X")
_LABELS = ("labels", "y")
_LABEL_COLUMNS = ("subject", "label", "labels", "y")
_VISITS = ("visits", "visit")

_EXTENSIONS = (".npz", ".npy", ".parquet")


class _Content(NamedTuple):
    """What a file has: vectors, and labels and visits where it has them."""

    vectors: NDArray[Any]
    labels: Any = None
    visits: Any = None


def holds_vectors(path: str | os.PathLike[str]) -> bool:
    """Tell a file of vectors from a database of images.

    Parameters
    ----------
    path : path
        Any path, also one that does not exist.

    Returns
    -------
    bool
        Whether it is a file that `load_vectors` reads: ``.npy``, ``.parquet``, or
        ``.npz`` with an array of vectors and none of images.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _EXTENSIONS or not path.is_file():
        return False
    if kind != ".npz":
        return True
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = set(archive.files)
    # NumPy's reader can raise almost any error. The reader of images explains it.
    except Exception:
        return False
    return bool(names & set(_VECTORS)) and not names & {"images", "images32"}


def load_vectors(
    path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None
) -> VectorDatabase:
    """Load vectors and their subjects.

    Parameters
    ----------
    path : path
        - ``.npz`` with the arrays ``embeddings`` or ``X`` (a row for each sample),
          ``labels`` or ``y``, and optionally ``visits`` (integers);
        - ``.npy`` with a row for each sample; `labels` says who is who;
        - ``.parquet`` with a column ``subject`` or ``label``, and one column of lists
          or a column for each coordinate. It needs pandas and pyarrow.

        Files that need pickle are refused.
    labels : path, optional
        The subject of each vector: a text file with one per line, or an ``.npy``
        array. It replaces the labels in the file.

    Returns
    -------
    VectorDatabase
        The vectors.

    Raises
    ------
    DatabaseError
        A file cannot be read, or it does not say who is who.
    MissingDependencyError
        What reads Parquet files is not installed.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from dualqml.data import load_vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "faces.npz")
    ...     np.savez(path, embeddings=np.eye(4), labels=["Ann", "Ann", "Zoe", "Zoe"])
    ...     load_vectors(path).subjects.tolist()
    ['Ann', 'Zoe']
    """
    path = Path(path)
    vectors, names, visits = read_vectors(path, labels)
    if names is None:
        raise DatabaseError(
            f"{path} does not say who is who; give labels (--labels), a text file with "
            "one subject per line"
        )
    return VectorDatabase(
        name=path.stem,
        vectors=vectors,
        labels=names,
        visits=visits,
    )


def read_vectors(
    path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None
) -> tuple[NDArray[np.floating], NDArray[np.str_] | None, NDArray[np.int64] | None]:
    """Read vectors, with their labels and visits where these are known.

    Parameters
    ----------
    path : path
        As in `load_vectors`.
    labels : path, optional
        As in `load_vectors`.

    Returns
    -------
    vectors : ndarray of shape (n_vectors, n_features)
        In single or double precision.
    labels : ndarray of shape (n_vectors,) or None
        The subjects as text.
    visits : ndarray of shape (n_vectors,) or None
        The visits.

    Raises
    ------
    DatabaseError
        A file cannot be read or lacks something.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _EXTENSIONS:
        raise DatabaseError(f"{path}: embeddings are .npz, .npy or .parquet files")
    reader = {".npz": _read_npz, ".npy": _read_npy, ".parquet": _read_parquet}[kind]
    try:
        content = reader(path)
    except (DatabaseError, MissingDependencyError):
        raise
    # NumPy's reader can raise almost any error if the file is not in its format.
    except Exception as error:
        raise DatabaseError(f"{path} cannot be read: {error}") from error
    vectors = content.vectors
    if vectors.ndim != 2:
        raise DatabaseError(
            f"{path}: embeddings have a row for each sample, not shape {vectors.shape}"
        )
    if vectors.dtype.kind not in "iuf":
        raise DatabaseError(f"{path}: embeddings are numbers, not {vectors.dtype}")
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float64)
    names = _text(path, content.labels if labels is None else _read_labels(labels))
    visits = _whole_numbers(path, content.visits)
    for what, found in (("labels", names), ("visits", visits)):
        if found is not None and len(found) != len(vectors):
            raise DatabaseError(
                f"{path} has {len(vectors)} vectors and {len(found)} {what}"
            )
    return vectors, names, visits


def _read_npz(path: Path) -> _Content:
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files

        def first(wanted: tuple[str, ...]) -> Any:
            return next((archive[name] for name in wanted if name in names), None)

        vectors = first(_VECTORS)
        if vectors is None:
            raise DatabaseError(
                f"{path} has no array 'embeddings' or 'X'; it has {', '.join(names)}"
            )
        return _Content(vectors, first(_LABELS), first(_VISITS))


def _read_npy(path: Path) -> _Content:
    return _Content(np.load(path, allow_pickle=False))


def _read_parquet(path: Path) -> _Content:
    install = "pip install pandas pyarrow"
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError(
            f"Parquet files need pandas and pyarrow: {install}"
        ) from error
    try:
        table = pandas.read_parquet(path)
    except ImportError as error:
        raise MissingDependencyError(
            f"Parquet files need pandas and pyarrow: {install}"
        ) from error

    def take(wanted: tuple[str, ...]) -> Any:
        found = next((name for name in wanted if name in table), None)
        return None if found is None else table.pop(found).to_numpy()

    labels, visits = take(_LABEL_COLUMNS), take(_VISITS)
    columns = [str(name) for name in table.columns]
    others = [
        str(name) for name, kind in table.dtypes.items() if kind.kind not in "iuf"
    ]
    if len(columns) == 1 and others == columns:
        lists = table.iloc[:, 0].tolist()
        lengths = {np.size(row) for row in lists}
        if len(lengths) != 1:
            raise DatabaseError(
                f"{path}: the lists of the column {columns[0]!r} have different lengths"
            )
        return _Content(np.array(lists, dtype=np.float64), labels, visits)
    if others or not columns:
        raise DatabaseError(
            f"{path}: beside the label ({', '.join(_LABEL_COLUMNS)}) a table has one "
            "column of lists, or a column of numbers for each coordinate; found "
            f"{first_few(others or columns) or 'nothing'}"
        )
    return _Content(table.to_numpy(dtype=np.float64), labels, visits)


def _read_labels(path: str | os.PathLike[str]) -> Any:
    path = Path(path)
    try:
        if path.suffix.lower() == ".npy":
            return np.load(path, allow_pickle=False)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DatabaseError(f"The labels cannot be read: {path}: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _text(path: Path, labels: Any) -> NDArray[np.str_] | None:
    if labels is None:
        return None
    array = np.asarray(labels).ravel()
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "f" and (array != np.round(array)).any():
        raise DatabaseError(f"{path}: labels are text or whole numbers")
    if array.dtype.kind == "f":
        array = array.astype(np.int64)
    return np.array([str(name) for name in array.tolist()], dtype=np.str_)


def _whole_numbers(path: Path, visits: Any) -> NDArray[np.int64] | None:
    if visits is None:
        return None
    array = np.asarray(visits).ravel()
    if array.dtype.kind not in "iu":
        raise DatabaseError(f"{path}: visits must be integers, not {array.dtype}")
    return array.astype(np.int64)
