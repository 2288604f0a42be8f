# SPDX-License-Identifier: BSD-3-Clause
"""What spoils a gallery: wrong photographs, and people who are enrolled twice.

Each sample is held out once, and the model that was fitted without it answers: the
person that it is enrolled for, another person, or nobody. A person that is enrolled
under two names is found in another way. A model that knows both names learns to tell
them apart, so its scores say nothing about it. One of the two is left out of the
gallery, and its samples must not be taken for the other one.

Where scores are log-likelihood ratios, they are compared with limits of their own. The
threshold of the recogniser is no limit here: it is often far above the scores of good
photographs that are hard, and if it was calibrated on the gallery, a person under two
names has raised it.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml._text import printable
from dualqml._typing import Array, Index
from dualqml.exceptions import RecognitionError
from dualqml.recognition.explanation import EnrolledSample, nearest_samples
from dualqml.recognition.gallery import Gallery

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher, SampleCache
    from dualqml.recognition.recognizer import Recognizer

#: Most fits in which samples are held out.
_MOST_FOLDS = 10
#: Up to this number of people, each is left out alone.
_A_HANDFUL = 10

FindingKind = Literal["same person", "fits another", "outlier", "few samples"]
#: The order in which findings are listed.
_ORDER: tuple[FindingKind, ...] = (
    "same person",
    "fits another",
    "outlier",
    "few samples",
)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """Something that may spoil a gallery, with its evidence.

    Attributes
    ----------
    kind : {"same person", "fits another", "outlier", "few samples"}
        What it is; see :func:`check_gallery`.
    subject : str
        The subject.
    n_samples : int
        Number of samples of the subject.
    index : int or None
        The number of the sample among those of the subject, from 0; None if it is
        about the whole subject.
    name : str
        The name of the sample; "" if it has none.
    score : float or None
        The score of the held-out sample for its own subject. For "same person", the
        median score of the samples of the subject for the other one, with the subject
        left out.
    limit : float or None
        What a score was compared with.
    typical : float or None
        The median score of all held-out samples for their own subjects.
    other : str or None
        The other subject: the one that fits better, the second name of the person, or
        for an outlier the one with the highest score.
    other_score : float or None
        The score of the held-out sample for the other subject. For "same person", the
        median in the other direction; None if it could not be computed.
    nearest : EnrolledSample or None
        The sample of the other subject with the largest cosine to the sample.
    severity : float
        By how much a score is on the wrong side, in units of scores.
    """

    kind: FindingKind
    subject: str
    n_samples: int
    index: int | None = None
    name: str = ""
    score: float | None = None
    limit: float | None = None
    typical: float | None = None
    other: str | None = None
    other_score: float | None = None
    nearest: EnrolledSample | None = None
    severity: float = 0.0

    def in_words(self) -> str:
        """The finding in plain sentences.

        Returns
        -------
        str
            One line.
        """
        if self.kind == "few samples":
            plural = "" if self.n_samples == 1 else "s"
            return (
                f"{self.subject} has {self.n_samples} sample{plural}: enrol more, so "
                "that each can be checked by the others."
            )
        if self.kind == "same person":
            both = f"{self.score:.2f}"
            if self.other_score is not None:
                both += f" and {self.other_score:.2f}"
            return (
                f"{self.subject} and {self.other} may be one person under two names: "
                f"with one of them left out, the median score for the other is {both}, "
                f"above {self.limit:.2f}."
            )
        assert self.index is not None
        sample = self.name or f"sample {self.index + 1}"
        text = f"{sample} of {self.subject} "
        if self.kind == "fits another":
            near = ""
            if self.nearest is not None:
                near = self.nearest.name or f"sample {self.nearest.index + 1}"
                near = f" (nearest: {near}, cosine {self.nearest.cosine:.2f})"
            return (
                f"{text}fits {self.other} better{near}: held out, it scores "
                f"{self.other_score:.2f} for {self.other} and {self.score:.2f} for "
                f"{self.subject}."
            )
        others = self.n_samples - 1
        fit = "the other sample" if others == 1 else f"the {others} other samples"
        return (
            f"{text}does not fit {fit}: held out, it scores {self.score:.2f}, below "
            f"{self.limit:.2f}; {self.typical:.2f} is typical."
        )


@dataclass(frozen=True)
class SampleScore:
    """How well a sample fits the other samples of its subject.

    Attributes
    ----------
    subject : str
        The subject.
    index : int
        The number of the sample among those of the subject, from 0.
    name : str
        The name of the sample; "" if it has none.
    score : float
        The score of the held-out sample for its own subject.
    """

    subject: str
    index: int
    name: str
    score: float


@dataclass(frozen=True)
class GalleryCheck:
    """What was found in a gallery.

    Attributes
    ----------
    findings : tuple of Finding
        People under two names first, then samples that fit another subject, outliers,
        and subjects with few samples; each kind in falling order of severity.
    n_subjects, n_samples : int
        The size of the gallery.
    n_checked : int
        Number of samples that were held out.
    n_pairs : int
        Number of pairs of subjects that were compared.
    own_limit : float or None
        The smallest score of a sample for its own subject that is no outlier.
    other_limit : float or None
        The smallest score for another subject that is a finding.
    typical : float or None
        The median score of held-out samples for their own subjects.
    not_checked : tuple of str
        What could not be checked, and why.
    model_id : str
        The model that was checked.
    own_scores : tuple of SampleScore
        The score of each sample that was held out, the worst first. All samples are in
        the gallery, so a finding about a sample may have another score: it is checked
        again without the worst sample of each subject.
    """

    findings: tuple[Finding, ...]
    n_subjects: int
    n_samples: int
    n_checked: int
    n_pairs: int
    own_limit: float | None
    other_limit: float | None
    typical: float | None
    not_checked: tuple[str, ...]
    model_id: str
    own_scores: tuple[SampleScore, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


def check_gallery(
    recognizer: "Recognizer", *, few: int = 2, progress: Progress | None = None
) -> GalleryCheck:
    """Look for what spoils a gallery.

    Findings are of four kinds:

    - "same person": two subjects may be one person under two names. With one of them
      left out of the gallery, its samples reach the limit for the other one: their
      median does, or the mean of the medians in both directions where that is
      possible.
    - "fits another": held out, the sample scores higher for another subject than for
      its own, and reaches the limit for the other one.
    - "outlier": held out, the sample is below the limit for its own subject, which
      its other samples describe.
    - "few samples": a subject has too few samples to check them.

    With DualQML-W, the limit of another subject is the logarithm of the number of
    other subjects: then it is as likely as not that the person is one of them. The
    limit of the own subject is 0, where a stranger is as likely, or the threshold if
    that is lower. For other methods both are the threshold. Without one there are no
    limits: nothing is an outlier, and people under two names are not looked for.

    A sample is listed once. Samples that seem wrong are checked again without the worst
    of each subject, as one wrong sample makes right ones look wrong.

    Parameters
    ----------
    recognizer : Recognizer
        The recogniser. It is not changed. Other threads wait with changes until the
        check has ended.
    few : int, default=2
        Subjects with fewer samples are listed.
    progress : callable, default=None
        Called as ``progress(done, total)`` after each fit. The total may grow.

    Returns
    -------
    GalleryCheck
        The findings. They are the same at every call.

    Raises
    ------
    RecognitionError
        Too few people are enrolled to fit a model.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer, check_gallery
    >>> rng = np.random.default_rng(0)
    >>> recognizer = Recognizer(threshold=0.0)
    >>> faces = {name: rng.normal(size=20) for name in ["Ann", "Bob", "Eve", "Zoe"]}
    >>> for name, face in faces.items():
    ...     recognizer.enroll(name, face + 0.2 * rng.normal(size=(4, 20)))
    >>> check_gallery(recognizer).findings
    ()
    >>> recognizer.enroll("Ann", faces["Zoe"], names=["ann5.jpg"])
    >>> finding = check_gallery(recognizer).findings[0]
    >>> finding.kind, finding.subject, finding.name, finding.other
    ('fits another', 'Ann', 'ann5.jpg', 'Zoe')
    """
    if few < 0:
        raise RecognitionError(f"few must not be negative, got {few}")
    with recognizer._lock:
        matcher = recognizer._fitted_matcher()
        own_limit = other_limit = recognizer.threshold
        if matcher.has_log_ratios:
            own_limit = min(0.0, 0.0 if own_limit is None else own_limit)
            other_limit = math.log(max(len(matcher.subjects) - 1, 1))
        check = _Check(
            recognizer._gallery,
            matcher,
            recognizer._cache,
            own_limit=own_limit,
            other_limit=other_limit,
            least=_least_subjects(recognizer, matcher),
            progress=progress,
        )
        return check.run(few)


def _least_subjects(recognizer: "Recognizer", matcher: "Matcher") -> int:
    """Smallest number of subjects for which a model has a score for each."""
    least = recognizer._least_subjects()
    return least if matcher.method == "DualQML-W" else max(least, 3)


class _Place(NamedTuple):
    """A sample: the column of its subject, and its number among its samples."""

    column: int
    number: int


class _Check:
    """One check of a gallery."""

    def __init__(
        self,
        gallery: Gallery,
        matcher: "Matcher",
        cache: "SampleCache",
        *,
        own_limit: float | None,
        other_limit: float | None,
        least: int,
        progress: Progress | None,
    ) -> None:
        self.gallery, self.matcher, self.cache = gallery, matcher, cache
        self.own_limit, self.other_limit = own_limit, other_limit
        self.least, self.progress = least, progress
        self.names = list(gallery)
        self.counts = [len(gallery[name]) for name in self.names]
        #: Columns of subjects that may be the same person, themselves included.
        self.aliases = [{column} for column in range(len(self.names))]
        self.done = self.total = 0
        self.n_pairs = 0
        self.not_checked: list[str] = []

    def run(self, few: int) -> GalleryCheck:
        """All findings."""
        folds, people = self._folds(), self._groups_of_people()
        self.total = len(folds) + len(people)
        scores = self._held_out(folds, {})
        findings = self._same_people(people, self._suspects(scores))
        own = [self._own_score(place, row) for place, row in scores.items()]
        typical = float(np.median([s.score for s in own])) if own else None
        findings += [replace(f, typical=typical) for f in self._wrong_samples(scores)]
        findings += [
            Finding("few samples", name, count, severity=float(few - count))
            for name, count in zip(self.names, self.counts, strict=True)
            if count < few
        ]
        findings.sort(
            key=lambda f: (_ORDER.index(f.kind), -f.severity, f.subject, f.index or 0)
        )
        return GalleryCheck(
            findings=tuple(findings),
            n_subjects=len(self.names),
            n_samples=self.gallery.n_samples,
            n_checked=len(scores),
            n_pairs=self.n_pairs,
            own_limit=self.own_limit,
            other_limit=self.other_limit,
            typical=typical,
            not_checked=tuple(dict.fromkeys(self.not_checked)),
            model_id=self.matcher.model_id,
            own_scores=tuple(sorted(own, key=lambda s: (s.score, s.subject, s.index))),
        )

    def _folds(self) -> list[list[_Place]]:
        """Samples that are held out at a time: all of them, each once."""
        n_folds = min(_MOST_FOLDS, max(self.counts))
        if n_folds < 2:
            self.not_checked.append("samples: nobody has two")
            return []
        if len(self.names) < self.least:
            self.not_checked.append(f"samples: {self.least} subjects are needed")
            return []
        return [
            [
                _Place(column, index)
                for column, count in enumerate(self.counts)
                if count > 1
                for index in range(fold, count, n_folds)
            ]
            for fold in range(n_folds)
        ]

    def _groups_of_people(self) -> list[Index]:
        """Columns of subjects that are left out at a time.

        Any two subjects are in different groups at least once: they are the places of
        a square, and the groups are its rows and its columns.
        """
        n = len(self.names)
        if n < 2:
            return []
        if self.other_limit is None:
            self.not_checked.append("people under two names: there is no threshold")
            return []
        if n <= _A_HANDFUL:
            groups = [np.array([column]) for column in range(n)]
        else:
            side = math.isqrt(n - 1) + 1
            places = np.arange(n)
            groups = [places[places // side == k] for k in range(side)]
            groups += [places[places % side == k] for k in range(side)]
        kept = [group for group in groups if 0 < group.size <= n - self.least]
        if not kept:
            self.not_checked.append(
                f"people under two names: {self.least + 1} subjects are needed"
            )
        return kept

    def _fitted(self, kept: Mapping[str, NDArray[np.int64]], what: str) -> Any:
        """A matcher of a part of the gallery; None if it cannot be fitted."""
        try:
            found = self.matcher.fitted_to_part(self.gallery, kept, self.cache)
        except (ArithmeticError, ValueError) as error:
            # Some methods need two samples of each subject.
            self.not_checked.append(f"{what}: {printable(str(error), 200)}")
            found = None
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        return found

    def _suspects(self, scores: Mapping[_Place, Array]) -> dict[int, list[int]]:
        """The samples of each subject that seem wrong, the worst first, by column."""
        return {
            column: [place.number for place, _ in own]
            for column, own in self._judged_by_column(scores).items()
        }

    def _kept(self, left_out: Mapping[int, Collection[int]]) -> list[NDArray[np.int64]]:
        """The numbers of the samples of each subject that are not left out."""
        return [
            np.setdiff1d(np.arange(count), sorted(left_out.get(column, ())))
            for column, count in enumerate(self.counts)
        ]

    def _medians(
        self, groups: list[Index], kept: list[NDArray[np.int64]]
    ) -> dict[tuple[int, int], float]:
        """Median scores of subjects that are left out, for each of the others."""
        n = len(self.names)
        scores: dict[tuple[int, int], list[Array]] = {}
        for group in groups:
            strangers = set(group.tolist())
            present = [column for column in range(n) if column not in strangers]
            smaller = self._fitted(
                {self.names[c]: kept[c] for c in present},
                "people under two names",
            )
            if smaller is None:
                continue
            for column in group.tolist():
                own = self.gallery[self.names[column]][kept[column]]
                found = smaller.scores(own)
                for place, other in enumerate(present):
                    scores.setdefault((column, other), []).append(found[:, place])
        return {
            pair: float(np.median(np.concatenate(parts)))
            for pair, parts in scores.items()
        }

    def _same_people(
        self, groups: list[Index], suspects: Mapping[int, list[int]]
    ) -> list[Finding]:
        """Pairs of subjects that may be one person.

        A subject with a wrong sample of another one would look like that one, so
        samples that seem wrong are set aside. If half of the samples of a subject or
        more seem wrong, they stay, as a person under two names fits both. Then the
        pair must be seen without the worst of them too.
        """
        aside = {
            column: own
            for column, own in suspects.items()
            if 2 * len(own) < self.counts[column]
        }
        medians = self._medians(groups, self._kept(aside))
        pairs = sorted({(min(pair), max(pair)) for pair in medians})
        self.n_pairs = len(pairs)
        limit = -math.inf if self.other_limit is None else self.other_limit
        findings = []
        for one, other in pairs:
            both = [medians.get((one, other)), medians.get((other, one))]
            known = [median for median in both if median is not None]
            score = sum(known) / len(known)
            if score < limit:
                continue
            worst = {
                column: suspects[column][:1]
                for column in (one, other)
                if column in suspects and self.counts[column] > 2
            }
            if worst and not self._seen_without(one, other, aside | worst):
                continue
            self.aliases[one].add(other)
            self.aliases[other].add(one)
            # The subject is the one whose samples were scored.
            if both[0] is None:
                one, other, both = other, one, both[::-1]
            findings.append(
                Finding(
                    "same person",
                    self.names[one],
                    self.counts[one],
                    score=both[0],
                    limit=limit,
                    other=self.names[other],
                    other_score=both[1],
                    severity=score - limit,
                )
            )
        return findings

    def _seen_without(
        self, one: int, other: int, aside: Mapping[int, list[int]]
    ) -> bool:
        """Whether two subjects seem one person without some samples."""
        groups = [np.array([column]) for column in (one, other)]
        self.total += len(groups)
        medians = self._medians(groups, self._kept(aside))
        both = [medians.get((one, other)), medians.get((other, one))]
        known = [median for median in both if median is not None]
        # Fewer samples say less: more likely than not is enough.
        limit = 0.0 if self.matcher.has_log_ratios else self.other_limit
        return limit is None or not known or sum(known) / len(known) >= limit

    def _held_out(
        self, folds: list[list[_Place]], aside: Mapping[int, set[int]]
    ) -> dict[_Place, Array]:
        """Scores of samples that are held out, without those that are set aside."""
        scores: dict[_Place, Array] = {}
        for fold in folds:
            left_out = {column: set(own) for column, own in aside.items()}
            for place in fold:
                left_out.setdefault(place.column, set()).add(place.number)
            kept = dict(zip(self.names, self._kept(left_out), strict=True))
            smaller = self._fitted(kept, "samples")
            if smaller is None:
                continue
            rows = np.array([self._row(place) for place in fold])
            for place, row in zip(fold, smaller.scores(rows), strict=True):
                scores[place] = row
        return scores

    def _own_score(self, place: _Place, row: Array) -> SampleScore:
        subject, number = self.names[place.column], place.number
        name = self.gallery.names(subject)[number]
        return SampleScore(subject, number, name, float(row[place.column]))

    def _row(self, place: _Place) -> NDArray[Any]:
        return np.asarray(self.gallery[self.names[place.column]][place.number])

    def _wrong_samples(self, scores: Mapping[_Place, Array]) -> list[Finding]:
        """Samples that fit another subject, or not their own."""
        worst: list[_Place] = []
        again: list[_Place] = []
        for column, own in self._judged_by_column(scores).items():
            worst.append(own[0][0])
            # Two samples that do not fit each other say it once.
            if self.counts[column] > 2:
                again += [place for place, _ in own[1:]]
        if not worst:
            return []
        aside = {place.column: {place.number} for place in worst}
        folds = [worst, *_one_of_each(again)]
        self.total += len(folds)
        found = self._judged(self._held_out(folds, aside))
        return [self._with_nearest(finding) for _, finding in found]

    def _judged_by_column(
        self, scores: Mapping[_Place, Array]
    ) -> dict[int, list[tuple[_Place, Finding]]]:
        """The wrong samples of each subject, the worst first."""
        found: dict[int, list[tuple[_Place, Finding]]] = {}
        for place, finding in self._judged(scores):
            found.setdefault(place.column, []).append((place, finding))
        for own in found.values():
            own.sort(key=lambda item: (_ORDER.index(item[1].kind), -item[1].severity))
        return found

    def _judged(
        self, scores: Mapping[_Place, Array]
    ) -> Iterator[tuple[_Place, Finding]]:
        for place, row in sorted(scores.items()):
            aliases = sorted(self.aliases[place.column])
            own = float(row[aliases].max())
            rest = np.delete(np.arange(row.size), aliases)
            other = rest[row[rest].argmax()] if rest.size else None
            best = -math.inf if other is None else float(row[other])
            kind: FindingKind
            if best > own and (self.other_limit is None or best >= self.other_limit):
                kind, limit, severity = "fits another", self.other_limit, best - own
            elif self.own_limit is not None and own < self.own_limit:
                kind, limit, severity = "outlier", self.own_limit, self.own_limit - own
            else:
                continue
            subject = self.names[place.column]
            yield (
                place,
                Finding(
                    kind,
                    subject,
                    self.counts[place.column],
                    index=place.number,
                    name=self.gallery.names(subject)[place.number],
                    score=own,
                    limit=limit,
                    other=None if other is None else self.names[other],
                    other_score=None if other is None else best,
                    severity=severity,
                ),
            )

    def _with_nearest(self, finding: Finding) -> Finding:
        """The finding with the nearest sample of the other subject."""
        if finding.other is None or finding.index is None:
            return finding
        row = self.gallery[finding.subject][finding.index][None]
        part = Gallery()
        names = self.gallery.names(finding.other)
        part.restore(finding.other, self.gallery[finding.other], names)
        nearest, _ = next(nearest_samples(self.matcher, part, row, [finding.other]))
        return replace(finding, nearest=nearest)


def _one_of_each(places: list[_Place]) -> Iterator[list[_Place]]:
    """The samples, at most one of each subject at a time, in at most ten parts."""
    of_column: dict[int, list[_Place]] = {}
    for place in places:
        of_column.setdefault(place.column, []).append(place)
    n_parts = min(_MOST_FOLDS, max(map(len, of_column.values()), default=0))
    for part in range(n_parts):
        yield [place for own in of_column.values() for place in own[part::n_parts]]
