# SPDX-License-Identifier: BSD-3-Clause
"""The quadratic matrix learning problem of one class, as the paper states it.

Also :class:`QMLSolution`, which every solver returns for all classes together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array

#: Eigenvalues of P_c at or below this fraction of its largest are rounding noise: they
#: do not become rows of its factor.
FACTOR_TOLERANCE = 1e-12


@dataclass(frozen=True)
class QMLSolution:
    """Quadratic matrices of all classes for one lambda.

    P_c is kept as a factor. So it is positive semidefinite by construction, and
    nothing of size n_features x n_features is stored.

    Attributes
    ----------
    lam : float
        The regularisation parameter.
    factors : ndarray of shape (sum of ranks, rank of the spectrum)
        Rows f with ``P_c = sum f f'`` over the rows of class c, class after
        class, in the eigenbasis of the scatter
        (:meth:`~dualqml.core.ScatterSpectrum.back_project` maps them to the space
        of the samples).
    ranks : ndarray of shape (n_classes,)
        How many rows belong to each class.
    multipliers : ndarray of shape (n_samples,)
        The variables u of the dual (12), in the order of the samples.
    n_iter : ndarray of shape (n_classes,)
        Iterations that each class took, in the solver's own unit.
    root_shifts : ndarray of shape (sum of ranks,), optional
        For each row f an estimate of how much larger than ``|f|^2 / lam`` the
        eigenvalue of ``sum v_i x_i x_i' - O_c`` is that f belongs to, v = u / lam.
        It saves the certificate work.
    """

    lam: float
    factors: Array
    ranks: NDArray[np.int64]
    multipliers: Array
    n_iter: NDArray[np.int64]
    root_shifts: Array | None = None

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """Index of each class's first row in `factors`, then the number of rows."""
        return np.concatenate([[0], np.cumsum(self.ranks)])


def extra_class_scatter(X_extra: Array) -> Array:
    """O_c of (3): the sum of x x' over the samples of all other classes.

    Parameters
    ----------
    X_extra : ndarray of shape (n_extra, n_features)
        Samples that do not belong to the class.

    Returns
    -------
    ndarray of shape (n_features, n_features)
        The scatter matrix O_c.
    """
    return X_extra.T @ X_extra


def objective(P: Array, O: Array, lam: float) -> float:
    """Objective of (2) and (5), ``1/2 |P|_F^2 + lam tr(P O)``.

    Parameters
    ----------
    P : ndarray of shape (n_features, n_features)
        A symmetric matrix.
    O : ndarray of shape (n_features, n_features)
        Scatter of the samples of all other classes.
    lam : float
        The regularisation parameter.

    Returns
    -------
    float
        The value to be minimised.
    """
    return float(0.5 * np.sum(P * P) + lam * np.sum(P * O))


def responses(P: Array, X: Array) -> Array:
    """The quadratic projections x'Px of (4), one for each row of X.

    The constraint of (5) is that they are at least 1 for every sample of the class.

    Parameters
    ----------
    P : ndarray of shape (n_features, n_features)
        A symmetric matrix.
    X : ndarray of shape (n_samples, n_features)
        Samples.

    Returns
    -------
    ndarray of shape (n_samples,)
        x'Px of each sample.
    """
    return np.asarray(((X @ P) * X).sum(axis=1))


def dual_matrix(u: Array, X_own: Array, O: Array, lam: float) -> Array:
    """``lam O - sum_i u_i x_i x_i'``, whose parts appear in (11) to (13).

    Parameters
    ----------
    u : ndarray of shape (n_own,)
        Multipliers of the constraints.
    X_own : ndarray of shape (n_own, n_features)
        Samples of the class.
    O : ndarray of shape (n_features, n_features)
        Scatter of the samples of all other classes.
    lam : float
        The regularisation parameter.

    Returns
    -------
    ndarray of shape (n_features, n_features)
        A symmetric matrix with at most n_own negative eigenvalues.
    """
    return lam * O - (X_own.T * u) @ X_own


def split_parts(A: Array) -> tuple[Array, Array]:
    """Positive and negative part of a symmetric matrix, ``A = A_+ + A_-``.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        A symmetric matrix.

    Returns
    -------
    positive, negative : ndarray of shape (n, n)
        The parts that belong to the positive and to the negative eigenvalues.
    """
    w, Q = np.linalg.eigh(A)
    positive = (Q * np.maximum(w, 0.0)) @ Q.T
    negative = (Q * np.minimum(w, 0.0)) @ Q.T
    return positive, negative


def dual_value_and_gradient(
    u: Array, X_own: Array, O: Array, lam: float
) -> tuple[float, Array]:
    """Dual value (12) and its gradient (13), by one full eigendecomposition.

    Parameters
    ----------
    u : ndarray of shape (n_own,)
        Multipliers of the constraints, non-negative.
    X_own : ndarray of shape (n_own, n_features)
        Samples of the class.
    O : ndarray of shape (n_features, n_features)
        Scatter of the samples of all other classes.
    lam : float
        The regularisation parameter.

    Returns
    -------
    value : float
        A lower bound of the optimum of (5) for every u >= 0.
    gradient : ndarray of shape (n_own,)
        Its gradient: ``1 - x_i'Px_i`` for the P recovered from u.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core.problem import dual_value_and_gradient
    >>> X_own, O = np.array([[1.0, 0.0]]), np.diag([0.0, 1.0])
    >>> value, gradient = dual_value_and_gradient(np.ones(1), X_own, O, 1.0)
    >>> value, gradient
    (0.5, array([0.]))
    """
    w, Q = np.linalg.eigh(dual_matrix(u, X_own, O, lam))
    w = np.minimum(w, 0.0)
    own = X_own @ Q
    value = float(u.sum() - 0.5 * np.sum(w * w))
    return value, 1.0 + (own * own) @ w


def recover(u: Array, X_own: Array, O: Array, lam: float) -> Array:
    """P from the multipliers: (7) with K of (11).

    ``K = (lam O - sum u I)_+`` and ``P = K - lam O + sum u I``, so P is minus the
    negative part of the same matrix.

    Parameters
    ----------
    u : ndarray of shape (n_own,)
        Multipliers of the constraints.
    X_own : ndarray of shape (n_own, n_features)
        Samples of the class.
    O : ndarray of shape (n_features, n_features)
        Scatter of the samples of all other classes.
    lam : float
        The regularisation parameter.

    Returns
    -------
    ndarray of shape (n_features, n_features)
        The positive semidefinite matrix P; optimal if u is optimal.
    """
    return -split_parts(dual_matrix(u, X_own, O, lam))[1]
