# SPDX-License-Identifier: BSD-3-Clause
"""Samples that are zero vectors: x'Px >= 1 has no solution for them."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index
from dualqml.exceptions import InfeasibleError

ZeroPolicy = Literal["warn", "error", "ignore"]

#: Samples whose norm is at most this fraction of the largest count as zero vectors.
#: An image without contrast becomes such a sample by rounding.
_ZERO_NORM = 1e-12


def are_used(squares: Array, largest_square: float) -> NDArray[np.bool_]:
    """Which samples can satisfy x'Px >= 1: all that are not zero, or nearly so.

    Parameters
    ----------
    squares : ndarray of shape (n_samples,)
        Squared norms of samples.
    largest_square : float
        The largest squared norm of all samples.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        True for samples that get a constraint.
    """
    return np.sqrt(squares) > _ZERO_NORM * np.sqrt(largest_square)


def report_zero_rows(rows: Index, policy: ZeroPolicy, *, stacklevel: int = 2) -> None:
    """Warn of zero vectors, or raise.

    Parameters
    ----------
    rows : ndarray of int
        Their numbers among all samples.
    policy : {"warn", "error", "ignore"}
        What to do.
    stacklevel : int, default=2
        As of `warnings.warn`, from here.

    Raises
    ------
    InfeasibleError
        There are some, and the policy is "error".
    """
    if not rows.size or policy == "ignore":
        return
    shown = ", ".join(str(row) for row in rows[:10])
    more = "" if len(rows) <= 10 else f" and {len(rows) - 10} more"
    message = (
        "The constraint x'Px >= 1 has no solution for zero vectors: "
        f"rows {shown}{more} of X get none. Remove these rows or check the "
        "preprocessing (an image without contrast becomes zero when its mean is "
        "removed)."
    )
    if policy == "error":
        raise InfeasibleError(message)
    warnings.warn(message, UserWarning, stacklevel=stacklevel)


def check_no_class_is_zero(classes: NDArray[Any], empty: Index) -> None:
    """Raise if there are classes of which all samples are zero vectors.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        The labels.
    empty : ndarray of int
        Numbers of these classes.

    Raises
    ------
    InfeasibleError
        There are some.
    """
    if empty.size:
        raise InfeasibleError(
            f"All samples of class {classes[empty[0]]!r} are zero vectors; "
            "remove the class or check the preprocessing"
        )


def nothing_but_zeros() -> InfeasibleError:
    """The error where no sample is left.

    Returns
    -------
    InfeasibleError
        To be raised.
    """
    return InfeasibleError("All samples are zero vectors; nothing can be learnt")
