# SPDX-License-Identifier: BSD-3-Clause
"""Samples for the commands of recognition: images, databases, embeddings."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml.cli._output import say
from dualqml.data import load_database
from dualqml.exceptions import DatabaseError, MissingDependencyError


class Labelled(NamedTuple):
    """Samples and who is on them.

    Attributes
    ----------
    name : str
        What to call the data.
    samples : ndarray of shape (n, height, width) or (n, p)
        Images or vectors.
    labels : list of str
        Who is on them; empty where nobody said.
    """

    name: str
    samples: NDArray[Any]
    labels: list[str]


def add_data_arguments(parser: argparse.ArgumentParser, *, optional: bool) -> None:
    """Declare where labelled samples come from."""
    parser.add_argument(
        "data",
        nargs="?",
        help="a folder with one folder of images for each person, or any database of "
        "dualqml reproduce" + (" (optional)" if optional else ""),
    )
    parser.add_argument("--root", type=Path, help="folder above those of the databases")
    parser.add_argument(
        "--embeddings",
        type=Path,
        metavar="FILE",
        help="vectors instead of images: .npz with embeddings and labels, .npy with "
        "--labels, or .parquet with a column subject",
    )
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="text file, a subject a line"
    )
    parser.add_argument(
        "--photographs",
        action="store_true",
        help="find the face in every photograph and compute its embedding (needs "
        "dualqml[faces]); DATA is a folder with a folder for each person",
    )


def read_labelled(options: argparse.Namespace) -> Labelled:
    """Read what the arguments of `add_data_arguments` say."""
    if (options.data is None) == (options.embeddings is None):
        raise DatabaseError("Give either a folder or database, or --embeddings")
    if options.embeddings is not None:
        return read_embeddings(options.embeddings, options.labels)
    if options.photographs:
        return _read_photographs(Path(options.data))
    database = load_database(options.data, options.root)
    name = Path(options.data).name or database.name
    return Labelled(name, database.images, database.labels.tolist())


def read_embeddings(path: Path, labels: Path | None = None) -> Labelled:
    """Read vectors from a file.

    Parameters
    ----------
    path : Path
        ``.npz`` with an array "embeddings" and perhaps "labels"; ``.npy``; or
        ``.parquet``, whose columns are the numbers of the vectors, and "subject".
    labels : Path, optional
        Text file with the subject of each vector, one a line.

    Returns
    -------
    Labelled
        The vectors; without labels where the files have none.

    Raises
    ------
    DatabaseError
        A file cannot be read or does not have what is needed.
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
    except DatabaseError:
        raise
    except MissingDependencyError:
        raise
    # NumPy's reader raises almost anything on files that are none of its own.
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
    """Names and samples of the probes of verify, identify and enroll."""
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


def add_probe_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where samples without labels come from."""
    parser.add_argument("images", nargs="*", type=Path, help="image files")
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help="vectors instead of images"
    )
    parser.add_argument(
        "--photographs",
        action="store_true",
        help="find the face and compute its embedding (needs dualqml[faces])",
    )


def print_answers(names: list[str], answers: Sequence[Any]) -> None:
    """Print the answers of a recogniser as JSON, each with the name of its sample."""
    records = [
        {"image": name} | answer.as_dict()
        for name, answer in zip(names, answers, strict=True)
    ]
    say(json.dumps(records, indent=2))
