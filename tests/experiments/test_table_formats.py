import csv
import io
import re

import pytest

from dualqml.experiments import tables
from dualqml.experiments.table_formats import (
    MISSING,
    Cell,
    Heading,
    Row,
    Table,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
)
from tests.experiments.factory import realistic
from tests.experiments.page import Page

NASTY = '<b>&"x"'


@pytest.fixture
def nasty():
    """A table whose every text could be taken for markup."""
    texts = [NASTY, "a|b*c_d`e", r"50% of $x_1 {y} \z ~^#", "[1] </td>&amp;"]
    return Table(
        title=texts[0],
        corner=texts[1],
        header=((Heading(texts[2], 2),), (Heading(texts[3]), Heading(texts[0]))),
        rows=(
            Row(texts[1], (Cell(texts[2], bold=True), Cell(texts[3], False, texts[1]))),
            Row(texts[3], (Cell(), Cell("1", False, "± 2", texts[0]))),
        ),
        align="lrp",
        notes=tuple(texts),
    )


class TestFormats:
    def test_html_keeps_text_as_text(self, nasty):
        page = Page(to_html(nasty))
        allowed = {
            "div",
            "table",
            "caption",
            "span",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
        }
        allowed |= {"strong", "small", "ul", "li"}
        assert {element["tag"] for element in page.elements} == allowed
        assert page.texts("caption") == [nasty.title]
        assert page.texts("li") == list(nasty.notes)
        assert page.texts("td") == [
            nasty.rows[0].cells[0].text,
            f"{nasty.rows[0].cells[1].text} {nasty.rows[0].cells[1].detail}",
            MISSING,
            f"1 ± 2 {NASTY}",
        ]
        assert page.all("div")[1]["attrs"]["aria-label"] == nasty.title

    def test_html_says_what_headings_are_for(self, nasty):
        page = Page(to_html(nasty))
        corner, wide, *narrow, first, second = page.all("th")
        assert corner["attrs"] == {"scope": "col", "rowspan": "2"}
        assert wide["attrs"] == {"scope": "colgroup", "colspan": "2"}
        assert [th["attrs"]["scope"] for th in narrow] == ["col", "col"]
        assert first["attrs"] == second["attrs"] == {"scope": "row"}

    def test_html_can_be_scrolled_by_keyboard(self, nasty):
        attrs = Page(to_html(nasty)).all("div")[1]["attrs"]
        assert (attrs["tabindex"], attrs["role"]) == ("0", "region")

    def test_markdown_is_read_back_as_it_was(self, nasty):
        markdown = pytest.importorskip("markdown_it")
        reader = markdown.MarkdownIt("commonmark").enable("table")
        page = Page(reader.render(to_markdown(nasty)))
        assert page.texts("p")[0] == nasty.title
        assert page.texts("th") == nasty.headings
        assert page.texts("li") == list(nasty.notes)
        cells = page.texts("td")
        assert cells[0] == nasty.rows[0].label
        assert cells[1] == nasty.rows[0].cells[0].text
        assert cells[-1] == f"1 ± 2 {NASTY}"
        assert page.texts("strong") == [nasty.title, cells[1]]

    def test_latex_escapes_what_it_would_obey(self, nasty):
        text = to_latex(nasty)
        assert r"50\% of \$x\_1 \{y\} \textbackslash{}z" in text
        assert r"\textasciitilde{}\textasciicircum{}\#" in text
        assert r"\textless{}b\textgreater{}\&" in text
        # A row that starts with a bracket is not an option of the line break before.
        assert "\n{[}1{]}" in text
        bare = re.sub(r"\\.", "", text)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"[%#~^_]", bare)

    def test_latex_is_a_booktabs_table(self):
        results = realistic(("ar", "pie"), (2, 4), repeats=2)
        text = to_latex(tables.error_table(results, with_paper=True))
        lines = text.splitlines()
        assert lines[0] == r"\begin{table}"
        assert r"\begin{tabular}{lrrrr}" in lines
        assert r" & \multicolumn{2}{c}{AR} & \multicolumn{2}{c}{PIE} \\" in lines
        assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in lines
        rules = [line for line in lines if line.endswith("rule")]
        assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]
        body = [line for line in lines if line.endswith(r"\\")][2:]
        assert len(body) == 13
        assert all(line.count(" & ") == 4 for line in body)
        assert r"{\scriptsize (10.88 $\pm$ 2.1)}" in text
        assert text.count(r"\textbf{") >= 4
        assert "±" not in text

    def test_a_table_of_uneven_rows_is_refused(self):
        with pytest.raises(ValueError, match="should have 1 columns"):
            Table("t", "a", ((Heading("b", 2),),), (), "lr")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("=cmd|'/C calc'!A0", "'=cmd|'/C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "' =1"),
        ("\r=1", "' =1"),
        (" =1", "' =1"),
        ("-1.5", "-1.5"),
        ("+3", "+3"),
        (-1.5, "-1.5"),
        ("people", "people"),
        ("a=b", "a=b"),
        ("\x1b[2J", "\N{REPLACEMENT CHARACTER}[2J"),
        (None, ""),
        (float("nan"), ""),
        (True, "true"),
    ],
)
def test_text_is_no_formula_in_a_spreadsheet(value, field):
    header = ((Heading("h"),),)
    table = Table("t", "c", header, (), "lr", columns=("a",), records=((value,),))
    assert list(csv.reader(io.StringIO(to_csv(table))))[1:] == [[field]]
    if isinstance(value, str):
        row = Row(value, (Cell("1"),))
        table = Table(value, value, ((Heading(value),),), (row,), "lr")
        rows = list(csv.reader(io.StringIO(to_csv(table))))
        assert rows == [[field, field], [field, "1"]]


def test_a_table_without_records_is_written_as_shown():
    table = Table(
        "t", "a", ((Heading("b"),),), (Row("x", (Cell("1", False, "± 2"),)),), "lr"
    )
    assert to_csv(table) == "a,b\nx,1 ± 2\n"


def test_formats_can_be_imported_from_the_tables_too():
    for written in (Table, to_csv, to_html, to_latex, to_markdown):
        assert getattr(tables, written.__name__) is written
