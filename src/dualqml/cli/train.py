# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml train``: a model from a folder of people."""

import argparse
import json
from pathlib import Path

from dualqml.cli._output import say
from dualqml.cli._samples import add_data_arguments, read_labelled
from dualqml.exceptions import DatabaseError
from dualqml.extractors.methods import METHODS
from dualqml.recognition import Recognizer

DESCRIPTION = """Enrol everybody in a folder and write the model to a file.
The threshold is calibrated by leaving the people out in turn, unless you say
otherwise; calibrate it on other people with "dualqml calibrate" if you have any."""

EXAMPLES = """examples:
  dualqml train people/ -o people.dualqml
  dualqml train --embeddings faces.npz -o faces.dualqml --fmr 0.001"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data_arguments(parser, optional=True)
    parser.add_argument("-o", "--out", type=Path, required=True, help="the model file")
    parser.add_argument(
        "--method", choices=list(METHODS), default="DualQML-W", help="(DualQML-W)"
    )
    parser.add_argument("--force", action="store_true", help="replace an old model")
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("--fpir", type=float, help="false positive identification rate")
    rate.add_argument("--fmr", type=float, help="false match rate")
    rate.add_argument("--threshold", type=float, help="given by hand")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Enrol, fit, calibrate, save."""
    if options.out.exists() and not options.force:
        raise DatabaseError(f"{options.out} is there already; --force replaces it")
    data = read_labelled(options)
    if not data.labels:
        raise DatabaseError(f"{data.name} does not say who is who; give --labels")
    say(f"Enrolling {len(data.labels)} samples", error=True)
    recognizer = Recognizer(options.method, threshold=options.threshold)
    recognizer.enroll_many(data.samples, data.labels)
    recognizer.fit()
    if options.threshold is None and len(recognizer.subjects()) < 4:
        raise DatabaseError(
            f"{len(recognizer.subjects())} subjects are too few to calibrate on; give "
            "--threshold"
        )
    if options.threshold is None:
        say("Calibrating", error=True)
        if options.fmr is not None:
            recognizer.calibrate(fmr=options.fmr)
        else:
            recognizer.calibrate(fpir=0.01 if options.fpir is None else options.fpir)
    recognizer.save(options.out)
    about = {
        "model": str(options.out),
        "model_id": recognizer.model_id,
        "subjects": len(recognizer.subjects()),
        "samples": recognizer.n_samples,
        "threshold": recognizer.threshold,
    }
    if options.json:
        say(json.dumps(about, indent=2))
    else:
        say(
            f"{options.out}: {about['subjects']} subjects, {about['samples']} samples, "
            f"threshold {recognizer.threshold:.4g}"
        )
    return 0
