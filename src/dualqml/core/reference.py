# SPDX-License-Identifier: BSD-3-Clause
"""Reference solvers: the paper's Algorithm 1 and a general conic solver.

``lbfgs`` follows the paper exactly, ``sdp`` passes the semidefinite program to CVXPY.
Both solve class by class and are slow. They exist to check the fast solver.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from dualqml._typing import Array, Index
from dualqml.core.problem import (
    FACTOR_TOLERANCE,
    QMLSolution,
    dual_matrix,
    dual_value_and_gradient,
    extra_class_scatter,
)
from dualqml.core.spectrum import ScatterSpectrum
from dualqml.exceptions import MissingDependencyError, SolverError

Backend = Literal["clarabel", "scs"]

#: Tolerance passed on to L-BFGS-B and to the conic solvers, in units of the tolerance
#: asked for: it leaves room for the certificate.
_INNER_TOLERANCE = 0.1


def solve_lbfgs(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    lam: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    classes: Sequence[int] | None = None,
) -> QMLSolution:
    """Solve problem (5) class by class as the paper does.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum. The algorithm itself uses only its samples; the solution is
        expressed in its eigenbasis.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    tol : float, default=1e-6
        Largest component of the gradient of the dual, that is constraint violation.
    max_iter : int, default=200
        Iterations of L-BFGS-B allowed for each class.
    classes : sequence of int, optional
        Solve only these classes; the others get rank zero. For measurements.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the multipliers.
    """
    X = spectrum.samples
    n_classes = len(members)
    multipliers = np.zeros(X.shape[0])
    ranks = np.zeros(n_classes, dtype=np.int64)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    factors = []
    for c in range(n_classes) if classes is None else sorted(classes):
        own = members[c]
        u, factor, n_iter[c] = _solve_class_lbfgs(
            X[own], np.delete(X, own, axis=0), lam, tol, max_iter
        )
        multipliers[own] = u
        ranks[c] = factor.shape[0]
        factors.append(factor)
    stacked = np.concatenate(factors) if factors else np.empty((0, X.shape[1]))
    return QMLSolution(lam, spectrum.project(stacked), ranks, multipliers, n_iter)


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
        Relative duality gap and constraint violation asked for. The conic solver
        gets a tenth of it, which leaves room for the certificate.
    max_iter : int, default=10000
        Iterations allowed for each class.
    backend : {"clarabel", "scs"}, default="clarabel"
        The solver behind CVXPY: an interior-point or a first-order method.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the multipliers.
    """
    L, Z = spectrum.eigenvalues, spectrum.coordinates
    ranks = np.zeros(len(members), dtype=np.int64)
    n_iter = np.zeros(len(members), dtype=np.int64)
    multipliers = np.zeros(Z.shape[0])
    factors = []
    for c, own in enumerate(members):
        O = np.diag(L) - Z[own].T @ Z[own]
        P, u, n_iter[c] = solve_class_sdp(
            Z[own],
            O,
            lam,
            tol=_INNER_TOLERANCE * tol,
            max_iter=max_iter,
            backend=backend,
        )
        w, Q = np.linalg.eigh(P)
        # The optimum has at most rank n_own; the rest is the solver's noise.
        w, Q = w[-own.size :], Q[:, -own.size :]
        kept = w > tol * w[-1]
        factors.append((Q[:, kept] * np.sqrt(w[kept])).T)
        ranks[c], multipliers[own] = kept.sum(), np.maximum(u, 0.0)
    return QMLSolution(lam, np.concatenate(factors), ranks, multipliers, n_iter)


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
        The regularisation parameter of (5). None means problem (1), which has no
        regulariser.
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


def _solve_class_lbfgs(
    X_own: Array, X_extra: Array, lam: float, tol: float, max_iter: int
) -> tuple[Array, Array, int]:
    """Multipliers, factor of P and number of iterations of one class."""
    # Step 1.1 of Algorithm 1.
    O = extra_class_scatter(X_extra)

    def negative_dual(u: Array) -> tuple[float, Array]:
        value, gradient = dual_value_and_gradient(u, X_own, O, lam)
        return -value, -gradient

    # Step 1.2. The paper gives no starting point. This one is exact for one sample
    # without extra-class samples, where P = u xx' and u |x|^4 = 1.
    start = (X_own * X_own).sum(axis=1) ** -2.0
    found = minimize(
        negative_dual,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * X_own.shape[0],
        options={"maxiter": max_iter, "gtol": _INNER_TOLERANCE * tol, "ftol": 0.0},
    )
    # Step 1.3: P by (7), kept as a factor. At most n_own eigenvalues are negative.
    w, Q = np.linalg.eigh(dual_matrix(found.x, X_own, O, lam))
    kept = np.flatnonzero(w[: X_own.shape[0]] < FACTOR_TOLERANCE * min(w[0], 0.0))
    return found.x, (Q[:, kept] * np.sqrt(-w[kept])).T, int(found.nit)


def _import_cvxpy() -> Any:
    try:
        return importlib.import_module("cvxpy")
    except ImportError as error:
        raise MissingDependencyError(
            "solver='sdp' needs CVXPY: install dualqml[sdp]"
        ) from error
