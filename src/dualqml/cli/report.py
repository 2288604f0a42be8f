# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml report``: tables and report from results that are there."""

import argparse
import json
from pathlib import Path

from dualqml.cli._output import say
from dualqml.experiments.output import Written, write_output

DESCRIPTION = """Write the tables and the report of results that are there.
Also of an experiment that was stopped, or is still running."""

EXAMPLES = """example:
  dualqml report dualqml-results --with-paper"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, help="--out of dualqml reproduce")
    parser.add_argument(
        "--with-paper",
        action="store_true",
        help="show the paper's own figures beside ours",
    )
    parser.add_argument("--json", action="store_true", help="print results as JSON")


def run(options: argparse.Namespace) -> int:
    """Write everything anew."""
    written = write_output(options.folder, with_paper=options.with_paper)
    show(written, as_json=options.json)
    return 0


def show(written: Written, *, as_json: bool) -> None:
    """Print the tables and where the report is."""
    if as_json:
        say(json.dumps(written.summary, indent=2))
        return
    say(written.text)
    say(f"Report: {written.report}")
    say(f"Tables: {written.tables} (Markdown, LaTeX, CSV)")
