# SPDX-License-Identifier: BSD-3-Clause
"""How sure a measured error rate is.

Counts of independent trials have the exact binomial interval. Scores of one subject
are not independent, so intervals of rates from many scores a subject are found by
resampling subjects.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import betaincinv

from dualqml.evaluation._scores import as_share
from dualqml.exceptions import ScoreError

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A measured value and the range in which the true one is likely to be.

    Attributes
    ----------
    estimate : float
        The measured value.
    low, high : float
        Ends of the range.
    confidence : float
        How often such ranges hold the true value, ideally.
    """

    estimate: float
    low: float
    high: float
    confidence: float


def rule_of_three(n: int) -> float:
    """Largest error rate, with 95 % confidence, where n trials had no error.

    Parameters
    ----------
    n : int
        Number of independent trials, such as different subjects.

    Returns
    -------
    float
        3 / n, at most 1.

    Raises
    ------
    ScoreError
        There is no trial.

    Examples
    --------
    >>> from dualqml.evaluation import rule_of_three
    >>> rule_of_three(300)
    0.01
    """
    if n < 1:
        raise ScoreError(f"n must be at least 1 trial; got {n}")
    return min(1.0, 3.0 / n)


def binomial_interval(k: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Exact interval of Clopper and Pearson for a rate of independent trials.

    Parameters
    ----------
    k : int
        Number of errors.
    n : int
        Number of trials.
    confidence : float, default=0.95
        How often the interval must at least hold the true rate.

    Returns
    -------
    Interval
        The rate k / n and its interval.

    Raises
    ------
    ScoreError
        The numbers are no count of errors, or the confidence is not between 0
        and 1.

    Examples
    --------
    >>> from dualqml.evaluation import binomial_interval
    >>> interval = binomial_interval(2, 100)
    >>> interval.estimate, round(interval.low, 4), round(interval.high, 4)
    (0.02, 0.0024, 0.0704)
    """
    if n < 1 or not 0 <= k <= n:
        raise ScoreError(
            f"There must be at least one trial, and errors from 0 to their number; "
            f"got k={k} and n={n}"
        )
    tail = (1.0 - as_share(confidence, "confidence", open_ends=True)) / 2.0
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    # The complement of the successes' low end: SciPy 1.11 has no betainccinv.
    high = 1.0 if k == n else 1.0 - float(betaincinv(n - k, k + 1, tail))
    return Interval(k / n, low, high, confidence)


def bootstrap_interval(
    statistic: Callable[..., float],
    *groups: tuple[ArrayLike, ...],
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> Interval:
    """Interval of a measure by resampling subjects, with all their scores.

    As many subjects as there are are drawn with replacement; the measure is taken
    of the scores of those drawn, as often as they were drawn; and the interval is
    that of the percentiles of the measures of many draws.

    Parameters
    ----------
    statistic : callable
        The measure: a function of the arrays of all groups, in order, to a number.
        It may not depend on the order of the rows.
    *groups : tuples of arrays
        Each has one or more arrays of as many rows, such as scores and codes, and
        last the subject of each row. Groups with a subject in common are resampled
        together, others apart. Where a row compares two subjects, the labels may
        have two columns, the subject of the probe and that of the reference; the
        row is then there as often as both were drawn together.
    n_resamples : int, default=1000
        Number of draws.
    confidence : float, default=0.95
        How often the interval should hold the true value.
    random_state : int, Generator or None, default=0
        Seed or generator of the draws.

    Returns
    -------
    Interval
        The measure of the scores given, and its interval.

    Raises
    ------
    ScoreError
        The arrays do not fit, the statistic is not a number, or a group has one
        subject only, from whom nothing is learned about others.

    Notes
    -----
    A draw that leaves a group without rows is drawn again. Where no error was
    measured, none is in any draw, and the interval [0, 0] means nothing: use
    `rule_of_three` with the number of subjects.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.evaluation import bootstrap_interval, equal_error_rate
    >>> rng = np.random.default_rng(0)
    >>> people = np.repeat(np.arange(50), 4)
    >>> mated, nonmated = rng.normal(2.0, 1.0, 200), rng.normal(0.0, 1.0, 200)
    >>> interval = bootstrap_interval(
    ...     equal_error_rate, (mated, people), (nonmated, people), n_resamples=200
    ... )
    >>> interval.low < interval.estimate < interval.high
    True

    The error at rank 1, and a point of a curve:

    >>> from dualqml.evaluation import cmc_curve, fnmr_at_fmr
    >>> scores, codes = np.eye(5)[people % 5] + rng.normal(size=(200, 5)), people % 5
    >>> rank_1 = bootstrap_interval(
    ...     lambda scores, codes: 1.0 - cmc_curve(scores, codes)[0],
    ...     (scores, codes, people),
    ...     n_resamples=200,
    ... )
    >>> fnmr = bootstrap_interval(
    ...     lambda mated, nonmated: fnmr_at_fmr(mated, nonmated, fmr=0.05).fnmr,
    ...     (mated, people),
    ...     (nonmated, people),
    ...     n_resamples=200,
    ... )
    """
    tail = (1.0 - as_share(confidence, "confidence", open_ends=True)) / 2.0
    if n_resamples < 1:
        raise ScoreError(f"n_resamples must be at least 1; got {n_resamples}")
    if not groups:
        raise ScoreError(
            "There are no groups: give a tuple (scores, subjects) for each argument "
            "of the statistic"
        )
    rows, codes, pools = _parsed(groups)
    rng = np.random.default_rng(random_state)
    estimate = _number(statistic, [array for group in rows for array in group])
    values = np.empty(n_resamples)
    for draw in range(n_resamples):
        sample: list[NDArray[np.generic]] = []
        for arrays, repeats in zip(rows, _draw(codes, pools, rng), strict=True):
            taken = np.repeat(np.arange(repeats.size), repeats)
            sample.extend(array[taken] for array in arrays)
        values[draw] = _number(statistic, sample)
    # Measures that were drawn, outward: no arithmetic, so infinite ones will do.
    low = float(np.quantile(values, tail, method="lower"))
    high = float(np.quantile(values, 1.0 - tail, method="higher"))
    return Interval(estimate, low, high, confidence)


def _parsed(
    groups: tuple[tuple[ArrayLike, ...], ...],
) -> tuple[list[list[NDArray[np.generic]]], list[Counts], list[Counts]]:
    """Arrays of each group, codes of their subjects, and subjects drawn together."""
    rows, labels = [], []
    for place, group in enumerate(groups):
        if not isinstance(group, tuple) or len(group) < 2:
            raise ScoreError(
                f"Group {place} must be a tuple of one or more arrays and the subject "
                "of each of their rows, such as (scores, subjects)"
            )
        *arrays, subjects = (np.asarray(array) for array in group)
        shapes = [array.shape for array in (*arrays, subjects)]
        if (
            len({shape[:1] for shape in shapes}) > 1
            or subjects.size == 0
            or subjects.shape[1:] not in ((), (2,))
            or subjects.ndim == 0
        ):
            raise ScoreError(
                f"The arrays of group {place} must have as many rows, at least one, "
                f"and its subjects one column or two; the shapes are {shapes}"
            )
        rows.append(arrays)
        labels.append(subjects.reshape(subjects.shape[0], -1))
    flat = np.concatenate([label.ravel() for label in labels])
    known, inverse = np.unique(flat, return_inverse=True)
    ends = np.cumsum([label.size for label in labels])[:-1]
    codes = [
        part.reshape(label.shape)
        for part, label in zip(np.split(inverse, ends), labels, strict=True)
    ]
    present = np.zeros((len(groups), known.size), dtype=bool)
    for place, code in enumerate(codes):
        present[place, code.ravel()] = True
        if present[place].sum() < 2:
            raise ScoreError(
                f"Group {place} has one subject only: how subjects differ cannot be "
                "told. For independent trials use binomial_interval."
            )
    shared = present.astype(np.int64) @ present.T.astype(np.int64)
    n_pools, pool_of_group = connected_components(shared, directed=False)
    pool_of_subject = pool_of_group[present.argmax(axis=0)]
    pools = [np.flatnonzero(pool_of_subject == pool) for pool in range(n_pools)]
    return rows, codes, pools


def _draw(
    codes: list[Counts], pools: list[Counts], rng: np.random.Generator
) -> list[Counts]:
    """How often each row of each group is there in one draw of the subjects."""
    drawn = np.zeros(sum(pool.size for pool in pools), dtype=np.int64)
    while True:
        for pool in pools:
            picks = rng.integers(pool.size, size=pool.size)
            drawn[pool] = np.bincount(picks, minlength=pool.size)
        repeats = []
        for code in codes:
            first, last = code[:, 0], code[:, -1]
            times = drawn[first]
            if code.shape[1] == 2:
                times = np.where(first == last, times, times * drawn[last])
            repeats.append(times)
        if all(times.any() for times in repeats):
            return repeats


def _number(
    statistic: Callable[..., float], sample: list[NDArray[np.generic]]
) -> float:
    value = statistic(*sample)
    try:
        number = float(value)
    except TypeError as error:
        raise ScoreError(
            f"The statistic must return a number; it returned {type(value).__name__}. "
            "Take one of its fields, for example fnmr_at_fmr(...).fnmr."
        ) from error
    if np.isnan(number):
        raise ScoreError("The statistic is NaN of a resample: it has no interval")
    return number
