"""What all readers by file name do with wrong folders and bad files."""

import bz2

import numpy as np
import pytest

from dualqml.data import (
    DATABASES,
    load_ar,
    load_casia_palm,
    load_feret,
    load_frgc,
    load_iitd_ear,
    load_pie,
    load_polyu_palm,
)
from dualqml.exceptions import DatabaseError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

# The images of one subject with the owners' names.
TREES = {
    "ar": [f"m-001-{n:02d}.bmp" for n in range(1, 27)],
    "pie": [f"04002/illum/27_{n:02d}.ppm" for n in range(2, 5)],
    "feret": [
        f"01013{pose}010_960521.tif"
        for pose in ("ba", "bd", "be", "bf", "bg", "bi", "bj", "bk")
    ],
    "frgc": [f"Fall2003/04203d{n}.jpg" for n in range(90, 110)],
    "polyu_palm": ["PolyU_001_F_01.bmp", "PolyU_001_S_01.bmp"],
    "casia_palm": ["0001/0001_m_l_01.jpg", "0001/0001_m_l_02.jpg"],
    "iitd_ear": ["001_1.bmp", "001_2.bmp"],
}
by_name = pytest.mark.parametrize("name", TREES)


@pytest.fixture
def tree(tmp_path, write_image):
    def write(name):
        for file in TREES[name]:
            write_image(tmp_path / file)
        return tmp_path

    return write


def test_every_database_by_file_name_is_tested_here():
    assert set(TREES) == {name for name, info in DATABASES.items() if not info.embedded}


@by_name
def test_one_person_is_enough_but_the_counts_are_told(tree, name):
    info = DATABASES[name]
    with pytest.warns(UserWarning, match=f"used {info.images} images of") as record:
        database = info.loader(tree(name), size=(8, 9))
    assert len(record) == 1
    # The warning points to the caller.
    assert record[0].filename == __file__
    assert database.images.shape[1:] == (8, 9)
    assert database.subjects.size == 1
    assert database.skipped == ()
    assert database.citation
    assert "research only" in database.terms


@by_name
def test_names_in_capitals_in_folders_and_litter(tmp_path, write_image, name):
    for file in TREES[name]:
        path = write_image(tmp_path / "copy of disc 1" / file)
        path.rename(path.with_name(path.name.upper()))
    (tmp_path / "Thumbs.db").write_text("litter")
    (tmp_path / "._m-001-01.bmp").write_text("litter")
    assert DATABASES[name].loader(tmp_path).subjects.size == 1


@by_name
def test_missing_folder_says_where_to_ask(tmp_path, name):
    info = DATABASES[name]
    with pytest.raises(DatabaseError, match="There is no folder") as error:
        info.loader(tmp_path / "absent")
    assert info.ask in str(error.value)


@by_name
def test_empty_folder(tmp_path, name):
    with pytest.raises(DatabaseError, match="is empty") as error:
        DATABASES[name].loader(tmp_path)
    assert DATABASES[name].expects in str(error.value)


@by_name
def test_wrong_folder_says_what_was_expected_and_found(tmp_path, name, write_image):
    for n in range(7):
        write_image(tmp_path / f"holiday {n}.jpg")
    with pytest.raises(DatabaseError, match="none of the 7 files") as error:
        DATABASES[name].loader(tmp_path)
    assert DATABASES[name].expects in str(error.value)
    assert "holiday 0.jpg" in str(error.value)
    assert "and 2 more" in str(error.value)


@by_name
def test_the_same_image_in_two_folders(tree, name, write_image):
    root = tree(name)
    write_image(root / "thumbnails" / TREES[name][0])
    with pytest.raises(DatabaseError, match=r"is\s+there twice: .*thumbnails"):
        DATABASES[name].loader(root)


@by_name
def test_bad_files_are_an_error_or_skipped_on_request(tree, name):
    root = tree(name)
    (root / TREES[name][0]).write_text("no image")
    with pytest.raises(DatabaseError, match=r"1 of \d+ images cannot be read"):
        DATABASES[name].loader(root)
    database = DATABASES[name].loader(root, on_error="skip")
    assert len(database.skipped) == 1
    assert TREES[name][0].rsplit("/")[-1] in database.skipped[0]


@pytest.mark.parametrize("name", ["ar", "pie", "feret", "frgc"])
def test_unknown_subset(tree, name):
    with pytest.raises(DatabaseError, match='subset must be "paper" or "all"'):
        DATABASES[name].loader(tree(name), subset="half")


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


@pytest.fixture
def casia(tmp_path, write_image):
    for person in ("0001_m", "0312_f"):
        for hand in "lr":
            for n in (1, 2):
                name = f"{person}_{hand}_{n:02d}.jpg"
                write_image(tmp_path / person[:4] / name)
    return tmp_path


def test_casia_hands_are_the_subjects(casia):
    database = load_casia_palm(casia)
    assert database.subjects.tolist() == ["0001_l", "0001_r", "0312_l", "0312_r"]
    assert database.views.tolist() == ["l", "l", "r", "r"] * 2


def test_casia_people_on_request(casia):
    with pytest.warns(UserWarning, match="of 312 subjects, found 8 of 2"):
        database = load_casia_palm(casia, subject="person")
    assert database.subjects.tolist() == ["0001", "0312"]
    with pytest.raises(DatabaseError, match='subject must be "hand" or "person"'):
        load_casia_palm(casia, subject="finger")


POSES = ["ba", "bd", "be", "bf", "bg", "bj", "bk"]


@pytest.fixture
def feret_root(tmp_path, write_image):
    for subject in ("01013", "01014"):
        for pose in [*POSES, "bb", "bi"]:
            write_image(tmp_path / f"{subject}{pose}010_960521.tif")
    write_image(tmp_path / "01015ba010_960521.tif")
    return tmp_path


def test_papers_subset_is_the_small_poses_of_people_who_have_all(feret_root):
    database = load_feret(feret_root)
    assert database.labels.tolist() == ["01013"] * 7 + ["01014"] * 7
    assert database.views[:7].tolist() == POSES


def test_feret_everything(feret_root):
    assert load_feret(feret_root, subset="all").images.shape[0] == 19


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


@pytest.fixture
def frgc_root(tmp_path, write_image):
    for n in range(95, 104):
        write_image(tmp_path / "Fall2003" / f"04203d{n}.jpg", size=(9, n))
    for n in range(4):
        write_image(tmp_path / "Spring2004" / f"04201d{n}.JPG")
    write_image(tmp_path / "Spring2004" / "04203d200.ppm")  # texture of a scan
    return tmp_path


def test_papers_subset_takes_as_many_of_each_subject_that_has_enough(frgc_root):
    assert load_frgc(frgc_root, per_subject=4).labels.tolist() == ["04201"] * 4 + (
        ["04203"] * 4
    )
    assert load_frgc(frgc_root, per_subject=5).labels.tolist() == ["04203"] * 5


def test_images_are_spread_over_the_recordings_in_their_order(frgc_root, write_image):
    everything = load_frgc(frgc_root, subset="all")
    of_subject = everything.images[everything.labels == "04203"]
    np.testing.assert_array_equal(
        load_frgc(frgc_root, per_subject=5).images, of_subject[::2]
    )


def test_everything_but_textures(frgc_root):
    assert load_frgc(frgc_root, subset="all").images.shape[0] == 13


@pytest.mark.parametrize("per_subject", [20, 0])
def test_too_few_images(frgc_root, per_subject):
    with pytest.raises(DatabaseError, match="per_subject"):
        load_frgc(frgc_root, per_subject=per_subject)


def test_iitd_ears(tmp_path, write_image):
    for name in ("001_1.bmp", "001_2.bmp", "221_10.bmp", "221_9.bmp"):
        write_image(tmp_path / name, size=(180, 50))
    database = load_iitd_ear(tmp_path, size=(45, 12))
    assert database.labels.tolist() == ["001", "001", "221", "221"]
    assert database.images.shape == (4, 45, 12)
    assert database.visits is None
    assert database.views is None


@pytest.fixture
def pie_root(tmp_path, write_image):
    for subject in ("04000", "04002"):
        for file in (
            "illum/27_02.ppm",
            "illum/05_02.ppm",
            "LIGHTS/27_02.ppm",
            "expression/27_smile.ppm",
            "talking/27_010.ppm",
        ):
            write_image(tmp_path / subject / file, mode="RGB")
    return tmp_path


def test_papers_subset_is_the_frontal_camera_without_talking(pie_root):
    database = load_pie(pie_root)
    assert database.labels.tolist() == ["04000"] * 3 + ["04002"] * 3
    assert database.views[:3].tolist() == [
        "expression/27_smile",
        "illum/27_02",
        "lights/27_02",
    ]


def test_pie_everything(pie_root):
    assert load_pie(pie_root, subset="all").images.shape[0] == 10


def test_parts_above_the_subjects(tmp_path, write_image):
    write_image(tmp_path / "illum" / "04002" / "27_02.ppm")
    assert load_pie(tmp_path).views.tolist() == ["illum/27_02"]


def test_without_the_frontal_camera(tmp_path, write_image):
    write_image(tmp_path / "04002" / "illum" / "05_02.ppm")
    with pytest.raises(DatabaseError, match=r"none of the 1 images .* camera 27"):
        load_pie(tmp_path)


def test_polyu_palms_have_two_visits(tmp_path, write_image):
    for palm in ("001", "386"):
        for visit in "FS":
            for n in (1, 2, 10):
                write_image(tmp_path / f"PolyU_{palm}_{visit}_{n:02d}.bmp")
    database = load_polyu_palm(tmp_path)
    assert database.labels.tolist() == ["001"] * 6 + ["386"] * 6
    assert database.visits.tolist() == [1, 1, 1, 2, 2, 2] * 2
