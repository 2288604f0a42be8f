"""Readers of the research databases: what all share, then each database's own rule."""

import bz2
import inspect
import re
from itertools import pairwise

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
from dualqml.data.research_databases import RULES
from dualqml.exceptions import DatabaseError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

AR_UNOCCLUDED = [f"{n:02d}" for n in [*range(1, 8), *range(14, 21)]]
FERET_SMALL_POSES = ["ba", "bd", "be", "bf", "bg", "bj", "bk"]

#: One subject of each database: its label, and all its files as the owners name them.
ONE_SUBJECT = {
    "ar": ("m-001", [f"m-001-{n:02d}.bmp" for n in range(1, 27)]),
    "pie": ("04002", [f"04002/illum/27_{n:02d}.ppm" for n in range(2, 5)]),
    "feret": (
        "01013",
        [f"01013{pose}010_960521.tif" for pose in [*FERET_SMALL_POSES, "bi"]],
    ),
    "frgc": ("04203", [f"Fall2003/04203d{n}.jpg" for n in range(90, 110)]),
    "polyu_palm": ("001", ["PolyU_001_F_01.bmp", "PolyU_001_S_01.bmp"]),
    "casia_palm": ("0001_l", ["0001/0001_m_l_01.jpg", "0001/0001_m_l_02.jpg"]),
    "iitd_ear": ("001", ["001_1.bmp", "001_2.bmp"]),
}
#: Images of that subject in the paper's subset.
N_SELECTED = {name: len(files) for name, (_, files) in ONE_SUBJECT.items()} | {
    "ar": len(AR_UNOCCLUDED),
    "feret": len(FERET_SMALL_POSES),
}
for_each_database = pytest.mark.parametrize("name", ONE_SUBJECT)


@pytest.fixture
def write_subject(tmp_path, write_image):
    """Write the files of one subject and return their folder."""

    def write(name):
        for file in ONE_SUBJECT[name][1]:
            write_image(tmp_path / file)
        return tmp_path

    return write


def test_every_research_database_is_tested_here():
    assert set(ONE_SUBJECT) == set(RULES)
    assert set(RULES) == {name for name, info in DATABASES.items() if not info.embedded}


@for_each_database
def test_one_subject_is_read_with_a_warning_of_the_missing_ones(write_subject, name):
    info = DATABASES[name]
    with pytest.warns(UserWarning, match=f"used {info.images} images of") as record:
        database = info.loader(write_subject(name), size=(8, 9))
    assert len(record) == 1
    # The warning points to the caller.
    assert record[0].filename == __file__
    assert database.name == info.title
    assert database.images.shape == (N_SELECTED[name], 8, 9)
    assert database.subjects.tolist() == [ONE_SUBJECT[name][0]]
    assert database.skipped == ()
    assert database.citation == info.citation
    assert "research only" in database.terms


@for_each_database
def test_names_in_capitals_in_folders_beside_other_files(tmp_path, write_image, name):
    subject, files = ONE_SUBJECT[name]
    for file in files:
        path = write_image(tmp_path / "copy of disc 1" / file)
        path.rename(path.with_name(path.name.upper()))
    (tmp_path / "Thumbs.db").write_text("litter")
    (tmp_path / "._m-001-01.bmp").write_text("litter")
    labels = DATABASES[name].loader(tmp_path).labels
    assert labels.tolist() == [subject] * N_SELECTED[name]


@for_each_database
def test_missing_folder_says_where_to_ask(tmp_path, name):
    info = DATABASES[name]
    with pytest.raises(DatabaseError, match="There is no folder") as error:
        info.loader(tmp_path / "absent")
    assert info.ask in str(error.value)


@for_each_database
def test_empty_folder_says_what_was_expected(tmp_path, name):
    with pytest.raises(DatabaseError, match="is empty") as error:
        DATABASES[name].loader(tmp_path)
    assert DATABASES[name].expects in str(error.value)


@for_each_database
def test_wrong_folder_says_what_was_expected_and_found(tmp_path, write_image, name):
    for n in range(7):
        write_image(tmp_path / f"holiday {n}.jpg")
    with pytest.raises(DatabaseError, match="none of the 7 files") as error:
        DATABASES[name].loader(tmp_path)
    assert DATABASES[name].expects in str(error.value)
    assert "holiday 0.jpg" in str(error.value)
    assert "and 2 more" in str(error.value)


@for_each_database
def test_the_same_image_in_two_folders(write_subject, write_image, name):
    root = write_subject(name)
    write_image(root / "thumbnails" / ONE_SUBJECT[name][1][0])
    with pytest.raises(DatabaseError, match=r"is\s+there twice: .*thumbnails"):
        DATABASES[name].loader(root)


@for_each_database
def test_bad_files_are_an_error_or_skipped_on_request(write_subject, name):
    root = write_subject(name)
    bad = root / ONE_SUBJECT[name][1][0]
    bad.write_text("no image")
    n_images = N_SELECTED[name]
    with pytest.raises(DatabaseError, match=f"1 of {n_images} images cannot be read"):
        DATABASES[name].loader(root)
    database = DATABASES[name].loader(root, on_error="skip")
    assert database.images.shape[0] == database.labels.size == n_images - 1
    (skipped,) = database.skipped
    assert str(bad) in skipped


@pytest.mark.parametrize("name", ["ar", "pie", "feret", "frgc"])
def test_unknown_subset(write_subject, name):
    with pytest.raises(DatabaseError, match='subset must be "paper" or "all"'):
        DATABASES[name].loader(write_subject(name), subset="half")


@for_each_database
def test_every_parameter_is_documented(name):
    loader = DATABASES[name].loader
    lines = loader.__doc__.splitlines()
    documented = [line.split(" : ")[0] for line in lines if re.match(r"\w+ : ", line)]
    assert documented == list(inspect.signature(loader).parameters)
    headings = [line for line, below in pairwise(lines) if set(below) == {"-"}]
    assert headings == ["Parameters", "Returns", "Raises", "Warns"]
    # No mark of shared text is left.
    assert "<" not in loader.__doc__


class TestAR:
    @pytest.fixture
    def root(self, tmp_path, write_image):
        for n in range(1, 27):
            write_image(tmp_path / f"m-001-{n:02d}.bmp")
            write_image(tmp_path / f"w-001-{n:02d}.png", mode="RGB")
        for n in range(1, 14):  # came once
            write_image(tmp_path / f"w-002-{n:02d}.bmp")
        return tmp_path

    def test_the_paper_uses_unoccluded_images_of_people_who_came_twice(self, root):
        database = load_ar(root)
        assert database.labels.tolist() == ["m-001"] * 14 + ["w-001"] * 14
        assert database.images.shape == (28, 32, 32)
        assert database.views.tolist() == AR_UNOCCLUDED * 2
        assert database.visits.tolist() == ([1] * 7 + [2] * 7) * 2

    def test_all_images(self, root):
        database = load_ar(root, subset="all")
        assert database.images.shape[0] == 2 * 26 + 13
        assert database.visits[database.views == "13"].tolist() == [1, 1, 1]
        assert database.visits[database.views == "26"].tolist() == [2, 2]

    def test_nobody_came_twice(self, tmp_path, write_image):
        write_image(tmp_path / "m-001-01.bmp")
        with pytest.raises(DatabaseError, match="none of the 1 subjects found has all"):
            load_ar(tmp_path)

    def test_other_names_are_ignored(self, tmp_path, write_image):
        for name in ("m-001-01.bmp", "m-001-27.bmp", "m-001-00.bmp", "x-001-01.bmp"):
            write_image(tmp_path / name)
        assert load_ar(tmp_path, subset="all").views.tolist() == ["01"]

    def test_women_are_w_even_where_the_name_says_f(self, tmp_path, write_image):
        write_image(tmp_path / "F-12-3.bmp")
        assert load_ar(tmp_path, subset="all").labels.tolist() == ["w-012"]

    def test_raw_planes(self, tmp_path):
        planes = np.zeros((3, 576, 768), dtype=np.uint8)
        planes[:, :, :384] = np.array([255, 0, 0])[:, None, None]  # left half red
        planes.tofile(tmp_path / "m-001-01.raw")
        image = load_ar(tmp_path, subset="all", size=(2, 8)).images[0]
        assert (image[:, 0] == 76).all()  # luminance of red
        assert (image[:, -1] == 0).all()

    def test_raw_of_the_wrong_length(self, tmp_path):
        (tmp_path / "m-001-01.raw").write_bytes(bytes(1000))
        with pytest.raises(DatabaseError, match="1000 bytes, a raw image of AR has"):
            load_ar(tmp_path, subset="all")


class TestPIE:
    @pytest.fixture
    def root(self, tmp_path, write_image):
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

    def test_the_paper_uses_the_frontal_camera_without_talking(self, root):
        database = load_pie(root)
        views = ["expression/27_smile", "illum/27_02", "lights/27_02"]
        assert database.labels.tolist() == ["04000"] * 3 + ["04002"] * 3
        assert database.views.tolist() == views * 2

    def test_all_images(self, root):
        database = load_pie(root, subset="all")
        assert database.labels.tolist() == ["04000"] * 5 + ["04002"] * 5
        assert {"illum/05_02", "talking/27_010"} <= set(database.views)

    def test_parts_above_the_subjects(self, tmp_path, write_image):
        write_image(tmp_path / "illum" / "04002" / "27_02.ppm")
        assert load_pie(tmp_path).views.tolist() == ["illum/27_02"]

    def test_without_the_frontal_camera(self, tmp_path, write_image):
        write_image(tmp_path / "04002" / "illum" / "05_02.ppm")
        with pytest.raises(DatabaseError, match=r"none of the 1 images .* camera 27"):
            load_pie(tmp_path)


class TestFERET:
    @pytest.fixture
    def root(self, tmp_path, write_image):
        for subject in ("01013", "01014"):
            for pose in [*FERET_SMALL_POSES, "bb", "bi"]:
                write_image(tmp_path / f"{subject}{pose}010_960521.tif")
        write_image(tmp_path / "01015ba010_960521.tif")
        return tmp_path

    def test_the_paper_uses_small_poses_of_people_who_have_all(self, root):
        database = load_feret(root)
        assert database.labels.tolist() == ["01013"] * 7 + ["01014"] * 7
        assert database.views.tolist() == FERET_SMALL_POSES * 2

    def test_all_images(self, root):
        database = load_feret(root, subset="all")
        expected = ["01013"] * 9 + ["01014"] * 9 + ["01015"]
        assert database.labels.tolist() == expected

    def test_nobody_has_all_small_poses(self, tmp_path, write_image):
        write_image(tmp_path / "00002_940928_fa.ppm")
        with pytest.raises(DatabaseError, match="ba, bd, be, bf, bg, bj, bk"):
            load_feret(tmp_path)

    def test_names_of_the_colour_discs(self, tmp_path, write_image):
        path = write_image(tmp_path / "00002" / "00002_940928_fa.ppm", mode="RGB")
        packed = path.with_name("00002_940928_rb.ppm.bz2")
        packed.write_bytes(bz2.compress(path.read_bytes()))
        write_image(tmp_path / "00001" / "00001_930831_fa_a.ppm")
        write_image(tmp_path / "00003" / "00003fa010d_930831.tif")
        database = load_feret(tmp_path, subset="all")
        assert database.labels.tolist() == ["00001", "00002", "00002", "00003"]
        assert database.views.tolist() == ["fa", "fa", "rb", "fa"]


class TestFRGC:
    @pytest.fixture
    def root(self, tmp_path, write_image):
        for n in range(95, 104):
            write_image(tmp_path / "Fall2003" / f"04203d{n}.jpg", size=(9, n))
        for n in range(4):
            write_image(tmp_path / "Spring2004" / f"04201d{n}.JPG")
        write_image(tmp_path / "Spring2004" / "04203d200.ppm")  # texture of a scan
        return tmp_path

    @pytest.mark.parametrize(
        ("per_subject", "subjects"), [(4, ["04201", "04203"]), (5, ["04203"])]
    )
    def test_the_paper_uses_subjects_with_enough_images(
        self, root, per_subject, subjects
    ):
        labels = load_frgc(root, per_subject=per_subject).labels
        assert labels.tolist() == np.repeat(subjects, per_subject).tolist()

    def test_images_are_spread_over_the_recordings_in_their_order(self, root):
        everything = load_frgc(root, subset="all")
        of_subject = everything.images[everything.labels == "04203"]
        np.testing.assert_array_equal(
            load_frgc(root, per_subject=5).images, of_subject[::2]
        )

    def test_all_images_except_textures(self, root):
        labels = load_frgc(root, subset="all").labels
        assert labels.tolist() == ["04201"] * 4 + ["04203"] * 9

    @pytest.mark.parametrize(
        ("per_subject", "match"),
        [
            (20, "none of the 2 subjects found has 20 images. Lower per_subject"),
            (0, "per_subject must be at least 1, not 0"),
        ],
    )
    def test_too_few_images(self, root, per_subject, match):
        with pytest.raises(DatabaseError, match=match):
            load_frgc(root, per_subject=per_subject)


class TestCASIA:
    @pytest.fixture
    def root(self, tmp_path, write_image):
        for person in ("0001_m", "0312_f"):
            for hand in "lr":
                for n in (1, 2):
                    name = f"{person}_{hand}_{n:02d}.jpg"
                    write_image(tmp_path / person[:4] / name)
        return tmp_path

    def test_hands_are_the_subjects(self, root):
        with pytest.warns(UserWarning, match="of 624 subjects, found 8 of 4"):
            database = load_casia_palm(root)
        assert database.subjects.tolist() == ["0001_l", "0001_r", "0312_l", "0312_r"]
        assert database.views.tolist() == ["l", "l", "r", "r"] * 2

    def test_people_are_the_subjects_on_request(self, root):
        with pytest.warns(UserWarning, match="of 312 subjects, found 8 of 2"):
            database = load_casia_palm(root, subject="person")
        assert database.subjects.tolist() == ["0001", "0312"]
        assert database.views.tolist() == ["l", "l", "r", "r"] * 2

    def test_unknown_subject(self, root):
        with pytest.raises(DatabaseError, match='subject must be "hand" or "person"'):
            load_casia_palm(root, subject="finger")


def test_polyu_palms_have_two_visits(tmp_path, write_image):
    for palm in ("001", "386"):
        for visit in "FS":
            for n in (1, 2, 10):
                write_image(tmp_path / f"PolyU_{palm}_{visit}_{n:02d}.bmp")
    database = load_polyu_palm(tmp_path)
    assert database.labels.tolist() == ["001"] * 6 + ["386"] * 6
    assert database.visits.tolist() == [1, 1, 1, 2, 2, 2] * 2


def test_iitd_ears_have_neither_visits_nor_views(tmp_path, write_image):
    for name in ("001_1.bmp", "001_2.bmp", "221_10.bmp", "221_9.bmp"):
        write_image(tmp_path / name, size=(180, 50))
    database = load_iitd_ear(tmp_path, size=(45, 12))
    assert database.labels.tolist() == ["001", "001", "221", "221"]
    assert database.images.shape == (4, 45, 12)
    assert database.visits is None
    assert database.views is None
