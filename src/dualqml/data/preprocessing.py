# SPDX-License-Identifier: BSD-3-Clause
"""What is done to images before any method sees them.

Light is taken out of rows of pixels by a transformer, as a step of a pipeline.
Images are made grey, cut, aligned and resized by functions, once, before they
become rows.
"""

from numbers import Integral
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import affine_transform, gaussian_filter
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from dualqml.core.arrays import Array
from dualqml.extractors._compat import StrOptions
from dualqml.extractors._images import ImageShape, resolved_shape
from dualqml.extractors._neighbours import unit_rows

Photometry = Literal["unit-norm", "z-score", "equalise", "tan-triggs", "none"]

#: Weights of red, green and blue in grey (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)

#: Tan and Triggs: power of the pixels, blurs in pixels, and power and largest
#: value of the contrast.
_GAMMA = 0.2
_INNER_BLUR, _OUTER_BLUR = 1.0, 2.0
_ALPHA, _TAU = 0.1, 10.0

#: Zeros of the Lanczos filter on each side.
_LOBES = 3

#: Bytes of temporaries held at a time, and how many a pixel needs.
_TEMPORARY_BYTES = 30_000_000
_BYTES_PER_PIXEL = 48

Images = NDArray[Any]
Point = tuple[float, float]


class PhotometricNormaliser(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Make images of the same thing under different light more alike.

    Every image is changed by itself: nothing is learned from the training set.
    An image without contrast becomes zeros.

    Parameters
    ----------
    method : str, default="unit-norm"
        What is done to an image:

        - "unit-norm": its mean is subtracted, and it is scaled to unit norm;
        - "z-score": its mean is subtracted, and it is scaled to unit variance;
        - "equalise": every pixel is replaced by the share of pixels that are
          not brighter, stretched to the range from 0 to 1;
        - "tan-triggs": gamma correction, difference of Gaussians and
          equalisation of contrast [1]_, for images that are not negative;
        - "none": nothing.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X, for "tan-triggs". None
        means square images if the number of features is a square, else one row.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    Notes
    -----
    No method but "none" depends on the scale of the pixels. "tan-triggs" does
    depend on where black is: it is zero.

    References
    ----------
    .. [1] X. Tan, B. Triggs, "Enhanced local texture feature sets for face
       recognition under difficult lighting conditions", IEEE Transactions on
       Image Processing, 2010.

    Examples
    --------
    >>> from dualqml.data.preprocessing import PhotometricNormaliser
    >>> PhotometricNormaliser(method="equalise").fit_transform([[7.0, 9.0, 8.0]])
    array([[0. , 1. , 0.5]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "method": [StrOptions(set(get_args(Photometry)))],
        "image_shape": [tuple, list, None],
    }

    def __init__(
        self,
        *,
        method: Photometry = "unit-norm",
        image_shape: ImageShape | None = None,
    ) -> None:
        self.method = method
        self.image_shape = image_shape

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

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Normalise images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Images, one a row.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Normalised images; single precision where X is.
        """
        data, shape = self._checked(X, reset=False)
        return _normalised(data, self.method, shape)

    def _checked(
        self, X: ArrayLike, *, reset: bool
    ) -> tuple[NDArray[np.floating], ImageShape]:
        self._validate_params()
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        if self.method == "tan-triggs" and data.min() < 0.0:
            raise ValueError(
                "Negative values in data passed to method='tan-triggs', which takes "
                f"black for zero: the least is {data.min():g}. Do not centre before."
            )
        return data, resolved_shape(self.image_shape, data.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.positive_only = self.method == "tan-triggs"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _normalised(
    X: NDArray[np.floating], method: Photometry, shape: ImageShape
) -> NDArray[np.floating]:
    """Normalised images, in memory bounded but for the result."""
    if method == "none":
        return X
    out = np.empty_like(X)
    step = max(1, _TEMPORARY_BYTES // (_BYTES_PER_PIXEL * X.shape[1]))
    for first in range(0, X.shape[0], step):
        rows = slice(first, first + step)
        pixels = _at_unit_scale(X[rows].astype(np.float64))
        if method == "equalise":
            out[rows] = _equalised(pixels)
        elif method == "tan-triggs":
            out[rows] = _tan_triggs(pixels, shape)
        else:
            out[rows] = unit_rows(_centred(pixels))
            if method == "z-score":
                out[rows] *= np.sqrt(X.shape[1])
    return out


def to_grey(images: ArrayLike) -> Images:
    """Make colour images grey.

    Parameters
    ----------
    images : array-like of shape (..., height, width, 3 or 4)
        Red, green and blue; a fourth channel, of opacity, is ignored.

    Returns
    -------
    ndarray of shape (..., height, width)
        The luma 0.299 R + 0.587 G + 0.114 B, of the type of the images.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data.preprocessing import to_grey
    >>> to_grey(np.array([[[255, 0, 0], [255, 255, 255]]], dtype=np.uint8))
    array([[ 76, 255]], dtype=uint8)
    """
    colours = _checked_images(images, "(..., height, width, 3 or 4)", n_axes=3)
    if colours.shape[-1] not in (3, 4):
        raise ValueError(
            f"images of shape {colours.shape} have {colours.shape[-1]} channels, "
            "not 3 (red, green, blue) or 4 (and opacity), in their last axis"
        )
    return _as_type_of(colours, colours[..., :3] @ np.array(_LUMA))


def crop(images: ArrayLike, box: tuple[int, int, int, int]) -> Images:
    """Cut the same rectangle out of grey images.

    Parameters
    ----------
    images : array-like of shape (..., height, width)
        Grey images.
    box : tuple of int
        Top, left, bottom and right: first row and column in the rectangle, and
        first row and column behind it.

    Returns
    -------
    ndarray of shape (..., bottom - top, right - left)
        The rectangles, as a view of the images.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data.preprocessing import crop
    >>> crop(np.zeros((5, 112, 92)), (10, 6, 102, 86)).shape
    (5, 92, 80)
    """
    whole = _checked_images(images)
    if len(box) != 4 or not all(isinstance(edge, Integral) for edge in box):
        raise ValueError(f"box={box!r} is not four integers: top, left, bottom, right")
    top, left, bottom, right = box
    height, width = whole.shape[-2:]
    if not (0 <= top < bottom <= height and 0 <= left < right <= width):
        raise ValueError(
            f"box={tuple(box)} (top, left, bottom, right) is empty or not within "
            f"images of height {height} and width {width}"
        )
    return whole[..., top:bottom, left:right]


def resize(images: ArrayLike, size: ImageShape) -> Images:
    """Resize grey images by the Lanczos filter, with antialiasing.

    Parameters
    ----------
    images : array-like of shape (..., height, width)
        Grey images.
    size : tuple of int
        Height and width to which they are resized, whatever their proportions.

    Returns
    -------
    ndarray of shape (..., size[0], size[1])
        Images of the same type. No pixel is darker or brighter than all of its
        original: by itself the filter overshoots at edges.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data.preprocessing import resize
    >>> resize(np.full((5, 112, 92), 7, dtype=np.uint8), (32, 32)).shape
    (5, 32, 32)
    """
    originals = _checked_images(images)
    height, width = _checked_size(size)
    down = _lanczos_matrix(originals.shape[-2], height)
    across = _lanczos_matrix(originals.shape[-1], width).T
    resized = np.empty((*originals.shape[:-2], height, width), originals.dtype)
    # One by one: a database in double precision may not fit into memory.
    for place in np.ndindex(originals.shape[:-2]):
        image = originals[place]
        smooth = down @ image.astype(np.float64) @ across
        resized[place] = _as_type_of(image, smooth.clip(image.min(), image.max()))
    return resized


def align_eyes(
    image: ArrayLike,
    left_eye: Point,
    right_eye: Point,
    size: ImageShape,
    eye_row: float = 0.35,
    eye_distance: float = 0.5,
) -> Images:
    """Turn, scale and cut a face such that its eyes are where those of others are.

    Parameters
    ----------
    image : array-like of shape (height, width)
        A grey image.
    left_eye, right_eye : tuple of float
        Row and column of the eyes, left and right as they are in the image. The
        centre of the first pixel is (0, 0).
    size : tuple of int
        Height and width of the result.
    eye_row : float, default=0.35
        Where the eyes are put, from 0 at the top to 1 at the bottom.
    eye_distance : float, default=0.5
        Distance at which they are put, relative to the width; the middle
        between them comes to the middle of the row.

    Returns
    -------
    ndarray of shape (size[0], size[1])
        The face, of the type of the image. What is outside of the image
        continues its edge.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data.preprocessing import align_eyes
    >>> face = np.random.default_rng(0).random((112, 92))
    >>> align_eyes(face, (50.2, 30.1), (46.0, 61.5), size=(32, 32)).shape
    (32, 32)
    """
    original = _checked_images(image, "(height, width)")
    if original.ndim != 2:
        raise ValueError(
            f"image has shape {original.shape}; it must be a single grey image, of "
            "shape (height, width), as every image has its own eyes"
        )
    height, width = _checked_size(size)
    for name, share in (("eye_row", eye_row), ("eye_distance", eye_distance)):
        if not 0.0 < share < 1.0:
            raise ValueError(f"{name}={share!r} is not between 0 and 1")
    left = _checked_eye("left_eye", left_eye, original.shape)
    right = _checked_eye("right_eye", right_eye, original.shape)
    if not left.real < right.real:
        raise ValueError(
            f"left_eye={tuple(left_eye)} is not to the left of "
            f"right_eye={tuple(right_eye)}. Eyes are (row, column), and left and "
            "right as they are in the image, not to the person."
        )

    # In complex numbers, column + i row, a similarity is z -> turn z + shift: here
    # from places in the result to places in the image.
    # Centres of pixels have whole numbers, hence the halves.
    middle = complex(width / 2.0 - 0.5, eye_row * height - 0.5)
    turn = (right - left) / (eye_distance * width)
    shift = (left + right) / 2.0 - turn * middle
    # Pixels of the image that become one would alias.
    blur = max(0.0, (abs(turn) - 1.0) / 2.0)
    aligned = affine_transform(
        gaussian_filter(original.astype(np.float64), blur, mode="nearest"),
        # In (row, column) order.
        [[turn.real, turn.imag], [-turn.imag, turn.real]],
        offset=[shift.imag, shift.real],
        output_shape=(height, width),
        order=1,
        mode="nearest",
    )
    return _as_type_of(original, aligned)


def _centred(X: Array) -> Array:
    # Relative to its first pixel, an image without contrast is exactly zero.
    relative = X - X[:, :1]
    return np.asarray(relative - relative.mean(axis=1, keepdims=True))


def _equalised(X: Array) -> Array:
    not_brighter = rankdata(X, method="max", axis=1)
    darkest = not_brighter.min(axis=1, keepdims=True)
    # All are the darkest where there is no contrast.
    levels = np.maximum(X.shape[1] - darkest, 1.0)
    return np.asarray((not_brighter - darkest) / levels)


def _tan_triggs(X: Array, shape: ImageShape) -> Array:
    powers = np.power(X, _GAMMA)
    images = (powers - powers[:, :1]).reshape(-1, *shape)
    inner, outer = (
        gaussian_filter(images, (0.0, blur, blur), mode="nearest")
        for blur in (_INNER_BLUR, _OUTER_BLUR)
    )
    contrast = (inner - outer).reshape(X.shape)
    for largest in (np.inf, _TAU):
        powers = np.minimum(np.abs(contrast), largest) ** _ALPHA
        level = powers.mean(axis=1, keepdims=True) ** (1.0 / _ALPHA)
        contrast /= np.where(level > 0.0, level, 1.0)
    return np.asarray(_TAU * np.tanh(contrast / _TAU))


def _at_unit_scale(X: Array) -> Array:
    # No result depends on the scale, but squares could overflow or vanish. By
    # powers of two nothing is rounded.
    _, exponent = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.asarray(np.ldexp(X, -exponent))


def _lanczos_matrix(n_old: int, n_new: int) -> Array:
    """The matrix that resizes an axis; every row sums to one."""
    ratio = n_old / n_new
    centres = (np.arange(n_new)[:, None] + 0.5) * ratio
    # Where it makes smaller, the filter is as wide as a new pixel.
    offsets = (np.arange(n_old) + 0.5 - centres) / max(ratio, 1.0)
    weights = np.sinc(offsets) * np.sinc(offsets / _LOBES)
    weights[np.abs(offsets) >= _LOBES] = 0.0
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _as_type_of(images: Images, values: Array) -> Images:
    if images.dtype.kind in "iu":
        values = np.rint(values)
    return values.astype(images.dtype)


def _checked_images(
    images: ArrayLike, wanted: str = "(..., height, width)", n_axes: int = 2
) -> Images:
    array = np.asarray(images)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"images of type {array.dtype} are not integers or floats")
    if array.ndim < n_axes or 0 in array.shape[-n_axes:]:
        raise ValueError(f"images have shape {array.shape}, but {wanted} is needed")
    return array


def _checked_size(size: ImageShape) -> ImageShape:
    if len(size) != 2 or not all(isinstance(n, Integral) and n > 0 for n in size):
        raise ValueError(f"size={size!r} is not a height and a width in pixels")
    return int(size[0]), int(size[1])


def _checked_eye(name: str, eye: Point, shape: tuple[int, ...]) -> complex:
    if len(eye) != 2 or not all(
        -0.5 <= at <= n - 0.5 for at, n in zip(eye, shape, strict=True)
    ):
        raise ValueError(
            f"{name}={tuple(eye)} is not a (row, column) within the image, which has "
            f"height {shape[0]} and width {shape[1]}"
        )
    return complex(eye[1], eye[0])
