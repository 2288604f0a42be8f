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
from dualqml.core.problem import QMLSolution
from dualqml.core.spectrum import ScatterSpectrum

#: Bytes of own samples a chunk holds; its temporaries are about ten times that.
CHUNK_BYTES = 4_000_000
#: Roots below this fraction of a class's largest are not kept as factors.
_ROOT_TOLERANCE = 1e-12


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
    solution starts from the one before. Samples that are no more than rounding
    noise in the spectrum, so small are they beside the others, get no constraint.

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
        Newton iterations allowed at each level of the cascade.
    n_jobs : int, default=1
        Threads. Cap the threads of the BLAS library to one around the call.
    chunk_bytes : int, default=4_000_000
        Size of a chunk of classes; about ten times that is the temporary
        memory of each thread.
    warm_start : bool, default=True
        Start each lambda from the solution of the one before.

    Yields
    ------
    QMLSolution
        One solution for each lambda, in the order given.
    """
    lams = [float(lam) for lam in lams]
    n_classes, Z = len(members), spectrum.coordinates
    lost = spectrum.lost
    if lost.any():
        members = [own[~lost[own]] for own in members]
        Z = np.where(lost[:, None], Z[np.flatnonzero(~lost)[0]], Z)
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
                # Ctrl-C above all: do not begin with the chunks that wait.
                pool.shutdown(cancel_futures=True)
                raise
            if warm_start:
                states = [state for _, state in done]
            found = [solution for solution, _ in done]
            yield _gather(chunks, found, spectrum, n_classes, lam)


@dataclass(frozen=True)
class _WarmStart:
    """A chunk's solution at one lambda beside its single-sample start there."""

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
    real = chunk.real
    Z = chunk.gather(spectrum.coordinates)
    start_v = np.where(real, start[0][chunk.samples], 0.0)
    start_root = np.where(real, start[1][chunk.samples], 0.0).max(axis=1)
    v, root = start_v, start_root
    if state is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.nan_to_num(start_v / state.start_v, nan=1.0)
        v = state.v * np.clip(growth, 1e-3, 1e3)
        growth = start_root / state.start_root
        root = state.root * np.clip(growth, 1e-3, 1e3)
    found = solve_batch(
        Z,
        spectrum.eigenvalues,
        real,
        1.0 / lam,
        v,
        root,
        tol=tol,
        max_iter=max_iter,
        n_easings=_n_easings(spectrum, lam),
    )
    largest = found.roots[:, 0]
    largest = np.where(largest > 0.0, largest, start_root)
    return found, _WarmStart(found.v, largest, start_v, start_root)


def _n_easings(spectrum: ScatterSpectrum, lam: float) -> int:
    """Powers of ten from lam down to an easy one, lam = 100 on unit-norm rows."""
    mean_squared_norm = spectrum.eigenvalues.sum() / spectrum.coordinates.shape[0]
    effective = lam * mean_squared_norm**2
    return max(4, int(np.ceil(np.log10(max(effective, 1e-300)))) - 2)


def _gather(
    chunks: Sequence[ClassChunk],
    solutions: Sequence[BatchSolution],
    spectrum: ScatterSpectrum,
    n_classes: int,
    lam: float,
) -> QMLSolution:
    """Put the solutions of the chunks into the order of classes and samples."""
    dual = np.zeros(spectrum.coordinates.shape[0])
    ranks = np.zeros(n_classes, dtype=np.int64)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    keep = []
    for chunk, found in zip(chunks, solutions, strict=True):
        dual[chunk.samples[chunk.real]] = lam * found.v[chunk.real]
        kept = found.roots > _ROOT_TOLERANCE * found.roots[:, :1]
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
        root_shifts[rows[kept]] = found.shifts[kept]
    return QMLSolution(lam, factors, ranks, dual, n_iter, root_shifts)
