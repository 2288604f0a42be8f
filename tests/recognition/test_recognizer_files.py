import json

import numpy as np
import pytest

from dualqml.extractors.methods import METHODS
from dualqml.recognition import ModelFileError, Recognizer, read_tensors, write_tensors
from dualqml.recognition.recognizer_files import FORMAT
from tests.people import make_people
from tests.recognition.test_recognizer import enrolled, vectors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.dualqml"


def test_what_is_loaded_is_what_was_saved(path):
    people = vectors()
    recognizer = enrolled(people, cosine_weight=0.8)
    recognizer.calibrate(fpir=0.2)
    recognizer.save(path)
    loaded = Recognizer.load(path)
    assert loaded.subjects() == recognizer.subjects()
    assert loaded.model_id == recognizer.model_id
    assert loaded.calibration == recognizer.calibration
    np.testing.assert_array_equal(
        loaded.scores(people[:, 3]), recognizer.scores(people[:, 3])
    )
    assert loaded.identify(people[2, 3]).subject == "person 2"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_saved(path, method):
    people = make_people(n_images=4)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    loaded = Recognizer.load(path)
    probes = make_people(n_images=4, seed=1).images[:5]
    np.testing.assert_array_equal(loaded.scores(probes), recognizer.scores(probes))


def test_a_loaded_recogniser_goes_on(path):
    people = vectors()
    recognizer = enrolled(people[:5])
    recognizer.save(path)
    loaded = Recognizer.load(path)
    loaded.enroll("person 5", people[5, :3])
    loaded.remove("person 0")
    fresh = enrolled(people)
    fresh.remove("person 0")
    np.testing.assert_allclose(
        loaded.scores(people[:, 3]), fresh.scores(people[:, 3]), atol=1e-9
    )
    loaded.save(path)
    assert Recognizer.load(path).model_id == fresh.model_id


@pytest.mark.parametrize("n_people", [0, 1])
def test_recognisers_that_know_hardly_anybody(path, n_people):
    recognizer = enrolled(vectors()[:n_people])
    recognizer.save(path)
    loaded = Recognizer.load(path)
    assert loaded.subjects() == recognizer.subjects()
    for number, own in enumerate(vectors()[:3]):
        if f"person {number}" not in loaded.subjects():
            loaded.enroll(f"person {number}", own)
    assert loaded.scores(vectors()[0]).shape == (4, 3)


def test_no_byte_of_the_removed_is_left(path):
    rng = np.random.default_rng(0)
    recognizer = Recognizer(threshold=0.0)
    rows = rng.normal(size=(5, 3, 40)).astype(np.float32)
    for number, own in enumerate(rows):
        recognizer.enroll(f"person-{number}-name", own)
    recognizer.fit()
    recognizer.save(path)
    assert b"person-3-name" in path.read_bytes()
    # The samples themselves, in single and in double precision.
    traces = [rows[3, 1, 4:8].tobytes(), rows[3, 1, 4:8].astype(float).tobytes()]
    assert traces[0] in path.read_bytes()
    recognizer.remove("person-3-name")
    recognizer.save(path)
    content = path.read_bytes()
    assert b"person-3-name" not in content
    for trace in traces:
        assert trace not in content
    fresh = Recognizer(threshold=0.0)
    for number in (0, 1, 2, 4):
        fresh.enroll(f"person-{number}-name", rows[number])
    other = path.with_name("fresh.dualqml")
    fresh.save(other)
    # Not even in the rounding: the same file, byte by byte.
    assert content == other.read_bytes()


def test_arrays_stay_in_the_file(path):
    enrolled(vectors()).save(path)
    loaded = Recognizer.load(path)
    rows = loaded._gallery["person 1"]
    assert not rows.flags.writeable
    assert not rows.flags.owndata


def edited(path, change):
    arrays, metadata = read_tensors(path)
    state = json.loads(metadata["dualqml.state"])
    change(state, arrays, metadata)
    metadata["dualqml.state"] = json.dumps(state)
    metadata.pop("dualqml.sha256", None)
    write_tensors(path, dict(arrays), metadata)


def set_field(name, value):
    def change(state, arrays, metadata):
        inside = state.get("dict", state)
        inside[name] = value

    return change


def set_matcher(name, value):
    def change(state, arrays, metadata):
        set_field(name, value)(state["dict"]["matcher"], arrays, metadata)

    return change


def resized(name, width):
    """All rows of an array at another width."""

    def change(state, arrays, metadata):
        arrays[name] = np.resize(arrays[name], (len(arrays[name]), width))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, a, m: m.update({"dualqml.recognizer": "2"}), "has format '2'"),
        (lambda s, a, m: m.pop("dualqml.recognizer"), "no recogniser"),
        (lambda s, a, m: m.update({"dualqml.model_id": "0" * 16}), "not its own"),
        (set_field("method", "LDA"), "LDA has no parameter"),
        (set_field("method", "PCA"), "is not a method"),
        (set_field("kind", "smell"), "smell"),
        (set_field("subjects", ["a", "a"]), "twice"),
        (set_field("subjects", ["z", "y"]), "number of samples"),
        (set_field("size", {"tuple": [0, 3]}), "height and a width"),
        (set_field("colour", "red"), "does not have the fields"),
        (set_field("calibration", {"dict": {"threshold": "x"}}), "calibration"),
        (set_field("cosine_weight", "x"), "cosine_weight is str"),
        (set_field("kind", "image"), "not images of the size"),
        (set_matcher("cosine_mean", {"float": "nan"}), "no mean or no spread"),
        (set_matcher("cosine_spread", {"float": "inf"}), "no mean or no spread"),
        (set_matcher("cosine_spread", 0.0), "no mean or no spread"),
        (set_matcher("cosine_spread", -1.0), "no mean or no spread"),
        (resized("matcher.means", 39), "means have 39 values, not 40"),
        (resized("rows", 39), "not one of such samples"),
    ],
)
def test_files_that_are_wrong_are_refused(path, change, message):
    enrolled(vectors()).save(path)
    edited(path, change)
    with pytest.raises(ModelFileError, match=message):
        Recognizer.load(path)


@pytest.mark.parametrize(("method", "width"), [("LDA", 64), ("DualQML-W", 168)])
def test_means_of_images_are_of_what_is_compared(path, method, width):
    people = make_people(n_images=4)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    assert Recognizer.load(path)._matcher.means.shape == (6, width)
    edited(path, resized("matcher.means", 232 - width))
    with pytest.raises(ModelFileError, match=f"{232 - width} values, not {width}"):
        Recognizer.load(path)


def test_format_is_one():
    assert FORMAT == 1


def test_random_damage_is_refused(path):
    enrolled(vectors()).save(path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 60):
        damaged = content.copy()
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            Recognizer.load(path)


def test_a_missing_file(path):
    with pytest.raises(ModelFileError, match=r"people\.dualqml"):
        Recognizer.load(path)
