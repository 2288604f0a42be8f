# SPDX-License-Identifier: BSD-3-Clause
"""The results of a recogniser."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dualqml._typing import Array

IdentifyDecision = Literal["match", "unknown"]
VerifyDecision = Literal["match", "no match"]
RateKind = Literal["fmr", "fpir"]
#: The source of a threshold whose calibration used samples that were removed.
KEPT_AFTER_REMOVAL = "kept from a calibration before a removal; calibrate again"
#: The rate of a calibration, and what it counts, in words.
_RATES = {
    "fmr": ("false match rate", "comparisons"),
    "fpir": ("false positive identification rate", "searches"),
}


@dataclass(frozen=True)
class Candidate:
    """A subject and its similarity to an image.

    Attributes
    ----------
    subject : str
        An enrolled subject.
    score : float
        Similarity: the larger, the more alike. With DualQML-W, the natural logarithm of
        the likelihood ratio of the same person and another one.
    probability : float or None
        Probability of the subject, if enrolled people and strangers are equally
        likely, and all enrolled people too. None if scores are no likelihood ratios.
    """

    subject: str
    score: float
    probability: float | None = None


@dataclass(frozen=True, eq=False)
class Template:
    """What a model sees in a sample: its similarities to all subjects.

    `Recognizer.template` makes it once, and it can be used many times. It cannot be
    used with another model, nor with the same model after an enrolment or removal.

    Attributes
    ----------
    model_id : str
        The model that made it.
    scores : ndarray of shape (n_subjects,)
        The similarities.
    """

    model_id: str
    scores: Array


@dataclass(frozen=True)
class Verification:
    """Whether an image shows the subject that was claimed.

    Attributes
    ----------
    decision : {"match", "no match"}
        "match" if the score reaches the threshold.
    subject : str
        The subject claimed.
    score, threshold : float
        The similarity, and the smallest similarity of a match.
    model_id : str
        The model that decided.
    probability : float or None
        Probability that it is the subject, if that was as likely as not before. None
        if scores are no likelihood ratios.
    """

    decision: VerifyDecision
    subject: str
    score: float
    threshold: float
    model_id: str
    probability: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


@dataclass(frozen=True)
class Identification:
    """The person on an image, or "unknown" if nobody enrolled is similar enough.

    Attributes
    ----------
    decision : {"match", "unknown"}
        "match" if the score of the first candidate reaches the threshold.
    subject : str or None
        The first candidate if it is a match, else None.
    score, threshold : float
        The similarity to the first candidate, and the smallest similarity of a match.
    candidates : tuple of Candidate
        The most similar subjects, in falling order of their scores.
    model_id : str
        The model that decided.
    unknown_probability : float or None
        Probability of a stranger; see `Candidate.probability`.
    """

    decision: IdentifyDecision
    subject: str | None
    score: float
    threshold: float
    candidates: tuple[Candidate, ...]
    model_id: str
    unknown_probability: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


@dataclass(frozen=True)
class Calibration:
    """Where a threshold comes from.

    Attributes
    ----------
    threshold : float
        The threshold.
    kind : {"fmr", "fpir", "given"}
        Whether it was set for a false match rate (verification), for a false
        positive identification rate (open-set identification), or by hand.
    target : float or None
        The rate asked for.
    achieved : float or None
        The rate on the calibration data, at most the target.
    low, high : float or None
        95 % interval of that rate (Clopper and Pearson), as if comparisons were
        independent. They share people, so the true interval is wider. For a prior it
        is that of as many trials as there are people with several samples in the
        background, as each of them counts once.
    missed : float or None
        False non-match rate, or false negative identification rate, of the mated
        comparisons; None if there are none. For a prior, the rate that is expected
        from the scores of the people of the background, which are taken as normal.
    n_comparisons : int
        Number of non-mated comparisons or searches.
    n_mated : int
        Number of mated comparisons or searches.
    source : str
        The calibration data in words.
    model_id : str
        The model that was calibrated. It is another one after an enrolment or removal.
    prior : bool
        Whether the threshold was set on strangers who were simulated from a
        background, before anything was measured on these people.
    """

    threshold: float
    kind: Literal["fmr", "fpir", "given"]
    target: float | None = None
    achieved: float | None = None
    low: float | None = None
    high: float | None = None
    missed: float | None = None
    n_comparisons: int = 0
    n_mated: int = 0
    source: str = ""
    model_id: str = ""
    prior: bool = False

    @property
    def rate(self) -> tuple[RateKind, float] | None:
        """The kind and the target of the rate; None if the threshold was given."""
        if self.kind == "given" or self.target is None:
            return None
        return self.kind, self.target

    def describe(self) -> str:
        """Where the threshold comes from, in plain sentences.

        Returns
        -------
        str
            One line.

        Examples
        --------
        >>> from dualqml.recognition import Calibration
        >>> Calibration(0.5, "given", source="given by the user").describe()
        'Threshold 0.5: given by the user.'
        """
        begin = f"Threshold {self.threshold:.4g}: "
        if self.kind == "given" or self.target is None or self.achieved is None:
            return f"{begin}{self.source or 'given by hand'}."
        rate, ask = _RATES[self.kind]
        purpose = f"for a {rate} of {_percent(self.target)}"
        if self.prior:
            text = f"{begin}a prior, from {self.source}, {purpose}."
            if self.missed is not None:
                text += (
                    f" About {_percent(self.missed)} of {ask} for enrolled people "
                    "would be missed."
                )
            return (
                f"{text} Nothing was measured on this gallery yet: calibrate it, with "
                "photographs of other people if you have them."
            )
        text = (
            f"{begin}measured on {self.source}, {purpose}: "
            f"{_percent(self.achieved)} of {self.n_comparisons} {ask}"
        )
        if self.low is not None and self.high is not None:
            text += f" (95 % interval {_percent(self.low)} to {_percent(self.high)})"
        if self.missed is None:
            return f"{text}. How many enrolled people would be missed is not known."
        return (
            f"{text}. {_percent(self.missed)} of {self.n_mated} {ask} for enrolled "
            "people were missed."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


def _percent(rate: float) -> str:
    return f"{100.0 * rate:.3g} %"
