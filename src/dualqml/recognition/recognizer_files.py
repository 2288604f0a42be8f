# SPDX-License-Identifier: BSD-3-Clause
"""Recognisers in files: gallery, fitted model and threshold in one.

A safetensors file like that of a model (see `dualqml.recognition.model_files`). It is
always written whole: a file never holds anything of a subject who was removed.
"""

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from dualqml import __version__
from dualqml.extractors import DualQMLW
from dualqml.recognition._relations import n_inputs
from dualqml.recognition._values import Decoder, Encoder
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.inputs import Embedding
from dualqml.recognition.matcher import Matcher
from dualqml.recognition.model_files import VERSION_KEY, check_format
from dualqml.recognition.results import Calibration, RecognitionError
from dualqml.recognition.tensors import (
    ModelFileError,
    read_tensors,
    strict_json,
    write_tensors,
)

if TYPE_CHECKING:
    from dualqml.recognition.enrolment import Enrolment

#: Version of the format. It changes with a major version of dualqml at most.
FORMAT = 1

_FORMAT_KEY = "dualqml.recognizer"
_ID_KEY = "dualqml.model_id"
_STATE_KEY = "dualqml.state"

#: What a state has, and of which type it is.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "method": str,
    "size": tuple,
    "cosine_weight": (float, int, type(None)),
    "parameters": dict,
    "kind": (str, type(None)),
    "subjects": list,
    "counts": np.ndarray,
    "rows": (np.ndarray, type(None)),
    "calibration": (dict, type(None)),
    "matcher": (dict, type(None)),
}
_MATCHER_FIELDS: dict[str, type | tuple[type, ...]] = {
    "model": object,
    "means": np.ndarray,
    "cosine_weight": (float, int),
    "cosine_mean": float,
    "cosine_spread": float,
    "parameters": dict,
}


def save_recognizer(recognizer: "Enrolment", path: str | os.PathLike[str]) -> None:
    """Save a recogniser; see `Recognizer.save`."""
    gallery, matcher = recognizer._gallery, None
    if len(gallery) > 1:
        fitted = recognizer._ready()
        matcher = {name: getattr(fitted, name) for name in _MATCHER_FIELDS}
    calibration = recognizer.calibration
    state = {
        "method": recognizer.method,
        "size": tuple(recognizer.size),
        "cosine_weight": recognizer.cosine_weight,
        "parameters": recognizer.parameters,
        "kind": recognizer._reader.kind,
        "subjects": recognizer.subjects(),
        "counts": np.array([len(gallery[s]) for s in gallery], dtype=np.int64),
        "rows": gallery.rows if len(gallery) else None,
        "calibration": None if calibration is None else calibration.as_dict(),
        "matcher": matcher,
    }
    encoder = Encoder()
    try:
        text = json.dumps(encoder.encode(state), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ModelFileError(
            f"{path}: the recogniser cannot be saved: {error}"
        ) from error
    metadata = {
        _FORMAT_KEY: str(FORMAT),
        VERSION_KEY: __version__,
        _ID_KEY: recognizer.model_id,
        _STATE_KEY: text,
    }
    write_tensors(path, encoder.arrays, metadata)


def load_recognizer(
    kind: type["Enrolment"],
    path: str | os.PathLike[str],
    *,
    embedding: Embedding | None = None,
    verify: bool = True,
) -> "Enrolment":
    """Load a recogniser; see `Recognizer.load`."""
    arrays, metadata = read_tensors(path, verify=verify)
    if _FORMAT_KEY not in metadata or _STATE_KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but no recogniser")
    check_format(path, metadata, _FORMAT_KEY, FORMAT)
    try:
        decoder = Decoder(arrays)
        state = decoder.decode(strict_json(metadata[_STATE_KEY]))
        if decoder.unused:
            raise ValueError(f"array {decoder.unused[0][:50]!r} is not used")
        found = _restored(kind, state, embedding)
    except (ValueError, RecognitionError) as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error
    if found.model_id != metadata.get(_ID_KEY):
        raise ModelFileError(f"{path} cannot be loaded: its samples are not its own")
    if found._matcher is not None:
        found._matcher.model_id = found.model_id
    return found


def _restored(
    kind: type["Enrolment"], state: Any, embedding: Embedding | None
) -> "Enrolment":
    _check(state, _FIELDS, "the state")
    size = state["size"]
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise ValueError("the size is not a height and a width")
    named = {"method", "size", "threshold", "cosine_weight", "embedding"}
    if named & set(state["parameters"]):
        raise ValueError("a parameter of the method has the name of another")
    found = kind(
        state["method"],
        size=size,
        cosine_weight=state["cosine_weight"],
        embedding=embedding,
        **state["parameters"],
    )
    if state["kind"] not in (None, "image", "vector"):
        raise ValueError(f"samples of kind {state['kind']!r}")
    found._reader.kind = state["kind"]
    if state["rows"] is not None and state["rows"].ndim == 2:
        found._reader.width = state["rows"].shape[1]
        if state["kind"] == "image" and found._reader.width != size[0] * size[1]:
            raise ValueError("the samples are not images of the size")
    _fill(found._gallery, state)
    if state["calibration"] is not None:
        found.calibration = _calibration(state["calibration"])
    if state["matcher"] is not None:
        found._matcher = _matcher(found, state["matcher"])
    return found


def _fill(gallery: Gallery, state: dict[str, Any]) -> None:
    subjects, counts, rows = state["subjects"], state["counts"], state["rows"]
    if len(set(map(str, subjects))) != len(subjects):
        raise ValueError("a subject is there twice")
    if counts.shape != (len(subjects),) or counts.dtype.kind not in "iu":
        raise ValueError("there is not a number of samples for each subject")
    if not len(subjects):
        return
    if rows is None or rows.ndim != 2 or rows.dtype not in (np.uint8, np.float32):
        raise ValueError("the samples are neither images nor vectors")
    if (counts < 1).any() or counts.sum() != len(rows):
        raise ValueError("the samples do not match their numbers")
    ends = np.cumsum(counts)
    for subject, end, count in zip(subjects, ends, counts, strict=True):
        gallery.restore(subject, rows[end - count : end])
    if list(gallery) != subjects:
        raise ValueError("the subjects are not in order")


def _calibration(record: dict[str, Any]) -> Calibration:
    try:
        found = Calibration(**record)
    except TypeError as error:
        raise ValueError(f"not a calibration: {error}") from error
    threshold = found.threshold
    if not isinstance(threshold, float) or not math.isfinite(threshold):
        raise ValueError("the threshold is not a number")
    if found.kind not in ("fmr", "fpir", "given"):
        raise ValueError("the calibration is of no known kind")
    return found


def _matcher(recognizer: "Enrolment", state: dict[str, Any]) -> Matcher:
    _check(state, _MATCHER_FIELDS, "the matcher")
    matcher = Matcher(
        recognizer.method,
        recognizer._reader.image_shape,
        float(state["cosine_weight"]),
        state["parameters"],
    )
    if type(matcher.estimator()) is not type(state["model"]):
        raise ValueError("the model is not of the method")
    means, model = state["means"], state["model"]
    n_subjects = len(recognizer.subjects())
    classes = getattr(model, "classes_", None)
    if classes is None or not np.array_equal(classes, np.arange(n_subjects)):
        raise ValueError("the model does not know the subjects")
    n_features = recognizer._reader.width
    if getattr(model, "n_features_in_", None) != n_features:
        raise ValueError("the model is not one of such samples")
    if means.ndim != 2 or len(means) != n_subjects or means.dtype.kind != "f":
        raise ValueError("there is not a mean for each subject")
    # The cosine is that of the inputs of the metric, where there is one.
    width = n_inputs(model.metric_) if isinstance(model, DualQMLW) else n_features
    if means.shape[1] != width:
        raise ValueError(f"the means have {means.shape[1]} values, not {width}")
    centre, spread = state["cosine_mean"], state["cosine_spread"]
    if not (math.isfinite(centre) and math.isfinite(spread) and spread > 0.0):
        raise ValueError("the cosines have no mean or no spread")
    matcher.subjects = recognizer.subjects()
    matcher.model, matcher.means = model, means
    matcher.cosine_mean, matcher.cosine_spread = centre, spread
    return matcher


def _check(state: Any, wanted: dict[str, type | tuple[type, ...]], what: str) -> None:
    if not isinstance(state, dict) or set(state) != set(wanted):
        raise ValueError(f"{what} does not have the fields it should")
    for name, kinds in wanted.items():
        if not isinstance(state[name], kinds):
            raise ValueError(f"{name} is {type(state[name]).__name__}")
