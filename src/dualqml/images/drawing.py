# SPDX-License-Identifier: BSD-3-Clause
"""Draw boxes with names on a copy of a photograph."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualqml._files import write_atomically
from dualqml.images.files import RGB, import_pillow

Box = tuple[int, int, int, int]

#: Colours of boxes of known people, and of all others. Text on them is white.
_KNOWN, _OTHERS = (0, 110, 60), (170, 40, 20)
#: Longest side of a drawing. Larger photographs are reduced.
_LONGEST_SIDE = 2048


def draw_faces(
    pixels: RGB, boxes: Sequence[Box], texts: Sequence[str], known: Sequence[bool]
) -> Any:
    """Draw boxes and names on a copy of a photograph.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3)
        The photograph.
    boxes : sequence of tuple of int
        Top, left, bottom and right of each face.
    texts : sequence of str
        What is written at each box. Later ones cover earlier ones.
    known : sequence of bool
        Whether each face is of a known person; others have another colour.

    Returns
    -------
    PIL.Image.Image
        The drawing. Photographs larger than 2048 pixels are reduced.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.images.drawing import draw_faces
    >>> wall = np.zeros((120, 160, 3), dtype=np.uint8)
    >>> draw_faces(wall, [(40, 50, 90, 90)], ["Ann"], [True]).size
    (160, 120)
    """
    image = import_pillow("Image").fromarray(pixels)
    zoom = min(1.0, _LONGEST_SIDE / max(image.size))
    if zoom < 1.0:
        image = image.resize([max(1, round(zoom * side)) for side in image.size])
    draw = import_pillow("ImageDraw").Draw(image)
    font = _font(max(12, round(max(image.size) / 40)))
    line = max(2, round(max(image.size) / 300))
    for box, text, is_known in zip(boxes, texts, known, strict=True):
        top, left, bottom, right = (round(zoom * edge) for edge in box)
        colour = _KNOWN if is_known else _OTHERS
        draw.rectangle((left, top, right, bottom), outline=colour, width=line)
        _label(draw, image.size, (left, top, bottom), text, font, colour)
    return image


def _font(size: int) -> Any:
    module = import_pillow("ImageFont")
    try:
        return module.load_default(size)
    except (ImportError, OSError, TypeError):
        # Pillow without FreeType has one small font only.
        return module.load_default()


def _label(
    draw: Any,
    size: tuple[int, int],
    edges: tuple[int, int, int],
    text: str,
    font: Any,
    colour: tuple[int, int, int],
) -> None:
    """Write a text above a box, or below it if there is no room, inside the image."""
    left, top, bottom = edges
    first, above, last, below = draw.textbbox((0, 0), text, font=font)
    width, height, margin = last - first, below - above, 3
    x = max(0, min(left, size[0] - width - 2 * margin))
    y = top - height - 2 * margin
    if y < 0:
        y = min(bottom, size[1] - height - 2 * margin)
    draw.rectangle((x, y, x + width + 2 * margin, y + height + 2 * margin), fill=colour)
    draw.text((x + margin - first, y + margin - above), text, font=font, fill="white")


def save_drawing(image: Any, path: Path) -> None:
    """Write a drawing as a JPEG file, all of it or nothing.

    Parameters
    ----------
    image : PIL.Image.Image
        The drawing.
    path : Path
        The file.
    """
    stream = io.BytesIO()
    image.save(stream, format="JPEG", quality=92)
    write_atomically(path, [stream.getvalue()])
