"""Readers of your own images: folders, CSV lists, NumPy and MATLAB files."""

import os
import unicodedata

import numpy as np
import pytest
from scipy.io import savemat

from dualqml.data import load_csv, load_folder, load_mat, load_npz
from dualqml.exceptions import DatabaseError

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class TestFolder:
    def test_folders_are_people_with_any_name(self, tmp_path, write_image):
        names = ["Ann Lee", "Zoë", "李雷", "o'Neil, Jr."]
        for name in names:
            for n in range(2):
                write_image(tmp_path / name / f"photo {n}.JPG")
        database = load_folder(tmp_path, size=(8, 6))
        assert sorted(database.subjects) == sorted(names)
        assert database.images.shape == (8, 8, 6)
        assert database.name == tmp_path.name

    def test_names_are_the_same_however_the_file_system_spells_them(
        self, tmp_path, write_image
    ):
        write_image(tmp_path / unicodedata.normalize("NFD", "Zoë") / "a.png")
        assert load_folder(tmp_path).labels.tolist() == [
            unicodedata.normalize("NFC", "Zoë")
        ]

    def test_one_person_is_allowed_and_other_files_are_ignored(
        self, tmp_path, write_image
    ):
        write_image(tmp_path / "Ann" / "a.png")
        write_image(tmp_path / "Ann" / "2024" / "b.tif")
        (tmp_path / "Ann" / "notes.txt").touch()
        (tmp_path / "Ann" / "Thumbs.db").touch()
        (tmp_path / "list.txt").touch()
        (tmp_path / ".cache").mkdir()
        assert load_folder(tmp_path).labels.tolist() == ["Ann", "Ann"]

    def test_empty_folder_and_folder_without_images(self, tmp_path):
        with pytest.raises(DatabaseError, match="the folder is empty"):
            load_folder(tmp_path)
        (tmp_path / "notes.txt").touch()
        with pytest.raises(DatabaseError, match=r"found notes\.txt"):
            load_folder(tmp_path)

    def test_images_outside_the_folders_of_people(self, tmp_path, write_image):
        write_image(tmp_path / "Ann" / "a.png")
        write_image(tmp_path / "who.png")
        with pytest.raises(DatabaseError, match=r"in no person's folder: who\.png"):
            load_folder(tmp_path)

    def test_a_person_without_images_is_a_warning(self, tmp_path, write_image):
        write_image(tmp_path / "Ann" / "a.png")
        (tmp_path / "Bob").mkdir()
        with pytest.warns(UserWarning, match="have no images: Bob"):
            load_folder(tmp_path)

    def test_bad_images_are_an_error_or_skipped_on_request(self, tmp_path, write_image):
        write_image(tmp_path / "Ann" / "a.png")
        (tmp_path / "Bob").mkdir()
        (tmp_path / "Bob" / "b.jpg").write_text("no image")
        with pytest.raises(DatabaseError, match=r"1 of 2 .*b\.jpg"):
            load_folder(tmp_path)
        database = load_folder(tmp_path, on_error="skip")
        assert database.labels.tolist() == ["Ann"]
        (skipped,) = database.skipped
        assert str(tmp_path / "Bob" / "b.jpg") in skipped


class TestCSV:
    @pytest.fixture
    def listed(self, tmp_path, write_image):
        for name in ("a.png", "b.png", "sub/c.png"):
            write_image(tmp_path / name)

        def write(text, encoding="utf-8"):
            path = tmp_path / "list.csv"
            path.write_text(text, encoding=encoding)
            return path

        return write

    def test_required_columns(self, listed, monkeypatch, tmp_path_factory):
        path = listed('path,subject\na.png,"Lee, Ann"\n\nsub/c.png,Zoë\n')
        # Relative to the list, not to the working directory.
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        database = load_csv(path, size=(5, 6))
        assert database.labels.tolist() == ["Lee, Ann", "Zoë"]
        assert database.images.shape == (2, 5, 6)
        assert database.visits is None
        assert database.views is None

    def test_all_columns_in_any_order_as_spreadsheets_write_them(
        self, listed, tmp_path
    ):
        path = listed(
            "Subject,View,Visit,Path\r\nAnn,fa,1,a.png\r\n"
            f"Ann,fb,2,{tmp_path / 'b.png'}\r\n",
            encoding="utf-8-sig",
        )
        database = load_csv(path)
        assert database.visits.tolist() == [1, 2]
        assert database.views.tolist() == ["fa", "fb"]

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("", "lists no image"),
            ("path,subject\n", "lists no image"),
            ("a.png,Ann\n", "line 1: expected a header .* found a.png, Ann"),
            ("path,name\na.png,Ann\n", "line 1: expected a header"),
            ("path,subject,vist\na.png,Ann,1\n", "line 1: expected a header"),
            ("path,subject,path\na.png,Ann,b.png\n", "line 1: expected a header"),
            ("path,subject\na.png,Ann\nb.png\n", "line 3: 1 cells"),
            ("path,subject\na.png,Ann\nb.png,  \n", "line 3: no subject"),
            ("path,subject\n,Ann\n", "line 2: no path"),
            ("path,subject,visit\na.png,Ann,first\n", "line 2: the visit 'first'"),
            (
                "path,subject\na.png,Ann\na.png,Bob\n",
                "line 3: a.png is already on line 2",
            ),
            ("path,subject\na.png,Ann\nz.png,Bob\n", "1 of 2 .* line 3: .*z.png"),
            ('path,subject\n"a.png,Ann\n', "line 2"),
        ],
    )
    def test_errors_name_the_line(self, listed, text, match):
        with pytest.raises(DatabaseError, match=match):
            load_csv(listed(text))

    def test_bad_images_are_skipped_on_request(self, listed):
        path = listed("path,subject,visit\nz.png,Bob,1\na.png,Ann,2\n")
        database = load_csv(path, on_error="skip")
        assert database.labels.tolist() == ["Ann"]
        assert database.visits.tolist() == [2]
        assert database.skipped[0].startswith("line 2: ")

    def test_missing_list_and_wrong_encoding(self, tmp_path, listed):
        with pytest.raises(DatabaseError, match="cannot be read"):
            load_csv(tmp_path / "absent.csv")
        with pytest.raises(DatabaseError, match="not in UTF-8"):
            load_csv(listed("path,subject\na.png,Zoë\n", encoding="latin-1"))


class TestNPZ:
    @pytest.fixture
    def npz(self, tmp_path):
        def write(**arrays):
            np.savez(tmp_path / "mine.npz", **arrays)
            return tmp_path / "mine.npz"

        return write

    def test_text_labels_and_visits(self, npz):
        database = load_npz(
            npz(images=IMAGES, labels=["Zoë", "b c", "b c"], visits=[1, 1, 2])
        )
        np.testing.assert_array_equal(database.images, IMAGES)
        assert database.labels.tolist() == ["Zoë", "b c", "b c"]
        assert database.visits.tolist() == [1, 1, 2]
        assert database.name == "mine"

    def test_integers_keep_their_order(self, npz):
        database = load_npz(npz(images=IMAGES, labels=[10, 2, 100]))
        assert database.labels.tolist() == ["010", "002", "100"]
        assert database.codes.tolist() == [1, 0, 2]

    def test_key_chooses_the_size(self, npz):
        path = npz(images=IMAGES, images32=IMAGES[:, :2, :2], labels=[0, 1, 2])
        np.testing.assert_array_equal(load_npz(path).images, IMAGES[:, :2, :2])
        np.testing.assert_array_equal(load_npz(path, key="images").images, IMAGES)

    @pytest.mark.parametrize(
        ("arrays", "match"),
        [
            ({"images": IMAGES}, "has no array 'labels'; it has images"),
            ({"faces": IMAGES, "labels": [0, 1, 2]}, "has no array 'images'"),
            ({"images": IMAGES, "labels": [0, 1]}, "3 images and labels of shape"),
            ({"images": IMAGES / 255, "labels": [0, 1, 2]}, "must be 8-bit"),
            (
                {"images": IMAGES, "labels": [0.5, 1, 2]},
                "integers or text, not float64",
            ),
            (
                {"images": IMAGES, "labels": [0, 1, 2], "visits": ["a", "b", "c"]},
                "visits must be integers",
            ),
            ({"images": IMAGES, "labels": np.array([0, "a", None])}, "cannot be read"),
        ],
    )
    def test_errors(self, npz, arrays, match):
        with pytest.raises(DatabaseError, match=match):
            load_npz(npz(**arrays))

    def test_never_unpickles(self, npz, tmp_path):
        labels = np.array([Trap(tmp_path / "sprung")] * 3, dtype=object)
        with pytest.raises(DatabaseError, match="pickle"):
            load_npz(npz(images=IMAGES, labels=labels))
        assert not (tmp_path / "sprung").exists()

    def test_other_files(self, tmp_path):
        with pytest.raises(DatabaseError, match="No such file"):
            load_npz(tmp_path / "absent.npz")
        (tmp_path / "text.npz").write_text("no archive")
        with pytest.raises(DatabaseError, match="cannot be read"):
            load_npz(tmp_path / "text.npz")
        (tmp_path / "empty.npz").touch()
        with pytest.raises(DatabaseError, match="cannot be read"):
            load_npz(tmp_path / "empty.npz")
        np.save(tmp_path / "single.npy", IMAGES)
        with pytest.raises(DatabaseError, match="a single array"):
            load_npz(tmp_path / "single.npy")
        with pytest.raises(DatabaseError, match="key must be"):
            load_npz(tmp_path / "absent.npz", key="faces")


class TestMAT:
    @pytest.fixture
    def mat(self, tmp_path):
        def write(**arrays):
            savemat(tmp_path / "faces.mat", arrays)
            return tmp_path / "faces.mat"

        return write

    def test_rows_are_images_column_after_column(self, mat):
        fea = np.array([image.ravel(order="F") for image in IMAGES])
        for values in (fea, fea.astype(float)):
            database = load_mat(mat(fea=values, gnd=[[1], [1], [12]]), shape=(4, 5))
            np.testing.assert_array_equal(database.images, IMAGES)
            assert database.labels.tolist() == ["01", "01", "12"]

    @pytest.mark.parametrize(
        ("arrays", "match"),
        [
            ({"gnd": [[1]]}, "no array of numbers 'fea'"),
            ({"fea": np.ones((1, 20))}, "no array of numbers 'gnd'"),
            ({"fea": "text", "gnd": [[1]]}, "no array of numbers 'fea'"),
            (
                {"fea": np.ones((1, 21)), "gnd": [[1]]},
                r"images of 4 x 5 need 20 columns",
            ),
            ({"fea": np.full((1, 20), 256), "gnd": [[1]]}, "0 to 255 were expected"),
            ({"fea": np.full((1, 20), np.nan), "gnd": [[1]]}, "0 to 255 were expected"),
            ({"fea": np.full((1, 20), 0.5), "gnd": [[1]]}, "scaled to 0..1"),
            ({"fea": np.full((1, 20), 9), "gnd": [[1.5]]}, "gnd must be integers"),
            ({"fea": np.full((1, 20), 9), "gnd": [[1], [2]]}, "labels of shape"),
        ],
    )
    def test_errors(self, mat, arrays, match):
        with pytest.raises(DatabaseError, match=match):
            load_mat(mat(**arrays), shape=[4, 5])

    def test_a_wrong_shape_is_named(self, mat):
        with pytest.raises(DatabaseError, match=r"shape=\(4,\) is not a height"):
            load_mat(mat(fea=IMAGES.reshape(3, -1), gnd=[[1], [1], [2]]), shape=(4,))

    def test_version_7_3_says_how_to_save_it(self, tmp_path):
        path = tmp_path / "new.mat"
        # The header of such files: text, then version 0x0200 and the byte order.
        header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
        path.write_bytes(header.ljust(512, b"\x00") + b"\x89HDF\r\n\x1a\n")
        with pytest.raises(DatabaseError, match=r"version 7\.3.*-v7"):
            load_mat(path)

    def test_damaged_or_missing_files(self, tmp_path, mat):
        with pytest.raises(DatabaseError, match="cannot be read"):
            load_mat(tmp_path / "absent.mat")
        path = mat(fea=np.full((9, 20), 9), gnd=np.ones((9, 1)))
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(DatabaseError, match=r"faces\.mat"):
            load_mat(path)
        path.write_bytes(b"")
        with pytest.raises(DatabaseError, match="cannot be read"):
            load_mat(path)
