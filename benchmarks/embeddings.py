# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.embeddings``: classifiers on deep face embeddings.

m random embeddings of each of 158 people are used for training and the others for
testing. These are not images, so there are no motions. The parameters of rivals that
are marked as tuned are chosen by the ranks of held-out training samples.
"""

import argparse
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml._typing import Array
from dualqml.extractors import (
    DualQMLClassifier,
    DualQMLWCV,
    NearestMean,
    NearestSample,
    WithinMetric,
)
from dualqml.extractors.methods import make_method
from dualqml.extractors.tuning import RankSearchCV
from tests.datasets import load_samples, split

SIZES = (1, 2, 5, 8)
OURS = "DualQML-W"


def _centred(*steps: BaseEstimator) -> Pipeline:
    return make_pipeline(
        Normalizer(), StandardScaler(with_std=False), Normalizer(), *steps
    )


def _method(name: str, **options: Any) -> Pipeline:
    return make_pipeline(Normalizer(), make_method(name, **options))


def heads(m: int) -> dict[str, Any]:
    """All classifiers that can learn from m samples per class."""
    out: dict[str, Any] = {
        "nearest neighbour, cosine": NearestSample(),
        "class mean, cosine": NearestMean(),
        "class mean, centred": _centred(NearestMean()),
        "linear SVM, C=10": _method("Linear-SVM"),
        "ridge filter": _centred(RidgeClassifier(alpha=1.0)),
        "QML, centred, the paper's max rule": _centred(
            DualQMLClassifier(0.03, rule="max")
        ),
        "QML, centred, signed roots": _centred(
            DualQMLClassifier(0.03, rule="max", features="signed-root")
        ),
        OURS: DualQMLWCV(random_state=0),
    }
    if m > 1:
        metric = Pipeline([("metric", WithinMetric()), ("mean", NearestMean())])
        out |= {
            "class mean, within metric (tuned)": RankSearchCV(
                metric,
                {"metric__rho": [0.01, 0.1, 0.3, 1.0, 5.0, 30.0]},
                random_state=0,
            ),
            "LDA, shrinkage 0.5": _method("LDA-shrunk"),
            "LDA, shrinkage 0.1": _method("LDA-shrunk", shrinkage=0.1),
            "linear SVM (tuned)": _method("Linear-SVM", tune=True),
            "ridge filter (tuned)": RankSearchCV(
                _centred(RidgeClassifier()),
                {"ridgeclassifier__alpha": [1.0, 0.1, 10.0, 100.0]},
                random_state=0,
            ),
            f"{OURS}, rule max": DualQMLWCV(rules=("max",), random_state=0),
            f"{OURS}, rule cosine": DualQMLWCV(rules=("cosine",), random_state=0),
        }
    return out


def errors(m: int, repetition: int, first_seed: int) -> dict[str, float]:
    """Error rates in per cent of all classifiers on one split."""
    X, labels = load_samples("lfw_embeddings")
    train, test = split(labels, m, first_seed + repetition)
    out = {}
    with threadpool_limits(1, user_api="blas"):
        for name, head in heads(m).items():
            head.fit(X[train], labels[train])
            out[name] = 100.0 * (1.0 - head.score(X[test], labels[test]))
    return out


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=8000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    columns: list[dict[str, Array]] = []
    for m in SIZES:
        runs = Parallel(n_jobs=options.jobs)(
            delayed(errors)(m, r, options.first_seed) for r in range(options.splits)
        )
        columns.append(
            {name: np.array([run[name] for run in runs]) for name in runs[0]}
        )
    rows = []
    for name in columns[1]:
        row = [name]
        for column in columns:
            if name not in column:
                row.append("-")
                continue
            difference = column[name] - column[OURS]
            noise = difference.std(ddof=1) / np.sqrt(options.splits)
            text = f"{column[name].mean():.2f}"
            if name != OURS:
                text += f" ({difference.mean():+.2f} ± {noise:.2f})"
            row.append(text)
        rows.append(row)
    print("Error in per cent; in brackets the difference to ours over the same splits")
    print("and its standard error.\n")
    print(markdown_table(["head", *(f"m={m}" for m in SIZES)], rows))


if __name__ == "__main__":
    main()
