# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.many_samples``: the time of a fit with many samples per class.

DualQML, certificate included, against scikit-learn's LDA with shrinkage. CPU seconds
with one BLAS thread, medians of interleaved runs. Synthetic classes are a Gaussian
centre plus Gaussian noise, whose norm is `spread` times that of the centre; rows have
unit norm.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved_medians, markdown_table, peak_megabytes
from dualqml import DualQML
from tests.datasets import has_database, load_samples

LAMS = (0.17, 10.0)
#: Classes, samples of each, features, spread and repeats.
SHAPES = [
    (400, 10, 128, 0.7, 5),
    (400, 20, 128, 0.7, 5),
    (400, 50, 128, 0.3, 5),
    (400, 50, 128, 0.7, 5),
    (400, 50, 128, 1.5, 5),
    (400, 100, 128, 0.7, 3),
    (2000, 50, 128, 0.7, 3),
]
#: Sizes of the largest and of the smallest class of the unequal set.
UNEQUAL = (5, 100)


def gaussian_classes(
    sizes: NDArray[np.int64], n_features: int, spread: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows of unit norm and labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(sizes.size), sizes)
    centres = rng.normal(size=(sizes.size, n_features))
    X = centres[labels] + spread * rng.normal(size=(labels.size, n_features))
    return X / np.linalg.norm(X, axis=1, keepdims=True), labels


def sets() -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.int64], int]]:
    """Name, rows, labels and number of repeats of each training set."""
    for n_classes, each, n_features, spread, repeats in SHAPES:
        name = f"{n_classes:,} x {each} x {n_features}, spread {spread}"
        sizes = np.full(n_classes, each)
        yield name, *gaussian_classes(sizes, n_features, spread), repeats
    sizes = np.random.default_rng(1).integers(*UNEQUAL, size=400, endpoint=True)
    name = f"400 x {UNEQUAL[0]} to {UNEQUAL[1]} x 128, spread 0.7"
    yield name, *gaussian_classes(sizes, 128, 0.7), 3
    if has_database("lfw_embeddings"):
        X, labels = load_samples("lfw_embeddings")
        counts = np.unique(labels, return_counts=True)[1]
        name = f"LFW embeddings, {counts.size} x {counts.min()} to {counts.max()}"
        yield name, X, labels, 3


def rows() -> Iterator[list[str]]:
    """One row of the table for each training set."""
    for name, X, labels, repeats in sets():
        models = [DualQML(lam) for lam in LAMS]
        lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)
        actions = {"lda": lambda m=lda, X=X, y=labels: m.fit(X, y)}
        for lam, model in zip(LAMS, models, strict=True):
            actions[str(lam)] = lambda m=model, X=X, y=labels: m.fit(X, y)
        seconds = interleaved_medians(actions, repeats)
        optimal = all((model.status_ == "optimal").all() for model in models)
        yield [
            name,
            f"{1e3 * seconds['lda']:.0f}",
            "; ".join(f"{seconds[str(lam)] / seconds['lda']:.1f}" for lam in LAMS),
            "; ".join(f"{(m.ranks_ == 1).mean():.0%}" for m in models),
            "yes" if optimal else "no",
            f"{peak_megabytes(actions[str(LAMS[0])]):.0f}",
            f"{X.nbytes / 1e6:.0f}",
        ]


HEADER = [
    "classes x samples x features",
    "LDA ms",
    "DualQML / LDA",
    "classes of rank one",
    "all optimal",
    "peak MB",
    "data MB",
]


def main() -> None:
    """Print the table."""
    print(f"Pairs are for lam = {LAMS[0]} and lam = {LAMS[1]}.\n")
    with threadpool_limits(1, user_api="blas"):
        print(markdown_table(HEADER, list(rows())))


if __name__ == "__main__":
    main()
