# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of results, each as the text of an ``svg`` element.

They need matplotlib, and are narrow enough to be read on a phone.
"""

from collections import defaultdict

import numpy as np

from dualqml.core import DualQMLError
from dualqml.evaluation import CMCDisplay
from dualqml.experiments.comparisons import Pair, our_rows, pairs
from dualqml.experiments.drawing import (
    axes_beside_labels,
    box,
    fit_scale,
    label_lines,
    label_points,
    looks,
    plain_ticks,
    text_size,
)
from dualqml.experiments.labels import (
    database_label,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.results import Results, Setting
from dualqml.experiments.svg import GREY, INK, WIDTH, style, to_svg


class NothingToPlotError(DualQMLError, ValueError):
    """The results have nothing of what a plot shows."""


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
