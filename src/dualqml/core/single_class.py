# SPDX-License-Identifier: BSD-3-Clause
"""One class at a time, with all the digits that the samples have.

The batched solver shares one scatter among all classes. That is fast, and loses
digits: eigenvalues of the scatter are squares of lengths, so directions in which the
samples extend by less than a millionth of their length drown in rounding; and the
scatter of the other classes is the total one less the own samples, a difference.
The classes for which the certificate finds that this matters are solved here, by
singular values of the other classes' samples alone: nothing is squared, and nothing
is subtracted.

For a very large lambda the dual variables lose their grip on P: the eigenvalues
from which P is recovered are rounding noise beside those of the scatter. There a
proximal-point method takes over, which solves a sequence of problems with an easier
lambda, each with a term that keeps P near that of the one before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgejsv
from scipy.optimize import brentq, nnls

from dualqml._typing import Array, Index
from dualqml.core.certificate import Certificate, certify_class
from dualqml.core.double_double import MAX_LONG, long_product
from dualqml.core.inertia import OtherSamples
from dualqml.core.initial_point import single_sample_table
from dualqml.core.semismooth_newton import ReducedSolution, minimise
from dualqml.core.spectrum import EPSILON, decomposition_error, dot_error

#: Problems up to this many dimensions are also tried without a basis.
_MAX_DENSE = 256
#: Shifts of the rational Krylov basis, in units of the largest root.
_SHIFTS = (1.0, 0.1, 0.01, 10.0, 1e-3, 100.0)
#: Directions of the basis that stand out of the others by less than this are left out.
_INDEPENDENT = 1e-7
#: Steps of the proximal-point method.
_MAX_STEPS = 30
#: Accepted gap and violation, in units of the tolerance.
_ACCEPTED = 0.5
#: Roots below this fraction of the largest are not kept as factors.
_ROOT_TOLERANCE = 1e-13


@dataclass(frozen=True)
class ClassSolution:
    """P = sum of f f' over the rows f of `components`, and its certificate."""

    components: Array  # (rank, n_features)
    dual: Array  # (n_own,)
    certificate: Certificate
    n_iter: int


def span_coordinates(X: Array) -> tuple[Array, Array]:
    """Samples in a basis of few directions: where there are many, those of their span.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples, one a row.

    Returns
    -------
    coordinates : ndarray of shape (n_samples, rank)
        The samples in the basis.
    basis : ndarray of shape (n_features, rank)
        The basis, one vector a column.
    """
    n_samples, n_features = X.shape
    if n_features <= max(n_samples, MAX_LONG):
        return X, np.eye(n_features)
    basis, triangle = np.linalg.qr(X.T)
    return np.ascontiguousarray(triangle.T), basis


def other_samples(coordinates: Array, basis: Array, own: Index) -> OtherSamples:
    """The spectrum of the other classes' samples, and the own ones in it.

    Parameters
    ----------
    coordinates, basis : ndarray
        From :func:`span_coordinates`.
    own : ndarray of shape (n_own,)
        The samples of the class.

    Returns
    -------
    OtherSamples
        Eigenvalues of O_c and the own samples in its eigenbasis.
    """
    others = np.delete(coordinates, own, axis=0)
    mine = coordinates[own]
    singular, vectors, error = _right_singular_vectors(others)
    # The error of the basis of the span, of this one, and of the projection.
    size = max(*coordinates.shape, basis.shape[0])
    if basis.shape[0] > basis.shape[1]:
        error += decomposition_error(size) * float(np.linalg.norm(others))
    own_error = 2.0 * decomposition_error(size)
    own_error += np.sqrt(vectors.shape[1]) * dot_error(size)
    own_errors = own_error * np.linalg.norm(mine, axis=1)
    L = singular**2
    if size > MAX_LONG:
        return OtherSamples(L, mine @ vectors, basis @ vectors, error, own_errors)
    # Few and short enough to see what rounding has left of them.
    high, low = long_product(others, vectors)
    squares, rest = long_product(high.T, high)
    cross = high.T @ low
    scatter = (squares - np.diag(L)) + (rest + cross + cross.T)
    squares, rest = long_product(vectors.T, vectors)
    skew = (squares - np.eye(L.size)) + rest
    own_errors[:] = 0.0
    mine, _ = long_product(mine, vectors)
    return OtherSamples(L, mine, vectors, error, own_errors, (scatter, skew))


def _right_singular_vectors(matrix: Array) -> tuple[Array, Array, float]:
    """Singular values in rising order, zeros included, all right singular vectors.

    And a bound on what they leave of the matrix. Small matrices by the Jacobi method,
    which is closer.
    """
    n_rows, n_columns = matrix.shape
    values = np.zeros(n_columns)
    if max(matrix.shape) <= MAX_LONG:
        if n_rows >= n_columns:
            found, _, vectors, work, _, info = dgejsv(matrix, jobu=3)
        else:
            found, vectors, _, work, _, info = dgejsv(matrix.T, jobu=1, jobv=3)
        found = found * (work[0] / work[1])
    if max(matrix.shape) > MAX_LONG or info != 0:
        _, found, vectors_T = np.linalg.svd(matrix, full_matrices=True)
        vectors = vectors_T.T
        error = decomposition_error(max(matrix.shape), singular_values=True)
    else:
        error = decomposition_error(max(matrix.shape))
    values[: found.size] = found
    order = np.argsort(values, kind="stable")
    return values[order], vectors[:, order], error * float(values.max(initial=0.0))


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
        Those of the class.
    lam : float
        The regularisation parameter.
    spectrum : OtherSamples
        From :func:`other_samples`.
    tol : float
        Relative duality gap and violation asked for.
    max_iter : int
        Newton iterations allowed for each of the problems solved on the way.

    Returns
    -------
    ClassSolution
        The best that was found.
    """
    X_own = X[own]
    work = _Work(spectrum, lam, max_iter)
    best = None
    with np.errstate(all="ignore"):
        for factors, v in work.candidates():
            components = factors @ spectrum.basis.T
            lowest = ((X_own @ components.T) ** 2).sum(axis=1).min()
            if not np.isfinite(components).all() or not lowest > 0.0:
                continue
            # On the edge of what is allowed, and not beyond.
            components *= (1.0 + 4.0 * EPSILON) / np.sqrt(lowest)
            dual = lam * v
            certificate = certify_class(
                X, own, lam, components, dual, spectrum, tol=tol
            )
            if best is None or certificate.worst < best.certificate.worst:
                best = ClassSolution(components, dual, certificate, work.n_iter)
            if certificate.worst <= _ACCEPTED * tol:
                break
    if best is None:
        # Nothing usable: P = 0, which the certificate tells.
        components, dual = np.zeros((0, X.shape[1])), np.zeros(own.size)
        nothing = certify_class(X, own, lam, components, dual, spectrum, tol=tol)
        best = ClassSolution(components, dual, nothing, work.n_iter)
    return best


class _Work:
    """Candidates for the solution of one class, each better than the last or not."""

    def __init__(self, spectrum: OtherSamples, lam: float, max_iter: int) -> None:
        self.L, self.Z = spectrum.eigenvalues, spectrum.own
        self.inv_lam, self.max_iter = 1.0 / lam, max_iter
        self.lam = lam
        self.n_iter = 0
        self.real = np.ones((1, self.Z.shape[0]), dtype=bool)

    def candidates(self) -> Iterator[tuple[Array, Array]]:
        """Factors in the eigenbasis of O_c and scaled multipliers."""
        table = single_sample_table(self.L, self.Z, self.inv_lam, self.inv_lam)
        start, t = table.start(self.inv_lam, base=0.0)
        ways = [self.rank_one(float(t.min()), float(t.max()))]
        for share in (0.0, 1e-8, 1e-6):
            ways.append(self.in_krylov_basis(start, float(t.max()), share))
            if self.L.size <= _MAX_DENSE:
                ways.append(self.in_basis(np.eye(self.L.size), start, share))
        for way in ways:
            try:
                yield from way
            except (np.linalg.LinAlgError, RuntimeError, ValueError):
                # A decomposition, or SciPy's nnls, has met numbers that it cannot
                # work with. Other ways may do without.
                continue

    def in_krylov_basis(
        self, v: Array, root: float, share: float
    ) -> Iterator[tuple[Array, Array]]:
        """Candidates from a basis made for a root, then from one for those found."""
        for found in self.proximal_steps(self.krylov_basis(root), v, share):
            yield self.candidate(*found)
        v, roots, _ = found
        if roots.max(initial=0.0) > 0.0:
            yield from self.in_basis(
                self.krylov_basis(float(roots.max()), found), v, share
            )

    def in_basis(
        self, basis: Array, v: Array, share: float
    ) -> Iterator[tuple[Array, Array]]:
        """Candidates from orthonormal rows."""
        for found in self.proximal_steps(basis, v, share):
            yield self.candidate(*found)

    def candidate(self, v: Array, roots: Array, vectors: Array) -> tuple[Array, Array]:
        """Factors and multipliers of roots and their vectors."""
        kept = roots > _ROOT_TOLERANCE * roots.max(initial=0.0)
        return np.sqrt(self.lam * roots[kept])[:, None] * vectors[kept], v

    def rank_one(self, low: float, high: float) -> Iterator[tuple[Array, Array]]:
        """P = w w' with all own samples on one side, if that solves the problem.

        ``min 1/2 |w|^4 + lam w'Ow`` subject to ``x_i'w >= 1`` is convex. For a
        fixed root t = |w|^2 it is a non-negative least-squares problem in the
        multipliers mu, ``w = 1/2 (t + lam O)^-1 sum mu_i x_i``; t is the solution
        of one equation. Nothing in it is a small difference.
        """
        inverse = 1.0 / (self.L + high)
        G = (self.Z * inverse) @ self.Z.T
        lengths = np.sqrt(np.diagonal(G))
        G = G / np.outer(lengths, lengths)
        # x and -x are the same to P. Which side each sample is on: that of the main
        # direction of all, or of the shortest.
        sides: list[Array] = []
        for direction in (np.linalg.eigh(G)[1][:, -1], G[:, lengths.argmin()]):
            side = np.where(direction < 0.0, -1.0, 1.0)
            if all(abs(side @ other) < side.size for other in sides):
                sides.append(side)
        for side in sides:
            line = _OneDirection(self.L, side[:, None] * self.Z, self.lam)
            found = line.solve(np.log(low) - 1.0, np.log(high) + 1.0)
            if found is not None:
                yield found

    def krylov_basis(
        self, root: float, found: tuple[Array, Array, Array] | None = None
    ) -> Array:
        """Orthonormal rows that span (L + s)^-1 Z' for shifts s around a root.

        And those that multipliers, roots and vectors found before call for. Only sums
        of such vectors are formed: where L is large beside the shifts, their entries
        are tiny, and stay so with all their digits.
        """
        blocks = [self.Z / (self.L + shift * root) for shift in _SHIFTS]
        if found is not None:
            v, roots, vectors = found
            weights = v[:, None] * (self.Z @ vectors.T)
            shifts = np.maximum(roots, 1e-3 * root)[:, None]
            blocks.insert(0, (weights.T @ self.Z) / (self.L + shifts))
        rows = np.concatenate(blocks)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows[np.isfinite(rows).all(axis=1)]
        for _ in range(2):
            # The singular vectors of the rows on the left alone.
            left, singular, _ = np.linalg.svd(rows, full_matrices=False)
            kept = singular > _INDEPENDENT * singular[0]
            rows = (left[:, kept] / singular[kept]).T @ rows
        return np.asarray(rows)

    def proximal_steps(
        self, basis: Array, v: Array, share: float
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Multipliers, roots and vectors of better and better approximations.

        Step by step the minimiser of ``1/2 |P|^2 + tr(PO) + kappa/2 |P - P_old|^2``
        in scaled variables, that is of a problem with the matrix
        ``(O - kappa P_old) / (1 + kappa)``. kappa makes the roots at least `share`
        of the scatter; kappa = 0 is Newton's method alone, one step.
        """
        weighted = basis * np.sqrt(self.L)
        A, B = weighted @ weighted.T, self.Z @ basis.T
        n_roots = min(B.shape)
        P, kappa, last = np.zeros_like(A), 0.0, np.inf
        if share:
            size = float(np.linalg.norm(A, 2))
            # No root is smaller than this.
            root = self.inv_lam / float((B * B).sum(axis=1).max())
            kappa = max(0.0, share * size / root - 1.0)
        for step in range(_MAX_STEPS):
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
            if change < 1e-12 or (step > 5 and change > 0.9 * last):
                return
            P, last = new, change

    def newton(self, A: Array, B: Array, v: Array) -> ReducedSolution:
        """The minimiser, a hard lambda approached from smaller ones."""
        found = self._minimise(A, B, v, self.inv_lam)
        for steps_a_decade in (1, 4):
            if found.violation[0] <= 1e-7:
                break
            at = v
            for step in range(8 * steps_a_decade, -1, -1):
                easing = 10.0 ** (step / steps_a_decade)
                again = self._minimise(A, B, at, self.inv_lam * easing)
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
            tol=1e-10,
            max_evaluations=self.max_iter,
            base=0.0,
        )
        self.n_iter += int(found.n_evaluations[0])
        return found


@dataclass(frozen=True)
class _OneDirection:
    """The problem with P = w w' and ``z_i'w >= 1``; see :meth:`_Work.rank_one`."""

    L: Array
    Z: Array
    lam: float

    def at(self, log_b: float) -> tuple[float, Array, Array]:
        """ln(|w|^2 / lam) - ln b, w and v = u / lam for the root t = lam b."""
        inverse = 1.0 / (self.L + np.exp(log_b))
        G = (self.Z * inverse) @ self.Z.T
        # In units in which the diagonal is one.
        unit = 1.0 / np.sqrt(np.diagonal(G))
        v = unit * _non_negative(G * np.outer(unit, unit), unit)
        w = v @ (self.Z * inverse)
        return float(np.log(w @ w / self.lam) - log_b), w, v

    def solve(self, lower: float, upper: float) -> tuple[Array, Array] | None:
        """The root by bisection, between bounds that are widened where needed."""
        for _ in range(60):
            if not self.at(lower)[0] < 0.0:
                break
            lower -= 2.0
        for _ in range(60):
            if not self.at(upper)[0] > 0.0:
                break
            upper += 2.0
        if not self.at(lower)[0] >= 0.0 >= self.at(upper)[0]:
            return None
        log_b = brentq(lambda x: self.at(x)[0], lower, upper, xtol=1e-15, rtol=1e-15)
        _, w, v = self.at(log_b)
        return w[None], v


def _non_negative(G: Array, target: Array) -> Array:
    """Minimise 1/2 x'Gx - target'x over x >= 0, G of unit diagonal."""
    w, Q = np.linalg.eigh(G)
    root = np.sqrt(np.maximum(w, 1e-14 * w[-1]))
    x, _ = nnls(root[:, None] * Q.T, (Q.T @ target) / root)
    # Once more on the constraints found active, where G itself decides.
    active = x > 0.0
    if active.any():
        part = G[np.ix_(active, active)]
        exact = np.linalg.lstsq(part, target[active], rcond=1e-14)[0]
        if (exact > 0.0).all():
            x[active] = exact
    return np.asarray(x)
