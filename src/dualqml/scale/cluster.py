# SPDX-License-Identifier: BSD-3-Clause
"""A Dask cluster: started here, or reached where it runs; and what its tasks do first.

This module can be imported without Dask.
"""

import _thread
import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import resource_tracker
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from dualqml._text import counted, first_few, printable, read_json
from dualqml.exceptions import ClusterError, MissingDependencyError
from dualqml.experiments.runner import interrupts_held, versions

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

#: The place that means a cluster of processes of this machine.
LOCAL = "local"
#: Seconds in which a scheduler must answer, and a cluster of ours must end; and before
#: a Ctrl-C is repeated.
_ANSWER, _END, _MOMENT = 10.0, 10.0, 0.01
#: A worker has about this many bytes before it works.
_LEAST_MEMORY = 200_000_000
#: Numbers of glibc's parameters, and their values in bytes: blocks up to the first
#: are kept and used again, and free memory up to the second is not given back.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 << 20), (-1, 256 << 20)
#: Loggers that would print to the terminal.
_LOGGERS = ("distributed", "tornado", "asyncio")
#: How a cluster of ours differs from Dask's defaults.
_SETTINGS = {
    # Results are small. A worker that writes them to the disk would use pickle, and
    # one that pauses when memory is short may never go on.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # Nobody looks at the profiles, which take CPU time.
    "distributed.worker.profile.enabled": False,
    # Fifty looks at the clock a second, in every process, take CPU time too.
    "distributed.admin.tick.interval": "500ms",
    # Copies of what all tasks share are not wasted memory.
    "distributed.scheduler.active-memory-manager.start": False,
}
#: A worker that dies is started again by the process that watches it. Without this, its
#: place in the cluster would be lost if it dies again within fifteen seconds.
_PATIENCE = {"distributed.deploy.lost-worker-timeout": "7 days"}
#: What Dask calls the processes of workers.
_PROCESS_NAME = "Dask Worker process"


@contextmanager
def connected(
    place: str | os.PathLike[str],
    *,
    workers: int | None = None,
    memory_limit: str | int | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Iterator["Client"]:
    """Start a Dask cluster, or reach one, for the time of a block.

    At the end of the block, however it ends, the processes of a cluster that was
    started here are gone. A cluster that was started elsewhere stays. In the block,
    Dask's logs are silent, and Ctrl-C reaches this process only.

    Parameters
    ----------
    place : str or path
        "local" starts worker processes on this machine, with one thread each.
        "tcp://host:port" or "tls://host:port" is the address of a scheduler.
        Anything else is the file that a scheduler has written (scheduler.json).
    workers : int, optional
        Number of processes of "local"; by default, one for each CPU that this
        process may use.
    memory_limit : str or int, optional
        Most memory of each process of "local", as Dask takes it: "4GB", a number of
        bytes, or 0 for no limit. By default, the processes share the memory of the
        machine. A process that takes more is killed.
    scratch : path, optional
        Folder for temporary files of the processes of "local"; by default, that of
        the system.

    Yields
    ------
    distributed.Client
        The connection.

    Raises
    ------
    ClusterError
        The cluster cannot be started or reached, its workers have other versions of
        Python or of the packages on which the numbers depend, or an argument belongs
        to "local" only.
    MissingDependencyError
        Dask is not installed.

    Notes
    -----
    As always where Python starts processes, a program that gives "local" does its work
    below the line ``if __name__ == "__main__":``.

    Examples
    --------
    >>> from dualqml.scale import connected
    >>> with connected("local", workers=1, memory_limit="2GB") as client:
    ...     client.submit(sum, [1, 2, 3]).result()
    6
    """
    _check_installed()
    with _quiet(), _no_interrupt_lost():
        if place == LOCAL:
            with _local_client(workers, memory_limit, scratch) as client:
                yield client
            return
        if workers is not None or memory_limit is not None:
            raise ClusterError(
                "A number of workers and a memory limit can be given for a local "
                f"cluster only. Those of {_shown(place)} were chosen where it was "
                "started."
            )
        with _remote_client(place) as client:
            yield client


def check_connection(client: Any) -> None:
    """Raise if what is given as a client is not a connection to a cluster.

    Parameters
    ----------
    client : distributed.Client or None
        What is given. None means no cluster.

    Raises
    ------
    ClusterError
        It is something else, such as an address.

    Examples
    --------
    >>> from dualqml.scale.cluster import check_connection
    >>> check_connection("tcp://10.0.0.1:8786")
    Traceback (most recent call last):
    dualqml.exceptions.ClusterError: client must be a connection, as `connected` \
gives, not 'tcp://10.0.0.1:8786'
    """
    if client is not None and not hasattr(client, "submit"):
        raise ClusterError(
            "client must be a connection, as `connected` gives, not "
            f"{printable(repr(client), 200)}"
        )


def worker_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function fit to be a task: its worker gets ready before it is called.

    Parameters
    ----------
    function : callable
        What the task computes. It must be a function or a class of a module.

    Returns
    -------
    callable
        Calls `prepare_process`, then the function with the same arguments. Raises
        `ClusterError` on a worker that has other versions than this process, such as
        one that has joined the cluster late.

    Examples
    --------
    >>> from dualqml.scale.cluster import worker_task
    >>> worker_task(sum)([1, 2, 3])
    6
    """
    return partial(_run_task, function, versions())


@cache
def prepare_process() -> None:
    """Make this process compute like any other worker, and as fast.

    BLAS gets one thread for good, because the numbers must not depend on how many
    CPUs a worker has. Memory that was freed is used again: Dask makes glibc give
    every large array back to the system, and the solver, which makes many, then
    takes 1.7 times the CPU time. Only the first call does anything.
    """
    threadpool_limits(1, user_api="blas")
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    # Other libraries, such as musl, have no such parameters.
    if hasattr(library, "gnu_get_libc_version"):
        for parameter, value in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            library.mallopt(parameter, value)


def _run_task(
    function: Callable[..., Any],
    expected: dict[str, str],
    *arguments: Any,
    **settings: Any,
) -> Any:
    prepare_process()
    if differing := _differences(expected, versions()):
        raise ClusterError(
            f"The worker in process {os.getpid()} has {differing}. Results must not "
            "depend on where they are computed: install the same versions."
        )
    return function(*arguments, **settings)


def _differences(expected: dict[str, str], found: dict[str, str]) -> str:
    """Name the versions that differ; of Python, only the first two numbers count."""

    def important(name: str, text: str) -> str:
        return text.rpartition(".")[0] if name == "python" else text

    return ", ".join(
        f"{name} {printable(has, 40)} instead of {wanted}"
        for name, wanted in expected.items()
        # Another version of this package may not tell of the same packages.
        if important(name, has := found.get(name, "(missing)"))
        != important(name, wanted)
    )


def _check_installed() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'A cluster needs Dask ({error.name}): pip install "dualqml[dask]"'
        ) from error


@contextmanager
def _local_client(
    workers: int | None,
    memory_limit: str | int | None,
    scratch: str | os.PathLike[str] | None,
) -> Iterator["Client"]:
    """Start processes, and end them."""
    import dask
    from dask.system import cpu_count
    from distributed import Client, LocalCluster

    n_workers = cpu_count() if workers is None else workers
    if n_workers < 1:
        raise ClusterError(f"The number of workers must be at least 1, got {workers}")
    limit = "auto" if memory_limit is None else _memory_limit(memory_limit)
    if scratch is not None and not Path(scratch).is_dir():
        raise ClusterError(f"There is no folder {_shown(scratch)} for temporary files")
    others = set(multiprocessing.active_children())
    environment = dict(os.environ)
    cluster = client = None
    with tempfile.TemporaryDirectory(
        prefix="dualqml-workers-", dir=scratch, ignore_cleanup_errors=True
    ) as folder:
        try:
            if os.name == "posix":
                # This helper of Python unblocks Ctrl-C in the thread that starts it.
                resource_tracker.ensure_running()
            with interrupts_held(), dask.config.set(_SETTINGS):
                try:
                    cluster = LocalCluster(
                        n_workers=n_workers,
                        threads_per_worker=1,
                        memory_limit=limit,
                        # Any free port: others may have a cluster too.
                        dashboard_address=":0",
                        local_directory=folder,
                        # Workers that are started later must have them too.
                        config=_SETTINGS,
                        silence_logs=logging.CRITICAL,
                    )
                    client = Client(cluster, set_as_default=False)
                except (OSError, RuntimeError) as error:
                    reason = printable(str(error), 200) or type(error).__name__
                    raise ClusterError(
                        f"No cluster of {counted(n_workers, 'worker')} can be started "
                        f"on this machine: {reason}"
                    ) from error
            with dask.config.set(_PATIENCE):
                yield client
        finally:
            # A second Ctrl-C must not leave processes behind.
            with interrupts_held():
                _end(client, cluster, others)
                # Dask sets variables for the processes that it starts, and in ours too.
                for name in set(os.environ) - set(environment):
                    del os.environ[name]
                os.environ.update(environment)


def _memory_limit(limit: str | int) -> int:
    """A number of bytes; zero if there is no limit."""
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(limit))
    except (ValueError, OverflowError):
        size = -1
    if size < _LEAST_MEMORY and str(limit).strip() != "0":
        raise ClusterError(
            f"The memory limit {limit!r} cannot be used: write 4GB, 500MiB or a number "
            f"of bytes, at least {_LEAST_MEMORY:,}, or 0 for no limit"
        )
    return size


def _end(
    client: "Client | None",
    cluster: "LocalCluster | None",
    others: "set[multiprocessing.process.BaseProcess]",
) -> None:
    """End a cluster of ours, and all its processes, whatever they are doing."""

    def kill_workers() -> None:
        for process in set(multiprocessing.active_children()) - others:
            if process.name.startswith(_PROCESS_NAME):
                process.kill()

    async def leave_dead() -> None:
        assert cluster is not None
        for nanny in cluster.workers.values():
            nanny.close_gracefully()

    # What Dask says here is of no use: the processes are gone anyway.
    with suppress(Exception):
        if client is not None:
            client.close(timeout=_END)
    with suppress(Exception):
        if cluster is not None:
            # Dask would wait for tasks that run, which may take hours.
            cluster.sync(leave_dead, callback_timeout=_END)
            kill_workers()
            cluster.close(timeout=_END)
    kill_workers()


@contextmanager
def _remote_client(place: str | os.PathLike[str]) -> Iterator["Client"]:
    """Connect to a scheduler that runs."""
    from distributed import Client

    text = os.fspath(place)
    address = text if "://" in text else _address_in(Path(place))
    try:
        _ask(address)
        client = Client(address, timeout=_ANSWER, set_as_default=False, name="dualqml")
    except OSError as error:
        raise ClusterError(
            f"No scheduler answers at {_shown(address)} within {_ANSWER:g} seconds. "
            "Is it running, and is this its address?"
        ) from error
    # Whatever is there, it does not speak as a scheduler does.
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}", 200)
        raise ClusterError(
            f"{_shown(address)} is no address of a scheduler that can be reached: "
            f"{reason}"
        ) from error
    try:
        _check_workers(client)
        yield client
    finally:
        # The scheduler may be gone.
        with interrupts_held(), suppress(Exception):
            client.close(timeout=_ANSWER)


def _ask(address: str) -> None:
    """Raise if nothing at an address greets as Dask does.

    Dask's client would wait for ever for something that listens and says nothing.
    """
    from distributed.comm import connect
    from distributed.security import Security

    async def greet() -> None:
        secrets = Security().get_connection_args("client")
        greeting = connect(address, timeout=_ANSWER, **secrets)
        comm = await asyncio.wait_for(greeting, _ANSWER)
        await comm.close()

    # This thread may have an event loop already, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, greet()).result()


def _address_in(path: Path) -> str:
    """Read the file of a scheduler."""
    what = (
        f"{_shown(path)} is no file of a scheduler. Give the file that dask scheduler "
        "--scheduler-file has written, an address such as tcp://host:8786, or local"
    )
    try:
        found = read_json(path.read_bytes())
    except OSError as error:
        raise ClusterError(f"{what} ({error.strerror})") from error
    except ValueError as error:
        raise ClusterError(f"{what} (it is not JSON)") from error
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str) or "://" not in address:
        raise ClusterError(f"{what} (it has no address)")
    return address


def _check_workers(client: "Client") -> None:
    """Raise if workers have other versions than this process."""
    expected = versions()
    # The workers may not have dualqml: only functions of Python are sent to them.
    questions = {name: partial(version, name) for name in expected}
    questions["python"] = partial(python_version)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, question in questions.items():
        for address, answer in client.run(question, on_error="return").items():
            missing = isinstance(answer, PackageNotFoundError)
            found[address][name] = "(missing)" if missing else str(answer)
    if not found:
        warnings.warn(
            "The cluster has no workers yet; the work waits for them", stacklevel=2
        )
    wrong = [
        f"{address} has {text}"
        for address, names in sorted(found.items())
        # A worker may have come or gone between two questions.
        if (text := _differences(expected, expected | names))
    ]
    if wrong:
        raise ClusterError(
            f"{counted(len(wrong), 'worker')} of the cluster cannot be used: "
            f"{first_few(wrong, '; ')}. Results must not depend on where they are "
            "computed: install the same versions."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's logs."""
    # A logger with a level of its own does not heed that of the one above.
    known = logging.root.manager.loggerDict
    below = {name for name in known if name.partition(".")[0] in _LOGGERS}
    loggers = [logging.getLogger(name) for name in {*_LOGGERS, *below}]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _no_interrupt_lost() -> Iterator[None]:
    """Raise a Ctrl-C again that Python could not raise.

    Python only reports errors in callbacks of the garbage collection. Dask has many,
    and a command that ended there would leave files behind.
    """
    report = sys.unraisablehook

    def repeat(lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_type is KeyboardInterrupt:
            # From another thread, and later: here it would be lost again.
            threading.Timer(_MOMENT, _interrupt_main).start()
        else:
            report(lost)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = report


def _interrupt_main() -> None:
    """Interrupt the main thread, even while it waits for another."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _shown(place: str | os.PathLike[str]) -> str:
    return printable(os.fspath(place), 200)
