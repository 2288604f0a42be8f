# SPDX-License-Identifier: BSD-3-Clause
"""Unknown people whom a gallery has asked to keep: name, ignore or discard them."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection, select, update
from starlette.concurrency import run_in_threadpool

from dualqml.service.api.common import PROBLEMS, After, Limit, page
from dualqml.service.api.recognition import main_face
from dualqml.service.api.subjects import picture, subject_answers
from dualqml.service.audit import record
from dualqml.service.context import ToEnroll, ToIdentify
from dualqml.service.erasure import erase_stranger
from dualqml.service.people import (
    Row,
    check_width,
    create_subject,
    gallery_row,
    names_of,
    subject_row,
)
from dualqml.service.problems import Problem
from dualqml.service.schemas import (
    ErasureAnswer,
    Page,
    StrangerAnswer,
    StrangerChange,
    StrangerKept,
    StrangerName,
    SubjectAnswer,
)
from dualqml.service.strangers import (
    cluster_row,
    enroll_cluster,
    remember,
    same_person_cosine,
)
from dualqml.service.tables import clusters, strangers
from dualqml.service.uploads import ONE_MISTAKE, check_kind, one_sample, read_body

_COLUMNS = ("id", "state", "n_seen", "first_seen", "last_seen", "expires_at")

router = APIRouter(
    prefix="/v1/galleries/{gallery_id}/strangers",
    tags=["strangers"],
    responses=PROBLEMS,
)


@router.get("", response_model=Page[StrangerAnswer])
def list_strangers(access: ToEnroll, limit: Limit = 50, after: After = None) -> Any:
    """Unknown people, the last seen first."""
    query = select(clusters).where(clusters.c.gallery_id == access.gallery_id)
    with access.context.database.read() as connection:
        rows, cursor, total = page(
            connection,
            query,
            order=[clusters.c.last_seen.desc(), clusters.c.id],
            limit=limit,
            after=after,
        )
        items = _answers(connection, access.gallery_id, rows)
    return {"items": items, "next": cursor, "total": total}


@router.post(
    "", status_code=201, response_model=StrangerKept, openapi_extra=ONE_MISTAKE
)
async def not_this_person(access: ToIdentify, request: Request) -> Any:
    """Keep a face that was taken for the wrong person, as a stranger."""
    body = await read_body(request, access.context.settings)
    upload = one_sample(body)
    wrong = body.text("not_subject")
    gallery = access.context.gallery(access.gallery_id)
    check_kind(upload, gallery)
    if not gallery["keep_strangers"]:
        raise Problem("conflict", "This gallery does not keep strangers.")

    def work() -> str:
        row, image = upload.vector, None
        if row is None:
            row, image = main_face(access, gallery, upload)
        model = access.context.model(access.gallery_id, whole=True)
        limit = same_person_cosine(model.recognizer, gallery)
        database = access.context.database
        with database.write() as connection:
            locked = gallery_row(connection, access.gallery_id, lock=True)
            if wrong is not None:
                subject_row(connection, access.gallery_id, wrong)
            check_width(connection, locked, [row])
            kept = remember(
                connection, locked, row, limit=limit, image=image, not_subject=wrong
            )
            record(
                database,
                connection,
                access.principal.key_id,
                "stranger.not-this-person",
                gallery_id=access.gallery_id,
                target_id=kept,
            )
            return kept

    return {"stranger_ids": [await run_in_threadpool(work)]}


@router.patch("/{stranger_id}", response_model=StrangerAnswer)
def change(stranger_id: str, body: StrangerChange, access: ToEnroll) -> Any:
    """Ignore a stranger, or no longer."""
    with access.context.database.write() as connection:
        cluster_row(connection, access.gallery_id, stranger_id)
        connection.execute(
            update(clusters)
            .where(clusters.c.id == stranger_id)
            .values(state=body.state)
        )
        row = cluster_row(connection, access.gallery_id, stranger_id)
        return _answers(connection, access.gallery_id, [row])[0]


@router.post("/{stranger_id}/name", response_model=SubjectAnswer)
def name(stranger_id: str, body: StrangerName, access: ToEnroll) -> Any:
    """Say who a stranger is. The faces are enrolled as samples."""
    if (body.name is None) == (body.subject_id is None):
        raise Problem("invalid", "Give a new name, or the id of a subject.")
    database = access.context.database
    with database.write() as connection:
        gallery = gallery_row(connection, access.gallery_id, lock=True)
        cluster_row(connection, access.gallery_id, stranger_id)
        if body.subject_id is not None:
            subject_id = body.subject_id
            subject_row(connection, access.gallery_id, subject_id)
        else:
            assert body.name is not None
            subject_id = create_subject(connection, access.gallery_id, body.name)
        ids = enroll_cluster(connection, gallery, stranger_id, subject_id)
        record(
            database,
            connection,
            access.principal.key_id,
            "stranger.name",
            gallery_id=access.gallery_id,
            target_id=subject_id,
            samples=len(ids),
        )
        row = subject_row(connection, access.gallery_id, subject_id)
        return subject_answers(connection, access.gallery_id, [row])[0]


@router.delete("/{stranger_id}", response_model=ErasureAnswer)
async def discard(stranger_id: str, access: ToEnroll) -> Any:
    """Erase a stranger. The answer is the receipt."""
    database = access.context.database

    def delete() -> str:
        with database.write() as connection:
            return erase_stranger(
                database,
                connection,
                access.gallery_id,
                stranger_id,
                actor=access.principal.key_id,
            )

    erasure_id = await run_in_threadpool(delete)
    return await access.context.wait_for_erasure(erasure_id)


@router.get("/{stranger_id}/image", responses={200: {"content": {"image/*": {}}}})
def image(stranger_id: str, access: ToEnroll) -> Response:
    """The newest picture of a stranger, if the gallery keeps pictures."""
    with access.context.database.read() as connection:
        gallery = gallery_row(connection, access.gallery_id)
        cluster_row(connection, access.gallery_id, stranger_id)
        row = connection.execute(
            select(strangers.c.row, strangers.c.image)
            .where(strangers.c.cluster_id == stranger_id)
            .order_by(strangers.c.image.is_(None), strangers.c.seen_at.desc())
            .limit(1)
        ).one()
    return picture(row.image, row.row, gallery)


def _answers(
    connection: Connection, gallery_id: str, rows: Sequence[Row]
) -> list[dict[str, Any]]:
    ids = [row[key] for row in rows for key in ("nearest_id", "not_subject_id")]
    names = names_of(connection, [one for one in ids if one])
    crops = gallery_row(connection, gallery_id)["inputs"] == "crops"
    pictured = set(
        connection.execute(
            select(strangers.c.cluster_id).where(
                strangers.c.cluster_id.in_([row["id"] for row in rows]),
                strangers.c.image.is_not(None),
            )
        ).scalars()
    )
    answers = []
    for row in rows:
        answer = {key: row[key] for key in _COLUMNS}
        near, wrong = row["nearest_id"], row["not_subject_id"]
        answer["has_image"] = crops or row["id"] in pictured
        answer["nearest"] = (
            {"subject_id": near, "name": names[near], "score": row["nearest_score"]}
            if near in names
            else None
        )
        answer["not_subject"] = (
            {"id": wrong, "name": names[wrong]} if wrong in names else None
        )
        answers.append(answer)
    return answers
