import pytest

from dualqml.data import DatabaseError, load_casia_palm

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


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
