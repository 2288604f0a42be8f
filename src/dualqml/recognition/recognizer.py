# SPDX-License-Identifier: BSD-3-Clause
"""The recogniser: enrol, verify, identify or answer "unknown", and erase people."""

import os
import threading
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dualqml._saved_state import SIZE
from dualqml._typing import Array
from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.extractors.methods import METHODS
from dualqml.extractors.probabilities import open_set_posterior
from dualqml.images.shapes import SizeLike
from dualqml.recognition.answers import (
    decision_threshold,
    has_templates,
    identified,
    template_scores,
    verifications,
)
from dualqml.recognition.calibration import (
    Trials,
    after_removal,
    gallery_calibration,
    gallery_scores,
    held_out_calibration,
    left_out_trials,
    prior_calibration,
    simulated_strangers,
    warn_of_few,
)
from dualqml.recognition.deferred_refit import (
    DeferredFit,
    Refit,
    check_refit,
)
from dualqml.recognition.explanation import Explanation, explanations
from dualqml.recognition.front_end import FrontEnd
from dualqml.recognition.gallery import Gallery, checked_name
from dualqml.recognition.inputs import Embedding, InputReader, Inputs, sample_names
from dualqml.recognition.matcher import Matcher, SampleCache
from dualqml.recognition.present_model import Fitter, PresentModel
from dualqml.recognition.recognizer_files import load_recognizer, save_recognizer
from dualqml.recognition.results import (
    KEPT_AFTER_REMOVAL,
    Calibration,
    Identification,
    RateKind,
    Template,
    Verification,
)


class Recognizer(PresentModel):
    """Recognise people, who can be enrolled and erased at any time.

    After every `enroll` and `remove`, the model is equal to a new fit to the present
    subjects: nothing of a removed subject is left in it. It is fitted when it is next
    needed. In very large galleries such fits can be deferred, see `refit`.

    Threads may share a recogniser. Changes wait for each other. A search sees the
    subjects either before or after a change.

    Scores are similarities: the larger, the more alike. With DualQML-W they are natural
    logarithms of likelihood ratios: 0 means that the same person and another one are
    equally likely, and 4.6 that the same person is a hundred times more likely. That
    does not depend on the number of subjects. A decision needs a threshold: from
    `calibrate`, from the user, or from the call.

    With DualQML-W, the parameters that are not given are chosen on the enrolled people
    (or, where these are too few, on the background), at every change: people and
    samples are left out in turn, in closed form.

    Read more in the :ref:`user guide <recognition>`.

    Parameters
    ----------
    method : str, default="DualQML-W"
        A key of `dualqml.extractors.methods.METHODS`.
    size : sequence of int, default=(32, 32)
        Height and width to which images are resized. Not used for vectors.
    threshold : float, default=None
        The smallest score of a match.
    cosine_weight : float, default=None
        Weight, in the score, of the cosine to the mean of a subject's samples. It
        helps to detect strangers. Both parts are in units of their spread between
        different people. None means that it is chosen. For other methods than DualQML-W
        None means 0.8 for vectors and 0 for images, and only the cosine is in such
        units.
    embedding : callable or FaceEmbedder, default=None
        A `FaceEmbedder` for photographs: it is remembered, with the network and the
        SHA-256 of its weights. Or a function from a list of images to an array with
        one row per image, which is not saved: give it again to `load`.
    background : Background, default=None
        Statistics of people who are not enrolled.
    refit : {"exact", "deferred"}, default="exact"
        When a change leads to a new fit. "exact": when the model is next needed.
        "deferred", for vectors with DualQML-W: when `fit` is called. Until then a
        change costs little: rows, matrix and mean of a removed subject are deleted at
        once, and the matrices of new subjects are found in the present coordinates.
        But these, the matrices of others and the scale of scores stay as they are, and
        depend on those who were removed; `refit_due` says so.
    **parameters : dict
        Parameters of the method, instead of its defaults for vectors or images.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer
    >>> rng = np.random.default_rng(0)
    >>> people = {name: rng.normal(size=20) for name in ["Ann", "Bob", "Zoe"]}
    >>> recognizer = Recognizer(threshold=0.5, cosine_weight=0.0)
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
        size: SizeLike = (32, 32),
        threshold: float | None = None,
        cosine_weight: float | None = None,
        embedding: Embedding | None = None,
        background: Background | None = None,
        refit: Refit = "exact",
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
            Matcher(method, self.size, cosine_weight, parameters).estimator()
        except (TypeError, ValueError) as error:
            raise RecognitionError(str(error)) from error
        self._gallery = Gallery()
        self._cache = SampleCache()
        self._matcher: Matcher | None = None
        self._deferred: DeferredFit | None = None
        self._lock = threading.RLock()
        self._model_id: str | None = None
        self._calibration: Calibration | None = None
        #: Kind and target of a prior that must be computed again when it is needed.
        self._prior_due: tuple[RateKind, float] | None = None
        self._background: Background | None = None
        self.background = background
        self._refit: Refit = "exact"
        self.refit = refit
        if threshold is not None:
            self.set_threshold(threshold)

    @property
    def background(self) -> Background | None:
        """Statistics of other people, or None. Setting them discards the model."""
        return self._background

    @background.setter
    def background(self, background: Background | None) -> None:
        if background is not None and not isinstance(background, Background):
            raise RecognitionError(
                "background must be a Background, for example from "
                f"Background.from_samples(X, y), not {type(background).__name__}"
            )
        with self._lock:
            # A prior that is due belongs to the present background.
            self._fill_prior()
            if background is not None:
                if self.method != "DualQML-W":
                    raise RecognitionError(
                        f"{self.method} has no use for a background; DualQML-W has"
                    )
                if self._gallery:
                    self._reader.check_background(background)
            self._deferred = self._matcher = self._model_id = None
            # What is kept of samples depends on whether there is a background.
            self._cache = SampleCache()
            self._background = background

    def __getstate__(self) -> dict[str, Any]:
        # For copies and for other processes. A lock belongs to one process.
        with self._lock:
            return {k: v for k, v in vars(self).items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    def subjects(self) -> list[str]:
        """The enrolled subjects, sorted by name.

        Returns
        -------
        list of str
            The names.
        """
        with self._lock:
            return list(self._gallery)

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return self._gallery.n_samples

    @property
    def front_end(self) -> FrontEnd:
        """How samples are read: from photographs, crops or vectors."""
        return self._reader.front_end

    @property
    def inputs(self) -> str | None:
        """The kind of the samples: "image" or "vector"; None if nobody is enrolled."""
        return self._reader.kind

    @property
    def chosen_parameters(self) -> dict[str, Any]:
        """Parameters of the model, given or chosen, and the weight of the cosine.

        Empty if too few subjects are enrolled to fit a model.
        """
        if len(self._gallery) < self._least_subjects():
            return {}
        matcher = self._fitted_matcher()
        return matcher.parameters | {"cosine_weight": matcher.cosine_weight}

    def samples(self, subject: str) -> NDArray[Any]:
        """The samples of a subject as they are kept, one row per sample.

        Parameters
        ----------
        subject : str
            The name.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            8-bit pixels, or vectors.
        """
        with self._lock:
            return np.array(self._gallery[subject])

    def sample_names(self, subject: str) -> list[str]:
        """The names of the samples of a subject, in the order of `samples`.

        Parameters
        ----------
        subject : str
            The name.

        Returns
        -------
        list of str
            A name for each sample; "" if it has none.
        """
        with self._lock:
            return list(self._gallery.names(subject))

    def enroll(
        self, subject: str, images: Inputs, *, names: Sequence[str] | None = None
    ) -> None:
        """Enrol a subject, or add samples to an enrolled subject.

        Parameters
        ----------
        subject : str
            The name.
        images : array, image, path or list of them
            An image (height, width), several (n, height, width), a vector (p,),
            several (n, p), Pillow images or paths. All enrolled samples must be of one
            kind.
        names : sequence of str, optional
            A name for each sample, which explanations show. If None, a path is named
            by its last two parts ("Ann/ann1.jpg"), and other samples have no name.

        Raises
        ------
        RecognitionError
            The name or the samples cannot be used. Nothing has changed.
        """
        subject = checked_name(subject)
        with self._lock, self._reader.kept_on_error():
            rows = self._reader.read(images)
            self._add(subject, rows, sample_names(images, len(rows), names))

    def enroll_many(
        self,
        images: Inputs,
        subjects: Sequence[str],
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        """Enrol many samples at once.

        Parameters
        ----------
        images : array or list
            Samples, as for `enroll`.
        subjects : sequence of str
            The subject of each.
        names : sequence of str, optional
            A name for each sample, as for `enroll`.
        """
        people = [checked_name(subject) for subject in subjects]
        with self._lock, self._reader.kept_on_error():
            rows = self._reader.read(images)
            if len(people) != len(rows):
                raise RecognitionError(
                    f"{len(rows)} samples need as many subjects, got {len(people)}"
                )
            all_names = sample_names(images, len(rows), names)
            # All rows have the same size and type: if the first fits, all do.
            rows_of: dict[str, list[int]] = {}
            for row, subject in enumerate(people):
                rows_of.setdefault(subject, []).append(row)
            for subject, own in rows_of.items():
                self._add(subject, rows[own], [all_names[row] for row in own])

    def remove(self, subject: str) -> None:
        """Erase a subject.

        Nothing of the subject is left in the model. Of a calibration only the threshold
        stays; calibrate again when you can. A prior, which was set with a background,
        is computed again when it is next needed. Files that were saved before are not
        changed: save again to the same path. With deferred refits, `refit_due` says
        what the model still depends on.

        Parameters
        ----------
        subject : str
            The name.

        Raises
        ------
        UnknownSubjectError
            The subject is not enrolled.
        """
        self._erase(subject, None)

    def remove_sample(self, subject: str, index: int) -> None:
        """Erase a sample of a subject, with its name.

        Nothing of it is left in the model, as if it had never been enrolled.
        Calibrations and files are as after `remove`. The samples behind it move up by
        one. If it is the last sample of the subject, the subject is erased.

        Parameters
        ----------
        subject : str
            The name.
        index : int
            The number of the sample, from 0, in the order of `samples`.

        Raises
        ------
        UnknownSubjectError
            The subject is not enrolled.
        RecognitionError
            The subject has no such sample. Nothing has changed.
        """
        with self._lock:
            self._gallery.check_sample(subject, index)
            self._erase(subject, index)

    def fit(self, fitter: Fitter = Matcher.fit) -> Self:
        """Fit the model now instead of when it is next needed.

        If a refit is due, this is the exact one: the model is then equal to that of a
        new recogniser, and nothing of removed subjects is left in it. A prior is
        computed again.

        Parameters
        ----------
        fitter : callable, optional
            Fits a matcher to the gallery in another way; see
            `dualqml.scale.fit_recognizer`.

        Returns
        -------
        self : object
            The same object.
        """
        with self._lock:
            if self._deferred is None:
                self._fitted_matcher(fitter)
            else:
                # If it fails, nothing has changed.
                matcher = self._newly_fitted(fitter)
                self._deferred, self._matcher = None, matcher
                self._model_id = matcher.model_id
                found = self._calibration
                if found is not None and found.prior and self.background is not None:
                    self._prior_due = found.rate
        return self

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
            Used instead of the threshold of the model.

        Returns
        -------
        Verification
            The decision and its score.
        """
        return self.verify_many(
            [subject], self._single_sample(image), threshold=threshold
        )[0]

    def verify_many(
        self, subjects: Sequence[str], images: Inputs, *, threshold: float | None = None
    ) -> list[Verification]:
        """Decide for many pairs of a subject and an image.

        Parameters
        ----------
        subjects : sequence of str
            The subjects claimed.
        images : array or list
            One sample per subject.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        list of Verification
            One decision per sample.
        """
        limit = decision_threshold(threshold, self.threshold)
        matcher = self._fitted_matcher()
        scores = self._scores(matcher, images)
        return verifications(matcher, scores, subjects, limit)

    def identify(
        self, image: Inputs, *, top: int = 5, threshold: float | None = None
    ) -> Identification:
        """Decide which enrolled subject is on an image, if any.

        Parameters
        ----------
        image : array, image or path
            One sample.
        top : int, default=5
            Length of the list of candidates.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        Identification
            The decision and the candidates.
        """
        return self.identify_many(
            self._single_sample(image), top=top, threshold=threshold
        )[0]

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
            Used instead of the threshold of the model.

        Returns
        -------
        list of Identification
            One decision per sample.
        """
        limit = decision_threshold(threshold, self.threshold)
        matcher = self._fitted_matcher()
        if not has_templates(images):
            images = self._reader.read(images, enrolling=False)
        return identified(matcher, images, top=top, threshold=limit)

    def explain(
        self, image: Inputs, *, top: int = 5, threshold: float | None = None
    ) -> Explanation:
        """Identify an image, and explain the answer.

        Parameters
        ----------
        image : array, image or path
            One sample.
        top : int, default=5
            Length of the list of candidates.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        Explanation
            The answer of `identify`, the parts of its score, and the enrolled samples
            that are nearest to the image.
        """
        return self.explain_many(
            self._single_sample(image), top=top, threshold=threshold
        )[0]

    def explain_many(
        self, images: Inputs, *, top: int = 5, threshold: float | None = None
    ) -> list[Explanation]:
        """Identify many images, and explain the answers.

        Parameters
        ----------
        images : array or list
            Samples; templates do not keep enough of them.
        top : int, default=5
            Length of the lists of candidates.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        list of Explanation
            One explanation per sample.
        """
        if has_templates(images):
            raise RecognitionError("A template cannot be explained: give the image")
        # The samples of a subject must not be removed in the meantime.
        with self._lock:
            limit = decision_threshold(threshold, self.threshold)
            matcher = self._fitted_matcher()
            rows = self._reader.read(images, enrolling=False)
            return explanations(matcher, self._gallery, rows, top=top, threshold=limit)

    def scores(self, images: Inputs) -> Array:
        """Similarities of samples to all subjects.

        Parameters
        ----------
        images : array or list
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_subjects)
            The scores, with columns in the order of `subjects`.

        Raises
        ------
        RecognitionError
            A sample cannot be used, or a template is of another model.
        """
        return self._scores(self._fitted_matcher(), images)

    def probabilities(
        self, images: Inputs, *, prior: float = 0.5
    ) -> tuple[Array, Array]:
        """Probabilities of all subjects, and of a stranger.

        Parameters
        ----------
        images : array or list
            Samples.
        prior : float, default=0.5
            Probability that the person is enrolled, before the sample was seen. All
            subjects are equally likely.

        Returns
        -------
        people : ndarray of shape (n_samples, n_subjects)
            The probability of each subject, with columns in the order of `subjects`.
        unknown : ndarray of shape (n_samples,)
            The probability of a stranger.

        Raises
        ------
        RecognitionError
            The scores of the method are no likelihood ratios, or the prior is not
            between 0 and 1.
        """
        if not 0.0 < prior < 1.0:
            raise RecognitionError(f"prior must be between 0 and 1, got {prior!r}")
        matcher = self._fitted_matcher()
        if not matcher.has_log_ratios:
            raise RecognitionError(
                'Only scores of DualQML-W with rule "max" are likelihood ratios, from '
                "which probabilities can be computed"
            )
        return open_set_posterior(self._scores(matcher, images), prior=prior)

    def template(self, image: Inputs) -> Template:
        """The scores of a sample, to use them several times.

        Parameters
        ----------
        image : array, image or path
            One sample.

        Returns
        -------
        Template
            It can replace the image in `verify`, `identify` and `scores`.
        """
        matcher = self._fitted_matcher()
        scores = self._scores(matcher, self._single_sample(image))
        return Template(matcher.model_id, scores[0])

    @property
    def calibration(self) -> Calibration | None:
        """Where the threshold comes from; None if there is no threshold."""
        self._fill_prior()
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        with self._lock:
            self._calibration, self._prior_due = calibration, None

    @property
    def calibration_is_stale(self) -> bool:
        """Whether the calibration is of another model than the present one.

        It is after an enrolment, and after a removal unless it is a prior, which is
        then computed again. A threshold that was given by hand is never stale.
        """
        with self._lock:
            found = self._calibration
            if found is None:
                return False
            if found.kind == "given":
                return found.source == KEPT_AFTER_REMOVAL
            return found.model_id != self.model_id

    def refresh_prior(self) -> bool:
        """Compute the threshold again if it is a prior, for the same rate.

        Call it after an enrolment. However many people are enrolled by then, it stays
        a prior; `calibrate` measures.

        Returns
        -------
        bool
            Whether it was a prior, and there still is a background. If not, nothing
            has changed.
        """
        with self._lock:
            found = self._calibration
            if found is not None and found.prior and self.background is not None:
                self._prior_due = found.rate
            is_prior = self._prior_due is not None
            self._fill_prior()
            return is_prior

    def _fill_prior(self) -> None:
        """Compute the prior if it is due."""
        if self._prior_due is None:
            return
        with self._lock:
            due, background = self._prior_due, self.background
            if due is None or background is None:
                # Another thread has computed it in the meantime.
                return
            matcher = self._fitted_matcher()
            strangers = simulated_strangers(matcher, background)
            self.calibration = prior_calibration(
                self._gallery, matcher, strangers, kind=due[0], target=due[1]
            )

    @property
    def threshold(self) -> float | None:
        """The threshold, or None."""
        found = self.calibration
        return None if found is None else found.threshold

    def set_threshold(self, threshold: float) -> None:
        """Set the threshold by hand.

        Parameters
        ----------
        threshold : float
            The smallest score of a match.
        """
        if not np.isfinite(threshold):
            raise RecognitionError(f"A threshold is a finite number, not {threshold!r}")
        self.calibration = Calibration(
            float(threshold), "given", source="given by the user"
        )

    def calibrate(
        self,
        images: Inputs | None = None,
        labels: Sequence[str] | None = None,
        *,
        fmr: float | None = None,
        fpir: float | None = None,
    ) -> Calibration:
        """Set the threshold for a rate of false matches. A refit that is due is done.

        Parameters
        ----------
        images : array or list, optional
            Samples that were not enrolled: of people who are not enrolled and, to
            measure the rate of missed people, of some who are. If None, the enrolled
            subjects are left out in turn. With a background and fewer than 20
            subjects, strangers are simulated from the background instead: the
            threshold is then a prior.
        labels : sequence of str, optional
            The person on each image.
        fmr : float, optional
            False match rate of a verification.
        fpir : float, optional
            False positive identification rate of a search among all subjects.

        Returns
        -------
        Calibration
            The threshold and where it comes from. The recogniser keeps it.
        """
        if (fmr is None) == (fpir is None):
            raise RecognitionError("Give either fmr (verify) or fpir (identify)")
        if (images is None) != (labels is None):
            raise RecognitionError("Give both images and labels, or neither")
        kind: RateKind = "fmr" if fpir is None else "fpir"
        target = float(fmr if fmr is not None else fpir)  # type: ignore[arg-type]
        with self._lock:
            matcher, gallery = self.fit()._fitted_matcher(), self._gallery
            if images is None or labels is None:
                own = gallery_scores(gallery, matcher, self._cache, self.background)
                found = gallery_calibration(
                    own, gallery, matcher, kind=kind, target=target
                )
            else:
                scores = self._scores(matcher, images)
                found = held_out_calibration(
                    scores, labels, matcher, kind=kind, target=target
                )
            warn_of_few(found, stacklevel=3)
            self.calibration = found
            return found

    def left_out_trials(self) -> Trials:
        """Scores of enrolled people for models that were fitted without them.

        From these `calibrate` finds the threshold if it has neither images nor a
        background.

        Returns
        -------
        Trials
            The scores. They are the same at every call.

        Raises
        ------
        RecognitionError
            Fewer than four subjects are enrolled.
        """
        with self._lock:
            matcher = self.fit()._fitted_matcher()
            return left_out_trials(self._gallery, matcher, self._cache)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything in one file.

        At any moment either the old or the new file is there and complete. It contains
        the samples of the enrolled subjects, and statistics of other people if there is
        a background.

        Parameters
        ----------
        path : path
            The file. Its folder is made if it does not exist.

        Raises
        ------
        FileError
            The file cannot be written. An old file is not changed.
        """
        with self._lock:
            save_recognizer(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        embedding: Embedding | None = None,
        verify: bool = True,
    ) -> Self:
        """Load a recogniser that `save` has written.

        Parameters
        ----------
        path : path
            The file.
        embedding : callable, optional
            As in the constructor; files do not contain it.
        verify : bool, default=True
            Whether to check the checksum, which reads the whole file once.

        Returns
        -------
        object
            The recogniser. Its arrays stay in the file until they are used. Processes
            that load the same file share their memory.

        Raises
        ------
        ModelFileError
            The file does not exist, is damaged, or has another format.
        """
        return load_recognizer(cls, path, embedding=embedding, verify=verify)

    def _add(self, subject: str, rows: NDArray[Any], names: Sequence[str]) -> None:
        self._gallery.checked(subject, rows)
        if self.background is not None:
            self._reader.check_background(self.background)
        check_refit(self.refit, self._new_matcher())
        deferred = self._deferrable()
        if deferred is not None:
            deferred = deferred.enrolled(subject, len(rows))
        self._discard_model(subject, deferred)
        self._gallery.add(subject, rows, names)

    def _erase(self, subject: str, index: int | None) -> None:
        """Erase a sample of a subject, or all of them if the index is None."""
        with self._lock:
            rows = self._gallery[subject]  # Raises if it is not enrolled.
            deferred = self._deferrable()
            if deferred is not None:
                n_erased = len(rows) if index is None else 1
                deferred = deferred.erased(subject, rows, n_erased)
            self._discard_model(subject, deferred)
            if self._calibration is not None:
                self._calibration, self._prior_due = after_removal(self._calibration)
            self._gallery.remove(subject, index)
            if len(self._gallery) < self._least_subjects():
                self._deferred = None
            if not self._gallery:
                # The next subjects may be other people with another kind of samples.
                self._prior_due = None
                kept = self._calibration
                if kept is not None and kept.source == KEPT_AFTER_REMOVAL:
                    self._calibration = None
                self._cache = SampleCache()
                self._reader.reset()

    def _scores(self, matcher: Matcher, images: Inputs) -> Array:
        if has_templates(images):
            return template_scores(images, matcher.model_id)
        return matcher.scores(self._reader.read(images, enrolling=False))

    def _single_sample(self, image: Inputs) -> Any:
        return image if isinstance(image, Template) else self._reader.single(image)
