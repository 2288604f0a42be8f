# SPDX-License-Identifier: BSD-3-Clause
"""Reading the samples that a command is given: images, databases, embeddings."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError

if TYPE_CHECKING:
    from dualqml.extractors import Background

#: Height and width of the images of a recogniser, unless others are asked for.
DEFAULT_SIZE = (32, 32)
#: Files that are databases. Any other file must be a saved background.
_DATABASE_FILES = (".csv", ".mat", ".npz")


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


def read_background(
    options: argparse.Namespace, size: tuple[int, int] = DEFAULT_SIZE
) -> "Background | None":
    """Read the people that the argument of `add_background_argument` names.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments, also those of `add_data_arguments`.
    size : tuple of int, default=(32, 32)
        Height and width to which images are resized: those of the recogniser.

    Returns
    -------
    Background or None
        Their statistics; None if the argument was not given.

    Raises
    ------
    DatabaseError
        The samples cannot be used, or the file holds something else.
    """
    if options.background is None:
        return None
    from dualqml.data import DATABASES, holds_vectors
    from dualqml.data.vectors import read_vectors

    path = Path(options.background)
    if options.background not in DATABASES and path.is_file():
        if holds_vectors(path):
            vectors, names, _ = read_vectors(path)
            if names is None:
                raise DatabaseError(
                    f"{path} does not say who is who; give an .npz file with "
                    "embeddings and labels as --background"
                )
            return background_of(Labelled(path.stem, vectors, names.tolist()), size)
        if path.suffix.lower() not in _DATABASE_FILES:
            return _saved_background(path)
    if options.photographs:
        return background_of(_read_photographs(path), size)
    return background_of(_read_images(options.background, options.root), size)


def background_of(data: Labelled, size: tuple[int, int] = DEFAULT_SIZE) -> "Background":
    """Compute statistics of samples as a recogniser reads them.

    Parameters
    ----------
    data : Labelled
        Samples with labels.
    size : tuple of int, default=(32, 32)
        Height and width to which images are resized.

    Returns
    -------
    Background
        The statistics.
    """
    from dualqml.extractors import Background
    from dualqml.recognition.inputs import InputReader

    reader = InputReader(size=size)
    rows = reader.read(data.samples)
    return Background.from_samples(rows, data.labels, image_shape=reader.image_shape)


def _saved_background(path: Path) -> "Background":
    from dualqml.extractors import Background
    from dualqml.persistence import load
    from dualqml.persistence.model_files import holds_model

    found = load(path) if holds_model(path) else None
    if not isinstance(found, Background):
        raise DatabaseError(
            f"{path} holds no statistics of people. Make such a file with dualqml "
            "background, or give a folder with one folder of images for each person."
        )
    return found


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
    return _read_images(options.data, options.root)


def _read_images(place: str, root: Path | None) -> Labelled:
    from dualqml.data import load_database

    database = load_database(place, root)
    name = Path(place).name or database.name
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
