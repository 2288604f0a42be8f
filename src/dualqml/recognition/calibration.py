# SPDX-License-Identifier: BSD-3-Clause
"""Thresholds for a given rate of false matches, from people who are not enrolled."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from dualqml._typing import Array
from dualqml.evaluation import (
    binomial_interval,
    fnir_at_fpir,
    fnmr_at_fmr,
    rule_of_three,
    threshold_for_rate,
)
from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.recognition.gallery import Gallery, checked_name
from dualqml.recognition.matcher import FEW_SUBJECTS, Matcher, SampleCache
from dualqml.recognition.results import KEPT_AFTER_REMOVAL, Calibration, RateKind

#: Number of fits with held-out samples of enrolled people.
_N_MATED_FITS = 3
#: Number of simulated strangers.
_N_SIMULATED = 3000
#: The log-likelihood ratio of a person who is as likely the same as another one.
_EVEN_ODDS = 0.0
#: Share of people's own samples that a prior may miss to be safer from strangers.
_MOST_MISSED = 0.01


class Trials(NamedTuple):
    """Scores of a recogniser for samples of enrolled people and of strangers.

    Attributes
    ----------
    mated : ndarray of shape (n_mated, n_subjects)
        Scores of samples of enrolled people.
    codes : ndarray of int of shape (n_mated,)
        The column of the true subject of each.
    nonmated : ndarray of shape (n_strangers, n_subjects)
        Scores of samples of people who are not enrolled.
    """

    mated: Array
    codes: NDArray[np.int64]
    nonmated: Array


class SimulatedStrangers(NamedTuple):
    """Scores of strangers who were simulated from a background, in two ways.

    Attributes
    ----------
    drawn : ndarray of shape (n_strangers, n_subjects)
        Scores that were drawn from those of the people of the background for each
        other.
    normal : ndarray of shape (n_strangers, n_subjects)
        Scores of samples that were drawn from a normal distribution.
    background : Background
        The background.
    """

    drawn: Array
    normal: Array
    background: Background


def simulated_strangers(matcher: Matcher, background: Background) -> SimulatedStrangers:
    """Simulate strangers.

    Parameters
    ----------
    matcher : Matcher
        A fitted matcher, with scores that are log ratios.
    background : Background
        Statistics of people who are not enrolled.

    Returns
    -------
    SimulatedStrangers
        Their scores. They are the same at every call.
    """
    return SimulatedStrangers(
        matcher.drawn_scores(background, _N_SIMULATED),
        matcher.simulated_scores(background, _N_SIMULATED),
        background,
    )


def held_out_calibration(
    scores: Array,
    labels: Sequence[str],
    matcher: Matcher,
    *,
    kind: RateKind,
    target: float,
) -> Calibration:
    """Find the threshold for a rate from samples that were not enrolled.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_subjects)
        Their scores.
    labels : sequence of str
        The person of each sample.
    matcher : Matcher
        The matcher that gave the scores.
    kind : {"fmr", "fpir"}
        As for `calibrate`.
    target : float
        The rate, above 0 and below 1.

    Returns
    -------
    Calibration
        The threshold. There is no warning of too few comparisons.
    """
    trials = held_out_trials(scores, labels, matcher.subjects)
    source = f"{len(trials.nonmated)} samples of people who are not enrolled"
    return _calibration(
        trials, kind=kind, target=target, source=source, model_id=matcher.model_id
    )


def held_out_trials(
    scores: Array, labels: Sequence[str], subjects: Sequence[str]
) -> Trials:
    """Separate the scores of enrolled people and of strangers.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_subjects)
        Scores of samples that were not enrolled.
    labels : sequence of str
        The person of each sample. People who are not enrolled are strangers.
    subjects : sequence of str
        The enrolled subjects, in the order of the columns.

    Returns
    -------
    Trials
        The scores.
    """
    names = np.array([checked_name(label) for label in labels])
    if names.shape != scores.shape[:1]:
        raise RecognitionError(
            f"{len(scores)} samples need as many labels, got {names.size}"
        )
    place = {name: column for column, name in enumerate(subjects)}
    codes = np.array([place.get(name, -1) for name in names.tolist()])
    known = codes >= 0
    return Trials(scores[known], codes[known], scores[~known])


def left_out_trials(
    gallery: Gallery,
    matcher: Matcher,
    cache: SampleCache,
    *,
    n_folds: int = 10,
    random_state: int = 0,
) -> Trials:
    """Score enrolled people with matchers that were fitted without them.

    The subjects are split into folds. For each fold, a matcher is fitted to all other
    subjects with all their samples, and the subjects of the fold are strangers to it.
    For mated trials, one sample of every subject with several samples is held out of
    a fit to all subjects, a few times.

    Parameters
    ----------
    gallery : Gallery
        The enrolled samples, of at least four subjects.
    matcher : Matcher
        A matcher that was fitted to the gallery; it is not changed.
    cache : SampleCache
        Results for the samples of the gallery.
    n_folds : int, default=10
        Number of folds.
    random_state : int, default=0
        Seed of the folds and of the choice of held-out samples.

    Returns
    -------
    Trials
        Scores with as many columns as the smallest of those matchers has subjects.
        The score of the true subject is in the first column.
    """
    names = list(gallery)
    if len(names) < 4:
        raise RecognitionError(
            "Calibration without other people needs at least four enrolled subjects; "
            f"there are {len(names)}. Give images of people who are not enrolled."
        )
    rng = np.random.default_rng(random_state)
    everything = {name: np.arange(len(gallery[name])) for name in names}
    mated, nonmated = [], []
    # Three or more subjects stay enrolled in every fold.
    for fold in np.array_split(rng.permutation(len(names)), min(n_folds, len(names))):
        strangers = {names[number] for number in fold}
        kept = {name: own for name, own in everything.items() if name not in strangers}
        smaller = matcher.fitted_to_part(gallery, kept, cache)
        unknown = np.concatenate([gallery[name] for name in names if name in strangers])
        nonmated.append(_with_true_first(smaller.scores(unknown), None))
    columns = np.array([c for c, name in enumerate(names) if len(everything[name]) > 1])
    for _ in range(_N_MATED_FITS if columns.size else 0):
        held_out = [int(rng.integers(len(everything[names[c]]))) for c in columns]
        kept = dict(everything)
        for c, chosen in zip(columns, held_out, strict=True):
            kept[names[c]] = np.delete(everything[names[c]], chosen)
        probes = [gallery[names[c]][k] for c, k in zip(columns, held_out, strict=True)]
        smaller = matcher.fitted_to_part(gallery, kept, cache)
        mated.append(_with_true_first(smaller.scores(np.array(probes)), columns))
    width = min(part.shape[1] for part in nonmated + mated)
    # Of the other subjects, only the best scores matter.
    rows_of_strangers = np.concatenate([part[:, :width] for part in nonmated])
    found = np.concatenate(
        [part[:, :width] for part in mated] or [np.empty((0, width))]
    )
    return Trials(found, np.zeros(len(found), dtype=np.int64), rows_of_strangers)


def prior_calibration(
    gallery: Gallery,
    matcher: Matcher,
    strangers: SimulatedStrangers,
    *,
    kind: RateKind,
    target: float,
) -> Calibration:
    """Find the threshold for a rate before anything is measured on the gallery.

    Parameters
    ----------
    gallery : Gallery
        The enrolled samples. Only their numbers are used here.
    matcher : Matcher
        The matcher that was fitted to the gallery, with scores that are log ratios.
    strangers : SimulatedStrangers
        The scores of this matcher for them.
    kind : {"fmr", "fpir"}
        As for `calibrate`.
    target : float
        The rate, above 0 and below 1.

    Returns
    -------
    Calibration
        The threshold, the rate of missed people that is expected, and an interval that
        counts each person of the background once, however many were simulated. There
        is no warning of too few comparisons.

    Notes
    -----
    Strangers are simulated in two ways: scores are drawn from those of the people of
    the background for each other, and samples are drawn from a normal distribution.
    The first knows the tails, the second the enrolled samples. Neither knows that
    strangers may be of the same age, sex and origin as the enrolled people, or on
    photographs of the same camera. So the threshold is the highest of both, and at
    least 0: the same person must be at least as likely as another one. If it leaves a
    gap to the score that 99 % of people's own samples are expected to reach (or more,
    if the target is smaller), it lies in the middle of that gap.
    """
    if not 0.0 < target < 1.0:
        raise RecognitionError(f"{kind} must be between 0 and 1, got {target!r}")
    drawn, normal, background = strangers
    ways = [
        scores.ravel() if kind == "fmr" else scores.max(axis=1)
        for scores in (drawn, normal)
    ]
    found_by_ways = [threshold_for_rate(scores, target) for scores in ways]
    threshold = max(_EVEN_ODDS, *found_by_ways)
    counts = [len(gallery[subject]) for subject in gallery]
    missed = min(target, _MOST_MISSED)
    reached = _expected_scores(counts, missed, matcher, background)
    if reached is not None and reached > threshold:
        threshold = 0.5 * (threshold + reached)
    found = Calibration(
        threshold=threshold,
        kind=kind,
        target=target,
        achieved=max(float((scores >= threshold).mean()) for scores in ways),
        n_comparisons=ways[0].size,
        source=f"strangers simulated from a background of {background.n_people} people",
        model_id=matcher.model_id,
    )
    # The scores are those of people with several samples. Their number is not kept,
    # but each of them has one of these at least.
    n_people = min(background.n_people, background.n_repeats)
    low, high = _interval_of_people(float(found.achieved or 0.0), n_people)
    expected = _expected_missed(
        drawn, found.threshold, counts, matcher, background, kind=kind
    )
    if expected is not None:
        # The normal distribution has thin ends. So few people cannot show a rate far
        # below one of them: half a person more is counted as missed.
        expected = (n_people * expected + 0.5) / (n_people + 1.0)
    return replace(found, prior=True, low=low, high=high, missed=expected)


def _interval_of_people(rate: float, n_people: int) -> tuple[float, float]:
    """The interval of Clopper and Pearson, for a number of errors that is not whole."""
    errors = rate * n_people
    rest = n_people - errors
    low = float(betaincinv(errors, rest + 1.0, 0.025)) if errors > 0.0 else 0.0
    high = 1.0 - float(betaincinv(rest, errors + 1.0, 0.025)) if rest > 0.0 else 1.0
    return low, high


def _expected_scores(
    counts: Sequence[int], missed: float, matcher: Matcher, background: Background
) -> float | None:
    """The score that all but a share of samples of each person should reach."""
    reached = []
    for count in set(counts):
        own = background.own_scores(count)
        if own is None:
            return None
        standard = own[0] + float(ndtri(missed)) * own[1]
        reached.append(matcher.slope * standard + matcher.offset)
    return min(reached)


def _expected_missed(
    strangers: Array,
    threshold: float,
    counts: Sequence[int],
    matcher: Matcher,
    background: Background,
    *,
    kind: RateKind,
) -> float | None:
    """The rate of missed people, if their scores are like those of the background."""
    rates = []
    for column, count in enumerate(counts):
        own = background.own_scores(count)
        if own is None:
            return None
        mean = matcher.slope * own[0] + matcher.offset
        spread = matcher.slope * own[1] or 1.0
        needed: Array = np.full(1, threshold)
        if kind == "fpir" and len(counts) > 1:
            # Nobody else may have a higher score.
            rivals = np.delete(strangers, column, axis=1).max(axis=1)
            needed = np.maximum(rivals, threshold)
        rates.append(float(ndtr((needed - mean) / spread).mean()))
    return float(np.mean(rates))


def _with_true_first(scores: Array, columns: NDArray[np.int64] | None) -> Array:
    """The score of the true subject first, then the others in falling order."""
    if columns is None:
        return -np.sort(-scores, axis=1)
    rows = np.arange(len(scores))
    true = scores[rows, columns][:, None]
    others = scores.copy()
    others[rows, columns] = -np.inf
    return np.concatenate([true, -np.sort(-others, axis=1)[:, :-1]], axis=1)


def calibrate(
    trials: Trials,
    *,
    kind: RateKind,
    target: float,
    source: str,
    model_id: str = "",
) -> Calibration:
    """Find the threshold for a rate.

    Parameters
    ----------
    trials : Trials
        Scores.
    kind : {"fmr", "fpir"}
        False match rate of comparisons with single subjects, or false positive
        identification rate of searches among all.
    target : float
        The rate, above 0 and below 1.
    source : str
        The calibration data in words.
    model_id : str
        The model that gave the scores.

    Returns
    -------
    Calibration
        The threshold of :func:`dualqml.evaluation.threshold_for_rate`. Its rate on the
        data is at most the target. With a threshold at the next lower score of a
        stranger, the rate would be above the target. The threshold lies in the middle
        between that score and the next score above, of a stranger or of an enrolled
        person. If there is no score above, it lies just above that score.

    Warns
    -----
    UserWarning
        There are too few comparisons to estimate such a rate (rule of three).
    """
    found = _calibration(
        trials, kind=kind, target=target, source=source, model_id=model_id
    )
    warn_of_few(found, stacklevel=3)
    return found


def gallery_scores(
    gallery: Gallery,
    matcher: Matcher,
    cache: SampleCache,
    background: Background | None,
) -> Trials | SimulatedStrangers:
    """Scores that tell the threshold of a gallery without other samples.

    Parameters
    ----------
    gallery : Gallery
        The enrolled samples.
    matcher : Matcher
        The matcher that was fitted to the gallery; it is not changed.
    cache : SampleCache
        Results for the samples of the gallery.
    background : Background or None
        Statistics of people who are not enrolled.

    Returns
    -------
    Trials or SimulatedStrangers
        Strangers who are simulated from the background if there is one, few people
        are enrolled, and scores are log ratios. Else the trials of `left_out_trials`.
    """
    few = len(gallery) < FEW_SUBJECTS and matcher.has_log_ratios
    if background is not None and few:
        return simulated_strangers(matcher, background)
    return left_out_trials(gallery, matcher, cache)


def gallery_calibration(
    scores: Trials | SimulatedStrangers,
    gallery: Gallery,
    matcher: Matcher,
    *,
    kind: RateKind,
    target: float,
) -> Calibration:
    """Find the threshold for a rate from the scores of `gallery_scores`.

    Parameters
    ----------
    scores : Trials or SimulatedStrangers
        The scores.
    gallery : Gallery
        The enrolled samples.
    matcher : Matcher
        The matcher that was fitted to the gallery.
    kind : {"fmr", "fpir"}
        As for `calibrate`.
    target : float
        The rate, above 0 and below 1.

    Returns
    -------
    Calibration
        The threshold: a prior if strangers were simulated. There is no warning of too
        few comparisons.
    """
    if isinstance(scores, SimulatedStrangers):
        return prior_calibration(gallery, matcher, scores, kind=kind, target=target)
    source = f"{len(gallery)} enrolled subjects left out in turn"
    return _calibration(
        scores, kind=kind, target=target, source=source, model_id=matcher.model_id
    )


def after_removal(
    before: Calibration,
) -> tuple[Calibration | None, tuple[RateKind, float] | None]:
    """What is left of a calibration when samples are removed.

    Parameters
    ----------
    before : Calibration
        The calibration before.

    Returns
    -------
    calibration : Calibration or None
        A threshold that was given is kept as it is. Of a measured one only the
        threshold stays, as its rates and counts depend on the samples.
    due : tuple of str and float, or None
        Kind and target of a prior that must be computed again, as its threshold depends
        on the samples too.
    """
    if before.kind == "given":
        return before, None
    if before.prior:
        return None, before.rate
    return Calibration(before.threshold, "given", source=KEPT_AFTER_REMOVAL), None


def warn_of_few(found: Calibration, *, stacklevel: int) -> None:
    """Warn if a rate cannot be estimated from so few comparisons."""
    n, target = found.n_comparisons, found.target
    if target is not None and rule_of_three(n) > target:
        warnings.warn(
            f"{n} non-mated comparisons are too few for a rate of {target:g}: even "
            f"with no error among them it could be {rule_of_three(n):.2g} (rule of "
            f"three). Use at least {int(np.ceil(3.0 / target))}, or a higher target.",
            UserWarning,
            stacklevel=stacklevel,
        )


def _calibration(
    trials: Trials,
    *,
    kind: RateKind,
    target: float,
    source: str,
    model_id: str,
) -> Calibration:
    """The calibration of `calibrate`, without a warning."""
    if not 0.0 < target < 1.0:
        raise RecognitionError(f"{kind} must be between 0 and 1, got {target!r}")
    if len(trials.nonmated) == 0:
        raise RecognitionError(
            "There are no strangers among the calibration data: images of people who "
            "are not enrolled are needed"
        )
    n_mated = len(trials.mated)
    mated, codes, nonmated = trials
    strangers = nonmated.ravel() if kind == "fmr" else nonmated.max(axis=1)
    missed: float | None = None
    if n_mated == 0:
        # The rate of missed people is not known; the threshold is.
        threshold = threshold_for_rate(strangers, target)
    elif kind == "fmr":
        own = mated[np.arange(n_mated), codes]
        verified = fnmr_at_fmr(own, strangers, fmr=target)
        threshold, missed = verified.threshold, verified.fnmr
    else:
        searched = fnir_at_fpir(mated, codes, nonmated, fpir=target)
        threshold, missed = searched.threshold, searched.fnir
    n = strangers.size
    interval = binomial_interval(int(np.count_nonzero(strangers >= threshold)), n)
    return Calibration(
        threshold=threshold,
        kind=kind,
        target=target,
        achieved=interval.estimate,
        low=interval.low,
        high=interval.high,
        missed=missed,
        n_comparisons=n,
        n_mated=n_mated,
        source=source,
        model_id=model_id,
    )
