# SPDX-License-Identifier: BSD-3-Clause
"""Coordinates of training samples: linear, or those of a Gaussian kernel.

Any orthonormal basis of the space of the samples can be used. Which basis is computed,
and from how many samples, depends on their number, so that time and memory grow
linearly with it:

- Linear coordinates of rows with few features are principal components.
- With a background of other people, the coordinates are linear, and span their
  statistics too.
- In all other cases the basis comes from scalar products, or kernel values, with
  *landmarks*. These are all samples, or an even choice from all classes if there are
  more than `_MOST_LANDMARKS`. Nothing of size n_samples x n_samples is computed then.
- The basis spans all directions of the landmarks if these are not many more than the
  features. If they are, only the leading directions are kept: the wide kernel adds
  little to as many directions as there are features.

The scatter of the motions of images is a mean over samples. It is computed from at
most `MOST_MOVING` of them.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dpocon, dpotrf, dtrtri

from dualqml._linalg import (
    SAME_SAMPLE,
    VARIANCE_TOLERANCE,
    class_means,
    deviations,
    gram_distances,
    principal_directions,
    span_pca,
)
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError
from dualqml.extractors._memory import require_pairs
from dualqml.extractors.background import Background
from dualqml.extractors.kernels import centred_kernel
from dualqml.extractors.part_sums import InputSums
from dualqml.extractors.prepared_samples import (
    MOST_MOVING,
    PreparedSamples,
    spread_rows,
)

#: Variances of coordinates at or below this fraction of the largest count as zero.
_TOLERANCE = 1e-10
#: Most samples whose products with all samples are computed.
_MOST_LANDMARKS = 1280
#: The same for vectors of few features: more landmarks hardly change the coordinates.
_MOST_VECTOR_LANDMARKS = 800
#: Least and most number of leading directions. In between it is that of the features.
_LEAST_DIRECTIONS, _MOST_DIRECTIONS = 400, 1024
#: All directions are kept up to this multiple of the number of leading directions: they
#: need a Cholesky factor, which is ten times faster than eigenvectors.
_ALL_DIRECTIONS_RATIO = 1.25
#: The mean of the background counts as that of so many enrolled people. Other people
#: photographed elsewhere have another mean.
BACKGROUND_PEOPLE = 5
#: Largest number of directions by which a basis is completed.
_MOST_COMPLETED = 1280
#: Most matrices of moving samples and landmarks that there are at a time.
_MATRICES_OF_MOTIONS = 29.0
#: Most landmarks of the coarse coordinates, and most leading directions if there are
#: more samples than that.
_COARSE_LANDMARKS, _COARSE_DIRECTIONS = 400, 256


@dataclass(frozen=True)
class Coordinates:
    """Coordinates a(x) of samples in an orthonormal basis.

    Attributes
    ----------
    training : ndarray of shape (n_samples, d)
        Coordinates of the training samples.
    projector : ndarray of shape (n_inputs or n_landmarks, d)
        The linear map to the coordinates, from the centred sample or from its centred
        row of products with the landmarks.
    tangent_scatter : ndarray of shape (d, d) or None
        Scatter of the tangents in these coordinates, at trace 1; None without images.
    n_directions : int
        Number of directions of the space: d, or more if these are only the leading
        coordinates.
    other_contrasts : ndarray of shape (n_rows, d) or None
        Rows whose scatter is added to that of the samples within their classes: what
        other people teach.
    only_span : bool
        Whether the coordinates of a new sample are those of its projection on the span
        of the training samples. The rest is lost.
    within : ndarray of shape (d, d) or None
        Scatter of all samples within their classes, where `training` has only some of
        the samples. None if it has all of them.
    """

    training: Array
    projector: Array
    tangent_scatter: Array | None
    n_directions: int
    other_contrasts: Array | None = None
    only_span: bool = False
    within: Array | None = None

    def first(self, n_coordinates: int) -> "Coordinates":
        """The first coordinates only."""
        scatter = self.tangent_scatter
        if scatter is not None:
            scatter = scatter[:n_coordinates, :n_coordinates]
        others, within = self.other_contrasts, self.within
        return Coordinates(
            self.training[:, :n_coordinates],
            self.projector[:, :n_coordinates],
            scatter,
            self.n_directions,
            None if others is None else others[:, :n_coordinates],
            self.only_span,
            None if within is None else within[:n_coordinates, :n_coordinates],
        )


class CoordinateSystem(Protocol):
    """A training set whose coordinates can be computed."""

    def coordinates(self) -> Coordinates:
        """Coordinates for the final model."""

    def coarse(self) -> Coordinates:
        """A few hundred leading coordinates, to compare parameters in."""


class InputCoordinates:
    """Principal coordinates in the space of the samples.

    Used without a kernel for vectors, and for images if there are more of them than
    pixels.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    """

    def __init__(self, samples: PreparedSamples, codes: Index) -> None:
        pca = span_pca(samples.inputs)
        self.mean = pca.mean
        moved = samples.moved(spread_rows(codes, MOST_MOVING))
        tangents = [] if moved is None else [rows @ pca.basis for rows in moved]
        self._coordinates = Coordinates(
            pca.coordinates, pca.basis, _mean_scatter(tangents), pca.basis.shape[1]
        )

    def coordinates(self) -> Coordinates:
        """Coordinates for the final model.

        For vectors the basis is completed to the whole space. All training samples are
        zero in the further directions. New samples are not: what they have there is
        like nobody in the training set, and makes them less similar to everybody when
        they are scaled to unit norm.
        """
        found = self._coordinates
        n_inputs, n_spanned = found.projector.shape
        missing = n_inputs - n_spanned
        if found.tangent_scatter is not None or not 0 < missing < _MOST_COMPLETED:
            return found
        basis, _ = np.linalg.qr(found.projector, mode="complete")
        wider = [(0, 0), (0, missing)]
        others = found.other_contrasts
        return Coordinates(
            np.pad(found.training, wider),
            np.concatenate([found.projector, basis[:, n_spanned:]], axis=1),
            None,
            found.n_directions,
            None if others is None else np.pad(others, wider),
        )

    def coarse(self) -> Coordinates:
        """A few hundred leading coordinates, to compare parameters in."""
        return self._coordinates.first(_COARSE_DIRECTIONS)


class BackgroundCoordinates(InputCoordinates):
    """Linear coordinates of samples and of a background of other people.

    The mean is that of the people: the background counts as `BACKGROUND_PEOPLE` more,
    so that the mean of very few people is not trusted. The axes are the principal
    directions of the samples and of the variation of the background together.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    background : Background
        The statistics of other people.
    weight : float
        Weight of a sample of the background, relative to a training sample, in the
        within-class scatter.
    """

    def __init__(
        self,
        samples: PreparedSamples,
        codes: Index,
        background: Background,
        weight: float,
    ) -> None:
        means, _ = class_means(samples.inputs, codes)
        n_others = min(background.n_people, BACKGROUND_PEOPLE)
        total = means.sum(axis=0) + n_others * background.mean
        self.mean = total / (len(means) + n_others)
        centred = samples.inputs - self.mean
        landmarks = spread_rows(codes, _MOST_LANDMARKS)
        spanning = [centred[landmarks], background.within, background.between]
        _, basis = principal_directions(np.concatenate(spanning))
        moved = samples.moved(spread_rows(codes, MOST_MOVING))
        tangents = [] if moved is None else [rows @ basis for rows in moved]
        self._coordinates = Coordinates(
            centred @ basis,
            basis,
            _mean_scatter(tangents),
            basis.shape[1],
            np.sqrt(weight) * (background.within @ basis),
        )


class SumCoordinates(InputCoordinates):
    """Linear coordinates of samples of which only sums are known, and some rows.

    They are those of :class:`InputCoordinates`, or with a background those of
    :class:`BackgroundCoordinates`, up to a rotation.

    Parameters
    ----------
    sums : InputSums
        Sums over all training samples.
    inputs : ndarray of shape (n_rows, n_inputs)
        Some of the samples, for example those that take part in a search of parameters.
    background : Background, optional
        The statistics of other people.
    weight : float, default=0
        Weight of a sample of the background. With 0 it is not used.
    """

    def __init__(
        self,
        sums: InputSums,
        inputs: Array,
        background: Background | None = None,
        weight: float = 0.0,
    ) -> None:
        scatter, within, others = sums.total, sums.within, None
        if background is None or weight <= 0.0:
            sums.check_different()
        if np.trace(within) <= 1e-20 * np.trace(scatter):
            # Because of rounding, differences of equal rows are not exactly zero.
            within = np.zeros_like(within)
        self.mean = sums.mean
        if background is not None and weight > 0.0:
            n_others = min(background.n_people, BACKGROUND_PEOPLE)
            people = sums.class_mean_sum + n_others * background.mean
            self.mean = people / (sums.n_classes + n_others)
            apart = sums.mean - self.mean
            scatter = scatter + sums.n_samples * np.outer(apart, apart)
            scatter = scatter + background.within.T @ background.within
            scatter = scatter + background.between.T @ background.between
            others = np.sqrt(weight) * background.within
        variances, vectors = np.linalg.eigh(scatter)
        kept = variances > VARIANCE_TOLERANCE * variances[-1]
        basis = np.ascontiguousarray(vectors[:, kept][:, ::-1])
        centred = inputs - self.mean
        self._whole = Coordinates(
            centred,
            np.eye(len(basis)),
            None,
            basis.shape[1],
            others,
            within=within,
        )
        self._coordinates = Coordinates(
            centred @ basis,
            basis,
            None,
            basis.shape[1],
            None if others is None else others @ basis,
            within=basis.T @ within @ basis,
        )

    def coordinates(self) -> Coordinates:
        """Coordinates for the final model: the inputs themselves, centred."""
        return self._whole


class LandmarkCoordinates:
    """Coordinates in the span of the landmarks, by products with them.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_landmarks)
        Products of samples and landmarks, or their kernel, not centred.
    landmarks : ndarray of shape (n_landmarks,)
        Which samples are landmarks.
    slopes : ndarray of shape (n_motions, n_moving, n_landmarks)
        Derivatives of some rows of the values by each motion of their samples.
    n_leading : int
        Number of directions to keep if there are many more landmarks.
    """

    def __init__(
        self, values: Array, landmarks: Index, slopes: Array, *, n_leading: int
    ) -> None:
        self.values, self.landmarks, self.slopes = values, landmarks, slopes
        self._n_leading = n_leading

    @property
    def row_means(self) -> Array:
        """Mean value of the samples with each landmark."""
        return np.asarray(self.values.mean(axis=0))

    def coordinates(self) -> Coordinates:
        """Coordinates for the final model."""
        among = self.values[self.landmarks]
        if len(among) <= _ALL_DIRECTIONS_RATIO * self._n_leading:
            basis = _any_basis(among)
        else:
            basis = _leading_basis(among, self._n_leading)
        return self._in_basis(basis, slice(None), basis.shape[1])

    def coarse(self) -> Coordinates:
        """A few hundred leading coordinates, to compare parameters in."""
        among = self.values[self.landmarks]
        n_landmarks = len(among)
        part = _evenly(n_landmarks, _COARSE_LANDMARKS)
        n_kept = n_landmarks
        if n_landmarks > _COARSE_LANDMARKS:
            n_kept = _COARSE_DIRECTIONS
        basis = _leading_basis(among[np.ix_(part, part)], n_kept)
        n_all = n_landmarks - 1
        if n_landmarks > _ALL_DIRECTIONS_RATIO * self._n_leading:
            n_all = self._n_leading
        return self._in_basis(basis, part, max(n_all, basis.shape[1]))

    def _in_basis(
        self, basis: Array, part: Index | slice, n_directions: int
    ) -> Coordinates:
        """Coordinates in a basis of combinations of some landmarks.

        The columns of the basis add up to zero, so the mean of a row has no effect.
        """
        values = self.values[:, part]
        training = (values - values.mean(axis=0)) @ basis
        moved = [rows[:, part] @ basis for rows in self.slopes]
        return Coordinates(
            training, basis, _mean_scatter(moved), n_directions, only_span=True
        )


class GramCoordinates(LandmarkCoordinates):
    """Linear coordinates from scalar products of the samples.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    """

    def __init__(self, samples: PreparedSamples, codes: Index) -> None:
        self.mean, centred = deviations(samples.inputs)
        landmarks = spread_rows(codes, _MOST_LANDMARKS)
        products = samples.products(landmarks, spread_rows(codes, MOST_MOVING))
        self.landmark_deviations = centred[landmarks]
        super().__init__(
            products.gram, landmarks, products.slopes, n_leading=_MOST_DIRECTIONS
        )


class KernelCoordinates(LandmarkCoordinates):
    """Coordinates in the space of a Gaussian kernel.

    Parameters
    ----------
    samples : PreparedSamples
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    width : float
        The variance of the kernel in units of the median squared distance.
    """

    def __init__(self, samples: PreparedSamples, codes: Index, *, width: float) -> None:
        n_samples, n_inputs = samples.inputs.shape
        landmarks = spread_rows(codes, n_kernel_landmarks(n_samples, n_inputs))
        moving = spread_rows(codes, MOST_MOVING)
        has_motions = samples.tangents is not None or samples.known_products is not None
        share = has_motions * moving.size / n_samples
        n_matrices = 6.0 + _MATRICES_OF_MOTIONS * share
        require_pairs(
            "The Gaussian kernel", n_samples, n_matrices, n_others=landmarks.size
        )
        products = samples.products(landmarks, moving)
        self.kernel, values = centred_kernel(
            "rbf",
            samples.inputs,
            width=width,
            image_shape=None,
            landmarks=landmarks,
            distances=gram_distances(products.gram, products.squares, landmarks),
        )
        # The derivative of the kernel k(x, z) along t is t'(z - x) k / s2. The common
        # factor 1 / s2 has no effect.
        self._relative_slopes = products.slopes - products.own_slopes[:, :, None]
        self._moving = moving
        slopes = self._relative_slopes * values[moving]
        super().__init__(values, landmarks, slopes, n_leading=_n_leading(n_inputs))

    def at_width(self, factor: float) -> "KernelCoordinates":
        """The same samples with a kernel of `factor` times the variance."""
        other = object.__new__(KernelCoordinates)
        values = self.values ** (1.0 / factor)
        other.kernel = replace(
            self.kernel,
            bandwidth=factor * self.kernel.bandwidth,
            row_means=values.mean(axis=0),
        )
        other._relative_slopes, other._moving = self._relative_slopes, self._moving
        slopes = self._relative_slopes * values[self._moving]
        LandmarkCoordinates.__init__(
            other, values, self.landmarks, slopes, n_leading=self._n_leading
        )
        return other


def n_kernel_landmarks(n_samples: int, n_inputs: int) -> int:
    """Number of samples that a kernel compares all samples with.

    Parameters
    ----------
    n_samples : int
        Number of training samples.
    n_inputs : int
        Number of their features.

    Returns
    -------
    int
        The number of samples, or the most landmarks for samples of this kind.
    """
    few_features = n_inputs <= _LEAST_DIRECTIONS
    return min(n_samples, _MOST_VECTOR_LANDMARKS if few_features else _MOST_LANDMARKS)


def _n_leading(n_inputs: int) -> int:
    """Number of directions to keep if there are many more landmarks."""
    return int(np.clip(n_inputs, _LEAST_DIRECTIONS, _MOST_DIRECTIONS))


def _any_basis(values: Array) -> Array:
    """A basis of the span of landmarks, from their values with each other.

    Any rotation of the coordinates can be used. So if the matrix has full rank in
    the complement of the mean, its Cholesky factor there is used, which is ten times
    faster than eigenvectors.
    """
    n_landmarks = values.shape[0]
    if n_landmarks > 1:
        mirror = _mirror(n_landmarks)
        inner = _complement(values, mirror)
        norm = np.abs(inner).sum(axis=0).max()
        factor, failed = dpotrf(inner, lower=1, overwrite_a=1)
        if not failed and dpocon(factor, norm, uplo="L")[0] > _TOLERANCE:
            inverse, _ = dtrtri(factor, lower=1, overwrite_c=1)
            return _reflected(inverse.T, mirror)
    return _leading_basis(values, n_landmarks)


def _leading_basis(values: Array, n_leading: int) -> Array:
    """The leading principal directions of landmarks."""
    rows, columns = values.mean(axis=1, keepdims=True), values.mean(axis=0)
    eigenvalues, vectors = np.linalg.eigh(values - rows - columns + columns.mean())
    # Rounding errors of the matrix of equal samples.
    noise = len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    kept = eigenvalues > max(_TOLERANCE * eigenvalues[-1], noise)
    if not kept.any():
        raise DualQMLError(
            "All samples are equal: there is no direction to learn. Check that the "
            "rows of X are different images."
        )
    leading = np.flatnonzero(kept)[::-1][:n_leading]
    return np.asarray(vectors[:, leading] / np.sqrt(eigenvalues[leading]))


def _mean_scatter(moved: list[Array]) -> Array | None:
    """Mean scatter of the tangents of each motion, each at trace 1.

    Motions that change the samples by no more than rounding are left out. None if
    there are no motions, or none that changes anything.
    """
    energies = [float(np.vdot(rows, rows)) for rows in moved]
    least = SAME_SAMPLE * max(energies, default=0.0)
    scaled = [
        rows / np.sqrt(energy)
        for rows, energy in zip(moved, energies, strict=True)
        if energy > least
    ]
    if not scaled:
        return None
    stacked = np.concatenate(scaled)
    return np.asarray(stacked.T @ stacked / len(scaled))


def _evenly(n_all: int, most: int) -> Index:
    """At most so many numbers below `n_all`, at equal distances."""
    n_kept = min(n_all, most)
    return np.linspace(0, n_all - 1, n_kept).round().astype(np.intp)


def _mirror(n_samples: int) -> Array:
    """The Householder vector that reflects the mean direction to the first axis."""
    mirror = np.full(n_samples, n_samples**-0.5)
    mirror[0] += 1.0
    return np.asarray(mirror / np.linalg.norm(mirror))


def _complement(values: Array, mirror: Array) -> Array:
    """A symmetric matrix in the complement of the mean, in LAPACK's order."""
    image = values @ mirror
    image = 2.0 * (image - (mirror @ image) * mirror)
    reflected = values - np.outer(mirror, image) - np.outer(image, mirror)
    return np.array(reflected[1:, 1:], order="F")


def _reflected(rows: Array, mirror: Array) -> Array:
    """Rows in the complement of the mean, reflected back to all samples."""
    padded = np.concatenate([np.zeros((1, rows.shape[1])), rows])
    return np.asarray(padded - np.outer(2.0 * mirror, mirror @ padded))
