# SPDX-License-Identifier: BSD-3-Clause
"""Experiments on a Dask cluster: units of the paper's, and open-set evaluations.

The results are those of the same experiment in one process. The samples are sent once
to each worker. A task whose worker dies is run again by another one.
"""

import warnings
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dualqml.experiments.open_set import Division, OpenSetPlan
from dualqml.experiments.protocol import Experiment, Unit
from dualqml.experiments.results import Result
from dualqml.experiments.runner import UnitRunner
from dualqml.scale.tasks import run_tasks

if TYPE_CHECKING:
    from distributed import Client


def run_units(
    client: "Client", experiment: Experiment, units: Sequence[Unit]
) -> Generator[Result, None, None]:
    """Run units of an experiment on a cluster.

    Parameters
    ----------
    client : distributed.Client
        The connection to the cluster, as `connected` gives it.
    experiment : Experiment
        What the units belong to.
    units : sequence of Unit
        What to run.

    Yields
    ------
    Result
        The results as they come. When the generator is closed, the units that have
        not begun are given up.

    Raises
    ------
    RunError
        The scheduler is gone, or workers died again and again while they ran the
        same unit, which is named.

    Examples
    --------
    >>> import tempfile
    >>> from functools import partial
    >>> from pathlib import Path
    >>> from dualqml.data import load_orl
    >>> from dualqml.experiments import Experiment, ResultStore, run_experiment
    >>> from dualqml.scale import connected, run_units
    >>> experiment = Experiment(
    ...     {"orl": load_orl()}, sizes=(2,), methods=("LDA",), repeats=2
    ... )
    >>> with (
    ...     tempfile.TemporaryDirectory() as folder,
    ...     ResultStore(Path(folder, "results.jsonl")) as store,
    ...     connected("local", workers=1) as client,
    ... ):
    ...     summary = run_experiment(
    ...         experiment, store, run_units=partial(run_units, client)
    ...     )
    >>> [result.status for result in summary.results]
    ['done', 'done']
    """
    threads: set[int] = set()
    # A scheduler that is gone is an error of the tasks.
    with suppress(OSError):
        threads.update(client.nthreads().values() if client.status == "running" else ())
    if max(threads, default=1) > 1:
        warnings.warn(
            "Some workers have several threads, so the measured CPU times are those of "
            "several units at once. Start workers with --nthreads 1.",
            stacklevel=2,
        )
    runner = UnitRunner(experiment.databases, experiment.protocol)
    for _, result in run_tasks(client, runner, UnitRunner.run, units, _unit_in_words):
        yield result


def run_divisions(
    client: "Client", plan: OpenSetPlan, repetitions: Sequence[int]
) -> Generator[tuple[int, Division], None, None]:
    """Run repetitions of an open-set evaluation on a cluster.

    Parameters
    ----------
    client : distributed.Client
        The connection to the cluster, as `connected` gives it.
    plan : OpenSetPlan
        What to run.
    repetitions : sequence of int
        Their numbers.

    Yields
    ------
    repetition : int
        Its number.
    division : Division
        What it gave. They come as they are done, in any order.

    Raises
    ------
    RunError
        As in `run_units`.
    """
    words = "repetition {}".format
    yield from run_tasks(client, plan, OpenSetPlan.run, repetitions, words)


def _unit_in_words(unit: Unit) -> str:
    size = f" m={unit.m}" if unit.m else ""
    return f"{unit.database}{size} {unit.method}, repetition {unit.repetition}"
