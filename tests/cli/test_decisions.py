import json

import numpy as np
import pytest

from dualqml.recognition import Recognizer
from tests.cli.commands import probe, run


def test_identify(people, model, capsys):
    assert run("identify", model, probe(people, 3), "--top", 2) == 0
    found = Recognizer.load(model).identify(probe(people, 3), top=2)
    first, second = found.candidates
    assert first.subject == "person 03"
    assert capsys.readouterr().out == (
        f"{probe(people, 3)}: person 03 (threshold {found.threshold:.3f}; "
        f"person 03 {first.score:.3f}, {second.subject} {second.score:.3f})\n"
    )


def test_verify(people, model, capsys):
    assert run("verify", model, "person 03", probe(people, 3)) == 0
    assert ": match (person 03, score" in capsys.readouterr().out
    assert run("verify", model, "person 04", probe(people, 3)) == 3
    assert ": no match (person 04, score" in capsys.readouterr().out
    assert run("verify", model, "person 03", probe(people, 3), probe(people, 4)) == 3
    decisions = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert [text.split(" (")[0] for text in decisions] == ["match", "no match"]


def test_somebody_who_is_not_enrolled(people, model, capsys):
    assert run("remove", model, "person 03") == 0
    capsys.readouterr()
    assert run("identify", model, probe(people, 3)) == 3
    assert ": unknown (" in capsys.readouterr().out
    assert run("verify", model, "person 03", probe(people, 3)) == 2
    assert "'person 03' is not enrolled" in capsys.readouterr().err


def test_json(people, model, capsys):
    loaded = Recognizer.load(model)
    probes = [probe(people, 1), probe(people, 2)]
    assert run("identify", model, *probes, "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["image"] for answer in answers] == [str(file) for file in probes]
    assert [answer["subject"] for answer in answers] == ["person 01", "person 02"]
    listed = [c["subject"] for c in answers[0]["candidates"]]
    expected = loaded.identify(probes[0], top=5).candidates
    assert listed == [candidate.subject for candidate in expected]
    assert run("identify", model, probes[0], "--threshold", 99, "--json") == 3
    answer = json.loads(capsys.readouterr().out)[0]
    assert (answer["decision"], answer["subject"]) == ("unknown", None)
    assert run("verify", model, "person 01", probes[0], "--json") == 0
    expected = loaded.verify("person 01", probes[0]).as_dict()
    answer = json.loads(capsys.readouterr().out)
    assert answer == [{"image": str(probes[0])} | expected]


def test_names_of_files_are_shown_without_control_characters(people, model, capsys):
    file = people.parent / "door\x1b[2J\n.png"
    try:
        file.write_bytes(probe(people, 3).read_bytes())
    except OSError:
        pytest.skip("no such names here")
    for arguments in (["identify", model], ["verify", model, "person 03"]):
        assert run(*arguments, file) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(str(people.parent / "door\ufffd[2J .png"))
    assert run("identify", model, "nowhere\x1b.png") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere\ufffd.png" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give images, or --embeddings"),
        (["x.png", "--embeddings", "x.npy"], "either images or --embeddings, not both"),
        (["x.png", "--top", 0], "top must be at least 1"),
    ],
)
def test_wrong_input(model, capsys, arguments, message):
    assert run("identify", model, *arguments) == 2
    assert message in capsys.readouterr().err


def test_photographs(tmp_path, capsys):
    pytest.importorskip("dlib")
    from PIL import Image

    from dualqml.data import load_orl

    faces = load_orl(size=(112, 92)).images.reshape(40, 10, 112, 92)
    for person in range(3):
        for number in range(3):
            # A face on a wall, twice as large.
            canvas = np.full((400, 420), 120, dtype=np.uint8)
            face = faces[person, number].repeat(2, axis=0).repeat(2, axis=1)
            canvas[80:304, 120:304] = face
            folder = "wall" if number < 2 else "door"
            file = tmp_path / folder / f"person {person}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(canvas).save(file)
    model = tmp_path / "m.dualqml"
    arguments = ["train", tmp_path / "wall", "--photographs", "-o", model]
    assert run(*arguments, "--threshold", 0.5) == 0
    probe = tmp_path / "door" / "person 1" / "2.png"
    assert run("identify", model, probe, "--photographs") == 0
    assert "2.png: person 1 (" in capsys.readouterr().out
    Image.fromarray(np.full((300, 300), 120, dtype=np.uint8)).save(tmp_path / "w.png")
    assert run("identify", model, tmp_path / "w.png", "--photographs") == 2
    assert "w.png" in capsys.readouterr().err
