# SPDX-License-Identifier: BSD-3-Clause
"""LPP (Laplacianfaces): locality preserving projections after PCA."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from dualqml._linalg import shrunk, span_pca
from dualqml._sklearn import Interval, LinearExtractor
from dualqml._typing import Array, Index
from dualqml.extractors._graphs import (
    laplacian_form,
    neighbour_mask,
    pair_distances,
    same_class_only,
)
from dualqml.extractors._memory import require_pairs

#: Keeps the right-hand matrix of the eigenproblem invertible.
RELATIVE_RIDGE = 1e-9


class LPP(LinearExtractor):
    """Locality preserving projections in a PCA subspace (Laplacianfaces).

    The directions in which neighbours are closest, relative to the variance of all
    samples [1]_. Labels are used only if `supervised` is True, and for the default of
    `n_components`.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features, at most the dimension of the PCA; None means
        n_classes - 1. Our choice.
    n_neighbors : int, default=5
        Number of neighbours of a sample in the graph. Our choice.
    width : float, default=None
        Width t of the weights ``exp(-|x - y|^2 / t)`` of neighbours; None means
        the mean squared distance of all pairs of different samples after PCA. Our
        choice.
    energy : float, default=0.98
        Fraction of the variance that the PCA keeps. Our choice.
    supervised : bool, default=False
        Whether neighbours must be of the same class. The original paper does not use
        labels.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training samples.
    components_ : ndarray of shape (n_components, n_features)
        The directions. Principal components if the graph has no edges, as with
        supervised=True and one sample per class.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    References
    ----------
    .. [1] X. He, S. Yan, Y. Hu, P. Niyogi, H. Zhang, "Face recognition using
       Laplacianfaces", IEEE PAMI, 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import LPP
    >>> X, y = load_digits(return_X_y=True)
    >>> LPP().fit(X[:100], y[:100]).transform(X).shape
    (1797, 9)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Real, 0, None, closed="neither"), None],
        "energy": [Interval(Real, 0, 1, closed="right")],
        "supervised": ["boolean"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_neighbors: int = 5,
        width: float | None = None,
        energy: float = 0.98,
        supervised: bool = False,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.width = width
        self.energy = energy
        self.supervised = supervised

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        require_pairs("LPP", data.shape[0], 4 if self.supervised else 3)
        pca = span_pca(data)
        pca = pca.first(pca.n_for_energy(self.energy))
        weights = heat_weights(
            pca.coordinates,
            self.n_neighbors,
            self.width,
            codes if self.supervised else None,
        )
        if not weights.any():
            return pca.mean, pca.basis[:, : self.n_components]
        _, directions = locality_directions(
            pca.coordinates, weights, self.n_components or self.classes_.size - 1
        )
        return pca.mean, pca.basis @ directions


def heat_weights(
    Z: Array, n_neighbors: int, width: float | None, codes: Index | None = None
) -> Array:
    """Weights of neighbours, which decrease with their distance.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples.
    n_neighbors : int
        Number of neighbours of each sample.
    width : float or None
        Squared distance at which the weight is 1/e; None means the mean over all
        pairs.
    codes : ndarray of shape (n_samples,) or None
        Classes that neighbours must share; None if they need not.

    Returns
    -------
    ndarray of shape (n_samples, n_samples)
        Symmetric, zero on the diagonal and for pairs that are not neighbours.
    """
    distances = pair_distances(Z)
    size = distances.shape[0]
    if width is None:
        width = distances.sum() / (size * (size - 1))
    allowed = distances if codes is None else same_class_only(distances, codes)
    mask = neighbour_mask(allowed, n_neighbors)
    # With a tiny width, weights are zero; no warning is needed.
    with np.errstate(under="ignore", over="ignore"):
        weights = np.exp(-distances / width)
    return np.where(mask, weights, 0.0)


def locality_directions(
    Z: Array, weights: Array, n_components: int
) -> tuple[Array, Array]:
    """Directions a with the smallest ``a'Z'(D - W)Za / a'Z'DZa``.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, d)
        Samples of mean zero.
    weights : ndarray of shape (n_samples, n_samples)
        Symmetric weights W of the edges, whose row sums are the diagonal of D.
    n_components : int
        Number of directions; there are at most d.

    Returns
    -------
    ratios : ndarray of shape (n_components,)
        The generalised eigenvalues, smallest first, between 0 and 2.
    directions : ndarray of shape (d, n_components)
        The directions, one per column, scaled to ``a'Z'DZa = 1``. No direction is
        left out: the constant direction of graphs has been removed with the mean.
    """
    degrees = weights.sum(axis=1)
    # A sample without neighbours counts as its own neighbour, at distance 0. This does
    # not change D - W, and all directions can be scaled.
    degrees = np.where(degrees > 0.0, degrees, 1.0)
    spread = Z.T @ (degrees[:, None] * Z)
    ratios, directions = eigh(
        laplacian_form(Z, weights),
        shrunk((spread + spread.T) / 2.0, RELATIVE_RIDGE),
        subset_by_index=(0, min(n_components, Z.shape[1]) - 1),
    )
    return ratios, directions
