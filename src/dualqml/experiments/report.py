# SPDX-License-Identifier: BSD-3-Clause
"""A report of results: one HTML file that needs nothing else."""

import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._files import write_text
from dualqml.experiments import report_facts, report_sections
from dualqml.experiments.labels import database_label, listed
from dualqml.experiments.results import Results

# Nothing is loaded from anywhere and nothing runs, whatever names and reasons say.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(
    results: Results,
    path: str | os.PathLike[str],
    *,
    with_paper: bool = True,
    command: str | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    faces: Mapping[str, NDArray[np.uint8]] | None = None,
) -> Path:
    """Write a report of results.

    Parameters
    ----------
    results : Results
        What was run.
    path : path
        The HTML file; at any moment the old or the new one is there, whole.
    with_paper : bool, default=True
        Whether to show the paper's own figures beside ours.
    command : str, optional
        The commands that repeat it.
    facts : dict of str to dict, optional
        By the name of a database: its "title", "citation", "terms", numbers of
        "subjects" and "images", the files that were "skipped", and the number of
        subjects that are "copies"; each may be missing.
    faces : dict of str to ndarray of shape (n, height, width), optional
        By the name of a database: 8-bit images to show. Whether its terms allow
        that is for the caller to check.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FileError
        It cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.experiments.report import write_report
    >>> from dualqml.experiments.results import Results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(Results([]), Path(folder, "report.html"))
    ...     "There are no results yet" in path.read_text(encoding="utf-8")
    True
    """
    text = render_report(
        results, with_paper=with_paper, command=command, facts=facts, faces=faces
    )
    write_text(path, text)
    return Path(path)


def render_report(
    results: Results,
    *,
    with_paper: bool = True,
    command: str | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    faces: Mapping[str, NDArray[np.uint8]] | None = None,
) -> str:
    """The text of a report; see `write_report`."""
    sections = [
        ("summary", "Summary", report_sections.summary(results)),
        ("errors", "Errors", report_sections.errors(results, with_paper)),
        ("rival", "Against the best rival", report_sections.comparison(results)),
        ("databases", "By database", report_sections.databases(results)),
        ("times", "Times", report_sections.times(results, with_paper)),
        ("data", "Data and splits", report_facts.data(results, facts or {})),
        ("faces", "Sample images", report_facts.samples(faces or {})),
        ("chosen", "Chosen on the training sets", report_facts.chosen(results)),
        ("versions", "Versions", report_facts.versions(results)),
        ("failures", "Failures", report_facts.failures(results)),
        ("paper", "The paper's tables", report_facts.oddities() if with_paper else ""),
        ("repeat", "How to repeat it", report_facts.commands(command)),
    ]
    names = [database_label(name) for name in results.databases]
    title = " on ".join(filter(None, ["Recognition errors", listed(names)]))
    return render_page(title, sections)


def render_page(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    title : str
        Its heading, as plain text.
    sections : sequence of (str, str, str)
        Anchor, heading and content of each section; those without content are
        left out. Heading and content are HTML.

    Returns
    -------
    str
        The page.
    """
    title = escape(title)
    shown = [section for section in sections if section[2]]
    contents = "".join(
        f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in shown
    )
    body = "\n".join(
        f'<section id="{name}">\n<h2>{heading}</h2>\n{content}\n</section>'
        for name, heading, content in shown
    )
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{_stylesheet()}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<nav aria-label="Contents">
<ol>{contents}</ol>
</nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""
    # Names of files may hold bytes that are no text.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _stylesheet() -> str:
    sheet = files("dualqml.experiments").joinpath("report.css")
    return sheet.read_text(encoding="utf-8")
