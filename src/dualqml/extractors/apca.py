# SPDX-License-Identifier: BSD-3-Clause
"""APCA: asymmetric principal component analysis."""

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from dualqml._linalg import (
    class_means,
    principal_directions,
    shrunk,
    span_pca,
    within_deviations,
)
from dualqml._saved_state import MATRIX, VECTOR, Saved
from dualqml._sklearn import Interval, LinearExtractor, StrOptions
from dualqml._typing import Array, Index
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows, sample_tangents, with_motions


class APCA(LinearExtractor):
    """Asymmetric principal component analysis, for the Mahalanobis distance.

    The features are principal components of a mixture of the class covariances and
    of the covariance of the class means [1]_, [2]_. Less reliable class covariances
    have a larger weight. The features are whitened by the within-class covariance, so
    that the Euclidean distance between them is the Mahalanobis distance, for which
    the method was made.

    The method was published for two classes. The form for many classes is from a
    later survey of the same author.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None keeps `energy` of the total.
    eta : float, default=0.25
        Weight of the covariance of the class means; 1/4 as in the survey.
    energy : float, default=0.95
        Fraction of the trace to keep if `n_components` is None; our choice.
    covariance : {"within", "mixture"}, default="within"
        The covariance that whitens the features: the within-class covariance (the
        linear classifier of the survey), or the mixture itself, which is whitened
        PCA. "mixture" is always used if every class has one sample and there are no
        tangents.
    ridge : float, default=1e-3
        Added to the diagonal of that covariance, relative to its mean diagonal
        element; our choice.
    whiten : bool, default=True
        Whether to whiten. If False, compare features f and g by
        ``(f - g)' precision_ (f - g)``.
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
        The directions, whitened if `whiten`.
    class_weights_ : ndarray of shape (n_classes,)
        Weight of each class covariance; they sum to one.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of the mixture along the directions, largest first.
    precision_ : ndarray of shape (n_components, n_components)
        Inverse covariance of the features before whitening.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    References
    ----------
    .. [1] X. Jiang, "Asymmetric principal component and discriminant analyses
       for pattern classification", IEEE PAMI, 2009.
    .. [2] X. Jiang, "Linear subspace learning-based dimensionality reduction",
       IEEE Signal Processing Magazine, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import APCA
    >>> X, y = load_digits(return_X_y=True)
    >>> APCA(n_components=20).fit(X[:100], y[:100]).transform(X).shape
    (1797, 20)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "eta": [Interval(Real, 0, None, closed="neither")],
        "energy": [Interval(Real, 0, 1, closed="right")],
        "covariance": [StrOptions({"within", "mixture"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "whiten": ["boolean"],
        "tangents": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = LinearExtractor._saved.extended(
        class_weights_=VECTOR.of("n_classes"),
        eigenvalues_=VECTOR.of("n_components"),
        precision_=MATRIX.of("n_components", "n_components"),
    )

    def __init__(
        self,
        *,
        n_components: int | None = None,
        eta: float = 0.25,
        energy: float = 0.95,
        covariance: Literal["within", "mixture"] = "within",
        ridge: float = 1e-3,
        whiten: bool = True,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.eta = eta
        self.energy = energy
        self.covariance = covariance
        self.ridge = ridge
        self.whiten = whiten
        self.tangents = tangents
        self.image_shape = image_shape

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        counts = np.bincount(codes)
        self.class_weights_ = inverse_count_weights(counts)
        within, between = mixture_factors(data, codes, self.class_weights_)
        tangents = sample_tangents(data, self.image_shape, self.tangents)
        span = None
        if tangents.size > 0:
            # There are six tangents per sample. In the span of the samples, their rows
            # are shorter.
            span = span_pca(data).basis
            within, between, tangents = within @ span, between @ span, tangents @ span
        motions = motion_rows(tangents, self.tangents)
        total_trace = float(np.sum(within**2) + np.sum(between**2))
        within = with_motions(within, motions, total_trace)
        # A factor of the mixture: its scatter is the mixture itself.
        factor = np.concatenate([within, np.sqrt(self.eta) * between])
        eigenvalues, basis = principal_directions(factor)
        if self.n_components is None:
            shares = np.cumsum(eigenvalues) / eigenvalues.sum()
            n_kept = int(np.searchsorted(shares, self.energy * (1.0 - 1e-12))) + 1
        else:
            n_kept = self.n_components
        n_kept = min(n_kept, eigenvalues.size)
        self.eigenvalues_, basis = eigenvalues[:n_kept], basis[:, :n_kept]
        has_within = counts.max() > 1 or motions.size > 0
        if self.covariance == "within" and has_within:
            projected = within @ basis
            covariance = shrunk(projected.T @ projected, self.ridge)
        else:
            covariance = shrunk(np.diag(self.eigenvalues_), self.ridge)
        root = cholesky(covariance, lower=True)
        inverse_root = solve_triangular(root, np.eye(n_kept), lower=True)
        self.precision_ = inverse_root.T @ inverse_root
        directions = basis @ inverse_root.T if self.whiten else basis
        if span is not None:
            directions = span @ directions
        return data.mean(axis=0), directions


def inverse_count_weights(counts: Index) -> Array:
    """Weights of the class covariances, inverse to the numbers of samples.

    Without prior knowledge, a covariance from fewer samples is less reliable and
    gets a larger weight. A class of one sample has no covariance; its weight goes to
    the others.
    """
    weights = np.where(counts > 1, 1.0 / counts, 0.0)
    if counts.max() == 1:
        weights = np.ones(counts.size)
    return np.asarray(weights / weights.sum())


def mixture_factors(data: Array, codes: Index, weights: Array) -> tuple[Array, Array]:
    """Factors of the weighted class covariances and of that of the class means.

    Returns
    -------
    within : ndarray of shape (n_samples, n_features)
        ``within' within`` is the sum of weight times class covariance.
    between : ndarray of shape (n_classes, n_features)
        ``between' between`` is the covariance of the class means.
    """
    means, counts = class_means(data, codes)
    within = within_deviations(data, codes)
    within *= np.sqrt(weights / counts)[codes][:, None]
    between = means - data.mean(axis=0)
    return within, np.sqrt(counts / counts.sum())[:, None] * between
