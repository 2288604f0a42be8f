# SPDX-License-Identifier: BSD-3-Clause
"""Running the units of an experiment, in one process or in several.

Each result is written as soon as it is there, so that a run can be interrupted and
resumed.
"""

import math
import multiprocessing
import os
import platform
import signal
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from dualqml._typing import Array
from dualqml.data import AnyDatabase, Split
from dualqml.evaluation import true_ranks
from dualqml.exceptions import RunError
from dualqml.experiments.protocol import Experiment, Protocol, Unit
from dualqml.experiments.results import Result
from dualqml.experiments.store import ResultStore
from dualqml.extractors.methods import ALL_METHODS, make_trials, without_search
from dualqml.extractors.own_methods import OwnMethod
from dualqml.extractors.tuning import RankSearchCV
from dualqml.images.photometry import PhotometricNormaliser

#: Results count the identified test images up to this rank.
_MAX_RANK = 20

#: Results name at most this number of samples that got a wrong name.
_MOST_MISTAKES = 8

#: A function that runs units of an experiment and gives their results as they come.
RunUnits = Callable[[Experiment, Sequence[Unit]], Generator[Result, None, None]]


@dataclass(frozen=True)
class Progress:
    """The progress of an experiment.

    Attributes
    ----------
    done, failed, total : int
        Numbers of units: with a result (failed ones included), failed, and all.
    remaining : float or None
        Estimate of the remaining seconds; None before the first result.
    last : Result or None
        The newest result.
    """

    done: int
    failed: int
    total: int
    remaining: float | None = None
    last: Result | None = None


@dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    Attributes
    ----------
    results : list of Result
        All results of the units of the experiment, new and old.
    new : int
        How many units were run now.
    failed : list of Result
        The results of the units that failed.
    interrupted : bool
        Whether Ctrl-C ended the run early.
    """

    results: list[Result]
    new: int
    failed: list[Result]
    interrupted: bool


def run_experiment(
    experiment: Experiment,
    store: ResultStore,
    *,
    n_jobs: int = 1,
    run_units: RunUnits | None = None,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Run the units of an experiment that the store does not have yet.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    store : ResultStore
        The store for the results; it must be open.
    n_jobs : int, default=1
        Number of processes. The results do not depend on it.
    run_units : callable, optional
        Runs units elsewhere, such as on a cluster, instead of in own processes. It
        gets the experiment and the units, and returns a generator of their results
        in any order, which is closed when the run ends early.
    retry_failed : bool, default=False
        Whether to run failed units again.
    progress : callable, optional
        Called with a `Progress` at the start and after every unit.

    Returns
    -------
    Summary
        The outcome. Ctrl-C ends the run cleanly, with `interrupted` set.

    Raises
    ------
    RunError
        A worker process died, or the cluster is gone.
    StoreError
        A result cannot be written.
    """
    units = experiment.units
    planned = set(units)
    known = {
        r.unit: r for r in store.results if r.unit in planned and _has_all_seeds(r)
    }
    done = {
        unit
        for unit, result in known.items()
        if result.status == "done" or not retry_failed
    }
    missing = [unit for unit in units if unit not in done]
    estimate = _TimeEstimate(missing)
    n_failed = sum(known[unit].status == "failed" for unit in done)

    def report(last: Result | None) -> None:
        if progress is not None:
            left = estimate.remaining() if last else None
            progress(Progress(len(done), n_failed, len(units), left, last))

    report(None)
    new, interrupted = 0, False
    if run_units is None:
        run_units = (
            _run_in_turn if n_jobs == 1 else partial(_run_in_parallel, n_jobs=n_jobs)
        )
    results = run_units(experiment, missing)
    try:
        for result in results:
            store.append(result)
            known[result.unit] = result
            done.add(result.unit)
            new += 1
            n_failed += result.status == "failed"
            estimate.add(result)
            report(result)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        results.close()
    present = [known[unit] for unit in units if unit in known]
    failed = [result for result in present if result.status == "failed"]
    return Summary(present, new, failed, interrupted)


class UnitRunner:
    """Run units; the samples of each database are normalised only once.

    Parameters
    ----------
    databases : dict of str to Database or VectorDatabase
        The databases, by the names that units carry.
    protocol : Protocol
        How the samples are divided into training and test samples.
    """

    def __init__(
        self, databases: Mapping[str, AnyDatabase], protocol: Protocol
    ) -> None:
        self.databases = databases
        self.protocol = protocol
        self._rows: dict[tuple[str, str], Array] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Another process normalises the samples itself. That is quicker than to send
        # them, and a thread may be adding some.
        return vars(self) | {"_rows": {}}

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
            # The numbers must not depend on how many processes share the machine.
            with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
                # Few samples of many people are what all this is about.
                for few in ("The number of unique classes", "Only one sample"):
                    warnings.filterwarnings("ignore", message=few)
                return self._run(unit)
        # A method that is not ours may try to end the process.
        except (Exception, SystemExit) as error:
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
        return _mean([self._trial(unit, split, model) for model in self._models(unit)])

    def _models(self, unit: Unit) -> Sequence[Any]:
        shape = self.databases[unit.database].image_shape
        local = unit.input == "local"
        if unit.spec:
            method = OwnMethod.from_spec(unit.method, unit.spec)
            return [method.make(local=local, image_shape=shape)]
        return make_trials(
            unit.method,
            tune=unit.tuned,
            preprocessing="local" if local else None,
            image_shape=shape,
        )

    def _trial(self, unit: Unit, split: Split, model: Any) -> Result:
        X, labels = self._normalised(unit), self.databases[unit.database].labels
        known, codes = np.unique(labels[split.train], return_inverse=True)
        target: NDArray[Any] = labels[split.train]
        truth: NDArray[Any] = labels[split.test]
        if unit.spec:
            # Numbers, because not every classifier takes names.
            target, truth = codes, np.searchsorted(known, truth)
        start = time.process_time()
        model.fit(X[split.train], target)
        fitted = time.process_time()
        predicted = np.asarray(model.predict(X[split.test]))
        tested = time.process_time()
        if predicted.shape != truth.shape:
            raise ValueError(
                f"predict returned shape {predicted.shape} for {truth.size} samples"
            )
        right = predicted == truth
        chosen = chosen_parameters(model)
        counts = np.bincount(codes)
        return Result(
            unit=unit,
            status="done",
            error=100.0 * float(np.mean(~right)),
            n_subjects=counts.size,
            n_train=split.train.size,
            n_test=split.test.size,
            n_short=int((counts < unit.m).sum()),
            identified=_identified(model, X[split.test], truth, right),
            fit_seconds=fitted - start,
            test_seconds=tested - fitted,
            searched=bool(chosen),
            refit_seconds=(
                _refit_seconds(model, X[split.train], target) if chosen else math.nan
            ),
            parameters=chosen,
            spectrum=spectrum(model) if unit.repetition == 0 and not unit.spec else {},
            mistakes=(
                _mistakes(split, labels, predicted, right)
                if unit.repetition == 0 and not unit.spec
                else ()
            ),
            versions=_versions_of(unit),
            finished=_now(),
        )

    def _normalised(self, unit: Unit) -> Array:
        key = unit.database, unit.photometry
        if key not in self._rows:
            database = self.databases[unit.database]
            light = PhotometricNormaliser(
                method=unit.photometry,  # type: ignore[arg-type]
                image_shape=database.image_shape,
            )
            self._rows[key] = light.fit_transform(database.rows)
        return self._rows[key]


def chosen_parameters(model: Any) -> dict[str, Any]:
    """What a fitted method chose on its training set.

    Parameters
    ----------
    model : estimator
        A fitted classifier.

    Returns
    -------
    dict
        Plain values by names without prefixes; "folds" too where lambda was chosen
        by cross-validation.
    """
    if isinstance(model, RankSearchCV):
        return {
            name.rpartition("__")[2]: _plain(value)
            for name, value in model.best_params_.items()
        }
    last = model[-1] if isinstance(model, Pipeline) else model
    chosen = {
        f"best_{name}": _plain(value)
        for name, value in getattr(last, "best_params_", {}).items()
    }
    if getattr(last, "cv_errors_", None) is not None:
        chosen["folds"] = len(last.cv_errors_)
    return chosen


def spectrum(model: Any) -> dict[str, Any]:
    """Ranks and mean relative eigenvalues of the class matrices of a fitted method.

    Parameters
    ----------
    model : Pipeline or RankSearchCV
        Made by `make_method` and fitted.

    Returns
    -------
    dict
        "ranks", one for each class, and "eigenvalues", the mean over the classes of
        the k-th eigenvalue relative to the first. Empty for methods without such
        matrices.
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
    """Versions of Python and of the packages on which the numbers depend."""
    found = {"python": platform.python_version()}
    for name in ("dualqml", "numpy", "scipy", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _versions_of(unit: Unit) -> dict[str, str]:
    """The versions that a unit depends on."""
    if not unit.spec:
        return versions()
    return versions() | OwnMethod.from_spec(unit.method, unit.spec).package_version()


def _identified(
    model: Any, X: Array, truth: NDArray[Any], right: NDArray[np.bool_]
) -> tuple[float, ...]:
    """How many samples have their class among the first 1, 2, ... of the list.

    Without a score for each class only the first is known.
    """
    classes = getattr(model, "classes_", None)
    # A classifier may have classes of its own, or score pairs of classes.
    if classes is not None and np.isin(truth, classes).all():
        for name in ("decision_function", "predict_proba"):
            ask = getattr(model, name, None)
            scores = None if ask is None else _class_scores(np.asarray(ask(X)))
            if scores is not None and scores.shape == (len(X), len(classes)):
                ranks = true_ranks(scores, np.searchsorted(classes, truth))
                last = min(_MAX_RANK, len(classes))
                return tuple(float((ranks <= k).sum()) for k in range(1, last + 1))
    return (float(right.sum()),)


def _mistakes(
    split: Split,
    labels: NDArray[Any],
    predicted: NDArray[Any],
    right: NDArray[np.bool_],
) -> tuple[tuple[int, int, int], ...]:
    """The first wrong names: places of three samples each; see `Result`."""
    known, first = np.unique(labels[split.train], return_index=True)
    place = dict(zip(known.tolist(), split.train[first].tolist(), strict=True))
    found = []
    for wrong in np.flatnonzero(~right)[:_MOST_MISTAKES]:
        asked = int(split.test[wrong])
        taken, true = predicted[wrong].item(), labels[asked].item()
        # A sample may be of nobody in the training set.
        if taken in place and true in place:
            found.append((asked, place[taken], place[true]))
    return tuple(found)


def _refit_seconds(model: Any, X: Array, target: NDArray[Any]) -> float:
    """CPU time of a training with the chosen parameters; NaN if it is not known how."""
    fixed = without_search(model)
    if fixed is None:
        return math.nan
    start = time.process_time()
    fixed.fit(X, target)
    return time.process_time() - start


def _has_all_seeds(result: Result) -> bool:
    """Whether a result is a mean over as many seeds as the method asks for."""
    if result.status == "failed" or result.unit.spec:
        return True
    n_seeds = ALL_METHODS[result.unit.method].n_seeds
    return result.n_seeds == n_seeds


def _run_in_turn(
    experiment: Experiment, units: Sequence[Unit]
) -> Generator[Result, None, None]:
    runner = UnitRunner(experiment.databases, experiment.protocol)
    for unit in units:
        yield runner.run(unit)


def _run_in_parallel(
    experiment: Experiment, units: Sequence[Unit], n_jobs: int
) -> Generator[Result, None, None]:
    if not units:
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        max_workers=min(n_jobs, len(units)),
        # Forking a process whose BLAS has threads can hang.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(experiment.databases, experiment.protocol),
    )
    try:
        queue = iter(units)
        running: dict[Future[Result], Unit] = {}
        while True:
            # Two units for each worker: one runs and one waits. Workers are never
            # idle, and Ctrl-C has little to give up.
            for unit in queue:
                with interrupts_held():
                    running[pool.submit(_run_in_worker, unit)] = unit
                if len(running) >= 2 * n_jobs:
                    break
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit = running.pop(future)
                yield future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "A worker process died, perhaps because memory ran out. Results so far "
            "are kept; resume with fewer jobs."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        # Running units are given up: Ctrl-C would have to wait minutes for them.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C until the end of a block.

    Threads that are started in the block, and processes that are started in it or by
    these threads, never get it: a worker would print a traceback.
    """
    is_main = threading.current_thread() is threading.main_thread()
    pressed: list[int] = []
    if is_main:
        # Other threads, such as those of BLAS, may take a signal that is blocked here,
        # and Python would raise it in this thread all the same.
        handler = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    has_masks = hasattr(signal, "pthread_sigmask")
    if has_masks:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if has_masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if pressed:
        signal.raise_signal(signal.SIGINT)


#: The runner of a worker process.
_worker_runner: UnitRunner | None = None


def _start_worker(databases: Mapping[str, AnyDatabase], protocol: Protocol) -> None:
    """Set up a worker process. It ends when its parent ends or is killed."""
    global _worker_runner
    # Ctrl-C reaches all processes of a terminal; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker_runner = UnitRunner(databases, protocol)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _run_in_worker(unit: Unit) -> Result:
    if _worker_runner is None:
        raise RuntimeError("the worker was not set up")
    return _worker_runner.run(unit)


#: What units have in common that take about the same time.
_Kind = tuple[str, int, str, str]


class _TimeEstimate:
    """Estimate the remaining time from the times of units of the same kind."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._left: dict[_Kind, int] = defaultdict(int)
        for unit in units:
            self._left[self._kind(unit)] += 1
        self._taken: dict[_Kind, list[float]] = defaultdict(list)
        self._start = time.monotonic()

    @staticmethod
    def _kind(unit: Unit) -> _Kind:
        return unit.database, unit.m, unit.input, unit.method

    def add(self, result: Result) -> None:
        kind = self._kind(result.unit)
        self._left[kind] -= 1
        if result.status == "done":
            # Test images are scored twice: for the decisions and for the ranks.
            seconds = result.fit_seconds + 2.0 * result.test_seconds
            if not math.isnan(result.refit_seconds):
                seconds += result.refit_seconds
            self._taken[kind].append(result.n_seeds * seconds)

    def remaining(self) -> float | None:
        """Expected CPU seconds, scaled by the time that those so far took."""
        every = [seconds for taken in self._taken.values() for seconds in taken]
        if not every:
            return None
        average = sum(every) / len(every)
        expected = sum(
            left * (sum(taken) / len(taken) if taken else average)
            for kind, left in self._left.items()
            for taken in [self._taken[kind]]
        )
        elapsed = time.monotonic() - self._start
        return elapsed * expected / max(sum(every), 1e-9)


def _mean(trials: Sequence[Result]) -> Result:
    """The mean over the seeds of a method; other fields are those of the first."""
    return replace(
        trials[0],
        n_seeds=len(trials),
        error=float(np.mean([trial.error for trial in trials])),
        identified=tuple(np.mean([t.identified for t in trials], axis=0).tolist()),
        fit_seconds=float(np.mean([trial.fit_seconds for trial in trials])),
        test_seconds=float(np.mean([trial.test_seconds for trial in trials])),
        refit_seconds=float(np.mean([trial.refit_seconds for trial in trials])),
    )


def _class_scores(scores: NDArray[np.float64]) -> Array:
    # With two classes scikit-learn gives one score, that of the second class.
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def _plain(value: Any) -> Any:
    """A value that JSON can hold; text for anything that it cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return (
        value if value is None or isinstance(value, int | float | str) else str(value)
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
