# SPDX-License-Identifier: BSD-3-Clause
"""Fisherfaces: linear discriminant analysis after PCA."""

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np

from dualqml._linalg import (
    SpanPCA,
    class_means,
    discriminant_directions,
    shrunk,
    span_pca,
    within_deviations,
)
from dualqml._sklearn import Interval, LinearExtractor, StrOptions
from dualqml._typing import Array, Index
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows, sample_tangents, with_motions

PCADimension = Literal["n-c"] | float | int


class Fisherfaces(LinearExtractor):
    """Linear discriminant analysis in a PCA subspace (Fisherfaces).

    First PCA to at most n_samples - n_classes dimensions, where the within-class
    scatter is invertible. Then the directions with the largest ratio of
    between-class to within-class scatter [1]_.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None means n_classes - 1, the largest number.
    pca_dim : {"n-c"}, int or float, default="n-c"
        Dimension of the PCA: n_samples - n_classes as in the original paper, a
        number, or the fraction of the variance to keep.
    shrinkage : float, default=0.1
        Added to the diagonal of the within-class scatter, relative to its mean
        diagonal element. Our choice: with few samples the original form (0)
        inverts tiny eigenvalues and has large errors.
    tangents : float, default=0.0
        Weight of small affine motions of the images in the within-class scatter:
        the mean of the scatters of six tangent images, each at unit trace, is
        added. Its trace is this fraction of the trace of the within-class scatter,
        or of the total scatter if no class varies. 0 is the method as published.
        Needs rows that are images.
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
        The directions. Principal components if every class has one sample and there
        are no tangents, as then there is no within-class scatter.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    References
    ----------
    .. [1] P. Belhumeur, J. Hespanha, D. Kriegman, "Eigenfaces vs. Fisherfaces:
       recognition using class specific linear projection", IEEE PAMI, 1997.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import Fisherfaces
    >>> X, y = load_digits(return_X_y=True)
    >>> Fisherfaces().fit(X[:100], y[:100]).transform(X).shape
    (1797, 9)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
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
        pca_dim: PCADimension = "n-c",
        shrinkage: float = 0.1,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.pca_dim = pca_dim
        self.shrinkage = shrinkage
        self.tangents = tangents
        self.image_shape = image_shape

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        pca = reduced_pca(data, self.pca_dim, self.classes_.size)
        n_components = self.n_components or self.classes_.size - 1
        tangents = sample_tangents(data, self.image_shape, self.tangents)
        motions = motion_rows(tangents @ pca.basis, self.tangents)
        if np.bincount(codes).max() == 1 and motions.size == 0:
            return pca.mean, pca.basis[:, : self.n_components]
        directions = fisher_directions(
            pca.coordinates, codes, self.shrinkage, n_components, motions
        )
        return pca.mean, pca.basis @ directions


def reduced_pca(data: Array, pca_dim: PCADimension, n_classes: int) -> SpanPCA:
    """PCA to a dimension given as a rule, a number or a fraction of the variance.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Samples.
    pca_dim : {"n-c"}, int or float
        "n-c" means n_samples - n_classes, or all dimensions if that is zero.
    n_classes : int
        Number of classes.

    Returns
    -------
    SpanPCA
        The principal components.
    """
    pca = span_pca(data)
    if pca_dim == "n-c":
        within = data.shape[0] - n_classes
        return pca.first(within) if within > 0 else pca
    if isinstance(pca_dim, Integral):
        return pca.first(int(pca_dim))
    return pca.first(pca.n_for_energy(float(pca_dim)))


def fisher_directions(
    Z: Array,
    codes: Index,
    shrinkage: float,
    n_components: int,
    motions: Array | None = None,
) -> Array:
    """Directions with the largest ratio of between-class to within-class scatter.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples of mean zero.
    codes : ndarray of shape (n_samples,)
        Their classes.
    shrinkage : float
        Relative addition to the diagonal of the within-class scatter.
    n_components : int
        Largest number of directions; there are at most n_classes - 1 and d.
    motions : ndarray of shape (n_rows, d), optional
        Added to the within-class scatter, see
        :func:`~dualqml.images.tangents.motion_rows`.

    Returns
    -------
    ndarray of shape (d, n_components)
        The directions, one per column, scaled to unit within-class scatter.
    """
    means, counts = class_means(Z, codes)
    total_trace = float(np.einsum("ij,ij->", Z, Z))
    within = with_motions(within_deviations(Z, codes), motions, total_trace)
    between = np.sqrt(counts)[:, None] * (means - Z.mean(axis=0))
    n_components = min(n_components, counts.size - 1)
    _, directions = discriminant_directions(
        between.T @ between, shrunk(within.T @ within, shrinkage), n_components
    )
    return directions
