# SPDX-License-Identifier: BSD-3-Clause
"""The report of an open-set evaluation: table, plots and page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualqml._files import write_text
from dualqml.evaluation import (
    CMCDisplay,
    DETDisplay,
    OpenSetDisplay,
    cmc_curve,
    rule_of_three,
)
from dualqml.exceptions import MissingDependencyError
from dualqml.experiments.explanations import terms
from dualqml.experiments.labels import database_label
from dualqml.experiments.open_set import (
    CLASS_MEAN,
    MEASURES,
    NEAREST,
    OF_DESCRIPTORS,
    OpenSetEvaluation,
    Trial,
    threshold_table,
)
from dualqml.experiments.plots import WIDTH, style, to_svg
from dualqml.experiments.report import (
    Plot,
    describe_data,
    describe_size,
    render_commands,
    render_page,
)
from dualqml.experiments.table_formats import Cell, Heading, Row, Table, to_markdown
from dualqml.experiments.templates import render
from dualqml.extractors.methods import ALL_METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWER_NOTE = (
    "{0} {1}s of each person were asked for. Of a person with no more {1}s, all but "
    "one are enrolled, and the last is searched for."
)
_NO_DEVIATION_NOTE = (
    "Without ±: the same in all divisions, so its noise is not known. More divisions "
    "or more people would show it."
)

_TERMS_OF_PROTOCOL = ("enrolled people, strangers", "mated, non-mated search")
_TERMS_OF_ERRORS = (
    *("rank-1 error", "FMR", "FNMR", "EER", "FPIR", "FNIR", "FNIR at FPIR 1 %"),
    "people drawn anew",
)

#: The simple methods, by the names that they have in experiments.
_NAMES_IN_EXPERIMENTS = {NEAREST: "NN-cosine", CLASS_MEAN: "Mean-cosine"}

_CMC_CAPTION = (
    "Share of the mated searches whose person is among the first k of the list (CMC), "
    "in the first division. There is no threshold here. The highest curve is the best."
)
_DET_CAPTION = (
    "One-to-one comparisons: false non-match rate against false match rate (DET), in "
    "the first division. The impostors are the strangers, compared with every enrolled "
    "person. Each point of a curve is one threshold. The lowest curve is the best."
)
_OPEN_SET_CAPTION = (
    "Searches with strangers among them: the share of the enrolled who are not found "
    "(FNIR) against the share of the strangers who find somebody (FPIR), in the first "
    "division. Each point of a curve is one threshold. The lowest curve is the best; "
    "at the left, few strangers are taken for somebody."
)

_COLOURS = ("#c1440e", "#2f6db5", "#8c8c8c", "#3b8f5a", "#9a63b0")


def open_set_table(found: OpenSetEvaluation) -> Table:
    """All measures of all rows.

    Parameters
    ----------
    found : OpenSetEvaluation
        What was measured.

    Returns
    -------
    Table
        Means over the divisions and their standard errors, in per cent. The lowest
        of a column is bold.
    """
    values = {
        row: {measure: found.values(row, measure) for measure in MEASURES}
        for row in found.trials
    }
    lowest = {
        measure: min(round(values[row][measure].mean(), 2) for row in values)
        for measure in MEASURES
    }
    rows, alike = [], False
    for row, measured in values.items():
        cells = []
        for measure, each in measured.items():
            mean = round(float(each.mean()), 2)
            detail = ""
            if np.ptp(each) > 0.0:
                detail = f"± {each.std(ddof=1) / np.sqrt(each.size):.2f}"
            else:
                alike = alike or each.size > 1
            cells.append(Cell(f"{mean:.2f}", mean == lowest[measure], detail))
        rows.append(Row(row, tuple(cells)))
    first = next(iter(found.trials.values()))
    n_searches = first[0].nonmated.shape[0]
    notes = []
    if _has_fewer(found):
        notes.append(_FEWER_NOTE.format(found.m, found.sample_word))
    if alike:
        notes.append(_NO_DEVIATION_NOTE)
    if rule_of_three(n_searches) > 0.01:
        notes.append(
            f"{n_searches} non-mated searches are too few to speak of an FPIR of 1 %: "
            f"with no error among them it could be "
            f"{100 * rule_of_three(n_searches):.1f} %."
        )
    return Table(
        title=(
            f"{database_label(found.name)}: {found.n_enrolled} people enrolled with "
            f"{found.samples_in_words()}, {found.n_strangers} strangers; errors in %"
        ),
        corner="Score",
        header=(tuple(Heading(measure) for measure in MEASURES),),
        rows=tuple(rows),
        align="l" + "r" * len(MEASURES),
        notes=(
            "One random division. Bold: the lowest of a column."
            if len(first) == 1
            else f"Means over {len(first)} random divisions, ± their standard errors. "
            "Bold: the lowest of a column.",
            "Lower is better in all columns.",
            f"In the first division: {first[0].codes.size} mated and {n_searches} "
            "non-mated searches.",
            *notes,
        ),
    )


def write_open_set(
    found: OpenSetEvaluation,
    folder: Path,
    *,
    command: str | None = None,
    citation: str = "",
) -> tuple[Path, str]:
    """Write the table and a page with plots.

    Parameters
    ----------
    found : OpenSetEvaluation
        What was measured.
    folder : Path
        The folder of the files.
    command : str, optional
        The command that repeats the evaluation.
    citation : str, optional
        How to cite the data.

    Returns
    -------
    report : Path
        The page.
    text : str
        The tables in Markdown.
    """
    name = database_label(found.name)
    table = open_set_table(found)
    text, checked = to_markdown(table), None
    if any(found.thresholds):
        checked = threshold_table(name, found.thresholds)
        text = f"{text}\n{to_markdown(checked)}"
    write_text(folder / "open-set.md", text)
    own = next(iter(found.trials))
    rates = [
        f"FNIR of {own} at FPIR {100 * fpir:.0f} % in the first division: "
        f"{_with_interval(found, own, fpir)}"
        # One stranger alone does not tell how strangers differ.
        for fpir in ((0.1, 0.01) if found.n_strangers > 1 else ())
    ]
    described = any(row.endswith(OF_DESCRIPTORS) for row in found.trials)
    protocol = render(
        "protocol.html",
        sentences=_protocol(found, own, citation),
        methods=_methods_table(found),
        terms=terms(*_TERMS_OF_PROTOCOL, *["local descriptors"] * described),
    )
    errors = render(
        "open_set_errors.html",
        table=table,
        rates=rates,
        terms=terms(*_TERMS_OF_ERRORS),
    )
    sections = [
        ("protocol", "Data, protocol and methods", protocol),
        ("errors", "Errors", errors),
        (
            "cmc",
            "Identification among the enrolled",
            _plot(found, "CMC", _draw_cmc, _CMC_CAPTION, terms("CMC", sample="sample")),
        ),
        (
            "det",
            "Verification",
            _plot(found, "DET", _draw_det, _DET_CAPTION, terms("DET")),
        ),
        (
            "strangers",
            "Strangers",
            _plot(found, "open set", _draw_open_set, _OPEN_SET_CAPTION, (), checked),
        ),
        ("repeat", "How to repeat it", render_commands(command)),
    ]
    page = render_page(f"Recognition of {name}", sections)
    report = folder / "open-set.html"
    write_text(report, page)
    return report, text


def _protocol(found: OpenSetEvaluation, own: str, citation: str) -> list[str]:
    """How the errors were measured."""
    n_divisions = len(found.trials[own])
    how_often = (
        "In one random division of the people"
        if n_divisions == 1
        else f"In each of {n_divisions} random divisions of the people"
    )
    size = describe_size(_facts(found))
    return [
        *([describe_data(found.name, size, citation)] if size else []),
        f"{how_often}, {found.n_enrolled} are enrolled, with "
        f"{found.samples_in_words()}. The gallery knows nothing of the strangers "
        f"({found.n_strangers}). The other samples of the enrolled are the mated "
        "searches, and all samples of the strangers are the non-mated ones.",
        f"{own} is the recogniser of this package; the other rows are simple methods "
        "that compare the same images or vectors.",
    ]


def _facts(found: OpenSetEvaluation) -> dict[str, Any]:
    """The sizes of the data, as `describe_size` takes them."""
    if not found.n_samples:
        return {}
    known: dict[str, Any] = {"subjects": found.n_people}
    if len(found.sample_shape) == 1:
        (n_features,) = found.sample_shape
        return known | {"vectors": found.n_samples, "features": n_features}
    return known | {"images": found.n_samples, "size": found.sample_shape[:2]}


def _methods_table(found: OpenSetEvaluation) -> Table:
    """Full names and references of the rows, as in reports of experiments."""
    rows = []
    for row in found.trials:
        simple = row.removesuffix(OF_DESCRIPTORS)
        method = ALL_METHODS.get(_NAMES_IN_EXPERIMENTS.get(simple, simple))
        title, reference = (method.title, method.reference) if method else (row, "")
        if row != simple:
            title += ", on local descriptors"
        rows.append(Row(row, (Cell(title), Cell(reference))))
    return Table(
        title="Methods",
        corner="Score",
        header=((Heading("Full name"), Heading("Reference")),),
        rows=tuple(rows),
        align="lpp",
    )


def _has_fewer(found: OpenSetEvaluation) -> bool:
    """Whether somebody was enrolled with fewer images than asked for."""
    return any(count < found.m for each in found.images_each for count in each)


def _with_interval(found: OpenSetEvaluation, row: str, fpir: float) -> str:
    """A rate and its interval, or why there is none."""
    interval = found.interval(row, fpir)
    rate = f"{100 * interval.estimate:.1f} %"
    if interval.low < interval.high:
        ends = f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"
        return f"{rate} (95 % interval {ends}, people drawn anew)"
    text = f"{rate} (no interval: it is the same for all people, however drawn)"
    if interval.estimate == 0.0:
        n_people = np.unique(found.trials[row][0].codes).size
        text += (
            f"; with no error among {n_people} people it could be "
            f"{100 * rule_of_three(n_people):.0f} %"
        )
    return text


def _plot(
    found: OpenSetEvaluation,
    what: str,
    draw: "Callable[[Axes, str, Trial, dict[str, Any]], None]",
    caption: str,
    defined: Sequence[tuple[str, str]],
    table: Table | None = None,
) -> str:
    """A figure of the first division with a curve for each row, above a table."""
    figure, why_not = None, ""
    try:
        figure = Plot(_curves(found, what, draw), caption)
    except MissingDependencyError as error:
        why_not = str(error)
    return render(
        "open_set_plot.html",
        figure=figure,
        why_no_plots=why_not,
        terms=defined,
        table=table,
    )


def _curves(
    found: OpenSetEvaluation,
    what: str,
    draw: "Callable[[Axes, str, Trial, dict[str, Any]], None]",
) -> str:
    """The curves of the first division as an ``svg`` element."""
    with style():
        from matplotlib.figure import Figure

        n_lines = len(found.trials)
        figure = Figure(figsize=(WIDTH, 3.4 + 0.2 * n_lines), layout="constrained")
        ax = figure.subplots()
        for (row, trials), colour in zip(found.trials.items(), _COLOURS, strict=False):
            # Without colours too the recogniser and the descriptors stand out.
            own = row == next(iter(found.trials))
            dashed = row.endswith(OF_DESCRIPTORS)
            line = {"color": colour, "linewidth": 2.4 if own else 1.4}
            draw(ax, row, trials[0], line | {"linestyle": "--" if dashed else "-"})
        # Below the axes, where no curve runs.
        if legend := ax.get_legend():
            legend.remove()
        figure.legend(loc="outside lower center", ncols=1)
        label = f"{what} of {database_label(found.name)}"
        return to_svg(figure, name=what, label=label)


def _draw_cmc(ax: "Axes", row: str, trial: Trial, line: dict[str, Any]) -> None:
    rates = cmc_curve(trial.mated, trial.codes, max_rank=20)
    CMCDisplay(rates, name=row).plot(ax, **line)
    # No rate is above 100 %.
    lowest = 100.0 * min(rates[0], 0.99)
    low = min(ax.get_ylim()[0], lowest) if len(ax.lines) > 1 else lowest
    ax.set_ylim(np.floor(low), 100.0)
    ax.set_xlim(1, max(rates.size, 2))
    for drawn in ax.lines:
        # A curve at 100 % is seen whole.
        drawn.set_clip_on(False)


def _draw_det(ax: "Axes", row: str, trial: Trial, line: dict[str, Any]) -> None:
    DETDisplay.from_scores(trial.genuine, trial.impostor, name=row).plot(ax, **line)


def _draw_open_set(ax: "Axes", row: str, trial: Trial, line: dict[str, Any]) -> None:
    OpenSetDisplay.from_scores(trial.mated, trial.codes, trial.nonmated, name=row).plot(
        ax, **line
    )
