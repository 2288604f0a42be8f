# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml enroll``: a subject into a model."""

import argparse
import json
from pathlib import Path

from dualqml._files import exclusive
from dualqml.cli._output import say
from dualqml.cli._samples import add_probe_arguments, read_probes
from dualqml.recognition import Recognizer

DESCRIPTION = """Enrol a subject, or add images to one.
The model file is replaced whole; if anything goes wrong the old one stays."""

EXAMPLES = """example:
  dualqml enroll people.dualqml "Ann Lee" ann1.png ann2.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    parser.add_argument("subject", help="who is on the images")
    add_probe_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Enrol, fit, save."""
    # Somebody else's change in between would be lost, or undo this one.
    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        names, samples = read_probes(options)
        recognizer.enroll(options.subject, samples)
        recognizer.save(options.model)
    known = len(recognizer.subjects())
    if options.json:
        about = {"subject": options.subject, "added": len(names), "subjects": known}
        say(json.dumps(about | {"model_id": recognizer.model_id}, indent=2))
    else:
        say(f"{options.subject}: {len(names)} samples; {known} subjects are enrolled")
    return 0
