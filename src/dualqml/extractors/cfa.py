# SPDX-License-Identifier: BSD-3-Clause
"""CFA: class-dependence feature analysis, one correlation filter per class."""

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.fft import fft2, ifft2
from scipy.linalg import cho_solve

from dualqml._linalg import definite_factor, shrunk, span_pca, unit_rows
from dualqml._saved_state import MATRIX, Saved
from dualqml._sklearn import Interval, LinearExtractor, StrOptions
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError
from dualqml.extractors._memory import require_pairs
from dualqml.images.shapes import ImageShape, SizeLike, shape_or_row

#: Power at or below this fraction of the largest counts as zero.
_POWER_TOLERANCE = 1e-20

#: Relative addition to the Gram matrix of a class, in case images are repeated.
_CLASS_RIDGE = 1e-10

_DEFAULT_ALPHAS = {"otf": 0.9, "oeotf": 0.99}


class CFA(LinearExtractor):
    """Class-dependence feature analysis (CFA) with optimal trade-off filters.

    One correlation filter is designed for every class, and the features of an
    image are its correlations with all the filters, taken at the origin [1]_.

    The optimal trade-off filter (OTF) [2]_ has the response 1 to the training images
    of its class and 0 to all others. Of all such filters, it minimises ``alpha``
    times correlation energy plus ``sqrt(1 - alpha^2)`` times response to white noise.
    The optimal extra-class origin-output trade-off filter (OEOTF) [3]_ works in the
    PCA subspace of the images. It has the response 1 to the training images of its
    class, and minimises a weighted sum of the noise and of the energy of its
    responses to the other classes.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    filter : {"otf", "oeotf"}, default="oeotf"
        The kind of filter. The default is our choice.
    alpha : float, default=None
        Weight, from 0 to 1, of the energy relative to the noise. 0 is the
        projection filter, and 1 with "otf" is the minimum average correlation
        energy (MACE) filter. Some texts give the weight to the noise instead.
        The energy is scaled to a mean of 1, so alpha does not depend on the
        brightness of the images. None means 0.9 for "otf" and 0.99 for
        "oeotf", both our choice; "oeotf" needs alpha below 1.
    ridge : float, default=0.1
        With "otf" in mode "2d", added to the diagonal of the Gram matrix of the
        filtered images, relative to its mean diagonal element. With it,
        responses are only close to 1 and 0. With 0 they are exactly 1 and 0, as in
        the original paper. Our choice: exact responses are noisy if there are nearly
        as many images as pixels, and impossible if there are more. Not used
        otherwise.
    mode : {"2d", "1d"}, default="2d"
        With "otf", filters on images as in [2]_, or on the PCA coefficients. There
        are more images than coefficients, so exact responses are impossible. So
        "1d" uses least squares, and does not use alpha and ridge. "oeotf" always
        works on all PCA coefficients, and does not use the mode.
    energy : float, default=0.98
        Fraction of the variance that the PCA of mode "1d" keeps; our choice.
    image_shape : tuple of int, default=None
        Height and width of the images, for "otf" in mode "2d". None means square
        images if n_features is a square number, else one row of pixels.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,) or None
        Mean of the training samples; None for "otf" in mode "2d", which scales
        every image to unit norm instead.
    components_ : ndarray of shape (n_classes, n_features)
        The filters as images, one per row. With "oeotf" the filter of a class
        is zero if all its images equal the mean of all images, because no filter has
        a response to it.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Notes
    -----
    An image of zeros has features of zeros if images are scaled to unit norm. The
    original papers design the filters in the frequency domain. The Fourier transform
    is unitary, so only the power spectrum of "otf" in mode "2d" needs it.

    References
    ----------
    .. [1] C. Xie, M. Savvides, B. V. K. Vijaya Kumar, "Redundant
       class-dependence feature analysis based on correlation filters using
       FRGC2.0 data", CVPR Workshops, 2005.
    .. [2] B. V. K. Vijaya Kumar, M. Savvides, C. Xie, "Correlation pattern
       recognition for face recognition", Proceedings of the IEEE, 2006.
    .. [3] Y. Yan, Y.-J. Zhang, "1D correlation filter based class-dependence
       feature analysis for face recognition", Pattern Recognition, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import CFA
    >>> X, y = load_digits(return_X_y=True)
    >>> CFA(filter="otf").fit(X[:100], y[:100]).transform(X).shape
    (1797, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "filter": [StrOptions({"otf", "oeotf"})],
        "alpha": [Interval(Real, 0, 1, closed="both"), None],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "mode": [StrOptions({"2d", "1d"})],
        "energy": [Interval(Real, 0, 1, closed="right")],
        "image_shape": ["array-like", None],
    }

    _saved: ClassVar[Saved] = LinearExtractor._saved.extended(
        components_=MATRIX.of("n_classes", "n_features")
    )

    def __init__(
        self,
        *,
        filter: Literal["otf", "oeotf"] = "oeotf",
        alpha: float | None = None,
        ridge: float = 0.1,
        mode: Literal["2d", "1d"] = "2d",
        energy: float = 0.98,
        image_shape: SizeLike | None = None,
    ) -> None:
        self.filter = filter
        self.alpha = alpha
        self.ridge = ridge
        self.mode = mode
        self.energy = energy
        self.image_shape = image_shape

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        alpha = _DEFAULT_ALPHAS[self.filter] if self.alpha is None else self.alpha
        if self.filter == "oeotf":
            if alpha == 1:
                raise ValueError(
                    'filter="oeotf" needs alpha below 1: without any noise the '
                    "design is singular. Use for example alpha=0.999."
                )
            pca = span_pca(data)
            return pca.mean, pca.basis @ oeotf_filters(pca.coordinates, codes, alpha)
        if self.mode == "1d":
            pca = span_pca(data)
            pca = pca.first(pca.n_for_energy(self.energy))
            return pca.mean, pca.basis @ regression_filters(pca.coordinates, codes)
        shape = shape_or_row(self.image_shape, data.shape[1])
        require_pairs('CFA with filter="otf"', data.shape[0], 3)
        return None, otf_filters(unit_rows(data), codes, shape, alpha, self.ridge)

    def _features(self, data: Array) -> Array:
        # The square of a pixel may overflow in single precision.
        double = data.astype(np.float64, copy=False)
        inputs = unit_rows(double) if self.mean_ is None else double - self.mean_
        return np.asarray(inputs @ self.components_.T)


def trade_off(images: Array, shape: ImageShape, alpha: float) -> Array:
    """Diagonal of the trade-off matrix T, one element per frequency.

    Parameters
    ----------
    images : ndarray of shape (n_samples, n_features)
        Images, one per row.
    shape : tuple of int
        Their height and width.
    alpha : float
        Weight of the mean power spectrum relative to white noise.

    Returns
    -------
    ndarray of the given shape
        ``alpha D + sqrt(1 - alpha^2)`` where D is the mean power spectrum,
        divided by its mean.

    Raises
    ------
    DualQMLError
        All images are zero, or T has a zero.
    """
    spectra = fft2(images.reshape(-1, *shape), norm="ortho")
    power = np.mean(spectra.real**2 + spectra.imag**2, axis=0)
    if not power.max() > 0.0:
        raise DualQMLError(
            "All images are zero: there is no filter to learn. Check the rows of X."
        )
    T: Array = alpha * power / power.mean() + np.sqrt(1.0 - alpha**2)
    if T.min() <= _POWER_TOLERANCE * T.max():
        raise DualQMLError(
            "The images have no power at some frequency, and alpha=1 divides by it. "
            "Use an alpha below 1."
        )
    return T


def otf_filters(
    images: Array, codes: Index, shape: ImageShape, alpha: float, ridge: float
) -> Array:
    """Optimal trade-off filters of all classes from one linear system.

    Filter c minimises ``h'Th`` over all filters with response 1 to the images of
    class c and 0 to the others (see :func:`trade_off` for T).

    Parameters
    ----------
    images : ndarray of shape (n_samples, n_features)
        Images of unit norm, one per row.
    codes : ndarray of shape (n_samples,)
        Their classes.
    shape : tuple of int
        Height and width of the images.
    alpha : float
        Weight of the energy relative to the noise.
    ridge : float
        Relative addition to the diagonal of the Gram matrix.

    Returns
    -------
    ndarray of shape (n_features, n_classes)
        The filters as images, one per column.

    Raises
    ------
    DualQMLError
        The images are linearly dependent and the ridge is zero.
    """
    T = trade_off(images, shape, alpha)
    # T is even in the frequency, so the inverse transform is real.
    spectra = fft2(images.reshape(-1, *shape))
    filtered = ifft2(spectra / T).real.reshape(images.shape)
    gram = shrunk(_symmetric(images @ filtered.T), ridge)
    return np.asarray(filtered.T @ _solve_definite(gram, _one_hot(codes)))


def oeotf_filters(Z: Array, codes: Index, alpha: float) -> Array:
    """Extra-class origin-output trade-off filters of all classes.

    Filter c minimises ``alpha h'E_c h / s + sqrt(1 - alpha^2) h'h`` over all filters
    with response 1 to the samples of class c. E_c is the correlation matrix of the
    samples of the other classes, and s is the mean power of a coordinate.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, p)
        Samples in the coordinates of their principal components, so that their mean
        is zero and the coordinates are uncorrelated.
    codes : ndarray of shape (n_samples,)
        Their classes.
    alpha : float
        Weight of the energy relative to the noise, below 1.

    Returns
    -------
    ndarray of shape (p, n_classes)
        The filters, one per column.
    """
    n_samples = Z.shape[0]
    scatter = np.einsum("ij,ij->j", Z, Z)
    power = scatter.mean() / n_samples
    noise = np.sqrt(1.0 - alpha**2)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    filters = np.zeros((Z.shape[1], counts.size))
    for c, own in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        # The responses to the own samples are fixed, so their energy can be added.
        # Then the matrix to invert is diagonal for every class.
        weights = alpha * scatter / (power * (n_samples - own.size)) + noise
        filters[:, c] = _unit_response_filter(Z[own], weights, float(power))
    return filters


def _unit_response_filter(own: Array, weights: Array, power: float) -> Array:
    """The h that minimises ``h' diag(weights) h`` with response 1 to every row."""
    size = own.shape[0]
    if np.square(own).sum() <= _POWER_TOLERANCE * power * own.size:
        return np.zeros(own.shape[1])
    # An SVD and no linear solve: with more rows than columns the Gram matrix without
    # the ridge is singular, and rounding errors would be amplified.
    U, s, Vt = np.linalg.svd(own / np.sqrt(weights), full_matrices=False)
    ridge = _CLASS_RIDGE * np.square(s).sum() / size
    scaled_filter = Vt.T @ (s / (s**2 + ridge) * U.sum(axis=0))
    return np.asarray(scaled_filter / np.sqrt(weights))


def regression_filters(Z: Array, codes: Index) -> Array:
    """Least-squares regression of the class indicators.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, p)
        Samples in the coordinates of their principal components.
    codes : ndarray of shape (n_samples,)
        Their classes.

    Returns
    -------
    ndarray of shape (p, n_classes)
        The filters, one per column.
    """
    # The coordinates are uncorrelated, so the normal equations are diagonal.
    scatter = np.einsum("ij,ij->j", Z, Z)
    return np.asarray(Z.T @ _one_hot(codes) / scatter[:, None])


def _one_hot(codes: Index) -> Array:
    """Indicators of the classes, one per column."""
    return np.eye(int(codes.max()) + 1)[codes]


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2.0)


def _solve_definite(gram: Array, targets: Array) -> Array:
    """Solve with a positive definite matrix; raise if it is singular."""
    factor = definite_factor(gram)
    if factor is None:
        raise DualQMLError(
            "The training images are linearly dependent, so no filter gives each "
            "of them its exact answer. Use ridge > 0 (the default is 0.1)."
        )
    return np.asarray(cho_solve(factor, targets))
