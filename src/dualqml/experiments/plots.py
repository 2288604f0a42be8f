# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of results, each as the text of an ``svg`` element.

Ours and the best rivals stand out in colour; all other methods are grey. The legends
and the layout are matplotlib's.
"""

import hashlib
import io
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike

from dualqml.evaluation import CMCDisplay
from dualqml.exceptions import MissingDependencyError, NothingToPlotError
from dualqml.experiments.labels import (
    database_label,
    listed,
    sample_word,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.results import TUNED, Results, Setting
from dualqml.experiments.tables import Pair, our_rows, pairs

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of all figures in inches: 12 pixels of text become 10 on a phone.
WIDTH = 4.5

#: Size of all text in points.
FONT_SIZE = 9.5

#: Stands for ``currentColor``, which matplotlib does not know.
INK = "#010203"

#: The colour of methods that do not stand out; seen on white and on black.
GREY = "#8c8c8c"

_SVG = "{http://www.w3.org/2000/svg}"

# Colours and markers of methods that stand out. The colours of Okabe and Ito, which
# colour-blind people can tell apart, a little changed where they were not seen on
# white or on black.
_OURS = {
    "DualQML": ("#1e80c1", "o"),
    "DualQML-W": ("#d55e00", "s"),
    "DualQML" + TUNED: ("#56a0d3", "^"),
    "DualQML-W" + TUNED: ("#c58b00", "v"),
}
_RIVALS = (("#009e73", "D"), ("#b8679a", "P"))
# Methods of your own.
_YOURS = (("#8464d8", "*"), ("#a8763e", "X"))

# Grey methods are told apart by markers and by whether these are filled.
_GREY_MARKERS = (
    *(("x", "full"), ("<", "full"), ("+", "full"), ("o", "none"), ("^", "none")),
    *(("*", "full"), ("s", "none"), (">", "full"), ("v", "none"), ("1", "full")),
    *(("D", "none"), ("X", "full"), ("<", "none"), ("d", "full"), ("*", "none")),
    *(("|", "full"), (">", "none"), ("2", "full"), ("P", "none"), ("d", "none")),
    *(("p", "full"), ("X", "none"), ("_", "full"), ("3", "full"), ("p", "none")),
)


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
        "legend.labelspacing": 0.3,
        "legend.handlelength": 1.8,
        "legend.handletextpad": 0.5,
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
        figure, ax = _figure_with_legend(len(lines))
        handles: dict[str, Artist] = {}
        seen, bar = [], 0
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
                drawn = ax.errorbar(
                    m, mean, std, **look[row].line, capsize=2, elinewidth=1
                )
                handles[row] = drawn.lines[0]
                seen += [*(mean + std), *np.maximum(mean - std, mean / 2)]
            else:
                (handles[row],) = ax.plot(m, mean, **look[row].line)
            seen += mean.tolist()
        _fit_scale(ax, "y", seen)
        ax.set_xticks(sizes, [str(m) if m else like.protocol for m in sizes])
        ax.set_xlim(min(sizes) - 4 * dodge, max(sizes) + 4 * dodge)
        # Two lines, or the label would be wider than the axes.
        word = sample_word([like])
        what = f"training {word}s\nof each subject, m" if like.m else "split"
        ax.set(xlabel=what, ylabel="error, %")
        # In the order of the lines at their right ends.
        last = {row: list(errors.values())[-1].mean() for row, errors in lines.items()}
        order = sorted(handles, key=lambda row: last[row], reverse=True)
        _legend_beside(figure, {row: handles[row] for row in order}, look)
        variant = variant_label(like, what_differs(of_database))
        name = ", ".join(filter(None, [database_label(database), variant]))
        against = f" against the number of training {word}s" if like.m else ""
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
    rows = [*our_rows(results), *results.own_rows]
    look = looks(results, [], rows)
    texts = []
    for setting, group in by_setting.items():
        lines = [
            f"{_shortened(database_label(setting.database))}, {size_label(setting)}",
            variant_label(setting, differing),
            f"against {listed(list(dict.fromkeys(pair.rival for pair in group)))}",
        ]
        texts.append("\n".join(filter(None, lines)))
    with style():
        from matplotlib.figure import Figure

        n_lines = max(len(rows), 2 + bool(differing))
        room = 0.17 * n_lines + 0.12
        height = room * len(by_setting) + 0.85 + 0.2 * (len(rows) > 2)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        ax = figure.subplots()
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
        # In the middle of the figure, which is wider than the axes.
        figure.supxlabel("difference in error, points", fontsize=FONT_SIZE)
        handles = [ax.plot([], [], **look[row].line, label=row)[0] for row in rows]
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
        whose = "ours or yours" if results.own_rows else "ours"
        label = (
            f"Difference in error between {whose} and the best rival of each setting"
        )
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
        figure, ax = _figure_with_legend(len(rates))
        handles = {}
        for row in look:
            # Markers at some ranks are enough to tell the curves apart.
            line = look[row].line | {"markevery": 4}
            handles[row] = CMCDisplay(rates[row], name=row).plot(ax, **line).line_
        last = max(rate.size for rate in rates.values())
        ax.set_xticks([1, *range(5, last + 1, 5)])
        # With room for the markers at the first and the last rank, and at 100 %.
        ax.set_xlim(0.5, last + 0.5)
        low, high = ax.get_ylim()
        ax.set_ylim(low, min(high, 100.0 + 0.03 * (100.0 - low)))
        # In the order of the curves at rank 1, where they are farthest apart.
        order = sorted(handles, key=lambda row: rates[row][0], reverse=True)
        _legend_beside(figure, {row: handles[row] for row in order}, look)
        label = f"{_where(results, setting)}: cumulative match characteristic"
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
    points, fixed = {}, {}
    for row in results.rows:
        runs = results.runs(setting, row)
        refits = [run.refit_seconds for run in runs if run.searched]
        refits = [seconds for seconds in refits if np.isfinite(seconds)]
        if refits:
            fixed[row] = max(float(np.median(refits)), 1e-3)
        seconds = float(np.median([r.fit_seconds for r in runs])) if runs else np.nan
        if np.isfinite(seconds):
            # The clock may not see what is very short.
            points[row] = max(seconds, 1e-3), float(results.errors(setting, row).mean())
    if not points:
        raise NothingToPlotError(f"{setting_label(setting)} has no times")
    look = looks(results, [setting], points)
    with style():
        figure, ax = _figure_with_legend(len(points))
        handles = {}
        for row in look:
            size = 6.0 if look[row].stands_out else 4.5
            line = look[row].line | {"linestyle": "", "ms": size}
            (handles[row],) = ax.plot([points[row][0]], [points[row][1]], **line)
            if row in fixed and row in points:
                # From the whole training to one with the chosen parameters.
                time, error = points[row]
                colour = line["color"]
                ax.plot([fixed[row], time], [error, error], color=colour, linewidth=0.8)
                ax.plot([fixed[row]], [error], **line | {"ms": 3.0})
        times = [time for time, _ in points.values()]
        times += [time for row, time in fixed.items() if row in points]
        _fit_scale(ax, "x", times, least_ratio=1.0)
        _fit_scale(ax, "y", [error for _, error in points.values()], least_ratio=1.0)
        ax.set(xlabel="training, CPU seconds", ylabel="error, %")
        order = sorted(handles, key=lambda row: points[row][1], reverse=True)
        _legend_beside(figure, {row: handles[row] for row in order}, look)
        label = f"{_where(results, setting)}: error against training time"
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

        height = 4.2 + 0.22 * -(-len(spectra) // 2)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        above, below = figure.subplots(2)
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
        _plain_ticks(below, "y", (1.0,))
        for axis in (above.xaxis, above.yaxis, below.xaxis):
            axis.set_major_locator(MaxNLocator("auto", integer=True))
        figure.legend(
            *above.get_legend_handles_labels(),
            loc="outside upper center",
            ncols=2,
        )
        label = f"{_where(results, setting)}: ranks and mean relative eigenvalues"
        return to_svg(figure, name=f"spectrum {setting!r}", label=label)


def _where(results: Results, setting: Setting) -> str:
    """A setting in words, and in what it differs from others of its database."""
    settings = [s for s in results.settings if s.database == setting.database]
    return setting_label(setting, what_differs(settings), in_full=True)


class Look(NamedTuple):
    """How a method is drawn: whether it stands out, and arguments of ``ax.plot``."""

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
        in them stand out, and two methods of your own.
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
    styles |= dict(zip(results.own_rows, _YOURS, strict=False))
    # A method has the same marker in all figures of the same results.
    others = [row for row in results.rows if row not in _OURS]
    markers = dict(zip(others, cycle(_GREY_MARKERS), strict=False))
    found = {}
    for row in rows:
        if row in styles:
            colour, marker = styles[row]
            line = {"color": colour, "marker": marker, "ms": 4.5, "linewidth": 1.8}
            # Without colours too, rivals are told from ours.
            line["linestyle"] = "-" if row in _OURS else "--"
            found[row] = Look(True, line)
        else:
            marker, fill = markers[row]
            line = {"color": GREY, "marker": marker, "fillstyle": fill}
            line |= {"ms": 4.0, "markeredgewidth": 0.8, "linewidth": 0.7}
            found[row] = Look(False, line)
    return dict(sorted(found.items(), key=lambda item: item[1].stands_out))


def _figure_with_legend(n_entries: int) -> tuple["Figure", "Axes"]:
    """A figure high enough for a legend with a line for each entry."""
    from matplotlib.figure import Figure

    height = max(3.2, 0.2 * n_entries + 0.4)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _legend_beside(
    figure: "Figure", handles: Mapping[str, "Artist"], look: Mapping[str, Look]
) -> None:
    """A legend on the right of the axes; names that stand out are bold."""
    legend = figure.legend(
        list(handles.values()), list(handles), loc="outside right upper"
    )
    for text in legend.get_texts():
        if look[text.get_text()].stands_out:
            text.set_fontweight("bold")


def _fit_scale(
    ax: "Axes", axis: Literal["x", "y"], values: ArrayLike, *, least_ratio: float = 4.0
) -> None:
    """Make an axis logarithmic if values are far apart and none of them is zero."""
    found = np.asarray(values, dtype=np.float64)
    if found.min() > 0.0 and found.max() >= least_ratio * found.min():
        # Wide enough for a label at 1, 2 or 5. Set here, because bars that reach zero
        # would take the axis with them.
        low, high = found.min() / 1.6, found.max() * 1.6
        ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
        _plain_ticks(ax, axis, _tick_multiples(axis, high / low))
    else:
        ax.set(**{f"{axis}lim": (0.0, 1.1 * float(found.max()) or 1.0)})


def _tick_multiples(axis: Literal["x", "y"], ratio: float) -> tuple[float, ...]:
    """Which multiples of powers of ten have a label, so that labels do not overlap.

    Labels of the y-axis stand above each other and need less room.
    """
    if axis == "y":
        fine = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        return (1.0, 2.0, 5.0) if ratio > 10.0 else fine
    if ratio > 300.0:
        return (1.0,)
    return (1.0, 3.0) if ratio > 30.0 else (1.0, 2.0, 5.0)


def _plain_ticks(ax: "Axes", axis: Literal["x", "y"], subs: tuple[float, ...]) -> None:
    """Ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_locator(LogLocator(subs=subs))
    which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    which.set_minor_formatter(NullFormatter())


def _shortened(text: str, length: int = 18) -> str:
    return (
        text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )
