# SPDX-License-Identifier: BSD-3-Clause
"""Quadratic features from stacked factors."""

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array

#: Bytes of the intermediate product held at a time.
_PRODUCT_BYTES = 2_000_000


def quadratic_features(
    X: NDArray[np.floating], components: Array, ranks: NDArray[np.int64]
) -> Array:
    """Step 3 of Algorithm 1: f_c(x) = x'P_c x for every sample and class.

    One matrix product with all factors, then the sum of squares over the
    factors of each class, in chunks of samples.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.
    components : ndarray of shape (sum of ranks, n_features)
        Factors of all classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        The features, in double precision.
    """
    n_rows = components.shape[0]
    out = np.zeros((X.shape[0], ranks.size))
    held = ranks > 0
    starts = (np.cumsum(ranks) - ranks)[held]
    everyone = bool(held.all())
    step = max(16, _PRODUCT_BYTES // (8 * max(n_rows, 1)))
    for start in range(0, X.shape[0], step):
        chunk = X[start : start + step].astype(np.float64, copy=False)
        # Factors along the rows: squares of one class are added row by row.
        product = components @ chunk.T
        np.square(product, out=product)
        if n_rows == ranks.size and everyone:
            out[start : start + step] = product.T
        elif n_rows:
            sums = np.add.reduceat(product, starts, axis=0)
            if everyone:
                out[start : start + step] = sums.T
            else:
                out[start : start + step, held] = sums.T
    return out
