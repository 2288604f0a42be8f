import pytest

from dualqml.data import DatabaseError, load_pie

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def root(tmp_path, write_image):
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


def test_papers_subset_is_the_frontal_camera_without_talking(root):
    database = load_pie(root)
    assert database.labels.tolist() == ["04000"] * 3 + ["04002"] * 3
    assert database.views[:3].tolist() == [
        "expression/27_smile",
        "illum/27_02",
        "lights/27_02",
    ]


def test_everything(root):
    assert load_pie(root, subset="all").images.shape[0] == 10


def test_parts_above_the_subjects(tmp_path, write_image):
    write_image(tmp_path / "illum" / "04002" / "27_02.ppm")
    assert load_pie(tmp_path).views.tolist() == ["illum/27_02"]


def test_without_the_frontal_camera(tmp_path, write_image):
    write_image(tmp_path / "04002" / "illum" / "05_02.ppm")
    with pytest.raises(DatabaseError, match=r"none of the 1 images .* camera 27"):
        load_pie(tmp_path)
