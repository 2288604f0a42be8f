# SPDX-License-Identifier: BSD-3-Clause
"""ER-KDA: kernel discriminant analysis with a regularised eigenspectrum."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from dualqml._sklearn import Interval, StrOptions
from dualqml._typing import Array, Index
from dualqml.extractors._eigenspectrum import eigenspectrum_directions
from dualqml.extractors.kernels import KernelExtractor, KernelName
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows

#: Kernel eigenvalues at or below this fraction of the largest count as zero. It is
#: larger than for samples, as coordinates of new samples are divided by their roots.
_KERNEL_TOLERANCE = 1e-9


class ERKDA(KernelExtractor):
    """Kernel discriminant analysis with a regularised eigenspectrum (ER-KDA).

    The samples are described by coordinates in the span of the training samples, in
    the space of a kernel. Both the range and the null space of the within-class
    scatter are kept there, weighted by a model of its eigenspectrum [1]_ [2]_.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None means all, at most n_samples - 1. Our choice.
    kernel : {"rbf", "linear", "igo"}, default="rbf"
        ``exp(-|x - y|^2 / (2 s2))``; the scalar product, which makes the method
        equal to :class:`~dualqml.extractors.ere.ERE`; or, for images, the mean
        cosine of the angle between the gradients [3]_, which hardly depends on
        the illumination. Our choice.
    width : float, default=4.0
        The s2 of "rbf", in units of the median squared distance between
        training samples. Our choice.
    mu : float, default=1.0
        How far above the median a within-class variance must be to count as
        reliable, in units of the distance from the median down to the smallest. With
        a larger value fewer variances are reliable. The default is that of the paper
        on the model [2]_.
    tangents : float, default=0.0
        Weight of small affine motions of the images in the within-class scatter:
        the mean of the scatters of six tangent images, each at unit trace, is
        added. Its trace is this fraction of the trace of the within-class scatter,
        or of the total scatter if no class varies. 0 is the method as published.
        Needs rows that are images. Not implemented for the kernel "igo".
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X, for "igo" and for
        `tangents`. None means square images of at least 8 x 8 pixels; other rows
        raise an error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    kernel_ : CentredKernel
        The kernel with the training samples.
    coefficients_ : ndarray of shape (n_samples, n_components)
        Weights of the centred kernel values, one column per feature.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    The method follows the published summary of [1]_: the eigenspectrum of the
    within-class scatter in the space of the kernel, range and null space both
    kept, a robust kernel. The model of the spectrum is from [2]_, and the kernel of
    orientations is from [3]_. Details of [1]_ may differ.

    With one sample per class and no tangents there is no within-class scatter
    and the features are principal components in the space of the kernel.

    References
    ----------
    .. [1] S. Zafeiriou, G. Tzimiropoulos, M. Petrou, T. Stathaki, "Regularized
       kernel discriminant analysis with a robust kernel for face recognition and
       verification", IEEE Transactions on Neural Networks and Learning Systems,
       2012.
    .. [2] X. Jiang, B. Mandal, A. Kot, "Eigenfeature regularization and
       extraction in face recognition", IEEE PAMI, 2008.
    .. [3] G. Tzimiropoulos, S. Zafeiriou, M. Pantic, "Subspace learning from
       image gradient orientations", IEEE PAMI, 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import ERKDA
    >>> X, y = load_digits(return_X_y=True)
    >>> ERKDA(n_components=20).fit(X[:100], y[:100]).transform(X).shape
    (1797, 20)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "kernel": [StrOptions({"rbf", "linear", "igo"})],
        "width": [Interval(Real, 0, None, closed="neither")],
        "mu": [Interval(Real, 0, None, closed="left")],
        "tangents": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        kernel: KernelName = "rbf",
        width: float = 4.0,
        mu: float = 1.0,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.width = width
        self.mu = mu
        self.tangents = tangents
        self.image_shape = image_shape

    def _n_matrices(self, rank: float) -> float:
        return max(4.0, 12.0 * rank)

    def _learn(self, K: Array, codes: Index, derivatives: Array) -> Array:
        values, vectors = eigh(K)
        kept = values > _KERNEL_TOLERANCE * values[-1]
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        directions = eigenspectrum_directions(
            vectors * roots,
            codes,
            mu=self.mu,
            n_components=self.n_components,
            # The same map to coordinates as for the kernel rows of new samples.
            motions=motion_rows(derivatives @ (vectors / roots), self.tangents),
        )
        return np.asarray((vectors / roots) @ directions)
