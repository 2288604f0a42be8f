# SPDX-License-Identifier: BSD-3-Clause
"""Splits of a database into images for training and images for test."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml.exceptions import DatabaseError


@dataclass(frozen=True, eq=False)
class Split:
    """A split of the images of a database.

    Attributes
    ----------
    train, test : ndarray of int
        Rows to learn from and rows to recognise, in ascending order.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change if any row of the split changes."""
        digest = hashlib.sha256()
        for rows in (self.train, self.test):
            digest.update(np.asarray(rows, dtype="<i8").tobytes() + b"|")
        return digest.hexdigest()[:16]


def random_split(labels: ArrayLike, m: int, seed: int | list[int]) -> Split:
    """Take m random images of each subject for training, the rest for test.

    This is the paper's protocol. A subject with m images or fewer keeps one image
    for test; the others are for training. A subject with a single image has it in
    the training set and none in the test set.

    Parameters
    ----------
    labels : array-like of shape (n_images,)
        The subject of each image.
    m : int
        Number of training images of each subject.
    seed : int or list of int
        Seed of NumPy's default generator.

    Returns
    -------
    Split
        The rows.

    Raises
    ------
    DatabaseError
        There is only one subject, or no subject has more than m images.

    Examples
    --------
    >>> from dualqml.data import random_split
    >>> split = random_split(["Ann", "Ann", "Ann", "Zoe", "Zoe"], 2, seed=0)
    >>> split.train.size, split.test.size
    (3, 2)
    """
    if m < 1:
        raise DatabaseError(f"m must be at least 1 training image, got {m}")
    subjects, codes, counts = _count_subjects(labels)
    if counts.max() <= m:
        raise DatabaseError(
            f"m={m} leaves nothing to test: the subjects have at most {counts.max()} "
            f"images. Choose m below {counts.max()}."
        )
    rng = np.random.default_rng(seed)
    train = []
    for code in range(subjects.size):
        own = rng.permutation(np.flatnonzero(codes == code))
        train.append(own[: max(1, min(m, own.size - 1))])
    return _split_at(np.concatenate(train), codes.size)


def visit_split(
    labels: ArrayLike, visits: ArrayLike | None, train_visits: Collection[int] = (1,)
) -> Split:
    """Train on some visits, test on the others.

    This is harder than a random split, and closer to real use: between visits
    people, light and sensors change. Subjects without an image of a training visit
    are left out.

    Parameters
    ----------
    labels : array-like of shape (n_images,)
        The subject of each image.
    visits : array-like of shape (n_images,) or None
        The visit of each image.
    train_visits : collection of int, default=(1,)
        The visits to train on.

    Returns
    -------
    Split
        The rows.

    Raises
    ------
    DatabaseError
        The visits are not known, or fewer than two subjects are left to train on,
        or no image is left to test.

    Examples
    --------
    >>> from dualqml.data import visit_split
    >>> visit_split(["Ann", "Ann", "Zoe", "Zoe"], [1, 2, 1, 2]).test
    array([1, 3])
    """
    if visits is None:
        raise DatabaseError(
            "The visits of this database are not known; use the random protocol"
        )
    _, codes, _ = _count_subjects(labels)
    chosen = np.isin(np.asarray(visits), list(train_visits))
    known = np.unique(codes[chosen])
    if known.size < 2:
        raise DatabaseError(
            f"Training on visits {sorted(train_visits)} leaves {known.size} subjects; "
            f"the visits are {sorted(set(np.asarray(visits).tolist()))}"
        )
    test = np.flatnonzero(~chosen & np.isin(codes, known))
    if test.size == 0:
        raise DatabaseError(
            f"All images are of the training visits {sorted(train_visits)}: nothing is "
            "left to test"
        )
    return Split(np.flatnonzero(chosen), test)


def fixed_split(labels: ArrayLike, train: ArrayLike) -> Split:
    """Train on given rows, test on all others.

    Parameters
    ----------
    labels : array-like of shape (n_images,)
        The subject of each image.
    train : array-like of int
        Rows of the training images, without repetition.

    Returns
    -------
    Split
        The rows; images of subjects without a training image are left out.

    Raises
    ------
    DatabaseError
        A row does not exist or is given twice, or nothing is left to train or test
        on.

    Examples
    --------
    >>> from dualqml.data import fixed_split
    >>> fixed_split(["Ann", "Ann", "Zoe", "Zoe"], [0, 2]).test
    array([1, 3])
    """
    _, codes, _ = _count_subjects(labels)
    rows = np.asarray(train)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise DatabaseError("The training rows must be a non-empty list of integers")
    if rows.min() < 0 or rows.max() >= codes.size:
        raise DatabaseError(
            f"Training rows must be from 0 to {codes.size - 1}; they are from "
            f"{rows.min()} to {rows.max()}"
        )
    if np.unique(rows).size < rows.size:
        raise DatabaseError("A training row is there twice")
    split = _split_at(rows, codes.size)
    known = np.unique(codes[split.train])
    test = split.test[np.isin(codes[split.test], known)]
    if known.size < 2 or test.size == 0:
        raise DatabaseError(
            f"The split has {known.size} subjects to train on and {test.size} images "
            "of them to test; two and one are the least"
        )
    return Split(split.train, test)


def _count_subjects(
    labels: ArrayLike,
) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.int64]]:
    """Return the subjects, the index of each image's subject, and their counts."""
    subjects, codes, counts = np.unique(
        np.asarray(labels), return_inverse=True, return_counts=True
    )
    if subjects.size < 2:
        raise DatabaseError(
            f"Recognition needs at least two subjects; there is {subjects.size}"
        )
    return subjects, codes, counts


def _split_at(train: NDArray[np.int64], n_images: int) -> Split:
    """Return the split with these training rows and all others for test."""
    is_train = np.zeros(n_images, dtype=bool)
    is_train[train] = True
    return Split(np.flatnonzero(is_train), np.flatnonzero(~is_train))
