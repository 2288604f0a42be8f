from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dualqml.core.double_double import double_double_product


@given(seed=st.integers(0, 1000), n=st.integers(1, 12))
def test_the_sum_of_both_is_the_product_to_thirty_digits(seed, n):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, n)) * 10.0 ** rng.uniform(-8, 8, size=(3, n))
    B = rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-8, 8, size=(n, 2))
    high, low = double_double_product(A, B)
    for i in range(3):
        for j in range(2):
            terms = [
                Fraction(a) * Fraction(b) for a, b in zip(A[i], B[:, j], strict=True)
            ]
            error = abs(sum(terms) - Fraction(high[i, j]) - Fraction(low[i, j]))
            assert error <= Fraction(2) ** -98 * sum(abs(t) for t in terms) * n
            # Rounded as well as can be, but for ties.
            assert abs(low[i, j]) <= 1.001 * np.spacing(abs(high[i, j]))


def test_what_cancels_is_kept():
    big = 1e12
    high, low = double_double_product(np.array([[big, 1e-6, -big]]), np.ones((3, 1)))
    assert high[0, 0] + low[0, 0] == 1e-6
