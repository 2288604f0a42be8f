# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of neighbouring samples, shared by LPP, MFA and MLE.

All graphs are dense and symmetric, which is suitable for a few thousand samples.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import (
    connected_components,
    minimum_spanning_tree,
    shortest_path,
)

from dualqml._linalg import SAME_SAMPLE, squared_distances
from dualqml._typing import Array, Index, Mask


def pair_distances(Z: Array) -> Array:
    """Squared Euclidean distances of all pairs of samples.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.

    Returns
    -------
    ndarray of shape (n_samples, n_samples)
        Symmetric, with an exact zero for every pair of equal samples.
    """
    distances = squared_distances(Z, Z)
    # Rounding leaves a small number for equal samples.
    distances[distances <= SAME_SAMPLE * distances.max()] = 0.0
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.minimum(distances, distances.T))


def same_class_only(distances: Array, codes: Index) -> Array:
    """The distances, infinite where the classes differ."""
    return np.where(codes[:, None] == codes, distances, np.inf)


def neighbour_mask(distances: Array, n_neighbors: int) -> Mask:
    """Pairs of samples in which one is a nearest neighbour of the other.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_samples)
        Any symmetric distances; infinite for pairs that must not be neighbours.
    n_neighbors : int
        Number of neighbours of each sample, without itself; all of them if there are
        fewer.

    Returns
    -------
    ndarray of bool of shape (n_samples, n_samples)
        Symmetric, False on the diagonal.
    """
    size = distances.shape[0]
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    n_neighbors = min(n_neighbors, size - 1)
    mask = np.zeros((size, size), dtype=bool)
    if n_neighbors < 1:
        return mask
    nearest = np.argpartition(others, n_neighbors - 1, axis=1)[:, :n_neighbors]
    np.put_along_axis(mask, nearest, True, axis=1)
    mask &= np.isfinite(others)
    return np.asarray(mask | mask.T)


def connected_neighbour_mask(distances: Array, n_neighbors: int) -> tuple[Mask, int]:
    """Neighbours of every sample, enough to connect all samples.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_samples)
        Finite symmetric distances.
    n_neighbors : int
        The smallest number of neighbours.

    Returns
    -------
    mask : ndarray of bool of shape (n_samples, n_samples)
        Symmetric, False on the diagonal; equal samples are always neighbours.
    n_neighbors : int
        The number of neighbours used, less than the number of samples.
    """
    # A sample may have more copies than neighbours; all of them must be connected.
    n_neighbors = min(n_neighbors, distances.shape[0] - 1)
    equal = distances == 0.0
    np.fill_diagonal(equal, False)
    mask = equal | neighbour_mask(distances, n_neighbors)
    if connected_components(csr_array(mask), directed=False)[0] == 1:
        return mask, n_neighbors
    # The number of neighbours that connects a pair is the smaller of the two ranks.
    # The largest rank in the minimum spanning tree connects all samples.
    others = distances.copy()
    np.fill_diagonal(others, -1.0)
    ranks = np.argsort(np.argsort(others, axis=1, kind="stable"), axis=1)
    ranks = np.minimum(ranks, ranks.T)
    needed = int(minimum_spanning_tree(csr_array(ranks)).max())
    needed = max(needed, n_neighbors)
    # Use the same ranks: neighbour_mask may order equal distances in another way.
    return equal | ((ranks > 0) & (ranks <= needed)), needed


def geodesic_distances(lengths: Array, mask: Mask) -> Array:
    """Lengths of the shortest paths through a graph.

    Parameters
    ----------
    lengths : ndarray of shape (n_samples, n_samples)
        Length of each edge; zero is allowed.
    mask : ndarray of bool of shape (n_samples, n_samples)
        Which edges there are; symmetric.

    Returns
    -------
    ndarray of shape (n_samples, n_samples)
        Symmetric; infinite where there is no path.
    """
    # Built from indices, because a zero in a dense matrix would mean "no edge".
    rows, columns = np.nonzero(mask)
    # 32-bit indices: older versions of SciPy accept no others for paths.
    edges = (rows.astype(np.int32), columns.astype(np.int32))
    graph = csr_array((lengths[rows, columns], edges), shape=mask.shape)
    paths = shortest_path(graph, method="D", directed=True)
    # The two directions of a path are summed in different orders.
    return np.asarray(np.minimum(paths, paths.T))


def laplacian_form(Z: Array, weights: Array) -> Array:
    """The matrix Z'(D - W)Z, where D holds the row sums of the weights W.

    It is the sum over all pairs of ``w_ij (z_i - z_j)(z_i - z_j)'``, so it is
    positive semidefinite if no weight is negative.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.
    weights : ndarray of shape (n_samples, n_samples)
        Symmetric weights of the edges.

    Returns
    -------
    ndarray of shape (d, d)
        The matrix, exactly symmetric.
    """
    form = Z.T @ (weights.sum(axis=1)[:, None] * Z - weights @ Z)
    return np.asarray((form + form.T) / 2.0)
