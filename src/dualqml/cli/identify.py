# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml identify``: who is on an image, if anybody who is enrolled."""

import argparse
from pathlib import Path

from dualqml._text import printable
from dualqml.cli._output import say
from dualqml.cli._samples import add_probe_arguments, print_answers, read_probes
from dualqml.recognition import Recognizer

DESCRIPTION = """Decide who is on images, or that it is nobody who is enrolled.
Exit code: 0 all match, 3 at least one is unknown, 2 wrong input."""

EXAMPLES = """example:
  dualqml identify people.dualqml door.png --top 3 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    add_probe_arguments(parser)
    parser.add_argument("--top", type=int, default=5, help="candidates to list (5)")
    parser.add_argument("--threshold", type=float, help="instead of the model's")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print a decision for each image."""
    recognizer = Recognizer.load(options.model)
    names, samples = read_probes(options)
    answers = recognizer.identify_many(
        samples, top=options.top, threshold=options.threshold
    )
    if options.json:
        print_answers(names, answers)
    else:
        for name, answer in zip(names, answers, strict=True):
            who = answer.subject if answer.subject is not None else "unknown"
            listed = ", ".join(f"{c.subject} {c.score:.3f}" for c in answer.candidates)
            say(
                f"{printable(name)}: {who} (threshold {answer.threshold:.3f}; {listed})"
            )
    return 0 if all(answer.decision == "match" for answer in answers) else 3
