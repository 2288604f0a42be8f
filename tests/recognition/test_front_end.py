"""What a recogniser remembers of how its samples are read."""

from dataclasses import replace

import numpy as np
import pytest

from dualqml.exceptions import ModelFileError, NetworkError, RecognitionError
from dualqml.images import FaceEmbedder
from dualqml.images.face_networks import SFACE, FaceNetwork
from dualqml.recognition import Recognizer, decision_model, recognizer_files
from dualqml.recognition.decision_model import load_decision_model, saved_subjects
from dualqml.recognition.front_end import FrontEnd, network_background
from tests.people import make_vectors


@pytest.fixture
def recognizer():
    """Three people by vectors of a network, as if from photographs."""
    rows, labels = make_vectors(3, 3, size=128, noise=0.2, seed=0)
    found = Recognizer(embedding=FaceEmbedder(), threshold=0.0)
    found.enroll_many(rows, [f"person {label}" for label in labels])
    return found


def test_kinds_of_samples():
    assert Recognizer().front_end == FrontEnd(None)
    vectors, images = Recognizer(), Recognizer()
    vectors.enroll("Ann", np.eye(5))
    images.enroll("Ann", np.zeros((2, 16, 16), dtype=np.uint8) + 7)
    assert vectors.front_end.in_words() == "vectors"
    assert images.front_end.in_words() == "crops"
    assert vectors.front_end.embedder() is None
    with pytest.raises(RecognitionError, match="of crops, not of photographs"):
        images.front_end.checked_network()


def test_photographs_are_remembered_in_files(recognizer, tmp_path):
    assert recognizer.front_end.sha256 == SFACE.sha256
    path = tmp_path / "people.dualqml"
    recognizer.save(path)
    again = Recognizer.load(path)
    assert again.front_end == recognizer.front_end
    assert load_decision_model(path).front_end == recognizer.front_end
    assert saved_subjects(path) == {f"person p0{n}": 3 for n in range(3)}
    again.save(tmp_path / "again.dualqml")
    assert (tmp_path / "again.dualqml").read_bytes() == path.read_bytes()
    assert recognizer.front_end.in_words().startswith(
        "photographs, with the network SFace (SHA-256 0ba9fbfa01b5)"
    )


def test_the_quick_model_gives_the_same_answers(recognizer, tmp_path):
    path = tmp_path / "people.dualqml"
    recognizer.save(path)
    quick = load_decision_model(path)
    probes, _ = make_vectors(20, 1, size=128, noise=0.2, seed=3)
    np.testing.assert_allclose(
        quick.scores(probes), recognizer.scores(probes), atol=1e-9
    )
    for one, other in zip(
        quick.identify_many(probes, top=2),
        recognizer.identify_many(probes, top=2),
        strict=True,
    ):
        assert (one.decision, one.subject) == (other.decision, other.subject)
        assert one.unknown_probability == pytest.approx(other.unknown_probability)
    claims = recognizer.subjects()[:1] * len(probes)
    verified = quick.verify_many(claims, probes, threshold=1.0)
    expected = recognizer.verify_many(claims, probes, threshold=1.0)
    assert [v.decision for v in verified] == [v.decision for v in expected]


def test_another_way_of_reading_is_refused(recognizer, tmp_path, monkeypatch):
    """A file of a later version, whose features are others."""
    path = tmp_path / "later.dualqml"
    recognizer.save(path)
    for module in (recognizer_files, decision_model):
        monkeypatch.setattr(module, "READING_VERSION", 2)
    later = dict(recognizer_files._FRONT_END)
    later["version"] = replace(later["version"], holds=lambda value: value == 2)
    monkeypatch.setattr(recognizer_files, "_FRONT_END", later)
    for load in (Recognizer.load, load_decision_model):
        with pytest.raises(ModelFileError, match="of how faces are read: train"):
            load(path)


def test_vectors_of_two_networks_are_not_mixed(tmp_path):
    file = tmp_path / "own.onnx"
    file.write_bytes(b"one network")
    own = FrontEnd.of_photographs(FaceEmbedder(network=file))
    assert own.network.path == str(file)
    assert own.checked_network().path == str(file)
    moved = file.rename(tmp_path / "moved.onnx")
    with pytest.raises(NetworkError, match="say where it is with --network"):
        own.checked_network()
    assert own.checked_network(moved).path == str(moved)
    moved.write_bytes(b"another network")
    with pytest.raises(NetworkError, match="is not the network of this model"):
        own.checked_network(moved)
    again = FrontEnd.from_dict(own.as_dict())
    assert again == own
    reader = Recognizer(embedding=FaceEmbedder())._reader
    with pytest.raises(RecognitionError, match="two networks cannot be compared"):
        reader.remember(replace(own, network=FaceNetwork(str(moved))))


def test_embedding_must_be_usable():
    with pytest.raises(RecognitionError, match="a function or a FaceEmbedder"):
        Recognizer(embedding=3)


def test_statistics_come_with_sface_only(tmp_path):
    found = network_background(FaceEmbedder())
    assert (found.n_people, found.n_samples, found.n_features) == (151, 1510, 128)
    file = tmp_path / "own.onnx"
    file.write_bytes(b"one network")
    assert network_background(FaceEmbedder(network=file)) is None
