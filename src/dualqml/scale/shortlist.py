# SPDX-License-Identifier: BSD-3-Clause
"""A shortlist of the classes that may be the best of a probe, and their exact scores.

The proposals come from short vectors (see `dualqml.scale.short_vectors`): the k classes
with the largest products, of all or of those that an inverted file looks at. These, and
all classes whose score is not linear, are scored exactly, in double precision.

No share of found classes is promised. It depends on the people: `Shortlist.recall`
measures it.
"""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml import __version__
from dualqml._text import printable
from dualqml._typing import Array, Index
from dualqml.evaluation.intervals import binomial_interval
from dualqml.exceptions import MissingDependencyError, ModelFileError, RecognitionError
from dualqml.persistence.formats import VERSION_KEY
from dualqml.persistence.tensors import read_tensors, strict_json, write_tensors
from dualqml.recognition.exact_scorer import (
    MODEL_KEY,
    ExactScorer,
    check_file_of_model,
    checked_vectors,
    finite_queries,
)
from dualqml.recognition.folded_search import (
    LEAST_LINEAR,
    Best,
    FoldedGallery,
    best_of_some,
    score_constant,
    searching_part,
)
from dualqml.recognition.recognizer import Recognizer
from dualqml.scale.inverted_file import InvertedFile, Moments, import_faiss
from dualqml.scale.short_vectors import (
    FlatIndex,
    query_width,
    short_queries,
    short_vectors,
)

IndexKind = Literal["flat", "ivf"]

#: Most probes at a time.
_PROBES = 256
#: Probes with which recall is measured if none are given.
_OWN_PROBES = 3000

_FORMAT_KEY, _FORMAT = "dualqml.shortlist", 1
_SETTINGS_KEY = "dualqml.shortlist.settings"


@dataclass(frozen=True)
class Recall:
    """How often the best class of all was in the shortlist.

    Attributes
    ----------
    estimate : float
        The share of probes whose best class by the exact scores of all classes was
        found.
    low, high : float
        Ends of the interval of Clopper and Pearson with a confidence of 95 %.
    n_probes : int
        Number of probes.
    simulated : bool
        Whether the probes were made from the enrolled samples.
    """

    estimate: float
    low: float
    high: float
    n_probes: int
    simulated: bool

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """The recall in a dictionary of its fields.

        Parameters
        ----------
        record : dict
            The fields.

        Returns
        -------
        Recall
            The recall.

        Raises
        ------
        ValueError
            A field is missing, unknown, or of another type.
        """
        types = {field.name: field.type for field in fields(cls)}
        if {name: type(value) for name, value in record.items()} != types:
            raise ValueError("its recall is not one")
        return cls(**record)


class Shortlist:
    """Search among very many classes with exact scores of a shortlist.

    A search proposes `k` classes for each probe, and orders them by their exact scores
    in double precision. It may miss a class that should be among the best; `recall`
    measures how often. The search of `Recognizer.identify` misses none, and reads
    about twice as many bytes as an index of kind "flat".

    It does not change, so threads may share it. It is for the classes that the model
    had when it was made: after a change of a recogniser, make another one. Until it is
    deleted, it holds on to the model of that time.

    Parameters
    ----------
    model : Recognizer, DecisionModel, ShardedModel or ExactScorer
        The model: DualQML-W on vectors, with rank one for nine of ten classes.
    index : {"flat", "ivf"}, default="flat"
        "flat" reads a short vector of every class. "ivf" reads a part of them, by an
        inverted file of FAISS. It is much faster if the people differ in few
        directions, as faces do, and misses more.
    k : int, default=100
        Length of the shortlist.
    n_lists : int, optional
        Number of groups of "ivf". By default four times the root of the number of
        classes.
    n_probes : int, optional
        Number of groups into which a search looks. By default three of ten.

    Attributes
    ----------
    scorer : ExactScorer
        What gives the exact scores.
    index : str
        The kind of the index.
    k : int
        Length of the shortlist.
    measured : Recall or None
        What `recall` has found last; it is saved with the shortlist.

    Raises
    ------
    RecognitionError
        The model cannot be searched in this way, or a parameter is not valid.
    MissingDependencyError
        "ivf" needs FAISS, which is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer
    >>> from dualqml.scale import Shortlist
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(40, 1, 16))
    >>> samples = people + 0.2 * rng.normal(size=(40, 3, 16))
    >>> recognizer = Recognizer()
    >>> names = [f"person {number:02d}" for number in range(40)]
    >>> recognizer.enroll_many(samples.reshape(120, 16), np.repeat(names, 3).tolist())
    >>> shortlist = Shortlist(recognizer, k=5)
    >>> found = shortlist.search(people[7], top=2)
    >>> str(shortlist.scorer.labels[found.classes[0, 0]])
    'person 07'
    >>> shortlist.recall().estimate
    1.0
    """

    def __init__(
        self,
        model: Any,
        *,
        index: IndexKind = "flat",
        k: int = 100,
        n_lists: int | None = None,
        n_probes: int | None = None,
    ) -> None:
        _check_parameters(index, k, n_lists, n_probes)
        if index == "ivf":
            import_faiss()
        self._attach(model)
        moments = Moments(query_width(self.scorer))
        short = short_vectors(self.scorer, moments if index == "ivf" else None)
        if short.classes.size < max(LEAST_LINEAR * self.scorer.n_classes, 1.0):
            raise RecognitionError(
                f"Only {short.classes.size} of {self.scorer.n_classes} classes have "
                "rank one and usual numbers: a shortlist would have to add all others "
                "to each search"
            )
        self.index: str = index
        self.k = k
        self.measured: Recall | None = None
        self._proposer: _Proposer = FlatIndex(short)
        if index == "ivf":
            self._proposer = InvertedFile.built(
                short, moments, n_lists=n_lists, n_probes=n_probes
            )
        self._others = _others(self._proposer.classes, self.scorer.n_classes)

    def _attach(self, model: Any) -> None:
        self._model, self._part = model, searching_part(model)
        self.scorer = _scorer_of(self._part)
        self._model_id = getattr(model, "model_id", None)

    def search(self, rows: ArrayLike, top: int = 5) -> Best:
        """The best classes of probes.

        Parameters
        ----------
        rows : array-like of shape (n_probes, n_features)
            The probes. Many at a time are faster than one after the other.
        top : int, default=5
            How many classes are wanted, at least one. The shortlist is at least so
            long.

        Returns
        -------
        Best
            The classes and their exact scores. In `log_sums`, classes that are not in
            the shortlist have approximate scores, so that it may be wrong by some
            tenths. With "ivf" they are left out: it is a lower bound. For
            probabilities there is `Recognizer.identify`.

        Raises
        ------
        RecognitionError
            The probes cannot be used, or the recogniser has changed.
        """
        if top < 1:
            raise RecognitionError(f"top must be at least 1, got {top}")
        if getattr(self._model, "model_id", None) != self._model_id:
            raise RecognitionError(
                "The recogniser has changed since this shortlist was made: make it "
                "again"
            )
        scorer = self.scorer
        z, units = finite_queries(scorer, checked_vectors(rows, scorer.mean.size))
        width = min(top, scorer.n_classes)
        classes = np.empty((len(z), width), dtype=np.intp)
        scores, sums = np.empty((len(z), width)), np.empty(len(z))
        for start in range(0, len(z), _PROBES):
            part = slice(start, start + _PROBES)
            queries = short_queries(scorer, z[part], units[part])
            proposals = self._proposer.proposals(queries, max(self.k, top))
            for number, (proposed, rest) in enumerate(proposals, start):
                own = np.concatenate([proposed, self._others])
                rest += score_constant(scorer.scale)
                found = best_of_some(scorer, z[number], units[number], own, top, rest)
                classes[number], scores[number], sums[number] = found
        return Best(classes, scores, sums)

    def recall(self, probes: ArrayLike | None = None) -> Recall:
        """Measure how often the best class of all is in the shortlist.

        Parameters
        ----------
        probes : array-like of shape (n_probes, n_features), optional
            Samples like those of later searches, that were not enrolled. By default,
            up to 3,000 are made from the samples of a recogniser: the mean of a subject
            plus the difference of a sample of somebody else and the mean of its
            subject. If all subjects have one sample, the samples themselves are used,
            which are easier to find than new ones.

        Returns
        -------
        Recall
            The share. It is kept in `measured`, and in files.

        Raises
        ------
        RecognitionError
            There are no probes, and the model has no samples.
        """
        simulated = probes is None
        rows = _own_probes(self._model) if probes is None else probes
        rows = checked_vectors(rows, self.scorer.mean.size)
        if not len(rows):
            raise RecognitionError("Recall needs at least one probe")
        found = self.search(rows, 1)
        gallery = getattr(self._part, "folded_gallery", lambda: None)()
        if gallery is None:
            gallery = FoldedGallery(self.scorer)
        best = gallery.search(rows, 1)
        # Another class with the same score is as good.
        n_found = int(np.count_nonzero(found.scores >= best.scores))
        interval = binomial_interval(n_found, len(rows))
        self.measured = Recall(
            interval.estimate, interval.low, interval.high, len(rows), simulated
        )
        return self.measured

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the index and the measured recall, without the model.

        Parameters
        ----------
        path : path
            The file. It has as much of the people in it as the model.

        Raises
        ------
        FileError
            The file cannot be written. An old file is not changed.
        """
        settings = {
            "index": self.index,
            "k": self.k,
            "recall": None if self.measured is None else asdict(self.measured),
        }
        arrays, own = self._proposer.state()
        metadata = {
            _FORMAT_KEY: str(_FORMAT),
            VERSION_KEY: __version__,
            MODEL_KEY: self.scorer.fingerprint,
            _SETTINGS_KEY: json.dumps(settings | own),
        }
        arrays["classes"] = self._proposer.classes.astype(np.int64, copy=False)
        write_tensors(path, arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any) -> Self:
        """Load the shortlist of a model.

        Parameters
        ----------
        path : path
            A file that `save` has written.
        model : Recognizer, DecisionModel, ShardedModel or ExactScorer
            The model.

        Returns
        -------
        Shortlist
            The shortlist. Its vectors stay in the file until they are used. Processes
            that load the same file share their memory (an index of FAISS older than
            1.11 is copied).

        Raises
        ------
        ModelFileError
            The file does not exist, is damaged, or is of another model.
        MissingDependencyError
            The file has an index of FAISS, which is not installed.
        """
        arrays, metadata = read_tensors(path)
        found = cls.__new__(cls)
        found._attach(model)
        check_file_of_model(path, metadata, _FORMAT_KEY, _FORMAT, found.scorer)
        try:
            found._restore(arrays, strict_json(metadata[_SETTINGS_KEY]))
        except MissingDependencyError:
            raise
        # A forged file can have anything in any place.
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            RecognitionError,
        ) as error:
            reason = printable(str(error), 300)
            raise ModelFileError(f"{path} cannot be loaded: {reason}") from error
        return found

    def _restore(self, arrays: dict[str, NDArray[Any]], settings: Any) -> None:
        """Take everything from a file; raise ValueError if it does not fit."""
        classes, scorer = arrays["classes"], self.scorer
        inside = (classes >= 0) & (classes < scorer.n_classes)
        known = classes.dtype == np.int64 and classes.ndim == 1 and classes.size
        if not known or not inside.all() or not (np.diff(classes) > 0).all():
            raise ValueError("its classes are not those of the model")
        classes = classes.astype(np.intp, copy=False)
        self._others = _others(classes, scorer.n_classes)
        self.index, self.k = settings["index"], settings["k"]
        _check_parameters(self.index, self.k, None, None)
        width = query_width(scorer)
        if self.index == "flat":
            self._proposer = FlatIndex.restored(arrays, classes, width)
        else:
            self._proposer = InvertedFile.restored(arrays, settings, classes, width)
        record = settings["recall"]
        self.measured = None if record is None else Recall.from_dict(record)


class _Proposer(Protocol):
    """What proposes classes: a `FlatIndex` or an `InvertedFile`."""

    classes: Index

    def proposals(self, queries: Array, k: int) -> Iterator[tuple[Index, float]]:
        """At least k classes for each query; log-sum of all others, if known."""

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a file keeps."""


def _check_parameters(
    index: str, k: int, n_lists: int | None, n_probes: int | None
) -> None:
    if index not in ("flat", "ivf"):
        raise RecognitionError(f'index must be "flat" or "ivf", got {index!r}')
    for name, number in (("k", k), ("n_lists", n_lists), ("n_probes", n_probes)):
        if number is None and name != "k":
            continue
        is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not is_whole or number < 1:  # type: ignore[operator]
            raise RecognitionError(
                f"{name} must be a whole number of at least 1, got {number!r}"
            )
        if name != "k" and index != "ivf":
            raise RecognitionError(f'{name} is for index="ivf" only')


def _scorer_of(model: Any) -> ExactScorer:
    """What gives exact scores of a model."""
    if hasattr(model, "exact_scorer"):
        model = model.exact_scorer()
    if not hasattr(model, "class_blocks"):
        raise RecognitionError(
            "A shortlist needs scores that are linear in vectors: those of DualQML-W "
            'with a linear kernel and rule "max", on vectors. Images, other methods '
            "and other rules compute all scores"
        )
    return model  # type: ignore[no-any-return]


def _others(classes: Index, n_classes: int) -> Index:
    """All other classes."""
    is_other = np.ones(n_classes, dtype=bool)
    is_other[classes] = False
    return np.flatnonzero(is_other)


def _own_probes(model: Any) -> NDArray[Any]:
    """New samples of enrolled people, made from the samples of a recogniser."""
    if not isinstance(model, Recognizer):
        raise RecognitionError(
            "This model has no samples: give probes, samples of enrolled people that "
            "were not enrolled"
        )
    rng = np.random.default_rng(0)
    subjects = model.subjects()
    chosen = rng.permutation(len(subjects))[:_OWN_PROBES]
    samples = [model.samples(subjects[number]).astype(np.float64) for number in chosen]
    residuals = [
        # Means of few samples are near to them. Besides, a mean differs from the
        # person's own as a new sample does, only less.
        math.sqrt((1.0 + 1.0 / len(own)) * len(own) / (len(own) - 1.0))
        * (own - own.mean(axis=0))
        for own in samples
        if len(own) > 1
    ]
    if not residuals:
        return np.array([own[0] for own in samples])
    differences = np.concatenate(residuals)
    drawn = differences[rng.integers(0, len(differences), len(samples))]
    return np.asarray([own.mean(axis=0) for own in samples] + drawn)
