# SPDX-License-Identifier: BSD-3-Clause
"""What every request needs: the database, models, decoders, and who is asking."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import select

from dualqml.service.database import Database, ReadCache
from dualqml.service.decoding import Decoders
from dualqml.service.models import LoadedModel, ModelCache
from dualqml.service.people import Row, gallery_row, names_of
from dualqml.service.problems import Problem
from dualqml.service.security import (
    Principal,
    RateLimiter,
    Scope,
    authenticate,
    authorise,
)
from dualqml.service.settings import Settings
from dualqml.service.tables import erasures, models

#: Requests a second with wrong keys from one address, and how many at once.
_WRONG_KEYS, _WRONG_AT_ONCE = 5.0, 30.0
#: Seconds between two looks whether a model or an erasure is ready, and the same for a
#: database that cannot tell whether it has changed.
_PAUSE, _PAUSE_WITHOUT = 0.01, 0.05


@dataclass(frozen=True, eq=False)
class Context:
    """The parts of a service that requests share.

    Attributes
    ----------
    settings : Settings
        The settings.
    database : Database
        The database.
    cache : ReadCache
        What was read from it last.
    models : ModelCache
        The published models.
    decoders : Decoders
        What decodes images.
    limiter, wrong_keys : RateLimiter
        Counts of requests of keys, and of wrong keys of addresses.
    """

    settings: Settings
    database: Database
    cache: ReadCache
    models: ModelCache
    decoders: Decoders
    limiter: RateLimiter
    wrong_keys: RateLimiter

    @classmethod
    def of(cls, settings: Settings) -> "Context":
        """The parts of a service with some settings."""
        share = settings.requests_per_second / max(settings.workers, 1)
        database = Database(settings.database())
        return cls(
            settings,
            database,
            ReadCache(database),
            ModelCache(settings.models),
            Decoders(settings),
            RateLimiter(share, 2.0 * share),
            RateLimiter(_WRONG_KEYS, _WRONG_AT_ONCE),
        )

    def gallery(self, gallery_id: str) -> Row:
        """The row of a gallery."""
        return self.cache.get(
            ("gallery", gallery_id),
            lambda connection: gallery_row(connection, gallery_id),
        )

    def names(self, subject_ids: frozenset[str]) -> dict[str, str]:
        """Names of subjects by their ids; those that are gone are left out."""
        return self.cache.get(
            ("names", subject_ids),
            lambda connection: names_of(connection, sorted(subject_ids)),
        )

    def model(self, gallery_id: str, *, whole: bool = False) -> LoadedModel:
        """The published model of a gallery; see `ModelCache.get`."""
        return self.models.get(self.cache, gallery_id, whole=whole)

    async def wait_for_model(self, gallery_id: str, revision: int) -> None:
        """Wait until a model of a revision, or of a later one, is published.

        Raises
        ------
        Problem
            That takes too long.
        """
        query = select(models.c.revision).where(models.c.gallery_id == gallery_id)
        async for _ in self._changes():
            with self.database.read() as connection:
                found = connection.execute(query).scalar()
            if found is not None and found >= revision:
                self.cache.refresh()
                return
        raise Problem("not-ready", "The model is not ready yet: try again later.")

    async def wait_for_erasure(self, erasure_id: str) -> dict[str, Any]:
        """Wait until an erasure is complete.

        Returns
        -------
        dict
            The receipt.

        Raises
        ------
        Problem
            That takes too long. The erasure goes on.
        """
        query = select(erasures.c.state, erasures.c.record).where(
            erasures.c.id == erasure_id
        )
        async for _ in self._changes():
            with self.database.read() as connection:
                row = connection.execute(query).one()
            if row.state == "done":
                self.models.drop_old(self.database)
                return dict(row.record)
        raise Problem(
            "not-ready",
            "The erasure has begun and will be completed. Ask for its receipt later.",
            erasure_id=erasure_id,
        )

    async def _changes(self) -> AsyncIterator[None]:
        """Each time that the database may have changed, until patience is over."""
        end, seen = time.monotonic() + self.settings.max_waiting_seconds, None
        while time.monotonic() < end:
            version = self.database.version()
            if version is None or version != seen:
                seen = version
                yield
            await asyncio.sleep(_PAUSE_WITHOUT if version is None else _PAUSE)


def context_of(request: Request) -> Context:
    """The context of the service that a request is for."""
    found: Context = request.app.state.context
    return found


Shared = Annotated[Context, Depends(context_of)]


async def principal_of(request: Request) -> Principal:
    """Who has sent a request; raises a `Problem` without a valid key."""
    context = context_of(request)
    context.cache.refresh()
    try:
        found = authenticate(request, context.cache)
    except Problem as problem:
        if problem.code == "unauthorized":
            host = "" if request.client is None else request.client.host
            context.wrong_keys.take(host)
        raise
    context.limiter.take(found.key_id)
    return found


Caller = Annotated[Principal, Depends(principal_of)]


@dataclass(frozen=True)
class Access:
    """A gallery, and a key that may do what was asked for.

    Attributes
    ----------
    context : Context
        The parts of the service.
    principal : Principal
        Who asks.
    gallery_id : str
        The gallery.
    """

    context: Context
    principal: Principal
    gallery_id: str


def _access(scope: Scope) -> Any:
    async def check(request: Request, gallery_id: str, principal: Caller) -> Access:
        context = context_of(request)
        authorise(principal, context.cache, gallery_id, scope)
        return Access(context, principal, gallery_id)

    return Depends(check)


#: Access to the gallery of the address, for keys with a scope.
ToIdentify = Annotated[Access, _access("identify")]
ToEnroll = Annotated[Access, _access("enrol")]
ToAdmin = Annotated[Access, _access("admin")]
