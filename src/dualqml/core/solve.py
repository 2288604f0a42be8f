# SPDX-License-Identifier: BSD-3-Clause
"""One door to the three solvers."""

from collections.abc import Sequence
from typing import Literal

from dualqml.core.arrays import Index
from dualqml.core.lbfgs import solve_lbfgs
from dualqml.core.newton import newton_path
from dualqml.core.sdp import solve_sdp
from dualqml.core.solution import QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

Solver = Literal["newton", "lbfgs", "sdp"]

#: Iterations a class may take when the caller does not say: per level of the
#: cascade, of L-BFGS-B, of the conic solver.
DEFAULT_MAX_ITER = {"newton": 50, "lbfgs": 200, "sdp": 10_000}


def solve(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    lam: float,
    *,
    solver: Solver = "newton",
    tol: float = 1e-6,
    max_iter: int | None = None,
    n_jobs: int = 1,
) -> QMLSolution:
    """Solve problem (5) for every class.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum of the scatter of all samples, from
        :func:`~dualqml.core.scatter_spectrum`.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        - "newton": all classes at once, exact and fast.
        - "lbfgs": the paper's Algorithm 1, a slow reference.
        - "sdp": a general conic solver through CVXPY, an independent oracle
          for small problems.
    tol : float, default=1e-6
        Relative duality gap and constraint violation asked for.
    max_iter : int, optional
        Iterations a class may take, in the solver's own unit.
    n_jobs : int, default=1
        Threads of the newton solver. Cap the threads of the BLAS library to
        one around the call.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the dual variables.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import scatter_spectrum, solve
    >>> X = np.array([[1.0, 0.1], [0.9, -0.1], [0.1, 1.0], [-0.1, 0.8]])
    >>> members = [np.array([0, 1]), np.array([2, 3])]
    >>> solve(scatter_spectrum(X), members, lam=1.0).ranks
    array([1, 1])
    """
    if max_iter is None:
        max_iter = DEFAULT_MAX_ITER[solver]
    if solver == "newton":
        (solution,) = newton_path(
            spectrum, members, [lam], tol=tol, max_iter=max_iter, n_jobs=n_jobs
        )
        return solution
    if solver == "lbfgs":
        return solve_lbfgs(spectrum, members, lam, tol=tol, max_iter=max_iter)
    return solve_sdp(spectrum, members, lam, tol=tol, max_iter=max_iter)
