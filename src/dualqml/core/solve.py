# SPDX-License-Identifier: BSD-3-Clause
"""One entry point for the three solvers, and solutions with a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.certificate import (
    Certificate,
    certify,
    certify_class,
    certify_directly,
)
from dualqml.core.inertia import OtherSamples
from dualqml.core.newton import newton_path
from dualqml.core.problem import QMLSolution
from dualqml.core.reference import solve_lbfgs, solve_sdp
from dualqml.core.single_class import other_samples, solve_class, span_coordinates
from dualqml.core.spectrum import (
    ScatterSpectrum,
    SharedSpectrum,
    norm_scale,
    sample_spectrum,
    scatter_spectrum,
)

Solver = Literal["newton", "lbfgs", "sdp"]

#: Iterations allowed for a class if the caller gives no number: of Newton's method at
#: each level of the solver, of L-BFGS-B, of the conic solver.
DEFAULT_MAX_ITER = {"newton": 50, "lbfgs": 200, "sdp": 10_000}

#: If the certificate rejects at least this many classes, they are first certified again
#: by singular values, which is as much work as solving one class alone.
_MIN_REJECTED_FOR_SVD = 4
#: Rejected classes are solved one by one as long as all their decompositions take no
#: more floating-point operations than this, about a minute.
_MAX_SINGLE_CLASS_OPERATIONS = 2e12


def solve(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    lam: float,
    *,
    solver: Solver = "newton",
    tol: float = 1e-6,
    max_iter: int | None = None,
    n_jobs: int = 1,
) -> QMLSolution:
    """Solve problem (5) for every class.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum of the scatter of all samples, from
        :func:`~dualqml.core.scatter_spectrum`.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        - "newton": all classes at once, exact and fast.
        - "lbfgs": the paper's Algorithm 1, a slow reference.
        - "sdp": a general conic solver through CVXPY, an independent check
          of small problems.
    tol : float, default=1e-6
        Relative duality gap and constraint violation asked for.
    max_iter : int, optional
        Iterations allowed for a class; what counts as one depends on the solver.
    n_jobs : int, default=1
        Threads of the newton solver. Limit the threads of the BLAS library to
        one during the call.

    Returns
    -------
    QMLSolution
        The quadratic matrices as factors, and the multipliers.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import scatter_spectrum, solve
    >>> X = np.array([[1.0, 0.1], [0.9, -0.1], [0.1, 1.0], [-0.1, 0.8]])
    >>> members = [np.array([0, 1]), np.array([2, 3])]
    >>> solve(scatter_spectrum(X), members, lam=1.0).ranks
    array([1, 1])
    """
    if max_iter is None:
        max_iter = DEFAULT_MAX_ITER[solver]
    if solver == "newton":
        (solution,) = newton_path(
            spectrum, members, [lam], tol=tol, max_iter=max_iter, n_jobs=n_jobs
        )
        return solution
    if solver == "lbfgs":
        return solve_lbfgs(spectrum, members, lam, tol=tol, max_iter=max_iter)
    return solve_sdp(spectrum, members, lam, tol=tol, max_iter=max_iter)


@dataclass(frozen=True)
class CertifiedSolution:
    """Quadratic matrices of all classes in the space of the samples, certified.

    Attributes
    ----------
    components : ndarray of shape (sum of ranks, n_features)
        Rows f with ``P_c = sum f f'`` over the rows of class c, class after
        class.
    ranks : ndarray of shape (n_classes,)
        How many rows belong to each class.
    multipliers : ndarray of shape (n_samples,)
        The variables u of the dual (12), in the order of the samples.
    n_iter : ndarray of shape (n_classes,)
        Iterations that each class took; what counts as one depends on the solver.
    certificate : Certificate
        How good the solution is, class by class.
    rounding_limited : boolean ndarray of shape (n_classes,)
        Classes that are not proven to be as good as asked for, only because of the
        bounds on rounding errors: the computed numbers are good enough.
    """

    components: Array
    ranks: NDArray[np.int64]
    multipliers: Array
    n_iter: NDArray[np.int64]
    certificate: Certificate
    rounding_limited: Mask


def solve_certified(
    X: Array,
    members: Sequence[Index],
    lam: float,
    *,
    solver: Solver = "newton",
    tol: float = 1e-6,
    max_iter: int | None = None,
    n_jobs: int = 1,
) -> CertifiedSolution:
    """Solve problem (5) for every class and prove how good the solutions are.

    First all classes are solved at once. The certificate may reject some, because
    of rounding errors or because they are not solved. With solver "newton" these are
    certified again by singular values of the samples, and solved one by one if that
    is not enough.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        All samples of all classes, one row per sample, none of them zero.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        As in :func:`solve`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation asked for.
    max_iter : int, optional
        Iterations allowed for a class; what counts as one depends on the solver.
    n_jobs : int, default=1
        Threads of the newton solver.

    Returns
    -------
    CertifiedSolution
        Factors and multipliers, and their certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import solve_certified
    >>> X = np.array([[1.0, 0.1], [0.9, -0.1], [0.1, 1.0], [-0.1, 0.8]])
    >>> found = solve_certified(X, [np.array([0, 1]), np.array([2, 3])], lam=1.0)
    >>> bool((found.certificate.gap < 1e-6).all())
    True
    """
    # Scale the rows to a norm of about one. Samples s times as long are the same
    # problem with lam s^4, P / s^2 and u / s^4. For powers of two this is exact.
    scale = norm_scale(float(np.einsum("ij,ij->", X, X)) / X.shape[0])
    lam = lam * scale**4
    if scale != 1.0:
        X = X / scale
    max_iter = DEFAULT_MAX_ITER[solver] if max_iter is None else max_iter
    spectrum = scatter_spectrum(X)
    shared = solve(
        spectrum,
        members,
        lam,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
    )
    components = spectrum.back_project(shared.factors)
    certificate = certify(spectrum, members, shared, components=components, tol=tol)
    ranks, multipliers, n_iter = shared.ranks, shared.multipliers, shared.n_iter
    rounding_limited = np.zeros(len(members), dtype=bool)
    if not (certificate.worst <= tol).all():
        found = _ImprovableSolution(X, members, lam, shared, components, certificate)
        if solver == "newton":
            if found.rejected(tol).size >= _MIN_REJECTED_FOR_SVD:
                found.certify_by_singular_values(tol)
            found.solve_one_by_one(tol, max_iter)
        certificate, rounding_limited = found.certificate, found.rounding_limited(tol)
        components = np.concatenate(found.blocks)
        ranks = np.array([block.shape[0] for block in found.blocks])
        multipliers, n_iter = found.multipliers, found.n_iter
    solution = CertifiedSolution(
        components, ranks, multipliers, n_iter, certificate, rounding_limited
    )
    return _unscaled(solution, scale)


def solve_part(
    X: Array,
    members: Sequence[Index],
    lam: float,
    shared: SharedSpectrum,
    *,
    tol: float = 1e-6,
    max_iter: int | None = None,
    n_jobs: int = 1,
) -> CertifiedSolution:
    """Solve problem (5) for some of the classes, and prove how good the solutions are.

    Classes know of each other only by the scatter of all samples. So any part of them
    can be solved by itself. Unlike :func:`solve_certified`, classes that the
    certificate rejects are not solved again, which would need all samples.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        The samples of these classes, one row per sample, none of them zero.
    members : sequence of ndarray
        For each of these classes, the indices of its samples.
    lam : float
        The regularisation parameter lambda > 0.
    shared : SharedSpectrum
        The spectrum of the scatter of all samples of all classes, from
        :func:`~dualqml.core.shared_spectrum`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation asked for.
    max_iter : int, optional
        Newton iterations allowed for a class at each level of the solver.
    n_jobs : int, default=1
        Number of threads.

    Returns
    -------
    CertifiedSolution
        Factors and multipliers of these classes, and their certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core import shared_spectrum, solve_certified, solve_part
    >>> X = np.array([[1.0, 0.1], [0.9, -0.1], [0.1, 1.0], [-0.1, 0.8]])
    >>> members = [np.array([0, 1]), np.array([2, 3])]
    >>> squares = (X * X).sum(axis=1)
    >>> shared = shared_spectrum(X.T @ X, 4, (squares.min(), squares.max()))
    >>> second = solve_part(X[2:], members[:1], 1.0, shared)
    >>> together = solve_certified(X, members, 1.0)
    >>> bool(np.allclose(abs(second.components), abs(together.components[1:])))
    True
    """
    if shared.scale != 1.0:
        X = X / shared.scale
    spectrum = shared.of_rows(X)
    solution = solve(
        spectrum,
        members,
        lam * shared.scale**4,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
    )
    components = spectrum.back_project(solution.factors)
    certificate = certify(spectrum, members, solution, components=components, tol=tol)
    rounding_limited = np.zeros(len(members), dtype=bool)
    rejected = np.flatnonzero(~(certificate.worst <= tol))
    if rejected.size:
        plain = certify(
            spectrum, members, solution, components=components, tol=tol, rounding=False
        )
        rounding_limited[rejected] = plain.worst[rejected] <= tol
    found = CertifiedSolution(
        components,
        solution.ranks,
        solution.multipliers,
        solution.n_iter,
        certificate,
        rounding_limited,
    )
    return _unscaled(found, shared.scale)


def _unscaled(found: CertifiedSolution, scale: float) -> CertifiedSolution:
    """The solution for samples that are `scale` times as long."""
    if scale == 1.0:
        return found
    certificate = replace(
        found.certificate,
        primal=found.certificate.primal / scale**4,
        dual=found.certificate.dual / scale**4,
    )
    return replace(
        found,
        components=found.components / scale,
        multipliers=found.multipliers / scale**4,
        certificate=certificate,
    )


class _ImprovableSolution:
    """The best solution of every class so far, and ways to improve it."""

    def __init__(
        self,
        X: Array,
        members: Sequence[Index],
        lam: float,
        shared: QMLSolution,
        components: Array,
        certificate: Certificate,
    ) -> None:
        self.X, self.members, self.lam = X, members, lam
        self.blocks = np.split(components, shared.first_rows[1:-1])
        self.multipliers = shared.multipliers.copy()
        self.n_iter = shared.n_iter.copy()
        self.certificate = certificate
        # Spectra of the classes whose present solution was found one by one.
        self.other_samples: dict[int, OtherSamples] = {}

    def rejected(self, tol: float) -> Index:
        """Classes that are not proven to be as good as asked for."""
        return np.flatnonzero(~(self.certificate.worst <= tol))

    def certify_by_singular_values(self, tol: float) -> None:
        """Certify the rejected classes with a spectrum that has smaller errors."""
        rejected = self.rejected(tol)
        part = self.part(rejected, sample_spectrum(self.X))
        again = certify_directly(*part, tol=tol)
        better = again.worst < self.certificate.worst[rejected]
        self.keep(rejected[better], again.of(better))

    def part(
        self, classes: Index, spectrum: ScatterSpectrum
    ) -> tuple[ScatterSpectrum, list[Index], QMLSolution, Array]:
        """What is needed to certify some of the classes."""
        blocks = [self.blocks[c] for c in classes]
        components = np.concatenate(blocks)
        solution = QMLSolution(
            self.lam,
            spectrum.project(components),
            np.array([block.shape[0] for block in blocks]),
            self.multipliers,
            self.n_iter[classes],
        )
        return spectrum, [self.members[c] for c in classes], solution, components

    def keep(self, classes: Index, certificate: Certificate) -> None:
        """Replace the certificates of some classes."""
        self.certificate = self.certificate.with_part(classes, certificate)

    def solve_one_by_one(self, tol: float, max_iter: int) -> None:
        """Solve the rejected classes one by one, within the limit of operations."""
        rejected = self.rejected(tol)
        if rejected.size == 0:
            return
        n_samples, rank = self.X.shape[0], min(self.X.shape)
        limit = max(
            1, int(_MAX_SINGLE_CLASS_OPERATIONS / (20.0 * n_samples * rank * rank))
        )
        coordinates, basis = span_coordinates(self.X)
        for c in rejected[:limit]:
            own = self.members[c]
            others = other_samples(coordinates, basis, own)
            found = solve_class(
                self.X, own, self.lam, others, tol=tol, max_iter=max_iter
            )
            self.n_iter[c] += found.n_iter
            if found.certificate.worst[0] < self.certificate.worst[c]:
                self.blocks[c] = found.components
                self.multipliers[own] = found.multipliers
                self.keep(np.array([c]), found.certificate)
                self.other_samples[int(c)] = others

    def rounding_limited(self, tol: float) -> Mask:
        """Rejected classes that would be accepted without the bounds on rounding."""
        out = np.zeros(len(self.members), dtype=bool)
        rejected = self.rejected(tol)
        shared = np.array(
            [c for c in rejected if int(c) not in self.other_samples], dtype=int
        )
        if shared.size:
            part = self.part(shared, scatter_spectrum(self.X))
            plain = certify(*part[:3], components=part[3], tol=tol, rounding=False)
            out[shared] = plain.worst <= tol
        for c in rejected:
            if int(c) in self.other_samples:
                own = self.members[c]
                plain = certify_class(
                    self.X,
                    own,
                    self.lam,
                    self.blocks[c],
                    self.multipliers[own],
                    self.other_samples[int(c)],
                    tol=tol,
                    rounding=False,
                )
                out[c] = plain.worst[0] <= tol
        return out
