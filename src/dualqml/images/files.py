# SPDX-License-Identifier: BSD-3-Clause
"""One image file, Pillow image or array as pixels: grey of a given size, or in colour.

``dualqml.data.image_files`` finds the files of a database and reads many.
"""

import bz2
import importlib
import io
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError, MissingDependencyError
from dualqml.images.geometry import over_black, standard_grey, to_8_bits
from dualqml.images.shapes import SizeLike

#: A path, the content of a file as bytes, an image of Pillow, or an 8-bit array of
#: shape (h, w) or (h, w, 3).
Photograph = Any
#: Pixels of shape (h, w, 3): red, green and blue, 8 bits each.
RGB = NDArray[np.uint8]

#: Extensions of image files, in lower case.
IMAGE_EXTENSIONS = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif"}
    | {".avif", ".heic", ".heif", ".tiff", ".webp"}
    # The FERET owners ship their images compressed one by one.
    | {".pgm.bz2", ".ppm.bz2", ".tif.bz2", ".tiff.bz2"}
)
#: Largest size of an uncompressed file in bytes. Those of the known databases are
#: far smaller.
_MAX_UNPACKED = 2**28
#: Brands of HEIC files, the photographs of some telephones.
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
#: Modes of Pillow images with opacity, and those of grey ones.
_TRANSPARENT_MODES = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_GREY_MODES = frozenset({"1", "L"})
_filters_lock = Lock()


def extension(path: Path) -> str:
    """Return the extension in lower case; ``.ppm.bz2`` counts as one extension.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dualqml.images.files import extension
    >>> extension(Path("00002_940928_fa.PPM.bz2")), extension(Path("a.b.JPG"))
    ('.ppm.bz2', '.jpg')
    """
    last = path.suffix.lower()
    if last == ".bz2":
        return Path(path.stem).suffix.lower() + last
    return last


def read_image(path: Path, size: SizeLike) -> NDArray[np.uint8]:
    """Read one image file as a grey image.

    Colour becomes luminance, 16 bits are scaled to 8 and transparent parts become
    black. The orientation that a camera noted is applied. If there are several
    frames, the first is read.

    Parameters
    ----------
    path : Path
        The file.
    size : sequence of int
        Height and width to which the image is resized, with antialiasing.

    Returns
    -------
    ndarray of shape size
        The image, with 8 bits for each pixel.

    Raises
    ------
    DatabaseError
        The file is empty, damaged, not an image or suspiciously large.
    MissingDependencyError
        Pillow is not installed.
    """
    pixels = read_pixels(path)
    return standard_grey(pixels, size, colour=pixels.ndim == 3)


def read_pixels(path: Path | bytes, name: str | None = None) -> NDArray[Any]:
    """Read one image file upright, without any other change.

    Parameters
    ----------
    path : Path or bytes
        The file, or its content.
    name : str, optional
        Its name in messages; the path by default.

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3 or 4)
        The pixels, as `pixels_of` returns them.

    Raises
    ------
    DatabaseError
        The file is empty, damaged, not an image or suspiciously large.
    MissingDependencyError
        Pillow is not installed.
    """
    if name is None:
        name = "the image" if isinstance(path, bytes) else str(path)
    with _errors_as_database_errors(name), _opened(path) as image:
        return pixels_of(image)


@contextmanager
def _opened(path: Path | bytes) -> Iterator[Any]:
    """Open an image file with Pillow; its pixels are not read yet."""
    with _stream(path) as stream:
        head = stream.read(12)
        if not head:
            raise DatabaseError("the file is empty")
        may_be_heic = head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS
        can_read_heic = may_be_heic and _add_heic_reader()
        stream.seek(0)
        try:
            image = _open(stream)
        except import_pillow("Image").UnidentifiedImageError as error:
            if not may_be_heic or can_read_heic:
                raise
            raise DatabaseError(
                "a HEIC photograph, which needs the package pillow-heif: install it "
                'with "pip install pillow-heif", or save the photograph as JPEG'
            ) from error
        with image:
            yield image


def _open(stream: IO[bytes]) -> Any:
    module = import_pillow("Image")
    # Filters of warnings belong to all threads, so that one at a time changes them.
    with _filters_lock, warnings.catch_warnings():
        # Pillow only warns of images up to twice its limit.
        warnings.simplefilter("error", module.DecompressionBombWarning)
        return module.open(stream)


def _add_heic_reader() -> bool:
    """Let Pillow read HEIC files; whether that is possible."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return False
    return True


def pixels_of(image: Any) -> NDArray[Any]:
    """Return the pixels of a Pillow image, upright, as `standard_grey` takes them.

    Parameters
    ----------
    image : PIL.Image.Image
        An image of any mode except floating-point.

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3 or 4)
        Grey with 8 or 16 bits, or red, green and blue with 8 bits each, and
        opacity if the image has it.

    Raises
    ------
    DatabaseError
        The pixels are floating-point numbers or have more than 16 bits.
    """
    upright = import_pillow("ImageOps").exif_transpose(image)
    if upright.mode == "F":
        raise DatabaseError("floating-point pixels; save it with 8 or 16 bits")
    if upright.mode.startswith("I"):
        values = np.asarray(upright).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise DatabaseError("pixels of more than 16 bits; save it with 8 or 16")
        return values.astype(np.uint16)
    if upright.mode in _TRANSPARENT_MODES or "transparency" in upright.info:
        return np.asarray(upright.convert("RGBA"))
    return np.asarray(upright.convert("L" if upright.mode in _GREY_MODES else "RGB"))


@dataclass(frozen=True, eq=False)
class ReadPhotograph:
    """A photograph, upright and in colour.

    Attributes
    ----------
    pixels : ndarray of shape (height, width, 3)
        Red, green and blue, 8 bits each.
    remarks : tuple of str
        What was lost or chosen while it was read, in words.
    """

    pixels: RGB
    remarks: tuple[str, ...] = ()


def read_photograph(photograph: Photograph, name: str) -> ReadPhotograph:
    """Read a photograph in colour, upright.

    The orientation that a camera noted is applied, 16 bits are scaled to 8 and
    transparent parts become black. If there are several frames, the first is read.

    Parameters
    ----------
    photograph : path, bytes, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph; bytes are the content of a file. Arrays have 8 bits for each
        channel.
    name : str
        Its name in messages.

    Returns
    -------
    ReadPhotograph
        The pixels, and remarks.

    Raises
    ------
    DatabaseError
        It is damaged, not an image, suspiciously large, or an array of another
        type or shape.
    """
    if isinstance(photograph, np.ndarray):
        _check_array(photograph, name)
        return ReadPhotograph(np.ascontiguousarray(_in_colour(photograph)))
    with _errors_as_database_errors(name), _as_pillow(photograph) as image:
        remarks = _remarks(image)
        return ReadPhotograph(_in_colour(pixels_of(image)), remarks)


def photograph_size(photograph: Photograph, name: str) -> tuple[int, int]:
    """Height and width of a photograph, without reading its pixels.

    Parameters
    ----------
    photograph : path, bytes, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph; bytes are the content of a file.
    name : str
        Its name in messages.

    Returns
    -------
    tuple of int
        Height and width in the file, before it is turned upright.

    Raises
    ------
    DatabaseError
        It is not an image, or suspiciously large.
    """
    if isinstance(photograph, np.ndarray):
        _check_array(photograph, name)
        return photograph.shape[0], photograph.shape[1]
    with _errors_as_database_errors(name), _as_pillow(photograph) as image:
        return int(image.height), int(image.width)


@contextmanager
def _as_pillow(photograph: Photograph) -> Iterator[Any]:
    if isinstance(photograph, bytes):
        with _opened(photograph) as image:
            yield image
    elif isinstance(photograph, str | os.PathLike):
        with _opened(Path(photograph)) as image:
            yield image
    elif isinstance(photograph, import_pillow("Image").Image):
        yield photograph
    else:
        raise DatabaseError(
            "a photograph is a path, bytes, an image of Pillow or an array, not "
            f"{type(photograph).__name__}"
        )


def _remarks(image: Any) -> tuple[str, ...]:
    """What a user should know about an image that is not an ordinary photograph."""
    found = []
    n_frames = getattr(image, "n_frames", 1)
    # Cameras write MPO files: a JPEG photograph, and small copies of it as frames.
    if n_frames > 1 and image.format != "MPO":
        found.append(f"it has {n_frames} frames; the first is used")
    if image.mode == "CMYK":
        found.append("its colours are for printing (CMYK); they are converted")
    raw = [str(tile[3]) for tile in getattr(image, "tile", []) if len(tile) > 3]
    if image.mode.startswith("I") or any(";16" in mode for mode in raw):
        found.append("it has 16 bits per colour; 8 are used")
    return tuple(found)


def photograph_name(photograph: Photograph, default: str) -> str:
    """Return the path of a photograph, or `default` if it has none."""
    if isinstance(photograph, str | os.PathLike):
        return os.fspath(photograph)
    # Pillow keeps the path of the file that it opened.
    return str(getattr(photograph, "filename", "") or default)


def photographs_with_names(
    photographs: Iterable[Photograph],
) -> Iterator[tuple[Photograph, str]]:
    """Iterate over photographs together with their names for messages.

    Parameters
    ----------
    photographs : iterable of photographs
        A list, or an array of shape (n, h, w) or (n, h, w, 3).

    Yields
    ------
    photograph, str
        A photograph and its path, or "photograph 0" and so on if it has none.

    Raises
    ------
    DatabaseError
        It is a single photograph.
    """
    if isinstance(photographs, np.ndarray):
        n_axes = photographs.ndim
        # Arrays of paths have one axis.
        single = n_axes == 2 or (n_axes == 3 and photographs.shape[-1] == 3)
    else:
        single = not isinstance(photographs, Iterable) or isinstance(
            photographs, str | os.PathLike
        )
    if single:
        raise DatabaseError(
            f"a list of photographs is needed, not {type(photographs).__name__}: put "
            "a single one in a list"
        )
    for place, photograph in enumerate(photographs):
        yield photograph, photograph_name(photograph, f"photograph {place}")


def import_pillow(module: str) -> Any:
    """Import a module of Pillow, which is optional."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            "Image files are read with an optional package: install dualqml[images]"
        ) from error


@contextmanager
def _errors_as_database_errors(name: str) -> Iterator[None]:
    """Raise any error while an image is read as a DatabaseError with its name."""
    module = import_pillow("Image")
    try:
        yield
    except module.UnidentifiedImageError as error:
        raise DatabaseError(f"{name}: not an image of a known format") from error
    except (module.DecompressionBombError, module.DecompressionBombWarning) as error:
        raise DatabaseError(
            f"{name}: refused as too large: more than "
            f"{(module.MAX_IMAGE_PIXELS or 0) // 1_000_000} million pixels would fill "
            "the memory. Save it smaller."
        ) from error
    # Pillow's decoders raise almost any exception on damaged files.
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DatabaseError(f"{name}: {reason}") from error


def _stream(path: Path | bytes) -> IO[bytes]:
    """Open a file, uncompressed in memory if it ends in ``.bz2``."""
    if isinstance(path, bytes):
        return io.BytesIO(path)
    if path.suffix.lower() != ".bz2":
        return path.open("rb")
    if path.stat().st_size == 0:
        return io.BytesIO()
    with bz2.open(path) as stream:
        content = stream.read(_MAX_UNPACKED + 1)
    if len(content) > _MAX_UNPACKED:
        raise DatabaseError(f"unpacks to more than {_MAX_UNPACKED} bytes")
    return io.BytesIO(content)


def _check_array(pixels: NDArray[Any], name: str) -> None:
    if pixels.dtype != np.uint8:
        raise DatabaseError(
            f"{name}: an array of type {pixels.dtype}; pixels must be uint8, from 0 "
            "to 255"
        )
    if pixels.size == 0 or not (
        pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    ):
        raise DatabaseError(
            f"{name}: an array of shape {pixels.shape}; (height, width) or (height, "
            "width, 3) is needed"
        )


def _in_colour(pixels: NDArray[Any]) -> RGB:
    """Return grey, coloured or transparent pixels as red, green and blue."""
    whole = to_8_bits(pixels)
    if whole.ndim == 2:
        return np.repeat(whole[:, :, None], 3, axis=2)
    # The colours of transparent pixels are arbitrary.
    return over_black(whole) if whole.shape[2] == 4 else whole
