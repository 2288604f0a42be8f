"""The same picture is the same row, in whatever form it comes."""

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import RecognitionError
from dualqml.recognition import Recognizer
from dualqml.recognition.inputs import InputReader
from tests.people import make_people

Image = pytest.importorskip("PIL.Image")

SIDES = st.integers(8, 60)
#: Channels of a picture in 8 bits; 0 means none.
CHANNELS = st.sampled_from([0, 2, 3, 4])


def picture(shape, n_channels, seed):
    channels = (n_channels,) if n_channels else ()
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(*shape, *channels), dtype=np.uint8)


def row(sample, size):
    reader = InputReader(size=size)
    # The first sample says what an array of two dimensions is.
    reader.kind = "image"
    return reader.read(sample)


def opened(image):
    """A file of an image, and the image read back from one."""
    stream = io.BytesIO()
    image.save(stream, "png")
    return Image.open(stream)


def forms(pixels):
    """An 8-bit picture as it is, in other types, as an image and as a file."""
    image = Image.fromarray(pixels)
    yield from (pixels, pixels.astype(np.int64), pixels / 255.0)
    yield (pixels / 255.0).astype(np.float32)
    yield np.uint16(257) * pixels
    yield from (image, opened(image))
    if pixels.ndim == 2:
        yield np.repeat(pixels[:, :, None], 3, axis=2)
        yield image.convert("RGB")
        # How Pillow opens 16 bits, in old and new versions.
        yield Image.fromarray(np.uint16(257) * pixels)
        yield Image.fromarray(np.int32(257) * pixels)
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        opaque = np.full((*pixels.shape[:2], 1), 255, dtype=np.uint8)
        yield np.concatenate([pixels, opaque], axis=2)
        yield image.convert("RGBA")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(SIDES, SIDES),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    n_channels=CHANNELS,
    seed=st.integers(0, 99),
)
def test_every_form_of_a_picture_gives_the_same_row(shape, size, n_channels, seed):
    pixels = picture(shape, n_channels, seed)
    expected = row(pixels, size)
    assert expected.dtype == np.uint8
    assert expected.shape == (1, size[0] * size[1])
    with TemporaryDirectory() as folder:
        path = Path(folder, "picture.png")
        Image.fromarray(pixels).save(path)
        for form in (path, str(path), [path], *forms(pixels)):
            np.testing.assert_array_equal(row(form, size), expected)
    # And among others.
    stack = np.stack([pixels, pixels[::-1]])
    np.testing.assert_array_equal(row(stack, size)[:1], expected)
    mixed = [Image.fromarray(pixels), pixels]
    np.testing.assert_array_equal(row(mixed, size), np.repeat(expected, 2, axis=0))


@settings(max_examples=20, deadline=None)
@given(shape=st.tuples(SIDES, SIDES), seed=st.integers(0, 99))
def test_images_of_16_bits_and_black_and_white_images_give_the_same_row(shape, seed):
    rng = np.random.default_rng(seed)
    deep = rng.integers(0, 65536, size=shape, dtype=np.uint16)
    two = rng.random(shape) > 0.5
    for pixels in (deep, two):
        image = Image.fromarray(pixels)
        for form in (image, opened(image)):
            np.testing.assert_array_equal(row(form, (12, 9)), row(pixels, (12, 9)))


def test_images_too_small_are_refused_in_every_form(tmp_path):
    tiny = picture((7, 20), 0, 0)
    path = tmp_path / "tiny.png"
    Image.fromarray(tiny).save(path)
    for form in (tiny, Image.fromarray(tiny), path):
        with pytest.raises(RecognitionError, match="at least 8 x 8 pixels, not 7 x 20"):
            row(form, (8, 8))


def test_arrays_need_no_pillow(monkeypatch):
    pixels = picture((20, 16), 4, 0)
    expected = row(pixels, (9, 8))
    for name in [name for name in sys.modules if name.split(".")[0] == "PIL"]:
        monkeypatch.setitem(sys.modules, name, None)
    np.testing.assert_array_equal(row(pixels, (9, 8)), expected)


def test_16_bits_of_two_dimensions_are_an_image():
    reader = InputReader(size=(8, 8))
    reader.read(np.full((20, 16), 65535, dtype=np.uint16))
    assert reader.kind == "image"


@pytest.mark.parametrize("method", ["K-LDA", "DualQML-W", "GTDA"])
@pytest.mark.parametrize("size", [[9, 10], np.array([9, 10])], ids=repr)
def test_a_size_may_be_a_list_or_an_array(method, size, tmp_path):
    images = make_people(n_people=4, n_images=3, size=16).images.reshape(4, 3, 16, 16)
    models = []
    for given_size in (size, (9, 10)):
        recognizer = Recognizer(method, size=given_size, threshold=0.0)
        for number, own in enumerate(images):
            recognizer.enroll(f"{number}", own[:2])
        models.append(recognizer)
    assert models[0].size == (9, 10)
    assert models[0].model_id == models[1].model_id
    found, expected = (model.identify(images[2, 2]) for model in models)
    assert found == expected
    models[0].save(tmp_path / "model")
    again = Recognizer.load(tmp_path / "model").identify(images[2, 2])
    assert again == expected
