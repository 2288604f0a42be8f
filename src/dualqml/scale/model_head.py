# SPDX-License-Identifier: BSD-3-Clause
"""What all classes of a sharded model have in common, and its file.

The head of a model is small: labels, numbers of samples, the map of the metric, and
the names and checksums of the files of the shards. Every value of a file is checked
before it is used, because a forged file has a checksum that fits.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dualqml import __version__
from dualqml._saved_state import (
    NOTHING,
    Kind,
    ValueProblem,
    array_of,
    check_fields,
    expect,
    expect_codes,
    instance_of,
    one_of,
    plain_number,
)
from dualqml._text import printable
from dualqml._typing import Array, Index
from dualqml.exceptions import ModelFileError
from dualqml.extractors import DualQML, DualQMLW, DualQMLWCV
from dualqml.extractors.fit_in_parts import (
    Chosen,
    LinearMap,
    PartEstimator,
    checked_recipe,
)
from dualqml.extractors.part_assembly import Profiles
from dualqml.extractors.tuning import check_search_results
from dualqml.persistence.codec import Decoder, Encoder
from dualqml.persistence.formats import VERSION_KEY, check_format
from dualqml.persistence.schema import CLASSES
from dualqml.persistence.tensors import (
    read_tensors,
    stored_checksum,
    strict_json,
    write_tensors,
)
from dualqml.recognition.score_scale import ScoreScale

#: The file of what all classes have in common.
HEAD = "model.safetensors"
_FORMAT_KEY, _FORMAT, _STATE_KEY = "dualqml.sharded_model", 1, "dualqml.state"
#: Names of the files of shards. They do not lead out of the folder.
_SHARD_NAME = re.compile(r"shard-[0-9]{6,12}(-[0-9a-f]{16})?\.safetensors")

_NUMBER = plain_number("a finite number", -math.inf)
_POSITIVE = plain_number("a positive number", math.ulp(0.0))
_LAMBDA = plain_number("a number from 0", 0.0)
_WHOLE = Kind("a whole number", lambda v: type(v) is int and 0 <= v < 1 << 53)
_WHOLE_NUMBERS = array_of("a vector of 64-bit whole numbers", "int64", 1, empty=False)
_VECTOR = array_of("a vector", "float64", 1, finite=True)
_MATRIX = array_of("a matrix", "float64", 2, finite=True, empty=False)
_RULE = one_of(("max", "cosine"))
_RECORD = instance_of(dict)

#: Fields of a head.
_STATE: Mapping[str, Kind] = {
    "estimator": instance_of(DualQML, DualQMLW),
    "search": _RECORD,
    "n_features": _WHOLE,
    "n_samples": _WHOLE,
    "lam": _LAMBDA,
    "chosen": _RECORD,
    "classes": array_of("a vector of labels", "int64 U", 1, empty=False),
    "counts": _WHOLE_NUMBERS,
    "shard_sizes": _WHOLE_NUMBERS,
    "places": _WHOLE_NUMBERS,
    "class_scale": _VECTOR | NOTHING,
    "profiles": _RECORD | NOTHING,
    "scale": _RECORD | NOTHING,
    "shards": _RECORD,
}
_CHOSEN: Mapping[str, Kind] = {
    "lam": _LAMBDA,
    "rule": _RULE | NOTHING,
    "n_searched": _WHOLE,
    "mean": _VECTOR | NOTHING,
    "coefficients": _MATRIX | NOTHING,
}
_PROFILES: Mapping[str, Kind] = {
    "features": _MATRIX,
    "mean": _VECTOR | NOTHING,
    "codes": _WHOLE_NUMBERS,
}
_SCALE: Mapping[str, Kind] = dict.fromkeys(vars(ScoreScale()), _NUMBER) | dict.fromkeys(
    ("spread", "cosine_spread", "scale", "slope"), _POSITIVE
)


@dataclass(frozen=True)
class Head:
    """What all classes of a sharded model have in common.

    Attributes
    ----------
    estimator : estimator
        The estimator, not fitted; of a `DualQMLWCV` also the results of its search.
    n_features : int
        Number of values of a sample.
    n_samples : int
        Number of samples that it was fitted to.
    lam : float
        Lambda for the data as given.
    chosen : Chosen
        The parameters, given or chosen, and the map to the coordinates.
    classes : ndarray of shape (n_classes,)
        The labels, sorted.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    shard_sizes : ndarray of shape (n_shards,)
        Number of classes of each shard.
    places : ndarray of shape (n_classes,)
        The numbers of the classes of the first shard, of the second, and so on.
    class_scale : ndarray of shape (n_classes,) or None
        Divisors of the features of classes of different sizes.
    profiles : Profiles or None
        What rule "cosine" compares with.
    scale : ScoreScale or None
        Of a recogniser, the numbers that turn responses and cosines into scores.
    """

    estimator: PartEstimator
    n_features: int
    n_samples: int
    lam: float
    chosen: Chosen
    classes: NDArray[Any]
    counts: Index
    shard_sizes: Index
    places: Index
    class_scale: Array | None
    profiles: Profiles | None = None
    scale: ScoreScale | None = None


def search_of(estimator: PartEstimator) -> dict[str, Any]:
    """The results of the search of an estimator.

    Parameters
    ----------
    estimator : estimator
        The estimator.

    Returns
    -------
    dict
        For `DualQMLWCV`, the attributes of its search, such as "best_params_"; else
        empty.
    """
    return {
        name: value for name, value in vars(estimator).items() if _is_of_search(name)
    }


def _is_of_search(name: str) -> bool:
    return name.startswith("best_") or name == "cv_results_"


def check_can_be_saved(estimator: PartEstimator) -> None:
    """Raise if a file cannot hold the parameters of an estimator.

    Parameters
    ----------
    estimator : estimator
        The estimator.

    Raises
    ------
    ModelFileError
        It cannot.
    """
    try:
        Encoder().encode(clone(estimator))
    except ValueError as error:
        raise ModelFileError(
            f"{type(estimator).__name__} cannot be saved: {error}"
        ) from error


def write_head(folder: Path, head: Head, names: list[str]) -> dict[str, str]:
    """Write the file of what all classes have in common.

    Parameters
    ----------
    folder : Path
        The folder, which has the shards already.
    head : Head
        What the classes have in common.
    names : list of str
        The names of the shards.

    Returns
    -------
    dict of str to str
        The checksums of the shards by their names.

    Raises
    ------
    ModelFileError
        A parameter of the estimator cannot be saved.
    FileError
        The file cannot be written.
    """
    chosen, linear = head.chosen, head.chosen.linear
    shards = {name: stored_checksum(folder / name) for name in names}
    state = {
        "estimator": clone(head.estimator),
        "search": search_of(head.estimator),
        "n_features": head.n_features,
        "n_samples": head.n_samples,
        "lam": float(head.lam),
        "chosen": {
            "lam": float(chosen.lam),
            "rule": chosen.rule,
            "n_searched": chosen.n_searched,
            "mean": None if linear is None else linear.mean,
            "coefficients": None if linear is None else linear.coefficients,
        },
        "classes": head.classes,
        "counts": np.asarray(head.counts, dtype=np.int64),
        "shard_sizes": np.asarray(head.shard_sizes, dtype=np.int64),
        "places": np.asarray(head.places, dtype=np.int64),
        "class_scale": head.class_scale,
        "profiles": None if head.profiles is None else head.profiles._asdict(),
        "scale": None
        if head.scale is None
        else {name: float(value) for name, value in vars(head.scale).items()},
        "shards": shards,
    }
    encoder = Encoder()
    try:
        # Raise now if the model could not be loaded again.
        _check_state(state)
        text = json.dumps(encoder.encode(state), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ModelFileError(
            f"{folder / HEAD}: the model cannot be saved: {error}"
        ) from error
    metadata = {
        _FORMAT_KEY: str(_FORMAT),
        VERSION_KEY: __version__,
        _STATE_KEY: text,
    }
    write_tensors(folder / HEAD, encoder.arrays, metadata)
    return shards


def read_head(folder: Path, *, verify: bool) -> tuple[Head, dict[str, str]]:
    """Read the file of what all classes have in common.

    Parameters
    ----------
    folder : Path
        The folder.
    verify : bool
        Whether to check the checksum and all numbers.

    Returns
    -------
    head : Head
        What the classes have in common.
    shards : dict of str to str
        The checksums of the shards by their names.

    Raises
    ------
    ModelFileError
        The file is not there, damaged, or not that of a model.
    """
    path = folder / HEAD
    arrays, metadata = read_tensors(path, verify=verify)
    if _FORMAT_KEY not in metadata or _STATE_KEY not in metadata:
        raise ModelFileError(f"{path} is not that of a sharded model")
    check_format(path, metadata, _FORMAT_KEY, _FORMAT)
    try:
        decoder = Decoder(arrays, values=verify)
        state = decoder.decode(strict_json(metadata[_STATE_KEY]))
        if decoder.unused:
            raise ValueProblem((decoder.unused[0],), "is an array that is not used")
        _check_state(state, values=verify)
    except ValueError as error:
        what = printable(str(error), 500)
        raise ModelFileError(f"{path} is refused: {what}") from error
    return _head_of(state), state["shards"]


def _head_of(state: Mapping[str, Any]) -> Head:
    """The head of a state that has been checked."""
    estimator, chosen = state["estimator"], state["chosen"]
    for name, value in state["search"].items():
        setattr(estimator, name, value)
    linear = None
    if chosen["mean"] is not None:
        linear = LinearMap(chosen["mean"], chosen["coefficients"])
    return Head(
        estimator,
        state["n_features"],
        state["n_samples"],
        float(state["lam"]),
        Chosen(float(chosen["lam"]), chosen["rule"], linear, chosen["n_searched"]),
        state["classes"],
        state["counts"],
        state["shard_sizes"],
        state["places"],
        state["class_scale"],
        None if state["profiles"] is None else Profiles(**state["profiles"]),
        None if state["scale"] is None else ScoreScale(**state["scale"]),
    )


def _check_state(state: Any, *, values: bool = True) -> None:
    """Raise a `ValueError` if a state is not that of a model."""
    check_fields(state, _STATE, (), values=values)
    expect(state["n_features"] > 0, (), "n_features", "is zero")
    _check_estimator(state, values=values)
    _check_classes(state)
    _check_shards(state)
    n_classes = state["classes"].size
    rule, counts = state["chosen"]["rule"], state["counts"]
    divisors = state["class_scale"]
    needed = rule == "max" and not (counts == counts[0]).all()
    expect((divisors is not None) == needed, (), "class_scale", "does not fit the rule")
    if divisors is not None:
        usable = divisors.size == n_classes and divisors.min() > 0.0
        expect(usable, (), "class_scale", "is not a divisor for each class")
    _check_profiles(state, values=values)
    if state["scale"] is not None:
        check_fields(state["scale"], _SCALE, ("scale",))
        fits = isinstance(state["estimator"], DualQMLW) and rule == "max"
        expect(fits, (), "scale", "is for another estimator")


def _check_estimator(state: Mapping[str, Any], *, values: bool) -> None:
    """Raise if the estimator is not valid, or other parameters were chosen."""
    estimator, chosen, search = (state[k] for k in ("estimator", "chosen", "search"))
    # It validates the parameters.
    checked_recipe(estimator)
    check_fields(chosen, _CHOSEN, ("chosen",), values=values)
    kinds = CLASSES[type(estimator).__name__].saved.attributes
    check_fields(
        search, {k: v for k, v in kinds.items() if _is_of_search(k)}, ("search",)
    )
    rule = getattr(estimator, "rule", None)
    if isinstance(estimator, DualQMLWCV):
        check_search_results(search["cv_results_"], ("search",))
        rule = search["best_rule_"]
        expect(chosen["lam"] == search["best_lam_"], ("chosen",), "lam", "is not best")
    expect(chosen["rule"] == rule, ("chosen",), "rule", "is not that of the estimator")
    mean, coefficients = chosen["mean"], chosen["coefficients"]
    if isinstance(estimator, DualQML):
        none = mean is None and coefficients is None
        expect(none, ("chosen",), "mean", "is there without a metric")
        return
    n_features = state["n_features"]
    fits = mean is not None and coefficients is not None
    fits = fits and mean.size == len(coefficients) == n_features
    expect(fits, ("chosen",), "coefficients", "do not fit the features")


def _check_classes(state: Mapping[str, Any]) -> None:
    """Raise if labels are not sorted, or do not fit the numbers of samples."""
    classes, counts, n_samples = (state[k] for k in ("classes", "counts", "n_samples"))
    ascending = bool((classes[1:] > classes[:-1]).all())
    expect(ascending, (), "classes", "is not in order, or has a label twice")
    # First each number by itself: the sum of forged numbers could overflow.
    inside = counts.min() > 0 and counts.max() <= n_samples
    whole = counts.size == classes.size and inside and counts.sum() == n_samples
    expect(bool(whole), (), "counts", "does not add up to the number of samples")


def _check_shards(state: Mapping[str, Any]) -> None:
    """Raise if the classes are not divided among the shards."""
    n_classes, sizes = state["classes"].size, state["shard_sizes"]
    inside = sizes.min() >= 0 and sizes.max() <= n_classes
    whole = bool(inside and sizes.sum() == n_classes)
    expect(whole, (), "shard_sizes", "does not add up to the number of classes")
    expect_codes(state["places"], n_classes, (), "places")
    expect(state["places"].size == n_classes, (), "places", "has a class twice")
    names = state["shards"]
    expect(len(names) == sizes.size, (), "shards", "does not have all shards")
    for name, checksum in names.items():
        if not _SHARD_NAME.fullmatch(name) or type(checksum) is not str:
            raise ValueProblem(("shards", name), "is not a file of a shard")


def _check_profiles(state: Mapping[str, Any], *, values: bool) -> None:
    """Raise if there is not a profile for each sample."""
    profiles, rule = state["profiles"], state["chosen"]["rule"]
    needed = rule == "cosine"
    expect((profiles is not None) == needed, (), "profiles", "does not fit the rule")
    if profiles is None:
        return
    check_fields(profiles, _PROFILES, ("profiles",), values=values)
    n_classes, n_samples = state["classes"].size, state["n_samples"]
    features, mean, codes = (profiles[name] for name in _PROFILES)
    fits = features.shape == (n_samples, n_classes)
    fits = fits and (mean is None or mean.size == n_classes)
    expect(fits, ("profiles",), "features", "does not fit the samples")
    # DualQML-W always compares centred profiles.
    is_centred = getattr(state["estimator"], "centre", True)
    expect((mean is not None) == is_centred, ("profiles",), "mean", "does not fit")
    expect(codes.size == n_samples, ("profiles",), "codes", "does not fit the samples")
    expect_codes(codes, n_classes, ("profiles",), "codes")
    same = np.array_equal(np.bincount(codes), state["counts"])
    expect(same, ("profiles",), "codes", "does not fit the numbers of samples")
