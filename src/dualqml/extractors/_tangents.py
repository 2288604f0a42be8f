# SPDX-License-Identifier: BSD-3-Clause
"""Small motions of images as a part of the within-class scatter.

With few samples of a class, its scatter knows little of how images change when
the object moves. The tangents of the training images tell it, whatever the
number of samples.
"""

import numpy as np

from dualqml.core.arrays import Array
from dualqml.extractors._graphs import SAME_SAMPLE
from dualqml.extractors._images import SizeLike, resolved_shape
from dualqml.extractors._motions import tangent_images


def sample_tangents(X: Array, image_shape: SizeLike | None, weight: float) -> Array:
    """Tangents of the samples, none where they have no weight.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Images, one a row.
    image_shape : sequence of int or None
        Height and width of the images. Looked at only where there is a weight:
        without, the rows need not be images.
    weight : float
        Weight of the tangents.

    Returns
    -------
    ndarray of shape (n_motions, n_samples, n_features)
        Six tangents of every sample, or with zero weight none.
    """
    if weight == 0.0:
        return np.empty((0, *X.shape))
    shape = resolved_shape(image_shape, X.shape[1], without="tangents=0")
    return tangent_images(X, shape)


def motion_rows(tangents: Array, weight: float) -> Array:
    """Rows whose scatter is `weight` times the mean of those of the motions.

    Parameters
    ----------
    tangents : ndarray of shape (n_motions, n_samples, d)
        Tangents of the samples, in any coordinates.
    weight : float
        Trace of the scatter.

    Returns
    -------
    ndarray of shape (n_rows, d)
        The scatter of each motion enters at unit trace. A motion that changes
        no sample is left out: images of one row of pixels have such motions.
    """
    traces = np.einsum("kij,kij->k", tangents, tangents)
    moving = traces > SAME_SAMPLE * traces.max(initial=0.0)
    scales = np.sqrt(weight / (max(moving.sum(), 1) * traces[moving]))
    rows = scales[:, None, None] * tangents[moving]
    return np.asarray(rows.reshape(-1, tangents.shape[2]))


def scaled_motions(motions: Array, within_trace: float, total_trace: float) -> Array:
    """Motions in the scale of a within-class scatter, to be added to it.

    Parameters
    ----------
    motions : ndarray of shape (n_rows, d)
        From :func:`motion_rows`.
    within_trace : float
        Trace of the within-class scatter, in the coordinates of the motions.
    total_trace : float
        Trace of the total scatter. It takes the place of the other one where
        no class varies by more than rounding, as with one sample each.

    Returns
    -------
    ndarray of shape (n_rows, d)
        Rows whose scatter has the motions' weight as its share of the trace.
    """
    varies = within_trace > SAME_SAMPLE * total_trace
    return np.asarray(np.sqrt(within_trace if varies else total_trace) * motions)


def with_motions(within: Array, motions: Array | None, total_trace: float) -> Array:
    """Deviations from the class means, and the motions in their scale.

    Parameters
    ----------
    within : ndarray of shape (n_samples, d)
        Rows whose scatter is the within-class scatter.
    motions : ndarray of shape (n_rows, d) or None
        From :func:`motion_rows`; None means none.
    total_trace : float
        See :func:`scaled_motions`.

    Returns
    -------
    ndarray of shape (n_samples + n_rows, d)
        Rows of the sum of the two scatters.
    """
    if motions is None:
        return within
    trace = float(np.einsum("ij,ij->", within, within))
    return np.concatenate([within, scaled_motions(motions, trace, total_trace)])
