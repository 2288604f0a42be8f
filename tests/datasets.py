"""Research databases that some tests need.

They may not be redistributed. ``DUALQML_DATA`` names the folder that has them as
``ar.npz``, ``feret.npz``, ... (arrays ``images32`` and ``labels``).
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualqml.data import load_orl

DATA_FOLDER = Path(
    os.environ.get(
        "DUALQML_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"
    )
)


@dataclass(frozen=True)
class TrainingSet:
    """Mean-removed rows of unit norm, the rest of the database, and the labels."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def has_database(name):
    """Whether a research database is available."""
    file = {"feret194": "feret"}.get(name, name)
    return name == "orl" or (DATA_FOLDER / f"{file}.npz").is_file()


def load_database(name):
    """Pixels of the 32 x 32 images between 0 and 1, and labels."""
    with np.load(DATA_FOLDER / f"{name}.npz") as archive:
        images, labels = archive["images32"], archive["labels"]
    return images.reshape(images.shape[0], -1) / 255.0, labels.astype(np.int64)


def load_samples(name):
    """Rows and labels of a database, of ORL, or of the face embeddings.

    "feret194" is FERET without six people that are pixel copies of others.
    """
    if name == "orl":
        faces = load_orl()
        return faces.rows, np.unique(faces.labels, return_inverse=True)[1]
    if name == "lfw_embeddings":
        with np.load(DATA_FOLDER / f"{name}.npz") as archive:
            return (
                archive["embeddings"].astype(np.float64),
                archive["labels"].astype(np.int64),
            )
    if name == "feret194":
        X, labels = load_database("feret")
        distinct = ~np.isin(labels, np.arange(44, 50))
        return X[distinct], labels[distinct]
    return load_database(name)


def split(labels, per_class, seed=0):
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


def normalised(X, mean):
    """Rows less the mean, scaled to unit norm."""
    centred = X - mean
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def training_set(name, per_class, seed=0):
    """A training set of a database, normalised."""
    X, labels = load_samples(name)
    train, test = split(labels, per_class, seed)
    mean = X[train].mean(axis=0)
    return TrainingSet(
        normalised(X[train], mean),
        labels[train],
        normalised(X[test], mean),
        labels[test],
    )
