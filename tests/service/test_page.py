"""The page in a real browser, from the first run to the receipt of an erasure.

The tests of this module are one story, in order, of one service.
"""

import os
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.service.process import ServiceProcess
from tests.service.test_api import picture

playwright = pytest.importorskip("playwright.sync_api")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
#: Longest time that the page may take for one step, in milliseconds.
PATIENCE = 60_000
#: A folder for screenshots, to look at them.
SCREENSHOTS = os.environ.get("DUALQML_SCREENSHOTS")

# All tests need what those before have done.
pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ServiceProcess(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no browser is installed")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def context(browser, service):
    found = browser.new_context(viewport=DESK, base_url=service.url)
    found.set_default_timeout(PATIENCE)
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(context, service):
    """A page that notes what it must not do: errors, and requests to other hosts."""
    found = context.new_page()
    found.faults = []
    watch(found, service.url)
    return found


def watch(page, url):
    def console(line):
        # The browser itself notes answers that are no success.
        if line.type == "error" and "status of 4" not in line.text:
            page.faults.append(line.text)

    def request(sent):
        if not sent.url.startswith((url, "blob:", "data:")):
            page.faults.append(f"request to {sent.url}")

    page.on("console", console)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("request", request)


def shot(page, name):
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)


def gallery_of(page):
    return page.url.split("/g/")[1].split("/")[0]


def go(page, screen):
    page.goto(f"/g/{gallery_of(page)}/{screen}")


def test_nothing_is_shown_without_a_key(page):
    page.goto("/")
    page.wait_for_url("**/login")
    page.get_by_label("Key").fill("dualqml_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This key is not valid").wait_for()
    shot(page, "login")


def test_the_first_run_loads_the_demo(page, service):
    page.get_by_label("Key").fill(service.key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Load the demo gallery").click()
    page.wait_for_url("**/g/**")
    page.faults.clear()
    go(page, "people")
    page.get_by_text("ORL person 01").wait_for()
    page.locator("#people img").first.wait_for()
    shot(page, "people")


def test_a_picture_of_the_demo_is_recognised(page):
    go(page, "try")
    page.locator("#demo-strip button").first.click()
    page.locator("#faces h3", has_text="ORL person 01").first.wait_for()
    assert page.locator("#faces svg").count() >= 1
    shot(page, "try-match")


def test_a_stranger_of_the_demo_is_unknown(page):
    page.locator("#demo-strip button").last.click()
    page.locator("#faces h3", has_text="nknown").first.wait_for()
    shot(page, "try-unknown")


def test_a_stranger_gets_a_name(page):
    go(page, "strangers")
    page.get_by_role("button", name="Name the stranger").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the new person").fill("Vera Voss")
    shot(page, "strangers-name")
    dialog.get_by_role("button", name="Give the name").click()
    go(page, "people")
    page.get_by_label("Search for a name").fill("Vera")
    page.get_by_text("Vera Voss").wait_for()


def test_people_are_added_from_files_and_refused_files_say_why(page, tmp_path):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(picture(35, 1))
    bad.write_bytes(b"this is not a picture")
    go(page, "add")
    page.get_by_label("Name of the new person").fill("Nina New")
    page.locator("#add-file").set_input_files([good, bad])
    page.locator("#enrol").click()
    outcomes = page.locator("#outcome-list li")
    outcomes.nth(1).wait_for()
    text = page.locator("#outcomes").inner_text()
    assert "good.png" in text
    assert "not an image" in text
    shot(page, "add")


def test_the_threshold_moves(page):
    go(page, "threshold")
    rate = page.locator("#rate")
    rate.wait_for()
    before = page.locator("#figure-threshold").inner_text()
    rate.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    after = page.locator("#figure-threshold").inner_text()
    assert before != after
    shot(page, "threshold")
    page.locator("#apply").click()
    page.wait_for_function(
        "t => document.querySelector('#figure-threshold').innerText.trim() !== ''",
        arg=None,
    )


def test_the_gallery_is_checked_and_evaluated(page):
    go(page, "people")
    page.get_by_role("button", name="Check the gallery").click()
    page.locator("#health").get_by_text("checked", exact=False).first.wait_for()
    shot(page, "people-checked")
    go(page, "evaluation")
    page.get_by_role("button", name="valuat").first.click()
    page.locator("svg").nth(1).wait_for()
    shot(page, "evaluation")


def test_a_person_is_erased_with_a_receipt(page):
    go(page, "people")
    page.get_by_label("Search for a name").fill("Vera")
    page.get_by_text("Vera Voss").first.click()
    page.get_by_role("button", name="Erase this person").click()
    dialog = page.get_by_role("dialog")
    shot(page, "erase")
    dialog.get_by_role("button", name="Erase", exact=False).last.click()
    page.get_by_text("digest", exact=False).first.wait_for()
    shot(page, "receipt")
    go(page, "erasures")
    page.get_by_text("subject", exact=False).first.wait_for()
    shot(page, "erasures")


SCREENS = ("people", "add", "try", "strangers", "threshold", "evaluation", "erasures")


def settled(page):
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(100)


def test_every_screen_fits_a_phone(page):
    page.set_viewport_size(PHONE)
    for screen in SCREENS:
        go(page, screen)
        settled(page)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], screen
        shot(page, f"phone-{screen}")
    gallery = gallery_of(page)
    page.goto("/settings")
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    shot(page, "phone-settings")
    page.goto(f"/g/{gallery}/people")
    page.set_viewport_size(DESK)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, scheme):
    page.emulate_media(color_scheme=scheme)
    gallery = gallery_of(page)
    found = {}
    for path in [f"/g/{gallery}/{screen}" for screen in SCREENS] + ["/settings"]:
        page.goto(path)
        settled(page)
        serious = [
            (rule["id"], rule["nodes"][0]["html"][:200])
            for rule in Axe().run(page).response["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
        if serious:
            found[path.rpartition("/")[2]] = serious
        shot(page, f"{scheme}-{path.rpartition('/')[2]}")
    page.goto(f"/g/{gallery}/people")
    assert found == {}


def test_nothing_was_said_to_other_hosts_and_no_error_was_shown(page):
    assert page.faults == []


def test_the_page_can_be_left(page):
    page.goto("/settings")
    settled(page)
    page.get_by_role("button", name="Sign out").first.click()
    page.wait_for_url("**/login")
    page.goto("/settings")
    page.wait_for_url("**/login?next=*")
