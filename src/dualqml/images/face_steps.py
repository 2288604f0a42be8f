# SPDX-License-Identifier: BSD-3-Clause
"""Transformers of photographs: the face as a small grey image, or as features."""

import os
from collections.abc import Callable, Iterable, Iterator
from math import hypot
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from dualqml._saved_state import JOBS, LINE, NOTHING, STATELESS, Saved
from dualqml._sklearn import Interval, StrOptions
from dualqml._typing import Array
from dualqml.images.face_networks import (
    Channels,
    FaceNetwork,
    describe_aligned,
    import_opencv,
)
from dualqml.images.faces import (
    DescribedFace,
    PhotographFaces,
    Several,
    detect_faces,
    read_faces,
)
from dualqml.images.files import (
    RGB,
    Photograph,
    import_pillow,
    photographs_with_names,
    read_photograph,
)
from dualqml.images.geometry import align_eyes, to_grey
from dualqml.images.shapes import SizeLike, read_size

#: Pixels of a photograph that become one pixel of the cut face. Where there are
#: more, the photograph is reduced first.
_FINE_ENOUGH = 4.0
#: Number of features of SFace.
_SFACE_FEATURES = 128

_SHARED_CONSTRAINTS: dict[str, list[Any]] = {
    "several": [StrOptions({"error", "largest"})],
    "tiles": ["boolean"],
    "min_quality": [Interval(Real, 0, 1, closed="both")],
}


class _FaceStep(TransformerMixin, BaseEstimator):
    """Base of transformers of photographs with one face each. Nothing is learned."""

    several: Several
    tiles: bool
    min_quality: float

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
        What happens if a photograph has several faces of similar size: an error, or
        the largest is taken. Faces less than three quarters as wide as the largest are
        in the background and do not count.
    min_quality : float, default=0.0
        Smallest quality of a face, from 0 to 1; see `Face.quality`.
    tiles : bool, default=False
        Whether to look for small faces in large photographs; see `find_faces`.
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
        **_SHARED_CONSTRAINTS,
        "eye_row": [Interval(Real, 0, 1, closed="neither")],
        "eye_distance": [Interval(Real, 0, 1, closed="neither")],
    }

    _saved: ClassVar[Saved] = STATELESS

    def __init__(
        self,
        *,
        size: SizeLike = (32, 32),
        several: Several = "error",
        min_quality: float = 0.0,
        tiles: bool = False,
        eye_row: float = 0.35,
        eye_distance: float = 0.5,
    ) -> None:
        self.size = size
        self.several = several
        self.min_quality = min_quality
        self.tiles = tiles
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
        NoFaceError, SeveralFacesError, PoorFaceError
            A photograph has no face, or several and `several` is "error", or the face
            does not have the smallest quality.
        DatabaseError
            A photograph cannot be read.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        import_opencv()
        height, width = read_size(self.size)
        faces = [
            self._crop(read_photograph(photograph, name).pixels, name)
            for photograph, name in photographs_with_names(X)
        ]
        return np.array(faces, dtype=np.uint8).reshape(-1, height, width)

    def _crop(self, pixels: RGB, name: str) -> NDArray[np.uint8]:
        found = detect_faces(pixels, tiles=self.tiles)
        faces = tuple(DescribedFace(face, np.empty(0)) for face in found)
        main = PhotographFaces(name, faces).main_face(self.several, self.min_quality)
        eyes = np.array([main.face.left_eye, main.face.right_eye])
        # As a mirror image or upside down, the eyes can be the other way round.
        eyes = eyes[np.argsort(eyes[:, 1], kind="stable")]
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
    """Describe the faces in photographs by the features of a deep network.

    Nothing is learned from the training set. The default network, SFace, has 128
    features and was trained on faces of other people [1]_.

    Parameters
    ----------
    several : {"error", "largest"}, default="error"
        What happens if a photograph has several faces of similar size: an error, or
        the largest is taken. Faces less than three quarters as wide as the largest are
        in the background and do not count.
    min_quality : float, default=0.0
        Smallest quality of a face, from 0 to 1; see `Face.quality`.
    tiles : bool, default=False
        Whether to look for small faces in large photographs; see `find_faces`.
    network : path, default=None
        An ONNX file with one input of shape (1, 3, size, size) and one output, for
        faces that are aligned as for ArcFace. None means SFace.
    input_size : int, default=112
        Height and width of the input of `network`.
    channels : {"rgb", "bgr"}, default="rgb"
        Order of the colours of the input of `network`.
    mean : float, default=127.5
        A value of a pixel becomes ``(value - mean) / scale`` for `network`.
    scale : float, default=127.5
        As for `mean`.
    n_jobs : int, default=None
        Number of threads. None means 1, and -1 all cores. The result does not depend
        on it.

    See Also
    --------
    FaceCropper : Pixels instead of features.

    Notes
    -----
    The features do not depend on the other photographs. Other processors may round
    differently.

    References
    ----------
    .. [1] Y. Zhong et al., "SFace: sigmoid-constrained hypersphere loss for robust
       face recognition", IEEE Transactions on Image Processing 30, 2021.

    Examples
    --------
    >>> from dualqml.data import FaceEmbedder
    >>> photographs = ["ann.jpg", "zoe.jpg"]
    >>> FaceEmbedder().fit_transform(photographs).shape  # doctest: +SKIP
    (2, 128)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_SHARED_CONSTRAINTS,
        "network": [str, os.PathLike, None],
        "input_size": [Interval(Integral, 8, 1024, closed="both")],
        "channels": [StrOptions({"rgb", "bgr"})],
        "mean": [Interval(Real, None, None, closed="neither")],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [None, Integral],
    }

    _saved: ClassVar[Saved] = Saved(
        optional=STATELESS.optional,
        parameters={"n_jobs": JOBS, "network": LINE | NOTHING},
    )

    def __init__(
        self,
        *,
        several: Several = "error",
        min_quality: float = 0.0,
        tiles: bool = False,
        network: Any = None,
        input_size: int = 112,
        channels: Channels = "rgb",
        mean: float = 127.5,
        scale: float = 127.5,
        n_jobs: int | None = None,
    ) -> None:
        self.several = several
        self.min_quality = min_quality
        self.tiles = tiles
        self.network = network
        self.input_size = input_size
        self.channels = channels
        self.mean = mean
        self.scale = scale
        self.n_jobs = n_jobs

    @property
    def face_network(self) -> FaceNetwork:
        """The network that the parameters describe."""
        return FaceNetwork(
            None if self.network is None else str(self.network),
            int(self.input_size),
            self.channels,
            float(self.mean),
            float(self.scale),
        )

    def transform(self, X: Iterable[Photograph]) -> Array:
        """Compute the features of the faces in photographs.

        Parameters
        ----------
        X : list of photographs
            Paths, images of Pillow, or 8-bit arrays of shape (h, w) or (h, w, 3).

        Returns
        -------
        ndarray of shape (n_photographs, n_features)
            The features of the faces.

        Raises
        ------
        NoFaceError, SeveralFacesError, PoorFaceError
            A photograph has no face, or several and `several` is "error", or the face
            does not have the smallest quality.
        DatabaseError
            A photograph cannot be read.
        NetworkError
            The network cannot be loaded or run.
        MissingDependencyError
            The optional packages are not installed.
        """
        rows = [
            found.main_face(self.several, self.min_quality).vector
            for found in self.describe(X, all_faces=False)
        ]
        return np.array(rows).reshape(len(rows), -1 if rows else self._n_features_out)

    def describe(
        self,
        X: Iterable[Photograph],
        *,
        all_faces: bool = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> Iterator[PhotographFaces]:
        """Find and describe the faces of photographs, also of those with problems.

        Parameters
        ----------
        X : list of photographs
            As for `transform`.
        all_faces : bool, default=True
            Whether all faces are described. If not, only the largest is, and the
            others have a vector without values.
        progress : callable, optional
            Called with the number of photographs done and of all.

        Returns
        -------
        iterator of PhotographFaces
            One for each photograph, as soon as it is done. If a photograph cannot be
            read, its `problem` says why; nothing is raised for it.

        Raises
        ------
        NetworkError
            The network cannot be loaded or run.
        MissingDependencyError
            The optional packages are not installed.
        """
        self._validate_params()
        return read_faces(
            X,
            network=self.face_network,
            tiles=self.tiles,
            all_faces=all_faces,
            n_jobs=effective_n_jobs(self.n_jobs),
            progress=progress,
        )

    @property
    def _n_features_out(self) -> int:
        if self.network is None:
            return _SFACE_FEATURES
        # Only the network itself knows.
        size = self.face_network.input_size
        grey = np.full((size, size, 3), 127, dtype=np.uint8)
        return int(describe_aligned(grey, self.face_network).size)
