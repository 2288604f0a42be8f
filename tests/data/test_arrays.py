import os

import numpy as np
import pytest
from scipy.io import savemat

from dualqml.data import DatabaseError, load_mat, load_npz

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "mine.npz", **arrays)
        return tmp_path / "mine.npz"

    return write


def test_npz_with_text_and_visits(npz):
    database = load_npz(
        npz(images=IMAGES, labels=["Zoë", "b c", "b c"], visits=[1, 1, 2])
    )
    np.testing.assert_array_equal(database.images, IMAGES)
    assert database.labels.tolist() == ["Zoë", "b c", "b c"]
    assert database.visits.tolist() == [1, 1, 2]
    assert database.name == "mine"


def test_npz_integers_keep_their_order(npz):
    database = load_npz(npz(images=IMAGES, labels=[10, 2, 100]))
    assert database.labels.tolist() == ["010", "002", "100"]
    assert database.codes.tolist() == [1, 0, 2]


def test_npz_key_chooses_the_size(npz):
    path = npz(images=IMAGES, images32=IMAGES[:, :2, :2], labels=[0, 1, 2])
    assert load_npz(path).images.shape == (3, 2, 2)
    assert load_npz(path, key="images").images.shape == (3, 4, 5)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"images": IMAGES}, "has no array 'labels'; it has images"),
        ({"faces": IMAGES, "labels": [0, 1, 2]}, "has no array 'images'"),
        ({"images": IMAGES, "labels": [0, 1]}, "3 images and labels of shape"),
        ({"images": IMAGES / 255, "labels": [0, 1, 2]}, "must be 8-bit"),
        ({"images": IMAGES, "labels": [0.5, 1, 2]}, "integers or text, not float64"),
        (
            {"images": IMAGES, "labels": [0, 1, 2], "visits": ["a", "b", "c"]},
            "visits must be integers",
        ),
        ({"images": IMAGES, "labels": np.array([0, "a", None])}, "cannot be read"),
    ],
)
def test_npz_errors(npz, arrays, match):
    with pytest.raises(DatabaseError, match=match):
        load_npz(npz(**arrays))


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_npz_never_unpickles(npz, tmp_path):
    labels = np.array([Trap(tmp_path / "sprung")] * 3, dtype=object)
    with pytest.raises(DatabaseError, match="pickle"):
        load_npz(npz(images=IMAGES, labels=labels))
    assert not (tmp_path / "sprung").exists()


def test_npz_other_files(tmp_path):
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


@pytest.fixture
def mat(tmp_path):
    def write(**arrays):
        savemat(tmp_path / "faces.mat", arrays)
        return tmp_path / "faces.mat"

    return write


def test_mat_rows_are_images_column_after_column(mat):
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
        ({"fea": np.ones((1, 21)), "gnd": [[1]]}, r"images of 4 x 5 need 20 columns"),
        ({"fea": np.full((1, 20), 256), "gnd": [[1]]}, "0 to 255 were expected"),
        ({"fea": np.full((1, 20), np.nan), "gnd": [[1]]}, "0 to 255 were expected"),
        ({"fea": np.full((1, 20), 0.5), "gnd": [[1]]}, "scaled to 0..1"),
        ({"fea": np.full((1, 20), 9), "gnd": [[1.5]]}, "gnd must be integers"),
        ({"fea": np.full((1, 20), 9), "gnd": [[1], [2]]}, "labels of shape"),
    ],
)
def test_mat_errors(mat, arrays, match):
    with pytest.raises(DatabaseError, match=match):
        load_mat(mat(**arrays), shape=[4, 5])


def test_a_shape_that_is_none_is_named(mat):
    with pytest.raises(DatabaseError, match=r"shape=\(4,\) is not a height"):
        load_mat(mat(fea=IMAGES.reshape(3, -1), gnd=[[1], [1], [2]]), shape=(4,))


def test_mat_of_version_7_3_says_how_to_save_it(tmp_path):
    path = tmp_path / "new.mat"
    # The header of such files: text, then version 0x0200 and the byte order.
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    path.write_bytes(header.ljust(512, b"\x00") + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(DatabaseError, match=r"version 7\.3.*-v7"):
        load_mat(path)


def test_mat_damaged_or_missing(tmp_path, mat):
    with pytest.raises(DatabaseError, match="cannot be read"):
        load_mat(tmp_path / "absent.mat")
    path = mat(fea=np.full((9, 20), 9), gnd=np.ones((9, 1)))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatabaseError, match=r"faces\.mat"):
        load_mat(path)
    path.write_bytes(b"")
    with pytest.raises(DatabaseError, match="cannot be read"):
        load_mat(path)
