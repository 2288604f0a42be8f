# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.dual_qml_w``: the time of a fit of DualQML-W, against LDA.

DualQML-W with fixed parameters, and with parameters chosen by cross-validation. CPU
seconds with one BLAS thread, medians of interleaved runs.
"""

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved_medians, markdown_table
from dualqml import DualQMLW, DualQMLWCV
from tests.datasets import has_database, load_samples, split

CELLS = [("ar", 2), ("ar", 8), ("feret194", 6), ("iitd_ear", 2), ("orl", 4)]


def rows(repeats: int = 5) -> list[list[str]]:
    """One row of the table for each training set."""
    out = []
    for database, m in CELLS:
        if not has_database(database):
            continue
        X, labels = load_samples(database)
        train, _ = split(labels, m)
        X, labels = X[train], labels[train]
        with threadpool_limits(1, user_api="blas"):
            lda = LinearDiscriminantAnalysis()
            ours = DualQMLWCV(image_shape=(32, 32), random_state=0)
            fixed = DualQMLW(image_shape=(32, 32))
            local = DualQMLWCV(image_shape=(32, 32), descriptor="local", random_state=0)
            seconds = interleaved_medians(
                {
                    "lda": lambda m=lda, X=X, y=labels: m.fit(X, y),
                    "cv": lambda m=ours, X=X, y=labels: m.fit(X, y),
                    "fixed": lambda m=fixed, X=X, y=labels: m.fit(X, y),
                    "local": lambda m=local, X=X, y=labels: m.fit(X, y),
                },
                repeats,
            )
        ratios = [seconds[name] / seconds["lda"] for name in ("fixed", "cv", "local")]
        out.append(
            [
                f"{database} m={m}",
                str(len(X)),
                f"{seconds['lda']:.3f}",
                *(f"{ratio:.1f}" for ratio in ratios),
            ]
        )
    return out


HEADER = [
    "training set",
    "images",
    "LDA s",
    "DualQML-W / LDA",
    "chosen on the training set / LDA",
    "the same, local descriptors / LDA",
]


def main() -> None:
    """Print the table."""
    print(markdown_table(HEADER, rows()))


if __name__ == "__main__":
    main()
