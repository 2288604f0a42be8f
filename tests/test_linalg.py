from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml._linalg import (
    nearly_exact_gram,
    within_contrasts,
    within_deviations,
)


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    seed=st.integers(0, 100),
)
def test_contrasts_have_the_scatter_of_the_deviations(counts, seed):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    Z = rng.normal(size=(codes.size, 4))
    contrasts = within_contrasts(Z, codes)
    assert contrasts.shape == (codes.size - len(counts), 4)
    deviations = within_deviations(Z, codes)
    np.testing.assert_allclose(
        contrasts.T @ contrasts, deviations.T @ deviations, atol=1e-12
    )


def test_contrasts_of_two_samples_are_their_difference():
    Z = np.array([[1.0, 2.0], [5.0, 5.0], [4.0, 6.0]])
    contrast = within_contrasts(Z, np.array([0, 1, 0]))
    np.testing.assert_allclose(np.abs(contrast), [[3 / np.sqrt(2), 4 / np.sqrt(2)]])


def test_contrasts_of_equal_samples_are_zero():
    contrasts = within_contrasts(np.full((4, 3), 0.1), np.zeros(4, dtype=int))
    assert np.abs(contrasts).max() == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 3e5])
@pytest.mark.parametrize("n_rows", [1, 4096, 20_000])
def test_nearly_exact_gram_is_within_its_bound(scale, n_rows):
    rng = np.random.default_rng(n_rows)
    Z = scale * rng.normal(size=(n_rows, 2)) * 10.0 ** rng.uniform(-6, 0, (n_rows, 1))
    squares = np.einsum("ij,ij->i", Z, Z)
    gram, n_errors = nearly_exact_gram(Z, float(squares.max()))
    unit = 2.0**-53 * float(squares.sum())
    for i, j in ((0, 0), (0, 1), (1, 1)):
        exact = sum(
            Fraction(a) * Fraction(b)
            for a, b in zip(Z[:, i].tolist(), Z[:, j].tolist(), strict=True)
        )
        assert abs(Fraction(gram[i, j]) - exact) <= Fraction(n_errors * unit)
    # Far fewer errors than terms.
    assert n_errors <= 20


def test_nearly_exact_gram_of_nothing():
    gram, n_errors = nearly_exact_gram(np.empty((0, 3)), 1.0)
    np.testing.assert_array_equal(gram, np.zeros((3, 3)))
    assert n_errors == 0
