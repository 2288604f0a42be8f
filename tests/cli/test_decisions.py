import json

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
    assert run("identify", model, "nowhere\x1b.png") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dualqml: left out: nowhere\ufffd.png: No such file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give image files, folders, or - to read"),
        (["x.png", "--embeddings", "x.npy"], "either images or --embeddings, not both"),
        (["probes", "--top", 0], "top must be at least 1"),
        (["empty"], "There are no images in the folder empty"),
        (["probes", "--draw", "drawn"], "--draw shows faces in photographs, and this"),
        (["probes", "--draw", "no/drawn"], "There is no folder no; make it first"),
        (["probes", "--draw", "people.dualqml"], "people.dualqml is a file; --draw"),
        (["probes", "--draw", "people"], "people has files already; --force replaces"),
    ],
)
def test_wrong_input(model, capsys, arguments, message, monkeypatch):
    monkeypatch.chdir(model.parent)
    (model.parent / "empty").mkdir()
    assert run("identify", model, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (model.parent / "drawn").exists()
