import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml._linalg import within_contrasts, within_deviations


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
