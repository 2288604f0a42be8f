"""A real PostgreSQL server on loopback, for the time of a test run."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path


def find_programs():
    """Folder of the newest server programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    program = shutil.which("initdb")
    return None if program is None else Path(program).parent


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextmanager
def running():
    """Start a server with an empty cluster; yield the URL of its database."""
    programs = find_programs()
    with tempfile.TemporaryDirectory(prefix="dualqml-pg-") as folder:
        # The server refuses to run as root.
        become = []
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
            become = ["runuser", "-u", "postgres", "--"]
        data, port = str(Path(folder, "data")), free_port()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(
            [*become, programs / "initdb", "-D", data, "-U", "dualqml", "-A", "trust"],
            check=True,
            **quiet,
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -F"
        control = [*become, programs / "pg_ctl", "-D", data]
        subprocess.run(
            [*control, "-w", "-o", options, "-l", f"{folder}/log", "start"],
            check=True,
            **quiet,
        )
        try:
            yield f"postgresql://dualqml@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)
