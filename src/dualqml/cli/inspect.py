# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml inspect``: what is in a model file."""

import argparse
import json
from pathlib import Path

from dualqml.cli._output import say
from dualqml.cli.calibrate import in_words
from dualqml.recognition import Recognizer

DESCRIPTION = """Show what a model file holds: method, parameters, subjects, threshold.
The file is checked whole; nothing in it can be executed."""

EXAMPLES = """example:
  dualqml inspect people.dualqml --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts."""
    recognizer = Recognizer.load(options.model)
    about = {
        "model_id": recognizer.model_id,
        "method": recognizer.method,
        "parameters": recognizer.parameters,
        "inputs": recognizer.inputs,
        "size": list(recognizer.size),
        "subjects": len(recognizer.subjects()),
        "samples": recognizer.n_samples,
        "bytes": options.model.stat().st_size,
    }
    calibration = recognizer.calibration
    if options.json:
        origin = None if calibration is None else calibration.as_dict()
        say(json.dumps(about | {"calibration": origin}, indent=2))
        return 0
    for name, value in about.items():
        say(f"{name}: {value}")
    say("calibration: " + (in_words(calibration) if calibration else "none"))
    return 0
