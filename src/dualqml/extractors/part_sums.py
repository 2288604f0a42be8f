# SPDX-License-Identifier: BSD-3-Clause
"""Sums over parts of the classes, from which everything common is learnt.

A fit needs of all samples together only a few sums: their number, mean and scatter,
their scatter within classes, and the scatter of their coordinates. So the classes can
be divided into parts that are read one after the other, or on several machines.

Which part a class belongs to depends on its label alone, and the number of parts on the
number of samples and features. The rows of a part are sorted by class, and those of a
class are in the order of the samples. Sums of parts are merged in a fixed binary tree.
So the result is the same to the last bit, however the samples arrive.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualqml._linalg import class_means, unit_rows, within_contrasts
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError

#: Bytes of a part in double precision. Solving it takes about four times as much.
PART_BYTES = 64_000_000
#: Bytes of rows in double precision that are handled at a time.
_CHUNK_BYTES = 8_000_000
#: The scatter of all samples relative to their squares, if they are equal but for
#: rounding.
_SAME_SAMPLES = 1e-26
#: Constants of the finaliser of SplitMix64, which spreads any whole numbers evenly.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Sums = TypeVar("Sums")


def count_parts(n_samples: int, n_features: int, part_bytes: int = PART_BYTES) -> int:
    """Number of parts, a function of the size of the data alone.

    Parameters
    ----------
    n_samples, n_features : int
        Size of the data.
    part_bytes : int, default=64_000_000
        Bytes of a part in double precision.

    Returns
    -------
    int
        At least 1, and no more if there are not more samples than features: then a
        usual fit does not use the scatter, and is more accurate.

    Examples
    --------
    >>> from dualqml.extractors.part_sums import count_parts
    >>> count_parts(300_000, 128)
    5
    """
    if n_samples <= n_features:
        return 1
    return max(1, -(-8 * n_samples * n_features // part_bytes))


def label_hashes(labels: NDArray[Any]) -> NDArray[np.uint64]:
    """Numbers that depend on the labels alone, spread evenly over 64 bits.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        64-bit whole numbers, or text.

    Returns
    -------
    ndarray of shape (n_samples,)
        Equal labels have equal numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.part_sums import label_hashes
    >>> a, b = label_hashes(np.array(["Ann", "Bob"])), label_hashes(np.array(["Bob"]))
    >>> bool(a[1] == b[0]), bool(a[0] == a[1])
    (True, False)
    """
    if labels.dtype.kind != "U":
        return _mixed(labels.astype(np.int64).view(np.uint64))
    width = max(1, labels.dtype.itemsize // 4)
    letters = np.ascontiguousarray(labels).view(np.uint32).reshape(labels.size, width)
    found = np.zeros(labels.size, dtype=np.uint64)
    for column in letters.T:
        # The end of shorter text is filled with zeros, which must not count.
        mixed = _mixed(found ^ column.astype(np.uint64))
        found = np.where(column > 0, mixed, found)
    return found


def part_numbers(hashes: NDArray[np.uint64], n_parts: int) -> Index:
    """The part of each label. Larger hashes never belong to an earlier part.

    Parameters
    ----------
    hashes : ndarray of uint64
        From :func:`label_hashes`.
    n_parts : int
        Number of parts.

    Returns
    -------
    ndarray of int
        Numbers from 0 to n_parts - 1.
    """
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(n_parts)) >> np.uint64(32)).astype(np.intp)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        values = values + np.uint64(_GOLDEN)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))


def merged_in_tree(parts: Iterable[Sums], merge: Callable[[Sums, Sums], Sums]) -> Sums:
    """Merge the sums of parts in a fixed binary tree.

    Parameters
    ----------
    parts : iterable
        The sums of at least one part, in the order of the parts. They are taken one by
        one, and about as many are kept as the number of parts has binary digits.
    merge : callable
        Merges two sums.

    Returns
    -------
    object
        The sums of all parts.

    Examples
    --------
    >>> from dualqml.extractors.part_sums import merged_in_tree
    >>> merged_in_tree("abcde", lambda a, b: f"({a}{b})")
    '(((ab)(cd))e)'
    """
    waiting: list[tuple[int, Sums]] = []
    for found in parts:
        level = 0
        while waiting and waiting[-1][0] == level:
            found = merge(waiting.pop()[1], found)
            level += 1
        waiting.append((level, found))
    _, total = waiting.pop()
    while waiting:
        total = merge(waiting.pop()[1], total)
    return total


@dataclass(frozen=True)
class PartRows:
    """The samples of a part.

    Attributes
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Samples as given, sorted by class.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class, none of them zero.
    """

    rows: NDArray[np.floating]
    counts: Index

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Cut the part between classes into chunks of a few megabytes.

        Yields
        ------
        rows, classes : slice
            The samples and the classes of a chunk.
        """
        most = max(1, _CHUNK_BYTES // (8 * max(1, self.rows.shape[1])))
        ends = np.cumsum(self.counts)
        first, start = 0, 0
        while first < ends.size:
            last = int(np.searchsorted(ends, start + most, side="right"))
            last = max(last, first + 1)
            yield slice(start, int(ends[last - 1])), slice(first, last)
            first, start = last, int(ends[last - 1])

    @property
    def codes(self) -> Index:
        """The class of each row."""
        return np.repeat(np.arange(self.counts.size), self.counts)


def input_rows(rows: NDArray[np.floating], *, unit: bool) -> Array:
    """Samples in double precision, at unit norm if `unit` is set.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Samples.
    unit : bool
        Whether they are scaled. A single feature has no direction, and is not.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        Inputs of the metric, or of QML itself.
    """
    data = np.asarray(rows, dtype=np.float64)
    return unit_rows(data) if unit and data.shape[1] > 1 else data


@dataclass(frozen=True)
class CosineSums:
    """Sums over class means at unit norm, for the cosines of a recogniser.

    Attributes
    ----------
    mean_scatter : ndarray of shape (n_inputs, n_inputs)
        ``M'M`` of the means M of the classes, at unit norm.
    mean_sum : ndarray of shape (n_inputs,)
        Sum of these means.
    own, own_squares : float
        Sum of the cosines of samples with the mean of their own class, and of their
        squares.
    """

    mean_scatter: Array
    mean_sum: Array
    own: float
    own_squares: float

    @classmethod
    def of_rows(cls, units: Array, codes: Index, means: Array) -> "CosineSums":
        """The sums of some classes."""
        own = np.einsum("ij,ij->i", units, means[codes])
        return cls(
            means.T @ means, means.sum(axis=0), float(own.sum()), float(own @ own)
        )

    def merged(self, other: "CosineSums") -> "CosineSums":
        """The sums of these and other classes."""
        return CosineSums(
            self.mean_scatter + other.mean_scatter,
            self.mean_sum + other.mean_sum,
            self.own + other.own,
            self.own_squares + other.own_squares,
        )


@dataclass(frozen=True)
class InputSums:
    """Sums over the inputs of some classes.

    Attributes
    ----------
    n_samples, n_classes : int
        Numbers of samples and classes.
    mean : ndarray of shape (n_inputs,)
        Mean of the samples.
    total : ndarray of shape (n_inputs, n_inputs)
        Scatter about the mean.
    within : ndarray of shape (n_inputs, n_inputs)
        Scatter about the means of the classes.
    class_mean_sum : ndarray of shape (n_inputs,)
        Sum of the means of the classes.
    square_sum, largest_square : float
        Sum of the squared norms, and the largest of them.
    cosines : CosineSums or None
        What a recogniser needs too.
    """

    n_samples: int
    n_classes: int
    mean: Array
    total: Array
    within: Array
    class_mean_sum: Array
    square_sum: float
    largest_square: float
    cosines: CosineSums | None = None

    @classmethod
    def of_part(
        cls, part: PartRows, *, unit: bool, cosines: bool = False
    ) -> "InputSums":
        """The sums of a part.

        Parameters
        ----------
        part : PartRows
            The samples.
        unit : bool
            Whether samples are scaled to unit norm.
        cosines : bool, default=False
            Whether to compute what a recogniser needs too.

        Returns
        -------
        InputSums
            The sums.
        """
        chunks = (
            cls._of_chunk(
                input_rows(part.rows[rows], unit=unit),
                np.repeat(np.arange(part.counts[classes].size), part.counts[classes]),
                cosines=cosines,
            )
            for rows, classes in part.chunks()
        )
        return merged_in_tree(chunks, cls.merged)

    @classmethod
    def _of_chunk(cls, inputs: Array, codes: Index, *, cosines: bool) -> "InputSums":
        mean = inputs.mean(axis=0)
        centred = inputs - mean
        contrasts = within_contrasts(inputs, codes)
        means, counts = class_means(inputs, codes)
        squares = np.einsum("ij,ij->i", inputs, inputs)
        return cls(
            codes.size,
            counts.size,
            mean,
            centred.T @ centred,
            contrasts.T @ contrasts,
            means.sum(axis=0),
            float(squares.sum()),
            float(squares.max()),
            CosineSums.of_rows(inputs, codes, unit_rows(means)) if cosines else None,
        )

    def merged(self, other: "InputSums") -> "InputSums":
        """The sums of these and other classes, by the formula of Chan et al.

        Parameters
        ----------
        other : InputSums
            Sums over other classes.

        Returns
        -------
        InputSums
            The sums over both.
        """
        n_samples = self.n_samples + other.n_samples
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.n_samples / n_samples)
        weight = self.n_samples * (other.n_samples / n_samples)
        cosines = None
        if self.cosines is not None and other.cosines is not None:
            cosines = self.cosines.merged(other.cosines)
        return InputSums(
            n_samples,
            self.n_classes + other.n_classes,
            mean,
            self.total + other.total + weight * np.outer(apart, apart),
            self.within + other.within,
            self.class_mean_sum + other.class_mean_sum,
            self.square_sum + other.square_sum,
            max(self.largest_square, other.largest_square),
            cosines,
        )

    @property
    def input_scatter(self) -> Array:
        """Scatter of the samples as they are, not about their mean."""
        return self.total + self.n_samples * np.outer(self.mean, self.mean)

    def check_different(self) -> None:
        """Raise if all samples are equal.

        Raises
        ------
        DualQMLError
            They are.
        """
        if not float(np.trace(self.total)) > _SAME_SAMPLES * self.square_sum:
            raise DualQMLError(
                "All samples are equal: there is no direction to learn. Check that the "
                "rows of X are different samples."
            )


@dataclass(frozen=True)
class CoordinateSums:
    """Sums over the coordinates of some classes.

    Attributes
    ----------
    scatter : ndarray of shape (d, d)
        ``Z'Z`` of the samples that are used.
    n_used : int
        Number of samples that are not zero vectors.
    squared_norm_range : tuple of float
        Smallest and largest squared norm of these.
    longest_sum : int
        Most rounding errors that a term of an entry of the scatter has met: far fewer
        than samples, because sums over chunks and parts are added up.
    """

    scatter: Array
    n_used: int
    squared_norm_range: tuple[float, float]
    longest_sum: int

    def merged(self, other: "CoordinateSums") -> "CoordinateSums":
        """The sums of these and other classes.

        Parameters
        ----------
        other : CoordinateSums
            Sums over other classes.

        Returns
        -------
        CoordinateSums
            The sums over both.
        """
        (low, high), (other_low, other_high) = (
            self.squared_norm_range,
            other.squared_norm_range,
        )
        return CoordinateSums(
            self.scatter + other.scatter,
            self.n_used + other.n_used,
            (min(low, other_low), max(high, other_high)),
            max(self.longest_sum, other.longest_sum) + 1,
        )
