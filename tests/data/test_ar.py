import numpy as np
import pytest

from dualqml.data import DatabaseError, load_ar

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def root(tmp_path, write_image):
    for n in range(1, 27):
        write_image(tmp_path / f"m-001-{n:02d}.bmp")
        write_image(tmp_path / f"w-001-{n:02d}.png", mode="RGB")
    for n in range(1, 14):  # came once
        write_image(tmp_path / f"w-002-{n:02d}.bmp")
    return tmp_path


def test_papers_subset_is_unoccluded_and_of_people_who_came_twice(root):
    database = load_ar(root)
    assert database.subjects.tolist() == ["m-001", "w-001"]
    assert database.images.shape == (28, 32, 32)
    first, second = range(1, 8), range(14, 21)
    assert database.views[:14].tolist() == [f"{n:02d}" for n in [*first, *second]]
    assert database.visits[:14].tolist() == [1] * 7 + [2] * 7


def test_everything(root):
    database = load_ar(root, subset="all")
    assert database.images.shape[0] == 2 * 26 + 13
    assert database.visits[database.views == "13"].tolist() == [1, 1, 1]
    assert database.visits[database.views == "26"].tolist() == [2, 2]


def test_nobody_came_twice(tmp_path, write_image):
    write_image(tmp_path / "m-001-01.bmp")
    with pytest.raises(DatabaseError, match="none of the 1 subjects found has all"):
        load_ar(tmp_path)


def test_names_outside_the_scheme_are_not_of_the_database(tmp_path, write_image):
    for name in ("m-001-01.bmp", "m-001-27.bmp", "m-001-00.bmp", "x-001-01.bmp"):
        write_image(tmp_path / name)
    assert load_ar(tmp_path, subset="all").views.tolist() == ["01"]


def test_women_are_w_even_where_the_name_says_f(tmp_path, write_image):
    write_image(tmp_path / "F-12-3.bmp")
    assert load_ar(tmp_path, subset="all").labels.tolist() == ["w-012"]


def test_raw_planes(tmp_path):
    planes = np.zeros((3, 576, 768), dtype=np.uint8)
    planes[:, :, :384] = np.array([255, 0, 0])[:, None, None]  # left half red
    planes.tofile(tmp_path / "m-001-01.raw")
    image = load_ar(tmp_path, subset="all", size=(2, 8)).images[0]
    assert (image[:, 0] == 76).all()  # luminance of red
    assert (image[:, -1] == 0).all()


def test_raw_of_the_wrong_length(tmp_path):
    (tmp_path / "m-001-01.raw").write_bytes(bytes(1000))
    with pytest.raises(DatabaseError, match="1000 bytes, a raw image of AR has"):
        load_ar(tmp_path, subset="all")
