# SPDX-License-Identifier: BSD-3-Clause
"""Where the Newton method starts: every sample as if it were alone in its class.

For a class of one sample z the optimum has rank one and one unknown, the root
t > 0 (minus the negative eigenvalue of M). With g = z'(L + t)^-1 z and
h = z'(L + t)^-2 z the root solves  t g^2 / h = 1/lam,  and v = 1/g - base.
A table of g and h for all samples over one grid of t costs two matrix products
and serves every lambda, so it is made once.
"""

from dataclasses import dataclass

import numpy as np

from dualqml._typing import Array

#: Spacing of the grid in ln t. It is coarse: a start may be off by a few per cent.
_LOG_STEP = 0.8
#: Rows of the table computed at a time: limits the size of the temporary Z * Z.
_ROW_BLOCK = 4096


@dataclass(frozen=True)
class SingleSampleTable:
    """ln(t g^2 / h) and ln g of every sample over a grid of ln t."""

    log_t: Array  # (S,): the grid
    log_level: Array  # (n, S): ln(t g^2 / h), increasing along a row
    log_g: Array  # (n, S)

    def start(self, inv_lam: float, *, base: float = 1.0) -> tuple[Array, Array]:
        """Optimal v and root t of every sample alone, by interpolation.

        Parameters
        ----------
        inv_lam : float
            1 / lam; must lie within the bounds that the table was made for.
        base : float, default=1.0
            1 if the samples are part of the scatter, 0 if they are not.

        Returns
        -------
        v, t : ndarray of shape (n_samples,)
            The scaled multiplier and the root.
        """
        target = np.log(inv_lam)
        n_grid = self.log_t.shape[0]
        right = np.clip((self.log_level < target).sum(axis=1), 1, n_grid - 1)
        rows = np.arange(right.shape[0])
        low = self.log_level[rows, right - 1]
        high = self.log_level[rows, right]
        weight = np.clip((target - low) / (high - low), 0.0, 1.0)
        log_t = self.log_t[right - 1] + weight * _LOG_STEP
        log_g = self.log_g[rows, right - 1] * (1.0 - weight)
        log_g += self.log_g[rows, right] * weight
        v = np.expm1(-log_g) if base else np.exp(-log_g)
        return np.maximum(v, 0.0), np.exp(log_t)


def single_sample_table(
    L: Array,
    Z: Array,
    inv_lam_low: float,
    inv_lam_high: float,
    *,
    squared_norm_range: tuple[float, float] | None = None,
) -> SingleSampleTable:
    """Tabulate the one-sample problem for all 1/lam between two bounds.

    Parameters
    ----------
    L : ndarray of shape (rank,)
        Eigenvalues of the scatter, ascending.
    Z : ndarray of shape (n_samples, rank)
        Samples in its eigenbasis, none of them zero.
    inv_lam_low, inv_lam_high : float
        Smallest and largest 1/lam that the table is for.
    squared_norm_range : tuple of float, optional
        Smallest and largest squared norm of a sample, if these are only some of the
        samples. By default those of Z.

    Returns
    -------
    SingleSampleTable
        The table for all samples.
    """
    if squared_norm_range is None:
        squared_norms = np.einsum("ij,ij->i", Z, Z)
        squared_norm_range = float(squared_norms.min()), float(squared_norms.max())
    lowest, highest = squared_norm_range
    # g^2 <= |z|^2 h  and  h <= g / (L_min + t)  bracket the root:
    # t |z|^2 >= 1/lam  and  t (L_min + t) |z|^2 / (L_max + t) <= 1/lam.
    t_low = inv_lam_low / highest
    ratio = inv_lam_high / lowest
    b = L[0] - ratio
    root = np.sqrt(b * b + 4.0 * ratio * L[-1])
    # The larger solution of t^2 + b t - ratio L_max = 0, free of cancellation.
    t_high = 0.5 * (root - b) if b < 0 else 2.0 * ratio * L[-1] / (root + b)
    first = np.log(t_low) - _LOG_STEP
    n_grid = int(np.ceil((np.log(t_high) - first) / _LOG_STEP)) + 2
    log_t = first + _LOG_STEP * np.arange(n_grid)
    inverse = 1.0 / (L[:, None] + np.exp(log_t))
    g = np.empty((Z.shape[0], n_grid))
    h = np.empty_like(g)
    for start in range(0, Z.shape[0], _ROW_BLOCK):
        rows = slice(start, start + _ROW_BLOCK)
        squared = Z[rows] * Z[rows]
        g[rows] = squared @ inverse
        h[rows] = squared @ (inverse * inverse)
    log_g = np.log(g)
    return SingleSampleTable(log_t, log_t + 2.0 * log_g - np.log(h), log_g)
