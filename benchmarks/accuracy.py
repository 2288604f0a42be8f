# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.accuracy``: DualQML-W and its rivals, split by split.

m random images of each person are used for training and the others for testing. All
methods have the same splits and the same input: pixels at unit norm, or local
descriptors. Rivals run with their defaults and tuned on the training set. Each result
is written to a file at once, one line per result. A second run continues there.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml.extractors.methods import METHODS, make_trials
from tests.datasets import has_database, load_samples, split

OURS = "DualQML-W"
CELLS = [
    ("ar", 2),
    ("ar", 4),
    ("ar", 6),
    ("ar", 8),
    ("feret194", 2),
    ("feret194", 4),
    ("feret194", 6),
    ("pie", 2),
    ("iitd_ear", 2),
    ("iitd_ear", 3),
    ("polyu_palm", 2),
    ("polyu_palm", 3),
    ("polyu_palm", 4),
    ("orl", 2),
    ("orl", 4),
    ("orl", 6),
    ("orl", 8),
]
FIRST_SEED = 8000


class Task(NamedTuple):
    """One method on one split of one cell."""

    database: str
    m: int
    repetition: int
    inputs: str
    method: str
    tuned: bool


def error(task: Task) -> dict[str, object]:
    """Error rate in per cent, and what it took."""
    X, labels = load_samples(task.database)
    train, test = split(labels, task.m, FIRST_SEED + task.repetition)
    inputs = {"pixels": "unit-norm", "local": "local"}[task.inputs]
    if task.method.startswith("DualQML") and task.method != OURS:
        # A quadratic form has no linear term: centring is part of the method.
        inputs = "centred-unit-norm" if inputs == "unit-norm" else inputs
    with threadpool_limits(1, user_api="blas"):
        wrong, seconds = [], []
        for model in make_trials(
            task.method,
            tune=task.tuned,
            preprocessing=inputs,
            image_shape=(32, 32),
        ):
            start = time.process_time()
            model.fit(X[train], labels[train])
            seconds.append(time.process_time() - start)
            wrong.append(100.0 * (1.0 - model.score(X[test], labels[test])))
    return task._asdict() | {
        "error": float(np.mean(wrong)),
        "fit_seconds": float(np.mean(seconds)),
    }


def tasks(inputs: str, tuned: bool, methods: list[str], splits: int) -> list[Task]:
    """All tasks, split by split, so that a part of them is a fair part."""
    out = []
    for repetition in range(splits):
        for database, m in CELLS:
            if not has_database(database):
                continue
            for method in methods:
                if inputs == "local" and METHODS[method].needs_images:
                    continue
                if method == OURS and tuned:
                    continue
                out.append(Task(database, m, repetition, inputs, method, tuned))
    return out


def read(store: Path) -> dict[Task, float]:
    """Results so far."""
    results = {}
    if store.exists():
        for line in store.read_text().splitlines():
            record = json.loads(line)
            task = Task(**{name: record[name] for name in Task._fields})
            results[task] = float(record["error"])
    return results


def table(results: dict[Task, float], inputs: str, *, tuned: bool) -> str:
    """Mean errors of ours and of the rivals, and differences over shared splits.

    One row per cell and one column per method. A difference is in bold if a rival is
    better by more than two standard errors.
    """
    errors: dict[str, dict[tuple[str, int], dict[int, float]]]
    errors = defaultdict(lambda: defaultdict(dict))
    for task, value in results.items():
        if task.inputs == inputs and (task.tuned == tuned or task.method == OURS):
            errors[task.method][task.database, task.m][task.repetition] = value
    ours = errors.pop(OURS)
    methods = [name for name in METHODS if name in errors]
    cells = [cell for cell in CELLS if cell in ours]
    rows, means = [], defaultdict(list)
    for cell in cells:
        own = np.array(list(ours[cell].values()))
        means[OURS].append(own.mean())
        texts, n_splits = [f"{own.mean():.2f}"], []
        for method in methods:
            shared = sorted(set(errors[method][cell]) & set(ours[cell]))
            values = np.array([errors[method][cell][r] for r in shared])
            difference = values - np.array([ours[cell][r] for r in shared])
            text = f"{values.mean():.2f}" if shared else "-"
            if len(shared) > 1:
                noise = difference.std(ddof=1) / np.sqrt(len(shared))
                found = f"{difference.mean():+.2f} ± {noise:.2f}"
                loses = difference.mean() < -2.0 * noise
                text += f" (**{found}**)" if loses else f" ({found})"
            texts.append(text)
            means[method].append(values.mean() if shared else np.nan)
            n_splits.append(len(shared))
        counts = f"{own.size}; {min(n_splits, default=0)}"
        rows.append([f"{cell[0]} m={cell[1]}", *texts, counts])
    rows.append(
        ["mean", *(f"{np.mean(means[name]):.2f}" for name in [OURS, *methods]), ""]
    )
    named = [name + (" (tuned)" if tuned else "") for name in methods]
    return markdown_table(["cell", OURS, *named, "splits: ours; rivals"], rows)


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("accuracy.jsonl"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--inputs", nargs="+", default=["pixels", "local"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--modes", nargs="+", default=["default", "tuned"])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    wanted = [
        task
        for mode in options.modes
        for inputs in options.inputs
        for task in tasks(inputs, mode == "tuned", options.methods, options.splits)
    ]
    done = read(options.store)
    missing = [task for task in wanted if task not in done]
    workers = Parallel(n_jobs=options.jobs, return_as="generator_unordered")
    for record in workers(delayed(error)(task) for task in missing):
        with options.store.open("a") as out:
            out.write(json.dumps(record) + "\n")
    results = read(options.store)
    print("Error in per cent; in brackets the difference to ours over the same splits")
    print("and its standard error, in bold if ours is worse by more than two of them.")
    for inputs in options.inputs:
        for mode in options.modes:
            print(f"\nInput: {inputs}; rivals: {mode}.\n")
            print(table(results, inputs, tuned=mode == "tuned"))


if __name__ == "__main__":
    main()
