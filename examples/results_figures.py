# SPDX-License-Identifier: BSD-3-Clause
"""The figures of the results pages, from the tables in ``docs/results/tables``.

``python examples/results_figures.py [FOLDER]`` reads the CSV files and writes three
figures, each for light and for dark pages: ``results_overview_*.svg``,
``results_reproduction_*.svg`` and ``results_paired_*.svg``. Building the documentation
runs it. It needs ``dualqml[demo]``.
"""

import csv
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
#: Text, lines, DualQML-W, the paper's DualQML, LDA and other methods.
LIGHT = ("#1f2328", "#d1d9e0", "#0a6b5d", "#a8326b", "#3566a8", "#9a5b00")
DARK = ("#e6edf3", "#3d444d", "#4cc9b0", "#f28cb8", "#8ab4f8", "#f0b35a")
TEXT, LINES, OURS, PAPER, LDA, OTHERS = LIGHT
GREY = "#8c959f"  # is seen on both kinds of pages
#: Names of the databases in the output of ``dualqml reproduce``.
DATABASES = {
    "ar": "AR",
    "pie": "PIE",
    "feret": "FERET",
    "feret:distinct": "FERET (distinct)",
    "polyu_palm": "PolyU palms",
    "iitd_ear": "IITD ears",
    "orl": "ORL",
}
Row = dict[str, str]


def read(name: str) -> list[Row]:
    """Rows of a table."""
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def set_root_scale(axes: plt.Axes, which: str, ticks: list[float]) -> None:
    """Make 0.1 as well as 30 visible: an axis of square roots."""

    def root(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sign(x) * np.sqrt(np.abs(x))

    def square(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sign(x) * x**2

    set_scale = axes.set_xscale if which == "x" else axes.set_yscale
    set_scale("function", functions=(root, square))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])


def style(axes: plt.Axes, title: str) -> None:
    """Set the title and the lines that all panels have."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=TEXT)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=TEXT, length=0, labelsize=9)
    axes.grid(axis="x", color=LINES, linewidth=0.8)
    axes.set_axisbelow(True)


def half_width(row: Row) -> float:
    """Half of the 95 % interval of a paired difference."""
    splits = min(int(row[key].split()[0]) for key in ("splits", "splits of rivals"))
    return float(student.ppf(0.975, splits - 1)) * float(row["standard error"])


def draw_errors(axes: plt.Axes, rows: list[Row], title: str, lda: str) -> None:
    """One line for each cell: DualQML-W, LDA and the best other method."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["m"]:
            cells.setdefault((row["data"], row["m"]), []).append(row)
    names = []
    for y, ((data, m), of_cell) in enumerate(cells.items()):
        ours = next(
            float(row["error"]) for row in of_cell if row["method"] == "DualQML-W"
        )
        rivals = [row for row in of_cell if row["method"] != "DualQML-W"]
        others = [row for row in rivals if row["method"] != lda]
        best = min(others, key=lambda row: float(row["difference"]))
        shown = [(best, OTHERS, "D", 0.17)]
        shown += [(row, LDA, "s", -0.17) for row in rivals if row["method"] == lda]
        for row, colour, marker, shift in shown:
            error, half = ours + float(row["difference"]), half_width(row)
            low, high = max(error - half, 0), error + half
            axes.plot([low, high], [y + shift] * 2, color=colour, linewidth=1.4)
            axes.plot(error, y + shift, marker, color=colour, markersize=4.5)
        axes.plot(ours, y, "o", color=OURS, markersize=7, zorder=3)
        names.append(f"{data.removesuffix(' (distinct)')}, m={m}")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    style(axes, title)


def overview() -> plt.Figure:
    """Errors of DualQML-W, LDA and the best other method on all data."""
    rows = read("accuracy")
    parts = {
        kind: [row for row in rows if row["input"] == kind]
        for kind in ("pixels", "local descriptors", "embeddings")
    }
    figure = plt.figure(figsize=(8.8, 8.6))
    figure.subplots_adjust(0.195, 0.04, 0.99, 0.895, wspace=0.05, hspace=0.2)
    grid = figure.add_gridspec(2, 2, height_ratios=(17, 9.5))
    left = figure.add_subplot(grid[0, 0])
    draw_errors(left, parts["pixels"], "Images: pixels", "LDA")
    right = figure.add_subplot(grid[0, 1])
    draw_errors(right, parts["local descriptors"], "Images: local descriptors", "LDA")
    right.tick_params(labelleft=False)  # the cells of the panel at its left
    below = figure.add_subplot(grid[1, 0])
    title = "Vectors of face networks"
    draw_errors(below, parts["embeddings"], title, "LDA, shrinkage 0.5")
    for axes in (left, right, below):
        set_root_scale(axes, "x", [0, 0.5, 2, 5, 10, 20, 30])
        axes.set_xlim(-0.001, 36)
    figure.text(
        0.62, 0.29,
        "One line: one data set with m training\nsamples of each person.\n\n"
        "Bar: 95 % interval of the difference to\nDualQML-W over the same splits.\n"
        "If it does not reach the round dot, the\ndifference is clear.\n\n"
        "The axis is stretched near zero\n(square roots).",
        color=TEXT, fontsize=10, va="top", linespacing=1.35,
    )  # fmt: skip
    legend(
        figure,
        [
            ("o", OURS, "DualQML-W"),
            ("s", LDA, "LDA"),
            ("D", OTHERS, "best other method"),
        ],
        "Error in %: further left is better",
    )
    return figure


def legend(figure: plt.Figure, entries: list[tuple[str, str, str]], title: str) -> None:
    """A title at the top left, and what the marks mean below it."""
    figure.text(
        0.01, 0.988, title, color=TEXT, fontsize=12.5, fontweight="bold", va="top"
    )
    marks = [
        plt.Line2D([], [], color=colour, marker=marker, linewidth=1.4, markersize=6)
        for marker, colour, _ in entries
    ]
    figure.legend(
        marks, [text for *_, text in entries], loc="upper left", ncols=len(entries),
        bbox_to_anchor=(0.0, 1 - 0.32 / figure.get_figheight()), frameon=False,
        labelcolor=TEXT, fontsize=10, columnspacing=1.6,
    )  # fmt: skip


def reproduction() -> plt.Figure:
    """Error against m of all methods, one panel for each database."""
    rows = read("reproduction")
    colours = {"DualQML-W": OURS, "DualQML": PAPER, "LDA": LDA, "K-LDA": OTHERS}
    figure, grid = plt.subplots(2, 4, figsize=(8.8, 5.2))
    figure.subplots_adjust(0.05, 0.09, 0.99, 0.83, wspace=0.22, hspace=0.42)
    for axes, (key, name) in zip(grid.flat, DATABASES.items(), strict=False):
        of_data = [row for row in rows if row["database"] == key]
        methods = dict.fromkeys(row["method"] for row in of_data)
        for method in sorted(methods, key=lambda method: method in colours):
            line = [row for row in of_data if row["method"] == method]
            x = [int(row["m"]) for row in line]
            axes.plot(
                x, [float(row["mean"]) for row in line], marker=".",
                color=colours.get(method, GREY),
                alpha=1.0 if method in colours else 0.45,
                linewidth=2.0 if method in colours else 1.0,
            )  # fmt: skip
        style(axes, name)
        axes.grid(axis="y", color=LINES, linewidth=0.8)
        axes.set_xticks(x)
        set_root_scale(axes, "y", [0, 1, 2, 5, 10, 20, 40, 80])
        axes.set_ylim(-0.001, 1.1 * max(float(row["mean"]) for row in of_data))
        axes.set_xlabel("m", color=TEXT, fontsize=9, labelpad=1)
    grid.flat[-1].axis("off")
    entries = [(".", colour, method) for method, colour in colours.items()]
    title = "Error in % against the number m of training images of each person"
    legend(figure, [*entries, (".", GREY, "nine others")], title)
    return figure


def paired() -> plt.Figure:
    """Differences of DualQML and of DualQML-W to the best rival, with intervals."""
    rows = read("reproduction_paired")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.8, 5.8), sharey=True, width_ratios=(1, 1)
    )
    figure.subplots_adjust(0.19, 0.05, 0.985, 0.89, wspace=0.06)
    for axes, method, colour in ((left, "DualQML", PAPER), (right, "DualQML-W", OURS)):
        own = [row for row in rows if row["method"] == method]
        for y, row in enumerate(own):
            low, high = float(row["interval low"]), float(row["interval high"])
            axes.plot([low, high], [y, y], color=colour, linewidth=2)
            axes.plot(float(row["difference"]), y, "o", color=colour, markersize=5)
        axes.axvline(0, color=TEXT, linewidth=1)
        style(axes, f"{method} less the best rival")
        names = [f"{row['data']}, m={row['m']}" for row in own]
        axes.set_yticks(range(len(own)), names)
        axes.set_ylim(len(own) - 0.5, -0.5)
        set_root_scale(axes, "x", [-10, -5, -1, 0, 1, 5, 10, 20, 30])
        axes.set_xlim(-11.5, 34)
    legend(
        figure, [], "Difference in points, with 95 % interval: left of zero is better"
    )
    return figure


def main() -> None:
    """Write all figures for both kinds of pages."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "dualqml"
    for draw in (overview, reproduction, paired):
        figure = draw()
        light = folder / f"results_{draw.__name__}_light.svg"
        figure.savefig(light, transparent=True, metadata={"Date": None})
        plt.close(figure)
        text = light.read_text(encoding="utf-8")
        for colour, dark in zip(LIGHT, DARK, strict=True):
            text = text.replace(colour, dark)
        light.with_name(light.name.replace("light", "dark")).write_text(
            text, encoding="utf-8"
        )


if __name__ == "__main__":
    main()
