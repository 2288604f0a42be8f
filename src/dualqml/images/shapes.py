# SPDX-License-Identifier: BSD-3-Clause
"""Flat rows as images: what a size is, and which rows are images."""

from collections.abc import Sequence
from math import isqrt
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array

#: Height and width, once read.
ImageShape: TypeAlias = tuple[int, int]
#: What users may give as a height and a width: a tuple, a list, an integer array.
SizeLike: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]

#: Pixels of the sides of the smallest image.
LEAST_SIDE = 8


def read_size(size: SizeLike, name: str = "size") -> ImageShape:
    """Height and width, from whatever has two whole numbers.

    Parameters
    ----------
    size : sequence of int
        A tuple, a list or an array of integers.
    name : str, default="size"
        What to call it in an error.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        It is not two whole numbers of at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.images.shapes import read_size
    >>> read_size([112, 92]) == read_size(np.array([112, 92])) == (112, 92)
    True
    """
    listed = isinstance(size, np.ndarray) and size.ndim == 1
    sides = size if listed or isinstance(size, Sequence) else ()
    if len(sides) != 2 or not all(_is_side(side) for side in sides):
        raise ValueError(f"{name}={size!r} is not a height and a width in pixels")
    return int(sides[0]), int(sides[1])


def _is_side(side: object) -> bool:
    # A bool is an integer to Python, and a mistake here.
    whole = isinstance(side, Integral) and not isinstance(side, bool)
    return whole and int(side) > 0  # type: ignore[call-overload]


def shape_or_row(image_shape: SizeLike | None, n_features: int) -> ImageShape:
    """The shape of the images that the rows hold, or a single row of pixels.

    For what makes sense of rows that are no images too.

    Parameters
    ----------
    image_shape : sequence of int or None
        Height and width. None means a square where n_features is a square
        number, else a single row.
    n_features : int
        Number of pixels of a row.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        It is no shape, or does not hold so many pixels.
    """
    if image_shape is None:
        side = isqrt(n_features)
        return (side, side) if side * side == n_features else (1, n_features)
    height, width = read_size(image_shape, "image_shape")
    if height * width != n_features:
        raise ValueError(
            f"image_shape={(height, width)} has {height * width} pixels, but the "
            f"rows of X have {n_features}. Give the height and width of the images "
            "that were flattened into the rows of X."
        )
    return height, width


def resolved_shape(
    image_shape: SizeLike | None, n_features: int, *, without: str
) -> ImageShape:
    """The shape of the images that the rows hold, for what needs images.

    Parameters
    ----------
    image_shape : sequence of int or None
        Height and width. None means square images, of at least 8 x 8 pixels:
        rows that cannot be such are an error, since vectors that are no images
        (embeddings, measurements) have no neighbouring pixels.
    n_features : int
        Number of pixels of a row.
    without : str
        The parameter that does without images, for the error.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        The rows cannot be images of that shape.

    Examples
    --------
    >>> from dualqml.images.shapes import resolved_shape
    >>> resolved_shape(None, 1024, without="descriptor=None")
    (32, 32)
    """
    height, width = shape_or_row(image_shape, n_features)
    if image_shape is None and min(height, width) < LEAST_SIDE:
        raise ValueError(
            f"The rows of X have {n_features} features, which are no square image of "
            f"at least {LEAST_SIDE} x {LEAST_SIDE} pixels. If they are images, give "
            "their height and width as image_shape; if they are not, use "
            f"{without}."
        )
    return height, width


def at_unit_scale(X: Array) -> Array:
    """Rows divided by a power of two so that their largest value is about 1.

    For results that do not depend on the scale, but whose squares could
    overflow or vanish. By powers of two nothing is rounded.
    """
    _, exponent = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.asarray(np.ldexp(X, -exponent))
