# SPDX-License-Identifier: BSD-3-Clause
"""MLE: maximal linear embedding of linear patches that geodesics align."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state, gen_batches

from dualqml._linalg import VARIANCE_TOLERANCE, span_pca
from dualqml._saved_state import (
    CODES,
    COUNT,
    MATRIX,
    NOTHING,
    NUMBER,
    VECTOR,
    Path,
    Saved,
    expect,
    expect_codes,
    expect_equal,
    instance_of,
)
from dualqml._sklearn import Interval, SupervisedExtractor
from dualqml._typing import Array, Index, Mask
from dualqml.extractors._graphs import (
    connected_neighbour_mask,
    geodesic_distances,
    pair_distances,
)
from dualqml.extractors._memory import require_pairs
from dualqml.extractors.lda import fisher_directions

#: Number of samples that are transformed at a time, to limit the memory.
BATCH_SIZE = 1024


@dataclass(frozen=True)
class PatchMaps:
    """The affine maps of all patches.

    Attributes
    ----------
    centres : ndarray of shape (n_patches, d)
        Mean of the samples of each patch.
    bases : ndarray of shape (n_rows, d)
        Orthonormal directions of the patches, one per row, patch after patch. A
        patch of one point has one row of zeros, so that every patch has a row.
    owners : ndarray of shape (n_rows,)
        Patch of each row.
    slopes : ndarray of shape (n_rows, n_components)
        Change of the features along each direction.
    offsets : ndarray of shape (n_patches, n_components)
        Features of the centres.
    tolerance : float
        Squared distances to affine hulls that differ by less count as equal.
    """

    _saved: ClassVar[Saved] = Saved(
        parameters={
            "centres": MATRIX.of("n_patches", "n_inputs"),
            "bases": MATRIX.of("n_rows", "n_inputs"),
            "owners": CODES.of("n_rows"),
            "slopes": MATRIX.of("n_rows", "n_components"),
            "offsets": MATRIX.of("n_patches", "n_components"),
            "tolerance": NUMBER,
        }
    )

    centres: Array
    bases: Array
    owners: Index
    slopes: Array
    offsets: Array
    tolerance: float

    def _check_saved(self, path: Path) -> None:
        """Raise unless every patch has rows, and the rows are sorted by patch."""
        owners = self.owners
        expect_codes(owners, self.centres.shape[0], path, "owners")
        in_order = bool((owners[1:] >= owners[:-1]).all())
        expect(in_order, path, "owners", "is not in rising order")

    def apply(self, Z: Array) -> Array:
        """Map samples, each by the patch whose affine hull is nearest."""
        shift = np.einsum("ij,ij->i", self.bases, self.centres[self.owners])
        local = Z @ self.bases.T - shift
        first_rows = np.searchsorted(self.owners, np.arange(self.centres.shape[0]))
        from_centre = cdist(Z, self.centres, "sqeuclidean")
        along = np.add.reduceat(local**2, first_rows, axis=1)
        error = np.maximum(from_centre - along, 0.0)
        # With few dimensions many hulls contain a sample, and without a tolerance
        # rounding would choose between them.
        tied = error <= error.min(axis=1, keepdims=True) + self.tolerance
        chosen = np.where(tied, from_centre, np.inf).argmin(axis=1)
        local[chosen[:, None] != self.owners] = 0.0
        return np.asarray(self.offsets[chosen] + local @ self.slopes)


class MLE(SupervisedExtractor):
    """Maximal linear embedding.

    The training samples are split into patches that are nearly linear: there the
    distance through the graph of neighbours is hardly longer than the straight
    distance. Multidimensional scaling of the distances through the graph gives the
    features of the training samples. Each patch learns the affine map from its
    samples to their features. A new sample is mapped by the patch whose affine hull
    is nearest [1]_.

    The method does not use labels, except for the default of `n_components` and if
    `lda` is True. It needs many samples: with patches of a few samples it is little
    more than a nearest neighbour search.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the embedding, at most the rank of the distances through the
        graph; None means n_classes - 1. Our choice.
    n_neighbors : int, default=8
        Number of neighbours of a sample in the graph. It is increased until the
        graph is connected. Our choice.
    theta : float, default=1.1
        A sample can be added to a patch if its distances through the graph to the
        samples of the patch are at most theta times the straight distances, on
        average. Infinity makes one patch. Our choice, after published code that
        grows such patches for another purpose.
    energy : float, default=0.98
        Fraction of the variance that the PCA keeps. Our choice.
    whiten : bool, default=True
        Whether the PCA scales all directions to unit variance. Our choice.
    lda : bool, default=False
        Whether linear discriminant analysis of the embedding follows, which
        leaves at most n_classes - 1 features. Not part of the method. It has
        no effect if every class has one sample.
    shrinkage : float, default=0.1
        Added to the diagonal of the within-class scatter of that analysis,
        relative to its mean diagonal element. Our choice.
    random_state : int, RandomState instance or None, default=None
        Seed of the random order of samples from which patches grow. Errors differ
        by several points between seeds, so average over some seeds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training samples.
    components_ : ndarray of shape (n_pca, n_features)
        Directions of the PCA, scaled if `whiten`.
    n_neighbors_ : int
        Number of neighbours that connects the graph.
    patches_ : ndarray of shape (n_samples,)
        Patch of each training sample, numbered from 0.
    n_patches_ : int
        Number of patches.
    embedding_ : ndarray of shape (n_samples, n_embedding)
        The training samples by multidimensional scaling, before `lda`.
    discriminants_ : ndarray of shape (n_embedding, n_components) or None
        Directions of the discriminant analysis, one per column.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    The paper uses the distances of random landmarks; here all training samples are
    landmarks. If several affine hulls contain a new sample, the patch with the
    nearest centre maps it. Both are our choice.

    The random order depends on the values of the samples and not on their rows: the
    order of the rows of X does not matter.

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

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        mean_=(VECTOR | NOTHING).of("n_features"),
        components_=MATRIX.of("n_inputs", "n_features"),
        _maps=instance_of(PatchMaps),
        discriminants_=(MATRIX | NOTHING).of("n_embedded", "n_components"),
        embedding_=MATRIX.of("n_samples", "n_embedded"),
        n_neighbors_=COUNT,
        n_patches_=COUNT,
        patches_=CODES.of("n_samples"),
    )

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
        random_state: int | np.random.RandomState | None = None,
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
        original = np.argsort(order)
        self.patches_ = self.patches_[original]
        self.embedding_ = self.embedding_[original]

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

    def _check_saved(self, path: Path) -> None:
        """Raise unless there is one map per patch, from components to embedding."""
        maps, n_patches = self._maps, self.n_patches_
        expect(self.mean_ is not None, path, "mean_", "is None")
        expect_codes(self.patches_, n_patches, path, "patches_")
        found = maps.centres.shape[0]
        expect_equal(found, n_patches, path, "_maps", "patches", "n_patches_")
        found, wanted = maps.centres.shape[1], self.components_.shape[0]
        expect_equal(found, wanted, path, "_maps", "inputs", "components_")
        found, wanted = maps.offsets.shape[1], self.embedding_.shape[1]
        expect_equal(found, wanted, path, "_maps", "features", "embedding_")


def content_order(data: Array, codes: Index) -> Index:
    """An order of samples that does not depend on the order of the rows.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Samples.
    codes : ndarray of shape (n_samples,)
        Their classes, which order equal samples.

    Returns
    -------
    ndarray of shape (n_samples,)
        Row numbers, ordered by the first feature, then by the second, and so on.
        The order of negative numbers is fixed, but not ascending.
    """
    # Positive big-endian floats have the same order as their bytes. Adding 0.0 turns
    # -0.0 into 0.0.
    rows = (data + 0.0).astype(">f8")
    keys = [(row.tobytes(), code) for row, code in zip(rows, codes, strict=True)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


def nonlinearity(distances: Array, geodesics: Array) -> Array:
    """Ratio of the distance through the graph to the straight distance, at least 1.

    Parameters
    ----------
    distances, geodesics : ndarray of shape (n_samples, n_samples)
        Straight distances, and distances through the graph.

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
    """Grow patches that are as large as possible while nearly linear.

    A patch starts with the first sample of the order that has no patch. Then samples
    are added one by one: of the neighbours of the patch whose mean nonlinearity to
    its samples is at most theta, the one nearest to its neighbour in the patch. The
    patch is complete if there is no such sample.

    Parameters
    ----------
    distances, geodesics : ndarray of shape (n_samples, n_samples)
        Straight distances, and distances through the graph.
    mask : ndarray of bool of shape (n_samples, n_samples)
        Which samples are neighbours; symmetric.
    theta : float
        Largest mean nonlinearity.
    order : ndarray of shape (n_samples,)
        Order in which samples can start patches.

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
        added: int | None = int(seed)
        size = 0
        ratio_sum = np.zeros(order.size)
        gap = np.full(order.size, np.inf)
        while added is not None:
            patches[added] = n_patches
            size += 1
            ratio_sum += ratio[added]
            gap = np.minimum(gap, edges[added])
            fits = (patches < 0) & (ratio_sum <= theta * size)
            reach = np.where(fits, gap, np.inf)
            nearest = int(reach.argmin())
            added = nearest if np.isfinite(reach[nearest]) else None
        n_patches += 1
    return patches


def classical_scaling(distances: Array, n_components: int) -> Array:
    """Points whose Euclidean distances approximate given distances.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_samples)
        Symmetric distances.
    n_components : int
        Largest dimension of the points. It is smaller if the distances span less.

    Returns
    -------
    ndarray of shape (n_samples, n_components)
        The points, with mean zero, on their principal axes.
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
        Their patches, numbered from 0.

    Returns
    -------
    PatchMaps
        For each patch, the least-squares map on its first n_components principal
        directions, or on all if there are fewer.
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
