# SPDX-License-Identifier: BSD-3-Clause
"""Reading the samples that a command is given: images, databases, embeddings."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError


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
        from dualqml.data.vectors import read_vectors

        vectors, names, _ = read_vectors(options.embeddings, options.labels)
        labels = [] if names is None else names.tolist()
        return Labelled(options.embeddings.stem, vectors, labels)
    if options.photographs:
        return _read_photographs(Path(options.data))
    from dualqml.data import load_database

    database = load_database(options.data, options.root)
    name = Path(options.data).name or database.name
    return Labelled(name, database.images, database.labels.tolist())


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
        from dualqml.data.vectors import read_vectors

        vectors, _, _ = read_vectors(options.embeddings)
        return [f"row {k}" for k in range(len(vectors))], vectors
    if not options.images:
        raise DatabaseError("Give images, or --embeddings")
    names = [str(path) for path in options.images]
    if options.photographs:
        from dualqml.images.faces import FaceEmbedder

        return names, FaceEmbedder().fit_transform(options.images)
    return names, list(options.images)
