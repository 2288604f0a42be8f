# SPDX-License-Identifier: BSD-3-Clause
"""MFA: marginal Fisher analysis after PCA."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from dualqml._linalg import SAME_SAMPLE, discriminant_directions, shrunk
from dualqml._sklearn import Interval, LinearExtractor, StrOptions
from dualqml._typing import Array, Index
from dualqml.extractors._graphs import (
    laplacian_form,
    neighbour_mask,
    pair_distances,
    same_class_only,
)
from dualqml.extractors._memory import require_pairs
from dualqml.extractors.lda import PCADimension, reduced_pca
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows, sample_tangents, scaled_motions


class MFA(LinearExtractor):
    """Marginal Fisher analysis in a PCA subspace.

    Two graphs replace the scatters of Fisherfaces. The first connects each sample to
    its nearest neighbours of the same class. The second connects the pairs at the
    margin of each class, that is, the closest pairs of a sample in the class and a
    sample outside. In the directions of MFA, pairs of the first graph are close and
    pairs of the second graph are far apart [1]_.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features, at most the dimension p of the PCA; None means the
        smaller of n_classes - 1 and p / 2. Our choice; see Notes.
    n_within : int, default=5
        Number of neighbours of a sample in its class (k1 of the paper), at most all
        of them. The paper tunes it; 5 is our choice, the default of D. Cai's
        MATLAB code.
    n_between : int, default=20
        Number of closest pairs at the margin of a class (k2 of the paper), at most
        all of them. The paper tunes it; 20 is our choice, the default of the same code.
    pca_dim : {"n-c"}, int or float, default="n-c"
        Dimension of the PCA: n_samples - n_classes as usual for
        Fisherfaces, a number, or the fraction of the variance to keep. Our
        choice.
    shrinkage : float, default=0.1
        Added to the diagonal of the within-class matrix, relative to its mean
        diagonal element. Our choice: with few samples the original form (0)
        inverts tiny eigenvalues and has large errors.
    tangents : float, default=0.0
        Weight of small affine motions of the images in the within-class matrix:
        the mean of the scatters of six tangent images, each at unit trace, is
        added. Its trace is this fraction of the trace of that matrix, or of the
        total scatter if no class varies. 0 is the method as published. Needs rows
        that are images.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X, for `tangents`. None
        means square images of at least 8 x 8 pixels; other rows raise an error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training samples.
    components_ : ndarray of shape (n_components, n_features)
        The directions. Principal components if every class has one sample or copies
        of one and there are no tangents, as then there are no differences within
        classes.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    If n_within reaches all samples of every class, all classes have equal size, and
    all directions of the PCA are kept, then the features are those of Fisherfaces up
    to a rotation and a scale. So the nearest neighbour by cosine is the same. This is
    the case with 2 samples per class, unless directions are left out. The default of
    n_components leaves some out.

    References
    ----------
    .. [1] S. Yan, D. Xu, B. Zhang, H. Zhang, Q. Yang, S. Lin, "Graph embedding
       and extensions: a general framework for dimensionality reduction", IEEE
       PAMI, 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import MFA
    >>> X, y = load_digits(return_X_y=True)
    >>> MFA().fit(X[:100], y[:100]).transform(X).shape
    (1797, 9)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_within": [Interval(Integral, 1, None, closed="left")],
        "n_between": [Interval(Integral, 1, None, closed="left")],
        "pca_dim": [
            StrOptions({"n-c"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
        "shrinkage": [Interval(Real, 0, None, closed="left")],
        "tangents": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_within: int = 5,
        n_between: int = 20,
        pca_dim: PCADimension = "n-c",
        shrinkage: float = 0.1,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_within = n_within
        self.n_between = n_between
        self.pca_dim = pca_dim
        self.shrinkage = shrinkage
        self.tangents = tangents
        self.image_shape = image_shape

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        require_pairs("MFA", data.shape[0], 4)
        pca = reduced_pca(data, self.pca_dim, self.classes_.size)
        Z = pca.coordinates
        intrinsic, penalty = marginal_graphs(Z, codes, self.n_within, self.n_between)
        within = laplacian_form(Z, intrinsic)
        total = float(np.sum(Z**2))
        tangents = sample_tangents(data, self.image_shape, self.tangents)
        motions = motion_rows(tangents @ pca.basis, self.tangents)
        rows = scaled_motions(motions, float(np.trace(within)), total)
        within += rows.T @ rows
        # Copies of one sample differ by rounding only.
        if np.trace(within) <= SAME_SAMPLE * total:
            return pca.mean, pca.basis[:, : self.n_components]
        n_components = self.n_components or min(
            self.classes_.size - 1, round(Z.shape[1] / 2)
        )
        _, directions = discriminant_directions(
            laplacian_form(Z, penalty), shrunk(within, self.shrinkage), n_components
        )
        return pca.mean, pca.basis @ directions


def marginal_graphs(
    Z: Array, codes: Index, n_within: int, n_between: int
) -> tuple[Array, Array]:
    """The graph within the classes and the graph at their margins.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.
    codes : ndarray of shape (n_samples,)
        Their classes, from 0.
    n_within : int
        Number of neighbours of a sample in its class.
    n_between : int
        Number of closest pairs at the margin of each class.

    Returns
    -------
    intrinsic, penalty : ndarray of shape (n_samples, n_samples)
        Symmetric weights, 0 or 1.
    """
    distances = pair_distances(Z)
    intrinsic = neighbour_mask(same_class_only(distances, codes), n_within)
    penalty = np.zeros_like(distances)
    # Class by class: the closest pairs of the whole set would belong to few of the
    # classes.
    for c in range(codes.max() + 1):
        own = np.flatnonzero(codes == c)
        other = np.flatnonzero(codes != c)
        pairs = distances[np.ix_(own, other)].ravel()
        n_pairs = min(n_between, pairs.size)
        closest = np.argpartition(pairs, n_pairs - 1)[:n_pairs]
        rows, columns = np.divmod(closest, other.size)
        penalty[own[rows], other[columns]] = 1.0
    return intrinsic.astype(np.float64), np.maximum(penalty, penalty.T)
