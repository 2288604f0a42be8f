# SPDX-License-Identifier: BSD-3-Clause
"""Figures as SVG text that can stand in a page beside others.

Text stays text, so that it can be read aloud, found and copied. What is neither
data nor paper is drawn in ``currentColor``: it has the colour of the text around
the picture, on light pages and on dark ones.
"""

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from dualqml.core import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of all figures in inches: 12 pixels of text become 10 on a phone.
WIDTH = 4.5

#: Size of all text in points.
FONT_SIZE = 9.5

#: Stands for ``currentColor``, which matplotlib does not know.
INK = "#010203"

#: Of rows that are there for context; seen on white and on black.
GREY = "#8c8c8c"

_SVG = "{http://www.w3.org/2000/svg}"


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings while a figure is drawn and written.

    Raises
    ------
    MissingDependencyError
        Matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise MissingDependencyError(
            "Plots need matplotlib: install dualqml[plot]"
        ) from error
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "dualqml",
        # Names may have dollar signs.
        "text.parse_math": False,
        "font.family": "sans-serif",
        # Where there is no DejaVu: as wide, and narrower.
        "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
        "font.size": FONT_SIZE,
        "legend.frameon": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    sizes = ("axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    colours = (
        *("text.color", "axes.edgecolor", "axes.labelcolor"),
        *("xtick.color", "ytick.color"),
    )
    settings |= dict.fromkeys(sizes, FONT_SIZE) | dict.fromkeys(colours, INK)
    with rc_context(settings), warnings.catch_warnings():
        # The browser, not matplotlib, finds the fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def to_svg(figure: "Figure", *, name: str, label: str) -> str:
    """Write a figure as an ``svg`` element; call it within `style`.

    Parameters
    ----------
    figure : Figure
        What to write.
    name : str
        What tells it from the other figures of a page; its ids start with it, so
        that clip paths of different figures are not mixed up.
    label : str
        What it shows, for those who do not see it.

    Returns
    -------
    str
        The element, without a prolog; the same for the same figure.
    """
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    root = ElementTree.fromstring(out.getvalue().encode())
    prefix = f"plot-{hashlib.sha256(name.encode()).hexdigest()[:8]}-"
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        for key, value in list(element.attrib.items()):
            if key.startswith("{"):  # xlink:href
                del element.attrib[key]
                key = key.partition("}")[2]
            if key == "id" or (key == "href" and value.startswith("#")):
                value = re.sub("^(#?)", rf"\1{prefix}", value)
            value = value.replace("url(#", f"url(#{prefix}")
            element.set(key, value.replace(INK, "currentColor"))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                # A style sheet in a page holds for all of it; see below.
                parent.remove(child)
    root.attrib.pop("version", None)
    title = ElementTree.Element("title")
    title.text = label
    root.insert(0, title)
    root.attrib = {
        "xmlns": _SVG.strip("{}"),
        "class": "plot",
        "role": "img",
        "aria-label": label,
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    } | root.attrib
    return ElementTree.tostring(root, encoding="unicode")
