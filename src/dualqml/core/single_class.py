# SPDX-License-Identifier: BSD-3-Clause
"""One class at a time, with all the digits that the samples have.

The batched solver shares one scatter among all classes. That is fast, but loses
digits for two reasons. Eigenvalues of the scatter are squares of lengths, so directions
in which the samples extend by less than a millionth of their length are lost in
rounding. And the scatter of the other classes is a difference, the total scatter minus
that of the own samples. The classes for which this matters, as the certificate finds,
are solved here by singular values of the other classes' samples alone: nothing is
squared, and nothing is subtracted.

For a very large lambda the multipliers do not determine P numerically: the eigenvalues
from which P is recovered are rounding noise compared with those of the scatter. There a
proximal-point method is used. It solves a sequence of problems with an easier lambda,
each with a term that keeps P near that of the problem before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgejsv
from scipy.optimize import brentq

from dualqml._typing import Array, Index
from dualqml.core.certificate import Certificate, certify_class
from dualqml.core.double_double import MAX_DOUBLE_DOUBLE_SIZE, double_double_product
from dualqml.core.inertia import OtherSamples
from dualqml.core.initial_point import single_sample_table
from dualqml.core.non_negative import non_negative
from dualqml.core.semismooth_newton import ReducedSolution, minimise
from dualqml.core.spectrum import EPSILON, decomposition_error, dot_error

#: Problems of at most this many dimensions are also tried without a reduced basis.
_MAX_DENSE_SIZE = 256
#: Shifts of the rational Krylov basis, in units of the largest root. More than in
#: :mod:`dualqml.core.krylov_solver`: here accuracy matters more than time.
_SHIFTS = (1.0, 0.1, 0.01, 10.0, 1e-3, 100.0)
#: Smallest shift for a root found before, in units of the largest root.
_MIN_SHIFT = 1e-3
#: Directions are left out of the basis if their singular value is below this fraction
#: of the largest: they depend on the others.
_INDEPENDENCE_TOLERANCE = 1e-7
#: The proximal-point method makes the roots at least these fractions of the norm of the
#: scatter. 0 is Newton's method alone.
_ROOT_SHARES = (0.0, 1e-8, 1e-6)
#: It stops after this many steps, or at a relative change of P below this.
_MAX_PROXIMAL_STEPS, _PROXIMAL_TOLERANCE = 30, 1e-12
#: It also stops if, after a few steps, the change no longer falls by this factor.
_FIRST_STEPS, _PROXIMAL_PROGRESS = 5, 0.9
#: Violation of the KKT conditions at which Newton's method stops, and the largest one
#: that needs no continuation in lambda.
_NEWTON_TOLERANCE, _DIRECT_VIOLATION = 1e-10, 1e-7
#: Powers of ten below lambda at which continuation starts, and its steps per power.
_CONTINUATION_DECADES, _CONTINUATION_STEPS = 8, (1, 4)
#: How often, and by how much in ln t, the bounds of the rank-one root are widened.
_MAX_WIDENINGS, _WIDENING = 60, 2.0
#: Accepted gap and violation, in units of the tolerance.
_ACCEPTED_FRACTION = 0.5
#: As :data:`dualqml.core.problem.FACTOR_TOLERANCE`, but smaller: roots have more digits
#: here.
_PRECISE_FACTOR_TOLERANCE = 1e-13


@dataclass(frozen=True)
class ClassSolution:
    """P = sum of f f' over the rows f of `components`, and its certificate."""

    components: Array  # (rank, n_features)
    multipliers: Array  # (n_own,)
    certificate: Certificate
    n_iter: int


def span_coordinates(X: Array) -> tuple[Array, Array]:
    """Samples in a basis of their span, if they have very many features.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples, one row per sample.

    Returns
    -------
    coordinates : ndarray of shape (n_samples, rank)
        The samples in the basis.
    basis : ndarray of shape (n_features, rank)
        The basis, one vector per column; the identity if there are few features.
    """
    n_samples, n_features = X.shape
    if n_features <= max(n_samples, MAX_DOUBLE_DOUBLE_SIZE):
        return X, np.eye(n_features)
    basis, triangle = np.linalg.qr(X.T)
    return np.ascontiguousarray(triangle.T), basis


def other_samples(coordinates: Array, basis: Array, own: Index) -> OtherSamples:
    """The spectrum of the other classes' samples, and the own samples in its basis.

    Parameters
    ----------
    coordinates, basis : ndarray
        From :func:`span_coordinates`.
    own : ndarray of shape (n_own,)
        The indices of the samples of the class.

    Returns
    -------
    OtherSamples
        Eigenvalues of O_c and the own samples in its eigenbasis.
    """
    others = np.delete(coordinates, own, axis=0)
    mine = coordinates[own]
    singular, vectors, error = _right_singular_vectors(others)
    # Errors of the basis of the span, of the singular vectors, and of the projection.
    size = max(*coordinates.shape, basis.shape[0])
    if basis.shape[0] > basis.shape[1]:
        error += decomposition_error(size) * float(np.linalg.norm(others))
    own_error = 2.0 * decomposition_error(size)
    own_error += np.sqrt(vectors.shape[1]) * dot_error(size)
    own_errors = own_error * np.linalg.norm(mine, axis=1)
    L = singular**2
    if size > MAX_DOUBLE_DOUBLE_SIZE:
        return OtherSamples(L, mine @ vectors, basis @ vectors, error, own_errors)
    # Small enough to compute the rounding errors themselves.
    high, low = double_double_product(others, vectors)
    squares, rest = double_double_product(high.T, high)
    cross = high.T @ low
    scatter = (squares - np.diag(L)) + (rest + cross + cross.T)
    squares, rest = double_double_product(vectors.T, vectors)
    orthogonality = (squares - np.eye(L.size)) + rest
    own_errors[:] = 0.0
    mine, _ = double_double_product(mine, vectors)
    return OtherSamples(L, mine, vectors, error, own_errors, (scatter, orthogonality))


def solve_class(
    X: Array,
    own: Index,
    lam: float,
    spectrum: OtherSamples,
    *,
    tol: float,
    max_iter: int,
) -> ClassSolution:
    """Solve problem (5) for one class.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples.
    own : ndarray of shape (n_own,)
        The indices of the samples of the class.
    lam : float
        The regularisation parameter.
    spectrum : OtherSamples
        From :func:`other_samples`.
    tol : float
        Relative duality gap and violation asked for.
    max_iter : int
        Newton iterations allowed for each of the problems that are solved.

    Returns
    -------
    ClassSolution
        The best solution that was found.
    """
    X_own = X[own]
    problem = _ClassProblem(spectrum, lam, max_iter)
    best = None
    with np.errstate(all="ignore"):
        for factors, v in problem.candidates():
            components = factors @ spectrum.basis.T
            lowest = ((X_own @ components.T) ** 2).sum(axis=1).min()
            if not np.isfinite(components).all() or not lowest > 0.0:
                continue
            # Scale to the boundary of the feasible set, with room for rounding.
            components *= (1.0 + 4.0 * EPSILON) / np.sqrt(lowest)
            multipliers = lam * v
            certificate = certify_class(
                X, own, lam, components, multipliers, spectrum, tol=tol
            )
            if best is None or certificate.worst < best.certificate.worst:
                best = ClassSolution(
                    components, multipliers, certificate, problem.n_iter
                )
            if certificate.worst <= _ACCEPTED_FRACTION * tol:
                break
    if best is None:
        # Nothing usable: P = 0, with an infinite gap in the certificate.
        components, multipliers = np.zeros((0, X.shape[1])), np.zeros(own.size)
        certificate = certify_class(
            X, own, lam, components, multipliers, spectrum, tol=tol
        )
        best = ClassSolution(components, multipliers, certificate, problem.n_iter)
    return best


class _ClassProblem:
    """The problem of one class, and candidates for its solution.

    A candidate is a factor of P in the eigenbasis of O_c, and scaled multipliers.
    """

    def __init__(self, spectrum: OtherSamples, lam: float, max_iter: int) -> None:
        self.L, self.Z = spectrum.eigenvalues, spectrum.own
        self.inv_lam, self.max_iter = 1.0 / lam, max_iter
        self.lam = lam
        self.n_iter = 0
        self.real = np.ones((1, self.Z.shape[0]), dtype=bool)

    def candidates(self) -> Iterator[tuple[Array, Array]]:
        """All candidates, those of the fastest method first."""
        table = single_sample_table(self.L, self.Z, self.inv_lam, self.inv_lam)
        start, t = table.start(self.inv_lam, base=0.0)
        methods = [self.rank_one(float(t.min()), float(t.max()))]
        for min_share in _ROOT_SHARES:
            methods.append(self.in_krylov_basis(start, float(t.max()), min_share))
            if self.L.size <= _MAX_DENSE_SIZE:
                methods.append(self.in_basis(np.eye(self.L.size), start, min_share))
        for method in methods:
            try:
                yield from method
            except (np.linalg.LinAlgError, RuntimeError, ValueError):
                # A decomposition, or SciPy's nnls, cannot work with these numbers.
                # Other methods may still succeed.
                continue

    def in_krylov_basis(
        self, v: Array, root: float, min_share: float
    ) -> Iterator[tuple[Array, Array]]:
        """Candidates from a basis for one root, then from one for the roots found."""
        for found in self.proximal_steps(self.krylov_basis(root), v, min_share):
            yield self.candidate(*found)
        v, roots, _ = found
        if roots.max(initial=0.0) > 0.0:
            yield from self.in_basis(
                self.krylov_basis(float(roots.max()), found), v, min_share
            )

    def in_basis(
        self, basis: Array, v: Array, min_share: float
    ) -> Iterator[tuple[Array, Array]]:
        """Candidates in a basis of orthonormal rows."""
        for found in self.proximal_steps(basis, v, min_share):
            yield self.candidate(*found)

    def candidate(self, v: Array, roots: Array, vectors: Array) -> tuple[Array, Array]:
        """The candidate with these multipliers, roots and vectors."""
        kept = roots > _PRECISE_FACTOR_TOLERANCE * roots.max(initial=0.0)
        return np.sqrt(self.lam * roots[kept])[:, None] * vectors[kept], v

    def rank_one(self, low: float, high: float) -> Iterator[tuple[Array, Array]]:
        """P = w w' with all own samples on one side of a plane through the origin.

        ``min 1/2 |w|^4 + lam w'Ow`` subject to ``x_i'w >= 1`` is convex. For a
        fixed root t = |w|^2 it is a non-negative least-squares problem in the
        multipliers mu, ``w = 1/2 (t + lam O)^-1 sum mu_i x_i``; t is the solution
        of one equation. No small difference of large numbers occurs in it.
        """
        inverse = 1.0 / (self.L + high)
        G = (self.Z * inverse) @ self.Z.T
        lengths = np.sqrt(np.diagonal(G))
        G = G / np.outer(lengths, lengths)
        # x and -x are equal for P, so signs are free. Turn each sample to the side of
        # the main direction of all samples, or to that of the shortest sample.
        sides: list[Array] = []
        for direction in (np.linalg.eigh(G)[1][:, -1], G[:, lengths.argmin()]):
            side = np.where(direction < 0.0, -1.0, 1.0)
            if all(abs(side @ other) < side.size for other in sides):
                sides.append(side)
        for side in sides:
            turned = _RankOneProblem(self.L, side[:, None] * self.Z, self.lam)
            found = turned.solve(np.log(low) - 1.0, np.log(high) + 1.0)
            if found is not None:
                yield found

    def krylov_basis(
        self, root: float, found: tuple[Array, Array, Array] | None = None
    ) -> Array:
        """Orthonormal rows that span (L + s)^-1 Z' for shifts s around a root.

        If multipliers, roots and vectors were found before, their refined vectors are
        included. The rows are sums of such vectors only. Where L is much larger than
        the shifts, their entries are tiny, and keep all their digits.
        """
        blocks = [self.Z / (self.L + shift * root) for shift in _SHIFTS]
        if found is not None:
            v, roots, vectors = found
            weights = v[:, None] * (self.Z @ vectors.T)
            shifts = np.maximum(roots, _MIN_SHIFT * root)[:, None]
            blocks.insert(0, (weights.T @ self.Z) / (self.L + shifts))
        rows = np.concatenate(blocks)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows[np.isfinite(rows).all(axis=1)]
        for _ in range(2):
            # Orthogonalised by the left singular vectors alone.
            left, singular, _ = np.linalg.svd(rows, full_matrices=False)
            kept = singular > _INDEPENDENCE_TOLERANCE * singular[0]
            rows = (left[:, kept] / singular[kept]).T @ rows
        return np.asarray(rows)

    def proximal_steps(
        self, basis: Array, v: Array, min_share: float
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Multipliers, roots and vectors of better and better approximations.

        Each step finds the minimiser of ``1/2 |P|^2 + tr(PO) + kappa/2 |P - P_old|^2``
        in scaled variables, which is a problem with the matrix
        ``(O - kappa P_old) / (1 + kappa)``. kappa is such that the roots are at least
        `min_share` of the norm of the scatter; kappa = 0 is one step of Newton's method
        alone.
        """
        weighted = basis * np.sqrt(self.L)
        A, B = weighted @ weighted.T, self.Z @ basis.T
        n_roots = min(B.shape)
        P, kappa, last = np.zeros_like(A), 0.0, np.inf
        if min_share:
            size = float(np.linalg.norm(A, 2))
            # No root is smaller than this.
            root = self.inv_lam / float((B * B).sum(axis=1).max())
            kappa = max(0.0, min_share * size / root - 1.0)
        for step in range(_MAX_PROXIMAL_STEPS):
            found = self.newton((A - kappa * P) / (1.0 + kappa), B, v / (1.0 + kappa))
            v = (1.0 + kappa) * found.v[0]
            roots = np.maximum(-found.eigenvalues[0], 0.0)
            order = np.argsort(-roots)[:n_roots]
            roots, vectors = roots[order], found.vectors[0][:, order].T
            yield v, roots, vectors @ basis
            if kappa == 0.0:
                return
            new = (vectors.T * roots) @ vectors
            change = float(np.linalg.norm(new - P) / np.linalg.norm(new))
            stalled = step > _FIRST_STEPS and change > _PROXIMAL_PROGRESS * last
            if change < _PROXIMAL_TOLERANCE or stalled:
                return
            P, last = new, change

    def newton(self, A: Array, B: Array, v: Array) -> ReducedSolution:
        """The minimiser; a hard lambda is approached from smaller ones."""
        found = self._minimise(A, B, v, self.inv_lam)
        for steps_per_decade in _CONTINUATION_STEPS:
            if found.violation[0] <= _DIRECT_VIOLATION:
                break
            at = v
            for step in range(_CONTINUATION_DECADES * steps_per_decade, -1, -1):
                reduction = 10.0 ** (step / steps_per_decade)
                again = self._minimise(A, B, at, self.inv_lam * reduction)
                at = again.v[0]
            if again.violation[0] < found.violation[0]:
                found = again
        return found

    def _minimise(
        self, A: Array, B: Array, v: Array, inv_lam: float
    ) -> ReducedSolution:
        found = minimise(
            A[None],
            B[None],
            v[None],
            inv_lam,
            self.real,
            tol=_NEWTON_TOLERANCE,
            max_evaluations=self.max_iter,
            base=0.0,
        )
        self.n_iter += int(found.n_evaluations[0])
        return found


@dataclass(frozen=True)
class _RankOneProblem:
    """The problem with P = w w' and ``z_i'w >= 1``.

    See :meth:`_ClassProblem.rank_one`.
    """

    L: Array
    Z: Array
    lam: float

    def at(self, log_b: float) -> tuple[float, Array, Array]:
        """ln(|w|^2 / lam) - ln b, w and v = u / lam for the root t = lam b."""
        inverse = 1.0 / (self.L + np.exp(log_b))
        G = (self.Z * inverse) @ self.Z.T
        # Scaled to a unit diagonal.
        unit = 1.0 / np.sqrt(np.diagonal(G))
        v = unit * non_negative(G * np.outer(unit, unit), unit)
        w = v @ (self.Z * inverse)
        return float(np.log(w @ w / self.lam) - log_b), w, v

    def solve(self, lower: float, upper: float) -> tuple[Array, Array] | None:
        """The solution, its root by Brent's method between bounds that are widened."""
        for _ in range(_MAX_WIDENINGS):
            if not self.at(lower)[0] < 0.0:
                break
            lower -= _WIDENING
        for _ in range(_MAX_WIDENINGS):
            if not self.at(upper)[0] > 0.0:
                break
            upper += _WIDENING
        if not self.at(lower)[0] >= 0.0 >= self.at(upper)[0]:
            return None
        log_b = brentq(lambda x: self.at(x)[0], lower, upper, xtol=1e-15, rtol=1e-15)
        _, w, v = self.at(log_b)
        return w[None], v


def _right_singular_vectors(matrix: Array) -> tuple[Array, Array, float]:
    """Singular values in rising order, zeros included, and right singular vectors.

    The third result is a bound on the error of the decomposition. For small matrices
    it is computed by the Jacobi method, which is more accurate.
    """
    n_rows, n_columns = matrix.shape
    values, solved = np.zeros(n_columns), False
    if max(matrix.shape) <= MAX_DOUBLE_DOUBLE_SIZE:
        if n_rows >= n_columns:
            found, _, vectors, work, _, info = dgejsv(matrix, jobu=3)
        else:
            found, vectors, _, work, _, info = dgejsv(matrix.T, jobu=1, jobv=3)
        # It may end without an error and without the scale of its result.
        solved = info == 0 and work[1] > 0.0
        if solved:
            found = found * (work[0] / work[1])
    if not solved:
        _, found, vectors_T = np.linalg.svd(matrix, full_matrices=True)
        vectors = vectors_T.T
        error = decomposition_error(max(matrix.shape), singular_values=True)
    else:
        error = decomposition_error(max(matrix.shape))
    values[: found.size] = found
    order = np.argsort(values, kind="stable")
    return values[order], vectors[:, order], error * float(values.max(initial=0.0))
