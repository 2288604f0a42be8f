# SPDX-License-Identifier: BSD-3-Clause
"""A saved recogniser, read for decisions alone, in a fraction of a second.

A command that answers one question should not wait for libraries that only training
needs: SciPy and scikit-learn take more than a second to import. The usual recogniser,
DualQML-W on vectors, decides with a few products of matrices. So its arrays are taken
from the file, and NumPy does the rest. For other recognisers there is
`dualqml.recognition.Recognizer.load`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._text import printable
from dualqml._typing import Array
from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.extractors.quadratic_features import signed_root_features
from dualqml.persistence.tensors import read_tensors, strict_json
from dualqml.recognition.answers import (
    decision_threshold,
    identified,
    verifications,
)
from dualqml.recognition.exact_scorer import (
    ArrayScorer,
    checked_vectors,
    linear_queries,
)
from dualqml.recognition.file_format import ID_KEY, STATE_KEY, check_recognizer
from dualqml.recognition.folded_search import FoldedSearch
from dualqml.recognition.front_end import READING_VERSION, FrontEnd
from dualqml.recognition.gallery import checked_name
from dualqml.recognition.results import Calibration, Identification, Verification
from dualqml.recognition.score_scale import ScoreScale


class DecisionModel(FoldedSearch):
    """The part of a recogniser that verifies and identifies vectors.

    It gives the same answers as the recogniser of the file, up to rounding. Use
    `load_decision_model` to make one.

    Attributes
    ----------
    subjects : list of str
        The enrolled subjects.
    model_id : str
        The model of the file.
    front_end : FrontEnd
        How samples are read.
    calibration : Calibration or None
        Where the threshold comes from.
    has_log_ratios : bool
        Always True: scores are log-likelihood ratios.
    """

    has_log_ratios = True

    def __init__(
        self,
        subjects: list[str],
        arrays: Mapping[str, NDArray[Any]],
        scale: ScoreScale,
        *,
        front_end: FrontEnd,
        calibration: Calibration | None,
        model_id: str,
    ) -> None:
        self.subjects = subjects
        self.front_end = front_end
        self.calibration = calibration
        self.model_id = model_id
        self._arrays = arrays
        self._scale = scale

    @property
    def threshold(self) -> float | None:
        """The smallest score of a match; None if there is no threshold."""
        return None if self.calibration is None else self.calibration.threshold

    @property
    def n_features(self) -> int:
        """Number of values of a vector."""
        return int(self._arrays["mean"].size)

    def scores(self, vectors: ArrayLike) -> Array:
        """Similarities of vectors to all subjects.

        Parameters
        ----------
        vectors : array-like of shape (n_samples, n_features)
            The vectors.

        Returns
        -------
        ndarray of shape (n_samples, n_subjects)
            The scores, with columns in the order of `subjects`.

        Raises
        ------
        RecognitionError
            The vectors are of another length, or not usable.
        """
        rows, own = checked_vectors(vectors, self.n_features), self._arrays
        coordinates, units = linear_queries(rows, own["mean"], own["coefficients"])
        responses = signed_root_features(
            coordinates, own["components"], own["ranks"], own["mean_responses"]
        )
        if "class_scale" in own:
            responses = responses / own["class_scale"]
        return self._scale.scores(responses, units, own["means"])

    def exact_scorer(self) -> ArrayScorer:
        """What gives the scores of some subjects, for searches.

        Returns
        -------
        ArrayScorer
            The scorer, with the arrays of this model.
        """
        labels = np.array(self.subjects, dtype=object)
        return ArrayScorer(**self._arrays, scale=self._scale, labels=labels)

    def identify_many(
        self, vectors: ArrayLike, *, top: int = 5, threshold: float | None = None
    ) -> list[Identification]:
        """Decide which subject each vector is of, if any.

        Parameters
        ----------
        vectors : array-like of shape (n_samples, n_features)
            The vectors.
        top : int, default=5
            Length of the lists of candidates.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        list of Identification
            One decision per vector.
        """
        limit = decision_threshold(threshold, self.threshold)
        rows = checked_vectors(vectors, self.n_features)
        return identified(self, rows, top=top, threshold=limit)

    def verify_many(
        self,
        subjects: Sequence[str],
        vectors: ArrayLike,
        *,
        threshold: float | None = None,
    ) -> list[Verification]:
        """Decide for pairs of a subject and a vector.

        Parameters
        ----------
        subjects : sequence of str
            The subjects claimed.
        vectors : array-like of shape (n_samples, n_features)
            One vector per subject.
        threshold : float, optional
            Used instead of the threshold of the model.

        Returns
        -------
        list of Verification
            One decision per pair.
        """
        limit = decision_threshold(threshold, self.threshold)
        return verifications(self, self.scores(vectors), subjects, limit)


def load_decision_model(path: str | os.PathLike[str]) -> DecisionModel | None:
    """Read what decisions need from the file of a recogniser.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    DecisionModel or None
        The model; None if the file needs the whole recogniser: one of crops, of
        another method, with a kernel, or without a model.

    Raises
    ------
    ModelFileError
        The file does not exist, is damaged, or is not that of a recogniser.
    """
    arrays, metadata = read_tensors(path)
    check_recognizer(path, metadata)
    with _forged_files_refused(path):
        state = _opened(strict_json(metadata[STATE_KEY]))
        found = _arrays(state, arrays)
        return None if found is None else _model(state, found, metadata[ID_KEY])


def saved_subjects(path: str | os.PathLike[str]) -> dict[str, int]:
    """Who is enrolled in the file of a recogniser, and with how many samples.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    dict of str to int
        The number of samples of each subject, in the order of their names.

    Raises
    ------
    ModelFileError
        The file does not exist, is damaged, or is not that of a recogniser.
    """
    arrays, metadata = read_tensors(path)
    check_recognizer(path, metadata)
    with _forged_files_refused(path):
        state = _opened(strict_json(metadata[STATE_KEY]))
        subjects = [checked_name(subject) for subject in state["subjects"]]
        counts = arrays[state["counts"]["array"]["tensor"]].tolist()
        return dict(zip(subjects, counts, strict=True))


@contextmanager
def _forged_files_refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise what a forged file can cause as a ModelFileError."""
    try:
        yield
    # A forged file can have anything in any place.
    except (KeyError, TypeError, ValueError, RecognitionError) as error:
        reason = printable(str(error), 300)
        raise ModelFileError(f"{path} cannot be loaded: {reason}") from error


def _opened(encoded: Any) -> dict[str, Any]:
    """The values inside an encoded dictionary or object, by name."""
    if "dict" in encoded:
        return dict(encoded["dict"])
    inner = encoded["object"]
    return {**inner["parameters"], **inner["attributes"]}


def _arrays(
    state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]] | None:
    """The arrays that give the scores; None if this is not the usual recogniser."""
    if state["method"] != "DualQML-W" or state["kind"] != "vector":
        return None
    if state["matcher"] is None:
        return None
    matcher = _opened(state["matcher"])
    model = _opened(matcher["model"])
    metric, qml = _opened(model["metric_"]), _opened(model["qml_"])
    usual = (
        model["rule"] == "max"
        and qml["features"] == "signed-root"
        and qml["training_features_"] is None
        and metric["kernel_"] is None
        and metric["descriptor"] is None
    )
    if not usual:
        return None
    places = {
        "mean": metric["mean_"],
        "coefficients": metric["coefficients_"],
        "components": qml["components_"],
        "ranks": qml["ranks_"],
        "mean_responses": qml["mean_responses_"],
        "means": matcher["means"],
    }
    if qml["class_scale_"] is not None:
        places["class_scale"] = qml["class_scale_"]
    found = {}
    for name, place in places.items():
        if place is None or set(place["array"]) != {"tensor"}:
            return None
        found[name] = arrays[place["array"]["tensor"]]
    # One value has no direction, and is not scaled.
    return found if found["mean"].size > 1 else None


def _model(
    state: Mapping[str, Any], arrays: dict[str, NDArray[Any]], model_id: str
) -> DecisionModel:
    subjects = [checked_name(subject) for subject in state["subjects"]]
    _check_shapes(arrays, len(subjects))
    scale = ScoreScale(
        **{
            name: float(value)
            for name, value in _opened(state["matcher"]).items()
            if name in ScoreScale.__dataclass_fields__
        }
    )
    front_end = FrontEnd("vectors")
    if state.get("front_end") is not None:
        record = _opened(state["front_end"])
        if record["version"] != READING_VERSION:
            raise ValueError(
                f"front_end is not version {READING_VERSION} of how faces are read: "
                "train the model again"
            )
        front_end = FrontEnd.from_dict(record)
    calibration = None
    if state["calibration"] is not None:
        record = _opened(state["calibration"])
        if not np.isfinite(float(record["threshold"])):
            raise ValueError("the threshold is not a finite number")
        calibration = Calibration(**record)
    return DecisionModel(
        subjects,
        arrays,
        scale,
        front_end=front_end,
        calibration=calibration,
        model_id=model_id,
    )


def _check_shapes(arrays: Mapping[str, NDArray[Any]], n_subjects: int) -> None:
    """Raise if arrays do not fit together, or have values that are not finite."""
    width, n_coordinates = arrays["coefficients"].shape
    n_factors = len(arrays["components"])
    wanted: dict[str, tuple[int, ...]] = {
        "mean": (width,),
        "components": (n_factors, n_coordinates),
        "ranks": (n_subjects,),
        "mean_responses": (n_factors,),
        "means": (n_subjects, width),
        "class_scale": (n_subjects,),
    }
    for name, shape in wanted.items():
        if name in arrays and arrays[name].shape != shape:
            raise ValueError(f"{name} has the shape {arrays[name].shape}, not {shape}")
    ranks = arrays["ranks"]
    if ranks.dtype.kind != "i" or n_subjects == 0:
        raise ValueError("the ranks are not whole numbers")
    if ranks.min() < 0 or ranks.max() > n_factors or ranks.sum() != n_factors:
        raise ValueError("the ranks do not add up to the number of factors")
    for name, array in arrays.items():
        if name != "ranks" and (
            array.dtype.kind != "f" or not np.isfinite(array).all()
        ):
            raise ValueError(f"{name} has values that are not finite numbers")
