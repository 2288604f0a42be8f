# SPDX-License-Identifier: BSD-3-Clause
"""Cross-validation folds for classes of few samples."""

from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from dualqml.core.arrays import Array, Index


@dataclass(frozen=True)
class RecognitionFold:
    """A fold that imitates recognition: what to learn from, whom to know, whom to ask.

    Attributes
    ----------
    train : ndarray of int
        Samples to learn a metric or features from: all that are not held out,
        in rising order.
    gallery : ndarray of int
        Those of them to compare with, every class one sample short.
    held_out : ndarray of int
        The samples to recognise.
    """

    train: Index
    gallery: Index
    held_out: Index

    @property
    def galleries(self) -> list[Index]:
        """The gallery, and the whole training set where that is much larger.

        Neither is what the final model will have. In the first every class is
        one sample short, which is fair but asks for more regularisation than
        the final model needs; in the second only the class of the probe is.
        Parameters do best on the average of both, while a choice between rules
        that compare different things should be fair.
        """
        if self.gallery.size > 0.9 * self.train.size:
            return [self.gallery]
        return [self.gallery, self.train]


#: Deal folds again until so many samples were held out, but not too often; and
#: leave the rest of the folds when they were.
_ENOUGH_PROBES = 400
_MOST_DEALS = 4


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


def recognition_folds(
    codes: Index, random_state: int | np.random.RandomState | None
) -> list[RecognitionFold]:
    """Folds in which every class has lost a sample from the gallery.

    Where the class of a probe has one sample less than the others, scores that
    grow with the number of samples are judged wrongly; with two samples a
    class the fault is large. So each class of several samples that lost none
    to the fold leaves out one at random from the gallery. It stays among the
    samples to learn from.

    Ten folds where classes have two samples, else five. Few probes judge badly
    and very many cost time: folds are dealt anew until some hundreds of samples
    have been held out, and the rest of them is left when there are enough.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Class of each sample, 0 to n_classes - 1.
    random_state : int, RandomState instance or None
        Source of the shuffles.

    Returns
    -------
    list of RecognitionFold
        The folds.
    """
    rng = check_random_state(random_state)
    counts = np.bincount(codes)
    n_folds = 10 if np.median(counts) <= 2 else 5
    n_deals = _MOST_DEALS if codes.size <= _ENOUGH_PROBES // 2 else 1
    folds: list[RecognitionFold] = []
    n_probes = 0
    for _ in range(n_deals):
        for train, held_out in spread_folds(codes, n_folds, rng):
            if n_probes >= _ENOUGH_PROBES:
                return folds
            n_probes += held_out.size
            untouched = np.setdiff1d(np.flatnonzero(counts > 1), codes[held_out])
            shuffled = rng.permutation(train)
            _, first = np.unique(codes[shuffled], return_index=True)
            spared = shuffled[first][np.isin(codes[shuffled[first]], untouched)]
            folds.append(RecognitionFold(train, np.setdiff1d(train, spared), held_out))
    return folds


def rank_loss(scores: Array, codes: Index) -> Array:
    """Logarithm of the rank of the true class, 0 where it comes first.

    Far less noisy than the error rate: how badly a probe is missed counts too.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
        Similarities.
    codes : ndarray of shape (n_samples,)
        True classes.

    Returns
    -------
    ndarray of shape (n_samples,)
        ``log(1 + number of other classes with a score as large or larger)``: a
        tie is no recognition.
    """
    true = np.take_along_axis(scores, codes[:, None], axis=1)
    return np.asarray(np.log((scores >= true).sum(axis=1)))
