"""identify and verify answer without the packages that only training needs."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dualqml.recognition import Recognizer
from dualqml.recognition.decision_model import load_decision_model
from tests.cli.commands import probe, run, run_alone
from tests.people import make_vectors

#: What the answer to one question must not load.
HEAVY = {"sklearn", "scipy", "pandas", "joblib", "matplotlib"}

#: Runs the command and prints the modules that it has imported.
_MODULES = """
import sys
from dualqml.cli.main import main
code = main(sys.argv[1:])
print("modules:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def modules_of(*arguments):
    """Run the command in a fresh interpreter; its output and packages."""
    ended = subprocess.run(
        [sys.executable, "-c", _MODULES, *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    *_, line = ended.stderr.splitlines()
    title, *names = line.split()
    assert (title, ended.returncode) == ("modules:", 0), ended.stderr
    return ended.stdout, {name.partition(".")[0] for name in names}


@pytest.fixture
def vectors(tmp_path):
    """A model of vectors, and a file of probes."""
    rows, labels = make_vectors(8, 4, size=20, noise=0.5)
    model, file = tmp_path / "v.dualqml", tmp_path / "faces.npz"
    enrolled = np.arange(len(rows)) % 4 < 3
    np.savez(file, embeddings=rows[enrolled], labels=labels[enrolled])
    arguments = ["train", "--embeddings", file, "-o", model]
    assert run(*arguments, "--threshold", 0.0) == 0
    np.save(tmp_path / "probes.npy", rows[~enrolled])
    return model, tmp_path / "probes.npy"


def assert_same(answers, expected):
    """The same answers, up to rounding."""
    assert len(answers) == len(expected)
    for answer, other in zip(answers, expected, strict=True):
        other = json.loads(json.dumps(other.as_dict()))
        for name in ("score", "threshold", "probability", "unknown_probability"):
            if other.get(name) is not None:
                assert answer[name] == pytest.approx(other[name], rel=0, abs=1e-9)
        for name in ("decision", "subject", "model_id"):
            assert answer[name] == other[name]
        pairs = zip(
            answer.get("candidates", ()), other.get("candidates", ()), strict=True
        )
        for candidate, same in pairs:
            assert candidate["subject"] == same["subject"]
            for name in ("score", "probability"):
                assert candidate[name] == pytest.approx(same[name], rel=0, abs=1e-9)


def test_photographs(gallery, capsys):
    model, paths = gallery / "people.dualqml", sorted(gallery.glob("probes/*/*"))
    recognizer = Recognizer.load(model)
    assert load_decision_model(model) is not None
    assert run_alone("identify", model, *paths, "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert_same(answers, recognizer.identify_many(paths))
    assert run_alone("verify", model, "p01", *paths, "--json") == 3
    answers = json.loads(capsys.readouterr().out)
    assert_same(answers, recognizer.verify_many(5 * ["p01"], paths))


def test_vectors(vectors, capsys):
    model, probes = vectors
    rows = np.load(probes)
    recognizer = Recognizer.load(model)
    assert load_decision_model(model) is not None
    arguments = [model, "--embeddings", probes, "--json"]
    assert run("identify", *arguments) == 0
    answers = json.loads(capsys.readouterr().out)
    assert_same(answers, recognizer.identify_many(rows))
    assert run("verify", arguments[0], "p01", *arguments[1:]) == 3
    answers = json.loads(capsys.readouterr().out)
    assert_same(answers, recognizer.verify_many(8 * ["p01"], rows))


def test_photographs_load_no_heavy_package(gallery, tmp_path):
    model, path = gallery / "people.dualqml", gallery / "probes" / "p01" / "8.png"
    drawn = ["--draw", tmp_path / "drawn", "--csv"]
    shown, packages = modules_of("identify", model, path, *drawn)
    assert ",match,p01," in shown
    assert {"cv2", "numpy", "PIL"} <= packages
    assert not packages & HEAVY


def test_vectors_load_no_heavy_package(vectors):
    model, probes = vectors
    one = probes.with_name("one.npy")
    np.save(one, np.load(probes)[1:2])
    shown, packages = modules_of("verify", model, "p01", "--embeddings", one)
    assert shown.startswith("row 0: match (p01, ")
    assert "numpy" in packages
    assert not packages & (HEAVY | {"cv2", "PIL"})


def test_crops_use_the_whole_recogniser(people, model, capsys):
    assert load_decision_model(model) is None
    paths = [probe(people, number) for number in range(3)]
    assert run("identify", model, *paths, "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert_same(answers, Recognizer.load(model).identify_many(paths))
