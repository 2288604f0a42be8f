"""Models remember what their samples are: photographs, crops or vectors."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from dualqml.persistence import load
from dualqml.recognition import Recognizer
from tests.cli.commands import probe, run, run_alone
from tests.cli.pictures import save, save_people
from tests.images.test_face_networks import saved_network
from tests.people import make_people, make_vectors


@pytest.fixture
def vector_file(tmp_path):
    rows, labels = make_vectors(6, 3, size=12, noise=0.4)
    np.savez(tmp_path / "faces.npz", embeddings=rows, labels=labels)
    return tmp_path / "faces.npz"


@pytest.fixture
def vector_model(vector_file):
    model = vector_file.with_name("vectors.dualqml")
    arguments = ["train", "--embeddings", vector_file, "-o", model]
    assert run(*arguments, "--threshold", 1.0) == 0
    return model


class TestMisfits:
    """What does not fit is refused, and the message says what to do."""

    IMAGES = (
        "This model was trained on vectors, so it cannot compare images: give vectors "
        "of the same network with --embeddings, or train a new model from the images"
    )

    def test_a_model_of_vectors_refuses_images(self, vector_model, people, capsys):
        before = vector_model.read_bytes()
        image = probe(people, 1)
        for arguments in (
            ["identify", vector_model, image],
            ["verify", vector_model, "p01", image],
            ["enroll", vector_model, "p01", image],
            ["calibrate", vector_model, people, "--fpir", 0.1],
        ):
            assert run(*arguments) == 2
            assert capsys.readouterr().err == f"dualqml: {self.IMAGES}\n"
        assert vector_model.read_bytes() == before

    def test_other_models_refuse_vectors(
        self, model, gallery, photo_model, vector_file, capsys
    ):
        for path, kind, subject in (
            (model, "crops", "person 01"),
            (photo_model, "photographs", "p01"),
        ):
            before = path.read_bytes()
            for arguments in (
                ["identify", path],
                ["verify", path, subject],
                ["enroll", path, subject],
                ["calibrate", path, "--fpir", 0.1],
            ):
                assert run(*arguments, "--embeddings", vector_file) == 2
                assert capsys.readouterr().err == (
                    f"dualqml: This model was trained on {kind}, so it cannot compare "
                    "vectors from a file: give image files, or train a new model with "
                    "--embeddings\n"
                )
            assert path.read_bytes() == before

    def test_a_model_of_nobody(self, tmp_path, people, capsys):
        Recognizer(threshold=0.0).save(tmp_path / "nobody")
        for command in ("identify", "enroll"):
            words = ["Ann"] if command == "enroll" else []
            code = run(command, tmp_path / "nobody", *words, probe(people, 1))
            assert code == 2
            assert "Nobody is enrolled in this model" in capsys.readouterr().err

    @pytest.mark.parametrize("kind", ["crops", "vectors"])
    def test_a_network_without_photographs(
        self, kind, model, vector_model, vector_file, people, capsys
    ):
        place = [people] if kind == "crops" else ["--embeddings", vector_file]
        network = ["--network", "net.onnx"]
        out = ["-o", people.parent / "new.dualqml", *network]
        assert run("train", *place, *out) == 2
        assert "--network belongs to photographs, and the" in capsys.readouterr().err
        known = model if kind == "crops" else vector_model
        assert run("calibrate", known, *place, "--fpir", 0.1, *network) == 2
        said = capsys.readouterr().err
        assert f"--network belongs to photographs, and this model is of {kind}" in said

    def test_a_vector_of_zeros(self, vector_model, tmp_path, capsys):
        rows, _ = make_vectors(6, 3, size=12, noise=0.4)
        rows[1] = 0.0
        np.save(tmp_path / "probes.npy", rows[:3])
        arguments = ["identify", vector_model, "--embeddings", tmp_path / "probes.npy"]
        assert run(*arguments) == 1
        shown = capsys.readouterr()
        starts = [line.split(" (")[0] for line in shown.out.splitlines()]
        assert starts == ["row 0: p00", "row 2: p00"]
        assert shown.err == (
            "dualqml: left out: row 1: all values are zero\n"
            "dualqml: 3 vectors, 2 answers: 2 match; 1 left out\n"
        )


class TestWhatSamplesAre:
    @pytest.mark.parametrize(
        ("place", "wanted", "message"),
        [
            ("faces.npz", "photographs", "is vectors, and --input says photographs"),
            ("faces.npz", "crops", "is vectors, and --input says crops"),
            ("images.npz", "vectors", "is crops, and --input says vectors"),
            ("images.npz", "photographs", "is crops, and --input says photographs"),
            ("orl", "photographs", "orl is crops, and --input says photographs"),
            ("people", "vectors", "people is a folder of images, and --input says"),
            ("nowhere", "auto", "nowhere is neither a folder nor"),
            ("nowhere", "vectors", "nowhere is neither a folder nor"),
        ],
    )
    @pytest.mark.parametrize("command", ["train", "background", "evaluate"])
    def test_a_wrong_word(
        self, place, wanted, message, command, vector_file, capsys, monkeypatch
    ):
        monkeypatch.chdir(vector_file.parent)
        found = make_people(size=16)
        np.savez("images.npz", images=found.images, labels=found.labels)
        (vector_file.parent / "people").mkdir()
        out = "--out" if command == "evaluate" else "-o"
        assert run(command, place, "--input", wanted, out, "new") == 2
        assert message in capsys.readouterr().err
        assert not (vector_file.parent / "new").exists()

    def test_embeddings_are_vectors(self, vector_file, capsys):
        arguments = ["train", "--embeddings", vector_file, "-o", "new"]
        assert run(*arguments, "--input", "crops") == 2
        said = capsys.readouterr().err
        assert "--embeddings has vectors, and --input says crops" in said

    def test_vectors_as_a_database(self, vector_file, capsys):
        model = vector_file.with_name("m.dualqml")
        assert run("train", vector_file, "-o", model, "--threshold", 1) == 0
        assert capsys.readouterr().err == ""
        assert Recognizer.load(model).front_end.kind == "vectors"

    def test_crops_of_photographs_by_word(self, gallery, tmp_path, capsys):
        model = tmp_path / "m.dualqml"
        arguments = ["train", gallery / "people", "-o", model, "--threshold", 0]
        assert run(*arguments, "--input", "crops") == 0
        # Nothing was guessed.
        assert capsys.readouterr().err == ""
        assert Recognizer.load(model).front_end.kind == "crops"

    def test_photographs_are_remembered(self, gallery, capsys):
        model = gallery / "people.dualqml"
        about = Recognizer.load(model).front_end
        assert about.kind == "photographs"
        assert run("inspect", model) == 0
        shown = capsys.readouterr().out
        assert f"\ninput: {about.in_words()}\n" in shown
        assert "network SFace (SHA-256 " in shown
        # The size of crops says nothing here.
        assert "size:" not in shown
        assert "background: <Background of 1510 samples of 151 people" in shown

    def test_a_background_of_photographs(self, gallery, tmp_path, capsys):
        path = tmp_path / "b.background"
        assert run_alone("background", gallery / "people", "-o", path) == 0
        shown = capsys.readouterr()
        assert shown.out == f"{path}: 5 people, 15 samples, 128 features\n"
        assert "photographs, whose faces are read with YuNet and SFace" in shown.err
        assert load(path).n_people == 5

    def test_calibrate_reads_photographs(
        self, gallery, photo_model, orl_faces, tmp_path, capsys
    ):
        strangers = save_people(tmp_path / "s", orl_faces, range(30, 33), (0, 1))
        arguments = ["calibrate", photo_model, strangers, "--fpir", 0.4]
        assert run_alone(*arguments) == 0
        shown = capsys.readouterr().out
        assert "measured on 6 samples of people who are not enrolled" in shown
        found = Recognizer.load(photo_model).calibration
        assert (found.n_comparisons, found.prior) == (6, False)

    def test_names_of_files_that_cannot_be_shown(self, gallery, tmp_path, capsys):
        for person in ("p00", "p01"):
            shutil.copytree(gallery / "people" / person, tmp_path / "in" / person)
        odd = tmp_path / "in" / "p00" / "0.png"
        try:
            odd.rename(odd.with_name("a\x1b[2J\n" + 180 * "b" + ".png"))
        except OSError:
            pytest.skip("no such names here")
        model = tmp_path / "m.dualqml"
        assert run_alone("train", tmp_path / "in", "-o", model) == 0
        name = Recognizer.load(model).sample_names("p00")[-1]
        assert name.startswith("p00/a\ufffd[2J bbb")
        assert run_alone("enroll", model, "Ann", tmp_path / "in" / "p00") == 0
        assert len(Recognizer.load(model).samples("Ann")) == 3


class TestOwnNetwork:
    @pytest.fixture
    def network(self, orl_faces, tmp_path):
        """A network that gives the means of 64 parts of a face of 32 x 32 pixels."""
        sizes = {"kernel_shape": [4, 4], "strides": [4, 4]}
        nodes = [("AveragePool", ["x"], ["out"], sizes)]
        return saved_network(tmp_path / "parts.onnx", nodes, 32, {"out": [1, 3, 8, 8]})

    @pytest.fixture
    def trained(self, gallery, network, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        options = ["--network", "parts.onnx", "--network-size", 32]
        options += ["--network-channels", "bgr", "--network-mean", 0]
        options += ["--network-scale", 255, "--threshold", 0]
        model = tmp_path / "own.dualqml"
        assert run_alone("train", gallery / "people", "-o", model, *options) == 0
        return model

    def test_it_is_remembered(self, gallery, network, trained, tmp_path, capsys):
        said = capsys.readouterr().err
        assert "whose faces are read with YuNet and parts.onnx" in said
        about = Recognizer.load(trained).front_end
        content = (tmp_path / "parts.onnx").read_bytes()
        assert about.sha256 == hashlib.sha256(content).hexdigest()
        assert vars(about.network) == {
            "path": str(tmp_path / "parts.onnx"),
            "size": 32,
            "channels": "bgr",
            "mean": 0.0,
            "scale": 255.0,
        }
        assert run("inspect", trained, "--json") == 0
        about = json.loads(capsys.readouterr().out)
        assert "parts.onnx (SHA-256 " in about["input"]
        # The statistics that come with SFace are of other features.
        assert about["background"] is None
        recognizer = Recognizer.load(trained)
        assert recognizer.samples("p00").shape == (3, 192)
        file = gallery / "people" / "p00" / "0.png"
        assert run_alone("identify", trained, file) == 0
        assert ": p00 (" in capsys.readouterr().out

    def test_a_changed_file_is_refused(self, gallery, network, trained, capsys):
        path = trained.with_name("parts.onnx")
        path.write_bytes(path.read_bytes() + b"\0")
        file = gallery / "people" / "p00" / "0.png"
        for arguments in (
            ["identify", trained, file],
            ["enroll", trained, "p00", file],
            ["calibrate", trained, gallery / "people", "--fpir", 0.1],
        ):
            capsys.readouterr()
            assert run_alone(*arguments) == 2
            said = capsys.readouterr().err
            assert f"{path} is not the network of this model: its SHA-256 is" in said
            assert "or train the model again" in said

    def test_a_moved_file(self, gallery, network, trained, tmp_path, capsys):
        (tmp_path / "moved").mkdir()
        moved = tmp_path / "moved" / "other name.onnx"
        (tmp_path / "parts.onnx").rename(moved)
        file = gallery / "people" / "p00" / "0.png"
        assert run_alone("identify", trained, file) == 2
        said = capsys.readouterr().err
        assert "There is no file" in said
        assert "say where it is with --network FILE" in said
        assert run_alone("identify", trained, file, "--network", moved) == 0
        assert run_alone("enroll", trained, "p00", file, "--network", moved) == 0
        wrong = shutil.copy(moved, tmp_path / "wrong.onnx")
        wrong.write_bytes(b"text")
        assert run_alone("identify", trained, file, "--network", wrong) == 2
        assert "is not the network of this model" in capsys.readouterr().err

    def test_a_file_that_is_no_network(self, gallery, tmp_path, capsys):
        (tmp_path / "text.onnx").write_text("text")
        model = tmp_path / "m.dualqml"
        arguments = ["train", gallery / "people", "-o", model, "--network"]
        assert run_alone(*arguments, tmp_path / "text.onnx") == 2
        assert "text.onnx" in capsys.readouterr().err
        assert run_alone(*arguments, tmp_path / "absent.onnx") == 2
        assert "There is no file" in capsys.readouterr().err
        assert not model.exists()


def test_small_images_of_several_sizes(orl_faces, tmp_path, capsys):
    """Tight crops of faces are taken for photographs, and are read."""
    for person in range(2):
        for number, size in enumerate((112, 100)):
            pixels = orl_faces[person, number, :size]
            save(pixels, tmp_path / "in" / f"p{person}" / f"{number}.png")
    model = tmp_path / "m.dualqml"
    assert run_alone("train", tmp_path / "in", "-o", model) == 0
    said = capsys.readouterr().err
    assert "are taken for photographs, whose faces are read" in said
    assert "(of several sizes; a face was found in 4 of 4 tried)" in said
