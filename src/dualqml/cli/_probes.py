# SPDX-License-Identifier: BSD-3-Clause
"""Reading the samples without labels that a command is given, one after the other.

A sample that cannot be used has a problem, and the others go on.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dualqml.cli._output import Progress
from dualqml.exceptions import (
    DatabaseError,
    NoFaceError,
    PoorFaceError,
    RecognitionError,
)

if TYPE_CHECKING:
    from dualqml.images.faces import Face, PhotographFaces
    from dualqml.recognition import Recognizer
    from dualqml.recognition.decision_model import DecisionModel
    from dualqml.recognition.front_end import FrontEnd


@dataclass(frozen=True)
class ProbeFace:
    """A face, or whatever else one sample shows.

    Attributes
    ----------
    sample : ndarray of shape (n_features,) or (height, width)
        What the recogniser takes: a vector, or a grey crop.
    face : Face or None
        Where it is, in a photograph.
    """

    sample: Any
    face: "Face | None" = None


@dataclass(frozen=True)
class Probe:
    """One photograph, crop or vector.

    Attributes
    ----------
    name : str
        Its path or number.
    faces : list of ProbeFace
        The faces to answer for.
    problems : list of DatabaseError
        Why it cannot be used.
    remarks : tuple of str
        What the user should know if it is used.
    """

    name: str
    faces: list[ProbeFace] = field(default_factory=list)
    problems: list[DatabaseError] = field(default_factory=list)
    remarks: tuple[str, ...] = ()

    @property
    def has_no_face(self) -> bool:
        """Whether the only problem is that there is no face, or none good enough."""
        kinds = (NoFaceError, PoorFaceError)
        return bool(self.problems) and all(isinstance(p, kinds) for p in self.problems)


def read_probes(
    options: argparse.Namespace,
    model: "Recognizer | DecisionModel",
    *,
    drawings: Path | None = None,
) -> Iterator[Probe]:
    """Read the samples that the arguments of `add_probe_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.
    model : Recognizer or DecisionModel
        The model that says how samples are read.
    drawings : Path, optional
        The folder to which drawings are written.

    Yields
    ------
    Probe
        One for each sample.

    Raises
    ------
    DatabaseError
        No sample is named, or the samples cannot be those of the model, or drawings
        would be written over photographs.
    """
    from dualqml.cli._samples import misfit

    front_end = model.front_end
    kind = front_end.kind
    if kind is None:
        raise DatabaseError("Nobody is enrolled in this model; train a new one")
    if options.embeddings is not None and options.images:
        raise DatabaseError("Give either images or --embeddings, not both")
    if options.embeddings is None and not options.images:
        raise DatabaseError(
            "Give vectors with --embeddings"
            if kind == "vectors"
            else "Give image files, folders, or - to read their names from standard "
            "input"
        )
    if (options.embeddings is not None) != (kind == "vectors"):
        raise DatabaseError(misfit(kind))
    if kind == "vectors":
        return _vector_probes(options.embeddings)
    paths = _paths(options.images)
    if drawings is not None:
        _check_drawings(drawings, paths, kind)
    if kind == "crops":
        return _crop_probes(paths, cast("Recognizer", model))
    return _photograph_probes(paths, options, front_end)


def _check_drawings(folder: Path, paths: Sequence[Path], kind: str) -> None:
    if kind != "photographs":
        raise DatabaseError(
            f"--draw shows faces in photographs, and this model is of {kind}"
        )
    if folder.resolve() in {path.resolve().parent for path in paths}:
        raise DatabaseError(
            f"{folder} holds photographs that are read; drawings need another folder"
        )


def _vector_probes(path: Path) -> Iterator[Probe]:
    from dualqml.data.vectors import read_vectors

    vectors, _, _ = read_vectors(path)
    for number, vector in enumerate(vectors):
        probe = Probe(f"row {number}")
        if vector.any():
            probe.faces.append(ProbeFace(vector))
        else:
            probe.problems.append(DatabaseError(f"row {number}: all values are zero"))
        yield probe


def _crop_probes(paths: Sequence[Path], model: "Recognizer") -> Iterator[Probe]:
    from dualqml.recognition.inputs import InputReader

    reader = InputReader(size=model.size)
    for path in paths:
        probe = Probe(str(path))
        try:
            pixels = reader.read(path).reshape(model.size)
        except DatabaseError as error:
            probe.problems.append(error)
        except RecognitionError as error:  # It does not say which.
            probe.problems.append(DatabaseError(f"{path}: {error}"))
        else:
            probe.faces.append(ProbeFace(pixels))
        yield probe


def _photograph_probes(
    paths: Sequence[Path], options: argparse.Namespace, front_end: "FrontEnd"
) -> Iterator[Probe]:
    from dualqml.cli._samples import photograph_jobs, smallest_quality
    from dualqml.images.faces import read_faces

    quality = smallest_quality(options)
    network = front_end.checked_network(options.network)
    with Progress("Reading photographs", len(paths)) as progress:
        for seen in read_faces(
            paths,
            network=network,
            tiles=options.tiles,
            all_faces=options.several == "all",
            n_jobs=photograph_jobs(options),
            progress=progress,
        ):
            yield _probe(seen, options.several, quality)


def _probe(seen: "PhotographFaces", several: str, min_quality: float) -> Probe:
    """The faces of a photograph that a command answers for."""
    from dualqml.images.faces import check_quality

    try:
        # Raises too if the photograph cannot be read or has no face.
        main = seen.main_face("error" if several == "error" else "largest")
        chosen = list(seen.faces) if several == "all" else [main]
        good = [one for one in chosen if one.face.quality >= min_quality]
        if not good:
            check_quality(main.face, min_quality, seen.name)
    except DatabaseError as error:
        return Probe(seen.name, problems=[error])
    remarks = seen.remarks
    if len(good) < len(chosen):
        remarks += (
            f"{len(chosen) - len(good)} of {len(chosen)} faces have a lower quality "
            f"than {min_quality:g} and get no answer",
        )
    faces = [ProbeFace(one.vector, one.face) for one in good]
    return Probe(seen.name, faces, remarks=remarks)


def _paths(words: Sequence[str]) -> list[Path]:
    """Files, the images of folders, and the names on standard input."""
    from dualqml.data.image_files import find_images

    found: list[Path] = []
    for word in words:
        if word == "-":
            found += _paths(_words_of_standard_input())
        elif Path(word).is_dir():
            images = find_images(word)
            if not images:
                raise DatabaseError(f"There are no images in the folder {word}")
            found += images
        else:
            found.append(Path(word))
    if not found:
        raise DatabaseError("No image was named on standard input")
    return found


def _words_of_standard_input() -> list[str]:
    """The names on standard input; those of files may be of any bytes."""
    lines = os.fsdecode(sys.stdin.buffer.read()).split("\n")
    words = [line.rstrip("\r") for line in lines]
    return [word for word in words if word.strip() not in ("", "-")]
