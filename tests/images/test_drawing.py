import numpy as np
import pytest

from dualqml.images.drawing import draw_faces, save_drawing

image_module = pytest.importorskip("PIL.Image")

GREEN, RED = (0, 110, 60), (170, 40, 20)


def wall(height=200, width=300):
    return np.full((height, width, 3), 128, dtype=np.uint8)


def places(drawn, colour):
    """Rows and columns of the pixels of a colour."""
    rows, columns = np.nonzero((np.asarray(drawn) == colour).all(axis=2))
    return rows, columns


def test_the_photograph_itself_is_not_changed():
    pixels = wall()
    drawn = draw_faces(pixels, [(50, 60, 120, 130)], ["Ann"], [True])
    assert (pixels == 128).all()
    assert drawn.size == (300, 200)


def test_boxes_are_where_the_faces_are():
    drawn = draw_faces(wall(), [(80, 60, 150, 130)], [""], [True])
    rows, columns = places(drawn, GREEN)
    assert (rows.max(), columns.max()) == (150, 130)
    assert columns.min() == 60
    # Inside of the box nothing is drawn.
    assert (np.asarray(drawn)[90:140, 70:120] == 128).all()


def test_known_people_and_others_differ():
    boxes = [(80, 20, 150, 90), (80, 160, 150, 230)]
    drawn = draw_faces(wall(), boxes, ["Ann", "?"], [True, False])
    assert places(drawn, GREEN)[1].max() < 150 < places(drawn, RED)[1].min()


@pytest.mark.parametrize(
    ("box", "above"), [((100, 60, 160, 130), True), ((2, 60, 160, 130), False)]
)
def test_the_name_is_above_or_below_the_box(box, above):
    drawn = draw_faces(wall(), [box], ["Ann"], [True])
    without = draw_faces(wall(), [box], [""], [True])
    rows, _ = np.nonzero((np.asarray(drawn) != np.asarray(without)).any(axis=2))
    if above:
        assert rows.max() <= box[0]
    else:
        assert rows.min() >= box[2]
    # White letters on the colour of the box.
    assert (np.asarray(drawn) == 255).all(axis=2).any()


@pytest.mark.parametrize(
    "box", [(0, 0, 20, 20), (180, 280, 200, 300), (0, 280, 200, 300)]
)
def test_names_at_the_edges_stay_inside(box):
    long = "Ann of the long name"
    drawn = np.asarray(draw_faces(wall(), [box], [long], [True]))
    middle = draw_faces(wall(), [(100, 20, 160, 130)], [long], [True])
    white = (np.asarray(middle) == 255).all(axis=2).sum()
    assert (drawn == 255).all(axis=2).sum() == white


@pytest.mark.parametrize("text", ["Zoë", "李雷", "a\nb", "x" * 500, ""])
def test_any_text_can_be_written(text):
    drawn = draw_faces(wall(), [(80, 60, 150, 130)], [text], [True])
    assert drawn.size == (300, 200)


def test_large_photographs_are_reduced():
    drawn = draw_faces(wall(1000, 4096), [(400, 1000, 800, 1400)], [""], [True])
    assert drawn.size == (2048, 500)
    rows, columns = places(drawn, GREEN)
    assert (rows.max(), columns.min(), columns.max()) == (400, 500, 700)


def test_no_faces_and_tiny_photographs():
    assert (np.asarray(draw_faces(wall(), [], [], [])) == 128).all()
    assert draw_faces(wall(1, 1), [(0, 0, 1, 1)], ["Ann"], [False]).size == (1, 1)


def test_as_many_texts_as_boxes():
    with pytest.raises(ValueError, match="shorter"):
        draw_faces(wall(), [(0, 0, 9, 9)], [], [True])


def test_without_a_font_of_any_size(monkeypatch):
    font = pytest.importorskip("PIL.ImageFont")
    small = font.load_default_imagefont()

    def only_one(*size):
        if size:
            raise OSError
        return small

    monkeypatch.setattr(font, "load_default", only_one)
    drawn = draw_faces(wall(), [(80, 60, 150, 130)], ["Ann"], [True])
    assert (np.asarray(drawn) == 255).all(axis=2).any()


def test_files_are_written_whole(tmp_path, monkeypatch):
    drawn = draw_faces(wall(), [(80, 60, 150, 130)], ["Ann"], [True])
    save_drawing(drawn, tmp_path / "ann.jpg")
    with image_module.open(tmp_path / "ann.jpg") as read:
        assert read.format == "JPEG"
        near = np.abs(np.asarray(read).astype(int) - np.asarray(drawn))
    assert near.mean() < 5
    before = (tmp_path / "ann.jpg").read_bytes()

    class Broken:
        def save(self, stream, **options):
            stream.write(b"half")
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        save_drawing(Broken(), tmp_path / "ann.jpg")
    assert (tmp_path / "ann.jpg").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ann.jpg"]
