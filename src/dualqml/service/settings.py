# SPDX-License-Identifier: BSD-3-Clause
"""What the operator of a service decides: where it keeps data, and its limits."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

#: Name of the variable with which the server hands its settings to its processes.
ENVIRONMENT = "DUALQML_SERVICE"
#: Name of the variable with the folder in which processes share their metrics. It must
#: be set before the package of Prometheus is imported.
METRICS = "PROMETHEUS_MULTIPROC_DIR"
#: Where an address is that no other machine can reach.
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True)
class Settings:
    """The settings of a service.

    Attributes
    ----------
    data : str
        Folder of the database and of the models.
    database_url : str or None
        URL of a PostgreSQL database. None means SQLite in the folder.
    host, port : str, int
        Where it listens.
    workers : int
        Number of processes that answer requests.
    tls_cert, tls_key : str or None
        Files of the certificate and of its key.
    max_body_bytes, max_file_bytes : int
        Largest size of a request, and of one file in it.
    max_files : int
        Most files, or samples, in one request.
    max_pixels : int
        Most pixels of an image.
    body_seconds : float
        Longest time in which a request must have arrived.
    decode_seconds : float
        Longest time for the faces of one photograph.
    decoders : int
        Number of processes that decode images, for each worker.
    requests_per_second : float
        Most requests of one key, on average.
    max_galleries : int
        Most galleries.
    max_waiting_seconds : float
        Longest time that a request waits for a model.
    quiet_seconds : float
        Time without changes after which a measured threshold is measured again.
    session_hours : float
        Time after which the page asks for the key again.

    Examples
    --------
    >>> from dualqml.service.settings import Settings
    >>> Settings("people").database()
    'sqlite:///people/dualqml.sqlite'
    """

    data: str
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8420
    workers: int = 1
    tls_cert: str | None = None
    tls_key: str | None = None
    max_body_bytes: int = 64_000_000
    max_file_bytes: int = 16_000_000
    max_files: int = 200
    max_pixels: int = 25_000_000
    body_seconds: float = 30.0
    decode_seconds: float = 20.0
    decoders: int = 2
    requests_per_second: float = 200.0
    max_galleries: int = 100
    max_waiting_seconds: float = 60.0
    quiet_seconds: float = 2.0
    session_hours: float = 12.0

    def database(self) -> str:
        """The URL of the database.

        Returns
        -------
        str
            As SQLAlchemy takes it.
        """
        if self.database_url is None:
            return f"sqlite:///{Path(self.data, 'dualqml.sqlite').as_posix()}"
        # Drivers have names in SQLAlchemy's URLs; people write the plain ones.
        for plain in ("postgresql://", "postgres://"):
            if self.database_url.startswith(plain):
                return f"postgresql+psycopg://{self.database_url[len(plain) :]}"
        return self.database_url

    @property
    def models(self) -> Path:
        """Folder of the models."""
        return Path(self.data, "models")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def uses_tls(self) -> bool:
        """Whether it speaks HTTPS."""
        return self.tls_cert is not None

    def to_environment(self) -> None:
        """Hand the settings to the processes that this one starts."""
        os.environ[ENVIRONMENT] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        """The settings that the server has handed to this process.

        Returns
        -------
        Settings
            The settings.
        """
        given = json.loads(os.environ[ENVIRONMENT])
        return cls(**{field.name: given[field.name] for field in fields(cls)})
