# SPDX-License-Identifier: BSD-3-Clause
"""How images change when the object moves a little: tangents of affine motions.

To first order a moved image is the image plus a combination of its gradients,
so the six affine motions span, at every image, a plane of small changes that
should not matter to recognition.
"""

from collections.abc import Callable

import numpy as np

from dualqml.core.arrays import Array
from dualqml.extractors._images import ImageShape

#: Step, in pixels at the edge of the image, of differences through a descriptor.
_STEP_PIXELS = 0.5


def image_gradients(images: Array) -> tuple[Array, Array]:
    """Slopes of images along their rows (down) and along their columns (right).

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width)
        Images.

    Returns
    -------
    down, right : ndarray of shape (n_images, height, width)
        Central differences; zero along an axis of one pixel.
    """
    return _slope(images, 1), _slope(images, 2)


def tangent_images(X: Array, shape: ImageShape) -> Array:
    """Derivatives of images by the six affine motions.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one a row.
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    ndarray of shape (6, n_samples, n_pixels)
        Change for a motion of the sampling points by v(x, y) in units of half
        the width and height, with x (right) and y (down) from -1 to 1: shift
        along x, shift along y, zoom (x, y), rotation (y, -x), shear (0, x) and
        shear (y, 0).
    """
    height, width = shape
    down, right = image_gradients(X.reshape(-1, *shape))
    # Gradients are per pixel; coordinates run from -1 to 1.
    down, right = down * (height - 1) / 2.0, right * (width - 1) / 2.0
    y = np.linspace(-1.0, 1.0, height)[:, None] if height > 1 else np.zeros((1, 1))
    x = np.linspace(-1.0, 1.0, width)[None, :] if width > 1 else np.zeros((1, 1))
    out = np.empty((6, X.shape[0], height, width))
    out[0], out[1] = right, down
    np.multiply(x, down, out=out[4])
    np.multiply(y, right, out=out[5])
    np.multiply(x, right, out=out[2])
    out[2] += y * down
    np.subtract(out[5], out[4], out=out[3])
    return out.reshape(6, *X.shape)


def tangent_features(
    X: Array, shape: ImageShape, descriptor: Callable[[Array], Array]
) -> Array:
    """Derivatives of a descriptor of images by the six affine motions.

    Central differences along the tangent images, of half a pixel at the edge.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one a row.
    shape : tuple of int
        Height and width of the images.
    descriptor : callable
        Maps rows of images to rows of features.

    Returns
    -------
    ndarray of shape (6, n_samples, n_features)
        Derivatives, in the order of :func:`tangent_images`.
    """
    step = 2.0 * _STEP_PIXELS / max(max(shape) - 1, 1)
    return np.stack(
        [
            (descriptor(X + step * tangent) - descriptor(X - step * tangent))
            / (2.0 * step)
            for tangent in tangent_images(X, shape)
        ]
    )


def _slope(images: Array, axis: int) -> Array:
    # An image of one pixel along an axis has no differences there.
    if images.shape[axis] == 1:
        return np.zeros_like(images)
    return np.asarray(np.gradient(images, axis=axis))
