# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours, exact and in bounded memory.

Similarities: the cosine, or minus the squared Euclidean distance. Ties go to
the lowest gallery index, and a vector of zeros never yields NaN.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from dualqml.core.arrays import Array, Index

Metric = Literal["cosine", "euclidean"]

#: Bytes of the similarity matrix held at a time.
_SIMILARITY_BYTES = 8_000_000


def unit_rows(features: Array) -> Array:
    """Rows scaled to unit norm; a row of zeros stays zero, never NaN."""
    norms = np.sqrt(np.einsum("ij,ij->i", features, features))
    return features / np.where(norms > 0.0, norms, 1.0)[:, None]


def squared_distances(A: Array, B: Array) -> Array:
    """Squared Euclidean distances between the rows of A and those of B."""
    square_a, square_b = np.einsum("ij,ij->i", A, A), np.einsum("ij,ij->i", B, B)
    return _distances(square_a, square_b, A @ B.T)


def gram_distances(gram: Array) -> Array:
    """Squared Euclidean distances between rows of which the products are known."""
    squares = np.diagonal(gram)
    return _distances(squares, squares, gram.copy())


def _distances(square_a: Array, square_b: Array, products: Array) -> Array:
    """In the place of the products."""
    products *= -2.0
    products += square_a[:, None] + square_b
    return np.maximum(products, 0.0, out=products)


def nearest(queries: Array, gallery: Array, metric: Metric = "cosine") -> Index:
    """Index of the most similar gallery row; ties go to the lowest index.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors; of unit norm, from :func:`unit_rows`, for the cosine.
    metric : {"cosine", "euclidean"}, default="cosine"
        The similarity.

    Returns
    -------
    ndarray of shape (n_queries,)
        Rows of the gallery.
    """
    out = np.empty(queries.shape[0], dtype=np.intp)
    for rows, similarity in _similarities(queries, gallery, metric):
        out[rows] = similarity.argmax(axis=1)
    return out


def class_similarities(
    queries: Array,
    gallery: Array,
    codes: Index,
    n_classes: int,
    metric: Metric = "cosine",
) -> Array:
    """Largest similarity to the gallery rows of each class.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors; of unit norm, from :func:`unit_rows`, for the cosine.
    codes : ndarray of shape (n_gallery,)
        Class of each gallery row, 0 to n_classes - 1, every class present.
    n_classes : int
        Number of classes.
    metric : {"cosine", "euclidean"}, default="cosine"
        The similarity.

    Returns
    -------
    ndarray of shape (n_queries, n_classes)
        Cosines, or minus squared distances.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    starts = np.cumsum(counts) - counts
    out = np.empty((queries.shape[0], n_classes))
    for rows, similarity in _similarities(queries, gallery[order], metric):
        out[rows] = np.maximum.reduceat(similarity, starts, axis=1)
    return out


def _similarities(
    queries: Array, gallery: Array, metric: Metric
) -> Iterator[tuple[slice, Array]]:
    step = max(1, _SIMILARITY_BYTES // (8 * gallery.shape[0]))
    for start in range(0, queries.shape[0], step):
        rows = slice(start, start + step)
        part = queries[rows]
        if metric == "cosine":
            yield rows, unit_rows(part) @ gallery.T
        else:
            yield rows, -squared_distances(part, gallery)
