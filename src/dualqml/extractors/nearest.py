# SPDX-License-Identifier: BSD-3-Clause
"""The decision rule of the paper's competitors: the nearest training sample."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml.core.arrays import Array
from dualqml.extractors._base import class_codes
from dualqml.extractors._compat import StrOptions, _fit_context
from dualqml.extractors._neighbours import (
    Metric,
    class_similarities,
    nearest,
    unit_rows,
)


class NearestSample(ClassifierMixin, BaseEstimator):
    """Classify by the most similar training sample.

    Exact, by matrix products in chunks: memory stays bounded whatever the size
    of the gallery. Ties go to the training sample that came first.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}, default="cosine"
        The cosine of the angle between feature vectors, which the paper uses,
        or the Euclidean distance. A single feature has no angle, and is always
        compared by distance. The Mahalanobis distance is the Euclidean one on
        whitened features, which :class:`APCA` gives.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    gallery_ : ndarray of shape (n_samples, n_features)
        The training samples, at unit norm for the cosine.
    codes_ : ndarray of shape (n_samples,)
        Their classes, as indices into `classes_`.
    metric_ : str
        The metric in use.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    Examples
    --------
    >>> from dualqml.extractors import NearestSample
    >>> model = NearestSample().fit([[1.0, 0.0], [0.0, 1.0]], ["anna", "bert"])
    >>> model.predict([[5.0, 1.0]])
    array(['anna'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "metric": [StrOptions({"cosine", "euclidean"})]
    }

    def __init__(self, *, metric: Metric = "cosine") -> None:
        self.metric = metric

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Keep the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Feature vectors.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        data, target = validate_data(self, X, y, dtype=np.float64)
        self.classes_, self.codes_ = class_codes(target)
        self.metric_ = "euclidean" if data.shape[1] == 1 else self.metric
        self.gallery_ = unit_rows(data) if self.metric_ == "cosine" else data
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of the nearest training sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Feature vectors.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=np.float64, reset=False)
        rows = nearest(data, self.gallery_, self.metric_)
        return np.asarray(self.classes_[self.codes_[rows]])

    def decision_function(self, X: ArrayLike) -> Array:
        """Similarity to the nearest training sample of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Feature vectors.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Cosines, or minus squared distances. With two classes, that of the
            second less that of the first.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=np.float64, reset=False)
        scores = class_similarities(
            data, self.gallery_, self.codes_, self.classes_.size, self.metric_
        )
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # An angle about the origin cannot tell all clouds of points apart.
        tags.classifier_tags.poor_score = self.metric == "cosine"
        return tags
