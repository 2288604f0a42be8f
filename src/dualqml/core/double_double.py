# SPDX-License-Identifier: BSD-3-Clause
"""Double-double products of small matrices: twice the usual number of digits.

A double-double number is the unevaluated sum of two floating-point numbers. Error-free
transformations (Dekker, Knuth) give the product, and the sum, of two numbers in that
form: the rounded result and its exact rounding error. They are slow, and used only
where the rounding error of a matrix product is needed.
"""

import numpy as np

from dualqml._typing import Array

#: Double-double products are used for matrices with no side larger than this.
MAX_DOUBLE_DOUBLE_SIZE = 64
#: 2^27 + 1: splits a number into two halves of 26 bits (Veltkamp).
_SPLITTER = 134217729.0


def double_double_product(A: Array, B: Array) -> tuple[Array, Array]:
    """The double-double product of two matrices.

    Parameters
    ----------
    A : ndarray of shape (m, n)
        The first matrix.
    B : ndarray of shape (n, p)
        The second matrix.

    Returns
    -------
    high, low : ndarray of shape (m, p)
        The rounded product, and its rounding error: the product is their sum.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core.double_double import double_double_product
    >>> x = np.array([[1.0 + 2.0**-40]])
    >>> high, low = double_double_product(x, x)
    >>> float(low[0, 0]) == 2.0**-80
    True
    """
    A_high, A_low = _split(A)
    B_high, B_low = _split(B)
    high = np.zeros((A.shape[0], B.shape[1]))
    low = np.zeros_like(high)
    for i in range(A.shape[1]):
        # Dekker: term + rest is the product of the two entries.
        term = np.outer(A[:, i], B[i])
        rest = np.outer(A_high[:, i], B_high[i]) - term
        rest += np.outer(A_high[:, i], B_low[i])
        rest += np.outer(A_low[:, i], B_high[i])
        rest += np.outer(A_low[:, i], B_low[i])
        # Knuth: the rounding error of the sum.
        total = high + term
        part = total - high
        low += ((high - (total - part)) + (term - part)) + rest
        high = total
    total = high + low
    return total, low - (total - high)


def _split(A: Array) -> tuple[Array, Array]:
    """A as the exact sum of two matrices with 26 bits per entry."""
    scaled = _SPLITTER * A
    high = scaled - (scaled - A)
    return high, A - high
