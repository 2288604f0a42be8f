# SPDX-License-Identifier: BSD-3-Clause
"""Products of small matrices with twice the usual number of digits.

Error-free transformations (Dekker, Knuth): a product of two numbers is the rounded one
plus an exact remainder, and so is a sum. Slow, for the few places where the rounding of
a product is what is asked for.
"""

import numpy as np

from dualqml._typing import Array

#: Matrices whose sides are no longer than this are small.
MAX_LONG = 64
#: Splits a number into two halves of 26 bits.
_SPLITTER = 134217729.0


def long_product(A: Array, B: Array) -> tuple[Array, Array]:
    """The product of two matrices as the sum of two.

    Parameters
    ----------
    A : ndarray of shape (m, n)
        A matrix.
    B : ndarray of shape (n, p)
        Another one.

    Returns
    -------
    high, low : ndarray of shape (m, p)
        The product rounded, and what rounding has taken from it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core.double_double import long_product
    >>> x = np.array([[1.0 + 2.0**-40]])
    >>> high, low = long_product(x, x)
    >>> float(low[0, 0]) == 2.0**-80
    True
    """
    A_high, A_low = _halves(A)
    B_high, B_low = _halves(B)
    high = np.zeros((A.shape[0], B.shape[1]))
    low = np.zeros_like(high)
    for i in range(A.shape[1]):
        term = np.outer(A[:, i], B[i])
        rest = np.outer(A_high[:, i], B_high[i]) - term
        rest += np.outer(A_high[:, i], B_low[i])
        rest += np.outer(A_low[:, i], B_high[i])
        rest += np.outer(A_low[:, i], B_low[i])
        total = high + term
        part = total - high
        low += ((high - (total - part)) + (term - part)) + rest
        high = total
    total = high + low
    return total, low - (total - high)


def _halves(A: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * A
    high = scaled - (scaled - A)
    return high, A - high
