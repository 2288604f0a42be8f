# SPDX-License-Identifier: BSD-3-Clause
"""Thresholds that can be defended: set for a rate, on people who are not enrolled."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array
from dualqml.evaluation import (
    binomial_interval,
    fnir_at_fpir,
    fnmr_at_fmr,
    rule_of_three,
)
from dualqml.recognition.results import Calibration, RecognitionError

if TYPE_CHECKING:
    from dualqml.recognition.recognizer import Recognizer


class Trials(NamedTuple):
    """Scores of samples for a recogniser, of people it knows and of strangers.

    Attributes
    ----------
    mated : ndarray of shape (n_mated, n_subjects)
        Scores of samples of enrolled people.
    codes : ndarray of int of shape (n_mated,)
        Their columns.
    nonmated : ndarray of shape (n_strangers, n_subjects)
        Scores of samples of people who are not enrolled.
    """

    mated: Array
    codes: NDArray[np.int64]
    nonmated: Array


def held_out_trials(
    recognizer: "Recognizer", images: object, labels: Sequence[str]
) -> Trials:
    """Score samples of people, some of them enrolled and some not.

    Parameters
    ----------
    recognizer : Recognizer
        Who decides.
    images : array or list
        Samples that were not enrolled.
    labels : sequence of str
        Who is on them. Those who are not enrolled are strangers.

    Returns
    -------
    Trials
        The scores.
    """
    scores = recognizer.scores(images)
    names = np.asarray(labels)
    if names.shape != scores.shape[:1]:
        raise RecognitionError(
            f"{len(scores)} samples need as many labels, got {names.size}"
        )
    place = {name: column for column, name in enumerate(recognizer.subjects())}
    codes = np.array([place.get(name, -1) for name in names.tolist()])
    known = codes >= 0
    return Trials(scores[known], codes[known], scores[~known])


def left_out_trials(
    recognizer: "Recognizer", *, n_folds: int = 10, random_state: int = 0
) -> Trials:
    """Score enrolled people by recognisers that do not know them, or not that sample.

    The subjects are dealt into folds. Those of a fold are strangers to a
    recogniser of all others. And of every other subject with several samples one
    is held out of that recogniser, as a mated trial.

    Parameters
    ----------
    recognizer : Recognizer
        With at least four subjects.
    n_folds : int, default=10
        Folds.
    random_state : int, default=0
        Seed of the deal.

    Returns
    -------
    Trials
        Scores with as many columns as the smallest of those recognisers has
        subjects; a mated score is in the column of its code.
    """
    names = np.array(recognizer.subjects())
    if names.size < 4:
        raise RecognitionError(
            "Calibration without other people needs at least four enrolled subjects; "
            f"there are {names.size}. Give images of people who are not enrolled."
        )
    rng = np.random.default_rng(random_state)
    dealt = np.array_split(rng.permutation(names.size), min(n_folds, names.size // 2))
    mated, nonmated = [], []
    for strangers in dealt:
        smaller = recognizer.without(names[strangers].tolist())
        probes, own = smaller.hold_out_one(rng)
        of_strangers = np.concatenate(
            [recognizer.samples(name) for name in names[strangers].tolist()]
        )
        nonmated.append(_with_true_first(smaller.row_scores(of_strangers), None))
        if len(probes):
            place = {name: column for column, name in enumerate(smaller.subjects())}
            columns = np.array([place[name] for name in own])
            mated.append(_with_true_first(smaller.row_scores(probes), columns))
    width = min(part.shape[1] for part in nonmated + mated)
    # Beyond the true subject, the best of the others are all that counts.
    rows = np.concatenate([part[:, :width] for part in nonmated])
    if not mated:
        return Trials(np.empty((0, width)), np.empty(0, dtype=np.int64), rows)
    found = np.concatenate([part[:, :width] for part in mated])
    return Trials(found, np.zeros(len(found), dtype=np.int64), rows)


def _with_true_first(scores: Array, columns: NDArray[np.int64] | None) -> Array:
    """The true subject's score first, the others in falling order."""
    if columns is None:
        return -np.sort(-scores, axis=1)
    rows = np.arange(len(scores))
    true = scores[rows, columns][:, None]
    others = scores.copy()
    others[rows, columns] = -np.inf
    return np.concatenate([true, -np.sort(-others, axis=1)[:, :-1]], axis=1)


def calibrate(
    trials: Trials,
    *,
    kind: Literal["fmr", "fpir"],
    target: float,
    source: str,
) -> Calibration:
    """Find the threshold of a rate.

    Parameters
    ----------
    trials : Trials
        Scores.
    kind : {"fmr", "fpir"}
        False match rate of comparisons with single subjects, or false positive
        identification rate of searches among all.
    target : float
        The rate, above 0 and below 1.
    source : str
        The data in words.

    Returns
    -------
    Calibration
        The lowest threshold whose rate on the data is at most the target.

    Warns
    -----
    UserWarning
        There are too few comparisons to speak of such a rate (rule of three).
    """
    if not 0.0 < target < 1.0:
        raise RecognitionError(f"{kind} must be between 0 and 1, got {target!r}")
    if len(trials.nonmated) == 0:
        raise RecognitionError(
            "There are no strangers among the calibration data: images of people who "
            "are not enrolled are needed"
        )
    n_mated = len(trials.mated)
    # Without mated trials the price is not known; the threshold is all the same.
    mated = trials.mated if n_mated else trials.nonmated[:1]
    codes = trials.codes if n_mated else np.zeros(1, dtype=np.int64)
    missed: float | None
    if kind == "fmr":
        own = mated[np.arange(len(mated)), codes]
        verified = fnmr_at_fmr(own, trials.nonmated.ravel(), fmr=target)
        threshold, achieved = verified.threshold, verified.fmr
        missed, n = verified.fnmr, verified.n_nonmated
    else:
        searched = fnir_at_fpir(mated, codes, trials.nonmated, fpir=target)
        threshold, achieved = searched.threshold, searched.fpir
        missed, n = searched.fnir, searched.n_nonmated
    if rule_of_three(n) > target:
        warnings.warn(
            f"{n} non-mated comparisons are too few for a rate of {target:g}: even "
            f"with no error among them it could be {rule_of_three(n):.2g} (rule of "
            f"three). Use at least {int(np.ceil(3.0 / target))}, or a higher target.",
            UserWarning,
            stacklevel=3,
        )
    if not np.isfinite(threshold):
        # Above all that was seen.
        threshold = float(np.nextafter(trials.nonmated.max(), np.inf))
    interval = binomial_interval(round(achieved * n), n)
    return Calibration(
        threshold=float(threshold),
        kind=kind,
        target=target,
        achieved=float(achieved),
        low=interval.low,
        high=interval.high,
        missed=float(missed) if n_mated else None,
        n_comparisons=n,
        n_mated=n_mated,
        source=source,
    )
