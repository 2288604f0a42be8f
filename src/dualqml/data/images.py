# SPDX-License-Identifier: BSD-3-Clause
"""Find image files and read them as small grey images."""

import bz2
import importlib
import io
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml.core import MissingDependencyError
from dualqml.data.database import DatabaseError
from dualqml.data.geometry import standard_grey
from dualqml.extractors._images import SizeLike, read_size

OnError = Literal["raise", "skip"]

IMAGE_EXTENSIONS = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif"}
    | {".tiff", ".webp"}
    # The FERET owners ship their images compressed one by one.
    | {".pgm.bz2", ".ppm.bz2", ".tif.bz2", ".tiff.bz2"}
)
# What file managers leave behind.
_JUNK = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
# No image of the known databases is near this size unpacked.
_MAX_UNPACKED = 2**28
_NAMED = 5
# Modes of Pillow with opacity, and those of grey.
_TRANSPARENT = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_GREY = frozenset({"1", "L"})


def find_files(root: str | os.PathLike[str]) -> list[Path]:
    """Find all files below a folder.

    Hidden files and what file managers leave behind (``Thumbs.db``) are not
    listed. Linked folders are followed, each once.

    Parameters
    ----------
    root : path
        The folder.

    Returns
    -------
    list of Path
        The files, sorted.

    Raises
    ------
    DatabaseError
        There is no such folder, or a folder below it may not be read.
    """
    root = Path(root)
    if not root.exists():
        raise DatabaseError(f"There is no folder {root}")
    if not root.is_dir():
        raise DatabaseError(f"{root} is a file; a folder was expected")

    def refuse(error: OSError) -> None:
        raise DatabaseError(f"A folder cannot be read: {error}") from error

    files: list[Path] = []
    visited: set[str] = set()
    for folder, inner, names in os.walk(root, onerror=refuse, followlinks=True):
        # A link to a folder above would otherwise be walked for ever.
        real = os.path.realpath(folder)
        if real in visited:
            inner.clear()
            continue
        visited.add(real)
        inner[:] = sorted(name for name in inner if not _ignored(name))
        files += [Path(folder, name) for name in names if not _ignored(name)]
    return sorted(files)


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _JUNK


def extension(path: Path) -> str:
    """Return the extension in lower case, ``.ppm.bz2`` as one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dualqml.data.images import extension
    >>> extension(Path("00002_940928_fa.PPM.bz2")), extension(Path("a.b.JPG"))
    ('.ppm.bz2', '.jpg')
    """
    last = path.suffix.lower()
    if last == ".bz2":
        return Path(path.stem).suffix.lower() + last
    return last


def find_images(
    root: str | os.PathLike[str], extensions: Collection[str] = IMAGE_EXTENSIONS
) -> list[Path]:
    """Find the image files below a folder, by their extension in any case.

    Parameters
    ----------
    root : path
        The folder.
    extensions : collection of str
        The extensions that count, in lower case with their dot.

    Returns
    -------
    list of Path
        The files, sorted.
    """
    return [path for path in find_files(root) if extension(path) in extensions]


def read_image(path: Path, size: SizeLike) -> NDArray[np.uint8]:
    """Read one image file as a grey image.

    Colour becomes luminance, 16 bits are scaled to 8, transparent parts become
    black, the orientation that a camera noted is applied, and of several frames
    the first is read.

    Parameters
    ----------
    path : Path
        The file.
    size : sequence of int
        Height and width to which the image is resized, with antialiasing.

    Returns
    -------
    ndarray of shape size
        The image, 8 bits a pixel.

    Raises
    ------
    DatabaseError
        The file is empty, damaged, no image or suspiciously large.
    MissingDependencyError
        Pillow is not installed.
    """
    pixels = read_pixels(path)
    return standard_grey(pixels, size, colour=pixels.ndim == 3)


def read_pixels(path: Path) -> NDArray[Any]:
    """Read one image file as it is, upright.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3 or 4)
        As from `pixels_of`.

    Raises
    ------
    DatabaseError
        The file is empty, damaged, no image or suspiciously large.
    MissingDependencyError
        Pillow is not installed.
    """
    with named_errors(str(path)):
        content = _content(path)
        if not content:
            raise DatabaseError("the file is empty")
        with pillow("Image").open(io.BytesIO(content)) as image:
            return pixels_of(image)


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Turn the errors of Pillow into a DatabaseError that names the image."""
    module = pillow("Image")
    try:
        with warnings.catch_warnings():
            # Pillow only warns of images up to twice its limit.
            warnings.simplefilter("error", module.DecompressionBombWarning)
            yield
    except module.UnidentifiedImageError as error:
        raise DatabaseError(f"{name}: not an image of a known format") from error
    except (module.DecompressionBombError, module.DecompressionBombWarning) as error:
        raise DatabaseError(f"{name}: refused as too large: {error}") from error
    # Pillow's decoders raise almost anything on damaged files.
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DatabaseError(f"{name}: {reason}") from error


def _content(path: Path) -> bytes:
    if path.suffix.lower() != ".bz2":
        return path.read_bytes()
    if path.stat().st_size == 0:
        return b""
    with bz2.open(path) as stream:
        content = stream.read(_MAX_UNPACKED + 1)
    if len(content) > _MAX_UNPACKED:
        raise DatabaseError(f"unpacks to more than {_MAX_UNPACKED} bytes")
    return content


def pixels_of(image: Any) -> NDArray[Any]:
    """The pixels of an image of Pillow, upright, for `standard_grey`.

    Parameters
    ----------
    image : PIL.Image.Image
        An image of any mode but floating-point.

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3 or 4)
        Grey of 8 or 16 bits, or 8 bits of red, green and blue, with opacity where
        there is any.

    Raises
    ------
    DatabaseError
        The pixels have more than 16 bits.
    """
    upright = pillow("ImageOps").exif_transpose(image)
    if upright.mode == "F":
        raise DatabaseError("floating-point pixels; save it with 8 or 16 bits")
    if upright.mode.startswith("I"):
        values = np.asarray(upright).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise DatabaseError("pixels of more than 16 bits; save it with 8 or 16")
        return values.astype(np.uint16)
    if upright.mode in _TRANSPARENT or "transparency" in upright.info:
        return np.asarray(upright.convert("RGBA"))
    return np.asarray(upright.convert("L" if upright.mode in _GREY else "RGB"))


def read_images(
    paths: Sequence[Path],
    size: SizeLike,
    on_error: OnError = "raise",
    *,
    names: Sequence[str] | None = None,
    read: Callable[[Path, tuple[int, int]], NDArray[np.uint8]] = read_image,
) -> tuple[NDArray[np.uint8], NDArray[np.intp], tuple[str, ...]]:
    """Read many image files; no file is left out unnoticed.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    size : sequence of int
        Height and width of the images.
    on_error : {"raise", "skip"}, default="raise"
        What happens to files that cannot be read: one error after all were
        tried, or they are left out and returned.
    names : sequence of str, optional
        What to call the files in messages instead of their paths.
    read : callable, default=read_image
        The reader of one file.

    Returns
    -------
    images : ndarray of shape (n_kept, height, width)
        The images that could be read.
    kept : ndarray of shape (n_kept,)
        Their places in `paths`.
    skipped : tuple of str
        The files that could not be read and why.

    Raises
    ------
    DatabaseError
        Files cannot be read and `on_error` is ``"raise"``, or none can.
    """
    if on_error not in ("raise", "skip"):
        raise DatabaseError(f'on_error must be "raise" or "skip", not {on_error!r}')
    try:
        shape = read_size(size)
    except ValueError as error:
        raise DatabaseError(str(error)) from error
    images = np.empty((len(paths), *shape), dtype=np.uint8)
    kept: list[int] = []
    skipped: list[str] = []
    for place, path in enumerate(paths):
        try:
            images[place] = read(path, shape)
        except DatabaseError as error:
            prefix = f"{names[place]}: " if names is not None else ""
            skipped.append(f"{prefix}{error}")
        else:
            kept.append(place)
    if skipped and (on_error == "raise" or not kept):
        advice = ' Mend or remove them, or pass on_error="skip".' if kept else ""
        raise DatabaseError(
            f"{len(skipped)} of {len(paths)} images cannot be read: "
            f"{first_few(skipped, '; ')}.{advice}"
        )
    places = np.array(kept, dtype=np.intp)
    return images[places], places, tuple(skipped)


def first_few(names: Sequence[str], separator: str = ", ") -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> from dualqml.data.images import first_few
    >>> first_few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    rest = len(names) - _NAMED
    text = separator.join(names[:_NAMED])
    return f"{text} and {rest} more" if rest > 0 else text


def pillow(name: str) -> Any:
    """Import a module of Pillow, which is optional."""
    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError as error:
        raise MissingDependencyError(
            "Image files are read with an optional package: install dualqml[images]"
        ) from error
