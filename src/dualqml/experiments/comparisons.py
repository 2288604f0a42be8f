# SPDX-License-Identifier: BSD-3-Clause
"""How ours stand to the best rival, over the splits that both have."""

from typing import NamedTuple

import numpy as np

from dualqml.experiments.labels import (
    common_label,
    record_key,
    setting_label,
    what_differs,
)
from dualqml.experiments.rendering import Cell, Heading, Row, Table
from dualqml.experiments.results import TUNED, Comparison, Results, Setting

#: Differences in points that differ by less differ by rounding.
_SAME = 1e-9
_NO_INTERVAL = (
    "No interval: the difference is the same in all splits, so nothing tells its "
    "noise, and nobody is said to be better. Run more splits."
)


class Pair(NamedTuple):
    """A row of ours and the best rival, in one setting."""

    setting: Setting
    row: str
    rival: str
    comparison: Comparison | None


def comparison_table(results: Results) -> Table:
    """How DualQML and DualQML-W stand to the best rival.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    Table
        A row for each setting and each row of ours: the rival of the lowest mean
        error, both errors, the mean paired difference, its 95 % interval and a
        verdict.
    """
    differing = what_differs(results.settings)
    rows, records, without = [], [], list[str]()
    for pair in pairs(results):
        setting, gap = pair.setting, pair.comparison
        theirs = float(results.errors(setting, pair.rival).mean())
        ours = float(results.errors(setting, pair.row).mean())
        difference = interval = splits = Cell()
        found = gap or Comparison(pair.rival, 0, np.nan, np.nan, np.nan)
        if gap is not None:
            difference = Cell(signed(gap.difference))
            splits = Cell(str(gap.n_splits))
            if has_interval(gap):
                interval = Cell(f"{signed(gap.low)} to {signed(gap.high)}")
            else:
                interval, without = Cell("none"), [_NO_INTERVAL]
                found = gap._replace(low=np.nan, high=np.nan)
        cells = (
            *(Cell(pair.rival), Cell(f"{theirs:.2f}")),
            *(Cell(pair.row), Cell(f"{ours:.2f}")),
            *(difference, interval, splits, Cell(verdict(gap))),
        )
        rows.append(Row(setting_label(setting, differing), cells))
        records.append(
            (*record_key(setting, pair.row), ours, pair.rival, theirs)
            + (found.n_splits, found.difference, found.low, found.high)
            + (verdict(gap), setting.seed, setting.data)
        )
    headings = (
        *("Best rival", "its error, %", "Ours", "its error, %"),
        *("Difference, points", "95 % interval", "Splits", "Verdict"),
    )
    return Table(
        title=f"Ours against the best rival; {common_label(results.settings)}".rstrip(
            "; "
        ),
        corner="Setting",
        header=(tuple(map(Heading, headings)),),
        rows=tuple(rows),
        align="llrlrrrrl",
        notes=(
            "Difference: our error less the rival's, mean over the splits that both "
            "have. Negative is better.",
            "The interval is Student's t on paired differences. It is of random splits "
            "of one database, which share images, and says nothing of other people.",
            "The rival is the one with the lowest mean error on the same splits.",
            *without,
        ),
        columns=(
            *("database", "m", "protocol", "photometry", "method", "tuned", "error"),
            *("rival", "rival_error", "splits", "difference", "low", "high"),
            *("verdict", "seed", "data"),
        ),
        records=tuple(records),
    )


def pairs(results: Results) -> list[Pair]:
    """All rows of ours with the best rival of their setting."""
    return [
        Pair(setting, row, rival, results.compare(setting, row, rival))
        for setting in results.settings
        if (rival := results.best_rival(setting)) is not None
        for row in our_rows(results)
        if results.runs(setting, row)
    ]


def our_rows(results: Results) -> list[str]:
    """The rows that are compared with rivals: DualQML and DualQML-W, also tuned."""
    compared = {"DualQML", "DualQML-W"}
    return [row for row in results.rows if row.removesuffix(TUNED) in compared]


def has_interval(comparison: Comparison) -> bool:
    """Whether splits differ: else nothing tells the noise of their mean."""
    return comparison.high - comparison.low > _SAME


def verdict(comparison: Comparison | None) -> str:
    """What an interval says, in words.

    Examples
    --------
    >>> from dualqml.experiments.results import Comparison
    >>> from dualqml.experiments.comparisons import verdict
    >>> verdict(Comparison("LDA", 30, -1.2, -2.0, -0.4))
    'lower'
    >>> verdict(Comparison("LDA", 30, -1.2, -2.5, 0.1))
    'no difference seen'
    >>> verdict(Comparison("LDA", 2, -1.2, -1.2, -1.2))
    'no interval'
    """
    if comparison is None:
        return "too few splits"
    if not has_interval(comparison) and abs(comparison.difference) > _SAME:
        return "no interval"
    if comparison.high < 0.0:
        return "lower"
    return "higher" if comparison.low > 0.0 else "no difference seen"


def signed(value: float) -> str:
    """Two decimals with a sign, and none for what rounds to zero."""
    text = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    return text if text.strip("+\N{MINUS SIGN}0.") else "0.00"
