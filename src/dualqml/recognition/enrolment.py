# SPDX-License-Identifier: BSD-3-Clause
"""Who is enrolled, the model fitted to them, and its file."""

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from dualqml.core import DualQMLError
from dualqml.extractors._images import SizeLike
from dualqml.extractors.methods import METHODS
from dualqml.recognition._kinds import SIZE
from dualqml.recognition.gallery import Gallery, checked_name
from dualqml.recognition.inputs import Embedding, InputReader, Inputs
from dualqml.recognition.matcher import Matcher, SampleCache
from dualqml.recognition.recognizer_files import load_recognizer, save_recognizer
from dualqml.recognition.results import Calibration, RecognitionError

_BEFORE_REMOVAL = "kept from a calibration before a removal; calibrate again"


class Enrolment:
    """What all recognisers share: enrolment, erasure and files. Do not use directly.

    After every change the model is the one that a fresh fit to the present subjects
    gives. It is fitted when it is next needed. Changes wait for each other; a search
    sees the people before a change or those after it.
    """

    def __init__(
        self,
        method: str = "DualQML-W",
        *,
        size: SizeLike = (32, 32),
        cosine_weight: float | None = None,
        embedding: Any = None,
        **parameters: Any,
    ) -> None:
        if method not in METHODS:
            raise RecognitionError(
                f"{method!r} is not a method; choose from {', '.join(METHODS)}"
            )
        self._reader = InputReader(size=size, embedding=embedding)
        self.method = method
        self.size = self._reader.size
        if not SIZE.holds(self.size):
            raise RecognitionError(f"size must be {SIZE.name}, got {size!r}")
        self.cosine_weight = None if cosine_weight is None else float(cosine_weight)
        self.parameters = {
            name: value.tolist()
            if isinstance(value, np.generic | np.ndarray)
            else value
            for name, value in parameters.items()
        }
        try:
            Matcher.default(method, self.size, cosine_weight, parameters).estimator()
        except (TypeError, ValueError) as error:
            raise RecognitionError(str(error)) from error
        self._gallery = Gallery()
        self._cache = SampleCache()
        #: Fitted to the present subjects, or None.
        self._matcher: Matcher | None = None
        self._changing = threading.RLock()
        self._model_id: str | None = None
        self.calibration: Calibration | None = None

    def __getstate__(self) -> dict[str, Any]:
        # For copies, and for processes that are handed one; a lock is of a process.
        with self._changing:
            return {k: v for k, v in vars(self).items() if k != "_changing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._changing = threading.RLock()

    def subjects(self) -> list[str]:
        """The enrolled subjects, sorted.

        Returns
        -------
        list of str
            Their names.
        """
        with self._changing:
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
        subject = checked_name(subject)
        with self._changing, self._reader.kept_on_error():
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
        names = [checked_name(subject) for subject in subjects]
        with self._changing, self._reader.kept_on_error():
            rows = self._reader.read(images)
            if len(names) != len(rows):
                raise RecognitionError(
                    f"{len(rows)} samples need as many subjects, got {len(names)}"
                )
            # One row is like the others: if the first fits, all do.
            places: dict[str, list[int]] = {}
            for place, subject in enumerate(names):
                places.setdefault(subject, []).append(place)
            for subject, own in places.items():
                self._add(subject, rows[own])

    def remove(self, subject: str) -> None:
        """Erase a subject.

        Nothing of it is left in the model. Of a calibration only the threshold
        stays, a number; calibrate again when you can. Files that were saved before
        are not touched: save again to the same place.

        Parameters
        ----------
        subject : str
            The name.

        Raises
        ------
        UnknownSubjectError
            It is not enrolled.
        """
        with self._changing:
            self._gallery[subject]  # An error if it is not enrolled.
            self._forget(subject)
            if self.calibration is not None and self.calibration.kind != "given":
                # Rates and counts were of this subject's samples too.
                self.calibration = Calibration(
                    self.calibration.threshold, "given", source=_BEFORE_REMOVAL
                )
            self._gallery.remove(subject)
            if not self._gallery:
                # A threshold of other people, perhaps of another kind of samples.
                if self.calibration and self.calibration.source == _BEFORE_REMOVAL:
                    self.calibration = None
                self._cache = SampleCache()
                self._reader.reset()

    def _add(self, subject: str, rows: NDArray[Any]) -> None:
        self._gallery.checked(subject, rows)
        self._forget(subject)
        self._gallery.add(subject, rows)

    def _forget(self, subject: str) -> None:
        """Forget what was learnt, before a subject changes.

        In this order: whatever comes between, there is no model of other samples
        than those of the gallery.
        """
        self._matcher = self._model_id = None
        self._cache.forget(subject)

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
        with self._changing:
            return np.array(self._gallery[subject])

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
        with self._changing:
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
        object
            Its arrays stay in the file until they are used; processes that load the
            same file share their memory.

        Raises
        ------
        ModelFileError
            There is no such file, it is damaged, or of another format.
        """
        found = load_recognizer(cls, path, embedding=embedding, verify=verify)
        return cast(Self, found)

    @property
    def inputs(self) -> str | None:
        """What samples are: "image" or "vector"; None while nobody is enrolled."""
        return self._reader.kind

    @property
    def model_id(self) -> str:
        """Sixteen hexadecimal digits that change with any sample or parameter."""
        model_id = self._model_id
        if model_id is None:
            with self._changing:
                model_id = self._model_id = self._digest()
        return model_id

    def _digest(self) -> str:
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

    def fit(self) -> Self:
        """Learn now, rather than when it is next needed.

        Returns
        -------
        self : object
            The same object.
        """
        self._ready()
        return self

    def _ready(self) -> Matcher:
        """The matcher of the present subjects. It does not change any more."""
        matcher = self._matcher
        if matcher is not None:
            return matcher
        with self._changing:
            if self._matcher is not None:
                # Another thread has fitted it meanwhile.
                return self._matcher
            if len(self._gallery) < 2:
                raise RecognitionError(
                    "Recognition compares people: enrol at least two subjects, "
                    f"{len(self._gallery)} is enrolled"
                )
            matcher = Matcher.default(
                self.method,
                self._reader.image_shape,
                self.cosine_weight,
                self.parameters,
            )
            try:
                matcher.fit(self._gallery, self._cache)
            except DualQMLError:
                raise
            except ValueError as error:
                raise RecognitionError(
                    f"{self.method} cannot learn from these samples: {error}"
                ) from error
            matcher.model_id = self.model_id
            self._matcher = matcher
            return matcher
