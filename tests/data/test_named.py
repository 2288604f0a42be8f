"""What all readers by file name do with wrong folders and bad files."""

import pytest

from dualqml.data import DATABASES, DatabaseError

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
