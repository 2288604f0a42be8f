# SPDX-License-Identifier: BSD-3-Clause
"""Around every request: its size and time, headers of security, logs and numbers."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fastapi import HTTPException, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dualqml.service.logs import logger
from dualqml.service.metrics import REQUESTS, SECONDS
from dualqml.service.settings import Settings

#: Headers of every answer. The page has no script, style or picture of another host.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' blob: data:; connect-src 'self'; media-src 'self' blob:; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Limit requests, add headers to answers, and note both.

    Parameters
    ----------
    app : ASGI application
        The service.
    settings : Settings
        The limits.
    failed : callable
        The answer to a request that has met an error nobody expected.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        failed: Callable[[Request, Exception], Response],
    ) -> None:
        self._app = app
        self._settings = settings
        self._failed = failed
        headers = dict(_HEADERS)
        if settings.uses_tls:
            headers["strict-transport-security"] = "max-age=31536000"
        self._headers = [(k.encode(), v.encode()) for k, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, answered = time.perf_counter(), 500, False
        body = _Body(receive, scope, self._settings)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], True
                known = {name.lower() for name, _ in message["headers"]}
                new = [pair for pair in self._headers if pair[0] not in known]
                message["headers"] = [*message["headers"], *new]
            await send(message)

        try:
            await self._app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            # Nobody is there to be answered.
            status = 400
        except Exception as error:
            if answered:
                # The server cuts the answer off, and logs why. The error itself could
                # have something of a person in it.
                raise ConnectionAbortedError("an answer was not completed") from None
            answer = self._failed(Request(scope), error)
            await answer(scope, receive, send_with_headers)
        finally:
            self._note(scope, status, time.perf_counter() - begin)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        # The pattern of the address: the address itself may have a name in it.
        route = getattr(scope.get("route"), "path", "other")
        REQUESTS.labels(route, scope["method"], str(status)).inc()
        SECONDS.labels(route).observe(seconds)
        logger().info(
            "request",
            route=route,
            method=scope["method"],
            status=status,
            seconds=round(seconds, 4),
        )


class _Body:
    """The body of a request, which must not be too large nor come too slowly."""

    def __init__(self, receive: Receive, scope: Scope, settings: Settings) -> None:
        self._receive = receive
        self._left = settings.max_body_bytes
        self._seconds = settings.body_seconds
        self._end = time.monotonic() + settings.body_seconds
        self._done = False
        sizes = [v for k, v in scope["headers"] if k == b"content-length"]
        self._too_large = any(
            size.isdigit() and int(size) > settings.max_body_bytes for size in sizes
        )
        self._most = settings.max_body_bytes

    async def receive(self) -> Message:
        if self._done:
            return await self._receive()
        if self._too_large:
            self._refuse()
        left = self._end - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except TimeoutError:
            raise HTTPException(
                408, f"The request did not arrive within {self._seconds:g} s."
            ) from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self._refuse()
            self._done = not message.get("more_body", False)
        return message

    def _refuse(self) -> Any:
        self._done = True
        raise HTTPException(413, f"A request may have {self._most} bytes.")
