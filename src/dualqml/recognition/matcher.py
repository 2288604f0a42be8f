# SPDX-License-Identifier: BSD-3-Clause
"""Scores of samples for enrolled subjects: a method, and a cosine against strangers.

The method learns to tell enrolled people apart. Its score alone does not detect
strangers well, as it has not learnt from any. The cosine of a sample and the mean of a
subject's samples measures how similar they are. The score is the sum of both. The
cosine is standardised by its mean and standard deviation between different people.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml._linalg import class_means, unit_rows
from dualqml._typing import Array, Index
from dualqml.exceptions import RecognitionError
from dualqml.extractors import DualQMLW
from dualqml.extractors.methods import make_method
from dualqml.extractors.prepared_samples import (
    PreparedSamples,
    ProductCache,
    fit_prepared,
    metric_inputs,
    needs_products,
    prepare_samples,
)
from dualqml.recognition.gallery import Gallery

#: Default parameters of DualQML-W for vectors (see docs/recognition.md).
_VECTOR_PARAMETERS: dict[str, Any] = {
    "rho": 0.5,
    "lam": 0.17,
    "rule": "max",
    "kernel": "linear",
}
#: Default parameters of DualQML-W for images, through local descriptors.
_IMAGE_PARAMETERS: dict[str, Any] = {
    "rho": 0.1,
    "lam": 0.1,
    "rule": "max",
    "descriptor": "local",
    "kernel": "linear",
}
_DUAL_QML_W = "DualQML-W"
#: A smaller standard deviation of the cosines is rounding.
_LEAST_SPREAD = 1e-6


class SampleCache:
    """Results of computations on samples that do not depend on what is learnt.

    They are kept, so that enrolling or removing a subject costs little more than the
    learning. Several threads must not use it at the same time.
    """

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedSamples] = {}
        self._products = ProductCache()

    def forget(self, subject: str) -> None:
        """Delete all results of a subject, and overwrite its samples in memory."""
        self._products.forget(subject)
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


class Matcher:
    """A recognition method fitted to a gallery, with the class-mean cosine.

    Once fitted it does not change, so threads may share it.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    image_shape : tuple of int or None
        Height and width of the images in the rows; None for vectors.
    cosine_weight : float
        Weight of the class-mean cosine.
    parameters : dict
        Parameters of the method.
    """

    def __init__(
        self,
        method: str,
        image_shape: tuple[int, int] | None,
        cosine_weight: float,
        parameters: dict[str, Any],
    ) -> None:
        self.method = method
        self.image_shape = image_shape
        self.cosine_weight = cosine_weight
        self.parameters = parameters
        self.subjects: list[str] = []
        self.model_id = ""
        self.model: Any = None
        self.means: Array | None = None
        self.cosine_mean, self.cosine_spread = 0.0, 1.0

    @classmethod
    def default(
        cls,
        method: str,
        image_shape: tuple[int, int] | None,
        cosine_weight: float | None,
        parameters: dict[str, Any],
    ) -> "Matcher":
        """A matcher with default parameters for the kind of samples."""
        if method == _DUAL_QML_W:
            images = image_shape is not None
            defaults = _IMAGE_PARAMETERS if images else _VECTOR_PARAMETERS
            parameters = defaults | parameters
        if cosine_weight is None:
            cosine_weight = 0.0 if image_shape is not None else 0.8
        return cls(method, image_shape, cosine_weight, parameters)

    def estimator(self) -> BaseEstimator:
        """The method, not fitted.

        Raises
        ------
        ValueError
            There is no such method, or it has no such parameter.
        """
        if self.method != _DUAL_QML_W:
            return make_method(
                self.method, image_shape=self.image_shape, **self.parameters
            )
        known = DualQMLW().get_params()
        for name in self.parameters:
            if name not in known:
                raise ValueError(
                    f"{self.method} has no parameter {name!r}; its parameters are "
                    f"{', '.join(sorted(known))}"
                )
        return DualQMLW(image_shape=self.image_shape, **self.parameters)

    def fitted_to_part(
        self,
        gallery: Gallery,
        kept: Mapping[str, NDArray[np.int64]],
        cache: SampleCache,
    ) -> "Matcher":
        """A matcher like this one, fitted to some samples of some subjects.

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
            The new matcher.
        """
        other = Matcher(
            self.method, self.image_shape, self.cosine_weight, self.parameters
        )
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
        """Learn from the gallery.

        Parameters
        ----------
        gallery : Gallery
            The subjects and their samples.
        cache : SampleCache
            Results for their samples.
        """
        model = self.estimator()
        if isinstance(model, DualQMLW):
            samples, order = cache.joined(model, gallery)
            self._learn_prepared(model, samples, gallery.codes[order])
        else:
            self._learn(model, gallery.rows, gallery.codes)
        self.subjects = list(gallery)

    def _learn(self, model: Any, rows: NDArray[Any], codes: Index) -> None:
        self.model = model.fit(rows.astype(np.float64), codes)
        self._learn_cosines(unit_rows(rows.astype(np.float64)), codes)

    def _learn_prepared(
        self, model: DualQMLW, samples: PreparedSamples, codes: Index
    ) -> None:
        self.model = fit_prepared(model, samples, codes)
        self._learn_cosines(samples.inputs, codes)

    def _learn_cosines(self, units: Array, codes: Index) -> None:
        """Learn the distribution of cosines between different people."""
        self.means = unit_rows(class_means(units, codes)[0])
        self.cosine_mean, spread = _cosines_of_others(units, self.means, codes)
        # Two people with one sample each have one cosine: its spread is only rounding.
        self.cosine_spread = spread if spread > _LEAST_SPREAD else 1.0

    def scores(self, rows: NDArray[Any]) -> Array:
        """Similarities of samples to all subjects, in the order of subjects."""
        if self.model is None or self.means is None:
            raise RecognitionError("The matcher has not been fitted")
        rows = rows.astype(np.float64)
        scores = _class_scores(self.model, rows)
        if self.cosine_weight:
            inputs = unit_rows(rows)
            if isinstance(self.model, DualQMLW):
                inputs = metric_inputs(self.model, rows)
            cosines = inputs @ self.means.T
            standard = (cosines - self.cosine_mean) / self.cosine_spread
            scores = scores + self.cosine_weight * standard
        if not np.isfinite(scores).all():
            raise RecognitionError("A score is not finite: train the model again")
        return scores


def _cosines_of_others(units: Array, means: Array, codes: Index) -> tuple[float, float]:
    """Mean and standard deviation of the cosines to the means of other subjects.

    Computed from sums over all pairs minus the pairs of the same subject: a large
    gallery has too many pairs to store.
    """
    if len(means) <= means.shape[1]:
        squares = float(np.sum((units @ means.T) ** 2))
    else:
        squares = float(np.vdot(units.T @ units, means.T @ means))
    total = float(units.sum(axis=0) @ means.sum(axis=0))
    own = np.einsum("ij,ij->i", units, means[codes])
    n_others = codes.size * (len(means) - 1)
    mean = (total - float(own.sum())) / n_others
    variance = (squares - float(own @ own)) / n_others - mean**2
    return mean, float(np.sqrt(max(variance, 0.0)))


def _class_scores(model: Any, rows: Array) -> Array:
    """Scores with one column per class, also for two classes."""
    if isinstance(model, DualQMLW) and model.qml_.rule == "max":
        return np.asarray(model.transform(rows), dtype=np.float64)
    scores = np.asarray(model.decision_function(rows))
    if scores.ndim == 1:
        # One score for two classes has another scale than one score per class.
        raise RecognitionError(
            "With two subjects this method has one score for both, which no threshold "
            'of larger galleries fits: enrol a third, or use DualQML-W with rule="max"'
        )
    return scores
