# SPDX-License-Identifier: BSD-3-Clause
"""A warning of classes that are not proven to be solved."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from dualqml._typing import Array


def warn_if_inaccurate(
    gap: Array,
    violation: Array,
    rounding_limited: NDArray[np.bool_],
    tol: float,
    *,
    stacklevel: int = 2,
) -> None:
    """Warn of classes that are not proven to be solved.

    Parameters
    ----------
    gap, violation : ndarray of shape (n_classes,)
        The certificate.
    rounding_limited : ndarray of bool of shape (n_classes,)
        Classes that only bounds of rounding errors keep from being certified.
    tol : float
        What was asked for.
    stacklevel : int, default=2
        As of `warnings.warn`, from here.
    """
    solved = np.maximum(gap, violation) <= tol
    if solved.all():
        return
    message = (
        f"{int((~solved).sum())} of {solved.size} classes are not proven to be within "
        f"tol={tol:g}: the largest bound of the relative duality gap is "
        f"{gap.max():.1e}, of the constraint violation {violation.max():.1e}."
    )
    if rounding_limited.any():
        message += (
            f" For {int(rounding_limited.sum())} of them only because rounding errors "
            "may be that large: the computed gap is smaller."
        )
    message += (
        " Scale the samples to similar norms, choose a less extreme lam, or allow a "
        "larger tol or more max_iter."
    )
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
