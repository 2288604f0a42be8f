import os
import signal
from functools import partial

import numpy as np
import pytest

from dualqml.exceptions import RunError
from dualqml.experiments.open_set import evaluate_open_set
from dualqml.experiments.store import read_results
from dualqml.scale import connected, run_divisions, run_units
from tests.experiments.test_runner import experiment, outcome, run
from tests.people import make_vectors
from tests.scale.cluster_program import program

distributed = pytest.importorskip("distributed")

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def small(**settings):
    """An experiment of 12 units."""
    return experiment(**{"repeats": 2} | settings)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """What the experiment gives in this process."""
    return run(tmp_path_factory.mktemp("calm") / "r.jsonl", small()).results


def test_the_same_store_and_the_same_results(client, calm, tmp_path):
    seen, path = [], tmp_path / "r.jsonl"
    elsewhere = partial(run_units, client)
    summary = run(path, small(), run_units=elsewhere, progress=seen.append)
    assert (summary.new, summary.failed, summary.interrupted) == (12, [], False)
    # Bit for bit, in the order of the plan.
    assert [r.unit for r in summary.results] == [r.unit for r in calm]
    assert outcome(summary.results) == outcome(calm)
    assert [r.versions for r in summary.results] == [r.versions for r in calm]
    assert [p.done for p in seen] == list(range(13))
    assert seen[-1].remaining == 0
    # The store knows nothing of where the units ran.
    assert outcome(read_results(path)) == outcome(calm)
    before = path.read_bytes()
    assert run(path, small()).new == 0
    assert run(path, small(), run_units=elsewhere).new == 0
    assert path.read_bytes() == before


def test_failed_units_are_results_too(client, tmp_path):
    what = small(sizes=(1,), repeats=1)
    found = run(tmp_path / "1.jsonl", what, run_units=partial(run_units, client))
    here = run(tmp_path / "2.jsonl", what)
    assert [r.unit.method for r in found.failed] == ["DualQML"]
    assert [r.reason for r in found.failed] == [r.reason for r in here.failed]


@posix
def test_a_worker_is_killed_during_the_run(client, calm, tmp_path):
    def kill(progress):
        if progress.done == 3:
            # All of them, busy or not.
            for process in client.run(os.getpid).values():
                os.kill(process, signal.SIGKILL)

    path = tmp_path / "r.jsonl"
    elsewhere = partial(run_units, client)
    summary = run(path, small(), run_units=elsewhere, progress=kill)
    assert (summary.new, summary.failed) == (12, [])
    assert outcome(summary.results) == outcome(calm)
    units = [result.unit for result in read_results(path)]
    assert len(set(units)) == len(units) == 12


def test_units_that_have_not_begun_are_given_up(client, calm, tmp_path):
    def interrupt(progress):
        if progress.done == 4:
            raise KeyboardInterrupt

    def known_tasks(dask_scheduler):
        return len(dask_scheduler.tasks)

    path = tmp_path / "r.jsonl"
    elsewhere = partial(run_units, client)
    summary = run(path, small(), run_units=elsewhere, progress=interrupt)
    assert summary.interrupted
    assert len(summary.results) == len(read_results(path)) == 4
    # The scheduler hears of it in order.
    while client.run_on_scheduler(known_tasks):
        client.submit(os.getpid, pure=False).result()
    rest = run(path, small(), run_units=elsewhere)
    assert rest.new == 8
    assert outcome(rest.results) == outcome(calm)


def test_a_scheduler_that_is_gone_is_an_error_and_resume_goes_on(
    client, calm, tmp_path
):
    path = tmp_path / "r.jsonl"
    with program(tmp_path) as (process, address, workers):
        assert workers

        def kill(progress):
            if progress.done == 3:
                process.kill()
                process.wait()

        with connected(address) as lost:
            elsewhere = partial(run_units, lost)
            for _ in range(2):
                # The second time it is gone before the work begins.
                with pytest.raises(RunError, match="scheduler of the cluster is gone"):
                    run(path, small(), run_units=elsewhere, progress=kill)
            lost.close(5)
            with pytest.raises(RunError, match="scheduler of the cluster is gone"):
                run(path, small(), run_units=elsewhere)
        # The workers have the same output: it ends when they do.
        process.stdout.read()
    kept = read_results(path)
    assert 3 <= len(kept) < 12
    rest = run(path, small(), run_units=partial(run_units, client))
    assert rest.new == 12 - len(kept)
    assert outcome(rest.results) == outcome(calm)


def test_workers_with_several_threads_measure_wrong_times(tmp_path):
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address=None,
            protocol="tcp",
        ) as cluster,
        connected(cluster.scheduler_address) as client,
    ):
        what = small(sizes=(2,), methods=("LDA",))
        with pytest.warns(UserWarning, match="several threads"):
            run(tmp_path / "r.jsonl", what, run_units=partial(run_units, client))
    assert len(read_results(tmp_path / "r.jsonl")) == 2


def test_no_units(client):
    assert list(run_units(client, small(), [])) == []


def test_open_set_divisions_are_bitwise_the_same(client):
    rows, labels = make_vectors(15, 6, size=12, noise=0.8)
    settings = {"m": 3, "repeats": 3, "fpir": 0.1}
    here = evaluate_open_set(rows, labels, **settings)
    seen = []
    found = evaluate_open_set(
        rows,
        labels,
        **settings,
        run_divisions=partial(run_divisions, client),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert found.images_each == here.images_each
    assert found.thresholds == here.thresholds
    assert list(found.trials) == list(here.trials)
    for row, trials in here.trials.items():
        for one, other in zip(trials, found.trials[row], strict=True):
            for expected, array in zip(one, other, strict=True):
                np.testing.assert_array_equal(array, expected)
