# SPDX-License-Identifier: BSD-3-Clause
"""Start and stop a service: its folder, its processes, and its first key.

A service is one command with several processes: those that answer requests, one that
builds models, and those that decode images. All end with the first. When it is killed,
the others notice it and end too.

Libraries take seconds to import. So the process that builds models is started first,
and imports its own while this one imports the others.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dualqml._files import lock
from dualqml.exceptions import FileError
from dualqml.service.settings import METRICS, Settings

if TYPE_CHECKING:
    from dualqml.service.database import Database

#: Seconds in which requests are finished when the service stops, and for which a
#: start waits for an earlier service that is ending.
_STOP, _PATIENCE = 20, 10.0
#: Name of the variable with the id of the first process.
_FIRST = "DUALQML_SERVICE_PROCESS"
#: Seconds between two looks whether the first process is alive.
_PAUSE = 0.5


def serve(
    settings: Settings,
    say: Callable[[str], None],
    *,
    quiet: bool = False,
    another_key: bool = False,
) -> None:
    """Run a service until it is stopped.

    Parameters
    ----------
    settings : Settings
        The settings.
    say : callable
        Shows a line to the operator.
    quiet : bool, default=False
        Whether only warnings and errors are logged.
    another_key : bool, default=False
        Whether to make a key that can do everything, because the first was lost.

    Raises
    ------
    FileError
        The folder cannot be used, or another service has it.
    DatabaseUnavailableError
        The database cannot be used.
    """
    with _own_folder(settings):
        metrics = Path(settings.data, "metrics")
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir(mode=0o700)
        os.environ[METRICS] = str(metrics)
        settings.to_environment()
        os.environ[_FIRST] = str(os.getpid())
        with _worker_process(quiet=quiet) as begin:
            _prepare(settings, say, quiet=quiet, another_key=another_key)
            begin()
            scheme = "https" if settings.uses_tls else "http"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            say(f"The page and the API are at {scheme}://{host}:{settings.port}/")
            _answer_requests(settings)


def _prepare(
    settings: Settings, say: Callable[[str], None], *, quiet: bool, another_key: bool
) -> None:
    """Bring the database up to date, and make the first key."""
    from dualqml.service.database import Database
    from dualqml.service.logs import set_up_logs

    set_up_logs(quiet=quiet)
    database = Database(settings.database())
    database.migrate()
    _first_key(database, say, another_key=another_key)
    database.close()
    _warn(settings, say)


def _answer_requests(settings: Settings) -> None:
    import uvicorn

    uvicorn.run(
        "dualqml.service.server:request_process",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers if settings.workers > 1 else None,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_STOP,
        timeout_keep_alive=75,
        # No header of a proxy is trusted.
        proxy_headers=False,
        # Uvicorn would set up logs that show addresses.
        log_config=None,
    )


def request_process() -> object:
    """The application of one process, which ends when the first process has ended.

    Returns
    -------
    FastAPI
        The application.
    """
    from dualqml.service.app import from_environment
    from dualqml.service.logs import set_up_logs

    set_up_logs(quiet=bool(os.environ.get("DUALQML_SERVICE_QUIET")))
    settings = Settings.from_environment()
    if settings.workers > 1:
        end_with(int(os.environ[_FIRST]))
    return from_environment()


def end_with(parent: int) -> None:
    """End this process when another one is not, or no longer, its parent.

    Parameters
    ----------
    parent : int
        Id of the process. It may have ended before this call.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PAUSE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _own_folder(settings: Settings) -> Iterator[None]:
    """Make the folder of a service, for its owner only, and lock it."""
    folder = Path(settings.data)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.models.mkdir(exist_ok=True, mode=0o700)
        # New files, such as the database, are for the owner only.
        os.umask(0o077)
        file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                lock(file, wait=False)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise FileError(
                        f"Another service uses {folder}: stop it, or give another "
                        "folder with --data"
                    ) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(file)


@contextmanager
def _worker_process(*, quiet: bool) -> Iterator[Callable[[], None]]:
    """The process that builds models, started again if it dies.

    It waits until the function is called that this context gives.
    """
    stopping, begun = threading.Event(), threading.Event()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dualqml.service.worker"]
            + (["--quiet"] if quiet else []),
            # It ends when this pipe does: when this process has ended, however.
            stdin=subprocess.PIPE,
            # Ctrl-C is for this process, which tells the others.
            start_new_session=True,
        )

    process = start()

    def tell(word: bytes) -> None:
        assert process.stdin is not None
        # If it has just died, the next one is told.
        with suppress(OSError):
            process.stdin.write(word)
            process.stdin.flush()

    def begin() -> None:
        begun.set()
        tell(b"begin")

    def watch() -> None:
        nonlocal process
        while not stopping.wait(_PAUSE):
            if process.poll() is not None:
                process = start()
                if begun.is_set():
                    tell(b"begin")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield begin
    finally:
        stopping.set()
        watcher.join()
        tell(b"stop")
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_key(
    database: "Database", say: Callable[[str], None], *, another_key: bool
) -> None:
    from sqlalchemy import select

    from dualqml.service.audit import record
    from dualqml.service.security import new_key
    from dualqml.service.tables import keys

    with database.write() as connection:
        known = connection.execute(select(keys.c.id).limit(1)).first()
        if known is not None and not another_key:
            return
        key_id, key = new_key(connection, label="first key", scopes=["admin"])
        record(database, connection, "service", "key.create", target_id=key_id)
    say("Your key, which can do everything, is shown this once. Keep it safe:")
    say("")
    say(f"    {key}")
    say("")


def _warn(settings: Settings, say: Callable[[str], None]) -> None:
    if not settings.is_local and not settings.uses_tls:
        say(
            f"Warning: {settings.host} can be reached from other machines, and without "
            "TLS everybody on the way can read keys and photographs. Give --tls-cert "
            "and --tls-key, or put a proxy with TLS before it."
        )
    if settings.tls_key is not None:
        with suppress(OSError):
            if os.stat(settings.tls_key).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                say(f"Warning: others can read {settings.tls_key}.")
