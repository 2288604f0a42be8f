# SPDX-License-Identifier: BSD-3-Clause
"""From scores to decisions."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array
from dualqml.exceptions import (
    NoThresholdError,
    RecognitionError,
    UnknownSubjectError,
)
from dualqml.extractors.probabilities import candidate_posterior
from dualqml.recognition.folded_search import Best, FoldedGallery, best_classes
from dualqml.recognition.results import (
    Candidate,
    Identification,
    Template,
    Verification,
    VerifyDecision,
)


class Scorer(Protocol):
    """What gives scores: a matcher, or a model that was read for decisions alone."""

    subjects: list[str]
    model_id: str

    @property
    def has_log_ratios(self) -> bool:
        """Whether scores are log-likelihood ratios."""


def decision_threshold(given: float | None, known: float | None) -> float:
    """The threshold of a decision.

    Parameters
    ----------
    given : float or None
        The threshold of the call.
    known : float or None
        The threshold of the model.

    Returns
    -------
    float
        That of the call if there is one, else that of the model.

    Raises
    ------
    RecognitionError
        It is not finite. It is a `NoThresholdError` if there is none.
    """
    if given is not None:
        if not np.isfinite(given):
            raise RecognitionError(f"A threshold is a finite number, not {given!r}")
        return float(given)
    if known is None:
        raise NoThresholdError(
            "There is no threshold yet: calibrate the recogniser, or pass "
            "threshold. scores() needs none."
        )
    return known


def verifications(
    matcher: Scorer, scores: Array, subjects: Sequence[str], threshold: float
) -> list[Verification]:
    """Whether samples show the subjects that were claimed.

    Parameters
    ----------
    matcher : Scorer
        The matcher that gave the scores.
    scores : ndarray of shape (n_samples, n_subjects)
        Scores for all subjects of the matcher.
    subjects : sequence of str
        The subject claimed for each sample.
    threshold : float
        The smallest score of a match.

    Returns
    -------
    list of Verification
        One decision per sample.

    Raises
    ------
    UnknownSubjectError
        A subject is not enrolled.
    RecognitionError
        There is not one subject per sample.
    """
    columns = {name: column for column, name in enumerate(matcher.subjects)}
    unknown = [subject for subject in subjects if subject not in columns]
    if unknown:
        raise UnknownSubjectError(
            f"{unknown[0]!r} is not enrolled; {len(columns)} subjects are"
        )
    if len(subjects) != len(scores):
        raise RecognitionError(
            f"{len(scores)} samples need as many subjects, got {len(subjects)}"
        )
    found = []
    for subject, row in zip(subjects, scores, strict=True):
        score = float(row[columns[subject]])
        decision: VerifyDecision = "match" if score >= threshold else "no match"
        probability = (
            float(np.exp(-np.logaddexp(0.0, -score)))
            if matcher.has_log_ratios
            else None
        )
        found.append(
            Verification(
                decision, subject, score, threshold, matcher.model_id, probability
            )
        )
    return found


class Searcher(Scorer, Protocol):
    """What gives scores, and may search without computing all of them."""

    def scores(self, rows: NDArray[Any]) -> Array:
        """Scores of samples for all subjects."""

    def folded_gallery(self) -> FoldedGallery | None:
        """The gallery for searches; None if all scores are to be computed."""


def identified(
    model: Searcher, samples: Any, *, top: int, threshold: float
) -> list[Identification]:
    """Which enrolled subjects are on samples, if any.

    Parameters
    ----------
    model : Searcher
        The model.
    samples : ndarray of shape (n_samples, n_features) or templates
        Samples as the model takes them, or templates with scores of the model.
    top : int
        Length of the lists of candidates.
    threshold : float
        The smallest score of a match.

    Returns
    -------
    list of Identification
        One decision per sample.

    Raises
    ------
    RecognitionError
        The lists have no candidate, or a template is of another model.
    """
    if has_templates(samples):
        scores = template_scores(samples, model.model_id)
        return identifications(model, scores, top=top, threshold=threshold)
    gallery = model.folded_gallery()
    if gallery is None:
        scores = model.scores(samples)
        return identifications(model, scores, top=top, threshold=threshold)
    check_top(top)
    return decisions(model, gallery.search(samples, top), threshold)


def check_top(top: int) -> None:
    """Raise if a list of candidates would have none."""
    if top < 1:
        raise RecognitionError(f"top must be at least 1, got {top}")


def identifications(
    matcher: Scorer, scores: Array, *, top: int, threshold: float
) -> list[Identification]:
    """Which enrolled subjects are on images, if any.

    Parameters
    ----------
    matcher : Scorer
        The matcher that gave the scores.
    scores : ndarray of shape (n_samples, n_subjects)
        Scores for all subjects of the matcher.
    top : int
        Length of the lists of candidates.
    threshold : float
        The smallest score of a match.

    Returns
    -------
    list of Identification
        One decision per sample.

    Raises
    ------
    RecognitionError
        The lists have no candidate.
    """
    check_top(top)
    return decisions(matcher, best_classes(scores, top), threshold)


def decisions(matcher: Scorer, best: Best, threshold: float) -> list[Identification]:
    """Which enrolled subjects are on images, if any, from the best of them.

    Parameters
    ----------
    matcher : Scorer
        The matcher that gave the scores.
    best : Best
        The best subjects of each sample, at least one.
    threshold : float
        The smallest score of a match.

    Returns
    -------
    list of Identification
        One decision per sample.
    """
    people = unknown = None
    if matcher.has_log_ratios:
        people, unknown = candidate_posterior(
            best.scores, best.log_sums, len(matcher.subjects)
        )
    found = []
    for number, (classes, scores) in enumerate(
        zip(best.classes.tolist(), best.scores.tolist(), strict=True)
    ):
        candidates = tuple(
            Candidate(
                matcher.subjects[c],
                scores[place],
                None if people is None else float(people[number, place]),
            )
            for place, c in enumerate(classes)
        )
        first = candidates[0]
        match = first.score >= threshold
        found.append(
            Identification(
                "match" if match else "unknown",
                first.subject if match else None,
                first.score,
                threshold,
                candidates,
                matcher.model_id,
                None if unknown is None else float(unknown[number]),
            )
        )
    return found


def has_templates(images: Any) -> bool:
    """Whether samples are a template, or have one among them."""
    return isinstance(images, Template) or (
        isinstance(images, Sequence) and any(isinstance(i, Template) for i in images)
    )


def template_scores(templates: Any, model_id: str) -> Array:
    """The scores that templates keep.

    Parameters
    ----------
    templates : Template or sequence of Template
        The templates.
    model_id : str
        The model that must have made them.

    Returns
    -------
    ndarray of shape (n_templates, n_subjects)
        The scores.

    Raises
    ------
    RecognitionError
        One is of another model, or is no template.
    """
    if isinstance(templates, Template):
        templates = [templates]
    for template in templates:
        if not isinstance(template, Template):
            raise RecognitionError("Templates and other samples cannot be mixed")
        if template.model_id != model_id:
            raise RecognitionError(
                f"The template is of model {template.model_id}, this is model "
                f"{model_id}: make it again from the image"
            )
    return np.array([template.scores for template in templates])
