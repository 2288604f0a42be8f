import unicodedata

import pytest

from dualqml.data import DatabaseError, load_folder


def test_folders_are_people_with_any_name(tmp_path, write_image):
    names = ["Ann Lee", "Zoë", "李雷", "o'Neil, Jr."]
    for name in names:
        for n in range(2):
            write_image(tmp_path / name / f"photo {n}.JPG")
    database = load_folder(tmp_path, size=(8, 6))
    assert sorted(database.subjects) == sorted(names)
    assert database.images.shape == (8, 8, 6)
    assert database.name == tmp_path.name


def test_names_are_the_same_however_the_file_system_spells_them(tmp_path, write_image):
    write_image(tmp_path / unicodedata.normalize("NFD", "Zoë") / "a.png")
    assert load_folder(tmp_path).labels.tolist() == [
        unicodedata.normalize("NFC", "Zoë")
    ]


def test_one_person_is_allowed_and_other_files_are_ignored(tmp_path, write_image):
    write_image(tmp_path / "Ann" / "a.png")
    write_image(tmp_path / "Ann" / "2024" / "b.tif")
    (tmp_path / "Ann" / "notes.txt").touch()
    (tmp_path / "Ann" / "Thumbs.db").touch()
    (tmp_path / "list.txt").touch()
    (tmp_path / ".cache").mkdir()
    assert load_folder(tmp_path).labels.tolist() == ["Ann", "Ann"]


def test_empty_folder_and_folder_without_images(tmp_path):
    with pytest.raises(DatabaseError, match="the folder is empty"):
        load_folder(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DatabaseError, match=r"found notes\.txt"):
        load_folder(tmp_path)


def test_images_that_are_nobodys(tmp_path, write_image):
    write_image(tmp_path / "Ann" / "a.png")
    write_image(tmp_path / "who.png")
    with pytest.raises(DatabaseError, match=r"in no person's folder: who\.png"):
        load_folder(tmp_path)


def test_a_person_without_images_is_told(tmp_path, write_image):
    write_image(tmp_path / "Ann" / "a.png")
    (tmp_path / "Bob").mkdir()
    with pytest.warns(UserWarning, match="have no images: Bob"):
        load_folder(tmp_path)


def test_bad_images(tmp_path, write_image):
    write_image(tmp_path / "Ann" / "a.png")
    (tmp_path / "Bob").mkdir()
    (tmp_path / "Bob" / "b.jpg").write_text("no image")
    with pytest.raises(DatabaseError, match=r"1 of 2 .*b\.jpg"):
        load_folder(tmp_path)
    database = load_folder(tmp_path, on_error="skip")
    assert database.labels.tolist() == ["Ann"]
    assert len(database.skipped) == 1
