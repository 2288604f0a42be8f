import re
import sys
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.exceptions import DualQMLError, MissingDependencyError, NothingToPlotError
from dualqml.experiments import plots
from dualqml.experiments.plots import FONT_SIZE, INK, looks, place_labels, spread
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


@pytest.mark.parametrize("name", ["size", "cmc", "time"])
def test_all_rows_are_labelled(results, drawn, name):
    assert set(results.rows) <= set(texts(drawn[name]))


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


PLACES = st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=26)


class TestSpread:
    @given(PLACES, st.floats(0.0, 0.2))
    def test_neighbours_are_apart_and_in_order(self, wanted, gap):
        found = spread(wanted, gap, 0.0, 1.0)
        gap = min(gap, 1.0 / max(len(wanted) - 1, 1))
        ordered = found[np.argsort(wanted, kind="stable")]
        assert np.all(np.diff(ordered) >= gap - 1e-9)
        assert found.min() >= -1e-9
        assert found.max() <= 1.0 + 1e-9

    def test_what_has_room_stays(self):
        assert spread([0.9, 0.1, 0.5], 0.2, 0.0, 1.0).tolist() == [0.9, 0.1, 0.5]


class TestPlaceLabels:
    @pytest.mark.parametrize("seed", range(20))
    def test_labels_keep_clear_of_each_other(self, seed):
        rng = np.random.default_rng(seed)
        points = rng.uniform([20.0, 20.0], [270.0, 180.0], (13, 2))
        sizes = np.column_stack([rng.uniform(20.0, 75.0, 13), np.full(13, 12.0)])
        corners = place_labels(points, sizes, np.array([0.0, 0.0, 290.0, 200.0]))
        ends = corners + sizes
        for i, j in combinations(range(13), 2):
            lap = np.minimum(ends[i], ends[j]) - np.maximum(corners[i], corners[j])
            assert lap.min() <= 1e-9
        assert corners.min() >= -1e-9
        assert np.all(ends <= [290.0 + 1e-9, 200.0 + 1e-9])

    def test_a_lone_label_is_beside_its_point(self):
        corner = place_labels(
            np.array([[50.0, 50.0]]), [(20.0, 10.0)], np.array([0, 0, 99, 99])
        )
        assert corner.tolist() == [[55.0, 45.0]]
