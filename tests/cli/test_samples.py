import numpy as np
import pytest

from dualqml.recognition import Recognizer
from tests.cli.commands import run
from tests.recognition.test_recognizer import vectors


def test_embeddings(tmp_path, capsys):
    rows = vectors(n_people=10)
    labels = np.repeat([f"p{n}" for n in range(10)], 3)
    file, model = tmp_path / "faces.npz", tmp_path / "faces.dualqml"
    np.savez(file, embeddings=rows[:, :3].reshape(30, -1), labels=labels)
    trained = run("train", "--embeddings", file, "-o", model, "--threshold", 1.0)
    assert trained == 0
    np.save(tmp_path / "probes.npy", rows[:4, 3])
    assert run("identify", model, "--embeddings", tmp_path / "probes.npy") == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [" ".join(line.split()[:3]) for line in shown] == [
        "row 0: p0",
        "row 1: p1",
        "row 2: p2",
        "row 3: p3",
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "-o", "m"], "either a folder or database, or --embeddings"),
        (["train", "nowhere", "-o", "m"], "neither a folder nor"),
        (["identify", "nowhere.dualqml", "x.png"], "nowhere.dualqml"),
        (["train", "--embeddings", "bare.npy", "-o", "m"], "does not say who is who"),
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
    np.save("bare.npy", np.ones((3, 4)))
    assert run(*arguments) == 2
    assert not (tmp_path / "m").exists()
    assert message in capsys.readouterr().err
