"""The photograph sections of README and guide, run as a user would run them.

The pictures are faces of ORL on a wall. Tests marked `realdata` do the same with
ordinary photographs.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dualqml.cli.main import main
from tests.photographs import load_faces, on_a_wall, real_photographs
from tests.test_documents import NUMBER, text_of

GUIDE = "docs/photographs.md"
NAMES = ["Ann Lee", "Bob Fox", "Cat Roe", "Dan Poe", "Eve Low"]


def orl_photographs():
    """A function that gives a photograph of a person by two numbers."""
    from PIL import Image

    faces = load_faces().reshape(40, 10, 112, 92)

    def photograph(person, number, times=1.5):
        wall = on_a_wall((faces[person, number], times, 40, 60), shape=(250, 250))
        return Image.fromarray(wall).convert("RGB")

    return photograph


def ordinary_photographs():
    """The same with the real ones. Those with other people in front are left out."""
    from PIL import Image

    paths, people = real_photographs()
    _, codes = np.unique(people, return_inverse=True)

    def photograph(person, number, times=None):
        own = [path for path, code in zip(paths, codes, strict=True) if code == person]
        return Image.open(own[number]).convert("RGB")

    return photograph


def save(image, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=92)


def side_by_side(left, right):
    from PIL import Image

    both = Image.new("RGB", (500, 250))
    both.paste(left, (0, 0))
    both.paste(right, (250, 0))
    return both


def save_what_the_guide_has(photograph, folder):
    """The folders people, door and strangers of the guide."""
    from PIL import Image, ImageFilter

    for person, name in enumerate(NAMES):
        for number in range(4):
            path = folder / "people" / name / f"{number + 1}.jpg"
            save(photograph(person, number), path)
    people, door = folder / "people", folder / "door"
    nobody = Image.new("RGB", (250, 250), (120, 130, 140))
    save(photograph(1, 5), people / "Ann Lee" / "5.jpg")  # shows Bob Fox
    save(nobody, people / "Bob Fox" / "garden.jpg")
    save(
        side_by_side(photograph(2, 5), photograph(3, 5)),
        people / "Cat Roe" / "party.jpg",
    )
    damaged = people / "Dan Poe" / "5.jpg"
    save(photograph(3, 4), damaged)
    damaged.write_bytes(damaged.read_bytes()[:5000])

    save(photograph(0, 7), door / "0800.jpg")
    save(photograph(6, 0), door / "0815.jpg")
    two = side_by_side(photograph(1, 7, 1.6), photograph(4, 7, 1.4))
    save(two, door / "0830.jpg")
    blurred = photograph(2, 8).filter(ImageFilter.GaussianBlur(4))
    save(blurred, door / "0845.jpg")
    save(nobody, door / "0900.jpg")
    for person in (7, 8, 9):
        for number in range(1, 9):
            path = folder / "strangers" / f"s{person}" / f"{number}.jpg"
            save(photograph(person, number), path)


def session_of(document):
    """The commands of all terminals on a page, each with the output below it."""
    steps = []
    for block in re.findall(
        r"^```console\n(.*?)^```", text_of(document), re.DOTALL | re.MULTILINE
    ):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            steps.append((command, shown.strip()))
    return steps


class Terminal:
    """Runs commands in a folder, and shows output and messages in their order."""

    def __init__(self, folder):
        self.folder = folder
        self.code = 0

    def run(self, command):
        words = shlex.split(command)
        if command == "echo $?":
            return str(self.code)
        out = io.StringIO()
        if words[0] == "dualqml":
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                self.code = main(words[1:])
        elif words[0] == "mv":
            shutil.move(*words[1:])
        elif words[0] == "cp":
            shutil.copy(*words[1:])
        else:
            assert words[0] == "sh", command
            out.write(self.script(words))
        return out.getvalue().strip()

    def script(self, words):
        """Run a script of the page, in which dualqml is the one that is tested."""
        (content,) = re.findall(
            rf"```bash\n(# {words[1]}.*?)```", text_of(GUIDE), re.DOTALL
        )
        (self.folder / words[1]).write_text(content, encoding="utf-8")
        stub = self.folder / "bin" / "dualqml"
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dualqml "$@"\n')
        stub.chmod(0o755)
        ended = subprocess.run(
            words,
            cwd=self.folder,
            env=os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.code = ended.returncode
        return ended.stdout


def without_commas(text):
    """The text with 1,000 as 1000."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)


def words_of(text, *, whose_scores):
    """What is said, without numbers; the lists of candidates only on request."""
    text = without_commas(text)
    if not whose_scores:
        text = re.sub(r"\(threshold [^)]*\)", "(threshold)", text)
    return " ".join(NUMBER.sub("#", text).split())


def far_apart(printed, shown):
    """Pairs of numbers that are not nearly equal. Boxes may move by three pixels."""
    numbers = [NUMBER.findall(without_commas(text)) for text in (printed, shown)]
    pairs = zip(*numbers, strict=True)
    return [
        (found, wanted)
        for found, wanted in pairs
        for a, b in [[float(text.removesuffix(" %")) for text in (found, wanted)]]
        if abs(a - b) > 0.1 * abs(b) + (0.1 if "." in wanted else 3.0)
    ]


@pytest.mark.filterwarnings("always:.*too few for a rate")
@pytest.mark.parametrize(
    "source",
    ["faces of ORL", pytest.param("photographs", marks=pytest.mark.realdata)],
)
def test_the_session_of_the_guide(source, tmp_path, monkeypatch):
    """With any good photographs, it is as the page says; with the page's, also all
    numbers are nearly the same.
    """
    is_real = source == "photographs"
    save_what_the_guide_has(
        ordinary_photographs() if is_real else orl_photographs(), tmp_path
    )
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path)
    steps = session_of(GUIDE)
    assert len(steps) >= 20
    for command, shown in steps:
        printed = terminal.run(command)
        texts = [words_of(text, whose_scores=is_real) for text in (printed, shown)]
        assert texts[0] == texts[1], f"$ {command}\n{printed}\n\nnot\n\n{shown}"
        if is_real or command == "echo $?":
            assert far_apart(printed, shown) == [], f"$ {command}\n{printed}"


def section(document, title):
    """The text below a heading."""
    text = text_of(document)
    start = text.index(f"## {title}\n")
    end = text.find("\n## ", start)
    return text[start : end if end > 0 else None]


def commands(text):
    """The commands of dualqml that indented lines show, without comments."""
    lines = re.findall(r"^    (dualqml [^#\n]*)", text, re.MULTILINE)
    return [line.strip() for line in lines]


def save_on_a_wall(image, path):
    from PIL import Image

    save(Image.fromarray(on_a_wall((image, 2, 20, 40))), path)


@pytest.fixture
def folder(tmp_path):
    """Six people with three photographs each, and what the README names."""
    faces = load_faces().reshape(40, 10, 112, 92)
    for person, name in enumerate([*NAMES, "Flo Day"]):
        for k in range(3):
            save_on_a_wall(faces[person, k], tmp_path / "people" / name / f"{k}.jpg")
        save_on_a_wall(faces[person, 5], tmp_path / "photos" / f"{name}.jpg")
    save_on_a_wall(faces[0, 4], tmp_path / "door.jpg")
    save_on_a_wall(faces[20, 0], tmp_path / "photos" / "stranger.jpg")
    return tmp_path


def test_commands_of_the_readme(folder, monkeypatch, capsys):
    lines = commands(section("README.md", "Photographs in, answers out"))
    assert len(lines) >= 5
    monkeypatch.chdir(folder)
    codes = {line: main(shlex.split(line)[1:]) for line in lines}
    assert codes.pop("dualqml identify people.dualqml photos/ --csv") == 3
    assert set(codes.values()) == {0}
    out = capsys.readouterr()
    assert "door.jpg, face at (" in out.out
    assert "): Ann Lee (threshold" in out.out
    assert "taken for photographs" in out.err
    # The table of the folder has a header, everybody, and the stranger.
    rows = [line for line in out.out.splitlines() if line.startswith("photos/")]
    assert len(rows) == 7


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
