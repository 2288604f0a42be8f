# SPDX-License-Identifier: BSD-3-Clause
"""Open-set evaluation: how well a recogniser works on your own data.

Some people are enrolled, the others are strangers. Measured is how well the recogniser
verifies and identifies people, how well it rejects strangers, and whether a threshold
that was set for an error rate holds for people who had no part in setting it.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dualqml._linalg import class_means, unit_rows
from dualqml._typing import Array, Index
from dualqml.evaluation import (
    Interval,
    binomial_interval,
    bootstrap_interval,
    cmc_curve,
    equal_error_rate,
    fnir_at_fpir,
    fnmr_at_fmr,
    rule_of_three,
)
from dualqml.exceptions import DatabaseError, RecognitionError
from dualqml.experiments.table_formats import Cell, Heading, Row, Table
from dualqml.extractors.nearest import class_similarities
from dualqml.images.descriptors import local_descriptors
from dualqml.recognition import Calibration, Recognizer
from dualqml.recognition.calibration import Trials, calibrate
from dualqml.recognition.inputs import InputReader

#: Rows of the tables beside the recogniser's own: simple methods in wide use.
NEAREST = "nearest neighbour, cosine"
CLASS_MEAN = "class mean, cosine"

#: What the names of the same methods end in when they compare the local descriptors
#: of images, which the recogniser uses.
OF_DESCRIPTORS = " of descriptors"

#: Measures in the order of the table: the heading, and the function that computes it.
MEASURES: Mapping[str, Callable[["Trial"], float]] = {
    "rank-1 error": lambda trial: 1.0 - cmc_curve(trial.mated, trial.codes)[0],
    "EER": lambda trial: equal_error_rate(trial.genuine, trial.impostor),
    "FNMR at FMR 0.1 %": lambda trial: (
        fnmr_at_fmr(trial.genuine, trial.impostor, fmr=1e-3).fnmr
    ),
    "FNIR at FPIR 10 %": lambda trial: trial.fnir(0.1),
    "FNIR at FPIR 1 %": lambda trial: trial.fnir(0.01),
}

#: A function from samples to scores, or to features.
Scorer = Callable[[NDArray[Any]], Array]


class Trial(NamedTuple):
    """Scores of one division into enrolled people and strangers.

    Attributes
    ----------
    mated : ndarray of shape (n_mated, n_subjects)
        Scores of other images of enrolled people.
    codes : ndarray of int of shape (n_mated,)
        Their columns.
    nonmated : ndarray of shape (n_nonmated, n_subjects)
        Scores of images of strangers.
    strangers : ndarray of shape (n_nonmated,)
        Who they are.
    """

    mated: Array
    codes: NDArray[np.int64]
    nonmated: Array
    strangers: NDArray[np.str_]

    @property
    def genuine(self) -> Array:
        """Scores of mated comparisons."""
        return np.asarray(self.mated[np.arange(self.codes.size), self.codes])

    @property
    def impostor(self) -> Array:
        """Scores of strangers compared with every enrolled person."""
        return self.nonmated.ravel()

    def fnir(self, fpir: float) -> float:
        """False negative identification rate at a false positive one."""
        return float(
            fnir_at_fpir(self.mated, self.codes, self.nonmated, fpir=fpir).fnir
        )


@dataclass(frozen=True)
class ThresholdCheck:
    """A threshold, and its error rates for people who had no part in setting it.

    Attributes
    ----------
    way : str
        How it was set.
    calibration : Calibration
        The threshold and where it comes from.
    fpir : Interval
        Share of the searches for strangers that found somebody.
    fnir : Interval
        Share of the searches for enrolled people that did not find them.
    n_strangers, n_mated : int
        Number of searches of each kind.
    """

    way: str
    calibration: Calibration
    fpir: Interval
    fnir: Interval
    n_strangers: int
    n_mated: int


@dataclass(frozen=True)
class OpenSetEvaluation:
    """Scores of several divisions, by the row of the table.

    Attributes
    ----------
    name : str
        The name of the data.
    m : int
        How many images of each person should be enrolled.
    n_enrolled, n_strangers : int
        Number of people of each kind.
    trials : dict of str to list of Trial
        By row, one for each division.
    thresholds : list of list of ThresholdCheck
        For each division, if a rate was given.
    images_each : list of list of int
        For each division, how many images of each person were enrolled: m, or all
        but one of people who have m or fewer.
    n_people, n_samples : int
        Number of all people and samples, those included that were not used; 0 if
        they are not known.
    sample_shape : tuple of int
        Height and width of an image, or the number of values of a vector.
    """

    name: str
    m: int
    n_enrolled: int
    n_strangers: int
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    thresholds: list[list[ThresholdCheck]] = field(default_factory=list)
    images_each: list[list[int]] = field(default_factory=list)
    n_people: int = 0
    n_samples: int = 0
    sample_shape: tuple[int, ...] = ()

    def values(self, row: str, measure: str) -> Array:
        """A measure in per cent, for each division."""
        return np.array([100.0 * MEASURES[measure](t) for t in self.trials[row]])

    @property
    def sample_word(self) -> str:
        """What the samples are: "image" or "vector"."""
        return "vector" if len(self.sample_shape) == 1 else "image"

    def samples_in_words(self) -> str:
        """How many samples of each person were enrolled."""
        word = self.sample_word
        counts = [count for each in self.images_each for count in each]
        least, most = min(counts, default=self.m), max(counts, default=self.m)
        if least == most:
            return f"{least} {word}{'s' * (least > 1)} each"
        return f"{least} to {most} {word}s each (median {np.median(counts):g})"

    def interval(self, row: str, fpir: float, *, n_resamples: int = 300) -> Interval:
        """FNIR in the first division, with a bootstrap interval over people."""
        trial = self.trials[row][0]
        people = np.char.add("e", trial.codes.astype(str))
        strangers = np.char.add("s", trial.strangers.astype(str))

        def rate(mated: Array, codes: Any, nonmated: Array) -> float:
            return float(fnir_at_fpir(mated, codes, nonmated, fpir=fpir).fnir)

        return bootstrap_interval(
            rate,
            (trial.mated, trial.codes, people),
            (trial.nonmated, strangers),
            n_resamples=n_resamples,
        )


class Division(NamedTuple):
    """What one division into enrolled people and strangers gave.

    Attributes
    ----------
    trials : dict of str to Trial
        Scores by the row of the table.
    thresholds : list of ThresholdCheck or None
        The thresholds; None if no rate was given.
    images_each : list of int
        How many images of each person were enrolled.
    """

    trials: dict[str, Trial]
    thresholds: list[ThresholdCheck] | None
    images_each: list[int]


@dataclass(frozen=True, eq=False)
class OpenSetPlan:
    """What the divisions of an evaluation have in common.

    Attributes
    ----------
    rows : ndarray of shape (n_samples, height, width) or (n_samples, p)
        Images or vectors.
    names : ndarray of str of shape (n_samples,)
        The person of each sample.
    usable : ndarray of str
        The people who have two samples or more.
    n_strangers : int
        How many of them are not enrolled.
    m : int
        Enrolled images of each person.
    seed : int
        Seed of the divisions.
    fpir : float or None
        Rate for which thresholds are set.
    settings : dict
        Passed to `Recognizer`.
    """

    rows: NDArray[Any]
    names: NDArray[np.str_]
    usable: NDArray[np.str_]
    n_strangers: int
    m: int
    seed: int
    fpir: float | None
    settings: dict[str, Any]

    def run(self, repetition: int) -> Division:
        """Divide the people, enrol some of them, and score all other samples.

        Parameters
        ----------
        repetition : int
            Number of the division, from 0.

        Returns
        -------
        Division
            What it gave. It does not depend on the other divisions.
        """
        rows, names = self.rows, self.names
        rng = np.random.default_rng([self.seed, self.m, repetition])
        dealt = rng.permutation(self.usable)
        enrolled = np.sort(dealt[self.n_strangers :])
        train, test = [], []
        for person in enrolled:
            own = rng.permutation(np.flatnonzero(names == person))
            size = min(self.m, own.size - 1)
            train.append(own[:size])
            test.append(own[size:])
        known, asked = np.concatenate(train), np.concatenate(test)
        others = np.flatnonzero(np.isin(names, dealt[: self.n_strangers]))
        codes = np.searchsorted(enrolled, names[asked])
        with threadpool_limits(1, user_api="blas"):
            recognizer = Recognizer(**self.settings)
            recognizer.enroll_many(rows[known], names[known].tolist())
            own = np.searchsorted(enrolled, names[known])
            scorers: dict[str, Scorer] = {recognizer.method: recognizer.scores}
            scorers |= _rivals(_flat, rows[known], own)
            if recognizer.inputs == "image":
                described = partial(_described, InputReader(size=recognizer.size))
                rivals = _rivals(described, rows[known], own)
                scorers |= {row + OF_DESCRIPTORS: s for row, s in rivals.items()}
            trials = {
                row: Trial(
                    scores(rows[asked]), codes, scores(rows[others]), names[others]
                )
                for row, scores in scorers.items()
            }
            thresholds = None
            if self.fpir is not None:
                scored = trials[recognizer.method]
                thresholds = check_thresholds(
                    recognizer, **scored._asdict(), fpir=self.fpir
                )
        return Division(trials, thresholds, [part.size for part in train])


#: A function that runs repetitions of a plan and gives each with its number, as they
#: come.
RunDivisions = Callable[[OpenSetPlan, Sequence[int]], Iterable[tuple[int, Division]]]


def evaluate_open_set(
    rows: NDArray[Any],
    labels: Sequence[str] | NDArray[np.str_],
    *,
    name: str = "data",
    m: int = 3,
    strangers: float = 1.0 / 3.0,
    repeats: int = 5,
    seed: int = 0,
    fpir: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    run_divisions: RunDivisions | None = None,
    **settings: Any,
) -> OpenSetEvaluation:
    """Enrol some of the people; search for their other images and for strangers.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, height, width) or (n_samples, p)
        Images or vectors.
    labels : sequence of str
        The person of each sample.
    name : str
        The name of the data in tables.
    m : int, default=3
        Enrolled images of each person. Of a person with m images or fewer, all but
        one are enrolled.
    strangers : float, default=1/3
        Share of the people who are not enrolled.
    repeats : int, default=5
        Number of random divisions into enrolled people and strangers.
    seed : int, default=0
        Seed of the divisions.
    fpir : float, optional
        Set thresholds for this rate too, and check whether they hold.
    progress : callable, optional
        Called with the number of divisions done and the number of all.
    run_divisions : callable, optional
        Runs divisions elsewhere, such as on a cluster. It gets an `OpenSetPlan` and
        the numbers of the divisions, and returns an iterable of numbers and
        divisions in any order.
    **settings : dict
        Passed to `Recognizer`.

    Returns
    -------
    OpenSetEvaluation
        Scores of the recogniser and of two simple methods. These compare the samples
        as they are and, for images, also local descriptors.

    Raises
    ------
    DatabaseError
        There are too few people or images.
    RecognitionError
        The rate is not between 0 and 1.
    """
    if repeats < 1:
        raise DatabaseError(f"repeats must be at least 1, got {repeats}")
    if fpir is not None and not 0.0 < fpir < 1.0:
        raise RecognitionError(f"fpir must be between 0 and 1, got {fpir!r}")
    names = np.asarray(labels).astype(str)
    people, counts = np.unique(names, return_counts=True)
    usable = people[counts > 1]
    n_strangers = round(strangers * usable.size)
    if usable.size - n_strangers < 2 or n_strangers < 1 or m < 1:
        raise DatabaseError(
            f"{name}: {usable.size} people with two images or more are too few to "
            "enrol two and keep a stranger"
        )
    plan = OpenSetPlan(rows, names, usable, n_strangers, m, seed, fpir, settings)
    divisions: dict[int, Division] = {}
    for repetition, division in (run_divisions or _in_turn)(plan, range(repeats)):
        divisions[repetition] = division
        if progress is not None:
            progress(len(divisions), repeats)
    found = OpenSetEvaluation(
        name,
        m,
        usable.size - n_strangers,
        n_strangers,
        n_people=people.size,
        n_samples=names.size,
        sample_shape=np.shape(rows)[1:],
    )
    for _, division in sorted(divisions.items()):
        found.images_each.append(division.images_each)
        for row, trial in division.trials.items():
            found.trials.setdefault(row, []).append(trial)
        if division.thresholds is not None:
            found.thresholds.append(division.thresholds)
    return found


def check_thresholds(
    recognizer: Recognizer,
    *,
    mated: Array,
    codes: Index,
    nonmated: Array,
    strangers: np.ndarray[tuple[int], np.dtype[np.str_]],
    fpir: float,
) -> list[ThresholdCheck]:
    """Set the threshold in two ways, and measure its error rates on other people.

    Parameters
    ----------
    recognizer : Recognizer
        It has all people enrolled. Its own threshold is set in the second way.
    mated : ndarray of shape (n_mated, n_subjects)
        Scores of other samples of the enrolled people.
    codes : ndarray of int of shape (n_mated,)
        Their columns.
    nonmated : ndarray of shape (n_strangers, n_subjects)
        Scores of samples of strangers.
    strangers : ndarray of str of shape (n_strangers,)
        Who they are.
    fpir : float
        The rate to set the threshold for.

    Returns
    -------
    list of ThresholdCheck
        Set by half of the strangers and tested with the other half; and set by
        leaving the enrolled people out in turn and tested with all strangers. With
        one stranger only, the first is left out; with three enrolled people or
        fewer, the second.
    """
    people = np.unique(strangers)
    for_setting = np.isin(strangers, people[::2])
    found = []
    with warnings.catch_warnings():
        # The table says where there are too few searches.
        warnings.simplefilter("ignore", UserWarning)
        if people.size > 1:
            calibration = calibrate(
                Trials(mated[:0], codes[:0], nonmated[for_setting]),
                kind="fpir",
                target=fpir,
                source=f"{len(people[::2])} other people",
                model_id=recognizer.model_id,
            )
            asked = nonmated[~for_setting]
            found.append(_checked("other people", calibration, mated, codes, asked))
        if len(recognizer.subjects()) > 3:
            calibration = recognizer.calibrate(fpir=fpir)
            way = "the enrolled, left out in turn"
            found.append(_checked(way, calibration, mated, codes, nonmated))
    return found


def threshold_table(name: str, divisions: list[list[ThresholdCheck]]) -> Table:
    """A table of all thresholds of all divisions.

    Parameters
    ----------
    name : str
        The name of the data.
    divisions : list of list of ThresholdCheck
        The thresholds of each division. There must be at least one in all.

    Returns
    -------
    Table
        Rates in per cent with 95 % intervals.
    """
    every = [check.calibration for checks in divisions for check in checks]
    target = every[0].target or 0.0
    fewest = min(calibration.n_comparisons for calibration in every)
    few = []
    if rule_of_three(fewest) > target:
        few = [
            f"{fewest} searches are too few to set a threshold for that: with no "
            f"error among them the rate could be {100 * rule_of_three(fewest):.1f} %."
        ]
    rows = []
    for number, checks in enumerate(divisions, 1):
        for check in checks:
            calibration = check.calibration
            cells = (
                Cell(check.way),
                Cell(f"{calibration.n_comparisons}"),
                Cell(f"{calibration.threshold:.3f}"),
                _percent(check.fpir),
                Cell(f"{check.n_strangers}"),
                _percent(check.fnir),
                Cell(f"{check.n_mated}"),
            )
            rows.append(Row(f"{number}", cells))
    return Table(
        title=f"{name}: does a threshold for an FPIR of {100 * target:g} % hold?",
        corner="Division",
        header=(
            (
                Heading("set by"),
                Heading("searches to set it"),
                Heading("threshold"),
                Heading("FPIR of strangers, %"),
                Heading("of searches"),
                Heading("FNIR, %"),
                Heading("of searches"),
            ),
        ),
        rows=tuple(rows),
        align="ll" + "r" * 6,
        notes=(
            "In brackets: 95 % intervals (Clopper and Pearson). They take the searches "
            "as independent. Searches share people, so the true intervals are wider.",
            "Set by other people: half of the strangers set the threshold, the other "
            "half test it.",
            *few,
        ),
    )


def _in_turn(
    plan: OpenSetPlan, repetitions: Sequence[int]
) -> Iterator[tuple[int, Division]]:
    for repetition in repetitions:
        yield repetition, plan.run(repetition)


def _flat(rows: NDArray[Any]) -> Array:
    """The samples as they are."""
    return rows.reshape(len(rows), -1).astype(np.float64)


def _described(reader: InputReader, rows: NDArray[Any]) -> Array:
    """Local descriptors of images."""
    return local_descriptors(reader.read(rows).astype(np.float64), reader.size)


def _rivals(
    features: Scorer, samples: NDArray[Any], codes: NDArray[np.int64]
) -> dict[str, Scorer]:
    """Two simple methods: cosines of the features of the samples."""
    gallery = unit_rows(features(samples))
    means = unit_rows(class_means(gallery, codes)[0])
    n_classes = int(codes.max()) + 1
    return {
        NEAREST: lambda rows: class_similarities(
            features(rows), gallery, codes, n_classes
        ),
        CLASS_MEAN: lambda rows: np.asarray(unit_rows(features(rows)) @ means.T),
    }


def _checked(
    way: str, calibration: Calibration, mated: Array, codes: Index, nonmated: Array
) -> ThresholdCheck:
    threshold = calibration.threshold
    false = int((nonmated.max(axis=1) >= threshold).sum())
    right = (mated.argmax(axis=1) == codes) & (mated.max(axis=1) >= threshold)
    missed = int((~right).sum())
    return ThresholdCheck(
        way,
        calibration,
        binomial_interval(false, len(nonmated)),
        binomial_interval(missed, len(mated)),
        len(nonmated),
        len(mated),
    )


def _percent(rate: Interval) -> Cell:
    low, high = 100 * rate.low, 100 * rate.high
    return Cell(f"{100 * rate.estimate:.1f}", False, f"({low:.1f} to {high:.1f})")
