import bz2

import pytest

from dualqml.data import DatabaseError, load_feret

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
POSES = ["ba", "bd", "be", "bf", "bg", "bj", "bk"]


@pytest.fixture
def root(tmp_path, write_image):
    for subject in ("01013", "01014"):
        for pose in [*POSES, "bb", "bi"]:
            write_image(tmp_path / f"{subject}{pose}010_960521.tif")
    write_image(tmp_path / "01015ba010_960521.tif")
    return tmp_path


def test_papers_subset_is_the_small_poses_of_people_who_have_all(root):
    database = load_feret(root)
    assert database.labels.tolist() == ["01013"] * 7 + ["01014"] * 7
    assert database.views[:7].tolist() == POSES


def test_everything(root):
    assert load_feret(root, subset="all").images.shape[0] == 19


def test_names_of_the_colour_discs(tmp_path, write_image):
    path = write_image(tmp_path / "00002" / "00002_940928_fa.ppm", mode="RGB")
    packed = path.with_name("00002_940928_rb.ppm.bz2")
    packed.write_bytes(bz2.compress(path.read_bytes()))
    write_image(tmp_path / "00001" / "00001_930831_fa_a.ppm")
    write_image(tmp_path / "00003" / "00003fa010d_930831.tif")
    database = load_feret(tmp_path, subset="all")
    assert database.labels.tolist() == ["00001", "00002", "00002", "00003"]
    assert database.views.tolist() == ["fa", "fa", "rb", "fa"]


def test_nobody_has_all_small_poses(tmp_path, write_image):
    write_image(tmp_path / "00002_940928_fa.ppm")
    with pytest.raises(DatabaseError, match="ba, bd, be, bf, bg, bj, bk"):
        load_feret(tmp_path)
