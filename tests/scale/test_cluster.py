import json
import logging
import multiprocessing
import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from dualqml.exceptions import ClusterError, MissingDependencyError, RunError
from dualqml.scale import cluster, connected, worker_task
from dualqml.scale.tasks import run_tasks
from tests.scale import work
from tests.scale.cluster_program import program, with_tests_on_path

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

#: Seconds that a slow machine may take.
LONG = 240

posix = pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a scheduler with one worker, in another process."""
    with program(tmp_path_factory.mktemp("scratch")) as (_, address, _):
        yield address


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(cluster, "_ANSWER", 0.5)


def test_a_cluster_that_runs_is_reached_and_stays(address, tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"type": "Scheduler", "address": address}))
    for place in (address, file, str(file)):
        with connected(place) as client:
            assert client.submit(worker_task(sum), [1, 2, 3], pure=False).result() == 6


@posix
def test_a_worker_is_ready_and_so_is_the_one_after_it(address):
    ready = {
        "BLAS threads": 1,
        "spills": False,
        "deaf to Ctrl-C": True,
        "new pages": False,
    }
    if platform.libc_ver()[0] != "glibc":
        del ready["new pages"]
    with connected(address) as client:
        found, first = client.submit(worker_task(work.state), pure=False).result(LONG)
        assert {name: found[name] for name in ready} == ready
        os.kill(first, signal.SIGKILL)
        found, second = client.submit(worker_task(work.state), pure=False).result(LONG)
        assert second != first
        assert {name: found[name] for name in ready} == ready


def test_versions_that_differ(address, monkeypatch):
    real = cluster.versions()
    fake = real | {"numpy": "0.1", "no-such-package": "1.0"}
    with connected(address) as client:
        monkeypatch.setattr(cluster, "versions", lambda: fake)
        task = client.submit(worker_task(sum), [1, 2, 3], pure=False)
        monkeypatch.undo()
        with pytest.raises(ClusterError, match=r"worker in process \d+ has numpy 2"):
            task.result(LONG)
    monkeypatch.setattr(cluster, "versions", lambda: fake)
    with pytest.raises(ClusterError) as caught, connected(address):
        raise AssertionError
    assert "1 worker of the cluster cannot be used: tcp://" in str(caught.value)
    assert f"has numpy {real['numpy']} instead of 0.1, " in str(caught.value)
    assert "no-such-package (missing) instead of 1.0" in str(caught.value)
    assert "install the same versions" in str(caught.value)
    # The last number of Python's version changes nothing.
    last = f"{real['python'].rpartition('.')[0]}.999"
    monkeypatch.setattr(cluster, "versions", lambda: real | {"python": last})
    with connected(address):
        pass


def test_a_late_worker_with_other_versions(address, tmp_path):
    about = tmp_path / "packages" / "scipy-0.1.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.1\n")
    paths = [str(tmp_path / "packages")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    with connected(address) as client:
        late = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", address]
            + ["--name", "late", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            + ["--local-directory", str(tmp_path)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stderr=subprocess.DEVNULL,
        )
        with late:
            try:
                client.wait_for_workers(2, timeout=LONG)
                task = worker_task(sum)
                wrong = client.submit(task, [1, 2], workers="late", pure=False)
                with pytest.raises(ClusterError, match=r"has scipy 0\.1 instead of"):
                    wrong.result(LONG)
                reached = pytest.raises(ClusterError, match="1 worker of the cluster")
                with reached, connected(address):
                    raise AssertionError
            finally:
                late.kill()


def test_a_cluster_without_workers_yet():
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None, protocol="tcp"
        ) as empty,
        pytest.warns(UserWarning, match="no workers yet; the work waits for them"),
        connected(empty.scheduler_address) as client,
    ):
        assert client.nthreads() == {}


def refused():
    """The address of a port that nobody listens to."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{unused.getsockname()[1]}"


@pytest.mark.usefixtures("impatient")
def test_an_address_where_nobody_answers():
    place = refused()
    with pytest.raises(ClusterError) as caught, connected(place):
        raise AssertionError
    assert f"No scheduler answers at {place} within 0.5 seconds" in str(caught.value)


@pytest.mark.usefixtures("impatient")
def test_an_address_that_listens_and_says_nothing():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        place = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match="No scheduler answers"),
            connected(place),
        ):
            raise AssertionError


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("tcp://127.0.0.1", "missing port number"),
        ("tcp://127.0.0.1:port", "no address of a scheduler that can be reached"),
        ("no://127.0.0.1:1", "unknown address scheme 'no'"),
        ("no-such-file", r"no file of a scheduler.*\(No such file"),
        (".", "no file of a scheduler"),
    ],
)
def test_a_place_that_is_none(place, message):
    with pytest.raises(ClusterError, match=message), connected(place):
        raise AssertionError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", "it has no address"),
        (b'{"address": "\x1b[2J"}', "it is not JSON"),
        (b'{"address": "here"}', "it has no address"),
    ],
)
def test_a_file_that_no_scheduler_has_written(tmp_path, content, message):
    file = tmp_path / "scheduler.json"
    file.write_bytes(content)
    with pytest.raises(ClusterError, match=message), connected(file):
        raise AssertionError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "at least 1, got 0"),
        ({"workers": -2}, "at least 1, got -2"),
        ({"memory_limit": "much"}, "'much' cannot be used: write 4GB"),
        ({"memory_limit": "-4GB"}, "at least 200,000,000, or 0 for no limit"),
        # Somebody who means 4 GB, and one who means half of the memory.
        ({"memory_limit": "4"}, "'4' cannot be used"),
        ({"memory_limit": "0.5"}, "'0.5' cannot be used"),
        ({"memory_limit": "1e400GB"}, "cannot be used"),
        ({"scratch": "no-such-folder"}, "There is no folder no-such-folder"),
    ],
)
def test_wrong_arguments_of_a_local_cluster(settings, message):
    with pytest.raises(ClusterError, match=message), connected("local", **settings):
        raise AssertionError


@pytest.mark.parametrize("settings", [{"workers": 2}, {"memory_limit": "4GB"}])
def test_arguments_that_belong_to_a_local_cluster_only(settings):
    with (
        pytest.raises(ClusterError, match="for a local cluster only"),
        connected("tcp://127.0.0.1:1", **settings),
    ):
        raise AssertionError


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingDependencyError, match=r'pip install "dualqml\[dask\]"'),
        connected("local"),
    ):
        raise AssertionError


def test_a_ctrl_c_that_python_cannot_raise_is_not_lost(address):
    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt

    before = sys.unraisablehook

    def wait():
        with connected(address):
            Interrupted()
            threading.Event().wait(LONG)

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert sys.unraisablehook is before


@posix
@pytest.mark.parametrize("ending", [ZeroDivisionError, KeyboardInterrupt])
def test_nothing_is_left_of_a_cluster(ending, tmp_path, monkeypatch):
    pipe, scratch = tmp_path / "pipe", tmp_path / "scratch"
    os.mkfifo(pipe)
    scratch.mkdir()
    names = ["distributed", "distributed.scheduler", "tornado", "asyncio"]
    loggers = [logging.getLogger(name) for name in names]
    monkeypatch.setattr(loggers[1], "level", logging.DEBUG)

    def surroundings():
        return (
            dict(os.environ),
            [logger.level for logger in loggers],
            sys.unraisablehook,
            signal.getsignal(signal.SIGINT),
            signal.pthread_sigmask(signal.SIG_BLOCK, []),
            set(multiprocessing.active_children()),
            list(scratch.iterdir()),
            dask.config.get("distributed.worker.memory.spill"),
        )

    before = surroundings()
    settings = {"workers": 1, "memory_limit": 0, "scratch": scratch}

    def fail():
        with connected("local", **settings) as client:
            assert loggers[1].level == logging.CRITICAL
            assert any(scratch.rglob("*"))
            client.submit(work.run_for_ever, str(pipe))
            alive = pipe.open("rb")
            opened.append(alive)
            assert alive.read(1) == b"!"
            raise ZeroDivisionError

    end = cluster._end

    def press_and_end(*arguments):
        signal.raise_signal(signal.SIGINT)
        end(*arguments)

    if ending is KeyboardInterrupt:
        # A Ctrl-C while the cluster ends must wait.
        monkeypatch.setattr(cluster, "_end", press_and_end)
    opened = []
    with pytest.raises(ending):
        fail()
    with opened[0] as alive:
        # It ends when the process does.
        assert alive.read() == b""
    assert surroundings() == before


@pytest.mark.parametrize("where", ["shared", "item"])
def test_large_data_are_sent_in_silence(address, recwarn, where):
    large, small = bytes(12_000_000), b"small"
    shared, item = (large, small) if where == "shared" else (small, large)
    with connected(address) as client:
        ((_, found),) = run_tasks(client, shared, work.length, [item], lambda _: "all")
    assert found == len(large) + len(small)
    assert [str(warning.message) for warning in recwarn] == []


def test_a_task_over_the_memory_limit_is_named():
    finished = []

    def run():
        # One death is enough for this test.
        once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
        with once, connected("local", workers=1, memory_limit="600MB") as client:
            parts = [1, 800], "part {}".format
            for pair in run_tasks(client, None, work.take_memory, *parts):
                finished.append(pair)

    with pytest.raises(RunError, match="again and again while they ran part 800"):
        run()
    assert finished == [(1, 1)]


def test_workers_that_die_before_they_begin(tmp_path):
    # A worker imports the program that has started it.
    text = """
        import sys
        from dualqml.exceptions import RunError
        from dualqml.scale import connected
        from dualqml.scale.tasks import run_tasks
        from tests.scale import work

        ballast = bytearray(b"!") * 600_000_000

        if __name__ == "__main__":
            with connected("local", workers=1, memory_limit="400MB") as client:
                try:
                    list(run_tasks(client, None, work.take_memory, [800], str))
                except RunError as error:
                    sys.exit(str(error))
        """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(text))
    found = subprocess.run(
        [sys.executable, file],
        env=with_tests_on_path(),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert found.returncode == 1
    assert "Give each worker more memory" in found.stderr
