# SPDX-License-Identifier: BSD-3-Clause
"""Solver ``newton``: exact QML for all classes at once.

Classes are sorted by size, padded to one of a few sizes and
solved in chunks that fit the cache. Where the samples of other classes span the space,
classes are first solved for a P of rank one
(:func:`dualqml.core.rank_one.solve_rank_one`), which is the solution of most of them.
All others are solved by :func:`dualqml.core.krylov_solver.solve_batch`.
How a class is padded depends on its own size alone and classes never influence each
other, so results are bitwise equal for any chunk size and any number of threads.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.core.class_chunks import ClassChunk, class_chunks
from dualqml.core.initial_point import single_sample_table
from dualqml.core.krylov_solver import BatchSolution, solve_batch
from dualqml.core.problem import FACTOR_TOLERANCE, QMLSolution
from dualqml.core.rank_one import solve_rank_one
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
        # In a part of the classes, there may be none.
        others = Z[~unresolved]
        row = others[0] if len(others) else np.sqrt(spectrum.eigenvalues)
        Z = np.where(unresolved[:, None], row, Z)
    shared = spectrum.shared
    table = single_sample_table(
        spectrum.eigenvalues,
        Z,
        1.0 / max(lams),
        1.0 / min(lams),
        squared_norm_range=None if shared is None else shared.squared_norm_range,
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


@dataclass(frozen=True)
class _ChunkSolution:
    """What is kept of a chunk's solution: the roots that are not zero."""

    v: Array  # (C, k): scaled multipliers
    kept: Mask  # (C, k): which roots are kept
    roots: Array  # (n_kept,)
    vectors: Array  # (n_kept, rank)
    root_shifts: Array  # (n_kept,)
    n_iter: NDArray[np.int64]  # (C,)

    @classmethod
    def of(cls, found: BatchSolution) -> "_ChunkSolution":
        kept = found.roots > FACTOR_TOLERANCE * found.roots[:, :1]
        return cls(
            found.v,
            kept,
            found.roots[kept],
            found.vectors[kept],
            found.root_shifts[kept],
            found.n_iter,
        )


def _solve_chunk(
    chunk: ClassChunk,
    state: _WarmStart | None,
    *,
    spectrum: ScatterSpectrum,
    start: tuple[Array, Array],
    lam: float,
    tol: float,
    max_iter: int,
) -> tuple[_ChunkSolution, _WarmStart]:
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
    solve_general = partial(
        solve_batch,
        L=spectrum.eigenvalues,
        inv_lam=1.0 / lam,
        tol=tol,
        max_iter=max_iter,
        continuation_decades=_continuation_decades(spectrum, lam),
    )
    if _may_have_rank_one(spectrum, real.shape[1]):
        simple = solve_rank_one(Z, spectrum.eigenvalues, real, 1.0 / lam, root, tol=tol)
        found = simple.as_batch()
        rest = np.flatnonzero(~simple.accepted)
        if rest.size:
            # The best solution of rank one is a good start, if there is one.
            usable = np.isfinite(simple.gap[rest])
            part = solve_general(
                Z[rest],
                real=real[rest],
                v=np.where(usable[:, None], simple.v[rest], v[rest]),
                largest_root=np.where(usable, simple.root[rest], root[rest]),
            )
            found.put(rest, part)
    else:
        found = solve_general(Z, real=real, v=v, largest_root=root)
    largest = found.roots[:, 0]
    largest = np.where(largest > 0.0, largest, start_root)
    return _ChunkSolution.of(found), _WarmStart(found.v, largest, start_v, start_root)


def _may_have_rank_one(spectrum: ScatterSpectrum, k: int) -> bool:
    """Whether solutions of rank one are likely for classes of k samples.

    They are not if the samples of other classes do not span the space: in each free
    direction that active samples have, M(v) is negative.
    """
    return spectrum.n_samples - k >= spectrum.rank


def _continuation_decades(spectrum: ScatterSpectrum, lam: float) -> int:
    """Powers of ten from lam down to an easy one, lam = 100 on unit-norm rows."""
    mean_squared_norm = spectrum.eigenvalues.sum() / spectrum.n_samples
    # The same problem on rows of unit norm has this lambda.
    effective = lam * mean_squared_norm**2
    power = int(np.ceil(np.log10(max(effective, 1e-300))))
    return max(_MIN_CONTINUATION_DECADES, power - _EASY_LAM_POWER)


def _gather(
    chunks: Sequence[ClassChunk],
    solutions: Sequence[_ChunkSolution],
    spectrum: ScatterSpectrum,
    n_classes: int,
    lam: float,
) -> QMLSolution:
    """Put the solutions of the chunks into the order of classes and samples."""
    multipliers = np.zeros(spectrum.coordinates.shape[0])
    ranks = np.zeros(n_classes, dtype=np.int64)
    n_iter = np.zeros(n_classes, dtype=np.int64)
    for chunk, found in zip(chunks, solutions, strict=True):
        multipliers[chunk.samples[chunk.real]] = lam * found.v[chunk.real]
        ranks[chunk.classes] = found.kept.sum(axis=1)
        n_iter[chunk.classes] = found.n_iter
    first = np.cumsum(ranks) - ranks
    factors = np.empty((ranks.sum(), spectrum.rank))
    root_shifts = np.empty(factors.shape[0])
    for chunk, found in zip(chunks, solutions, strict=True):
        rows = first[chunk.classes][:, None] + np.cumsum(found.kept, axis=1) - 1
        rows = rows[found.kept]
        factors[rows] = np.sqrt(lam * found.roots)[:, None] * found.vectors
        root_shifts[rows] = found.root_shifts
    return QMLSolution(lam, factors, ranks, multipliers, n_iter, root_shifts)
