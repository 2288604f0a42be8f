# SPDX-License-Identifier: BSD-3-Clause
"""Maximal linear embedding: linear patches of a manifold, aligned by geodesics."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state, gen_batches

from dualqml._linalg import VARIANCE_TOLERANCE, span_pca
from dualqml._sklearn import Interval, SupervisedExtractor
from dualqml._typing import Array, Index, Mask
from dualqml.extractors._graphs import (
    connected_neighbour_mask,
    geodesic_distances,
    pair_distances,
)
from dualqml.extractors._memory import require_pairs
from dualqml.extractors.lda import fisher_directions

#: Samples that are transformed at a time, which bounds the memory.
BATCH_SIZE = 1024


class MLE(SupervisedExtractor):
    """Maximal linear embedding.

    The training samples are split into patches that are nearly linear, where
    the distance through the graph of neighbours is hardly longer than the
    straight one. Multidimensional scaling of the distances through the graph
    gives the features of the training samples, and each patch learns the affine
    map from its samples to their features. A new sample is mapped by the patch
    whose affine hull is nearest [1]_.

    The method does not use labels, except for the default of `n_components`
    and where `lda` is True. It needs many samples: patches of a few samples do
    little more than look for the nearest neighbour.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the embedding, at most what the distances through the graph
        allow; None means n_classes - 1. Our choice.
    n_neighbors : int, default=8
        Neighbours of a sample in the graph; raised until the graph is
        connected. Our choice.
    theta : float, default=1.1
        A sample may join a patch if its distances to the samples of the patch
        through the graph are at most theta times the straight ones, on average.
        Infinity makes one patch. Our choice, after code that grows such patches
        for other ends.
    energy : float, default=0.98
        Fraction of the variance that the PCA before keeps. Our choice.
    whiten : bool, default=True
        Whether the PCA scales all directions to unit variance. Our choice.
    lda : bool, default=False
        Whether linear discriminant analysis of the embedding follows, which
        leaves at most n_classes - 1 features. Not part of the method; it does
        nothing where every class has one sample.
    shrinkage : float, default=0.1
        Added to the diagonal of the within-class scatter of that analysis,
        relative to its mean diagonal element. Our choice.
    random_state : int, RandomState instance or None, default=0
        Draws the samples that patches grow from. Our choice is a fixed seed.
        Errors differ by several points from seed to seed: average over some.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training samples.
    components_ : ndarray of shape (n_pca, n_features)
        Directions of the PCA before, scaled if whitening.
    n_neighbors_ : int
        Number of neighbours that connects the graph.
    patches_ : ndarray of shape (n_samples,)
        Patch of each training sample, numbered from 0.
    n_patches_ : int
        Number of patches.
    embedding_ : ndarray of shape (n_samples, n_embedding)
        The training samples by multidimensional scaling, before `lda`.
    discriminants_ : ndarray of shape (n_embedding, n_components) or None
        Directions of the discriminant analysis, one a column.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    Notes
    -----
    The paper scales the distances of random landmarks; here all training
    samples are landmarks. Where several affine hulls hold a new sample, the
    patch with the nearest centre maps it. Both are our choice.

    Samples are drawn by what is in them and not by their row: the order of the
    rows of X does not matter.

    References
    ----------
    .. [1] R. Wang, S. Shan, X. Chen, J. Chen, W. Gao, "Maximal linear embedding
       for dimensionality reduction", IEEE PAMI, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import MLE
    >>> X, y = load_digits(return_X_y=True)
    >>> MLE().fit(X[:100], y[:100]).transform(X).shape
    (1797, 9)
    """

    patches_: Index
    embedding_: Array

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        # Closed on the right, so that infinity is allowed.
        "theta": [Interval(Real, 1, None, closed="both")],
        "energy": [Interval(Real, 0, 1, closed="right")],
        "whiten": ["boolean"],
        "lda": ["boolean"],
        "shrinkage": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_neighbors: int = 8,
        theta: float = 1.1,
        energy: float = 0.98,
        whiten: bool = True,
        lda: bool = False,
        shrinkage: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.theta = theta
        self.energy = energy
        self.whiten = whiten
        self.lda = lda
        self.shrinkage = shrinkage
        self.random_state = random_state

    def _fit(self, data: Array, codes: Index) -> None:
        require_pairs("MLE", data.shape[0], 4)
        order = content_order(data, codes)
        self._fit_ordered(data[order], codes[order])
        places = np.argsort(order)
        self.patches_ = self.patches_[places]
        self.embedding_ = self.embedding_[places]

    def _fit_ordered(self, data: Array, codes: Index) -> None:
        pca = span_pca(data)
        pca = pca.first(pca.n_for_energy(self.energy))
        scales = np.sqrt(pca.variances) if self.whiten else np.ones_like(pca.variances)
        Z = pca.coordinates / scales
        self.mean_ = pca.mean
        self.components_ = np.ascontiguousarray((pca.basis / scales).T)

        distances = np.sqrt(pair_distances(Z))
        mask, self.n_neighbors_ = connected_neighbour_mask(distances, self.n_neighbors)
        geodesics = geodesic_distances(distances, mask)
        order = check_random_state(self.random_state).permutation(Z.shape[0])
        self.patches_ = linear_patches(distances, geodesics, mask, self.theta, order)
        self.n_patches_ = int(self.patches_.max()) + 1
        self.embedding_ = classical_scaling(
            geodesics, self.n_components or self.classes_.size - 1
        )
        self._maps = patch_maps(Z, self.embedding_, self.patches_)
        self.discriminants_: Array | None = None
        if self.lda and np.bincount(codes).max() > 1:
            self.discriminants_ = fisher_directions(
                self.embedding_,
                codes,
                self.shrinkage,
                min(self.classes_.size - 1, self.embedding_.shape[1]),
            )

    def _features(self, data: Array) -> Array:
        features = np.empty((data.shape[0], self._n_features_out))
        for batch in gen_batches(data.shape[0], BATCH_SIZE):
            Z = (data[batch].astype(np.float64) - self.mean_) @ self.components_.T
            mapped = self._maps.apply(Z)
            if self.discriminants_ is not None:
                mapped = mapped @ self.discriminants_
            features[batch] = mapped
        return features

    @property
    def _n_features_out(self) -> int:
        if self.discriminants_ is not None:
            return int(self.discriminants_.shape[1])
        return int(self.embedding_.shape[1])


@dataclass(frozen=True)
class PatchMaps:
    """An affine map for each patch, all in a row.

    Attributes
    ----------
    centres : ndarray of shape (n_patches, d)
        Mean of the samples of each patch.
    bases : ndarray of shape (n_rows, d)
        Orthonormal directions of the patches, one a row, patch after patch. A
        patch of one point has one row of zeros, so that every patch has a row.
    owners : ndarray of shape (n_rows,)
        Patch of each row.
    slopes : ndarray of shape (n_rows, n_components)
        Change of the features along each direction.
    offsets : ndarray of shape (n_patches, n_components)
        Features of the centres.
    tolerance : float
        Squared distances of an affine hull that differ by less are equal.
    """

    centres: Array
    bases: Array
    owners: Index
    slopes: Array
    offsets: Array
    tolerance: float

    def apply(self, Z: Array) -> Array:
        """Map samples, each by the patch whose affine hull is nearest."""
        shift = np.einsum("ij,ij->i", self.bases, self.centres[self.owners])
        local = Z @ self.bases.T - shift
        first_rows = np.searchsorted(self.owners, np.arange(self.centres.shape[0]))
        from_centre = cdist(Z, self.centres, "sqeuclidean")
        along = np.add.reduceat(local**2, first_rows, axis=1)
        error = np.maximum(from_centre - along, 0.0)
        # With few dimensions many hulls hold a sample, and without a tolerance
        # rounding would choose among them.
        tied = error <= error.min(axis=1, keepdims=True) + self.tolerance
        chosen = np.where(tied, from_centre, np.inf).argmin(axis=1)
        local[chosen[:, None] != self.owners] = 0.0
        return np.asarray(self.offsets[chosen] + local @ self.slopes)


def content_order(data: Array, codes: Index) -> Index:
    """An order of samples that does not depend on the order they come in.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Samples.
    codes : ndarray of shape (n_samples,)
        Their classes; they decide between equal samples.

    Returns
    -------
    ndarray of shape (n_samples,)
        Rows of the data: by the first feature, among equals by the second ...
        Negative numbers may come in any fixed order.
    """
    # Big-endian floats of one sign are ordered as their bytes; 0.0 has no sign.
    rows = (data + 0.0).astype(">f8")
    keys = [(row.tobytes(), code) for row, code in zip(rows, codes, strict=True)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


def nonlinearity(distances: Array, geodesics: Array) -> Array:
    """Ratio of the distance through the graph to the straight one, at least 1.

    Parameters
    ----------
    distances, geodesics : ndarray of shape (n_samples, n_samples)
        Straight distances and those through the graph.

    Returns
    -------
    ndarray of shape (n_samples, n_samples)
        The ratios; 1 for equal samples.
    """
    ratio = np.ones_like(distances)
    np.divide(geodesics, distances, out=ratio, where=distances > 0.0)
    return np.asarray(np.maximum(ratio, 1.0))


def linear_patches(
    distances: Array, geodesics: Array, mask: Mask, theta: float, order: Index
) -> Index:
    """Grow patches that are as large as their linearity allows.

    A patch starts with the first sample of the order that has no patch. Of the
    samples next to the patch whose mean nonlinearity to its members is at most
    theta, the one nearest to a neighbour in the patch joins, until there is none.

    Parameters
    ----------
    distances, geodesics : ndarray of shape (n_samples, n_samples)
        Straight distances and those through the graph.
    mask : ndarray of bool of shape (n_samples, n_samples)
        Which samples are neighbours; symmetric.
    theta : float
        Largest mean nonlinearity.
    order : ndarray of shape (n_samples,)
        Order in which samples start patches.

    Returns
    -------
    ndarray of shape (n_samples,)
        Patch of each sample, numbered from 0.
    """
    ratio = nonlinearity(distances, geodesics)
    edges = np.where(mask, distances, np.inf)
    patches = np.full(order.size, -1, dtype=np.intp)
    n_patches = 0
    for seed in order:
        if patches[seed] >= 0:
            continue
        joined: int | None = int(seed)
        size = 0
        ratio_sum = np.zeros(order.size)
        gap = np.full(order.size, np.inf)
        while joined is not None:
            patches[joined] = n_patches
            size += 1
            ratio_sum += ratio[joined]
            gap = np.minimum(gap, edges[joined])
            fits = (patches < 0) & (ratio_sum <= theta * size)
            reach = np.where(fits, gap, np.inf)
            nearest = int(reach.argmin())
            joined = nearest if np.isfinite(reach[nearest]) else None
        n_patches += 1
    return patches


def classical_scaling(distances: Array, n_components: int) -> Array:
    """Points whose Euclidean distances come near to given ones.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_samples)
        Symmetric distances.
    n_components : int
        Dimension of the points; fewer where the distances do not span as many.

    Returns
    -------
    ndarray of shape (n_samples, n_components)
        The points, of mean zero, on their principal axes.
    """
    size = distances.shape[0]
    gram = -0.5 * distances**2
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1)[:, None]
    first = max(0, size - n_components)
    values, vectors = eigh(gram, subset_by_index=(first, size - 1))
    # Distances through a graph are not Euclidean: some eigenvalues are negative.
    real = values > VARIANCE_TOLERANCE * values[-1]
    return np.asarray((vectors[:, real] * np.sqrt(values[real]))[:, ::-1])


def patch_maps(Z: Array, embedding: Array, patches: Index) -> PatchMaps:
    """Affine maps from the samples of each patch to their features.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.
    embedding : ndarray of shape (n_samples, n_components)
        Their features.
    patches : ndarray of shape (n_samples,)
        Their patches, from 0.

    Returns
    -------
    PatchMaps
        For each patch the least-squares map on its first n_components principal
        directions, or as many as it has.
    """
    largest = np.einsum("ij,ij->i", Z, Z).max()
    smallest = np.sqrt(VARIANCE_TOLERANCE * largest)
    centres, bases, slopes, offsets = [], [], [], []
    for patch in range(patches.max() + 1):
        own = patches == patch
        centre, offset = Z[own].mean(axis=0), embedding[own].mean(axis=0)
        left, values, right = np.linalg.svd(Z[own] - centre, full_matrices=False)
        rank = min(int((values > smallest).sum()), embedding.shape[1])
        if rank == 0:
            basis = np.zeros((1, Z.shape[1]))
            slope = np.zeros((1, embedding.shape[1]))
        else:
            basis = right[:rank]
            # The local coordinates are orthogonal to each other and to the
            # constant, so the least-squares solution needs no solver.
            slope = left[:, :rank].T @ (embedding[own] - offset)
            slope /= values[:rank, None]
        centres.append(centre)
        bases.append(basis)
        slopes.append(slope)
        offsets.append(offset)
    return PatchMaps(
        centres=np.array(centres),
        bases=np.concatenate(bases),
        owners=np.repeat(np.arange(len(bases)), [basis.shape[0] for basis in bases]),
        slopes=np.concatenate(slopes),
        offsets=np.array(offsets),
        tolerance=float(VARIANCE_TOLERANCE * largest),
    )
