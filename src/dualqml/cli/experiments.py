# SPDX-License-Identifier: BSD-3-Clause
"""Commands that measure methods on databases: reproduce, report and evaluate."""

import argparse
import os
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dualqml.cli._arguments import (
    Command,
    add_background_argument,
    add_bad_argument,
    add_cluster_arguments,
    add_data_arguments,
    add_force_argument,
    add_input_argument,
    add_json_argument,
    add_method_argument,
    add_photograph_arguments,
    add_root_argument,
    cluster,
)
from dualqml.cli._output import Progress, ProgressLine, say, say_json
from dualqml.cli.exit_codes import FAILED, OK
from dualqml.exceptions import DatabaseError, MethodError, StoreError

if TYPE_CHECKING:
    from distributed import Client

    from dualqml.data import AnyDatabase
    from dualqml.experiments.output import Written
    from dualqml.experiments.protocol import Experiment
    from dualqml.experiments.runner import Summary
    from dualqml.experiments.store import ResultStore
    from dualqml.extractors.own_methods import OwnMethod


def reproduce(options: argparse.Namespace) -> int:
    """Run the units that have no result yet, then write tables and report."""
    from dualqml.cli._samples import check_parent, photograph_jobs
    from dualqml.experiments.output import (
        RESULTS_FILE,
        describe_databases,
        write_settings,
    )
    from dualqml.experiments.store import ResultStore

    jobs = photograph_jobs(options)
    if options.dask is not None and options.jobs is not None:
        raise ValueError(
            "--jobs is the number of own processes, and --dask works on a cluster: "
            "give one of them. --workers is the number of processes of --dask local."
        )
    store_path = options.out / RESULTS_FILE
    check_parent(options.out)
    if store_path.exists() and not (options.resume or options.force):
        raise StoreError(
            f"{store_path} is there already. Add --resume to go on with it, --force to "
            "start again, or choose another folder with --out."
        )
    if options.method:
        # Modules in the folder where the command runs are found, after all others, in
        # this process and in those that it starts.
        sys.path.append(os.getcwd())
    with cluster(options) as client:
        databases = _databases(options)
        if databases is None:
            return FAILED
        experiment = _experiment(options, databases)
        left_out = _left_out(experiment)
        for name, said in left_out.items():
            for sentence in said:
                say(f"dualqml: {name}: {sentence}", error=True)
        if not experiment.units:  # planned before anything is written
            raise ValueError("There is nothing to run")
        if options.force and not options.resume:
            store_path.unlink(missing_ok=True)
        with ResultStore(store_path) as store:
            write_settings(
                options.out,
                command=shlex.join(["dualqml", *_reproduce_words(options, experiment)]),
                databases=describe_databases(experiment.databases, left_out),
            )
            summary = _run(experiment, store, client, jobs, options)
    return _conclude(summary, experiment, options)


def _run(
    experiment: "Experiment",
    store: "ResultStore",
    client: "Client | None",
    jobs: int,
    options: argparse.Namespace,
) -> "Summary":
    """Run an experiment, here or on a cluster, and show the progress."""
    from dualqml.experiments.runner import run_experiment

    elsewhere = None
    if client is not None:
        from dualqml.scale import run_units

        elsewhere = partial(run_units, client)
    shown = None if options.quiet else ProgressLine()
    try:
        return run_experiment(
            experiment,
            store,
            n_jobs=jobs,
            run_units=elsewhere,
            retry_failed=options.retry_failed,
            progress=shown,
        )
    finally:
        if shown is not None:
            shown.close()


def report(options: argparse.Namespace) -> int:
    """Write the tables and the report again."""
    from dualqml.experiments.output import write_output

    _show(write_output(options.folder, with_paper=options.with_paper), options.json)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """Measure, write the report, print the table."""
    from dualqml.cli._samples import (
        check_parent,
        exit_code,
        read_background,
        read_labelled,
        stops_at_bad,
    )
    from dualqml.experiments.open_set import MEASURES, evaluate_open_set
    from dualqml.experiments.open_set_report import write_open_set

    check_parent(options.out)
    if options.out.exists() and any(options.out.iterdir()) and not options.force:
        raise DatabaseError(
            f"{options.out} has files already; --force replaces a report, or choose "
            "another folder with --out"
        )
    with cluster(options) as client:
        data = read_labelled(options)
        if stops_at_bad(data, options):
            return FAILED
        background = read_background(options, kind=data.kind, embedder=data.embedder)
        elsewhere = None
        if client is not None:
            from dualqml.scale import run_divisions

            elsewhere = partial(run_divisions, client)
        with Progress("Measuring", options.repeats, log=True) as progress:
            found = evaluate_open_set(
                data.samples,
                data.labels,
                name=data.name,
                m=options.m,
                strangers=options.strangers,
                repeats=options.repeats,
                seed=options.seed,
                fpir=options.fpir,
                progress=progress,
                run_divisions=elsewhere,
                method=options.method,
                background=background,
            )
    command = shlex.join(["dualqml", *_evaluate_words(options, data.name)])
    page, text = write_open_set(
        found, options.out, command=command, citation=data.citation
    )
    if options.json:
        answer: dict[str, Any] = {
            row: {name: float(found.values(row, name).mean()) for name in MEASURES}
            for row in found.trials
        }
        if options.fpir is not None:
            answer["thresholds"] = [
                [asdict(check) for check in checks] for checks in found.thresholds
            ]
        say_json(answer)
    else:
        say(text)
        say(f"Report: {page}")
    return exit_code(data, options)


def _conclude(
    summary: "Summary", experiment: "Experiment", options: argparse.Namespace
) -> int:
    """Write tables and report, say what failed, and return the exit code."""
    from dualqml.experiments.output import write_output

    n_units = len(experiment.units)
    if summary.results:
        _show(write_output(options.out, with_paper=options.with_paper), options.json)
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
        return FAILED
    left_out = any(database.skipped for database in experiment.databases.values())
    return FAILED if left_out and options.on_bad != "skip" else OK


def _show(written: "Written", as_json: bool) -> None:
    """Print the tables, and where they and the report are."""
    if as_json:
        say_json(written.summary)
        return
    say(written.text)
    say(f"Report: {written.report}")
    say(f"Tables: {written.tables} (Markdown, LaTeX, CSV)")


def _experiment(
    options: argparse.Namespace, databases: "dict[str, AnyDatabase]"
) -> "Experiment":
    """Plan the experiment that the arguments describe."""
    from dualqml.experiments.protocol import Experiment, Protocol

    rows: tuple[int, ...] = ()
    if options.protocol == "fixed":
        if options.train_rows is None:
            raise ValueError("--protocol fixed needs --train-rows")
        try:
            rows = _integers(options.train_rows.read_text())
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{options.train_rows}: {error}") from error
    methods, own = _methods(options)
    experiment = Experiment(
        databases=databases,
        sizes=options.m,
        methods=methods,
        repeats=options.repeats,
        seed=options.seed,
        photometry=options.photometry,
        tune=options.tune,
        protocol=Protocol(options.protocol, options.train_visits, rows),
        inputs=options.features,
        own=own,
    )
    for name in experiment.databases:
        for m in experiment.skipped_sizes(name):
            say(
                f"dualqml: {name}: m={m} is left out, nothing would be left to test",
                error=True,
            )
    return experiment


def _left_out(experiment: "Experiment") -> dict[str, list[str]]:
    """Sentences on methods that need images, by the names of the databases."""
    from dualqml.experiments.labels import listed

    words = {"local": "local descriptors"}
    found: dict[str, list[str]] = {}
    for name in experiment.databases:
        for input in experiment.inputs_of(name):
            methods = experiment.left_out(input)
            if methods:
                verb = "is" if len(methods) == 1 else "are"
                found.setdefault(name, []).append(
                    f"{listed(methods)} {verb} left out on {words.get(input, input)}: "
                    "images as such are needed."
                )
    return found


def _methods(
    options: argparse.Namespace,
) -> "tuple[tuple[str, ...] | None, tuple[OwnMethod, ...]]":
    """The named methods of dualqml, and those of other packages."""
    from dualqml.extractors.methods import ALL_METHODS
    from dualqml.extractors.own_methods import OwnMethod, installed_methods

    own = [OwnMethod.parse(text) for text in options.method]
    if options.methods is None:
        return None, tuple(own)
    plugins = installed_methods()
    named = [plugins[name] for name in options.methods if name not in ALL_METHODS]
    known = tuple(name for name in options.methods if name in ALL_METHODS)
    return known, (*named, *own)


def _databases(options: argparse.Namespace) -> "dict[str, AnyDatabase] | None":
    """Read the databases, and tell about copies and images that cannot be used.

    None if there are such images and the user wants to stop then.
    """
    from dualqml.cli._samples import tell_bad

    loaded: dict[str, AnyDatabase] = {}
    for argument in options.databases:
        place, _, variant = argument.rpartition(":")
        if variant != "distinct" or not place:
            place = argument
        database = _database(place, options)
        name = Path(place).name or database.name
        if place != argument:
            database, name = database.without_copies(), f"{name}:distinct"
        elif copies := database.copies:
            pairs = ", ".join(f"{a} of {b}" for a, b in list(copies.items())[:3])
            kind = "copies" if database.image_shape is None else "pixel copies"
            say(
                f"dualqml: {name}: {len(copies)} subjects are {kind} of others "
                f"({pairs}). Append :distinct to leave them out.",
                error=True,
            )
        n_all = len(database.labels) + len(database.skipped)
        remarks = getattr(database, "remarks", ())
        if tell_bad(database.skipped, remarks, n_all, options.on_bad):
            return None
        if name in loaded:
            raise DatabaseError(
                f"{name} is asked for twice, or two databases have this name"
            )
        loaded[name] = database
    if options.labels is not None and not any(
        database.image_shape is None for database in loaded.values()
    ):
        raise DatabaseError("--labels belongs to a file of vectors, and there is none")
    return loaded


def _database(place: str, options: argparse.Namespace) -> "AnyDatabase":
    """Read one database: vectors, crops, or photographs as vectors of their faces."""
    from dualqml.cli._samples import database_kind, new_embedder, read_database
    from dualqml.data import load_vectors

    kind = database_kind(place, options)
    if kind == "vectors":
        path = Path(place) if options.root is None else options.root / place
        if options.labels is not None and len(options.databases) > 1:
            raise DatabaseError("--labels needs a single file of vectors")
        return load_vectors(path, options.labels)
    return read_database(place, options.root, new_embedder(options, kind))


def _reproduce_words(
    options: argparse.Namespace, experiment: "Experiment"
) -> list[str]:
    """List the words of a command that repeats this run, without private paths."""
    from dualqml.cli._samples import photograph_words

    words = ["reproduce", *experiment.databases]
    if options.root is not None:
        words += ["--root", "DIR"]
    plain: dict[str, Any] = {
        "-m": options.m and ",".join(map(str, options.m)),
        "--methods": options.methods and ",".join(options.methods),
        "--features": None
        if options.features == ("pixels",)
        else ",".join(options.features),
        "--input": None if options.input == "auto" else options.input,
        "--on-bad": None if options.on_bad == "report" else options.on_bad,
        "--labels": options.labels and options.labels.name,
        "--repeats": options.repeats,
        "--seed": options.seed,
        "--photometry": options.photometry,
        "--protocol": options.protocol,
    }
    for flag, value in plain.items():
        if value is not None:
            words += [flag, str(value)]
    words += photograph_words(options)
    for text in options.method:
        words += ["--method", text]
    if options.protocol == "visits":
        words += ["--train-visits", ",".join(map(str, options.train_visits))]
    if options.protocol == "fixed":
        words += ["--train-rows", options.train_rows.name]
    return words + ["--tune"] * options.tune


def _evaluate_words(options: argparse.Namespace, name: str) -> list[str]:
    """List the words of a command that repeats this run, without private paths."""
    from dualqml.cli._samples import photograph_words

    words = ["evaluate"]
    if options.embeddings is not None:
        words += ["--embeddings", options.embeddings.name]
        words += [] if options.labels is None else ["--labels", options.labels.name]
    else:
        words += [name]
        words += [] if options.input == "auto" else ["--input", options.input]
        words += [] if options.root is None else ["--root", "DIR"]
        words += photograph_words(options)
    words += ["-m", str(options.m)]
    words += ["--method", options.method, "--strangers", f"{options.strangers:g}"]
    words += ["--repeats", str(options.repeats), "--seed", str(options.seed)]
    words += [] if options.fpir is None else ["--fpir", f"{options.fpir:g}"]
    if options.background is not None:
        words += ["--background", Path(options.background).name]
    return words


def _integers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        numbers = ()
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers")
    return numbers


def _method_names(text: str) -> tuple[str, ...]:
    from dualqml.extractors.methods import ALL_METHODS
    from dualqml.extractors.own_methods import installed_methods

    known = {name.lower(): name for name in (*installed_methods(), *ALL_METHODS)}
    names = [word.strip() for word in text.split(",") if word.strip()]
    for name in names:
        if name.lower() not in known:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not a method; choose from {', '.join(known.values())}, "
                "or give a class with --method"
            )
    if not names:
        raise argparse.ArgumentTypeError("no method was named")
    return tuple(dict.fromkeys(known[name.lower()] for name in names))


def _own_method(text: str) -> str:
    from dualqml.extractors.own_methods import OwnMethod

    try:
        OwnMethod.parse(text)
    except MethodError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _inputs(text: str) -> tuple[str, ...]:
    from dualqml.experiments.protocol import ImageInput

    known = get_args(ImageInput)
    names = [word.strip().lower() for word in text.split(",") if word.strip()]
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no input; choose from {', '.join(known)}, or both"
        )
    return tuple(dict.fromkeys(names))


def _add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    from dualqml.cli._choices import PHOTOMETRIES, PROTOCOLS
    from dualqml.extractors.method_names import METHOD_NAMES, VECTOR_METHOD_NAMES

    parser.add_argument(
        "databases",
        nargs="*",
        default=["orl"],
        metavar="DATABASES",
        help="names, folders or files (default: orl)",
    )
    add_root_argument(parser)
    parser.add_argument(
        "-m",
        type=_integers,
        metavar="2,4,6,8",
        help="training images or vectors of each person (default: the paper's)",
    )
    parser.add_argument(
        "--methods",
        type=_method_names,
        metavar="LDA,ERE,...",
        help=f"rows of the tables (default: {', '.join(METHOD_NAMES)}; for vectors "
        f"also {', '.join(VECTOR_METHOD_NAMES)}). Methods that other packages offer as "
        "entry points of the group dualqml.methods are known by their names",
    )
    parser.add_argument(
        "--method",
        type=_own_method,
        action="append",
        default=[],
        metavar="NAME=MODULE:CLASS",
        help="one more row: an estimator of any package, with parameters as in "
        '"svm=sklearn.svm:LinearSVC(C=1.0)". A transformer is followed by the nearest '
        "training sample. The class is imported and runs with your rights. May be "
        "given several times",
    )
    parser.add_argument(
        "--features",
        type=_inputs,
        default=("pixels",),
        metavar="pixels,local",
        help="what methods get of images: their pixels, their local descriptors, or "
        "one after the other (default: pixels)",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="text file with the subjects of a file of vectors, one per line",
    )
    parser.add_argument(
        "--repeats", type=int, default=30, help="number of splits (default: 30)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dualqml-results"),
        help="folder of results, tables and report (default: dualqml-results)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue with the results in --out"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="run failed units again"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the splits (default: 0)"
    )
    parser.add_argument(
        "--photometry",
        choices=PHOTOMETRIES,
        default="unit-norm",
        metavar="NAME",
        help="normalisation of light, the same for all methods: "
        f"{', '.join(PHOTOMETRIES)} (default: every image is scaled to unit norm)",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="the competitors too choose their parameters on the training set",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default="random",
        help="train on random images (as in the paper), on visits, or on fixed rows "
        "(default: random)",
    )
    parser.add_argument(
        "--train-visits",
        type=_integers,
        default=(1,),
        metavar="1",
        help="training visits of --protocol visits (default: 1)",
    )
    parser.add_argument(
        "--train-rows",
        type=Path,
        metavar="FILE",
        help="file with the training rows of --protocol fixed, counted from 0",
    )
    add_input_argument(parser)
    add_photograph_arguments(
        parser, jobs="number of processes, and of threads that read photographs"
    )
    add_cluster_arguments(parser, "run the units")
    add_bad_argument(parser)
    add_force_argument(parser, "results that exist")
    _add_paper_argument(parser)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    add_json_argument(parser)


def _add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the --out of dualqml reproduce")
    _add_paper_argument(parser)
    add_json_argument(parser)


def _add_paper_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with-paper",
        action="store_true",
        help="show the paper's own figures beside ours",
    )


def _add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument(
        "-m", type=int, default=3, help="enrolled images of each person (default: 3)"
    )
    add_method_argument(parser)
    add_background_argument(
        parser,
        "They must be other people than those in DATA: with the same people, the "
        "measured errors would be too low",
    )
    parser.add_argument(
        "--strangers",
        type=float,
        default=1 / 3,
        help="share of the people who are strangers (default: 1/3)",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="number of divisions (default: 5)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the divisions (default: 0)"
    )
    parser.add_argument(
        "--fpir",
        type=float,
        help="also set thresholds for this false positive identification rate, and "
        "measure whether they keep it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dualqml-evaluation"),
        help="folder of the report (default: dualqml-evaluation)",
    )
    add_cluster_arguments(parser, "measure the divisions")
    add_force_argument(parser, "a report that exists")
    add_json_argument(parser)


COMMANDS = {
    "reproduce": Command(
        details="""\
DATABASES are names known to "dualqml databases", or folders with one folder of
images for each person, or .csv (path,subject[,visit]), .npz or .mat files.
Folders of photographs become vectors of their faces; the command finds out and
says so. Vectors come from .npz (arrays embeddings and labels, or X and y),
.parquet (a column subject or label) or .npy files (with --labels); methods that
need images are left out then. Without any, the embedded ORL faces are used.
Append ":distinct" to leave out subjects that are copies of others
(feret:distinct).

Every result is saved as soon as it is known. After a stop, run the same command
with --resume to continue. The results do not depend on where the units run: in
one process, in several (--jobs), or on a cluster (--dask).""",
        examples="""examples:
  dualqml reproduce
  dualqml reproduce ar feret:distinct --root ~/databases --out results --resume
  dualqml reproduce my-photos/ -m 2,4 --methods LDA,DualQML-W --repeats 10
  dualqml reproduce faces.npz -m 2,5 --tune
  dualqml reproduce orl --features pixels,local -m 2
  dualqml reproduce ar --dask local --workers 4 --memory-limit 4GB
  dualqml reproduce ar --dask tcp://10.0.0.1:8786 --resume
  dualqml reproduce orl -m 2 --method "svm=sklearn.svm:LinearSVC(C=1.0)\"""",
        add_arguments=_add_reproduce_arguments,
        run=reproduce,
    ),
    "report": Command(
        details="The experiment may have been stopped, or may still be running.",
        examples="""examples:
  dualqml report dualqml-results --with-paper
  dualqml report results --json""",
        add_arguments=_add_report_arguments,
        run=report,
    ),
    "evaluate": Command(
        details="""\
Some people are enrolled with m images each, or with all but one if they have no
more than m. The others are strangers. Each repetition divides the people again
at random. The method is compared with the nearest neighbour and the class mean
by the cosine of the input and, for images, of local descriptors.""",
        examples="""examples:
  dualqml evaluate people/ -m 3 --out evaluation
  dualqml evaluate people/ -m 3 --fpir 0.01
  dualqml evaluate --embeddings faces.npz -m 5 --repeats 10
  dualqml evaluate people/ -m 3 --background others/
  dualqml evaluate --embeddings faces.npz --repeats 100 --dask local""",
        add_arguments=_add_evaluate_arguments,
        run=evaluate,
    ),
}
