import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2 import StrictUndefined, UndefinedError, meta
from markupsafe import Markup

import dualqml
from dualqml.experiments.report import Plot
from dualqml.experiments.summary import Finding
from dualqml.experiments.table_formats import Cell, Heading, Row, Table
from dualqml.experiments.templates import environment, render
from tests.experiments.page import Page

NAMES = sorted(
    file.name
    for file in files("dualqml.experiments").joinpath("templates").iterdir()
    if file.name.endswith((".html", ".css"))
)
NASTY = "</td><script>\"'&"
TABLE = Table(
    NASTY, NASTY, ((Heading(NASTY),),), (Row(NASTY, (Cell(NASTY),)),), "ll", (NASTY,)
)

# For each template data in which all text from outside is hostile.
DATA = {
    "commands.html": {"command": NASTY},
    "data.html": {
        "sizes": TABLE,
        "fingerprints": TABLE,
        "databases": [
            {
                **dict.fromkeys(("title", "citation", "terms"), NASTY),
                **dict.fromkeys(("size", "n_copies"), NASTY),
                **{key: [NASTY] for key in ("skipped", "left_out")},
            }
        ],
    },
    "databases.html": {
        "groups": [(NASTY, [Plot("<svg></svg>", NASTY)], NASTY)],
        "terms": [(NASTY, NASTY)],
    },
    "faces.html": {
        "why_no_images": NASTY,
        "strips": [dict.fromkeys(("database", "n_images", "width", "height"), NASTY)],
    },
    "mistakes.html": {
        "why_no_images": NASTY,
        "groups": [
            {
                "said": NASTY,
                "strips": [dict.fromkeys(("png", "width", "height"), NASTY)],
            }
        ],
    },
    "open_set_errors.html": {
        "table": TABLE,
        "rates": [NASTY],
        "terms": [(NASTY, NASTY)],
    },
    "open_set_plot.html": {
        "table": TABLE,
        "figure": None,
        "why_no_plots": NASTY,
        "terms": [(NASTY, NASTY)],
    },
    "page.html": {"title": NASTY, "sections": [("a", NASTY, NASTY)]},
    "paper.html": {"oddities": [NASTY]},
    "protocol.html": {
        "sentences": [NASTY],
        "methods": TABLE,
        "terms": [(NASTY, NASTY)],
    },
    "summary.html": {
        "take_home": [Finding(NASTY, (NASTY,))],
        "findings": [(NASTY, NASTY)],
        **dict.fromkeys(("n_failed", "n_units", "why_no_plots"), NASTY),
    },
    "table.html": {"table": TABLE},
    "tables.html": {
        "tables": [TABLE],
        "figures": [Plot("<svg></svg>", NASTY)],
        "terms": [(NASTY, NASTY)],
    },
    "versions.html": {"counts": {NASTY: 1, "other": 2}, "finished": [NASTY]},
}
DATA["faces.html"]["strips"][0]["png"] = NASTY


def source(name):
    return environment().loader.get_source(environment(), name)[0]


def test_escaping_is_on_for_all_templates():
    assert environment().autoescape is True
    for name in NAMES:
        # A template can switch it off for a part of itself.
        assert "autoescape" not in source(name)


def test_names_that_are_missing_are_an_error():
    assert environment().undefined is StrictUndefined
    with pytest.raises(UndefinedError, match="'command' is undefined"):
        render("commands.html")


def test_only_the_text_of_an_svg_element_is_inserted_as_it_is():
    found = [
        (name, expression.strip())
        for name in NAMES
        for expression in re.findall(r"{[{%](.*?)[%}]}", source(name), re.DOTALL)
        if "safe" in expression
    ]
    assert found == [("elements.html", "figure.svg|safe")]


def test_no_other_module_makes_markup_or_escapes_by_hand():
    made = set()
    package = Path(dualqml.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names}
                module = getattr(node, "module", None)
                if module == "html" or "html" in names or "Markup" in names:
                    made.add(file.relative_to(package).as_posix())
    assert made == {"experiments/templates/__init__.py"}


def test_data_is_known_for_every_template():
    fragments = {"elements.html", "style.css"}
    assert set(DATA) == set(NAMES) - fragments
    for name, data in DATA.items():
        asked = meta.find_undeclared_variables(environment().parse(source(name)))
        assert asked == set(data), name


@pytest.mark.parametrize("name", DATA)
def test_text_from_outside_is_text(name):
    found = render(name, **DATA[name])
    assert isinstance(found, Markup)
    assert "<script" not in found
    page = Page(found)
    shown = [element["text"] for element in page.elements]
    shown += [v for element in page.elements for v in element["attrs"].values()]
    assert any(NASTY in text for text in shown)


def test_svg_is_inserted_as_it_is():
    svg = '<svg viewBox="0 0 1 1"><title>a &amp; b</title></svg>'
    text = render("tables.html", tables=[], figures=[Plot(svg, "a & b")], terms=[])
    assert svg in text
    assert "<figcaption>a &amp; b</figcaption>" in text
