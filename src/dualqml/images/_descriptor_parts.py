# SPDX-License-Identifier: BSD-3-Clause
"""The parts of local descriptors, and how they change when the images change.

All filters are separable and linear. Along an axis of usual length each is therefore a
product with a small matrix, which pads, filters and samples in one step. Changes of
the images go through the same filters, and through the other steps by the chain rule,
so that images and their changes share most of the work.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from scipy.ndimage import gaussian_filter1d

from dualqml._typing import Array, Index
from dualqml.images.tangents import slope

#: Signed directions of an orientation histogram.
N_DIRECTIONS = 8
#: Blur, in pixels, of the histograms and of their local energy.
_HISTOGRAM_BLUR = 2.0
_ENERGY_BLUR = 4.0
#: Added to the local energy, relative to its mean, so that noise in flat regions is
#: not amplified.
_ENERGY_FLOOR = 1e-4

#: Wavelengths of the Gabor filters in pixels, and angles of the filters of each.
_WAVELENGTHS = (4.0, 6.0, 8.0)
_ANGLES = np.pi * np.arange(6) / 6
#: Angles of the same sine, whose filters are the same along the columns.
_SAME_SINE = (slice(0, 1), slice(1, 6, 4), slice(2, 5, 2), slice(3, 4))
#: The first of them do not change along the columns, the last not along the rows.
_LEVEL, _UPRIGHT = 0, 3
N_GABOR_FILTERS = len(_WAVELENGTHS) * len(_ANGLES)
#: Standard deviation of the envelope of a Gabor filter, in wavelengths.
_ENVELOPE = 0.56
#: Pixels by which the edge is repeated, since the discrete transform is periodic.
_PADDING = 8
#: Responses that are smaller than this, relative to the image, are rounding errors.
_ROUNDING = 1e-12

#: Axes longer than this are filtered directly: the matrix would be too large.
_LONG_AXIS = 512

#: A linear map of the rows of an array: takes the array, the stride of the grid and
#: other integers.
_Operator = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class Moving:
    """Values of images, and their derivatives by some motions.

    Attributes
    ----------
    values : ndarray of shape (n_images, ...)
        The values.
    changes : ndarray of shape (n_motions, n_images, ...)
        Their derivatives. There may be no motions.
    step : float
        A small step of the motions. Square roots have no derivative at zero. There,
        the slope is bounded as that of a difference with this step is.
    """

    values: Array
    changes: Array
    step: float = 1.0

    @classmethod
    def still(cls, values: Array) -> Self:
        """Values without motions."""
        return cls(values, np.empty((0, *values.shape)))

    def as_rows(self) -> "Moving":
        """The values of an image as one row."""
        n_motions, n_images = self.changes.shape[:2]
        size = math.prod(self.values.shape[1:])
        return Moving(
            self.values.reshape(n_images, size),
            self.changes.reshape(n_motions, n_images, size),
            self.step,
        )

    def square_root(self) -> "Moving":
        """The square roots of values that are not negative."""
        # What is needed to divide zero by zero: any number that is not zero.
        least = np.maximum(self.step * np.abs(self.changes), np.finfo(float).tiny)
        slopes = np.sqrt(np.maximum(least, self.values, out=least), out=least)
        changes = np.divide(self.changes, slopes, out=slopes)
        changes *= 0.5
        return Moving(np.sqrt(self.values), changes, self.step)

    def at_unit_norm(self) -> "Moving":
        """Rows of values scaled to unit norm; rows of zeros stay zeros."""
        norms = np.sqrt(np.einsum("ij,ij->i", self.values, self.values))
        scales = 1.0 / np.where(norms > 0.0, norms, 1.0)
        values = self.values * scales[:, None]
        changes = self.changes * scales[:, None]
        # On the sphere, values change at a right angle to themselves.
        along = np.einsum("kij,ij->ki", changes, values)
        changes -= along[:, :, None] * values
        return Moving(values, changes, self.step)


def moving_histograms(images: Moving, stride: int) -> Moving:
    """Compute square roots of local histograms of the direction of the gradient.

    Parameters
    ----------
    images : Moving
        Images of shape (n_images, height, width).
    stride : int
        Distance in pixels between the points of the grid.

    Returns
    -------
    Moving
        Histograms of shape (n_images, n_rows, n_columns, 8).
    """
    votes = _Votes(*_gradients(images.values))
    maps = _filtered(votes.maps(), _blur, stride, 1)
    scale = 1.0 / np.sqrt(_energy(maps, stride, 1))
    shares = _at_points(maps, stride, 1) * scale
    changes = np.empty((len(images.changes), *shares.shape))
    if not len(changes):
        return Moving(shares, changes).square_root()
    # Maps of changes are most of the work. They are smooth, so that every second row
    # and column is enough, if the points of the grid are among them.
    spacing = 1 if stride % 2 else 2
    i, j = (_spaced(length, stride, spacing) for length in images.values.shape[1:])
    maps = maps[:, :, i, :, j].copy()
    energy = _energy(maps, stride, spacing)
    gradients = zip(*_gradients(images.changes), strict=True)
    for (down, right), change in zip(gradients, changes, strict=True):
        moved = _filtered(votes.moved_maps(down, right), _blur, stride, spacing)
        growth = _local_products(maps, moved, stride, spacing) / energy
        np.multiply(_at_points(moved, stride, spacing), scale, out=change)
        change -= growth * shares
    return Moving(shares, changes, images.step).square_root()


def moving_magnitudes(images: Moving, stride: int) -> Moving:
    """Compute square roots of the magnitudes of Gabor filters.

    Parameters
    ----------
    images : Moving
        Images of shape (n_images, height, width).
    stride : int
        Distance in pixels between the points of the grid.

    Returns
    -------
    Moving
        Values of shape (n_images, n_rows, n_columns, 18).
    """
    pixels = images.values
    n_images, height, width = pixels.shape
    # Minus its first pixel, an image without contrast is exactly zero.
    centred = pixels - pixels[:, :1, :1]
    centred -= centred.mean(axis=(1, 2), keepdims=True)
    rounding = _ROUNDING * np.abs(centred).max(axis=(1, 2))
    moved = images.changes - images.changes.mean(axis=(2, 3), keepdims=True)
    together = np.concatenate([centred, moved.reshape(-1, height, width)])
    # The images come last: then every product below is one of large matrices.
    magnitude, changes = _magnitudes(
        np.ascontiguousarray(together.transpose(1, 2, 0)), n_images, stride
    )

    # Mean squares over the points; changes of the rounding error do not matter.
    level = np.sqrt(np.square(magnitude).mean(axis=(1, 2), keepdims=True))
    scale = level + rounding[:, None, None, None]
    scale = 1.0 / np.where(scale > 0.0, scale, 1.0)
    magnitude *= scale
    changes *= scale
    growth = np.einsum("tnijk,nijk->tnk", changes, magnitude)
    growth /= magnitude.shape[1] * magnitude.shape[2]
    changes -= growth[:, :, None, None] * magnitude
    return Moving(magnitude, changes, images.step).square_root()


def positions(length: int, stride: int) -> Index:
    """Return the points of the grid on an axis, at least one."""
    return np.arange(length, dtype=np.intp)[_points(length, stride)]


def _points(length: int, stride: int) -> slice:
    return slice(min(stride // 2, length // 2), None, stride)


def _spaced(length: int, stride: int, spacing: int) -> slice:
    """Every pixel, or every second one: those among which are the points."""
    return slice(_points(length, stride).start % spacing, None, spacing)


# Orientation histograms. In the arrays, rows of pixels come before the images: then
# filters along the columns and along the rows are products with large matrices.


def _gradients(images: Array) -> tuple[Array, Array]:
    """The slopes of images down and to the right, of shape (..., height, n, width)."""
    rows = np.ascontiguousarray(np.swapaxes(images, -3, -2))
    return slope(rows, -3), slope(rows, -1)


class _Votes:
    """Gradients divided between the two nearest of eight directions.

    One of the two is along an axis and the other is diagonal. Both are known from
    signs and from which slope is steeper, so that no array is indexed by direction.
    """

    def __init__(self, down: Array, right: Array) -> None:
        steep, flat = np.abs(down), np.abs(right)
        vertical, falls, rises = steep > flat, down > 0.0, right > 0.0
        larger = np.maximum(steep, flat)
        # Without a gradient there is nothing to divide.
        larger[larger == 0.0] = 1.0
        #: Share of the diagonal: the angle from the axis, relative to 45 degrees.
        self._share = np.arctan(np.minimum(steep, flat) / larger)
        self._share *= 4.0 / np.pi
        #: The sign with which this angle grows with the direction of the gradient.
        self._grows = (falls == rises) != vertical
        self._down, self._right = down, right
        # Several times faster than hypot, which also works at extreme scales. The
        # images are at unit scale.
        self._magnitude = np.sqrt(down * down + right * right)

        #: 1 at a direction that is one of the two, else 0: first right, down, left and
        #: up, then the diagonals that follow them.
        self._nearest = np.empty((2, 4, *down.shape))
        across, up, left = ~vertical, ~falls, ~rises
        along_axis = (
            (across, rises),
            (vertical, falls),
            (across, left),
            (vertical, up),
        )
        diagonal = ((falls, rises), (falls, left), (up, left), (up, rises))
        for conditions, out in zip((along_axis, diagonal), self._nearest, strict=True):
            for k, (one, other) in enumerate(conditions):
                np.logical_and(one, other, out=out[k])

    def maps(self) -> Array:
        """The magnitude in each direction, of shape (2, 4, height, n, width)."""
        diagonal = self._magnitude * self._share
        return self._nearest * np.stack([self._magnitude - diagonal, diagonal])[:, None]

    def moved_maps(self, down: Array, right: Array) -> Array:
        """How the magnitude in each direction changes if the slopes change."""
        by_down, by_right = self._derivatives
        changes = by_down * down
        changes += by_right * right
        return np.asarray(self._nearest * changes[:, None])

    @cached_property
    def _derivatives(self) -> tuple[Array, Array]:
        """Derivatives of the two parts of the magnitude by the slopes."""
        magnitude = np.where(self._magnitude > 0.0, self._magnitude, 1.0)
        sine, cosine = self._down / magnitude, self._right / magnitude
        turn = np.where(self._grows, 4.0 / np.pi, -4.0 / np.pi)
        by_down = self._share * sine + turn * cosine
        by_right = self._share * cosine - turn * sine
        return np.stack([sine - by_down, by_down]), np.stack(
            [cosine - by_right, by_right]
        )


def _energy(maps: Array, stride: int, spacing: int) -> Array:
    energy = _local_products(maps, maps, stride, spacing)
    # Without energy there is no gradient, and zeros stay zeros.
    return np.where(energy > 0.0, energy, 1.0)


def _local_products(maps: Array, others: Array, stride: int, spacing: int) -> Array:
    """Blurred products of maps at the points, of shape (n, n_rows, n_columns, 1).

    The floor is included. All maps are at every pixel or every second one.
    """
    products = np.einsum("pdinj,pdinj->inj", maps, others)
    blurred = _filtered(products, _wide_blur, stride, spacing)
    local, mean = blurred[:-1, :, :-1], blurred[-1, :, -1]
    out = np.swapaxes(local, 0, 1) + _ENERGY_FLOOR * mean[:, None, None]
    return np.asarray(out[..., None])


def _at_points(maps: Array, stride: int, spacing: int) -> Array:
    """Maps at the points of the grid, of shape (n, n_rows, n_columns, 8)."""
    i, j = (_points(length, stride // spacing) for length in maps.shape[2::2])
    # The eight directions in the order of their angles.
    sampled = maps[:, :, i, :, j].transpose(3, 2, 4, 1, 0)
    return sampled.reshape(*sampled.shape[:3], N_DIRECTIONS)


def _blur(rows: Array, stride: int, spacing: int) -> Array:
    """Blur histograms, at every pixel or at every second one."""
    blurred = gaussian_filter1d(rows, _HISTOGRAM_BLUR, mode="nearest")
    return np.asarray(blurred[..., _spaced(rows.shape[-1], stride, spacing)])


def _wide_blur(rows: Array, stride: int, spacing: int) -> Array:
    """Blur the energy at the points of the grid, and then the mean of all pixels."""
    blurred = gaussian_filter1d(rows, _ENERGY_BLUR / spacing, mode="nearest")
    sampled = blurred[..., _points(rows.shape[-1], stride // spacing)]
    return np.concatenate([sampled, blurred.mean(axis=-1, keepdims=True)], axis=-1)


# Gabor filters. In the arrays, the images come last.


def _magnitudes(images: Array, n_values: int, stride: int) -> tuple[Array, Array]:
    """Magnitudes of the responses of the first images, and their changes.

    The other images are changes of the first, one motion after the other. The shapes
    are (n_values, n_rows, n_columns, 18) and the same after the number of motions.
    """
    height, width, n_images = images.shape
    n_rows, n_columns = (positions(length, stride).size for length in (height, width))
    n_points, n_motions = n_rows * n_columns, n_images // max(n_values, 1) - 1
    magnitudes = np.empty((n_points * N_GABOR_FILTERS, n_values))
    changes = np.empty((len(magnitudes), n_motions, n_values))
    waves = _along_columns(images, _gabor_down, stride)
    filters = [(w, s) for w in range(len(_WAVELENGTHS)) for s in range(len(_SAME_SINE))]
    first_wave = first = 0
    for w, s in filters:
        n_waves = n_rows if s == _LEVEL else 2 * n_rows
        wave = waves[first_wave : first_wave + n_waves]
        first_wave += n_waves
        parts = _gabor_across(wave.reshape(n_rows, -1, width, n_images), w, s, stride)
        values = parts[..., :n_values]
        rows = slice(first, first + n_rows * parts.shape[2])
        first = rows.stop
        magnitude = magnitudes[rows].reshape(n_rows, -1, n_values)
        np.einsum("ipan,ipan->ian", values, values, out=magnitude)
        np.sqrt(magnitude, out=magnitude)
        if n_motions:
            # At zero the magnitude has no derivative; zero is the mean of all.
            values = values / np.where(magnitude > 0.0, magnitude, 1.0)[:, None]
            moved = parts[..., n_values:]
            moved = moved.reshape(*moved.shape[:-1], n_motions, n_values)
            growth = changes[rows].reshape(n_rows, -1, n_motions, n_values)
            np.einsum("ipatn,ipan->iatn", moved, values, out=growth)
    order = _order_of_responses(n_rows, n_columns)
    shape = (n_rows, n_columns, N_GABOR_FILTERS)
    return (
        magnitudes[order].T.reshape(n_values, *shape),
        changes[order].transpose(1, 2, 0).reshape(n_motions, n_values, *shape),
    )


@lru_cache(maxsize=24)
def _order_of_responses(n_rows: int, n_columns: int) -> Index:
    """Where the response of each row, column and filter is computed."""
    places = np.empty((n_rows, n_columns, len(_WAVELENGTHS), len(_ANGLES)), np.intp)
    first = 0
    for w in range(len(_WAVELENGTHS)):
        for same in _SAME_SINE:
            here = places[:, :, w, same]
            size = (n_rows, here.shape[2], n_columns)
            here[...] = first + np.arange(here.size).reshape(size).swapaxes(1, 2)
            first += here.size
    return places.ravel()


def _gabor_down(rows: Array, stride: int) -> Array:
    """Filter along the columns: wavelengths, sines, points, real and imaginary."""
    out = []
    for wavelength in _WAVELENGTHS:
        for s, same in enumerate(_SAME_SINE):
            response = _gabor(rows, wavelength, np.sin(_ANGLES[same][0]), stride)
            parts = [response.real] if s == _LEVEL else [response.real, response.imag]
            pairs = np.stack(parts, axis=-1)
            out.append(pairs.reshape(*rows.shape[:-1], -1))
    return np.concatenate(out, axis=-1)


def _gabor_across(waves: Array, w: int, s: int, stride: int) -> Array:
    """Filter the rows of waves (n_rows, real and imaginary parts, width, n_images).

    The imaginary part may be left out if it is zero. The result has the shape
    (n_rows, 2, n_angles * n_columns, n_images), with both parts.
    """
    n_rows, n_parts, width, n_images = waves.shape
    if width > _LONG_AXIS:
        last = np.swapaxes(waves, -1, -2)
        filtered = [
            np.swapaxes(_across_at_angles(last[:, k], w, s, stride), -1, -2)
            for k in range(n_parts)
        ]
        response = filtered[0] + 1j * filtered[1] if n_parts == 2 else filtered[0]
        return np.stack([response.real, response.imag], axis=1)
    matrix = _gabor_matrix(width, w, s, stride)
    out = matrix @ waves.reshape(-1, matrix.shape[1], n_images)
    return np.asarray(out.reshape(n_rows, 2, -1, n_images))


@lru_cache(maxsize=48)
def _gabor_matrix(width: int, w: int, s: int, stride: int) -> Array:
    """A complex matrix as a real one: of both parts of the waves, to both parts."""
    matrix = _across_at_angles(np.eye(width), w, s, stride).T
    if s == _LEVEL:
        # The waves are real.
        return _frozen(np.concatenate([matrix.real, matrix.imag]))
    if s == _UPRIGHT:
        # The matrix is real, and filters both parts in the same way.
        return _frozen(matrix.real)
    return _frozen(np.block([[matrix.real, -matrix.imag], [matrix.imag, matrix.real]]))


def _across_at_angles(rows: Array, w: int, s: int, stride: int) -> Any:
    responses = [
        _gabor(rows, _WAVELENGTHS[w], np.cos(angle), stride)
        for angle in _ANGLES[_SAME_SINE[s]]
    ]
    return np.concatenate(responses, axis=-1)


def _gabor(rows: Any, wavelength: float, direction: float, stride: int) -> Any:
    """Apply a Gabor filter along the last axis and sample the result."""
    length = rows.shape[-1]
    padded = np.clip(np.arange(-_PADDING, length + _PADDING), 0, length - 1)
    spectrum = np.fft.fft(rows[..., padded])
    offset = np.fft.fftfreq(spectrum.shape[-1]) - direction / wavelength
    spectrum *= np.exp(-2.0 * np.square(np.pi * _ENVELOPE * wavelength * offset))
    return np.fft.ifft(spectrum)[..., _PADDING + positions(length, stride)]


# Linear operators along an axis.


def _filtered(images: Array, operator: _Operator, *options: int) -> Array:
    """Apply an operator along the columns and along the rows."""
    return _along_rows(_along_columns(images, operator, *options), operator, *options)


def _along_columns(images: Array, operator: _Operator, *options: int) -> Array:
    """Apply an operator along the axis before the last two."""
    *leading, height, n, m = images.shape
    if height > _LONG_AXIS:
        return np.moveaxis(operator(np.moveaxis(images, -3, -1), *options), -1, -3)
    matrix = _matrix(operator, height, *options)
    out = matrix.T @ images.reshape(*leading, height, n * m)
    return np.asarray(out.reshape(*leading, matrix.shape[1], n, m))


def _along_rows(images: Array, operator: _Operator, *options: int) -> Array:
    """Apply an operator along the last axis."""
    *leading, width = images.shape
    if width > _LONG_AXIS:
        return operator(images, *options)
    matrix = _matrix(operator, width, *options)
    out = images.reshape(math.prod(leading), width) @ matrix
    return np.asarray(out.reshape(*leading, matrix.shape[1]))


@lru_cache(maxsize=24)
def _matrix(operator: _Operator, length: int, *options: int) -> Array:
    # What the operator makes of the unit vectors are the rows of its matrix.
    return _frozen(operator(np.eye(length), *options))


def _frozen(matrix: Array) -> Array:
    """Protect a matrix that is kept from being changed."""
    matrix = np.ascontiguousarray(matrix)
    matrix.flags.writeable = False
    return matrix
