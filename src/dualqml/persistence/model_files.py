# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models in files, without pickle.

A model file is a safetensors file (see `dualqml.persistence.tensors`). It holds the
arrays of the model and three strings: the version of the format, the version of dualqml
that wrote it, and the rest of the model in JSON (see `dualqml.persistence.codec`).
Reading a file makes only objects of the classes in `dualqml.persistence.schema`. It
never runs code that a file names.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dualqml import __version__
from dualqml._saved_state import ValueProblem
from dualqml.exceptions import ModelFileError
from dualqml.persistence.codec import Decoder, Encoder, is_saved
from dualqml.persistence.formats import VERSION_KEY, check_format
from dualqml.persistence.tensors import read_tensors, strict_json, write_tensors

#: Version of the format. It changes with a major version of dualqml at most.
FORMAT = 1

_FORMAT_KEY = "dualqml.format"
_MODEL_KEY = "dualqml.model"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model.

    At any moment either the old or the new file is there and complete.

    Parameters
    ----------
    estimator : estimator object or Background
        A fitted estimator of dualqml, or a pipeline of such estimators and of
        scikit-learn's `StandardScaler` and `Normalizer`. Its parameters must be
        numbers, strings, arrays, lists, dictionaries, None, or such estimators. Or
        the statistics of a :class:`~dualqml.extractors.Background`.
    path : path
        The file. Its folder is made if it does not exist.

    Raises
    ------
    ModelFileError
        A file cannot hold a part of the model. The message names the part.
    FileError
        The file cannot be written. An old file is not changed.
    NotFittedError
        The estimator is not fitted.

    See Also
    --------
    load : Load it again.

    Notes
    -----
    The file contains what the model has learnt from its training samples, and often the
    samples themselves. If they show people, protect the file like their images.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dualqml
    >>> from dualqml.extractors import NearestSample
    >>> model = NearestSample().fit([[1.0, 0.0], [0.0, 1.0]], ["anna", "bert"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dualqml.save(model, Path(folder, "people.safetensors"))
    ...     same = dualqml.load(Path(folder, "people.safetensors"))
    ...     print(same.predict([[5.0, 1.0]]))
    ['anna']
    """
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    encoder = Encoder()
    try:
        model = json.dumps(
            encoder.encode(estimator), separators=(",", ":"), allow_nan=False
        )
        # Raise now if the model could not be loaded again.
        _decode_model(model, encoder.arrays)
    except ValueError as error:
        kind = type(estimator).__name__
        raise ModelFileError(f"{path}: {kind} cannot be saved: {error}") from error
    metadata = {
        _FORMAT_KEY: str(FORMAT),
        VERSION_KEY: __version__,
        _MODEL_KEY: model,
    }
    write_tensors(path, encoder.arrays, metadata)


def load(path: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Load a model that `save` has written.

    With the same versions of the libraries, its predictions are equal to those of the
    saved model to the last bit. It can be cloned and fitted again.

    Parameters
    ----------
    path : path
        The file.
    verify : bool, default=True
        Whether to check the checksum and all numbers, which reads the whole file. If
        False, only what is used is read. Use this for your own files only.

    Returns
    -------
    estimator object or Background
        The model. Its arrays are read-only and stay in the file until they are used.
        Processes that load the same file share their memory.

    Raises
    ------
    ModelFileError
        The file does not exist, is damaged, is not a model of dualqml, or has another
        format or a newer version.

    See Also
    --------
    save : Save a model.

    Notes
    -----
    Parameters that a later version has added take their defaults. Nothing in a file
    is executed. But a file from somebody else can hold a model that makes any
    decisions, so load only models that you trust.
    """
    arrays, metadata = read_tensors(path, verify=verify)
    if not _is_model(metadata):
        raise ModelFileError(f"{path} is a safetensors file, but no model of dualqml")
    check_format(path, metadata, _FORMAT_KEY, FORMAT)
    try:
        return _decode_model(metadata[_MODEL_KEY], arrays, values=verify)
    except ValueError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error


def holds_model(path: str | os.PathLike[str]) -> bool:
    """Tell a file that `save` has written from other files of arrays.

    Parameters
    ----------
    path : path
        The file. Only its header is read.

    Returns
    -------
    bool
        Whether `load` is the function that reads it. A file of a recogniser, for
        example, is read by `Recognizer.load`.

    Raises
    ------
    ModelFileError
        The file does not exist, or has no such header.
    """
    _, metadata = read_tensors(path, verify=False)
    return _is_model(metadata)


def _is_model(metadata: Mapping[str, str]) -> bool:
    return _FORMAT_KEY in metadata and _MODEL_KEY in metadata


def _decode_model(
    text: str, arrays: Mapping[str, NDArray[Any]], *, values: bool = True
) -> Any:
    """The model of a JSON text and its arrays; it must use all arrays."""
    decoder = Decoder(arrays, values=values)
    model = decoder.decode(strict_json(text))
    if decoder.unused:
        what = "is an array that the model does not use"
        raise ValueProblem((decoder.unused[0],), what)
    if not is_saved(model):
        raise ValueProblem((), "is not an estimator")
    if isinstance(model, BaseEstimator):
        try:
            check_is_fitted(model)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueProblem((), f"is not fitted: {error}") from error
    return model
