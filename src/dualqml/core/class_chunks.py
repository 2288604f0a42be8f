# SPDX-License-Identifier: BSD-3-Clause
"""Classes of any mix of sizes, as rectangular batches of bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index

#: Fewer classes of one size than this join the next size, padded ...
_LONE_GROUP = 32
#: ... up to this factor (or by one sample).
_PADDING = 1.34


@dataclass(frozen=True)
class ClassChunk:
    """Classes handled together, their samples padded to the same number."""

    classes: Index  # (C,)
    samples: Index  # (C, k): row in the data; 0 where padded
    real: NDArray[np.bool_]  # (C, k): False where padded

    def gather(self, rows: Array) -> Array:
        """Own rows of each class, (C, k, n_columns), zero where padded."""
        out = rows[self.samples]
        if not self.real.all():
            out[~self.real] = 0.0
        return out


def class_chunks(
    members: Sequence[Index], rank: int, chunk_bytes: int
) -> list[ClassChunk]:
    """Group classes of similar size and cut the groups into chunks.

    How a class is padded depends on the class sizes alone, never on
    `chunk_bytes`.

    Parameters
    ----------
    members : sequence of ndarray
        For each class, the indices of its samples.
    rank : int
        Number of coordinates of a sample.
    chunk_bytes : int
        About how many bytes the own samples of a chunk may take; a chunk has
        at least one class.

    Returns
    -------
    list of ClassChunk
        Every class is in exactly one chunk, but for those without samples.
    """
    sizes = np.array([len(own) for own in members])
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    chunks = []
    start = int(np.searchsorted(ascending, 0, side="right"))
    while start < order.size:
        k = int(ascending[start])
        limit = max(int(_PADDING * k), k + 1)
        stop = int(np.searchsorted(ascending, k, side="right"))
        while (
            stop - start < _LONE_GROUP
            and stop < order.size
            and ascending[stop] <= limit
        ):
            k = int(ascending[stop])
            stop = int(np.searchsorted(ascending, k, side="right"))
        # Own samples, or the reduced matrices where classes are large.
        per_class = 8 * max(k * rank, min(4 * k, rank) ** 2)
        step = max(1, chunk_bytes // per_class)
        for first in range(start, stop, step):
            chunks.append(_chunk(order[first : min(first + step, stop)], members, k))
        start = stop
    return chunks


def _chunk(classes: Index, members: Sequence[Index], k: int) -> ClassChunk:
    sizes = np.array([len(members[c]) for c in classes])
    real = np.arange(k) < sizes[:, None]
    samples = np.zeros((classes.size, k), dtype=np.intp)
    samples[real] = np.concatenate([members[c] for c in classes])
    return ClassChunk(classes, samples, real)
