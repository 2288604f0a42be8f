from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dualqml.core.double_double import _split, double_double_product


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
            # The high part is the rounded product, except for ties.
            assert abs(low[i, j]) <= 1.001 * np.spacing(abs(high[i, j]))


def test_what_cancels_is_kept():
    big = 1e12
    high, low = double_double_product(np.array([[big, 1e-6, -big]]), np.ones((3, 1)))
    assert high[0, 0] + low[0, 0] == 1e-6


def test_rounding_error_of_a_sum_is_kept():
    high, low = double_double_product(np.array([[1.0, 2.0**-70]]), np.ones((2, 1)))
    assert (high[0, 0], low[0, 0]) == (1.0, 2.0**-70)


def test_halves_of_a_number_are_exact(rng):
    A = rng.normal(size=(20, 20)) * 10.0 ** rng.uniform(-100, 100, size=(20, 20))
    high, low = _split(A)
    np.testing.assert_array_equal(high + low, A)
    # 26 bits each: all products of two halves are exact.
    for half in (high, low):
        mantissa, _ = np.frexp(half)
        np.testing.assert_array_equal(np.round(mantissa * 2.0**26), mantissa * 2.0**26)


def test_orthogonality_is_measured_beyond_double_precision(rng):
    Q, _ = np.linalg.qr(rng.normal(size=(20, 20)))
    high, low = double_double_product(Q.T, Q)
    exact = Q.T.astype(np.longdouble) @ Q.astype(np.longdouble) - np.eye(20)
    np.testing.assert_allclose((high - np.eye(20)) + low, exact, atol=2e-18)
