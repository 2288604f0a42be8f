# SPDX-License-Identifier: BSD-3-Clause
"""Why an image was recognised, or not: the parts of a score, and the nearest samples.

The parts are those from which the matcher computes the score, and they add up to it.
The nearest samples do not decide. They show what an answer may be about: the enrolled
photograph that is most like the image.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array
from dualqml.recognition.answers import check_top, identifications
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.results import Candidate, Identification

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher

#: Above this, a number of times is given as a power of ten.
_MANY_TIMES = 1e6


@dataclass(frozen=True)
class EnrolledSample:
    """An enrolled sample and its cosine to another sample.

    Attributes
    ----------
    subject : str
        The subject that it is enrolled for.
    index : int
        Its number among the samples of the subject, from 0.
    name : str
        Its name, for example that of its file; "" if it has none.
    cosine : float
        The cosine, in the inputs of the method: rows, or descriptors of images.
    """

    subject: str
    index: int
    name: str
    cosine: float

    def in_words(self) -> str:
        """Its name, or its number, and the cosine.

        Returns
        -------
        str
            For example "Ann/ann1.jpg, cosine 0.71".
        """
        name = self.name or f"sample {self.index + 1} of {self.subject}"
        return f"{name}, cosine {self.cosine:.2f}"


@dataclass(frozen=True)
class ScorePart:
    """A part of a score.

    Attributes
    ----------
    name : str
        What it is. With DualQML-W these are "quadratic form", "cosine to the mean"
        and "constant", with other methods the name of the method and "cosine to the
        mean". A part with the weight 0 is left out.
    value : float
        Its value in the score of the best candidate. The values add up to the score.
    runner_up : float or None
        Its value in the score of the runner-up; None if there is none.
    """

    name: str
    value: float
    runner_up: float | None = None


@dataclass(frozen=True)
class Explanation:
    """Why an image was recognised, or not.

    Attributes
    ----------
    identification : Identification
        The answer that is explained.
    parts : tuple of ScorePart
        The parts of the score of the best candidate.
    margin : float
        The score less the threshold.
    times : float or None
        How many times more likely than needed the same person is, exp(margin); None
        if scores are no likelihood ratios.
    nearest : EnrolledSample
        The sample of the best candidate with the largest cosine to the image.
    nearest_of_all : EnrolledSample or None
        The sample with the largest cosine of all, if it is of another subject.
    runner_up : Candidate or None
        The second candidate; None if one subject is enrolled.
    gap : float or None
        The score of the best candidate less that of the runner-up.
    """

    identification: Identification
    parts: tuple[ScorePart, ...]
    margin: float
    times: float | None
    nearest: EnrolledSample
    nearest_of_all: EnrolledSample | None = None
    runner_up: Candidate | None = None
    gap: float | None = None

    def in_words(self) -> str:
        """The explanation in plain sentences.

        Returns
        -------
        str
            One line.
        """
        answer, nearest = self.identification, self.nearest
        best = answer.candidates[0].subject
        side = "above" if self.margin >= 0.0 else "below"
        text = (
            f"The best candidate is {best} with the score {answer.score:.2f}, "
            f"{abs(self.margin):.2f} {side} the threshold {answer.threshold:.2f}"
        )
        if self.times is not None:
            text += f": {self.margin_in_words()}"
        parts = ", ".join(f"{part.name} {part.value:+.2f}" for part in self.parts)
        text += f". Parts: {parts}. Nearest sample: {nearest.in_words()}."
        if self.nearest_of_all is not None:
            other = self.nearest_of_all
            text += f" A sample of {other.subject} is nearer: {other.in_words()}."
        if self.runner_up is not None and self.gap is not None:
            text += f" Next is {self.runner_up.subject}, {self.gap:.2f} lower."
        return text

    def margin_in_words(self) -> str:
        """How much more or less likely than needed the same person is.

        Returns
        -------
        str
            For example "the same person is 12 times more likely than needed".
        """
        return _times_in_words(self.margin)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


def explanations(
    matcher: "Matcher",
    gallery: Gallery,
    rows: NDArray[Any],
    *,
    top: int,
    threshold: float,
) -> list[Explanation]:
    """Identify samples, and explain the answers.

    Parameters
    ----------
    matcher : Matcher
        The matcher that was fitted to the gallery.
    gallery : Gallery
        The enrolled samples.
    rows : ndarray of shape (n_samples, n_features)
        The samples.
    top : int
        Length of the lists of candidates.
    threshold : float
        The smallest score of a match.

    Returns
    -------
    list of Explanation
        One per sample.
    """
    check_top(top)
    found = identifications(
        matcher, matcher.scores(rows), top=max(top, 2), threshold=threshold
    )
    parts = matcher.score_parts(rows)
    columns = {name: column for column, name in enumerate(matcher.subjects)}
    nearest = nearest_samples(
        matcher, gallery, rows, [answer.candidates[0].subject for answer in found]
    )
    out = []
    for number, (answer, (own, best)) in enumerate(zip(found, nearest, strict=True)):
        first, second = answer.candidates[0], None
        if len(answer.candidates) > 1:
            second = answer.candidates[1]
        margin = answer.score - threshold
        out.append(
            Explanation(
                identification=replace(answer, candidates=answer.candidates[:top]),
                parts=tuple(
                    ScorePart(
                        name,
                        float(values[number, columns[first.subject]]),
                        float(values[number, columns[second.subject]])
                        if second
                        else None,
                    )
                    for name, values in parts.items()
                ),
                margin=margin,
                times=_times(margin) if matcher.has_log_ratios else None,
                nearest=own,
                nearest_of_all=best if best.subject != own.subject else None,
                runner_up=second,
                gap=first.score - second.score if second else None,
            )
        )
    return out


def nearest_samples(
    matcher: "Matcher", gallery: Gallery, rows: NDArray[Any], subjects: Sequence[str]
) -> Iterator[tuple[EnrolledSample, EnrolledSample]]:
    """The enrolled samples with the largest cosines to samples.

    Parameters
    ----------
    matcher : Matcher
        The matcher that was fitted to the gallery.
    gallery : Gallery
        The enrolled samples.
    rows : ndarray of shape (n_samples, n_features)
        The samples.
    subjects : sequence of str
        A subject for each.

    Yields
    ------
    tuple of EnrolledSample
        The nearest of the samples of the subject, and of those of all subjects.
    """
    probes = matcher.units(rows)
    own: dict[int, EnrolledSample] = {}
    best: dict[int, EnrolledSample] = {}
    # One subject after the other: descriptors of all images take much memory.
    for subject in gallery:
        cosines: Array = probes @ matcher.units(gallery[subject]).T
        for number, index in enumerate(np.argmax(cosines, axis=1).tolist()):
            cosine = float(cosines[number, index])
            wanted = subjects[number] == subject
            if wanted or number not in best or cosine > best[number].cosine:
                found = EnrolledSample(
                    subject, index, gallery.names(subject)[index], cosine
                )
                if wanted:
                    own[number] = found
                if number not in best or cosine > best[number].cosine:
                    best[number] = found
    for number in range(len(rows)):
        yield own[number], best[number]


def _times(margin: float) -> float:
    # The largest exponent of a double.
    return math.exp(min(max(margin, -700.0), 700.0))


def _times_in_words(margin: float) -> str:
    times = _times(abs(margin))
    shown = f"10^{abs(margin) / math.log(10.0):.0f}"
    if times < _MANY_TIMES:
        shown = f"{times:,.1f}" if times < 10.0 else f"{times:,.0f}"
    word = "more" if margin >= 0.0 else "less"
    return f"the same person is {shown} times {word} likely than needed"
