# SPDX-License-Identifier: BSD-3-Clause
"""A table without a format, and how it is written as Markdown, LaTeX, CSV and HTML."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dualqml._text import csv_field
from dualqml.experiments.templates import render

#: The text of an empty cell.
MISSING = "\N{EN DASH}"

#: How characters are written in LaTeX that it would take for commands, or not have.
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    # After a line break these would be read as its options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    MISSING: "--",
    "\N{MINUS SIGN}": "$-$",
} | {char: f"\\{char}" for char in "{}$&#_%"}


class Heading(NamedTuple):
    """A heading over one or more columns."""

    text: str
    span: int = 1


class Cell(NamedTuple):
    """A cell.

    Attributes
    ----------
    text : str
        Its text.
    bold : bool
        Whether the text is bold, because it is the best of its column.
    detail : str
        More text behind it, never bold.
    aside : str
        More text behind that, in smaller print.
    """

    text: str = MISSING
    bold: bool = False
    detail: str = ""
    aside: str = ""


class Row(NamedTuple):
    """A row: its heading and its cells."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    title : str
        What it shows.
    corner : str
        Heading of the first column, which has the labels of the rows.
    header : tuple of tuple of Heading
        Rows of headings over the other columns, the widest headings first.
    rows : tuple of Row
        The body.
    align : str
        One letter for each column, the labels of the rows first: "l" for left, "r"
        for right, or "p" for long text that is broken into lines.
    notes : tuple of str
        Sentences below the table.
    columns : tuple of str
        Names of the fields of `records`.
    records : tuple of tuple
        The content of CSV files: numbers in full precision, one record for each
        figure, None where it is missing. Without `columns`, CSV files have the text
        of the cells.

    Examples
    --------
    >>> from dualqml.experiments.table_formats import Cell, Heading, Row
    >>> from dualqml.experiments.table_formats import Table, to_markdown
    >>> table = Table(
    ...     title="Error in %",
    ...     corner="Method",
    ...     header=((Heading("AR", 2),), (Heading("m = 2"), Heading("m = 4"))),
    ...     rows=(Row("LDA", (Cell("7.31"), Cell("5.20", bold=True))),),
    ...     align="lrr",
    ... )
    >>> print(to_markdown(table))
    **Error in %**
    <BLANKLINE>
    | Method | AR, m = 2 | AR, m = 4 |
    | :--- | ---: | ---: |
    | LDA | 7.31 | **5.20** |
    <BLANKLINE>
    """

    title: str
    corner: str
    header: tuple[tuple[Heading, ...], ...]
    rows: tuple[Row, ...]
    align: str
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    records: tuple[tuple[str | float | bool | None, ...], ...] = ()

    def __post_init__(self) -> None:
        width = len(self.align) - 1
        widths = [sum(heading.span for heading in row) for row in self.header]
        widths += [len(row.cells) for row in self.rows]
        if any(found != width for found in widths):
            raise ValueError(
                f"{self.title!r} should have {width} columns beside the row headings; "
                f"its rows have {sorted(set(widths))}"
            )

    @property
    def headings(self) -> list[str]:
        """One heading for each column, that of the labels of the rows first."""
        above = [
            [heading.text for heading in row for _ in range(heading.span)]
            for row in self.header
        ]
        return [self.corner] + [
            ", ".join(filter(None, parts)) for parts in zip(*above, strict=True)
        ]


def to_markdown(table: Table) -> str:
    """Write a table in Markdown, as GitHub reads it.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        The title, the table and a list of notes.
    """

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    def shown(cell: Cell) -> str:
        text = _markdown(cell.text)
        text = f"**{text}**" if cell.bold else text
        return " ".join(filter(None, [text, *map(_markdown, cell[2:])]))

    lines = [
        f"**{_markdown(table.title)}**",
        "",
        line([_markdown(heading) for heading in table.headings]),
        line(["---:" if side == "r" else ":---" for side in table.align]),
    ]
    lines += [
        line([_markdown(row.label), *(shown(cell) for cell in row.cells)])
        for row in table.rows
    ]
    if table.notes:
        lines += ["", *(f"- {_markdown(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    r"""Write a table in LaTeX; it needs ``\usepackage{booktabs}``.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        A ``table`` environment with a caption and the notes below.
    """

    def shown(cell: Cell) -> str:
        text = _latex(cell.text)
        text = rf"\textbf{{{text}}}" if cell.bold else text
        text += f" {_latex(cell.detail)}" if cell.detail else ""
        return text + (rf" {{\scriptsize {_latex(cell.aside)}}}" if cell.aside else "")

    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        rf"\begin{{tabular}}{{{table.align.replace('p', 'p{6cm}')}}}",
        r"\toprule",
    ]
    for number, row in enumerate(table.header, start=1):
        last = number == len(table.header)
        cells = [_latex(table.corner) if last else ""]
        rules, start = [], 2
        for heading in row:
            text = _latex(heading.text)
            if heading.span > 1:
                text = rf"\multicolumn{{{heading.span}}}{{c}}{{{text}}}"
            cells.append(text)
            rules.append(rf"\cmidrule(lr){{{start}-{start + heading.span - 1}}}")
            start += heading.span
        lines.append(" & ".join(cells) + r" \\")
        if not last:
            lines.append("".join(rules))
    lines.append(r"\midrule")
    lines += [
        " & ".join([_latex(row.label), *(shown(cell) for cell in row.cells)]) + r" \\"
        for row in table.rows
    ]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_latex(note)}" for note in table.notes]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Write the numbers of a table as a CSV file.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        One line for each figure, in full precision; a missing figure is empty. Text
        that a spreadsheet would take for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if table.columns:
        writer.writerow(table.columns)
        for record in table.records:
            writer.writerow([csv_field(value) for value in record])
    else:
        writer.writerow(map(csv_field, table.headings))
        for row in table.rows:
            texts = [f"{cell.text} {cell.detail}".strip() for cell in row.cells]
            writer.writerow(map(csv_field, [row.label, *texts]))
    return out.getvalue()


def to_html(table: Table) -> str:
    """Write a table in HTML, in a frame that can be scrolled sideways.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        A ``div`` with the table and a list of the notes; all text is escaped.
    """
    return str(render("table.html", table=table))


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|&~])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)
