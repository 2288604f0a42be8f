# SPDX-License-Identifier: BSD-3-Clause
"""Comparing samples by their responses to all classes: the profile of a sample."""

import numpy as np

from dualqml.core.arrays import Array, Index
from dualqml.extractors._neighbours import unit_rows


def profile_gallery(
    features: Array, codes: Index, *, own_weight: float, centre: bool
) -> tuple[Array, Array | None]:
    """Training features made ready for cosine similarity.

    Parameters
    ----------
    features : ndarray of shape (n_training, n_classes)
        Responses of the training samples to all classes.
    codes : ndarray of shape (n_training,)
        Their classes.
    own_weight : float
        Factor of each sample's response to its own class.
    centre : bool
        Whether to measure the angle about the mean of the training features.

    Returns
    -------
    gallery : ndarray of shape (n_training, n_classes)
        The profiles, scaled to unit norm.
    mean : ndarray of shape (n_classes,) or None
        What to subtract from the features of a probe; None for nothing.
    """
    if own_weight != 1.0:
        features = features.copy()
        features[np.arange(codes.size), codes] *= own_weight
    if not centre:
        return unit_rows(features), None
    mean = features.mean(axis=0)
    return unit_rows(features - mean), mean


def centred(features: Array, mean: Array | None) -> Array:
    """Features of probes about the mean of the training features, if there is one."""
    return features if mean is None else features - mean
