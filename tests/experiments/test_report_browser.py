"""The report as a browser shows it, on a phone and on a desk."""

import html
import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from dualqml.experiments.open_set import evaluate_open_set
from dualqml.experiments.open_set_report import write_open_set
from dualqml.experiments.report import write_report
from dualqml.experiments.results import Results
from tests.experiments.factory import make_failure, realistic
from tests.people import make_vectors

pytest.importorskip("matplotlib")

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the browser measured at each width, and what it said on its console."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
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
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        done = subprocess.run(
            [
                browser,
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
                *("--no-first-run", "--disable-background-networking"),
                *("--disable-component-update", "--disable-sync"),
                f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
                *("--enable-logging=stderr", "--virtual-time-budget=3000"),
                "--window-size=1300,2000",
                "--dump-dom",
                f"http://127.0.0.1:{server.server_port}/around.html",
            ],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=True,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
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
    results = realistic(("orl",), (2, 4), repeats=2)
    report = write_report(results, folder / "report.html", command="dualqml x")
    return report, write_open_set(found, folder)[0]


def test_axe_finds_nothing_serious_and_tables_say_that_they_scroll(files):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no browser is installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for file in files:
            for scheme, width in (("light", 1280), ("dark", 390)):
                # The report forbids scripts; axe is one.
                context = browser.new_context(
                    bypass_csp=True,
                    color_scheme=scheme,
                    viewport={"width": width, "height": 800},
                )
                page = context.new_page()
                page.goto(file.as_uri())
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, file.name
                hints = page.evaluate(HINTS)
                # The hint is there where there is something to scroll, and only there.
                assert all(seen == scrolls for seen, scrolls in hints), file.name
                assert any(scrolls for _, scrolls in hints) == (width == 390)
                serious = [
                    (rule["id"], rule["nodes"][0]["html"][:200])
                    for rule in axe.Axe().run(page).response["violations"]
                    if rule["impact"] in ("serious", "critical")
                ]
                assert serious == [], (file.name, scheme)
                context.close()
        browser.close()


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
