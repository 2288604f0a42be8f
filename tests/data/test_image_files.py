"""Image files of a database: how they are found, and how many are read at once."""

import os

import numpy as np
import pytest

from dualqml.data.image_files import find_files, find_images, read_images
from dualqml.exceptions import DatabaseError
from dualqml.images.files import read_image


class TestFind:
    def test_hidden_files_and_litter_are_not_found(self, tmp_path):
        for name in (".hidden.png", "Thumbs.db", "desktop.ini", "notes.txt", "b.PNG"):
            (tmp_path / name).touch()
        for folder in (".git", "__MACOSX", "a"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "a.Jpeg").touch()
        images = [tmp_path / "a" / "a.Jpeg", tmp_path / "b.PNG"]
        assert find_images(tmp_path) == images
        assert find_files(tmp_path) == [*images, tmp_path / "notes.txt"]

    def test_compressed_images_are_found(self, tmp_path):
        for name in ("a.ppm", "a.ppm.bz2", "a.txt.bz2"):
            (tmp_path / name).touch()
        assert find_images(tmp_path) == [tmp_path / "a.ppm", tmp_path / "a.ppm.bz2"]

    def test_links_are_followed_once(self, tmp_path):
        (tmp_path / "root" / "loop").mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a.png").touch()
        try:
            os.symlink(tmp_path / "elsewhere", tmp_path / "root" / "linked")
            os.symlink(tmp_path / "root", tmp_path / "root" / "loop" / "up")
        except OSError:
            pytest.skip("this system makes no links")
        found = find_images(tmp_path / "root")
        assert found == [tmp_path / "root" / "linked" / "a.png"]

    def test_a_missing_folder_and_a_file_in_its_place(self, tmp_path):
        with pytest.raises(DatabaseError, match="There is no folder"):
            find_files(tmp_path / "absent")
        (tmp_path / "file").touch()
        with pytest.raises(DatabaseError, match="a folder was expected"):
            find_files(tmp_path / "file")


class TestRead:
    @pytest.fixture
    def good(self, tmp_path, write_image):
        return write_image(tmp_path / "good.png")

    @pytest.fixture
    def text(self, tmp_path):
        path = tmp_path / "text.jpg"
        path.write_text("no image at all")
        return path

    @pytest.fixture
    def empty(self, tmp_path):
        path = tmp_path / "empty.jpg"
        path.touch()
        return path

    def test_sizes_may_be_lists_and_arrays(self, good):
        expected = read_image(good, (4, 6))[None]
        for size in ((4, 6), [4, 6], np.array([4, 6])):
            images, kept, skipped = read_images([good], size)
            np.testing.assert_array_equal(images, expected)
            assert kept.tolist() == [0]
            assert skipped == ()

    def test_all_bad_files_are_counted_and_the_first_few_named(self, tmp_path, good):
        paths = [good] + [tmp_path / f"missing{n}.png" for n in range(7)]
        with pytest.raises(DatabaseError, match="7 of 8 images cannot be") as error:
            read_images(paths, (8, 8))
        assert "missing4.png" in str(error.value)
        assert "missing5.png" not in str(error.value)
        assert "and 2 more" in str(error.value)
        assert 'on_error="skip"' in str(error.value)

    def test_bad_files_are_called_by_the_names_given(self, good, text):
        names = ["line 2", "line 3"]
        with pytest.raises(DatabaseError, match=r"read: line 3: .*text\.jpg"):
            read_images([good, text], (8, 8), names=names)

    def test_skipped_files_are_returned(self, good, text, empty):
        images, kept, skipped = read_images([text, good, empty, good], (8, 8), "skip")
        assert images.shape == (2, 8, 8)
        np.testing.assert_array_equal(images[0], read_image(good, (8, 8)))
        assert kept.tolist() == [1, 3]
        assert len(skipped) == 2
        assert "text.jpg" in skipped[0]
        assert "empty.jpg" in skipped[1]

    def test_nothing_left_after_skipping_is_an_error(self, text):
        with pytest.raises(DatabaseError, match="1 of 1 images cannot be read"):
            read_images([text], (8, 8), "skip")

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"size": (8, 8), "on_error": "ignore"}, "on_error must be"),
            ({"size": (8, 0)}, r"size=\(8, 0\) is not a height and a width"),
            ({"size": (8,)}, r"size=\(8,\) is not a height and a width"),
            ({"size": 8}, "size=8 is not a height and a width"),
        ],
    )
    def test_wrong_options(self, options, match):
        with pytest.raises(DatabaseError, match=match):
            read_images([], **options)
