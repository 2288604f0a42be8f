# SPDX-License-Identifier: BSD-3-Clause
"""Crops as pictures that a browser shows."""

import io

import numpy as np

from dualqml.images.files import import_pillow
from dualqml.service.people import Row


def png_of_crop(row: bytes, gallery: Row) -> bytes:
    """The pixels of a crop as PNG.

    Parameters
    ----------
    row : bytes
        The pixels.
    gallery : mapping
        The row of the gallery.

    Returns
    -------
    bytes
        The file.
    """
    pixels = np.frombuffer(row, dtype=np.uint8)
    image = import_pillow("Image").fromarray(
        pixels.reshape(gallery["height"], gallery["width"])
    )
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
