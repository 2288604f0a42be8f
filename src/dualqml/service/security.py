# SPDX-License-Identifier: BSD-3-Clause
"""Who may do what: keys with scopes, sessions of the page, and limits of requests.

A key is 32 random bytes. The database has its SHA-256 alone, so whoever reads the
database cannot use it. Random keys need no slow hash: nobody can guess them.
"""

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Request, Response
from sqlalchemy import Connection, delete, insert, select

from dualqml.service.database import Database, ReadCache
from dualqml.service.problems import Problem, not_found
from dualqml.service.settings import Settings
from dualqml.service.tables import galleries, keys, new_id, now, sessions

Scope = Literal["identify", "enrol", "admin"]
#: What each scope includes.
INCLUDED: dict[str, frozenset[str]] = {
    "identify": frozenset({"identify"}),
    "enrol": frozenset({"identify", "enrol"}),
    "admin": frozenset({"identify", "enrol", "admin"}),
}
COOKIE = "dualqml_session"
CSRF_HEADER = "x-csrf-token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: How a key begins, so that tools which look for leaked keys find it.
_PREFIX = "dualqml_"
#: Most keys whose requests are counted at a time.
_MOST_COUNTED = 10_000


@dataclass(frozen=True)
class Principal:
    """Who has sent a request.

    Attributes
    ----------
    key_id : str
        Id of the key.
    scopes : frozenset of str
        What the key may do, included scopes too.
    gallery_id : str or None
        The only gallery that it may see; None means all.
    """

    key_id: str
    scopes: frozenset[str]
    gallery_id: str | None

    def may_see(self, gallery_id: str) -> bool:
        """Whether the key may see a gallery."""
        return self.gallery_id is None or hmac.compare_digest(
            self.gallery_id.encode(), gallery_id.encode()
        )

    def need(self, scope: Scope) -> None:
        """Raise if the key does not have a scope."""
        if scope not in self.scopes:
            raise Problem("forbidden", f'This needs a key with the scope "{scope}".')

    def need_all_galleries(self) -> None:
        """Raise if the key is of one gallery."""
        if self.gallery_id is not None:
            raise Problem("forbidden", "This needs a key that is for all galleries.")


@dataclass(frozen=True)
class PageSession:
    """A person who uses the page.

    Attributes
    ----------
    principal : Principal
        The key that was typed.
    csrf : str
        What the page must send with every change.
    """

    principal: Principal
    csrf: str

    @property
    def scopes(self) -> frozenset[str]:
        """What the key may do."""
        return self.principal.scopes

    @property
    def gallery_id(self) -> str | None:
        """The only gallery that the key may see; None means all."""
        return self.principal.gallery_id


def new_key(
    connection: Connection,
    *,
    label: str,
    scopes: list[str],
    gallery_id: str | None = None,
    expires_at: str | None = None,
) -> tuple[str, str]:
    """Make a key.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    label : str
        What it is for.
    scopes : list of str
        What it may do.
    gallery_id : str, optional
        The only gallery that it may see.
    expires_at : str, optional
        When it ends.

    Returns
    -------
    tuple of str
        Its id, and the key itself, which is not kept.
    """
    key, key_id = _PREFIX + secrets.token_urlsafe(32), new_id()
    connection.execute(
        insert(keys).values(
            id=key_id,
            sha256=_hashed(key),
            label=label,
            scopes=" ".join(sorted(set(scopes))),
            gallery_id=gallery_id,
            expires_at=expires_at,
            created_at=now(),
        )
    )
    return key_id, key


def find_key(connection: Connection, key: str) -> Principal | None:
    """The owner of a key, or None if it is not valid."""
    hashed = _hashed(key)
    return _owner(_key_row(connection, hashed), hashed)


def _key_row(connection: Connection, hashed: str) -> Any:
    return connection.execute(select(keys).where(keys.c.sha256 == hashed)).first()


def _owner(row: Any, hashed: str) -> Principal | None:
    # The index has found it by its beginning at most; all of it is compared here.
    if row is None or not hmac.compare_digest(row.sha256, hashed):
        return None
    if row.expires_at is not None and row.expires_at <= now():
        return None
    return _principal(row.id, row.scopes, row.gallery_id)


def authenticate(request: Request, cache: ReadCache) -> Principal:
    """Who has sent a request, by its key or its session.

    Parameters
    ----------
    request : Request
        The request.
    cache : ReadCache
        What is known of the database.

    Returns
    -------
    Principal
        The owner of the key.

    Raises
    ------
    Problem
        There is no valid key, or the page has not sent its token.
    """
    key = _key_of(request)
    if key is not None:
        hashed = _hashed(key)
        row = cache.get(
            ("key", hashed), lambda connection: _key_row(connection, hashed)
        )
        found = _owner(row, hashed)
        if found is not None:
            return found
    elif COOKIE in request.cookies:
        session = page_session(request)
        if session is not None:
            if request.method not in _SAFE:
                given = request.headers.get(CSRF_HEADER, "")
                if not hmac.compare_digest(given.encode(), session.csrf.encode()):
                    raise Problem("csrf", "Reload the page and try again.")
            return session.principal
    raise Problem(
        "unauthorized",
        "Send a valid key in the header Authorization: Bearer KEY, or x-api-key.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def authorise(
    principal: Principal, cache: ReadCache, gallery_id: str, scope: Scope
) -> None:
    """Raise if a key may not do something with a gallery.

    A gallery that does not exist and one that the key may not see give the same
    answer, after the same work: what the key may not see is not looked for.
    """
    if not principal.may_see(gallery_id):
        raise not_found()
    query = select(galleries.c.id).where(galleries.c.id == gallery_id)
    exists = cache.get(
        ("exists", gallery_id), lambda connection: connection.execute(query).first()
    )
    if exists is None:
        raise not_found()
    principal.need(scope)


def open_session(
    connection: Connection, principal: Principal, settings: Settings, response: Response
) -> PageSession:
    """Begin a session of the page, and set its cookie.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    principal : Principal
        Who has typed a valid key.
    settings : Settings
        The settings.
    response : Response
        The answer that gets the cookie.

    Returns
    -------
    PageSession
        The session.
    """
    token, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    connection.execute(delete(sessions).where(sessions.c.expires_at <= now()))
    connection.execute(
        insert(sessions).values(
            sha256=_hashed(token),
            key_id=principal.key_id,
            csrf=csrf,
            expires_at=now(seconds=3600.0 * settings.session_hours),
        )
    )
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(3600 * settings.session_hours),
        httponly=True,
        samesite="strict",
        secure=settings.uses_tls,
    )
    return PageSession(principal, csrf)


def close_session(connection: Connection, request: Request, response: Response) -> None:
    """End the session of the page."""
    token = request.cookies.get(COOKIE, "")
    connection.execute(delete(sessions).where(sessions.c.sha256 == _hashed(token)))
    response.delete_cookie(COOKIE)


def page_session(request: Request) -> PageSession | None:
    """The session of somebody who uses the page, or None.

    Parameters
    ----------
    request : Request
        The request.

    Returns
    -------
    PageSession or None
        The session.
    """
    token = request.cookies.get(COOKIE)
    if token is None:
        return None
    database: Database = request.app.state.context.database
    with database.read() as connection:
        return _session(connection, token)


def _session(connection: Connection, token: str) -> PageSession | None:
    hashed = _hashed(token)
    row = connection.execute(
        select(
            sessions.c.sha256,
            sessions.c.csrf,
            sessions.c.expires_at,
            keys.c.id,
            keys.c.scopes,
            keys.c.gallery_id,
            keys.c.expires_at.label("key_expires_at"),
        )
        .join(keys, keys.c.id == sessions.c.key_id)
        .where(sessions.c.sha256 == hashed)
    ).first()
    if row is None or not hmac.compare_digest(row.sha256, hashed):
        return None
    ends = [row.expires_at, row.key_expires_at or row.expires_at]
    if min(ends) <= now():
        return None
    return PageSession(_principal(row.id, row.scopes, row.gallery_id), row.csrf)


def _principal(key_id: str, scopes: str, gallery_id: str | None) -> Principal:
    held = frozenset[str]().union(*(INCLUDED.get(s, ()) for s in scopes.split()))
    return Principal(key_id, held, gallery_id)


def _key_of(request: Request) -> str | None:
    given = request.headers.get("x-api-key")
    if given is not None:
        return given
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class RateLimiter:
    """Count requests, so that no client takes all the time of the service.

    Parameters
    ----------
    rate : float
        Requests a second, on average.
    burst : float
        How many may come at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, client: str) -> None:
        """Count a request.

        Parameters
        ----------
        client : str
            Who has sent it.

        Raises
        ------
        Problem
            There were too many.
        """
        moment = time.monotonic()
        with self._lock:
            if len(self._left) > _MOST_COUNTED:
                self._left.clear()
            left, before = self._left.get(client, (self._burst, moment))
            left = min(self._burst, left + (moment - before) * self._rate)
            if left < 1.0:
                self._left[client] = left, moment
                wait = (1.0 - left) / self._rate
                raise Problem(
                    "rate-limited",
                    f"At most {self._rate:g} requests a second: wait {wait:.1f} s.",
                    headers={"Retry-After": str(int(wait) + 1)},
                )
            self._left[client] = left - 1.0, moment
