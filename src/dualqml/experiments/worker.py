# SPDX-License-Identifier: BSD-3-Clause
"""Running one unit: fit a method to a split and count its errors."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from dualqml.core.arrays import Array
from dualqml.data import Database, PhotometricNormaliser, Split
from dualqml.evaluation import true_ranks
from dualqml.experiments.protocol import Protocol, Unit
from dualqml.experiments.results import Result
from dualqml.extractors.methods import make_trials

#: The last rank of the identification counts that results carry.
_MAX_RANK = 20


class Laboratory:
    """Databases made ready once, and units run on them.

    Parameters
    ----------
    databases : dict of str to Database
        The databases, by the names that units carry.
    protocol : Protocol
        How images are divided.
    """

    def __init__(self, databases: Mapping[str, Database], protocol: Protocol) -> None:
        self.databases = databases
        self.protocol = protocol
        self._rows: dict[tuple[str, str], Array] = {}

    def run(self, unit: Unit) -> Result:
        """Run a unit.

        Parameters
        ----------
        unit : Unit
            What to run.

        Returns
        -------
        Result
            Failed, with the reason, if the method raised an error.
        """
        try:
            # Numbers must not depend on how many processes share the machine.
            with threadpool_limits(1, user_api="blas"):
                return self._run(unit)
        except Exception as error:
            return Result(
                unit=unit,
                status="failed",
                reason=f"{type(error).__name__}: {error}",
                versions=versions(),
                finished=_now(),
            )

    def _run(self, unit: Unit) -> Result:
        database = self.databases[unit.database]
        split = self.protocol.split(database, unit.m, unit.seed, unit.repetition)
        if split.fingerprint != unit.split:
            raise RuntimeError(
                "the split came out differently than planned: NumPy's generator or "
                "the database changed while the experiment ran"
            )
        trials = make_trials(
            unit.method,
            tune=unit.tuned,
            image_shape=database.images.shape[1:],
        )
        return _mean([self._trial(unit, split, model) for model in trials])

    def _trial(self, unit: Unit, split: Split, model: Any) -> Result:
        X, labels = self._normalised(unit), self.databases[unit.database].labels
        start = time.process_time()
        model.fit(X[split.train], labels[split.train])
        fitted = time.process_time()
        predicted = model.predict(X[split.test])
        tested = time.process_time()
        scores = _class_scores(model.decision_function(X[split.test]))
        truth = labels[split.test]
        ranks = true_ranks(scores, np.searchsorted(model.classes_, truth))
        last = min(_MAX_RANK, scores.shape[1])
        counts = np.unique(labels[split.train], return_counts=True)[1]
        return Result(
            unit=unit,
            status="done",
            error=100.0 * float(np.mean(predicted != truth)),
            n_subjects=counts.size,
            n_train=split.train.size,
            n_test=split.test.size,
            n_short=int((counts < unit.m).sum()),
            identified=tuple(float((ranks <= k).sum()) for k in range(1, last + 1)),
            fit_seconds=fitted - start,
            test_seconds=tested - fitted,
            parameters=chosen_parameters(model),
            spectrum=spectrum(model) if unit.repetition == 0 else {},
            versions=versions(),
            finished=_now(),
        )

    def _normalised(self, unit: Unit) -> Array:
        key = unit.database, unit.photometry
        if key not in self._rows:
            database = self.databases[unit.database]
            light = PhotometricNormaliser(
                method=unit.photometry,  # type: ignore[arg-type]
                image_shape=database.images.shape[1:],
            )
            self._rows[key] = light.fit_transform(database.rows)
        return self._rows[key]


def _mean(trials: Sequence[Result]) -> Result:
    """The mean over the seeds of a method; the rest is that of the first."""
    return replace(
        trials[0],
        n_seeds=len(trials),
        error=float(np.mean([trial.error for trial in trials])),
        identified=tuple(np.mean([t.identified for t in trials], axis=0).tolist()),
        fit_seconds=float(np.mean([trial.fit_seconds for trial in trials])),
        test_seconds=float(np.mean([trial.test_seconds for trial in trials])),
    )


def _class_scores(scores: NDArray[np.float64]) -> Array:
    # With two classes scikit-learn wants a single score, of the second.
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def chosen_parameters(model: Any) -> dict[str, Any]:
    """What a fitted method chose on its training set.

    Parameters
    ----------
    model : Pipeline or RankSearchCV
        Made by `make_method` and fitted.

    Returns
    -------
    dict
        Names without prefixes, plain values; "folds" where lambda was chosen by
        cross-validation.
    """
    if hasattr(model, "best_params_"):
        return {
            name.rpartition("__")[2]: _plain(value)
            for name, value in model.best_params_.items()
        }
    last = model[-1] if isinstance(model, Pipeline) else model
    chosen = {
        name.rstrip("_"): _plain(value)
        for name, value in vars(last).items()
        if name.startswith("best_") and np.ndim(value) == 0
    }
    if getattr(last, "cv_errors_", None) is not None:
        chosen["folds"] = len(last.cv_errors_)
    return chosen


def spectrum(model: Any) -> dict[str, Any]:
    """Ranks and mean relative eigenvalues of the matrices P_c of a fitted method.

    Parameters
    ----------
    model : Pipeline or RankSearchCV
        Made by `make_method` and fitted.

    Returns
    -------
    dict
        "ranks", one for each class, and "eigenvalues", the mean over the classes
        of the k-th eigenvalue relative to the first. Empty for other methods.
    """
    last = model[-1] if isinstance(model, Pipeline) else model
    qml = getattr(last, "qml_", last)
    if not hasattr(qml, "ranks_"):
        return {}
    ranks = np.asarray(qml.ranks_)
    largest = int(ranks.max())
    relative = np.zeros((ranks.size, largest))
    ends = np.cumsum(ranks)
    for c, (end, rank) in enumerate(zip(ends, ranks, strict=True)):
        factor = qml.components_[end - rank : end]
        values = np.linalg.svd(factor, compute_uv=False) ** 2
        relative[c, :rank] = values / values[0]
    return {
        "ranks": ranks.tolist(),
        "eigenvalues": [round(float(v), 6) for v in relative.mean(axis=0)],
    }


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("dualqml", "numpy", "scipy", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
