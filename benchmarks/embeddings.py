# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.embeddings``: classifiers on deep face embeddings.

m random embeddings of each person are used for training and the others for testing.
These are not images, so there are no motions. The parameters of rivals that are marked
as tuned are chosen by the ranks of held-out training samples. Each result is written to
a file at once, one line per result. A second run continues there.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml.extractors import (
    DualQMLClassifier,
    DualQMLWCV,
    NearestMean,
    NearestSample,
    WithinMetric,
)
from dualqml.extractors.methods import make_method
from dualqml.extractors.tuning import RankSearchCV
from tests.datasets import has_database, load_samples, split

CELLS = [
    ("lfw_embeddings", 1),
    ("lfw_embeddings", 2),
    ("lfw_embeddings", 5),
    ("lfw_embeddings", 8),
    ("lfw_sface", 2),
    ("agegap_sface", 2),
    ("agegap_sface", 4),
    ("agegap_edgeface", 2),
    ("agegap_edgeface", 4),
]
OURS = "DualQML-W"
FIRST_SEED = 8000


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
        "logistic regression": _method("Logistic"),
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
            "LDA, shrinkage (tuned)": _method("LDA-shrunk", tune=True),
            "linear SVM (tuned)": _method("Linear-SVM", tune=True),
            "logistic regression (tuned)": _method("Logistic", tune=True),
            "ridge filter (tuned)": RankSearchCV(
                _centred(RidgeClassifier()),
                {"ridgeclassifier__alpha": [1.0, 0.1, 10.0, 100.0]},
                random_state=0,
            ),
            f"{OURS}, rule max": DualQMLWCV(rules=("max",), random_state=0),
            f"{OURS}, rule cosine": DualQMLWCV(rules=("cosine",), random_state=0),
        }
    return out


def error(database: str, m: int, repetition: int, head: str) -> dict[str, Any]:
    """Error rate in per cent of a classifier on one split."""
    X, labels = load_samples(database)
    train, test = split(labels, m, FIRST_SEED + repetition)
    with threadpool_limits(1, user_api="blas"):
        model = heads(m)[head].fit(X[train], labels[train])
        value = 100.0 * (1.0 - model.score(X[test], labels[test]))
    return {
        "database": database,
        "m": m,
        "repetition": repetition,
        "head": head,
        "error": value,
    }


def read(store: Path) -> dict[tuple[str, int, int, str], float]:
    """Results so far."""
    lines = store.read_text().splitlines() if store.exists() else []
    records = [json.loads(line) for line in lines]
    return {
        (r["database"], r["m"], r["repetition"], r["head"]): r["error"] for r in records
    }


def table(results: dict[tuple[str, int, int, str], float]) -> str:
    """Mean errors, and differences to ours over shared splits."""
    rows = []
    for head in heads(2):
        row = [head]
        for database, m in CELLS:
            own, ours = (
                {
                    repetition: value
                    for (name, size, repetition, which), value in results.items()
                    if (name, size, which) == (database, m, wanted)
                }
                for wanted in (head, OURS)
            )
            shared = sorted(set(own) & set(ours))
            if not shared:
                row.append("-")
                continue
            text = f"{np.mean([own[r] for r in shared]):.2f}"
            if head != OURS and len(shared) > 1:
                difference = np.array([own[r] - ours[r] for r in shared])
                noise = difference.std(ddof=1) / np.sqrt(len(shared))
                text += f" ({difference.mean():+.2f} ± {noise:.2f})"
            row.append(text)
        rows.append(row)
    return markdown_table(["head", *(f"{name} m={m}" for name, m in CELLS)], rows)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("embeddings.jsonl"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--heads", nargs="+", default=list(heads(2)))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    done = read(options.store)
    missing = [
        task
        for repetition in range(options.splits)
        for database, m in CELLS
        for head in options.heads
        if has_database(database)
        and head in heads(m)
        and (task := (database, m, repetition, head)) not in done
    ]
    workers = Parallel(n_jobs=options.jobs, return_as="generator_unordered")
    for record in workers(delayed(error)(*task) for task in missing):
        with options.store.open("a") as out:
            out.write(json.dumps(record) + "\n")
    print("Error in per cent; in brackets the difference to ours over the same splits")
    print("and its standard error.\n")
    print(table(read(options.store)))


if __name__ == "__main__":
    main()
