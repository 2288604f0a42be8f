# SPDX-License-Identifier: BSD-3-Clause
"""Confidence intervals of measured error rates.

Counts of independent trials have the exact binomial interval. Scores of one subject
are not independent. If there are many scores per subject, the interval is found by
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
    """A measured value and its confidence interval.

    Attributes
    ----------
    estimate : float
        The measured value.
    low, high : float
        Ends of the interval.
    confidence : float
        Probability with which such intervals contain the true value.
    """

    estimate: float
    low: float
    high: float
    confidence: float


def rule_of_three(n: int) -> float:
    """Bound the error rate, with 95 % confidence, if n trials had no error.

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
    """Compute the exact interval of Clopper and Pearson for independent trials.

    Parameters
    ----------
    k : int
        Number of errors.
    n : int
        Number of trials.
    confidence : float, default=0.95
        Least probability with which the interval contains the true rate.

    Returns
    -------
    Interval
        The rate k / n and its interval.

    Raises
    ------
    ScoreError
        There is no trial, the errors are not from 0 to n, or the confidence is not
        between 0 and 1.

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
    # One minus the low end for the successes: SciPy 1.11 has no betainccinv.
    high = 1.0 if k == n else 1.0 - float(betaincinv(n - k, k + 1, tail))
    return Interval(k / n, low, high, confidence)


def bootstrap_interval(
    statistic: Callable[..., float],
    *groups: tuple[ArrayLike, ...],
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> Interval:
    """Compute the interval of a measure by resampling subjects with their scores.

    Subjects are drawn with replacement, as many as there are. The measure is computed
    from the scores of the drawn subjects, each repeated as often as its subject was
    drawn. The ends of the interval are percentiles of the measures of many draws.

    Parameters
    ----------
    statistic : callable
        The measure: a function that takes the arrays of all groups, in order, and
        returns a number. It must not depend on the order of the rows.
    *groups : tuples of arrays
        Each tuple has one or more arrays with the same number of rows, such as
        scores and codes, and as its last array the subject of each row. Groups with
        a subject in common are resampled together, others separately. If a row
        compares two subjects, its subjects may be two columns: the subject of the
        probe and that of the reference. The row is then repeated as many times as
        the product of the two numbers of draws.
    n_resamples : int, default=1000
        Number of draws.
    confidence : float, default=0.95
        Probability with which the interval should contain the true value.
    random_state : int, Generator or None, default=0
        Seed or generator of the draws.

    Returns
    -------
    Interval
        The measure of the scores given, and its interval.

    Raises
    ------
    ScoreError
        The shapes of the arrays do not match, the statistic is not a number, or a
        group has only one subject, so that differences between subjects are not
        known.

    Notes
    -----
    A draw that leaves a group without rows is repeated. If no error was measured,
    there is none in any draw, and the interval [0, 0] is useless: use `rule_of_three`
    with the number of subjects instead.

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
    rows, codes, pools = _checked_groups(groups)
    rng = np.random.default_rng(random_state)
    estimate = _measure(statistic, [array for group in rows for array in group])
    values = np.empty(n_resamples)
    for draw in range(n_resamples):
        sample: list[NDArray[np.generic]] = []
        for arrays, repeats in zip(
            rows, _draw_subjects(codes, pools, rng), strict=True
        ):
            taken = np.repeat(np.arange(repeats.size), repeats)
            sample.extend(array[taken] for array in arrays)
        values[draw] = _measure(statistic, sample)
    # The ends are measures of draws, not interpolated, so they may be infinite.
    low = float(np.quantile(values, tail, method="lower"))
    high = float(np.quantile(values, 1.0 - tail, method="higher"))
    return Interval(estimate, low, high, confidence)


def _checked_groups(
    groups: tuple[tuple[ArrayLike, ...], ...],
) -> tuple[list[list[NDArray[np.generic]]], list[Counts], list[Counts]]:
    """Return the arrays of each group, the codes of their subjects, and the pools.

    A pool has the subjects that are drawn together.
    """
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


def _draw_subjects(
    codes: list[Counts], pools: list[Counts], rng: np.random.Generator
) -> list[Counts]:
    """Draw subjects once; return how often each row of each group is repeated."""
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


def _measure(
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
