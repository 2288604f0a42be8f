# SPDX-License-Identifier: BSD-3-Clause
"""What the people of a background teach about galleries of few samples.

All people are enrolled with a few samples each. They are divided into parts: the other
samples of the people of one part are compared with all enrolled people, in the metric
that the other parts give. So these are people whom the metric has not seen, as in use.
From their scores come the weight of the prior, the weight of the cosine, and what a
score means (:class:`~dualqml.extractors.probabilities.LogRatio`).
"""

from dataclasses import dataclass

import numpy as np

from dualqml._linalg import class_means, principal_directions, unit_rows
from dualqml._typing import Array, Index, Mask
from dualqml.extractors.probabilities import LogRatio

#: What is used if there are too few people: parameters that are seldom far from the
#: best.
USUAL_RHO, USUAL_LAM, USUAL_COSINE_WEIGHT = 6.0, 0.1, 0.3
#: Number of parts, and least number of people with several samples.
_N_PARTS = 5
_LEAST_PEOPLE = 2 * _N_PARTS
#: Numbers of enrolled samples.
_SIZES = (1, 2, 4, 8)
#: Number of quantiles of the scores of other people.
_N_QUANTILES = 1000
#: Most other samples of a person that are compared.
_MOST_PROBES = 4
_RHOS = (0.3, 1.0, 2.5, 6.0, 15.0, 40.0)
_COSINE_WEIGHTS = (0.0, 0.3, 1.0, 3.0)
#: A weight that is not the usual one must be better by so many standard errors.
_CLEAR_ERRORS = 1.0


@dataclass(frozen=True)
class LearntFromPeople:
    """Parameters for galleries of one sample per person, and the scores of all sizes.

    `scores_by_size` and `scores_of_others` are explained at
    :class:`~dualqml.extractors.background.Background`.
    """

    rho: float
    cosine_weight: float
    scores_by_size: Array | None
    scores_of_others: Array | None


def learn_from_people(inputs: Array, codes: Index) -> LearntFromPeople:
    """Enrol the people in turn, and learn from their scores.

    Parameters
    ----------
    inputs : ndarray of shape (n_samples, n_inputs)
        Samples at unit norm, sorted by person.
    codes : ndarray of shape (n_samples,)
        The person of each sample, 0 to n_people - 1.

    Returns
    -------
    LearntFromPeople
        What was learnt; usual values if there are fewer than ten people with two
        samples.
    """
    counts = np.bincount(codes)
    rho, weight, table = USUAL_RHO, USUAL_COSINE_WEIGHT, []
    others: Array | None = None
    metrics = []
    if int((counts > 1).sum()) >= _LEAST_PEOPLE:
        metrics = [_PartMetric(inputs, codes, part) for part in range(_N_PARTS)]
    for size in _SIZES:
        if int((counts > size).sum()) < _LEAST_PEOPLE:
            break
        trials = [_Trials(metric, size) for metric in metrics]
        if size == 1:
            rho, weight = _chosen(trials)
        scores, is_own, spread = _scores(trials, rho, weight)
        own = scores[is_own]
        found = LogRatio.fitted(own, scores[~is_own])
        if size == 1:
            levels = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
            others = np.quantile(scores[~is_own], levels)
        table.append([size, spread, own.mean(), own.std(), found.slope, found.offset])
    return LearntFromPeople(rho, weight, np.array(table) if table else None, others)


class _PartMetric:
    """The people of one part, in the metric of all others."""

    def __init__(self, inputs: Array, codes: Index, part: int) -> None:
        inside: Mask = np.isin(codes, np.arange(part, codes.max() + 1, _N_PARTS))
        others, people = inputs[~inside], codes[~inside]
        means, _ = class_means(others, np.unique(people, return_inverse=True)[1])
        deviations = others - means[np.searchsorted(np.unique(people), people)]
        mean = means.mean(axis=0)
        spanning = np.concatenate([deviations, inputs - mean])
        _, basis = principal_directions(spanning)
        rows = deviations @ basis
        scatter = rows.T @ rows
        trace = float(np.trace(scatter))
        self.variances, self.directions = np.linalg.eigh(
            scatter * (len(scatter) / trace if trace > 0.0 else 1.0)
        )
        self.coordinates = (inputs - mean) @ basis @ self.directions
        self.inputs, self.codes, self.inside = inputs, codes, inside

    def whitened(self, rho: float) -> Array:
        """The samples in the metric of one rho, at unit norm."""
        return unit_rows(
            self.coordinates / np.sqrt(np.maximum(self.variances, 0) + rho)
        )


class _Trials:
    """All people, enrolled with some samples each, and other samples of one part."""

    def __init__(self, metric: _PartMetric, size: int) -> None:
        self.metric = metric
        place = np.arange(metric.codes.size) - np.searchsorted(
            metric.codes, metric.codes
        )
        counts = np.bincount(metric.codes)[metric.codes]
        usable = counts > size
        self.enrolled = np.flatnonzero(usable & (place < size))
        asked = usable & (place >= size) & (place < size + _MOST_PROBES)
        self.probes = np.flatnonzero(asked & metric.inside)
        people = np.unique(metric.codes[self.enrolled])
        self.gallery_codes = np.searchsorted(people, metric.codes[self.enrolled])
        self.probe_codes = np.searchsorted(people, metric.codes[self.probes])
        self.is_own = self.probe_codes[:, None] == np.arange(people.size)
        units = metric.inputs
        means = class_means(units[self.enrolled], self.gallery_codes)[0]
        self.cosines = units[self.probes] @ unit_rows(means).T
        #: The responses of the last rho.
        self._known: dict[float, Array] = {}

    def responses(self, rho: float) -> Array:
        """Responses of the filters of all people to the probes."""
        if rho not in self._known:
            self._known = {rho: self._responses(rho)}
        return self._known[rho]

    def _responses(self, rho: float) -> Array:
        rows = self.metric.whitened(rho)
        gallery = rows[self.enrolled]
        scatter = gallery.T @ gallery
        scatter[np.diag_indices_from(scatter)] += 1.0 / USUAL_LAM
        solved = np.linalg.solve(scatter, gallery.T)
        blocks = gallery @ solved
        filters = np.empty((self.is_own.shape[1], rows.shape[1]))
        for person in range(len(filters)):
            own = np.flatnonzero(self.gallery_codes == person)
            block = blocks[np.ix_(own, own)] + 1e-9 * np.eye(own.size)
            filters[person] = solved[:, own] @ np.linalg.solve(block, np.ones(own.size))
        return np.asarray(rows[self.probes] @ filters.T)


def _standardised(
    parts: list[Array], trials: list[_Trials]
) -> tuple[list[Array], float]:
    """Scores in units of their spread between different people, and that spread."""
    others = np.concatenate(
        [part[~trial.is_own] for part, trial in zip(parts, trials, strict=True)]
    )
    spread = float(others.std())
    scale = spread if spread > 0.0 else 1.0
    return [(part - others.mean()) / scale for part in parts], spread


def _scores(
    trials: list[_Trials], rho: float, weight: float
) -> tuple[Array, Mask, float]:
    """Scores of probes for all people, whose they are, and the spread of responses."""
    responses, spread = _standardised(
        [trial.responses(rho) for trial in trials], trials
    )
    cosines, _ = _standardised([trial.cosines for trial in trials], trials)
    scores = np.concatenate(responses) + weight * np.concatenate(cosines)
    is_own = np.concatenate([trial.is_own for trial in trials])
    others = scores[~is_own]
    scale = float(others.std()) or 1.0
    return (scores - others.mean()) / scale, is_own, spread


def _chosen(trials: list[_Trials]) -> tuple[float, float]:
    """The weights of the prior and of the cosine with the lowest loss.

    The loss is that of :mod:`~dualqml.extractors.open_set_search`: the mean logarithm
    of the rate of false positives at the scores of people's own samples.
    """
    losses: dict[tuple[float, float], Array] = {}
    for rho in _RHOS:
        for weight in _COSINE_WEIGHTS:
            scores, is_own, _ = _scores(trials, rho, weight)
            own = scores[is_own]
            # Without their own entry, the same samples are strangers.
            best_others = np.where(is_own, -np.inf, scores).max(axis=1)
            ordered = np.sort(best_others)
            above = ordered.size - np.searchsorted(ordered, own)
            rates = np.log((1.0 + above) / (1.0 + ordered.size))
            losses[rho, weight] = np.where(own > best_others, rates, 0.0)
    best = min(losses, key=lambda pair: float(losses[pair].mean()))
    # Of those that are not clearly worse than the best, the mean of the logarithms.
    logs, shares = [], []
    for (rho, weight), values in losses.items():
        gain = values - losses[best]
        error = max(float(gain.std()), 0.5) / np.sqrt(gain.size)
        t = float(gain.mean()) / (error * _CLEAR_ERRORS)
        logs.append([np.log(rho), np.log(weight + 0.2)])
        shares.append(np.exp(-0.5 * min(t, 30.0) ** 2))
    rho, shifted = np.exp(np.average(logs, axis=0, weights=shares))
    return float(rho), max(float(shifted) - 0.2, 0.0)
