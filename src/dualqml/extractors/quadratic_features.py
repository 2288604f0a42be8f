# SPDX-License-Identifier: BSD-3-Clause
"""Quadratic features, their signed roots, and profiles made of them.

A profile is the vector of a sample's responses to all classes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dualqml._linalg import unit_rows
from dualqml._typing import Array, Index

#: Bytes of the intermediate product held at a time.
_PRODUCT_BYTES = 2_000_000
#: Rows handled at a time where sums over rows are computed.
_ROW_BLOCK = 4096


def quadratic_features(
    X: NDArray[np.floating], components: Array, ranks: NDArray[np.int64]
) -> Array:
    """Step 3 of Algorithm 1: f_c(x) = x'P_c x for every sample and class.

    It takes one matrix product with all factors, and then the sum of squares over
    the factors of each class, in chunks of samples.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.
    components : ndarray of shape (sum of ranks, n_features)
        Factors of all classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        The features, in double precision.
    """

    def squares(product: Array) -> Array:
        np.square(product, out=product)
        return _class_sums(product, ranks)

    return _apply_in_chunks(X, components, ranks, squares)


def signed_root_features(
    X: NDArray[np.floating],
    components: Array,
    ranks: NDArray[np.int64],
    mean_responses: Array,
) -> Array:
    """Square roots of the quadratic features, with a sign.

    ``g_c(x) = sign(x'P_c m_c) sqrt(x'P_c x)`` with the mean m_c of the class:
    the features of x and -x have opposite signs, and grow linearly with x.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.
    components : ndarray of shape (sum of ranks, n_features)
        Factors of all classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.
    mean_responses : ndarray of shape (sum of ranks,)
        Scalar product of each factor and the mean of its class.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        The features, in double precision; zero counts as positive.
    """

    def signed_roots(product: Array) -> Array:
        towards_mean = _class_sums(mean_responses[:, None] * product, ranks)
        np.square(product, out=product)
        roots = np.sqrt(_class_sums(product, ranks))
        return np.where(towards_mean < 0.0, -roots, roots)

    return _apply_in_chunks(X, components, ranks, signed_roots)


def energies_of_others(
    X: Array, codes: Index, components: Array, ranks: NDArray[np.int64]
) -> Array:
    """Mean of x'P_c x over the samples of all other classes, for every class.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    components : ndarray of shape (sum of ranks, n_features)
        Factors of all classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.

    Returns
    -------
    ndarray of shape (n_classes,)
        The mean energies; zero if there is no other class.
    """
    # The sum over all samples is tr(P_c X'X), of which X'X can be much smaller than X.
    if X.shape[1] < codes.size:
        factors = np.einsum("ij,ij->i", components @ (X.T @ X), components)
    else:
        factors = np.einsum("ij,ij->j", *(2 * [X @ components.T]))
    counts = np.bincount(codes, minlength=ranks.size)
    everyone = _sums_by_class(factors, ranks)
    own = own_energies(X, codes, components, ranks)
    return np.maximum(everyone - own, 0.0) / np.maximum(codes.size - counts, 1)


def energies_in_scatter(
    components: Array, ranks: NDArray[np.int64], scatter: Array
) -> Array:
    """Sum of x'P_c x over all samples for some classes, from the scatter of all.

    Parameters
    ----------
    components : ndarray of shape (sum of ranks, n_features)
        Factors of the classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.
    scatter : ndarray of shape (n_features, n_features)
        ``X'X`` of all samples.

    Returns
    -------
    ndarray of shape (n_classes,)
        ``tr(P_c X'X)``.
    """
    factors = np.empty(len(components))
    for start in range(0, len(components), _ROW_BLOCK):
        rows = components[start : start + _ROW_BLOCK]
        energies = np.einsum("ij,ij->i", rows @ scatter, rows)
        factors[start : start + _ROW_BLOCK] = energies
    return _sums_by_class(factors, ranks)


def own_energies(
    X: Array, codes: Index, components: Array, ranks: NDArray[np.int64]
) -> Array:
    """Sum of x'P_c x over the samples of each class itself.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    components : ndarray of shape (sum of ranks, n_features)
        Factors of all classes, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.

    Returns
    -------
    ndarray of shape (n_classes,)
        The sums.
    """
    # Every pair of a sample and a factor of its class.
    n_own = ranks[codes]
    samples = np.repeat(np.arange(codes.size), n_own)
    before = np.cumsum(n_own) - n_own
    first = (np.cumsum(ranks) - ranks)[codes]
    factors = np.arange(samples.size) + np.repeat(first - before, n_own)
    responses = np.empty(samples.size)
    for start in range(0, samples.size, _ROW_BLOCK):
        part = slice(start, start + _ROW_BLOCK)
        responses[part] = np.einsum(
            "ij,ij->i", X[samples[part]], components[factors[part]]
        )
    sums = np.bincount(codes[samples], responses**2, minlength=ranks.size)
    return np.asarray(sums, dtype=np.float64)


def profile_gallery(
    features: Array, codes: Index, *, own_weight: float, centre: bool
) -> tuple[Array, Array | None]:
    """Prepare training features for cosine similarity.

    Parameters
    ----------
    features : ndarray of shape (n_training, n_classes)
        Responses of the training samples to all classes.
    codes : ndarray of shape (n_training,)
        Classes of the training samples.
    own_weight : float
        Factor of each sample's response to its own class.
    centre : bool
        Whether to subtract the mean of the training features.

    Returns
    -------
    gallery : ndarray of shape (n_training, n_classes)
        The profiles, scaled to unit norm.
    mean : ndarray of shape (n_classes,) or None
        The mean to subtract from the features of a probe; None if not `centre`.
    """
    if own_weight != 1.0:
        features = features.copy()
        features[np.arange(codes.size), codes] *= own_weight
    if not centre:
        return unit_rows(features), None
    mean = features.mean(axis=0)
    return unit_rows(features - mean), mean


def centred(features: Array, mean: Array | None) -> Array:
    """Features of probes minus the mean of the training features, if given."""
    return features if mean is None else features - mean


def _apply_in_chunks(
    X: NDArray[np.floating],
    components: Array,
    ranks: NDArray[np.int64],
    features: Callable[[Array], Array],
) -> Array:
    """Apply a function to the products of factors and samples, chunk by chunk."""
    out = np.empty((X.shape[0], ranks.size))
    step = max(16, _PRODUCT_BYTES // (8 * max(components.shape[0], 1)))
    for start in range(0, X.shape[0], step):
        chunk = X[start : start + step].astype(np.float64, copy=False)
        out[start : start + step] = features(components @ chunk.T).T
    return out


def _sums_by_class(factors: Array, ranks: NDArray[np.int64]) -> Array:
    """Sums of one number per factor over the factors of each class."""
    class_of = np.repeat(np.arange(ranks.size), ranks)
    sums = np.bincount(class_of, factors, minlength=ranks.size)
    return np.asarray(sums, dtype=np.float64)


def _class_sums(rows: Array, ranks: NDArray[np.int64]) -> Array:
    """Sums of the rows of each class; zero for a class without rows."""
    if (ranks == 1).all():
        return rows
    has_rows = ranks > 0
    starts = (np.cumsum(ranks) - ranks)[has_rows]
    if has_rows.all():
        return np.asarray(np.add.reduceat(rows, starts, axis=0))
    out = np.zeros((ranks.size, rows.shape[1]))
    if has_rows.any():
        out[has_rows] = np.add.reduceat(rows, starts, axis=0)
    return out
