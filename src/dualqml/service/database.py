# SPDX-License-Identifier: BSD-3-Clause
"""The database: SQLite in a folder, or PostgreSQL by a URL.

Changes happen in `Database.write`, one at a time for each gallery, and are on the disk
when it ends. `Database.scrub` removes what a database engine keeps of deleted rows.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dualqml.exceptions import DualQMLError, MissingDependencyError

#: How long a change waits for another one, in milliseconds.
_BUSY = 20_000
#: How often, and how long apart, the log of SQLite is tried to be emptied.
_TRIES, _PAUSE = 400, 0.01
#: Most things that are kept of what was read.
_MOST_KEPT = 10_000
#: A number of ours for PostgreSQL's lock of the audit and of migrations.
_ADVISORY_LOCK = 7_305_118


_Value = TypeVar("_Value")


class DatabaseUnavailableError(DualQMLError, OSError):
    """The database of a service cannot be used."""


class Database:
    """The database of a service.

    Parameters
    ----------
    url : str
        As SQLAlchemy takes it.

    Raises
    ------
    DatabaseUnavailableError
        The URL is not one of SQLite or PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        try:
            self.name = make_url(url).get_backend_name()
            if self.name not in ("sqlite", "postgresql"):
                raise DatabaseUnavailableError(
                    f"The database must be SQLite or PostgreSQL, not {self.name}"
                )
            self.engine = create_engine(url, **_options(self.name))
        except ArgumentError as error:
            raise DatabaseUnavailableError(
                "The URL of the database cannot be read; it looks like "
                "postgresql://user:password@host/name"
            ) from error
        except ImportError as error:
            raise MissingDependencyError(
                "PostgreSQL needs optional packages: install dualqml[service]"
            ) from error
        self._watching: sqlite3.Connection | None = None
        self._watch_lock = threading.Lock()
        if self.name == "sqlite":
            _set_up_sqlite(self.engine)

    def version(self) -> int | None:
        """A number that changes with every change of the database by anybody.

        Returns
        -------
        int or None
            The number; None if the engine has none.
        """
        path = self.engine.url.database
        if self.name != "sqlite" or path is None:
            return None
        # This connection never writes, so that it notices all others.
        with self._watch_lock:
            if self._watching is None:
                self._watching = sqlite3.connect(
                    path, check_same_thread=False, isolation_level=None
                )
            found = self._watching.execute("PRAGMA data_version").fetchone()[0]
        return int(found)

    def migrate(self) -> None:
        """Make the tables, or bring them up to date.

        Raises
        ------
        DatabaseUnavailableError
            The database cannot be reached.
        """
        with as_file(files("dualqml.service") / "_migrations") as folder:
            config = Config()
            config.set_main_option("script_location", str(folder))
            try:
                with self.write() as connection:
                    self.lock_audit(connection)
                    config.attributes["connection"] = connection
                    command.upgrade(config, "head")
            except SQLAlchemyError as error:
                # The message of the driver could show the password of the URL.
                raise DatabaseUnavailableError(
                    f"The database cannot be used: {type(error).__name__}. Is it "
                    "running, and are its name and password right?"
                ) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database.

        Yields
        ------
        Connection
            The connection.
        """
        with self.engine.connect() as connection:
            if self.name == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ"
                )
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection whose changes are all made, or none.

        Yields
        ------
        Connection
            The connection.
        """
        with self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def lock_audit(self, connection: Connection) -> None:
        """Let one transaction at a time append to the audit, until it ends."""
        if self.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))

    def scrub(self) -> dict[str, Any]:
        """Remove what the engine keeps of deleted rows.

        SQLite overwrites deleted rows at once (``secure_delete``). Its log still has
        them, and is emptied here. PostgreSQL gives their space to new rows. It is
        overwritten only then, and PostgreSQL's own log keeps them for a while.

        Returns
        -------
        dict
            What was done, for the receipt.

        Raises
        ------
        DatabaseUnavailableError
            The log of SQLite is in use all the time.
        """
        with self.engine.connect() as connection:
            if self.name == "postgresql":
                outside = connection.execution_options(isolation_level="AUTOCOMMIT")
                outside.execute(text("VACUUM samples, strangers, subjects, clusters"))
                return {"engine": "postgresql", "vacuumed": True, "overwritten": False}
            raw = connection.connection.dbapi_connection
            assert raw is not None
            for _ in range(_TRIES):
                busy = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                if not busy:
                    return {
                        "engine": "sqlite",
                        "overwritten": True,
                        "log_emptied": True,
                    }
                time.sleep(_PAUSE)
        raise DatabaseUnavailableError("The log of the database is always in use")

    def close(self) -> None:
        """Close all connections."""
        with self._watch_lock:
            if self._watching is not None:
                self._watching.close()
                self._watching = None
        self.engine.dispose()


class ReadCache:
    """What was read from a database, as long as nothing in it has changed.

    Each request calls `refresh` first. What it gets then is not older than itself.

    Parameters
    ----------
    database : Database
        The database. If it cannot tell whether it has changed, `refresh` forgets all.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version: int | None = None
        self._values: dict[Any, Any] = {}

    def refresh(self) -> None:
        """Forget everything, if the database has changed."""
        version = self._database.version()
        if version is None or version != self._version or _is_full(self._values):
            # A new dictionary: another thread may be filling the old one.
            self._values = {}
            self._version = version

    def get(self, key: Any, read: Callable[[Connection], _Value]) -> _Value:
        """What a function reads.

        Parameters
        ----------
        key : hashable
            Names what is read.
        read : callable
            Reads it with a connection.

        Returns
        -------
        object
            What it has read, now or before.
        """
        values = self._values
        if key not in values:
            with self._database.read() as connection:
                values[key] = read(connection)
        kept: _Value = values[key]
        return kept


def _is_full(values: dict[Any, Any]) -> bool:
    return len(values) > _MOST_KEPT


def _options(name: str) -> dict[str, Any]:
    if name == "sqlite":
        return {"connect_args": {"timeout": _BUSY / 1000, "check_same_thread": False}}
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}


def _set_up_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connect(raw: Any, record: object) -> None:
        # SQLAlchemy, not the driver, begins transactions.
        raw.isolation_level = None
        for setting in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",
            "foreign_keys=ON",
            "temp_store=MEMORY",
            f"busy_timeout={_BUSY}",
        ):
            raw.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        # A change that starts as a reader could find that others were quicker.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
