# SPDX-License-Identifier: BSD-3-Clause
"""What estimators need around scikit-learn: base classes, labels, BLAS threads.

The parts of scikit-learn that are not public are imported here and nowhere else.
"""

import warnings
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from dualqml._saved_state import LABELS, MATRIX, NOTHING, VECTOR, Saved, fitted
from dualqml._typing import Array, Index

__all__ = [
    "Interval",
    "LinearExtractor",
    "StrOptions",
    "SupervisedExtractor",
    "_fit_context",
    "class_codes",
    "one_blas_thread",
]


class SupervisedExtractor(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base class of transformers that learn from labelled samples."""

    _saved: ClassVar[Saved] = fitted(classes_=LABELS.of("n_classes"))

    def _fit(self, data: Array, codes: Index) -> None:
        """Learn from samples and class numbers; `classes_` is set."""
        raise TypeError(f"{type(self).__name__} does not implement _fit")

    def _features(self, data: Array) -> Array:
        """Features of samples that have been validated."""
        raise TypeError(f"{type(self).__name__} does not implement _features")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels, at least two different ones.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        data, target = validate_data(self, X, y, dtype=[np.float64, np.float32])
        codes = self._class_codes(target)
        self._fit(data.astype(np.float64, copy=False), codes)
        return self

    def _least_classes(self) -> int:
        """Smallest number of classes that can be learnt from."""
        return 2

    def _class_codes(self, target: NDArray[Any]) -> Index:
        """Set `classes_` and return the class numbers of the samples."""
        self.classes_, codes = class_codes(target)
        self._check_classes()
        return codes

    def _check_classes(self) -> None:
        """Raise if there are too few classes."""
        if self.classes_.size < self._least_classes():
            raise ValueError(
                f"{type(self).__name__} tells classes apart and needs samples of at "
                f"least 2 classes; got 1 class ({self.classes_[0]!r})"
            )

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Compute the features of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features; in single precision if X is.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._features(data).astype(data.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearExtractor(SupervisedExtractor):
    """Base class of extractors whose features are linear.

    A subclass implements `_learn`, which returns the mean to be subtracted
    (or None) and the directions, one per column.
    """

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        mean_=(VECTOR | NOTHING).of("n_features"),
        components_=MATRIX.of("n_components", "n_features"),
    )

    mean_: Array | None
    components_: Array

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        raise TypeError(f"{type(self).__name__} does not implement _learn")

    def _fit(self, data: Array, codes: Index) -> None:
        self.mean_, directions = self._learn(data, codes)
        self.components_ = np.ascontiguousarray(directions.T)

    def _features(self, data: Array) -> Array:
        centred = data if self.mean_ is None else data - self.mean_
        return np.asarray(centred @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])


def class_codes(target: NDArray[Any]) -> tuple[NDArray[Any], Index]:
    """Check class labels; return the classes, and the class number of each label.

    Many classes with few samples each are normal here. scikit-learn's warning about
    them is not shown.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")
        check_classification_targets(target)
    classes, codes = np.unique(target, return_inverse=True)
    return classes, codes


@cache
def _controller() -> ThreadpoolController:
    # Searching for the loaded libraries takes milliseconds, so it is done once.
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: with small matrices more threads are no faster.

    It also makes results independent of `n_jobs`.
    """
    context: AbstractContextManager[Any] = _controller().limit(
        limits=1, user_api="blas"
    )
    return context
