import json
import os
import stat
from dataclasses import fields

import numpy as np
import pytest

from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.extractors.methods import METHODS
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition import Calibration, Recognizer
from dualqml.recognition.recognizer_files import _CALIBRATION, FORMAT
from tests.people import make_people
from tests.persistence.sealed import Forged
from tests.recognition.test_recognizer import enrolled, vectors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.dualqml"


def test_a_loaded_recogniser_equals_the_saved_one(path):
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


def test_a_loaded_recogniser_can_be_changed(path):
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
def test_recognisers_of_fewer_than_two_subjects_come_back(path, n_people):
    recognizer = enrolled(vectors()[:n_people])
    recognizer.save(path)
    loaded = Recognizer.load(path)
    assert loaded.subjects() == recognizer.subjects()
    for number, own in enumerate(vectors()[:3]):
        if f"person {number}" not in loaded.subjects():
            loaded.enroll(f"person {number}", own)
    assert loaded.scores(vectors()[0]).shape == (4, 3)


def test_no_byte_of_a_removed_subject_is_left_in_the_file(path):
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
        (lambda s, a, m: m.update({"dualqml.recognizer": "1"}), "has format '1'"),
        (lambda s, a, m: m.update({"dualqml.recognizer": "3"}), "has format '3'"),
        (lambda s, a, m: m.pop("dualqml.recognizer"), "no recogniser"),
        (
            lambda s, a, m: m.update({"dualqml.model_id": "0" * 16}),
            "do not fit its model id",
        ),
        (set_field("method", "LDA"), "LDA has no parameter"),
        (set_field("method", "PCA"), "method is not one of 'APCA'"),
        (set_field("kind", "smell"), "kind is not one of 'image', 'vector'"),
        (set_field("subjects", ["a", "a"]), "twice, or they are not in order"),
        (set_field("subjects", ["y", "z"]), "number of samples"),
        (set_field("size", {"tuple": [0, 3]}), "height and a width"),
        (set_field("colour", "red"), "colour is a field that is not known"),
        (set_field("calibration", {"dict": {"threshold": "x"}}), "calibration"),
        (set_field("cosine_weight", "x"), "cosine_weight is not a finite number"),
        (set_field("kind", "image"), "not images of the size"),
        (set_matcher("cosine_mean", {"float": "nan"}), "is not a finite number"),
        (set_matcher("cosine_spread", {"float": "inf"}), "is not a positive"),
        (set_matcher("cosine_spread", 0.0), "is not a positive number"),
        (set_matcher("cosine_spread", -1.0), "is not a positive number"),
        (set_matcher("spread", 0.0), "matcher.spread is not a positive number"),
        (set_matcher("slope", -1.0), "matcher.slope is not a positive number"),
        (set_matcher("offset", {"float": "nan"}), "offset is not a finite number"),
        (set_matcher("cosine_weight", None), "cosine_weight is not a finite number"),
        (set_matcher("parameters", None), "matcher.parameters is not"),
        (resized("matcher.means", 39), "means have 39 values, not 40"),
        (resized("rows", 39), "samples of another size"),
    ],
)
def test_files_with_wrong_values_are_refused(path, change, message):
    enrolled(vectors()).save(path)
    edited(path, change)
    with pytest.raises(ModelFileError, match=message):
        Recognizer.load(path)


def parameter(name, value):
    return lambda f: f.state["parameters"]["dict"].update({name: value})


def calibration(**values):
    return lambda f: f.state["calibration"]["dict"].update(values)


def array(name, change):
    def replace(f):
        f.arrays[name] = change(f.arrays[name].copy())

    return replace


def with_value(value):
    def change(rows):
        rows[2, 3] = value
        return rows

    return change


ROWS = {"array": {"tensor": "rows"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (parameter("lam", ROWS), "parameters.lam is not a few numbers"),
        (parameter("self", 1), "parameters.self is no parameter of a method"),
        (parameter("size", 1), "parameters.size is no parameter of a method"),
        (parameter("image_shape", 1), "multiple values"),
        (parameter("lam", -1.0), "'lam' parameter of DualQMLW must be"),
        (parameter("lam", "\x1b[2J"), "parameters.lam is not a few numbers"),
        (parameter("n_jobs", 10**6), "n_jobs is not None or a number of threads"),
        (parameter("rho", [0.0] * 2000), "rho is not a few numbers"),
        (array("counts", lambda c: c.astype(np.uint64)), "64-bit whole numbers"),
        (array("counts", lambda c: c * 2**62), "do not match their numbers"),
        (array("rows", with_value(np.nan)), "rows has numbers that are not finite"),
        (array("rows", with_value(np.inf)), "rows has numbers that are not finite"),
        (array("rows", lambda r: r * (r < r[1])), "all zeros|not one of such"),
        (array("matcher.means", with_value(np.nan)), "matcher.means has numbers"),
        (calibration(kind="fpir"), "calibration.target is missing"),
        (calibration(target=2.0), "calibration.target is not a rate"),
        (calibration(source="\x1b[2J"), "calibration.source is not a line"),
        (calibration(source="x" * 5000), "calibration.source is not a line"),
        (calibration(source="a\nb"), "calibration.source is not a line"),
        (calibration(n_mated=-1), "calibration.n_mated is not a whole number"),
        (lambda f: f.state["calibration"]["dict"].pop("low"), "low is missing"),
        (lambda f: f.state.update(size={"tuple": [30_000, 30_000]}), "1,048,576"),
    ],
)
def test_forged_files_with_wrong_values_are_refused(path, change, message):
    """With the checksum and the number of the model that fit."""
    enrolled(vectors()).save(path)
    forged = Forged(path.read_bytes())
    change(forged)
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match=message) as caught:
        Recognizer.load(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000


def test_forged_files_with_valid_values_load(path):
    """Else the test above would prove nothing."""
    enrolled(vectors(), rho=0.25).save(path)
    before = path.read_bytes()
    path.write_bytes(Forged(before).seal())
    assert Recognizer.load(path).parameters == {"rho": 0.25}
    assert Forged(path.read_bytes()).strings == Forged(before).strings | {
        "dualqml.sha256": Forged(path.read_bytes()).strings["dualqml.sha256"],
        "dualqml.state": Forged(path.read_bytes()).strings["dualqml.state"],
    }


def test_a_pipeline_of_other_steps_is_not_the_method(path):
    people = make_people(n_images=3)
    recognizer = Recognizer("LDA", size=(8, 8), threshold=0.0)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    forged = Forged(path.read_bytes())
    model = forged.state["matcher"]["dict"]["model"]["object"]
    step = {"object": {"class": "FaceEmbedder", "parameters": {}, "attributes": {}}}
    model["parameters"]["steps"].insert(0, {"tuple": ["faces", step]})
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match="the model is not of the method"):
        Recognizer.load(path)


def test_scores_that_are_not_finite_raise_an_error(path):
    enrolled(vectors()).save(path)
    forged = Forged(path.read_bytes())
    name = "matcher.model.qml_.components_"
    forged.arrays[name] = np.full_like(forged.arrays[name], 1e300)
    path.write_bytes(forged.seal())
    loaded = Recognizer.load(path)
    with (
        pytest.raises(RecognitionError, match="not finite"),
        np.errstate(all="ignore"),
    ):
        loaded.identify(vectors()[0, 3])


def test_a_recogniser_that_could_not_be_loaded_is_not_saved(path):
    recognizer = enrolled(vectors())
    recognizer.calibration = Calibration(0.5, "given", source="\x1b[2J")
    with pytest.raises(ModelFileError, match=r"cannot be saved: calibration\.source"):
        recognizer.save(path)
    assert not path.exists()


def test_images_have_a_largest_size():
    assert Recognizer(size=(1024, 1024)).size == (1024, 1024)
    with pytest.raises(RecognitionError, match="at most 1,048,576 pixels"):
        Recognizer(size=(1024, 1025))


@pytest.mark.parametrize("name", ["image_shape", "name"])
def test_unknown_parameters_of_a_method_are_refused(name):
    for method in ("LDA", "DualQML-W"):
        with pytest.raises(RecognitionError):
            Recognizer(method, **{name: (8, 8)})


def test_samples_that_a_method_cannot_learn_from_raise_a_recognition_error():
    recognizer = enrolled(vectors(), descriptor="local")
    with pytest.raises(RecognitionError, match="cannot learn from these samples"):
        recognizer.fit()


def test_all_fields_of_a_calibration_are_known():
    assert set(_CALIBRATION) == {field.name for field in fields(Calibration)}


def test_arrays_as_parameters_are_kept_as_lists(path):
    people = make_people(n_images=3)
    recognizer = Recognizer("DualQML", size=(8, 8), lams=np.array([1.0, 10.0]), cv=2)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    assert Recognizer.load(path).parameters == {"lams": [1.0, 10.0], "cv": 2}


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_only_the_owner_can_read_a_new_file(path):
    before = os.umask(0o022)
    try:
        enrolled(vectors()).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o640)
        enrolled(vectors()).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize(("method", "width"), [("LDA", 64), ("DualQML-W", 168)])
def test_means_have_the_size_of_the_compared_inputs(path, method, width):
    people = make_people(n_images=4)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    assert Recognizer.load(path)._matcher.means.shape == (6, width)
    edited(path, resized("matcher.means", 232 - width))
    with pytest.raises(ModelFileError, match=f"{232 - width} values, not {width}"):
        Recognizer.load(path)


def test_format_is_two():
    assert FORMAT == 2


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


def test_a_missing_file_raises_a_model_file_error(path):
    with pytest.raises(ModelFileError, match=r"people\.dualqml"):
        Recognizer.load(path)
