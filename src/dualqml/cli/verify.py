# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml verify``: whether an image shows the person."""

import argparse
from pathlib import Path

from dualqml._text import printable
from dualqml.cli._output import say
from dualqml.cli._samples import add_probe_arguments, print_answers, read_probes
from dualqml.recognition import Recognizer

DESCRIPTION = """Decide whether images show a subject.
Exit code: 0 all match, 3 at least one does not, 2 wrong input."""

EXAMPLES = """example:
  dualqml verify people.dualqml "Ann Lee" door.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    parser.add_argument("subject", help="who is claimed to be on the images")
    add_probe_arguments(parser)
    parser.add_argument("--threshold", type=float, help="instead of the model's")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print a decision for each image."""
    recognizer = Recognizer.load(options.model)
    names, samples = read_probes(options)
    answers = recognizer.verify_many(
        [options.subject] * len(names), samples, threshold=options.threshold
    )
    if options.json:
        print_answers(names, answers)
    else:
        for name, answer in zip(names, answers, strict=True):
            say(
                f"{printable(name)}: {answer.decision} ({answer.subject}, score "
                f"{answer.score:.3f}, threshold {answer.threshold:.3f})"
            )
    return 0 if all(answer.decision == "match" for answer in answers) else 3
