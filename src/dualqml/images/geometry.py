# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of images converted to grey, cropped, aligned by the eyes and resized.

These are the only conversions in dualqml: a picture has the same pixels, whether it
is given as an array, as an image of Pillow or as a file. Images of 8 bits are computed
in integers, so their pixels are the same on every machine.
"""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._typing import Array
from dualqml.images.shapes import SizeLike, read_size

#: Weights of red, green and blue in grey (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)
#: The same as integers, in units of 2^-16, as in Pillow.
_INTEGER_LUMA = (19595, 38470, 7471)

#: Zeros of the Lanczos filter on each side.
_LOBES = 3
#: The weights of the filter for 8 bits are integers in units of 2^-22, as in Pillow.
_UNIT = 2.0**22

Images = NDArray[Any]
Point = tuple[float, float]


def to_grey(images: ArrayLike) -> Images:
    """Convert colour images to grey.

    Parameters
    ----------
    images : array-like of shape (..., height, width, 2, 3 or 4)
        Channels: red, green and blue (3), the same with opacity (4), or grey with
        opacity (2). White is 1 for floats, 65535 for uint16 and 255 for other
        integers.

    Returns
    -------
    ndarray of shape (..., height, width)
        The luma 0.299 R + 0.587 G + 0.114 B, of the same type as the images.
        Transparent pixels are black, whatever their colour.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import to_grey
    >>> to_grey(np.array([[[255, 0, 0], [255, 255, 255]]], dtype=np.uint8))
    array([[ 76, 255]], dtype=uint8)
    """
    colours = _checked_images(images, "(..., height, width, 2, 3 or 4)", n_axes=3)
    if colours.shape[-1] not in (2, 3, 4):
        raise ValueError(
            f"images of shape {colours.shape} have {colours.shape[-1]} channels, not "
            "3 (red, green, blue), 4 (and opacity) or 2 (grey, opacity), in their "
            "last axis"
        )
    if colours.shape[-1] != 3:
        colours = over_black(colours)
    if colours.shape[-1] == 1:
        return colours[..., 0]
    if colours.dtype.kind == "f":
        shares = [w * colours[..., k] for k, w in enumerate(_LUMA)]
        return np.asarray(sum(shares), dtype=colours.dtype)
    wide = _sum_type(colours)
    # The type is given: NumPy 1 would take the smallest that holds the weight.
    total = sum(
        np.multiply(colours[..., k], w, dtype=wide) for k, w in enumerate(_INTEGER_LUMA)
    )
    return np.asarray((total + wide.type(2**15)) >> wide.type(16), colours.dtype)


def over_black(images: Images) -> Images:
    """Put transparent images on a black background and remove their opacity.

    Parameters
    ----------
    images : ndarray of shape (..., height, width, n_channels)
        The last channel is opacity. White is as for `to_grey`.

    Returns
    -------
    ndarray of shape (..., height, width, n_channels - 1)
        The other channels, of the same type.
    """
    colours, opacity = images[..., :-1], images[..., -1:]
    if images.dtype.kind == "f":
        return np.asarray(colours * opacity)
    wide = _sum_type(images)
    white = wide.type(65535 if images.dtype == np.uint16 else 255)
    product = colours.astype(wide) * opacity
    return np.asarray((product + white // wide.type(2)) // white, images.dtype)


def to_8_bits(images: ArrayLike) -> NDArray[np.uint8]:
    """Convert pixels of any type to 8 bits.

    Parameters
    ----------
    images : array-like
        Floats from 0 to 1, uint16 from 0 to 65535, booleans, or other integers
        from 0 to 255. Only the type decides which range is meant, not the values.

    Returns
    -------
    ndarray of uint8
        Pixels from 0 to 255, rounded.

    Raises
    ------
    ValueError
        The values are outside of the range of their type, or not numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.images.geometry import to_8_bits
    >>> to_8_bits([0.0, 0.2, 1.0])
    array([  0,  51, 255], dtype=uint8)
    """
    pixels = np.asarray(images)
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.bool_:
        return pixels * np.uint8(255)
    if pixels.dtype == np.uint16:
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if pixels.dtype.kind not in "iuf":
        raise ValueError(f"Pixels must be numbers, not {pixels.dtype}")
    real = pixels.dtype.kind == "f"
    low, high = (pixels.min(), pixels.max()) if pixels.size else (0, 0)
    if not (low >= 0 and high <= (1 if real else 255)):
        raise ValueError(
            "Pixels are real numbers from 0 to 1, 16-bit ones (uint16) from 0 to 65535 "
            f"or other whole numbers from 0 to 255; got {pixels.dtype} from {low:g} to "
            f"{high:g}"
        )
    return np.rint(255.0 * pixels if real else pixels).astype(np.uint8)


def standard_grey(
    pixels: ArrayLike, size: SizeLike, *, colour: bool
) -> NDArray[np.uint8]:
    """Convert pixels of any type to grey images of 8 bits and a given size.

    All pictures become samples in this way.

    Parameters
    ----------
    pixels : array-like of shape (..., height, width) or (..., height, width, n)
        Grey or colour images, as `to_8_bits` and `to_grey` take them.
    size : sequence of int
        Height and width.
    colour : bool
        Whether the last axis has channels.

    Returns
    -------
    ndarray of shape (..., size[0], size[1])
        The images, with 8 bits for each pixel.

    Raises
    ------
    ValueError
        The values, the channels or the size are not valid.
    """
    # To 8 bits first, so that equal pictures of different types stay equal.
    whole = to_8_bits(pixels)
    return resize(to_grey(whole) if colour else whole, size)


def crop(images: ArrayLike, box: tuple[int, int, int, int]) -> Images:
    """Cut the same rectangle out of grey images.

    Parameters
    ----------
    images : array-like of shape (..., height, width)
        Grey images.
    box : tuple of int
        Top, left, bottom and right. Top and left are the first row and column of
        the rectangle, bottom and right the first row and column after it.

    Returns
    -------
    ndarray of shape (..., bottom - top, right - left)
        The rectangles, as a view of the images.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import crop
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


def resize(images: ArrayLike, size: SizeLike) -> Images:
    """Resize grey images by the Lanczos filter, with antialiasing.

    Parameters
    ----------
    images : array-like of shape (..., height, width)
        Grey images.
    size : sequence of int
        Height and width of the result. The proportions may change.

    Returns
    -------
    ndarray of shape (..., size[0], size[1])
        Images of the same type.

    Notes
    -----
    The filter alone overshoots at edges. Images of 8 bits are clipped to 0 and 255
    and rounded after each of the two axes, as in Pillow: the pixels are equal to
    Pillow's. They are computed in integers and so are the same on every machine.
    Images of other types are clipped to the range of the original image.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import resize
    >>> resize(np.full((5, 112, 92), 7, dtype=np.uint8), (32, 32)).shape
    (5, 32, 32)
    """
    originals = _checked_images(images)
    height, width = read_size(size)
    down = _lanczos_matrix(originals.shape[-2], height)
    across = _lanczos_matrix(originals.shape[-1], width).T
    resized = np.empty((*originals.shape[:-2], height, width), originals.dtype)
    is_8_bit = originals.dtype == np.uint8
    if is_8_bit:
        down, across = np.rint(_UNIT * down), np.rint(_UNIT * across)
    # One image at a time: a database in double precision may not fit into memory.
    for place in np.ndindex(originals.shape[:-2]):
        image = originals[place]
        pixels = image.astype(np.float64)
        if is_8_bit:
            # Sums of integers below 2^53 are exact in any order.
            resized[place] = _rounded(down @ _rounded(pixels @ across))
        else:
            smooth = (down @ pixels @ across).clip(image.min(), image.max())
            resized[place] = _as_type_of(image, smooth)
    return resized


def align_eyes(
    image: ArrayLike,
    left_eye: Point,
    right_eye: Point,
    size: SizeLike,
    eye_row: float = 0.35,
    eye_distance: float = 0.5,
) -> Images:
    """Rotate, scale and crop a face such that its eyes are at a given place.

    Parameters
    ----------
    image : array-like of shape (height, width)
        A grey image.
    left_eye, right_eye : tuple of float
        Row and column of the eyes, left and right as they are in the image. The
        centre of the top left pixel is (0, 0).
    size : sequence of int
        Height and width of the result.
    eye_row : float, default=0.35
        Height at which the eyes are placed, from 0 at the top to 1 at the bottom.
    eye_distance : float, default=0.5
        Distance between the eyes, relative to the width. The middle between them
        is placed in the middle of the row.

    Returns
    -------
    ndarray of shape (size[0], size[1])
        The face, of the same type as the image. Outside of the image the pixels of
        its edge are repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import align_eyes
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
    height, width = read_size(size)
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

    # With points as complex numbers, column + i row, a similarity is
    # z -> turn z + shift: here from points of the result to points of the image.
    # Centres of pixels have integer coordinates, hence the halves.
    middle = complex(width / 2.0 - 0.5, eye_row * height - 0.5)
    turn = (right - left) / (eye_distance * width)
    shift = (left + right) / 2.0 - turn * middle
    # Without blur, an image that becomes smaller would have aliasing.
    blur = max(0.0, (abs(turn) - 1.0) / 2.0)
    # Imported here, so that images can be read without SciPy, which takes a while.
    from scipy.ndimage import affine_transform, gaussian_filter

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


def _sum_type(images: Images) -> np.dtype[Any]:
    """Return an integer type that can hold the sums over channels."""
    small = images.dtype.kind == "u" and images.dtype.itemsize <= 2
    return np.dtype(np.uint32 if small else np.int64)


def _lanczos_matrix(n_old: int, n_new: int) -> Array:
    """Return the matrix that resizes an axis. Every row sums to one."""
    ratio = n_old / n_new
    centres = (np.arange(n_new)[:, None] + 0.5) * ratio
    # If the image becomes smaller, the filter is scaled to the new pixels.
    offsets = (np.arange(n_old) + 0.5 - centres) / max(ratio, 1.0)
    weights = np.sinc(offsets) * np.sinc(offsets / _LOBES)
    weights[np.abs(offsets) >= _LOBES] = 0.0
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _rounded(sums: Array) -> Array:
    """Convert weighted sums to pixels of 8 bits; halves are rounded up."""
    return np.asarray(np.floor(sums / _UNIT + 0.5).clip(0.0, 255.0))


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


def _checked_eye(name: str, eye: Point, shape: tuple[int, ...]) -> complex:
    if len(eye) != 2 or not all(
        -0.5 <= at <= n - 0.5 for at, n in zip(eye, shape, strict=True)
    ):
        raise ValueError(
            f"{name}={tuple(eye)} is not a (row, column) within the image, which has "
            f"height {shape[0]} and width {shape[1]}"
        )
    return complex(eye[1], eye[0])
