"""The photograph sections of README and guide, run as a user would run them.

The pictures are faces of ORL on a wall. A test marked `realdata` does the same with
ordinary photographs.
"""

import re
import shlex
import shutil

import numpy as np
import pytest

from dualqml.cli.main import main
from tests.photographs import load_faces, on_a_wall, real_photographs
from tests.test_documents import examples, output_of, text_of

#: What the commands of the documents end with. Photographs in "photos" show unknown
#: people too.
EXIT_CODES = {
    "train": {0},
    "identify": {0, 3},
    "check": {0, 1},
    "remove": {0},
    "calibrate": {0},
}


def section(document, title):
    """The text below a heading."""
    text = text_of(document)
    start = text.index(f"## {title}\n")
    end = text.find("\n## ", start)
    return text[start : end if end > 0 else None]


def commands(text):
    """The commands of dualqml that indented lines show, without comments."""
    lines = re.findall(r"^    (dualqml [^#\n]*)", text, re.MULTILINE)
    return [line.strip() for line in lines if "..." not in line and ": " not in line]


def run_all(lines, folder, monkeypatch):
    """Run commands in a folder, and return how each ended."""
    monkeypatch.chdir(folder)
    codes = [(line, main(shlex.split(line)[1:])) for line in lines]
    for line, code in codes:
        assert code in EXIT_CODES[line.split()[1]], line
    return dict(codes)


def save_photograph(image, path):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(on_a_wall((image, 2, 20, 40))).save(path, quality=95)


@pytest.fixture
def folder(tmp_path):
    """Six people with three photographs each, and what the documents name."""
    faces = load_faces().reshape(40, 10, 112, 92)
    names = ["Ann Lee", "Bob Fox", "Cat Roe", "Dan Poe", "Eve Low", "Flo Day"]
    for person, name in enumerate(names):
        for k in range(3):
            save_photograph(faces[person, k], tmp_path / "people" / name / f"{k}.jpg")
        save_photograph(faces[person, 5], tmp_path / "photos" / f"{name}.jpg")
    save_photograph(faces[0, 4], tmp_path / "door.jpg")
    save_photograph(faces[20, 0], tmp_path / "photos" / "stranger.jpg")
    for person in range(25, 33):
        for k in range(2):
            path = tmp_path / "strangers" / f"s{person}" / f"{k}.jpg"
            save_photograph(faces[person, k], path)
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*too few for a rate")
@pytest.mark.parametrize(
    ("document", "title", "least"),
    [
        ("README.md", "Photographs in, answers out", 5),
        ("docs/photographs.md", "From a folder to answers", 5),
    ],
)
def test_commands_of_the_documents(document, title, least, folder, monkeypatch, capsys):
    lines = commands(section(document, title))
    assert len(lines) >= least
    codes = run_all(lines, folder, monkeypatch)
    assert codes["dualqml identify people.dualqml door.jpg"] == 0
    out = capsys.readouterr()
    assert "door.jpg, face at (" in out.out
    assert "): Ann Lee (threshold" in out.out
    assert "taken for photographs" in out.err
    # The table of the folder has a header, everybody, and the stranger.
    rows = [line for line in out.out.splitlines() if line.startswith("photos/")]
    assert len(rows) == 7


@pytest.mark.filterwarnings("ignore:.*too few for a rate")
def test_other_commands_of_the_guide(folder, monkeypatch, capsys):
    train, *_ = commands(section("docs/photographs.md", "From a folder to answers"))
    lines = [train]
    for title in ("Answers", "Few people, few photographs", "What spoils a gallery"):
        lines += commands(section("docs/photographs.md", title))
    assert len(lines) == 4
    run_all(lines, folder, monkeypatch)
    out = capsys.readouterr().out
    assert "nearest enrolled photo of Ann Lee: Ann Lee/" in out
    assert "measured on 16 samples of people who are not enrolled" in out


def test_example_of_the_guide():
    load_faces()  # skips if the networks are not installed
    printed = output_of(examples("docs/photographs.md"))
    assert printed.strip() in text_of("docs/photographs.md")


@pytest.mark.realdata
@pytest.mark.parametrize("m", [4, 1])
def test_readme_on_real_photographs(m, tmp_path, monkeypatch, capsys):
    """Seven people enrolled, three strangers, no flags."""
    paths, people = real_photographs()
    names = np.unique(people).tolist()
    for name in names[:7]:
        own = [path for path in paths if path.parent.name == name]
        for path in own[:m]:
            target = tmp_path / "people" / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        for path in own[m:]:
            target = tmp_path / "photos" / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for name in names[7:]:
        shutil.copytree(paths[0].parents[1] / name, tmp_path / "strangers" / name)
    monkeypatch.chdir(tmp_path)
    train = commands(section("README.md", "Photographs in, answers out"))[0]
    # 1 where a photograph with two people is left out.
    assert main(shlex.split(train)[1:]) in (0, 1)
    capsys.readouterr()

    def answers(folder):
        main(["identify", "people.dualqml", folder, "--several", "largest", "--csv"])
        rows = capsys.readouterr().out.splitlines()[1:]
        fields = [row.split(",") for row in rows]
        return [(f[0].split("/")[1], f[7], f[8]) for f in fields]

    known = answers("photos")
    right = [person == subject for person, _, subject in known]
    assert len(known) >= 7 * (10 - m) - 2
    assert np.mean(right) >= 0.99
    unknown = [decision == "unknown" for _, decision, _ in answers("strangers")]
    # The threshold is for 1 %. One of thirty is in its interval.
    assert len(unknown) == 30
    assert np.mean(unknown) >= 29 / 30
