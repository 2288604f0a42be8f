"""A service in this process, on a real socket, whose parts a test can look into."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import uvicorn

from dualqml.service.app import create_app
from dualqml.service.context import Context
from dualqml.service.security import new_key
from tests.service.postgresql import free_port

#: Seconds until an answer must be there. Machines are slow at times.
PATIENCE = 90.0


@dataclass(frozen=True)
class LiveService:
    """A running service, and a key that can do everything."""

    app: object
    url: str
    key: str

    @property
    def context(self) -> Context:
        return self.app.state.context

    def client(self, key=None, **options):
        headers = {"x-api-key": key or self.key}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE, **options
        )


class _Server(uvicorn.Server):
    """A server that says when it has started."""

    def __init__(self, config):
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def running(settings):
    """Run a service with some settings; it builds its models itself."""
    app = create_app(settings, own_worker=True)
    port = free_port()
    server = _Server(
        uvicorn.Config(app, port=port, access_log=False, log_config=None, lifespan="on")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.ready.wait(PATIENCE)
    try:
        with app.state.context.database.write() as connection:
            _, key = new_key(connection, label="first key", scopes=["admin"])
        yield LiveService(app, f"http://127.0.0.1:{port}", key)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
