# SPDX-License-Identifier: BSD-3-Clause
"""An inverted file of FAISS for short vectors.

It groups vectors that are near to each other, and a search looks into the groups near
the probe only. But vectors of classes and probes have other scales. A vector b is a
filter: it is about ``M v`` for a query v of its class, and M amplifies what varies
little within people. With such vectors an inverted file finds next to nothing. So both
are balanced. With ``M = T T'``,

    b . v = (T^-1 b) . (T' v),

and now ``T^-1 b`` is near to ``T' v``. M is the symmetric matrix that turns the
covariance of the queries for class means into that of the vectors, ``M Q M = B``. Then
both have the same covariance S, and in its axes S is diagonal: this is the balanced
realisation of control theory. Unlike a regression of b on v, it has no noise where
class means vary hardly. The variance of the products in an axis is the square of its
number in S; axes that have next to none are left out.

FAISS is imported when it is needed.
"""

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dualqml._typing import Array, Index, Mask
from dualqml.exceptions import MissingDependencyError, RecognitionError
from dualqml.scale.short_vectors import ShortVectors, Single

#: Vectors that are balanced at a time.
_ROWS = 4096
#: An index of n vectors has so many times the root of n groups, and looks into such a
#: share of them.
_GROUPS, _SHARE = 4.0, 0.3
#: Settings of k-means: its rounds, means of unit norm, and how many vectors of a group
#: it learns from. With fewer than the least it would print a warning.
_CLUSTERING = {
    "niter": 10,
    "spherical": True,
    "max_points_per_centroid": 64,
    "min_points_per_centroid": 1,
}
#: FAISS is fastest if vectors have a multiple of so many numbers.
_LANES = 16
#: Share of the variance of products that may be left out.
_LEFT_OUT = 1e-4
#: Less than any sum of squares.
_TINY = 1e-300
#: How much larger a vector is, in an index, than its constant. Groups should be near in
#: their vectors; their mean constants are exact anyway.
_CONSTANT_SHARE = 10.0
#: The largest number in half precision of vectors whose median norm is 1.
_MOST_HALF = 3e4


class Moments:
    """Sums from which the covariances of short vectors and queries follow.

    Parameters
    ----------
    width : int
        Length of the vectors.
    """

    def __init__(self, width: int) -> None:
        self._n, self._has_queries = 0, True
        self._vectors, self._queries = np.zeros((2, width))
        self._vector_squares, self._query_squares = np.zeros((2, width, width))

    def add(self, vectors: Array, queries: Array | None) -> None:
        """Add the vectors of some classes, and queries for their means if known."""
        self._n += len(vectors)
        self._vectors += vectors.sum(axis=0)
        self._vector_squares += vectors.T @ vectors
        if queries is None:
            self._has_queries = False
        else:
            self._queries += queries.sum(axis=0)
            self._query_squares += queries.T @ queries

    def centre(self) -> Array:
        """The mean of the vectors.

        Returns
        -------
        ndarray of shape (width,)
            The mean.
        """
        return self._vectors / self._n

    def balance(self) -> tuple[Array, Array]:
        """What vectors and queries are multiplied with, from the right.

        Returns
        -------
        to_vector, to_query : ndarray of shape (width, n_axes)
            The transposed inverse of T, and T, in the axes of the balanced vectors.
            Both are the identity if there are no queries for class means, or these do
            not tell.
        """
        if self._has_queries:
            left = _root(self._queries, self._query_squares, self._n)
            right = _root(self._vectors, self._vector_squares, self._n)
            before, sizes, after = np.linalg.svd(left.T @ right)
            shares = np.cumsum(sizes**2) / max(float(np.sum(sizes**2)), _TINY)
            kept = int(np.count_nonzero(shares < 1.0 - _LEFT_OUT)) + 1
            kept = min(kept, sizes.size)
            if sizes[kept - 1] > 0.0:
                scales = 1.0 / np.sqrt(sizes[:kept])
                to_vector = left @ before[:, :kept] * scales
                return to_vector, right @ after[:kept].T * scales
        identity = np.eye(self._vectors.size)
        return identity, identity


class InvertedFile:
    """Large products from the groups near a query.

    Parameters
    ----------
    index : faiss.IndexIVFScalarQuantizer
        The index of FAISS.
    classes : ndarray of int of shape (n_vectors,)
        The classes of its vectors.
    to_query : ndarray of shape (width, n_axes)
        What balances queries.
    shift : float
        Factor of the constants.
    n_probes : int
        Number of groups into which a search looks.
    content : ndarray of bytes, optional
        The array that the index refers to, if it has no memory of its own.
    """

    def __init__(
        self,
        index: Any,
        classes: Index,
        to_query: Array,
        shift: float,
        n_probes: int,
        content: NDArray[np.uint8] | None = None,
    ) -> None:
        self._index, self.classes = index, classes
        self._to_query, self._shift, self._n_probes = to_query, shift, n_probes
        self._content = content

    @classmethod
    def built(
        cls,
        short: ShortVectors,
        moments: Moments,
        *,
        n_lists: int | None = None,
        n_probes: int | None = None,
    ) -> Self:
        """Group vectors; the same vectors always give the same index.

        Parameters
        ----------
        short : ShortVectors
            The vectors.
        moments : Moments
            Their moments.
        n_lists, n_probes : int, optional
            Number of groups, and how many of them a search looks into.

        Returns
        -------
        InvertedFile
            The index.
        """
        to_vector, to_query = moments.balance()
        rows, shift, fit = _balanced(short, moments.centre(), to_vector)
        if n_lists is None:
            n_lists = math.ceil(_GROUPS * math.sqrt(len(rows)))
        n_lists = min(n_lists, len(rows))
        if n_probes is None:
            n_probes = math.ceil(_SHARE * n_lists)
        n_probes = min(n_probes, n_lists)
        with threadpool_limits(1):
            index = _trained(rows, n_lists)
        return cls(index, short.classes[fit], to_query, shift, n_probes)

    def proposals(self, queries: Array, k: int) -> Iterator[tuple[Index, float]]:
        """Classes that may be the best of each query.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, width)
            The queries.
        k : int
            How many classes are wanted.

        Yields
        ------
        classes : ndarray of int
            k classes, or all.
        rest : float
            -inf: nothing is known of the others.
        """
        n_axes = self._to_query.shape[1]
        rows = np.zeros((len(queries), self._index.d), np.float32)
        rows[:, :n_axes], rows[:, n_axes] = queries @ self._to_query, self._shift
        k = min(k, self.classes.size)
        places = self._found(rows, k, self._n_probes)
        # The groups may have fewer than k classes in all.
        few = np.flatnonzero((places < 0).any(axis=1))
        if few.size:
            places[few] = self._found(rows[few], k, self._index.nlist)
        if places.min(initial=0) < 0 or places.max(initial=0) >= self.classes.size:
            raise RecognitionError("The index does not have the classes of the model")
        for own in places:
            yield self.classes[own], -math.inf

    def _found(self, rows: Single, k: int, n_probes: int) -> NDArray[np.int64]:
        """Places of the k largest products; -1 where there are fewer."""
        settings = import_faiss().SearchParametersIVF(nprobe=n_probes)
        return np.asarray(self._index.search(rows, k, params=settings)[1])

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a file keeps: arrays and settings.

        Returns
        -------
        arrays, settings : dict
            The index as bytes, and numbers.
        """
        content = self._content
        if content is None:
            content = import_faiss().serialize_index(self._index)
        arrays = {"faiss": content, "to_query": self._to_query}
        return arrays, {"shift": self._shift, "n_probes": self._n_probes}

    @classmethod
    def restored(
        cls,
        arrays: dict[str, NDArray[Any]],
        settings: dict[str, Any],
        classes: Index,
        width: int,
    ) -> Self:
        """The index of a file, without a copy of its vectors if FAISS can.

        Parameters
        ----------
        arrays : dict of str to ndarray
            The arrays of the file.
        settings : dict
            Its settings.
        classes : ndarray of int of shape (n_vectors,)
            The classes.
        width : int
            Length of queries.

        Returns
        -------
        InvertedFile
            The index.

        Raises
        ------
        ValueError
            The arrays or the settings do not fit.
        """
        content, to_query = arrays["faiss"], arrays["to_query"]
        n_probes, shift = settings["n_probes"], settings["shift"]
        known = (
            content.dtype == np.uint8
            and content.ndim == 1
            and to_query.dtype == np.float64
            and to_query.ndim == 2
            and len(to_query) == width
            and bool(np.isfinite(to_query).all())
            and type(shift) is float
            and type(n_probes) is int
        )
        if not known or n_probes < 1:
            raise ValueError("its index is not one of this model")
        faiss = import_faiss()
        try:
            index = _opened(content)
        # It raises RuntimeError for bytes that are no index.
        except RuntimeError as error:
            raise ValueError("its index is damaged") from error
        ours = (
            type(index) is faiss.IndexIVFScalarQuantizer
            and index.metric_type == faiss.METRIC_INNER_PRODUCT
            and index.d == _padded(to_query.shape[1])
            and index.ntotal == classes.size
        )
        if not ours:
            raise ValueError("its index is not one of this model")
        return cls(index, classes, to_query, shift, n_probes, content)


def _root(total: Array, squares: Array, n: int) -> Array:
    """A matrix R with the covariance R R', from sums over n rows."""
    mean = total / n
    values, axes = np.linalg.eigh(squares / n - np.outer(mean, mean))
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


def import_faiss() -> Any:
    """The module of FAISS.

    Returns
    -------
    module
        The module.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingDependencyError(
            'index="ivf" needs FAISS: pip install "dualqml[search]"'
        ) from error
    return faiss


def _padded(n_axes: int) -> int:
    """Numbers of a vector and its constant, in an index."""
    return -(-(n_axes + 1) // _LANES) * _LANES


def _balanced(
    short: ShortVectors, centre: Array, to_vector: Array
) -> tuple[Single, float, Mask]:
    """Rows of an index, the factor of the constants, and which vectors have a row.

    The mean of all vectors adds the same to all products of a query. It is left out.
    """
    n_axes = to_vector.shape[1]
    rows = np.zeros((len(short.vectors), _padded(n_axes)), np.float32)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        # Rows that are too large are left out in the end.
        with np.errstate(over="ignore"):
            rows[part, :n_axes] = (short.vectors[part] - centre) @ to_vector
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    unit = float(np.median(norms)) or 1.0
    rows /= np.float32(unit)
    constants = short.constants.astype(np.float64)
    constants = (constants - np.median(constants)) / unit
    shift = _CONSTANT_SHARE * float(np.median(np.abs(constants))) or 1.0
    rows[:, n_axes] = constants / shift
    fit = np.abs(rows).max(axis=1) <= _MOST_HALF
    return rows[fit], shift, fit


def _trained(rows: Single, n_lists: int) -> Any:
    """An inverted file of vectors in half precision."""
    faiss = import_faiss()
    index = faiss.index_factory(
        rows.shape[1], f"IVF{n_lists},SQfp16", faiss.METRIC_INNER_PRODUCT
    )
    for name, value in _CLUSTERING.items():
        setattr(index.cp, name, value)
    index.train(rows)
    index.add(rows)
    return index


def _opened(content: NDArray[np.uint8]) -> Any:
    """The index in an array of bytes."""
    faiss = import_faiss()
    if not hasattr(faiss, "ZeroCopyIOReader"):
        return faiss.deserialize_index(np.array(content))
    reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(content), content.size)
    return faiss.read_index(reader, faiss.IO_FLAG_MMAP_IFC)
