# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml calibrate``: a threshold for a rate that you choose."""

import argparse
import json
from pathlib import Path

from dualqml._files import exclusive
from dualqml.cli._output import say
from dualqml.cli._samples import add_data_arguments, read_labelled
from dualqml.exceptions import DatabaseError
from dualqml.recognition import Calibration, Recognizer

DESCRIPTION = """Set the threshold of a model for a rate of false matches.
DATA has images of people who are not enrolled and, to learn the price, other
images of people who are. Without DATA the enrolled are left out in turn."""

EXAMPLES = """example:
  dualqml calibrate people.dualqml strangers/ --fpir 0.01"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="the model file")
    add_data_arguments(parser, optional=True)
    rate = parser.add_mutually_exclusive_group(required=True)
    rate.add_argument("--fpir", type=float, help="false positive identification rate")
    rate.add_argument("--fmr", type=float, help="false match rate")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Calibrate and save."""
    # Somebody else's change in between would be lost, or undo this one.
    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        rate = {"fpir": options.fpir} if options.fmr is None else {"fmr": options.fmr}
        if options.data is None and options.embeddings is None:
            found = recognizer.calibrate(**rate)
        else:
            data = read_labelled(options)
            if not data.labels:
                raise DatabaseError(
                    f"{data.name} does not say who is who; give --labels"
                )
            found = recognizer.calibrate(data.samples, data.labels, **rate)
        recognizer.save(options.model)
    say(json.dumps(found.as_dict(), indent=2) if options.json else in_words(found))
    return 0


def in_words(found: Calibration) -> str:
    """A calibration as sentences.

    Parameters
    ----------
    found : Calibration
        Which one.

    Returns
    -------
    str
        Threshold, rate, interval, price and data.
    """
    if found.kind == "given":
        return f"threshold {found.threshold:.4g}, {found.source}"
    name = {"fmr": "false match rate", "fpir": "false positive identification rate"}
    text = (
        f"threshold {found.threshold:.4g} for a {name[found.kind]} of "
        f"{found.target:g}: {found.achieved:.4g} on {found.n_comparisons} comparisons "
        f"(95 % interval {found.low:.2g} to {found.high:.2g}); {found.source}"
    )
    if found.missed is not None:
        text += f"; {100 * found.missed:.1f} % of {found.n_mated} mated ones are missed"
    return text
