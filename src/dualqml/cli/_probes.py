# SPDX-License-Identifier: BSD-3-Clause
"""Reading the samples without labels that a command is given, one after the other.

A sample that cannot be used has a problem, and the others go on.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dualqml.cli._output import Progress
from dualqml.exceptions import DatabaseError, NoFaceError, PoorFaceError

if TYPE_CHECKING:
    from dualqml.images.faces import Face, PhotographFaces
    from dualqml.recognition.front_end import FrontEnd


class HasFrontEnd(Protocol):
    """A model that says how its samples are read."""

    @property
    def front_end(self) -> "FrontEnd":
        """How samples are read."""


@dataclass(frozen=True)
class ProbeFace:
    """A face, or whatever else one sample shows.

    Attributes
    ----------
    sample : object
        What the recogniser takes: a vector, or the path of a crop.
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
        What is wrong with it, or with some of its faces.
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


def read_probes(options: argparse.Namespace, model: HasFrontEnd) -> Iterator[Probe]:
    """Read the samples that the arguments of `add_probe_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.
    model : Recognizer or DecisionModel
        The model that says how samples are read.

    Yields
    ------
    Probe
        One for each sample.

    Raises
    ------
    DatabaseError
        No sample is named, or the samples cannot be those of the model.
    """
    from dualqml.cli._samples import misfit

    kind = model.front_end.kind
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
    if kind == "crops":
        return iter([Probe(str(path), [ProbeFace(path)]) for path in paths])
    return _photograph_probes(paths, options, model.front_end)


def _vector_probes(path: Path) -> Iterator[Probe]:
    from dualqml.data.vectors import read_vectors

    vectors, _, _ = read_vectors(path)
    for number, vector in enumerate(vectors):
        yield Probe(f"row {number}", [ProbeFace(vector)])


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

    chosen, problems = [], []
    try:
        # Raises too if the photograph cannot be read or has no face.
        main = seen.main_face("error" if several == "error" else "largest")
        chosen = list(seen.faces) if several == "all" else [main]
    except DatabaseError as error:
        problems.append(error)
    faces = []
    for one in chosen:
        try:
            check_quality(one.face, min_quality, seen.name)
        except DatabaseError as error:
            problems.append(error)
        else:
            faces.append(ProbeFace(one.vector, one.face))
    return Probe(seen.name, faces, problems, seen.remarks)


def _paths(words: Sequence[str]) -> list[Path]:
    """Files, the images of folders, and the names on standard input."""
    from dualqml.data.image_files import find_images

    found: list[Path] = []
    for word in words:
        if word == "-":
            lines = sys.stdin.read().splitlines()
            found += _paths([line for line in lines if line.strip() and line != "-"])
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
