# SPDX-License-Identifier: BSD-3-Clause
"""The best subjects of a probe among very many, exactly, with few scores in double.

The matrix of most subjects has rank one. Then the response is linear in the
coordinates z of a probe, and the cosine is linear in the probe u at unit norm. So the
whole score is a scalar product of a vector of the subject and the vector ``q = [z, u]``
of the probe, plus a constant. The vectors of all subjects are kept in single precision,
one after the other: a search reads half of the bytes, once, and a batch of probes is
one product of matrices.

A product in single precision differs from the score in double precision by at most a
bound, which follows from the norms. Let t be the k-th largest product. At least k
subjects have a score of t minus the bound or more. So each of the k best subjects has a
product of at least t minus twice the bound. All subjects with such products, and all
whose score is not linear, are scored in double precision, and the best of them are the
best of all: the result is that of a full sort, not an approximation. Only NumPy is
needed here.
"""

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dualqml import __version__
from dualqml._typing import Array, Index, Mask
from dualqml.exceptions import ModelFileError
from dualqml.extractors.probabilities import log_sums
from dualqml.persistence.formats import VERSION_KEY
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition.exact_scorer import (
    MODEL_KEY,
    ArrayScorer,
    ClassBlock,
    ExactScorer,
    check_file_of_model,
    finite_queries,
    scores_in_parts,
)
from dualqml.recognition.score_scale import ScoreScale

Single = NDArray[np.float32]

#: From so many subjects on, a recogniser searches in a folded gallery. With fewer it is
#: no faster.
LEAST_SUBJECTS = 5_000
#: Smallest share of linear classes with which a folded gallery is used: all others are
#: scored one by one.
LEAST_LINEAR = 0.9

#: Most probes at a time.
_PROBES = 256
#: Products of a block. The first block has few classes: it only gives a first idea of
#: which products are large.
_PRODUCTS, _FIRST = 1 << 20, 1024
#: Vectors of which the norms are computed at a time.
_ROWS = 4096
#: Numbers that can be multiplied and divided a few times in double precision, and the
#: largest number of a vector in single precision: far from overflow and underflow.
_USUAL, _USUAL_VECTOR = (1e-50, 1e50), (2.0**-40, 2.0**40)
#: Less than any product of such vectors.
_LEAST_PRODUCT = -1e38
#: Half the distance of 1 and the next number, in single precision.
_ROUNDING = 2.0**-24
#: Bounds the rounding of the few steps with constants in double precision.
_DOUBLE_ROUNDING = 2.0**-48

_FORMAT_KEY, _FORMAT = "dualqml.folded_gallery", 1
_ARRAYS = ("vectors", "linear", "others")

#: Threads that share a model must not make two galleries of it.
_making = threading.Lock()


class Best(NamedTuple):
    """The best classes of some probes.

    Attributes
    ----------
    classes : ndarray of int of shape (n_probes, n_best)
        Numbers of the classes, in falling order of their scores. Of equal scores the
        first class comes first.
    scores : ndarray of shape (n_probes, n_best)
        Their scores in double precision.
    log_sums : ndarray of shape (n_probes,)
        Logarithm of the sum of the exponentials of the scores of all classes. Scores
        that are far from the best are in single precision.
    """

    classes: Index
    scores: Array
    log_sums: Array


def leading(scores: Array, top: int) -> Index:
    """Places of the largest scores, without a sort of all.

    Parameters
    ----------
    scores : ndarray of shape (n_scores,)
        The scores.
    top : int
        How many are wanted, at least one.

    Returns
    -------
    ndarray of int of shape (min(top, n_scores),)
        Their places in falling order of the scores; of equal scores the first place
        comes first, as in a stable sort.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition.folded_search import leading
    >>> leading(np.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3)
    array([1, 3, 2])
    """
    if top >= scores.size:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -top)[-top]
    above = np.flatnonzero(scores > least)
    above = above[np.argsort(-scores[above], kind="stable")]
    return np.concatenate([above, np.flatnonzero(scores == least)[: top - above.size]])


def best_classes(scores: Array, top: int) -> Best:
    """The best classes, from the scores of all.

    Parameters
    ----------
    scores : ndarray of shape (n_probes, n_classes)
        The scores.
    top : int
        How many classes are wanted, at least one.

    Returns
    -------
    Best
        The classes.
    """
    width = min(top, scores.shape[1])
    classes = np.empty((len(scores), width), dtype=np.intp)
    for number, row in enumerate(scores):
        classes[number] = leading(row, top)
    found = np.take_along_axis(scores, classes, axis=1)
    return Best(classes, found, log_sums(scores))


def best_of_some(
    scorer: ExactScorer, z: Array, unit: Array, classes: Index, top: int, rest: float
) -> tuple[Index, Array, float]:
    """The best classes of one probe, by exact scores of some.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    z, unit : ndarray of shape (n_coordinates,), (n_inputs,)
        Coordinates and unit vector of the probe.
    classes : ndarray of int of shape (n_some,)
        Numbers of the classes, in any order.
    top : int
        How many are wanted, at least one.
    rest : float
        Logarithm of the sum of the exponentials of all other scores.

    Returns
    -------
    tuple
        A row of each array of `Best`.
    """
    classes = np.sort(classes)
    exact = scores_in_parts(scorer, z, unit, classes)
    first = leading(exact, top)
    total = float(np.logaddexp(rest, log_sums(exact[None])[0]))
    return classes[first], exact[first], total


def linear_parts(
    block: ClassBlock, scale: ScoreScale
) -> tuple[Mask, Array, Array | None]:
    """The vectors of classes whose score is linear.

    Parameters
    ----------
    block : ClassBlock
        Some classes.
    scale : ScoreScale
        The numbers that turn responses and cosines into scores.

    Returns
    -------
    linear : ndarray of bool of shape (n_block,)
        Which classes have rank one, and numbers that are not extreme.
    responses : ndarray of shape (n_linear, n_coordinates)
        Vectors r.
    cosines : ndarray of shape (n_linear, n_inputs) or None
        Vectors m. The score is ``r @ z + m @ u + score_constant(scale)``. None if the
        cosine has no weight.
    """
    linear = block.ranks == 1
    if not _has_usual_numbers(scale):
        linear[:] = False
        scale = ScoreScale(cosine_weight=scale.cosine_weight)
    places = (np.cumsum(block.ranks) - block.ranks)[linear]
    responses, divisors = block.components[places], block.mean_responses[places]
    # Very small numbers may become zero in the computation of a score, and lose their
    # sign.
    usual = _are_usual(divisors) & _are_usual(_largest(responses))
    if block.class_scale is not None:
        usual &= _are_usual(block.class_scale[linear])
    linear[linear] = usual
    divisors = np.where(divisors[usual] < 0.0, -scale.spread, scale.spread)
    if block.class_scale is not None:
        divisors *= block.class_scale[linear]
    factor = scale.slope / scale.scale
    responses = responses[usual] / divisors[:, None] * factor
    largest, cosines = _largest(responses), None
    if scale.cosine_weight:
        assert block.means is not None
        factor *= scale.cosine_weight / scale.cosine_spread
        with np.errstate(over="ignore"):
            cosines = factor * block.means[linear]
        largest = np.maximum(largest, _largest(cosines))
    usual = fit_for_single(largest)
    linear[linear] = usual
    return linear, responses[usual], None if cosines is None else cosines[usual]


def fit_for_single(largest: Array) -> Mask:
    """Which vectors are far from overflow and underflow in single precision.

    Parameters
    ----------
    largest : ndarray of shape (n_vectors,)
        The largest number of each vector, without its sign.

    Returns
    -------
    ndarray of bool of shape (n_vectors,)
        Whether their products may be computed in single precision.
    """
    low, high = _USUAL_VECTOR
    return np.asarray((largest >= low) & (largest <= high))


def score_constant(scale: ScoreScale) -> float:
    """The score of a response and a cosine of zero.

    Parameters
    ----------
    scale : ScoreScale
        The numbers that turn responses and cosines into scores.

    Returns
    -------
    float
        The score.
    """
    nothing = np.zeros((1, 1))
    return float(scale.scores(nothing, nothing, nothing)[0, 0])


class ProductBlock(NamedTuple):
    """Products of some vectors and all queries.

    Attributes
    ----------
    start : int
        The first of the vectors.
    products : ndarray of shape (n_queries, n_block)
        The products, which may be overwritten.
    largest : ndarray of shape (n_queries,)
        The largest product of each query.
    """

    start: int
    products: Single
    largest: Single


def product_blocks(
    vectors: Single, queries: Single, constants: Single | None = None
) -> Iterator[ProductBlock]:
    """Products of queries and all vectors, some vectors at a time.

    Parameters
    ----------
    vectors : ndarray of shape (n_vectors, width)
        The vectors.
    queries : ndarray of shape (n_queries, width)
        The queries.
    constants : ndarray of shape (n_vectors,), optional
        Numbers to add to the products of each vector.

    Yields
    ------
    ProductBlock
        The products of the next vectors.
    """
    step = max(_PRODUCTS // max(len(queries), 1), _FIRST)
    ends = [*range(_FIRST, len(vectors), step), len(vectors)]
    start = 0
    for end in ends:
        products = queries @ vectors[start:end].T
        if constants is not None:
            products += constants[start:end]
        yield ProductBlock(start, products, products.max(axis=1))
        start = end


class Leaders:
    """The vectors of the largest products, block after block.

    Parameters
    ----------
    n_queries : int
        Number of queries.
    top : int
        Number of vectors that are wanted for each query.
    margins : ndarray of shape (n_queries,)
        Vectors whose product is at most so much smaller are wanted too.

    Attributes
    ----------
    places : list of ndarray of int
        For each query, the vectors that were found, in ascending order.
    products : list of ndarray
        Their products.
    """

    def __init__(self, n_queries: int, top: int, margins: Array) -> None:
        self._top, self._margins = top, margins
        self.places: list[Index] = [np.empty(0, np.intp)] * n_queries
        self.products: list[Single] = [np.empty(0, np.float32)] * n_queries
        self._least = np.full(n_queries, -np.inf, np.float32)

    def add(self, block: ProductBlock) -> None:
        """Take what is large of a block."""
        for query in np.flatnonzero(block.largest >= self._least).tolist():
            own = block.products[query]
            new = np.flatnonzero(own >= self._least[query])
            places = np.concatenate([self.places[query], new + block.start])
            found = np.concatenate([self.products[query], own[new]])
            if found.size >= self._top:
                kth = float(np.partition(found, -self._top)[-self._top])
                least = max(kth - float(self._margins[query]), _LEAST_PRODUCT)
                # In single precision it may be rounded up.
                below = np.nextafter(np.float32(least), np.float32(-np.inf))
                self._least[query] = below
                keep = found >= self._least[query]
                places, found = places[keep], found[keep]
            self.places[query], self.products[query] = places, found


class ExpSums:
    """Sums of the exponentials of products, block after block.

    Parameters
    ----------
    n_queries : int
        Number of queries.
    """

    def __init__(self, n_queries: int) -> None:
        self.shifts = np.full(n_queries, -np.inf, np.float32)
        self.sums = np.zeros(n_queries)

    def add(self, block: ProductBlock) -> None:
        """Add a block, whose products are overwritten."""
        shifts = np.maximum(self.shifts, block.largest)
        self.sums *= np.exp(self.shifts - shifts)
        terms = np.subtract(block.products, shifts[:, None], out=block.products)
        self.sums += np.exp(terms, out=terms).sum(axis=1)
        self.shifts = shifts

    def log_without(self, query: int, products: Single) -> float:
        """The logarithm of the sum of a query without some of the products."""
        shift = float(self.shifts[query])
        taken = np.exp(products.astype(np.float64) - shift).sum()
        rest = float(self.sums[query] - taken)
        return shift + math.log(rest) if rest > 0.0 else -math.inf


@dataclass(frozen=True, eq=False)
class Folded:
    """The vectors of all linear classes, in single precision.

    Attributes
    ----------
    vectors : ndarray of shape (n_linear, width)
        The vectors.
    linear : ndarray of int of shape (n_linear,)
        Numbers of these classes, in ascending order.
    others : ndarray of int of shape (n_others,)
        Numbers of all other classes, in ascending order.
    norm : float
        The largest norm of a vector.
    """

    vectors: Single
    linear: Index
    others: Index
    norm: float


class FoldedGallery:
    """Exact search among many classes.

    It does not change, so threads may share it.

    Parameters
    ----------
    scorer : ExactScorer
        The model.
    folded : Folded, optional
        Its vectors, if they are there already.

    Attributes
    ----------
    scorer : ExactScorer
        The model.
    folded : Folded
        Its vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition.exact_scorer import ArrayScorer
    >>> from dualqml.recognition.folded_search import FoldedGallery
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(5000, 20))
    >>> scorer = ArrayScorer(
    ...     mean=np.zeros(20),
    ...     coefficients=np.eye(20),
    ...     components=people,
    ...     ranks=np.ones(5000, dtype=np.int64),
    ...     mean_responses=np.ones(5000),
    ... )
    >>> found = FoldedGallery(scorer).search(people[[7, 8]], top=3)
    >>> found.classes.shape, found.scores.shape
    ((2, 3), (2, 3))
    """

    def __init__(self, scorer: ExactScorer, folded: Folded | None = None) -> None:
        self.scorer = scorer
        self.folded = _fold(scorer) if folded is None else folded

    def search(self, rows: NDArray[Any], top: int) -> Best:
        """The best classes of probes.

        Parameters
        ----------
        rows : ndarray of shape (n_probes, n_inputs)
            The probes.
        top : int
            How many classes are wanted, at least one.

        Returns
        -------
        Best
            The classes and their exact scores.

        Raises
        ------
        RecognitionError
            A score is not finite.
        """
        z, units = finite_queries(self.scorer, rows)
        width = min(top, self.scorer.n_classes)
        classes = np.empty((len(z), width), dtype=np.intp)
        scores, sums = np.empty((len(z), width)), np.empty(len(z))
        for start in range(0, len(z), _PROBES):
            part = slice(start, start + _PROBES)
            found = self._search_part(z[part], units[part], top)
            classes[part], scores[part], sums[part] = found
        return Best(classes, scores, sums)

    def _search_part(self, z: Array, units: Array, top: int) -> Best:
        folded, scale = self.folded, self.scorer.scale
        constant = score_constant(scale)
        queries = np.concatenate([z, units], axis=1) if scale.cosine_weight else z
        bounds = self._bounds(_norms(queries))
        leaders, sums = Leaders(len(z), top, 2.0 * bounds), ExpSums(len(z))
        if folded.linear.size:
            single = queries.astype(np.float32)
            for block in product_blocks(folded.vectors, single):
                leaders.add(block)
                sums.add(block)
        found = []
        for query, (places, products) in enumerate(
            zip(leaders.places, leaders.products, strict=True)
        ):
            classes = np.concatenate([folded.linear[places], folded.others])
            rest = sums.log_without(query, products) + constant
            found.append(
                best_of_some(self.scorer, z[query], units[query], classes, top, rest)
            )
        return Best(*(np.array(part) for part in zip(*found, strict=True)))

    def _bounds(self, norms: Array) -> Array:
        """Most that products may differ from scores minus the constant.

        For vectors b and q of n numbers, rounded to single precision, any order of
        summation gives a product that is wrong by at most ``e / (1 - e) |b| |q|``, with
        ``e = (n + 2) 2^-24``. Here three more units stand for numbers that are too
        small for single precision, for the rounding of products in double precision,
        and for |b|, which is that of the rounded vector. The constants of the scale
        are added in double precision.
        """
        error = (self.folded.vectors.shape[1] + 5) * _ROUNDING
        constants = _DOUBLE_ROUNDING * _size_of_constants(self.scorer.scale)
        return np.asarray(error / (1.0 - error) * self.folded.norm * norms + constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the vectors, without the model.

        Parameters
        ----------
        path : path
            The file. It has as much of the people in it as the model.

        Raises
        ------
        FileError
            The file cannot be written. An old file is not changed.
        """
        folded = self.folded
        arrays: dict[str, NDArray[Any]] = {
            "vectors": folded.vectors,
            "linear": folded.linear.astype(np.int64, copy=False),
            "others": folded.others.astype(np.int64, copy=False),
        }
        metadata = {
            _FORMAT_KEY: str(_FORMAT),
            VERSION_KEY: __version__,
            MODEL_KEY: self.scorer.fingerprint,
        }
        write_tensors(path, arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str], scorer: ExactScorer) -> Self:
        """Load the vectors of a model.

        Parameters
        ----------
        path : path
            A file that `save` has written.
        scorer : ExactScorer
            The model.

        Returns
        -------
        FoldedGallery
            The gallery. Its vectors stay in the file until they are used. Processes
            that load the same file share their memory.

        Raises
        ------
        ModelFileError
            The file does not exist, is damaged, or is of another model.
        """
        arrays, metadata = read_tensors(path)
        check_file_of_model(path, metadata, _FORMAT_KEY, _FORMAT, scorer)
        try:
            vectors, linear, others = (arrays[n] for n in _ARRAYS)
        except KeyError as error:
            raise ModelFileError(f"{path} has no array {error}") from error
        fit = vectors.dtype == np.float32 and vectors.shape == (
            linear.size,
            _width(scorer),
        )
        if not fit or not _are_all_classes(linear, others, scorer.n_classes):
            raise ModelFileError(f"{path} is not a folded gallery of this model")
        norm = _largest_norm(vectors)
        # Products of larger numbers could overflow.
        if not norm <= 2.0 * _USUAL_VECTOR[1] * math.sqrt(vectors.shape[1]):
            raise ModelFileError(f"{path} has numbers that no folded gallery has")
        linear, others = (part.astype(np.intp, copy=False) for part in (linear, others))
        return cls(scorer, Folded(vectors, linear, others, norm))


class FoldedSearch:
    """Base class of models that search in a folded gallery if it is worth it.

    Attributes
    ----------
    subjects : list of str
        The enrolled subjects.
    """

    subjects: list[str]
    _folded: FoldedGallery | None = None

    def exact_scorer(self) -> ArrayScorer | None:
        """What gives the scores of some subjects; None if they are not of this kind."""
        raise TypeError(f"{type(self).__name__} does not implement exact_scorer")

    def folded_gallery(self) -> FoldedGallery | None:
        """The gallery for searches, made once; None if all scores are to be computed.

        Threads may ask for it at the same time.
        """
        if self._folded is not None or len(self.subjects) < LEAST_SUBJECTS:
            return self._folded
        with _making:
            # Another thread may have made it in the meantime.
            if self._folded is None:
                scorer = self.exact_scorer()
                if scorer is None or np.mean(scorer.ranks == 1) < LEAST_LINEAR:
                    return None
                self._folded = FoldedGallery(scorer)
            return self._folded


def searching_part(model: Any) -> Any:
    """The part of a model that searches.

    Parameters
    ----------
    model : object
        A model.

    Returns
    -------
    object
        The fitted matcher of a recogniser; any other model itself.
    """
    fitted = getattr(model, "_fitted_matcher", None)
    return model if fitted is None else fitted()


def _fold(scorer: ExactScorer) -> Folded:
    """The vectors of a model."""
    # Rows that are not needed take no memory: they are never touched.
    vectors = np.empty((scorer.n_classes, _width(scorer)), np.float32)
    is_linear = np.zeros(scorer.n_classes, dtype=bool)
    filled = 0
    for block in scorer.class_blocks():
        linear, *parts = linear_parts(block, scorer.scale)
        rows = np.concatenate([part for part in parts if part is not None], axis=1)
        is_linear[block.classes] = linear
        vectors[filled : filled + len(rows)] = rows
        filled += len(rows)
    classes, others = np.flatnonzero(is_linear), np.flatnonzero(~is_linear)
    vectors = vectors[:filled]
    return Folded(vectors, classes, others, _largest_norm(vectors))


def _width(scorer: ExactScorer) -> int:
    """Numbers of a vector."""
    width = int(scorer.coefficients.shape[1])
    return width + scorer.mean.size if scorer.scale.cosine_weight else width


def _largest_norm(vectors: Single) -> float:
    """The largest norm, NaN if a number is not finite."""
    blocks = (vectors[i : i + _ROWS] for i in range(0, len(vectors), _ROWS))
    norms = [_norms(block.astype(np.float64)).max() for block in blocks]
    return float(np.max(norms, initial=0.0))


def _are_all_classes(linear: NDArray[Any], others: NDArray[Any], n: int) -> bool:
    """Whether two arrays of a file have the numbers of n classes, each in order."""
    if any(part.dtype != np.int64 or part.ndim != 1 for part in (linear, others)):
        return False
    is_linear = np.zeros(n, dtype=bool)
    is_linear[linear[(linear >= 0) & (linear < n)]] = True
    return np.array_equal(linear, np.flatnonzero(is_linear)) and np.array_equal(
        others, np.flatnonzero(~is_linear)
    )


def _norms(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _largest(rows: Array) -> Array:
    return np.asarray(np.abs(rows).max(axis=1, initial=0.0))


def _are_usual(numbers: Array) -> Mask:
    low, high = _USUAL
    sizes = np.abs(numbers)
    return np.asarray((sizes >= low) & (sizes <= high))


def _has_usual_numbers(scale: ScoreScale) -> bool:
    numbers = [scale.spread, scale.scale, scale.slope]
    if scale.cosine_weight:
        numbers += [scale.cosine_weight, scale.cosine_spread]
    return bool(_are_usual(np.array(numbers)).all())


def _size_of_constants(scale: ScoreScale) -> float:
    """An upper bound of all constants that are added on the way to a score."""
    size = abs(scale.mean)
    if scale.cosine_weight:
        size += abs(scale.cosine_weight * scale.cosine_mean / scale.cosine_spread)
    return abs(scale.slope / scale.scale) * size + abs(scale.offset)
