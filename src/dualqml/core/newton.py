# SPDX-License-Identifier: BSD-3-Clause
"""Solver ``newton``: exact QML for all classes at once.

Classes are sorted by size, grouped, padded to the largest of their group and
solved in chunks that fit the cache (:func:`dualqml.core.krylov_solver.solve_batch`).
Groups depend on the class sizes alone and chunks never influence each other,
so results are bitwise equal for any chunk size and any number of threads.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualqml._typing import Array, Index
from dualqml.core.class_chunks import ClassChunk, class_chunks
from dualqml.core.initial_point import single_sample_table
from dualqml.core.krylov_solver import BatchSolution, solve_batch
from dualqml.core.problem import FACTOR_TOLERANCE, QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

#: Bytes of own samples that a chunk holds; its temporaries take about ten times that.
CHUNK_BYTES = 4_000_000
#: A warm start changes the last solution by no more than this factor.
_MAX_GROWTH = 1e3
#: Lambda, as a power of ten and on rows of unit norm, at which Newton's method needs no
#: continuation as a rule. Continuation starts there, and at least this many powers of
#: ten below the lambda asked for.
_EASY_LAM_POWER, _MIN_CONTINUATION_DECADES = 2, 4


def newton_path(
    spectrum: ScatterSpectrum,
    members: Sequence[Index],
    lams: Iterable[float],
    *,
    tol: float = 1e-6,
    max_iter: int = 50,
    n_jobs: int = 1,
    chunk_bytes: int = CHUNK_BYTES,
    warm_start: bool = True,
) -> Iterator[QMLSolution]:
    """Solve problem (5) for every class along a path of lambdas.

    The spectrum and the table of single-sample starts are shared, and each
    solution starts from the one before. Samples so much smaller than the others that
    they are only rounding noise in the spectrum get no constraint.

    Parameters
    ----------
    spectrum : ScatterSpectrum
        The spectrum of the scatter of all samples.
    members : sequence of ndarray
        For each class, the indices of its samples.
    lams : iterable of float
        The values of lambda, best in monotonic order.
    tol : float, default=1e-6
        Relative duality gap at which a class is solved.
    max_iter : int, default=50
        Newton iterations allowed at each level of the solver.
    n_jobs : int, default=1
        Number of threads. Limit the threads of the BLAS library to one during the
        call.
    chunk_bytes : int, default=4_000_000
        Size of a chunk of classes. Each thread needs about ten times as much
        temporary memory.
    warm_start : bool, default=True
        Start each lambda from the solution of the one before.

    Yields
    ------
    QMLSolution
        One solution for each lambda, in the order given.
    """
    lams = [float(lam) for lam in lams]
    n_classes, Z = len(members), spectrum.coordinates
    unresolved = spectrum.unresolved
    if unresolved.any():
        members = [own[~unresolved[own]] for own in members]
        # The table needs rows that are not zero: use another sample in their place.
        Z = np.where(unresolved[:, None], Z[np.flatnonzero(~unresolved)[0]], Z)
    table = single_sample_table(
        spectrum.eigenvalues, Z, 1.0 / max(lams), 1.0 / min(lams)
    )
    chunks = class_chunks(members, spectrum.rank, chunk_bytes)
    states: list[_WarmStart | None] = [None] * len(chunks)
    with ThreadPoolExecutor(max(1, n_jobs)) as pool:
        for lam in lams:
            work = partial(
                _solve_chunk,
                spectrum=spectrum,
                start=table.start(1.0 / lam),
                lam=lam,
                tol=tol,
                max_iter=max_iter,
            )
            try:
                done = list((map if n_jobs == 1 else pool.map)(work, chunks, states))
            except BaseException:
                # Mainly for Ctrl-C: do not start the chunks that still wait.
                pool.shutdown(cancel_futures=True)
                raise
            if warm_start:
                states = [state for _, state in done]
            found = [solution for solution, _ in done]
            yield _gather(chunks, found, spectrum, n_classes, lam)


@dataclass(frozen=True)
class _WarmStart:
    """A chunk's solution at one lambda, and its single-sample start there."""

    v: Array
    root: Array
    start_v: Array
    start_root: Array


def _solve_chunk(
    chunk: ClassChunk,
    state: _WarmStart | None,
    *,
    spectrum: ScatterSpectrum,
    start: tuple[Array, Array],
    lam: float,
    tol: float,
    max_iter: int,
) -> tuple[BatchSolution, _WarmStart]:
    """Solve the classes of a chunk, and tell where the next lambda may start."""
    real = chunk.real
    Z = chunk.gather(spectrum.coordinates)
    start_v = np.where(real, start[0][chunk.samples], 0.0)
    start_root = np.where(real, start[1][chunk.samples], 0.0).max(axis=1)
    v, root = start_v, start_root
    if state is not None:
        # Change the last solution as the single-sample problem changes.
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.nan_to_num(start_v / state.start_v, nan=1.0)
        v = state.v * np.clip(growth, 1.0 / _MAX_GROWTH, _MAX_GROWTH)
        growth = start_root / state.start_root
        root = state.root * np.clip(growth, 1.0 / _MAX_GROWTH, _MAX_GROWTH)
    found = solve_batch(
        Z,
        spectrum.eigenvalues,
        real,
        1.0 / lam,
        v,
        root,
        tol=tol,
        max_iter=max_iter,
        continuation_decades=_continuation_decades(spectrum, lam),
    )
    largest = found.roots[:, 0]
    largest = np.where(largest > 0.0, largest, start_root)
    return found, _WarmStart(found.v, largest, start_v, start_root)


def _continuation_decades(spectrum: ScatterSpectrum, lam: float) -> int:
    """Powers of ten from lam down to an easy one, lam = 100 on unit-norm rows."""
    mean_squared_norm = spectrum.eigenvalues.sum() / spectrum.coordinates.shape[0]
    # The same problem on rows of unit norm has this lambda.
    effective = lam * mean_squared_norm**2
    power = int(np.ceil(np.log10(max(effective, 1e-300))))
    return max(_MIN_CONTINUATION_DECADES, power - _EASY_LAM_POWER)


def _gather(
    chunks: Sequence[ClassChunk],
    solutions: Sequence[BatchSolution],
    spectrum: ScatterSpectrum,
    n_classes: int,
    lam: float,
) -> QMLSolution:
    """Put the solutions of the chunks into the order of classes and samples."""
    multipliers = np.zeros(spectrum.coordinates.shape[0])
    ranks = np.zeros(n_classes, dtype=np.int64)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    keep = []
    for chunk, found in zip(chunks, solutions, strict=True):
        multipliers[chunk.samples[chunk.real]] = lam * found.v[chunk.real]
        kept = found.roots > FACTOR_TOLERANCE * found.roots[:, :1]
        ranks[chunk.classes] = kept.sum(axis=1)
        n_iter[chunk.classes] = found.n_iter
        keep.append(kept)
    first = np.cumsum(ranks) - ranks
    factors = np.empty((ranks.sum(), spectrum.rank))
    root_shifts = np.empty(factors.shape[0])
    for chunk, found, kept in zip(chunks, solutions, keep, strict=True):
        rows = first[chunk.classes][:, None] + np.cumsum(kept, axis=1) - 1
        scale = np.sqrt(lam * found.roots[kept])
        factors[rows[kept]] = scale[:, None] * found.vectors[kept]
        root_shifts[rows[kept]] = found.root_shifts[kept]
    return QMLSolution(lam, factors, ranks, multipliers, n_iter, root_shifts)
