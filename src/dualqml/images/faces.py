# SPDX-License-Identifier: BSD-3-Clause
"""Faces in photographs: find them, cut them out, and describe them by a network.

The transformers use `check_installed`, `detect_faces` and `describe_face`. Everything
that depends on dlib, whose models do the work, is behind these three functions.
"""

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
from dualqml.images.files import (
    RGB,
    Photograph,
    import_pillow,
    photograph_name,
    photographs_with_names,
    read_rgb,
)
from dualqml.images.geometry import Point, align_eyes, to_grey
from dualqml.images.shapes import SizeLike, read_size

Several = Literal["error", "largest"]

#: Features of a face.
N_FEATURES = 128
#: How often a photograph may be doubled: every time takes four times the memory.
MAX_UPSAMPLE = 2
#: The longest side, in pixels, at which faces are searched before doubling.
_LONGEST_SIDE = 1024
#: Pixels of a photograph that become one pixel of the cut face. Where there are
#: more, the photograph is reduced first.
_FINE_ENOUGH = 4.0

# The model of 68 landmarks in the same package was trained on images whose terms
# exclude commercial use; this one was not.
_LANDMARK_FILE = "shape_predictor_5_face_landmarks.dat"
_NETWORK_FILE = "dlib_face_recognition_resnet_model_v1.dat"
# The models keep buffers, and dlib's detector runs without the lock of the
# interpreter.
_model_lock = Lock()


@dataclass(frozen=True)
class Face:
    """A face in a photograph, in pixels of the upright photograph.

    Attributes
    ----------
    box : tuple of int
        Top, left, bottom and right, as `dualqml.data.crop` takes them. The box is
        within the photograph and goes from brow to chin.
    left_eye, right_eye : tuple of float
        Row and column of the centres of the eyes, left and right as they are in
        the photograph, as `dualqml.data.align_eyes` takes them. They may be outside
        of the photograph if its edge cuts the face.
    score : float
        Confidence of the detector: positive, and higher for clearer faces.
    """

    box: tuple[int, int, int, int]
    left_eye: Point
    right_eye: Point
    score: float


@dataclass(frozen=True)
class DetectedFace:
    """A face and what `describe_face` needs to know of it."""

    face: Face
    landmarks: Any


def find_faces(photograph: Photograph, *, upsample: int = 1) -> list[Face]:
    """Find the faces in a photograph.

    Parameters
    ----------
    photograph : path, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph. Arrays have 8 bits for each channel. The orientation that a
        camera noted in a file is applied.
    upsample : {0, 1, 2}, default=1
        How often the photograph is doubled before the search. Faces are found if
        they are at least about 80 pixels wide with 0, 40 pixels with 1 and 20 pixels
        with 2. Photographs with a longer side than 1024 pixels are reduced to it
        first. Every doubling takes four times the time and memory.

    Returns
    -------
    list of Face
        The faces, the largest first; empty if there is none.

    Raises
    ------
    DatabaseError
        The photograph cannot be read.
    MissingDependencyError
        The optional packages are not installed.

    Notes
    -----
    The detector finds faces that are seen from the front and upright, within
    about 30 degrees. Several threads may call it, but they wait for each other;
    processes do not. Each process loads the models once, when they are first
    needed.

    Examples
    --------
    >>> from dualqml.data import find_faces
    >>> faces = find_faces("party.jpg")  # doctest: +SKIP
    >>> faces[0].box  # doctest: +SKIP
    (78, 112, 229, 262)
    """
    if not isinstance(upsample, Integral) or not 0 <= upsample <= MAX_UPSAMPLE:
        raise ValueError(f"upsample={upsample!r} is not 0, 1 or 2")
    check_installed()
    pixels = read_rgb(photograph, photograph_name(photograph, "the photograph"))
    return [found.face for found in detect_faces(pixels, int(upsample))]


class _FaceStep(TransformerMixin, BaseEstimator):
    """Base of transformers of photographs with one face each. Nothing is learned."""

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

    def _one_face(self, pixels: RGB, name: str) -> DetectedFace:
        """Return the only face, or the largest one if that was asked for."""
        found = detect_faces(pixels, int(self.upsample))
        if not found:
            more = f" or a larger upsample than {self.upsample}"
            raise NoFaceError(
                f"{name}: no face was found. It must be upright and seen from the "
                "front. Small ones need a larger photograph"
                f"{more if self.upsample < MAX_UPSAMPLE else ''}."
            )
        if len(found) > 1 and self.several == "error":
            boxes = first_few([str(one.face.box) for one in found])
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
    """Cut the faces out of photographs, in grey and aligned by their eyes.

    Nothing is learned from the training set.

    Parameters
    ----------
    size : tuple of int, default=(32, 32)
        Height and width of the faces.
    several : {"error", "largest"}, default="error"
        What happens if a photograph has several faces: an error, or the largest
        is taken.
    upsample : {0, 1, 2}, default=1
        How often photographs are doubled to find small faces; see `find_faces`.
    eye_row : float, default=0.35
        Height at which the eyes are placed, from 0 at the top to 1 at the bottom.
    eye_distance : float, default=0.5
        Distance between the eyes, relative to the width.

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
            Grey faces, with 8 bits for each pixel, as `dualqml.data.Database` takes
            them.

        Raises
        ------
        NoFaceError, SeveralFacesError
            A photograph has no face, or several and `several` is "error".
        DatabaseError
            A photograph cannot be read.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        check_installed()
        height, width = read_size(self.size)
        faces = [
            self._crop(read_rgb(photograph, name), name)
            for photograph, name in photographs_with_names(X)
        ]
        return np.array(faces, dtype=np.uint8).reshape(-1, height, width)

    def _crop(self, pixels: RGB, name: str) -> NDArray[np.uint8]:
        face = self._one_face(pixels, name).face
        eyes = np.array([face.left_eye, face.right_eye])
        height, width = read_size(self.size)
        # Pixels of the photograph that become one pixel of the result.
        ratio = hypot(*(eyes[1] - eyes[0])) / (self.eye_distance * width)
        # To blur a close-up of many megapixels takes longer than all the rest.
        shrink = int(ratio / _FINE_ENOUGH)
        if shrink > 1:
            pixels = np.asarray(import_pillow("Image").fromarray(pixels).reduce(shrink))
            eyes = (eyes + 0.5) / shrink - 0.5
            ratio /= shrink
        # Cut out the part that `align_eyes` uses: to the farthest corner and its
        # blur. Pixels at the edge are repeated, so that the eyes of a face that the
        # edge cuts are inside.
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
    """Describe the faces in photographs by 128 features of a deep network.

    Nothing is learned from the training set. The network was trained on about
    three million faces of other people [1]_.

    Parameters
    ----------
    several : {"error", "largest"}, default="error"
        What happens if a photograph has several faces: an error, or the largest
        is taken.
    upsample : {0, 1, 2}, default=1
        How often photographs are doubled to find small faces; see `find_faces`.

    See Also
    --------
    FaceCropper : Pixels instead of features.

    Notes
    -----
    The network was trained such that the features of two photographs of the same
    person have a Euclidean distance below 0.6. Results are the same in every run and
    do not depend on the other photographs; other processors may round differently.
    dlib can also average over random changes of a face. This is not used, because
    the results would depend on earlier calls.

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
        """Compute the features of the faces in photographs.

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
            A photograph has no face, or several and `several` is "error".
        DatabaseError
            A photograph cannot be read.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        check_installed()
        rows = [
            self._describe(read_rgb(photograph, name), name)
            for photograph, name in photographs_with_names(X)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, N_FEATURES)

    def _describe(self, pixels: RGB, name: str) -> Array:
        return describe_face(pixels, self._one_face(pixels, name))


def check_installed() -> None:
    """Raise an error if the packages that find and describe faces are missing."""
    _import_dlib()


def detect_faces(pixels: RGB, upsample: int) -> list[DetectedFace]:
    """Find the faces in the pixels of a photograph, the largest first."""
    height, width = pixels.shape[:2]
    # Reduced and doubled in one step.
    zoom = min(1.0, _LONGEST_SIDE / max(height, width)) * 2**upsample
    shape = max(1, round(zoom * height)), max(1, round(zoom * width))
    searched = pixels
    if shape != (height, width):
        # The same pixels as those of `geometry.resize`, but faster where both sizes
        # are large.
        module = import_pillow("Image")
        image = module.fromarray(pixels)
        searched = np.asarray(image.resize(shape[::-1], module.Resampling.LANCZOS))
    scale = height / shape[0], width / shape[1]
    found = []
    with _model_lock:
        boxes, scores, _ = _detector().run(searched, 0, 0.0)
        for box, score in zip(boxes, scores, strict=True):
            # As edges, not as centres of pixels.
            top, bottom = box.top() * scale[0], (box.bottom() + 1) * scale[0]
            left, right = box.left() * scale[1], (box.right() + 1) * scale[1]
            edges = [round(edge) for edge in (top, left, bottom, right)]
            whole = _import_dlib().rectangle(
                edges[1], edges[0], edges[3] - 1, edges[2] - 1
            )
            landmarks = _landmark_model()(pixels, whole)
            face = _face_from_landmarks(landmarks, edges, float(score), pixels)
            found.append(DetectedFace(face, landmarks))
    return sorted(found, key=lambda detected: _largest_first(detected.face))


def describe_face(pixels: RGB, detected: DetectedFace) -> Array:
    """Compute the 128 features of a face in the pixels of a photograph."""
    with _model_lock:
        features = _network().compute_face_descriptor(pixels, detected.landmarks)
        return np.array(features)


def _face_from_landmarks(
    landmarks: Any, edges: list[int], score: float, pixels: RGB
) -> Face:
    # The landmarks: two corners of one eye, two of the other, and the nose.
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


def _largest_first(face: Face) -> tuple[Any, ...]:
    top, left, bottom, right = face.box
    # Score and box make the order of faces of equal size definite.
    return -(bottom - top) * (right - left), -face.score, face.box


@cache
def _detector() -> Any:
    return _import_dlib().get_frontal_face_detector()


@cache
def _landmark_model() -> Any:
    return _import_dlib().shape_predictor(_model_file(_LANDMARK_FILE))


@cache
def _network() -> Any:
    return _import_dlib().face_recognition_model_v1(_model_file(_NETWORK_FILE))


def _import_dlib() -> Any:
    try:
        return importlib.import_module("dlib")
    except ImportError as error:
        raise MissingDependencyError(
            "Photographs need dlib: install dualqml[faces]"
        ) from error


def _model_file(name: str) -> str:
    # The package is not imported: its own functions need a module that newer
    # versions of setuptools do not have.
    spec = find_spec("face_recognition_models")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "models", name)
        if file.is_file():
            return str(file)
    raise MissingDependencyError(
        f"Photographs need {name} of face_recognition_models: install dualqml[faces]"
    )
