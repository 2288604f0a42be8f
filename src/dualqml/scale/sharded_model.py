# SPDX-License-Identifier: BSD-3-Clause
"""A model whose classes lie in several files, which are read when they are used.

A folder has one file of what all classes have in common (`HEAD`), with the names and
checksums of the others: a shard for each part of the classes. The names of shards in a
saved folder contain their checksums, and the head is written last. So at any moment
the folder has the old or the new model, whole.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array

from dualqml._files import exclusive, remove_left_behind, write_atomically
from dualqml._sklearn import one_blas_thread
from dualqml._text import counted
from dualqml._typing import Array, Index
from dualqml.exceptions import FileError, MethodError, ModelFileError
from dualqml.extractors.fit_in_parts import (
    PartSolution,
    Recipe,
    checked_recipe,
    coordinate_rows,
)
from dualqml.extractors.part_assembly import FittedArrays, assembled
from dualqml.extractors.quadratic_features import (
    quadratic_features,
    signed_root_features,
)
from dualqml.persistence.tensors import read_tensors, stored_checksum
from dualqml.recognition.exact_scorer import ClassBlock, exact_scores, linear_queries
from dualqml.recognition.score_scale import ScoreScale
from dualqml.scale.model_head import HEAD, Head, read_head, search_of, write_head
from dualqml.scale.scratch import (
    Shard,
    check_numbers,
    joined_shards,
    key_of,
    read_shard,
)

#: Bytes that are copied at a time, and bytes of scores that are kept at a time.
_COPY_BYTES, _SCORE_BYTES = 1 << 22, 1 << 25
#: Classes of a block that a search reads at a time.
_CLASSES = 4096


class ShardedModel:
    """A fitted model whose classes lie in shards.

    Made by `fit_blocks`, or by `ShardedModel.load`. Its arrays stay in their files
    until they are used, and processes that use the same files share their memory. It
    does not change, so threads may share it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    counts_ : ndarray of shape (n_classes,)
        Number of samples of each class.
    n_features_in_ : int
        Number of values of a sample.
    lam_ : float
        Lambda for the data as given.
    ranks_ : ndarray of shape (n_classes,)
        Number of factors of each class.
    duality_gap_, violation_ : ndarray of shape (n_classes,)
        The certificate of each class, as of `DualQML`.
    status_ : ndarray of shape (n_classes,)
        "optimal" or "inaccurate".
    n_searched_classes_ : int
        Number of classes on whose samples parameters were chosen; 0 if all were given.
    rounding_limited_ : ndarray of bool of shape (n_classes,)
        Classes that only bounds of rounding errors keep from being certified.
    head : Head
        What all classes have in common.
    search_ : dict
        For `DualQMLWCV`, the attributes of its search, such as "best_params_".

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dualqml import DualQMLW
    >>> from dualqml.scale import ShardedModel, fit_blocks
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(100, 1, 16))
    >>> X = (people + 0.3 * rng.normal(size=(100, 3, 16))).reshape(300, 16)
    >>> y = np.repeat(np.arange(100), 3)
    >>> estimator = DualQMLW(kernel="linear", rule="max")
    >>> model = fit_blocks(estimator, X, y, part_bytes=10_000)
    >>> model.n_shards, model.transform(X[:2]).shape
    (4, (2, 100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     print(ShardedModel.load(folder).predict(X[:4]))
    [0 0 0 1]
    """

    def __init__(self, folder: Path, head: Head, shards: Mapping[str, str]) -> None:
        # The names of the shards, and their checksums.
        self._folder, self.head, self._checksums = folder, head, dict(shards)
        self._recipe: Recipe = checked_recipe(
            head.estimator, cosines=head.scale is not None
        )
        self.classes_, self.counts_ = head.classes, head.counts
        self.n_features_in_, self.lam_ = head.n_features, head.lam
        self.n_searched_classes_ = head.chosen.n_searched

    # What is learnt

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self._checksums)

    @cached_property
    def _shards(self) -> list[Shard | None]:
        found = [read_shard(self._folder / name) for name in self._checksums]
        sizes = [0 if shard is None else shard.counts.size for shard in found]
        if sizes != self.head.shard_sizes.tolist():
            raise ModelFileError(
                f"{self._folder}: the shards do not have the classes of the model"
            )
        return found

    def shards(self) -> Iterator[tuple[Index, Shard]]:
        """The classes of one shard after the other.

        Yields
        ------
        places : ndarray of int
            Numbers of the classes of the shard in `classes_`.
        shard : Shard
            What was learnt about them.
        """
        start = 0
        for size, shard in zip(self.head.shard_sizes, self._shards, strict=True):
            places = self.head.places[start : start + size]
            start += size
            if shard is not None:
                yield places, shard

    def _of_classes(self, name: str) -> NDArray[Any]:
        values = [getattr(shard.solution, name) for _, shard in self.shards()]
        joined = np.concatenate(values)
        found = np.empty_like(joined)
        found[self.head.places] = joined
        return found

    @cached_property
    def ranks_(self) -> NDArray[np.int64]:
        """Number of factors of each class."""
        return self._of_classes("ranks")

    @cached_property
    def duality_gap_(self) -> Array:
        """Bounds of the relative duality gaps."""
        return self._of_classes("gap")

    @cached_property
    def violation_(self) -> Array:
        """Bounds of the violations of the constraints."""
        return self._of_classes("violation")

    @cached_property
    def rounding_limited_(self) -> NDArray[np.bool_]:
        """Classes that only bounds of rounding errors keep from being certified."""
        return self._of_classes("rounding_limited")

    @property
    def tol(self) -> float:
        """The gap and violation that count as solved."""
        return self._recipe.tol

    @cached_property
    def status_(self) -> NDArray[np.str_]:
        """Whether each class is proven to be solved."""
        worst = np.maximum(self.duality_gap_, self.violation_)
        return np.where(worst <= self.tol, "optimal", "inaccurate")

    @property
    def search_(self) -> dict[str, Any]:
        """Results of the search of a `DualQMLWCV`; else empty."""
        return search_of(self.head.estimator)

    def describe(self) -> str:
        """The model in words.

        Returns
        -------
        str
            One sentence for each fact.
        """
        n_classes = self.classes_.size
        solved = int((self.status_ == "optimal").sum())
        words = (
            f"{type(self.head.estimator).__name__} of {n_classes:,} classes and "
            f"{self.head.n_samples:,} samples in {counted(self.n_shards, 'shard')}. "
            f"{solved:,} classes are proven optimal; the largest duality gap is "
            f"{self.duality_gap_.max():.0e}."
        )
        if self.n_searched_classes_:
            words += (
                " Parameters were chosen on the samples of "
                f"{self.n_searched_classes_:,} classes."
            )
        return words

    # What it answers

    def transform(self, X: ArrayLike, classes: ArrayLike | None = None) -> Array:
        """Compute the features of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        classes : array-like of shape (n_some,), optional
            Labels of the classes whose features are wanted, in the wanted order. By
            default all, in the order of `classes_`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples, n_some)
            The features, as of the estimator.
        """
        coordinates = self._coordinates(self._checked(X))
        return self._in_columns(
            len(coordinates), classes, lambda block: self._features(coordinates, block)
        )

    def class_scores(self, X: ArrayLike, classes: ArrayLike | None = None) -> Array:
        """Score of every class; the larger, the more similar.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        classes : array-like of shape (n_some,), optional
            As for `transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples, n_some)
            The scores that `predict` compares. Of a recogniser they are natural
            logarithms of likelihood ratios.

        Raises
        ------
        MethodError
            The estimator decides nothing.
        """
        self._check_decides()
        rows = self._checked(X)
        if self.head.profiles is not None:
            scores = self._local.class_scores(rows)
            if classes is not None:
                scores = scores[:, self._numbers(classes)]
            return np.asarray(scores)
        return self._scores(rows, classes)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of every sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels; ties go to the first class.

        Raises
        ------
        MethodError
            The estimator decides nothing.
        """
        self._check_decides()
        rows = self._checked(X)
        if self.head.profiles is not None:
            return np.asarray(self._local.predict(rows))
        best = np.empty(len(rows), dtype=np.intp)
        step = max(1, _SCORE_BYTES // (8 * self.classes_.size))
        for start in range(0, len(rows), step):
            scores = self._scores(rows[start : start + step], None)
            best[start : start + step] = scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def to_local(self) -> Any:
        """The usual fitted estimator, with all arrays in memory.

        Returns
        -------
        estimator
            As `fit` would have left it, but without probabilities.

        Raises
        ------
        MethodError
            The model is that of a recogniser, which needs its samples.
        """
        if self.head.scale is not None:
            raise MethodError(
                "The model of a recogniser has no usual estimator: use class_scores "
                "or Shortlist, or fit_recognizer, which keeps the samples too"
            )
        return self._assembled()

    def exact_scorer(self) -> "ShardScorer":
        """What gives exact scores of some classes, for searches.

        Returns
        -------
        ShardScorer
            The scorer.

        Raises
        ------
        MethodError
            Scores are no signed roots in a metric, or the rule is not "max".
        """
        return ShardScorer(self)

    @cached_property
    def _local(self) -> Any:
        return self._assembled()

    def _assembled(self) -> Any:
        head = self.head
        fitted = FittedArrays(
            head.classes,
            head.counts,
            head.n_features,
            self.solution(),
            head.class_scale,
            head.chosen,
            head.lam,
        )
        return assembled(head.estimator, fitted, profiles=head.profiles)

    def solution(self) -> PartSolution:
        """The solutions of all classes, in memory.

        Returns
        -------
        PartSolution
            In the order of `classes_`, with the multipliers in that of the samples.
        """
        shards = list(self.shards())
        return joined_shards(
            [shard for _, shard in shards], [places for places, _ in shards]
        )

    def _checked(self, X: ArrayLike) -> Array:
        rows = check_array(X, dtype=[np.float64, np.float32])
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but the model was fitted to "
                f"{self.n_features_in_}"
            )
        return np.asarray(rows)

    def _check_decides(self) -> None:
        if self.head.chosen.rule is None:
            raise MethodError(
                f"{type(self.head.estimator).__name__} computes features and decides "
                "nothing; use DualQMLClassifier or DualQMLW"
            )

    def _numbers(self, classes: ArrayLike) -> Index:
        """The numbers of labels."""
        wanted = np.asarray(classes)
        if wanted.ndim != 1:
            raise ValueError(
                "classes must be a list of labels of the model, not an array of "
                f"{wanted.ndim} dimensions"
            )
        if not wanted.size:
            return np.empty(0, dtype=np.intp)
        try:
            found = np.searchsorted(self.classes_, wanted)
        except TypeError as error:
            raise ValueError(
                f"classes must be labels of the model, which are {self.classes_.dtype}"
            ) from error
        known = np.minimum(found, self.classes_.size - 1)
        missing = self.classes_[known] != wanted
        if missing.any():
            what = repr(wanted[missing].tolist()[0])
            raise ValueError(f"classes must be labels of the model, not {what}")
        return known

    def _coordinates(self, rows: Array) -> Array:
        with one_blas_thread():
            return coordinate_rows(rows, self._recipe, self.head.chosen.linear)

    def _features(self, coordinates: Array, block: ClassBlock) -> Array:
        if self._recipe.signed_root:
            return signed_root_features(
                coordinates, block.components, block.ranks, block.mean_responses
            )
        return quadratic_features(coordinates, block.components, block.ranks)

    def _in_columns(
        self,
        n_rows: int,
        classes: ArrayLike | None,
        compute: Callable[[ClassBlock], Array],
    ) -> Array:
        """What is computed from blocks of classes, in the wanted order of the classes.

        All classes are read where they are, shard by shard.
        """
        if classes is not None:
            return compute(self.block_of(self._numbers(classes)))
        out = np.empty((n_rows, self.classes_.size))
        head = self.head
        for places, shard in self.shards():
            found = shard.solution
            block = ClassBlock(
                slice(0),
                found.components,
                found.ranks,
                found.mean_responses,
                None if head.class_scale is None else head.class_scale[places],
                None if head.scale is None else found.means,
            )
            out[:, places] = compute(block)
        return out

    def block_of(self, numbers: Index) -> ClassBlock:
        """What gives the scores of some classes.

        Parameters
        ----------
        numbers : ndarray of int
            Numbers of classes, in any order.

        Returns
        -------
        ClassBlock
            Factors and means of the classes, in this order, in memory.
        """
        shard_of, row_of = self._places
        ranks = self.ranks_[numbers]
        first = np.cumsum(ranks) - ranks
        width = self._width
        components = np.empty((int(ranks.sum()), width))
        responses = np.empty(len(components) if self._recipe.signed_root else 0)
        has_means = self.head.scale is not None
        means = np.empty((numbers.size, self.n_features_in_)) if has_means else None
        for number in np.unique(shard_of[numbers]):
            own = np.flatnonzero(shard_of[numbers] == number)
            shard, starts = self._shards[number], self._starts[number]
            assert shard is not None
            rows, found = row_of[numbers[own]], shard.solution
            n_factors = ranks[own]
            steps = np.arange(int(n_factors.sum()))
            steps -= np.repeat(np.cumsum(n_factors) - n_factors, n_factors)
            source = np.repeat(starts[rows], n_factors) + steps
            target = np.repeat(first[own], n_factors) + steps
            components[target] = found.components[source]
            if responses.size:
                responses[target] = found.mean_responses[source]
            if means is not None:
                means[own] = found.means[rows]
        scale = self.head.class_scale
        return ClassBlock(
            slice(0),
            components,
            ranks,
            responses,
            None if scale is None else scale[numbers],
            means,
        )

    @cached_property
    def _places(self) -> tuple[Index, Index]:
        """The shard of each class, and its number there."""
        sizes = self.head.shard_sizes
        shard_of = np.empty(self.classes_.size, dtype=np.intp)
        row_of = np.empty(self.classes_.size, dtype=np.intp)
        shard_of[self.head.places] = np.repeat(np.arange(sizes.size), sizes)
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        row_of[self.head.places] = np.arange(self.classes_.size) - starts
        return shard_of, row_of

    @cached_property
    def _starts(self) -> list[Index]:
        """For each shard, the first factor of each class."""
        empty = np.empty(0, dtype=np.int64)
        ranks = [empty if s is None else s.solution.ranks for s in self._shards]
        return [np.cumsum(own) - own for own in ranks]

    @cached_property
    def _width(self) -> int:
        """Number of coordinates."""
        linear = self.head.chosen.linear
        return self.n_features_in_ if linear is None else linear.coefficients.shape[1]

    def _scores(self, rows: Array, classes: ArrayLike | None) -> Array:
        """Scores by rule "max", or those of a recogniser."""
        scale, linear = self.head.scale, self.head.chosen.linear
        units = np.empty((len(rows), 0))
        if scale is not None:
            assert linear is not None
            # As a recogniser keeps and compares vectors.
            rows = rows.astype(np.float32)
            _, units = linear_queries(rows, linear.mean, linear.coefficients)
        coordinates = self._coordinates(rows)

        def scores_of(block: ClassBlock) -> Array:
            features, divisors = self._features(coordinates, block), block.class_scale
            if divisors is not None:
                features /= divisors if self._recipe.signed_root else divisors**2
            if scale is None:
                return features
            assert block.means is not None
            return scale.scores(features, units, block.means)

        return self._in_columns(len(rows), classes, scores_of)

    # Files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the model in a folder.

        Parameters
        ----------
        folder : path
            The folder, which is made if it does not exist. A model that it has is
            replaced: at any moment the old or the new one is there, whole.

        Raises
        ------
        FileError
            A file cannot be written.
        ModelFileError
            A shard of this model is damaged.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} cannot be made: {error.strerror}") from error
        with exclusive(folder / HEAD):
            # Shards of another model, whose saving was killed.
            remove_left_behind(folder, r"\.shard-.*\.")
            is_own = self._folder.exists() and folder.samefile(self._folder)
            names = []
            for number, (name, checksum) in enumerate(self._checksums.items()):
                source = target = self._folder / name
                if not is_own:
                    short = checksum[:16]
                    target = folder / f"shard-{number:06}-{short}.safetensors"
                if not _is_whole(target, checksum):
                    # A damaged shard must not be spread.
                    if is_own or not _is_whole(source, checksum):
                        raise ModelFileError(
                            f"{source} is damaged, or is not that of the model any more"
                        )
                    write_atomically(target, _copied(source), private=True)
                names.append(target.name)
            write_head(folder, self.head, names)
            remove_other_shards(folder, names)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> Self:
        """Load a model that `save` has written.

        Parameters
        ----------
        folder : path
            The folder.
        verify : bool, default=True
            Whether to check the checksums and all numbers, which reads all files once.

        Returns
        -------
        ShardedModel
            The model. Its arrays stay in their files.

        Raises
        ------
        ModelFileError
            There is no model, or it is damaged or of another format.
        """
        folder = Path(folder)
        while True:
            before = stored_checksum(folder / HEAD)
            try:
                return cls._loaded(folder, verify=verify)
            except ModelFileError:
                # Another process may have replaced the model in the meantime.
                if stored_checksum(folder / HEAD) == before:
                    raise

    @classmethod
    def _loaded(cls, folder: Path, *, verify: bool) -> Self:
        head, shards = read_head(folder, verify=verify)
        for name, checksum in shards.items():
            path = folder / name
            if stored_checksum(path) != checksum:
                raise ModelFileError(f"{path} is not the shard that the model had")
            if verify:
                read_shard(path, verify=True)
        model = cls(folder, head, shards)
        model._check_shapes()
        if verify:
            check_numbers([shard for _, shard in model.shards()])
        return model

    def _check_shapes(self) -> None:
        """Raise if shards do not fit the head."""
        n_inputs = 0 if self.head.scale is None else self.n_features_in_
        for places, shard in self.shards():
            found = shard.solution
            fits = found.components.shape[1] == self._width
            fits &= bool((shard.labels == self.classes_[places]).all())
            fits &= bool((shard.counts == self.counts_[places]).all())
            fits &= found.mean_responses.size == (
                len(found.components) if self._recipe.signed_root else 0
            )
            fits &= found.means.size == 0 or found.means.shape[1] == n_inputs
            fits &= (found.means.size > 0) == (n_inputs > 0)
            if not fits:
                raise ModelFileError(f"{self._folder}: a shard is of another model")


def _is_whole(path: Path, checksum: str) -> bool:
    """Whether a file is there, not damaged, and has the right content."""
    try:
        read_tensors(path)
        return stored_checksum(path) == checksum
    except ModelFileError:
        return False


def _copied(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while content := stream.read(_COPY_BYTES):
            yield content


def remove_other_shards(folder: Path, names: list[str]) -> None:
    """Remove the shards that are not of the model.

    Parameters
    ----------
    folder : Path
        The folder of the model.
    names : list of str
        The names of its shards.

    Raises
    ------
    FileError
        One cannot be removed.
    """
    for path in sorted(folder.glob("shard-*.safetensors")):
        if path.name not in names:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise FileError(
                    f"{path} is of an old model and cannot be removed: "
                    f"{error.strerror}. The new model is saved; remove it"
                ) from error


class ShardScorer:
    """The scores of a sharded model, for exact searches; an `ExactScorer`.

    Parameters
    ----------
    model : ShardedModel
        The model.
    """

    def __init__(self, model: ShardedModel) -> None:
        head = model.head
        linear = head.chosen.linear
        # A single feature has no direction, which scores compare.
        if linear is None or head.chosen.rule != "max" or head.n_features < 2:
            raise MethodError(
                "A search needs a model of DualQMLW with rule='max', or of a recogniser"
            )
        self.model = model
        self.mean, self.coefficients = linear.mean, linear.coefficients
        self.scale = ScoreScale() if head.scale is None else head.scale
        self.labels = head.classes

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.labels.size)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of all numbers of the model."""
        head, shards = self.model.head, list(self.model._checksums.values())
        return key_of(
            self.mean, self.coefficients, self.scale, head.class_scale, shards
        )

    def queries(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """Coordinates and unit vectors of probes; see `linear_queries`."""
        return linear_queries(rows, self.mean, self.coefficients)

    def scores_of(self, z: Array, unit: Array, classes: Index) -> Array:
        """Scores of one probe for some classes; see `exact_scores`."""
        return exact_scores(z, unit, self.model.block_of(classes), self.scale)

    def class_blocks(self) -> Iterator[ClassBlock]:
        """All classes, in order, some at a time."""
        for start in range(0, self.n_classes, _CLASSES):
            classes = slice(start, min(start + _CLASSES, self.n_classes))
            block = self.model.block_of(np.arange(classes.start, classes.stop))
            yield block._replace(classes=classes)
