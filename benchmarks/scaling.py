# SPDX-License-Identifier: BSD-3-Clause
"""How the cost of a fit grows with classes, samples per class and features."""

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.solver import fit, members_of
from benchmarks.timing import interleaved_medians, markdown_table, peak_megabytes
from tests.datasets import synthetic_set

#: Classes, samples per class and features. One of the three changes at a time.
SHAPES = [
    (60, 4, 1024),
    (120, 4, 1024),
    (240, 4, 1024),
    (480, 4, 1024),
    (120, 1, 1024),
    (120, 2, 1024),
    (120, 8, 1024),
    (120, 16, 1024),
    (120, 4, 128),
    (120, 4, 512),
    (120, 4, 4096),
]


def table() -> str:
    """Times of a fit at lam = 1, divided by those of scikit-learn's LDA."""
    rows = []
    for n_classes, each, n_features in SHAPES:
        data = synthetic_set("", n_classes, each, n_features)
        X, labels = data.X, data.y
        members = members_of(labels)
        actions = {"fit": lambda X=X, members=members: fit(X, members, 1.0)}
        if each > 1:
            actions["lda"] = lambda X=X, labels=labels: (
                LinearDiscriminantAnalysis().fit(X, labels)
            )
        seconds = interleaved_medians(actions, 3)
        ratio = f"{seconds['fit'] / seconds['lda']:.2f}" if "lda" in seconds else "-"
        peak = peak_megabytes(actions["fit"])
        rows.append(
            [
                str(n_classes),
                str(each),
                str(n_features),
                f"{1e3 * seconds['fit']:.0f}",
                ratio,
                f"{peak:.0f}",
                f"{X.nbytes / 1e6:.0f}",
            ]
        )
    header = ["classes", "samples each", "features", "fit ms", "fit / LDA"]
    return markdown_table([*header, "peak MB, spectrum included", "data MB"], rows)
