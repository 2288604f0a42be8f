import re
import sys
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest

from dualqml.exceptions import DualQMLError, MissingDependencyError, NothingToPlotError
from dualqml.experiments import plots
from dualqml.experiments.plots import FONT_SIZE, GREY, INK, looks
from dualqml.experiments.results import Results
from tests.experiments.factory import (
    make_failure,
    make_result,
    make_results,
    realistic,
)

matplotlib = pytest.importorskip("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"
NASTY = '<b>&"x" id="y" url(#z) $a$ -->'


@pytest.fixture(scope="module")
def results():
    return realistic(("ar", NASTY), (2, 4, 6), repeats=5)


def draw_all(results, database):
    setting = next(s for s in results.settings if s.database == database)
    return {
        "size": plots.error_against_size(results, database),
        "paired": plots.paired_differences(results),
        "cmc": plots.cmc(results, setting),
        "time": plots.time_against_error(results, setting),
        "spectrum": plots.spectrum_and_ranks(results, setting),
    }


@pytest.fixture(scope="module")
def drawn(results):
    return draw_all(results, "ar")


@pytest.fixture(params=["size", "paired", "cmc", "time", "spectrum"])
def svg(request, drawn):
    return drawn[request.param]


def texts(svg):
    return [
        "".join(element.itertext())
        for element in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def ids(svg):
    return [
        e.attrib["id"] for e in ElementTree.fromstring(svg).iter() if "id" in e.attrib
    ]


class TestElements:
    def test_it_starts_with_the_element(self, svg):
        assert svg.startswith("<svg ")
        assert "<?xml" not in svg
        assert "DOCTYPE" not in svg

    def test_text_is_text_and_large_enough(self, svg):
        sizes = re.findall(r"font[^:]*: (?:\w+ )*([\d.]+)px", svg)
        assert len(sizes) == len(texts(svg)) > 5
        # In units of the view box, which are points.
        assert {float(size) for size in sizes} == {FONT_SIZE}
        assert FONT_SIZE >= 9
        # Phones do not have the font for which the text was measured.
        assert len(re.findall(r"sans-serif[;\"]", svg)) == len(sizes)

    def test_it_is_narrow(self, svg):
        root = ElementTree.fromstring(svg)
        width, height = (float(v) for v in root.attrib["viewBox"].split()[2:])
        assert width == pytest.approx(4.5 * 72)
        assert height < 3 * width

    def test_it_is_described(self, svg):
        root = ElementTree.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert root[0].tag == f"{SVG}title"
        assert root[0].text == root.attrib["aria-label"]
        assert len(root[0].text) > 10

    def test_it_has_the_colour_of_the_text_around_it(self, svg):
        assert INK not in svg
        assert "currentColor" in svg
        assert "#ffffff" not in svg

    def test_nothing_else_is_needed(self, svg):
        assert "<style" not in svg
        assert "<image" not in svg
        assert re.findall(r'(?:href|src)="(?!#)[^"]*"', svg) == []
        assert set(re.findall(r"https?://[^\"]*", svg)) == {SVG.strip("{}")}

    def test_ids_are_there_once_and_what_is_referred_to_is_there(self, svg):
        found = ids(svg)
        assert len(set(found)) == len(found)
        pointed = set(re.findall(r"url\(#([^)]*)\)", svg))
        pointed |= set(re.findall(r'href="#([^"]*)"', svg))
        assert pointed
        assert pointed <= set(found)


def test_figures_do_not_share_ids(results, drawn):
    second = draw_all(results, NASTY)
    del second["paired"]
    found = [set(ids(svg)) for svg in (*drawn.values(), *second.values())]
    for one, other in combinations(found, 2):
        assert not one & other


def test_figures_are_the_same_every_time(results, drawn):
    assert draw_all(results, "ar") == drawn


def test_settings_of_matplotlib_are_left_alone(results):
    before = dict(matplotlib.rcParams)
    draw_all(results, "ar")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_not_used(results):
    import subprocess

    code = (
        "import sys; from tests.experiments.factory import realistic; "
        "from dualqml.experiments import plots; "
        "plots.error_against_size(realistic(('ar',), (2,), 2), 'ar'); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_shown_as_they_are(results):
    # Dollar signs are not mathematics, and quotes are not ids.
    svg = plots.paired_differences(results)
    assert f"{NASTY[:17]}\N{HORIZONTAL ELLIPSIS}, m = 2" in texts(svg)
    svg = plots.error_against_size(results, NASTY)
    assert ElementTree.fromstring(svg)[0].text.startswith(NASTY)


@pytest.mark.parametrize("name", ["日本", "bad\x00\udc80name", "_hidden", "a$b"])
def test_any_name_can_be_drawn(name, recwarn):
    draw_all(realistic((name,), (2, 4), repeats=2), name)
    assert [str(w.message) for w in recwarn] == []


def as_figures(results, database):
    """The figures themselves, before they are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "to_svg", lambda figure, **named: figure)
        return draw_all(results, database)


def with_tuned(results):
    """The same again, tuned, with other times and errors."""
    found = list(results.by_unit.values())
    tuned = [
        replace(
            result,
            unit=replace(result.unit, tuned=True),
            error=0.9 * result.error,
            fit_seconds=3e-3 * result.fit_seconds,
        )
        for result in found
    ]
    return Results([*found, *tuned])


LONG_NAME = "a name of a database that is far too long for a figure"
CASES = {
    "usual": lambda: (realistic(("ar", NASTY), (2, 4, 6), repeats=4), "ar"),
    "tuned": lambda: (with_tuned(realistic((LONG_NAME,), (2, 4), 3)), LONG_NAME),
    "few": lambda: (
        make_results({"LDA": [5.0, 7.0], "DualQML": [4.0, 5.0]}),
        "ar",
    ),
    "equal": lambda: (make_results({"LDA": [0.0, 0.0], "DualQML": [0.0, 0.0]}), "ar"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """Results and the figures of them that can be drawn."""
    results, database = CASES[request.param]()
    if request.param in ("few", "equal"):
        with_spectra = [
            replace(r, spectrum={"ranks": [1, 3], "eigenvalues": [1.0, 0.5]})
            for r in results.by_unit.values()
        ]
        results = Results(with_spectra)
    return results, as_figures(results, database)


def extents(figure):
    """Boxes of the figure, its axes with all their labels, and its legend."""
    with plots.style():
        figure.draw_without_rendering()
        (legend,) = figure.legends
        axes = [ax.get_tightbbox() for ax in figure.axes]
        return figure.bbox, axes, legend.get_window_extent()


def area_shared(one, other):
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    up = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(across, 0.0) * max(up, 0.0)


@pytest.mark.parametrize("name", ["size", "paired", "cmc", "time", "spectrum"])
class TestLegends:
    def test_it_names_every_line_and_point(self, case, name):
        results, figures = case
        (legend,) = figures[name].legends
        found = [text.get_text() for text in legend.get_texts()]
        expected = results.rows
        if name in ("paired", "spectrum"):
            expected = plots.our_rows(results)
        assert sorted(found) == sorted(expected)

    def test_no_two_entries_look_the_same(self, case, name):
        (legend,) = case[1][name].legends
        looks = [
            (handle.get_color(), handle.get_marker(), handle.get_fillstyle())
            if name != "spectrum"
            else handle.get_facecolor()
            for handle in legend.legend_handles
        ]
        assert len(set(looks)) == len(looks)

    def test_it_overlaps_nothing_and_is_not_cut(self, case, name):
        whole, axes, legend = extents(case[1][name])
        for box in (*axes, legend):
            assert box.x0 >= whole.x0
            assert box.y0 >= whole.y0
            assert box.x1 <= whole.x1
            assert box.y1 <= whole.y1
        boxes = [*axes, legend]
        for one, other in combinations(boxes, 2):
            assert area_shared(one, other) == 0.0

    def test_the_axes_keep_most_of_the_figure(self, case, name):
        whole, _, _ = extents(case[1][name])
        for ax in case[1][name].axes:
            assert ax.get_window_extent().width > 0.35 * whole.width

    def test_labels_of_ticks_do_not_overlap(self, case, name):
        figure = case[1][name]
        extents(figure)
        for ax in figure.axes:
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                boxes = [
                    tick.label1.get_window_extent()
                    for tick in axis.get_major_ticks()
                    if tick.label1.get_text() and low <= tick.get_loc() <= high
                ]
                assert boxes
                for one, other in combinations(boxes, 2):
                    assert area_shared(one, other) == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", lambda results, row: -results.errors(results.settings[2], row).mean()),
        (
            "cmc",
            lambda results, row: results.identification(results.settings[0], row)[0],
        ),
        ("time", lambda results, row: -results.errors(results.settings[0], row).mean()),
    ],
)
def test_legends_are_in_the_order_of_what_is_drawn(results, name, value):
    (legend,) = as_figures(results, "ar")[name].legends
    found = [value(results, text.get_text()) for text in legend.get_texts()]
    # The highest line is the first entry.
    assert found == sorted(found, reverse=name == "cmc")


def test_names_that_stand_out_are_bold_and_the_others_grey(results):
    (legend,) = as_figures(results, "ar")["size"].legends
    settings = [s for s in results.settings if s.database == "ar"]
    look = looks(results, settings, results.rows)
    for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
        out = look[text.get_text()].stands_out
        assert (text.get_fontweight() == "bold") == out
        assert (handle.get_color() == GREY) != out
        assert (handle.get_linewidth() < 1.0) != out


def test_ours_and_the_best_rival_stand_out(results):
    setting = results.settings[0]
    look = looks(results, [setting], results.rows)
    out = {row for row, found in look.items() if found.stands_out}
    assert out == {"DualQML", "DualQML-W", results.best_rival(setting)}
    # They are drawn last, on top.
    assert set(list(look)[-3:]) == out
    assert len({look[row].line["color"] for row in out}) == 3
    assert len({look[row].line["marker"] for row in out}) == 3


class TestErrorAgainstSize:
    def test_settings_that_differ_are_not_mixed(self):
        parts = [
            make_results({"LDA": [5.0, 6.0]}, m=m, seed=s)
            for m in (2, 4)
            for s in (0, 1)
        ]
        results = Results(r for part in parts for r in part.by_unit.values())
        first = plots.error_against_size(results, "ar")
        other = plots.error_against_size(results, "ar", like=results.settings[1])
        assert "AR, seed 0: error against" in first
        assert "AR, seed 1: error against" in other
        assert set(ids(first)).isdisjoint(ids(other))

    def test_bars_that_reach_zero(self):
        results = make_results({"LDA": [0.0, 9.0, 0.0], "DualQML": [90.0, 80.0, 70.0]})
        assert "nan" not in plots.error_against_size(results, "ar").lower()

    def test_errors_of_zero_are_drawn_on_a_linear_scale(self):
        results = make_results({"LDA": [0.0, 0.0], "DualQML": [0.0, 0.0]})
        svg = plots.error_against_size(results, "ar")
        assert "0.0" in texts(svg)

    def test_a_split_without_m(self):
        results = make_results({"LDA": [5.0], "DualQML": [4.0]}, m=0, protocol="visits")
        shown = texts(plots.error_against_size(results, "ar"))
        assert "visits" in shown
        assert {"LDA", "DualQML"} <= set(shown)


class TestNothingToPlot:
    def test_no_results(self):
        with pytest.raises(NothingToPlotError, match="no finished results"):
            plots.error_against_size(Results([]), "ar")
        with pytest.raises(DualQMLError):
            plots.paired_differences(Results([]))

    def test_failures_only(self):
        results = Results([make_failure()])
        for draw in (plots.cmc, plots.time_against_error, plots.spectrum_and_ranks):
            with pytest.raises(NothingToPlotError, match="AR, m = 2"):
                draw(results, results.settings[0])

    def test_one_repetition_cannot_be_compared(self):
        results = make_results({"LDA": [5.0], "DualQML": [4.0]})
        with pytest.raises(NothingToPlotError, match="two or more splits"):
            plots.paired_differences(results)

    def test_methods_without_spectra(self):
        results = make_results({"LDA": [5.0]})
        with pytest.raises(NothingToPlotError, match="no spectra"):
            plots.spectrum_and_ranks(results, results.settings[0])


def test_times_that_the_clock_did_not_see():
    results = Results(
        [make_result(fit_seconds=0.0), make_result("MFA", fit_seconds=9.0)]
    )
    svg = plots.time_against_error(results, results.settings[0])
    assert {"LDA", "MFA"} <= set(texts(svg))


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch, results):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
        plots.cmc(results, results.settings[0])


def test_labels_say_in_what_settings_differ():
    errors = {"LDA": 2 * [9.0, 8.0], "DualQML": 2 * [5.0, 4.0]}
    parts = [make_results(errors, input=name) for name in ("pixels", "local")]
    results = Results(run for part in parts for run in part.by_unit.values())
    for draw in (plots.cmc, plots.time_against_error):
        labels = [
            ElementTree.fromstring(draw(results, setting)).get("aria-label")
            for setting in results.settings
        ]
        assert labels[0].startswith("AR, pixels, m = 2: ")
        assert labels[1].startswith("AR, local descriptors, m = 2: ")
