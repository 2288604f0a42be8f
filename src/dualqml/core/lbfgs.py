# SPDX-License-Identifier: BSD-3-Clause
"""Solver ``lbfgs``: the paper's Algorithm 1, to the letter.

One class after the other, L-BFGS-B on the dual (12) with a full
eigendecomposition of an n_features x n_features matrix for every value and
gradient. It is the reference, and slow: use it to check, not to work.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from dualqml.core.arrays import Array, Index
from dualqml.core.problem import (
    dual_matrix,
    dual_value_and_gradient,
    extra_class_scatter,
)
from dualqml.core.solution import QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

#: Eigenvalues of P below this fraction of its largest are rounding noise.
_RANK_TOLERANCE = 1e-12


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
        The spectrum; only its samples are used by the algorithm itself, and
        the solution is expressed in its eigenbasis.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    tol : float, default=1e-6
        Largest gradient component of the dual, that is constraint violation.
    max_iter : int, default=200
        Iterations of L-BFGS-B allowed for each class.
    classes : sequence of int, optional
        Solve these classes only; the others get rank zero. For measurements.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the dual variables.
    """
    X = spectrum.samples
    n_classes = len(members)
    dual = np.zeros(X.shape[0])
    ranks = np.zeros(n_classes, dtype=np.int64)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    factors = []
    for c in range(n_classes) if classes is None else sorted(classes):
        own = members[c]
        u, factor, n_iter[c] = _solve_class(
            X[own], np.delete(X, own, axis=0), lam, tol, max_iter
        )
        dual[own] = u
        ranks[c] = factor.shape[0]
        factors.append(factor)
    stacked = np.concatenate(factors) if factors else np.empty((0, X.shape[1]))
    return QMLSolution(lam, spectrum.project(stacked), ranks, dual, n_iter)


def _solve_class(
    X_own: Array, X_extra: Array, lam: float, tol: float, max_iter: int
) -> tuple[Array, Array, int]:
    # Step 1.1 of Algorithm 1.
    O = extra_class_scatter(X_extra)

    def negative_dual(u: Array) -> tuple[float, Array]:
        value, gradient = dual_value_and_gradient(u, X_own, O, lam)
        return -value, -gradient

    # Step 1.2. The paper states no start; this one is exact for one sample
    # without extra-class samples, where P = u xx' and u |x|^4 = 1.
    start = (X_own * X_own).sum(axis=1) ** -2.0
    found = minimize(
        negative_dual,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * X_own.shape[0],
        options={"maxiter": max_iter, "gtol": 0.1 * tol, "ftol": 0.0},
    )
    # Step 1.3: P by (7), kept as a factor. At most n_own eigenvalues are negative.
    w, Q = np.linalg.eigh(dual_matrix(found.x, X_own, O, lam))
    kept = np.flatnonzero(w[: X_own.shape[0]] < _RANK_TOLERANCE * min(w[0], 0.0))
    return found.x, (Q[:, kept] * np.sqrt(-w[kept])).T, int(found.nit)
