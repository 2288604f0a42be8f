# SPDX-License-Identifier: BSD-3-Clause
"""WithinMetric: whitened coordinates of unit norm in a within-class metric."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.linalg.lapack import dpotrf

from dualqml._linalg import unit_rows, within_contrasts
from dualqml._saved_state import (
    MATRIX,
    NOTHING,
    VECTOR,
    Path,
    Saved,
    expect,
    expect_equal,
    from_parameters,
    instance_of,
)
from dualqml._sklearn import Interval, StrOptions, SupervisedExtractor
from dualqml._typing import Array, Index
from dualqml.extractors._coordinates import (
    BackgroundCoordinates,
    Coordinates,
    CoordinateSystem,
    GramCoordinates,
    InputCoordinates,
    KernelCoordinates,
)
from dualqml.extractors.background import Background
from dualqml.extractors.kernels import CentredKernel, check_kernel_coefficients
from dualqml.extractors.prepared_samples import (
    MOST_MOVING,
    Descriptor,
    PreparedSamples,
    sample_inputs,
    spread_rows,
)
from dualqml.images.descriptors import moving_descriptors
from dualqml.images.shapes import ImageShape, SizeLike, resolved_shape
from dualqml.images.tangents import tangent_images

KernelChoice = Literal["auto", "rbf", "linear"]

#: Largest number of samples for which kernel="auto" is "rbf".
MOST_KERNEL_SAMPLES = 20_000

#: Without a kernel, principal components are used up to this number of inputs.
MOST_INPUTS = 1280

#: For a smaller weight, a sum with the prior would lose too many digits of the prior.
_LEAST_RHO = 1e-7


class WithinMetric(SupervisedExtractor):
    r"""Coordinates in which the differences within classes are small.

    Samples are scaled to unit norm. Then their principal coordinates a are computed,
    linear or those of a wide Gaussian kernel. The metric

    .. math::

        S_\rho = S_w + \rho \, [(1 - \kappa) I / d + \kappa S_{tan}]

    is the sum of the pooled within-class scatter :math:`S_w` and a prior, all of
    trace 1. For images, the prior contains small affine motions (shifts, zoom,
    rotation, shears), which do not change a person. The features are
    :math:`S_\rho^{-1/2} a`, scaled to unit norm: directions in which images of one
    person differ get a small weight. It can be used before any classifier.
    :class:`DualQMLW` is quadratic matrix learning in this metric.

    Read more in the :ref:`user guide <dual_qml_w>`.

    Parameters
    ----------
    rho : float, default=0.1
        Weight of the prior relative to the within-class scatter.
    kernel : {"auto", "rbf", "linear"}, default="auto"
        Coordinates of the kernel ``exp(-|x - y|^2 / (2 s2))`` or of the samples as
        they are. The kernel is a little better, and takes more time. "auto" is "rbf"
        up to 20,000 samples, then "linear".
    width : float, default=16.0
        The s2 of "rbf", in units of the median squared distance between
        training samples. The default is wide: the kernel is nearly linear.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. None means that the
        rows are not images, or with a `descriptor` that they are square images
        of at least 8 x 8 pixels.
    kappa : float, default=0.2
        Weight of the affine motions in the prior, from 0 to 1, for images.
    descriptor : {"local"}, default=None
        "local" replaces images by their :class:`~dualqml.images.LocalDescriptors`, and
        motions of images by changes of the descriptors. None uses the rows as they
        are.
    background : Background, default=None
        Statistics of other people, who are not in the training set. Their within-class
        scatter is added to that of the training samples. The coordinates are linear
        then.
    background_weight : float, default=1.0
        Weight of a sample of the background, relative to a training sample. With 0 the
        background is not used.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    kernel_ : CentredKernel or None
        The kernel with the training samples; None for linear coordinates.
    mean_ : ndarray of shape (n_features,) or None
        Mean of the training samples, for linear coordinates.
    coefficients_ : ndarray of shape (n_samples or n_features, n_components)
        The linear map from the centred row of the kernel, or from the centred
        sample, to the features before they are scaled to unit norm.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLW : Quadratic matrix learning in this metric.
    DualQMLWCV : The same with parameters chosen by cross-validation.

    Notes
    -----
    With one sample per class there is no within-class scatter. Then only the prior
    is used, and rho has no effect.

    Time and memory grow linearly with the number of samples. From 1,280 samples on
    (800 for vectors of up to 400 features) the kernel compares all samples with that
    many landmarks, which are chosen from all classes alike, and not with all samples.
    For vectors of up to 400 features the leading 400 coordinates of the kernel are
    kept. The motions of at most 400 images are followed.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dualqml.extractors import NearestSample, WithinMetric
    >>> X, y = load_digits(return_X_y=True)
    >>> metric = WithinMetric(rho=1.0, image_shape=(8, 8))
    >>> model = make_pipeline(metric, NearestSample()).fit(X[::4], y[::4])
    >>> model.score(X[1::4], y[1::4]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rho": [Interval(Real, 0, None, closed="neither")],
        "kernel": [StrOptions({"auto", "rbf", "linear"})],
        "width": [Interval(Real, 0, None, closed="neither")],
        "image_shape": ["array-like", None],
        "kappa": [Interval(Real, 0, 1, closed="both")],
        "descriptor": [StrOptions({"local"}), None],
        "background": [Background, None],
        "background_weight": [Interval(Real, 0, None, closed="left")],
    }

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        kernel_=instance_of(CentredKernel) | NOTHING,
        mean_=(VECTOR | NOTHING).of("n_inputs"),
        coefficients_=MATRIX.of("n_inputs", "n_components"),
    )

    def __init__(
        self,
        *,
        rho: float = 0.1,
        kernel: KernelChoice = "auto",
        width: float = 16.0,
        image_shape: SizeLike | None = None,
        kappa: float = 0.2,
        descriptor: Descriptor | None = None,
        background: Background | None = None,
        background_weight: float = 1.0,
    ) -> None:
        self.rho = rho
        self.kernel = kernel
        self.width = width
        self.image_shape = image_shape
        self.kappa = kappa
        self.descriptor = descriptor
        self.background = background
        self.background_weight = background_weight

    @property
    def n_inputs_(self) -> int:
        """Number of inputs of the metric, after the descriptor."""
        if self.kernel_ is not None:
            return self.kernel_.n_features
        assert self.mean_ is not None
        return int(self.mean_.size)

    def _fit(self, data: Array, codes: Index) -> None:
        samples = self._prepare(data, spread_rows(codes, MOST_MOVING))
        self._learn(self._coordinate_system(samples, codes), codes)

    def _learn(self, system: CoordinateSystem, codes: Index) -> Array:
        """Learn from the coordinates of the training samples.

        Parameters
        ----------
        system : CoordinateSystem
            Coordinates of the training samples, from :meth:`_coordinate_system`.
        codes : ndarray of shape (n_samples,)
            Their class numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Features of the training samples.
        """
        training, coefficients = whitened_at(
            system.coordinates(), codes, kappa=self.kappa, rho=self.rho
        )
        self.kernel_ = self.mean_ = None
        if isinstance(system, KernelCoordinates):
            self.kernel_ = system.kernel
        elif isinstance(system, GramCoordinates):
            self.mean_ = system.mean
            coefficients = system.landmark_deviations.T @ coefficients
        else:
            assert isinstance(system, InputCoordinates)
            self.mean_ = system.mean
        self.coefficients_ = coefficients
        return unit_rows(training)

    def _features(self, data: Array) -> Array:
        return self._project(self._inputs(data.astype(np.float64, copy=False)))

    def _project(self, inputs: Array) -> Array:
        """Features of inputs, which are at unit norm."""
        if self.kernel_ is not None:
            return unit_rows(self.kernel_.project(inputs, self.coefficients_))
        assert self.mean_ is not None
        return unit_rows((inputs - self.mean_) @ self.coefficients_)

    @property
    def _n_features_out(self) -> int:
        return int(self.coefficients_.shape[1])

    def _inputs(self, data: Array) -> Array:
        """Samples, or their descriptors, scaled to unit norm."""
        return sample_inputs(data, self.descriptor, self.image_shape)

    def _shape(self, n_features: int) -> ImageShape:
        return resolved_shape(self.image_shape, n_features, without="descriptor=None")

    def _prepare(self, data: Array, moving: Index) -> PreparedSamples:
        """Compute what does not depend on the other training samples.

        Parameters
        ----------
        data : ndarray of shape (n_samples, n_features)
            Training samples.
        moving : ndarray of shape (n_moving,)
            Samples whose motions are followed if they are images, in ascending order.

        Returns
        -------
        PreparedSamples
            Inputs of the metric and, for images, how they change with small motions.
            With descriptors this is most of the work of a fit. It can be kept when
            other samples are added or removed.
        """
        images = self.image_shape is not None or self.descriptor is not None
        shape = self._shape(data.shape[1]) if images else None
        tangents = None
        if shape is None or self.kappa == 0.0:
            rows = self._inputs(data)
        elif self.descriptor is None:
            rows = self._inputs(data)
            tangents = tangent_images(rows[moving], shape)
        else:
            described, tangents = moving_descriptors(data[moving], shape)
            rows = np.empty((len(data), described.shape[1]))
            rows[moving] = described
            others = np.setdiff1d(np.arange(len(data)), moving)
            rows[others] = self._inputs(data[others])
        everyone = moving.size == len(data)
        return PreparedSamples(
            rows, tangents, data.shape[1], moving=None if everyone else moving
        )

    def _coordinate_system(
        self, samples: PreparedSamples, codes: Index
    ) -> CoordinateSystem:
        """Compute the coordinate system of training samples.

        Parameters
        ----------
        samples : PreparedSamples
            From :meth:`_prepare`.
        codes : ndarray of shape (n_samples,)
            Their classes.

        Returns
        -------
        CoordinateSystem
            The part of the computation that does not depend on rho.
        """
        n_samples, n_inputs = samples.inputs.shape
        if self.background is not None and self.background_weight > 0.0:
            self.background.check_inputs(n_inputs, self.descriptor)
            return BackgroundCoordinates(
                samples, codes, self.background, self.background_weight
            )
        if not self._uses_products(n_samples, n_inputs):
            return InputCoordinates(samples, codes)
        if self._has_kernel(n_samples):
            return KernelCoordinates(samples, codes, width=self.width)
        return GramCoordinates(samples, codes)

    def _has_kernel(self, n_samples: int) -> bool:
        few = n_samples <= MOST_KERNEL_SAMPLES
        return self.kernel == "rbf" or (self.kernel == "auto" and few)

    def _uses_products(self, n_samples: int, n_inputs: int) -> bool:
        """Whether the coordinate system uses products of pairs of samples."""
        # Principal components of very many features would take too much time.
        many_features = n_inputs > MOST_INPUTS
        images = self.image_shape is not None or self.descriptor is not None
        few_images = images and n_samples <= n_inputs
        return self._has_kernel(n_samples) or many_features or few_images

    def _check_saved(self, path: Path) -> None:
        """Raise if kernel, mean and coefficients do not fit the inputs."""
        kernel, mean = self.kernel_, self.mean_
        exactly_one = (kernel is None) != (mean is None)
        expect(exactly_one, path, "kernel_", "and mean_ are both there, or both not")
        if kernel is not None:
            check_kernel_coefficients(kernel, self.coefficients_, path)
        found = self.n_inputs_
        wanted, source = self.n_features_in_, "n_features_in_"
        # Descriptors contain the pixels. With more pixels than inputs the check fails
        # anyway, and counting the descriptors could take much memory.
        if self.descriptor is not None and wanted <= found:
            no_samples = np.empty((0, wanted))
            wanted = from_parameters(lambda: self._inputs(no_samples).shape[1], path)
            source = "descriptor"
        name = "mean_" if kernel is None else "kernel_"
        expect_equal(found, wanted, path, name, "inputs", source)


def whitened_at(
    coordinates: Coordinates, codes: Index, *, kappa: float, rho: float
) -> tuple[Array, Array]:
    """Whiten the training samples and the projector in the metric of one rho.

    Parameters
    ----------
    coordinates : Coordinates
        Coordinates of the training samples.
    codes : ndarray of shape (n_train,)
        Their classes, each class with at least one sample.
    kappa : float
        Weight of the tangents in the prior, if there are any.
    rho : float
        Weight of the prior.

    Returns
    -------
    training : ndarray of shape (n_train, d)
        The training samples as ``F^-1 a``, where ``F F' = S_rho``.
    coefficients : ndarray
        The projector to these coordinates.
    """
    factor = None
    if rho >= _LEAST_RHO:
        factor = _metric_factor(coordinates, codes, kappa, rho)
    if factor is None:
        spectrum = within_spectrum(coordinates, codes, kappa)
        scaled = spectrum.directions / np.sqrt(spectrum.variances + rho)
        return coordinates.training @ scaled, coordinates.projector @ scaled
    training, coefficients = (
        solve_triangular(factor, rows.T, lower=True, check_finite=False).T
        for rows in (coordinates.training, coordinates.projector)
    )
    return training, coefficients


@dataclass(frozen=True)
class WithinSpectrum:
    """Eigenvalues and eigenvectors of S_w relative to the prior B.

    Attributes
    ----------
    variances : ndarray of shape (d,)
        The eigenvalues w, in ascending order.
    directions : ndarray of shape (d, d)
        The eigenvectors E, one per column: E'BE = I and E'S_w E = diag(w).
    scale : float
        S_w is the scatter of the deviations from class means times this number; zero
        if no class varies.
    """

    variances: Array
    directions: Array
    scale: float


def within_spectrum(
    coordinates: Coordinates, codes: Index, kappa: float
) -> WithinSpectrum:
    """Solve the generalised eigenproblem that all values of rho share.

    Parameters
    ----------
    coordinates : Coordinates
        Coordinates of the training samples.
    codes : ndarray of shape (n_samples,)
        Their classes, each class with at least one sample.
    kappa : float
        Weight of the tangents in the prior, if there are any.

    Returns
    -------
    WithinSpectrum
        The spectrum. All variances are zero if no class varies.
    """
    within, scale = _unit_within(coordinates, codes)
    if not _has_motions(coordinates, kappa):
        variances, directions = np.linalg.eigh(coordinates.n_directions * within)
        directions *= np.sqrt(coordinates.n_directions)
    else:
        prior = _prior(coordinates, kappa)
        variances, directions = eigh(
            within, prior, overwrite_a=True, overwrite_b=True, check_finite=False
        )
    return WithinSpectrum(np.maximum(variances, 0.0), directions, scale)


def _metric_factor(
    coordinates: Coordinates, codes: Index, kappa: float, rho: float
) -> Array | None:
    """The Cholesky factor of S_rho; None if rounding has made it indefinite."""
    metric, _ = _unit_within(coordinates, codes)
    if _has_motions(coordinates, kappa):
        metric += rho * _prior(coordinates, kappa)
    else:
        metric[np.diag_indices(len(metric))] += rho / coordinates.n_directions
    # The matrix is symmetric: its transpose is the same matrix in LAPACK's order.
    factor, failed = dpotrf(metric.T, lower=1, overwrite_a=1)
    return None if failed else np.asarray(factor)


def _unit_within(coordinates: Coordinates, codes: Index) -> tuple[Array, float]:
    """S_w of trace 1, and its scale; zeros if no class varies."""
    A, others = coordinates.training, coordinates.other_contrasts
    if coordinates.within is None:
        contrasts = within_contrasts(A, codes)
        if others is not None:
            contrasts = np.concatenate([contrasts, others])
        total = float(np.vdot(contrasts, contrasts))
    else:
        within = (
            coordinates.within
            if others is None
            else (coordinates.within + others.T @ others)
        )
        total = float(np.trace(within))
    # Because of rounding, contrasts of equal rows are not exactly zero.
    if total <= 1e-20 * np.einsum("ij,ij->", A, A):
        return np.zeros((A.shape[1], A.shape[1])), 0.0
    if coordinates.within is None:
        contrasts /= np.sqrt(total)
        return contrasts.T @ contrasts, total**-0.5
    return within / total, total**-0.5


def _has_motions(coordinates: Coordinates, kappa: float) -> bool:
    return coordinates.tangent_scatter is not None and kappa > 0.0


def _prior(coordinates: Coordinates, kappa: float) -> Array:
    """The prior B, for images."""
    assert coordinates.tangent_scatter is not None
    prior = kappa * coordinates.tangent_scatter
    # With kappa = 1, directions without motions would have no prior.
    share = max(1.0 - kappa, 1e-6)
    prior[np.diag_indices(len(prior))] += share / coordinates.n_directions
    return np.asarray(prior)
