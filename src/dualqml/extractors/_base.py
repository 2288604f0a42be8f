# SPDX-License-Identifier: BSD-3-Clause
"""What all extractors share: checks of the input, and linear projections."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml.core.arrays import Array, Index
from dualqml.extractors._compat import _fit_context


class SupervisedExtractor(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base of transformers that learn from labelled samples. Do not use directly."""

    def _validate_training_data(
        self, X: ArrayLike, y: ArrayLike
    ) -> tuple[Array, Index]:
        """Check the input; set `classes_`; return doubles and class codes."""
        data, target = validate_data(self, X, y, dtype=[np.float64, np.float32])
        with warnings.catch_warnings():
            # Few samples of many classes are our normal case.
            warnings.filterwarnings("ignore", "The number of unique classes")
            check_classification_targets(target)
        self.classes_, codes = np.unique(target, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(
                f"{type(self).__name__} tells classes apart and needs samples of at "
                f"least 2 classes; got 1 class ({self.classes_[0]!r})"
            )
        return data.astype(np.float64, copy=False), codes

    def _validate_samples(self, X: ArrayLike) -> NDArray[np.floating]:
        """Check samples to be transformed by the fitted estimator."""
        check_is_fitted(self)
        data: NDArray[np.floating] = validate_data(
            self, X, dtype=[np.float64, np.float32], reset=False
        )
        return data

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearExtractor(SupervisedExtractor):
    """Base of extractors whose features are linear. Do not use directly.

    A subclass implements `_learn`, which returns the mean to be subtracted
    (or None) and the directions, one a column.
    """

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        raise TypeError(f"{type(self).__name__} does not say what it learns")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the projection.

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
        data, codes = self._validate_training_data(X, y)
        mean, directions = self._learn(data, codes)
        self.mean_ = mean
        self.components_ = np.ascontiguousarray(directions.T)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Project samples on the learnt directions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Features; single precision where X is.
        """
        data = self._validate_samples(X)
        centred = data if self.mean_ is None else data - self.mean_
        return (centred @ self.components_.T).astype(data.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])
