import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import brentq

from dualqml.core import initial_point
from dualqml.core.initial_point import single_sample_table
from tests.problems import lams, make_problem, problems


@given(problem=problems(), lam=lams)
def test_start_solves_the_one_sample_problem_roughly(problem, lam):
    spectrum, _, _ = problem
    table = single_sample_table(
        spectrum.eigenvalues, spectrum.coordinates, 1.0 / lam, 1.0 / lam
    )
    v, t = table.start(1.0 / lam)
    L = spectrum.eigenvalues
    for z, v_i, t_i in zip(spectrum.coordinates, v, t, strict=True):

        def level(log_t, z=z):
            t = np.exp(log_t)
            g, h = (z * z / (L + t)).sum(), (z * z / (L + t) ** 2).sum()
            return np.log(t * g * g / h) + np.log(lam)

        exact = np.exp(brentq(level, np.log(t_i) - 5.0, np.log(t_i) + 5.0))
        assert t_i == pytest.approx(exact, rel=0.15)
        exact_v = 1.0 / (z * z / (L + exact)).sum() - 1.0
        assert v_i + 1.0 == pytest.approx(exact_v + 1.0, rel=0.15)


def test_one_table_serves_a_range_of_lambdas():
    spectrum, _, _ = make_problem([3, 3, 3], 20)
    wide = single_sample_table(spectrum.eigenvalues, spectrum.coordinates, 1e-6, 1e6)
    for inv_lam in (1e-6, 1e-2, 1.0, 1e6):
        narrow = single_sample_table(
            spectrum.eigenvalues, spectrum.coordinates, inv_lam, inv_lam
        )
        for a, b in zip(wide.start(inv_lam), narrow.start(inv_lam), strict=True):
            np.testing.assert_allclose(a + 1.0, b + 1.0, rtol=0.2)


def test_scatter_without_the_samples_has_a_base_of_zero():
    # base = 0: v = 1/g for samples that are not in the scatter, 1/g - 1 else.
    spectrum, _, _ = make_problem([3, 3, 3], 20)
    table = single_sample_table(spectrum.eigenvalues, spectrum.coordinates, 1.0, 1.0)
    inside, t = table.start(1.0)
    outside, same_t = table.start(1.0, base=0.0)
    np.testing.assert_allclose(outside, inside + 1.0, rtol=1e-12)
    np.testing.assert_array_equal(t, same_t)


def test_orthogonal_samples_have_the_closed_form():
    # L = |z|^2: t |z|^2 = 1/lam and v = 1/g - 1 = t / |z|^2.
    norms = np.array([0.5, 1.0, 2.0])
    table = single_sample_table(norms**2, np.diag(norms), 0.01, 0.01)
    v, t = table.start(0.01)
    np.testing.assert_allclose(t, 0.01 / norms**2, rtol=1e-9)
    np.testing.assert_allclose(v, 0.01 / norms**4, rtol=0.15)


def test_many_samples_are_tabulated_as_few_are(monkeypatch):
    spectrum, _, _ = make_problem([3, 3, 3], 20)
    L, Z = spectrum.eigenvalues, spectrum.coordinates
    whole = single_sample_table(L, Z, 0.1, 10.0)
    monkeypatch.setattr(initial_point, "_ROW_BLOCK", 2)
    parts = single_sample_table(L, Z, 0.1, 10.0)
    np.testing.assert_allclose(parts.log_g, whole.log_g, rtol=1e-12)
    np.testing.assert_allclose(parts.log_level, whole.log_level, atol=1e-12)
