import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from dualqml.cli.main import main
from dualqml.recognition import Recognizer
from tests.people import make_people
from tests.persistence.sealed import Forged
from tests.recognition.test_recognizer import vectors

pytest.importorskip("PIL")


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def people(tmp_path):
    """Folders of eight people; four images each, and one more outside."""
    from PIL import Image

    people = make_people(n_people=8, n_images=5, size=16, noise=0.1)
    for number, (image, label) in enumerate(
        zip(people.images, people.labels, strict=True)
    ):
        folder = "people" if number % 5 < 4 else "probes"
        file = tmp_path / folder / label / f"{number % 5}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return tmp_path / "people"


@pytest.fixture
def model(people, capsys):
    path = people.parent / "people.dualqml"
    assert run("train", people, "-o", path, "--fpir", 0.02) == 0
    shown = capsys.readouterr()
    assert "8 subjects, 32 samples" in shown.out
    assert "too few for a rate of 0.02" in shown.err
    return path


def probe(people, number):
    return people.parent / "probes" / f"person {number:02d}" / "4.png"


def test_the_whole_way(people, model, capsys):
    assert run("subjects", model) == 0
    assert capsys.readouterr().out.splitlines()[2] == "person 02"
    assert run("identify", model, probe(people, 3)) == 0
    assert "person 03 (threshold" in capsys.readouterr().out
    assert run("verify", model, "person 03", probe(people, 3)) == 0
    assert ": match (person 03" in capsys.readouterr().out
    assert run("verify", model, "person 04", probe(people, 3)) == 3
    assert ": no match" in capsys.readouterr().out

    assert run("remove", model, "person 03") == 0
    assert "7 subjects are enrolled" in capsys.readouterr().out
    assert run("identify", model, probe(people, 3)) == 3
    assert ": unknown (" in capsys.readouterr().out
    assert run("verify", model, "person 03", probe(people, 3)) == 2
    assert "'person 03' is not enrolled" in capsys.readouterr().err

    images = sorted((people / "person 03").glob("*.png"))
    assert run("enroll", model, "Zoë Ó", *images) == 0
    assert "Zoë Ó: 4 samples; 8 subjects" in capsys.readouterr().out
    assert run("identify", model, probe(people, 3)) == 0
    assert "Zoë Ó" in capsys.readouterr().out


#: Enrols somebody, and waits for ever when the new file is to reach the disk.
_SAVER = """
import os, sys
import numpy as np
from dualqml.recognition import Recognizer

recognizer = Recognizer.load(sys.argv[1])
recognizer.enroll("Zed Secret", np.full((16, 16), 7, np.uint8))

def wait(file):
    print("written", flush=True)
    sys.stdin.read()

os.fsync = wait
recognizer.save(sys.argv[1])
"""


@pytest.mark.skipif(os.name == "nt", reason="kills of POSIX")
@pytest.mark.parametrize("command", ["remove", "enroll", "calibrate"])
def test_nothing_is_left_of_a_save_that_was_killed(people, model, command):
    run_saver = [sys.executable, "-c", _SAVER, str(model)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(run_saver, **pipes) as saver:
        assert saver.stdout.readline() == b"written\n"
        (left,) = model.parent.glob(".people.dualqml.*.tmp")
        assert b"Zed Secret" in left.read_bytes()
        saver.kill()
        saver.wait()
    assert left.exists()
    arguments = {
        "remove": ["person 01"],
        "enroll": ["person 01", probe(people, 1)],
        "calibrate": ["--fpir", 0.5],
    }
    assert run(command, model, *arguments[command]) == 0
    assert not left.exists()


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_permissions(people, model):
    assert stat.S_IMODE(model.stat().st_mode) == 0o600
    before = os.umask(0o002)
    try:
        assert run("remove", model, "person 01") == 0
    finally:
        os.umask(before)
    lock = model.with_name(".people.dualqml.lock")
    assert stat.S_IMODE(lock.stat().st_mode) == 0o664
    assert stat.S_IMODE(model.stat().st_mode) == 0o600


def test_names_of_files_are_shown_without_control_characters(people, model, capsys):
    file = people.parent / "door\x1b[2J\n.png"
    try:
        file.write_bytes(probe(people, 3).read_bytes())
    except OSError:
        pytest.skip("no such names here")
    for arguments in (["identify"], ["verify"], ["identify", "nowhere\x1b"]):
        subject = ["person 03"] if arguments == ["verify"] else []
        run(arguments[0], model, *subject, *(arguments[1:] or [file]))
        shown = capsys.readouterr()
        for line in (shown.out + shown.err).splitlines():
            assert line.isprintable()
    run("verify", model, "person 03", file)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "fpir", "target": None},
        {"source": "\x1b]0;title\x07"},
        {"source": "\u202e"},
        {"threshold": "0.5"},
    ],
)
def test_inspect_refuses_a_forged_calibration(model, capsys, change):
    forged = Forged(model.read_bytes())
    forged.state["calibration"]["dict"] |= change
    model.write_bytes(forged.seal())
    assert run("inspect", model) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(line.isprintable() for line in shown.err.splitlines())
    assert "calibration." in shown.err


def test_json(people, model, capsys):
    code = run("identify", model, probe(people, 1), probe(people, 2), "--json")
    answers = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [answer["subject"] for answer in answers] == ["person 01", "person 02"]
    assert len(answers[0]["candidates"]) == 5
    assert run("identify", model, probe(people, 1), "--threshold", 99, "--json") == 3
    answer = json.loads(capsys.readouterr().out)[0]
    assert (answer["decision"], answer["subject"]) == ("unknown", None)
    assert run("verify", model, "person 01", probe(people, 1), "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["decision"] == "match"
    assert run("subjects", model, "--json") == 0
    assert json.loads(capsys.readouterr().out)["person 00"] == 4
    assert run("inspect", model, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["subjects"] == 8
    assert about["calibration"]["kind"] == "fpir"
    assert about["model_id"] == Recognizer.load(model).model_id
    assert run("inspect", model) == 0
    assert "left out in turn" in capsys.readouterr().out


def test_calibrate_on_other_people(people, model, capsys):
    strangers = make_people(n_people=60, n_images=5, size=16, noise=0.1, seed=9)
    file = people.parent / "strangers.npz"
    np.savez(file, images=strangers.images, labels=strangers.labels)
    # The same names are other people here.
    renamed = np.char.add("stranger ", strangers.labels)
    np.savez(file, images=strangers.images, labels=renamed)
    assert run("calibrate", model, file, "--fpir", 0.05) == 0
    shown = capsys.readouterr().out
    assert "false positive identification rate of 0.05" in shown
    assert "300 comparisons" in shown
    assert Recognizer.load(model).calibration.target == 0.05
    assert run("calibrate", model, file, "--fmr", 0.01, "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "fmr"


def test_embeddings(tmp_path, capsys):
    rows = vectors(n_people=10)
    labels = np.repeat([f"p{n}" for n in range(10)], 3)
    file, model = tmp_path / "faces.npz", tmp_path / "faces.dualqml"
    np.savez(file, embeddings=rows[:, :3].reshape(30, -1), labels=labels)
    trained = run("train", "--embeddings", file, "-o", model, "--threshold", 1.0)
    assert trained == 0
    np.save(tmp_path / "probes.npy", rows[:4, 3])
    assert run("identify", model, "--embeddings", tmp_path / "probes.npy") == 0
    shown = capsys.readouterr().out
    assert [line.split()[2] for line in shown.splitlines()[1:]] == [
        "p0",
        "p1",
        "p2",
        "p3",
    ]
    np.save(tmp_path / "all.npy", rows[:, :3].reshape(30, -1))
    (tmp_path / "names.txt").write_text("\n".join(labels))
    arguments = [
        "--embeddings",
        tmp_path / "all.npy",
        "--labels",
        tmp_path / "names.txt",
    ]
    assert run("train", *arguments, "-o", model, "--threshold", 1, "--force") == 0
    assert Recognizer.load(model).subjects() == [f"p{n}" for n in range(10)]


def test_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame(vectors(n_people=5)[:, 0])
    table.columns = [f"x{k}" for k in range(table.shape[1])]
    table["subject"] = [f"p{n}" for n in range(5)]
    table.to_parquet(tmp_path / "faces.parquet")
    model = tmp_path / "m.dualqml"
    arguments = ["--embeddings", tmp_path / "faces.parquet", "-o", model]
    assert run("train", *arguments, "--threshold", 1) == 0
    assert Recognizer.load(model).subjects() == [f"p{n}" for n in range(5)]


def test_evaluate(tmp_path, capsys):
    rows = vectors(n_people=15, n_samples=6, noise=1.0)
    file = tmp_path / "faces.npz"
    labels = np.repeat([f"p{n:02d}" for n in range(15)], 6)
    np.savez(file, embeddings=rows.reshape(90, -1), labels=labels)
    arguments = ["evaluate", "--embeddings", file, "-m", 3, "--repeats", 2]
    assert run(*arguments, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    assert "10 people enrolled with 3 images each, 5 strangers" in shown.out
    assert "division 2 of 2" in shown.err
    page = (tmp_path / "out" / "open-set.html").read_text()
    assert page.count("<svg") == 3
    assert run(*arguments, "--out", tmp_path / "out", "--json") == 0
    means = json.loads(capsys.readouterr().out)
    assert set(means) == {
        "DualQML-W",
        "nearest neighbour, cosine",
        "class mean, cosine",
    }
    assert 0 <= means["DualQML-W"]["EER"] < 30
    assert run(*arguments, "--out", tmp_path / "out", "--json", "--fpir", 0.1) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["DualQML-W"] == means["DualQML-W"]
    for checks in answer["thresholds"]:
        assert [check["calibration"]["target"] for check in checks] == [0.1, 0.1]
        assert all(0 <= check["fpir"]["estimate"] <= 1 for check in checks)
    assert "--fpir 0.1" in (tmp_path / "out" / "open-set.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "-o", "m"], "either a folder or database, or --embeddings"),
        (["train", "nowhere", "-o", "m"], "neither a folder nor"),
        (["identify", "nowhere.dualqml", "x.png"], "nowhere.dualqml"),
        (["train", "--embeddings", "x.txt", "-o", "m"], ".npz, .npy or .parquet"),
        (["train", "--embeddings", "x.npy", "-o", "m"], "cannot be read"),
        (["train", "--embeddings", "cut.npz", "-o", "m"], "cannot be read"),
        (["train", "--embeddings", "one.npz", "-o", "m"], "cannot be read"),
        (["train", "--embeddings", "few.npz", "-o", "m"], "give --threshold"),
        (["train", "--embeddings", "some.npz", "-o", "m", "--fmr", "0"], "between 0"),
        (["evaluate", "--embeddings", "some.npz", "--repeats", "0"], "at least 1"),
    ],
)
def test_wrong_input(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, n_people in [("few", 2), ("some", 6)]:
        labels = np.repeat([f"p{n}" for n in range(n_people)], 4)
        rows = vectors(n_people=n_people).reshape(len(labels), -1)
        np.savez(f"{name}.npz", embeddings=rows, labels=labels)
    content = (tmp_path / "few.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    np.save("one.npy", np.ones((3, 4)))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def test_wrong_input_leaves_the_model_alone(people, model, capsys):
    before = model.read_bytes()
    (people / "broken.png").write_text("no image")
    assert run("enroll", model, "Ann", people / "broken.png") == 2
    assert run("remove", model, "person 01", "nobody") == 2
    assert run("train", people / "person 00", "-o", model) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert run("identify", model) == 2
    assert "Give images" in capsys.readouterr().err
    assert model.read_bytes() == before


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
