# SPDX-License-Identifier: BSD-3-Clause
"""The functions of `geometry` as steps of a pipeline, on rows of pixels."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import validate_data

from dualqml._saved_state import Saved, fitted
from dualqml._sklearn import Interval
from dualqml.images.geometry import align_eyes, crop, resize, to_grey
from dualqml.images.shapes import (
    ImageShape,
    SizeLike,
    is_square,
    read_size,
    shape_or_row,
)

Rows = NDArray[np.floating]

#: Columns after the pixels: row and column of the left eye, then of the right eye.
_EYE_COLUMNS = 4


class ImageStep(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of steps that change images one by one. Do not use directly."""

    image_shape: SizeLike | None
    n_features_in_: int

    def _shape_out(self, n_features: int) -> ImageShape:
        """Check the parameters; return height and width of the changed images."""
        raise TypeError(f"{type(self).__name__} does not implement _shape_out")

    def _changed(self, rows: Rows) -> Rows:
        """Return changed images, one per row, for rows that were checked."""
        raise TypeError(f"{type(self).__name__} does not implement _changed")

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the parameters and the shape of the images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Images, one per row.
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
            Images, one per row.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Changed images, one per row, in single precision if X is. They share no
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
        """Return the end of an error message if the shape was only a guess."""
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


class GreyConverter(ImageStep):
    """Convert colour images to grey, as a step of a pipeline.

    Images that are grey already do not change. Nothing is learned from the training
    set.

    Parameters
    ----------
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. A row has either one
        feature for each pixel, its grey, or three, its red, green and blue: a
        colour image of shape (height, width, 3), flattened. None means:

        - square grey images if the number of features is a square;
        - square colour images if a third of it is a square;
        - grey images if it is not a multiple of three.

        Other numbers could mean both, and are an error.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    to_grey : The same as a function of image arrays.

    Notes
    -----
    Remove a channel of opacity first:
    ``images[..., :3].reshape(len(images), -1)``.

    Examples
    --------
    >>> from dualqml.data import GreyConverter
    >>> red_and_white = [[255.0, 0.0, 0.0, 255.0, 255.0, 255.0]]
    >>> GreyConverter(image_shape=(1, 2)).fit_transform(red_and_white)
    array([[ 76.245, 255.   ]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = fitted()

    def __init__(self, *, image_shape: SizeLike | None = None) -> None:
        self.image_shape = image_shape

    def _shape_out(self, n_features: int) -> ImageShape:
        n_channels = _n_channels(self.image_shape, n_features)
        return shape_or_row(self.image_shape, n_features // n_channels)

    def _changed(self, rows: Rows) -> Rows:
        shape = self._shape_out(rows.shape[1])
        n_pixels = shape[0] * shape[1]
        if rows.shape[1] == n_pixels:
            return rows.copy()
        grey = np.empty((rows.shape[0], n_pixels), rows.dtype)
        # One image at a time: a database in double precision may not fit into memory.
        for place, row in enumerate(rows):
            grey[place] = to_grey(row.reshape(*shape, 3)).ravel()
        return grey


class Cropper(ImageStep):
    """Cut the same rectangle out of images, as a step of a pipeline.

    Nothing is learned from the training set.

    Parameters
    ----------
    box : tuple of int, default=None
        Top, left, bottom and right. Top and left are the first row and column of
        the rectangle, bottom and right the first row and column after it. None means
        the whole image.
    image_shape : tuple of int, default=None
        Height and width of the grey images in the rows of X. None means square
        images if the number of features is a square, else one row.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    crop : The same as a function of image arrays.

    Examples
    --------
    >>> from dualqml.data import Cropper
    >>> image = [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    >>> Cropper(box=(0, 1, 2, 3), image_shape=(2, 3)).fit_transform(image)
    array([[1., 2., 4., 5.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "box": [tuple, list, None],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = fitted()

    def __init__(
        self,
        *,
        box: tuple[int, int, int, int] | None = None,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.box = box
        self.image_shape = image_shape

    def _shape_out(self, n_features: int) -> ImageShape:
        shape = shape_or_row(self.image_shape, n_features)
        if self.box is None:
            return shape
        try:
            # An image that takes no memory: only its shape is needed.
            height, width = crop(np.broadcast_to(0.0, shape), self.box).shape
        except ValueError as error:
            raise ValueError(f"{error}{self._hint(shape)}") from error
        return height, width

    def _changed(self, rows: Rows) -> Rows:
        if self.box is None:
            return rows.copy()
        shape = shape_or_row(self.image_shape, rows.shape[1])
        # A view would keep the whole images in memory.
        cut: Rows = crop(rows.reshape(-1, *shape), self.box).copy()
        return cut.reshape(rows.shape[0], -1)


class Resizer(ImageStep):
    """Resize images by the Lanczos filter, as a step of a pipeline.

    Nothing is learned from the training set.

    Parameters
    ----------
    size : tuple of int, default=(32, 32)
        Height and width of the result. The proportions may change.
    image_shape : tuple of int, default=None
        Height and width of the grey images in the rows of X. None means square
        images if the number of features is a square, else one row. Always give
        it for images that are not square.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    resize : The same as a function of image arrays.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from dualqml.data import Resizer
    >>> X, y = load_digits(return_X_y=True)
    >>> Resizer(size=(4, 4), image_shape=(8, 8)).fit_transform(X).shape
    (1797, 16)
    >>> model = make_pipeline(Resizer(size=(4, 4)), KNeighborsClassifier())
    >>> bool(model.fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "size": ["array-like"],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = fitted()

    def __init__(
        self,
        *,
        size: SizeLike = (32, 32),
        image_shape: SizeLike | None = None,
    ) -> None:
        self.size = size
        self.image_shape = image_shape

    def _shape_out(self, n_features: int) -> ImageShape:
        shape_or_row(self.image_shape, n_features)
        return read_size(self.size)

    def _changed(self, rows: Rows) -> Rows:
        shape = shape_or_row(self.image_shape, rows.shape[1])
        resized: Rows = resize(rows.reshape(-1, *shape), self.size)
        return resized.reshape(rows.shape[0], -1)


class EyeAligner(ImageStep):
    """Rotate, scale and crop faces by their eyes, as a step of a pipeline.

    Every face has its own eyes, and they stay with it in splits and pipelines: a row
    of X has the pixels of a grey image and then, in its last four columns, the row
    and column of the left eye and the row and column of the right eye. The result
    has only the pixels. Nothing is learned from the training set.

    Parameters
    ----------
    size : tuple of int, default=(32, 32)
        Height and width of the aligned faces.
    eye_row : float, default=0.35
        Height at which the eyes are placed, from 0 at the top to 1 at the bottom.
    eye_distance : float, default=0.5
        Distance between the eyes, relative to the width. The middle between them
        is placed in the middle of the row.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X, without the columns of the
        eyes. None means square images if the number of pixels is a square, else one
        row.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit: the pixels and four columns of eyes.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    align_eyes : The same as a function of one image and its eyes.

    Notes
    -----
    The coordinates of the eyes are those of `align_eyes`: the row first, the centre
    of the top left pixel is (0, 0), left and right as they are in the image. If your
    files give x and y, y is the row and x is the column.

    Steps before this one must not change the columns of the eyes. For example,
    colour images are converted to grey by ``ColumnTransformer([("grey",
    GreyConverter(), slice(0, -4)), ("eyes", "passthrough", slice(-4, None))])``.
    Crop and resize after this step, since both move the eyes.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import EyeAligner
    >>> faces = np.random.default_rng(0).random((2, 112, 92))
    >>> left_eyes = [(50.2, 30.1), (48.0, 29.3)]
    >>> right_eyes = [(46.0, 61.5), (49.4, 60.0)]
    >>> X = np.column_stack([faces.reshape(2, -1), left_eyes, right_eyes])
    >>> EyeAligner(image_shape=(112, 92)).fit_transform(X).shape
    (2, 1024)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "size": ["array-like"],
        "eye_row": [Interval(Real, 0, 1, closed="neither")],
        "eye_distance": [Interval(Real, 0, 1, closed="neither")],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = fitted()

    def __init__(
        self,
        *,
        size: SizeLike = (32, 32),
        eye_row: float = 0.35,
        eye_distance: float = 0.5,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.size = size
        self.eye_row = eye_row
        self.eye_distance = eye_distance
        self.image_shape = image_shape

    def _shape_in(self, n_features: int) -> ImageShape:
        n_pixels = n_features - _EYE_COLUMNS
        if n_pixels < 1:
            raise ValueError(
                f"X has {n_features} feature(s), but EyeAligner needs 5 or more: the "
                "pixels of an image, and then the row and column of its left eye and "
                "the row and column of its right eye"
            )
        try:
            return shape_or_row(self.image_shape, n_pixels)
        except ValueError as error:
            raise ValueError(
                f"{error} The last four of the {n_features} columns of X are those of "
                "the eyes, and not counted."
            ) from error

    def _shape_out(self, n_features: int) -> ImageShape:
        self._shape_in(n_features)
        return read_size(self.size)

    def _changed(self, rows: Rows) -> Rows:
        shape = self._shape_in(rows.shape[1])
        height, width = read_size(self.size)
        aligned = np.empty((rows.shape[0], height * width), rows.dtype)
        for place, row in enumerate(rows):
            # Plain numbers are easier to read in error messages.
            eyes = row[-_EYE_COLUMNS:].tolist()
            try:
                face = align_eyes(
                    row[:-_EYE_COLUMNS].reshape(shape),
                    (eyes[0], eyes[1]),
                    (eyes[2], eyes[3]),
                    self.size,
                    self.eye_row,
                    self.eye_distance,
                )
            except ValueError as error:
                raise ValueError(
                    f"Row {place} of X: {str(error).rstrip('.')}. The last four "
                    "columns of X must be the row and column of the left eye and the "
                    f"row and column of the right eye{self._hint(shape)}"
                ) from error
            aligned[place] = face.ravel()
        return aligned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Not every table is valid: the last columns must be eyes within the images.
        tags.input_tags.two_d_array = False
        return tags


def _n_channels(image_shape: SizeLike | None, n_features: int) -> int:
    """Return the number of features of each pixel: 1 if grey, 3 if coloured."""
    if image_shape is not None:
        height, width = read_size(image_shape, "image_shape")
        n_channels, rest = divmod(n_features, height * width)
        if rest or n_channels not in (1, 3):
            raise ValueError(
                f"image_shape={(height, width)} has {height * width} pixels, but "
                f"the rows of X have {n_features} features, neither as many (grey) "
                f"nor {3 * height * width} (red, green and blue of every pixel). Give "
                "the height and width of the images that were flattened into the "
                "rows of X."
            )
        return int(n_channels)
    if n_features % 3 != 0 or is_square(n_features):
        return 1
    if is_square(n_features // 3):
        return 3
    raise ValueError(
        f"The rows of X have {n_features} features: as image_shape is None, they may "
        "be grey images or colour images that are not square. Give the height and "
        "width of the images there."
    )
