# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.cluster_experiments``: units on Dask workers and without Dask.

The same units of an experiment run in two worker processes of a local cluster and in
two own processes. Both are programs of their own, so that all their CPU time is
counted: that of the workers, of the scheduler and of what sends the work. A program
that runs one unit in each process shows what the start takes, which is told apart.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.timing import markdown_table
from dualqml.data import load_orl
from dualqml.experiments import Experiment, ResultStore, run_experiment
from dualqml.scale import connected, run_units

#: What is compared, and the most that the first may take relative to the second.
PLACES = {"cluster": "LocalCluster", "own": "own processes"}
BAR = 1.15
N_PROCESSES = 2
#: Methods and repetitions: the units of a run, and one unit for each process.
SIZES = {
    "all": (("LDA", "ERE", "DualQML", "DualQML-W"), 12),
    "start": (("DualQML",), N_PROCESSES),
}


def run(place: str, size: str) -> int:
    """Run units in one of the two ways; return how many there were."""
    methods, repeats = SIZES[size]
    experiment = Experiment(
        {"orl": load_orl()}, sizes=(4,), methods=methods, repeats=repeats
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ResultStore(Path(folder, "results.jsonl")) as store,
    ):
        if place == "own":
            summary = run_experiment(experiment, store, n_jobs=N_PROCESSES)
        else:
            with connected("local", workers=N_PROCESSES, memory_limit=0) as client:
                elsewhere = partial(run_units, client)
                summary = run_experiment(experiment, store, run_units=elsewhere)
    return summary.new


def measure(place: str, size: str) -> tuple[float, float]:
    """CPU seconds of a program and all its processes, and its seconds."""
    command = [sys.executable, "-m", "benchmarks.cluster_experiments", place, size]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | threads)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, seconds


def table(repeats: int = 3) -> str:
    """Medians of interleaved runs, and their ratios, in Markdown."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for size in SIZES:
            for place in PLACES:
                found.setdefault((place, size), []).append(measure(place, size))
    medians = {key: np.median(values, axis=0) for key, values in found.items()}
    columns = {
        place: (
            medians[place, "start"],
            medians[place, "all"] - medians[place, "start"],
            medians[place, "all"],
        )
        for place in PLACES
    }
    rows = []
    names = ("start and one unit in each process", "all other units", "all")
    for number, name in enumerate(names):
        for kind, unit in enumerate(("CPU s", "s")):
            cluster, own = (float(columns[p][number][kind]) for p in ("cluster", "own"))
            bar = f"{BAR}" if number == 1 and kind == 0 else ""
            cells = [f"{cluster:.1f}", f"{own:.1f}", f"{cluster / own:.2f}", bar]
            rows.append([f"{name}, {unit}", *cells])
    header = [f"{N_PROCESSES} processes", *PLACES.values(), "ratio", "bar"]
    return markdown_table(header, rows)


def main() -> None:
    """Run units if asked to by `measure`; else print the table."""
    if sys.argv[1:]:
        run(*sys.argv[1:])
    else:
        print(table())


if __name__ == "__main__":
    main()
