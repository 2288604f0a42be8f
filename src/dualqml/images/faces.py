# SPDX-License-Identifier: BSD-3-Clause
"""Faces in photographs: find them, cut them out, and describe them by a network."""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import hypot
from numbers import Integral, Real
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from dualqml._saved_state import STATELESS, Saved
from dualqml._sklearn import Interval, StrOptions
from dualqml._text import first_few
from dualqml._typing import Array
from dualqml.exceptions import (
    MissingDependencyError,
    NoFaceError,
    SeveralFacesError,
)
from dualqml.images.files import RGB, Photograph, each_named, named, pillow, read_rgb
from dualqml.images.geometry import Point, align_eyes, to_grey
from dualqml.images.shapes import SizeLike, read_size

#: How often a photograph may be doubled: memory and time grow with its square.
MAX_UPSAMPLE = 2
#: Features of the network.
N_FEATURES = 128
#: The longest side at which faces are looked for, before it is doubled.
_LONGEST = 1024

# The model of 68 landmarks in the same package was trained on images whose terms
# exclude commercial use; this one was not.
_LANDMARKS = "shape_predictor_5_face_landmarks.dat"
_NETWORK = "dlib_face_recognition_resnet_model_v1.dat"

# Models keep buffers, and the detector runs without the lock of the interpreter.
_lock = Lock()

Several = Literal["error", "largest"]

#: Pixels of a photograph for one of the cut face; more are averaged in blocks.
_FINE_ENOUGH = 4.0


@dataclass(frozen=True)
class Face:
    """A face in a photograph, in pixels of the upright photograph.

    Attributes
    ----------
    box : tuple of int
        Top, left, bottom and right, as `dualqml.data.crop` takes them: within
        the photograph, from brow to chin.
    left_eye, right_eye : tuple of float
        Row and column of the middle between the corners of the eyes, left and
        right as they are in the photograph, as `dualqml.data.align_eyes` takes
        them. Those of a face that the edge cuts may be outside.
    score : float
        How sure the detector is: more is surer, and all are above zero.
    """

    box: tuple[int, int, int, int]
    left_eye: Point
    right_eye: Point
    score: float


def find_faces(photograph: Photograph, *, upsample: int = 1) -> list[Face]:
    """Find the faces in a photograph.

    Parameters
    ----------
    photograph : path, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph. Arrays have 8 bits a channel. The orientation that a
        camera noted in a file is applied.
    upsample : {0, 1, 2}, default=1
        How often the photograph is doubled before. Faces that are at least about
        80 pixels wide are found at 0, 40 pixels at 1 and 20 pixels at 2; larger
        photographs count as reduced to a longest side of 1024 pixels. Every
        step takes four times the time and memory.

    Returns
    -------
    list of Face
        The faces, the largest first; empty where there is none.

    Raises
    ------
    DatabaseError
        The photograph cannot be read.
    MissingDependencyError
        The optional packages are not installed.

    Notes
    -----
    The detector finds faces that are seen from the front and upright, within
    about 30 degrees. It may be called from several threads, which wait for each
    other; processes do not. The models are loaded once in a process, when they
    are first needed.

    Examples
    --------
    >>> from dualqml.data import find_faces
    >>> faces = find_faces("party.jpg")  # doctest: +SKIP
    >>> faces[0].box  # doctest: +SKIP
    (78, 112, 229, 262)
    """
    if not isinstance(upsample, Integral) or not 0 <= upsample <= MAX_UPSAMPLE:
        raise ValueError(f"upsample={upsample!r} is not 0, 1 or 2")
    dlib()
    pixels = read_rgb(photograph, named(photograph, "the photograph"))
    return [face for face, _ in found_faces(pixels, int(upsample))]


def found_faces(pixels: RGB, upsample: int) -> list[tuple[Face, Any]]:
    """Return faces and their landmarks for `embedded`, the largest first."""
    height, width = pixels.shape[:2]
    # Reduced and doubled in one step.
    zoom = min(1.0, _LONGEST / max(height, width)) * 2**upsample
    shape = max(1, round(zoom * height)), max(1, round(zoom * width))
    module = pillow("Image")
    seen = pixels
    if shape != (height, width):
        image = module.fromarray(pixels)
        seen = np.asarray(image.resize(shape[::-1], module.Resampling.LANCZOS))
    scale = height / shape[0], width / shape[1]
    found = []
    with _lock:
        boxes, scores, _ = _detector().run(seen, 0, 0.0)
        for box, score in zip(boxes, scores, strict=True):
            # As edges, not as centres of pixels.
            top, bottom = box.top() * scale[0], (box.bottom() + 1) * scale[0]
            left, right = box.left() * scale[1], (box.right() + 1) * scale[1]
            edges = [round(edge) for edge in (top, left, bottom, right)]
            whole = dlib().rectangle(edges[1], edges[0], edges[3] - 1, edges[2] - 1)
            landmarks = _landmarks()(pixels, whole)
            found.append((_face(landmarks, edges, float(score), pixels), landmarks))
    found.sort(key=lambda pair: _order(pair[0]))
    return found


def embedded(pixels: RGB, landmarks: Any) -> Array:
    """Return the 128 features of the face with these landmarks."""
    with _lock:
        return np.array(_network().compute_face_descriptor(pixels, landmarks))


def _face(landmarks: Any, edges: list[int], score: float, pixels: RGB) -> Face:
    # The corners of one eye, those of the other, and the nose.
    points = np.array([(point.y, point.x) for point in landmarks.parts()])
    eyes = points[:4].reshape(2, 2, 2).mean(axis=1)
    left_eye, right_eye = eyes[np.argsort(eyes[:, 1], kind="stable")].tolist()
    height, width = pixels.shape[:2]
    top, left, bottom, right = edges
    return Face(
        box=(max(top, 0), max(left, 0), min(bottom, height), min(right, width)),
        left_eye=(left_eye[0], left_eye[1]),
        right_eye=(right_eye[0], right_eye[1]),
        score=score,
    )


def _order(face: Face) -> tuple[Any, ...]:
    top, left, bottom, right = face.box
    # The rest makes the order of equal sizes definite.
    return -(bottom - top) * (right - left), -face.score, face.box


def dlib() -> Any:
    """Import dlib, which is optional."""
    try:
        return importlib.import_module("dlib")
    except ImportError as error:
        raise MissingDependencyError(
            "Photographs need dlib: install dualqml[faces]"
        ) from error


def _model_file(name: str) -> str:
    # Its own functions need a module that is gone from setuptools.
    spec = find_spec("face_recognition_models")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "models", name)
        if file.is_file():
            return str(file)
    raise MissingDependencyError(
        f"Photographs need {name} of face_recognition_models: install dualqml[faces]"
    )


@cache
def _detector() -> Any:
    return dlib().get_frontal_face_detector()


@cache
def _landmarks() -> Any:
    return dlib().shape_predictor(_model_file(_LANDMARKS))


@cache
def _network() -> Any:
    return dlib().face_recognition_model_v1(_model_file(_NETWORK))


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

    _saved: ClassVar[Saved] = STATELESS

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

    _saved: ClassVar[Saved] = STATELESS
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
