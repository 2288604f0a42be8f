# SPDX-License-Identifier: BSD-3-Clause
"""Structured logs: one line of JSON for each event, without anything of people.

Requests are logged by the pattern of their address, not by the address itself, which
may have a name in it.
"""

import logging
import sys
from typing import Any

import structlog


def set_up_logs(*, quiet: bool = False) -> None:
    """Write logs to the standard error stream.

    Parameters
    ----------
    quiet : bool, default=False
        Whether only warnings and errors are written.
    """
    level = logging.WARNING if quiet else logging.INFO
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    # The server's own lines of requests would show addresses.
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("alembic").setLevel(logging.WARNING)


def logger() -> Any:
    """The logger of the service."""
    return structlog.get_logger("dualqml.service")
