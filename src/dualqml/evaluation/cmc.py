# SPDX-License-Identifier: BSD-3-Clause
"""Closed-set identification: the rank of the true subject among all subjects."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml.exceptions import DualQMLError


def true_ranks(scores: ArrayLike, codes: ArrayLike) -> NDArray[np.int64]:
    """Compute the rank of the true subject of each probe; 1 is the best.

    Parameters
    ----------
    scores : array-like of shape (n_probes, n_subjects)
        Similarities. A missing score (NaN) is below all others.
    codes : array-like of int of shape (n_probes,)
        Column of the true subject of each probe.

    Returns
    -------
    ndarray of shape (n_probes,)
        Ranks. Of equal scores the first column is ahead, as in
        ``scores.argmax(axis=1)``. So a probe has rank 1 if and only if a decision
        for the largest score recognises it.

    Examples
    --------
    >>> from dualqml.evaluation import true_ranks
    >>> true_ranks([[0.9, 0.2, 0.5], [0.1, 0.7, 0.7]], [2, 1])
    array([2, 1])
    """
    values = np.asarray(scores, dtype=np.float64)
    own = np.asarray(codes)
    if values.ndim != 2 or own.shape != values.shape[:1]:
        raise DualQMLError(
            "scores must have a row for each probe and a column for each subject, and "
            f"codes an integer for each probe; got {values.shape} and {own.shape}"
        )
    if own.size and (own.min() < 0 or own.max() >= values.shape[1]):
        raise DualQMLError(
            f"codes must be columns of scores, 0 to {values.shape[1] - 1}; got "
            f"{own.min()} to {own.max()}"
        )
    missing = np.isnan(values)
    true = np.take_along_axis(values, own[:, None], axis=1)
    before = np.arange(values.shape[1]) < own[:, None]
    # No comparison with NaN is true, so missing scores are never ahead. If the score
    # of the true subject itself is missing, all others are ahead of it, and of the
    # missing ones those in earlier columns.
    ahead = (values > true) | ((values == true) & before)
    ahead |= np.isnan(true) & (~missing | before)
    return np.asarray(1 + ahead.sum(axis=1))


def cmc_curve(
    scores: ArrayLike, codes: ArrayLike, *, max_rank: int | None = None
) -> NDArray[np.float64]:
    """Compute the cumulative match characteristic.

    Parameters
    ----------
    scores : array-like of shape (n_probes, n_subjects)
        Similarities.
    codes : array-like of int of shape (n_probes,)
        Column of the true subject of each probe.
    max_rank : int, optional
        The last rank; by default the number of subjects.

    Returns
    -------
    ndarray of shape (max_rank,)
        Share of the probes whose true subject is among the first k, for k = 1, 2
        and so on.

    Examples
    --------
    >>> from dualqml.evaluation import cmc_curve
    >>> cmc_curve([[0.9, 0.2, 0.5], [0.1, 0.8, 0.7]], [2, 1])
    array([0.5, 1. , 1. ])
    """
    ranks = true_ranks(scores, codes)
    if ranks.size == 0:
        raise DualQMLError("There are no probes: a CMC curve needs at least one")
    n_subjects = np.asarray(scores).shape[1]
    last = n_subjects if max_rank is None else min(max_rank, n_subjects)
    counts = np.bincount(ranks, minlength=last + 1)[1 : last + 1]
    return np.asarray(np.cumsum(counts) / ranks.size)
