# SPDX-License-Identifier: BSD-3-Clause
"""ERE: eigenfeature regularisation and extraction."""

from numbers import Integral, Real
from typing import Any, ClassVar

from dualqml.core.arrays import Array, Index
from dualqml.extractors._base import LinearExtractor
from dualqml.extractors._compat import Interval
from dualqml.extractors._eigenspectrum import eigenspectrum_directions
from dualqml.extractors._subspace import span_pca


class ERE(LinearExtractor):
    """Eigenfeature regularisation and extraction (ERE).

    Whitens the within-class scatter in the whole space: large variances as they
    are, small and missing ones after a model of how the spectrum goes on. Then
    takes the principal components of the whitened samples [1]_. Nothing is
    thrown away before the classes have been looked at.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None means all, at most n_samples - 1. Our choice:
        the paper tries many numbers and names none.
    mu : float, default=1.0
        How far above the median a within-class variance must be to be trusted,
        in units of the distance from the median down to the smallest. A larger
        value trusts fewer. The default is the paper's.
    centre : bool, default=True
        Subtract the mean of the training samples. Our choice: the paper
        projects the samples as they are, where the mean has a part in every
        cosine.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,) or None
        Mean of the training samples; None if not subtracted.
    components_ : ndarray of shape (n_components, n_features)
        The directions. Plain principal components where every class has one
        sample, for want of a within-class scatter.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    Notes
    -----
    All classes weigh the same in the scatters, whatever their numbers of
    samples, as in the paper.

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
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        mu: float = 1.0,
        centre: bool = True,
    ) -> None:
        self.n_components = n_components
        self.mu = mu
        self.centre = centre

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        # Outside the span of the centred samples all weights are equal and no
        # sample has a part: working inside it loses nothing.
        pca = span_pca(data)
        directions = eigenspectrum_directions(
            pca.coordinates, codes, mu=self.mu, n_components=self.n_components
        )
        return pca.mean if self.centre else None, pca.basis @ directions
