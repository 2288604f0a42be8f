# SPDX-License-Identifier: BSD-3-Clause
"""What plots share: which rows stand out, plain scales, labels without overlaps."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import isotonic_regression

from dualqml.experiments.results import TUNED, Results, Setting
from dualqml.experiments.svg import FONT_SIZE, GREY, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours and markers of rows that stand out. Okabe's and Ito's colours, told apart
# by the colour-blind, a little changed where they were not seen on white or on black.
_OURS = {
    "DualQML": ("#1e80c1", "o"),
    "DualQML-W": ("#d55e00", "s"),
    "DualQML" + TUNED: ("#56a0d3", "^"),
    "DualQML-W" + TUNED: ("#c58b00", "v"),
}
_RIVALS = (("#009e73", "D"), ("#b8679a", "P"))

Side = Literal["left", "right"]


class Look(NamedTuple):
    """How a row is drawn: whether it stands out, and arguments of ``ax.plot``."""

    stands_out: bool
    line: dict[str, Any]


def looks(
    results: Results, settings: Sequence[Setting], rows: Iterable[str]
) -> dict[str, Look]:
    """Colours for ours and the best rivals, thin grey lines for the others.

    Parameters
    ----------
    results : Results
        What was run.
    settings : sequence of Setting
        The settings in the picture. The two rivals that are most often the best
        in them stand out.
    rows : iterable of str
        The rows in the picture.

    Returns
    -------
    dict of str to Look
        For each row; those that stand out last, so that they are drawn on top.
    """
    best = Counter(filter(None, map(results.best_rival, settings)))
    rivals = [rival for rival, _ in best.most_common(len(_RIVALS))]
    styles = _OURS | dict(zip(rivals, _RIVALS, strict=False))
    found = {}
    for row in rows:
        if row in styles:
            colour, marker = styles[row]
            line = {"color": colour, "marker": marker, "ms": 4.5, "linewidth": 1.8}
            # Rivals are told from ours without colours too.
            line["linestyle"] = "-" if row in _OURS else "--"
            found[row] = Look(True, line)
        else:
            line = {"color": GREY, "marker": "o", "ms": 2.0, "linewidth": 0.7}
            found[row] = Look(False, line)
    return dict(sorted(found.items(), key=lambda item: item[1].stands_out))


def box(
    figure: "Figure", left: float, bottom: float, right: float, top: float
) -> "Axes":
    """Axes with given margins in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes(
        (
            left / width,
            bottom / height,
            (width - left - right) / width,
            (height - bottom - top) / height,
        )
    )


def axes_beside_labels(rows: Sequence[str], side: Side) -> tuple["Figure", "Axes"]:
    """A figure with room for a label of each row beside the axes."""
    from matplotlib.figure import Figure

    height = max(3.2, 0.2 * len(rows) + 0.9)
    figure = Figure(figsize=(WIDTH, height))
    beside = max(text_size(row, bold=True)[0] for row in rows) / 72 + 0.32
    if side == "right":
        return figure, box(figure, 0.55, 0.48, beside, 0.12)
    return figure, box(figure, beside, 0.48, 0.75, 0.12)


def label_lines(
    figure: "Figure",
    ax: "Axes",
    ends: Mapping[str, tuple[float, float]],
    look: Mapping[str, Look],
    side: Side,
) -> None:
    """Write the name of each line beside the axes, at the height of its end.

    Names that would overlap move apart; a thin line leads to each.
    """
    names = list(ends)
    _freeze(ax)
    to_axes = (ax.transData + ax.transAxes.inverted()).transform
    at = to_axes(np.array([ends[name] for name in names]))
    points = 72 * figure.get_size_inches() * ax.get_position().size
    gap = 1.3 * FONT_SIZE / points[1]
    places = spread(at[:, 1], gap, 0.0, 1.0)
    edge, sign = (1.0, 1) if side == "right" else (0.0, -1)
    for name, (x, y), place in zip(names, at, places, strict=True):
        out = look[name].stands_out
        ax.plot(
            [x, edge + sign * 3 / points[0], edge + sign * 16 / points[0]],
            [y, y, place],
            color=look[name].line["color"],
            linewidth=1.0 if out else 0.5,
            transform=ax.transAxes,
            clip_on=False,
        )
        ax.text(
            edge + sign * 19 / points[0],
            place,
            name,
            transform=ax.transAxes,
            ha="left" if side == "right" else "right",
            va="center",
            weight="bold" if out else "normal",
        )


def label_points(
    figure: "Figure",
    ax: "Axes",
    points: Mapping[str, tuple[float, float]],
    look: Mapping[str, Look],
) -> None:
    """Write the name of each point beside it, with a thin line if it is far."""
    names = list(points)
    _freeze(ax)
    # Points of a figure are pixels at this resolution.
    figure.set_dpi(72)
    at = ax.transData.transform(np.array([points[name] for name in names]))
    sizes = [text_size(name, bold=look[name].stands_out) for name in names]
    edges = ax.get_window_extent()
    corners = place_labels(at, sizes, np.array(edges.extents))
    to_data = ax.transData.inverted().transform
    for name, point, corner, size in zip(names, at, corners, sizes, strict=True):
        # From the point to the nearest place of the label.
        near = np.clip(point, corner, corner + size)
        if np.linalg.norm(near - point) > 8.0:
            ends = to_data([point, near])
            ax.plot(*ends.T, color=GREY, linewidth=0.6, zorder=1)
        x, y = to_data(corner + [0.0, size[1] / 2])
        ax.text(
            x,
            y,
            name,
            va="center",
            weight="bold" if look[name].stands_out else "normal",
        )


def fit_scale(
    ax: "Axes", axis: Literal["x", "y"], values: ArrayLike, *, least_ratio: float = 4.0
) -> None:
    """Make an axis logarithmic if values are far apart and none of them is zero."""
    found = np.asarray(values, dtype=np.float64)
    low, high = found.min() / 1.5, found.max() * 1.3
    if found.min() > 0.0 and found.max() >= least_ratio * found.min():
        # Set here, or bars that reach zero would take the axis with them.
        ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
        fine = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        plain_ticks(ax, axis, (1.0, 2.0, 5.0) if high > 10.0 * low else fine)
    else:
        ax.set(**{f"{axis}lim": (0.0, 1.1 * float(found.max()) or 1.0)})


def plain_ticks(ax: "Axes", axis: Literal["x", "y"], subs: tuple[float, ...]) -> None:
    """Ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_locator(LogLocator(subs=subs))
    which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    which.set_minor_formatter(NullFormatter())


def _freeze(ax: "Axes") -> None:
    # Labels are placed for these limits.
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())


def text_size(text: str, *, bold: bool = False) -> tuple[float, float]:
    """Width and height of a line of text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(
        family="DejaVu Sans", size=FONT_SIZE, weight="bold" if bold else "normal"
    )
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width), 1.25 * FONT_SIZE


def spread(
    wanted: ArrayLike, gap: float, low: float, high: float
) -> NDArray[np.float64]:
    """Move places apart so that neighbours are at least a gap from each other.

    Parameters
    ----------
    wanted : array-like of shape (n,)
        Where they should be.
    gap : float
        The least distance.
    low, high : float
        Where the first and the last may be.

    Returns
    -------
    ndarray of shape (n,)
        The nearest places in the sense of least squares, in the same order. If
        there is no room for the gap, a smaller one.

    Examples
    --------
    >>> from dualqml.experiments.drawing import spread
    >>> spread([0.5, 0.52, 0.9], 0.1, 0.0, 1.0)
    array([0.46, 0.56, 0.9 ])
    """
    places = np.asarray(wanted, dtype=np.float64)
    order = np.argsort(places, kind="stable")
    gap = min(gap, (high - low) / max(places.size - 1, 1))
    steps = gap * np.arange(places.size)
    # Less these steps, places have to be in order only: isotonic regression.
    moved = isotonic_regression(
        places[order] - steps, y_min=low, y_max=high - gap * (places.size - 1)
    )
    result = np.empty_like(places)
    result[order] = moved + steps
    return result


def place_labels(
    points: NDArray[np.float64],
    sizes: ArrayLike,
    within: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Find room for a label beside each point.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        The points.
    sizes : array-like of shape (n, 2)
        Widths and heights of the labels.
    within : ndarray of (left, bottom, right, top)
        Where labels may be.

    Returns
    -------
    ndarray of shape (n, 2)
        Lower left corners. Labels keep clear of points and of each other where
        there is room, and are as near to their points as that allows.
    """
    halves = np.asarray(sizes, dtype=np.float64) / 2
    dots = np.column_stack([points - 4.0, points + 4.0])
    labels = np.full((len(points), 4), np.nan)
    distances = np.array([5.0, 8.0, 12.0, 16.0, 20.0, 25.0, 32.0, 40.0, 50.0, 65.0])
    turns = np.deg2rad([0, 180, 90, 270, 45, 315, 135, 225, 20, 340, 160, 200, 70, 110])
    way = np.tile(np.column_stack([np.cos(turns), np.sin(turns)]), (distances.size, 1))
    far = np.repeat(distances, turns.size)
    near = np.linalg.norm(points[:, None] - points[None], axis=2) < 40.0
    # Those in the thick of it choose first; then all think again of what others did.
    for i in np.tile(np.argsort(-near.sum(axis=1), kind="stable"), 3):
        centres = points[i] + way * (far[:, None] + halves[i])
        tried = np.column_stack([centres - halves[i], centres + halves[i]])
        labels[i] = np.nan
        taken = np.vstack([dots, labels[~np.isnan(labels[:, 0])]])
        outside = np.maximum(within[:2] - tried[:, :2], tried[:, 2:] - within[2:])
        cost = 1e3 * outside.clip(min=0.0).sum(axis=1) + 1e-3 * far
        cost += _common_area(tried, taken).sum(axis=1)
        labels[i] = tried[cost.argmin()]
    return labels[:, :2]


def _common_area(
    one: NDArray[np.float64], other: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Areas that boxes (left, bottom, right, top) share, pair by pair."""
    ends = np.minimum(one[:, None, 2:], other[None, :, 2:])
    starts = np.maximum(one[:, None, :2], other[None, :, :2])
    return np.asarray((ends - starts).clip(min=0.0).prod(axis=2))
