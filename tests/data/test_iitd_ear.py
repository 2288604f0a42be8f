import pytest

from dualqml.data import load_iitd_ear

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_iitd_ears(tmp_path, write_image):
    for name in ("001_1.bmp", "001_2.bmp", "221_10.bmp", "221_9.bmp"):
        write_image(tmp_path / name, size=(180, 50))
    database = load_iitd_ear(tmp_path, size=(45, 12))
    assert database.labels.tolist() == ["001", "001", "221", "221"]
    assert database.images.shape == (4, 45, 12)
    assert database.visits is None
    assert database.views is None
