# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml reproduce``: the paper's experiments on a database."""

import argparse
import os
import shlex
from pathlib import Path
from typing import Any, get_args

from dualqml.cli._output import say
from dualqml.cli._progress import ProgressLine
from dualqml.cli.report import show
from dualqml.data import Database, load_database
from dualqml.exceptions import DatabaseError, StoreError
from dualqml.experiments.output import (
    RESULTS_FILE,
    describe_databases,
    write_output,
    write_settings,
)
from dualqml.experiments.protocol import Experiment, Protocol, ProtocolKind
from dualqml.experiments.runner import Summary, run_experiment
from dualqml.experiments.store import ResultStore
from dualqml.extractors.methods import METHODS
from dualqml.images.photometry import Photometry

DESCRIPTION = """Repeat the paper's experiments and write its tables and a report.
DATABASES are names known to "dualqml databases", or folders with one folder of
images for each person, or .csv (path,subject[,visit]), .npz or .mat files.
Without any, the embedded ORL faces are used. Append ":distinct" to leave out
subjects that are pixel copies of others (feret:distinct).

Every result is written at once; run again with --resume to go on after a stop.
Exit code: 0 all done, 1 some units failed, 2 wrong input, 130 interrupted."""

EXAMPLES = """examples:
  dualqml reproduce
  dualqml reproduce ar feret:distinct --root ~/databases --out results --resume
  dualqml reproduce my-photos/ -m 2,4 --methods LDA,DualQML-W --repeats 10"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("databases", nargs="*", default=["orl"], metavar="DATABASES")
    parser.add_argument("--root", type=Path, help="folder above those of the databases")
    parser.add_argument(
        "-m",
        type=_integers,
        metavar="2,4,6,8",
        help="training images of each person (default: the paper's)",
    )
    parser.add_argument(
        "--methods",
        type=_names,
        default=tuple(METHODS),
        metavar="LDA,ERE,...",
        help=f"rows of the tables (default: all of {', '.join(METHODS)})",
    )
    parser.add_argument("--repeats", type=int, default=30, help="splits (default: 30)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dualqml-results"),
        help="folder of results, tables and report (default: dualqml-results)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the results in --out"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="run units again that failed"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (all cores)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the splits (0)")
    parser.add_argument(
        "--photometry",
        choices=get_args(Photometry),
        default="unit-norm",
        help="normalisation of light, for all methods alike (default: every image is "
        "scaled to unit norm)",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="competitors choose their parameters on the training set too",
    )
    parser.add_argument(
        "--protocol",
        choices=get_args(ProtocolKind),
        default="random",
        help="random splits (the paper's), or train on visits, or on fixed rows",
    )
    parser.add_argument(
        "--train-visits",
        type=_integers,
        default=(1,),
        metavar="1",
        help="training visits of --protocol visits",
    )
    parser.add_argument(
        "--train-rows",
        type=Path,
        metavar="FILE",
        help="file with the training rows of --protocol fixed, counted from 0",
    )
    parser.add_argument(
        "--skip-broken",
        action="store_true",
        help="leave out images that cannot be read, instead of stopping",
    )
    parser.add_argument(
        "--with-paper",
        action="store_true",
        help="show the paper's own figures beside ours",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print results as JSON")


def run(options: argparse.Namespace) -> int:
    """Run what is missing, then write tables and report."""
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    store_path = options.out / RESULTS_FILE
    if store_path.exists() and not options.resume:
        raise StoreError(
            f"{store_path} is there already. Add --resume to go on with it, or choose "
            "another folder with --out."
        )
    experiment = _experiment(options)
    if not experiment.units:  # planned before anything is written
        raise ValueError("There is nothing to run")
    with ResultStore(store_path) as store:
        write_settings(
            options.out,
            command=shlex.join(["dualqml", *_typed(options, experiment)]),
            databases=describe_databases(experiment.databases),
        )
        shown = None if options.quiet else ProgressLine()
        try:
            summary = run_experiment(
                experiment,
                store,
                n_jobs=options.jobs,
                retry_failed=options.retry_failed,
                progress=shown,
            )
        finally:
            if shown is not None:
                shown.close()
    return _conclude(summary, experiment, options)


def _conclude(
    summary: Summary, experiment: Experiment, options: argparse.Namespace
) -> int:
    """Tables, report and what to say at the end."""
    n_units = len(experiment.units)
    if summary.results:
        written = write_output(options.out, with_paper=options.with_paper)
        show(written, as_json=options.json)
    for result in summary.failed[:5]:
        unit = result.unit
        say(
            f"dualqml: {unit.database} m={unit.m} {unit.method}, repetition "
            f"{unit.repetition}, failed: {result.reason}",
            error=True,
        )
    if summary.interrupted:
        say(
            f"dualqml: interrupted after {len(summary.results)} of {n_units} units, "
            f"which are kept in {options.out}. Go on with --resume.",
            error=True,
        )
        return 130
    if summary.failed:
        say(
            f"dualqml: {len(summary.failed)} of {n_units} units failed; the reasons "
            "are in the report. --resume --retry-failed runs them again.",
            error=True,
        )
        return 1
    return 0


def _experiment(options: argparse.Namespace) -> Experiment:
    rows: tuple[int, ...] = ()
    if options.protocol == "fixed":
        if options.train_rows is None:
            raise ValueError("--protocol fixed needs --train-rows")
        try:
            rows = _integers(options.train_rows.read_text())
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{options.train_rows}: {error}") from error
    experiment = Experiment(
        databases=_databases(options),
        sizes=options.m,
        methods=options.methods,
        repeats=options.repeats,
        seed=options.seed,
        photometry=options.photometry,
        tune=options.tune,
        protocol=Protocol(options.protocol, options.train_visits, rows),
    )
    for name in experiment.databases:
        for m in experiment.skipped_sizes(name):
            say(
                f"dualqml: {name}: m={m} is left out, nothing would be left to test",
                error=True,
            )
    return experiment


def _databases(options: argparse.Namespace) -> dict[str, Database]:
    loaded: dict[str, Database] = {}
    for argument in options.databases:
        place, _, variant = argument.rpartition(":")
        if variant != "distinct" or not place:
            place = argument
        on_error = "skip" if options.skip_broken else "raise"
        database = load_database(place, options.root, on_error=on_error)
        name = Path(place).name or database.name
        if place != argument:
            database, name = database.without_copies(), f"{name}:distinct"
        elif copies := database.copies:
            pairs = ", ".join(f"{a} of {b}" for a, b in list(copies.items())[:3])
            say(
                f"dualqml: {name}: {len(copies)} subjects are pixel copies of others "
                f"({pairs}). Append :distinct to leave them out.",
                error=True,
            )
        if database.skipped:
            say(
                f"dualqml: {name}: {len(database.skipped)} files could not be read and "
                f"are left out, first {database.skipped[0]}",
                error=True,
            )
        if name in loaded:
            raise DatabaseError(f"{name} is asked for twice, or two have this name")
        loaded[name] = database
    return loaded


def _typed(options: argparse.Namespace, experiment: Experiment) -> list[str]:
    """The command that repeats this run, without where it ran."""
    words = ["reproduce", *experiment.databases]
    if options.root is not None:
        words += ["--root", "DIR"]
    plain: dict[str, Any] = {
        "-m": options.m and ",".join(map(str, options.m)),
        "--methods": None
        if options.methods == tuple(METHODS)
        else ",".join(options.methods),
        "--repeats": options.repeats,
        "--seed": options.seed,
        "--photometry": options.photometry,
        "--protocol": options.protocol,
    }
    for flag, value in plain.items():
        if value is not None:
            words += [flag, str(value)]
    if options.protocol == "visits":
        words += ["--train-visits", ",".join(map(str, options.train_visits))]
    if options.protocol == "fixed":
        words += ["--train-rows", options.train_rows.name]
    words += ["--skip-broken"] * options.skip_broken
    return words + ["--tune"] * options.tune


def _integers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        numbers = ()
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers")
    return numbers


def _names(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in METHODS}
    names = [word.strip() for word in text.split(",") if word.strip()]
    for name in names:
        if name.lower() not in known:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not a method; choose from {', '.join(METHODS)}"
            )
    if not names:
        raise argparse.ArgumentTypeError("no method was named")
    return tuple(dict.fromkeys(known[name.lower()] for name in names))
