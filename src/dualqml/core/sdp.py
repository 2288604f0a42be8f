# SPDX-License-Identifier: BSD-3-Clause
"""Solver ``sdp``: the standard semidefinite program through CVXPY.

An independent oracle, and the rival that the paper's method was made to beat.
It works in the span of the data, which is exact and the least a general
solver should be given.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dualqml.core.arrays import Array, Index
from dualqml.core.exceptions import MissingDependencyError, SolverError
from dualqml.core.solution import QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

Backend = Literal["clarabel", "scs"]


def solve_sdp(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    lam: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    backend: Backend = "clarabel",
) -> QMLSolution:
    """Solve problem (5) class by class with a general conic solver.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum of the scatter of all samples.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    tol : float, default=1e-6
        Tolerance asked of the solver; a tenth of it, to leave room for the
        certificate.
    max_iter : int, default=10000
        Iterations allowed for each class.
    backend : {"clarabel", "scs"}, default="clarabel"
        Interior point, or a first-order method.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the dual variables.
    """
    L, Z = spectrum.eigenvalues, spectrum.coordinates
    ranks = np.zeros(len(members), dtype=np.int64)
    n_iter = np.zeros(len(members), dtype=np.int64)
    dual = np.zeros(Z.shape[0])
    factors = []
    for c, own in enumerate(members):
        O = np.diag(L) - Z[own].T @ Z[own]
        P, u, n_iter[c] = solve_class_sdp(
            Z[own], O, lam, tol=0.1 * tol, max_iter=max_iter, backend=backend
        )
        w, Q = np.linalg.eigh(P)
        # The optimum has rank <= n_own; the rest is the solver's noise.
        w, Q = w[-own.size :], Q[:, -own.size :]
        kept = w > tol * w[-1]
        factors.append((Q[:, kept] * np.sqrt(w[kept])).T)
        ranks[c], dual[own] = kept.sum(), np.maximum(u, 0.0)
    return QMLSolution(lam, np.concatenate(factors), ranks, dual, n_iter)


def solve_class_sdp(
    X_own: Array,
    O: Array,
    lam: float | None,
    *,
    tol: float = 1e-7,
    max_iter: int = 10_000,
    backend: Backend = "clarabel",
) -> tuple[Array, Array, int]:
    """Solve problem (5), or (1), for one class in any coordinates.

    Parameters
    ----------
    X_own : ndarray of shape (n_own, d)
        Samples of the class.
    O : ndarray of shape (d, d)
        Scatter of the samples of all other classes.
    lam : float or None
        The regularisation parameter of (5). None solves problem (1), which has
        no regulariser.
    tol : float, default=1e-7
        Tolerance asked of the solver.
    max_iter : int, default=10000
        Iterations allowed.
    backend : {"clarabel", "scs"}, default="clarabel"
        The solver behind CVXPY.

    Returns
    -------
    P : ndarray of shape (d, d)
        The quadratic matrix.
    u : ndarray of shape (n_own,)
        Multipliers of the constraints x'Px >= 1.
    n_iter : int
        Iterations of the solver.
    """
    cp = _import_cvxpy()
    P = cp.Variable(O.shape, PSD=True)
    own = [cp.trace(np.outer(x, x) @ P) for x in X_own]
    constraint = cp.hstack(own) >= 1.0
    extra = cp.trace(O @ P)
    goal = extra if lam is None else 0.5 * cp.sum_squares(P) + lam * extra
    program = cp.Problem(cp.Minimize(goal), [constraint])
    if backend == "clarabel":
        options: dict[str, Any] = {
            "solver": cp.CLARABEL,
            "max_iter": max_iter,
            "tol_gap_abs": tol,
            "tol_gap_rel": tol,
            "tol_feas": tol,
        }
    else:
        options = {
            "solver": cp.SCS,
            "max_iters": max_iter,
            "eps_abs": tol,
            "eps_rel": tol,
        }
    try:
        program.solve(**options)
    except cp.error.SolverError as error:
        raise SolverError(f"{backend} failed: {error}") from error
    if P.value is None:
        raise SolverError(
            f"{backend} found no solution (status {program.status!r}); "
            "try the other backend, a larger tol or solver='newton'"
        )
    solution = 0.5 * (P.value + P.value.T)
    u = np.atleast_1d(np.asarray(constraint.dual_value, dtype=np.float64))
    return solution, u, int(program.solver_stats.num_iters or 0)


def _import_cvxpy() -> Any:
    try:
        return importlib.import_module("cvxpy")
    except ImportError as error:
        raise MissingDependencyError(
            "solver='sdp' needs CVXPY: install dualqml[sdp]"
        ) from error
