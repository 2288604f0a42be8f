"""Names of samples: given, of files, in galleries and in files of recognisers."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.recognition import Recognizer
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.inputs import sample_names
from tests.persistence.sealed import Forged

ROWS = np.random.default_rng(0).normal(size=(8, 6))


def named(**options):
    recognizer = Recognizer(threshold=0.0, **options)
    recognizer.enroll("Ann", ROWS[:2], names=["a/1.jpg", ""])
    recognizer.enroll("Bob", ROWS[2:4])
    recognizer.enroll_many(ROWS[4:7], ["Zoe", "Ann", "Zoe"], names=["z1", "ann3", "é"])
    return recognizer


def test_names_stay_with_their_samples():
    recognizer = named()
    assert recognizer.sample_names("Ann") == ["a/1.jpg", "", "ann3"]
    assert recognizer.sample_names("Bob") == ["", ""]
    assert recognizer.sample_names("Zoe") == ["z1", "é"]
    recognizer.remove("Ann")
    recognizer.enroll("Ann", ROWS[:1])
    assert recognizer.sample_names("Ann") == [""]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["one"], "2 samples need a list of as many names"),
        ("ab", "2 samples need a list of as many names"),
        (["a", 3], "named by text"),
        (["a", "b\n"], "all are printable"),
        (["a", "x" * 201], "at most 200 characters"),
    ],
)
def test_wrong_names_are_refused(names, message):
    recognizer = Recognizer()
    with pytest.raises(RecognitionError, match=message):
        recognizer.enroll("Ann", ROWS[:2], names=names)
    with pytest.raises(RecognitionError, match=message):
        recognizer.enroll_many(ROWS[:2], ["Ann", "Bob"], names=names)
    assert recognizer.subjects() == []
    assert recognizer.inputs is None
    if names != "ab":
        with pytest.raises(RecognitionError):
            Gallery().add("Ann", ROWS[:2], names)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("x/Ann/ann1.jpg", ["Ann/ann1.jpg"]),
        (Path("/data/Ann/ann1.jpg"), ["Ann/ann1.jpg"]),
        (["/ann1.jpg", "ann2.jpg", ROWS], ["ann1.jpg", "ann2.jpg", ""]),
        (["A\x1b[2J/b\udc80.png"], ["A?[2J/b?.png".replace("?", "\ufffd")]),
        (["d/" + "x" * 300], ["d/" + "x" * 195 + "..."]),
        (ROWS, [""] * 8),
    ],
)
def test_files_are_named_by_folder_and_name(inputs, expected):
    assert sample_names(inputs, len(expected), None) == expected


@given(st.lists(st.text(max_size=300), min_size=1, max_size=3))
def test_names_of_any_path_can_be_used(paths):
    found = sample_names(paths, len(paths), None)
    assert sample_names(ROWS, len(paths), found) == found


def test_enrolled_files_have_names(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"p{number // 2}" / f"{number}.png")
        paths[-1].parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (20, 16), dtype=np.uint8)
        image_module.fromarray(pixels).save(paths[-1])
    recognizer = Recognizer(threshold=0.0)
    recognizer.enroll("p0", paths[:2])
    recognizer.enroll_many([str(path) for path in paths[2:]], ["p1", "p1"])
    assert recognizer.sample_names("p0") == ["p0/0.png", "p0/1.png"]
    assert recognizer.sample_names("p1") == ["p1/2.png", "p1/3.png"]
    recognizer.enroll("p1", paths[0], names=["other"])
    assert recognizer.sample_names("p1")[2] == "other"


def test_names_come_back_from_a_file(tmp_path):
    path = tmp_path / "model"
    named().save(path)
    loaded = Recognizer.load(path)
    assert loaded.model_id == named().model_id
    for subject in ("Ann", "Bob", "Zoe"):
        assert loaded.sample_names(subject) == named().sample_names(subject)
    # Its samples are views of the file, which a removal replaces.
    loaded.remove("Bob")
    assert loaded.sample_names("Zoe") == ["z1", "é"]


def test_names_count_for_the_model_only_if_there_are_any():
    plain, empty, other = Recognizer(), Recognizer(), Recognizer()
    plain.enroll("Ann", ROWS)
    empty.enroll("Ann", ROWS, names=[""] * 8)
    other.enroll("Ann", ROWS, names=["x"] + [""] * 7)
    assert plain.model_id == empty.model_id != other.model_id


def test_names_of_a_removed_subject_are_erased(tmp_path):
    removed, fresh = named(), Recognizer(threshold=0.0)
    removed.save(tmp_path / "removed")
    assert b"ann3" in (tmp_path / "removed").read_bytes()
    removed.remove("Ann")
    removed.save(tmp_path / "removed")
    fresh.enroll("Zoe", ROWS[[4, 6]], names=["z1", "é"])
    fresh.enroll("Bob", ROWS[2:4])
    fresh.save(tmp_path / "fresh")
    content = (tmp_path / "removed").read_bytes()
    assert b"ann3" not in content
    assert content == (tmp_path / "fresh").read_bytes()


def old(content):
    """The same file as it was written before there were names and priors."""
    forged = Forged(content)
    del forged.state["names"]
    if forged.state["calibration"]:
        del forged.state["calibration"]["dict"]["prior"]
    return forged.seal()


def test_files_from_before_there_were_names_load(tmp_path):
    recognizer = Recognizer(threshold=0.5)
    recognizer.enroll("Ann", ROWS[:3])
    recognizer.enroll("Bob", ROWS[3:])
    path = tmp_path / "old"
    recognizer.save(path)
    path.write_bytes(old(path.read_bytes()))
    assert b'\\"names\\"' not in path.read_bytes()
    loaded = Recognizer.load(path)
    assert loaded.sample_names("Ann") == ["", "", ""]
    assert loaded.calibration == recognizer.calibration
    np.testing.assert_array_equal(loaded.scores(ROWS), recognizer.scores(ROWS))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (b"a\nb", "not a name for each"),
        (b"\n" * 9, "not a name for each"),
        (b"\n" * 6, "are all empty"),
        (b"\xff" + b"\n" * 6, "cannot be loaded"),
        (b"\x1b" + b"\n" * 6, "all are printable"),
        (b"x" * 201 + b"\n" * 6, "at most 200 characters"),
    ],
)
def test_forged_names_are_refused(tmp_path, names, message):
    path = tmp_path / "model"
    named().save(path)
    forged = Forged(path.read_bytes())
    forged.arrays["names"] = np.frombuffer(names, dtype=np.uint8)
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match=message):
        Recognizer.load(path)


def test_names_of_other_samples_are_refused(tmp_path):
    path = tmp_path / "model"
    named().save(path)
    forged = Forged(path.read_bytes())
    # Its number of the model stays as it was.
    forged.model_id = lambda: forged.strings["dualqml.model_id"]
    assert path.write_bytes(forged.seal())
    assert Recognizer.load(path).sample_names("Ann")[0] == "a/1.jpg"
    forged.arrays["names"] = np.frombuffer(b"other" + b"\n" * 6, dtype=np.uint8)
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match="do not fit its model id"):
        Recognizer.load(path)


def test_names_without_samples_are_refused(tmp_path):
    path = tmp_path / "model"
    named().save(path)
    node = json.loads(json.dumps(Forged(path.read_bytes()).state["names"]))
    Recognizer(threshold=0.0).save(path)
    forged = Forged(path.read_bytes())
    forged.state["names"] = node
    forged.arrays["names"] = np.frombuffer(b"a", dtype=np.uint8)
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match="names of samples without samples"):
        Recognizer.load(path)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=12),
        min_size=4,
        max_size=4,
    ),
    st.permutations(["Ann", "Bob", "Zoe"]),
)
def test_files_do_not_depend_on_the_order_of_enrolment(tmp_path_factory, names, order):
    folder = tmp_path_factory.mktemp("files")
    parts = {"Ann": slice(0, 2), "Bob": slice(2, 3), "Zoe": slice(3, 4)}
    for file, subjects in (("one", order), ("two", list(parts))):
        recognizer = Recognizer(threshold=0.0)
        for subject in subjects:
            own = parts[subject]
            recognizer.enroll(subject, ROWS[own], names=names[own])
        recognizer.save(folder / file)
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    loaded = Recognizer.load(folder / "one")
    assert [n for s in parts for n in loaded.sample_names(s)] == names
