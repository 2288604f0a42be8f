# SPDX-License-Identifier: BSD-3-Clause
"""Look at the built documentation in a browser, and report what is wrong.

``python -m scripts.check_pages FOLDER`` opens the pages of a folder in Chromium, at the
width of a desk and of a phone, and the most important ones in the dark too. Rules:

- request: a page loads nothing from another machine.
- missing: all that it loads is there.
- image: every image can be drawn.
- console: nothing is reported on the console, and no script fails.
- sideways: on a phone, a page does not scroll sideways. Tables and code do.
- axe: the accessibility checker axe finds nothing serious or critical.

It ends with exit code 1 if there is a finding. Of the pages of the API, which are
all alike, it opens a few. ``check_site.py`` reads all pages, without a browser.
"""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.browser import (
    DESK,
    PATIENCE,
    PHONE,
    find_browser,
    running_browser,
    serious_faults,
    served,
)

#: These pages are looked at in the dark too.
IMPORTANT = (
    "index",
    "install",
    "quickstart",
    "photographs",
    "recognition",
    "method",
    "auto_examples/index",
    "auto_examples/plot_unknown",
    "results/accuracy",
    "api/index",
)
#: One of so many pages of the API is opened.
SAMPLE = 40

#: Wait for images and formulas.
READY = """async () => {
  for (const image of document.images) image.loading = "eager";
  await document.fonts.ready;
  await window.MathJax?.startup?.promise;
  await Promise.all([...document.images].map(image => image.complete ? null :
    new Promise(done => { image.onload = image.onerror = done; })));
}"""
BROKEN_IMAGES = """() => [...document.images]
  .filter(image => image.getAttribute("src") && !image.naturalWidth)
  .map(image => image.getAttribute("src"))"""
#: Whole pages and their main text; what is inside may scroll by itself.
SIDEWAYS = """() => [document.scrollingElement,
    ...document.querySelectorAll("main, article, main *:has(article)")]
  .filter(box => box.scrollWidth > box.clientWidth + 1)
  .map(box => `${box.tagName.toLowerCase()} is ${box.scrollWidth} pixels wide`)"""


def chosen(folder: Path) -> list[str]:
    """The pages to open: all but templates, and of the API a few."""
    names = sorted(
        path.relative_to(folder).with_suffix("").as_posix()
        for path in folder.rglob("*.html")
        if "_static" not in path.relative_to(folder).parts
    )
    api = [name for name in names if name.startswith("api/generated/")]
    return sorted({*names} - {*api} | {*api[::SAMPLE]})


class Watch:
    """A tab of the browser that notes what is wrong with its page."""

    def __init__(self, context: Any, address: str) -> None:
        self.address = address
        self.faults: list[str] = []
        self.tab = context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.tab.on("console", self._console)
        self.tab.on("pageerror", lambda error: self.faults.append(f"console: {error}"))
        self.tab.on("response", self._response)
        self.tab.route("**/*", self._request)

    def _console(self, line: Any) -> None:
        # What is missing or refused is reported by its own rule.
        if line.type == "error" and "Failed to load resource" not in line.text:
            self.faults.append(f"console: {line.text}")

    def _response(self, answer: Any) -> None:
        if answer.status >= 400:
            self.faults.append(f"missing: {answer.url.removeprefix(self.address)}")

    def _request(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self.address, "data:", "blob:")):
            route.continue_()
        else:
            self.faults.append(f"request: {url}")
            route.abort()

    def findings(self, name: str) -> Iterator[str]:
        """Open a page in every view and describe everything that is wrong."""
        self.faults.clear()
        yield from self.look(name, DESK, "light")
        yield from (f"{name}: image: {src}" for src in self.tab.evaluate(BROKEN_IMAGES))
        yield from self.look(name, PHONE, "light")
        for wide in self.tab.evaluate(SIDEWAYS):
            yield f"{name}: sideways: at 390 px, {wide}"
        if name in IMPORTANT:
            yield from self.look(name, DESK, "dark")
            yield from self.look(name, PHONE, "dark")
        yield from (f"{name}: {fault}" for fault in dict.fromkeys(self.faults))

    def look(self, name: str, size: dict[str, int], theme: str) -> Iterator[str]:
        """Load the page in a window of this size and run axe."""
        self.tab.emulate_media(color_scheme=theme)
        self.tab.set_viewport_size(size)
        # Anew: at its start, a page finds out which parts scroll.
        self.tab.goto(f"{self.address}{quote(name)}.html")
        self.tab.evaluate(READY)
        for rule, number, first in serious_faults(self.tab):
            yield (
                f"{name}: axe {rule}, {size['width']} px, {theme}: "
                f"{number} times, first {first}"
            )


def problems(folder: Path, names: list[str]) -> list[str]:
    """Describe all findings of the pages that are named, with one browser."""
    with served(folder) as address, running_browser() as browser:
        context = browser.new_context(viewport=DESK, reduced_motion="reduce")
        watch = Watch(context, address)
        return [finding for name in names for finding in watch.findings(name)]


def main(arguments: list[str] | None = None) -> int:
    """Print the findings of the folder that is named; the exit code."""
    parser = argparse.ArgumentParser(description="Look at built pages in a browser.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "pages", nargs="*", help="names of pages, such as results/accuracy; default all"
    )
    options = parser.parse_args(arguments)
    if not (options.folder / "index.html").is_file():
        print(f"{options.folder} has no index.html: build the documentation first")
        return 1
    if find_browser() is None:
        print("no browser is installed: sh scripts/install-system-packages.sh")
        return 1
    names = options.pages or chosen(options.folder)
    # Two browsers: pages and axe run on one core each.
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(partial(problems, options.folder), (names[::2], names[1::2]))
        found = [finding for part in parts for finding in part]
    print("\n".join(found) if found else f"{len(names)} pages: nothing is wrong.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
