# SPDX-License-Identifier: BSD-3-Clause
"""Classes of different sizes, cut into rectangular batches of bounded size.

The solver and the certificate work on arrays with a class axis, so the classes of a
batch must have the same number of samples. Smaller classes are padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index

#: A group of fewer classes than this takes in the classes of the next larger size, so
#: that there are few groups.
_MIN_GROUP_SIZE = 32
#: But only up to this multiple of the smallest size in the group (or one sample more):
#: padded samples cost as much time as real ones.
_MAX_PADDING_RATIO = 1.34


@dataclass(frozen=True)
class ClassChunk:
    """Classes handled together, padded to the same number of samples."""

    classes: Index  # (C,): which classes
    samples: Index  # (C, k): rows in the data; 0 where padded
    real: NDArray[np.bool_]  # (C, k): False where padded

    def gather(self, rows: Array) -> Array:
        """Rows of the own samples, of shape (C, k, n_columns), zero where padded."""
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
        How many bytes the own samples of a chunk may take, approximately. A chunk
        has at least one class.

    Returns
    -------
    list of ClassChunk
        Every class with samples is in exactly one chunk.
    """
    sizes = np.array([len(own) for own in members])
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    chunks = []
    start = int(np.searchsorted(ascending, 0, side="right"))
    while start < order.size:
        k = int(ascending[start])
        limit = max(int(_MAX_PADDING_RATIO * k), k + 1)
        stop = int(np.searchsorted(ascending, k, side="right"))
        while (
            stop - start < _MIN_GROUP_SIZE
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
