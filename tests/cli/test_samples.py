import inspect
from argparse import Namespace

import numpy as np
import pytest

from dualqml.cli._samples import DEFAULT_SIZE, read_background
from dualqml.exceptions import DatabaseError, ModelFileError
from dualqml.extractors import Background, NearestSample
from dualqml.persistence import save
from dualqml.recognition import Recognizer
from tests.cli.commands import run
from tests.people import make_people, make_vectors
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
    shown = capsys.readouterr().out.splitlines()[2:]
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
        (["train", "--embeddings", "few.npz", "-o", "m"], "with other people, or --th"),
        (["train", "--embeddings", "some.npz", "-o", "no/m"], "There is no folder no;"),
        (["train", "--embeddings", "some.npz", "-o", "."], ". is a folder; give the"),
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


def asked(place, **options):
    """What a command with this background has as its options."""
    given = None if place is None else str(place)
    return Namespace(
        **{"background": given, "root": None, "on_bad": "report"} | options
    )


def made_images(path):
    people = make_people(n_people=11, n_images=3, size=16)
    np.savez(path, images=people.images, labels=people.labels)
    return people


class TestReadBackground:
    def test_none(self):
        assert read_background(asked(None), kind="crops") is None
        assert read_background(asked("none"), kind="vectors") is None

    def test_the_size_is_that_of_a_recogniser(self):
        assert inspect.signature(Recognizer).parameters["size"].default == DEFAULT_SIZE

    def test_a_saved_file(self, tmp_path):
        made = Background.from_samples(*make_vectors(12, 3, size=20, noise=0.5))
        save(made, tmp_path / "others.background")
        found = read_background(asked(tmp_path / "others.background"), kind="vectors")
        assert found.within.tobytes() == made.within.tobytes()

    def test_vectors(self, tmp_path):
        rows, labels = make_vectors(12, 3, size=20, noise=0.5)
        np.savez(tmp_path / "others.npz", embeddings=rows, labels=labels)
        found = read_background(asked(tmp_path / "others.npz"), kind="vectors")
        # The recogniser keeps vectors in single precision.
        expected = Background.from_samples(rows.astype(np.float32), labels)
        assert found.within.tobytes() == expected.within.tobytes()
        assert found.image_shape is None

    def test_images(self, tmp_path):
        people = made_images(tmp_path / "others.npz")
        options = asked(tmp_path / "others.npz")
        found = read_background(options, kind="crops")
        assert (found.n_people, found.image_shape) == (11, (32, 32))
        same = read_background(options, kind="crops", size=(16, 16))
        expected = Background.from_samples(people.images, people.labels)
        assert same.within.tobytes() == expected.within.tobytes()

    def test_folders_below_the_root(self, tmp_path):
        made_images(tmp_path / "others.npz")
        found = read_background(asked("others.npz", root=tmp_path), kind="crops")
        assert found.n_people == 11

    def test_a_database_by_name(self):
        pytest.importorskip("PIL")
        found = read_background(asked("orl"), kind="crops")
        assert (found.n_people, found.n_samples) == (40, 400)
        # Of so many inputs, the leading rows.
        assert found.within.shape == (256, found.mean.size)

    def test_images_are_no_background_of_vectors(self, tmp_path):
        with pytest.raises(DatabaseError, match="The samples are vectors, so"):
            read_background(asked(tmp_path), kind="vectors")

    @pytest.mark.parametrize("on_bad", ["report", "skip", "stop"])
    def test_bad_images(self, tmp_path, capsys, on_bad):
        image_module = pytest.importorskip("PIL.Image")
        people = make_people(n_people=11, n_images=2, size=16)
        for number, label in enumerate(people.labels):
            file = tmp_path / label / f"{number}.png"
            file.parent.mkdir(exist_ok=True)
            image_module.fromarray(people.images[number]).save(file)
        (tmp_path / "person 00" / "bad.png").write_text("text")
        options = asked(tmp_path, on_bad=on_bad)
        if on_bad == "stop":
            with pytest.raises(DatabaseError, match="some images cannot be used"):
                read_background(options, kind="crops")
        else:
            assert read_background(options, kind="crops").n_samples == 22
        said = capsys.readouterr().err
        assert said.count("bad.png") == (on_bad != "skip")
        assert "dualqml: 1 of 23 cannot be used." in said
        assert ("Nothing was done" in said) == (on_bad == "stop")

    def test_other_files_are_refused(self, tmp_path):
        path = tmp_path / "model"
        save(NearestSample().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]), path)
        with pytest.raises(DatabaseError, match="holds no statistics of people"):
            read_background(asked(path), kind="crops")
        Recognizer().save(path)
        with pytest.raises(DatabaseError, match="Make such a file with dualqml back"):
            read_background(asked(path), kind="crops")
        path.write_text("Ann")
        with pytest.raises(ModelFileError, match="model"):
            read_background(asked(path), kind="crops")
        np.save(tmp_path / "bare.npy", np.ones((3, 4)))
        with pytest.raises(DatabaseError, match="does not say who is who; give an"):
            read_background(asked(tmp_path / "bare.npy"), kind="vectors")
        with pytest.raises(DatabaseError, match="neither a folder nor"):
            read_background(asked(tmp_path / "nowhere"), kind="crops")
