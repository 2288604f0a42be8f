import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from dualqml.data import Database
from dualqml.exceptions import (
    DatabaseError,
    MissingDependencyError,
    NetworkError,
    NoFaceError,
    PoorFaceError,
    SeveralFacesError,
)
from dualqml.images import face_steps
from dualqml.images.face_networks import FaceNetwork
from dualqml.images.face_steps import FaceCropper, FaceEmbedder
from dualqml.images.faces import Face, find_faces, read_faces
from dualqml.images.geometry import align_eyes
from tests.images.test_face_networks import save_averages
from tests.photographs import enlarged, load_faces, on_a_wall, turned

image_module = pytest.importorskip("PIL.Image")

STEPS = [FaceCropper(), FaceEmbedder()]


@pytest.fixture(scope="module")
def orl():
    return load_faces()


@pytest.fixture(scope="module")
def people(orl):
    """Three photographs each of four people, and their features."""
    shots = [
        on_a_wall((orl[10 * k + n], 2, 20, 40)) for k in range(4) for n in (0, 3, 6)
    ]
    return shots, np.repeat([*"abcd"], 3), FaceEmbedder().fit_transform(shots)


@pytest.fixture
def averages(orl, tmp_path):
    """An ONNX file of a network that gives the mean of each channel."""
    return save_averages(tmp_path / "mean.onnx")


def party(orl, times=2):
    """Two faces; the second is larger, or they are alike."""
    first, second = (orl[0], 2 / times, 20, 5), (orl[10], 2, 20, 210)
    return on_a_wall(first, second, shape=(264, 404))


def assert_first_is_nearer(got, others):
    first, second = (np.corrcoef(got.ravel(), one.ravel())[0, 1] for one in others)
    assert first > 0.8 > 0.6 > second


class TestBoth:
    @pytest.mark.parametrize("step", STEPS)
    def test_photographs_can_be_paths_images_and_arrays(self, orl, tmp_path, step):
        wall = on_a_wall((orl[0], 2, 20, 40))
        image = image_module.fromarray(wall)
        image.save(tmp_path / "a.png")
        colour = np.stack([wall] * 3, axis=2)
        same = [tmp_path / "a.png", str(tmp_path / "a.png"), image, wall, colour]
        first, *others = step.fit_transform(same)
        for other in others:
            assert_array_equal(other, first)

    @pytest.mark.parametrize("step", STEPS)
    def test_no_face(self, orl, step, tmp_path):
        image_module.new("L", (200, 200), 128).save(tmp_path / "wall.png")
        face = on_a_wall((orl[0], 2, 20, 40))
        with pytest.raises(NoFaceError, match=r"wall\.png: no face was found"):
            step.transform([face, tmp_path / "wall.png"])
        with pytest.raises(NoFaceError, match="photograph 1: no face"):
            step.transform([face, np.zeros((90, 90), dtype=np.uint8)])

    @pytest.mark.parametrize("step", STEPS)
    def test_several_faces(self, orl, step):
        with pytest.raises(SeveralFacesError, match="photograph 0: 2 faces"):
            step.transform([party(orl, times=1)])
        # The other face is in the background.
        (got,) = step.transform([party(orl)])
        assert_first_is_nearer(
            got, step.transform([party(orl)[:, 200:], party(orl)[:, :200]])
        )

    @pytest.mark.parametrize("step", STEPS)
    def test_the_largest_can_be_asked_for(self, orl, step):
        near = on_a_wall((orl[0], 1.6, 20, 5), (orl[10], 2, 20, 210), shape=(264, 404))
        with pytest.raises(SeveralFacesError):
            step.transform([near])
        (got,) = clone(step).set_params(several="largest").transform([near])
        assert_first_is_nearer(got, step.transform([near[:, 200:], near[:, :200]]))

    @pytest.mark.parametrize("step", STEPS)
    def test_min_quality(self, orl, step):
        soft = enlarged(enlarged(on_a_wall((orl[0], 2, 20, 40)), 1 / 8), 8)
        strict = clone(step).set_params(min_quality=0.6)
        assert len(step.transform([soft])) == 1
        with pytest.raises(PoorFaceError, match=r"photograph 0: .*it is blurred"):
            strict.transform([soft])
        assert len(strict.transform([on_a_wall((orl[0], 2, 20, 40))])) == 1

    @pytest.mark.parametrize("step", STEPS)
    def test_tiles(self, orl, step):
        wall = on_a_wall((orl[20], 0.5, 1000, 2000), shape=(2400, 3600))
        with pytest.raises(NoFaceError):
            step.transform([wall])
        assert len(clone(step).set_params(tiles=True).transform([wall])) == 1

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize(
        "single",
        [
            "a.png",
            np.zeros((9, 9), dtype=np.uint8),
            np.zeros((9, 9, 3), dtype=np.uint8),
            image_module.new("L", (9, 9)),
        ],
    )
    def test_a_single_photograph_must_be_in_a_list(self, orl, step, single):
        with pytest.raises(DatabaseError, match="put a single one in a list"):
            step.transform(single)

    @pytest.mark.parametrize("step", STEPS)
    def test_without_opencv(self, monkeypatch, step):
        monkeypatch.setitem(sys.modules, "cv2", None)
        message = r'Photographs need OpenCV: .*pip install "\.\[faces\]"'
        with pytest.raises(MissingDependencyError, match=message):
            step.fit([]).transform(["absent.png"])

    @pytest.mark.parametrize(
        ("step", "parameters"),
        [
            (FaceCropper, {"several": "smallest"}),
            (FaceCropper, {"eye_row": 1.0}),
            (FaceCropper, {"size": 32}),
            (FaceCropper, {"min_quality": 1.5}),
            (FaceEmbedder, {"tiles": "many"}),
            (FaceEmbedder, {"network": 3}),
            (FaceEmbedder, {"input_size": 4}),
            (FaceEmbedder, {"channels": "grb"}),
            (FaceEmbedder, {"scale": 0.0}),
            (FaceEmbedder, {"mean": np.inf}),
            (FaceEmbedder, {"n_jobs": 0.5}),
        ],
    )
    def test_bad_parameters(self, step, parameters):
        (name,) = parameters
        with pytest.raises(ValueError, match=name):
            step(**parameters).fit([])


class TestFaceCropper:
    def test_is_what_align_eyes_gives(self, orl):
        wall = on_a_wall((orl[0], 2, 20, 40))
        (face,) = find_faces(wall)
        (got,) = FaceCropper(size=(40, 32), eye_row=0.4).transform([wall])
        expected = align_eyes(
            wall, face.left_eye, face.right_eye, (40, 32), eye_row=0.4
        )
        assert got.dtype == np.uint8
        assert_array_equal(got, expected)

    def test_close_ups_are_averaged_to_nearly_the_same(self, orl):
        wall = on_a_wall((orl[0], 1, 80, 80))
        small, same = FaceCropper().transform([wall, enlarged(wall, 12)])
        assert np.corrcoef(small.ravel(), same.ravel())[0, 1] > 0.85

    def test_a_tilted_head_is_turned_upright(self, orl):
        wall = on_a_wall((orl[0], 2, 20, 40))
        upright, tilted = FaceCropper().transform([wall, turned(wall, 20)])
        alike = np.corrcoef(upright.ravel(), tilted.ravel())[0, 1]
        as_it_was = np.corrcoef(upright.ravel(), turned(upright, 20).ravel())[0, 1]
        assert alike > 0.93 > as_it_was

    @pytest.mark.parametrize("swapped", [False, True])
    def test_eyes_behind_the_edge_are_no_error(self, orl, monkeypatch, swapped):
        wall = on_a_wall((orl[0], 2, 20, 40))[:, 90:]
        eyes = [(122.0, -10.0), (120.0, 78.0)]
        points = (*(eyes[::-1] if swapped else eyes), (150.0, 40.0))
        cut = Face((70, 0, 200, 80), points, 0.9)
        monkeypatch.setattr(face_steps, "detect_faces", lambda *_, **__: [cut])
        (got,) = FaceCropper().transform([wall])
        assert got.std() > 10
        # Outside of the photograph the pixels of its edge are repeated.
        assert np.ptp(got.astype(int)[:, :5], axis=1).max() < 25

    def test_crops_make_a_database(self, people):
        shots, labels, _ = people
        crops = FaceCropper().transform(np.array(shots[:3]))
        database = Database("mine", crops, labels[:3], citation="", terms="")
        assert_array_equal(255.0 * database.rows, crops.reshape(3, 1024))

    def test_no_photographs(self, orl):
        assert FaceCropper(size=(8, 9)).transform([]).shape == (0, 8, 9)

    def test_bad_size(self, orl):
        with pytest.raises(ValueError, match="not a height and a width"):
            FaceCropper(size=(0, 3)).transform([])


class TestFaceEmbedder:
    def test_same_people_are_nearer_than_others(self, people):
        _, labels, rows = people
        assert rows.shape == (12, 128)
        assert rows.dtype == np.float64
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        alike = rows @ rows.T
        same = labels[:, None] == labels[None]
        assert alike[same].min() > alike[~same].max()

    def test_results_do_not_depend_on_others_nor_on_threads(self, people):
        shots, _, rows = people
        for n_jobs in (None, 2, -1):
            again = FaceEmbedder(n_jobs=n_jobs).transform(shots[7:4:-1])
            assert_array_equal(again, rows[7:4:-1])

    def test_in_a_pipeline(self, people):
        shots, labels, _ = people
        model = make_pipeline(
            clone(FaceEmbedder()), KNeighborsClassifier(n_neighbors=1, metric="cosine")
        )
        model.fit(shots[::3], labels[::3])
        assert model.predict(shots[1::3]).tolist() == labels[1::3].tolist()

    def test_names_of_features(self):
        names = FaceEmbedder().get_feature_names_out()
        assert names.shape == (128,)
        assert names[0] == "faceembedder0"

    def test_no_photographs(self, orl):
        assert FaceEmbedder().transform([]).shape == (0, 128)

    def test_bad_photographs_raise(self, people, tmp_path):
        shots, _, _ = people
        (tmp_path / "empty.png").touch()
        with pytest.raises(DatabaseError, match=r"empty\.png: the file is empty"):
            FaceEmbedder(n_jobs=2).transform([*shots[:2], tmp_path / "empty.png"])


class TestDescribe:
    def test_it_streams(self, people, monkeypatch):
        shots, _, rows = people
        described = FaceEmbedder().describe(iter(shots))
        assert isinstance(described, Iterator)
        first = next(described)
        assert_array_equal(first.faces[0].vector, rows[0])
        # The others are not read before they are asked for.
        monkeypatch.setattr("dualqml.images.faces.detect_faces", lambda *_, **__: [])
        assert [len(one.faces) for one in described] == [0] * 11

    def test_problems_are_told_and_not_raised(self, people, tmp_path):
        shots, _, rows = people
        (tmp_path / "empty.png").touch()
        bad, good = FaceEmbedder().describe([tmp_path / "empty.png", shots[4]])
        assert isinstance(bad.problem, DatabaseError)
        assert_array_equal(good.faces[0].vector, rows[4])

    def test_all_faces_or_the_largest(self, orl):
        (everyone,) = FaceEmbedder().describe([party(orl)])
        (main,) = FaceEmbedder().describe([party(orl)], all_faces=False)
        assert [one.vector.size for one in everyone.faces] == [128, 128]
        assert [one.vector.size for one in main.faces] == [128, 0]

    def test_parameters_are_passed_on(self, people, monkeypatch):
        given = {}
        monkeypatch.setattr(face_steps, "read_faces", lambda X, **rest: given | rest)
        embedder = FaceEmbedder(
            tiles=True,
            network=Path("net.onnx"),
            input_size=64,
            channels="bgr",
            mean=1.0,
            scale=2.0,
            n_jobs=3,
        )
        assert embedder.describe([], all_faces=False, progress=print) == {
            "network": FaceNetwork("net.onnx", 64, "bgr", 1.0, 2.0),
            "tiles": True,
            "all_faces": False,
            "n_jobs": 3,
            "progress": print,
        }

    def test_bad_parameters_are_told_at_once(self):
        with pytest.raises(ValueError, match="several"):
            FaceEmbedder(several="all").describe([])


class TestOwnNetwork:
    def test_its_features(self, averages, people):
        shots, _, _ = people
        embedder = FaceEmbedder(network=Path(averages), input_size=16)
        rows = embedder.fit_transform(shots[:2])
        assert rows.shape == (2, 3)
        network = FaceNetwork(averages, 16)
        for row, one in zip(rows, read_faces(shots[:2], network=network), strict=True):
            assert_array_equal(row, one.faces[0].vector)
        assert embedder.transform([]).shape == (0, 3)
        assert embedder.get_feature_names_out().tolist() == [
            f"faceembedder{k}" for k in range(3)
        ]

    def test_parameters_matter(self, averages, people):
        shots, _, _ = people
        first = FaceEmbedder(network=averages, input_size=16)
        grey = 127.5 * first.transform(shots[:1]) + 127.5
        other = clone(first).set_params(mean=0.0, scale=2.0)
        np.testing.assert_allclose(2.0 * other.transform(shots[:1]), grey, rtol=1e-4)

    def test_an_absent_file(self, people):
        shots, _, _ = people
        with pytest.raises(NetworkError, match=r"There is no file absent\.onnx"):
            FaceEmbedder(network="absent.onnx").transform(shots)
