# SPDX-License-Identifier: BSD-3-Clause
"""Prepared training samples: results that are kept when people are added or removed.

A fit of DualQML-W needs the inputs of its metric, their tangents, and the products of
all pairs of samples. They do not depend on what is learnt. A recogniser keeps them, so
that adding or removing a person costs little more than the learning.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from dualqml._linalg import unit_rows
from dualqml._typing import Array, Index
from dualqml.images.descriptors import local_descriptors
from dualqml.images.shapes import SizeLike, resolved_shape

if TYPE_CHECKING:
    from dualqml.extractors.dual_qml_w import DualQMLW
    from dualqml.extractors.within_metric import WithinMetric

Descriptor = Literal["local"]

#: Most samples whose motions are followed. Their scatter is a mean over samples, and
#: more of them hardly change it.
MOST_MOVING = 400
#: Number of blocks along each side of the matrices of pairs. Adding or removing a
#: person changes one row and one column of blocks, which is an eighth of the work.
_N_BUCKETS = 16

#: Most samples whose products of all pairs are kept.
_MOST_CACHED = 3000

#: Smallest ratio of the variance of the samples to their mean square. If it is smaller,
#: products of samples that are not centred would lose too many digits.
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, eq=False)
class SampleProducts:
    """Scalar products of training samples with landmarks, which are some of them.

    Attributes
    ----------
    gram : ndarray of shape (n_samples, n_landmarks)
        Scalar products of the samples, minus any common vector.
    slopes : ndarray of shape (n_motions, n_moving, n_landmarks)
        Derivatives of some rows of `gram` by each motion of their samples.
    squares : ndarray of shape (n_samples,)
        Squared norms of the samples, minus the same vector.
    own_slopes : ndarray of shape (n_motions, n_moving)
        Half the derivatives of `squares` by each motion.
    """

    gram: Array
    slopes: Array
    squares: Array
    own_slopes: Array


@dataclass(frozen=True, eq=False)
class AllProducts:
    """Scalar products of all pairs of training samples.

    Attributes
    ----------
    gram : ndarray of shape (n_samples, n_samples)
        Scalar products of the samples, minus any common vector.
    slopes : ndarray of shape (n_motions, n_samples, n_samples)
        Derivative of each row of `gram` by each motion of its sample.
    """

    gram: Array
    slopes: Array

    def take(self, rows: Index) -> "AllProducts":
        """The products of some of the samples."""
        return AllProducts(
            self.gram[rows[:, None], rows], self.slopes[:, rows[:, None], rows]
        )

    def with_landmarks(self, landmarks: Index, moving: Index) -> SampleProducts:
        """The products with some of the samples."""
        everyone = landmarks.size == len(self.gram)
        return SampleProducts(
            self.gram if everyone else self.gram[:, landmarks],
            self.slopes[:, moving[:, None], landmarks],
            np.diagonal(self.gram),
            self.slopes[:, moving, moving],
        )


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Training samples, and results for each sample alone.

    Attributes
    ----------
    inputs : ndarray of shape (n_samples, d)
        Pixels, descriptors or vectors, at unit norm.
    tangents : ndarray of shape (n_motions, n_moving, d) or None
        How samples change with each motion; None if they are not images.
    n_features : int
        Number of features of the samples before they were prepared.
    moving : ndarray of shape (n_moving,) or None
        The samples that have tangents, in ascending order; None means all.
    known_products : AllProducts or None
        Scalar products of all pairs, if they are known already.
    """

    inputs: Array
    tangents: Array | None
    n_features: int
    moving: Index | None = None
    known_products: AllProducts | None = None

    def take(self, rows: Index) -> "PreparedSamples":
        """Some of the samples; all must have tangents, or none."""
        tangents = None if self.tangents is None else self.tangents[:, rows]
        known = self.known_products
        products = None if known is None else known.take(rows)
        return PreparedSamples(
            self.inputs[rows], tangents, self.n_features, known_products=products
        )

    @classmethod
    def joined(cls, parts: Sequence["PreparedSamples"]) -> "PreparedSamples":
        """The samples of all parts, one part after the other."""
        tangents = [part.tangents for part in parts if part.tangents is not None]
        return cls(
            np.concatenate([part.inputs for part in parts]),
            np.concatenate(tangents, axis=1) if tangents else None,
            parts[0].n_features,
        )

    def moved(self, rows: Index) -> Array | None:
        """Tangents of some samples, of shape (n_motions, n_rows, d)."""
        if self.tangents is None:
            return None
        places = rows if self.moving is None else np.searchsorted(self.moving, rows)
        return self.tangents[:, places]

    def products(self, landmarks: Index, moving: Index) -> SampleProducts:
        """Scalar products with landmarks, computed unless they are known.

        Parameters
        ----------
        landmarks : ndarray of shape (n_landmarks,)
            Samples to multiply all samples with.
        moving : ndarray of shape (n_moving,)
            Samples whose tangents are multiplied with the landmarks.

        Returns
        -------
        SampleProducts
            The products; no slopes without tangents.
        """
        if self.known_products is not None:
            return self.known_products.with_landmarks(landmarks, moving)
        # The mean has no information, and would cost digits.
        centred = self.inputs - self.inputs.mean(axis=0)
        others = centred[landmarks]
        gram = centred @ others.T
        tangents = self.moved(moving)
        if tangents is None:
            tangents = np.empty((0, moving.size, others.shape[1]))
        own = np.einsum("kij,ij->ki", tangents, centred[moving])
        squares = np.einsum("ij,ij->i", centred, centred)
        return SampleProducts(gram, tangents @ others.T, squares, own)

    def _inputs_and_tangents(self) -> Array:
        """The samples and then their tangents, one per row."""
        rows = self.inputs
        if self.tangents is not None:
            rows = np.concatenate([rows, *self.tangents])
        return rows


def sample_inputs(
    data: Array, descriptor: Descriptor | None, image_shape: SizeLike | None
) -> Array:
    """Inputs of the metric: samples, or their descriptors, scaled to unit norm.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Samples.
    descriptor : {"local"} or None
        "local" replaces images by their local descriptors.
    image_shape : tuple of int or None
        Height and width of the images.

    Returns
    -------
    ndarray of shape (n_samples, n_inputs)
        The inputs.
    """
    if descriptor == "local":
        shape = resolved_shape(image_shape, data.shape[1], without="descriptor=None")
        return unit_rows(local_descriptors(data, shape))
    # A single feature has no direction, only a size.
    return data if data.shape[1] == 1 else unit_rows(data)


def spread_rows(codes: Index, most: int) -> Index:
    """Choose samples from all classes alike.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Classes of the samples.
    most : int
        Largest number of samples to choose.

    Returns
    -------
    ndarray of int
        All samples, or as many as asked for, in ascending order.
    """
    if codes.size <= most:
        return np.arange(codes.size)
    # Sorted by class, samples at equal distances come from all classes.
    places = np.linspace(0, codes.size - 1, most).round().astype(np.intp)
    return np.sort(np.argsort(codes, kind="stable")[places])


class ProductCache:
    """Scalar products of samples of subjects that are added and removed.

    Subjects are assigned to buckets by their names. The products of two buckets are
    a block. Adding or removing a subject changes one bucket, and the blocks of the
    other buckets are kept. A block depends only on the subjects that are in its
    buckets now, so the result equals that of a new cache to the last bit.
    """

    def __init__(self) -> None:
        self._members: dict[int, dict[str, PreparedSamples]] = {}
        self._blocks: dict[tuple[int, int], Array] = {}

    def forget(self, subject: str) -> None:
        """Delete everything that was computed with the samples of a subject."""
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
            The samples, bucket after bucket, with products and without tangents, as
            the products contain what is needed of them. If the samples are nearly
            equal, they have tangents and no products.
        order : ndarray of int of shape (n_samples,)
            Index of each sample if the subjects are joined in the given order.
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
        mean_square = float(np.trace(gram)) / len(gram)
        if mean_square - float(gram.mean()) < _LEAST_VARIANCE * mean_square:
            whole = PreparedSamples.joined(list(parts.values()))
            return whole.take(order), order
        known = AllProducts(gram, products[1:])
        inputs = np.concatenate([part.inputs for part in parts.values()])[order]
        n_features = next(iter(parts.values())).n_features
        return PreparedSamples(inputs, None, n_features, known_products=known), order

    def _update(self, parts: Mapping[str, PreparedSamples]) -> None:
        """Compute the blocks of all buckets that have changed."""
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
    """Compute what a fit needs and what does not depend on the other samples.

    Parameters
    ----------
    model : DualQMLW
        The estimator, fitted or not.
    X : array-like of shape (n_samples, n_features)
        Training samples.

    Returns
    -------
    PreparedSamples
        Samples for `fit_prepared`. They can be joined, and some can be taken.
    """
    model._validate_params()
    data = check_array(X, dtype=np.float64)
    metric = model._metric(1.0, 1.0)
    if metric.image_shape is None and metric.descriptor is None:
        return metric._prepare(data, np.arange(len(data)))
    # On some processors BLAS rounds the last columns of a product in another way than
    # the first. So each image is prepared alone, to get the same bits in any company.
    # Any of these samples may be followed once they are joined with others.
    alone = [metric._prepare(row[None], np.arange(1)) for row in data]
    return PreparedSamples.joined(alone)


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
        If False, `fit_prepared` needs the tangents.
    """
    if model.background is not None or n_samples > _MOST_CACHED:
        return False
    return model._metric(1.0, 1.0)._uses_products(n_samples, n_inputs)


def fit_prepared(
    model: "DualQMLW",
    samples: PreparedSamples,
    y: ArrayLike,
    *,
    probabilities: bool = True,
) -> "DualQMLW":
    """Fit to prepared samples, with the same result as ``model.fit``.

    Parameters
    ----------
    model : DualQMLW
        The estimator.
    samples : PreparedSamples
        Samples from `prepare_samples`, for the same `image_shape`, `kappa` and
        `descriptor`.
    y : array-like of shape (n_samples,)
        Class labels, at least two different ones.
    probabilities : bool, default=True
        Whether to learn what scores mean, for ``predict_proba``.

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
    codes = model._class_codes(target)
    model._fit_samples(samples, codes, probabilities=probabilities)
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
        The inputs.
    """
    return model.metric_._inputs(rows)


def input_class_scores(model: "DualQMLW", inputs: Array) -> Array:
    """Scores of all classes for inputs of the fitted metric.

    Parameters
    ----------
    model : DualQMLW
        The fitted estimator.
    inputs : ndarray of shape (n_samples, n_inputs)
        Inputs at unit norm, for example from `metric_inputs`.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        The scores of ``model.class_scores``.
    """
    return model.qml_.class_scores(model.metric_._project(inputs))


def unfitted_metric(model: "DualQMLW") -> "WithinMetric":
    """The metric of an estimator, not fitted, for example to choose its parameters.

    Parameters
    ----------
    model : DualQMLW
        The estimator.

    Returns
    -------
    WithinMetric
        The metric.
    """
    return model._metric(1.0, 1.0)


def _bucket_of(subject: str) -> int:
    return zlib.crc32(subject.encode()) % _N_BUCKETS


def _bucket_order(parts: Mapping[str, PreparedSamples]) -> Index:
    """Indices of all samples, sorted by bucket."""
    counts = [part.inputs.shape[0] for part in parts.values()]
    buckets = np.repeat([_bucket_of(subject) for subject in parts], counts)
    return np.argsort(buckets, kind="stable")
