# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.dual_qml_w``: the time of a fit of DualQML-W, against LDA.

DualQML-W with fixed parameters, and with parameters chosen on the training set. CPU
seconds with one BLAS thread, medians of interleaved runs. Then how time and memory grow
with the number of samples, each fit in a process of its own.

The rival is scikit-learn's LDA: for images with its defaults, for vectors with
``solver="eigen", shrinkage=0.5``, which its errors need.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, shift
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved_medians, markdown_table
from dualqml import DualQMLW, DualQMLWCV
from dualqml._linalg import unit_rows
from dualqml._typing import Array
from tests.datasets import has_database, load_samples, split

IMAGE_CELLS = [("ar", 2), ("ar", 8), ("feret194", 6), ("iitd_ear", 2), ("orl", 4)]
VECTOR_CELLS = [("lfw_embeddings", 2), ("lfw_embeddings", 5), ("lfw_embeddings", 8)]
IMAGES: dict[str, Any] = {"image_shape": (32, 32), "random_state": 0}


def rival(images: bool) -> LinearDiscriminantAnalysis:
    """LDA as it is used for the kind of samples."""
    if images:
        return LinearDiscriminantAnalysis()
    return LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)


def ratios(cells: list[tuple[str, int]], models: dict[str, Any], repeats: int) -> str:
    """A table of fit times in LDA fits, one row per training set."""
    rows = []
    for database, m in cells:
        if not has_database(database):
            continue
        X, labels = load_samples(database)
        train, _ = split(labels, m)
        X, labels = X[train], labels[train]
        fits = {"LDA": rival("image_shape" in str(models)), **models}
        with threadpool_limits(1, user_api="blas"):
            seconds = interleaved_medians(
                {
                    name: lambda model=model, X=X, y=labels: model.fit(X, y)
                    for name, model in fits.items()
                },
                repeats,
            )
        found = [f"{seconds[name] / seconds['LDA']:.1f}" for name in models]
        rows.append([f"{database} m={m}", str(len(X)), f"{seconds['LDA']:.3f}", *found])
    return markdown_table(["training set", "samples", "LDA s", *models], rows)


def many_vectors(
    n_classes: int, per_class: int, n_features: int
) -> tuple[Array, Array]:
    """Vectors of unit norm: a centre per class, and noise of 0.7 times its length."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(n_classes), per_class)
    centres = unit_rows(rng.normal(size=(n_classes, n_features)))
    noise = 0.7 * rng.normal(size=(codes.size, n_features)) / np.sqrt(n_features)
    return unit_rows(centres[codes] + noise), codes


def many_images(n_people: int, per_person: int) -> tuple[Array, Array]:
    """Smooth random images of 32 x 32 pixels that move a little and change light."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(n_people), per_person)
    slope = np.linspace(-1.0, 1.0, 32)
    out = np.empty((codes.size, 32, 32))
    for person in range(n_people):
        face = gaussian_filter(rng.normal(size=(32, 32)), 2.0)
        face /= face.std()
        for k in np.flatnonzero(codes == person):
            moved = shift(face, rng.normal(size=2), mode="nearest", order=1)
            light = 3.0 + rng.normal() + rng.normal() * slope
            out[k] = 10.0 + moved * light + 0.5 * rng.normal(size=(32, 32))
    return out.reshape(codes.size, -1), codes


#: Training sets whose fits are measured in a process of their own: the data and the
#: parameters of the model.
GROWTH = {
    "25,000 vectors (500 x 50 x 128)": (lambda: many_vectors(500, 50, 128), {}),
    "100,000 vectors (2,000 x 50 x 128)": (lambda: many_vectors(2000, 50, 128), {}),
    "2,500 images (125 x 20), local": (
        lambda: many_images(125, 20),
        IMAGES | {"descriptor": "local"},
    ),
    "10,000 images (500 x 20), local": (
        lambda: many_images(500, 20),
        IMAGES | {"descriptor": "local"},
    ),
}


def megabytes(which: str) -> float:
    """Memory of this process in Linux: "VmRSS" now, "VmHWM" at most."""
    status = Path("/proc/self/status").read_text()
    (line,) = [row for row in status.splitlines() if row.startswith(which)]
    return int(line.split()[1]) / 1e3


def measure_growth(name: str) -> None:
    """Print, as JSON, the seconds and the memory of one fit and of LDA."""
    make, options = GROWTH[name]
    X, labels = make()
    with threadpool_limits(1, user_api="blas"):
        before = megabytes("VmRSS")
        start = time.process_time()
        model = DualQMLWCV(**({"random_state": 0} | options)).fit(X, labels)
        ours = time.process_time() - start
        peak = megabytes("VmHWM") - before
        start = time.process_time()
        rival("image_shape" in options).fit(X, labels)
        lda = time.process_time() - start
    optimal = float(np.mean(model.qml_.status_ == "optimal"))
    print(json.dumps({"ours": ours, "lda": lda, "peak": peak, "optimal": optimal}))


def growth() -> str:
    """A table of time and memory of large training sets."""
    rows = []
    for name in GROWTH:
        command = [sys.executable, "-m", "benchmarks.dual_qml_w", "--one", name]
        root = Path(__file__).resolve().parents[1]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=root,
            env=environment,
            check=True,
        )
        found = json.loads(done.stdout)
        rows.append(
            [
                name,
                f"{found['ours']:.1f}",
                f"{found['ours'] / found['lda']:.1f}",
                f"{found['peak']:.0f}",
                f"{100.0 * found['optimal']:.0f} %",
            ]
        )
    header = ["training set", "fit s", "fit / LDA", "peak above data MB", "optimal"]
    return markdown_table(header, rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        measure_growth(options.one)
        return
    images = {
        "fixed parameters": DualQMLW(image_shape=(32, 32)),
        "chosen": DualQMLWCV(descriptor=None, **IMAGES),
        "chosen, local descriptors": DualQMLWCV(descriptor="local", **IMAGES),
        "chosen, input too": DualQMLWCV(descriptor="auto", **IMAGES),
    }
    print(ratios(IMAGE_CELLS, images, options.repeats), flush=True)
    vectors = {
        "fixed parameters": DualQMLW(rule="max"),
        "chosen": DualQMLWCV(random_state=0),
    }
    print("\n" + ratios(VECTOR_CELLS, vectors, options.repeats), flush=True)
    print("\n" + growth())


if __name__ == "__main__":
    main()
