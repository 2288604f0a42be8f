"""The report as a browser shows it, on a phone and on a desk."""

import html
import json
import re
import subprocess

import numpy as np
import pytest

from dualqml.experiments.open_set import evaluate_open_set
from dualqml.experiments.open_set_report import write_open_set
from dualqml.experiments.report import Mistakes, write_report
from dualqml.experiments.results import Results
from tests.browser import (
    ARGUMENTS,
    DESK,
    PHONE,
    find_browser,
    running_browser,
    serious_faults,
    served,
)
from tests.experiments.factory import make_failure, realistic
from tests.people import make_vectors

pytest.importorskip("matplotlib")

pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python.sync_playwright")

#: A sheet of A4 without its margins, at 96 pixels an inch.
PAPER = {"width": 717, "height": 1045}
WIDTHS = (375, 1200)
NASTY = '<b>&"x" averyveryverylongnamewithoutanyplacetobreakthelineatall'

# The report itself may not run scripts; a page around it may, and looks into it.
AROUND = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body>
<iframe src="report.html" style="border:0;width:375px;height:800px"></iframe>
<iframe src="report.html" style="border:0;width:1200px;height:800px"></iframe>
<pre id="found"></pre>
<script>
function measured(frame) {
  const page = frame.contentDocument;
  const box = (element) => {
    const {left, right, top, bottom, width, height} = element.getBoundingClientRect();
    return {left, right, top, bottom, width, height};
  };
  return {
    width: page.documentElement.scrollWidth,
    room: page.documentElement.clientWidth,
    bold: page.querySelectorAll("b").length,
    images: [...page.images].map((image) => image.naturalWidth),
    regions: [...page.querySelectorAll(".scroll")].map((region) => [
      region.getAttribute("aria-label"), region.scrollWidth, region.clientWidth]),
    plots: [...page.querySelectorAll("svg")].map((svg) => ({
      label: svg.getAttribute("aria-label"),
      box: box(svg),
      texts: [...svg.querySelectorAll("text")].map((text) => ({
        text: text.textContent,
        size: parseFloat(getComputedStyle(text).fontSize)
          * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width,
        box: box(text)}))})),
  };
}
addEventListener("load", () => {
  console.log("the console is heard");
  document.getElementById("found").textContent = JSON.stringify(
    [...document.querySelectorAll("iframe")].map(measured));
});
</script></body></html>
"""


HINTS = """[...document.querySelectorAll(".scroll")]
  .filter((frame) => frame.checkVisibility())
  .map((frame) => [
    getComputedStyle(frame, "::before").visibility == "visible",
    frame.scrollWidth > frame.clientWidth])"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the browser measured at each width, and what it said on its console."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no browser is installed")
    folder = tmp_path_factory.mktemp("report")
    runs = realistic(("ar", "feret:distinct", NASTY), (2, 4, 6, 8), repeats=3)
    failure = make_failure("MLE", 3, "ValueError: " + 40 * "no_space_in_it")
    write_report(
        Results([*runs.by_unit.values(), failure]),
        folder / "report.html",
        command="dualqml " + 40 * "--option=value",
        facts={"ar": {"citation": 9 * "unbroken", "skipped": [30 * "file"]}},
        faces={"ar": np.zeros((10, 32, 32), dtype=np.uint8)},
    )
    (folder / "around.html").write_text(AROUND, encoding="utf-8")
    with served(folder) as address:
        done = subprocess.run(
            [
                *(browser, "--headless", *ARGUMENTS),
                f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
                *("--enable-logging=stderr", "--virtual-time-budget=3000"),
                "--window-size=1300,2000",
                "--dump-dom",
                f"{address}around.html",
            ],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=True,
        )
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page was not measured:\n{done.stderr[-2000:]}"
    measured = json.loads(html.unescape(found[1]))
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return dict(zip(WIDTHS, measured, strict=True)), console


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A report of an experiment and one of an open-set evaluation."""
    folder = tmp_path_factory.mktemp("both")
    found = evaluate_open_set(
        *make_vectors(12, 5, size=20, noise=0.9), m=3, repeats=2, fpir=0.1
    )
    results = realistic(("orl",), (2, 4, 6, 8), repeats=2)
    wrong = Mistakes("Some are wrong.", np.zeros((4, 3, 32, 32), dtype=np.uint8))
    report = write_report(
        results, folder / "report.html", command="dualqml x", mistakes=[wrong]
    )
    return report, write_open_set(found, folder)[0]


@pytest.fixture
def opened(files):
    """A function that opens both reports in a window of some size and theme."""
    if find_browser() is None:
        pytest.skip("no browser is installed")
    with running_browser() as browser:

        def open_both(size, scheme="light", medium="screen"):
            for file in files:
                # The report forbids scripts; axe is one.
                context = browser.new_context(
                    bypass_csp=True, color_scheme=scheme, viewport=size
                )
                page = context.new_page()
                page.emulate_media(media=medium)
                page.goto(file.as_uri())
                yield page
                context.close()

        yield open_both


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_axe_finds_nothing_serious_and_tables_say_that_they_scroll(
    opened, size, scheme
):
    for page in opened(size, scheme):
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], page.url
        hints = page.evaluate(HINTS)
        # The hint is there where there is something to scroll, and only there.
        assert all(seen == scrolls for seen, scrolls in hints), page.url
        assert any(scrolls for _, scrolls in hints) == (size is PHONE)
        assert serious_faults(page) == [], page.url


def test_on_a_phone_names_of_rows_stay_and_leave_room(opened):
    for page in opened(PHONE):
        scrolled = 0
        for frame in page.locator(".scroll:visible").all():
            frame.evaluate("frame => frame.scrollTo(1000, 0)")
            scrolled += frame.evaluate("frame => frame.scrollLeft > 100")
            left = frame.bounding_box()["x"]
            names = [frame.locator("thead th").first]
            names += frame.locator("tbody th").all()
            for name in names:
                box = name.bounding_box()
                assert abs(box["x"] - left) <= 1, name.inner_text()
                assert box["width"] < 0.5 * PHONE["width"], name.inner_text()
            # Names of methods are in one line.
            for name in frame.locator("tbody th span").all():
                if name.inner_text() in ("DualQML-W", "DualQML (max)"):
                    assert name.bounding_box()["height"] < 30
        assert scrolled >= 2, page.url


def test_mistakes_use_the_width_of_a_phone(opened):
    page = next(iter(opened(PHONE)))
    boxes = [image.bounding_box() for image in page.locator(".mistakes img").all()]
    assert len(boxes) == 4
    assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"] == boxes[3]["y"]


def test_on_paper_tables_are_whole_and_nothing_scrolls(opened):
    for page in opened(PAPER, medium="print"):
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PAPER["width"], page.url
        hints = page.evaluate(
            """[...document.querySelectorAll(".scroll")].map(
              (frame) => getComputedStyle(frame, "::before").content)"""
        )
        assert set(hints) == {"none"}


@pytest.fixture(params=WIDTHS)
def view(request, shown):
    return request.param, shown[0][request.param]


def test_the_console_has_nothing_to_say(shown):
    _, console = shown
    assert len(console) == 1, console
    assert "the console is heard" in console[0]


def test_the_page_does_not_scroll_sideways(view):
    width, page = view
    assert 0.9 * width < page["width"] <= page["room"] <= width


def test_wide_tables_scroll_in_their_frames(shown):
    phone = shown[0][375]
    assert all(seen <= 375 for _, _, seen in phone["regions"])
    wider = [label for label, whole, seen in phone["regions"] if whole > seen]
    assert any(label.startswith("Table 1") for label in wider)


def test_all_plots_are_seen(view):
    width, page = view
    assert len(page["plots"]) == 3 * 3 + 2
    for plot in page["plots"]:
        assert plot["box"]["width"] > 300
        assert plot["box"]["height"] > 150
        assert plot["box"]["right"] <= width


def test_no_text_of_a_plot_is_cut_off(view):
    for plot in view[1]["plots"]:
        outer = plot["box"]
        for text in plot["texts"]:
            inner = text["box"]
            assert inner["left"] >= outer["left"] - 1, (plot["label"], text)
            assert inner["right"] <= outer["right"] + 1, (plot["label"], text)
            assert inner["top"] >= outer["top"] - 1, (plot["label"], text)
            assert inner["bottom"] <= outer["bottom"] + 1, (plot["label"], text)


def test_no_texts_of_a_plot_overlap(view):
    for plot in view[1]["plots"]:
        texts = plot["texts"]
        assert len(texts) > 5
        for i, one in enumerate(texts):
            for other in texts[:i]:
                a, b = one["box"], other["box"]
                across = min(a["right"], b["right"]) - max(a["left"], b["left"])
                down = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
                # Boxes of lines reach a little over their letters.
                assert min(across, down) <= 3, (plot["label"], one, other)


def test_text_of_plots_can_be_read_on_a_phone(shown):
    sizes = [text["size"] for plot in shown[0][375]["plots"] for text in plot["texts"]]
    assert min(sizes) >= 9.5


def test_images_are_shown_in_spite_of_the_policy(view):
    assert view[1]["images"] == [10 * 33 - 1]


def test_names_are_no_elements(view):
    assert view[1]["bold"] == 0
