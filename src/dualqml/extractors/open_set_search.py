# SPDX-License-Identifier: BSD-3-Clause
"""Choice of the parameters of a recogniser on the enrolled people alone.

Enrolled samples are left out one at a time: they are searches for enrolled people.
Enrolled people are left out one at a time, with all their samples: they are searches
for strangers. Both have closed forms (`_leave_one_out`), so nothing is fitted for a
left-out sample or person.

A score has two parts, each in units of its spread between different people: the
response of DualQML-W, and the cosine to the mean of a person's samples, which detects
strangers that look like nobody. The best weight of the cosine depends on the samples:
zero for some networks, large for others.

The criterion is the rate of false positives at the score of a left-out sample: its
logarithm, in the mean over these samples. This is the area under the curve of missed
people over the logarithm of the false positive rate. A sample for which another person
has a larger score counts as a rate of 1. Differences between candidates are often
smaller than their standard errors, so the result is a mean over all candidates, each
with the weight that its difference to the best allows.

Everything here is a function of the samples given, in their order. No random numbers
are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualqml._linalg import unit_rows
from dualqml._sklearn import one_blas_thread
from dualqml._typing import Array, Index
from dualqml.extractors._coordinates import (
    BACKGROUND_PEOPLE,
    Coordinates,
    CoordinateSystem,
)
from dualqml.extractors._leave_one_out import (
    Contest,
    GalleryFilters,
    LeaveOneOut,
    LeftOutPeople,
    LeftOutSlot,
    contest_classes,
    make_contest,
)
from dualqml.extractors._left_out_scores import extra_energy, with_energy
from dualqml.extractors.class_sizes import MeanResponses, size_gain
from dualqml.extractors.prepared_samples import PreparedSamples
from dualqml.extractors.within_metric import WithinMetric, within_spectrum

#: About so many samples are left out, and so many are strangers.
_MOST_PROBES = 600
#: From this number of people on, one fair gallery (see `_leave_one_out`) is enough.
#: Fewer people have two, each of which has filters of its own.
_ENOUGH_PEOPLE = 100
#: Spreads at or below this are rounding.
_LEAST_SPREAD = 1e-6
#: Fewer people are too few to show how strangers differ from them.
_FEW_CLASSES = 50
#: Spread of responses between different people, if there are too few to measure it.
USUAL_SPREAD = 0.12
#: Added to weights of the cosine before their logarithms are averaged.
_WEIGHT_OFFSET = 0.2
#: Least standard error of a difference between two candidates, as that of a difference
#: of this size in one sample.
_LEAST_DIFFERENCE = 0.7
#: Loss, in units of one sample, of a parameter that is ten times a usual one.
_DEVIATION_LOSS = 0.5


@dataclass(frozen=True)
class OpenSetParameters:
    """Parameters of a recogniser.

    Attributes
    ----------
    rho, lam : float
        Weight of the prior in the metric, and lambda of QML.
    cosine_weight : float
        Weight of the cosine, both parts being in units of their spreads.
    background_weight : float
        Weight of a sample of the background in the within-class scatter.
    """

    rho: float
    lam: float
    cosine_weight: float
    background_weight: float = 0.0


@dataclass(frozen=True)
class OpenSetGrid:
    """The values to try.

    Attributes
    ----------
    rhos, lams, cosine_weights, background_weights : sequence of float
        Values of each parameter.
    usual : OpenSetParameters
        What is chosen if no sample can be left out, and preferred if candidates differ
        by little.
    """

    rhos: Sequence[float]
    lams: Sequence[float]
    cosine_weights: Sequence[float]
    background_weights: Sequence[float]
    usual: OpenSetParameters


@dataclass(frozen=True)
class CosineScale:
    """Mean and spread of cosines between different people.

    Attributes
    ----------
    mean, spread : float
        Of the cosines to the means of the samples of other people.
    """

    mean: float
    spread: float

    @classmethod
    def fitted(
        cls, units: Array, means: Array, codes: Index, *, bounded: bool = True
    ) -> "CosineScale":
        """Learn from the cosines of samples with the means of all other classes.

        Parameters
        ----------
        units : ndarray of shape (n_samples, n_inputs)
            Samples at unit norm.
        means : ndarray of shape (n_classes, n_inputs)
            Class means at unit norm.
        codes : ndarray of shape (n_samples,)
            Classes of the samples.
        bounded : bool, default=True
            Whether the spread of few people is at least that of samples of any
            direction about a common mean.

        Returns
        -------
        CosineScale
            Computed from sums over all pairs minus the pairs of the same class: a
            large gallery has too many pairs to store.
        """
        if len(means) <= means.shape[1]:
            squares = float(np.sum((units @ means.T) ** 2))
        else:
            squares = float(np.vdot(units.T @ units, means.T @ means))
        total = float(units.sum(axis=0) @ means.sum(axis=0))
        own = np.einsum("ij,ij->i", units, means[codes])
        return cls.of_sums(
            total - float(own.sum()),
            squares - float(own @ own),
            n_samples=codes.size,
            n_means=len(means),
            n_inputs=means.shape[1],
            bounded=bounded,
        )

    @classmethod
    def of_sums(
        cls,
        total: float,
        squares: float,
        *,
        n_samples: int,
        n_means: int,
        n_inputs: int,
        bounded: bool = True,
    ) -> "CosineScale":
        """The same from the sum of these cosines and that of their squares.

        Parameters
        ----------
        total, squares : float
            Sums over all pairs of a sample and the mean of another class.
        n_samples, n_means, n_inputs : int
            Numbers of samples, of classes and of values of a sample.
        bounded : bool, default=True
            As for :meth:`fitted`.

        Returns
        -------
        CosineScale
            Mean and spread.
        """
        n_others = n_samples * (n_means - 1)
        mean = total / n_others
        variance = squares / n_others - mean**2
        spread = float(np.sqrt(max(variance, 0.0)))
        if bounded and n_means < _FEW_CLASSES:
            spread = max(spread, (1.0 - mean) * n_inputs**-0.5)
        # Two people with one sample each have one cosine: its spread is only rounding.
        return cls(mean, spread if spread > _LEAST_SPREAD else 1.0)

    def __call__(self, cosines: Array) -> Array:
        """Cosines in units of their spread."""
        return (cosines - self.mean) / self.spread


@dataclass(frozen=True)
class LeftOutScores:
    """Scores of left-out samples and of strangers, with one choice of parameters.

    Attributes
    ----------
    own : ndarray of shape (n_samples,)
        Scores of left-out samples for their own class.
    others : ndarray of shape (n_samples,)
        Their largest scores for other classes.
    strangers : ndarray of shape (n_strangers, n_classes)
        Scores of left-out people; -inf for their own class.
    spread : float
        Spread of the responses of strangers, in units of which responses are.
    mean, scale : float
        Mean and spread, over strangers, of the sum of both parts. The scores are in
        units of this spread, from this mean.
    """

    own: Array
    others: Array
    strangers: Array
    spread: float
    mean: float
    scale: float

    @property
    def losses(self) -> Array:
        """Logarithm of the false positive rate at the score of each sample."""
        best = np.sort(self.strangers.max(axis=1))
        above = best.size - np.searchsorted(best, self.own)
        rates = np.log((1.0 + above) / (1.0 + best.size))
        return np.where(self.own > self.others, rates, 0.0)


@dataclass(frozen=True)
class OpenSetChoice:
    """The result of a search.

    Attributes
    ----------
    parameters : OpenSetParameters
        The chosen parameters.
    scores : callable or None
        A function from the mean energy of QML with these parameters, fitted, to the
        :class:`LeftOutScores`; None if there are fewer than three classes.
    """

    parameters: OpenSetParameters
    scores: Callable[[float], LeftOutScores] | None


#: Makes the coordinate system of the samples for a weight of the background.
SystemOf = Callable[[float], CoordinateSystem]


def classes_in_search(counts: Index) -> Index:
    """The classes whose samples `search_open_set` needs.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.

    Returns
    -------
    ndarray of int
        Their numbers, in ascending order: all, or about a thousand.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.open_set_search import classes_in_search
    >>> classes_in_search(np.array([3, 1, 2]))
    array([0, 1, 2])
    """
    return contest_classes(counts)


def search_open_set(
    metric: WithinMetric,
    samples: PreparedSamples,
    codes: Index,
    grid: OpenSetGrid,
    *,
    system_of: SystemOf | None = None,
) -> OpenSetChoice:
    """Choose the parameters with the lowest loss.

    Parameters
    ----------
    metric : WithinMetric
        The metric; its rho is not used.
    samples : PreparedSamples
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes, 0 to n_classes - 1.
    grid : OpenSetGrid
        The values to try.
    system_of : callable, optional
        Gives the coordinate system of the samples for a weight of the background,
        where these are only the samples that take part (`contest_classes`). By default
        it is computed from the samples.

    Returns
    -------
    OpenSetChoice
        The chosen parameters.
    """
    if codes.max() < 2:
        return OpenSetChoice(grid.usual, None)
    if system_of is None:
        system_of = partial(_system_of_samples, metric, samples, codes)
    with one_blas_thread():
        return _searched(metric, samples, codes, grid, system_of)


def _searched(
    metric: WithinMetric,
    samples: PreparedSamples,
    codes: Index,
    grid: OpenSetGrid,
    system_of: SystemOf,
) -> OpenSetChoice:
    # The samples of a class keep their order: nothing is random.
    contest = make_contest(codes, None)
    search = _Search(metric, samples, codes, contest, system_of)
    if np.bincount(codes).max() == 1:
        return OpenSetChoice(grid.usual, partial(search.scores, grid.usual))
    tried: list[OpenSetParameters] = []
    losses: list[Array] = []
    for weight in grid.background_weights:
        for rho in grid.rhos:
            for lam in grid.lams:
                parts = search.parts(weight, rho, lam)
                for cosine_weight in grid.cosine_weights:
                    tried.append(OpenSetParameters(rho, lam, cosine_weight, weight))
                    losses.append(parts.joined(cosine_weight).losses)
    parameters = _mean_choice(tried, np.array(losses), grid.usual)
    return OpenSetChoice(parameters, partial(search.scores, parameters))


@dataclass(frozen=True)
class _Parts:
    """Both parts of the scores, in units of their spreads.

    The first axis of `left_out` and `strangers` has the response and the cosine.
    """

    left_out: Array
    classes: Index
    strangers: Array
    spread: float

    @classmethod
    def of_responses(
        cls,
        left_out: Array,
        classes: Index,
        strangers: Array,
        *,
        cosines: tuple[Array, Array],
        n_dimensions: int,
    ) -> "_Parts":
        """The responses in units of their spread over strangers, with the cosines."""
        spread = float(strangers[np.isfinite(strangers)].std())
        if strangers.shape[1] < _FEW_CLASSES:
            # At least that of samples of any direction.
            spread = max(spread, n_dimensions**-0.5)
        if not spread > _LEAST_SPREAD:
            spread = USUAL_SPREAD
        of_samples, of_strangers = cosines
        return cls(
            np.stack([left_out / spread, of_samples]),
            classes,
            np.stack([strangers / spread, of_strangers]),
            spread,
        )

    def joined(self, cosine_weight: float) -> LeftOutScores:
        """The sum of both parts, in units of its spread over strangers."""
        left_out = self.left_out[0] + cosine_weight * self.left_out[1]
        strangers = self.strangers[0] + cosine_weight * self.strangers[1]
        finite = strangers[np.isfinite(strangers)]
        mean, scale = float(finite.mean()), float(finite.std())
        if strangers.shape[1] < _FEW_CLASSES:
            # Left-out people are less like the others than strangers are.
            mean, scale = max(mean, 0.0), max(scale, 1.0)
        if not scale > _LEAST_SPREAD:
            scale = 1.0
        left_out = (left_out - mean) / scale
        strangers = (strangers - mean) / scale
        rows = np.arange(self.classes.size)
        own = left_out[rows, self.classes]
        left_out[rows, self.classes] = -np.inf
        others = left_out.max(axis=1)
        return LeftOutScores(own, others, strangers, self.spread, mean, scale)


class _Search:
    """Both parts of the scores of left-out samples and people."""

    def __init__(
        self,
        metric: WithinMetric,
        samples: PreparedSamples,
        codes: Index,
        contest: Contest,
        system_of: SystemOf,
    ) -> None:
        self.metric, self.samples, self.codes = metric, samples, codes
        self._system_of = system_of
        n_classes = len(contest.index)
        n_several = max(1, contest.left_out(0).size)
        n_slots = _MOST_PROBES // n_several
        if contest.has_fair_gallery:
            n_slots = 1 if n_several >= _ENOUGH_PEOPLE else min(n_slots, 2)
        self.contest = contest.with_slots(n_slots)
        self.n_each = max(1, _MOST_PROBES // n_classes)
        places = np.linspace(0, n_classes - 1, min(n_classes, _MOST_PROBES))
        self.strangers = places.round().astype(np.intp)
        self._coordinates: dict[float, tuple[Coordinates, LeaveOneOut]] = {}
        self._learn_cosines()

    def _learn_cosines(self) -> None:
        """Cosines of left-out samples and of strangers with all classes."""
        contest = self.contest
        units = unit_rows(self.samples.inputs[contest.rows])
        sums = np.zeros((len(contest.index), units.shape[1]))
        np.add.at(sums, contest.codes, units)
        scale = CosineScale.fitted(units, unit_rows(sums), contest.codes)
        real = contest.real[self.strangers][:, : self.n_each]
        strangers = units[contest.index[self.strangers][:, : self.n_each][real]]
        self.classes = contest.codes[contest.probes]
        left_out: list[Array] = []
        others: list[Array] = []
        for slot, classes, _ in contest.parts():
            probes = units[contest.index[classes, slot]]
            rest = sums.copy()
            rest[classes] -= probes
            means = unit_rows(rest if contest.has_fair_gallery else sums)
            cosines = probes @ means.T
            # The mean of its own class is always that without the sample.
            own = np.einsum("ij,ij->i", probes, unit_rows(rest[classes]))
            cosines[np.arange(classes.size), classes] = own
            left_out.append(cosines)
            if contest.has_fair_gallery or not others:
                others.append(strangers @ means.T)
        self.left_out_cosines = scale(np.concatenate(left_out))
        self.stranger_cosines = scale(np.concatenate(others))
        # With all samples of all other classes.
        means = unit_rows(sums)
        rows, probes = np.arange(self.classes.size), contest.probes
        own = self.left_out_cosines[rows, self.classes]
        self.final_cosines = scale(units[probes] @ means.T)
        self.final_cosines[rows, self.classes] = own
        self.final_stranger_cosines = scale(strangers @ means.T)

    def _left_out(self, background_weight: float) -> LeaveOneOut:
        """The samples in the spectrum of the metric, for one weight."""
        if background_weight not in self._coordinates:
            coordinates = self._system_of(background_weight).coarse()
            spectrum = within_spectrum(coordinates, self.codes, self.metric.kappa)
            self._coordinates[background_weight] = (
                coordinates,
                LeaveOneOut(
                    self.contest,
                    coordinates.training @ spectrum.directions,
                    self.codes,
                    spectrum.variances,
                    spectrum.scale,
                    own_weight=0.5,
                    only_span=coordinates.only_span,
                ),
            )
        return self._coordinates[background_weight][1]

    def _n_dimensions(self, background_weight: float) -> int:
        """Number of dimensions in which new samples have coordinates."""
        coordinates, _ = self._coordinates[background_weight]
        if coordinates.only_span:
            return coordinates.n_directions
        return int(self.samples.inputs.shape[1])

    def _people(
        self, filters: GalleryFilters, deviations: Array, background_weight: float
    ) -> LeftOutPeople:
        """The strangers: people who are left out in turn."""
        n_other_people = 0
        if self.metric.background is not None and background_weight > 0.0:
            n_other_people = min(self.metric.background.n_people, BACKGROUND_PEOPLE)
        return LeftOutPeople(
            filters,
            deviations,
            self.strangers,
            self.n_each,
            n_other_people=n_other_people,
        )

    def parts(self, background_weight: float, rho: float, lam: float) -> _Parts:
        """Both parts of the scores for a metric and a lambda."""
        left_out = self._left_out(background_weight)
        at = left_out.at(rho, self.contest.n_slots)
        # The norms of strangers change with the size of the gallery, and this one is
        # smaller than the final one. They are left out of the comparison, but not of
        # the meaning of scores.
        at.only_span = False
        deviations = left_out.class_deviations(rho, self.strangers)
        parts = self.contest.parts()
        if self.contest.has_fair_gallery:
            galleries = [(GalleryFilters(at, lam, part[0]), [part]) for part in parts]
        else:
            galleries = [(GalleryFilters(at, lam, None), parts)]
        mated, strangers = [], []
        for filters, own_parts in galleries:
            people = self._people(filters, deviations, background_weight)
            strangers.append(people.responses())
            mated += [
                LeftOutSlot(filters, slot, classes, part).scaled_responses()
                for slot, classes, part in own_parts
            ]
        cosines = (self.left_out_cosines, self.stranger_cosines)
        return _Parts.of_responses(
            np.concatenate(mated),
            self.classes,
            np.concatenate(strangers),
            cosines=cosines,
            n_dimensions=self._n_dimensions(background_weight),
        )

    def scores(self, parameters: OpenSetParameters, energy: float) -> LeftOutScores:
        """Scores with chosen parameters, as they are in the final gallery.

        Strangers are compared with all samples of all others. The own class of a
        left-out sample has one sample less, which is corrected. `energy` is the mean
        energy of QML.
        """
        rho, lam = parameters.rho, parameters.lam
        left_out = self._left_out(parameters.background_weight)
        filters = GalleryFilters(left_out.at(rho, self.contest.n_slots), lam, None)
        deviations = left_out.class_deviations(rho, self.strangers)
        people = self._people(filters, deviations, parameters.background_weight)
        mated = np.empty((0, len(self.contest.index)))
        cosines = self.final_cosines.copy()
        if self.classes.size:
            slots = [LeftOutSlot(filters, *part) for part in self.contest.parts()]
            mated = np.concatenate([slot.scaled_responses() for slot in slots])
            raw = np.concatenate([slot.responses for slot in slots])
            single = np.concatenate([slot.single_responses for slot in slots])
            rows = np.arange(self.classes.size)
            own, scaled = raw[rows, self.classes], mated[rows, self.classes]
            sizes = self.contest.real.sum(axis=1)[self.classes]
            means = MeanResponses(float(single.mean()), own, sizes - 1)
            scale = np.divide(own, scaled, out=np.ones(own.size), where=scaled != 0.0)
            mated[rows, self.classes] += (means(sizes) - means(sizes - 1)) / scale
            # The cosine to a mean grows with the root of the gain.
            gains = size_gain(sizes, means.at_one) / size_gain(sizes - 1, means.at_one)
            cosines[rows, self.classes] *= np.sqrt(gains)
        extra = extra_energy(filters, energy)
        return _Parts.of_responses(
            with_energy(mated, extra),
            self.classes,
            with_energy(people.responses(), extra),
            cosines=(cosines, self.final_stranger_cosines),
            n_dimensions=self._n_dimensions(parameters.background_weight),
        ).joined(parameters.cosine_weight)


def _system_of_samples(
    metric: WithinMetric, samples: PreparedSamples, codes: Index, weight: float
) -> CoordinateSystem:
    if metric.background is not None:
        parameters = metric.get_params(deep=False) | {"background_weight": weight}
        metric = WithinMetric(**parameters)
    return metric._coordinate_system(samples, codes)


def _mean_choice(
    tried: Sequence[OpenSetParameters], losses: Array, usual: OpenSetParameters
) -> OpenSetParameters:
    """The mean of the candidates, each weighted by how likely it is the best.

    The weight is exp(-t^2 / 2), where t is the difference to the lowest loss in units
    of its standard error. The mean is that of the logarithms. Candidates with another
    weight of the background than the best do not count: their models differ in kind.
    """
    n_probes = losses.shape[1]
    values = np.array([_logarithms(candidate) for candidate in tried])
    unusual = np.sum((values - _logarithms(usual)) ** 2, axis=1) / np.log(10.0) ** 2
    penalised = losses.mean(axis=1) + _DEVIATION_LOSS * unusual / n_probes
    best = _preferred(tried, losses, penalised, usual.background_weight)
    gains = losses - losses[best]
    errors = np.maximum(gains.std(axis=1), _LEAST_DIFFERENCE / np.sqrt(n_probes))
    t = (penalised - penalised[best]) / (errors / np.sqrt(n_probes))
    weights = np.exp(-0.5 * np.clip(t, 0.0, 30.0) ** 2)
    weight = tried[best].background_weight
    weights[[candidate.background_weight != weight for candidate in tried]] = 0.0
    rho, lam, shifted = np.exp(np.average(values, axis=0, weights=weights))
    cosine_weight = max(float(shifted) - _WEIGHT_OFFSET, 0.0)
    return OpenSetParameters(float(rho), float(lam), cosine_weight, weight)


def _preferred(
    tried: Sequence[OpenSetParameters], losses: Array, penalised: Array, usual: float
) -> int:
    """The best candidate with the usual weight of the background.

    The best one of all, if it is better by more than a standard error.
    """
    best = int(penalised.argmin())
    is_usual = np.array([c.background_weight == usual for c in tried])
    if is_usual[best] or not is_usual.any():
        return best
    other = int(np.where(is_usual, penalised, np.inf).argmin())
    gain = losses[other] - losses[best]
    clear = gain.mean() > gain.std() / np.sqrt(gain.size)
    return best if clear else other


def _logarithms(parameters: OpenSetParameters) -> Array:
    shifted = parameters.cosine_weight + _WEIGHT_OFFSET
    return np.log([parameters.rho, parameters.lam, shifted])
