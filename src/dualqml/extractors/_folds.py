# SPDX-License-Identifier: BSD-3-Clause
"""Cross-validation folds for classes of few samples."""

import numpy as np
from sklearn.utils import check_random_state

from dualqml.core.arrays import Index


def spread_folds(
    codes: Index, n_folds: int, random_state: int | np.random.RandomState | None
) -> list[tuple[Index, Index]]:
    """Random folds of equal size that keep a class's samples apart.

    The samples of a class go to different folds as far as possible, so that a
    class of two samples is never left out of training. A class of one sample
    cannot be recognised without it: such samples are never held out.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Class of each sample, 0 to n_classes - 1.
    n_folds : int
        Number of folds wanted; no more are made than there are samples that
        can be held out, and fewer than two folds are an error.
    random_state : int, RandomState instance or None
        Source of the shuffle.

    Returns
    -------
    list of (train, held_out)
        Index arrays, one pair for each fold.
    """
    rng = check_random_state(random_state)
    counts = np.bincount(codes)
    shuffled = rng.permutation(codes.size)
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    order = order[counts[codes[order]] > 1]
    n_folds = min(n_folds, order.size)
    if n_folds < 2:
        raise ValueError(
            "Cross-validation needs a class with at least 2 samples; every class "
            "has one. Choose lam yourself and use DualQMLClassifier."
        )
    # Dealt out in class order like cards: consecutive samples of one class
    # land in different folds.
    fold = np.full(codes.size, -1)
    fold[order] = np.arange(order.size) % n_folds
    return [
        (np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)
    ]
