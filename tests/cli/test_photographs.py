"""What identify and verify say about photographs."""

import csv
import io
import json
import shutil
import sys

import numpy as np
import pytest

from dualqml.cli.main import main
from dualqml.data import find_faces
from dualqml.images.drawing import draw_faces
from dualqml.images.faces import read_faces
from dualqml.recognition import Recognizer
from tests.cli.commands import run_alone as run
from tests.cli.pictures import Image, picture, save, several

#: Colours of the boxes of known people and of others.
GREEN, RED = (0, 110, 60), (170, 40, 20)


@pytest.fixture(scope="module")
def party(orl_faces, tmp_path_factory):
    """Somebody known, a stranger, and somebody known who is far away."""
    faces = [orl_faces[0, 8], orl_faces[30, 0], orl_faces[2, 8]]
    folder = tmp_path_factory.mktemp("party")
    return save(several(faces, 1.5, 1.4, 0.35), folder / "party.png")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Text that is named as a photograph."""
    path = tmp_path_factory.mktemp("text") / "text.jpg"
    path.write_text("no photograph")
    return path


def model_of(gallery):
    return gallery / "people.dualqml"


def probe_of(gallery, person):
    return gallery / "probes" / f"p{person:02d}" / "8.png"


def from_standard_input(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_folder(gallery, capsys):
    assert run("identify", model_of(gallery), gallery / "probes", "--top", 2) == 0
    shown = capsys.readouterr()
    assert shown.err == "dualqml: 5 images, 5 answers: 5 match\n"
    recognizer = Recognizer.load(model_of(gallery))
    for person, line in enumerate(shown.out.splitlines()):
        path = probe_of(gallery, person)
        (face,) = find_faces(path)
        found = recognizer.identify(path, top=2)
        first, second = found.candidates
        assert line == (
            f"{path}, face at {face.box}: p{person:02d} (threshold "
            f"{found.threshold:.3f}; {first.subject} {first.score:.3f}, "
            f"{second.subject} {second.score:.3f})"
        )


def test_one_photograph_has_no_summary(gallery, capsys):
    assert run("identify", model_of(gallery), probe_of(gallery, 1)) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert shown.err == ""


def test_names_on_standard_input(gallery, tmp_path, monkeypatch, capsys):
    odd = shutil.copy(probe_of(gallery, 3), tmp_path / "door 3\u2028.png")
    lines = [str(probe_of(gallery, 1)), "", f"{odd}\r", "-", str(gallery / "nobody")]
    from_standard_input(monkeypatch, "\n".join(lines).encode())
    arguments = ["identify", model_of(gallery), "-", probe_of(gallery, 2), "--json"]
    assert run(*arguments) == 1
    answers = json.loads(capsys.readouterr().out)
    assert [answer["image"] for answer in answers] == [
        str(probe_of(gallery, 1)),
        str(odd),
        str(gallery / "nobody"),
        str(probe_of(gallery, 2)),
    ]
    subjects = [answer.get("subject") for answer in answers]
    assert subjects == ["p01", "p03", None, "p02"]
    from_standard_input(monkeypatch, b"\n \n")
    assert run("identify", model_of(gallery), "-") == 2
    assert "No image was named on standard input" in capsys.readouterr().err


def test_names_that_are_not_text(gallery, tmp_path, monkeypatch, capsys):
    name = bytes(tmp_path) + b"/\xe9t\xe9.png"
    try:
        with open(name, "wb") as stream:
            stream.write(probe_of(gallery, 1).read_bytes())
    except OSError:
        pytest.skip("no such names here")
    from_standard_input(monkeypatch, name)
    assert run("identify", model_of(gallery), "-", "--csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["subject"] == "p01"


def test_json(gallery, party, capsys):
    arguments = ["identify", model_of(gallery), party, gallery / "wall.png", "--json"]
    assert run(*arguments) == 4
    shown = capsys.readouterr()
    assert shown.err == ""
    *answers, problem = json.loads(shown.out)
    faces = find_faces(party)
    assert [answer["face"] for answer in answers] == [1, 2, 3]
    assert [answer["box"] for answer in answers] == [list(face.box) for face in faces]
    qualities = [round(face.quality, 4) for face in faces]
    assert [answer["quality"] for answer in answers] == qualities
    assert qualities[0] == 1.0 > qualities[2]
    assert [answer["subject"] for answer in answers] == ["p00", None, "p02"]
    decisions = [answer["decision"] for answer in answers]
    assert decisions == ["match", "unknown", "match"]
    assert set(problem) == {"image", "problem"}
    assert "wall.png: no face was found" in problem["problem"]


def test_csv(gallery, party, photo_model, small, capsys):
    # What a spreadsheet would take for a formula.
    assert main(["remove", str(photo_model), "p02"]) == 0
    name = "=HYPERLINK(1)"
    assert run("enroll", photo_model, name, gallery / "people" / "p02") == 0
    capsys.readouterr()
    arguments = ["identify", photo_model, party, small, gallery / "stranger.png"]
    assert run(*arguments, "--csv") == 1
    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [row["subject"] for row in rows] == ["p00", "", f"'{name}", "", ""]
    decisions = [row["decision"] for row in rows]
    assert decisions == ["match", "unknown", "match", "", "unknown"]
    assert [row["face"] for row in rows] == ["1", "2", "3", "", "1"]
    found = find_faces(party)[1].box
    box = [rows[1][name] for name in ("top", "left", "bottom", "right")]
    assert box == list(map(str, found))
    assert "text.jpg: not an image" in rows[3]["problem"]
    assert float(rows[0]["probability"]) > 0.9
    assert float(rows[0]["score"]) > float(rows[0]["threshold"])
    # The problem is in the table, and is not said again.
    assert "text.jpg" not in shown.err


class TestDraw:
    def pixels(self, path):
        return np.asarray(Image.open(path).convert("RGB")).astype(int)

    def test_boxes_are_drawn(self, gallery, party, tmp_path):
        arguments = ["identify", model_of(gallery), party]
        assert run(*arguments, "--draw", tmp_path / "drawn") == 3
        (path,) = (tmp_path / "drawn").iterdir()
        assert path.name == "party.jpg"
        drawn = self.pixels(path)
        before = self.pixels(party)
        assert drawn.shape == before.shape
        for face, colour in zip(find_faces(party), (GREEN, RED, GREEN), strict=True):
            top, left, bottom, right = face.box
            row, column = (top + bottom) // 2, (left + right) // 2
            # The line is two pixels wide, and JPEG blurs colours.
            edges = [drawn[row, left], drawn[row, right], drawn[bottom, column]]
            assert np.abs(np.array(edges) - colour).max() < 60
            middle = drawn[row, column] - before[row, column]
            assert np.abs(middle).max() < 40
        # Away from the faces nothing has changed.
        assert np.abs(drawn[-20:, -20:] - before[-20:, -20:]).max() < 8

    def test_the_name_is_written(self, gallery, party, tmp_path):
        arguments = ["identify", model_of(gallery), party, "--draw", tmp_path / "a"]
        assert run(*arguments) == 3
        (seen,) = read_faces([party])
        recognizer = Recognizer.load(model_of(gallery))
        answers = recognizer.identify_many(np.array([one.vector for one in seen.faces]))
        texts = [f"{a.subject or 'unknown'} {a.score:.1f}" for a in answers]
        expected = draw_faces(
            self.pixels(party).astype(np.uint8),
            [one.face.box for one in seen.faces],
            texts,
            [True, False, True],
        )
        drawn = self.pixels(tmp_path / "a" / "party.jpg")
        assert np.abs(drawn - np.asarray(expected)).mean() < 2

    def test_equal_names(self, gallery, tmp_path, capsys):
        drawn = tmp_path / "drawn"
        arguments = ["identify", model_of(gallery), gallery / "probes", "--draw", drawn]
        assert run(*arguments) == 0
        names = sorted(path.name for path in drawn.iterdir())
        assert names == ["8-2.jpg", "8-3.jpg", "8-4.jpg", "8-5.jpg", "8.jpg"]
        contents = {path.read_bytes() for path in drawn.iterdir()}
        assert len(contents) == 5
        assert run(*arguments) == 2
        assert "has files already; --force replaces" in capsys.readouterr().err
        (drawn / "8.jpg").write_text("old")
        assert run(*arguments, "--force") == 0
        assert {path.read_bytes() for path in drawn.iterdir()} == contents

    def test_photographs_are_never_replaced(self, gallery, tmp_path, capsys):
        own = tmp_path / "own" / "8.jpg"
        save(np.asarray(Image.open(probe_of(gallery, 2))), own)
        before = own.read_bytes()
        arguments = ["identify", model_of(gallery), probe_of(gallery, 1), own]
        assert run(*arguments, "--draw", own.parent, "--force") == 2
        assert "holds photographs that are read" in capsys.readouterr().err
        assert own.read_bytes() == before

    def test_no_face_no_drawing(self, gallery, tmp_path):
        arguments = ["identify", model_of(gallery), gallery / "wall.png"]
        assert run(*arguments, "--draw", tmp_path / "drawn") == 4
        assert not (tmp_path / "drawn").exists()


def test_explain(gallery, capsys):
    stranger = gallery / "stranger.png"
    arguments = ["identify", model_of(gallery), probe_of(gallery, 1), stranger]
    assert run(*arguments, "--explain") == 3
    lines = capsys.readouterr().out.splitlines()
    recognizer = Recognizer.load(model_of(gallery))
    for place, path in enumerate((probe_of(gallery, 1), stranger)):
        why = recognizer.explain(path)
        head, nearest, score, margin, runner_up = lines[5 * place : 5 * place + 5]
        assert head.startswith(f"{path}, face at ")
        best = why.identification.candidates[0].subject
        assert nearest == (
            f"    nearest enrolled photo of {best}: {why.nearest.in_words()}"
        )
        assert why.nearest.in_words().startswith(f"{best}/")
        total = f"    score of {best}: {why.identification.score:.3f} = "
        assert score.startswith(total)
        parts = [float(part.split()[-1]) for part in score[len(total) :].split(", ")]
        assert sum(parts) == pytest.approx(why.identification.score, abs=0.002)
        side = "above" if place == 0 else "below"
        assert margin.startswith(f"    {abs(why.margin):.3f} {side} the threshold: ")
        assert runner_up == (
            f"    runner-up: {why.runner_up.subject}, {why.gap:.3f} lower"
        )
    assert run(*arguments, "--explain", "--json") == 3
    first, _ = json.loads(capsys.readouterr().out)
    why = recognizer.explain(probe_of(gallery, 1))
    assert first["why"]["margin"] == pytest.approx(why.margin)
    values = [part["value"] for part in first["why"]["parts"]]
    assert sum(values) == pytest.approx(first["score"])
    assert first["why"]["nearest"]["subject"] == "p01"


def test_options_between_the_images(gallery, capsys):
    first, second = probe_of(gallery, 1), probe_of(gallery, 2)
    words = [first, "--top", 1, second, "--json"]
    assert run("identify", "--several", "largest", model_of(gallery), *words) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["subject"] for answer in answers] == ["p01", "p02"]
    assert [len(answer["candidates"]) for answer in answers] == [1, 1]


class TestSeveral:
    def subjects(self, capsys):
        return [answer.get("subject") for answer in json.loads(capsys.readouterr().out)]

    def test_all_is_the_default_of_identify(self, gallery, party, capsys):
        assert run("identify", model_of(gallery), party, "--json") == 3
        assert self.subjects(capsys) == ["p00", None, "p02"]

    def test_largest(self, gallery, party, capsys):
        arguments = ["identify", model_of(gallery), party, "--several", "largest"]
        assert run(*arguments, "--json") == 0
        assert self.subjects(capsys) == ["p00"]

    def test_error(self, gallery, party, capsys):
        arguments = ["identify", model_of(gallery), party, "--several", "error"]
        assert run(*arguments) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        start = f"dualqml: left out: {party}: 2 faces of similar size"
        assert shown.err.startswith(start)
        assert "--several largest" in shown.err

    def test_verify_does_not_choose(self, gallery, party, capsys):
        arguments = ["verify", model_of(gallery), "p00", party]
        assert run(*arguments) == 1
        assert "2 faces of similar size" in capsys.readouterr().err
        assert run(*arguments, "--several", "largest") == 0
        assert ": match (p00, score" in capsys.readouterr().out
        assert run(*arguments, "--several", "all", "--json") == 3
        answers = json.loads(capsys.readouterr().out)
        decisions = [answer["decision"] for answer in answers]
        assert decisions == ["match", "no match", "no match"]


class TestQuality:
    def test_faces_of_a_lower_quality_get_no_answer(self, gallery, party, capsys):
        arguments = ["identify", model_of(gallery), party, "--min-quality", 0.9]
        assert run(*arguments) == 3
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 2
        assert shown.err == (
            f"dualqml: note: {party}: 1 of 3 faces have a lower quality than 0.9 and "
            "get no answer\n"
        )

    def test_none_is_good_enough(self, gallery, orl_faces, tmp_path, capsys):
        path = save(picture(orl_faces[0, 8], times=0.35), tmp_path / "far.png")
        arguments = ["identify", model_of(gallery), path]
        assert run(*arguments) == 0
        assert ", quality 0." in capsys.readouterr().out
        assert run(*arguments, "--min-quality", 0.9) == 4
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "the quality of the face is 0." in shown.err
        assert "it is small. Take it from a shorter distance" in shown.err

    @pytest.mark.parametrize("value", ["-0.1", "1.1", "nan"])
    def test_wrong_values(self, gallery, capsys, value):
        arguments = ["identify", model_of(gallery), probe_of(gallery, 1)]
        assert run(*arguments, f"--min-quality={value}") == 2
        assert "--min-quality must be from 0 to 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["match"], 0),
        (["match", "match"], 0),
        (["match", "stranger"], 3),
        (["wall"], 4),
        (["match", "wall"], 4),
        (["stranger", "wall"], 4),
        (["text"], 1),
        (["wall", "text", "stranger", "match"], 1),
        (["absent", "match"], 1),
    ],
)
def test_exit_codes(gallery, small, names, code):
    paths = {
        "match": probe_of(gallery, 1),
        "stranger": gallery / "stranger.png",
        "wall": gallery / "wall.png",
        "text": small,
        "absent": "no such file.png",
    }
    images = [paths[name] for name in names]
    assert run("identify", model_of(gallery), *images) == code
    assert run("verify", model_of(gallery), "p01", *images) == code
    # Without the images that were left out, the others decide, if there are any.
    left = {"match": 0, "stranger": 3}
    rest = max((left[name] for name in names if name in left), default=code)
    assert run("identify", model_of(gallery), *images, "--on-bad", "skip") == rest


def test_verify(gallery, capsys):
    assert run("verify", model_of(gallery), "p01", probe_of(gallery, 1)) == 0
    shown = capsys.readouterr().out
    found = Recognizer.load(model_of(gallery)).verify("p01", probe_of(gallery, 1))
    assert shown.startswith(f"{probe_of(gallery, 1)}, face at (")
    assert f": match (p01, score {found.score:.3f}, threshold" in shown
    # No image is read for a name that was mistyped.
    assert run("verify", model_of(gallery), "p1", "no such file.png") == 2
    said = "dualqml: 'p1' is not enrolled; did you mean p01?\n"
    assert capsys.readouterr().err == said
