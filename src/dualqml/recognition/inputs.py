# SPDX-License-Identifier: BSD-3-Clause
"""Read samples as rows: arrays, Pillow images, paths of images, embeddings."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._text import printable
from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background
from dualqml.images.files import pixels_of, read_pixels
from dualqml.images.geometry import standard_grey
from dualqml.images.shapes import LEAST_SIDE, ImageShape, SizeLike, read_size
from dualqml.recognition.front_end import FrontEnd, PhotographEmbedder
from dualqml.recognition.gallery import LONGEST_NAME, checked_sample_name

#: One or several samples: arrays, Pillow images, paths, or lists of them. Pillow is
#: optional, so there is no narrower type.
Inputs: TypeAlias = Any
Embedding = Callable[[list[Any]], ArrayLike] | PhotographEmbedder


class InputReader:
    """Read samples, which must all be of the same kind as the first.

    Parameters
    ----------
    size : sequence of int
        Height and width to which images are resized.
    embedding : callable, FaceEmbedder or None
        A function from a list of images to an array with one row per image. With a
        `FaceEmbedder` the samples are photographs, and arrays of floating-point
        numbers are its vectors.

    Raises
    ------
    RecognitionError
        The size is not valid.
    """

    def __init__(self, *, size: SizeLike, embedding: Embedding | None = None) -> None:
        try:
            self.size = read_size(size)
        except ValueError as error:
            raise RecognitionError(str(error)) from error
        self.embedding: Callable[[list[Any]], ArrayLike] | None = None
        #: How photographs are read; None for other samples.
        self.photographs: FrontEnd | None = None
        if isinstance(embedding, PhotographEmbedder):
            self.photographs = FrontEnd.of_photographs(embedding)
            self.embedding = embedding.transform
        elif embedding is None or callable(embedding):
            self.embedding = embedding
        else:
            raise RecognitionError(
                "embedding must be a function or a FaceEmbedder, not "
                f"{type(embedding).__name__}"
            )
        #: "image" or "vector"; None before the first sample.
        self.kind: str | None = None
        #: Number of values of a row; None before the first sample.
        self.width: int | None = None

    def remember(self, photographs: FrontEnd) -> None:
        """Read photographs as the samples of a file were read.

        Parameters
        ----------
        photographs : FrontEnd
            How they were read.

        Raises
        ------
        RecognitionError
            The embedder that was given has another network.
        """
        own = self.photographs
        if own is not None and own.sha256 != photographs.sha256:
            raise RecognitionError(
                f"The samples were described by the network {photographs.sha256}, and "
                f"the embedder has {own.sha256}: vectors of two networks cannot be "
                "compared"
            )
        if own is None:
            self.photographs = photographs

    def reset(self) -> None:
        """Forget the kind of the samples."""
        self.kind = self.width = None

    @property
    def image_shape(self) -> ImageShape | None:
        """Height and width of the images in the rows; None for vectors."""
        return self.size if self.kind == "image" else None

    def read(self, inputs: Inputs, *, enrolling: bool = True) -> NDArray[Any]:
        """Samples as rows.

        Parameters
        ----------
        inputs : array, image, path or list of them
            Samples.
        enrolling : bool, default=True
            Whether the first sample may define the kind of all samples.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            8-bit pixels of images, or vectors in single precision.

        Raises
        ------
        RecognitionError
            There is no sample, or a sample cannot be used or is of another kind than
            the samples before.
        """
        if isinstance(inputs, _ReadRows):
            return inputs.rows
        if self.photographs is not None and _are_vectors(inputs):
            kind, rows = "vector", _checked_vectors(np.atleast_2d(inputs))
        elif self.embedding is not None or self.photographs is not None:
            kind, rows = "vector", self._embedded(_as_list(inputs))
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
        if self.width not in (None, rows.shape[1]):
            raise RecognitionError(
                f"The vectors of this recogniser have {self.width} values, not "
                f"{rows.shape[1]}"
            )
        self.kind, self.width = kind, rows.shape[1]
        return rows

    def check_background(self, background: Background) -> None:
        """Raise if a background does not fit the samples that have been read.

        Parameters
        ----------
        background : Background
            Statistics of other people.

        Raises
        ------
        RecognitionError
            It is of samples of another kind or size.
        """
        found = self.image_shape, self.width
        wanted = background.image_shape, background.n_features
        if wanted != found:
            raise RecognitionError(
                f"The background is of {_kind_in_words(*wanted)}, the samples are "
                f"{_kind_in_words(*found)}: make the background from samples of the "
                "same kind and size"
            )

    @property
    def front_end(self) -> FrontEnd:
        """How samples are read."""
        if self.photographs is not None:
            return self.photographs
        if self.kind is None:
            return FrontEnd(None)
        return FrontEnd("crops" if self.kind == "image" else "vectors")

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Restore the kind of the samples if an error is raised."""
        before = self.kind, self.width
        try:
            yield
        except BaseException:
            self.kind, self.width = before
            raise

    def _embedded(self, images: list[Any]) -> NDArray[np.float32]:
        if not images:
            raise RecognitionError("There is no sample: at least one is needed")
        if self.embedding is None:
            assert self.photographs is not None
            embedder = self.photographs.embedder()
            assert embedder is not None
            self.embedding = embedder.transform
        vectors = np.asarray(self.embedding(images))
        if vectors.ndim != 2 or len(vectors) != len(images):
            raise RecognitionError(
                f"The embedding gave an array of shape {vectors.shape} for "
                f"{len(images)} images; one row per image was expected"
            )
        if vectors.dtype.kind not in "fiu":
            raise RecognitionError(f"An embedding must be numbers, not {vectors.dtype}")
        return _checked_vectors(vectors)

    def as_inputs(self, rows: NDArray[Any]) -> Any:
        """Rows in a form that `read` accepts and does not embed again."""
        return _ReadRows(rows)

    def single(self, inputs: Inputs) -> Any:
        """One sample, to be read again without work; raise if there are several."""
        rows = self.read(inputs, enrolling=False)
        if len(rows) != 1:
            raise RecognitionError(
                f"One sample was expected, got {len(rows)}; for several there are "
                "verify_many and identify_many"
            )
        return self.as_inputs(rows)

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
        if array.size == 0:
            raise RecognitionError("There is no sample: at least one is needed")
        if array.ndim in (3, 4) and _is_colour(array):
            return "image", self._grey(array, colour=True)
        if array.ndim == 3 or (array.ndim == 2 and self._is_image(array)):
            return "image", self._grey(array, colour=False)
        if array.ndim < 3 and array.ndim > 0:
            return "vector", _checked_vectors(np.atleast_2d(array))
        raise RecognitionError(
            "Samples are images of shape (height, width) or (n, height, width), or "
            f"vectors of shape (p,) or (n, p); got {array.shape}"
        )

    def _is_image(self, array: NDArray[Any]) -> bool:
        """Whether a two-dimensional array is an image. If not, its rows are vectors."""
        if self.kind is not None:
            return self.kind == "image"
        return array.dtype in (np.uint8, np.uint16)

    def _image(self, item: Any) -> NDArray[np.uint8]:
        if isinstance(item, str | os.PathLike):
            pixels = read_pixels(Path(item))
        elif _is_pillow(item):
            pixels = pixels_of(item)
        else:
            return self._rows(np.asarray(item))[1].ravel()
        return self._grey(pixels, colour=pixels.ndim == 3).ravel()

    def _grey(self, images: NDArray[Any], *, colour: bool) -> NDArray[np.uint8]:
        """Rows of images of shape (height, width) or (n, height, width)."""
        height, width = images.shape[-3:-1] if colour else images.shape[-2:]
        if min(height, width) < LEAST_SIDE:
            raise RecognitionError(
                f"An image has at least {LEAST_SIDE} x {LEAST_SIDE} pixels, not "
                f"{height} x {width}"
            )
        if not np.isfinite(images).all():
            raise RecognitionError("A sample has values that are not finite")
        try:
            grey = standard_grey(images, self.size, colour=colour)
        except ValueError as error:
            raise RecognitionError(str(error)) from error
        return grey.reshape(-1, self.size[0] * self.size[1])


def sample_names(
    inputs: Inputs, n_samples: int, names: Sequence[str] | None
) -> list[str]:
    """Names of samples, given or those of their files.

    Parameters
    ----------
    inputs : array, image, path or list of them
        The samples.
    n_samples : int
        Their number.
    names : sequence of str or None
        A name for each. If None, a path is named by its folder and name, as
        "Ann/ann1.jpg", and anything else by "".

    Returns
    -------
    list of str
        A printable name for each.

    Raises
    ------
    RecognitionError
        There is not a name for each, or one cannot be used.
    """
    if names is not None:
        if isinstance(names, str) or len(names) != n_samples:
            raise RecognitionError(
                f"{n_samples} samples need a list of as many names, got {names!r:.80}"
            )
        return [checked_sample_name(name) for name in names]
    if isinstance(inputs, str | os.PathLike):
        inputs = [inputs]
    if not isinstance(inputs, Sequence) or len(inputs) != n_samples:
        return [""] * n_samples
    return [
        _name_of_path(item) if isinstance(item, str | os.PathLike) else ""
        for item in inputs
    ]


def _name_of_path(path: str | os.PathLike[str]) -> str:
    found = Path(os.fsdecode(path))
    parts = found.relative_to(found.anchor).parts
    return printable("/".join(parts[-2:]), LONGEST_NAME)


def _kind_in_words(shape: ImageShape | None, width: int | None) -> str:
    if shape is not None:
        return f"images of {shape[0]} x {shape[1]} pixels"
    return f"vectors of {width} values"


class _ReadRows:
    """Rows that `InputReader.read` has returned."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows


def _are_vectors(inputs: Inputs) -> bool:
    """Whether samples are vectors, where images are photographs of 8 bits."""
    return (
        isinstance(inputs, np.ndarray)
        and inputs.dtype.kind == "f"
        and inputs.ndim in (1, 2)
    )


def _checked_vectors(vectors: NDArray[Any]) -> NDArray[np.float32]:
    rows = vectors.astype(np.float32)
    if not np.isfinite(rows).all():
        raise RecognitionError("A sample has values that are not finite")
    if not rows.any(axis=1).all():
        raise RecognitionError("A sample is a vector of zeros, which has no direction")
    return rows


def _as_list(inputs: Inputs) -> list[Any]:
    if isinstance(inputs, str | os.PathLike) or _is_pillow(inputs):
        return [inputs]
    if isinstance(inputs, np.ndarray):
        single = inputs.ndim == 2 or (inputs.ndim == 3 and _is_colour(inputs))
        return [inputs] if single else list(inputs)
    return list(inputs)


def _is_colour(images: NDArray[Any]) -> bool:
    """Whether the last axis holds colours: grey or RGB, with or without opacity."""
    # No image is only 2 to 4 pixels wide.
    return images.shape[-1] in (2, 3, 4)


def _is_pillow(item: Any) -> bool:
    # Without importing Pillow, which is optional.
    return type(item).__module__.startswith("PIL.") and hasattr(item, "convert")
