# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbour with cosine similarity, exact and in bounded memory."""

from collections.abc import Iterator

import numpy as np

from dualqml.core.arrays import Array, Index

#: Bytes of the similarity matrix held at a time.
_SIMILARITY_BYTES = 8_000_000


def unit_rows(features: Array) -> Array:
    """Rows scaled to unit norm; a row of zeros stays zero, never NaN."""
    norms = np.sqrt(np.einsum("ij,ij->i", features, features))
    return features / np.where(norms > 0.0, norms, 1.0)[:, None]


def cosine_nearest(queries: Array, gallery: Array) -> Index:
    """Index of the most similar gallery row; ties go to the lowest index.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors of unit norm, from :func:`unit_rows`.

    Returns
    -------
    ndarray of shape (n_queries,)
        Rows of the gallery.
    """
    out = np.empty(queries.shape[0], dtype=np.intp)
    for rows, similarity in _similarities(queries, gallery):
        out[rows] = similarity.argmax(axis=1)
    return out


def cosine_to_classes(
    queries: Array, gallery: Array, codes: Index, n_classes: int
) -> Array:
    """Largest cosine similarity to the gallery rows of each class.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Feature vectors.
    gallery : ndarray of shape (n_gallery, n_features)
        Feature vectors of unit norm, from :func:`unit_rows`.
    codes : ndarray of shape (n_gallery,)
        Class of each gallery row, 0 to n_classes - 1, every class present.
    n_classes : int
        Number of classes.

    Returns
    -------
    ndarray of shape (n_queries, n_classes)
        Similarities between -1 and 1.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    starts = np.cumsum(counts) - counts
    out = np.empty((queries.shape[0], n_classes))
    for rows, similarity in _similarities(queries, gallery[order]):
        out[rows] = np.maximum.reduceat(similarity, starts, axis=1)
    return out


def _similarities(queries: Array, gallery: Array) -> Iterator[tuple[slice, Array]]:
    step = max(1, _SIMILARITY_BYTES // (8 * gallery.shape[0]))
    for start in range(0, queries.shape[0], step):
        rows = slice(start, start + step)
        yield rows, unit_rows(queries[rows]) @ gallery.T
