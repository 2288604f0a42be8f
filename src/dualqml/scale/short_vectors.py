# SPDX-License-Identifier: BSD-3-Clause
"""Short vectors, whose products with probes are nearly the scores of classes.

The score of a class of rank one is linear in the probe u at unit norm and in its
coordinates z, which are those of ``(u - mean) A`` at unit norm. The norm of
``(u - mean) A`` differs little between probes. With this norm fixed at its mean, and
with a vector r for z and a vector m for u, the score is

    (A r / norm + m) . (u - mean) + m . mean

plus a number that is the same for all classes: a vector and a constant for each class,
instead of the vectors r and m. If the cosine has no weight, m is zero, and the product
of r and z is the score without an approximation.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array, Index, Mask
from dualqml.exceptions import RecognitionError
from dualqml.recognition.exact_scorer import ClassBlock, ExactScorer
from dualqml.recognition.folded_search import (
    ExpSums,
    Leaders,
    fit_for_single,
    linear_parts,
    product_blocks,
)

Single = NDArray[np.float32]

#: Vectors of a file that are checked at a time.
_ROWS = 4096


class ShortVectors(NamedTuple):
    """The short vectors of all linear classes.

    Attributes
    ----------
    vectors : ndarray of shape (n_linear, n_inputs)
        The vectors.
    constants : ndarray of shape (n_linear,)
        What is added to their products.
    classes : ndarray of int of shape (n_linear,)
        Numbers of the classes, in ascending order.
    """

    vectors: Single
    constants: Single
    classes: Index


class Taker(Protocol):
    """What takes short vectors, class after class."""

    def add(self, vectors: Array, queries: Array | None) -> None:
        """Take the vectors of some classes, and queries for their means if known."""


def query_width(scorer: ExactScorer) -> int:
    """Length of short vectors.

    Parameters
    ----------
    scorer : ExactScorer
        The model.

    Returns
    -------
    int
        The length.
    """
    if scorer.scale.cosine_weight:
        return scorer.mean.size
    return int(scorer.coefficients.shape[1])


def short_queries(scorer: ExactScorer, z: Array, units: Array) -> Array:
    """What short vectors are multiplied with.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    z, units : ndarray of shape (n_probes, n_coordinates), (n_probes, n_inputs)
        Coordinates and unit vectors of probes.

    Returns
    -------
    ndarray of shape (n_probes, width)
        The queries.
    """
    return units - scorer.mean if scorer.scale.cosine_weight else z


def short_vectors(scorer: ExactScorer, taker: Taker | None = None) -> ShortVectors:
    """The short vectors of a model.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    taker : Taker, optional
        Gets all vectors in double precision, too.

    Returns
    -------
    ShortVectors
        The vectors.
    """
    # Rows that are not needed take no memory: they are never touched.
    vectors = np.empty((scorer.n_classes, query_width(scorer)), np.float32)
    constants = np.zeros(scorer.n_classes, np.float32)
    classes: list[Index] = []
    start = 0
    norm = _mean_norm(scorer) if scorer.scale.cosine_weight else 1.0
    for block in scorer.class_blocks():
        linear, rows, added = _short(scorer, block, norm)
        end = start + len(rows)
        vectors[start:end], constants[start:end] = rows, added
        start = end
        classes.append(block.classes.start + np.flatnonzero(linear))
        if taker is not None:
            queries = None
            if block.means is not None:
                own = scorer.queries(block.means[linear])
                queries = short_queries(scorer, *own)
            taker.add(rows, queries)
    return ShortVectors(vectors[:start], constants[:start], np.concatenate(classes))


def _mean_norm(scorer: ExactScorer) -> float:
    """The mean norm of coordinates before they are scaled to unit norm."""
    total = 0.0
    for block in scorer.class_blocks():
        assert block.means is not None
        rows = (block.means - scorer.mean) @ scorer.coefficients
        total += float(np.sqrt(np.einsum("ij,ij->i", rows, rows)).sum())
    norm = total / scorer.n_classes
    if not 0.0 < norm < math.inf:
        raise RecognitionError("Class means have no coordinates: train the model again")
    return norm


def _short(
    scorer: ExactScorer, block: ClassBlock, norm: float
) -> tuple[Mask, Array, Array]:
    """Which classes of a block are linear, their vectors and their constants."""
    linear, rows, cosines = linear_parts(block, scorer.scale)
    constants = np.zeros(len(rows))
    if cosines is not None:
        rows = rows @ (scorer.coefficients.T / norm) + cosines
        constants = cosines @ scorer.mean
    # Sums may be far from usual numbers where their parts are not.
    fit = fit_for_single(_sizes(rows, constants))
    linear[linear] = fit
    return linear, rows[fit], constants[fit]


class FlatIndex:
    """The largest of the products with all vectors.

    Parameters
    ----------
    short : ShortVectors
        The vectors.
    """

    def __init__(self, short: ShortVectors) -> None:
        self._short, self.classes = short, short.classes

    def proposals(self, queries: Array, k: int) -> Iterator[tuple[Index, float]]:
        """Classes that may be the best of each query.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, width)
            The `short_queries`.
        k : int
            How many classes are wanted.

        Yields
        ------
        classes : ndarray of int
            At least k classes, or all.
        rest : float
            Logarithm of the sum of the exponentials of the products of all others.
        """
        vectors, constants, classes = self._short
        leaders = Leaders(len(queries), k, np.zeros(len(queries)))
        sums = ExpSums(len(queries))
        for block in product_blocks(vectors, queries.astype(np.float32), constants):
            leaders.add(block)
            sums.add(block)
        for query, places in enumerate(leaders.places):
            yield classes[places], sums.log_without(query, leaders.products[query])

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a file keeps: arrays and settings.

        Returns
        -------
        arrays, settings : dict
            The arrays, and no settings.
        """
        return {"vectors": self._short.vectors, "constants": self._short.constants}, {}

    @classmethod
    def restored(
        cls, arrays: dict[str, NDArray[Any]], classes: Index, width: int
    ) -> Self:
        """The index of a file.

        Parameters
        ----------
        arrays : dict of str to ndarray
            The arrays of the file.
        classes : ndarray of int of shape (n_linear,)
            The classes.
        width : int
            Length of the vectors.

        Returns
        -------
        FlatIndex
            The index.

        Raises
        ------
        ValueError
            The arrays do not fit.
        """
        vectors, constants = arrays["vectors"], arrays["constants"]
        single = vectors.dtype == constants.dtype == np.float32
        shapes = (classes.size, width), (classes.size,)
        if not single or (vectors.shape, constants.shape) != shapes:
            raise ValueError("its vectors are not those of this model")
        for start in range(0, len(vectors), _ROWS):
            part = slice(start, start + _ROWS)
            if not fit_for_single(_sizes(vectors[part], constants[part])).all():
                raise ValueError("it has numbers that no shortlist has")
        return cls(ShortVectors(vectors, constants, classes))


def _sizes(vectors: NDArray[Any], constants: NDArray[Any]) -> Array:
    """The largest numbers of vectors and their constants."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    return np.asarray(np.maximum(largest, np.abs(constants)), dtype=np.float64)
