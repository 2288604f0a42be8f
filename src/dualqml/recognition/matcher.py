# SPDX-License-Identifier: BSD-3-Clause
"""Scores of samples for enrolled subjects: a method, and a cosine against strangers.

The method learns to tell enrolled people apart. Its score alone may not detect
strangers well, as it has not learnt from any. The cosine of a sample and the mean of a
subject's samples measures how similar they are. The score is the sum of both, each in
units of its spread between different people.

With DualQML-W, what is not given is chosen on the enrolled people, or taken from a
background of others: the metric, lambda and the weight of the cosine. What a score
means is learnt from the same left-out samples, so scores are log-likelihood ratios:
how much more likely this score is for the same person than for another one. That does
not depend on the number of people.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml._linalg import class_means, unit_rows
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError, RecognitionError
from dualqml.extractors import Background, DualQMLW
from dualqml.extractors.open_set_search import (
    USUAL_SPREAD,
    CosineScale,
    OpenSetChoice,
    OpenSetGrid,
    OpenSetParameters,
    SystemOf,
    search_open_set,
)
from dualqml.extractors.prepared_samples import (
    PreparedSamples,
    ProductCache,
    fit_prepared,
    input_class_scores,
    metric_inputs,
    needs_products,
    prepare_samples,
    unfitted_metric,
)
from dualqml.extractors.probabilities import LogRatio
from dualqml.recognition.exact_scorer import ArrayScorer
from dualqml.recognition.folded_search import FoldedSearch
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.gallery_parts import KeptSums, fit_in_parts, fits_in_parts
from dualqml.recognition.score_scale import ScoreScale

#: Parameters of DualQML-W that are never chosen, for vectors and for images.
_VECTOR_PARAMETERS: dict[str, Any] = {"rule": "max", "kernel": "linear"}
_IMAGE_PARAMETERS: dict[str, Any] = _VECTOR_PARAMETERS | {"descriptor": "local"}
#: Values to choose from, and the usual ones (see docs/recognition.md).
_VECTOR_GRID = OpenSetGrid(
    rhos=(0.5, 2.5, 12.5),
    lams=(0.1, 0.4),
    cosine_weights=(0.0, 0.3, 1.0, 2.5, 6.0),
    background_weights=(0.0,),
    usual=OpenSetParameters(2.5, 0.2, 1.0),
)
_IMAGE_GRID = OpenSetGrid(
    rhos=(0.05, 0.3, 2.0),
    lams=(0.1, 1.0),
    cosine_weights=(0.0, 0.3),
    background_weights=(0.0,),
    usual=OpenSetParameters(0.1, 0.1, 0.0),
)
_DUAL_QML_W = "DualQML-W"
#: Weight of the cosine of vectors with other methods, whose scores have other units.
_OTHER_METHODS_WEIGHT = 0.8
#: What is learnt about the scale of scores.
SCALE_FIELDS = ("spread", "mean", "scale", "slope", "offset")
#: With fewer subjects, a background tells more about strangers than they do.
FEW_SUBJECTS = 20
#: Simulated strangers that show the mean of their scores in such galleries.
_N_STRANGERS = 1000


class SampleCache:
    """Results of computations on samples that do not depend on what is learnt.

    They are kept, so that enrolling or removing a subject costs little more than the
    learning. Several threads must not use it at the same time.
    """

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedSamples] = {}
        self._products = ProductCache()
        #: For galleries that are fitted in parts.
        self.sums = KeptSums()

    def forget(self, subject: str) -> None:
        """Delete all results of a subject, and overwrite its samples in memory."""
        self._products.forget(subject)
        self.sums.forget(subject)
        prepared = self._prepared.pop(subject, None)
        if prepared is not None:
            # Temporary copies of a fit have been freed, but not overwritten.
            prepared.inputs.fill(0.0)
            if prepared.tangents is not None:
                prepared.tangents.fill(0.0)

    def joined(
        self, model: DualQMLW, gallery: Gallery
    ) -> tuple[PreparedSamples, Index]:
        """The prepared samples of all subjects.

        Parameters
        ----------
        model : DualQMLW
            The estimator, always with the same parameters.
        gallery : Gallery
            The subjects. Samples of new subjects are prepared, all at once.

        Returns
        -------
        samples : PreparedSamples
            The samples.
        order : ndarray of int of shape (n_samples,)
            The row of each sample in the gallery.
        """
        new = [subject for subject in gallery if subject not in self._prepared]
        if new:
            samples = [gallery[subject] for subject in new]
            prepared = prepare_samples(
                model, np.concatenate(samples).astype(np.float64)
            )
            ends = np.cumsum([len(own) for own in samples])
            for subject, own, end in zip(new, samples, ends, strict=True):
                part = np.arange(end - len(own), end)
                self._prepared[subject] = prepared.take(part)
        parts = {subject: self._prepared[subject] for subject in gallery}
        n_inputs = parts[next(iter(gallery))].inputs.shape[1]
        if needs_products(model, gallery.n_samples, n_inputs):
            return self._products.joined(parts)
        self._products = ProductCache()
        joined = PreparedSamples.joined(list(parts.values()))
        return joined, np.arange(gallery.n_samples)


class Matcher(FoldedSearch):
    """A recognition method fitted to a gallery, with the class-mean cosine.

    Once fitted it does not change, so threads may share it.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    image_shape : tuple of int or None
        Height and width of the images in the rows; None for vectors.
    cosine_weight : float or None
        Weight of the class-mean cosine; None to choose it.
    parameters : dict
        Parameters of the method. With DualQML-W, those that are missing are chosen.
    background : Background or None
        Statistics of other people, for DualQML-W.
    """

    def __init__(
        self,
        method: str,
        image_shape: tuple[int, int] | None,
        cosine_weight: float | None,
        parameters: dict[str, Any],
        background: Background | None = None,
    ) -> None:
        self.method = method
        self.image_shape = image_shape
        self.given_weight = cosine_weight
        self.background = background
        self.given = parameters
        if method == _DUAL_QML_W:
            images = image_shape is not None
            self.given = (_IMAGE_PARAMETERS if images else _VECTOR_PARAMETERS) | (
                parameters
            )
        self.subjects: list[str] = []
        self.model_id = ""
        self.model: Any = None
        self.means: Array | None = None
        #: What was chosen or given, and what scores mean; set by a fit.
        self.parameters = self.given
        self.cosine_weight = 0.0
        self.cosine_mean, self.cosine_spread = 0.0, 1.0
        self.spread, self.mean, self.scale = 1.0, 0.0, 1.0
        self.slope, self.offset = 1.0, 0.0

    @property
    def has_log_ratios(self) -> bool:
        """Whether scores are log-likelihood ratios."""
        return self.method == _DUAL_QML_W and self.given.get("rule") == "max"

    def estimator(self) -> BaseEstimator:
        """The method with the present parameters, not fitted.

        Raises
        ------
        ValueError
            There is no such method, or it has no such parameter.
        """
        if self.method != _DUAL_QML_W:
            # All other methods take long to import, and are seldom used.
            from dualqml.extractors.methods import make_method

            return make_method(
                self.method, image_shape=self.image_shape, **self.parameters
            )
        known = DualQMLW().get_params(deep=False)
        for name in self.parameters:
            if name not in known or name == "background":
                raise ValueError(
                    f"{self.method} has no parameter {name!r}; its parameters are "
                    f"{', '.join(sorted(set(known) - {'background'}))}"
                )
        return DualQMLW(
            image_shape=self.image_shape, background=self.background, **self.parameters
        )

    def without_people(self) -> "Matcher":
        """A matcher with the parameters and the scale of scores of this one.

        Returns
        -------
        Matcher
            It has no subjects and no model.
        """
        other = Matcher(
            self.method,
            self.image_shape,
            self.given_weight,
            self.given,
            self.background,
        )
        other.parameters, other.cosine_weight = self.parameters, self.cosine_weight
        other.cosine_mean = self.cosine_mean
        other.cosine_spread = self.cosine_spread
        for name in SCALE_FIELDS:
            setattr(other, name, getattr(self, name))
        return other

    def fitted_to_part(
        self,
        gallery: Gallery,
        kept: Mapping[str, NDArray[np.int64]],
        cache: SampleCache,
    ) -> "Matcher":
        """A matcher with the parameters of this one, fitted to a part of the gallery.

        Parameters
        ----------
        gallery : Gallery
            The gallery that this matcher was fitted to.
        kept : dict of str to ndarray of int
            The samples to use, by subject.
        cache : SampleCache
            Results for the samples of the gallery.

        Returns
        -------
        Matcher
            The new matcher. Nothing is chosen again, and scores have the same meaning.
        """
        other = self.without_people()
        if fits_in_parts(self, gallery):
            part = Gallery()
            for subject, own in kept.items():
                part.restore(subject, gallery[subject][own])
            fit_in_parts(other, part, KeptSums(), choosing=False)
            other.subjects = list(kept)
            return other
        first = np.searchsorted(gallery.codes, np.arange(len(gallery)))
        starts = dict(zip(gallery, first, strict=True))
        rows = np.concatenate([starts[subject] + own for subject, own in kept.items()])
        codes = np.repeat(np.arange(len(kept)), [len(own) for own in kept.values()])
        model = other.estimator()
        if isinstance(model, DualQMLW):
            samples, order = cache.joined(model, gallery)
            other._learn_prepared(model, samples.take(np.argsort(order)[rows]), codes)
        else:
            other._learn(model, gallery.rows[rows], codes)
        other.subjects = list(kept)
        return other

    def fit(self, gallery: Gallery, cache: SampleCache) -> None:
        """Choose what is not given, and learn from the gallery.

        Parameters
        ----------
        gallery : Gallery
            The subjects and their samples.
        cache : SampleCache
            Results for their samples.

        Raises
        ------
        RecognitionError
            The method cannot learn from these samples.
        """
        try:
            self._fit(gallery, cache)
        except DualQMLError:
            raise
        # Arithmetic fails for samples unlike a background by many powers of ten.
        except (ArithmeticError, ValueError) as error:
            raise RecognitionError(
                f"{self.method} cannot learn from these samples: {error}"
            ) from error

    def _fit(self, gallery: Gallery, cache: SampleCache) -> None:
        model = self.estimator()
        if fits_in_parts(self, gallery):
            fit_in_parts(self, gallery, cache.sums)
        elif isinstance(model, DualQMLW):
            samples, order = cache.joined(model, gallery)
            codes = gallery.codes[order]
            if self.has_log_ratios:
                choice = self._choose(model, samples, codes)
                self._learn_prepared(self.estimator(), samples, codes)
                energy = float(self.model.qml_.energies_.mean())
                self._learn_log_ratios(choice, energy, np.bincount(codes))
            else:
                self.cosine_weight = self._weight_of_other_methods()
                self._learn_prepared(model, samples, codes)
        else:
            self.cosine_weight = self._weight_of_other_methods()
            self._learn(model, gallery.rows, gallery.codes)
        self.subjects = list(gallery)

    def _weight_of_other_methods(self) -> float:
        if self.given_weight is not None:
            return self.given_weight
        return 0.0 if self.image_shape is not None else _OTHER_METHODS_WEIGHT

    def _choose(
        self,
        model: DualQMLW,
        samples: PreparedSamples,
        codes: Index,
        *,
        system_of: SystemOf | None = None,
        resembles: Callable[[Background], bool] | None = None,
    ) -> OpenSetChoice:
        """Choose what is not given.

        The samples may be only those of the search; then `system_of` and `resembles`
        tell what depends on all samples.
        """
        grid = _VECTOR_GRID if self.image_shape is None else _IMAGE_GRID
        background = self.background
        usual = grid.usual
        weights: tuple[float, ...] = (0.0,)
        if background is not None:
            weights = (0.0, 1.0)
            # Where nothing can be left out, it is used if it is of such people. One
            # or two people do not show that.
            n_people = int(codes.max()) + 1
            shown = n_people < 3 or codes.size > n_people
            if resembles is None:
                resembles = partial(_resembles, samples.inputs, codes)
            if shown or resembles(background):
                usual = OpenSetParameters(
                    background.rho, background.lam, background.cosine_weight, 1.0
                )
        given = {k: v for k, v in self.given.items() if hasattr(usual, k)}
        if self.given_weight is not None:
            given["cosine_weight"] = self.given_weight
        rho, lam = given.get("rho"), given.get("lam")
        weight, share = given.get("cosine_weight"), given.get("background_weight")
        grid = OpenSetGrid(
            rhos=grid.rhos if rho is None else (rho,),
            lams=grid.lams if lam is None else (lam,),
            cosine_weights=grid.cosine_weights if weight is None else (weight,),
            background_weights=weights if share is None else (share,),
            usual=OpenSetParameters(**(vars(usual) | given)),
        )
        choice = search_open_set(
            unfitted_metric(model), samples, codes, grid, system_of=system_of
        )
        chosen = vars(choice.parameters).copy()
        self.cosine_weight = float(chosen.pop("cosine_weight"))
        if background is None:
            chosen.pop("background_weight")
        # What is given stays as it is, to the last bit.
        self.parameters = chosen | self.given
        if self.given_weight is not None:
            self.cosine_weight = self.given_weight
        return choice

    def _learn(self, model: Any, rows: NDArray[Any], codes: Index) -> None:
        self.model = model.fit(rows.astype(np.float64), codes)
        self._learn_cosines(unit_rows(rows.astype(np.float64)), codes)

    def _learn_prepared(
        self, model: Any, samples: PreparedSamples, codes: Index
    ) -> None:
        # Scores get their meaning from both of their parts.
        self.model = fit_prepared(model, samples, codes, probabilities=False)
        # The recogniser keeps it, and the fitted model does not need it.
        self.model.background = None
        self._learn_cosines(samples.inputs, codes)

    def _learn_cosines(self, units: Array, codes: Index) -> None:
        """Learn the distribution of cosines between different people."""
        self.means = unit_rows(class_means(units, codes)[0])
        scale = None
        if len(self.means) > 1:
            scale = CosineScale.fitted(
                units, self.means, codes, bounded=self.has_log_ratios
            )
        self._set_cosine_scale(scale)

    def _set_cosine_scale(self, scale: CosineScale | None) -> None:
        """Keep a scale of cosines; of one subject there is none."""
        if scale is not None:
            self.cosine_mean, self.cosine_spread = scale.mean, scale.spread
        elif self.background is not None:
            assert self.means is not None
            cosines = self.background.strangers(_N_STRANGERS) @ self.means.T
            self.cosine_mean = float(cosines.mean())
            self.cosine_spread = float(cosines.std())

    def _learn_log_ratios(
        self, choice: OpenSetChoice, energy: float, counts: Index
    ) -> None:
        """Learn what a score means.

        With a background and few subjects this needs the fitted model.
        """
        found = None
        self.spread, self.mean, self.scale = USUAL_SPREAD, 0.0, 1.0
        if choice.scores is not None:
            found = choice.scores(energy)
            self.spread, self.mean, self.scale = found.spread, found.mean, found.scale
        usual = LogRatio()
        background = self.background
        if background is not None:
            usual = background.log_ratio(int(np.median(counts)))
            if self._needs_strangers(counts.size):
                # So few people say little about strangers.
                strangers = background.strangers(_N_STRANGERS)
                responses = input_class_scores(self.model, strangers)
                self.spread = float(responses.std()) or USUAL_SPREAD
                joined = self._sum_of_parts(responses, strangers)
                self.mean, self.scale = float(joined.mean()), float(joined.std()) or 1.0
        if found is not None:
            others = found.strangers[np.isfinite(found.strangers)]
            usual = LogRatio.fitted(found.own, others, usual=usual)
        self.slope, self.offset = usual.slope, usual.offset

    def _needs_strangers(self, n_subjects: int) -> bool:
        """Whether what a score means is learnt from scores of simulated strangers."""
        return self.background is not None and n_subjects < FEW_SUBJECTS

    def scores(self, rows: NDArray[Any]) -> Array:
        """Similarities of samples to all subjects, in the order of subjects.

        With DualQML-W they are natural logarithms of likelihood ratios.
        """
        return self._joined(*self._responses(rows))

    def score_parts(self, rows: NDArray[Any]) -> dict[str, Array]:
        """The parts of `scores`, which add up to them.

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        dict of str to ndarray of shape (n_samples, n_subjects)
            The parts by name: the score of the method, the cosine to the mean of a
            subject's samples if it has a weight, and with log-likelihood ratios a
            constant.
        """
        parts = self._parts(*self._responses(rows))
        if not self.has_log_ratios:
            return parts
        # The same steps as in _joined, on each part.
        factor = self.slope / self.scale
        parts = {name: factor * part for name, part in parts.items()}
        shape = len(rows), len(self.subjects)
        return parts | {"constant": np.full(shape, self.offset - factor * self.mean)}

    def units(self, rows: NDArray[Any]) -> Array:
        """Samples at unit norm, as the cosines see them: rows or descriptors."""
        rows = rows.astype(np.float64)
        if isinstance(self.model, DualQMLW):
            return metric_inputs(self.model, rows)
        return unit_rows(rows)

    def exact_scorer(self) -> ArrayScorer | None:
        """What gives the scores of some subjects; None but for vectors of DualQML-W."""
        if self.model is None or self.image_shape is not None:
            return None
        if not self.has_log_ratios:
            return None
        metric, qml = self.model.metric_, self.model.qml_
        usual = metric.kernel_ is None and metric.descriptor is None
        # One value has no direction, and is not scaled.
        if not usual or metric.mean_.size == 1:
            return None
        return ArrayScorer(
            mean=metric.mean_,
            coefficients=metric.coefficients_,
            components=qml.components_,
            ranks=qml.ranks_,
            mean_responses=qml.mean_responses_,
            class_scale=qml.class_scale_,
            means=self.means,
            scale=self.score_scale(),
            labels=np.array(self.subjects, dtype=object),
        )

    def _responses(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """Scores of the method alone, and the samples at unit norm."""
        if self.model is None or self.means is None:
            raise RecognitionError("The matcher has not been fitted")
        units = self.units(rows)
        if isinstance(self.model, DualQMLW):
            return input_class_scores(self.model, units), units
        return _class_scores(self.model, rows.astype(np.float64)), units

    def drawn_scores(self, background: Background, n_samples: int) -> Array:
        """Scores of strangers for all subjects, drawn from those of other people.

        They are drawn, independently for each subject, from the scores of the people of
        the background for each other.
        """
        quantiles = background.scores_of_others
        if quantiles is None:
            raise RecognitionError(
                f"The background has {background.n_people} people, too few to set a "
                "threshold: ten with several samples are needed"
            )
        rng = np.random.default_rng(0)
        drawn = rng.choice(quantiles, size=(n_samples, len(self.subjects)))
        return LogRatio(self.slope, self.offset)(drawn)

    def simulated_scores(self, background: Background, n_samples: int) -> Array:
        """Scores of samples of new people, simulated from the background."""
        strangers = background.strangers(n_samples)
        return self._joined(input_class_scores(self.model, strangers), strangers)

    def _joined(self, scores: Array, units: Array) -> Array:
        """Scores from both parts."""
        assert self.means is not None
        if self.has_log_ratios:
            return self.score_scale().scores(scores, units, self.means)
        scores = self._sum_of_parts(scores, units)
        if not np.isfinite(scores).all():
            raise RecognitionError("A score is not finite: train the model again")
        return scores

    def _sum_of_parts(self, scores: Array, units: Array) -> Array:
        return np.asarray(sum(self._parts(scores, units).values()))

    def _parts(self, scores: Array, units: Array) -> dict[str, Array]:
        """What is added to a score, by name."""
        assert self.means is not None
        names = {
            "response": "quadratic form" if self.has_log_ratios else self.method,
            "cosine": "cosine to the mean",
        }
        parts = self.score_scale().sums(scores, units, self.means)
        return {names[name]: part for name, part in parts.items()}

    def score_scale(self) -> ScoreScale:
        """The numbers that turn responses and cosines into scores."""
        return ScoreScale(
            **{field.name: getattr(self, field.name) for field in fields(ScoreScale)}
        )


def _resembles(inputs: Array, codes: Index, background: Background) -> bool:
    return background.resembles(inputs, codes)


def _class_scores(model: Any, rows: Array) -> Array:
    """Scores with one column per class, also for two classes."""
    scores = np.asarray(model.decision_function(rows))
    if scores.ndim == 1:
        # One score for two classes has another scale than one score per class.
        raise RecognitionError(
            "With two subjects this method has one score for both, which no threshold "
            "of larger galleries fits: enrol a third, or use DualQML-W"
        )
    return scores
