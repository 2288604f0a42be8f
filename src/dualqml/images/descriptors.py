# SPDX-License-Identifier: BSD-3-Clause
"""Local descriptors of images: orientation histograms, Gabor magnitudes, pixels."""

import math
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._saved_state import SHAPE, Path, Saved, expect_equal, fitted
from dualqml._sklearn import Interval, _fit_context
from dualqml._typing import Array
from dualqml.images._descriptor_parts import (
    N_DIRECTIONS,
    N_GABOR_FILTERS,
    Moving,
    moving_histograms,
    moving_magnitudes,
    positions,
)
from dualqml.images.shapes import (
    ImageShape,
    SizeLike,
    at_unit_scale,
    resolved_shape,
    row_blocks,
)
from dualqml.images.tangents import edge_step, tangent_images

Part = Literal["orientation", "gabor", "pixels"]

ALL_PARTS: tuple[Part, ...] = get_args(Part)

#: Bytes of temporary arrays for each pixel.
_BYTES_PER_PIXEL = 256
#: Pixels of the images that are computed at a time: their arrays stay in the cache.
_BLOCK_PIXELS = 16384


class LocalDescriptors(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Describe images by local features that tolerate light and small displacement.

    Rows of pixels compare images point by point. A change of lighting or a
    displacement by one pixel changes them as much as another person does. Local
    descriptors record instead which structures are near each point of a grid. In
    the project's measurements they reduce the error of the methods that follow to
    about one half.

    A row of features has up to three parts, each scaled to unit norm: histograms
    of the directions of the gradient, relative to the local contrast [1]_;
    magnitudes of Gabor filters of several wavelengths and directions [2]_; and
    the pixels themselves. Nothing is learned from the images.

    Parameters
    ----------
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. None means square images
        of at least 8 x 8 pixels. Other rows are an error: vectors that are not
        images have no neighbouring pixels.
    parts : sequence of {"orientation", "gabor", "pixels"}, default=all three
        The parts of a row of features, in this order, each at most once.
    stride : int, default=4
        Distance in pixels between the points at which histograms and magnitudes
        are recorded. A shorter axis has one point, in its middle.

    Attributes
    ----------
    image_shape_ : tuple of int
        Height and width of the images.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    local_descriptors : The same as a function.

    Notes
    -----
    The features do not change if an image is multiplied by a positive constant. If
    a constant is added, only the pixels among the features change. An image without
    contrast has zeros for histograms and magnitudes.

    References
    ----------
    .. [1] N. Dalal, B. Triggs, "Histograms of oriented gradients for human
       detection", IEEE CVPR, 2005.
    .. [2] C. Liu, H. Wechsler, "Gabor feature based classification using the
       enhanced Fisher linear discriminant model for face recognition", IEEE
       Transactions on Image Processing, 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.images.descriptors import LocalDescriptors
    >>> X, _ = load_digits(return_X_y=True)
    >>> LocalDescriptors().fit_transform(X).shape
    (1797, 168)
    >>> LocalDescriptors(parts=["orientation"], stride=2).fit_transform(X).shape
    (1797, 128)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "image_shape": ["array-like", None],
        "parts": [tuple, list],
        "stride": [Interval(Integral, 1, None, closed="left")],
    }

    _saved: ClassVar[Saved] = fitted(image_shape_=SHAPE)

    def __init__(
        self,
        *,
        image_shape: SizeLike | None = None,
        parts: Sequence[Part] = ALL_PARTS,
        stride: int = 4,
    ) -> None:
        self.image_shape = image_shape
        self.parts = parts
        self.stride = stride

    @_fit_context(prefer_skip_nested_validation=True)
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
            The fitted estimator.
        """
        data = validate_data(self, X, dtype=[np.float64, np.float32])
        _check_parts(self.parts)
        self.image_shape_ = self._shape(data.shape[1])
        return self

    def _shape(self, n_features: int) -> ImageShape:
        without = "the rows as they are"
        return resolved_shape(self.image_shape, n_features, without=without)

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Compute the features of images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Images, one per row.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features, in single precision if X is.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        features = local_descriptors(
            data, self.image_shape_, parts=self.parts, stride=self.stride
        )
        return features.astype(data.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return sum(_part_sizes(self.image_shape_, self.parts, self.stride))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Not every table is valid: its rows must be images.
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_saved(self, path: Path) -> None:
        """The images have as many pixels as there are features."""
        found, wanted = math.prod(map(int, self.image_shape_)), self.n_features_in_
        source = "n_features_in_"
        expect_equal(found, wanted, path, "image_shape_", "pixels", source)


def local_descriptors(
    X: NDArray[np.floating],
    shape: ImageShape,
    *,
    parts: Sequence[Part] = ALL_PARTS,
    stride: int = 4,
) -> Array:
    """Compute local features of images; each part of a row has unit norm.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one per row.
    shape : tuple of int
        Height and width of the images.
    parts : sequence of {"orientation", "gabor", "pixels"}, default=all three
        The parts of a row of features, in this order.
    stride : int, default=4
        Distance in pixels between the points of the grid.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        The features. Those of an image do not depend on the other images. Besides
        the result little memory is needed.

    Raises
    ------
    ValueError
        There are no parts, a part is unknown, or a part is given twice.
    """
    _check_parts(parts)
    ends = np.cumsum([0, *_part_sizes(shape, parts, stride)])
    out = np.empty((X.shape[0], ends[-1]))
    for rows in _blocks(X, _BYTES_PER_PIXEL):
        pixels = at_unit_scale(X[rows].astype(np.float64, copy=False))
        images = Moving.still(pixels.reshape(-1, *shape))
        for k, part in enumerate(_moving_parts(images, parts, stride)):
            out[rows, ends[k] : ends[k + 1]] = part.values
    return out


def moving_descriptors(
    X: NDArray[np.floating],
    shape: ImageShape,
    *,
    parts: Sequence[Part] = ALL_PARTS,
    stride: int = 4,
) -> tuple[Array, Array]:
    """Compute local features at unit norm, and how they change with small motions.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one per row.
    shape : tuple of int
        Height and width of the images.
    parts : sequence of {"orientation", "gabor", "pixels"}, default=all three
        The parts of a row of features, in this order.
    stride : int, default=4
        Distance in pixels between the points of the grid.

    Returns
    -------
    features : ndarray of shape (n_samples, n_features)
        The rows of :func:`local_descriptors`, scaled to unit norm.
    tangents : ndarray of shape (6, n_samples, n_features)
        Their derivatives by the motions of :func:`.tangent_images`. Where a square
        root is zero, the slope is bounded as that of a difference is, with a step of
        half a pixel at the edge of the image. The change of the local energy is a
        mean over every second row and column, if the stride is even. Besides the
        results little memory is needed.

    Raises
    ------
    ValueError
        There are no parts, a part is unknown, or a part is given twice.
    """
    _check_parts(parts)
    ends = np.cumsum([0, *_part_sizes(shape, parts, stride)])
    out = np.empty((X.shape[0], ends[-1]))
    tangents = np.empty((6, *out.shape))
    # The rotation is the difference of the shears, also for the features.
    rotation = 3
    for rows in _blocks(X, 6 * _BYTES_PER_PIXEL):
        pixels = at_unit_scale(X[rows].astype(np.float64, copy=False))
        moved = np.delete(tangent_images(pixels, shape), rotation, axis=0)
        images = Moving(
            pixels.reshape(-1, *shape),
            moved.reshape(len(moved), -1, *shape),
            edge_step(shape),
        )
        described = list(_moving_parts(images, parts, stride))
        # A part is zero or has unit norm, and so its norm does not change.
        n_parts = sum(part.values.any(axis=1).astype(float) for part in described)
        scale = 1.0 / np.sqrt(np.maximum(n_parts, 1.0))[:, None]
        for part, start, end in zip(described, ends[:-1], ends[1:], strict=True):
            np.multiply(part.values, scale, out=out[rows, start:end])
            here = tangents[:, rows, start:end]
            np.multiply(part.changes[:3], scale, out=here[:3])
            np.multiply(part.changes[3:], scale, out=here[4:])
            np.subtract(here[5], here[4], out=here[3])
    return out, tangents


def orientation_histograms(images: Array, stride: int) -> Array:
    """Compute square roots of local histograms of the direction of the gradient.

    The magnitude of the gradient is divided between the two nearest directions,
    blurred, and normalised by the square root of the local energy.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width)
        Images.
    stride : int
        Distance in pixels between the points of the grid.

    Returns
    -------
    ndarray of shape (n_images, n_rows, n_columns, 8)
        Histograms at the points of the grid. Direction k is k times 45 degrees,
        from right towards down.
    """
    return moving_histograms(Moving.still(images), stride).values


def gabor_magnitudes(images: Array, stride: int) -> Array:
    """Compute square roots of the magnitudes of Gabor filters.

    The magnitudes of each filter are scaled to unit mean square over the image.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width)
        Images.
    stride : int
        Distance in pixels between the points of the grid.

    Returns
    -------
    ndarray of shape (n_images, n_rows, n_columns, 18)
        Values at the points of the grid, for wavelengths of 4, 6 and 8 pixels,
        each in 6 directions, from right towards down.
    """
    return moving_magnitudes(Moving.still(images), stride).values


def _blocks(X: NDArray[np.floating], bytes_per_pixel: int) -> Iterator[slice]:
    n_pixels = max(X.shape[1], 1)
    most_rows = max(1, _BLOCK_PIXELS // n_pixels)
    return row_blocks(X.shape[0], bytes_per_pixel * n_pixels, most_rows)


def _moving_parts(
    images: Moving, parts: Sequence[Part], stride: int
) -> Iterator[Moving]:
    """The parts of rows of features, each at unit norm."""
    for part in parts:
        if part == "orientation":
            values = moving_histograms(images, stride)
        elif part == "gabor":
            values = moving_magnitudes(images, stride)
        else:
            values = images
        yield values.as_rows().at_unit_norm()


def _part_sizes(shape: ImageShape, parts: Sequence[Part], stride: int) -> list[int]:
    n_rows, n_columns = (positions(length, stride).size for length in shape)
    sizes = {
        "orientation": n_rows * n_columns * N_DIRECTIONS,
        "gabor": n_rows * n_columns * N_GABOR_FILTERS,
        "pixels": shape[0] * shape[1],
    }
    return [sizes[part] for part in parts]


def _check_parts(parts: Sequence[Part]) -> None:
    if not parts:
        raise ValueError(f"parts={parts!r} is empty; name at least one of {ALL_PARTS}")
    for place, part in enumerate(parts):
        if part not in ALL_PARTS:
            raise ValueError(f"parts has {part!r}, which is none of {ALL_PARTS}")
        if part in parts[:place]:
            raise ValueError(f"parts has {part!r} more than once")
