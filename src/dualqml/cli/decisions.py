# SPDX-License-Identifier: BSD-3-Clause
"""Commands that decide who is on images: verify and identify."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dualqml._text import printable
from dualqml.cli._arguments import (
    Command,
    add_json_argument,
    add_model_argument,
    add_probe_arguments,
)
from dualqml.cli._output import say, say_json

if TYPE_CHECKING:
    from dualqml.recognition import Identification, Verification


def verify(options: argparse.Namespace) -> int:
    """Print for each image whether it shows the subject."""
    from dualqml.cli._samples import read_probes
    from dualqml.recognition import Recognizer

    recognizer = Recognizer.load(options.model)
    names, samples = read_probes(options)
    answers = recognizer.verify_many(
        [options.subject] * len(names), samples, threshold=options.threshold
    )
    if options.json:
        _say_answers(names, answers)
    else:
        for name, answer in zip(names, answers, strict=True):
            say(
                f"{printable(name)}: {answer.decision} ({answer.subject}, score "
                f"{answer.score:.3f}, threshold {answer.threshold:.3f})"
            )
    return _exit_code(answers)


def identify(options: argparse.Namespace) -> int:
    """Print for each image who is on it."""
    from dualqml.cli._samples import read_probes
    from dualqml.recognition import Recognizer

    recognizer = Recognizer.load(options.model)
    names, samples = read_probes(options)
    answers = recognizer.identify_many(
        samples, top=options.top, threshold=options.threshold
    )
    if options.json:
        _say_answers(names, answers)
    else:
        for name, answer in zip(names, answers, strict=True):
            who = answer.subject if answer.subject is not None else "unknown"
            listed = ", ".join(f"{c.subject} {c.score:.3f}" for c in answer.candidates)
            say(
                f"{printable(name)}: {who} (threshold {answer.threshold:.3f}; {listed})"
            )
    return _exit_code(answers)


def _say_answers(
    names: Sequence[str], answers: "Sequence[Verification | Identification]"
) -> None:
    """Print the answers as JSON, each with the name of its sample."""
    say_json(
        [
            {"image": name} | answer.as_dict()
            for name, answer in zip(names, answers, strict=True)
        ]
    )


def _exit_code(answers: "Sequence[Verification | Identification]") -> int:
    return 0 if all(answer.decision == "match" for answer in answers) else 3


def _add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("subject", help="the subject that the images should show")
    add_probe_arguments(parser)
    _add_threshold_argument(parser)
    add_json_argument(parser)


def _add_identify_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_probe_arguments(parser)
    parser.add_argument(
        "--top", type=int, default=5, help="number of candidates to list (default: 5)"
    )
    _add_threshold_argument(parser)
    add_json_argument(parser)


def _add_threshold_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threshold", type=float, help="threshold to use instead of the model's"
    )


COMMANDS = {
    "verify": Command(
        details="Exit code: 0 all match, 3 at least one does not, 2 wrong input.",
        examples="""example:
  dualqml verify people.dualqml "Ann Lee" door.png""",
        add_arguments=_add_verify_arguments,
        run=verify,
    ),
    "identify": Command(
        details="Exit code: 0 all match, 3 at least one is unknown, 2 wrong input.",
        examples="""example:
  dualqml identify people.dualqml door.png --top 3 --json""",
        add_arguments=_add_identify_arguments,
        run=identify,
    ),
}
