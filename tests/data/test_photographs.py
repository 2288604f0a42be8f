import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dualqml.data import photographs
from dualqml.data.photographs import guess_images, load_photographs
from dualqml.exceptions import (
    DatabaseError,
    MissingDependencyError,
    NoFaceError,
)
from dualqml.images import faces
from dualqml.images.face_steps import FaceEmbedder
from tests.photographs import enlarged, load_faces, on_a_wall, real_photographs

image_module = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def orl():
    return load_faces()


def saved(folder, pictures, kind="png"):
    """Write pictures as 00.png and so on; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, pixels in enumerate(pictures):
        paths.append(folder / f"{place:02d}.{kind}")
        image_module.fromarray(pixels).save(paths[-1])
    return paths


def walls(orl, sizes=((264, 300), (300, 264), (280, 320))):
    """Photographs of several sizes, with one face each."""
    return [
        on_a_wall((image, 2, 20, 40), shape=sizes[k % len(sizes)])
        for k, image in enumerate(orl[::40])
    ]


class TestGuessImages:
    def test_a_database_of_research_needs_no_detector(self, orl, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "cv2", None)
        guess = guess_images(saved(tmp_path, orl[:20]))
        assert guess == ("crops", "all of 112 x 92 pixels")

    def test_faces_in_larger_pictures(self, orl, tmp_path):
        guess = guess_images(saved(tmp_path, walls(orl)))
        assert guess.kind == "photographs"
        assert guess.reason == "of several sizes; a face was found in 10 of 10 tried"

    def test_photographs_of_one_size(self, orl, tmp_path):
        pictures = walls(orl, sizes=[(480, 640)])
        assert guess_images(saved(tmp_path, pictures)).kind == "photographs"

    def test_large_crops_of_one_size(self, orl, tmp_path):
        guess = guess_images(saved(tmp_path, [enlarged(face, 4) for face in orl[::40]]))
        assert guess.kind == "crops"
        assert guess.reason.startswith(
            "all of 448 x 368 pixels; a face was found in 10"
        )
        assert "fills" in guess.reason

    def test_pictures_without_faces(self, orl, tmp_path):
        rng = np.random.default_rng(0)
        noise = [
            rng.integers(0, 256, (150 + 7 * k, 210), dtype=np.uint8) for k in range(4)
        ]
        textures = [np.tile(enlarged(one[:12, :12], 4), (5, 6)) for one in noise]
        guess = guess_images(saved(tmp_path, noise + textures))
        assert guess == ("crops", "of several sizes; a face was found in 0 of 8 tried")

    @pytest.mark.parametrize(("n_faces", "kind"), [(5, "photographs"), (4, "crops")])
    def test_half_of_them_decide(self, orl, tmp_path, n_faces, kind):
        pictures = walls(orl)
        for k in range(n_faces, 10):
            pictures[k] = np.full((200, 200 + k), 128, dtype=np.uint8)
        assert guess_images(saved(tmp_path, pictures)).kind == kind

    def test_only_some_of_many_are_looked_at(self, orl, tmp_path, monkeypatch):
        paths = saved(tmp_path, walls(orl))
        sizes, searched = [], []
        size, find = photographs.photograph_size, photographs.find_faces
        monkeypatch.setattr(
            photographs,
            "photograph_size",
            lambda path, name: (sizes.append(path), size(path, name))[1],
        )
        monkeypatch.setattr(
            photographs,
            "find_faces",
            lambda path: (searched.append(path), find(path))[1],
        )
        many = [path for path in paths for _ in range(60)]
        assert guess_images(many).kind == "photographs"
        assert len(searched) == 12
        assert len(sizes) == 200 + 12
        assert set(searched) == set(paths)

    def test_files_that_cannot_be_read_do_not_count(self, orl, tmp_path):
        paths = saved(tmp_path, walls(orl)[:3])
        (tmp_path / "aa.png").touch()
        assert guess_images([tmp_path / "aa.png", *paths]).kind == "photographs"
        with pytest.raises(DatabaseError, match=r"No image can be read: .*aa\.png"):
            guess_images([tmp_path / "aa.png"])

    def test_without_the_optional_part(self, orl, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "cv2", None)
        message = r'of several sizes.*pip install "\.\[faces\]".*give --input crops'
        with pytest.raises(MissingDependencyError, match=message):
            guess_images(saved(tmp_path, walls(orl)))

    @pytest.mark.realdata
    def test_real_photographs(self, orl):
        paths, _ = real_photographs()
        assert guess_images(paths).kind == "photographs"


class TestLoadPhotographs:
    @pytest.fixture
    def people(self, orl, tmp_path):
        """Two photographs each of Ann and Zoe."""
        root = tmp_path / "people"
        for name, first in (("Ann", 0), ("Zoe", 10)):
            faces = [on_a_wall((orl[first + k], 2, 20, 40)) for k in range(2)]
            saved(root / name, faces)
        return root

    def test_vectors_labels_and_files(self, people):
        database = load_photographs(people)
        assert database.name == "people"
        assert database.labels.tolist() == ["Ann", "Ann", "Zoe", "Zoe"]
        assert database.files is not None
        assert database.files.tolist() == [
            *("Ann/00.png", "Ann/01.png", "Zoe/00.png", "Zoe/01.png")
        ]
        expected = FaceEmbedder().transform(people / name for name in database.files)
        assert_array_equal(database.vectors, expected)
        assert (database.skipped, database.remarks) == ((), ())

    def test_skipped_photographs_are_listed(self, people):
        saved(people / "Ann" / "more", [np.full((90, 90), 128, dtype=np.uint8)])
        (people / "Zoe" / "00.png").write_bytes(b"")
        with pytest.raises(DatabaseError, match="2 of 5 photographs cannot") as caught:
            load_photographs(people)
        assert not isinstance(caught.value, NoFaceError)
        database = load_photographs(people, on_error="skip")
        assert database.labels.tolist() == ["Ann", "Ann", "Zoe"]
        assert database.files.tolist() == ["Ann/00.png", "Ann/01.png", "Zoe/01.png"]
        first, second = database.skipped
        assert "no face was found" in first
        assert "Zoe/00.png: the file is empty" in second.replace("\\", "/")

    def test_only_faces_are_missing(self, people):
        saved(people / "Ann", [np.full((90, 90), 128, dtype=np.uint8)])
        with pytest.raises(NoFaceError, match=r"1 of 4 photographs.*00\.png: no face"):
            load_photographs(people)

    def test_none_can_be_used(self, people):
        for path in people.glob("*/*.png"):
            path.write_bytes(b"")
        with pytest.raises(DatabaseError, match="4 of 4 photographs cannot be used"):
            load_photographs(people, on_error="skip")

    def test_remarks(self, people, orl):
        deep = on_a_wall((orl[0], 2, 20, 40)).astype(np.uint16) * 257
        image_module.fromarray(deep).save(people / "Ann" / "00.png")
        (people / ".trash").mkdir()
        (people / "Tom").mkdir()
        database = load_photographs(people)
        hidden, bits = database.remarks
        assert hidden == ".trash: a hidden folder, not looked into"
        assert bits.endswith("00.png: it has 16 bits per colour; 8 are used")
        assert database.skipped == ("Tom: no image in this folder",)

    def test_the_embedder_decides(self, people, orl):
        both = on_a_wall((orl[0], 2, 20, 5), (orl[10], 2, 20, 210), shape=(264, 404))
        saved(people / "Ann", [both])
        with pytest.raises(DatabaseError, match="2 faces of similar size"):
            load_photographs(people)
        database = load_photographs(
            people, embedder=FaceEmbedder(several="largest", n_jobs=2)
        )
        assert database.vectors.shape == (4, 128)
        strict = FaceEmbedder(several="largest", min_quality=1.0)
        soft = enlarged(enlarged(on_a_wall((orl[0], 2, 20, 40)), 0.125), 8)
        saved(people / "Ann", [soft])
        database = load_photographs(people, embedder=strict, on_error="skip")
        assert database.vectors.shape == (3, 128)
        assert "blurred" in database.skipped[0]

    def test_only_the_largest_face_is_described(self, people, orl, monkeypatch):
        small, large = (orl[0], 1, 10, 5), (orl[10], 2, 20, 110)
        both = on_a_wall(small, large, shape=(264, 304))
        for person in ("Ann", "Zoe"):
            saved(people / person, [both, both])
        described = []
        describe = faces.describe_face
        monkeypatch.setattr(
            faces,
            "describe_face",
            lambda *args: (described.append(1), describe(*args))[1],
        )
        assert load_photographs(people).vectors.shape == (4, 128)
        assert len(described) == 4

    def test_progress(self, people):
        seen = []
        load_photographs(people, progress=lambda *count: seen.append(count))
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]

    def test_bad_option(self, people):
        with pytest.raises(DatabaseError, match='on_error must be "raise" or "skip"'):
            load_photographs(people, on_error="ignore")
