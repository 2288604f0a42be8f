# SPDX-License-Identifier: BSD-3-Clause
"""ERE: eigenfeature regularisation and extraction."""

from numbers import Integral, Real
from typing import Any, ClassVar

from dualqml._linalg import span_pca
from dualqml._sklearn import Interval, LinearExtractor
from dualqml._typing import Array, Index
from dualqml.extractors._eigenspectrum import eigenspectrum_directions
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows, sample_tangents


class ERE(LinearExtractor):
    """Eigenfeature regularisation and extraction (ERE).

    It whitens the within-class scatter in the whole space. Large variances are used
    as measured; small and missing variances come from a model of the spectrum. Then
    it takes the principal components of the whitened samples [1]_. No direction is
    discarded before the classes are used.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None means all, at most n_samples - 1. Our choice:
        the paper tries many numbers and recommends none.
    mu : float, default=1.0
        How far above the median a within-class variance must be to count as
        reliable, in units of the distance from the median down to the smallest. With
        a larger value fewer variances are reliable. The default is the paper's.
    centre : bool, default=True
        Whether to subtract the mean of the training samples. Our choice: the paper
        projects the samples as they are, so that the mean is a part of every
        cosine.
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
    mean_ : ndarray of shape (n_features,) or None
        Mean of the training samples; None if not subtracted.
    components_ : ndarray of shape (n_components, n_features)
        The directions. Principal components if every class has one sample and there
        are no tangents, as then there is no within-class scatter.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    All classes have the same weight in the scatters for any number of samples, as in
    the paper.

    References
    ----------
    .. [1] X. Jiang, B. Mandal, A. Kot, "Eigenfeature regularization and
       extraction in face recognition", IEEE PAMI, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import ERE
    >>> X, y = load_digits(return_X_y=True)
    >>> ERE(n_components=20).fit(X[:100], y[:100]).transform(X).shape
    (1797, 20)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "mu": [Interval(Real, 0, None, closed="left")],
        "centre": ["boolean"],
        "tangents": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        mu: float = 1.0,
        centre: bool = True,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.mu = mu
        self.centre = centre
        self.tangents = tangents
        self.image_shape = image_shape

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        # Outside the span of the centred samples all weights are equal and all
        # samples are zero, so it is enough to work inside the span.
        pca = span_pca(data)
        tangents = sample_tangents(data, self.image_shape, self.tangents)
        directions = eigenspectrum_directions(
            pca.coordinates,
            codes,
            mu=self.mu,
            n_components=self.n_components,
            motions=motion_rows(tangents @ pca.basis, self.tangents),
        )
        return pca.mean if self.centre else None, pca.basis @ directions
