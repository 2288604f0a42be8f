# SPDX-License-Identifier: BSD-3-Clause
"""Many tasks on a Dask cluster, or in order in this process.

A task whose worker dies is run again by another one.
"""

import queue
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dualqml._text import printable
from dualqml.exceptions import DualQMLError, RunError
from dualqml.scale.cluster import worker_task

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds between two looks whether the scheduler is still there.
_PAUSE = 1.0
#: Where Dask writes down which workers it ended because of their memory.
_OVER_LIMIT = "worker-restart-memory"
#: So many workers may die one after the other before any of them begins to work.
_MOST_DEATHS = 4

_GO_ON = "A run with a scratch folder or a store can be resumed where it stopped."
_MORE_MEMORY = f"Give each worker more memory. {_GO_ON}"


def run_tasks(
    client: "Client | None",
    shared: Any,
    function: Callable[[Any, Any], Any],
    items: Sequence[Any],
    in_words: Callable[[Any], str],
) -> Generator[tuple[Any, Any], None, None]:
    """Call a function of an object that all tasks share and of an item each.

    Parameters
    ----------
    client : distributed.Client or None
        The connection to a cluster. With None, the tasks run here, one after the other.
    shared : object
        The first argument of all tasks. It is sent once to each worker.
    function : callable
        A function of a module.
    items : sequence
        The second arguments.
    in_words : callable
        How errors name an item.

    Yields
    ------
    item : object
        One of the items.
    result : object
        What the function has returned for it, as soon as it is there. When the
        generator is closed, the tasks that have not begun are given up.

    Raises
    ------
    RunError
        The scheduler is gone, or workers died again and again in the same task, which
        is named, or before they could begin.
    DualQMLError
        A task has raised it. It names the task.

    Examples
    --------
    >>> from dualqml.scale.tasks import run_tasks
    >>> list(run_tasks(None, 2, pow, [3, 4], str))
    [(3, 8), (4, 16)]
    """
    if client is None:
        for item in items:
            yield item, function(shared, item)
        return
    yield from _run_on_cluster(client, shared, function, items, in_words)


def _run_on_cluster(
    client: "Client",
    shared: Any,
    function: Callable[[Any, Any], Any],
    items: Sequence[Any],
    in_words: Callable[[Any], str],
) -> Generator[tuple[Any, Any], None, None]:
    from distributed import KilledWorker

    if not items:
        return
    name = f"dualqml-{uuid4().hex[:8]}"
    with _scheduler_there(client), _large_graphs():
        sent = client.submit(worker_task(_same), shared, key=f"{name}-shared")
    task = worker_task(function)

    def submit(number: int, *items: Any) -> "list[Future]":
        # All at once, so that a cluster that can grow sees how much work there is.
        keys = [
            (f"{name}-{number}", index, in_words(item))
            for index, item in enumerate(items)
        ]
        with _scheduler_there(client), _large_graphs():
            return list(client.map(task, [sent] * len(items), items, key=keys))

    suspects = []
    with closing(_as_completed(client, submit(0, *items))) as completed:
        for index, future in completed:
            try:
                yield items[index], _result(client, future, in_words(items[index]))
            except KilledWorker as error:
                if error.task == sent.key:
                    what = in_words(items[index])
                    raise RunError(
                        f"Workers died again and again when they were to begin {what},"
                        f" perhaps because memory ran out. {_MORE_MEMORY}"
                    ) from error
                # Dask blames all tasks of the dead worker, also those that waited.
                suspects.append(items[index])
    for number, item in enumerate(suspects, start=1):
        with closing(_as_completed(client, submit(number, item))) as completed:
            for _, future in completed:
                try:
                    yield item, _result(client, future, in_words(item))
                except KilledWorker as error:
                    raise RunError(
                        f"Workers died again and again while they ran {in_words(item)},"
                        f" perhaps because memory ran out. {_MORE_MEMORY}"
                    ) from error


def _as_completed(
    client: "Client", futures: "Sequence[Future]"
) -> "Generator[tuple[int, Future], None, None]":
    """Give futures with their numbers as they are done; give up those left at the end.

    Dask's own function waits for ever if the scheduler says goodbye.
    """
    numbers = {future.key: number for number, future in enumerate(futures)}
    done: queue.SimpleQueue[Future] = queue.SimpleQueue()
    deaths = _DeathsAtStart(client)
    for future in futures:
        future.add_done_callback(done.put)
    try:
        while numbers:
            try:
                future = done.get(timeout=_PAUSE)
            except queue.Empty:
                if client.status != "running":
                    raise _gone() from None
                deaths.check()
                continue
            yield numbers.pop(future.key), future
            # The worker need not keep the result.
            future.release()
    finally:
        left = [future for future in futures if future.key in numbers]
        if left and client.status == "running":
            with suppress(Exception):
                client.cancel(left, force=True)


class _DeathsAtStart:
    """Workers that take more memory than their limit before they begin to work.

    Dask starts them again for ever, and blames no task.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._before: int | None = None

    def check(self) -> None:
        """Raise if workers only die; called while nothing is done."""
        try:
            if self._client.nthreads():
                self._before = None
                return
            ended = len(self._client.get_events(_OVER_LIMIT))
        except Exception:
            # The next look tells whether the scheduler is there.
            return
        if self._before is None:
            self._before = ended
        if ended - self._before >= _MOST_DEATHS:
            raise RunError(
                "Workers take more memory than their limit before they begin to work. "
                f"{_MORE_MEMORY}"
            )


def _result(client: "Client", future: "Future", what: str) -> Any:
    """Fetch what a task has returned."""
    from distributed import KilledWorker

    try:
        with _scheduler_there(client):
            return future.result()
    except (DualQMLError, KilledWorker):
        raise
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}", 300)
        raise RunError(f"A worker could not run {what}: {reason}") from error


@contextmanager
def _scheduler_there(client: "Client") -> Iterator[None]:
    """Raise one error for all that Dask raises without its scheduler."""
    try:
        yield
    except DualQMLError:
        raise
    except Exception as error:
        if client.status != "running" or isinstance(error, CancelledError):
            raise _gone() from error
        raise


@contextmanager
def _large_graphs() -> Iterator[None]:
    """Say nothing of large items.

    Dask asks to scatter them. But scattered data are lost with the worker that has
    them, and what a task returns is made again.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


def _gone() -> RunError:
    return RunError(
        "The scheduler of the cluster is gone, or has given up the work. Start the "
        f"cluster again. {_GO_ON}"
    )


def _same(shared: Any) -> Any:
    """What all tasks share. As the result of a task, it goes once to each worker."""
    return shared
