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

    How a class is padded depends on its own size alone, so its solution does not
    depend on the sizes of other classes.

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
    padded = padded_sizes(np.array([len(own) for own in members], dtype=np.int64))
    order = np.argsort(padded, kind="stable")
    ascending = padded[order]
    chunks = []
    start = int(np.searchsorted(ascending, 0, side="right"))
    while start < order.size:
        k = int(ascending[start])
        stop = int(np.searchsorted(ascending, k, side="right"))
        # Own samples, or the reduced matrices where classes are large.
        per_class = 8 * max(k * rank, min(4 * k, rank) ** 2)
        step = max(1, chunk_bytes // per_class)
        for first in range(start, stop, step):
            chunks.append(_chunk(order[first : min(first + step, stop)], members, k))
        start = stop
    return chunks


def padded_sizes(sizes: Index) -> Index:
    """Numbers of samples to which classes are padded: four in each doubling.

    Padded samples cost as much time as real ones, and each group of classes costs time
    too. So there are few groups, and at most a quarter of the samples is added.

    Parameters
    ----------
    sizes : ndarray of int
        Numbers of samples.

    Returns
    -------
    ndarray of int
        The padded numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.core.class_chunks import padded_sizes
    >>> padded_sizes(np.array([0, 1, 7, 8, 9, 17, 200]))
    array([  0,   1,   7,   8,  10,  20, 224])
    """
    _, bits = np.frexp(sizes)
    step = 2 ** np.maximum(bits.astype(np.int64) - 3, 0)
    return np.asarray(-(-sizes // step) * step)


def single_class_chunk(own: Index) -> ClassChunk:
    """A chunk of one class, without padding.

    Parameters
    ----------
    own : ndarray of shape (n_own,)
        The indices of its samples.

    Returns
    -------
    ClassChunk
        The chunk.
    """
    return ClassChunk(np.zeros(1, np.intp), own[None], np.ones((1, own.size), bool))


def _chunk(classes: Index, members: Sequence[Index], k: int) -> ClassChunk:
    sizes = np.array([len(members[c]) for c in classes])
    real = np.arange(k) < sizes[:, None]
    samples = np.zeros((classes.size, k), dtype=np.intp)
    samples[real] = np.concatenate([members[c] for c in classes])
    return ClassChunk(classes, samples, real)
