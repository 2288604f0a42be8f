# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of results, each as the text of an ``svg`` element."""

import hashlib
import io
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import isotonic_regression

from dualqml.evaluation import CMCDisplay
from dualqml.exceptions import MissingDependencyError, NothingToPlotError
from dualqml.experiments.labels import (
    database_label,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.results import TUNED, Results, Setting
from dualqml.experiments.tables import Pair, our_rows, pairs

#: Width of all figures in inches: 12 pixels of text become 10 on a phone.
WIDTH = 4.5

#: Size of all text in points.
FONT_SIZE = 9.5

#: Stands for ``currentColor``, which matplotlib does not know.
INK = "#010203"

#: Of rows that are there for context; seen on white and on black.
GREY = "#8c8c8c"

_SVG = "{http://www.w3.org/2000/svg}"

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


if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    >>> from dualqml.experiments.plots import spread
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


def error_against_size(
    results: Results, database: str, *, like: Setting | None = None
) -> str:
    """Mean error against the training size, a line for each method.

    Parameters
    ----------
    results : Results
        What was run.
    database : str
        On which database.
    like : Setting, optional
        Settings that differ from it in more than m are left out; by default it is
        the first of the database.

    Returns
    -------
    str
        An ``svg`` element. Ours and the best rivals stand out, with bars of one
        standard deviation.

    Raises
    ------
    NothingToPlotError
        No unit of the database is finished.
    """
    of_database = [s for s in results.settings if s.database == database]
    like = like or next(iter(of_database), None)
    settings = [s for s in of_database if like and s._replace(m=like.m) == like]
    lines = {}
    for row in results.rows:
        errors = {s.m: results.errors(s, row) for s in settings}
        errors = {m: found for m, found in errors.items() if found.size}
        if errors:
            lines[row] = errors
    if like is None or not lines:
        raise NothingToPlotError(f"{database_label(database)} has no finished results")
    sizes = [setting.m for setting in settings]
    look = looks(results, settings, lines)
    n_bars = sum(look[row].stands_out for row in lines)
    dodge = 0.025 * (max(sizes) - min(sizes) or 1)
    with style():
        figure, ax = axes_beside_labels(list(lines), "right")
        ends, seen, bar = {}, [], 0
        for row in look:
            m = np.array(list(lines[row]), dtype=float)
            mean = np.array([errors.mean() for errors in lines[row].values()])
            if look[row].stands_out:
                # Beside each other, or the bars would hide each other.
                m += dodge * (bar - (n_bars - 1) / 2)
                bar += 1
                std = np.array(
                    [e.std(ddof=1) if e.size > 1 else 0.0 for e in lines[row].values()]
                )
                ax.errorbar(m, mean, std, **look[row].line, capsize=2, elinewidth=1)
                seen += [*(mean + std), *np.maximum(mean - std, mean / 2)]
            else:
                ax.plot(m, mean, **look[row].line)
            seen += mean.tolist()
            ends[row] = float(m[-1]), float(mean[-1])
        fit_scale(ax, "y", seen)
        ax.set_xticks(sizes, [str(m) if m else like.protocol for m in sizes])
        ax.set_xlim(min(sizes) - 4 * dodge, max(sizes) + 4 * dodge)
        ax.set(xlabel="training images of each subject, m", ylabel="error, %")
        if not like.m:
            ax.set_xlabel("split")
        label_lines(figure, ax, ends, look, "right")
        variant = variant_label(like, what_differs(of_database))
        name = ", ".join(filter(None, [database_label(database), variant]))
        against = " against the number of training images" if like.m else ""
        label = f"{name}: error{against}"
        return to_svg(figure, name=f"size {like!r}", label=label)


def paired_differences(results: Results) -> str:
    """Ours against the best rival of each setting, with 95 % intervals.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    str
        An ``svg`` element: a line for each setting and each row of ours.

    Raises
    ------
    NothingToPlotError
        No setting has two splits that one of ours and a rival share.
    """
    by_setting: dict[Setting, list[Pair]] = defaultdict(list)
    for pair in pairs(results):
        if pair.comparison is not None:
            by_setting[pair.setting].append(pair)
    if not by_setting:
        raise NothingToPlotError("There is no comparison over two or more splits")
    differing = what_differs(results.settings)
    rows = our_rows(results)
    look = looks(results, [], rows)
    texts = []
    for setting, group in by_setting.items():
        lines = [
            f"{_shortened(database_label(setting.database))}, {size_label(setting)}",
            variant_label(setting, differing),
            f"against {group[0].rival}",
        ]
        texts.append("\n".join(filter(None, lines)))
    with style():
        from matplotlib.figure import Figure

        n_lines = max(len(rows), 2 + bool(differing))
        room = 0.17 * n_lines + 0.12
        height = room * len(by_setting) + 0.85 + 0.2 * (len(rows) > 2)
        figure = Figure(figsize=(WIDTH, height))
        words = [line for text in texts for line in text.splitlines()]
        left = max(text_size(word)[0] for word in words) / 72 + 0.15
        ax = box(figure, left, 0.5, 0.12, height - 0.5 - room * len(by_setting))
        ax.axvline(0.0, color=INK, linewidth=1.0)
        for place, group in enumerate(by_setting.values()):
            if place:
                ax.axhline(place - 0.5, color=GREY, linewidth=0.4)
            for i, pair in enumerate(group):
                gap, line = pair.comparison, look[pair.row].line
                assert gap is not None
                y = place + 0.75 / n_lines * (i - (len(group) - 1) / 2)
                ax.plot([gap.low, gap.high], [y, y], color=line["color"], linewidth=1.8)
                ax.plot([gap.difference], [y], **line)
        ax.set_yticks(range(len(texts)), texts)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(texts) - 0.5, -0.5)
        ax.spines["left"].set_visible(False)
        # As wide as the figure, not as the axes.
        figure.text(0.5, 0.08 / height, "difference in error, points", ha="center")
        handles = [ax.plot([], [], **look[row].line, label=row)[0] for row in rows]
        figure.legend(handles=handles, loc="upper center", ncols=2, borderaxespad=0.2)
        label = "Difference in error between ours and the best rival of each setting"
        return to_svg(figure, name=f"paired {texts!r}", label=label)


def cmc(results: Results, setting: Setting) -> str:
    """Share of test images identified within rank 1, 2, ..., over all repetitions.

    Parameters
    ----------
    results : Results
        What was run.
    setting : Setting
        In which setting.

    Returns
    -------
    str
        An ``svg`` element.

    Raises
    ------
    NothingToPlotError
        There are no ranks for this setting.
    """
    rates = {row: results.identification(setting, row)[:20] for row in results.rows}
    rates = {row: rate for row, rate in rates.items() if rate.size}
    if not rates:
        raise NothingToPlotError(f"{setting_label(setting)} has no finished results")
    look = looks(results, [setting], rates)
    with style():
        figure, ax = axes_beside_labels(list(rates), "left")
        for row in look:
            CMCDisplay(rates[row], name=row).plot(ax, **look[row].line | {"marker": ""})
        last = max(rate.size for rate in rates.values())
        ax.set_xticks([1, *range(5, last + 1, 5)])
        ax.set_xlim(1, max(last, 2))
        # Curves are farthest apart at rank 1: labels on that side, the scale on
        # the other.
        ax.yaxis.set_label_position("right")
        ax.yaxis.tick_right()
        ax.spines["left"].set_visible(False)
        ax.spines["right"].set_visible(True)
        starts = {row: (1.0, 100.0 * float(rate[0])) for row, rate in rates.items()}
        label_lines(figure, ax, starts, look, "left")
        label = f"{setting_label(setting)}: cumulative match characteristic"
        return to_svg(figure, name=f"cmc {setting!r}", label=label)


def time_against_error(results: Results, setting: Setting) -> str:
    """Mean error against the time to train, a point for each method.

    Parameters
    ----------
    results : Results
        What was run.
    setting : Setting
        In which setting.

    Returns
    -------
    str
        An ``svg`` element; times are medians over the repetitions.

    Raises
    ------
    NothingToPlotError
        No unit of the setting is finished and timed.
    """
    points = {}
    for row in results.rows:
        runs = results.runs(setting, row)
        seconds = float(np.median([r.fit_seconds for r in runs])) if runs else np.nan
        if np.isfinite(seconds):
            # The clock may not see what is very short.
            points[row] = max(seconds, 1e-3), float(results.errors(setting, row).mean())
    if not points:
        raise NothingToPlotError(f"{setting_label(setting)} has no times")
    look = looks(results, [setting], points)
    height = 3.4 + 0.08 * max(0, len(points) - 13)
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, height))
        ax = box(figure, 0.55, 0.48, 0.1, 0.1)
        for row in look:
            size = 6.0 if look[row].stands_out else 4.0
            line = look[row].line | {"linestyle": "", "ms": size}
            ax.plot([points[row][0]], [points[row][1]], **line)
        fit_scale(ax, "x", [time for time, _ in points.values()], least_ratio=1.0)
        fit_scale(ax, "y", [error for _, error in points.values()], least_ratio=1.0)
        ax.set(xlabel="training, CPU seconds", ylabel="error, %")
        label_points(figure, ax, points, look)
        label = f"{setting_label(setting)}: error against training time"
        return to_svg(figure, name=f"time {setting!r}", label=label)


def spectrum_and_ranks(results: Results, setting: Setting) -> str:
    """Ranks of the matrices of DualQML and DualQML-W, and their eigenvalues.

    Parameters
    ----------
    results : Results
        What was run.
    setting : Setting
        In which setting.

    Returns
    -------
    str
        An ``svg`` element: how many classes have a matrix of which rank, and the
        mean over the classes of the eigenvalues relative to the first. Both are of
        the first repetition.

    Raises
    ------
    NothingToPlotError
        The first repetition of neither is finished.
    """
    spectra = {}
    for row in our_rows(results):
        runs = [run for run in results.runs(setting, row) if run.spectrum]
        if runs:
            spectra[row] = runs[0].spectrum
    if not spectra:
        raise NothingToPlotError(f"{setting_label(setting)} has no spectra")
    look = looks(results, [], spectra)
    with style():
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        legend = 0.22 * -(-len(spectra) // 2) + 0.15
        height = 4.2 + legend
        figure = Figure(figsize=(WIDTH, height))
        above = box(figure, 0.65, 2.75, 0.1, legend)
        below = box(figure, 0.65, 0.48, 0.1, 2.1 + legend)
        largest = max(max(spectrum["ranks"]) for spectrum in spectra.values())
        # Whole ranks, at most thirty bars.
        step = -(-largest // 30)
        edges = np.arange(0.5, largest + step + 0.5, step)
        width = step / (len(spectra) + 0.5)
        for i, (row, spectrum) in enumerate(spectra.items()):
            line = look[row].line
            counts, _ = np.histogram(spectrum["ranks"], edges)
            middle = (edges[:-1] + edges[1:]) / 2
            shift = width * (i - (len(spectra) - 1) / 2)
            above.bar(middle + shift, counts, width, color=line["color"], label=row)
            values = np.asarray(spectrum["eigenvalues"], dtype=float)
            numbers = np.arange(1, values.size + 1)
            below.plot(numbers[values > 0.0], values[values > 0.0], **line)
        above.set(xlabel="rank", ylabel="classes")
        below.set(xlabel="number of the eigenvalue", ylabel="relative to the first")
        below.set_yscale("log")
        plain_ticks(below, "y", (1.0,))
        for axis in (above.xaxis, above.yaxis, below.xaxis):
            axis.set_major_locator(MaxNLocator("auto", integer=True))
        figure.legend(
            *above.get_legend_handles_labels(),
            loc="upper center",
            ncols=2,
            borderaxespad=0.2,
        )
        label = f"{setting_label(setting)}: ranks and mean relative eigenvalues"
        return to_svg(figure, name=f"spectrum {setting!r}", label=label)


def _shortened(text: str, length: int = 18) -> str:
    return (
        text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )
