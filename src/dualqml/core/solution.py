# SPDX-License-Identifier: BSD-3-Clause
"""What every solver returns: factors of the quadratic matrices and the duals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array


@dataclass(frozen=True)
class QMLSolution:
    """Quadratic matrices of all classes for one lambda.

    P_c is kept as a factor, so it is positive semidefinite by construction and
    nothing of size n_features x n_features is stored.

    Attributes
    ----------
    lam : float
        The regularisation parameter.
    factors : ndarray of shape (sum of ranks, rank of the spectrum)
        Rows f with ``P_c = sum f f'`` over the rows of class c, class after
        class, in the eigenbasis of the scatter
        (:meth:`~dualqml.core.ScatterSpectrum.back_project` leads back).
    ranks : ndarray of shape (n_classes,)
        How many rows belong to each class.
    dual : ndarray of shape (n_samples,)
        The multipliers u of (12), in the order of the samples.
    n_iter : ndarray of shape (n_classes,)
        Iterations that each class took, in the solver's own unit.
    root_shifts : ndarray of shape (sum of ranks,), optional
        For each row f, by about how much more than |f|^2 / lam the eigenvalue of
        ``sum v_i x_i x_i' - O_c`` is that it stands for. An estimate that saves the
        certificate work.
    """

    lam: float
    factors: Array
    ranks: NDArray[np.int64]
    dual: Array
    n_iter: NDArray[np.int64]
    root_shifts: Array | None = None

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """Index of each class's first row in `factors`, and the end."""
        return np.concatenate([[0], np.cumsum(self.ranks)])
