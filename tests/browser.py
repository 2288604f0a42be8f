"""A real browser, a server of files for it, and what axe finds on a page."""

import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: It runs as root too, and asks nothing of other machines.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
#: Longest time that a page may take for one step, in milliseconds.
PATIENCE = 60_000
#: Axe tells only what is wrong, and does not load style sheets again, some of which it
#: looks for in the wrong folder.
AXE = {"resultTypes": ["violations"], "preload": False}


def find_browser():
    """Path of a browser that is installed, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def running_browser(*more):
    """The browser of `find_browser`, driven by Playwright, with more arguments."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=[*ARGUMENTS, *more]
        )
        yield browser
        browser.close()


def serious_faults(page):
    """Rules of axe that a page breaks seriously: name, number, and first place."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        (rule["id"], len(rule["nodes"]), rule["nodes"][0]["html"][:200])
        for rule in Axe().run(page, options=AXE).response["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served(folder):
    """Address of a server of the folder on this machine."""
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
