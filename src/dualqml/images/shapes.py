# SPDX-License-Identifier: BSD-3-Clause
"""Images as flat rows of pixels: their sizes, and how many fit into memory."""

from collections.abc import Iterator, Sequence
from math import isqrt
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array

#: Height and width, after they were checked.
ImageShape: TypeAlias = tuple[int, int]
#: What users may give as a height and a width: a tuple, a list, an integer array.
SizeLike: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]

#: The least height and width of images, in pixels.
LEAST_SIDE = 8
#: Bytes of temporary arrays that may be held at a time.
_TEMPORARY_BYTES = 30_000_000


def read_size(size: SizeLike, name: str = "size") -> ImageShape:
    """Read a height and a width from any sequence of two integers.

    Parameters
    ----------
    size : sequence of int
        A tuple, a list or an array of integers.
    name : str, default="size"
        Its name in messages.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        It is not two integers of at least 1.

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


def shape_or_row(image_shape: SizeLike | None, n_features: int) -> ImageShape:
    """Return the shape of the images in the rows, or of a single row of pixels.

    This is for methods that also work on rows that are not images.

    Parameters
    ----------
    image_shape : sequence of int or None
        Height and width. None means a square if n_features is a square number,
        else a single row.
    n_features : int
        Number of pixels in a row.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        It is not a shape, or has another number of pixels.
    """
    if image_shape is None:
        side = isqrt(n_features)
        return (side, side) if is_square(n_features) else (1, n_features)
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
    """Return the shape of the images in the rows, for methods that need images.

    Parameters
    ----------
    image_shape : sequence of int or None
        Height and width. None means square images of at least 8 x 8 pixels. Other
        rows are an error, since vectors that are not images (embeddings,
        measurements) have no neighbouring pixels.
    n_features : int
        Number of pixels in a row.
    without : str
        The parameter that works without images, for the error message.

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


def is_square(n: int) -> bool:
    """Return whether a number is the square of an integer."""
    return isqrt(n) ** 2 == n


def row_blocks(
    n_rows: int, bytes_per_row: int, most_rows: int | None = None
) -> Iterator[slice]:
    """Divide rows into blocks whose temporary arrays fit into little memory.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    bytes_per_row : int
        Bytes of temporary arrays that the work on one row needs.
    most_rows : int or None, default=None
        Most rows of a block, even if more would fit. None means no limit.

    Yields
    ------
    slice
        The rows of a block, at least one.
    """
    size = max(1, _TEMPORARY_BYTES // bytes_per_row)
    if most_rows is not None:
        size = min(size, most_rows)
    for first in range(0, n_rows, size):
        yield slice(first, first + size)


def at_unit_scale(X: Array) -> Array:
    """Divide each row by a power of two, so that its largest value is about 1.

    This is for results that do not depend on the scale but need squares, which
    could overflow or vanish. Powers of two cause no rounding.
    """
    _, exponent = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.asarray(np.ldexp(X, -exponent))


def _is_side(side: object) -> bool:
    # Python counts a bool as an integer, but here it is a mistake.
    whole = isinstance(side, Integral) and not isinstance(side, bool)
    return whole and int(side) > 0  # type: ignore[call-overload]
