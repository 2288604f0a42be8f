# SPDX-License-Identifier: BSD-3-Clause
"""How well a recogniser verifies, identifies and tells strangers, on your own data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dualqml.core.arrays import Array
from dualqml.data import DatabaseError
from dualqml.evaluation import (
    Interval,
    bootstrap_interval,
    cmc_curve,
    equal_error_rate,
    fnir_at_fpir,
    fnmr_at_fmr,
)
from dualqml.experiments.threshold_checks import ThresholdCheck, check_thresholds
from dualqml.extractors._neighbours import class_similarities, unit_rows
from dualqml.extractors._subspace import class_means
from dualqml.extractors.local_descriptors import local_descriptors
from dualqml.recognition import RecognitionError, Recognizer
from dualqml.recognition.inputs import InputReader

#: Rows of the tables beside the recogniser's own: what many people use today.
NEAREST, CLASS_MEAN = "nearest neighbour, cosine", "class mean, cosine"
#: And for images the same by local descriptors, as the recogniser sees them.
OF_DESCRIPTORS = " of descriptors"

#: Measures, in the order of the table: heading, and what computes it.
MEASURES: Mapping[str, Callable[["Trial"], float]] = {
    "rank-1 error": lambda trial: 1.0 - cmc_curve(trial.mated, trial.codes)[0],
    "EER": lambda trial: equal_error_rate(trial.genuine, trial.impostor),
    "FNMR at FMR 0.1 %": lambda trial: (
        fnmr_at_fmr(trial.genuine, trial.impostor, fmr=1e-3).fnmr
    ),
    "FNIR at FPIR 10 %": lambda trial: trial.fnir(0.1),
    "FNIR at FPIR 1 %": lambda trial: trial.fnir(0.01),
}


#: From samples to scores, or to features.
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
class OpenSetEvaluation:
    """Scores of several divisions, by the row of the table.

    Attributes
    ----------
    name : str
        The data.
    m : int
        Images of each person that were asked for.
    n_enrolled, n_strangers : int
        People of each kind.
    trials : dict of str to list of Trial
        By row, one for each division.
    thresholds : list of list of ThresholdCheck
        For each division, where a rate was asked for.
    images_each : list of list of int
        For each division, how many images of each person were enrolled: m, or
        fewer of those who have no more than m.
    """

    name: str
    m: int
    n_enrolled: int
    n_strangers: int
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    thresholds: list[list[ThresholdCheck]] = field(default_factory=list)
    images_each: list[list[int]] = field(default_factory=list)

    def values(self, row: str, measure: str) -> Array:
        """A measure in per cent, for each division."""
        return np.array([100.0 * MEASURES[measure](t) for t in self.trials[row]])

    def images_in_words(self) -> str:
        """How many images of each person were enrolled."""
        counts = [count for each in self.images_each for count in each]
        least, most = min(counts, default=self.m), max(counts, default=self.m)
        if least == most:
            return f"{least} image{'s' * (least > 1)} each"
        return f"{least} to {most} images each (median {np.median(counts):g})"

    def interval(self, row: str, fpir: float, *, n_resamples: int = 300) -> Interval:
        """FNIR in the first division, with an interval from drawing people anew."""
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
    **settings: Any,
) -> OpenSetEvaluation:
    """Enrol some of the people, and ask with the others and with other images.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, height, width) or (n_samples, p)
        Images or vectors.
    labels : sequence of str
        Who is on them.
    name : str
        What to call the data.
    m : int, default=3
        Enrolled images of each person; of one with m or fewer, all but one.
    strangers : float, default=1/3
        Share of the people who are not enrolled.
    repeats : int, default=5
        Random divisions.
    seed : int, default=0
        Seed of the divisions.
    fpir : float, optional
        Set thresholds for this rate too, and see whether they keep it.
    progress : callable, optional
        Called with the divisions done and all of them.
    **settings : dict
        Passed to `Recognizer`.

    Returns
    -------
    OpenSetEvaluation
        Scores of the recogniser and of two simple rivals, by the samples as they are
        and, of images, by local descriptors.

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
    found = OpenSetEvaluation(name, m, usable.size - n_strangers, n_strangers)
    for repetition in range(repeats):
        rng = np.random.default_rng([seed, m, repetition])
        dealt = rng.permutation(usable)
        enrolled, unknown = np.sort(dealt[n_strangers:]), dealt[:n_strangers]
        train, test = [], []
        for person in enrolled:
            own = rng.permutation(np.flatnonzero(names == person))
            size = min(m, own.size - 1)
            train.append(own[:size])
            test.append(own[size:])
        found.images_each.append([part.size for part in train])
        known, asked = np.concatenate(train), np.concatenate(test)
        others = np.flatnonzero(np.isin(names, unknown))
        codes = np.searchsorted(enrolled, names[asked])
        with threadpool_limits(1, user_api="blas"):
            recognizer = Recognizer(**settings)
            recognizer.enroll_many(rows[known], names[known].tolist())
            own = np.searchsorted(enrolled, names[known])
            scorers: dict[str, Scorer] = {recognizer.method: recognizer.scores}
            scorers |= _rivals(_flat, rows[known], own)
            if recognizer.inputs == "image":
                described = partial(_described, InputReader(size=recognizer.size))
                rivals = _rivals(described, rows[known], own)
                scorers |= {row + OF_DESCRIPTORS: s for row, s in rivals.items()}
            for row, scores in scorers.items():
                trial = Trial(
                    scores(rows[asked]), codes, scores(rows[others]), names[others]
                )
                found.trials.setdefault(row, []).append(trial)
            if fpir is not None:
                scored = found.trials[recognizer.method][-1]
                found.thresholds.append(
                    check_thresholds(recognizer, **scored._asdict(), fpir=fpir)
                )
        if progress is not None:
            progress(repetition + 1, repeats)
    return found


def _flat(rows: NDArray[Any]) -> Array:
    """The samples as they are."""
    return rows.reshape(len(rows), -1).astype(np.float64)


def _described(reader: InputReader, rows: NDArray[Any]) -> Array:
    """Local descriptors of images."""
    return local_descriptors(reader.read(rows).astype(np.float64), reader.size)


def _rivals(
    features: Scorer, samples: NDArray[Any], codes: NDArray[np.int64]
) -> dict[str, Scorer]:
    """Cosines of some features of the samples."""
    gallery = unit_rows(features(samples))
    means = unit_rows(class_means(gallery, codes)[0])
    n_classes = int(codes.max()) + 1
    return {
        NEAREST: lambda rows: class_similarities(
            features(rows), gallery, codes, n_classes
        ),
        CLASS_MEAN: lambda rows: np.asarray(unit_rows(features(rows)) @ means.T),
    }
