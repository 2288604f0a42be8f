# SPDX-License-Identifier: BSD-3-Clause
"""Find the faces in a photograph, and what a deep network sees in them.

The detector, the landmarks and the network are those of dlib. Their weights ship
inside ``dlib-bin`` and ``face_recognition_models`` (dualqml[faces]): nothing is
downloaded. The second package is never imported, only its files are read.
"""

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from dualqml.core import MissingDependencyError
from dualqml.core.arrays import Array
from dualqml.data._photograph_reader import RGB, Photograph, named, read_rgb
from dualqml.data.database import DatabaseError
from dualqml.data.geometry import Point
from dualqml.data.images import pillow

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


class NoFaceError(DatabaseError):
    """There is no face in a photograph, or none that the detector sees."""


class SeveralFacesError(DatabaseError):
    """There are several faces in a photograph, and nobody said which to take."""


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
