# SPDX-License-Identifier: BSD-3-Clause
"""Reading the samples that a command is given: images, databases, embeddings."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError, MissingDependencyError


class Labelled(NamedTuple):
    """Samples and their subjects.

    Attributes
    ----------
    name : str
        Name of the data.
    samples : ndarray of shape (n, height, width) or (n, p)
        Images or vectors.
    labels : list of str
        Subject of each sample; empty where they are not known.
    """

    name: str
    samples: NDArray[Any]
    labels: list[str]


def read_labelled(options: argparse.Namespace) -> Labelled:
    """Read the samples that the arguments of `add_data_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    Labelled
        Samples with labels.

    Raises
    ------
    DatabaseError
        The samples cannot be read, or have no labels.
    """
    data = _read_data(options)
    if not data.labels:
        raise DatabaseError(f"{data.name} does not say who is who; give --labels")
    return data


def _read_data(options: argparse.Namespace) -> Labelled:
    if (options.data is None) == (options.embeddings is None):
        raise DatabaseError("Give either a folder or database, or --embeddings")
    if options.embeddings is not None:
        return read_embeddings(options.embeddings, options.labels)
    if options.photographs:
        return _read_photographs(Path(options.data))
    from dualqml.data import load_database

    database = load_database(options.data, options.root)
    name = Path(options.data).name or database.name
    return Labelled(name, database.images, database.labels.tolist())


def read_embeddings(path: Path, labels: Path | None = None) -> Labelled:
    """Read vectors from a file.

    Parameters
    ----------
    path : Path
        ``.npz`` with an array "embeddings" and perhaps "labels"; ``.npy``; or
        ``.parquet`` with a column for each coordinate and perhaps "subject".
    labels : Path, optional
        Text file with the subject of each vector, one per line.

    Returns
    -------
    Labelled
        The vectors; without labels where the files have none.

    Raises
    ------
    DatabaseError
        A file cannot be read or lacks something.
    """
    kind = path.suffix.lower()
    names: Any = None
    try:
        if kind == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                if "embeddings" not in archive.files:
                    raise DatabaseError(
                        f"{path} has no array 'embeddings'; it has "
                        f"{', '.join(archive.files)}"
                    )
                vectors = archive["embeddings"]
                names = archive["labels"] if "labels" in archive.files else None
        elif kind == ".npy":
            vectors = np.load(path, allow_pickle=False)
        elif kind == ".parquet":
            vectors, names = _read_parquet(path)
        else:
            raise DatabaseError(f"{path}: embeddings are .npz, .npy or .parquet files")
    except (DatabaseError, MissingDependencyError):
        raise
    # NumPy's reader can raise almost any error if the file is not in its format.
    except Exception as error:
        raise DatabaseError(f"{path} cannot be read: {error}") from error
    if labels is not None:
        names = [line for line in labels.read_text().splitlines() if line.strip()]
    if vectors.ndim != 2:
        raise DatabaseError(
            f"{path}: embeddings have a row for each sample, not shape {vectors.shape}"
        )
    array = np.asarray([] if names is None else names).ravel()
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    known = [str(name) for name in array.tolist()]
    if known and len(known) != len(vectors):
        raise DatabaseError(
            f"{path} has {len(vectors)} vectors and {len(known)} labels"
        )
    return Labelled(path.stem, vectors, known)


def _read_parquet(path: Path) -> tuple[NDArray[Any], Any]:
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet files need pandas and pyarrow: pip install pandas pyarrow"
        ) from error
    try:
        table = pandas.read_parquet(path)
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet files need pyarrow: pip install pyarrow"
        ) from error
    names = table.pop("subject").tolist() if "subject" in table else None
    return table.to_numpy(dtype=np.float64), names


def _read_photographs(folder: Path) -> Labelled:
    from dualqml.data.image_files import find_images
    from dualqml.images.faces import FaceEmbedder

    paths = find_images(folder)
    if not paths:
        raise DatabaseError(f"There are no photographs in {folder}")
    loose = [path.name for path in paths if path.parent == folder]
    if loose:
        raise DatabaseError(
            f"{loose[0]} is in no person's folder: {folder} has one folder of "
            "photographs for each person"
        )
    labels = [path.relative_to(folder).parts[0] for path in paths]
    return Labelled(folder.name, FaceEmbedder().fit_transform(paths), labels)


def read_probes(options: argparse.Namespace) -> tuple[list[str], Any]:
    """Read the samples that the arguments of `add_probe_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    names : list of str
        A name for each sample.
    samples : ndarray or list of Path
        Vectors, or files of images.

    Raises
    ------
    DatabaseError
        The samples cannot be read, or none are named.
    """
    if options.embeddings is not None:
        if options.images:
            raise DatabaseError("Give either images or --embeddings, not both")
        found = read_embeddings(options.embeddings)
        return [f"row {k}" for k in range(len(found.samples))], found.samples
    if not options.images:
        raise DatabaseError("Give images, or --embeddings")
    names = [str(path) for path in options.images]
    if options.photographs:
        from dualqml.images.faces import FaceEmbedder

        return names, FaceEmbedder().fit_transform(options.images)
    return names, list(options.images)
