# SPDX-License-Identifier: BSD-3-Clause
"""The model of the people who are enrolled now: when it is fitted, and discarded.

It is fitted when it is first needed, and a change of the people discards it. If refits
are deferred, a change leaves most of it as it is.
"""

import threading
from collections.abc import Callable
from typing import Any

from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.images.shapes import ImageShape
from dualqml.recognition.deferred_refit import DeferredFit, Refit, RefitDue, check_refit
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.inputs import InputReader
from dualqml.recognition.matcher import Matcher, SampleCache
from dualqml.recognition.model_ids import deferred_id_of, model_id_of

#: Fits a matcher to a gallery.
Fitter = Callable[[Matcher, Gallery, SampleCache], None]


class PresentModel:
    """Base class of recognisers, which has the model of the present subjects."""

    method: str
    size: ImageShape
    cosine_weight: float | None
    parameters: dict[str, Any]
    background: Background | None
    _reader: InputReader
    _gallery: Gallery
    _cache: SampleCache
    _lock: threading.RLock
    _refit: Refit
    _model_id: str | None
    #: Fitted to the present subjects; None if it must be fitted first.
    _matcher: Matcher | None
    #: What stays as it is until the next exact fit; None if none is due.
    _deferred: DeferredFit | None

    @property
    def refit(self) -> Refit:
        """When a change leads to a new fit. With "exact" none stays due."""
        return self._refit

    @refit.setter
    def refit(self, refit: Refit) -> None:
        with self._lock:
            check_refit(refit, self._new_matcher())
            self._refit = refit
            if refit == "exact" and self._deferred is not None:
                self._deferred = self._matcher = self._model_id = None

    @property
    def refit_due(self) -> RefitDue | None:
        """What has changed since the last exact fit; None if no fit is due.

        Only changes that were deferred count.
        """
        found = self._deferred
        return None if found is None else found.due

    @property
    def model_id(self) -> str:
        """Sixteen hexadecimal digits that change with any sample or parameter."""
        model_id = self._model_id
        if model_id is None:
            with self._lock:
                matcher = None if self._deferred is None else self._fitted_matcher()
                # That may have been an exact fit.
                deferred = None if self._deferred is None else matcher
                model_id = self._model_id = self._id_of(deferred)
        return model_id

    def _id_of(self, deferred: Matcher | None) -> str:
        """The number of the model, with the matcher if its refit is deferred."""
        settings = [self.method, list(self.size), self.cosine_weight, self.parameters]
        own = settings, self._gallery, self.background
        return deferred_id_of(*own, deferred) if deferred else model_id_of(*own)

    def _deferrable(self) -> DeferredFit | None:
        """What stays as it is in a change; None if the next fit is an exact one."""
        exact = self._matcher if self._deferred is None else None
        if self.refit == "deferred" and exact is not None:
            return DeferredFit.of(exact, self._gallery)
        return self._deferred

    def _discard_model(self, subject: str, deferred: DeferredFit | None) -> None:
        """Discard the model and the cached results of a subject.

        This comes before the gallery changes. If the change is interrupted, there is
        no model that was fitted to other samples than those of the gallery.
        """
        self._matcher = self._model_id = None
        self._deferred = deferred
        self._cache.forget(subject)

    def _fitted_matcher(self, fitter: Fitter = Matcher.fit) -> Matcher:
        """The matcher of the present subjects, fitted if needed. It never changes."""
        matcher = self._matcher
        if matcher is not None:
            return matcher
        with self._lock:
            if self._matcher is not None:
                # Another thread has fitted it in the meantime.
                return self._matcher
            if self._deferred is not None:
                self._deferred = self._deferred.solved(self._gallery)
            if self._deferred is None:
                matcher = self._newly_fitted(fitter)
            else:
                matcher = self._deferred.matcher()
                matcher.model_id = self._id_of(matcher)
            self._matcher, self._model_id = matcher, matcher.model_id
            return matcher

    def _newly_fitted(self, fitter: Fitter) -> Matcher:
        """A matcher that was fitted to the present subjects alone."""
        matcher = self._new_matcher()
        if len(self._gallery) < self._least_subjects():
            raise RecognitionError(
                "Recognition compares people: enrol at least two subjects, or one "
                "and give a background of other people; "
                f"{len(self._gallery)} is enrolled"
            )
        fitter(matcher, self._gallery, self._cache)
        matcher.model_id = self._id_of(None) if self._deferred else self.model_id
        return matcher

    def _least_subjects(self) -> int:
        """Smallest number of subjects that a model can be fitted to."""
        alone = self.background is not None and self._new_matcher().has_log_ratios
        return 1 if alone else 2

    def _new_matcher(self) -> Matcher:
        return Matcher(
            self.method,
            self._reader.image_shape,
            self.cosine_weight,
            self.parameters,
            self.background,
        )
