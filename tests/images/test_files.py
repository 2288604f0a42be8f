"""One image file as an array of pixels."""

import bz2
import importlib
import itertools
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from dualqml.exceptions import DatabaseError, MissingDependencyError
from dualqml.images import files
from dualqml.images.files import (
    photograph_name,
    photograph_size,
    read_image,
    read_photograph,
)
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
    path = tmp_path / "bomb.png"
    path.write_bytes(png(100_000, 100_000, 8, 0, b""))
    with pytest.raises(DatabaseError, match="too large"):
        read_image(path, (8, 8))


def test_without_pillow_it_says_what_to_install(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[images\]"):
        read_image(tmp_path / "a.png", (8, 8))


class TestPhotograph:
    """`read_photograph`: the right pixels and a remark, or one clear error."""

    COLOUR = np.dstack([RAMP, RAMP[::-1], RAMP.T]).copy()

    def read(self, path):
        found = read_photograph(path, "x")
        assert found.pixels.dtype == np.uint8
        assert photograph_size(path, "x") == found.pixels.shape[:2]
        return found

    def test_ordinary_ones_need_no_remark(self, tmp_path):
        path = saved(tmp_path, Image.fromarray(self.COLOUR))
        found = self.read(path)
        np.testing.assert_array_equal(found.pixels, self.COLOUR)
        assert found.remarks == ()
        np.testing.assert_array_equal(self.read(self.COLOUR).pixels, self.COLOUR)

    def test_colours_for_printing(self, tmp_path):
        printed = Image.fromarray(self.COLOUR).convert("CMYK")
        found = self.read(saved(tmp_path, printed, "a.tif"))
        np.testing.assert_allclose(found.pixels.astype(int), self.COLOUR, atol=1)
        assert found.remarks == (
            "its colours are for printing (CMYK); they are converted",
        )

    def test_jpeg_for_printing_is_not_inverted(self, tmp_path):
        light = Image.new("RGB", (16, 16), (250, 240, 230)).convert("CMYK")
        found = self.read(saved(tmp_path, light, "a.jpg", quality=95))
        np.testing.assert_allclose(
            found.pixels.reshape(-1, 3).mean(axis=0), (250, 240, 230), atol=4
        )
        assert "CMYK" in found.remarks[0]

    @pytest.mark.parametrize("name", ["a.png", "a.tif"])
    def test_16_bits_of_grey(self, tmp_path, name):
        path = saved(tmp_path, Image.fromarray(RAMP.astype(np.uint16) * 257), name)
        found = self.read(path)
        np.testing.assert_array_equal(found.pixels, np.dstack([RAMP] * 3))
        assert found.remarks == ("it has 16 bits per colour; 8 are used",)

    def test_16_bits_of_colour(self, tmp_path):
        # By hand: Pillow reads these, but does not write them.
        deep = (self.COLOUR.astype(">u2") * np.array(257, ">u2")).astype(">u2")
        rows = b"".join(b"\0" + row.tobytes() for row in deep)
        path = tmp_path / "deep.png"
        path.write_bytes(png(8, 8, 16, 2, zlib.compress(rows)))
        found = self.read(path)
        np.testing.assert_array_equal(found.pixels, self.COLOUR)
        assert found.remarks == ("it has 16 bits per colour; 8 are used",)

    @pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tif"])
    def test_several_frames(self, tmp_path, name):
        frames = [Image.new("RGB", (16, 16), (level,) * 3) for level in (200, 90, 10)]
        options = {"lossless": True} if name == "a.webp" else {}
        path = saved(
            tmp_path,
            frames[0],
            name,
            save_all=True,
            append_images=frames[1:],
            **options,
        )
        found = self.read(path)
        np.testing.assert_allclose(found.pixels.astype(int), 200, atol=1)
        assert found.remarks == ("it has 3 frames; the first is used",)

    def test_copies_that_cameras_add_need_no_remark(self, tmp_path):
        first, second = (Image.new("RGB", (16, 16), (level,) * 3) for level in (200, 9))
        path = saved(
            tmp_path,
            first,
            "a.jpg",
            format="MPO",
            save_all=True,
            append_images=[second],
        )
        found = self.read(path)
        assert found.pixels.min() > 190
        assert found.remarks == ()

    def test_transparent_parts_are_black(self, tmp_path):
        pixels = np.dstack([self.COLOUR, np.repeat([[255], [0]], 4, axis=0) * RAMP**0])
        found = self.read(saved(tmp_path, Image.fromarray(pixels.astype(np.uint8))))
        np.testing.assert_array_equal(found.pixels[:4], self.COLOUR[:4])
        assert not found.pixels[4:].any()

    def test_orientation_of_the_camera(self, tmp_path):
        exif = Image.Exif()
        exif[0x0112] = 6
        path = saved(tmp_path, Image.fromarray(self.COLOUR[:4]), exif=exif)
        turned = np.rot90(self.COLOUR[:4], -1)
        np.testing.assert_array_equal(read_photograph(path, "x").pixels, turned)
        # The size is that in the file.
        assert photograph_size(path, "x") == (4, 8)

    @pytest.mark.parametrize("function", [read_photograph, photograph_size])
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("text.jpg", "not an image of a known format"),
            ("empty.jpg", "the file is empty"),
            ("missing.jpg", "No such file"),
        ],
    )
    def test_bad_files(self, tmp_path, function, name, reason):
        write_bad_files(tmp_path)
        with pytest.raises(DatabaseError, match=f"^my name: .*{reason}"):
            function(tmp_path / name, "my name")

    @pytest.mark.parametrize("kind", ["bmp", "gif", "jpg", "pgm", "png", "tif"])
    def test_truncated_files(self, tmp_path, kind):
        write_bad_files(tmp_path)
        with pytest.raises(DatabaseError, match=r"^x: .*truncated"):
            read_photograph(tmp_path / f"truncated.{kind}", "x")

    @pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1"])
    def test_heic_without_its_package(self, tmp_path, monkeypatch, brand):
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        path = tmp_path / "a.heic"
        path.write_bytes(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic" + bytes(99))
        message = "x: a HEIC photograph.*pip install pillow-heif.*save .* as JPEG"
        for function in (read_photograph, photograph_size):
            with pytest.raises(DatabaseError, match=message):
                function(path, "x")

    def test_damaged_heic_with_its_package(self, tmp_path, monkeypatch):
        registered = []

        class Package:
            @staticmethod
            def register_heif_opener():
                registered.append(1)

        monkeypatch.setitem(sys.modules, "pillow_heif", Package)
        path = tmp_path / "a.heic"
        path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99))
        with pytest.raises(DatabaseError, match="x: not an image of a known format"):
            read_photograph(path, "x")
        assert registered

    def test_bombs_are_refused_before_they_take_memory(self, tmp_path):
        content = zlib.compressobj(9)
        row = bytes(20_001)
        packed = b"".join(content.compress(row) for _ in range(20_000))
        path = tmp_path / "bomb.png"
        path.write_bytes(png(20_000, 20_000, 8, 0, packed + content.flush()))
        assert path.stat().st_size < 500_000
        code = (
            "import sys\n"
            "from dualqml.exceptions import DatabaseError\n"
            "from dualqml.images.files import photograph_size, read_photograph\n"
            "from tests.peak_memory import peak_bytes\n"
            "import PIL.ImageOps, PIL.PngImagePlugin\n"
            "before = peak_bytes()\n"
            "for function in (read_photograph, photograph_size):\n"
            "    try:\n"
            "        function(sys.argv[1], 'x')\n"
            "    except DatabaseError as error:\n"
            "        assert 'x: refused as too large' in str(error), error\n"
            "    else:\n"
            "        raise AssertionError\n"
            "print(peak_bytes() - before)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, path],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert int(ran.stdout) < 20_000_000

    # Pillow itself only warns of them.
    @pytest.mark.filterwarnings("ignore")
    def test_bombs_of_less_than_twice_the_limit(self, tmp_path, monkeypatch):
        path = saved(tmp_path, Image.fromarray(RAMP))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
        with pytest.raises(DatabaseError, match="x: refused as too large"):
            read_photograph(path, "x")

    def test_filters_of_warnings_stay(self, tmp_path, monkeypatch):
        # They belong to all threads. One thread that puts them back after another has
        # done so would leave its own.
        path = saved(tmp_path, Image.fromarray(RAMP))
        opened, number = Image.open, itertools.count()
        begun, second_came, first_done = Event(), Event(), Event()

        def slowly(stream):
            if next(number) == 0:
                begun.set()
                second_came.wait(0.3)  # in vain
            else:
                second_came.set()
                first_done.wait(30.0)
            return opened(stream)

        monkeypatch.setattr(Image, "open", slowly)
        before = list(warnings.filters)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(read_photograph, path, "x")
            first.add_done_callback(lambda _: first_done.set())
            assert begun.wait(30.0)
            second = pool.submit(read_photograph, path, "x")
            assert first.result().pixels.shape == second.result().pixels.shape
        assert warnings.filters == before

    def test_images_of_pillow_stay_open(self, tmp_path):
        path = saved(tmp_path, Image.fromarray(self.COLOUR))
        with Image.open(path) as image:
            for _ in range(2):
                np.testing.assert_array_equal(self.read(image).pixels, self.COLOUR)
            assert photograph_name(image, "none") == str(path)
        assert photograph_name(Image.new("L", (2, 2)), "none") == "none"


def png(width, height, depth, colour, content):
    """The bytes of a PNG file, given its compressed rows."""

    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
