# SPDX-License-Identifier: BSD-3-Clause
"""A closed form that replaces QML in cross-validation.

A linear filter has the same conditions as a quadratic matrix of QML: its response to
every sample of the class is 1, and its energy over all other samples, with a small
ridge, is minimal. With G the Gram matrix and B = G (G + I/lam)^-1, the response of the
filter of class c to a sample is ``1' B_cc^-1 b_c``, where b_c are the entries of the
sample in B (the own-class terms cancel). All classes share one factorisation. In
recognition, these responses are similar to the signed roots of QML at the same lam,
close enough to choose hyper-parameters.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri

from dualqml._typing import Array, Index, Mask

#: Added to the diagonal of the block of each class, relative to the largest trace.
_COPY_RIDGE = 1e-9


@dataclass(frozen=True)
class ClassBlocks:
    """Samples sorted by class, and the padded index of each class's samples.

    Attributes
    ----------
    order : ndarray of shape (n_samples,)
        The permutation that sorts samples by class.
    index : ndarray of shape (n_classes, largest class)
        Sorted positions of the samples of each class, padded with zeros.
    real : ndarray of bool of shape (n_classes, largest class)
        Which of them are not padding.
    """

    order: Index
    index: Index
    real: Mask

    @property
    def sorted_codes(self) -> Index:
        """Classes of the sorted samples."""
        return np.repeat(np.arange(len(self.real)), self.real.sum(axis=1))


def class_blocks(codes: Index, n_classes: int) -> ClassBlocks:
    """Sort samples by class; every class has at least one sample."""
    counts = np.bincount(codes, minlength=n_classes)
    starts = np.cumsum(counts) - counts
    slots = np.arange(counts.max())
    real = slots < counts[:, None]
    index = np.where(real, starts[:, None] + slots, 0)
    return ClassBlocks(np.argsort(codes, kind="stable"), index, real)


class SurrogateFilters:
    """Filters of all classes for samples that stay the same while lam changes.

    Parameters
    ----------
    Z : ndarray of shape (n_train, d)
        Training samples.
    probes : ndarray of shape (n_probes, d)
        Samples whose responses are computed.
    codes : ndarray of shape (n_train,)
        Classes of the training samples, 0 to n_classes - 1, each with a sample.
    """

    def __init__(self, Z: Array, probes: Array, codes: Index) -> None:
        self.blocks = class_blocks(codes, int(codes.max()) + 1)
        self.Z = Z[self.blocks.order]
        self.probes = probes
        # If both forms have the same size, the form by samples is faster.
        self.uses_samples = Z.shape[0] <= 1.5 * Z.shape[1]
        if self.uses_samples:
            self.gram = self.Z @ self.Z.T
            self.cross = probes @ self.Z.T
        else:
            self.gram = self.Z.T @ self.Z

    def responses(self, lam: float) -> tuple[Array, Array]:
        """Responses to the filters of all classes.

        Parameters
        ----------
        lam : float
            As in QML: the weight of the energy relative to the ridge.

        Returns
        -------
        training : ndarray of shape (n_train, n_classes)
            Responses of the training samples, in the given order; 1 for the own class.
        probes : ndarray of shape (n_probes, n_classes)
            Responses of the probes.
        """
        sorted_training, probes = (
            self._by_samples if self.uses_samples else self._by_features
        )(lam)
        training = np.empty_like(sorted_training)
        training[self.blocks.order] = sorted_training
        return training, probes

    def _by_samples(self, lam: float) -> tuple[Array, Array]:
        """Responses by the inverse of G + I/lam, of size n_train."""
        n_train = self.gram.shape[0]
        factor, _ = dpotrf(self._shifted(lam), lower=1, overwrite_a=1)
        lower, _ = dpotri(factor, lower=1, overwrite_c=1)
        inverse = lower.T + lower
        inverse[np.diag_indices(n_train)] /= 2.0
        # B = I - (G + I/lam)^-1 / lam. Only its diagonal blocks are needed.
        index = self.blocks.index
        own = inverse[index[:, :, None], index[:, None, :]]
        weight = self._weights(np.eye(index.shape[1]) - own / lam)
        solved = self._class_sums(weight, inverse).T
        training = solved / -lam
        training[np.arange(n_train), self.blocks.sorted_codes] += weight
        return training, self.cross @ solved

    def _by_features(self, lam: float) -> tuple[Array, Array]:
        """Responses by a factor of Z'Z + I/lam, of size d."""
        factor, _ = dpotrf(self._shifted(lam), lower=1, overwrite_a=1)
        T = solve_triangular(factor, self.Z.T, lower=True).T
        own = T[self.blocks.index]
        weight = self._weights(own @ own.transpose(0, 2, 1))
        filters = self._class_sums(weight, T)
        probes = solve_triangular(factor, self.probes.T, lower=True).T
        return T @ filters.T, probes @ filters.T

    def _class_sums(self, weight: Array, rows: Array) -> Array:
        """Weighted sums of the rows of each class.

        Each sample belongs to one filter, so sums replace a matrix product.
        """
        index = self.blocks.index
        padded = np.where(self.blocks.real, weight[index], 0.0)
        total = padded[:, 0, None] * rows[index[:, 0]]
        for slot in range(1, index.shape[1]):
            total += padded[:, slot, None] * rows[index[:, slot]]
        return np.asarray(total)

    def _shifted(self, lam: float) -> Array:
        # The matrix is symmetric: its transpose is the same matrix in LAPACK's order.
        shifted = self.gram.copy().T
        shifted[np.diag_indices_from(shifted)] += 1.0 / lam
        return shifted

    def _weights(self, own: Array) -> Array:
        """The weights ``B_cc^-1 1`` of all samples, from the blocks of B."""
        real = self.blocks.real
        identity = np.eye(real.shape[1])
        # Copies of a sample make a block singular. With the ridge they share a weight.
        largest = np.einsum("cii->c", own * real[:, None, :]).max(initial=0.0)
        own = own + _COPY_RIDGE * largest * identity
        own = np.where(real[:, :, None] & real[:, None, :], own, identity)
        solved = np.linalg.solve(own, real[..., None].astype(np.float64))[..., 0]
        weight = np.empty(self.Z.shape[0])
        weight[self.blocks.index[real]] = solved[real]
        return weight
