# SPDX-License-Identifier: BSD-3-Clause
"""Commands that decide who is on images: verify and identify."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dualqml._text import printable
from dualqml.cli._arguments import (
    Command,
    add_force_argument,
    add_json_argument,
    add_model_argument,
    add_probe_arguments,
)
from dualqml.cli._output import say, say_json
from dualqml.cli._probes import Probe, ProbeFace, read_probes
from dualqml.cli.exit_codes import FAILED, NO_FACE, OK, UNKNOWN
from dualqml.exceptions import DatabaseError, UnknownSubjectError

if TYPE_CHECKING:
    from dualqml.recognition import Identification, Recognizer, Verification
    from dualqml.recognition.decision_model import DecisionModel
    from dualqml.recognition.explanation import Explanation

#: Columns of --csv.
_COLUMNS = (
    "image",
    "face",
    "top",
    "left",
    "bottom",
    "right",
    "quality",
    "decision",
    "subject",
    "score",
    "threshold",
    "probability",
    "problem",
)


class Answer(NamedTuple):
    """What a command says about one face.

    Attributes
    ----------
    image : str
        The sample.
    number, of : int
        The number of the face in its photograph, from 1, and of how many.
    face : ProbeFace
        The face.
    decision : Identification or Verification
        The answer.
    why : Explanation or None
        The reasons, if they were asked for.
    """

    image: str
    number: int
    of: int
    face: ProbeFace
    decision: "Identification | Verification"
    why: "Explanation | None" = None

    @property
    def person(self) -> str:
        """Who it is, or "unknown", or "no match"."""
        match = self.decision.decision == "match"
        return str(self.decision.subject) if match else self.decision.decision

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        found: dict[str, Any] = {"image": self.image}
        if self.face.face is not None:
            found |= {
                "face": self.number,
                "box": list(self.face.face.box),
                "quality": round(self.face.face.quality, 4),
            }
        found |= self.decision.as_dict()
        if self.why is not None:
            why = self.why.as_dict()
            del why["identification"]  # It is what stands beside it.
            found["why"] = why
        return found


def verify(options: argparse.Namespace) -> int:
    """Print for each image whether it shows the subject."""
    model = _load(options.model, explain=False)
    _check_enrolled(options.subject, model)

    def decide(samples: list[Any]) -> list[Any]:
        return model.verify_many(
            [options.subject] * len(samples), samples, threshold=options.threshold
        )

    return _answer(options, model, decide, _verify_line)


def _check_enrolled(subject: str, model: "Recognizer | DecisionModel") -> None:
    """Raise before any image is read if a subject is not known."""
    from dualqml.cli._parser import suggestion

    listed = model.subjects
    known = listed() if callable(listed) else listed
    if known and subject not in known:
        raise UnknownSubjectError(
            f"{subject!r} is not enrolled{suggestion(subject, known)}"
        )


def identify(options: argparse.Namespace) -> int:
    """Print for each face who it is."""
    model = _load(options.model, explain=options.explain)

    def decide(samples: list[Any]) -> list[Any]:
        return model.identify_many(
            samples, top=options.top, threshold=options.threshold
        )

    return _answer(options, model, decide, _identify_line)


def _load(path: Path, *, explain: bool) -> "Recognizer | DecisionModel":
    """The model, without what only training needs if that is possible."""
    from dualqml.recognition.decision_model import load_decision_model

    found = None if explain else load_decision_model(path)
    if found is not None:
        return found
    from dualqml.recognition import Recognizer

    return Recognizer.load(path)


def _answer(options: argparse.Namespace, model: Any, decide: Any, line: Any) -> int:
    """Decide for every face, print the answers and what is wrong, draw."""
    from dualqml.cli._samples import tell_bad

    draws = getattr(options, "draw", None)
    drawing = None if draws is None else _Drawing(draws, options.force)
    probes: Iterable[Probe] = read_probes(options, model, drawings=draws)
    if options.on_bad == "stop":
        probes = list(probes)
        bad = [probe for probe in probes if probe.problems]
        if tell_bad(_reasons(bad), (), len(probes), "stop"):
            return _exit_code(bad, [], "stop")
    said: list[dict[str, Any]] = []
    answers: list[Answer] = []
    bad = []
    writer = _CsvLines() if getattr(options, "csv", False) else None
    n_probes = 0
    for probe in _decided(probes, model, decide, options):
        n_probes += 1
        own = probe.answers
        answers += own
        if drawing is not None and own:
            drawing.add(probe.probe.name, own)
        if probe.probe.problems:
            bad.append(probe.probe)
        for answer in own:
            if options.json:
                said.append(answer.as_dict())
            elif writer is not None:
                writer.add(answer)
            else:
                say(line(answer))
        for reason in _reasons([probe.probe]):
            if options.json:
                said.append({"image": probe.probe.name, "problem": reason})
            elif writer is not None:
                writer.add_problem(probe.probe.name, reason)
            elif options.on_bad != "skip":
                say(f"dualqml: left out: {printable(reason)}", error=True)
        if options.on_bad != "skip":
            for remark in probe.probe.remarks:
                name = printable(probe.probe.name)
                say(f"dualqml: note: {name}: {remark}", error=True)
    if options.json:
        say_json(said)
    if n_probes > 1 and not options.json:
        what = "images" if options.embeddings is None else "vectors"
        _say_summary(answers, len(bad), n_probes, what)
    return _exit_code(bad, answers, options.on_bad)


class _Decided(NamedTuple):
    probe: Probe
    answers: list[Answer]


def _decided(
    probes: Iterable[Probe], model: Any, decide: Any, options: argparse.Namespace
) -> Iterator[_Decided]:
    """The answers for all faces of each sample."""
    for probe in probes:
        answers: list[Answer] = []
        for number, face in enumerate(probe.faces, start=1):
            samples = face.sample[None]
            (decision,) = decide(samples)
            why = None
            if getattr(options, "explain", False):
                (why,) = model.explain_many(
                    samples, top=options.top, threshold=options.threshold
                )
            answers.append(
                Answer(probe.name, number, len(probe.faces), face, decision, why)
            )
        yield _Decided(probe, answers)


def _reasons(probes: Sequence[Probe]) -> list[str]:
    return [str(problem) for probe in probes for problem in probe.problems]


def _exit_code(bad: Sequence[Probe], answers: Sequence[Answer], on_bad: str) -> int:
    if bad and (on_bad != "skip" or not answers):
        return NO_FACE if all(probe.has_no_face for probe in bad) else FAILED
    match = all(answer.decision.decision == "match" for answer in answers)
    return OK if match else UNKNOWN


def _say_summary(answers: Sequence[Answer], n_bad: int, n_all: int, what: str) -> None:
    counts = Counter(answer.decision.decision for answer in answers)
    found = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    text = f"dualqml: {n_all} {what}, {len(answers)} answers" + ": " * bool(found)
    left_out = f"; {n_bad} left out" if n_bad else ""
    say(text + found + left_out, error=True)


def _where(answer: Answer) -> str:
    """The image, and where the face is in it."""
    face = answer.face.face
    if face is None:
        return printable(answer.image)
    text = f"{printable(answer.image)}, face at {face.box}"
    if face.weakness:
        text += f", quality {face.quality:.2f} ({face.weakness})"
    return text


def _verify_line(answer: Answer) -> str:
    found: Any = answer.decision
    return (
        f"{_where(answer)}: {found.decision} ({found.subject}, score "
        f"{found.score:.3f}, threshold {found.threshold:.3f})"
    )


def _identify_line(answer: Answer) -> str:
    found: Any = answer.decision
    listed = ", ".join(f"{c.subject} {c.score:.3f}" for c in found.candidates)
    text = (
        f"{_where(answer)}: {answer.person} (threshold {found.threshold:.3f}; {listed})"
    )
    return text if answer.why is None else text + "\n" + _why_lines(answer.why)


def _why_lines(why: "Explanation") -> str:
    """An explanation as indented lines."""
    best = why.identification.candidates[0].subject
    parts = ", ".join(f"{part.name} {part.value:+.3f}" for part in why.parts)
    side = "above" if why.margin >= 0.0 else "below"
    lines = [
        f"nearest enrolled photo of {best}: {why.nearest.in_words()}",
        f"score of {best}: {why.identification.score:.3f} = {parts}",
        f"{abs(why.margin):.3f} {side} the threshold"
        + (f": {why.margin_in_words()}" if why.times is not None else ""),
    ]
    if why.nearest_of_all is not None:
        other = why.nearest_of_all
        lines.append(f"a photo of {other.subject} is nearer: {other.in_words()}")
    if why.runner_up is not None and why.gap is not None:
        lines.append(f"runner-up: {why.runner_up.subject}, {why.gap:.3f} lower")
    return "\n".join(f"    {line}" for line in lines)


class _CsvLines:
    """Prints answers as CSV."""

    def __init__(self) -> None:
        self._say(dict(zip(_COLUMNS, _COLUMNS, strict=True)))

    def add(self, answer: Answer) -> None:
        """Print an answer."""
        found = answer.as_dict()
        box = found.pop("box", None)
        if box is not None:
            found |= dict(zip(("top", "left", "bottom", "right"), box, strict=True))
        if "candidates" in found:
            found["probability"] = found["candidates"][0]["probability"]
        if found["subject"] is None:
            found["subject"] = ""
        self._say(found)

    def add_problem(self, image: str, reason: str) -> None:
        """Print why there is no answer."""
        self._say({"image": image, "problem": reason})

    def _say(self, found: dict[str, Any]) -> None:
        import csv
        import io

        from dualqml._text import csv_field

        stream = io.StringIO()
        values = [found.get(name) for name in _COLUMNS]
        csv.writer(stream, lineterminator="").writerow(map(csv_field, values))
        say(stream.getvalue())


class _Drawing:
    """Writes copies of photographs with boxes and names."""

    def __init__(self, folder: Path, force: bool) -> None:
        from dualqml.cli._samples import check_parent

        check_parent(folder)
        if folder.exists() and not folder.is_dir():
            raise DatabaseError(f"{folder} is a file; --draw needs a folder")
        if folder.is_dir() and any(folder.iterdir()) and not force:
            raise DatabaseError(
                f"{folder} has files already; --force replaces those of the same name"
            )
        self._folder = folder
        self._names: set[str] = set()

    def add(self, image: str, answers: Sequence[Answer]) -> None:
        """Draw the faces of one photograph."""
        from dualqml.images.drawing import draw_faces, save_drawing
        from dualqml.images.files import read_photograph

        faces = [answer.face.face for answer in answers]
        drawn = draw_faces(
            read_photograph(Path(image), image).pixels,
            [face.box for face in faces if face is not None],
            [f"{answer.person} {answer.decision.score:.1f}" for answer in answers],
            [answer.decision.decision == "match" for answer in answers],
        )
        self._folder.mkdir(exist_ok=True)
        save_drawing(drawn, self._folder / self._name(Path(image)))

    def _name(self, path: Path) -> str:
        """A file name that no other photograph of this run has."""
        name, number = f"{path.stem}.jpg", 1
        # Some file systems do not tell upper from lower case.
        while name.casefold() in self._names:
            number += 1
            name = f"{path.stem}-{number}.jpg"
        self._names.add(name.casefold())
        return name


def _add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("subject", help="the subject that the images should show")
    add_probe_arguments(parser, several=("error", "largest", "all"))
    _add_threshold_argument(parser)
    add_json_argument(parser)


def _add_identify_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_probe_arguments(parser, several=("all", "largest", "error"))
    parser.add_argument(
        "--top", type=int, default=5, help="number of candidates to list (default: 5)"
    )
    _add_threshold_argument(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also show the nearest enrolled photo, the parts of the score, the "
        "distance to the threshold, and the runner-up",
    )
    parser.add_argument(
        "--draw",
        type=Path,
        metavar="DIR",
        help="write a copy of each photograph to this folder, with a box and a name at "
        "each face",
    )
    add_force_argument(parser, "drawings that exist")
    how = parser.add_mutually_exclusive_group()
    add_json_argument(how)
    how.add_argument(
        "--csv", action="store_true", help="print a table as CSV instead of text"
    )


def _add_threshold_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threshold", type=float, help="threshold to use instead of the model's"
    )


COMMANDS = {
    "verify": Command(
        details="""\
The model remembers whether it was made from photographs, crops or vectors, and
with which network. Photographs need no flag: faces are found first.""",
        examples="""examples:
  dualqml verify people.dualqml "Ann Lee" door.jpg
  dualqml verify people.dualqml "Ann Lee" photos/ --several largest --json""",
        add_arguments=_add_verify_arguments,
        run=verify,
    ),
    "identify": Command(
        details="""\
Every face of a photograph gets an answer, with its box (top, left, bottom,
right). An image that cannot be used is reported, and the others go on. If there
are several reasons, the exit code is the first of these: 1 an image cannot be
used, 4 there is no face, 3 somebody is unknown.""",
        examples="""examples:
  dualqml identify people.dualqml door.jpg --explain
  dualqml identify people.dualqml photos/ --csv --draw drawn
  ls *.jpg | dualqml identify people.dualqml - --json""",
        add_arguments=_add_identify_arguments,
        run=identify,
    ),
}
