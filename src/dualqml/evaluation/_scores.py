# SPDX-License-Identifier: BSD-3-Clause
"""Checks of scores and rates that all measures share."""

import numpy as np
from numpy.typing import ArrayLike

from dualqml._typing import Array
from dualqml.exceptions import ScoreError


def as_scores(scores: ArrayLike, name: str) -> Array:
    """Check scores of comparisons: a vector of at least one value.

    NaN and infinity are allowed.

    Parameters
    ----------
    scores : array-like of shape (n_comparisons,)
        Argument of the caller.
    name : str
        Name of the argument in messages.

    Returns
    -------
    ndarray of shape (n_comparisons,)
        The scores.

    Raises
    ------
    ScoreError
        They are not a list of numbers, or the list is empty.
    """
    values = _as_numbers(scores, name)
    if values.ndim != 1:
        raise ScoreError(
            f"{name} must be a list with a score for each comparison; its shape is "
            f"{values.shape}. Flatten it, for example with .ravel()."
        )
    if values.size == 0:
        raise ScoreError(f"There are no scores in {name}: at least one is needed")
    return values


def as_score_rows(scores: ArrayLike, name: str) -> Array:
    """Check scores of searches: one row per search and one column per subject.

    Parameters
    ----------
    scores : array-like of shape (n_searches, n_subjects)
        Argument of the caller.
    name : str
        Name of the argument in messages.

    Returns
    -------
    ndarray of shape (n_searches, n_subjects)
        The scores.

    Raises
    ------
    ScoreError
        They are not a matrix of numbers, or it is empty.
    """
    values = _as_numbers(scores, name)
    if values.ndim != 2 or values.size == 0:
        raise ScoreError(
            f"{name} must have a row for each search and a column for each subject, "
            f"at least one of both; its shape is {values.shape}"
        )
    return values


def as_share(value: float, name: str, *, open_ends: bool = False) -> float:
    """Check a number from 0 to 1.

    Parameters
    ----------
    value : float
        Argument of the caller.
    name : str
        Name of the argument in messages.
    open_ends : bool, default=False
        Whether 0 and 1 are not allowed.

    Returns
    -------
    float
        The number.

    Raises
    ------
    ScoreError
        It is not in the range; the usual reason is a rate in per cent.
    """
    inside = 0.0 < value < 1.0 if open_ends else 0.0 <= value <= 1.0
    if not inside:
        allowed = "between 0 and 1" if open_ends else "from 0 to 1"
        raise ScoreError(
            f"{name} must be {allowed}, a share and not per cent; got {value}"
        )
    return float(value)


def _as_numbers(scores: ArrayLike, name: str) -> Array:
    values = np.asarray(scores)
    if values.dtype.kind == "O":
        # NumPy makes objects of a list with numbers and None.
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ScoreError(f"{name} must be numbers: {error}") from error
    if values.dtype.kind not in "biuf":
        raise ScoreError(f"{name} must be real numbers; they are {values.dtype}")
    return values.astype(np.float64, copy=False)
