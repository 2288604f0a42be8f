# SPDX-License-Identifier: BSD-3-Clause
"""The folder of an experiment: results, settings, tables and report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._files import write_text
from dualqml._text import printable, read_json
from dualqml.data import DATABASES, AnyDatabase, Database, load_database
from dualqml.exceptions import StoreError
from dualqml.experiments.labels import setting_label, what_differs
from dualqml.experiments.protocol import fingerprint
from dualqml.experiments.report import Mistakes, write_report
from dualqml.experiments.results import Results
from dualqml.experiments.store import read_results
from dualqml.experiments.summary import take_home
from dualqml.experiments.table_formats import to_latex, to_markdown
from dualqml.experiments.tables import (
    comparison_table,
    error_csv,
    paper_tables,
    time_table,
)

RESULTS_FILE = "results.jsonl"
SETTINGS_FILE = "experiment.json"
REPORT_FILE = "report.html"
TABLES_FOLDER = "tables"

#: How many people of a database are shown, if its terms allow it.
_N_FACES = 10


@dataclass(frozen=True)
class Written:
    """The files that were written, and their content in short.

    Attributes
    ----------
    report, tables : Path
        The report, and the folder of the tables.
    text : str
        The tables in Markdown, and what to take home.
    summary : list of dict
        The mean errors, one record for each cell of the tables.
    """

    report: Path
    tables: Path
    text: str
    summary: list[dict[str, Any]]


def describe_databases(
    databases: Mapping[str, AnyDatabase],
    left_out: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Facts on databases for a report that is written without the databases.

    Parameters
    ----------
    databases : dict of str to Database or VectorDatabase
        The databases, by their names in the results.
    left_out : dict of str to sequence of str, optional
        By name, sentences on methods that were left out.

    Returns
    -------
    dict
        By name: title, citation, terms, numbers of subjects and images, or vectors
        and their features, height and width of images in pixels, files that were
        skipped, what was left out, and the number of subjects that are copies.
    """
    return {
        name: {
            "title": database.name,
            "citation": database.citation,
            "terms": database.terms,
            "subjects": int(database.subjects.size),
            **_samples(database),
            # Names only: a report does not tell the folders of its author.
            "skipped": [Path(file).name for file in database.skipped],
            "left_out": list((left_out or {}).get(name, ())),
            "copies": len(database.copies),
        }
        for name, database in databases.items()
    }


def _samples(database: AnyDatabase) -> dict[str, Any]:
    if database.image_shape is None:
        n_vectors, n_features = database.samples.shape
        return {"vectors": n_vectors, "features": n_features}
    return {"images": len(database.samples), "size": list(database.image_shape)}


def write_settings(folder: Path, *, command: str, databases: Mapping[str, Any]) -> None:
    """Store the command and the facts on databases beside those of earlier runs.

    Parameters
    ----------
    folder : Path
        Folder of the experiment.
    command : str
        The command that repeats the run.
    databases : dict
        From `describe_databases`.
    """
    settings = _read_settings(folder)
    commands = [old for old in settings["commands"] if old != command] + [command]
    facts = settings["databases"] | dict(databases)
    text = json.dumps({"commands": commands, "databases": facts}, indent=2)
    write_text(folder / SETTINGS_FILE, text + "\n")


def write_output(folder: Path, *, with_paper: bool = False) -> Written:
    """Write tables and report of the results in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the experiment.
    with_paper : bool, default=False
        Whether to show the paper's own figures beside ours.

    Returns
    -------
    Written
        Where the files are, and the tables as text.

    Raises
    ------
    StoreError
        There are no results.
    FileError
        A file cannot be written.
    """
    results = Results(read_results(folder / RESULTS_FILE))
    if not results.by_unit:
        raise StoreError(f"{folder} has no results yet")
    settings = _read_settings(folder)
    tables = [
        *paper_tables(results, with_paper=with_paper),
        comparison_table(results),
        time_table(results, with_paper=with_paper),
    ]
    said = [
        f"**{finding.name}: what to take home.** {' '.join(finding.sentences)}"
        for finding in take_home(results)
    ]
    # Terminals and editors need no places where lines must not break.
    said = [text.replace("\N{NO-BREAK SPACE}", " ") for text in said]
    text = "\n\n".join([*map(to_markdown, tables), *said]) + "\n"
    where = folder / TABLES_FOLDER
    write_text(where / "tables.md", text)
    write_text(where / "tables.tex", "\n\n".join(map(to_latex, tables)) + "\n")
    write_text(where / "errors.csv", error_csv(results))
    report = folder / REPORT_FILE
    write_report(
        results,
        report,
        with_paper=with_paper,
        command="\n".join(settings["commands"]),
        facts=settings["databases"],
        faces=_faces(results),
        mistakes=_mistakes(results),
    )
    return Written(report, where, text, _summary(results))


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    if not path.exists():
        return {"commands": [], "databases": {}}
    try:
        settings = read_json(path.read_bytes())
        if not isinstance(settings["commands"], list):
            raise TypeError("commands are not a list")
        if not isinstance(settings["databases"], dict):
            raise TypeError("databases are not an object")
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = printable(repr(error), 200)
        raise StoreError(
            f"{path} cannot be read ({reason}). Delete it: it has only what the "
            "report says of databases."
        ) from error
    return dict(settings)


def _faces(results: Results) -> dict[str, NDArray[np.uint8]]:
    """One image each of some people, from databases whose terms allow it."""
    shown = {}
    for name, database in _shown_databases(results).items():
        _, first = np.unique(database.labels, return_index=True)
        shown[name] = database.images[np.sort(first)[:_N_FACES]]
    return shown


def _mistakes(results: Results) -> list[Mistakes]:
    """Images that the best row took for others, where the terms allow to show them."""
    shown = []
    for name, database in _shown_databases(results).items():
        settings = [s for s in results.settings if s.database == name]
        differing = what_differs(settings)
        for setting in settings:
            row = results.best_row(setting, results.rows)
            if setting.data != fingerprint(database) or row is None:
                continue
            first = results.runs(setting, row)[0]
            # The file of results may have been changed by hand.
            places = [
                found
                for found in first.mistakes
                if len(found) == 3
                and 0 <= min(found) <= max(found) < len(database.images)
            ]
            if not places:
                continue
            n_wrong = round(first.error * first.n_test / 100.0)
            where = setting_label(setting, differing, in_full=True)
            said = (
                f"{where}, first split: {row}, the method with the lowest mean error, "
                f"gives {n_wrong} of {first.n_test} test images a wrong name."
            )
            if len(places) < n_wrong:
                said += f" {len(places)} of them are shown."
            shown.append(Mistakes(said, database.images[np.array(places)]))
    return shown


def _shown_databases(results: Results) -> dict[str, Database]:
    """Databases that are at hand and whose terms allow to show images.

    A folder of a user may have the name of one of them. The fingerprint tells.
    """
    prints = {setting.data for setting in results.settings}
    at_hand = {
        name: load_database(name)
        for name in results.databases
        if (info := DATABASES.get(name)) and info.may_be_shown and info.embedded
    }
    return {
        name: database
        for name, database in at_hand.items()
        if fingerprint(database) in prints
    }


def _summary(results: Results) -> list[dict[str, Any]]:
    records = []
    for setting in results.settings:
        for row in results.rows:
            errors = results.errors(setting, row)
            if errors.size:
                spread = float(errors.std(ddof=1)) if errors.size > 1 else None
                records.append(
                    {
                        "database": setting.database,
                        "m": setting.m,
                        "protocol": setting.protocol,
                        "photometry": setting.photometry,
                        "input": setting.input,
                        "method": row,
                        "repeats": int(errors.size),
                        "mean": float(errors.mean()),
                        "std": spread,
                    }
                )
    return records
