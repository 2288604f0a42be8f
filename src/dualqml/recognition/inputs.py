# SPDX-License-Identifier: BSD-3-Clause
"""From what users have to rows: arrays, Pillow images, paths, embeddings."""

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml.data import resize, to_grey
from dualqml.data.images import read_image
from dualqml.recognition.results import RecognitionError

#: A sample or several: arrays, Pillow images, paths, or lists of them. Pillow is
#: optional, so there is no narrower type.
Inputs: TypeAlias = Any
Embedding = Callable[[list[Any]], ArrayLike]


class InputReader:
    """Read samples, all of the kind of the first.

    Parameters
    ----------
    size : tuple of int
        Height and width to which images are resized.
    embedding : callable or None
        From a list of images to an array with a vector for each.
    """

    def __init__(
        self, *, size: tuple[int, int], embedding: Embedding | None = None
    ) -> None:
        self.size = size
        self.embedding = embedding
        #: "image" or "vector", once there was a sample.
        self.kind: str | None = None

    def copy(self) -> "InputReader":
        """A reader of the same kind."""
        return copy.copy(self)

    def reset(self) -> None:
        """Forget of which kind samples are."""
        self.kind = None

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images in the rows; None for vectors."""
        return self.size if self.kind == "image" else None

    def read(self, inputs: Inputs, *, enrolling: bool = True) -> NDArray[Any]:
        """Samples as rows.

        Parameters
        ----------
        inputs : array, image, path or list of them
            Samples.
        enrolling : bool, default=True
            Whether the first sample may say of which kind all are.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            8-bit pixels of images, or vectors in single precision.

        Raises
        ------
        RecognitionError
            There is no sample, one cannot be used, or it is of another kind than
            those before.
        """
        if isinstance(inputs, _Rows):
            return inputs.rows
        if self.embedding is not None:
            vectors = np.asarray(self.embedding(_as_list(inputs)))
            kind, rows = "vector", _vectors(np.atleast_2d(vectors))
        else:
            kind, rows = self._rows(inputs)
        if len(rows) == 0:
            raise RecognitionError("There is no sample: at least one is needed")
        if self.kind is None and not enrolling:
            raise RecognitionError("Nobody is enrolled")
        if self.kind not in (None, kind):
            raise RecognitionError(
                f"This recogniser knows {self.kind}s, and was given {kind}s"
            )
        self.kind = kind
        return rows

    def as_inputs(self, rows: NDArray[Any]) -> Any:
        """Rows in a form that `read` takes, without another embedding."""
        return _Rows(rows)

    def _rows(self, inputs: Inputs) -> tuple[str, NDArray[Any]]:
        if isinstance(inputs, str | os.PathLike) or _is_pillow(inputs):
            return "image", self._image(inputs)[None]
        if isinstance(inputs, Sequence) and any(
            isinstance(item, str | os.PathLike) or _is_pillow(item) for item in inputs
        ):
            return "image", np.array([self._image(item) for item in inputs])
        try:
            array = np.asarray(inputs)
        except ValueError as error:
            raise RecognitionError(
                "The samples have different shapes: give images one by one"
            ) from error
        if array.dtype.kind not in "fiub":
            raise RecognitionError(f"Samples must be numbers, not {array.dtype}")
        if array.ndim == 1 or (array.ndim == 2 and self.kind == "vector"):
            return "vector", _vectors(np.atleast_2d(array))
        if array.ndim == 2 and (array.dtype == np.uint8 or self.kind == "image"):
            return "image", self._grey(array[None])
        if array.ndim == 2:
            return "vector", _vectors(array)
        if array.ndim == 3:
            return "image", self._grey(array)
        raise RecognitionError(
            "Samples are images of shape (height, width) or (n, height, width), or "
            f"vectors of shape (p,) or (n, p); got {array.shape}"
        )

    def _image(self, item: Any) -> NDArray[np.uint8]:
        if isinstance(item, str | os.PathLike):
            return read_image(Path(item), self.size).ravel()
        if _is_pillow(item):
            item = to_grey(np.asarray(item.convert("RGB")))
        return self._grey(np.asarray(item)[None]).ravel()

    def _grey(self, images: NDArray[Any]) -> NDArray[np.uint8]:
        if not np.isfinite(images).all():
            raise RecognitionError("A sample has values that are not finite")
        if images.dtype != np.uint8:
            low, high = float(images.min()), float(images.max())
            if low < 0.0 or high > 255.0:
                raise RecognitionError(
                    f"Pixels must be from 0 to 255 (or 0 to 1), got {low:g} to {high:g}"
                )
            scale = 255.0 if high <= 1.0 else 1.0
            images = np.round(scale * images).astype(np.uint8)
        if images.shape[1:] != self.size:
            images = resize(images, self.size)
        return np.ascontiguousarray(images).reshape(len(images), -1)


class _Rows:
    """Rows that have been read."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows


def _vectors(vectors: NDArray[Any]) -> NDArray[np.float32]:
    if vectors.ndim != 2:
        raise RecognitionError(
            f"An embedding gives a vector for each image, not shape {vectors.shape}"
        )
    rows = vectors.astype(np.float32)
    if not np.isfinite(rows).all():
        raise RecognitionError("A sample has values that are not finite")
    if not rows.any(axis=1).all():
        raise RecognitionError("A sample is a vector of zeros, which is like nobody")
    return rows


def _as_list(inputs: Inputs) -> list[Any]:
    if isinstance(inputs, str | os.PathLike) or _is_pillow(inputs):
        return [inputs]
    if isinstance(inputs, np.ndarray):
        return [inputs] if inputs.ndim == 2 else list(inputs)
    return list(inputs)


def _is_pillow(item: Any) -> bool:
    # Without importing Pillow, which is optional.
    return type(item).__module__.startswith("PIL.") and hasattr(item, "convert")
