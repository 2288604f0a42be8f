# SPDX-License-Identifier: BSD-3-Clause
"""Training samples that come and go: what is computed of each, kept for later fits.

A fit of DualQML-W needs the inputs of its metric, their tangents, and the products of
all pairs of samples. None of it depends on what is learnt. A recogniser keeps it, so
that a person who comes or goes costs little more than the learning.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from dualqml._typing import Array, Index

if TYPE_CHECKING:
    from dualqml.extractors.dual_qml_w import DualQMLW

#: Blocks along a side of the matrices of pairs. One who comes or goes changes one
#: row and one column of them: an eighth of the work.
_N_BUCKETS = 16

#: Where less of the samples than this is not common to all, products with what is
#: common would cost too many digits.
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, eq=False)
class SampleProducts:
    """Scalar products of all pairs of training samples.

    Attributes
    ----------
    gram : ndarray of shape (n_samples, n_samples)
        Those of the samples, less any common vector.
    slopes : ndarray of shape (n_motions, n_samples, n_samples)
        How a row of `gram` changes when its sample moves.
    """

    gram: Array
    slopes: Array

    def take(self, rows: Index) -> "SampleProducts":
        """Those of some of the samples."""
        return SampleProducts(
            self.gram[rows[:, None], rows], self.slopes[:, rows[:, None], rows]
        )


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Training samples with what is computed of each by itself.

    Attributes
    ----------
    inputs : ndarray of shape (n_samples, d)
        Pixels, descriptors or vectors, at unit norm.
    tangents : ndarray of shape (n_motions, n_samples, d) or None
        How each sample may change; None where nothing is known of that.
    n_features : int
        Number of features of the samples before.
    known_products : SampleProducts or None
        Scalar products of the pairs, where they are known already.
    """

    inputs: Array
    tangents: Array | None
    n_features: int
    known_products: SampleProducts | None = None

    def take(self, rows: Index) -> "PreparedSamples":
        """Some of the samples."""
        tangents = None if self.tangents is None else self.tangents[:, rows]
        known = self.known_products
        products = None if known is None else known.take(rows)
        return PreparedSamples(self.inputs[rows], tangents, self.n_features, products)

    @classmethod
    def joined(cls, parts: Sequence["PreparedSamples"]) -> "PreparedSamples":
        """The samples of all parts, one after the other; all of the same kind."""
        tangents = [part.tangents for part in parts if part.tangents is not None]
        return cls(
            np.concatenate([part.inputs for part in parts]),
            np.concatenate(tangents, axis=1) if tangents else None,
            parts[0].n_features,
        )

    def products(self) -> SampleProducts:
        """Scalar products of all pairs; computed now unless they are known."""
        if self.known_products is not None:
            return self.known_products
        # Without their mean, which says nothing and costs digits.
        centred = self.inputs - self.inputs.mean(axis=0)
        gram = centred @ centred.T
        if self.tangents is None:
            return SampleProducts(gram, np.empty((0, *gram.shape)))
        return SampleProducts(gram, self.tangents @ centred.T)

    def _inputs_and_tangents(self) -> Array:
        """The samples, and then their tangents, one a row."""
        rows = self.inputs
        if self.tangents is not None:
            rows = np.concatenate([rows, *self.tangents])
        return rows


class ProductCache:
    """Scalar products of samples that come and go.

    Subjects are dealt into buckets by their names, and the products of two buckets
    are a block. One who comes or goes changes one bucket, and the blocks of the
    others are kept. A block depends on nobody but who is in its buckets now: what
    comes out is, to the last bit, what a fresh cache computes.
    """

    def __init__(self) -> None:
        self._members: dict[int, dict[str, PreparedSamples]] = {}
        self._blocks: dict[tuple[int, int], Array] = {}

    def forget(self, subject: str) -> None:
        """Drop all that was computed with the samples of a subject."""
        self._drop(_bucket_of(subject))

    def joined(
        self, parts: Mapping[str, PreparedSamples]
    ) -> tuple[PreparedSamples, Index]:
        """Samples of all subjects, with the products of all pairs.

        Parameters
        ----------
        parts : dict of str to PreparedSamples
            The samples of each subject.

        Returns
        -------
        samples : PreparedSamples
            Bucket after bucket. The tangents are left out: the products have all
            that is needed of them. Samples that are nearly equal come without
            products, with their tangents.
        order : ndarray of int of shape (n_samples,)
            Where each of them stands if the subjects follow one another as given.
        """
        self._update(parts)
        order = _bucket_order(parts)
        buckets = sorted(self._members)
        stacked = [
            np.concatenate([self._blocks[i, j] for j in buckets], axis=2)
            for i in buckets
        ]
        products = np.concatenate(stacked, axis=1)
        del stacked
        # The two products of a pair may differ in the last bit.
        gram = (products[0] + products[0].T) / 2.0
        square = float(np.trace(gram)) / len(gram)
        if square - float(gram.mean()) < _LEAST_VARIANCE * square:
            whole = PreparedSamples.joined(list(parts.values()))
            return whole.take(order), order
        known = SampleProducts(gram, products[1:])
        inputs = np.concatenate([part.inputs for part in parts.values()])[order]
        n_features = next(iter(parts.values())).n_features
        return PreparedSamples(inputs, None, n_features, known), order

    def _update(self, parts: Mapping[str, PreparedSamples]) -> None:
        """Compute the blocks of buckets in which anything has changed."""
        present: dict[int, dict[str, PreparedSamples]] = {}
        for subject, samples in parts.items():
            present.setdefault(_bucket_of(subject), {})[subject] = samples
        for bucket in {*present, *self._members}:
            members = present.get(bucket, {})
            known = self._members.get(bucket, {})
            if list(members) != list(known) or any(
                members[subject] is not known[subject] for subject in members
            ):
                self._drop(bucket)
        self._members = present
        wanted = [(i, j) for i in present for j in present]
        missing = [pair for pair in wanted if pair not in self._blocks]
        if missing:
            buckets = {
                bucket: PreparedSamples.joined(list(members.values()))
                for bucket, members in present.items()
            }
            moved = {
                bucket: own._inputs_and_tangents() for bucket, own in buckets.items()
            }
            for i, j in missing:
                products = moved[i] @ buckets[j].inputs.T
                n_samples = buckets[i].inputs.shape[0]
                self._blocks[i, j] = products.reshape(-1, n_samples, products.shape[1])

    def _drop(self, bucket: int) -> None:
        self._members.pop(bucket, None)
        for pair in [pair for pair in self._blocks if bucket in pair]:
            del self._blocks[pair]


def prepare_samples(model: "DualQMLW", X: ArrayLike) -> PreparedSamples:
    """Compute what a fit needs of each training sample by itself.

    Parameters
    ----------
    model : DualQMLW
        The estimator, fitted or not.
    X : array-like of shape (n_samples, n_features)
        Training samples.

    Returns
    -------
    PreparedSamples
        For `fit_prepared`. Parts can be joined and taken apart.
    """
    model._validate_params()
    return model._metric(1.0, 1.0)._prepare(check_array(X, dtype=np.float64))


def needs_products(model: "DualQMLW", n_samples: int, n_inputs: int) -> bool:
    """Whether `fit_prepared` uses the products of all pairs of samples.

    Parameters
    ----------
    model : DualQMLW
        The estimator.
    n_samples : int
        Number of training samples.
    n_inputs : int
        Number of inputs of the metric, after a descriptor.

    Returns
    -------
    bool
        If False, the tangents themselves are needed.
    """
    return model._metric(1.0, 1.0)._uses_products(n_samples, n_inputs)


def fit_prepared(
    model: "DualQMLW", samples: PreparedSamples, y: ArrayLike
) -> "DualQMLW":
    """Fit to samples that have been prepared; the same as ``model.fit``.

    Parameters
    ----------
    model : DualQMLW
        The estimator.
    samples : PreparedSamples
        From `prepare_samples` with the same `image_shape`, `kappa` and `descriptor`.
    y : array-like of shape (n_samples,)
        Class labels, at least two different ones.

    Returns
    -------
    DualQMLW
        The fitted estimator.

    Raises
    ------
    ValueError
        There is not one label per sample, or there is only one class.
    """
    model._validate_params()
    target = np.asarray(y)
    if target.shape != samples.inputs.shape[:1]:
        raise ValueError(
            f"{samples.inputs.shape[0]} samples need as many labels, got an array "
            f"of shape {target.shape}"
        )
    model.n_features_in_ = samples.n_features
    model._fit_samples(samples, model._class_codes(target))
    return model


def metric_inputs(model: "DualQMLW", rows: Array) -> Array:
    """Inputs of the fitted metric: descriptors or rows, scaled to unit norm.

    Parameters
    ----------
    model : DualQMLW
        The fitted estimator.
    rows : ndarray of shape (n_samples, n_features)
        Samples.

    Returns
    -------
    ndarray of shape (n_samples, n_inputs)
        What the metric projects.
    """
    return model.metric_._inputs(rows)


def _bucket_of(subject: str) -> int:
    return zlib.crc32(subject.encode()) % _N_BUCKETS


def _bucket_order(parts: Mapping[str, PreparedSamples]) -> Index:
    """Rows of the subjects one after the other, in the order of their buckets."""
    counts = [part.inputs.shape[0] for part in parts.values()]
    buckets = np.repeat([_bucket_of(subject) for subject in parts], counts)
    return np.argsort(buckets, kind="stable")
