import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dualqml.experiments import runner
from dualqml.experiments.protocol import Experiment
from dualqml.experiments.results import StoreError
from dualqml.experiments.runner import RunError, run_experiment
from dualqml.experiments.store import ResultStore, read_results
from tests.people import make_people

METHODS = ("LDA", "MLE", "DualQML")


def experiment(**settings):
    return Experiment(
        {"people": make_people(noise=0.8)},
        **{"sizes": (2, 3), "methods": METHODS, "repeats": 3} | settings,
    )


def outcome(results):
    """What must not depend on when and where a unit ran."""
    return {
        r.unit: (r.status, r.error, r.identified, str(r.parameters), str(r.spectrum))
        for r in results
    }


def run(path, what, **settings):
    with ResultStore(path) as store:
        return run_experiment(what, store, **settings)


def test_all_units_and_what_it_says_on_the_way(tmp_path):
    seen = []
    summary = run(tmp_path / "r.jsonl", experiment(), progress=seen.append)
    assert (summary.new, summary.failed, summary.interrupted) == (18, [], False)
    assert [p.done for p in seen] == list(range(19))
    assert all(p.total == 18 for p in seen)
    assert seen[0].remaining is None
    assert all(p.remaining >= 0 for p in seen[1:])
    assert seen[-1].remaining == 0
    assert outcome(summary.results) == outcome(read_results(tmp_path / "r.jsonl"))


def test_a_second_run_repeats_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    run(path, experiment(repeats=1))
    before = path.read_bytes()
    summary = run(path, experiment(repeats=1))
    assert (summary.new, len(summary.results)) == (0, 6)
    assert path.read_bytes() == before
    summary = run(path, experiment(repeats=2, methods=("LDA", "ERE")))
    assert summary.new == 6
    # Results of another seed or of other data are not taken for these.
    assert run(path, experiment(repeats=1, seed=1)).new == 6
    other = Experiment({"people": make_people(seed=1)}, sizes=(2,), repeats=1)
    assert run(path, other).new == 13


def test_results_of_another_number_of_seeds_run_again(tmp_path):
    path = tmp_path / "r.jsonl"
    what = experiment(repeats=1, sizes=(2,))
    first = run(path, what)
    old = [replace(result, n_seeds=1) for result in first.results]
    with ResultStore(tmp_path / "old.jsonl") as store:
        for result in old:
            store.append(result)
    again = run(tmp_path / "old.jsonl", what)
    assert again.new == 1
    assert [r.n_seeds for r in again.results] == [1, 5, 1]
    assert outcome(again.results) == outcome(first.results)


def test_any_number_of_processes_gives_the_same(tmp_path):
    alone = run(tmp_path / "1.jsonl", experiment(repeats=1))
    together = run(tmp_path / "3.jsonl", experiment(repeats=1), n_jobs=3)
    assert outcome(alone.results) == outcome(together.results)
    assert len(alone.results) == 6
    # One process after another was stopped in between.
    part = run(tmp_path / "p.jsonl", experiment(repeats=1, sizes=(2,)), n_jobs=2)
    assert part.new == 3
    rest = run(tmp_path / "p.jsonl", experiment(repeats=1))
    assert outcome(rest.results) == outcome(alone.results)


def test_failures_are_kept_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "r.jsonl"
    what = experiment(sizes=(1,), repeats=1)
    summary = run(path, what)
    assert [result.unit.method for result in summary.failed] == ["DualQML"]
    assert len(summary.results) == 3
    assert run(path, what).new == 0
    again = run(path, what, retry_failed=True)
    assert (again.new, len(again.failed)) == (1, 1)


def test_ctrl_c_ends_cleanly(tmp_path):
    def interrupt(progress):
        if progress.done == 4:
            raise KeyboardInterrupt

    for n_jobs in (1, 2):
        path = tmp_path / f"{n_jobs}.jsonl"
        summary = run(path, experiment(), n_jobs=n_jobs, progress=interrupt)
        assert summary.interrupted
        assert len(summary.results) == 4
        assert len(read_results(path)) == 4


def test_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    def full(self, result):
        raise StoreError("No space left on device")

    with ResultStore(tmp_path / "r.jsonl") as store:
        monkeypatch.setattr(ResultStore, "append", full)
        with pytest.raises(StoreError, match="No space left"):
            run_experiment(experiment(), store, n_jobs=2)


def _die(unit):
    os._exit(9)


def test_a_worker_that_dies_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_in_worker", _die)
    with pytest.raises(RunError, match="worker process died"):
        run(tmp_path / "r.jsonl", experiment(), n_jobs=2)


def environment():
    """The tests must be found from any folder."""
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
@pytest.mark.timeout(1200)  # It may hang, but it may be slow.
def test_killed_anywhere_nothing_is_lost_and_nothing_runs_twice(tmp_path):
    path = tmp_path / "r.jsonl"
    program = Path(__file__).with_name("kill_runs.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(path)],
        # One thread: a process that forks must have no others.
        env=environment() | {"OPENBLAS_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    units = [result.unit for result in read_results(path)]
    assert len(units) == len(set(units))
    calm = run(tmp_path / "calm.jsonl", experiment(repeats=6))
    assert outcome(read_results(path)) == outcome(calm.results)


_RUN = """
import multiprocessing
import sys
from tests.experiments.test_runner import experiment, run

def say(progress):
    if progress.last:
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)

if __name__ == "__main__":
    run(sys.argv[1], experiment(repeats=1000), n_jobs=2, progress=say)
"""


@pytest.mark.timeout(1200)
def test_workers_end_when_the_parent_is_killed(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(_RUN)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "r.jsonl")],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        workers = process.stdout.readline().split()
        process.kill()
        assert len(workers) == 2
        try:
            # The workers have the same output: it ends when the last of them does.
            process.stdout.read()
        except BaseException:
            for worker in workers:
                os.kill(int(worker), signal.SIGKILL)
            raise


def test_the_estimate_uses_what_units_of_a_kind_took(tmp_path, monkeypatch):
    units = experiment(methods=("LDA", "MLE"), sizes=(2,), repeats=10).units
    clock = runner._Clock(units)
    clock._start -= 30.0
    made = {"LDA": 1.0, "MLE": 9.0}
    for unit in units[:6]:
        # Of five seeds each took a fifth.
        n_seeds = {"LDA": 1, "MLE": 5}[unit.method]
        result = runner.Result(
            unit,
            "done",
            error=0.0,
            n_seeds=n_seeds,
            fit_seconds=made[unit.method] / n_seeds,
            test_seconds=0.0,
        )
        clock.tick(result)
    # 30 s for 3 x 10 s of work; 7 x 10 s are left.
    assert clock.remaining() == pytest.approx(70.0, rel=0.01)
    assert np.isfinite(clock.remaining())
