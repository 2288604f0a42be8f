# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all measures share: what scores and rates may be."""

import numpy as np
from numpy.typing import ArrayLike

from dualqml._typing import Array
from dualqml.exceptions import ScoreError


def as_scores(scores: ArrayLike, name: str) -> Array:
    """Scores of comparisons as a vector of at least one number, NaN or infinity.

    Parameters
    ----------
    scores : array-like of shape (n_comparisons,)
        What the caller was given.
    name : str
        Its name, for messages.

    Returns
    -------
    ndarray of shape (n_comparisons,)
        The scores.

    Raises
    ------
    ScoreError
        They are not a list of numbers, or there are none.
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
    """Scores of searches as a matrix with a row a search and a column a subject.

    Parameters
    ----------
    scores : array-like of shape (n_searches, n_subjects)
        What the caller was given.
    name : str
        Its name, for messages.

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
    """A number from 0 to 1.

    Parameters
    ----------
    value : float
        What the caller was given.
    name : str
        Its name, for messages.
    open_ends : bool, default=False
        Whether 0 and 1 themselves are refused.

    Returns
    -------
    float
        The number.

    Raises
    ------
    ScoreError
        It is not in the range; a rate in per cent is the usual reason.
    """
    inside = 0.0 < value < 1.0 if open_ends else 0.0 <= value <= 1.0
    if not inside:
        rim = "between 0 and 1" if open_ends else "from 0 to 1"
        raise ScoreError(f"{name} must be {rim}, a share and not per cent; got {value}")
    return float(value)


def _as_numbers(scores: ArrayLike, name: str) -> Array:
    values = np.asarray(scores)
    if values.dtype.kind == "O":
        # A list with None among the numbers arrives as objects.
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ScoreError(f"{name} must be numbers: {error}") from error
    if values.dtype.kind not in "biuf":
        raise ScoreError(f"{name} must be real numbers; they are {values.dtype}")
    return values.astype(np.float64, copy=False)
