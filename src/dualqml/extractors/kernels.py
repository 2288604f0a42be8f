# SPDX-License-Identifier: BSD-3-Clause
"""Kernels between samples, centred with the means of the training samples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._linalg import squared_distances
from dualqml._saved_state import (
    MATRIX,
    NUMBER,
    SHAPE,
    TEXT,
    VECTOR,
    Path,
    Saved,
    expect_equal,
    instance_of,
)
from dualqml._sklearn import SupervisedExtractor
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError
from dualqml.extractors._memory import require_pairs
from dualqml.images.shapes import ImageShape, SizeLike, resolved_shape
from dualqml.images.tangents import image_gradients, sample_tangents

KernelName = Literal["rbf", "linear", "igo"]

#: Bytes of the kernel matrix or of mapped images in memory at a time.
_KERNEL_BYTES = 8_000_000

#: Largest number of matrices of all pairs for the derivatives by six motions.
_MOTION_MATRICES = 21


def median_of_pairs(distances: Array) -> float:
    """Median distance between two different samples.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_samples)
        Distances of all pairs, not all of them zero.

    Returns
    -------
    float
        A positive number. If most rows are copies of each other, so that the median
        is zero, it is the mean.
    """
    pairs = distances[np.triu_indices(distances.shape[0], 1)]
    median = float(np.median(pairs))
    # Distances between copies may differ from zero by rounding.
    rounding = 1e-12 * float(pairs.max())
    return median if median > rounding else float(pairs.mean())


def orientation_features(X: Array, shape: ImageShape) -> Array:
    """Cosine and sine of the gradient's direction at every pixel.

    The scalar product of two such rows is the mean cosine of the angle between
    the gradients, 1 for an image with itself.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_pixels)
        Images, one per row.
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    ndarray of shape (n_samples, 2 * n_pixels)
        The features; zero where the gradient is zero and has no direction.
    """
    gradients = image_gradients(X.reshape(-1, *shape))
    down, right = (slope.reshape(X.shape) for slope in gradients)
    length = np.hypot(down, right)
    scale = np.sqrt(X.shape[1]) * np.where(length > 0.0, length, 1.0)
    return np.hstack([right / scale, down / scale])


@dataclass(frozen=True)
class CentredKernel:
    """A kernel between any samples and the training samples, centred.

    Centring subtracts the mean of the training samples in the space of the kernel.
    It uses stored means, so that the value for a new sample does not depend on the
    other new samples.

    Attributes
    ----------
    name : {"rbf", "linear", "igo"}
        The kernel.
    shape : tuple of int
        Height and width of the images; used by "igo".
    bandwidth : float
        The variance of "rbf".
    origin : ndarray of shape (d,)
        A vector that is subtracted from all samples first.
    samples : ndarray of shape (n_train, d)
        The training samples that others are compared with, mapped and minus the
        origin.
    row_means : ndarray of shape (n_train,)
        Mean kernel value of all training samples with each of them.
    """

    _saved: ClassVar[Saved] = Saved(
        parameters={
            "name": TEXT,
            "shape": SHAPE,
            "bandwidth": NUMBER,
            "origin": VECTOR.of("n_inputs"),
            "samples": MATRIX.of("n_samples", "n_inputs"),
            "row_means": VECTOR.of("n_samples"),
        }
    )

    name: KernelName
    shape: ImageShape
    bandwidth: float
    origin: Array
    samples: Array
    row_means: Array

    @property
    def n_features(self) -> int:
        """Number of features of the samples before they are mapped."""
        return _n_pixels(self.shape) if self.name == "igo" else self.origin.size

    def _check_saved(self, path: Path) -> None:
        """Raise unless "igo" has the sine and the cosine of every pixel."""
        if self.name == "igo":
            wanted = 2 * _n_pixels(self.shape)
            expect_equal(self.origin.size, wanted, path, "origin", "values", "shape")

    def raw(self, X: Array) -> Array:
        """The kernel without centring, of shape (n_samples, n_train)."""
        mapped = _map_samples(self.name, X, self.shape) - self.origin
        return _kernel_values(self.name, mapped, self.samples, self.bandwidth)

    def __call__(self, X: Array) -> Array:
        """The centred kernel, of shape (n_samples, n_train)."""
        return self.centred(self.raw(X))

    def training_derivatives(self, tangents: Array, values: Array) -> Array:
        """Derivatives of the centred kernel by motions of the training samples.

        Parameters
        ----------
        tangents : ndarray of shape (n_train, d)
            The direction of the motion of each training sample.
        values : ndarray of shape (n_train, n_train)
            The kernel of the training samples, not centred.

        Returns
        -------
        ndarray of shape (n_train, n_train)
            Row i is the derivative by h of the centred kernel between x_i + h t_i
            and the training samples.
        """
        if self.name == "igo":
            raise ValueError(
                "Tangents are not known for kernel='igo'; use kernel='rbf' or 'linear'"
            )
        change = tangents @ self.samples.T
        if self.name == "rbf":
            change -= np.einsum("ij,ij->i", self.samples, tangents)[:, None]
            change *= values
            change /= self.bandwidth
        # The only term of the centring that changes is the mean of the row.
        return np.asarray(change - change.mean(axis=1, keepdims=True))

    def project(self, X: NDArray[np.floating], coefficients: Array) -> Array:
        """The product of the centred kernel and coefficients, in bounded memory."""
        out = np.empty((X.shape[0], coefficients.shape[1]))
        for rows in self._chunks(X.shape[0]):
            out[rows] = self(X[rows].astype(np.float64, copy=False)) @ coefficients
        return out

    def centred(self, values: Array) -> Array:
        """Values of the kernel, one row per sample, centred."""
        own = values.mean(axis=1, keepdims=True)
        return np.asarray(values - own - self.row_means + self.row_means.mean())

    def _chunks(self, n_samples: int) -> Iterator[slice]:
        step = max(1, _KERNEL_BYTES // (8 * max(self.samples.shape)))
        for start in range(0, n_samples, step):
            yield slice(start, start + step)


def centred_kernel(
    name: KernelName,
    X: Array,
    *,
    width: float,
    image_shape: SizeLike | None,
    landmarks: Index | None = None,
    distances: Array | None = None,
) -> tuple[CentredKernel, Array]:
    """Make the centred kernel of training samples.

    Parameters
    ----------
    name : {"rbf", "linear", "igo"}
        ``exp(-|x - y|^2 / (2 s2))``, ``x'y``, or the mean cosine of the angle
        between the gradients of two images.
    X : ndarray of shape (n_samples, n_features)
        Training samples.
    width : float
        The s2 of "rbf", in units of the median squared distance of the samples.
    image_shape : sequence of int or None
        Height and width of the images, for "igo".
    landmarks : ndarray of int, optional
        Samples that all samples are compared with; all of them if not given.
    distances : ndarray of shape (n_samples, n_landmarks), optional
        Squared distances of the samples and the landmarks, if they are known; for
        "rbf".

    Returns
    -------
    kernel : CentredKernel
        The kernel.
    values : ndarray of shape (n_samples, n_landmarks)
        The kernel of the training samples and the landmarks, not centred.

    Raises
    ------
    DualQMLError
        The kernel is the same for all pairs of samples.
    """
    shape = (1, X.shape[1])
    if name == "igo":
        shape = resolved_shape(image_shape, X.shape[1], without="kernel='rbf'")
        if X.shape[1] == 1:
            raise ValueError(
                "kernel='igo' compares the gradients of images, and an image of one "
                "pixel has none: X has n_features=1. Use kernel='rbf'."
            )
    mapped = _map_samples(name, X, shape)
    mean = mapped.mean(axis=0)
    centred = mapped - mean
    if not (np.abs(centred).max() > 1e-14 * np.abs(mapped).max()):
        what = "gradients" if name == "igo" else "samples"
        raise DualQMLError(
            f"All {what} are equal: there is no direction to learn. Check that the "
            "rows of X are different images."
        )
    # Subtracting the mean does not change a centred kernel, but keeps more digits if
    # the mean is large. Orientations are bounded and do not need it.
    origin = np.zeros_like(mean) if name == "igo" else mean
    samples = mapped if name == "igo" else centred
    known = samples if landmarks is None else samples[landmarks]
    bandwidth = 1.0
    if name == "rbf":
        if distances is None:
            distances = squared_distances(samples, known)
        among = distances if landmarks is None else distances[landmarks]
        bandwidth = width * median_of_pairs(among)
        values = np.exp(distances / (-2.0 * bandwidth))
    else:
        values = samples @ known.T
    kernel = CentredKernel(name, shape, bandwidth, origin, known, values.mean(axis=0))
    return kernel, values


def _map_samples(name: KernelName, X: Array, shape: ImageShape) -> Array:
    return orientation_features(X, shape) if name == "igo" else X


def _kernel_values(name: KernelName, A: Array, B: Array, bandwidth: float) -> Array:
    if name == "rbf":
        return np.asarray(np.exp(squared_distances(A, B) / (-2.0 * bandwidth)))
    return np.asarray(A @ B.T)


class KernelExtractor(SupervisedExtractor):
    """Base class of extractors that are linear in a kernel.

    A subclass has the parameters `kernel`, `width`, `tangents` and
    `image_shape`, and implements `_learn`. That method gets the centred kernel of
    the training samples, their classes and the derivatives of the kernel by small
    motions, of shape (n_motions, n_samples, n_samples). It returns the
    coefficients, one column per feature.
    """

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        kernel_=instance_of(CentredKernel),
        coefficients_=MATRIX.of("n_samples", "n_components"),
    )

    kernel: KernelName
    width: float
    tangents: float
    image_shape: SizeLike | None

    def _learn(self, K: Array, codes: Index, derivatives: Array) -> Array:
        raise TypeError(f"{type(self).__name__} does not implement _learn")

    def _n_matrices(self, rank: float) -> float:
        """Largest number of matrices of all pairs in a fit without tangents.

        The rank is that of the kernel, divided by the number of samples.
        """
        raise TypeError(f"{type(self).__name__} does not implement _n_matrices")

    def _fit(self, data: Array, codes: Index) -> None:
        n_samples, n_features = data.shape
        dimensions = {"linear": n_features, "igo": 2 * n_features}
        rank = min(1.0, dimensions.get(self.kernel, n_samples) / n_samples)
        n_matrices = self._n_matrices(rank) + _MOTION_MATRICES * (self.tangents > 0.0)
        require_pairs(type(self).__name__, n_samples, n_matrices)
        self.kernel_, values = centred_kernel(
            self.kernel, data, width=self.width, image_shape=self.image_shape
        )
        K = self.kernel_.centred(values)
        tangents = sample_tangents(data, self.image_shape, self.tangents)
        derivatives = np.empty((tangents.shape[0], *K.shape))
        for k, tangent in enumerate(tangents):
            derivatives[k] = self.kernel_.training_derivatives(tangent, values)
        self.coefficients_ = self._learn(K, codes, derivatives)

    def _features(self, data: Array) -> Array:
        return self.kernel_.project(data, self.coefficients_)

    @property
    def _n_features_out(self) -> int:
        return int(self.coefficients_.shape[1])

    def _check_saved(self, path: Path) -> None:
        """Raise if the kernel does not fit the features or the coefficients."""
        check_kernel_coefficients(self.kernel_, self.coefficients_, path)
        found, wanted = self.kernel_.n_features, self.n_features_in_
        expect_equal(found, wanted, path, "kernel_", "inputs", "n_features_in_")


def check_kernel_coefficients(
    kernel: CentredKernel, coefficients: Array, path: Path
) -> None:
    """Raise unless there is one row of coefficients per sample of a kernel."""
    n_rows, n_samples = coefficients.shape[0], kernel.samples.shape[0]
    expect_equal(n_rows, n_samples, path, "coefficients_", "rows", "kernel_")


def _n_pixels(shape: ImageShape) -> int:
    # A shape from a file may hold NumPy integers, whose product can overflow.
    return math.prod(map(int, shape))
