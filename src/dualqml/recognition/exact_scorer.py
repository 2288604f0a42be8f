# SPDX-License-Identifier: BSD-3-Clause
"""Exact scores of a probe for some subjects of a model.

A search among very many subjects first finds those who may be the best, and then needs
exact scores of these few. `ExactScorer` is what it needs of a model, `ArrayScorer` that
of a model whose arrays are in memory. Only NumPy is needed here.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._linalg import unit_rows
from dualqml._typing import Array, Index
from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.extractors.quadratic_features import signed_root_features
from dualqml.persistence.formats import check_format
from dualqml.recognition.score_scale import ScoreScale

#: The fingerprint of the model that a file was made for.
MODEL_KEY = "dualqml.fingerprint"

#: Classes of a block that is scored or read at a time.
_CLASSES = 4096
#: Columns of a block in a product.
_COLUMNS = 4096


class ClassBlock(NamedTuple):
    """What gives the scores of some classes.

    Attributes
    ----------
    classes : slice
        The numbers of the classes, one after the other.
    components : ndarray of shape (sum of ranks, n_coordinates)
        The factors of the classes, stacked.
    ranks : ndarray of int of shape (n_block,)
        Number of factors of each class.
    mean_responses : ndarray of shape (sum of ranks,)
        Scalar product of each factor and the mean of its class.
    class_scale : ndarray of shape (n_block,) or None
        Divisors of the responses.
    means : ndarray of shape (n_block, n_inputs) or None
        Means of the classes at unit norm. They are there if the cosine has a weight.
    """

    classes: slice
    components: Array
    ranks: NDArray[np.int64]
    mean_responses: Array
    class_scale: Array | None
    means: Array | None


class ExactScorer(Protocol):
    """What a search needs of a model, whose arrays may lie anywhere.

    The coordinates of a unit vector u are ``(u - mean) @ coefficients`` at unit norm.
    """

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def labels(self) -> NDArray[Any]:
        """Their names."""

    @property
    def mean(self) -> Array:
        """The mean that is subtracted from unit vectors."""

    @property
    def coefficients(self) -> Array:
        """The projector to coordinates."""

    @property
    def scale(self) -> ScoreScale:
        """The numbers that turn responses and cosines into scores."""

    @property
    def fingerprint(self) -> str:
        """It is another one for a model with other numbers."""

    def queries(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """Coordinates and unit vectors of probes, each in the rows of an array."""

    def scores_of(self, z: Array, unit: Array, classes: Index) -> Array:
        """Scores of one probe for some classes, in double precision.

        The score of a class must not depend on which other classes are asked for.
        """

    def class_blocks(self) -> Iterator[ClassBlock]:
        """All classes, in order, some at a time."""


def checked_vectors(vectors: ArrayLike, width: int) -> NDArray[np.float32]:
    """Vectors in rows, in single precision.

    Parameters
    ----------
    vectors : array-like of shape (n_samples, width)
        The vectors.
    width : int
        Their length.

    Returns
    -------
    ndarray of shape (n_samples, width)
        The rows.

    Raises
    ------
    RecognitionError
        The vectors are of another length, or not usable.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2:
        raise RecognitionError(
            f"Vectors must be the rows of an array, not one of {rows.ndim} dimensions"
        )
    if rows.shape[1] != width:
        raise RecognitionError(
            f"The vectors of this recogniser have {width} values, not {rows.shape[1]}"
        )
    if not np.isfinite(rows).all() or not rows.any(axis=1).all():
        raise RecognitionError(
            "A sample has values that are not finite, or is all zeros"
        )
    return rows


def linear_queries(
    rows: NDArray[Any], mean: Array, coefficients: Array
) -> tuple[Array, Array]:
    """Coordinates and unit vectors of probes, for `ExactScorer.queries`.

    Parameters
    ----------
    rows : ndarray of shape (n_probes, n_inputs)
        The probes.
    mean, coefficients : ndarray of shape (n_inputs,), (n_inputs, n_coordinates)
        The coordinates are ``(u - mean) @ coefficients`` at unit norm.

    Returns
    -------
    z, units : ndarray of shape (n_probes, n_coordinates), (n_probes, n_inputs)
        The coordinates, and the probes at unit norm.
    """
    units = unit_rows(rows.astype(np.float64))
    return unit_rows((units - mean) @ coefficients), units


def exact_scores(z: Array, unit: Array, block: ClassBlock, scale: ScoreScale) -> Array:
    """Scores of one probe for the classes of a block, for `ExactScorer.scores_of`.

    Parameters
    ----------
    z, unit : ndarray of shape (n_coordinates,), (n_inputs,)
        Coordinates and unit vector of the probe.
    block : ClassBlock
        The classes. Their numbers are not used.
    scale : ScoreScale
        The numbers that turn responses and cosines into scores.

    Returns
    -------
    ndarray of shape (n_block,)
        The scores in double precision.

    Raises
    ------
    RecognitionError
        A score is not finite.
    """
    products = _products(block.components, z)
    # The functions for whole matrices get products that are there already, as vectors
    # of one number.
    one = np.ones((1, 1))
    responses = signed_root_features(
        one, products[:, None], block.ranks, block.mean_responses
    )
    if block.class_scale is not None:
        responses = responses / block.class_scale
    cosines = np.empty((block.ranks.size, 1))
    if block.means is not None:
        cosines[:, 0] = _products(block.means, unit)
    return np.asarray(scale.scores(responses, one, cosines)[0])


def _products(rows: Array, vector: Array) -> Array:
    """Products of rows and a vector, the same for equal rows wherever they are.

    BLAS rounds the rows of a matrix differently, and einsum those that are longer
    than its buffer.
    """
    products = np.zeros(len(rows))
    for start in range(0, vector.size, _COLUMNS):
        part = slice(start, start + _COLUMNS)
        products += np.einsum("ij,j->i", rows[:, part], vector[part])
    return products


class ArrayScorer:
    """The scores of a model whose arrays are in memory, or mapped from one file.

    Parameters
    ----------
    mean, coefficients : ndarray of shape (n_inputs,), (n_inputs, n_coordinates)
        The coordinates of a unit vector u are those of ``(u - mean) @ coefficients`` at
        unit norm.
    components : ndarray of shape (sum of ranks, n_coordinates)
        The factors of all classes, stacked.
    ranks : ndarray of int of shape (n_classes,)
        Number of factors of each class.
    mean_responses : ndarray of shape (sum of ranks,)
        Scalar product of each factor and the mean of its class.
    class_scale : ndarray of shape (n_classes,), optional
        Divisors of the responses.
    means : ndarray of shape (n_classes, n_inputs), optional
        Means of the classes at unit norm; needed if the cosine has a weight.
    scale : ScoreScale, optional
        The numbers that turn responses and cosines into scores. Without it, scores are
        the responses.
    labels : ndarray of shape (n_classes,), optional
        Names of the classes. Without them, they are numbered.
    """

    def __init__(
        self,
        *,
        mean: Array,
        coefficients: Array,
        components: Array,
        ranks: NDArray[np.int64],
        mean_responses: Array,
        class_scale: Array | None = None,
        means: Array | None = None,
        scale: ScoreScale | None = None,
        labels: NDArray[Any] | None = None,
    ) -> None:
        self.mean = mean
        self.coefficients = coefficients
        self.components = components
        self.ranks = ranks
        self.mean_responses = mean_responses
        self.class_scale = class_scale
        self.means = means
        self.scale = ScoreScale() if scale is None else scale
        self.labels = np.arange(ranks.size) if labels is None else labels
        if means is None and self.scale.cosine_weight:
            raise RecognitionError("The cosine has a weight, but there are no means")
        #: The first factor of each class; None if each class has one.
        self._first: Index | None = None
        if not (ranks == 1).all():
            self._first = np.cumsum(ranks) - ranks

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.ranks.size)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all numbers of the model."""
        digest = hashlib.sha256(json.dumps(astuple(self.scale)).encode())
        for array in (
            self.mean,
            self.coefficients,
            self.components,
            self.ranks,
            self.mean_responses,
            self.class_scale,
            self.means,
        ):
            numbers = np.empty(0) if array is None else np.ascontiguousarray(array)
            digest.update(repr((numbers.shape, numbers.dtype.str)).encode())
            digest.update(numbers.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def queries(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """Coordinates and unit vectors of probes; see `linear_queries`."""
        return linear_queries(rows, self.mean, self.coefficients)

    def scores_of(self, z: Array, unit: Array, classes: Index) -> Array:
        """Scores of one probe for some classes; see `exact_scores`."""
        ranks, factors = self.ranks[classes], classes
        if self._first is not None:
            before = np.cumsum(ranks) - ranks
            factors = np.repeat(self._first[classes] - before, ranks)
            factors += np.arange(factors.size)
        block = ClassBlock(
            slice(0),
            self.components[factors],
            ranks,
            self.mean_responses[factors],
            None if self.class_scale is None else self.class_scale[classes],
            None if self.means is None else self.means[classes],
        )
        return exact_scores(z, unit, block, self.scale)

    def class_blocks(self) -> Iterator[ClassBlock]:
        """All classes, in order, some at a time."""
        end_factor = 0
        for start in range(0, self.n_classes, _CLASSES):
            classes = slice(start, min(start + _CLASSES, self.n_classes))
            ranks = self.ranks[classes]
            start_factor, end_factor = end_factor, end_factor + int(ranks.sum())
            factors = slice(start_factor, end_factor)
            yield ClassBlock(
                classes,
                self.components[factors],
                ranks,
                self.mean_responses[factors],
                None if self.class_scale is None else self.class_scale[classes],
                None if self.means is None else self.means[classes],
            )


def finite_queries(scorer: ExactScorer, rows: NDArray[Any]) -> tuple[Array, Array]:
    """What `ExactScorer.queries` gives, if it can be used.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    rows : ndarray of shape (n_probes, n_inputs)
        The probes.

    Returns
    -------
    z, units : ndarray of shape (n_probes, n_coordinates), (n_probes, n_inputs)
        The coordinates, and the probes at unit norm.

    Raises
    ------
    RecognitionError
        A number is not finite.
    """
    z, units = scorer.queries(rows)
    if not (np.isfinite(z).all() and np.isfinite(units).all()):
        raise RecognitionError("A score is not finite: train the model again")
    return z, units


def scores_in_parts(
    scorer: ExactScorer, z: Array, unit: Array, classes: Index
) -> Array:
    """Scores of one probe for some classes, without large temporary arrays.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    z, unit : ndarray of shape (n_coordinates,), (n_inputs,)
        Coordinates and unit vector of the probe.
    classes : ndarray of int of shape (n_some,)
        Numbers of the classes, at least one.

    Returns
    -------
    ndarray of shape (n_some,)
        The scores in double precision.
    """
    parts = [
        scorer.scores_of(z, unit, classes[start : start + _CLASSES])
        for start in range(0, classes.size, _CLASSES)
    ]
    return np.concatenate(parts)


def check_file_of_model(
    path: str | os.PathLike[str],
    metadata: Mapping[str, str],
    key: str,
    known: int,
    scorer: ExactScorer,
) -> None:
    """Raise if a file is of another format, or was made for another model.

    Parameters
    ----------
    path : path
        The file.
    metadata : dict of str to str
        The strings of the file.
    key : str
        The key of the version of the format.
    known : int
        The version that is read.
    scorer : ExactScorer
        The model.

    Raises
    ------
    ModelFileError
        It cannot be used.
    """
    if key not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but has no {key!r}")
    check_format(path, metadata, key, known)
    if metadata.get(MODEL_KEY) != scorer.fingerprint:
        raise ModelFileError(
            f"{path} was made for another model, or for this one before people were "
            "enrolled or removed: make it again"
        )
