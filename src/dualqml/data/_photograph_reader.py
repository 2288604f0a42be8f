# SPDX-License-Identifier: BSD-3-Clause
"""Photographs from files, from Pillow and from arrays, all as arrays in colour."""

import io
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml.data.database import DatabaseError
from dualqml.data.images import _content, pillow, to_grey

#: A path, an image of Pillow, or an 8-bit array of shape (h, w) or (h, w, 3).
Photograph = Any
RGB = NDArray[np.uint8]

#: Modes of Pillow without colour, but for those that begin with I.
_GREY_MODES = frozenset({"1", "F", "L", "LA", "La"})
_TRANSPARENT_MODES = frozenset({"PA", "RGBA", "RGBa"})


def read_rgb(photograph: Photograph, name: str) -> RGB:
    """Read a photograph in colour, upright.

    The orientation that a camera noted is applied, 16 bits are scaled to 8,
    transparent parts become black, and of several frames the first is read.

    Parameters
    ----------
    photograph : path, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph. Arrays have 8 bits a channel.
    name : str
        What to call it in messages.

    Returns
    -------
    ndarray of shape (height, width, 3)
        Red, green and blue, 8 bits each.

    Raises
    ------
    DatabaseError
        It is damaged, no image, suspiciously large, or an array of another type
        or shape.
    """
    if isinstance(photograph, np.ndarray):
        return _from_array(photograph, name)
    module = pillow("Image")
    with _named_errors(name):
        if isinstance(photograph, module.Image):
            return _from_pillow(photograph)
        if not isinstance(photograph, str | os.PathLike):
            raise DatabaseError(
                "a photograph is a path, an image of Pillow or an array, not "
                f"{type(photograph).__name__}"
            )
        content = _content(Path(photograph))
        if not content:
            raise DatabaseError("the file is empty")
        with module.open(io.BytesIO(content)) as image:
            return _from_pillow(image)


def named(photograph: Photograph, otherwise: str) -> str:
    """Return the path of a photograph where it has one, else another name."""
    if isinstance(photograph, str | os.PathLike):
        return os.fspath(photograph)
    # Pillow keeps the path of what it opened.
    return str(getattr(photograph, "filename", "") or otherwise)


def each_named(photographs: Iterable[Photograph]) -> Iterator[tuple[Photograph, str]]:
    """Go through many photographs and their names.

    Parameters
    ----------
    photographs : iterable of photographs
        A list, or an array of shape (n, h, w) or (n, h, w, 3).

    Yields
    ------
    photograph, str
        Photographs without a path are called "photograph 0" and so on.

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
        yield photograph, named(photograph, f"photograph {place}")


def _from_array(pixels: NDArray[Any], name: str) -> RGB:
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
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    return np.ascontiguousarray(pixels)


def _from_pillow(image: Any) -> RGB:
    module = pillow("Image")
    image = pillow("ImageOps").exif_transpose(image)
    if image.mode in _GREY_MODES or image.mode.startswith("I"):
        grey = to_grey(image, (image.height, image.width))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        # What lies under transparent pixels is arbitrary.
        image = image.convert("RGBA")
        black = module.new("RGBA", image.size, (0, 0, 0, 255))
        image = module.alpha_composite(black, image)
    return np.asarray(image.convert("RGB"), dtype=np.uint8)


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turn the errors of Pillow into those of `dualqml.data.images`."""
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
