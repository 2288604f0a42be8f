# SPDX-License-Identifier: BSD-3-Clause
"""What the steps of a pipeline that change the size of images share."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import validate_data

from dualqml.extractors._images import ImageShape, SizeLike, read_size

Rows = NDArray[np.floating]


class ImageStep(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of steps that change images one by one. Do not use directly."""

    image_shape: SizeLike | None
    n_features_in_: int

    def _shape_out(self, n_features: int) -> ImageShape:
        """Check the parameters; height and width of the images that come out."""
        raise TypeError(f"{type(self).__name__} does not say what comes out of it")

    def _changed(self, rows: Rows) -> Rows:
        """Changed images, one a row, of rows that have been checked."""
        raise TypeError(f"{type(self).__name__} does not say what it does")

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the parameters and the shape of the images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Images, one a row.
        y : None
            Not used.

        Returns
        -------
        self : object
            The same estimator.
        """
        self._checked(X, reset=True)
        return self

    def transform(self, X: ArrayLike) -> Rows:
        """Change images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Images, one a row.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Changed images, one a row; single precision where X is. They share no
            memory with X.
        """
        return self._changed(self._checked(X, reset=False))

    def _checked(self, X: ArrayLike, *, reset: bool) -> Rows:
        self._validate_params()
        if self.image_shape is not None:
            read_size(self.image_shape, "image_shape")
        data: Rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        self._shape_out(data.shape[1])
        return data

    def _hint(self, shape: ImageShape) -> str:
        """The end of an error that a wrong guess of the shape may explain."""
        if self.image_shape is not None:
            return ""
        return (
            f". The rows of X were taken for images of height {shape[0]} and width "
            f"{shape[1]}, as image_shape is None: give it where they are not."
        )

    @property
    def _n_features_out(self) -> int:
        height, width = self._shape_out(self.n_features_in_)
        return height * width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
