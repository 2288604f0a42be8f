# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.ablation``: DualQML-W with one part changed at a time.

The full method chooses its parameters on the training set. A variant changes the
part in its name and keeps these parameters. Only the variants "always rule" choose
their own.
"""

import argparse
from collections.abc import Callable

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml import DualQMLClassifier, DualQMLW, DualQMLWCV
from dualqml._linalg import unit_rows
from dualqml._typing import Array
from dualqml.extractors.nearest import class_similarities
from dualqml.extractors.quadratic_features import centred, profile_gallery
from tests.datasets import has_database, load_samples, split

CELLS = [
    ("ar", 2),
    ("ar", 4),
    ("feret194", 2),
    ("feret194", 4),
    ("pie", 2),
    ("iitd_ear", 2),
    ("polyu_palm", 2),
    ("orl", 2),
    ("orl", 4),
    ("lfw_embeddings", 2),
    ("lfw_embeddings", 5),
]
Codes = NDArray[np.intp]


def errors(database: str, m: int, repetition: int, first_seed: int) -> dict[str, float]:
    """Error rates in per cent of all variants on one split."""
    X, labels = load_samples(database)
    codes = np.unique(labels, return_inverse=True)[1]
    train, test = split(labels, m, first_seed + repetition)
    own, true = codes[train], codes[test]
    images = {} if database == "lfw_embeddings" else {"image_shape": (32, 32)}
    with threadpool_limits(1, user_api="blas"):
        full = DualQMLWCV(random_state=0, **images).fit(X[train], own)
        Z, probes = (full.metric_.transform(X[rows]) for rows in (train, test))
        out = {}

        def record(name: str, predicted: Codes) -> None:
            out[name] = 100.0 * float(np.mean(predicted != true))

        def qml(**options: object) -> Callable[[Array], Codes]:
            chosen = {
                "rule": full.best_rule_,
                "features": "signed-root",
                "own_weight": 0.5,
                "centre": True,
                "zero_samples": "ignore",
            }
            return DualQMLClassifier(full.best_lam_, **(chosen | options)).fit(Z, own)

        def metric(**options: object) -> Codes:
            chosen = {
                "rho": full.best_rho_,
                "lam": full.best_lam_,
                "rule": full.best_rule_,
                "width": full.best_width_,
            }
            model = DualQMLW(**(chosen | images | options)).fit(X[train], own)
            return model.predict(X[test])

        def filters(training: Array, answers: Array) -> Codes:
            if full.best_rule_ == "max":
                return answers.argmax(axis=1)
            gallery, mean = profile_gallery(training, own, own_weight=0.5, centre=True)
            scores = class_similarities(
                centred(answers, mean), gallery, own, answers.shape[1]
            )
            return scores.argmax(axis=1)

        record("DualQML-W", full.predict(X[test]))
        for rule in ("cosine", "max"):
            alone = DualQMLWCV(rules=(rule,), random_state=0, **images).fit(
                X[train], own
            )
            record(f"always rule {rule}", alone.predict(X[test]))
        gram = Z @ Z.T + np.eye(len(Z)) / full.best_lam_
        hat = np.linalg.solve(gram, Z @ Z.T)
        weights = np.zeros((len(Z), codes.max() + 1))
        for c in range(codes.max() + 1):
            rows = np.flatnonzero(own == c)
            block = hat[np.ix_(rows, rows)]
            weights[rows, c] = np.linalg.lstsq(block, np.ones(rows.size))[0]
        answers = probes @ Z.T @ np.linalg.solve(gram, weights)
        record("surrogate filter in place of QML", filters(hat.T @ weights, answers))
        indicators = np.eye(codes.max() + 1)[own]
        weights = Z.T @ np.linalg.solve(gram, indicators)
        record("ridge filter in place of QML", filters(Z @ weights, probes @ weights))
        record("no QML: nearest sample in the metric", own[(probes @ Z.T).argmax(1)])
        means = unit_rows(indicators.T @ Z)
        record("no QML: class mean in the metric", (probes @ means.T).argmax(1))
        record("own weight 1", qml(own_weight=1.0).predict(probes))
        record(
            "unsigned features, cosine (the paper's rule)",
            qml(
                rule="cosine", features="quadratic", own_weight=1.0, centre=False
            ).predict(probes),
        )
        record(
            "unsigned features, max (the paper's rule)",
            qml(rule="max", features="quadratic").predict(probes),
        )
        if images:
            record("no motions in the prior", metric(kappa=0.0))
        record("linear coordinates", metric(kernel="linear"))
        record("no within-class metric (rho = 1e6)", metric(rho=1e6))
    return out


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=8000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    cells = [cell for cell in CELLS if has_database(cell[0])]
    columns = []
    for database, m in cells:
        runs = Parallel(n_jobs=options.jobs)(
            delayed(errors)(database, m, r, options.first_seed)
            for r in range(options.splits)
        )
        columns.append({name: np.mean([run[name] for run in runs]) for name in runs[0]})
    rows = []
    for name in columns[0]:
        values = [column.get(name, np.nan) for column in columns]
        row = [name, *("-" if np.isnan(v) else f"{v:.2f}" for v in values)]
        rows.append([*row, f"{np.nanmean(values):.2f}"])
    header = ["variant", *(f"{name} m={m}" for name, m in cells), "mean"]
    print("Error in per cent.\n")
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
