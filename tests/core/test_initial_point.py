import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import brentq

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
