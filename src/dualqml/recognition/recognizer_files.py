# SPDX-License-Identifier: BSD-3-Clause
"""Recognisers in files: gallery, fitted model and threshold together.

The file is a safetensors file like that of a model (see
`dualqml.persistence.model_files`). It is always written as a whole, so it never
contains anything of a removed subject.

Three tables, `_STATE`, `_CALIBRATION` and `_MATCHER`, list the fields of a file and
their kinds. Whether the parts fit together is checked when a recogniser is built.
"""

import inspect
import json
import math
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from dualqml import __version__
from dualqml._saved_state import (
    ESTIMATOR,
    JOBS,
    LINE,
    MATRIX,
    NOTHING,
    PLAIN,
    SIZE,
    Kind,
    ValueProblem,
    array_of,
    check_fields,
    check_kind,
    instance_of,
    one_of,
    plain_number,
)
from dualqml._text import printable
from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.extractors import Background, DualQMLW
from dualqml.extractors.methods import METHODS
from dualqml.persistence.codec import Decoder, Encoder
from dualqml.persistence.formats import VERSION_KEY
from dualqml.persistence.tensors import read_tensors, strict_json, write_tensors
from dualqml.recognition.deferred_refit import DeferredFit, RefitDue
from dualqml.recognition.file_format import (
    FORMAT,
    FORMAT_KEY,
    ID_KEY,
    STATE_KEY,
    check_recognizer,
)
from dualqml.recognition.front_end import READING_VERSION, FrontEnd
from dualqml.recognition.gallery import Gallery, checked_name, checked_sample_name
from dualqml.recognition.inputs import Embedding
from dualqml.recognition.matcher import SCALE_FIELDS, Matcher
from dualqml.recognition.results import Calibration

if TYPE_CHECKING:
    from dualqml.recognition.recognizer import Recognizer

#: A recogniser, or a subclass of it.
_Kind = TypeVar("_Kind", bound="Recognizer")

_NUMBER = plain_number("a finite number", -math.inf)
_POSITIVE = plain_number("a positive number", math.ulp(0.0))
_RATE = plain_number("a rate from 0 to 1", 0.0, 1.0) | NOTHING
_WHOLE = Kind("a whole number", lambda v: type(v) is int and v >= 0)
_RECORD = instance_of(dict) | NOTHING

#: Fields of a recogniser.
_STATE: Mapping[str, Kind] = {
    "method": one_of(METHODS),
    "size": SIZE,
    "cosine_weight": _NUMBER | NOTHING,
    "parameters": instance_of(dict),
    "background": instance_of(Background) | NOTHING,
    "kind": one_of(("image", "vector")) | NOTHING,
    "subjects": instance_of(list),
    "counts": array_of("a vector of 64-bit whole numbers", "int64", 1),
    "rows": array_of("images or vectors in rows", "uint8 float32", 2, finite=True)
    | NOTHING,
    # In UTF-8, one line for each row. A list in JSON could not have so many.
    "names": array_of("a vector of bytes", "uint8", 1) | NOTHING,
    "front_end": _RECORD,
    "calibration": _RECORD,
    "matcher": _RECORD,
    "refit": one_of(("exact", "deferred")),
    # What has changed since the last exact fit; None if none is due.
    "due": _RECORD,
}
#: How the faces of photographs are described.
_FRONT_END: Mapping[str, Kind] = {
    "version": Kind(
        f"version {READING_VERSION} of how faces are read: train the model again",
        lambda v: type(v) is int and v == READING_VERSION,
    ),
    "sha256": Kind(
        "a SHA-256", lambda v: type(v) is str and bool(re.fullmatch("[0-9a-f]{64}", v))
    ),
    "path": LINE | NOTHING,
    "size": plain_number("a side of 8 to 1024 pixels", 8, 1024),
    "channels": one_of(("rgb", "bgr")),
    "mean": _NUMBER,
    "scale": _POSITIVE,
}
#: Fields of its calibration.
_CALIBRATION: Mapping[str, Kind] = {
    "threshold": _NUMBER,
    "kind": one_of(("fmr", "fpir", "given")),
    "target": _RATE,
    "achieved": _RATE,
    "low": _RATE,
    "high": _RATE,
    "missed": _RATE,
    "n_comparisons": _WHOLE,
    "n_mated": _WHOLE,
    "source": LINE,
    "model_id": LINE,
    "prior": Kind("true or false", lambda v: type(v) is bool),
}
#: Fields of a refit that is due.
_DUE: Mapping[str, Kind] = dict.fromkeys(vars(RefitDue()), _WHOLE)
#: Fields of the model that was fitted to its subjects.
_MATCHER: Mapping[str, Kind] = {
    "model": ESTIMATOR,
    "means": MATRIX,
    "cosine_weight": _NUMBER,
    "cosine_mean": _NUMBER,
    "cosine_spread": _POSITIVE,
    "spread": _POSITIVE,
    "mean": _NUMBER,
    "scale": _POSITIVE,
    "slope": _POSITIVE,
    "offset": _NUMBER,
    "parameters": instance_of(dict),
}


def save_recognizer(recognizer: "Recognizer", path: str | os.PathLike[str]) -> None:
    """Save a recogniser; see `Recognizer.save`."""
    gallery, matcher = recognizer._gallery, None
    if len(gallery) >= recognizer._least_subjects():
        fitted = recognizer._fitted_matcher()
        matcher = {name: getattr(fitted, name) for name in _MATCHER}
    calibration = recognizer.calibration
    state = {
        "method": recognizer.method,
        "size": tuple(recognizer.size),
        "cosine_weight": recognizer.cosine_weight,
        "parameters": recognizer.parameters,
        "background": recognizer.background,
        "kind": recognizer._reader.kind,
        "subjects": recognizer.subjects(),
        "counts": np.array([len(gallery[s]) for s in gallery], dtype=np.int64),
        "rows": gallery.rows if len(gallery) else None,
        "names": _packed_names(gallery),
        "front_end": recognizer.front_end.as_dict(),
        "calibration": None if calibration is None else calibration.as_dict(),
        "matcher": matcher,
        "refit": recognizer.refit,
        "due": None if recognizer.refit_due is None else vars(recognizer.refit_due),
    }
    encoder = Encoder()
    try:
        # Raise now if the recogniser could not be loaded again.
        _check_state(state)
        text = json.dumps(encoder.encode(state), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ModelFileError(
            f"{path}: the recogniser cannot be saved: {error}"
        ) from error
    metadata = {
        FORMAT_KEY: str(FORMAT),
        VERSION_KEY: __version__,
        ID_KEY: recognizer.model_id,
        STATE_KEY: text,
    }
    write_tensors(path, encoder.arrays, metadata)


def load_recognizer(
    kind: type[_Kind],
    path: str | os.PathLike[str],
    *,
    embedding: Embedding | None = None,
    verify: bool = True,
) -> _Kind:
    """Load a recogniser; see `Recognizer.load`."""
    arrays, metadata = read_tensors(path, verify=verify)
    check_recognizer(path, metadata)
    try:
        decoder = Decoder(arrays, values=verify)
        state = decoder.decode(strict_json(metadata[STATE_KEY]))
        if decoder.unused:
            raise ValueProblem((decoder.unused[0],), "is an array that is not used")
        _fill_missing(state)
        _check_state(state)
        found = _recognizer_from_state(kind, state, embedding)
        if found.model_id != metadata.get(ID_KEY):
            raise ValueError("its samples do not fit its model id")
    except (ValueError, RecognitionError) as error:
        reason = printable(str(error), 1000)
        raise ModelFileError(f"{path} cannot be loaded: {reason}") from error
    if found._matcher is not None:
        found._matcher.model_id = found.model_id
    return found


def _fill_missing(state: Any) -> None:
    """Add the fields that earlier files of this format do not have."""
    if isinstance(state, dict):
        state.setdefault("names", None)
        state.setdefault("front_end", None)
        state.setdefault("refit", "exact")
        state.setdefault("due", None)
        if isinstance(state.get("calibration"), dict):
            state["calibration"].setdefault("prior", False)


def _packed_names(gallery: Gallery) -> NDArray[np.uint8] | None:
    """The names of all samples in one array; None if no sample has a name."""
    if not gallery.has_names:
        return None
    lines = "\n".join(name for subject in gallery for name in gallery.names(subject))
    return np.frombuffer(lines.encode(), dtype=np.uint8)


def _unpacked_names(packed: NDArray[np.uint8] | None, n_samples: int) -> list[str]:
    """The names of all samples; raise if they are not valid."""
    if packed is None:
        return [""] * n_samples
    # First their number: text of many short lines takes much memory.
    if int(np.count_nonzero(packed == ord("\n"))) != n_samples - 1:
        raise ValueError("there is not a name for each sample")
    names = packed.tobytes().decode().split("\n")
    if not any(names):
        raise ValueError("the names of samples are all empty")
    return [checked_sample_name(name) for name in names]


def _check_state(state: Any) -> None:
    """Raise if a field of a state is missing, unknown or not valid."""
    check_fields(state, _STATE, ())
    _check_parameters(state["parameters"], "parameters")
    _check_gallery(state)
    if state["front_end"] is not None:
        check_fields(state["front_end"], _FRONT_END, ("front_end",))
        if state["kind"] == "image":
            raise ValueProblem(("front_end",), "is for photographs, not for crops")
    if state["calibration"] is not None:
        _check_calibration(state["calibration"])
    if state["matcher"] is not None:
        check_fields(state["matcher"], _MATCHER, ("matcher",))
        _check_parameters(state["matcher"]["parameters"], "matcher", "parameters")
    if state["due"] is not None:
        check_fields(state["due"], _DUE, ("due",))
        if state["refit"] == "exact" or state["matcher"] is None:
            raise ValueProblem(("due",), "is there without a deferred refit")


def _check_parameters(parameters: Mapping[str, Any], *path: str) -> None:
    for name, value in parameters.items():
        kind = JOBS if name == "n_jobs" else PLAIN
        check_kind(value, kind, (*path, name))


def _check_gallery(state: Mapping[str, Any]) -> None:
    """Raise if the subjects, their numbers of samples and the rows do not fit."""
    subjects, counts, rows = state["subjects"], state["counts"], state["rows"]
    for subject in subjects:
        checked_name(subject)
    if any(one >= other for one, other in pairwise(subjects)):
        raise ValueError("a subject is there twice, or they are not in order")
    if counts.size != len(subjects):
        raise ValueError("there is not a number of samples for each subject")
    if (rows is None) != (not subjects) or (rows is None) != (state["kind"] is None):
        raise ValueError(
            "there are subjects without samples, or samples without subjects"
        )
    if rows is None:
        if state["names"] is not None:
            raise ValueError("there are names of samples without samples")
        return
    # First each count by itself: the sum of forged counts could overflow.
    inside = counts.min() >= 1 and counts.max() <= len(rows)
    if not inside or counts.sum() != len(rows):
        raise ValueError("the samples do not match their numbers")
    if state["kind"] == "image":
        if rows.dtype != np.uint8 or rows.shape[1] != math.prod(state["size"]):
            raise ValueError("the samples are not images of the size")
    elif rows.dtype != np.float32 or not rows.any(axis=1).all():
        raise ValueError("the samples are not vectors, or one is all zeros")


def _check_calibration(record: Mapping[str, Any]) -> None:
    check_fields(record, _CALIBRATION, ("calibration",))
    if record["kind"] == "given":
        if record["prior"]:
            raise ValueProblem(("calibration", "prior"), "is set for a given threshold")
        return
    for name in ("target", "achieved", "low", "high"):
        if record[name] is None:
            raise ValueProblem(("calibration", name), "is missing")


def _recognizer_from_state(
    kind: type[_Kind], state: Mapping[str, Any], embedding: Embedding | None
) -> _Kind:
    """A recogniser from fields that have been checked."""
    taken = set(inspect.signature(kind.__init__).parameters) & set(state["parameters"])
    if taken:
        raise ValueProblem(("parameters", min(taken)), "is no parameter of a method")
    found = kind(
        state["method"],
        size=state["size"],
        cosine_weight=state["cosine_weight"],
        embedding=embedding,
        background=state["background"],
        refit=state["refit"],
        **state["parameters"],
    )
    if state["front_end"] is not None:
        found._reader.remember(FrontEnd.from_dict(state["front_end"]))
    rows = state["rows"]
    found._reader.kind = state["kind"]
    found._reader.width = None if rows is None else rows.shape[1]
    if rows is not None:
        _fill_gallery(found._gallery, state)
    if rows is not None and found.background is not None:
        found._reader.check_background(found.background)
    _validated_estimator(found._new_matcher())
    if state["calibration"] is not None:
        found.calibration = Calibration(**state["calibration"])
    if state["matcher"] is not None:
        matcher = found._matcher = _matcher_from_state(found, state["matcher"])
        if state["due"] is not None:
            due = RefitDue(**state["due"])
            found._deferred = DeferredFit.of(matcher, found._gallery, due)
    return found


def _fill_gallery(gallery: Gallery, state: Mapping[str, Any]) -> None:
    ends = np.cumsum(state["counts"])
    names = _unpacked_names(state["names"], len(state["rows"]))
    for subject, end, count in zip(
        state["subjects"], ends, state["counts"], strict=True
    ):
        part = slice(end - count, end)
        gallery.restore(subject, state["rows"][part], names[part])


def _validated_estimator(matcher: Matcher) -> Any:
    """The estimator of a matcher; raise if its parameters are not valid."""
    try:
        estimator = matcher.estimator()
        for part in _nested_estimators(estimator):
            part._validate_params()
    # A parameter of a file may have the name of another argument.
    except TypeError as error:
        raise ValueError(f"the parameters are not those of the method: {error}") from (
            error
        )
    return estimator


def _nested_estimators(estimator: Any) -> list[Any]:
    """An estimator and the estimators inside it, in order."""
    if isinstance(estimator, Pipeline):
        return [estimator, *(step for _, step in estimator.steps)]
    inner = getattr(estimator, "estimator", None)
    return [estimator] if inner is None else [estimator, *_nested_estimators(inner)]


def _matcher_from_state(recognizer: "Recognizer", state: Mapping[str, Any]) -> Matcher:
    """The fitted matcher of a recogniser; raise if it does not fit the gallery."""
    matcher = recognizer._new_matcher()
    matcher.parameters = state["parameters"]
    matcher.cosine_weight = float(state["cosine_weight"])
    means, model = state["means"], state["model"]
    wanted = [type(part) for part in _nested_estimators(_validated_estimator(matcher))]
    if [type(part) for part in _nested_estimators(model)] != wanted:
        raise ValueError("the model is not of the method")
    n_subjects = len(recognizer.subjects())
    classes = getattr(model, "classes_", ())
    known = n_subjects >= recognizer._least_subjects()
    if not known or not np.array_equal(classes, np.arange(n_subjects)):
        raise ValueError("the model does not know the subjects")
    n_features = recognizer._reader.width
    if getattr(model, "n_features_in_", None) != n_features:
        raise ValueError("the model was fitted to samples of another size")
    if len(means) != n_subjects:
        raise ValueError("there is not one mean per subject")
    # With DualQML-W the cosines are those of the inputs of its metric.
    width = model.metric_.n_inputs_ if isinstance(model, DualQMLW) else n_features
    if means.shape[1] != width:
        raise ValueError(f"the means have {means.shape[1]} values, not {width}")
    matcher.subjects = recognizer.subjects()
    matcher.model, matcher.means = model, means
    matcher.cosine_mean = float(state["cosine_mean"])
    matcher.cosine_spread = float(state["cosine_spread"])
    for name in SCALE_FIELDS:
        setattr(matcher, name, float(state[name]))
    return matcher
