"""Kill runs of an experiment wherever it could hurt, and go on after each.

A program of its own, which forks: a process that imports takes seconds. A run halts
by itself where it is to be killed and says so, however slow the machine is.
"""

import json
import os
import signal
import sys

from dualqml.experiments import store as store_module
from dualqml.experiments.runner import UnitRunner
from dualqml.experiments.store import ResultStore, read_results
from tests.experiments.test_runner import experiment, run

REPEATS = 6
#: Where to kill, after how many new results, and in how many processes it runs.
KILLS = [
    ("locked", 0, 1),
    ("half a header", 0, 1),
    ("in a unit", 0, 1),
    ("in a unit", 2, 1),
    ("half a line", 0, 1),
    ("half a line", 3, 1),
    ("not synced", 1, 1),
    ("kept", 1, 1),
    ("locked", 0, 1),
    ("half a line", 2, 2),
    ("kept", 4, 2),
]


def run_until(path, point, n_new, n_jobs, halt):
    """Run, and halt at a point after some new results."""
    kept = 0

    def halting(original, wanted, before=lambda *args: None):
        def replaced(*args):
            if point == wanted and kept == n_new:
                before(*args)
                halt()
            return original(*args)

        return replaced

    def half(store, record):
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        os.write(store._file, line[: len(line) // 2])

    def count(progress):
        nonlocal kept
        kept += progress.last is not None
        if point == "kept" and kept == n_new:
            halt()

    whole = "half a header" if point == "half a header" else "half a line"
    ResultStore._write = halting(ResultStore._write, whole, half)
    store_module._read_all = halting(store_module._read_all, "locked")
    UnitRunner._run = halting(UnitRunner._run, "in a unit")
    if point == "not synced":
        os.fsync = halting(os.fsync, point)
    run(path, experiment(repeats=REPEATS), n_jobs=n_jobs, progress=count)


def killed(path, point, n_new, n_jobs):
    """Kill a run at a point; whether it came there."""
    said, say = os.pipe()
    held, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        os.close(hold)

        def halt():
            os.write(say, b"!")
            # Ends only if the one who is to kill is gone.
            os.read(held, 1)
            os._exit(1)

        try:
            run_until(path, point, n_new, n_jobs, halt)
        finally:
            os._exit(0)
    os.close(say)
    os.close(held)
    arrived = os.read(said, 1) == b"!"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(said)
    os.close(hold)
    return arrived


def main(path):
    kept = set()
    for point, n_new, n_jobs in KILLS:
        assert killed(path, point, n_new, n_jobs), f"{point} was not reached"
        started = os.path.getsize(path) and point != "half a header"
        units = [result.unit for result in read_results(path)] if started else []
        assert len(units) == len(set(units)), f"{point}: a unit ran twice"
        assert kept <= set(units), f"{point}: a unit was lost"
        # A line that was written whole is there, synced or not.
        expected = len(kept) + n_new + (point == "not synced")
        assert len(units) == expected, f"{point}: {len(units)}, not {expected}"
        kept = set(units)
    run(path, experiment(repeats=REPEATS))


if __name__ == "__main__":
    main(sys.argv[1])
