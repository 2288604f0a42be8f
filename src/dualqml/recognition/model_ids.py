# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of models, which change with any sample or parameter."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dualqml.extractors import Background
from dualqml.recognition.gallery import Gallery

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher


def model_id_of(
    settings: list[Any], gallery: Gallery, background: Background | None
) -> str:
    """The number of a model.

    Parameters
    ----------
    settings : list
        The parameters, in values that JSON has.
    gallery : Gallery
        The subjects and their samples. Names of samples count if there are any.
    background : Background or None
        Statistics of other people.

    Returns
    -------
    str
        Sixteen hexadecimal digits.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps([settings, list(gallery)], sort_keys=True).encode())
    for subject in gallery:
        rows = np.ascontiguousarray(gallery[subject])
        digest.update(repr((rows.shape, rows.dtype.str)).encode() + rows.tobytes())
    if gallery.has_names:
        names = [gallery.names(subject) for subject in gallery]
        digest.update(json.dumps(names).encode())
    _add_background(digest, background)
    return digest.hexdigest()[:16]


def deferred_id_of(
    settings: list[Any],
    gallery: Gallery,
    background: Background | None,
    matcher: "Matcher",
) -> str:
    """The number of a model whose refit is deferred.

    It is no function of the present samples, so what was learnt counts too. Digests of
    samples that have not changed are not computed again.

    Parameters
    ----------
    settings : list
        The parameters, in values that JSON has.
    gallery : Gallery
        The subjects and their samples.
    background : Background or None
        Statistics of other people.
    matcher : Matcher
        Fitted, with DualQML-W.

    Returns
    -------
    str
        Sixteen hexadecimal digits.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps([settings, list(gallery)], sort_keys=True).encode())
    digest.update(b"".join([gallery.digest(subject) for subject in gallery]))
    _add_background(digest, background)
    digest.update(repr(matcher.score_scale()).encode())
    metric, qml = matcher.model.metric_, matcher.model.qml_
    learnt = [metric.mean_, metric.coefficients_, qml.ranks_, qml.mean_responses_]
    # The multipliers determine the matrices.
    for array in (*learnt, qml.dual_coef_, qml.energies_):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _add_background(digest: "hashlib._Hash", background: Background | None) -> None:
    if background is not None:
        for name, value in sorted(vars(background).items()):
            if value is None or isinstance(value, str):
                digest.update(f"{name}={value}".encode())
            else:
                array = np.ascontiguousarray(value, dtype=np.float64)
                digest.update(f"{name}={array.shape}".encode() + array.tobytes())
