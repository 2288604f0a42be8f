# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml subjects``: who is enrolled."""

import argparse
import json
from pathlib import Path

from dualqml.cli._output import say
from dualqml.recognition import Recognizer

DESCRIPTION = """List the subjects of a model."""

EXAMPLES = """example:
  dualqml subjects people.dualqml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the names, one a line."""
    recognizer = Recognizer.load(options.model)
    counts = {name: len(recognizer.samples(name)) for name in recognizer.subjects()}
    if options.json:
        say(json.dumps(counts, indent=2, ensure_ascii=False))
    else:
        for name in counts:
            say(name)
    return 0
