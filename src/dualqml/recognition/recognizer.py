# SPDX-License-Identifier: BSD-3-Clause
"""Enrol, verify, identify, say "unknown", erase."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from dualqml.core.arrays import Array
from dualqml.extractors.methods import METHODS
from dualqml.recognition.calibration import (
    calibrate,
    held_out_trials,
    left_out_trials,
)
from dualqml.recognition.gallery import Gallery, checked_name
from dualqml.recognition.inputs import Embedding, InputReader, Inputs
from dualqml.recognition.matcher import Matcher
from dualqml.recognition.recognizer_files import load_recognizer, save_recognizer
from dualqml.recognition.results import (
    Calibration,
    Candidate,
    Identification,
    NoThresholdError,
    RecognitionError,
    UnknownSubjectError,
    Verification,
)


class Recognizer:
    """People who can be enrolled, recognised and erased.

    After every `enroll` and `remove` the model is the one that a fresh fit to the
    present subjects gives: nothing of a removed subject is left in it. It is fitted
    when it is next needed.

    Scores are similarities: the larger, the more alike. A decision needs a
    threshold: from `calibrate`, given by hand, or with the call.

    Read more in the :ref:`user guide <recognition>`.

    Parameters
    ----------
    method : str, default="DualQML-W"
        A key of `dualqml.extractors.methods.METHODS`.
    size : tuple of int, default=(32, 32)
        Height and width to which images are resized. Not used for vectors.
    threshold : float, default=None
        The score that makes a match.
    cosine_weight : float, default=None
        Weight of the cosine to a subject's mean in the score, which tells
        strangers. None means 0.8 for vectors and 0 for images, where pixels of
        different people are alike anyhow.
    embedding : callable, default=None
        From a list of images to an array with a vector for each. It is not saved:
        give it again to `load`.
    **parameters : dict
        Parameters of the method, instead of those that did well for vectors or
        images.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer
    >>> rng = np.random.default_rng(0)
    >>> people = {name: rng.normal(size=20) for name in ["Ann", "Bob", "Zoe"]}
    >>> recognizer = Recognizer(threshold=1.0)
    >>> for name, face in people.items():
    ...     recognizer.enroll(name, face + 0.2 * rng.normal(size=(3, 20)))
    >>> recognizer.subjects()
    ['Ann', 'Bob', 'Zoe']
    >>> recognizer.identify(people["Zoe"]).subject
    'Zoe'
    >>> recognizer.identify(rng.normal(size=20)).decision
    'unknown'
    >>> recognizer.verify("Ann", people["Bob"]).decision
    'no match'
    >>> recognizer.remove("Zoe")
    >>> recognizer.identify(people["Zoe"]).decision
    'unknown'
    """

    def __init__(
        self,
        method: str = "DualQML-W",
        *,
        size: tuple[int, int] = (32, 32),
        threshold: float | None = None,
        cosine_weight: float | None = None,
        embedding: Any = None,
        **parameters: Any,
    ) -> None:
        if method not in METHODS:
            raise RecognitionError(
                f"{method!r} is not a method; choose from {', '.join(METHODS)}"
            )
        self.method = method
        self.size = size
        self.cosine_weight = cosine_weight
        self.parameters = parameters
        self._reader = InputReader(size=size, embedding=embedding)
        self._gallery = Gallery()
        self._matcher: Matcher | None = None
        self._fitted = False
        self.calibration: Calibration | None = None
        if threshold is not None:
            self.set_threshold(threshold)

    # Enrolment

    def subjects(self) -> list[str]:
        """The enrolled subjects, sorted.

        Returns
        -------
        list of str
            Their names.
        """
        return list(self._gallery)

    def enroll(self, subject: str, images: Inputs) -> None:
        """Enrol a subject, or add to what is known of one.

        Parameters
        ----------
        subject : str
            The name.
        images : array, image, path or list of them
            An image (height, width), several (n, height, width), a vector (p,),
            several (n, p), Pillow images or paths. All that is ever enrolled must
            be of one kind.

        Raises
        ------
        RecognitionError
            The name or the samples cannot be used; nothing has changed.
        """
        checked_name(subject)
        self._add(subject, self._reader.read(images))

    def enroll_many(self, images: Inputs, subjects: Sequence[str]) -> None:
        """Enrol many samples at once.

        Parameters
        ----------
        images : array or list
            Samples, as for `enroll`.
        subjects : sequence of str
            The subject of each.
        """
        rows = self._reader.read(images)
        names = [checked_name(subject) for subject in subjects]
        if len(names) != len(rows):
            raise RecognitionError(
                f"{len(rows)} samples need as many subjects, got {len(names)}"
            )
        labels = np.array(names)
        for subject in dict.fromkeys(names):
            self._add(subject, rows[labels == subject])

    def remove(self, subject: str) -> None:
        """Erase a subject.

        Nothing of it is left in the model. Files that were saved before are not
        touched: save again to the same place.

        Parameters
        ----------
        subject : str
            The name.

        Raises
        ------
        UnknownSubjectError
            It is not enrolled.
        """
        self._gallery.remove(subject)
        if self._matcher is not None:
            self._matcher.forget(subject)
        self._fitted = False
        if not self._gallery:
            self._matcher = None
            self._reader.reset()

    def _add(self, subject: str, rows: NDArray[Any]) -> None:
        self._gallery.add(subject, rows)
        if self._matcher is not None:
            self._matcher.forget(subject)
        self._fitted = False

    # Recognition

    def verify(
        self, subject: str, image: Inputs, *, threshold: float | None = None
    ) -> Verification:
        """Decide whether an image shows a subject.

        Parameters
        ----------
        subject : str
            The subject claimed.
        image : array, image or path
            One sample.
        threshold : float, optional
            Instead of that of the model.

        Returns
        -------
        Verification
            The decision and its score.
        """
        return self.verify_many([subject], self._one(image), threshold=threshold)[0]

    def verify_many(
        self, subjects: Sequence[str], images: Inputs, *, threshold: float | None = None
    ) -> list[Verification]:
        """Decide for many pairs of a subject and an image.

        Parameters
        ----------
        subjects : sequence of str
            The subjects claimed.
        images : array or list
            A sample for each.
        threshold : float, optional
            Instead of that of the model.

        Returns
        -------
        list of Verification
            A decision for each.
        """
        limit = self._threshold(threshold)
        scores = self.scores(images)
        names = self.subjects()
        place = {name: column for column, name in enumerate(names)}
        unknown = [subject for subject in subjects if subject not in place]
        if unknown:
            raise UnknownSubjectError(
                f"{unknown[0]!r} is not enrolled; {len(names)} subjects are"
            )
        if len(subjects) != len(scores):
            raise RecognitionError(
                f"{len(scores)} samples need as many subjects, got {len(subjects)}"
            )
        model_id = self.model_id
        found = []
        for subject, row in zip(subjects, scores, strict=True):
            score = float(row[place[subject]])
            decision = "match" if score >= limit else "no match"
            found.append(
                Verification(decision, subject, score, limit, model_id)  # type: ignore[arg-type]
            )
        return found

    def identify(
        self, image: Inputs, *, top: int = 5, threshold: float | None = None
    ) -> Identification:
        """Decide who is on an image, if anybody who is enrolled.

        Parameters
        ----------
        image : array, image or path
            One sample.
        top : int, default=5
            Length of the list of candidates.
        threshold : float, optional
            Instead of that of the model.

        Returns
        -------
        Identification
            The decision and the candidates.
        """
        return self.identify_many(self._one(image), top=top, threshold=threshold)[0]

    def identify_many(
        self, images: Inputs, *, top: int = 5, threshold: float | None = None
    ) -> list[Identification]:
        """Decide for many images.

        Parameters
        ----------
        images : array or list
            Samples.
        top : int, default=5
            Length of the lists of candidates.
        threshold : float, optional
            Instead of that of the model.

        Returns
        -------
        list of Identification
            A decision for each.
        """
        if top < 1:
            raise RecognitionError(f"top must be at least 1, got {top}")
        limit = self._threshold(threshold)
        scores, names, model_id = self.scores(images), self.subjects(), self.model_id
        found = []
        for row in scores:
            order = np.argsort(-row, kind="stable")[:top]
            candidates = tuple(Candidate(names[c], float(row[c])) for c in order)
            best = candidates[0]
            match = best.score >= limit
            found.append(
                Identification(
                    "match" if match else "unknown",
                    best.subject if match else None,
                    best.score,
                    limit,
                    candidates,
                    model_id,
                )
            )
        return found

    def scores(self, images: Inputs) -> Array:
        """Similarities of samples to all subjects.

        Parameters
        ----------
        images : array or list
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_subjects)
            In the order of `subjects`.
        """
        return self._ready().scores(self._reader.read(images, enrolling=False))

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything in one file.

        At any moment the old or the new file is there, whole. It holds the samples
        of the enrolled subjects and nothing of any other.

        Parameters
        ----------
        path : path
            The file; its folder is made if it is not there.

        Raises
        ------
        FileError
            It cannot be written. The old one is untouched.
        """
        save_recognizer(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        embedding: Embedding | None = None,
        verify: bool = True,
    ) -> Self:
        """Load what `save` has written.

        Parameters
        ----------
        path : path
            The file.
        embedding : callable, optional
            As in the constructor; files do not hold it.
        verify : bool, default=True
            Whether to check the checksum, which reads the whole file once.

        Returns
        -------
        Recognizer
            Its arrays stay in the file until they are used; processes that load the
            same file share their memory.

        Raises
        ------
        ModelFileError
            There is no such file, it is damaged, or of another format.
        """
        return cast(
            Self, load_recognizer(cls, path, embedding=embedding, verify=verify)
        )

    # Model

    @property
    def inputs(self) -> str | None:
        """What samples are: "image" or "vector"; None while nobody is enrolled."""
        return self._reader.kind

    @property
    def model_id(self) -> str:
        """Sixteen hexadecimal digits that change with any sample or parameter."""
        digest = hashlib.sha256()
        about = [self.method, list(self.size), self.cosine_weight, self.parameters]
        digest.update(json.dumps([about, self.subjects()], sort_keys=True).encode())
        for subject in self._gallery:
            rows = np.ascontiguousarray(self._gallery[subject])
            digest.update(repr((rows.shape, rows.dtype.str)).encode() + rows.tobytes())
        return digest.hexdigest()[:16]

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return self._gallery.n_samples

    def fit(self) -> "Recognizer":
        """Learn now, rather than when it is next needed.

        Returns
        -------
        Recognizer
            The same object.
        """
        self._ready()
        return self

    def _ready(self) -> Matcher:
        if len(self._gallery) < 2:
            raise RecognitionError(
                "Recognition compares people: enrol at least two subjects, "
                f"{len(self._gallery)} is enrolled"
            )
        if self._matcher is None:
            self._matcher = Matcher.default(
                self.method,
                self._reader.image_shape,
                self.cosine_weight,
                self.parameters,
            )
        if not self._fitted:
            self._matcher.fit(self._gallery)
            self._fitted = True
        return self._matcher

    def _one(self, image: Inputs) -> Inputs:
        rows = self._reader.read(image, enrolling=False)
        if len(rows) != 1:
            raise RecognitionError(
                f"One sample was expected, got {len(rows)}; for several there are "
                "verify_many and identify_many"
            )
        return self._reader.as_inputs(rows)

    # Thresholds

    def set_threshold(self, threshold: float) -> None:
        """Set the threshold by hand.

        Parameters
        ----------
        threshold : float
            The score that makes a match.
        """
        if not np.isfinite(threshold):
            raise RecognitionError(f"A threshold is a finite number, not {threshold!r}")
        self.calibration = Calibration(
            float(threshold), "given", source="given by the user"
        )

    @property
    def threshold(self) -> float | None:
        """The threshold, if there is one."""
        return None if self.calibration is None else self.calibration.threshold

    def _threshold(self, given: float | None) -> float:
        if given is not None:
            return float(given)
        if self.calibration is None:
            raise NoThresholdError(
                "There is no threshold yet: calibrate the recogniser, or pass "
                "threshold. scores() needs none."
            )
        return self.calibration.threshold

    def calibrate(
        self,
        images: Inputs | None = None,
        labels: Sequence[str] | None = None,
        *,
        fmr: float | None = None,
        fpir: float | None = None,
    ) -> Calibration:
        """Set the threshold for a rate of false matches.

        Parameters
        ----------
        images : array or list, optional
            Samples that were not enrolled, of people who are not enrolled and, to
            learn the price, of some who are. Without them the enrolled subjects
            are left out in turn.
        labels : sequence of str, optional
            Who is on the images.
        fmr : float, optional
            False match rate of a verification.
        fpir : float, optional
            False positive identification rate of a search among all subjects.

        Returns
        -------
        Calibration
            The threshold and where it comes from. It stays with the model.
        """
        if (fmr is None) == (fpir is None):
            raise RecognitionError("Give either fmr (verify) or fpir (identify)")
        if (images is None) != (labels is None):
            raise RecognitionError("Images and labels come together")
        if images is None or labels is None:
            trials = left_out_trials(self)
            source = f"{len(self._gallery)} enrolled subjects left out in turn"
        else:
            trials = held_out_trials(self, images, labels)
            source = f"{len(trials.nonmated)} samples of people who are not enrolled"
        self.calibration = calibrate(
            trials,
            kind="fmr" if fpir is None else "fpir",
            target=float(fmr if fmr is not None else fpir),  # type: ignore[arg-type]
            source=source,
        )
        return self.calibration

    # For calibration and files

    def samples(self, subject: str) -> NDArray[Any]:
        """The samples of a subject, one a row, as they are kept.

        Parameters
        ----------
        subject : str
            The name.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            8-bit pixels, or vectors.
        """
        return np.asarray(self._gallery[subject])

    def row_scores(self, rows: NDArray[Any]) -> Array:
        """Similarities of samples that are rows already, as `samples` gives them.

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_subjects)
            In the order of `subjects`.
        """
        return self._ready().scores(rows)

    def without(self, subjects: Iterable[str]) -> "Recognizer":
        """A recogniser of the same kind without some subjects.

        Parameters
        ----------
        subjects : iterable of str
            Whom to leave out.

        Returns
        -------
        Recognizer
            A new one; this one is not changed.
        """
        left_out = set(subjects)
        other = Recognizer(
            self.method,
            size=self.size,
            cosine_weight=self.cosine_weight,
            **self.parameters,
        )
        other._reader = self._reader.copy()
        for subject in self._gallery:
            if subject not in left_out:
                other._gallery.add(subject, self._gallery[subject])
        if self._matcher is not None:
            other._matcher = self._matcher.fresh(other._gallery)
        if self.calibration is not None:
            other.calibration = replace(self.calibration)
        return other

    def hold_out_one(self, rng: np.random.Generator) -> tuple[NDArray[Any], list[str]]:
        """Take one sample out of every subject that has several.

        Parameters
        ----------
        rng : Generator
            Chance.

        Returns
        -------
        rows : ndarray of shape (n_held_out, n_features)
            The samples.
        subjects : list of str
            Whose they are.
        """
        held_out, whose = [], []
        for subject in self.subjects():
            own = self._gallery[subject]
            if len(own) > 1:
                chosen = int(rng.integers(len(own)))
                held_out.append(own[chosen].copy())
                whose.append(subject)
                kept = np.delete(np.arange(len(own)), chosen)
                rest = own[kept]
                self._gallery.remove(subject)
                self._gallery.add(subject, rest)
                if self._matcher is not None:
                    self._matcher.narrow(subject, kept)
        self._fitted = False
        return np.array(held_out), whose
