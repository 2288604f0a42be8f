# SPDX-License-Identifier: BSD-3-Clause
"""Galleries: make, list, change and erase."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from sqlalchemy import func, select, update
from starlette.concurrency import run_in_threadpool

from dualqml.service.api.common import PROBLEMS, After, Limit, gallery_answer, page
from dualqml.service.audit import record
from dualqml.service.context import Caller, Shared, ToAdmin, ToIdentify
from dualqml.service.erasure import erase_gallery
from dualqml.service.people import (
    check_match,
    create_gallery,
    etag,
    gallery_row,
    valid_name,
)
from dualqml.service.problems import Problem
from dualqml.service.schemas import (
    ErasureAnswer,
    GalleryAnswer,
    GalleryBody,
    GalleryChange,
    Page,
)
from dualqml.service.tables import galleries

router = APIRouter(prefix="/v1/galleries", tags=["galleries"], responses=PROBLEMS)

IfMatch = Annotated[str | None, Header(max_length=500)]


@router.post("", status_code=201, response_model=GalleryAnswer)
def create(
    body: GalleryBody, context: Shared, caller: Caller, response: Response
) -> Any:
    """Make a gallery."""
    caller.need("admin")
    caller.need_all_galleries()
    values = body.model_dump()
    height, width = values.pop("size")
    values |= {"height": height, "width": width, "target_rate": values.pop("fpir")}
    values["name"] = valid_name(values["name"])
    with context.database.write() as connection:
        count = connection.execute(
            select(func.count()).select_from(galleries)
        ).scalar_one()
        if count >= context.settings.max_galleries:
            raise Problem(
                "conflict",
                f"There are {count} galleries, the most that are allowed.",
            )
        gallery_id = create_gallery(connection, **values)
        record(
            context.database,
            connection,
            caller.key_id,
            "gallery.create",
            gallery_id=gallery_id,
        )
        row = gallery_row(connection, gallery_id)
        response.headers["Location"] = f"/v1/galleries/{gallery_id}"
        response.headers["ETag"] = etag(row["version"])
        return gallery_answer(connection, row)


@router.get("", response_model=Page[GalleryAnswer])
def list_galleries(
    context: Shared, caller: Caller, limit: Limit = 50, after: After = None
) -> Any:
    """The galleries that the key may see."""
    query = select(galleries)
    if caller.gallery_id is not None:
        query = query.where(galleries.c.id == caller.gallery_id)
    with context.database.read() as connection:
        rows, cursor, total = page(
            connection, query, order=[galleries.c.created_at], limit=limit, after=after
        )
        items = [gallery_answer(connection, row) for row in rows]
    return {"items": items, "next": cursor, "total": total}


@router.get("/{gallery_id}", response_model=GalleryAnswer)
def get(access: ToIdentify, response: Response) -> Any:
    """A gallery."""
    with access.context.database.read() as connection:
        row = gallery_row(connection, access.gallery_id)
        response.headers["ETag"] = etag(row["version"])
        return gallery_answer(connection, row)


@router.patch("/{gallery_id}", response_model=GalleryAnswer)
def change(
    body: GalleryChange,
    access: ToAdmin,
    response: Response,
    if_match: IfMatch = None,
) -> Any:
    """Change the name or the options of a gallery. Members left out stay."""
    database = access.context.database
    values = body.model_dump(exclude_unset=True)
    for name, value in values.items():
        if value is None and name != "retention_days":
            raise Problem("invalid", f"{name} cannot be null.")
    if "name" in values:
        values["name"] = valid_name(values["name"])
    with database.write() as connection:
        row = gallery_row(connection, access.gallery_id, lock=True)
        check_match(if_match, row["version"])
        connection.execute(
            update(galleries)
            .where(galleries.c.id == access.gallery_id)
            .values(**values, version=galleries.c.version + 1)
        )
        record(
            database,
            connection,
            access.principal.key_id,
            "gallery.change",
            gallery_id=access.gallery_id,
            changed=sorted(values),
        )
        row = gallery_row(connection, access.gallery_id)
        response.headers["ETag"] = etag(row["version"])
        return gallery_answer(connection, row)


@router.delete("/{gallery_id}", response_model=ErasureAnswer)
async def remove(access: ToAdmin, if_match: IfMatch = None) -> Any:
    """Erase a gallery with everybody in it. The answer is the receipt."""
    database = access.context.database

    def delete() -> str:
        with database.write() as connection:
            row = gallery_row(connection, access.gallery_id, lock=True)
            check_match(if_match, row["version"])
            return erase_gallery(
                database, connection, access.gallery_id, actor=access.principal.key_id
            )

    erasure_id = await run_in_threadpool(delete)
    return await access.context.wait_for_erasure(erasure_id)
