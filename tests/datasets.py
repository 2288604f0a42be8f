# SPDX-License-Identifier: BSD-3-Clause
"""Development data for tests and benchmarks: real where available, else synthetic.

The research databases may not be redistributed. Set ``DUALQML_DATA`` to a
folder with ``ar.npz``, ``feret.npz``, ``pie.npz``, ``iitd_ear.npz`` and
``polyu_palm.npz`` (arrays ``images32`` and ``labels``) and
``lfw_embeddings.npz`` and ``lfw_sface.npz`` (``embeddings``, ``labels``) and
``agegap_embeddings.npz`` (``sface``, ``edgeface``, ``labels``), or keep it as
``shared/data`` beside the checkout.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array
from dualqml.data import load_orl

DATA_FOLDER = Path(
    os.environ.get(
        "DUALQML_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"
    )
)


@dataclass(frozen=True)
class TrainingSet:
    """Mean-removed rows of unit norm, the rest of the database, and the labels."""

    name: str
    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]
    real: bool


def has_database(name: str) -> bool:
    """Whether a research database is available."""
    file = {"feret194": "feret"}.get(name, name)
    if name.startswith("agegap_"):
        file = "agegap_embeddings"
    return name == "orl" or (DATA_FOLDER / f"{file}.npz").is_file()


def load_database(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Pixels of the 32 x 32 images between 0 and 1, and labels."""
    with np.load(DATA_FOLDER / f"{name}.npz") as archive:
        images, labels = archive["images32"], archive["labels"]
    return images.reshape(images.shape[0], -1) / 255.0, labels.astype(np.int64)


def load_samples(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Rows and labels of a database, of ORL, or of the face embeddings.

    "feret194" is FERET without six people that are pixel copies of others.
    "agegap_sface" and "agegap_edgeface" are embeddings by two networks.
    """
    if name == "orl":
        faces = load_orl()
        return faces.rows, np.unique(faces.labels, return_inverse=True)[1]
    if name in ("lfw_embeddings", "lfw_sface"):
        with np.load(DATA_FOLDER / f"{name}.npz") as archive:
            return (
                archive["embeddings"].astype(np.float64),
                archive["labels"].astype(np.int64),
            )
    if name.startswith("agegap_"):
        with np.load(DATA_FOLDER / "agegap_embeddings.npz") as archive:
            network = name.removeprefix("agegap_")
            return (
                archive[network].astype(np.float64),
                archive["labels"].astype(np.int64),
            )
    if name == "feret194":
        X, labels = load_database("feret")
        distinct = ~np.isin(labels, np.arange(44, 50))
        return X[distinct], labels[distinct]
    return load_database(name)


def split(
    labels: NDArray[np.int64], per_class: int | None, seed: int = 0
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """At most `per_class` random training samples of each class, one left for test.

    None means all but one.
    """
    rng = np.random.default_rng(seed)
    train, test = [], []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        n_train = own.size - 1
        if per_class is not None:
            n_train = min(per_class, n_train)
        train.append(own[:n_train])
        test.append(own[n_train:])
    return np.concatenate(train), np.concatenate(test)


def split_errors(
    make_models: Callable[[], Sequence[Any]],
    database: str,
    per_class: int,
    n_splits: int,
) -> list[float]:
    """Error rates in per cent over fixed splits, each a mean over some models."""
    X, labels = load_samples(database)
    out = []
    for repetition in range(n_splits):
        train, test = split(labels, per_class, 7000 + repetition)
        right = [
            model.fit(X[train], labels[train]).score(X[test], labels[test])
            for model in make_models()
        ]
        out.append(100.0 * (1.0 - float(np.mean(right))))
    return out


def normalised(X: Array, mean: Array) -> Array:
    """Rows less the mean, scaled to unit norm."""
    centred = X - mean
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def training_set(name: str, per_class: int | None, seed: int = 0) -> TrainingSet:
    """A training set of a research database, or a synthetic stand-in."""
    shapes = {"ar": (120, 14), "feret": (200, 7), "pie": (68, 42)}
    real = has_database(name)
    if real:
        pixels, labels = load_database(name)
    elif name == "iitd_ear":
        sizes = np.random.default_rng(5).choice(
            [3, 4, 5, 6], 221, p=[0.6, 0.2, 0.1, 0.1]
        )
        pixels, labels = synthetic(sizes, 1024, noise=0.5)
    else:
        n_classes, each = shapes[name]
        pixels, labels = synthetic(np.full(n_classes, each), 1024, noise=0.5)
    train, test = split(labels, per_class, seed)
    mean = pixels[train].mean(axis=0)
    title = f"{name} m={'all but one' if per_class is None else per_class}"
    return TrainingSet(
        title + ("" if real else " (synthetic)"),
        normalised(pixels[train], mean),
        labels[train],
        normalised(pixels[test], mean),
        labels[test],
        real,
    )


def synthetic(
    sizes: NDArray[np.int64], n_features: int, noise: float, seed: int = 0
) -> tuple[Array, NDArray[np.int64]]:
    """Gaussian classes about Gaussian means, for shapes without a database."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(sizes.size, n_features))
    labels = np.repeat(np.arange(sizes.size), sizes)
    X = means[labels] + noise * rng.normal(size=(labels.size, n_features))
    return X, labels


def synthetic_set(name: str, n_classes: int, each: int, n_features: int) -> TrainingSet:
    """A synthetic training set of a given shape, with as many test samples."""
    X, labels = synthetic(np.full(n_classes, 2 * each), n_features, noise=0.8)
    train, test = split(labels, each)
    mean = X[train].mean(axis=0)
    return TrainingSet(
        name,
        normalised(X[train], mean),
        labels[train],
        normalised(X[test], mean),
        labels[test],
        False,
    )
