# SPDX-License-Identifier: BSD-3-Clause
"""Flat rows as images."""

from math import isqrt

import numpy as np

from dualqml.core.arrays import Array

ImageShape = tuple[int, int]


def resolved_shape(image_shape: ImageShape | None, n_features: int) -> ImageShape:
    """The shape of the images that the rows hold.

    Parameters
    ----------
    image_shape : tuple of int or None
        Height and width. None means a square where n_features is a square
        number, else a single row of pixels.
    n_features : int
        Number of pixels of a row.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        The shape does not hold so many pixels.
    """
    if image_shape is None:
        side = isqrt(n_features)
        return (side, side) if side * side == n_features else (1, n_features)
    height, width = image_shape
    if height < 1 or width < 1 or height * width != n_features:
        raise ValueError(
            f"image_shape={tuple(image_shape)} has {height * width} pixels, but the "
            f"rows of X have {n_features}. Give the height and width of the images "
            "that were flattened into the rows of X."
        )
    return int(height), int(width)


def at_unit_scale(X: Array) -> Array:
    """Rows divided by a power of two so that their largest value is about 1.

    For results that do not depend on the scale, but whose squares could
    overflow or vanish. By powers of two nothing is rounded.
    """
    _, exponent = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.asarray(np.ldexp(X, -exponent))
