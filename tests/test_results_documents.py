"""The tables of the results pages have the numbers of their CSV files."""

import csv
import re
from decimal import Decimal
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
PAGES = sorted(page.stem for page in RESULTS.glob("*.md") if page.stem != "index")
#: Names of data in the output of `dualqml reproduce`, and on the pages.
NAMES = {
    "ar": "AR",
    "pie": "PIE",
    "feret": "FERET",
    "feret:distinct": "FERET (distinct)",
    "polyu_palm": "PolyU palms",
    "iitd_ear": "IITD ears",
    "orl": "ORL",
}
#: Tables without a file are small. There are at least so many others on a page.
TABLES = {
    "accuracy": 10,
    "competitors": 3,
    "galleries": 12,
    "photographs": 4,
    "recognition": 5,
    "reproduction": 10,
    "scale": 3,
    "service": 2,
    "solver": 5,
}
NUMBER = re.compile(r"(?<![\w^.-])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\d)")


def cells_of(line):
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def tables_of(text):
    """(file, name of its tab or None, head, rows) of each table with a download.

    A file belongs to all tables above it, up to the next heading or file. Tables above
    the comment "% no file" are left out.
    """
    waiting, tab, lines = [], None, text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(("#", "% no file")):
            waiting, tab = [], None
        elif found := re.match(r":::\{tab-item\} (.+)", line):
            tab = found[1]
        elif line.startswith("::::"):
            tab = None
        elif found := re.search(r"\{download\}`[^<]*<tables/(\w+\.csv)>`", line):
            yield from ((found[1], *table) for table in waiting)
            waiting = []
        elif re.match(r" *\|[ :|-]+\|$", line):
            rows = []
            for row in lines[number + 1 :]:
                if not row.strip().startswith("|"):
                    break
                rows.append(cells_of(row))
            waiting.append((tab, cells_of(lines[number - 1]), rows))


def keys_of(label):
    """Parts of a label that a file has in different columns: 'AR, m=2'."""
    return [part for part in re.split(r", (?=m=|\d+ people|easier)", label) if part]


def read(name):
    """Rows of a file, each as (texts that a label can have, column: value)."""
    with (RESULTS / "tables" / name).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return [
        (
            {NAMES.get(value, value) for value in row.values()} | {f"m={row.get('m')}"},
            row,
        )
        for row in rows
    ]


def agree(shown, stored):
    """Whether a number of a page is one of a file, rounded as the page shows it."""
    try:
        value = Decimal(stored)
    except ArithmeticError:
        return False
    if "e" in shown:
        return Decimal(shown) == value
    step = Decimal(1).scaleb(Decimal(shown).as_tuple().exponent)
    return abs(Decimal(shown) - value) <= step / 2


def wrong_cells(file, tab, head, rows):
    """Cells of a table with a number that is not in its file, where it should be."""
    for column, *cells in zip(head[1:], *(row[1:] for row in rows), strict=True):
        stored = read(file)
        # The paper's errors are in one file for all tables.
        is_paper = column.startswith("paper: ") and column not in stored[0][1]
        if is_paper:
            stored = read("reproduction.csv")
        texts = set().union(*(known for known, _ in stored))
        # A cell may show several columns, such as "error" and "error: standard error".
        base = column.partition(", ")[0]
        columns = [name for name in stored[0][1] if name.startswith(base)]
        if is_paper:
            columns, column = ["paper_mean"], column.removeprefix("paper: ")
        for row, cell in zip(rows, cells, strict=True):
            labels = {*keys_of(row[0]), *keys_of(column), tab} & texts
            fitting = [values for known, values in stored if labels <= known]
            numbers = [
                part
                for values in fitting
                for name in (columns or values)
                for part in NUMBER.findall(values[name])
            ]
            plain = cell.replace(",", "").replace("\N{MINUS SIGN}", "-")
            for shown in NUMBER.findall(plain):
                if not any(agree(shown, number) for number in numbers):
                    yield row[0], column, cell


@pytest.mark.parametrize("page", PAGES)
def test_tables_have_the_numbers_of_their_files(page):
    tables = list(tables_of((RESULTS / f"{page}.md").read_text(encoding="utf-8")))
    assert len(tables) >= TABLES[page]
    assert [(t[0], *cell) for t in tables for cell in wrong_cells(*t)] == []
