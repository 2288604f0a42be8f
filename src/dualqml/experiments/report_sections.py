# SPDX-License-Identifier: BSD-3-Clause
"""Sections of a report on what came out: in words, tables and pictures."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape

from dualqml.exceptions import MissingDependencyError, NothingToPlotError
from dualqml.experiments import plots
from dualqml.experiments.labels import (
    database_label,
    listed,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.plots import style
from dualqml.experiments.results import Results, Setting
from dualqml.experiments.table_formats import to_html
from dualqml.experiments.tables import (
    Pair,
    comparison_table,
    pairs,
    paper_tables,
    time_setting,
    time_table,
    verdict,
)


def summary(results: Results) -> str:
    """What came out, in sentences, database by database."""
    if not results.by_unit:
        return "<p>There are no results yet.</p>"
    lines = [
        f"<li><strong>{escape(name)}.</strong> {escape(_in_words(results, settings))}"
        "</li>"
        for name, settings in _variants(results)
    ]
    parts = [
        f"<ul>{''.join(lines)}</ul>",
        "<p>The best rival is the method other than ours with the lowest mean error in "
        "the same setting. \N{LEFT DOUBLE QUOTATION MARK}No difference seen"
        "\N{RIGHT DOUBLE QUOTATION MARK} means that the 95 % interval of the mean "
        "paired difference contains zero: it is within the noise of the splits.</p>",
    ]
    if results.failed:
        parts.append(
            f"<p>{len(results.failed)} of {len(results.by_unit)} units failed and are "
            'left out: see <a href="#failures">failures</a>.</p>'
        )
    missing = _missing_plots()
    if missing:
        parts.append(f"<p>This report is without pictures. {escape(missing)}.</p>")
    return "\n".join(parts)


def errors(results: Results, with_paper: bool) -> str:
    """The tables of errors."""
    tables = paper_tables(results, with_paper=with_paper)
    return "\n".join(to_html(table) for table in tables)


def comparison(results: Results) -> str:
    """Ours against the best rival: the table and the picture."""
    table = comparison_table(results)
    if not table.rows:
        return ""
    return to_html(table) + _figure(
        "Mean difference in error between ours and the best rival of each setting, "
        "with 95 % intervals. Left of zero ours is lower.",
        plots.paired_differences,
        results,
    )


def databases(results: Results) -> str:
    """Pictures for each database."""
    parts = []
    for name, settings in _variants(results):
        first = settings[0]
        where = f"{name}, {size_label(first)}" if first.m else name
        figures = [
            _figure(
                f"{name}: mean error"
                + " against the number of training images" * bool(first.m)
                + "; bars are one standard deviation.",
                plots.error_against_size,
                results,
                first.database,
                like=first,
            ),
            _figure(
                f"{where}: share of the test images whose subject is among the first "
                "of the list, over all repetitions.",
                plots.cmc,
                results,
                first,
            ),
            _figure(
                f"{where}, first repetition: ranks of the matrices of the classes, and "
                "their eigenvalues relative to the first, mean over the classes.",
                plots.spectrum_and_ranks,
                results,
                first,
            ),
        ]
        found = "".join(figures)
        if found:
            parts.append(f'<h3>{escape(name)}</h3>\n<div class="plots">{found}</div>')
    return "\n".join(parts)


def times(results: Results, with_paper: bool) -> str:
    """Times to train and test: the table and the picture."""
    setting = time_setting(results)
    table = time_table(results, with_paper=with_paper)
    if setting is None or not table.rows:
        return ""
    return to_html(table) + _figure(
        f"{setting_label(setting)}: mean error against the time to train.",
        plots.time_against_error,
        results,
        setting,
    )


def _in_words(results: Results, settings: Sequence[Setting]) -> str:
    lowest: dict[str, list[tuple[Setting, str]]] = defaultdict(list)
    for setting in settings:
        means = {
            row: f"{found.mean():.2f}"
            for row in results.rows
            if (found := results.errors(setting, row)).size
        }
        if means:
            best = min(means.values(), key=float)
            rows = [row for row, mean in means.items() if mean == best]
            lowest[listed(rows)].append((setting, best))
    if not lowest:
        return "No unit is finished."
    said = [
        f"{rows}{_at(setting for setting, _ in where)} "
        f"({listed([mean for _, mean in where])} %)"
        for rows, where in lowest.items()
    ]
    sentences = [f"Lowest mean error: {'; '.join(said)}."]
    by_row: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs(results):
        if pair.setting in settings:
            by_row[pair.row].append(pair)
    # DualQML-W first.
    for row, group in sorted(by_row.items(), reverse=True):
        by_verdict: dict[str, list[Pair]] = defaultdict(list)
        for pair in group:
            by_verdict[verdict(pair.comparison)].append(pair)
        rivals = listed(list(dict.fromkeys(pair.rival for pair in group)))
        said = [
            f"{word}{_at(pair.setting for pair in found)}{_by(word, found)}"
            for word, found in by_verdict.items()
        ]
        sentences.append(f"{row} against the best rival, {rivals}: {'; '.join(said)}.")
    return " ".join(sentences)


def _at(settings: Iterable[Setting]) -> str:
    sizes = [str(setting.m) for setting in settings if setting.m]
    # No line ends between m and its value.
    sign = "m\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    return f" at {sign}{listed(sizes)}" if sizes else ""


def _by(word: str, found: Sequence[Pair]) -> str:
    gaps = [abs(p.comparison.difference) for p in found if p.comparison is not None]
    if word not in ("lower", "higher"):
        return ""
    ends = dict.fromkeys([f"{min(gaps):.2f}", f"{max(gaps):.2f}"])
    return f" by {' to '.join(ends)} points"


def _variants(results: Results) -> list[tuple[str, list[Setting]]]:
    """Settings that differ in m only, each group with a name."""
    found: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for database in results.databases:
        settings = [s for s in results.settings if s.database == database]
        differing = what_differs(settings)
        for setting in settings:
            parts = [database_label(database), variant_label(setting, differing)]
            parts += [] if setting.m else [size_label(setting)]
            found[database, ", ".join(filter(None, parts))].append(setting)
    return [(name, group) for (_, name), group in found.items()]


def _figure(
    caption: str, draw: Callable[..., str], *args: object, **kwargs: object
) -> str:
    if _missing_plots():
        return ""
    try:
        picture = draw(*args, **kwargs)
    except NothingToPlotError:
        return ""
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>\n"


def _missing_plots() -> str:
    try:
        with style():
            return ""
    except MissingDependencyError as error:
        return str(error)
