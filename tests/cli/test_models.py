import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from dualqml.extractors import Background, NearestSample
from dualqml.persistence import load, save
from dualqml.recognition import Recognizer
from dualqml.recognition.inputs import InputReader
from dualqml.recognition.recognizer_files import save_recognizer
from tests.cli.commands import probe, run
from tests.people import make_people, make_vectors
from tests.persistence.sealed import Forged


def test_train(people, capsys):
    path = people.parent / "new.dualqml"
    assert run("train", people, "-o", path, "--fpir", 0.02) == 0
    shown = capsys.readouterr()
    trained = Recognizer.load(path)
    assert shown.out == (
        f"{path}: 8 subjects, 32 samples.\n{trained.calibration.describe()}\n"
    )
    guess, warning = shown.err.splitlines()
    assert guess == (
        f"dualqml: the images in {people} are taken for crops (all of 16 x 16 "
        "pixels). If this is wrong, add --input photographs."
    )
    assert "too few for a rate of 0.02" in warning
    assert trained.subjects() == [f"person {n:02d}" for n in range(8)]
    assert (trained.calibration.kind, trained.calibration.target) == ("fpir", 0.02)
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_train_json(people, capsys):
    path = people.parent / "new.dualqml"
    arguments = ["train", people, "-o", path, "--method", "LDA", "--threshold", 0.5]
    assert run(*arguments, "--json") == 0
    trained = Recognizer.load(path)
    assert trained.method == "LDA"
    assert json.loads(capsys.readouterr().out) == {
        "model": str(path),
        "model_id": trained.model_id,
        "input": "crops",
        "subjects": 8,
        "samples": 32,
        "left_out": [],
        "threshold": 0.5,
        "calibration": trained.calibration.as_dict(),
    }


def test_remove_and_enroll(people, model, capsys):
    assert run("remove", model, "person 03", "person 03") == 0
    assert capsys.readouterr().out == "1 erased. 7 subjects are enrolled.\n"
    assert "person 03" not in Recognizer.load(model).subjects()
    images = sorted((people / "person 03").glob("*.png"))
    assert run("enroll", model, "Zoë Ó", *images) == 0
    assert (
        capsys.readouterr().out == "Zoë Ó: 4 samples added. 8 subjects are enrolled.\n"
    )
    assert len(Recognizer.load(model).samples("Zoë Ó")) == 4


def test_remove_and_enroll_json(people, model, capsys):
    assert run("remove", model, "person 03", "person 04", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "removed": 2,
        "subjects": 6,
        "model_id": Recognizer.load(model).model_id,
        "stale_calibration": True,
        "refit_due": None,
    }
    assert run("enroll", model, "person 05", probe(people, 5), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "subject": "person 05",
        "added": 1,
        "subjects": 6,
        "left_out": [],
        "model_id": Recognizer.load(model).model_id,
        "stale_calibration": True,
        "refit_due": None,
    }
    loaded = Recognizer.load(model)
    assert len(loaded.samples("person 05")) == 5
    assert loaded.sample_names("person 05")[-1] == "person 05/4.png"


def test_subjects(model, capsys):
    names = [f"person {n:02d}" for n in range(8)]
    assert run("subjects", model) == 0
    assert capsys.readouterr().out.splitlines() == names
    assert run("subjects", model, "--json") == 0
    assert json.loads(capsys.readouterr().out) == dict.fromkeys(names, 4)


def test_inspect(model, capsys):
    loaded = Recognizer.load(model)
    assert run("inspect", model, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["model_id"] == loaded.model_id
    assert about["calibration"] == loaded.calibration.as_dict()
    expected = ("crops", [32, 32], 8, 32, model.stat().st_size, None)
    keys = ("input", "size", "subjects", "samples", "bytes", "background")
    assert tuple(about[key] for key in keys) == expected
    assert about["stale_calibration"] is False
    assert run("inspect", model) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"model_id: {loaded.model_id}" in lines
    assert lines[-1] == loaded.calibration.describe()
    assert "left out in turn" in lines[-1]
    (chosen,) = [line for line in lines if line.startswith("chosen: ")]
    assert f"rho {loaded.chosen_parameters['rho']:.4g}, " in chosen


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


def test_calibrate_on_other_people(people, model, capsys):
    strangers = make_people(n_people=60, n_images=5, size=16, noise=0.1, seed=9)
    file = people.parent / "strangers.npz"
    # Without this, they would have the names of the enrolled.
    renamed = np.char.add("stranger ", strangers.labels)
    np.savez(file, images=strangers.images, labels=renamed)
    assert run("calibrate", model, file, "--fpir", 0.05) == 0
    shown = capsys.readouterr().out
    assert shown == Recognizer.load(model).calibration.describe() + "\n"
    assert "300 samples of people who are not enrolled" in shown
    assert Recognizer.load(model).calibration.target == 0.05
    assert run("calibrate", model, file, "--fmr", 0.01, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["target"]) == ("fmr", 0.01)
    assert found == Recognizer.load(model).calibration.as_dict()


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
def test_permissions(model):
    before = os.umask(0o002)
    try:
        assert run("remove", model, "person 01") == 0
    finally:
        os.umask(before)
    lock = model.with_name(".people.dualqml.lock")
    assert stat.S_IMODE(lock.stat().st_mode) == 0o664
    assert stat.S_IMODE(model.stat().st_mode) == 0o600


def test_wrong_input_leaves_the_model_alone(people, model, capsys):
    before = model.read_bytes()
    (people / "broken.png").write_text("no image")
    assert run("enroll", model, "Ann", people / "broken.png") == 1
    left_out, counts, end = capsys.readouterr().err.splitlines()
    assert left_out.startswith(f"dualqml: left out: {people / 'broken.png'}: not an")
    assert counts == "dualqml: 1 of 1 cannot be used. 0 are used."
    assert end == "dualqml: nothing was enrolled; the model is unchanged"
    assert run("remove", model, "person 01", "nobody") == 2
    assert "'nobody' is not enrolled" in capsys.readouterr().err
    assert run("train", people / "person 00", "-o", model) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert run("calibrate", model, "--fpir", 2) == 2
    assert "between 0" in capsys.readouterr().err
    assert model.read_bytes() == before


@pytest.fixture
def others(tmp_path):
    """A folder of twelve other people with three images each."""
    image_module = pytest.importorskip("PIL.Image")
    found = make_people(n_people=12, n_images=3, size=16, noise=0.1, seed=7)
    for number, (image, label) in enumerate(
        zip(found.images, found.labels, strict=True)
    ):
        file = tmp_path / "others" / label.replace("person", "other") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image_module.fromarray(image).save(file)
    return tmp_path / "others"


@pytest.fixture
def vectors_file(tmp_path):
    rows, labels = make_vectors(12, 3, size=20, noise=0.5)
    file = tmp_path / "vectors.npz"
    np.savez(file, embeddings=rows, labels=labels)
    return file


@pytest.fixture
def kept(monkeypatch):
    """Recognisers that commands have saved, which writes no file here."""
    seen = []
    monkeypatch.setattr(Recognizer, "save", lambda self, path: seen.append(self))
    return seen


def assert_statistics(found, expected):
    for name in ("mean", "within", "between"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()


class TestBackground:
    def test_of_images(self, others, tmp_path, capsys):
        path = tmp_path / "b.dualqml"
        assert run("background", others, "-o", path) == 0
        said = f"{path}: 12 people, 36 samples, 1024 features\n"
        assert capsys.readouterr().out == said
        found = load(path)
        assert (found.n_people, found.n_samples) == (12, 36)
        # As the recogniser reads them.
        folders = sorted(others.iterdir())
        files = [file for folder in folders for file in sorted(folder.iterdir())]
        rows = InputReader(size=(32, 32)).read(files)
        labels = np.repeat([folder.name for folder in folders], 3)
        expected = Background.from_samples(rows, labels, image_shape=(32, 32))
        assert_statistics(found, expected)
        if os.name != "nt":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_of_vectors(self, vectors_file, tmp_path, capsys):
        path = tmp_path / "b.dualqml"
        arguments = ["background", "--embeddings", vectors_file, "-o", path]
        assert run(*arguments, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "background": str(path),
            "people": 12,
            "samples": 36,
            "inputs": "vector",
            "size": None,
            "features": 20,
        }
        assert load(path).mean.shape == (20,)
        assert run(*arguments) == 2
        assert "is there already; --force replaces it" in capsys.readouterr().err
        assert run(*arguments, "--force") == 0

    def test_two_people_are_enough_with_a_background(
        self, vectors_file, tmp_path, capsys
    ):
        rows, labels = make_vectors(2, 2, size=20, noise=0.5, seed=9)
        np.savez(tmp_path / "two.npz", embeddings=rows, labels=labels)
        arguments = ["train", "--embeddings", tmp_path / "two.npz"]
        model = tmp_path / "two.dualqml"
        assert run(*arguments, "-o", model) == 2
        said = capsys.readouterr().err
        assert "2 subjects are too few to calibrate on" in said
        assert "--background" in said
        arguments += ["--background", vectors_file, "--fmr", "0.05"]
        assert run(*arguments, "-o", model) == 0
        capsys.readouterr()
        assert run("inspect", model, "--json") == 0
        about = json.loads(capsys.readouterr().out)
        assert about["chosen"]["background_weight"] == 1.0
        assert about["background"].startswith("<Background of 36 samples of 12 people")
        assert about["calibration"]["source"].startswith("strangers simulated")

    def test_few_people_are_a_warning(self, tmp_path, capsys):
        rows, labels = make_vectors(4, 3, size=20, noise=0.5)
        np.savez(tmp_path / "few.npz", embeddings=rows, labels=labels)
        file, path = tmp_path / "few.npz", tmp_path / "b.dualqml"
        assert run("background", "--embeddings", file, "-o", path) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("dualqml: warning: Only 4 people of the background")

    def test_one_person_is_an_error(self, tmp_path, capsys):
        rows, labels = make_vectors(1, 3, size=20, noise=0.5)
        np.savez(tmp_path / "one.npz", embeddings=rows, labels=labels)
        file, path = tmp_path / "one.npz", tmp_path / "b.dualqml"
        assert run("background", "--embeddings", file, "-o", path) == 2
        assert "A background needs at least 2 people" in capsys.readouterr().err
        assert not path.exists()

    def test_inspect(self, others, vectors_file, tmp_path, capsys):
        path = tmp_path / "b.dualqml"
        assert run("background", others, "-o", path) == 0
        capsys.readouterr()
        assert run("inspect", path) == 0
        assert capsys.readouterr().out.splitlines() == [
            "holds: background",
            "people: 12",
            "samples: 36",
            "inputs: image",
            "size: [32, 32]",
            "features: 1024",
            f"bytes: {path.stat().st_size}",
        ]
        arguments = ["--embeddings", vectors_file, "-o", path, "--force"]
        assert run("background", *arguments) == 0
        capsys.readouterr()
        assert run("inspect", path, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "holds": "background",
            "people": 12,
            "samples": 36,
            "inputs": "vector",
            "size": None,
            "features": 20,
            "bytes": path.stat().st_size,
        }

    def test_inspect_refuses_other_models(self, tmp_path, capsys):
        path = tmp_path / "nearest"
        save(NearestSample().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]), path)
        assert run("inspect", path) == 2
        assert "no recogniser" in capsys.readouterr().err

    def test_train(self, people, others, kept):
        arguments = ["train", people, "-o", "m", "--threshold", 1.0]
        assert run(*arguments, "--background", others) == 0
        assert run(*arguments) == 0
        assert kept[0].background.n_people == 12
        assert kept[0].background.image_shape == kept[0].size
        assert kept[1].background is None

    def test_calibrate(self, people, model, others, kept, capsys):
        arguments = ["calibrate", model, "--fpir", 0.1]
        assert run(*arguments, "--background", others) == 0
        assert kept[0].background.n_people == 12
        assert kept[0].calibration.target == 0.1

    def test_calibrate_resizes_to_the_size_of_the_model(self, people, others, kept):
        small = Recognizer(size=(16, 16), threshold=0.0)
        samples = make_people(n_people=5, n_images=3, size=16)
        small.enroll_many(samples.images, samples.labels.tolist())
        path = people.parent / "small.dualqml"
        save_recognizer(small, path)
        arguments = ["calibrate", path, "--fpir", 0.1, "--background", others]
        assert run(*arguments) == 0
        assert kept[0].background.image_shape == (16, 16)


def vectors_of(path, n_people):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_people, 1, 20)) + 0.5 * rng.normal(size=(n_people, 3, 20))
    labels = np.repeat([f"person {number:02d}" for number in range(n_people)], 3)
    np.savez(path, embeddings=rows.reshape(-1, 20), labels=labels)
    return path


def test_refits_can_be_deferred(tmp_path, capsys):
    every = vectors_of(tmp_path / "all.npz", 10)
    model = tmp_path / "people.dualqml"
    options = ["--threshold", "0"]
    assert run("train", "--embeddings", every, "-o", model, *options) == 0
    assert run("refit", model) == 0
    shown = capsys.readouterr().out
    assert "No refit is due; the model is unchanged. 10 subjects" in shown
    assert run("remove", model, "person 03", "--refit", "deferred") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 erased. 9 subjects are enrolled.\nA refit is due: ")
    assert shown.endswith("Run dualqml refit.\n")
    # The model remembers it.
    new = tmp_path / "new.npy"
    np.save(new, np.random.default_rng(5).normal(size=(2, 20)).astype(np.float32))
    arguments = ["enroll", model, "Ann", "--embeddings", new, "--json"]
    assert run(*arguments) == 0
    due = {
        "n_enrolled": 1,
        "n_erased": 1,
        "n_samples_enrolled": 2,
        "n_samples_erased": 3,
    }
    assert json.loads(capsys.readouterr().out)["refit_due"] == due
    assert run("inspect", model, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["refit"], about["refit_due"]) == ("deferred", due)
    assert run("inspect", model) == 0
    shown = capsys.readouterr().out
    assert "refit: deferred\n" in shown
    assert "still depend on the samples that were erased. Run dualqml refit" in shown
    assert run("identify", model, "--embeddings", new) == 0
    capsys.readouterr()
    assert run("refit", model, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "refitted": True,
        "subjects": 10,
        "model_id": Recognizer.load(model).model_id,
        "stale_calibration": False,
    }
    loaded = Recognizer.load(model)
    assert loaded.refit_due is None
    fresh = Recognizer(refit="deferred")
    for subject in loaded.subjects():
        fresh.enroll(subject, loaded.samples(subject))
    assert fresh.model_id == loaded.model_id
    probes = np.load(new)
    np.testing.assert_array_equal(fresh.scores(probes), loaded.scores(probes))
    assert run("remove", model, "person 04", "--refit", "exact") == 0
    assert capsys.readouterr().out == "1 erased. 9 subjects are enrolled.\n"
    assert Recognizer.load(model).refit == "exact"


def test_crops_cannot_defer_refits(people, model, capsys):
    before = model.read_bytes()
    assert run("remove", model, "person 03", "--refit", "deferred") == 2
    assert "refit='deferred' needs vectors" in capsys.readouterr().err
    assert model.read_bytes() == before


class TestTrainOnACluster:
    @pytest.fixture
    def vectors(self, tmp_path):
        """More than 64 MB in double precision, so that there are two parts."""
        rows = np.random.default_rng(0).normal(size=(32_000, 256)).astype(np.float32)
        names = [f"person {number:05}" for number in range(32_000)]
        np.savez(tmp_path / "people.npz", embeddings=rows, labels=names)
        return tmp_path / "people.npz"

    def test_the_model_is_that_of_one_process(self, vectors, tmp_path, capsys):
        pytest.importorskip("distributed")
        plain = ["train", "--embeddings", vectors, "--threshold", "4.6", "-o"]
        assert run(*plain, tmp_path / "one.dualqml") == 0
        cluster = ["--dask", "local", "--workers", "1", "--scratch", tmp_path]
        assert run(*plain, tmp_path / "two.dualqml", *cluster) == 0
        assert "32000 subjects, 32000 samples" in capsys.readouterr().out
        one, two = (
            Recognizer.load(tmp_path / f"{name}.dualqml") for name in ("one", "two")
        )
        probes = np.load(vectors)["embeddings"][:20]
        np.testing.assert_allclose(one.scores(probes), two.scores(probes), atol=1e-7)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "one.dualqml",
            "people.npz",
            "two.dualqml",
        ]

    def test_images_cannot(self, people, tmp_path, capsys):
        pytest.importorskip("distributed")
        options = ["--dask", "local", "--workers", "1"]
        assert run("train", people, "-o", tmp_path / "m.dualqml", *options) == 2
        assert "vectors" in capsys.readouterr().err
        assert not (tmp_path / "m.dualqml").exists()
