# SPDX-License-Identifier: BSD-3-Clause
"""Ordinary photographs in: aligned faces or the features of a deep network out."""

from collections.abc import Iterable
from math import hypot
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from dualqml.core.arrays import Array
from dualqml.data._photograph_reader import RGB, Photograph, each_named, read_rgb
from dualqml.data.faces import (
    MAX_UPSAMPLE,
    N_FEATURES,
    Face,
    NoFaceError,
    SeveralFacesError,
    dlib,
    embedded,
    found_faces,
)
from dualqml.data.geometry import align_eyes, to_grey
from dualqml.data.images import first_few, pillow
from dualqml.extractors._compat import Interval, StrOptions
from dualqml.extractors._images import SizeLike, read_size

Several = Literal["error", "largest"]

#: Pixels of a photograph for one of the cut face; more are averaged in blocks.
_FINE_ENOUGH = 4.0


class _FaceStep(TransformerMixin, BaseEstimator):
    """A transformer of photographs with one face each; it learns nothing."""

    several: Several
    upsample: int

    def fit(self, X: Iterable[Photograph], y: object = None) -> Self:
        """Check the parameters.

        Parameters
        ----------
        X : list of photographs
            Not used.
        y : None
            Not used.

        Returns
        -------
        self : object
            The same estimator.
        """
        self._validate_params()
        return self

    def _one_face(self, pixels: RGB, name: str) -> tuple[Face, Any]:
        """The face to take and its landmarks."""
        found = found_faces(pixels, int(self.upsample))
        if not found:
            more = f" or a larger upsample than {self.upsample}"
            raise NoFaceError(
                f"{name}: no face was found. It must be upright and seen from the "
                "front. Small ones need a larger photograph"
                f"{more if self.upsample < MAX_UPSAMPLE else ''}."
            )
        if len(found) > 1 and self.several == "error":
            boxes = first_few([str(face.box) for face, _ in found])
            raise SeveralFacesError(
                f"{name}: {len(found)} faces were found, with (top, left, bottom, "
                f"right) {boxes}. Crop the photograph, or pass several='largest' to "
                "take the largest."
            )
        return found[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags


class FaceCropper(_FaceStep):
    """Cut the faces out of photographs, grey and aligned by their eyes.

    Nothing is learned from the training set.

    Parameters
    ----------
    size : tuple of int, default=(32, 32)
        Height and width of the faces.
    several : {"error", "largest"}, default="error"
        What happens where a photograph has several faces.
    upsample : {0, 1, 2}, default=1
        How often photographs are doubled to find small faces; see `find_faces`.
    eye_row : float, default=0.35
        Where the eyes are put, from 0 at the top to 1 at the bottom.
    eye_distance : float, default=0.5
        Distance at which they are put, relative to the width.

    See Also
    --------
    FaceEmbedder : Features of a deep network instead of pixels.
    align_eyes : How faces are aligned.

    Examples
    --------
    >>> from dualqml.data import FaceCropper
    >>> photographs = ["ann.jpg", "zoe.jpg"]
    >>> cropper = FaceCropper(several="largest")
    >>> cropper.fit_transform(photographs).shape  # doctest: +SKIP
    (2, 32, 32)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "size": ["array-like"],
        "several": [StrOptions({"error", "largest"})],
        "upsample": [Interval(Integral, 0, MAX_UPSAMPLE, closed="both")],
        "eye_row": [Interval(Real, 0, 1, closed="neither")],
        "eye_distance": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        size: SizeLike = (32, 32),
        several: Several = "error",
        upsample: int = 1,
        eye_row: float = 0.35,
        eye_distance: float = 0.5,
    ) -> None:
        self.size = size
        self.several = several
        self.upsample = upsample
        self.eye_row = eye_row
        self.eye_distance = eye_distance

    def transform(self, X: Iterable[Photograph]) -> NDArray[np.uint8]:
        """Cut the faces out of photographs.

        Parameters
        ----------
        X : list of photographs
            Paths, images of Pillow, or 8-bit arrays of shape (h, w) or (h, w, 3).

        Returns
        -------
        ndarray of shape (n_photographs, size[0], size[1])
            Grey faces, 8 bits a pixel, as `dualqml.data.Database` takes them.

        Raises
        ------
        NoFaceError, SeveralFacesError
            A photograph has no face, or several and none was chosen.
        DatabaseError
            A photograph cannot be read.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        dlib()
        height, width = read_size(self.size)
        faces = [self._cut(read_rgb(one, name), name) for one, name in each_named(X)]
        return np.array(faces, dtype=np.uint8).reshape(-1, height, width)

    def _cut(self, pixels: RGB, name: str) -> NDArray[np.uint8]:
        face, _ = self._one_face(pixels, name)
        eyes = np.array([face.left_eye, face.right_eye])
        height, width = read_size(self.size)
        # Pixels of the photograph that become one.
        ratio = hypot(*(eyes[1] - eyes[0])) / (self.eye_distance * width)
        # Blurring a close-up of many megapixels takes longer than all the rest.
        shrink = int(ratio / _FINE_ENOUGH)
        if shrink > 1:
            pixels = np.asarray(pillow("Image").fromarray(pixels).reduce(shrink))
            eyes = (eyes + 0.5) / shrink - 0.5
            ratio /= shrink
        # Only what `align_eyes` looks at: the farthest corner, and its blur. The
        # edge continues, such that the eyes of a face that it cuts are within.
        below = max(self.eye_row, 1.0 - self.eye_row) * height
        reach = ratio * (hypot(below, width / 2.0) + 2.0) + 2.0
        first = np.floor(eyes.mean(axis=0) - reach).astype(int)
        last = np.ceil(eyes.mean(axis=0) + reach).astype(int)
        rows, columns = (
            np.arange(first[axis], last[axis] + 1).clip(0, pixels.shape[axis] - 1)
            for axis in (0, 1)
        )
        left, right = (eyes - first).tolist()
        return align_eyes(
            to_grey(pixels[np.ix_(rows, columns)]),
            (left[0], left[1]),
            (right[0], right[1]),
            self.size,
            self.eye_row,
            self.eye_distance,
        )


class FaceEmbedder(ClassNamePrefixFeaturesOutMixin, _FaceStep):
    """Turn photographs into the 128 features that a deep network sees in faces.

    Nothing is learned from the training set: the network has been trained on
    about three million faces of others [1]_.

    Parameters
    ----------
    several : {"error", "largest"}, default="error"
        What happens where a photograph has several faces.
    upsample : {0, 1, 2}, default=1
        How often photographs are doubled to find small faces; see `find_faces`.

    See Also
    --------
    FaceCropper : Pixels instead of features.

    Notes
    -----
    The network was trained such that photographs of the same person are less
    than 0.6 apart. Results are the same in every run and whatever other
    photographs there are; other processors may round differently. dlib can also
    average over random changes of a face, which depend on what it did before: this
    is not used.

    References
    ----------
    .. [1] D. E. King, "dlib-models", https://github.com/davisking/dlib-models.

    Examples
    --------
    >>> from dualqml.data import FaceEmbedder
    >>> photographs = ["ann.jpg", "zoe.jpg"]
    >>> FaceEmbedder().fit_transform(photographs).shape  # doctest: +SKIP
    (2, 128)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "several": [StrOptions({"error", "largest"})],
        "upsample": [Interval(Integral, 0, MAX_UPSAMPLE, closed="both")],
    }
    _n_features_out = N_FEATURES

    def __init__(self, *, several: Several = "error", upsample: int = 1) -> None:
        self.several = several
        self.upsample = upsample

    def transform(self, X: Iterable[Photograph]) -> Array:
        """Embed the faces in photographs.

        Parameters
        ----------
        X : list of photographs
            Paths, images of Pillow, or 8-bit arrays of shape (h, w) or (h, w, 3).

        Returns
        -------
        ndarray of shape (n_photographs, 128)
            The features of the faces.

        Raises
        ------
        NoFaceError, SeveralFacesError
            A photograph has no face, or several and none was chosen.
        DatabaseError
            A photograph cannot be read.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        dlib()
        rows = [
            self._embedded(read_rgb(one, name), name) for one, name in each_named(X)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, N_FEATURES)

    def _embedded(self, pixels: RGB, name: str) -> Array:
        _, landmarks = self._one_face(pixels, name)
        return embedded(pixels, landmarks)
