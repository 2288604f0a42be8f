# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours, exact and in bounded memory, and classifiers that use them.

The similarity is the cosine, or minus the squared Euclidean distance. Ties go to the
lowest gallery index, and a vector of zeros never yields NaN.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._linalg import class_means, squared_distances, unit_rows
from dualqml._saved_state import (
    CODES,
    LABELS,
    MATRIX,
    TEXT,
    Path,
    Saved,
    expect_codes,
    fitted,
)
from dualqml._sklearn import StrOptions, _fit_context, class_codes
from dualqml._typing import Array, Index

Metric = Literal["cosine", "euclidean"]

#: Bytes of the similarity matrix held at a time.
_SIMILARITY_BYTES = 8_000_000


class NearestSample(ClassifierMixin, BaseEstimator):
    """Classify by the most similar training sample.

    The search is exact and uses matrix products in chunks, so the memory is bounded
    for any size of the gallery. Ties go to the training sample that comes first.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}, default="cosine"
        The cosine of the angle between feature vectors, which the paper uses, or the
        Euclidean distance. A single feature has no angle, so it is always compared
        by distance. For the Mahalanobis distance use the Euclidean distance of
        whitened features, as :class:`APCA` computes them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    gallery_ : ndarray of shape (n_samples, n_features)
        The training samples, at unit norm for the cosine.
    codes_ : ndarray of shape (n_samples,)
        Classes of the training samples, as indices into `classes_`.
    effective_metric_ : str
        The metric in use.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

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

    _saved: ClassVar[Saved] = fitted(
        classes_=LABELS.of("n_classes"),
        gallery_=MATRIX.of("n_samples", "n_features"),
        codes_=CODES.of("n_samples"),
        effective_metric_=TEXT,
    )

    def __init__(self, *, metric: Metric = "cosine") -> None:
        self.metric = metric

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Store the training samples.

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
        self.effective_metric_ = "euclidean" if data.shape[1] == 1 else self.metric
        self.gallery_ = unit_rows(data) if self.effective_metric_ == "cosine" else data
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
        rows = nearest(data, self.gallery_, self.effective_metric_)
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
            Cosines, or minus squared distances. With two classes, the score of the
            second minus that of the first.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=np.float64, reset=False)
        scores = class_similarities(
            data, self.gallery_, self.codes_, self.classes_.size, self.effective_metric_
        )
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Classes that differ only in the norm of their samples have equal angles.
        tags.classifier_tags.poor_score = self.metric == "cosine"
        return tags

    def _check_saved(self, path: Path) -> None:
        """Raise unless every sample has a class and every class has a sample."""
        expect_codes(self.codes_, self.classes_.size, path, "codes_")


class NearestMean(NearestSample):
    """Classify by the most similar mean of the training samples of a class.

    It is the simplest rule that uses all samples of a class, and the usual one for
    the embeddings of networks.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}, default="cosine"
        The cosine of the angle to the mean of the samples at unit norm, or the
        Euclidean distance to the mean. A single feature has no angle, so it is always
        compared by distance.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    gallery_ : ndarray of shape (n_classes, n_features)
        The means of the classes, at unit norm for the cosine.
    codes_ : ndarray of shape (n_classes,)
        Classes of the means, as indices into `classes_`.
    effective_metric_ : str
        The metric in use.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Examples
    --------
    >>> from dualqml.extractors import NearestMean
    >>> X = [[4.0, 0.0], [4.0, 3.0], [0.0, 1.0]]
    >>> model = NearestMean().fit(X, ["anna", "anna", "bert"])
    >>> model.predict([[1.0, 1.0]])
    array(['anna'], dtype='<U4')
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Average the training samples of each class.

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
        super().fit(X, y)
        means, _ = class_means(self.gallery_, self.codes_)
        cosine = self.effective_metric_ == "cosine"
        self.gallery_ = unit_rows(means) if cosine else means
        self.codes_ = np.arange(self.classes_.size)
        return self


def nearest(queries: Array, gallery: Array, metric: Metric = "cosine") -> Index:
    """Index of the most similar gallery row; ties go to the lowest index.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors. For the cosine they must have unit norm.
    metric : {"cosine", "euclidean"}, default="cosine"
        The similarity.

    Returns
    -------
    ndarray of shape (n_queries,)
        Indices of rows of the gallery.
    """
    out = np.empty(queries.shape[0], dtype=np.intp)
    for rows, similarity in _similarities(queries, gallery, metric):
        out[rows] = similarity.argmax(axis=1)
    return out


def class_similarities(
    queries: Array,
    gallery: Array,
    codes: Index,
    n_classes: int,
    metric: Metric = "cosine",
) -> Array:
    """Largest similarity to the gallery rows of each class.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors. For the cosine they must have unit norm.
    codes : ndarray of shape (n_gallery,)
        Class of each gallery row, 0 to n_classes - 1, every class present.
    n_classes : int
        Number of classes.
    metric : {"cosine", "euclidean"}, default="cosine"
        The similarity.

    Returns
    -------
    ndarray of shape (n_queries, n_classes)
        Cosines, or minus squared distances.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    starts = np.cumsum(counts) - counts
    out = np.empty((queries.shape[0], n_classes))
    for rows, similarity in _similarities(queries, gallery[order], metric):
        out[rows] = np.maximum.reduceat(similarity, starts, axis=1)
    return out


def _similarities(
    queries: Array, gallery: Array, metric: Metric
) -> Iterator[tuple[slice, Array]]:
    """Chunks of queries, and their similarities to the whole gallery."""
    step = max(1, _SIMILARITY_BYTES // (8 * gallery.shape[0]))
    for start in range(0, queries.shape[0], step):
        rows = slice(start, start + step)
        part = queries[rows]
        if metric == "cosine":
            yield rows, unit_rows(part) @ gallery.T
        else:
            yield rows, -squared_distances(part, gallery)
