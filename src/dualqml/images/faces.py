# SPDX-License-Identifier: BSD-3-Clause
"""Faces in photographs: find them, judge them, align them, and describe them.

These are plain functions. The transformers of `dualqml.images.face_steps` and the
commands use them. A photograph that cannot be used never stops the others:
`read_faces` returns what is wrong with it instead.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from math import hypot, sqrt
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml._typing import Array
from dualqml.exceptions import (
    DatabaseError,
    NoFaceError,
    PoorFaceError,
    SeveralFacesError,
)
from dualqml.images.face_networks import (
    FaceNetwork,
    describe_aligned,
    face_detector,
    import_opencv,
    one_opencv_thread,
)
from dualqml.images.files import (
    RGB,
    Photograph,
    photograph_name,
    photograph_size,
    photographs_with_names,
    read_photograph,
)

Several = Literal["error", "largest"]
Point = tuple[float, float]

#: The longest side, in pixels, at which faces are searched. Tiles have it too.
LONGEST_SIDE = 1024
#: The detector misses faces that are larger than about 500 pixels: close-ups. So
#: photographs with a longest side above the first number are searched at the second
#: one too.
_CLOSE_UPS, _COARSE_SIDE = 400, 320
#: Photographs with a shorter longest side are enlarged to it: tight crops.
_SHORTEST_LONGEST_SIDE = 160
#: Part of the sides that a border has, if no face is found without one.
_BORDER = 0.25
#: Part of a tile that the next tile covers too, and the most tiles along a side.
_TILE_OVERLAP, _MOST_TILES = 0.25, 8
#: Side of the picture on which the points of a face are measured again, and the part
#: of the side that the aligned face fills. That is repeated while points move farther
#: than this part of the face: in heads that are turned. On photographs turned by 40
#: degrees, the mean cosine with others of the same person is 0.64 instead of 0.35.
_UPRIGHT_SIDE, _UPRIGHT_PART = 128, 0.62
_SMALL_MOVE, _MOST_ROUNDS = 0.045, 3
#: A face this much narrower than the largest one is in the background.
_BACKGROUND_RATIO = 0.75
#: So few photographs for each thread take longer with more threads.
_FEW_PHOTOGRAPHS = 8
#: Photographs with more pixels are read one at a time, to bound the memory.
_LARGE = 12_000_000

# From the second number of each pair on, a face is described as well as a larger,
# sharper one. At the first number, the features say next to nothing. Measured on
# photographs that were blurred, reduced and turned: benchmarks/photographs.py.
_SIDES = (8.0, 40.0)
_SHARPNESS = (0.04, 0.15)
_SCORES = (0.6, 0.85)

#: Left eye, right eye, nose, left and right corner of the mouth (column, row) in an
#: aligned face of 112 x 112 pixels, as networks of the ArcFace family expect them.
_TEMPLATE = np.array(
    [
        (38.2946, 51.6963),
        (73.5318, 51.5014),
        (56.0252, 71.7366),
        (41.5493, 92.3655),
        (70.7299, 92.2041),
    ]
)


@dataclass(frozen=True)
class Face:
    """A face in a photograph, in pixels of the upright photograph.

    Attributes
    ----------
    box : tuple of int
        Top, left, bottom and right, as `dualqml.data.crop` takes them. The box is
        within the photograph and goes from brow to chin.
    landmarks : tuple of (float, float)
        Row and column of five points: left eye, right eye, nose, left and right
        corner of the mouth. Left and right are as in the photograph. Points may be
        outside of the photograph if its edge cuts the face.
    score : float
        Confidence of the detector, from 0.7 to 1.
    sharpness : float
        Strength of fine structure in the face, relative to its contrast: about 0.25
        in a sharp photograph, 0.05 in one that is far out of focus.
    """

    box: tuple[int, int, int, int]
    landmarks: tuple[Point, ...]
    score: float
    sharpness: float = 1.0

    @property
    def left_eye(self) -> Point:
        """Row and column of the eye that is on the left in the photograph."""
        return self.landmarks[0]

    @property
    def right_eye(self) -> Point:
        """Row and column of the eye that is on the right in the photograph."""
        return self.landmarks[1]

    @property
    def side(self) -> float:
        """Square root of the area of the box, in pixels."""
        top, left, bottom, right = self.box
        return sqrt(max(bottom - top, 0) * max(right - left, 0))

    @property
    def quality(self) -> float:
        """From 0 to 1: the worst of size, sharpness and score.

        It is 1 for a face of 40 pixels or more that is sharp and clear.
        """
        return min(self._qualities().values())

    @property
    def weakness(self) -> str:
        """What lowers the quality the most: "small", "blurred", "unclear" or ""."""
        parts = self._qualities()
        worst = min(parts, key=lambda name: parts[name])
        return worst if parts[worst] < 1.0 else ""

    def _qualities(self) -> dict[str, float]:
        return {
            "small": _graded(self.side, _SIDES),
            "blurred": _graded(self.sharpness, _SHARPNESS),
            "unclear": _graded(self.score, _SCORES),
        }


@dataclass(frozen=True, eq=False)
class DescribedFace:
    """A face and its features.

    Attributes
    ----------
    face : Face
        The face.
    vector : ndarray of shape (n_features,)
        The features of the network.
    """

    face: Face
    vector: Array


@dataclass(frozen=True, eq=False)
class PhotographFaces:
    """What was found in one photograph.

    Attributes
    ----------
    name : str
        Path of the photograph, or its number.
    faces : tuple of DescribedFace
        The faces, the largest first; empty if there is none or the photograph cannot
        be read.
    remarks : tuple of str
        What the user should know about a photograph that was used.
    problem : DatabaseError or None
        Why the photograph cannot be read; None if it was read.
    """

    name: str
    faces: tuple[DescribedFace, ...] = ()
    remarks: tuple[str, ...] = ()
    problem: DatabaseError | None = None

    def main_face(self, several: Several, min_quality: float = 0.0) -> DescribedFace:
        """The face of the person that the photograph is of.

        Parameters
        ----------
        several : {"error", "largest"}
            What happens if several faces are of similar size: an error, or the
            largest is taken. Faces that are less than three quarters as wide as the
            largest are in the background and do not count.
        min_quality : float, default=0.0
            The smallest quality.

        Returns
        -------
        DescribedFace
            The largest face.

        Raises
        ------
        DatabaseError
            The photograph cannot be read. It is a `NoFaceError`, `SeveralFacesError`
            or `PoorFaceError` if there is no such face.
        """
        if self.problem is not None:
            raise self.problem
        if not self.faces:
            raise NoFaceError(
                f"{self.name}: no face was found. Take a photograph of the face from "
                "the front, or crop it so that the face is larger."
            )
        largest = self.faces[0].face
        rivals = [one.face for one in self.faces[1:] if is_rival(one.face, largest)]
        if rivals and several == "error":
            boxes = first_few([str(one.box) for one in [largest, *rivals]])
            raise SeveralFacesError(
                f"{self.name}: {len(rivals) + 1} faces of similar size were found, "
                f"with (top, left, bottom, right) {boxes}. Crop the photograph to "
                'one face, or take the largest (several="largest", --several largest).'
            )
        check_quality(largest, min_quality, self.name)
        return self.faces[0]


def is_rival(face: Face, largest: Face) -> bool:
    """Whether a face is so large that it could be the subject of the photograph."""
    return face.side >= _BACKGROUND_RATIO * largest.side


def check_quality(face: Face, min_quality: float, name: str) -> None:
    """Raise an error if a face does not have the smallest quality."""
    if face.quality < min_quality:
        advice = {
            "small": "take it from a shorter distance, or do not reduce it",
            "blurred": "take a sharper photograph",
            "unclear": "take one from the front, in good light",
        }[face.weakness]
        raise PoorFaceError(
            f"{name}: the quality of the face is {face.quality:.2f}, less than "
            f"{min_quality:g}: it is {face.weakness}. {advice[0].upper()}{advice[1:]}."
        )


def find_faces(photograph: Photograph, *, tiles: bool = False) -> list[Face]:
    """Find the faces in a photograph.

    Parameters
    ----------
    photograph : path, image of Pillow, or array of shape (h, w) or (h, w, 3)
        The photograph. Arrays have 8 bits for each channel. The orientation that a
        camera noted in a file is applied.
    tiles : bool, default=False
        Whether to search large photographs in tiles too. Photographs with a longer
        side than 1024 pixels are reduced to it; a face is found if it is then about
        15 pixels wide. With tiles, faces that are smaller are found too, and a
        photograph of 12 megapixels takes about 20 times as long.

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
    Faces may be turned by about 40 degrees in the picture. Tight crops are enlarged,
    and get a border if no face is found without one. Threads may call this at the
    same time: each loads the detector once.

    Examples
    --------
    >>> from dualqml.data import find_faces
    >>> faces = find_faces("party.jpg")  # doctest: +SKIP
    >>> faces[0].box, round(faces[0].quality, 2)  # doctest: +SKIP
    ((78, 112, 229, 262), 1.0)
    """
    import_opencv()
    read = read_photograph(photograph, photograph_name(photograph, "the photograph"))
    return detect_faces(read.pixels, tiles=tiles)


def read_faces(
    photographs: Iterable[Photograph],
    *,
    network: FaceNetwork | None = None,
    tiles: bool = False,
    all_faces: bool = True,
    n_jobs: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[PhotographFaces]:
    """Find and describe the faces in many photographs.

    Parameters
    ----------
    photographs : iterable of photographs
        Paths, images of Pillow, or 8-bit arrays of shape (h, w) or (h, w, 3).
    network : FaceNetwork, optional
        The network; SFace if it is not given.
    tiles : bool, default=False
        Whether to search large photographs in tiles too; see `find_faces`.
    all_faces : bool, default=True
        Whether all faces are described. If not, only the largest is, and the others
        have a vector without values.
    n_jobs : int, default=1
        Number of threads. The result does not depend on it.
    progress : callable, optional
        Called with the number of photographs done and of all, before each is given.

    Yields
    ------
    PhotographFaces
        One for each photograph, in their order. A photograph that cannot be read has
        a problem; no exception is raised for it.

    Raises
    ------
    MissingDependencyError
        The optional packages are not installed.
    NetworkError
        The network cannot be loaded or run.
    """
    import_opencv()
    network = FaceNetwork() if network is None else network
    network.file()  # Raises before any photograph is read.
    named = list(photographs_with_names(photographs))

    def work(item: tuple[Photograph, str]) -> PhotographFaces:
        return _faces_of(*item, network, tiles, all_faces)

    for done, found in enumerate(_in_order(work, named, n_jobs), start=1):
        if progress is not None:
            progress(done, len(named))
        yield found


def _in_order(
    work: Callable[[Any], PhotographFaces], items: list[Any], n_jobs: int
) -> Iterator[PhotographFaces]:
    """Results in the order of the items, from several threads."""
    # Each thread loads the networks, which takes as long as a few photographs.
    n_jobs = min(n_jobs, 1 + len(items) // _FEW_PHOTOGRAPHS)
    if n_jobs < 2:
        yield from map(work, items)
        return
    waiting: list[Future[PhotographFaces]] = []
    rest = iter(items)
    with one_opencv_thread(), ThreadPoolExecutor(n_jobs) as pool:
        try:
            # Few are ahead of the one that is waited for, so that memory is bounded.
            waiting += [pool.submit(work, item) for item in islice(rest, 2 * n_jobs)]
            while waiting:
                found = waiting.pop(0).result()
                waiting += [pool.submit(work, item) for item in islice(rest, 1)]
                yield found
        finally:
            for future in waiting:
                future.cancel()


_large_lock = Lock()


def _faces_of(
    photograph: Photograph,
    name: str,
    network: FaceNetwork,
    tiles: bool,
    all_faces: bool,
) -> PhotographFaces:
    try:
        height, width = photograph_size(photograph, name)
        with _large_lock if height * width > _LARGE else nullcontext():
            read = read_photograph(photograph, name)
            faces = []
            for number, face in enumerate(detect_faces(read.pixels, tiles=tiles)):
                vector = np.empty(0)
                if all_faces or number == 0:
                    vector = describe_face(read.pixels, face, network)
                faces.append(DescribedFace(face, vector))
    except DatabaseError as error:
        return PhotographFaces(name, problem=error)
    return PhotographFaces(name, tuple(faces), read.remarks)


def detect_faces(pixels: RGB, *, tiles: bool = False) -> list[Face]:
    """Find the faces in the pixels of a photograph, the largest first.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3)
        Red, green and blue, 8 bits each.
    tiles : bool, default=False
        Whether to search large photographs in tiles too.

    Returns
    -------
    list of Face
        The faces.
    """
    height, width = pixels.shape[:2]
    longest = max(height, width)
    zoom = min(LONGEST_SIDE, max(longest, _SHORTEST_LONGEST_SIDE)) / longest
    searched = _resized(pixels, zoom)
    found = _search(searched, zoom, (0.0, 0.0))
    if longest > _CLOSE_UPS:
        step = _COARSE_SIDE / max(searched.shape[:2])
        searched, zoom = _resized(searched, step), step * zoom
        found = _without_doubles(found + _search(searched, zoom, (0.0, 0.0)))
    if tiles and longest > LONGEST_SIDE:
        found = _without_doubles(found + _search_tiles(pixels))
    if not found:
        # A face that fills the picture is found if there is something around it.
        found = _search_with_border(searched, zoom)
    faces = [_face(row, pixels) for row in found]
    return sorted((face for face in faces if face.side > 0.0), key=_largest_first)


def _search(pixels: RGB, zoom: float, corner: tuple[float, float]) -> list[Array]:
    """Rows of the detector, in pixels of the photograph.

    A row has left, top, width and height of the box, five points (column, row), and
    the score. The corner (column, row) is that of the pixels in the photograph.
    """
    height, width = pixels.shape[:2]
    detector = face_detector()
    detector.setInputSize((width, height))
    # OpenCV's networks take blue, green and red.
    _, rows = detector.detect(np.ascontiguousarray(pixels[:, :, ::-1]))
    if rows is None:
        return []
    found = []
    for row in np.asarray(rows, dtype=np.float64):
        if not np.isfinite(row).all():
            continue
        row[:14] /= zoom
        row[[0, 4, 6, 8, 10, 12]] += corner[0]
        row[[1, 5, 7, 9, 11, 13]] += corner[1]
        found.append(row)
    return found


def _search_with_border(pixels: RGB, zoom: float) -> list[Array]:
    """Search for a face that fills the pixels, which are few then."""
    cv2 = import_opencv()
    step = _SHORTEST_LONGEST_SIDE / max(pixels.shape[:2])
    small, zoom = _resized(pixels, step), step * zoom
    border = round(_BORDER * _SHORTEST_LONGEST_SIDE)
    around = cv2.copyMakeBorder(
        small, border, border, border, border, cv2.BORDER_CONSTANT
    )
    return _search(around, zoom, (-border / zoom, -border / zoom))


def _search_tiles(pixels: RGB) -> list[Array]:
    """Search overlapping tiles of the photograph, at its own size."""
    longest = max(pixels.shape[:2])
    step = LONGEST_SIDE * (1.0 - _TILE_OVERLAP)
    # Larger photographs would take minutes.
    zoom = min(1.0, (step * (_MOST_TILES - 1) + LONGEST_SIDE) / longest)
    whole = _resized(pixels, zoom)
    found = []
    for top in _tile_starts(whole.shape[0], step):
        for left in _tile_starts(whole.shape[1], step):
            tile = whole[top : top + LONGEST_SIDE, left : left + LONGEST_SIDE]
            found += _search(tile, zoom, (left / zoom, top / zoom))
    return found


def _tile_starts(size: int, step: float) -> list[int]:
    last = max(size - LONGEST_SIDE, 0)
    n_steps = int(np.ceil(last / step))
    return [round(last * k / max(n_steps, 1)) for k in range(n_steps + 1)]


def _without_doubles(rows: list[Array]) -> list[Array]:
    """Keep the best of faces that cover each other by more than a third."""
    kept: list[Array] = []
    for row in sorted(rows, key=lambda row: (-row[14], *row)):
        if all(_overlap(row, other) < 1.0 / 3.0 for other in kept):
            kept.append(row)
    return kept


def _overlap(one: Array, other: Array) -> float:
    """Common area of two boxes, relative to the smaller."""
    sides = [
        min(one[k] + one[k + 2], other[k] + other[k + 2]) - max(one[k], other[k])
        for k in (0, 1)
    ]
    if min(sides) <= 0.0:
        return 0.0
    return float(sides[0] * sides[1] / min(one[2] * one[3], other[2] * other[3]))


def _face(row: Array, pixels: RGB) -> Face:
    height, width = pixels.shape[:2]
    left, top, right, bottom = row[0], row[1], row[0] + row[2], row[1] + row[3]
    box = (
        int(np.clip(round(top), 0, height)),
        int(np.clip(round(left), 0, width)),
        int(np.clip(round(bottom), 0, height)),
        int(np.clip(round(right), 0, width)),
    )
    points = _measured_again(row[4:14].reshape(5, 2), pixels)
    landmarks = tuple((float(y), float(x)) for x, y in points)
    found = Face(box, landmarks, float(row[14]))
    return replace(found, sharpness=_sharpness(align_face(pixels, found, 112)))


def _measured_again(points: Array, pixels: RGB) -> Array:
    """The points of a face (column, row), measured where it is upright and not small.

    The points that the detector gives depend on the size of a face and on its turn.
    """
    side = _UPRIGHT_SIDE * _UPRIGHT_PART
    target = _TEMPLATE * (side / 112.0) + (_UPRIGHT_SIDE - side) / 2.0
    for _ in range(_MOST_ROUNDS):
        transform = _similarity(points, target)
        turn, shift = transform[:, :2], transform[:, 2]
        # The determinant is the square of the scaling.
        if np.linalg.det(turn) < 1e-12:
            break
        upright = _placed(pixels, points, target, _UPRIGHT_SIDE)
        rows = _search(upright, 1.0, (0.0, 0.0))
        found = [row[4:14].reshape(5, 2) for row in rows]
        nearest = min(found, key=lambda one: _distance(one, target), default=target)
        # Another face would be elsewhere.
        if not found or _distance(nearest, target) > side / 4.0:
            break
        before = points @ turn.T + shift
        points = np.asarray((nearest - shift) @ np.linalg.inv(turn).T)
        if np.sqrt(((nearest - before) ** 2).sum(axis=1).mean()) < _SMALL_MOVE * side:
            break
    return points


def _distance(points: Array, target: Array) -> float:
    """Distance of the centres of two sets of points along the farther axis."""
    return float(np.abs(points.mean(axis=0) - target.mean(axis=0)).max())


def _largest_first(face: Face) -> tuple[Any, ...]:
    # Score and box make the order of faces of equal size definite.
    return -face.side, -face.score, face.box


def _sharpness(aligned: NDArray[np.uint8]) -> float:
    """Standard deviation of the Laplacian, relative to that of the pixels."""
    cv2 = import_opencv()
    grey = cv2.cvtColor(aligned, cv2.COLOR_RGB2GRAY).astype(np.float32)
    contrast = float(grey.std())
    return float(cv2.Laplacian(grey, cv2.CV_32F).std()) / max(contrast, 1.0)


def _graded(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return min(1.0, max(0.0, (value - low) / (high - low)))


def align_face(pixels: RGB, face: Face, size: int) -> NDArray[np.uint8]:
    """Cut out a face, so that its five points are where networks expect them.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3)
        The photograph.
    face : Face
        The face.
    size : int
        Height and width of the result.

    Returns
    -------
    ndarray of shape (size, size, 3)
        The face. Parts outside of the photograph are black.
    """
    return _placed(pixels, _points(face), _TEMPLATE * (size / 112.0), size)


def _points(face: Face) -> Array:
    """The landmarks as rows of (column, row)."""
    return np.array([(column, row) for row, column in face.landmarks])


def _placed(pixels: RGB, points: Array, target: Array, size: int) -> NDArray[np.uint8]:
    """A square picture in which the points are as near as possible to the target."""
    cv2 = import_opencv()
    transform = _similarity(points, target)
    # Pixels of the photograph that become one pixel of the result. If there are
    # many, the part around the face is reduced first, which blurs it.
    ratio = 1.0 / max(hypot(transform[0, 0], transform[1, 0]), 1e-9)
    shrink = int(ratio)
    if shrink > 1:
        reach = 1.5 * size * ratio
        centre = points.mean(axis=0)
        first = np.clip(np.floor(centre - reach), 0, None).astype(int)
        last = np.ceil(centre + reach).astype(int) + 1
        part = pixels[first[1] : last[1], first[0] : last[0]]
        height, width = (max(1, length // shrink) for length in part.shape[:2])
        pixels = cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA)
        zoom = np.array([width / part.shape[1], height / part.shape[0]])
        transform = _similarity((points - first + 0.5) * zoom - 0.5, target)
    return np.asarray(
        cv2.warpAffine(np.ascontiguousarray(pixels), transform, (size, size), flags=1),
        dtype=np.uint8,
    )


def _similarity(source: Array, target: Array) -> Array:
    """The turn, scaling and shift with the least squared error (Umeyama, 1991)."""
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    a, b = source - source_mean, target - target_mean
    # In the plane, a turn and scaling is the matrix [[p, -q], [q, p]].
    norm = max(float(np.vdot(a, a)), 1e-12)
    p = float(np.vdot(a, b)) / norm
    q = float(a[:, 0] @ b[:, 1] - a[:, 1] @ b[:, 0]) / norm
    matrix = np.array([[p, -q], [q, p]])
    return np.column_stack([matrix, target_mean - matrix @ source_mean])


def describe_face(pixels: RGB, face: Face, network: FaceNetwork) -> Array:
    """Compute the features of a face.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3)
        The photograph.
    face : Face
        The face.
    network : FaceNetwork
        The network.

    Returns
    -------
    ndarray of shape (n_features,)
        The features.
    """
    return describe_aligned(align_face(pixels, face, network.input_size), network)


def _resized(pixels: RGB, zoom: float) -> RGB:
    height, width = pixels.shape[:2]
    shape = max(1, round(zoom * height)), max(1, round(zoom * width))
    if shape == (height, width):
        return pixels
    cv2 = import_opencv()
    how = cv2.INTER_AREA if zoom < 1.0 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(pixels, shape[::-1], interpolation=how))
