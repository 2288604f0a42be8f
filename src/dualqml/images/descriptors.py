# SPDX-License-Identifier: BSD-3-Clause
"""Local descriptors of images: orientation histograms, Gabor magnitudes, pixels.

All filters are separable and linear. Along an axis of usual length each is therefore
a product with a small matrix, which pads, filters and samples in one step.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._linalg import unit_rows
from dualqml._saved_state import SHAPE, Path, Saved, expect_equal, fitted
from dualqml._sklearn import Interval, _fit_context
from dualqml._typing import Array, Index
from dualqml.images.shapes import (
    ImageShape,
    SizeLike,
    at_unit_scale,
    resolved_shape,
    row_blocks,
)
from dualqml.images.tangents import image_gradients

Part = Literal["orientation", "gabor", "pixels"]

ALL_PARTS: tuple[Part, ...] = get_args(Part)

#: Signed directions of an orientation histogram.
N_DIRECTIONS = 8
#: Blur, in pixels, of the histograms and of their local energy.
_HISTOGRAM_BLUR = 2.0
_ENERGY_BLUR = 4.0
#: Added to the local energy, relative to its mean, so that noise in flat regions is
#: not amplified.
_ENERGY_FLOOR = 1e-4

#: Wavelength in pixels and angle of every Gabor filter.
GABOR_FILTERS = tuple(
    (wavelength, np.pi * step / 6)
    for wavelength in (4.0, 6.0, 8.0)
    for step in range(6)
)
#: Standard deviation of the envelope of a Gabor filter, in wavelengths.
_ENVELOPE = 0.56
#: Pixels by which the edge is repeated, since the discrete transform is periodic.
_PADDING = 8
#: Responses that are smaller than this, relative to the image, are rounding errors.
_ROUNDING = 1e-12

#: Axes longer than this are filtered directly: the matrix would be too large.
_LONG_AXIS = 512
#: Bytes of temporary arrays for each pixel.
_BYTES_PER_PIXEL = 256

_Operator = Callable[[Array], Any]


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
    for rows in row_blocks(X.shape[0], _BYTES_PER_PIXEL * X.shape[1]):
        pixels = at_unit_scale(X[rows].astype(np.float64, copy=False))
        images = pixels.reshape(-1, *shape)
        for part, start, end in zip(parts, ends[:-1], ends[1:], strict=True):
            if part == "orientation":
                features = orientation_histograms(images, stride)
            elif part == "gabor":
                features = gabor_magnitudes(images, stride)
            else:
                features = pixels
            out[rows, start:end] = unit_rows(features.reshape(pixels.shape[0], -1))
    return out


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
    down, right = image_gradients(images)
    # Several times faster than hypot, which also works at extreme scales. The images
    # are at unit scale.
    magnitude = np.sqrt(down * down + right * right)
    angle = np.arctan2(down, right) * (N_DIRECTIONS / (2.0 * np.pi))
    lower = np.floor(angle)
    share = magnitude * (angle - lower)
    direction = lower.astype(np.intp) % N_DIRECTIONS
    maps = np.zeros((images.shape[0], N_DIRECTIONS, *images.shape[1:]))
    for k, part in ((direction, magnitude - share), (direction + 1, share)):
        # The two directions differ, so neither overwrites the other.
        np.put_along_axis(maps, k[:, None] % N_DIRECTIONS, part[:, None], axis=1)

    blur = partial(gaussian_filter1d, sigma=_HISTOGRAM_BLUR, mode="nearest")
    maps = _filtered(maps, blur, blur)
    wide = partial(gaussian_filter1d, sigma=_ENERGY_BLUR, mode="nearest")
    energy = _filtered(np.einsum("nkij,nkij->nij", maps, maps), wide, wide)
    energy += _ENERGY_FLOOR * energy.mean(axis=(1, 2), keepdims=True)
    # Without energy there is no gradient, and zeros stay zeros.
    contrast = np.sqrt(np.where(energy > 0.0, energy, 1.0))

    i, j = (_positions(length, stride) for length in images.shape[1:])
    sampled = maps[:, :, i[:, None], j] / contrast[:, None, i[:, None], j]
    return np.moveaxis(np.sqrt(sampled), 1, -1)


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
    # Minus its first pixel, an image without contrast is exactly zero.
    centred = images - images[:, :1, :1]
    centred -= centred.mean(axis=(1, 2), keepdims=True)
    rounding = _ROUNDING * np.abs(centred).max(axis=(1, 2), keepdims=True)
    waves = centred.astype(np.complex128)
    n_points = [_positions(length, stride).size for length in images.shape[1:]]
    out = np.empty((images.shape[0], *n_points, len(GABOR_FILTERS)))
    for k, (wavelength, angle) in enumerate(GABOR_FILTERS):
        down, right = (
            partial(
                _gabor_along_rows,
                frequency=direction / wavelength,
                deviation=_ENVELOPE * wavelength,
                stride=stride,
            )
            for direction in (np.sin(angle), np.cos(angle))
        )
        magnitude = np.abs(_filtered(waves, down, right))
        level = np.sqrt(np.square(magnitude).mean(axis=(1, 2), keepdims=True))
        level += rounding
        out[..., k] = np.sqrt(magnitude / np.where(level > 0.0, level, 1.0))
    return out


def _gabor_along_rows(
    images: Array, *, frequency: float, deviation: float, stride: int
) -> NDArray[np.complex128]:
    """Apply a Gabor filter along the last axis and sample the result."""
    length = images.shape[-1]
    padded = np.clip(np.arange(-_PADDING, length + _PADDING), 0, length - 1)
    spectrum = np.fft.fft(images[..., padded])
    offset = np.fft.fftfreq(spectrum.shape[-1]) - frequency
    spectrum *= np.exp(-2.0 * np.square(np.pi * deviation * offset))
    return np.fft.ifft(spectrum)[..., _PADDING + _positions(length, stride)]


def _filtered(images: Any, down: _Operator, across: _Operator) -> Any:
    """Apply one linear operator along the columns and one along the rows.

    Both operators act on the last axis of what they are given.
    """
    turned = _along_rows(np.swapaxes(images, -1, -2), down)
    return _along_rows(np.swapaxes(turned, -1, -2), across)


def _along_rows(images: Any, operator: _Operator) -> Any:
    length = images.shape[-1]
    if length > _LONG_AXIS:
        return operator(images)
    # The images of the unit vectors are the rows of the operator's matrix.
    return images @ operator(np.eye(length))


def _positions(length: int, stride: int) -> Index:
    """Return the points of the grid on an axis, at least one."""
    return np.arange(min(stride // 2, length // 2), length, stride, dtype=np.intp)


def _part_sizes(shape: ImageShape, parts: Sequence[Part], stride: int) -> list[int]:
    n_rows, n_columns = (_positions(length, stride).size for length in shape)
    sizes = {
        "orientation": n_rows * n_columns * N_DIRECTIONS,
        "gabor": n_rows * n_columns * len(GABOR_FILTERS),
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
