"""One image file as an array of pixels."""

import bz2
import importlib
import struct
import zlib

import numpy as np
import pytest

from dualqml.exceptions import DatabaseError, MissingDependencyError
from dualqml.images import files
from dualqml.images.files import read_image
from dualqml.images.geometry import resize

Image = pytest.importorskip("PIL.Image")

RAMP = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4


def saved(tmp_path, image, name="image.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def test_8_bits_of_the_same_size_stay_as_they_are(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP))
    read = read_image(path, (8, 8))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, RAMP)


def test_size_is_height_then_width(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP))
    read = read_image(path, (4, 6))
    assert read.shape == (4, 6)
    np.testing.assert_array_equal(read, resize(RAMP, (4, 6)))


def test_resizing_is_antialiased(tmp_path):
    # Stripes finer than the new pixels become even grey, not aliased.
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (64, 32))
    read = read_image(saved(tmp_path, Image.fromarray(stripes)), (8, 8))
    assert np.ptp(read[:, 1:-1].astype(int)) < 30
    assert abs(read.mean() - 127.5) < 10


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_16_bits_are_scaled_to_8(tmp_path, name):
    deep = Image.fromarray(RAMP.astype(np.uint16) * 257)
    np.testing.assert_array_equal(read_image(saved(tmp_path, deep, name), (8, 8)), RAMP)


def test_16_bits_of_a_pgm_are_scaled_to_8(tmp_path):
    # By hand: older versions of Pillow read these, but do not write them.
    deep = RAMP.astype(">u2") * np.array(257, ">u2")
    path = tmp_path / "deep.pgm"
    path.write_bytes(b"P5 8 8 65535\n" + deep.astype(">u2").tobytes())
    np.testing.assert_array_equal(read_image(path, (8, 8)), RAMP)


def test_more_than_16_bits_is_refused(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP.astype(np.int32) * 10**6), "a.tif")
    with pytest.raises(DatabaseError, match=r"a\.tif: pixels of more than 16 bits"):
        read_image(path, (8, 8))


def test_floating_point_is_refused(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP / np.float32(255)), "a.tif")
    with pytest.raises(DatabaseError, match="floating-point pixels"):
        read_image(path, (8, 8))


@pytest.mark.parametrize(
    ("mode", "name"), [("RGB", "a.png"), ("CMYK", "a.tif"), ("YCbCr", "a.tif")]
)
def test_colour_becomes_luminance(tmp_path, mode, name):
    if mode == "YCbCr" and int(Image.__version__.split(".")[0]) < 12:
        pytest.skip("older versions of Pillow write such files wrongly")
    path = saved(tmp_path, Image.fromarray(RAMP).convert("RGB").convert(mode), name)
    np.testing.assert_allclose(read_image(path, (8, 8)).astype(int), RAMP, atol=1)


def test_palette_is_looked_up(tmp_path):
    palette = Image.fromarray((RAMP > 100).astype(np.uint8)).convert("P")
    palette.putpalette([255, 0, 0, 90, 90, 90])
    read = read_image(saved(tmp_path, palette), (8, 8))
    np.testing.assert_array_equal(read, np.where(RAMP > 100, 90, 76))


def test_one_bit_becomes_black_and_white(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP > 100))
    np.testing.assert_array_equal(read_image(path, (8, 8)), (RAMP > 100) * 255)


def test_transparent_pixels_are_black_whatever_lies_under_them(tmp_path):
    pixels = np.full((8, 8, 4), 200, dtype=np.uint8)
    pixels[..., 3] = 255
    pixels[:4, :, 3] = 0
    read = read_image(saved(tmp_path, Image.fromarray(pixels)), (8, 8))
    assert (read[:4] == 0).all()
    assert (read[4:] == 200).all()


def test_transparent_palette(tmp_path):
    palette = Image.fromarray((RAMP > 100).astype(np.uint8)).convert("P")
    palette.putpalette([255, 255, 255, 90, 90, 90])
    path = saved(tmp_path, palette, transparency=0)
    np.testing.assert_array_equal(read_image(path, (8, 8)), (RAMP > 100) * 90)


def test_orientation_of_the_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    path = saved(tmp_path, Image.fromarray(RAMP), exif=exif)
    np.testing.assert_array_equal(read_image(path, (8, 8)), np.rot90(RAMP, -1))


def test_compressed_one_by_one(tmp_path):
    plain = saved(tmp_path, Image.fromarray(RAMP), "a.ppm")
    path = tmp_path / "a.ppm.bz2"
    path.write_bytes(bz2.compress(plain.read_bytes()))
    np.testing.assert_array_equal(read_image(path, (8, 8)), RAMP)


def test_compressed_to_hide_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_UNPACKED", 1000)
    path = tmp_path / "a.ppm.bz2"
    path.write_bytes(bz2.compress(bytes(2000)))
    with pytest.raises(DatabaseError, match="unpacks to more than 1000 bytes"):
        read_image(path, (8, 8))


def write_bad_files(folder):
    (folder / "text.jpg").write_text("no image at all")
    (folder / "empty.jpg").touch()
    (folder / "empty.ppm.bz2").touch()
    for kind in ("bmp", "gif", "jpg", "pgm", "png", "tif"):
        whole = saved(folder, Image.fromarray(RAMP).resize((99, 99)), f"good.{kind}")
        content = whole.read_bytes()
        (folder / f"truncated.{kind}").write_bytes(content[: len(content) * 2 // 3])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("text.jpg", "not an image of a known format"),
        ("empty.jpg", "the file is empty"),
        ("empty.ppm.bz2", "the file is empty"),
        ("truncated.bmp", "truncated"),
        ("truncated.gif", "truncated"),
        ("truncated.jpg", "truncated"),
        ("truncated.pgm", "truncated"),
        ("truncated.png", "truncated"),
        ("truncated.tif", "truncated"),
        ("missing.jpg", "No such file"),
    ],
)
def test_bad_file_is_named_with_the_reason(tmp_path, name, reason):
    write_bad_files(tmp_path)
    with pytest.raises(DatabaseError, match=f"{name}: .*{reason}"):
        read_image(tmp_path / name, (8, 8))


# Pillow warns above its limit and refuses above twice the limit.
@pytest.mark.parametrize("limit", [40, 10])
def test_decompression_bomb(tmp_path, monkeypatch, limit):
    path = saved(tmp_path, Image.fromarray(RAMP))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(DatabaseError, match=r"image\.png: refused as too large"):
        read_image(path, (8, 8))


def test_bomb_that_only_claims_to_be_large(tmp_path):
    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"")
    )
    with pytest.raises(DatabaseError, match="too large"):
        read_image(path, (8, 8))


def test_without_pillow_it_says_what_to_install(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[images\]"):
        read_image(tmp_path / "a.png", (8, 8))
