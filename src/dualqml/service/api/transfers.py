# SPDX-License-Identifier: BSD-3-Clause
"""Galleries out of the service, and into it, as files."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from dualqml.service.api.common import PROBLEMS, gallery_answer
from dualqml.service.audit import record
from dualqml.service.context import Caller, Shared, ToAdmin
from dualqml.service.people import gallery_row
from dualqml.service.problems import Problem
from dualqml.service.schemas import GalleryAnswer
from dualqml.service.tables import galleries
from dualqml.service.transfer import export_bytes, import_bytes
from dualqml.service.uploads import ONE_FILE, read_body

router = APIRouter(prefix="/v1", tags=["transfers"], responses=PROBLEMS)

#: Bytes that are sent at a time.
_CHUNK = 1 << 18


@router.get(
    "/galleries/{gallery_id}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def export(access: ToAdmin) -> StreamingResponse:
    """The gallery as one file, with samples and names: keep it safe.

    If somebody is erased while it is sent, sending stops.
    """
    database = access.context.database
    with database.read() as connection:
        content, erased = export_bytes(connection, access.gallery_id)
    with database.write() as connection:
        record(
            database,
            connection,
            access.principal.key_id,
            "gallery.export",
            gallery_id=access.gallery_id,
        )
    query = select(galleries.c.erasures).where(galleries.c.id == access.gallery_id)

    def parts() -> Iterator[bytes]:
        for begin in range(0, len(content), _CHUNK):
            with database.read() as connection:
                if connection.execute(query).scalar() != erased:
                    raise ConnectionAbortedError("somebody was erased")
            yield content[begin : begin + _CHUNK]

    return StreamingResponse(
        parts(),
        media_type="application/octet-stream",
        headers={
            "Content-Length": str(len(content)),
            "Content-Disposition": 'attachment; filename="gallery.dualqml-gallery"',
        },
    )


@router.post(
    "/imports", status_code=201, response_model=GalleryAnswer, openapi_extra=ONE_FILE
)
async def import_gallery(context: Shared, caller: Caller, request: Request) -> Any:
    """Make a gallery from a file of an export."""
    caller.need("admin")
    caller.need_all_galleries()
    body = await read_body(request, context.settings)
    files = [upload for name, upload in body.files if name == "file"]
    if len(files) != 1 or files[0].content is None:
        raise Problem("invalid", 'Send one file in the field "file".')
    content = files[0].content

    def work() -> dict[str, Any]:
        with context.database.write() as connection:
            count = connection.execute(
                select(func.count()).select_from(galleries)
            ).scalar_one()
            if count >= context.settings.max_galleries:
                raise Problem("conflict", f"There are {count} galleries already.")
            gallery_id = import_bytes(connection, content)
            record(
                context.database,
                connection,
                caller.key_id,
                "gallery.import",
                gallery_id=gallery_id,
            )
            return gallery_answer(connection, gallery_row(connection, gallery_id))

    return await run_in_threadpool(work)
