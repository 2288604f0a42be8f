# SPDX-License-Identifier: BSD-3-Clause
"""Reading the labelled samples that a command is given, and telling what is wrong.

Samples are photographs (whose faces are found and described), crops, or vectors. A
command that makes a model finds out which; later commands ask the model.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dualqml._text import printable
from dualqml.cli._output import Progress, say
from dualqml.exceptions import DatabaseError

if TYPE_CHECKING:
    from dualqml.data import AnyDatabase
    from dualqml.extractors import Background
    from dualqml.images import FaceEmbedder
    from dualqml.recognition import Recognizer

#: Height and width of the images of a recogniser, unless others are asked for.
DEFAULT_SIZE = (32, 32)
#: Files that are databases. Any other file must be a saved background.
_DATABASE_FILES = (".csv", ".mat", ".npz")
#: The value of --background that turns off what comes with a network.
_NO_BACKGROUND = "none"


class Labelled(NamedTuple):
    """Samples and their subjects.

    Attributes
    ----------
    name : str
        Name of the data.
    kind : {"photographs", "crops", "vectors"}
        What they were read from.
    samples : ndarray of shape (n, height, width) or (n, p)
        Images or vectors.
    labels : list of str
        Subject of each sample.
    files : list of str or None
        The file of each sample, if each has one.
    skipped : tuple of str
        What could not be used, and why.
    remarks : tuple of str
        What the user should know about samples that are used.
    embedder : FaceEmbedder or None
        What made vectors from photographs.
    citation : str
        How to cite the data, if that is known.
    """

    name: str
    kind: str
    samples: Any
    labels: list[str]
    files: list[str] | None = None
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    embedder: "FaceEmbedder | None" = None
    citation: str = ""


def read_labelled(
    options: argparse.Namespace, recognizer: "Recognizer | None" = None
) -> Labelled:
    """Read the samples that the arguments of `add_data_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.
    recognizer : Recognizer, optional
        The model that says what the samples are. Without it, --input does.

    Returns
    -------
    Labelled
        Samples with labels. Samples that cannot be used are not among them.

    Raises
    ------
    DatabaseError
        No sample can be used, or they have no labels.
    """
    if (options.data is None) == (options.embeddings is None):
        raise DatabaseError("Give either a folder or database, or --embeddings")
    if recognizer is None:
        kind = input_kind(options)
        embedder = new_embedder(options, kind)
    else:
        kind = model_input(recognizer)
        embedder = known_embedder(recognizer, options)
        _check_fits(options, kind)
    if kind == "vectors":
        return _read_vectors(options)
    found = read_database(options.data, options.root, embedder)
    return _labelled(Path(options.data).name or found.name, kind, found, embedder)


def input_kind(options: argparse.Namespace) -> str:
    """What the samples of --embeddings or DATA are; say so where that was a guess.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    str
        "photographs", "crops" or "vectors".
    """
    if options.embeddings is not None:
        if options.input not in ("auto", "vectors"):
            raise DatabaseError(
                f"--embeddings has vectors, and --input says {options.input}"
            )
        return "vectors"
    return database_kind(options.data, options)


def database_kind(place: str, options: argparse.Namespace) -> str:
    """What the samples of a database are.

    Parameters
    ----------
    place : str
        A known name, a folder or a file.
    options : argparse.Namespace
        The parsed arguments, with those of `add_input_argument`.

    Returns
    -------
    str
        "photographs", "crops" or "vectors". Where that was a guess, a line says so.

    Raises
    ------
    DatabaseError
        The database cannot be what the user says, or is not there.
    """
    from dualqml.data import DATABASES, holds_vectors, load_database
    from dualqml.data.image_files import find_people
    from dualqml.data.photographs import guess_images

    root, wanted = options.root, str(options.input)
    path = Path(place) if root is None else root / place
    found = "folder"
    if place in DATABASES:
        found = "crops"
    elif path.is_file():
        found = "vectors" if holds_vectors(path) else "crops"
    elif not path.exists():
        load_database(place, root)  # Raises, and says what could be given.
    if found == "folder" and wanted in ("auto", "photographs", "crops"):
        if wanted != "auto":
            return wanted
        guess = guess_images(find_people(path).paths)
        other = "crops" if guess.kind == "photographs" else "photographs"
        network = "SFace" if options.network is None else options.network.name
        reads = f", whose faces are read with YuNet and {network}"
        say(
            f"dualqml: the images in {place} are taken for {guess.kind}"
            f"{reads if guess.kind == 'photographs' else ''} ({guess.reason}). If "
            f"this is wrong, add --input {other}.",
            error=True,
        )
        return guess.kind
    if wanted not in ("auto", found):
        raise DatabaseError(
            f"{place} is {'a folder of images' if found == 'folder' else found}, and "
            f"--input says {wanted}. Photographs come from a folder with one folder "
            "for each person, vectors from an .npz, .npy or .parquet file."
        )
    return found


def read_database(
    place: str, root: Path | None, embedder: "FaceEmbedder | None"
) -> "AnyDatabase":
    """Read a database of images, and leave out what cannot be used.

    Parameters
    ----------
    place : str
        A known name, a folder or a file.
    root : Path or None
        Folder that holds the databases.
    embedder : FaceEmbedder or None
        Reads photographs; None for crops.

    Returns
    -------
    Database or VectorDatabase
        The samples, and what was left out.
    """
    from dualqml.data import load_database
    from dualqml.data.photographs import load_photographs

    if embedder is None:
        return load_database(place, root, on_error="skip")
    path = Path(place) if root is None else root / place
    with Progress("Reading photographs") as progress:
        return load_photographs(
            path, embedder=embedder, on_error="skip", progress=progress
        )


def model_input(recognizer: "Recognizer") -> str:
    """What the samples of a model are: "photographs", "crops" or "vectors".

    Parameters
    ----------
    recognizer : Recognizer
        The model.

    Returns
    -------
    str
        The kind, as --input names it.
    """
    if recognizer.front_end.kind is None:
        raise DatabaseError("Nobody is enrolled in this model; train a new one")
    return recognizer.front_end.kind


def new_embedder(options: argparse.Namespace, kind: str) -> "FaceEmbedder | None":
    """The reader of photographs that the arguments describe.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.
    kind : {"photographs", "crops", "vectors"}
        What the samples are.

    Returns
    -------
    FaceEmbedder or None
        The reader; None if the samples are not photographs.

    Raises
    ------
    DatabaseError
        A network is given, and there are no photographs.
    """
    if kind != "photographs":
        _refuse_network(options, f"the samples are {kind}")
        return None
    from dualqml.images import FaceEmbedder

    found = FaceEmbedder(
        several=options.several,
        min_quality=smallest_quality(options),
        tiles=options.tiles,
        network=None if options.network is None else str(options.network.resolve()),
        input_size=options.network_size,
        channels=options.network_channels,
        mean=options.network_mean,
        scale=options.network_scale,
        n_jobs=photograph_jobs(options),
    )
    found.fit([])  # Raises if a parameter is not valid.
    return found


def known_embedder(
    recognizer: "Recognizer", options: argparse.Namespace
) -> "FaceEmbedder | None":
    """The reader of photographs of a model, with the options of a command.

    Parameters
    ----------
    recognizer : Recognizer
        The model.
    options : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    FaceEmbedder or None
        The reader; None if the model is not of photographs.

    Raises
    ------
    NetworkError
        The network is not that of the model.
    """
    found = recognizer.front_end.embedder(network=options.network)
    if found is not None:
        found.set_params(
            several=options.several,
            min_quality=smallest_quality(options),
            tiles=options.tiles,
            n_jobs=photograph_jobs(options),
        )
    else:
        _refuse_network(options, f"this model is of {recognizer.front_end.kind}")
    return found


def _refuse_network(options: argparse.Namespace, reason: str) -> None:
    if options.network is not None:
        raise DatabaseError(f"--network belongs to photographs, and {reason}")


def photograph_words(options: argparse.Namespace) -> list[str]:
    """The options of `add_photograph_arguments` that are not the default ones.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    list of str
        Words of a command that reads photographs alike, without private paths.
    """
    words = [] if options.several == "error" else ["--several", options.several]
    if options.min_quality:
        words += ["--min-quality", f"{options.min_quality:g}"]
    words += ["--tiles"] * options.tiles
    if options.network is not None:
        words += ["--network", options.network.name]
        words += ["--network-size", str(options.network_size)]
        words += ["--network-channels", options.network_channels]
        words += ["--network-mean", f"{options.network_mean:g}"]
        words += ["--network-scale", f"{options.network_scale:g}"]
    return words


def smallest_quality(options: argparse.Namespace) -> float:
    """The value of --min-quality; raise if it is not valid."""
    quality = float(options.min_quality)
    if not 0.0 <= quality <= 1.0:
        raise ValueError(f"--min-quality must be from 0 to 1, got {quality:g}")
    return quality


def photograph_jobs(options: argparse.Namespace) -> int:
    """The value of --jobs, by default all cores; raise if it is not valid."""
    if options.jobs is not None and options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    return int(options.jobs or os.cpu_count() or 1)


def _check_fits(options: argparse.Namespace, kind: str) -> None:
    """Raise if the samples cannot be those of a model of a kind."""
    if (options.embeddings is not None) != (kind == "vectors"):
        raise DatabaseError(misfit(kind))


def misfit(kind: str) -> str:
    """Why samples do not fit a model of a kind, and what to do.

    Parameters
    ----------
    kind : str
        The kind of the model.

    Returns
    -------
    str
        One or two sentences.
    """
    if kind == "vectors":
        return (
            "This model was trained on vectors, so it cannot compare images: give "
            "vectors of the same network with --embeddings, or train a new model "
            "from the images"
        )
    return (
        f"This model was trained on {kind}, so it cannot compare vectors from a file: "
        "give image files, or train a new model with --embeddings"
    )


def _read_vectors(options: argparse.Namespace) -> Labelled:
    from dualqml.data.vectors import read_vectors

    path = options.embeddings or Path(options.data)
    if options.embeddings is None and options.root is not None:
        path = options.root / path
    vectors, names, _ = read_vectors(path, options.labels)
    if names is None:
        raise DatabaseError(f"{path} does not say who is who; give --labels")
    return Labelled(path.stem, "vectors", vectors, names.tolist())


def _labelled(
    name: str, kind: str, found: "AnyDatabase", embedder: "FaceEmbedder | None"
) -> Labelled:
    from dualqml.recognition.gallery import LONGEST_NAME

    files = None
    if found.files is not None:
        # A file can have a name that no sample can have.
        files = [printable(file, LONGEST_NAME) for file in found.files.tolist()]
    return Labelled(
        name,
        kind,
        found.samples,
        found.labels.tolist(),
        files,
        found.skipped,
        getattr(found, "remarks", ()),
        embedder,
        found.citation,
    )


def stops_at_bad(data: Labelled, options: argparse.Namespace) -> bool:
    """Tell what could not be used, and whether the command ends here.

    Parameters
    ----------
    data : Labelled
        What was read.
    options : argparse.Namespace
        The parsed arguments, with those of `add_bad_argument`.

    Returns
    -------
    bool
        Whether something could not be used, and the user wants to stop then.
    """
    n_all = len(data.labels) + len(data.skipped)
    return tell_bad(data.skipped, data.remarks, n_all, options.on_bad)


def tell_bad(
    skipped: Sequence[str], remarks: Sequence[str], n_all: int, on_bad: str
) -> bool:
    """Tell what could not be used, as --on-bad says.

    Parameters
    ----------
    skipped : sequence of str
        What could not be used, and why.
    remarks : sequence of str
        What the user should know about what is used.
    n_all : int
        Number of images in all.
    on_bad : {"report", "stop", "skip"}
        What the user wants.

    Returns
    -------
    bool
        Whether the command ends here.
    """
    if on_bad != "skip":
        for text in remarks:
            say(f"dualqml: note: {printable(text)}", error=True)
        for text in skipped:
            say(f"dualqml: left out: {printable(text)}", error=True)
    if not skipped:
        return False
    stops = on_bad == "stop"
    n_used = n_all - len(skipped)
    used = f"{n_used} {'is' if n_used == 1 else 'are'} used."
    rest = "Nothing was done (--on-bad stop)." if stops else used
    say(f"dualqml: {len(skipped)} of {n_all} cannot be used. {rest}", error=True)
    return stops


def exit_code(data: Labelled, options: argparse.Namespace) -> int:
    """The exit code of a command that has used what could be used.

    Parameters
    ----------
    data : Labelled
        What was read.
    options : argparse.Namespace
        The parsed arguments, with those of `add_bad_argument`.

    Returns
    -------
    int
        0, or 1 if something was left out.
    """
    from dualqml.cli.exit_codes import FAILED, OK

    return FAILED if data.skipped and options.on_bad != "skip" else OK


def read_background(
    options: argparse.Namespace,
    *,
    kind: str,
    embedder: "FaceEmbedder | None" = None,
    size: tuple[int, int] = DEFAULT_SIZE,
) -> "Background | None":
    """Read the people that the argument of `add_background_argument` names.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments, also those of `add_data_arguments`.
    kind : {"photographs", "crops", "vectors"}
        What the samples of the recogniser are read from.
    embedder : FaceEmbedder or None
        What makes vectors of its photographs.
    size : tuple of int, default=(32, 32)
        Height and width to which images are resized: those of the recogniser.

    Returns
    -------
    Background or None
        Their statistics. If the argument was not given, those that come with the
        network of the photographs; None if there are none.

    Raises
    ------
    DatabaseError
        The samples cannot be used, or the file holds something else, or some samples
        cannot be used and the user wants to stop then.
    """
    from dualqml.data import DATABASES, holds_vectors
    from dualqml.data.vectors import read_vectors
    from dualqml.recognition.front_end import network_background

    if options.background == _NO_BACKGROUND:
        return None
    if options.background is None:
        if embedder is None or getattr(options, "method", "DualQML-W") != "DualQML-W":
            return None
        return network_background(embedder)
    path = Path(options.background)
    if options.background not in DATABASES and path.is_file():
        if holds_vectors(path):
            vectors, names, _ = read_vectors(path)
            if names is None:
                raise DatabaseError(
                    f"{path} does not say who is who; give an .npz file with "
                    "embeddings and labels as --background"
                )
            data = Labelled(path.stem, "vectors", vectors, names.tolist())
            return background_of(data, size)
        if path.suffix.lower() not in _DATABASE_FILES:
            return _saved_background(path)
    if kind == "vectors":
        raise DatabaseError(
            f"The samples are vectors, so {path} cannot be a folder of images: give "
            "vectors with labels, or a file of dualqml background, as --background"
        )
    found = read_database(options.background, options.root, embedder)
    data = _labelled(path.name, kind, found, embedder)
    if stops_at_bad(data, options):
        raise DatabaseError(f"{path}: some images cannot be used; see above")
    return background_of(data, size)


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


def check_parent(path: Path) -> None:
    """Raise if the folder of a new file does not exist.

    Parameters
    ----------
    path : Path
        The file or folder to write.

    Raises
    ------
    DatabaseError
        There is no such folder.
    """
    if not path.absolute().parent.is_dir():
        raise DatabaseError(
            f"There is no folder {path.parent}; make it first, or choose another"
        )
