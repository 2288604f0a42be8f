"""``dualqml serve`` as users start it: a process of its own, which can be killed."""

import os
import re
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.service.postgresql import free_port

#: Seconds until a service must be ready. Machines are slow at times.
PATIENCE = 90.0
#: Tests that wait for something ask as often as the machine can.
NO_LIMIT = ("--requests-per-second", "100000")


class ServiceProcess:
    """A service in a folder; it can be started again in the same folder.

    Its output is in ``log``, which is not part of the folder.
    """

    def __init__(self, folder, *options, certificate=None):
        self.data = Path(folder, "data")
        self.log = Path(folder, "log.txt")
        self.options = options
        self.certificate = certificate
        self.key = None
        self.process = None

    def start(self):
        """Start it, and wait until it is ready; return the seconds."""
        begin = time.monotonic()
        self.port = free_port()
        scheme = "http" if self.certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        place = ["--data", str(self.data), "--port", str(self.port), *NO_LIMIT]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dualqml", "serve", *place, *self.options],
                stdout=log,
                stderr=log,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        self._wait(begin + PATIENCE)
        found = re.search(r"dualqml_[\w-]{40,}", self.log.read_text())
        self.key = self.key or found.group()
        return time.monotonic() - begin

    def _wait(self, end):
        with self.client(key="none") as client:
            self._ask(client, end)

    def _ask(self, client, end):
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if client.get("/readyz").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def client(self, key=None, **options):
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=PATIENCE,
            verify=self._trust(),
            **options,
        )

    def _trust(self):
        if self.certificate is None:
            return True
        return ssl.create_default_context(cafile=self.certificate)

    def kill(self):
        """Kill the first process, as the system does when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Stop it as a system does; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def files(self):
        """The content of all files that the service has written, and its log."""
        found = {"log": self.log.read_bytes()}
        for path in self.data.rglob("*"):
            try:
                if path.is_file():
                    found[str(path)] = path.read_bytes()
            except FileNotFoundError:
                # It was replaced by a newer one.
                continue
        return found
