# SPDX-License-Identifier: BSD-3-Clause
"""K-LDA: kernel linear discriminant analysis."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from dualqml._linalg import (
    VARIANCE_TOLERANCE,
    class_means,
    discriminant_directions,
    within_deviations,
)
from dualqml._saved_state import VECTOR, Saved
from dualqml._sklearn import Interval, StrOptions
from dualqml._typing import Array, Index
from dualqml.extractors.kernels import KernelExtractor, KernelName
from dualqml.images.shapes import SizeLike
from dualqml.images.tangents import motion_rows, with_motions


class KernelLDA(KernelExtractor):
    """Linear discriminant analysis in the space of a kernel (K-LDA).

    The directions with the largest ratio of between-class to within-class scatter,
    among all linear combinations of the mapped training samples [1]_ [2]_.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    n_components : int, default=None
        Number of features; None means n_classes - 1, the largest number.
    kernel : {"rbf", "linear", "igo"}, default="rbf"
        ``exp(-|x - y|^2 / (2 s2))``; the scalar product; or, for images, the
        mean cosine of the angle between the gradients [3]_. Our choice.
    width : float, default=4.0
        The s2 of "rbf", in units of the median squared distance between
        training samples. Our choice.
    regularisation : float, default=1e-3
        Added to the diagonal of the within-class scatter, relative to the mean
        diagonal element of the total scatter. Our choice; the papers need
        such a term and do not give its size.
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
    eigenvalues_ : ndarray of shape (n_components,)
        Ratio of between-class to regularised within-class scatter of each
        feature, largest first.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    With one sample per class and no tangents there is no within-class scatter. Only
    the regularisation remains, and the features are principal components in the
    space of the kernel.

    References
    ----------
    .. [1] K.-R. Mueller, S. Mika, G. Raetsch, K. Tsuda, B. Schoelkopf, "An
       introduction to kernel-based learning algorithms", IEEE Transactions on
       Neural Networks, 2001.
    .. [2] G. Baudat, F. Anouar, "Generalized discriminant analysis using a kernel
       approach", Neural Computation, 2000.
    .. [3] G. Tzimiropoulos, S. Zafeiriou, M. Pantic, "Subspace learning from
       image gradient orientations", IEEE PAMI, 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import KernelLDA
    >>> X, y = load_digits(return_X_y=True)
    >>> KernelLDA().fit(X[:100], y[:100]).transform(X).shape
    (1797, 9)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "kernel": [StrOptions({"rbf", "linear", "igo"})],
        "width": [Interval(Real, 0, None, closed="neither")],
        "regularisation": [Interval(Real, 0, None, closed="neither")],
        "tangents": [Interval(Real, 0, None, closed="left")],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = KernelExtractor._saved.extended(
        eigenvalues_=VECTOR.of("n_components")
    )

    def __init__(
        self,
        *,
        n_components: int | None = None,
        kernel: KernelName = "rbf",
        width: float = 4.0,
        regularisation: float = 1e-3,
        tangents: float = 0.0,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.width = width
        self.regularisation = regularisation
        self.tangents = tangents
        self.image_shape = image_shape

    def _n_matrices(self, rank: float) -> float:
        return 7.0

    def _learn(self, K: Array, codes: Index, derivatives: Array) -> Array:
        n_components = self.n_components or self.classes_.size - 1
        self.eigenvalues_, coefficients = kernel_discriminants(
            K,
            codes,
            self.regularisation,
            n_components,
            motion_rows(derivatives, self.tangents),
        )
        return coefficients


def kernel_discriminants(
    K: Array,
    codes: Index,
    regularisation: float,
    n_components: int,
    motions: Array | None = None,
) -> tuple[Array, Array]:
    """Linear combinations of the training samples that best separate the classes.

    Parameters
    ----------
    K : ndarray of shape (n_samples, n_samples)
        Centred kernel of the training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    regularisation : float
        Relative addition to the diagonal of the within-class scatter.
    n_components : int
        Largest number of directions. There are at most n_classes - 1, and fewer if
        the class means span a smaller space.
    motions : ndarray of shape (n_rows, n_samples), optional
        Added to the within-class scatter, see
        :func:`~dualqml.images.tangents.motion_rows`; rows like those of K.

    Returns
    -------
    ratios : ndarray of shape (n_components,)
        Between-class to regularised within-class scatter, largest first.
    coefficients : ndarray of shape (n_samples, n_components)
        The combinations, one per column.
    """
    # The rows of K are the samples; the scatters are those of the rows. With W
    # the averaging within classes they are KWK and K(I - W)K.
    means, counts = class_means(K, codes)
    total_trace = float(np.einsum("ij,ij->", K, K))
    within = with_motions(within_deviations(K, codes), motions, total_trace)
    between = np.sqrt(counts)[:, None] * means
    # Relative to the total scatter, as the within-class scatter may be zero.
    ridge = regularisation * total_trace / K.shape[0]
    ratios, coefficients = discriminant_directions(
        between.T @ between,
        within.T @ within + ridge * np.eye(K.shape[0]),
        min(n_components, counts.size - 1),
    )
    kept = ratios > VARIANCE_TOLERANCE * ratios[0]
    return ratios[kept], coefficients[:, kept]
