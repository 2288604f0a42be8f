# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml remove``: erase subjects from a model."""

import argparse
import json
from pathlib import Path

from dualqml._files import exclusive
from dualqml.cli._output import say
from dualqml.recognition import Recognizer

DESCRIPTION = """Erase subjects from a model.
The model is fitted to those who stay, as if the others had never been there, and
the file is replaced whole. Copies and backups of the old file are yours to erase."""

EXAMPLES = """example:
  dualqml remove people.dualqml "Ann Lee" """


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    parser.add_argument("subjects", nargs="+", metavar="subject", help="whom to erase")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Erase, fit, save."""
    # Somebody else's change in between would be lost, or undo this one.
    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        for subject in dict.fromkeys(options.subjects):
            recognizer.remove(subject)
        recognizer.save(options.model)
    left = len(recognizer.subjects())
    if options.json:
        about = {"removed": len(set(options.subjects)), "subjects": left}
        say(json.dumps(about | {"model_id": recognizer.model_id}, indent=2))
    else:
        say(f"{len(set(options.subjects))} erased; {left} subjects are enrolled")
    return 0
