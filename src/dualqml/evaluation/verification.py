# SPDX-License-Identifier: BSD-3-Clause
"""Verification: error rates of one-to-one comparisons at a threshold.

The terms are those of ISO/IEC 19795-1. Scores are similarities and a comparison is a
match if ``score >= threshold``. A mated comparison (both samples of one subject) that
does not match is a false non-match. A non-mated comparison that matches is a false
match.

A missing score (NaN: a sample could not be acquired or enrolled, or the comparison
failed) never matches. So a missing mated score is an error at every threshold, and a
missing non-mated score at none. Both are counted in the denominators. ISO/IEC 19795-1
calls rates of completed comparisons FMR and FNMR, and rates that include failures FAR
and FRR. Leave out the missing scores to get the FMR and the FNMR of the standard.
"""

from dataclasses import dataclass
from math import copysign, inf, nan, nextafter

import numpy as np
from numpy.typing import ArrayLike

from dualqml._typing import Array
from dualqml.evaluation._scores import as_scores, as_share

#: How far a threshold is above the highest score, relative to that score.
_ABOVE_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Error rates at all thresholds where they change.

    Attributes
    ----------
    thresholds : ndarray of shape (n_thresholds,)
        All distinct scores in ascending order; at the first one, all scores match.
        The last threshold is infinity, where nothing matches. If a score is itself
        +inf, no number is above it. Then the last threshold is NaN, which no score
        reaches.
    fmr : ndarray of shape (n_thresholds,)
        False match rate at each threshold; it decreases to 0.
    fnmr : ndarray of shape (n_thresholds,)
        False non-match rate at each threshold; it increases to 1.
    n_missing_mated, n_missing_nonmated : int
        Number of missing scores.
    """

    thresholds: Array
    fmr: Array
    fnmr: Array
    n_missing_mated: int = 0
    n_missing_nonmated: int = 0


@dataclass(frozen=True)
class OperatingPoint:
    """Error rates at one threshold.

    Attributes
    ----------
    threshold : float
        A comparison is a match if ``score >= threshold``.
    fmr : float
        False match rate.
    fnmr : float
        False non-match rate.
    n_mated, n_nonmated : int
        Number of comparisons, including those without a score.
    n_missing_mated, n_missing_nonmated : int
        Number of comparisons without a score.
    """

    threshold: float
    fmr: float
    fnmr: float
    n_mated: int
    n_nonmated: int
    n_missing_mated: int = 0
    n_missing_nonmated: int = 0


def error_curve(mated: ArrayLike, nonmated: ArrayLike) -> ErrorCurve:
    """Compute error rates as exact step functions of the threshold.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of samples of the same subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of samples of different subjects.

    Returns
    -------
    ErrorCurve
        The rates. Between two neighbouring thresholds the rates are those of the
        higher one.

    Raises
    ------
    ScoreError
        There are no mated or no non-mated scores, or they are not numbers.

    Examples
    --------
    >>> from dualqml.evaluation import error_curve
    >>> curve = error_curve([0.9, 0.5], [0.5, 0.1])
    >>> curve.thresholds
    array([0.1, 0.5, 0.9, inf])
    >>> curve.fmr
    array([1. , 0.5, 0. , 0. ])
    >>> curve.fnmr
    array([0. , 0. , 0.5, 1. ])
    """
    own = as_scores(mated, "mated")
    other = as_scores(nonmated, "nonmated")
    # NaN is sorted last. The one added here is the threshold above all scores.
    merged = np.concatenate([own, other, [np.nan]])
    merged.sort()
    n_present = int(np.searchsorted(merged, np.nan))
    is_new = np.ones(n_present + 1, dtype=bool)
    np.not_equal(merged[1 : n_present + 1], merged[:n_present], out=is_new[1:])
    # The first place of a distinct score is the number of scores below it.
    below = np.flatnonzero(is_new)
    thresholds = merged[below]
    # Only the mated scores are looked up: there are usually fewer of them.
    own_missing = int(np.count_nonzero(np.isnan(own)))
    places = np.searchsorted(thresholds, np.sort(own)[: own.size - own_missing])
    own_below = np.cumsum(np.bincount(places + 1, minlength=below.size))
    matches = n_present - below
    matches -= own.size - own_missing - own_below
    if n_present == 0 or thresholds[-2] != np.inf:
        thresholds[-1] = np.inf
    return ErrorCurve(
        thresholds=thresholds,
        fmr=matches / other.size,
        fnmr=(own_missing + own_below) / own.size,
        n_missing_mated=own_missing,
        n_missing_nonmated=own.size + other.size - n_present - own_missing,
    )


def equal_error_rate(mated: ArrayLike, nonmated: ArrayLike) -> float:
    """Compute the rate at which the FMR and the FNMR are equal.

    Step functions may not be equal at any threshold. Between the two neighbouring
    thresholds where the FNMR becomes larger than the FMR, both are interpolated
    linearly. These are the rates if one of the two thresholds is chosen at random.
    The result always exists. It is the smallest value that both error rates can keep
    to. If missing scores keep the FNMR above the FMR at every threshold, it is the
    FNMR at the lowest threshold.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of samples of the same subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of samples of different subjects.

    Returns
    -------
    float
        The rate: 0 if all mated scores are above all others, 0.5 if all scores are
        equal, 1 if all mated scores are below all others.

    Raises
    ------
    ScoreError
        There are no mated or no non-mated scores, or they are not numbers.

    Examples
    --------
    >>> from dualqml.evaluation import equal_error_rate
    >>> equal_error_rate([0.9, 0.8, 0.3, 0.7], [0.1, 0.4, 0.2, 0.2])
    0.25
    """
    curve = error_curve(mated, nonmated)
    # Each distinct score changes one of the rates, so this increases strictly, to 1.
    excess = curve.fnmr - curve.fmr
    after = int(np.argmax(excess >= 0.0))
    if after == 0:
        return float(curve.fnmr[0])
    before = after - 1
    share = excess[before] / (excess[before] - excess[after])
    step = curve.fnmr[after] - curve.fnmr[before]
    return float(curve.fnmr[before] + share * step)


def threshold_for_rate(
    nonmated: ArrayLike, rate: float, *, others: ArrayLike | None = None
) -> float:
    """Compute the threshold at which at most a given share of scores matches.

    Let r be the highest score that must not match: at the threshold r more than the
    allowed share would match. Any threshold above r keeps the rate. All thresholds
    from r to the next higher score u, of either kind, have the same errors on these
    scores. The result is the middle between r and u. It is not u: with few scores
    the gap above r may be wide, and new samples a little below u would be rejected.
    It is not r either: new scores a little above r would match.

    If no score is above r, the gap has no upper end. Then the threshold is just above
    r, by a billionth of it, which is more than rounding changes scores. If all scores
    may match, the threshold is the lowest of them. A higher rate never gives a higher
    threshold. The order of the scores does not matter, and equal scores are never
    separated.

    Parameters
    ----------
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of samples of different subjects, or of searches of
        strangers.
    rate : float
        The largest share of them that may match.
    others : array-like of shape (n_others,), optional
        Scores that should match. They change the threshold only within the gap
        between two scores of `nonmated`.

    Returns
    -------
    float
        The threshold. It is infinite if all scores are missing. It is NaN, which
        rejects all, if too many scores are +inf, which no number rejects.

    Raises
    ------
    ScoreError
        There are no scores, or the rate is not from 0 to 1.

    Examples
    --------
    >>> from dualqml.evaluation import threshold_for_rate
    >>> strangers = [0.125, 0.25, 0.375, 0.75]
    >>> threshold_for_rate(strangers, 0.25)
    0.5625
    >>> threshold_for_rate(strangers, 0.25, others=[0.625, 0.9])
    0.5
    """
    target = as_share(rate, "rate")
    other = as_scores(nonmated, "nonmated")
    own = np.empty(0) if others is None else as_scores(others, "others")
    scores = np.sort(other[~np.isnan(other)])
    both = np.concatenate([scores, own[~np.isnan(own)]])
    # Shares are compared in the way they are measured, since the product is rounded.
    allowed = min(int(target * other.size) + 1, other.size)
    while allowed / other.size > target:
        allowed -= 1
    if allowed >= scores.size:
        return float(both.min(initial=np.inf))
    refused = float(scores[scores.size - allowed - 1])
    above = both[both > refused]
    if above.size == 0:
        return _just_above(refused)
    return _middle(refused, float(above.min()))


def fnmr_at_fmr(
    mated: ArrayLike, nonmated: ArrayLike, *, fmr: float = 1e-3
) -> OperatingPoint:
    """Compute the false non-match rate at a limit of the false match rate.

    The threshold is that of `threshold_for_rate`. It has the lowest FNMR of all
    thresholds whose FMR on these scores is at most the target.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of samples of the same subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of samples of different subjects. A target below
        1 / n_nonmated allows no false match at all.
    fmr : float, default=1e-3
        The largest false match rate allowed.

    Returns
    -------
    OperatingPoint
        The threshold and its rates. The threshold is NaN, which rejects all, if too
        many non-mated scores are +inf, which no number rejects.

    Raises
    ------
    ScoreError
        There are no mated or no non-mated scores, or the target is not from 0 to
        1.

    Examples
    --------
    >>> from dualqml.evaluation import fnmr_at_fmr
    >>> point = fnmr_at_fmr([0.9, 0.8, 0.3, 0.75], [0.1, 0.5, 0.2, 0.2], fmr=0.1)
    >>> point.threshold, point.fmr, point.fnmr
    (0.625, 0.0, 0.25)
    """
    own = as_scores(mated, "mated")
    threshold = threshold_for_rate(nonmated, as_share(fmr, "fmr"), others=own)
    return rates_at_threshold(own, nonmated, threshold)


def rates_at_threshold(
    mated: ArrayLike, nonmated: ArrayLike, threshold: float
) -> OperatingPoint:
    """Compute error rates at a threshold that was chosen before.

    Choose the threshold on other subjects to get honest rates.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of samples of the same subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of samples of different subjects.
    threshold : float
        A comparison is a match if its score is at least this. With NaN, which
        `ErrorCurve` may have as its last threshold, nothing matches.

    Returns
    -------
    OperatingPoint
        The rates at this threshold.

    Raises
    ------
    ScoreError
        There are no mated or no non-mated scores, or they are not numbers.

    Examples
    --------
    >>> from dualqml.evaluation import rates_at_threshold
    >>> point = rates_at_threshold([0.9, 0.5], [0.5, 0.1], 0.5)
    >>> point.fmr, point.fnmr
    (0.5, 0.0)
    """
    own = as_scores(mated, "mated")
    other = as_scores(nonmated, "nonmated")
    return OperatingPoint(
        threshold=float(threshold),
        fmr=float(np.count_nonzero(other >= threshold) / other.size),
        fnmr=float(np.count_nonzero(~(own >= threshold)) / own.size),
        n_mated=own.size,
        n_nonmated=other.size,
        n_missing_mated=int(np.count_nonzero(np.isnan(own))),
        n_missing_nonmated=int(np.count_nonzero(np.isnan(other))),
    )


def _just_above(score: float) -> float:
    if score == inf:
        return nan
    return max(nextafter(score, inf), score * (1.0 + copysign(_ABOVE_ROUNDING, score)))


def _middle(low: float, high: float) -> float:
    # Halved before the sum, which could overflow.
    middle = min(low / 2.0 + high / 2.0, high)
    # Between infinite or neighbouring numbers there is no other number.
    return middle if middle > low else high
