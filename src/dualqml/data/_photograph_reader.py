# SPDX-License-Identifier: BSD-3-Clause
"""Photographs from files, from Pillow and from arrays, all as arrays in colour."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml.data.database import DatabaseError
from dualqml.data.geometry import over_black, to_8_bits
from dualqml.data.images import named_errors, pillow, pixels_of, read_pixels

#: A path, an image of Pillow, or an 8-bit array of shape (h, w) or (h, w, 3).
Photograph = Any
RGB = NDArray[np.uint8]


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
    if isinstance(photograph, str | os.PathLike):
        return _in_colour(read_pixels(Path(photograph)))
    with named_errors(name):
        if not isinstance(photograph, pillow("Image").Image):
            raise DatabaseError(
                "a photograph is a path, an image of Pillow or an array, not "
                f"{type(photograph).__name__}"
            )
        return _in_colour(pixels_of(photograph))


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
    return np.ascontiguousarray(_in_colour(pixels))


def _in_colour(pixels: NDArray[Any]) -> RGB:
    whole = to_8_bits(pixels)
    if whole.ndim == 2:
        return np.repeat(whole[:, :, None], 3, axis=2)
    # What lies under transparent pixels is arbitrary.
    return over_black(whole) if whole.shape[2] == 4 else whole
