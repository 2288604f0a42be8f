import pytest

from dualqml.data import DatabaseError, load_csv


@pytest.fixture
def listed(tmp_path, write_image):
    for name in ("a.png", "b.png", "sub/c.png"):
        write_image(tmp_path / name)

    def write(text, encoding="utf-8"):
        path = tmp_path / "list.csv"
        path.write_text(text, encoding=encoding)
        return path

    return write


def test_required_columns(listed, monkeypatch, tmp_path_factory):
    path = listed('path,subject\na.png,"Lee, Ann"\n\nsub/c.png,Zoë\n')
    # Relative to the list, not to the working directory.
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    database = load_csv(path, size=(5, 6))
    assert database.labels.tolist() == ["Lee, Ann", "Zoë"]
    assert database.images.shape == (2, 5, 6)
    assert database.visits is None
    assert database.views is None


def test_all_columns_in_any_order_as_spreadsheets_write_them(listed, tmp_path):
    path = listed(
        "Subject,View,Visit,Path\r\nAnn,fa,1,a.png\r\n"
        f"Ann,fb,2,{tmp_path / 'b.png'}\r\n",
        encoding="utf-8-sig",
    )
    database = load_csv(path)
    assert database.visits.tolist() == [1, 2]
    assert database.views.tolist() == ["fa", "fb"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "lists no image"),
        ("path,subject\n", "lists no image"),
        ("a.png,Ann\n", "line 1: expected a header .* found a.png, Ann"),
        ("path,name\na.png,Ann\n", "line 1: expected a header"),
        ("path,subject,vist\na.png,Ann,1\n", "line 1: expected a header"),
        ("path,subject,path\na.png,Ann,b.png\n", "line 1: expected a header"),
        ("path,subject\na.png,Ann\nb.png\n", "line 3: 1 cells"),
        ("path,subject\na.png,Ann\nb.png,  \n", "line 3: no subject"),
        ("path,subject\n,Ann\n", "line 2: no path"),
        ("path,subject,visit\na.png,Ann,first\n", "line 2: the visit 'first'"),
        ("path,subject\na.png,Ann\na.png,Bob\n", "line 3: a.png is already on line 2"),
        ("path,subject\na.png,Ann\nz.png,Bob\n", "1 of 2 .* line 3: .*z.png"),
        ('path,subject\n"a.png,Ann\n', "line 2"),
    ],
)
def test_errors_name_the_line(listed, text, match):
    with pytest.raises(DatabaseError, match=match):
        load_csv(listed(text))


def test_bad_images_are_skipped_on_request(listed):
    path = listed("path,subject,visit\nz.png,Bob,1\na.png,Ann,2\n")
    database = load_csv(path, on_error="skip")
    assert database.labels.tolist() == ["Ann"]
    assert database.visits.tolist() == [2]
    assert database.skipped[0].startswith("line 2: ")


def test_missing_list_and_wrong_encoding(tmp_path, listed):
    with pytest.raises(DatabaseError, match="cannot be read"):
        load_csv(tmp_path / "absent.csv")
    with pytest.raises(DatabaseError, match="not in UTF-8"):
        load_csv(listed("path,subject\na.png,Zoë\n", encoding="latin-1"))
