# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of models, which change with any sample or parameter."""

import hashlib
import json
from typing import Any

import numpy as np

from dualqml.extractors import Background
from dualqml.recognition.gallery import Gallery


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
    if background is not None:
        for name, value in sorted(vars(background).items()):
            if value is None or isinstance(value, str):
                digest.update(f"{name}={value}".encode())
            else:
                array = np.ascontiguousarray(value, dtype=np.float64)
                digest.update(f"{name}={array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
