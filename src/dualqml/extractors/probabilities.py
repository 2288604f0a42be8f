# SPDX-License-Identifier: BSD-3-Clause
"""From scores to probabilities and likelihood ratios.

Scores say which class is the most similar. Their size has no meaning of its own: it
depends on the samples and on the parameters. What a score means is learnt from samples
that were left out of the training:

- :class:`LogRatio`: the logarithm of how much more likely a score is for the same
  person than for another one. It does not depend on the number of people.
- :class:`ClassProbabilities`: the probability of each class, and that of none of them.

Both have two numbers, found by maximum likelihood with a weak prior, so that a few
left-out samples are enough.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualqml._saved_state import NUMBER, Path, Saved, expect
from dualqml._typing import Array, Index

#: Slope and offset of log ratios for scores whose spread over strangers is 1, if there
#: is nothing to learn them from: means over several sets of face embeddings.
USUAL_SLOPE, USUAL_OFFSET = 2.5, -5.0
#: The prior of a slope and an offset is worth so many trials.
_PRIOR_TRIALS = 4.0
#: Relative spread of slopes, and spread of offsets, in the prior.
_SLOPE_SPREAD, _OFFSET_SPREAD = 0.5, 2.0
#: Bounds of the logarithm of the inverse temperature, in units of the spread of scores.
_LEAST_LOG, _MOST_LOG = -3.0, 6.0
_NEWTON_STEPS = 50
#: Most scores of other people that are used.
_MOST_SCORES = 5000


@dataclass(frozen=True)
class LogRatio:
    """The log-likelihood ratio of a score, ``slope * score + offset``.

    Attributes
    ----------
    slope : float
        Change of the logarithm for a score that is larger by 1; positive.
    offset : float
        The logarithm for a score of 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.probabilities import LogRatio
    >>> rng = np.random.default_rng(0)
    >>> same, other = rng.normal(2.0, size=500), rng.normal(size=5000)
    >>> found = LogRatio.fitted(same, other)
    >>> round(found.slope), round(found.offset)
    (2, -2)
    """

    _saved: ClassVar[Saved] = Saved(parameters={"slope": NUMBER, "offset": NUMBER})

    slope: float = USUAL_SLOPE
    offset: float = USUAL_OFFSET

    def __call__(self, scores: Array) -> Array:
        """Natural logarithms of the likelihood ratios of scores."""
        return self.slope * scores + self.offset

    @classmethod
    def fitted(
        cls, same: Array, others: Array, *, usual: "LogRatio | None" = None
    ) -> "LogRatio":
        """Learn the ratio from scores of left-out samples.

        Parameters
        ----------
        same : ndarray
            Scores of samples for their own person.
        others : ndarray
            Scores of samples for other people.
        usual : LogRatio, optional
            The prior, which decides if there are few scores.

        Returns
        -------
        LogRatio
            Logistic regression in which both kinds count alike in all.
        """
        from scipy.special import expit

        usual = cls() if usual is None else usual
        if same.size == 0 or others.size == 0:
            return usual
        others = _even_part(others.ravel())
        scores = np.concatenate([same.ravel(), others])
        is_same = np.arange(scores.size) < same.size
        # Both kinds have the weight of the rarer one.
        weight = min(same.size, others.size) * np.where(
            is_same, 1.0 / same.size, 1.0 / others.size
        )
        design = np.stack([scores, np.ones(scores.size)], axis=1)
        prior = np.array([usual.slope, usual.offset], dtype=np.float64)
        spread = np.array([_SLOPE_SPREAD * usual.slope, _OFFSET_SPREAD])
        precision = np.diag(0.25 * _PRIOR_TRIALS / spread**2)
        found = prior.copy()
        for _ in range(_NEWTON_STEPS):
            expected = expit(design @ found)
            slope = design.T @ (weight * (expected - is_same))
            slope += precision @ (found - prior)
            curvature = weight * expected * (1.0 - expected)
            hessian = (design * curvature[:, None]).T @ design + precision
            step = np.linalg.solve(hessian, slope)
            # A long step could leave the region in which the model is nearly quadratic.
            step *= min(1.0, 2.0 / max(float(np.abs(step / spread).max()), 1e-12))
            found -= step
            if np.abs(step).max() < 1e-10 * max(1.0, float(np.abs(found).max())):
                break
        # A larger score must not be less likely.
        return cls(max(float(found[0]), 0.01 * usual.slope), float(found[1]))

    def _check_saved(self, path: Path) -> None:
        expect(self.slope > 0.0, path, "slope", "is not positive")


@dataclass(frozen=True)
class ClassProbabilities:
    """Probabilities of classes from their scores, and of none of them.

    Attributes
    ----------
    slope : float
        The probabilities are the softmax of ``slope * scores``.
    unknown_slope, unknown_offset : float
        The log ratio of a known to an unknown person is ``unknown_slope * m +
        unknown_offset``, where m is the largest score.
    """

    _saved: ClassVar[Saved] = Saved(
        parameters={
            "slope": NUMBER,
            "unknown_slope": NUMBER,
            "unknown_offset": NUMBER,
        }
    )

    slope: float
    unknown_slope: float
    unknown_offset: float

    @classmethod
    def fitted(
        cls, scores: Array, classes: Index, strangers: Array
    ) -> "ClassProbabilities":
        """Learn from scores of left-out samples.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
            Scores of samples that were left out, one at a time.
        classes : ndarray of shape (n_samples,)
            Their classes.
        strangers : ndarray of shape (n_strangers, n_classes)
            Scores of samples whose class was left out; -inf for that class.

        Returns
        -------
        ClassProbabilities
            The numbers.
        """
        finite = strangers[np.isfinite(strangers)]
        spread = float(finite.std()) if finite.size > 1 else 0.0
        middle = float(finite.mean()) if finite.size else 0.0
        if not spread > 0.0:
            spread = 1.0
        slope = USUAL_SLOPE / spread
        if len(scores):
            slope = _inverse_temperature(scores, classes, spread)
        # Two classes leave one competitor: what is usual for a pair is used.
        usual = LogRatio()
        if len(scores) and len(strangers):
            best = (strangers.max(axis=1) - middle) / spread
            known = (scores.max(axis=1) - middle) / spread
            usual = LogRatio.fitted(known, best)
        offset = usual.offset - usual.slope * middle / spread
        return cls(slope, usual.slope / spread, offset)

    def of_classes(self, scores: Array) -> Array:
        """Probability of each class, if the sample is of one of them.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
            Scores.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities; those of a sample add up to 1.
        """
        from scipy.special import softmax

        return np.asarray(softmax(self.slope * scores, axis=1))

    def of_unknown(self, scores: Array, prior: float) -> Array:
        """Probability that a sample is of none of the classes.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
            Scores.
        prior : float
            The probability before the sample was seen, above 0 and below 1.

        Returns
        -------
        ndarray of shape (n_samples,)
            The probabilities.
        """
        from scipy.special import expit

        ratio = self.unknown_slope * scores.max(axis=1) + self.unknown_offset
        return np.asarray(expit(np.log(prior) - np.log1p(-prior) - ratio))

    def _check_saved(self, path: Path) -> None:
        for name in ("slope", "unknown_slope"):
            expect(getattr(self, name) > 0.0, path, name, "is not positive")


def open_set_posterior(log_ratios: Array, *, prior: float = 0.5) -> tuple[Array, Array]:
    """Probabilities of enrolled people and of a stranger, from log ratios.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_samples, n_people)
        Log-likelihood ratios.
    prior : float, default=0.5
        Probability that the person is enrolled, before the sample was seen. All
        enrolled people are equally likely.

    Returns
    -------
    people : ndarray of shape (n_samples, n_people)
        Probability of each person.
    unknown : ndarray of shape (n_samples,)
        Probability of a stranger. All together add up to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.probabilities import open_set_posterior
    >>> people, unknown = open_set_posterior(np.log([[3.0, 1.0]]))
    >>> people.round(3), unknown.round(3)
    (array([[0.5  , 0.167]]), array([0.333]))
    """
    sums, n_people = log_sums(log_ratios), log_ratios.shape[1]
    return candidate_posterior(log_ratios, sums, n_people, prior=prior)


def candidate_posterior(
    log_ratios: Array, sums: Array, n_people: int, *, prior: float = 0.5
) -> tuple[Array, Array]:
    """Probabilities of some of the enrolled people, and of a stranger.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_samples, n_candidates)
        Log-likelihood ratios of some people.
    sums : ndarray of shape (n_samples,)
        The `log_sums` of the log-likelihood ratios of all people.
    n_people : int
        Number of all people.
    prior : float, default=0.5
        As for `open_set_posterior`.

    Returns
    -------
    people : ndarray of shape (n_samples, n_candidates)
        Probability of each candidate.
    unknown : ndarray of shape (n_samples,)
        Probability of a stranger.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.probabilities import candidate_posterior
    >>> best, all_people = np.log([[3.0]]), np.log([4.0])
    >>> people, unknown = candidate_posterior(best, all_people, 2)
    >>> people.round(3), unknown.round(3)
    (array([[0.5]]), array([0.333]))
    """
    share, stranger = np.log(prior / n_people), np.log1p(-prior)
    total = np.logaddexp(sums + share, stranger)
    return np.exp(log_ratios + share - total[:, None]), np.exp(stranger - total)


def log_sums(log_ratios: Array) -> Array:
    """Logarithm of the sum of the exponentials of each row.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_samples, n_people)
        Log-likelihood ratios, at least one in a row.

    Returns
    -------
    ndarray of shape (n_samples,)
        The logarithms. They are finite if the ratios are.
    """
    largest = log_ratios.max(axis=1, keepdims=True)
    return np.asarray(largest[:, 0] + np.log(np.exp(log_ratios - largest).sum(axis=1)))


def _even_part(scores: Array) -> Array:
    """Some scores with the distribution of all, if there are very many."""
    if scores.size <= _MOST_SCORES:
        return scores
    places = np.linspace(0, scores.size - 1, _MOST_SCORES).round().astype(np.intp)
    return np.asarray(np.sort(scores)[places])


def _inverse_temperature(scores: Array, classes: Index, spread: float) -> float:
    """The factor of scores with the largest likelihood of the true classes."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(classes.size)
    usual = np.log(USUAL_SLOPE)

    def loss(log_factor: float) -> float:
        likelihoods = log_softmax(np.exp(log_factor) / spread * scores, axis=1)
        # The prior is worth a few samples.
        prior = 0.5 * _PRIOR_TRIALS * (log_factor - usual) ** 2
        return prior - float(likelihoods[rows, classes].sum())

    found = minimize_scalar(loss, bounds=(_LEAST_LOG, _MOST_LOG), method="bounded")
    return float(np.exp(found.x) / spread)
