import pytest

from dualqml.data import load_polyu_palm

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_polyu_palms_have_two_visits(tmp_path, write_image):
    for palm in ("001", "386"):
        for visit in "FS":
            for n in (1, 2, 10):
                write_image(tmp_path / f"PolyU_{palm}_{visit}_{n:02d}.bmp")
    database = load_polyu_palm(tmp_path)
    assert database.labels.tolist() == ["001"] * 6 + ["386"] * 6
    assert database.visits.tolist() == [1, 1, 1, 2, 2, 2] * 2
