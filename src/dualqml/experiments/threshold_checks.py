# SPDX-License-Identifier: BSD-3-Clause
"""Whether a threshold that was set for a rate keeps it with other people."""

import warnings
from dataclasses import dataclass

import numpy as np

from dualqml.core.arrays import Array, Index
from dualqml.evaluation import Interval, binomial_interval, rule_of_three
from dualqml.experiments.rendering import Cell, Heading, Row, Table
from dualqml.recognition import Calibration, Recognizer
from dualqml.recognition.calibration import Trials, calibrate


@dataclass(frozen=True)
class ThresholdCheck:
    """A threshold, and what it does with people who had no part in setting it.

    Attributes
    ----------
    way : str
        How it was set.
    calibration : Calibration
        The threshold and where it comes from.
    fpir : Interval
        Share of the searches with strangers that found somebody.
    fnir : Interval
        Share of the searches with enrolled people that did not find them.
    n_strangers, n_mated : int
        Searches of each kind.
    """

    way: str
    calibration: Calibration
    fpir: Interval
    fnir: Interval
    n_strangers: int
    n_mated: int


def check_thresholds(
    recognizer: Recognizer,
    *,
    mated: Array,
    codes: Index,
    nonmated: Array,
    strangers: np.ndarray[tuple[int], np.dtype[np.str_]],
    fpir: float,
) -> list[ThresholdCheck]:
    """Set the threshold in both ways there are, and ask with others.

    Parameters
    ----------
    recognizer : Recognizer
        With everybody enrolled; its own threshold is set by the second way.
    mated : ndarray of shape (n_mated, n_subjects)
        Scores of other samples of the enrolled.
    codes : ndarray of int of shape (n_mated,)
        Their columns.
    nonmated : ndarray of shape (n_strangers, n_subjects)
        Scores of samples of strangers.
    strangers : ndarray of str of shape (n_strangers,)
        Who they are.
    fpir : float
        The rate to set the threshold for.

    Returns
    -------
    list of ThresholdCheck
        By half of the strangers, asked with the other half; and by leaving the
        enrolled out in turn, asked with all strangers. The first is not there
        where there is one stranger only.
    """
    people = np.unique(strangers)
    for_setting = np.isin(strangers, people[::2])
    found = []
    with warnings.catch_warnings():
        # Too few searches are told by the table.
        warnings.simplefilter("ignore", UserWarning)
        if people.size > 1:
            calibration = calibrate(
                Trials(mated[:0], codes[:0], nonmated[for_setting]),
                kind="fpir",
                target=fpir,
                source=f"{len(people[::2])} other people",
                model_id=recognizer.model_id,
            )
            asked = nonmated[~for_setting]
            found.append(_checked("other people", calibration, mated, codes, asked))
        if len(recognizer.subjects()) > 3:
            calibration = recognizer.calibrate(fpir=fpir)
            way = "the enrolled, left out in turn"
            found.append(_checked(way, calibration, mated, codes, nonmated))
    return found


def _checked(
    way: str, calibration: Calibration, mated: Array, codes: Index, nonmated: Array
) -> ThresholdCheck:
    threshold = calibration.threshold
    false = int((nonmated.max(axis=1) >= threshold).sum())
    right = (mated.argmax(axis=1) == codes) & (mated.max(axis=1) >= threshold)
    missed = int((~right).sum())
    return ThresholdCheck(
        way,
        calibration,
        binomial_interval(false, len(nonmated)),
        binomial_interval(missed, len(mated)),
        len(nonmated),
        len(mated),
    )


def threshold_table(name: str, divisions: list[list[ThresholdCheck]]) -> Table:
    """All thresholds of all divisions.

    Parameters
    ----------
    name : str
        The data.
    divisions : list of list of ThresholdCheck
        Those of each division, at least one in all.

    Returns
    -------
    Table
        Rates in per cent with 95 % intervals.
    """
    every = [check.calibration for checks in divisions for check in checks]
    target = every[0].target or 0.0
    fewest = min(calibration.n_comparisons for calibration in every)
    few = []
    if rule_of_three(fewest) > target:
        few = [
            f"{fewest} searches are too few to set a threshold for that: with no "
            f"error among them it could be {rule_of_three(fewest):.1%}."
        ]
    rows = []
    for number, checks in enumerate(divisions, 1):
        for check in checks:
            calibration = check.calibration
            cells = (
                Cell(check.way),
                Cell(f"{calibration.n_comparisons}"),
                Cell(f"{calibration.threshold:.3f}"),
                _percent(check.fpir),
                Cell(f"{check.n_strangers}"),
                _percent(check.fnir),
                Cell(f"{check.n_mated}"),
            )
            rows.append(Row(f"{number}", cells))
    return Table(
        title=f"{name}: does a threshold for an FPIR of {100 * target:g} % hold?",
        corner="Division",
        header=(
            (
                Heading("set by"),
                Heading("searches to set it"),
                Heading("threshold"),
                Heading("FPIR of strangers, %"),
                Heading("of searches"),
                Heading("FNIR, %"),
                Heading("of searches"),
            ),
        ),
        rows=tuple(rows),
        align="ll" + "r" * 6,
        notes=(
            "In brackets 95 % intervals (Clopper and Pearson), as if searches were "
            "independent; they share people, so they are rather wider.",
            "Set by other people: half of the strangers set it, the others are asked.",
            *few,
        ),
    )


def _percent(rate: Interval) -> Cell:
    low, high = 100 * rate.low, 100 * rate.high
    return Cell(f"{100 * rate.estimate:.1f}", False, f"({low:.1f} to {high:.1f})")
