"""The checks of the built documentation find what is wrong, and nothing else."""

import pytest

from scripts import check_pages, check_site
from tests.browser import find_browser

HEAD = (
    '<!DOCTYPE html><html lang="en"><head><title>A page</title>'
    '<link rel="icon" href="data:,"></head>'
)
#: Two pages without a fault.
SITE = {
    "index": '<main><h1>Start</h1><p><a href="next.html#here">Next</a></p></main>',
    "next": '<main><h1 id="here">Next</h1><p>Some words.</p></main>',
}


def build(folder, **changed):
    """Write the pages, some of them changed."""
    for name, body in (SITE | changed).items():
        page = f"{HEAD}<body>{body}</body></html>"
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ('<a href="gone.html">x</a>', "gone.html"),
        ('<a href="next.html#gone">x</a>', "next.html#gone"),
        (
            '<script src="https://example.org/x.js"></script>',
            "https://example.org/x.js",
        ),
        ('<p style="background: url(//example.org/x.png)">x</p>', "example.org/x.png"),
    ],
)
def test_links_that_lead_nowhere_and_what_is_loaded_from_elsewhere(
    tmp_path, body, what, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["check_site.py", str(build(tmp_path))])
    assert check_site.main() == 0
    build(tmp_path, index=body)
    assert check_site.main() == 1
    assert what in capsys.readouterr().out


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    if find_browser() is None:
        pytest.skip("no browser is installed")
    pytest.importorskip("playwright.sync_api")
    return build(tmp_path_factory.mktemp("site"))


def test_a_good_site_has_no_findings(good, capsys):
    assert check_pages.main([str(good)]) == 0
    assert "2 pages: nothing is wrong." in capsys.readouterr().out


def test_each_rule_finds_its_fault(good, tmp_path, capsys):
    bodies = {
        "request": '<img alt="x" src="http://192.0.2.1/x.png">',
        "missing": '<link rel="stylesheet" href="gone.css">',
        "image": '<img alt="x" src="gone.png">',
        "console": "<script>throw Error('oh')</script>",
        "sideways": '<div style="width: 500px">x</div>',
        "axe": '<p style="color: #999; background: #aaa">pale</p>',
    }
    pages = {
        rule: f"<main><h1>Page</h1>{fault}</main>" for rule, fault in bodies.items()
    }
    assert check_pages.main([str(build(tmp_path, **pages)), "index", *pages]) == 1
    found = capsys.readouterr().out.splitlines()
    rules = {(line.split(": ")[0], line.split(": ")[1].split()[0]) for line in found}
    assert {(rule, rule) for rule in bodies} <= rules
    # What cannot be loaded cannot be drawn either.
    more = rules - {(rule, rule) for rule in bodies}
    assert more <= {("request", "image"), ("image", "missing")}


def test_without_a_site(tmp_path, capsys):
    assert check_pages.main([str(tmp_path)]) == 1
    assert "build the documentation first" in capsys.readouterr().out
