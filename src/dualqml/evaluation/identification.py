# SPDX-License-Identifier: BSD-3-Clause
"""Open-set identification: searches for subjects who may not be enrolled.

The terms are those of ISO/IEC 19795-1. A search compares a probe with all enrolled
subjects and returns those with ``score >= threshold``, at most the first `rank` of
them. A mated search, of an enrolled subject, is an error if it does not return that
subject (FNIR). A non-mated search, of a stranger, is an error if it returns any
subject (FPIR).

A recogniser may rank candidates by one score and decide by another one whether the
search returns anything. The functions that end in ``_by_acceptance`` measure such
recognisers. A missing score (NaN) is below all others and is never returned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._typing import Array, Mask
from dualqml.evaluation._scores import as_score_rows, as_scores, as_share
from dualqml.evaluation.cmc import true_ranks
from dualqml.evaluation.verification import error_curve, fnmr_at_fmr
from dualqml.exceptions import ScoreError


@dataclass(frozen=True, eq=False)
class OpenSetCurve:
    """Error rates of searches at all thresholds where they change.

    Attributes
    ----------
    thresholds : ndarray of shape (n_thresholds,)
        The distinct scores that decide, in ascending order, and then infinity, where
        nothing is returned (NaN if a score is itself +inf, as in `ErrorCurve`).
    fpir : ndarray of shape (n_thresholds,)
        False-positive identification rate at each threshold; it decreases to 0.
    fnir : ndarray of shape (n_thresholds,)
        False-negative identification rate at each threshold; it increases to 1.
    n_missing_mated, n_missing_nonmated : int
        Number of searches without any score.
    """

    thresholds: Array
    fpir: Array
    fnir: Array
    n_missing_mated: int = 0
    n_missing_nonmated: int = 0


@dataclass(frozen=True)
class OpenSetPoint:
    """Error rates of searches at one threshold.

    Attributes
    ----------
    threshold : float
        Candidates are returned if ``score >= threshold``.
    fpir : float
        False-positive identification rate.
    fnir : float
        False-negative identification rate.
    n_mated, n_nonmated : int
        Number of searches, including those without any score.
    n_missing_mated, n_missing_nonmated : int
        Number of searches without any score.
    """

    threshold: float
    fpir: float
    fnir: float
    n_mated: int
    n_nonmated: int
    n_missing_mated: int = 0
    n_missing_nonmated: int = 0


def open_set_curve(
    mated_scores: ArrayLike,
    mated_codes: ArrayLike,
    nonmated_scores: ArrayLike,
    *,
    rank: int = 1,
) -> OpenSetCurve:
    """Compute error rates of searches as exact step functions of the threshold.

    Parameters
    ----------
    mated_scores : array-like of shape (n_mated, n_subjects)
        Similarities of probes of enrolled subjects to all enrolled subjects.
    mated_codes : array-like of int of shape (n_mated,)
        Column of the true subject of each probe.
    nonmated_scores : array-like of shape (n_nonmated, n_subjects)
        Similarities of probes of strangers to the same enrolled subjects.
    rank : int, default=1
        The largest number of candidates that a search returns. Of equal scores the
        first column is ahead, as in `true_ranks`.

    Returns
    -------
    OpenSetCurve
        The rates. The thresholds are the scores of true subjects within the rank
        and the best scores of strangers. At other scores nothing changes.

    Raises
    ------
    ScoreError
        The shapes do not match, there are no mated or no non-mated searches, or
        the rank is below 1.

    Examples
    --------
    >>> from dualqml.evaluation import open_set_curve
    >>> mated = [[0.9, 0.2], [0.3, 0.6], [0.5, 0.4]]
    >>> curve = open_set_curve(mated, [0, 1, 1], [[0.1, 0.7], [0.3, 0.2]])
    >>> curve.thresholds
    array([0.3, 0.6, 0.7, 0.9, inf])
    >>> curve.fpir
    array([1. , 0.5, 0.5, 0. , 0. ])
    >>> curve.fnir.round(2)
    array([0.33, 0.33, 0.67, 0.67, 1.  ])
    """
    searches = _searches_by_score(mated_scores, mated_codes, nonmated_scores, rank)
    return searches.curve()


def fnir_at_fpir(
    mated_scores: ArrayLike,
    mated_codes: ArrayLike,
    nonmated_scores: ArrayLike,
    *,
    fpir: float = 0.01,
    rank: int = 1,
) -> OpenSetPoint:
    """Compute the false-negative identification rate at a limit of false alarms.

    Parameters
    ----------
    mated_scores : array-like of shape (n_mated, n_subjects)
        Similarities of probes of enrolled subjects to all enrolled subjects.
    mated_codes : array-like of int of shape (n_mated,)
        Column of the true subject of each probe.
    nonmated_scores : array-like of shape (n_nonmated, n_subjects)
        Similarities of probes of strangers to the same enrolled subjects.
    fpir : float, default=0.01
        The largest share of searches of strangers that may return any subject.
    rank : int, default=1
        The largest number of candidates that a search returns.

    Returns
    -------
    OpenSetPoint
        The threshold of `threshold_for_rate`, whose measured FPIR is at most the
        target, and the rates at this threshold.

    Raises
    ------
    ScoreError
        The shapes do not match, there are no mated or no non-mated searches, or
        the target or the rank is out of range.

    Examples
    --------
    >>> from dualqml.evaluation import fnir_at_fpir
    >>> mated = [[0.9, 0.2], [0.3, 0.75], [0.5, 0.4]]
    >>> strangers = [[0.1, 0.8], [0.25, 0.2]]
    >>> point = fnir_at_fpir(mated, [0, 1, 1], strangers, fpir=0.5)
    >>> point.threshold, point.fpir, round(point.fnir, 2)
    (0.5, 0.5, 0.33)
    """
    searches = _searches_by_score(mated_scores, mated_codes, nonmated_scores, rank)
    return searches.point(fpir)


def open_set_curve_by_acceptance(
    mated_acceptance: ArrayLike,
    mated_found: ArrayLike,
    nonmated_acceptance: ArrayLike,
) -> OpenSetCurve:
    """Compute error rates of searches that are accepted by a separate score.

    Parameters
    ----------
    mated_acceptance : array-like of shape (n_mated,)
        The score by which each search of an enrolled subject is accepted. The search
        returns its candidates if this score is at least the threshold, else nothing.
    mated_found : array-like of bool of shape (n_mated,)
        Whether the true subject is among the candidates of each search, for example
        ``true_ranks(scores, codes) <= rank``.
    nonmated_acceptance : array-like of shape (n_nonmated,)
        The score by which each search of a stranger is accepted.

    Returns
    -------
    OpenSetCurve
        The rates. The FNIR is the share of mated searches that are not both accepted
        and right. The FPIR is the share of non-mated searches that are accepted.

    Raises
    ------
    ScoreError
        The shapes do not match, or there are no mated or no non-mated searches.

    Examples
    --------
    >>> from dualqml.evaluation import open_set_curve_by_acceptance
    >>> curve = open_set_curve_by_acceptance([3.0, 2.0], [True, False], [1.0])
    >>> curve.thresholds, curve.fpir, curve.fnir
    (array([ 1.,  3., inf]), array([1., 0., 0.]), array([0.5, 0.5, 1. ]))
    """
    searches = _searches_by_acceptance(
        mated_acceptance, mated_found, nonmated_acceptance
    )
    return searches.curve()


def fnir_at_fpir_by_acceptance(
    mated_acceptance: ArrayLike,
    mated_found: ArrayLike,
    nonmated_acceptance: ArrayLike,
    *,
    fpir: float = 0.01,
) -> OpenSetPoint:
    """Compute `fnir_at_fpir` of searches that are accepted by a separate score.

    Parameters
    ----------
    mated_acceptance : array-like of shape (n_mated,)
        The score by which each search of an enrolled subject is accepted.
    mated_found : array-like of bool of shape (n_mated,)
        Whether the true subject is among the candidates of each search.
    nonmated_acceptance : array-like of shape (n_nonmated,)
        The score by which each search of a stranger is accepted.
    fpir : float, default=0.01
        The largest share of searches of strangers that may be accepted.

    Returns
    -------
    OpenSetPoint
        The threshold of `threshold_for_rate`, whose measured FPIR is at most the
        target, and the rates at this threshold.

    Raises
    ------
    ScoreError
        The shapes do not match, there are no mated or no non-mated searches, or
        the target is not from 0 to 1.

    Examples
    --------
    >>> from dualqml.evaluation import fnir_at_fpir_by_acceptance
    >>> point = fnir_at_fpir_by_acceptance([3.0, 2.0], [True, False], [1.0], fpir=0.0)
    >>> point.threshold, point.fnir
    (2.0, 0.5)
    """
    searches = _searches_by_acceptance(
        mated_acceptance, mated_found, nonmated_acceptance
    )
    return searches.point(fpir)


@dataclass(frozen=True, eq=False)
class _Searches:
    """Searches reduced to one score each, so that verification can count errors.

    `deciding` has the highest threshold at which a mated search returns its true
    subject, NaN if there is none. `alarm` has the highest threshold at which a
    non-mated search returns any subject.
    """

    deciding: Array
    alarm: Array
    n_missing_mated: int

    @property
    def n_missing_nonmated(self) -> int:
        return int(np.count_nonzero(np.isnan(self.alarm)))

    def curve(self) -> OpenSetCurve:
        curve = error_curve(self.deciding, self.alarm)
        return OpenSetCurve(
            thresholds=curve.thresholds,
            fpir=curve.fmr,
            fnir=curve.fnmr,
            n_missing_mated=self.n_missing_mated,
            n_missing_nonmated=self.n_missing_nonmated,
        )

    def point(self, fpir: float) -> OpenSetPoint:
        target = as_share(fpir, "fpir")
        point = fnmr_at_fmr(self.deciding, self.alarm, fmr=target)
        return OpenSetPoint(
            threshold=point.threshold,
            fpir=point.fmr,
            fnir=point.fnmr,
            n_mated=point.n_mated,
            n_nonmated=point.n_nonmated,
            n_missing_mated=self.n_missing_mated,
            n_missing_nonmated=self.n_missing_nonmated,
        )


def _searches_by_score(
    mated_scores: ArrayLike,
    mated_codes: ArrayLike,
    nonmated_scores: ArrayLike,
    rank: int,
) -> _Searches:
    mated = as_score_rows(mated_scores, "mated_scores")
    other = as_score_rows(nonmated_scores, "nonmated_scores")
    if mated.shape[1] != other.shape[1]:
        raise ScoreError(
            "Searches must be of the same enrolled subjects: mated_scores have "
            f"{mated.shape[1]} columns and nonmated_scores {other.shape[1]}"
        )
    if rank < 1:
        raise ScoreError(f"rank must be at least 1 candidate; got {rank}")
    codes = _checked_codes(mated_codes, mated.shape)
    # Subjects ahead of the true one have at least its score, so a threshold that
    # keeps the true subject does not change its rank.
    found = true_ranks(mated, codes) <= rank
    own = mated[np.arange(codes.size), codes]
    return _Searches(
        deciding=np.where(found, own, np.nan),
        alarm=np.fmax.reduce(other, axis=1),
        n_missing_mated=int(np.count_nonzero(np.isnan(mated).all(axis=1))),
    )


def _checked_codes(mated_codes: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    codes = np.asarray(mated_codes)
    if codes.dtype.kind not in "iu" or codes.shape != shape[:1]:
        raise ScoreError(
            f"mated_codes must be an integer for each of the {shape[0]} rows of "
            f"mated_scores; got {codes.dtype} of shape {codes.shape}"
        )
    if codes.min() < 0 or codes.max() >= shape[1]:
        raise ScoreError(
            f"mated_codes must be columns of mated_scores, 0 to {shape[1] - 1}; got "
            f"{codes.min()} to {codes.max()}. Searches of subjects who are not "
            "enrolled belong to nonmated_scores."
        )
    return codes


def _searches_by_acceptance(
    mated_acceptance: ArrayLike, mated_found: ArrayLike, nonmated_acceptance: ArrayLike
) -> _Searches:
    acceptance = as_scores(mated_acceptance, "mated_acceptance")
    found: Mask = np.asarray(mated_found)
    if found.dtype != np.bool_ or found.shape != acceptance.shape:
        raise ScoreError(
            f"mated_found must be True or False for each of the {acceptance.size} "
            f"mated searches, for example true_ranks(scores, codes) <= rank; got "
            f"{found.dtype} of shape {found.shape}"
        )
    return _Searches(
        deciding=np.where(found, acceptance, np.nan),
        alarm=as_scores(nonmated_acceptance, "nonmated_acceptance"),
        n_missing_mated=int(np.count_nonzero(np.isnan(acceptance))),
    )
