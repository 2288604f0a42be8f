# SPDX-License-Identifier: BSD-3-Clause
"""Verification: how often one-to-one comparisons err at a threshold.

Terms are those of ISO/IEC 19795-1. Scores are similarities and a comparison is a
match if ``score >= threshold``. Of the mated comparisons (both samples of one
subject) those that do not match are false non-matches; of the non-mated ones those
that match are false matches.

A missing score (NaN: a sample could not be acquired or enrolled, or the comparison
failed) never matches. So a missing mated score is an error at every threshold and a
missing non-mated score at none, and both stay in the denominators. ISO/IEC 19795-1
calls rates over completed comparisons FMR and FNMR, and those with failures FAR and
FRR; leave the missing scores out to get the former.
"""

from dataclasses import dataclass
from math import copysign, inf, nan, nextafter

import numpy as np
from numpy.typing import ArrayLike

from dualqml._typing import Array
from dualqml.evaluation._scores import as_scores, as_share

#: By how much of itself a threshold is above a score that nothing is above.
_ABOVE_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Error rates at all thresholds at which they change.

    Attributes
    ----------
    thresholds : ndarray of shape (n_thresholds,)
        All distinct scores, rising; at the first, all scores match. The last is
        infinity, where nothing matches. If a score is itself +inf, no number is
        above it and the last threshold is NaN, which no score reaches.
    fmr : ndarray of shape (n_thresholds,)
        False match rate at each threshold, falling to 0.
    fnmr : ndarray of shape (n_thresholds,)
        False non-match rate at each threshold, rising to 1.
    n_missing_mated, n_missing_nonmated : int
        How many of the scores were missing.
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
        Number of comparisons, missing ones too.
    n_missing_mated, n_missing_nonmated : int
        How many of them had no score.
    """

    threshold: float
    fmr: float
    fnmr: float
    n_mated: int
    n_nonmated: int
    n_missing_mated: int = 0
    n_missing_nonmated: int = 0


def error_curve(mated: ArrayLike, nonmated: ArrayLike) -> ErrorCurve:
    """Error rates as exact step functions of the threshold.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of one subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of two subjects.

    Returns
    -------
    ErrorCurve
        The rates. Between two neighbouring thresholds they are those at the higher
        of the two.

    Raises
    ------
    ScoreError
        There are no scores of a kind, or they are not numbers.

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
    # NaN is sorted last; one more than the missing ones stands above all scores.
    merged = np.concatenate([own, other, [np.nan]])
    merged.sort()
    n_present = int(np.searchsorted(merged, np.nan))
    is_new = np.ones(n_present + 1, dtype=bool)
    np.not_equal(merged[1 : n_present + 1], merged[:n_present], out=is_new[1:])
    # Where a distinct score comes first is how many scores are below it.
    below = np.flatnonzero(is_new)
    thresholds = merged[below]
    # Only the mated scores, usually the fewer, are looked up among the thresholds.
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
    """Rate at which false matches and false non-matches are as frequent.

    Step functions need not be equal at any threshold. Between the two neighbouring
    thresholds where the FNMR overtakes the FMR both are interpolated linearly: these
    are the rates if the one or the other threshold is used at random. The result is
    the smallest rate that neither error rate need exceed, and exists always; where
    missing scores keep the FNMR above the FMR at every threshold, it is the FNMR at
    the lowest.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of one subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of two subjects.

    Returns
    -------
    float
        The rate: 0 if all mated scores are above all others, 0.5 if all scores are
        equal, 1 if all mated scores are below all others.

    Raises
    ------
    ScoreError
        There are no scores of a kind, or they are not numbers.

    Examples
    --------
    >>> from dualqml.evaluation import equal_error_rate
    >>> equal_error_rate([0.9, 0.8, 0.3, 0.7], [0.1, 0.4, 0.2, 0.2])
    0.25
    """
    curve = error_curve(mated, nonmated)
    # Each distinct score moves one of the rates, so this rises strictly, to 1.
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
    """The threshold that lets no more than a share of scores through.

    Let r be the highest score that must not match: those that are r or more are
    more than the share. Any threshold above r keeps the rate, and all up to the
    next score u above it, of either kind, have the same errors on these scores.
    The threshold is the middle between r and u. It is not u, since the gap above r
    may be wide where scores are few, and whoever is a little below the one person
    at its end would be rejected; and it is not r, since a score a little above those
    seen would match.

    Where no score is above r, nothing tells how far up to go: the threshold is just
    above r, by a billionth of it, which is more than scores differ by rounding.
    Where all scores may match, it is the lowest of them. A higher rate never gives a
    higher threshold, nor does the order of scores matter; ties are not split.

    Parameters
    ----------
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of two subjects, or of searches of strangers.
    rate : float
        The largest share of them that may match.
    others : array-like of shape (n_others,), optional
        Scores that should match. They move the threshold within the gap between
        two scores of `nonmated` only.

    Returns
    -------
    float
        The threshold. It is infinite if all scores are missing, and NaN, which
        rejects all, if too many are +inf for any number to reject them.

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
    # Shares are compared as they are measured, without rounding of the product.
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


def _just_above(score: float) -> float:
    if score == inf:
        return nan
    return max(nextafter(score, inf), score * (1.0 + copysign(_ABOVE_ROUNDING, score)))


def _middle(low: float, high: float) -> float:
    # By halves: the sum may overflow.
    middle = min(low / 2.0 + high / 2.0, high)
    # Infinite or neighbouring numbers have nothing between.
    return middle if middle > low else high


def fnmr_at_fmr(
    mated: ArrayLike, nonmated: ArrayLike, *, fmr: float = 1e-3
) -> OperatingPoint:
    """False non-match rate where false matches are rare enough.

    The threshold is that of `threshold_for_rate`. It has the lowest FNMR among those
    whose FMR is not above the target on these scores, whatever the ties.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of one subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of two subjects. A target below 1 / n_nonmated asks
        for no false match at all.
    fmr : float, default=1e-3
        The largest false match rate allowed.

    Returns
    -------
    OperatingPoint
        The threshold and the rates there. The threshold is NaN, which rejects all,
        if too many non-mated scores are +inf for any number to reject them.

    Raises
    ------
    ScoreError
        There are no scores of a kind, or the target is not from 0 to 1.

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
    """Error rates at a threshold chosen beforehand, best on other subjects.

    Parameters
    ----------
    mated : array-like of shape (n_mated,)
        Similarities of pairs of one subject.
    nonmated : array-like of shape (n_nonmated,)
        Similarities of pairs of two subjects.
    threshold : float
        A comparison is a match if its score is this or more. At NaN, the threshold
        of the point where nothing matches (see `ErrorCurve`), nothing does.

    Returns
    -------
    OperatingPoint
        The rates there.

    Raises
    ------
    ScoreError
        There are no scores of a kind, or they are not numbers.

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
