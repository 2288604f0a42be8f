# SPDX-License-Identifier: BSD-3-Clause
"""The application: routes, errors as answers, and what begins and ends with it."""

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from dualqml import __version__
from dualqml.exceptions import DualQMLError
from dualqml.service import pages
from dualqml.service.api import (
    administration,
    compreface,
    galleries,
    measures,
    recognition,
    strangers,
    subjects,
    transfers,
)
from dualqml.service.context import Context
from dualqml.service.logs import logger
from dualqml.service.metrics import CONTENT_TYPE, exposition
from dualqml.service.middleware import Guard
from dualqml.service.models import galleries_due
from dualqml.service.problems import CODES, Problem, as_problem
from dualqml.service.settings import Settings
from dualqml.service.tables import models

#: Seconds between two looks for models that were replaced.
_PAUSE = 0.5
#: Seconds after the start at which the first image is prepared for. Until then models
#: may have to be built.
_WARM_UP_DELAY = 4.0
#: Codes for errors of the framework.
_BY_STATUS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    413: "too-large",
    415: "wrong-type",
    422: "invalid",
}


def create_app(settings: Settings, *, own_worker: bool = False) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    settings : Settings
        The settings.
    own_worker : bool, default=False
        Whether models are built in threads of this process. ``dualqml serve`` has a
        process for it.

    Returns
    -------
    FastAPI
        The application.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context = app.state.context = Context.of(settings)
        worker = None
        if own_worker:
            from dualqml.service.worker import Worker

            context.database.migrate()
            worker = Worker(context.database, settings)
            worker.start()
        warming = threading.Timer(_WARM_UP_DELAY, _warm_up, [context])
        warming.daemon = True
        warming.start()
        looking = asyncio.create_task(_look_for_models(context))
        yield
        warming.cancel()
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        if worker is not None:
            worker.stop()
        context.decoders.close()
        context.database.close()

    app = FastAPI(
        title="dualqml",
        version=__version__,
        summary="Few-sample biometric recognition with a calibrated unknown.",
        license_info={"name": "BSD-3-Clause"},
        lifespan=lifespan,
        # Their pages load scripts from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.settings = settings
    # Routes are tried in their order: those that must be fast come first.
    for module in (
        recognition,
        administration,
        galleries,
        subjects,
        measures,
        strangers,
        transfers,
        compreface,
    ):
        app.include_router(module.router)
    app.include_router(pages.router, include_in_schema=False)
    _add_operation(app)
    app.mount("/static", StaticFiles(directory=pages.STATIC), name="static")
    _add_errors(app)
    app.add_middleware(Guard, settings=settings, failed=_failed)
    _document_keys(app)
    return app


def _warm_up(context: Context) -> None:
    """Do what the first request with an image would wait for."""
    context.decoders.warm_up()
    # Crops and explanations need the whole recogniser.
    importlib.import_module("dualqml.recognition.recognizer")


async def _look_for_models(context: Context) -> None:
    """Forget models that were replaced, so that nothing of an erased person stays."""
    while True:
        await asyncio.sleep(_PAUSE)
        with suppress(SQLAlchemyError):
            context.models.drop_old(context.database)


def _add_operation(app: FastAPI) -> None:
    @app.get("/healthz", include_in_schema=False)
    def alive() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @app.get("/readyz", include_in_schema=False)
    def ready(request: Request) -> Response:
        """Whether the database answers, and all models are up to date."""
        context: Context = request.app.state.context
        try:
            with context.database.read() as connection:
                connection.execute(select(models.c.revision).limit(1)).first()
            waiting = len(galleries_due(context.database))
        except SQLAlchemyError as error:
            raise Problem("not-ready", "The database does not answer.") from error
        if waiting:
            raise Problem("not-ready", f"{waiting} models are being built.")
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(exposition(), media_type=CONTENT_TYPE)

    @app.get("/problems", include_in_schema=False)
    def problems() -> dict[str, Any]:
        """All codes of problems."""
        return {
            code: {"status": status, "title": title}
            for code, (status, title) in CODES.items()
        }


def _answer(request: Request, problem: Problem) -> Response:
    if request.url.path.startswith("/api/v1/"):
        return compreface.error_answer(problem)
    return problem.answer()


def _failed(request: Request, error: Exception) -> Response:
    # The message of an error could have something of a person in it.
    logger().error("failed", error=type(error).__name__)
    return _answer(
        request, Problem("internal", "The service has failed: its log tells more.")
    )


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(DualQMLError)
    async def known(request: Request, error: DualQMLError) -> Response:
        problem = as_problem(error)
        if problem.code == "internal":
            logger().error("failed", error=type(error).__name__)
        return _answer(request, problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = [
            {
                "where": ".".join(str(part) for part in one["loc"]),
                "what": str(one["msg"]),
            }
            for one in error.errors()
        ]
        is_json = any(one["type"] == "json_invalid" for one in error.errors())
        first = f"{found[0]['where']}: {found[0]['what']}"
        code = "bad-request" if is_json else "invalid"
        return _answer(request, Problem(code, first, errors=found))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        code = _BY_STATUS.get(error.status_code, "bad-request")
        detail = str(error.detail)
        with suppress(ValueError):
            if detail == HTTPStatus(error.status_code).phrase:
                detail = CODES[code][1] + "."
        headers = dict(error.headers or {})
        return _answer(request, Problem(code, detail, headers=headers))

    @app.exception_handler(SQLAlchemyError)
    async def database(request: Request, error: SQLAlchemyError) -> Response:
        logger().error("database failed", error=type(error).__name__)
        return _answer(request, Problem("not-ready", "The database does not answer."))


def _document_keys(app: FastAPI) -> None:
    """Say in the OpenAPI document how keys are sent."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        schemes = document.setdefault("components", {}).setdefault(
            "securitySchemes", {}
        )
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
        schemes["key"] = {"type": "apiKey", "in": "header", "name": "x-api-key"}
        document["security"] = [{"bearer": []}, {"key": []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def from_environment() -> FastAPI:
    """The application of a process that the server has started.

    Returns
    -------
    FastAPI
        The application.
    """
    return create_app(Settings.from_environment())
