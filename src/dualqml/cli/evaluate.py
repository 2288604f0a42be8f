# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml evaluate``: how good recognition would be on your own data."""

import argparse
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dualqml.cli._output import say
from dualqml.cli._samples import add_data_arguments, read_labelled
from dualqml.exceptions import DatabaseError
from dualqml.experiments.open_set import MEASURES, evaluate_open_set
from dualqml.experiments.open_set_report import write_open_set
from dualqml.extractors.methods import METHODS

DESCRIPTION = """Measure verification, identification and strangers on your own folder.
Some people are enrolled with m images each (all but one, if they have no more),
the others are strangers; both are drawn anew for each repetition. Beside the
method stand the nearest neighbour and the class mean by the cosine of the input
and, for images, of local descriptors."""

EXAMPLES = """examples:
  dualqml evaluate people/ -m 3 --out evaluation
  dualqml evaluate people/ -m 3 --fpir 0.01
  dualqml evaluate --embeddings faces.npz -m 5 --repeats 10"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data_arguments(parser, optional=True)
    parser.add_argument("-m", type=int, default=3, help="enrolled images each (3)")
    parser.add_argument(
        "--method", choices=list(METHODS), default="DualQML-W", help="(DualQML-W)"
    )
    parser.add_argument(
        "--strangers", type=float, default=1 / 3, help="share of people (1/3)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="divisions (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the divisions (0)")
    parser.add_argument(
        "--fpir",
        type=float,
        help="also set thresholds for this rate, and see whether they keep it",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("dualqml-evaluation"), help="folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the report."""
    data = read_labelled(options)
    if not data.labels:
        raise DatabaseError(f"{data.name} does not say who is who; give --labels")

    def show(done: int, total: int) -> None:
        say(f"division {done} of {total}", error=True)

    found = evaluate_open_set(
        data.samples,
        data.labels,
        name=data.name,
        m=options.m,
        strangers=options.strangers,
        repeats=options.repeats,
        seed=options.seed,
        fpir=options.fpir,
        progress=show,
        method=options.method,
    )
    words = ["dualqml", "evaluate"]
    if options.embeddings is not None:
        words += ["--embeddings", options.embeddings.name]
        words += [] if options.labels is None else ["--labels", options.labels.name]
    else:
        words += [data.name] + ["--photographs"] * options.photographs
        words += [] if options.root is None else ["--root", "DIR"]
    words += ["-m", str(options.m)]
    words += ["--method", options.method, "--strangers", f"{options.strangers:g}"]
    words += ["--repeats", str(options.repeats), "--seed", str(options.seed)]
    words += [] if options.fpir is None else ["--fpir", f"{options.fpir:g}"]
    report, text = write_open_set(found, options.out, command=shlex.join(words))
    if options.json:
        answer: dict[str, Any] = {
            row: {name: float(found.values(row, name).mean()) for name in MEASURES}
            for row in found.trials
        }
        if options.fpir is not None:
            answer["thresholds"] = [
                [asdict(check) for check in checks] for checks in found.thresholds
            ]
        say(json.dumps(answer, indent=2))
    else:
        say(text)
        say(f"Report: {report}")
    return 0
