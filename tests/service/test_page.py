"""The page in a real browser, from the first run to the receipt of an erasure.

Its steps are one story of one service, each on what those before have left. So they are
one test.
"""

import inspect
import io
import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.browser import (
    DESK,
    PATIENCE,
    PHONE,
    find_browser,
    running_browser,
    serious_faults,
)
from tests.service.process import ServiceProcess
from tests.service.test_api import picture

pytest.importorskip("playwright.sync_api")

#: A camera that shows a moving figure, and needs no permission.
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
#: A folder for screenshots, to look at them.
SCREENSHOTS = os.environ.get("DUALQML_SCREENSHOTS")

#: The steps of the story, in order.
STEPS = []


def step(function):
    STEPS.append(function)
    return function


@pytest.fixture
def service(tmp_path):
    with ServiceProcess(tmp_path) as running:
        yield running


@pytest.fixture
def browser():
    if find_browser() is None:
        pytest.skip("no browser is installed")
    with running_browser(*CAMERA) as found:
        yield found


@pytest.fixture
def context(browser, service):
    found = browser.new_context(viewport=DESK, base_url=service.url)
    found.set_default_timeout(PATIENCE)
    yield found
    found.close()


@pytest.fixture
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
    # From now on the browser hands each choice of files to the test. If this began only
    # when one is expected, a busy machine would miss the first.
    page.on("filechooser", lambda _: None)


def shot(page, name):
    if SCREENSHOTS:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)


def gallery_of(page):
    return page.url.split("/g/")[1].split("/")[0]


def open_page(page, path):
    """Open a screen, and wait until it shows all that it has."""
    page.goto(path)
    page.locator("body[data-ready]").wait_for(state="attached")
    assert page.locator("body").get_attribute("data-ready") == "yes"


def go(page, screen):
    open_page(page, f"/g/{gallery_of(page)}/{screen}")


def is_focused(locator):
    return locator.evaluate("node => node === document.activeElement")


def tab_to(page, locator, most=30):
    """Reach an element with the Tab key alone, as somebody without a mouse."""
    for _ in range(most):
        if is_focused(locator):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the Tab key does not reach {locator}")


def choose_file(page, locator, *files):
    """Give files to a field with the keyboard."""
    tab_to(page, locator)
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(files)


def two_faces():
    """A photograph of somebody who is enrolled beside a stranger."""
    whole = Image.new("L", (760, 420), 128)
    for place, person in enumerate((1, 38)):
        with Image.open(io.BytesIO(picture(person, 6))) as face:
            whole.paste(face.resize((276, 336)), (60 + 370 * place, 40))
    stream = io.BytesIO()
    whole.save(stream, "PNG")
    return stream.getvalue()


@step
def nothing_is_shown_without_a_key(page):
    page.goto("/")
    page.wait_for_url("**/login")
    assert serious_faults(page) == []
    page.get_by_label("Key").fill("dualqml_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This key is not valid").wait_for()
    shot(page, "login")


@step
def an_empty_gallery_says_what_to_do_first(page, service):
    page.get_by_label("Key").fill(service.key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Load the demo gallery").wait_for()
    assert serious_faults(page) == []
    shot(page, "start")
    page.get_by_label("Name", exact=True).fill("Front door")
    page.get_by_role("button", name="Make the gallery").click()
    page.get_by_role("link", name="Add the first person").wait_for()
    # There is nothing to search or to check.
    assert not page.get_by_label("Search for a name").is_visible()
    assert not page.get_by_role("button", name="Check the gallery").is_visible()
    shot(page, "people-empty")
    for screen in ("try", "threshold", "evaluation"):
        go(page, screen)
        page.get_by_text("gallery is empty").wait_for()


@step
def the_first_run_loads_the_demo(page):
    open_page(page, "/people?new")
    page.get_by_role("button", name="Load the demo gallery").click()
    page.wait_for_url("**/g/*/try")
    page.faults.clear()


@step
def a_picture_of_the_demo_is_recognised(page):
    # The scores are measured a moment after the demo. They come without a reload.
    page.locator("#demo-strip button").first.click()
    answer = page.locator("#face-0")
    answer.locator("h3", has_text="This is ORL person 01").wait_for()
    assert is_focused(page.locator("#answer-title"))
    assert answer.locator("circle.dot").count() == 5
    assert answer.locator("circle.dot.above").count() == 1
    assert answer.locator("line.threshold").count() == 1
    answer.get_by_role("heading", name="Why this match").wait_for()
    for group in ("strangers", "enrolled"):
        answer.locator(f"path.area.{group}[d^=M]").wait_for()
    shot(page, "try-match")


@step
def a_wrong_match_is_kept_as_a_stranger_and_discarded(page):
    page.get_by_role("button", name="Not ORL person 01").click()
    page.get_by_text("Noted: this is not ORL person 01").wait_for()
    go(page, "strangers")
    page.get_by_text("Not ORL person 01").wait_for()
    shot(page, "strangers-not")
    discard = page.get_by_role("button", name="Discard the stranger")
    discard.click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert is_focused(discard)
    discard.click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    page.get_by_text("No strangers.").wait_for()
    assert is_focused(page.locator("#new-title"))


@step
def a_stranger_of_the_demo_is_unknown(page):
    go(page, "try")
    page.locator("#demo-strip button").last.click()
    page.locator("#faces h3", has_text="Unknown").wait_for()
    shot(page, "try-unknown")


@step
def a_stranger_is_ignored_and_gets_a_name(page):
    go(page, "strangers")
    page.get_by_role("button", name="Ignore the stranger").click()
    page.get_by_role("button", name="Do not ignore the stranger").click()
    page.get_by_role("button", name="Name the stranger").click()
    dialog = page.get_by_role("dialog")
    name = dialog.get_by_label("Name of the new person")
    assert is_focused(name)
    name.fill("ORL person 01")
    dialog.get_by_role("button", name="Give the name").click()
    dialog.get_by_text("already in this gallery").wait_for()
    name.fill("Vera Voss")
    shot(page, "strangers-name")
    dialog.get_by_role("button", name="Give the name").click()
    page.get_by_text("This is Vera Voss from now on.").wait_for()
    go(page, "people")
    page.get_by_label("Search for a name").fill("Vera")
    page.get_by_text("1 person found").wait_for()
    page.get_by_role("link", name="Vera Voss").wait_for()


@step
def people_are_added_from_files_and_refused_files_say_why(page, tmp_path):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(picture(35, 1))
    bad.write_bytes(b"this is not a picture")
    go(page, "add")
    page.get_by_label("Name of the new person").fill("Nina New")
    page.locator("#add-file").set_input_files([good, bad, good])
    page.get_by_role("button", name="Leave out good.png").last.press("Enter")
    assert is_focused(page.get_by_role("button", name="Leave out bad.png"))
    dropped = page.evaluate_handle(
        """bytes => {
            const given = new DataTransfer();
            const content = new Uint8Array(bytes);
            given.items.add(new File([content], "drop.png", { type: "image/png" }));
            return given;
        }""",
        list(picture(35, 2)),
    )
    page.dispatch_event("#add-zone", "drop", {"dataTransfer": dropped})
    page.get_by_role("button", name="Add 3 pictures").click()
    outcomes = page.locator("#outcome-list li")
    outcomes.nth(2).wait_for()
    assert [text.split() for text in outcomes.locator(".badge").all_inner_texts()] == [
        ["Added"],
        ["Refused"],
        ["Added"],
    ]
    assert "bad.png" in outcomes.nth(1).inner_text()
    assert "cannot be read: not an image" in outcomes.nth(1).inner_text()
    shot(page, "add")


@step
def a_photo_of_the_camera_is_refused_if_it_shows_no_face(page):
    """Nina New is still chosen. The camera shows a figure, not a face."""
    opener = page.get_by_role("button", name="Use the camera")
    opener.click()
    take = page.get_by_role("button", name="Take the picture")
    take.wait_for()
    assert is_focused(take)
    page.wait_for_function("() => document.querySelector('video').videoWidth > 0")
    take.press("Enter")
    page.get_by_role("button", name="Leave out camera").wait_for()
    shot(page, "add-camera")
    page.get_by_role("button", name="Close the camera").click()
    assert page.locator("video").count() == 0
    assert is_focused(opener)
    page.get_by_role("button", name="Add 1 picture").click()
    page.locator("#outcome-list", has_text="No face was found").wait_for()


@step
def the_camera_is_switched_off_after_a_try(page):
    go(page, "try")
    page.get_by_role("button", name="Use the camera").click()
    page.wait_for_function("() => document.querySelector('video')?.videoWidth > 0")
    stream = page.evaluate_handle("document.querySelector('video').srcObject")
    page.get_by_role("button", name="Take the picture").click()
    page.locator("#answer", has_text="No face was found").wait_for()
    assert page.locator("video").count() == 0
    assert not stream.evaluate("one => one.active")


@step
def each_face_of_a_photograph_has_its_own_answer(page, tmp_path):
    both = tmp_path / "both.png"
    both.write_bytes(two_faces())
    go(page, "try")
    page.locator("#try-file").set_input_files(both)
    faces = page.locator("#faces article")
    faces.nth(1).wait_for()
    assert faces.locator("h3").all_inner_texts() == ["This is ORL person 01", "Unknown"]
    assert page.locator("#photo rect").count() == 2
    shot(page, "try-two-faces")
    # Each face is enrolled alone, so the two people are not mixed up.
    faces.nth(0).get_by_role("button", name="Enrol as").click()
    page.get_by_label("Person", exact=True).select_option("ORL person 01")
    page.get_by_role("button", name="Enrol", exact=True).click()
    faces.nth(0).get_by_text("Enrolled as ORL person 01").wait_for()
    faces.nth(1).get_by_role("button", name="Enrol as").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the new person").fill("Otto Other")
    dialog.get_by_role("button", name="Enrol", exact=True).click()
    faces.nth(1).get_by_text("Enrolled as Otto Other").wait_for()
    page.locator("#try-file").set_input_files(both)
    page.locator("#face-1 h3", has_text="This is Otto Other").wait_for()
    page.locator("#face-0 h3", has_text="This is ORL person 01").wait_for()
    go(page, "strangers")
    page.get_by_text("No strangers.").wait_for()


@step
def the_threshold_moves_and_is_applied(page):
    go(page, "threshold")
    rate = page.locator("#rate")
    rate.wait_for()
    figures = page.locator("#figure-threshold")
    before, interval = figures.inner_text(), page.locator("#figure-interval")
    first = interval.inner_text()
    rate.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    chosen = figures.inner_text()
    assert chosen != before
    assert interval.inner_text() != first
    assert page.locator("#figure-applied").inner_text().startswith("in use now: ")
    shot(page, "threshold")
    page.get_by_role("button", name="Apply this threshold").click()
    page.get_by_text("Applied: the threshold is").wait_for()
    # The slider stays while other rates are measured again.
    assert rate.is_visible()
    page.locator("#warnings", has_text="1 in 20 strangers").wait_for()


@step
def the_gallery_is_checked_and_evaluated(page):
    go(page, "people")
    page.get_by_role("button", name="Check the gallery").click()
    page.get_by_role("button", name="Check again").wait_for()
    shot(page, "people-checked")
    page.get_by_label("Search for a name").fill("Vera")
    vera = page.locator("#people li", has_text="Vera Voss")
    vera.locator(".badge", has_text="Few samples").wait_for()
    page.get_by_label("Search for a name").fill("Nina")
    page.get_by_role("link", name="Nina New").click()
    page.locator("#samples li", has_text=re.compile(r"Fit: .?\d")).nth(1).wait_for()
    shot(page, "person")
    go(page, "evaluation")
    page.get_by_role("button", name="Run the evaluation").click()
    page.get_by_text("The right person was first in").wait_for()
    for curve, axes in CURVES.items():
        assert page.locator(f"#{curve} path.line[d^=M]").count() == 1
        assert page.locator(f"#{curve} .axis-label").all_text_contents() == axes


#: The curves of the evaluation, with the labels of their axes.
CURVES = {
    "cmc": ["rank: among the first …", "right person found"],
    "open": ["strangers taken for somebody (FPIR)", "enrolled people missed (FNIR)"],
    "det": ["false match rate (FMR)", "false non-match rate (FNMR)"],
}

SCREENS = ("people", "add", "try", "strangers", "threshold", "evaluation", "erasures")

#: What every screen must bear. More combinations are only to be looked at.
LOOKS = [("light", DESK), ("dark", PHONE)]
if SCREENSHOTS:
    LOOKS += [("dark", DESK), ("light", PHONE)]


@step
def every_screen_fits_and_axe_finds_nothing_serious(page):
    for scheme, size in LOOKS:
        look_at_every_screen(page, scheme, size)


def look_at_every_screen(page, scheme, size):
    gallery = gallery_of(page)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(size)
    go(page, "people")
    person = page.get_by_role("link", name="Nina New").get_attribute("href")
    paths = [f"/g/{gallery}/{screen}" for screen in SCREENS]
    found = {}
    for path in [*paths, person, f"/settings?g={gallery}"]:
        open_page(page, path)
        name = "person" if path == person else path.rpartition("/")[2].partition("?")[0]
        if name == "try":
            page.locator("#demo-strip button").first.click()
            page.locator("#face-0 path.area").first.wait_for()
        if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
            found[name, "width"] = size["width"]
        if serious := serious_faults(page):
            found[name, "axe"] = serious
        shot(page, f"{scheme}-{size['width']}-{name}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    open_page(page, f"/g/{gallery}/people")
    assert found == {}


@step
def a_phone_has_a_menu(page):
    page.set_viewport_size(PHONE)
    link = page.get_by_role("navigation").get_by_role("link", name="Threshold")
    assert not link.is_visible()
    page.get_by_role("button", name="Menu").click()
    link.click()
    page.wait_for_url("**/threshold")
    page.set_viewport_size(DESK)


@step
def somebody_is_enrolled_and_tried_with_the_keyboard(page, tmp_path):
    good = tmp_path / "kay.png"
    good.write_bytes(picture(33, 1))
    go(page, "add")
    tab_to(page, page.get_by_label("Name of the new person"))
    page.keyboard.type("Kay Board")
    choose_file(page, page.locator("#add-file"), good)
    tab_to(page, page.get_by_role("button", name="Add 1 picture"))
    page.keyboard.press("Enter")
    page.get_by_text("1 sample of Kay Board was added").wait_for()
    assert is_focused(page.locator("#outcomes-title"))
    tab_to(page, page.locator("#outcomes").get_by_role("link", name="Try a photo"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/try")
    page.locator("body[data-ready=yes]").wait_for(state="attached")
    # A row of the demo is one stop of the Tab key.
    pictures = page.locator("#demo-strip button")
    tab_to(page, pictures.first, most=20)
    page.keyboard.press("ArrowRight")
    assert is_focused(pictures.nth(1))
    choose_file(page, page.locator("#try-file"), good)
    page.locator("#face-0 h3", has_text="This is Kay Board").wait_for()
    assert is_focused(page.locator("#answer-title"))


@step
def a_person_is_erased_with_a_receipt_by_the_keyboard(page):
    go(page, "people")
    tab_to(page, page.get_by_label("Search for a name"))
    page.keyboard.type("Kay")
    page.get_by_text("1 person found").wait_for()
    tab_to(page, page.get_by_role("link", name="Kay Board"))
    page.keyboard.press("Enter")
    erase = page.get_by_role("button", name="Erase this person")
    page.locator("body[data-ready=yes][data-screen=person]").wait_for(state="attached")
    tab_to(page, erase)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert is_focused(dialog.get_by_role("button", name="Cancel"))
    shot(page, "erase")
    outside = "() => document.activeElement.matches('main *, header *, footer *')"
    for _ in range(4):
        page.keyboard.press("Tab")
        assert not page.evaluate(outside)
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert is_focused(erase)
    page.keyboard.press("Enter")
    tab_to(page, dialog.get_by_role("button", name="Erase Kay Board"))
    page.keyboard.press("Enter")
    dialog.get_by_text("Digest of this receipt").wait_for()
    assert is_focused(dialog.get_by_role("button", name="Close"))
    shot(page, "receipt")
    tab_to(page, dialog.get_by_role("button", name="Download receipt"))
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    receipt = json.loads(download.value.path().read_text())
    assert receipt["counts"]["subjects"] == 1
    assert "Kay" not in json.dumps(receipt)
    tab_to(page, dialog.get_by_role("button", name="Close"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/people")
    page.get_by_label("Search for a name").fill("Kay")
    page.get_by_text("Nobody has such a name").wait_for()


@step
def erasures_and_the_audit_are_shown(page):
    go(page, "erasures")
    whats = page.locator("#erasures tbody td[data-label=What]").all_inner_texts()
    assert whats == ["A person", "A stranger"]
    page.get_by_role("button", name="Show receipt").first.click()
    page.get_by_role("dialog").get_by_text("Digest of this receipt").wait_for()
    page.keyboard.press("Escape")
    audit = page.locator("#audit")
    for text in ("A person was erased", "A match was called wrong", "key “first key”"):
        audit.get_by_text(text).first.wait_for()
    page.get_by_role("button", name="Check the chain").click()
    page.get_by_text("The chain holds").wait_for()
    shot(page, "erasures")


@step
def old_samples_are_not_erased_without_a_question(page, service):
    gallery = gallery_of(page)
    open_page(page, f"/settings?g={gallery}")
    card = page.locator("#galleries article", has_text="Demo: ORL faces")
    card.locator("summary").click()
    card.get_by_label("Days that samples are kept").fill("1")
    card.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("older than 1 day").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    with service.client() as client:
        answer = client.get(f"/v1/galleries/{gallery}").json()
    assert answer["retention_days"] is None


@step
def a_key_is_made_used_and_revoked(page, service, browser):
    page.locator("#keys-section summary").click()
    page.get_by_label("Label").fill("Door camera")
    page.get_by_role("button", name="Make the key").click()
    dialog = page.get_by_role("dialog")
    key = dialog.locator(".secret").inner_text()
    shot(page, "key")
    dialog.get_by_role("button", name="I have it").click()
    context = browser.new_context(base_url=service.url)
    context.set_default_timeout(PATIENCE)
    guest = context.new_page()
    guest.goto("/login")
    guest.get_by_label("Key").fill(key)
    guest.get_by_role("button", name="Sign in").click()
    # A key that may only identify sees no screen that it may not use.
    guest.wait_for_url("**/try")
    links = guest.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert links == ["Try a photo", "Threshold", "Settings"]
    page.get_by_role("button", name="Revoke Door camera").click()
    dialog.get_by_role("button", name="Revoke").click()
    page.get_by_text("The key Door camera is revoked").wait_for()
    assert page.locator("#keys tbody tr").count() == 1
    guest.reload()
    guest.wait_for_url("**/login?next=*")
    context.close()


@step
def a_backup_is_downloaded_imported_and_erased(page):
    with page.expect_download() as download:
        page.get_by_role("link", name="Export Front door").click()
    page.get_by_label("Import a gallery from an export").set_input_files(
        download.value.path()
    )
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text("Imported as").wait_for()
    cards = page.locator("#galleries article")
    cards.nth(2).wait_for()
    cards.last.locator("summary").click()
    cards.last.get_by_role("button", name="Erase this gallery").click()
    dialog = page.get_by_role("dialog")
    sure = dialog.get_by_role("button", name="Erase the gallery")
    assert sure.is_disabled()
    typed = dialog.get_by_label("to confirm")
    name = cards.last.locator("h3").inner_text()
    typed.fill(name)
    shot(page, "erase-gallery")
    sure.click()
    dialog.get_by_text("A whole gallery").wait_for()
    dialog.get_by_role("button", name="Close").click()
    cards.nth(2).wait_for(state="detached")


@step
def nothing_was_said_to_other_hosts_and_no_error_was_shown(page):
    assert page.faults == []


@step
def the_page_can_be_left(page):
    open_page(page, "/settings")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/settings")
    page.wait_for_url("**/login?next=*")


def test_the_story_of_the_page(page, service, browser, tmp_path):
    pytest.importorskip("cv2", reason="the demo needs it to find faces")
    known = {
        "page": page,
        "service": service,
        "browser": browser,
        "tmp_path": tmp_path,
    }
    for one in STEPS:
        names = inspect.signature(one).parameters
        try:
            one(**{name: known[name] for name in names})
        except Exception as error:
            error.add_note(f"in the step: {one.__name__}")
            raise
