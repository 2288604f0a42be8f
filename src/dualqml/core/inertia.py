# SPDX-License-Identifier: BSD-3-Clause
"""Number of eigenvalues of a class's dual matrix below a bound, rounding included.

For a class with samples X_c the matrix is ``M(v) = S - X_c' D X_c``, with the scatter S
of all samples and D = diag(1 + v), or with that of the other samples alone and
D = diag(v). By Sylvester's law of inertia it has exactly as many eigenvalues below -b
as the k x k matrix

    I - Y (S + b)^-1 Y',   Y = D^{1/2} X_c,

has negative ones. That matrix is called the counting matrix here. The count sees every
eigenvalue, also those that a solver has missed.

The error of the count: let A = S + b with the exact scatter S, and let A + F be the
matrix whose spectrum was computed. The two counting matrices differ by
Y (A^-1 - (A + F)^-1) Y', whose norm is at most |F| |A^-1 Y'|^2 times a factor near one.
Eigenvalues count as negative up to that norm plus a bound on rounding errors.

As in the solver, a root t is minus a negative eigenvalue of M(v).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.class_chunks import ClassChunk
from dualqml.core.spectrum import EPSILON, ScatterSpectrum, dot_error

#: Bytes of own samples handled at a time in Newton steps. Limits the temporaries.
_CHUNK_BYTES = 1_000_000
#: Classes of more samples than this are counted without the products of all pairs of
#: their samples, which take (k + 1) / 2 times the memory of the k samples.
_MAX_PAIRED_SIZE = 24
#: Nothing can be counted below these multiples of the error of the scatter, and of the
#: squared error of the samples.
_MIN_SCATTER_RATIO, _MIN_SAMPLE_RATIO = 8.0, 100.0
#: The first trial is raised by this multiple of the root's error in first order.
_TRIAL_FACTOR = 1.05
#: A Newton step below this fraction of the largest root is taken to be the last one.
_LAST_STEP_RATIO = 1e-4
#: The last step is enlarged by this factor, to get past the root.
_LAST_STEP_FACTOR = 1.02
#: Added to every step, in units of the largest root, and the factor by which it grows
#: from step to step: so every trial moves on.
_STEP_OFFSET, _OFFSET_GROWTH = 1e-11, 8.0
#: The longest Newton step, in units of the point that it starts from.
_MAX_STEP_RATIO = 15.0
#: Newton steps for a root. If none proves a bound, its bound is infinite.
_MAX_NEWTON_STEPS = 20
#: Largest error of the spectrum, relative to S + b, with which a count is possible.
_MAX_RELATIVE_PERTURBATION = 0.5


@dataclass(frozen=True)
class OtherSamples:
    """The scatter O_c of the other classes' samples, and the own samples in its basis.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        Eigenvalues L of O_c in the span of all samples, ascending, zeros included.
    own : ndarray of shape (n_own, rank)
        The own samples in its eigenbasis.
    basis : ndarray of shape (n_features, rank)
        That basis Q, one vector per column.
    error : float
        Bound on the norm of the decomposition's error, seen as an error of the other
        samples.
    own_errors : ndarray of shape (n_own,)
        Bounds on the norms of the errors of the own samples in the basis.
    residuals : tuple of two ndarray of shape (rank, rank), optional
        ``Q'O_c Q - diag(L)`` and ``Q'Q - I``, where they were computed entry by entry.
        They give a sharper result than a bound on norms.
    """

    eigenvalues: Array
    own: Array
    basis: Array
    error: float
    own_errors: Array
    residuals: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class RootCounter:
    """Counts the roots t (minus negative eigenvalues) of M(v) = S - X_c' D X_c."""

    own: Array  # (C, k, rank): D^{1/2} Z
    L: Array  # (rank,)
    wide: bool  # whether scatter_error is that of a Gram matrix
    mass: Array  # (C, rank): weights of the errors of the spectrum
    dropped: Array  # (C,): the weight outside its span
    own_error: Array  # (C,): squared norm of the error of D^{1/2} X_c
    scatter_error: float
    sample_error: float
    rounding: float  # 1, or 0 to leave out rounding errors of the count itself
    n_features: int
    residuals: tuple[Array, Array] | None = None  # of OtherSamples

    @classmethod
    def among_all_samples(
        cls,
        Z: Array,
        chunk: ClassChunk,
        spectrum: ScatterSpectrum,
        v: Array,
        rounding: float,
    ) -> "RootCounter":
        """For the classes of a chunk: D = 1 + v, S is the scatter of all samples.

        Z are the own samples in the eigenbasis of the scatter.
        """
        L = spectrum.eigenvalues
        n_features = spectrum.samples.shape[1]
        weights = np.where(chunk.real, 1.0 + v, 0.0)
        own = np.sqrt(weights)[:, :, None] * Z
        mass = np.einsum("ckr,ckr->cr", own, own)
        dropped = spectrum.dropped[chunk.samples]
        # A shared spectrum is always that of the scatter.
        wide = spectrum.shared is None and len(spectrum.samples) <= n_features
        nothing = np.zeros(own.shape[0])
        if wide:
            mass /= L
            outside, own_error = (weights * dropped).sum(axis=1), nothing
        else:
            # Plus the rounding errors of the projection.
            error = rounding * np.sqrt(L.size) * dot_error(n_features)
            off = dropped + error * np.sqrt(spectrum.squared_norms[chunk.samples])
            outside, own_error = nothing, (weights * off**2).sum(axis=1)
        return cls(
            own,
            L,
            wide,
            mass,
            outside,
            own_error,
            spectrum.scatter_error,
            spectrum.sample_error,
            rounding,
            n_features,
        )

    @classmethod
    def among_others(
        cls, spectrum: OtherSamples, v: Array, rounding: float
    ) -> "RootCounter":
        """For one class: D = v, S is the scatter O_c of the other samples."""
        own = (np.sqrt(v)[0, :, None] * spectrum.own)[None]
        return cls(
            own,
            spectrum.eigenvalues,
            False,
            (own * own).sum(axis=1),
            np.zeros(1),
            (v * spectrum.own_errors**2).sum(axis=1),
            0.0,
            spectrum.error,
            rounding,
            spectrum.basis.shape[0],
            spectrum.residuals,
        )

    def root_bounds(
        self,
        roots: Array,
        sensitivity: Array,
        margin: Array,
        smallest: float,
        n_possible: Index,
        vectors: Array | None = None,
    ) -> tuple[Array, NDArray[np.int64]]:
        """Proven upper bounds on the roots of M(v), and how many there are.

        The a-th largest root is at most b if no more than a - 1 roots are counted
        above b. The first trial is a margin above the claimed root. Then follow
        Newton steps on the eigenvalue of the counting matrix that has to become
        positive.

        Parameters
        ----------
        roots : ndarray of shape (n_classes, rank)
            The claimed roots, in falling order.
        sensitivity : ndarray of shape (n_classes, rank)
            How far a root moves with its eigenvalue of the counting matrix.
        margin : ndarray of shape (n_classes,)
            How far above the claimed roots the first trial is.
        smallest : float
            Roots below this fraction of the largest need no bounds of their own.
        n_possible : ndarray of shape (n_classes,)
            How many roots there can be at most.
        vectors : ndarray of shape (n_classes, rank), optional
            An approximate eigenvector of the largest root of each class. With it, large
            classes of one root are counted in a faster way.

        Returns
        -------
        bounds : ndarray of shape (n_classes, k)
            Bounds of the roots: infinite where none was proven, zero where no root
            is possible.
        n_negative : ndarray of shape (n_classes,)
            Number of roots above the smallest.
        """
        n_classes, k = self.own.shape[:2]
        largest = np.maximum(roots[:, :1], np.finfo(np.float64).tiny)
        # Below this level nothing can be counted.
        lowest = _MIN_SCATTER_RATIO * self.scatter_error
        lowest += _MIN_SAMPLE_RATIO * self.sample_error**2
        if self.residuals is not None:
            lowest = 0.0
        floor = np.maximum(np.maximum(smallest * largest, lowest), margin[:, None])
        claimed, sensitivities = np.zeros((n_classes, k)), np.zeros((n_classes, k))
        claimed[:, : roots.shape[1]] = roots[:, :k]
        sensitivities[:, : roots.shape[1]] = sensitivity[:, :k]
        bounds = np.maximum(claimed + margin[:, None], floor)
        bounds[np.arange(k) >= n_possible[:, None]] = 0.0
        # One count at the floor, the last trial of each class, covers all roots below.
        above = bounds > floor
        n_above = above.sum(axis=1)
        width = int(n_above.max())
        trial = np.concatenate([bounds[:, :width], floor], axis=1)
        if width:
            error = self._spectral_error(trial[:, :width])
            trial[:, :width] += np.fmin(
                _TRIAL_FACTOR * error * sensitivities[:, :width], trial[:, :width]
            )
        allowed = np.tile(np.arange(width + 1), (n_classes, 1))
        allowed[:, -1] = n_above
        bounds[bounds > 0.0] = np.inf
        single = np.zeros(n_classes, dtype=bool)
        if vectors is not None and k > _MAX_PAIRED_SIZE:
            single = (n_above == 1) & (claimed[:, 1] == 0.0)
            rows = np.flatnonzero(single)
            single[rows] = self.select(rows).has_single_root(
                trial[rows, 0], trial[rows, -1], vectors[rows]
            )
        at_most, computed = allowed.copy(), allowed.copy()
        if not single.all():
            rows = np.flatnonzero(~single)
            at_most[rows], computed[rows] = self.select(rows).count_all(trial[rows])
        proven = at_most <= allowed
        pending = np.concatenate([above[:, :width], np.ones_like(above[:, :1])], axis=1)
        _record(bounds, trial, allowed, pending & proven)
        # Newton steps for the rest.
        class_index, column = np.nonzero(pending & ~proven)
        b, n_allowed = trial[class_index, column], allowed[class_index, column]
        for attempt in range(_MAX_NEWTON_STEPS):
            if class_index.size == 0:
                break
            done, step = self.newton_steps(class_index, b, n_allowed)
            trial[class_index[done], column[done]] = b[done]
            proven = np.zeros_like(proven)
            proven[class_index[done], column[done]] = True
            _record(bounds, trial, allowed, proven)
            # The lowest eigenvalue is concave in b, so Newton steps on it alone never
            # go too far; but the errors fall with b.
            scale = largest[class_index, 0]
            step = np.where(
                step < _LAST_STEP_RATIO * scale, _LAST_STEP_FACTOR * step, step
            )
            step = np.fmin(step, _MAX_STEP_RATIO * b)
            b = b + step + _STEP_OFFSET * _OFFSET_GROWTH**attempt * scale
            class_index, column = class_index[~done], column[~done]
            b, n_allowed = b[~done], n_allowed[~done]
        return bounds, computed[:, -1]

    def select(self, rows: Index) -> "RootCounter":
        """The counter of some of the classes.

        Parameters
        ----------
        rows : ndarray of int
            Which classes, in ascending order.

        Returns
        -------
        RootCounter
            With one row per chosen class.
        """
        if rows.size == self.own.shape[0]:
            return self
        return replace(
            self,
            own=self.own[rows],
            mass=self.mass[rows],
            dropped=self.dropped[rows],
            own_error=self.own_error[rows],
        )

    def has_single_root(self, upper: Array, lower: Array, vectors: Array) -> Mask:
        """Whether M(v) has a root below one bound, and no other above another bound.

        Two Cholesky factorisations, which are several times faster than eigenvalues.

        Parameters
        ----------
        upper, lower : ndarray of shape (n_classes,)
            The bounds.
        vectors : ndarray of shape (n_classes, rank)
            An approximate eigenvector of each class's root, of any length.

        Returns
        -------
        boolean ndarray of shape (n_classes,)
            True only if it is so in the worst case of all errors. It may be false
            where eigenvalues would prove it.
        """
        S, error = self._counting_matrices(upper)
        single = positive_definite(S, error)
        S, error = self._counting_matrices(lower)
        # The root's eigenvector of S is about Yq, where S has to be negative.
        direction = (self.own @ vectors[:, :, None])[:, :, 0]
        curvature = (direction * (S @ direction[:, :, None])[:, :, 0]).sum(axis=1)
        single &= curvature < 0.0
        return np.asarray(single & one_negative_at_most(S, direction, error))

    def _counting_matrices(self, b: Array) -> tuple[Array, Array]:
        """I - Y (L + b)^-1 Y' for one b of each class, and bounds of their errors."""
        inverse = 1.0 / (self.L + b[:, None])
        weighted = self.own * np.sqrt(inverse)[:, None]
        S = weighted @ weighted.transpose(0, 2, 1)
        np.negative(S, out=S)
        diagonal = np.einsum("cii->ci", S)
        trace = -diagonal.sum(axis=1)
        diagonal += 1.0
        error = self._spectral_error(b[:, None], inverse[:, None])[:, 0]
        return S, error + self._rounding_error(trace)

    def count_all(self, b: Array) -> tuple[Index, Index]:
        """Number of eigenvalues of M(v) below -b, for several b of each class.

        Parameters
        ----------
        b : ndarray of shape (n_classes, n_trials)
            Where to count.

        Returns
        -------
        at_most, computed : ndarray of shape (n_classes, n_trials)
            The number in the worst case of all errors, and the computed number.
        """
        n_classes, k, rank = self.own.shape
        inverse = 1.0 / (self.L + b[:, :, None])
        first, second = np.triu_indices(k)
        if k <= _MAX_PAIRED_SIZE:
            # All counting matrices of a class by one product.
            pairs = np.empty((n_classes, first.size, rank))
            starts = np.cumsum([0, *range(k, 0, -1)])
            for i in range(k):
                out = pairs[:, starts[i] : starts[i + 1]]
                np.multiply(self.own[:, i, None], self.own[:, i:], out=out)
            upper = inverse @ pairs.transpose(0, 2, 1)
        else:
            upper = np.empty((*b.shape, first.size))
            for a in range(b.shape[1]):
                weighted = self.own * inverse[:, a, None]
                product = weighted @ self.own.transpose(0, 2, 1)
                upper[:, a] = product[:, first, second]
        S = np.empty((*b.shape, k, k))
        S[:, :, first, second] = S[:, :, second, first] = -upper
        diagonal = np.arange(k)
        trace = -S[:, :, diagonal, diagonal].sum(axis=2)
        # A padded sample has a zero row: its unit diagonal is not counted.
        S[:, :, diagonal, diagonal] += 1.0
        w = np.linalg.eigvalsh(S)
        error = self._spectral_error(b, inverse) + self._rounding_error(trace)
        return (w < error[:, :, None]).sum(axis=2), (w < 0.0).sum(axis=2)

    def newton_steps(
        self, class_index: Index, b: Array, n_allowed: Index
    ) -> tuple[Mask, Array]:
        """Whether no more than `n_allowed` roots are above b, for pairs of class and b.

        Parameters
        ----------
        class_index : ndarray of shape (n_pairs,)
            The class of each pair.
        b : ndarray of shape (n_pairs,)
            Where to count.
        n_allowed : ndarray of shape (n_pairs,)
            How many roots may be above.

        Returns
        -------
        done : boolean ndarray of shape (n_pairs,)
            Whether that is so in the worst case of all errors.
        step : ndarray of shape (n_pairs,)
            The Newton step in b after which it should be so.
        """
        k, rank = self.own.shape[1:]
        done = np.empty(class_index.size, dtype=bool)
        step = np.empty(class_index.size)
        size = max(1, _CHUNK_BYTES // (8 * k * rank))
        diagonal = np.arange(k)
        for start in range(0, class_index.size, size):
            part = slice(start, start + size)
            classes = class_index[part]
            inverse = 1.0 / (self.L + b[part, None])
            root_weight = np.sqrt(inverse)
            weighted = self.own[classes]
            weighted *= root_weight[:, None, :]
            S = -(weighted @ weighted.transpose(0, 2, 1))
            trace = -S[:, diagonal, diagonal].sum(axis=1)
            S[:, diagonal, diagonal] += 1.0
            w, vectors = np.linalg.eigh(S)
            if self.residuals is not None:
                error = self._residual_error(b[part])
            else:
                mass = self.mass[classes] * inverse**2
                error = self._perturbation(
                    classes, b[part], mass.sum(axis=1), mass @ self.L
                )
            error += self._rounding_error(trace)
            # The eigenvalues rise with b, at the rate |(L + b)^-1 Y'y|^2 for the unit
            # eigenvector y.
            pair = np.arange(classes.size)
            y = vectors[pair, :, n_allowed[part]]
            direction = (y[:, None, :] @ weighted)[:, 0] * root_weight
            missing = error - w[pair, n_allowed[part]]
            done[part] = missing <= 0.0
            step[part] = missing / (direction * direction).sum(axis=1)
        return done, step

    def _spectral_error(self, b: Array, inverse: Array | None = None) -> Array:
        """Errors of the counting matrices by the spectrum, for several b per class."""
        if self.residuals is not None:
            return self._residual_error(b[0])[None]
        if inverse is None:
            inverse = 1.0 / (self.L + b[:, :, None])
        squared = inverse * inverse
        far = (squared @ self.mass[:, :, None])[:, :, 0]
        near = far
        if self.sample_error:
            near = (squared @ (self.mass * self.L)[:, :, None])[:, :, 0]
        return self._perturbation(slice(None), b, far, near)

    def _perturbation(
        self, classes: Index | slice, b: Array, far: Array, near: Array
    ) -> Array:
        """Bound on the change of the counting matrix by errors of the spectrum.

        |Y (A^-1 - (A + F)^-1) Y'| with A = S + b; for a Gram matrix the same in the
        space of the samples, times b. F is an error of the scatter, or
        F = X'E + E'X + E'E with an error E of the samples, where |A^{-1/2} X'| <= 1.
        `far` and `near` are |A^-1 Y'|^2 and |X A^-1 Y'|^2.
        """
        f, e = self.scatter_error, self.sample_error
        ones = (1,) * (b.ndim - 1)
        dropped = self.dropped[classes].reshape(-1, *ones)
        own_error = self.own_error[classes].reshape(-1, *ones)
        far = far + dropped / (b * b)
        relative = f / b + 2.0 * e / np.sqrt(b) + e * e / b
        out = (f + e * e) * far + 2.0 * e * np.sqrt(near * far)
        if self.wide:
            out *= b
        out += 2.0 * np.sqrt(own_error * far) + own_error / b
        return np.asarray(
            np.where(
                relative < _MAX_RELATIVE_PERTURBATION, out / (1.0 - relative), np.inf
            )
        )

    def _residual_error(self, b: Array) -> Array:
        """The same bound for one class whose residuals are known.

        With F = Q'SQ - L + b (Q'Q - I) the counting matrix changes by Y A^-1 F A^-1 Y'
        to first order. The rest is at most r^2 / (1 - r) times the trace of Y A^-1 Y',
        where r = |A^{-1/2} F A^{-1/2}|.
        """
        assert self.residuals is not None
        own, out = self.own[0], np.empty(b.size)
        for i, shift in enumerate(b):
            diagonal = self.L + shift
            F = self.residuals[0] + shift * self.residuals[1]
            weighted = own / diagonal
            root = np.sqrt(diagonal)
            relative = float(np.linalg.norm(F / np.outer(root, root)))
            rest = relative**2 / (1.0 - relative) * float((own * weighted).sum())
            moved = float(np.linalg.norm(weighted @ F @ weighted.T)) + rest
            out[i] = moved if relative < _MAX_RELATIVE_PERTURBATION else np.inf
        return out

    def _rounding_error(self, trace: Array) -> Array:
        """Bound on rounding errors: sums of `rank` terms, and eigenvalues."""
        k, rank = self.own.shape[1:]
        error = self.rounding * EPSILON * (0.5 * rank + 8 * k + 8)
        return np.asarray(error * (1.0 + trace))


def one_negative_at_most(
    matrices: Array, directions: Array, margins: Array | float = 0.0
) -> Mask:
    """Whether symmetric matrices have no more than one eigenvalue below a margin.

    If S is positive definite but for one eigenvalue, and x'Sx < 0, then the matrix
    S + 2 zz' / |x'Sx| with z = Sx is positive definite. That proves no more than one
    negative eigenvalue for any x, since zz' can hide only one.

    Parameters
    ----------
    matrices : ndarray of shape (n_classes, k, k)
        The matrices S.
    directions : ndarray of shape (n_classes, k)
        For each matrix a vector x in which it should be negative.
    margins : ndarray of shape (n_classes,) or float, default=0.0
        The margins.

    Returns
    -------
    boolean ndarray of shape (n_classes,)
        True only if it is so in spite of rounding errors.
    """
    z = (matrices @ directions[:, :, None])[:, :, 0]
    curvature = np.abs((directions * z).sum(axis=1))[:, None]
    z = z * np.sqrt(2.0 / np.where(curvature > 0.0, curvature, np.inf))
    # The last term covers the rounding of the sum.
    margins = margins + 4.0 * EPSILON * (z * z).sum(axis=1)
    return positive_definite(matrices + z[:, :, None] * z[:, None, :], margins)


def positive_definite(matrices: Array, margins: Array | float = 0.0) -> Mask:
    """Whether all eigenvalues of symmetric matrices are above a margin.

    If the Cholesky factorisation of a k x k matrix succeeds, no eigenvalue is below
    -(k + 1) / 2 times the machine precision times the trace.

    Parameters
    ----------
    matrices : ndarray of shape (n_classes, k, k)
        The matrices.
    margins : ndarray of shape (n_classes,) or float, default=0.0
        The margins.

    Returns
    -------
    boolean ndarray of shape (n_classes,)
        True only if it is so in spite of rounding errors.
    """
    shifted = matrices.copy()
    diagonal = np.einsum("cii->ci", shifted)
    size = np.abs(diagonal).sum(axis=1)
    diagonal -= (margins + EPSILON * (matrices.shape[1] + 4) * size)[:, None]
    out = np.asarray(np.isfinite(shifted).all(axis=(1, 2)))
    try:
        np.linalg.cholesky(shifted[out])
    except np.linalg.LinAlgError:
        # One of them has failed. Find out which.
        for c in np.flatnonzero(out):
            try:
                np.linalg.cholesky(shifted[c])
            except np.linalg.LinAlgError:
                out[c] = False
    return out


def _record(bounds: Array, trial: Array, allowed: Index, proven: Mask) -> None:
    """Write proven bounds; the last one, at the floor, is for all further roots."""
    class_index, column = np.nonzero(proven[:, :-1])
    bounds[class_index, column] = trial[class_index, column]
    further = proven[:, -1:] & (np.arange(bounds.shape[1]) >= allowed[:, -1:])
    np.copyto(bounds, trial[:, -1:], where=further & (bounds > 0.0))
