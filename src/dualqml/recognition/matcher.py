# SPDX-License-Identifier: BSD-3-Clause
"""Scores of images for enrolled subjects: a method, and a score for strangers.

The quadratic score ranks people best, but tells strangers badly: it is learnt to
tell the enrolled from each other, and a stranger is like none of them. The cosine
to the mean of a subject's samples knows how alike samples of different people are
at all. The score is the sum of both, the cosine in units of its spread between
different enrolled people.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualqml.core.arrays import Array
from dualqml.extractors import DualQMLW
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._subspace import class_means
from dualqml.extractors._within import PreparedSamples
from dualqml.extractors.methods import make_method
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.results import RecognitionError

#: Parameters of DualQML-W that did well for vectors (see docs/recognition.md).
_VECTOR_PARAMETERS: dict[str, Any] = {"rho": 0.5, "lam": 0.17, "rule": "max"}
#: And for images, through local descriptors.
_IMAGE_PARAMETERS: dict[str, Any] = {
    "rho": 0.1,
    "lam": 0.1,
    "rule": "max",
    "descriptor": "local",
}
_OURS = "DualQML-W"
#: Cosines that differ by less differ by rounding.
_LEAST_SPREAD = 1e-6


class Matcher:
    """A method of the tables, fitted to a gallery, with the score for strangers.

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
        self.model: Any = None
        self.means: Array | None = None
        self.cosine_mean, self.cosine_spread = 0.0, 1.0
        self._prepared: dict[str, PreparedSamples] = {}

    @classmethod
    def default(
        cls,
        method: str,
        image_shape: tuple[int, int] | None,
        cosine_weight: float | None,
        parameters: dict[str, Any],
    ) -> "Matcher":
        """A matcher with what did well for the kind of samples, where not given."""
        if method == _OURS:
            images = image_shape is not None
            start = _IMAGE_PARAMETERS if images else _VECTOR_PARAMETERS
            parameters = start | parameters
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
        if self.method != _OURS:
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
        self, gallery: Gallery, kept: Mapping[str, NDArray[np.int64]]
    ) -> "Matcher":
        """A matcher like this one, fitted to some samples of some subjects.

        Parameters
        ----------
        gallery : Gallery
            What this one was fitted to.
        kept : dict of str to ndarray of int
            Which samples of which subjects.

        Returns
        -------
        Matcher
            What was prepared is not prepared again.
        """
        other = Matcher(
            self.method, self.image_shape, self.cosine_weight, self.parameters
        )
        part = Gallery()
        for subject, rows in kept.items():
            part.add(subject, gallery[subject][rows])
            if subject in self._prepared:
                other._prepared[subject] = self._prepared[subject].take(rows)
        other.fit(part)
        return other

    def forget(self, subject: str) -> None:
        """Drop what was prepared of a subject, and all that was learnt with it."""
        self._prepared.pop(subject, None)
        self.model = self.means = None

    def fit(self, gallery: Gallery) -> None:
        """Learn from the gallery.

        What is computed of a subject's samples by themselves is kept, so that a
        subject that comes or goes costs little more than the learning itself.
        """
        rows, codes = gallery.rows.astype(np.float64), gallery.codes
        model = self.estimator()
        if isinstance(model, DualQMLW):
            self._prepare(model, gallery)
            prepared = PreparedSamples.joined([self._prepared[s] for s in gallery])
            model.fit_prepared(prepared, codes)
            units = prepared.inputs
        else:
            model.fit(rows, codes)
            units = unit_rows(rows)
        self.model = model
        self.means = unit_rows(class_means(units, codes)[0])
        # How alike samples and other people's means are.
        cosines = units @ self.means.T
        others = np.ones(cosines.shape, dtype=bool)
        others[np.arange(codes.size), codes] = False
        self.cosine_mean = float(cosines[others].mean())
        spread = float(cosines[others].std())
        # Two people with a sample each have one cosine, and rounding for a spread.
        self.cosine_spread = spread if spread > _LEAST_SPREAD else 1.0

    def _prepare(self, model: DualQMLW, gallery: Gallery) -> None:
        """Prepare the samples of new subjects, all at once."""
        new = [subject for subject in gallery if subject not in self._prepared]
        if not new:
            return
        samples = [gallery[subject] for subject in new]
        prepared = model.prepare(np.concatenate(samples).astype(np.float64))
        ends = np.cumsum([len(own) for own in samples])
        for subject, own, end in zip(new, samples, ends, strict=True):
            self._prepared[subject] = prepared.take(np.arange(end - len(own), end))

    def scores(self, rows: NDArray[Any]) -> Array:
        """Similarities of samples to all subjects, in the order of subjects."""
        if self.model is None or self.means is None:
            raise RecognitionError("The matcher has not been fitted")
        rows = rows.astype(np.float64)
        scores = _for_each_class(self.model, rows)
        if self.cosine_weight:
            inputs = unit_rows(rows)
            if isinstance(self.model, DualQMLW):
                inputs = self.model.metric_._inputs(rows)
            cosines = inputs @ self.means.T
            standard = (cosines - self.cosine_mean) / self.cosine_spread
            scores = scores + self.cosine_weight * standard
        return scores


def _for_each_class(model: Any, rows: Array) -> Array:
    """Scores with a column for each class, also where there are two."""
    if isinstance(model, DualQMLW) and model.qml_.rule == "max":
        return np.asarray(model.transform(rows), dtype=np.float64)
    scores = np.asarray(model.decision_function(rows))
    if scores.ndim == 1:
        # One score for both is on another scale than a score for each.
        raise RecognitionError(
            "With two subjects this method has one score for both, which no threshold "
            'of larger galleries fits: enrol a third, or use DualQML-W with rule="max"'
        )
    return scores
