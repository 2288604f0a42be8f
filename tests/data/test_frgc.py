import numpy as np
import pytest

from dualqml.data import DatabaseError, load_frgc

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def root(tmp_path, write_image):
    for n in range(95, 104):
        write_image(tmp_path / "Fall2003" / f"04203d{n}.jpg", size=(9, n))
    for n in range(4):
        write_image(tmp_path / "Spring2004" / f"04201d{n}.JPG")
    write_image(tmp_path / "Spring2004" / "04203d200.ppm")  # texture of a scan
    return tmp_path


def test_papers_subset_takes_as_many_of_each_subject_that_has_enough(root):
    assert load_frgc(root, per_subject=4).labels.tolist() == ["04201"] * 4 + (
        ["04203"] * 4
    )
    assert load_frgc(root, per_subject=5).labels.tolist() == ["04203"] * 5


def test_images_are_spread_over_the_recordings_in_their_order(root, write_image):
    everything = load_frgc(root, subset="all")
    of_subject = everything.images[everything.labels == "04203"]
    np.testing.assert_array_equal(
        load_frgc(root, per_subject=5).images, of_subject[::2]
    )


def test_everything_but_textures(root):
    assert load_frgc(root, subset="all").images.shape[0] == 13


@pytest.mark.parametrize("per_subject", [20, 0])
def test_too_few_images(root, per_subject):
    with pytest.raises(DatabaseError, match="per_subject"):
        load_frgc(root, per_subject=per_subject)
