# SPDX-License-Identifier: BSD-3-Clause
"""Quadratic functions of non-negative numbers, by SciPy's least squares."""

import numpy as np
from scipy.optimize import nnls

from dualqml._typing import Array

#: Eigenvalues below this fraction of the largest are noise in least squares.
_LEAST_SQUARES_TOLERANCE = 1e-14


def non_negative(G: Array, target: Array) -> Array:
    """Minimise 1/2 x'Gx - target'x over x >= 0; G has a unit diagonal.

    Parameters
    ----------
    G : ndarray of shape (k, k)
        A positive semidefinite matrix.
    target : ndarray of shape (k,)
        The linear term.

    Returns
    -------
    ndarray of shape (k,)
        The minimiser. Non-negative least squares raise RuntimeError if they do not
        converge.
    """
    w, Q = np.linalg.eigh(G)
    root = np.sqrt(np.maximum(w, _LEAST_SQUARES_TOLERANCE * w[-1]))
    x, _ = nnls(root[:, None] * Q.T, (Q.T @ target) / root)
    # Once more for the positive entries, with G itself instead of its square root.
    active = x > 0.0
    if active.any():
        part = G[np.ix_(active, active)]
        exact = np.linalg.lstsq(part, target[active], rcond=_LEAST_SQUARES_TOLERANCE)[0]
        if (exact > 0.0).all():
            x[active] = exact
    return np.asarray(x)
