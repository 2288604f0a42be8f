"""Results that nobody had to compute."""

import hashlib

import numpy as np

from dualqml.experiments.protocol import Unit
from dualqml.experiments.results import Result, Results
from dualqml.extractors.methods import METHODS

VERSIONS = {"python": "3.11.7", "dualqml": "0.1.0", "numpy": "2.0.0"}


def make_unit(method="LDA", repetition=0, **changes):
    fields = {
        "database": "ar",
        "data": "f00dfeedf00dfeed",
        "protocol": "random",
        "m": 2,
        "tuned": False,
        "photometry": "unit-norm",
        "seed": 0,
    } | changes
    # As in an experiment: all methods of a repetition share a split.
    key = repr((fields["database"], fields["m"], fields["seed"], repetition))
    split = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Unit(
        **({"split": split, "method": method, "repetition": repetition} | fields)
    )


def make_result(method="LDA", repetition=0, error=10.0, **changes):
    """A finished result; fields of units and of results by name."""
    unit_fields = {name: changes.pop(name) for name in list(changes) if name in FIELDS}
    unit = make_unit(method, repetition, **unit_fields)
    right = round(200 * (1 - error / 100))
    fields = {
        "unit": unit,
        "status": "done",
        "error": error,
        "n_subjects": 100,
        "n_train": 100 * unit.m,
        "n_test": 200,
        "identified": tuple(min(200, right + 3 * k) for k in range(20)),
        "fit_seconds": 1.5,
        "test_seconds": 0.5,
        "versions": VERSIONS,
        "finished": "2026-01-02T03:04:05+00:00",
    }
    return Result(**(fields | changes))


def make_failure(method="LDA", repetition=0, reason="ValueError: no", **changes):
    unit = make_unit(method, repetition, **changes)
    return Result(unit=unit, status="failed", reason=reason, versions=VERSIONS)


def make_results(errors, **changes):
    """Results of one setting, from error rates by method."""
    return Results(
        make_result(method, repetition, error, **changes)
        for method, row in errors.items()
        for repetition, error in enumerate(row)
    )


def realistic(databases=("ar", "feret", "orl"), sizes=(2, 4, 6, 8), repeats=30):
    """All methods on some databases, with noise that the methods share."""
    rng = np.random.default_rng(0)
    quality = dict(
        zip(METHODS, rng.permutation(np.linspace(0.75, 2.2, 13)), strict=True)
    )
    quality |= {"DualQML": 0.72, "DualQML-W": 0.6, "DualQML (max)": 0.95, "ERE": 0.68}
    seconds = dict(zip(METHODS, 10 ** rng.uniform(-0.5, 2.3, 13), strict=True))
    found = []
    for d, database in enumerate(databases):
        for m in sizes:
            for repetition in range(repeats):
                luck = rng.normal(0.0, 0.8)
                for method in METHODS:
                    mean = quality[method] * (14.0 + 5 * d) / m**0.9
                    error = float(np.clip(mean + luck + rng.normal(0, 0.6), 0, 100))
                    error = round(2 * error) / 2
                    found.append(
                        make_result(
                            method,
                            repetition,
                            error,
                            database=database,
                            m=m,
                            fit_seconds=seconds[method] * m,
                            parameters=_parameters(method, rng),
                            spectrum=_spectrum(method, m, rng, repetition),
                        )
                    )
    return Results(found)


def _parameters(method, rng):
    if not method.startswith("DualQML"):
        return {}
    chosen = {"best_lam": float(rng.choice([0.1, 0.32, 1.0, 3.2])), "folds": 2}
    if method == "DualQML-W":
        chosen |= {"best_rho": float(rng.choice([0.1, 0.3])), "best_rule": "cosine"}
    return chosen


def _spectrum(method, m, rng, repetition):
    if repetition or not method.startswith("DualQML"):
        return {}
    top = 3 * m if method == "DualQML-W" else 2 * m
    ranks = rng.binomial(2 * top, 0.5, 100).clip(1)
    values = np.exp(-0.5 * np.arange(ranks.max()))
    return {"ranks": ranks.tolist(), "eigenvalues": np.round(values, 6).tolist()}


FIELDS = {
    *("database", "data", "protocol", "m", "tuned", "photometry", "seed", "split"),
    *("input", "spec"),
}
