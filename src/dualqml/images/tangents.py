# SPDX-License-Identifier: BSD-3-Clause
"""How images change when the object moves a little: tangents of affine motions.

First the tangents of images and of their descriptors, then how the tangents are added
to a within-class scatter.
"""

from collections.abc import Callable

import numpy as np

from dualqml._linalg import SAME_SAMPLE
from dualqml._typing import Array
from dualqml.images.shapes import ImageShape, SizeLike, resolved_shape

#: Step of the differences through a descriptor, in pixels at the edge of the image.
_STEP_PIXELS = 0.5


def image_gradients(images: Array) -> tuple[Array, Array]:
    """Compute the slopes of images from row to row and from column to column.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width)
        Images.

    Returns
    -------
    down, right : ndarray of shape (n_images, height, width)
        Central differences downwards and to the right; zero along an axis of one
        pixel.
    """
    return slope(images, 1), slope(images, 2)


def slope(images: Array, axis: int) -> Array:
    """Compute central differences along an axis, and one-sided ones at its ends.

    Parameters
    ----------
    images : ndarray
        Images, with any axes.
    axis : int
        The axis.

    Returns
    -------
    ndarray
        Differences per pixel; zero along an axis of one pixel.
    """
    # As numpy.gradient, which is several times slower for few images.
    out = np.empty_like(images)
    if images.shape[axis] == 1:
        out[...] = 0.0
        return out
    before = (slice(None),) * (axis % images.ndim)

    def at(part: slice | int) -> tuple[slice | int, ...]:
        return (*before, part)

    inside = out[at(slice(1, -1))]
    np.subtract(images[at(slice(2, None))], images[at(slice(-2))], out=inside)
    inside *= 0.5
    np.subtract(images[at(1)], images[at(0)], out=out[at(0)])
    np.subtract(images[at(-1)], images[at(-2)], out=out[at(-1)])
    return out


def tangent_images(X: Array, shape: ImageShape) -> Array:
    """Compute the derivatives of images by the six affine motions.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one per row.
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    ndarray of shape (6, n_samples, n_pixels)
        Change of the images if their sampling points move by v(x, y), in units of
        half the width and height, with x (right) and y (down) from -1 to 1. The
        motions are: shift along x, shift along y, zoom (x, y), rotation (y, -x),
        shear (0, x) and shear (y, 0).
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


def edge_step(shape: ImageShape) -> float:
    """Return the step of a motion that is half a pixel at the edge of the image.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    float
        The step, in the units of :func:`tangent_images`.
    """
    return 2.0 * _STEP_PIXELS / max(max(shape) - 1, 1)


def tangent_features(
    X: Array, shape: ImageShape, descriptor: Callable[[Array], Array]
) -> Array:
    """Compute the derivatives of a descriptor by the six affine motions.

    They are central differences along the tangent images, with a step of half a
    pixel at the edge of the image.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one per row.
    shape : tuple of int
        Height and width of the images.
    descriptor : callable
        Maps rows of images to rows of features.

    Returns
    -------
    ndarray of shape (6, n_samples, n_features)
        Derivatives, in the order of :func:`tangent_images`.
    """
    step = edge_step(shape)
    return np.stack(
        [
            (descriptor(X + step * tangent) - descriptor(X - step * tangent))
            / (2.0 * step)
            for tangent in tangent_images(X, shape)
        ]
    )


def sample_tangents(X: Array, image_shape: SizeLike | None, weight: float) -> Array:
    """Compute the tangents of the samples; with zero weight there are none.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Images, one per row.
    image_shape : sequence of int or None
        Height and width of the images. With zero weight it is not used, and the
        rows need not be images.
    weight : float
        Weight of the tangents.

    Returns
    -------
    ndarray of shape (n_motions, n_samples, n_features)
        Six tangents of every sample, or none with zero weight.
    """
    if weight == 0.0:
        return np.empty((0, *X.shape))
    shape = resolved_shape(image_shape, X.shape[1], without="tangents=0")
    return tangent_images(X, shape)


def motion_rows(tangents: Array, weight: float) -> Array:
    """Return rows whose scatter is `weight` times the mean scatter of the motions.

    Parameters
    ----------
    tangents : ndarray of shape (n_motions, n_samples, d)
        Tangents of the samples, in any coordinates.
    weight : float
        Trace of the scatter.

    Returns
    -------
    ndarray of shape (n_rows, d)
        The scatter of each motion is scaled to unit trace before the mean. A motion
        that changes no sample is left out: images of one row of pixels have such
        motions.
    """
    traces = np.einsum("kij,kij->k", tangents, tangents)
    moving = traces > SAME_SAMPLE * traces.max(initial=0.0)
    scales = np.sqrt(weight / (max(moving.sum(), 1) * traces[moving]))
    rows = scales[:, None, None] * tangents[moving]
    return np.asarray(rows.reshape(-1, tangents.shape[2]))


def scaled_motions(motions: Array, within_trace: float, total_trace: float) -> Array:
    """Scale motions to a within-class scatter, before they are added to it.

    Parameters
    ----------
    motions : ndarray of shape (n_rows, d)
        From :func:`motion_rows`.
    within_trace : float
        Trace of the within-class scatter, in the coordinates of the motions.
    total_trace : float
        Trace of the total scatter. It is used instead if no class varies by more
        than rounding, for example with one sample per class.

    Returns
    -------
    ndarray of shape (n_rows, d)
        Rows whose scatter has the weight of the motions times that trace.
    """
    varies = within_trace > SAME_SAMPLE * total_trace
    return np.asarray(np.sqrt(within_trace if varies else total_trace) * motions)


def with_motions(within: Array, motions: Array | None, total_trace: float) -> Array:
    """Append the motions, in the right scale, to the deviations from class means.

    Parameters
    ----------
    within : ndarray of shape (n_samples, d)
        Rows whose scatter is the within-class scatter.
    motions : ndarray of shape (n_rows, d) or None
        From :func:`motion_rows`; None means no motions.
    total_trace : float
        See :func:`scaled_motions`.

    Returns
    -------
    ndarray of shape (n_samples + n_rows, d)
        Rows whose scatter is the sum of the two scatters.
    """
    if motions is None:
        return within
    trace = float(np.einsum("ij,ij->", within, within))
    return np.concatenate([within, scaled_motions(motions, trace, total_trace)])
