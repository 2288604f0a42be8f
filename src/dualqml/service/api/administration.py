# SPDX-License-Identifier: BSD-3-Clause
"""Sessions of the page, keys, the audit, receipts, jobs and the demo."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import delete, select, update

from dualqml import __version__
from dualqml.data.orl import orl_files
from dualqml.service import demo
from dualqml.service.api.common import PROBLEMS, After, Limit, page
from dualqml.service.audit import check_chain, record
from dualqml.service.context import Caller, Shared, ToEnroll, ToIdentify, context_of
from dualqml.service.jobs import job_row, new_job
from dualqml.service.people import Row, create_gallery, gallery_row
from dualqml.service.problems import Problem, not_found
from dualqml.service.schemas import (
    AuditCheck,
    AuditEntry,
    ErasureAnswer,
    JobAnswer,
    KeyAnswer,
    KeyBody,
    KeyRequest,
    NewKeyAnswer,
    Page,
    Probe,
    SessionAnswer,
)
from dualqml.service.security import (
    PageSession,
    close_session,
    find_key,
    new_key,
    open_session,
    page_session,
)
from dualqml.service.tables import (
    as_time,
    audit,
    erasures,
    galleries,
    jobs,
    keys,
    now,
)

_KEY_COLUMNS = ("id", "label", "gallery_id", "expires_at", "created_at")

router = APIRouter(prefix="/v1", tags=["administration"], responses=PROBLEMS)


@router.get("")
def about() -> dict[str, str]:
    """The name and the version of the service."""
    return {"name": "dualqml", "version": __version__}


@router.post("/session", status_code=201, response_model=SessionAnswer)
def sign_in(
    body: KeyBody, context: Shared, request: Request, response: Response
) -> Any:
    """Begin a session of the page with a key; the cookie is for this browser."""
    with context.database.write() as connection:
        found = find_key(connection, body.key)
        if found is None:
            host = "" if request.client is None else request.client.host
            context.wrong_keys.take(host)
            raise Problem("unauthorized", "This key is not valid.")
        session = open_session(connection, found, context.settings, response)
        record(context.database, connection, found.key_id, "session.open")
    return _session_answer(session)


@router.get("/session", response_model=SessionAnswer)
def session(request: Request) -> Any:
    """The session of the page."""
    found = page_session(request)
    if found is None:
        raise Problem("unauthorized", "There is no session.")
    return _session_answer(found)


@router.delete("/session", status_code=204)
def sign_out(caller: Caller, request: Request) -> Response:
    """End the session of the page."""
    response = Response(status_code=204)
    with context_of(request).database.write() as connection:
        close_session(connection, request, response)
    return response


def _session_answer(session: PageSession) -> dict[str, Any]:
    return {
        "scopes": sorted(session.scopes),
        "gallery_id": session.gallery_id,
        "csrf": session.csrf,
    }


@router.get("/keys", response_model=Page[KeyAnswer])
def list_keys(
    context: Shared, caller: Caller, limit: Limit = 50, after: After = None
) -> Any:
    """The keys, without the keys themselves."""
    caller.need("admin")
    query = select(keys)
    if caller.gallery_id is not None:
        query = query.where(keys.c.gallery_id == caller.gallery_id)
    with context.database.read() as connection:
        rows, cursor, total = page(
            connection, query, order=[keys.c.created_at], limit=limit, after=after
        )
    return {"items": [_key(row) for row in rows], "next": cursor, "total": total}


@router.post("/keys", status_code=201, response_model=NewKeyAnswer)
def create_key(body: KeyRequest, context: Shared, caller: Caller) -> Any:
    """Make a key. It is in this answer, and nowhere else."""
    caller.need("admin")
    gallery_id = body.gallery_id
    if caller.gallery_id is not None and gallery_id != caller.gallery_id:
        raise Problem("forbidden", "This key may only make keys for its own gallery.")
    try:
        expires_at = None if body.expires_at is None else as_time(body.expires_at)
    except (OverflowError, ValueError) as error:
        raise Problem("invalid", "The time is out of range.") from error
    with context.database.write() as connection:
        if gallery_id is not None:
            gallery_row(connection, gallery_id)
        key_id, key = new_key(
            connection,
            label=body.label,
            scopes=list(body.scopes),
            gallery_id=gallery_id,
            expires_at=expires_at,
        )
        record(
            context.database,
            connection,
            caller.key_id,
            "key.create",
            gallery_id=gallery_id,
            target_id=key_id,
            scopes=sorted(body.scopes),
        )
        row = connection.execute(select(keys).where(keys.c.id == key_id)).mappings()
        return _key(row.one()) | {"key": key}


@router.delete("/keys/{key_id}", status_code=204)
def revoke_key(key_id: str, context: Shared, caller: Caller) -> Response:
    """Revoke a key; it is not valid from now on."""
    caller.need("admin")
    with context.database.write() as connection:
        query = select(keys).where(keys.c.id == key_id)
        if caller.gallery_id is not None:
            query = query.where(keys.c.gallery_id == caller.gallery_id)
        row = connection.execute(query).mappings().first()
        if row is None:
            raise not_found()
        if row["gallery_id"] is None and "admin" in row["scopes"].split():
            others = connection.execute(
                select(keys.c.id).where(
                    keys.c.id != key_id,
                    keys.c.gallery_id.is_(None),
                    keys.c.scopes.contains("admin"),
                    keys.c.expires_at.is_(None) | (keys.c.expires_at > now()),
                )
            ).first()
            if others is None:
                raise Problem(
                    "conflict",
                    "This is the last key that can do everything: make "
                    "another one first.",
                )
        connection.execute(delete(keys).where(keys.c.id == key_id))
        record(
            context.database,
            connection,
            caller.key_id,
            "key.revoke",
            gallery_id=row["gallery_id"],
            target_id=key_id,
        )
    return Response(status_code=204)


def _key(row: Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _KEY_COLUMNS},
        "scopes": row["scopes"].split(),
    }


@router.get("/audit", response_model=Page[AuditEntry])
def list_audit(
    context: Shared,
    caller: Caller,
    gallery_id: Annotated[str | None, Query(max_length=64)] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Who did what, the newest first.

    To a key of one gallery, ``seq`` counts the entries of this gallery alone.
    """
    caller.need("admin")
    query = select(audit)
    wanted = caller.gallery_id if caller.gallery_id is not None else gallery_id
    if wanted is not None:
        query = query.where(audit.c.gallery_id == wanted)
    with context.database.read() as connection:
        rows, cursor, total = page(
            connection, query, order=[audit.c.seq.desc()], limit=limit, after=after
        )
    items = [dict(row) for row in rows]
    if caller.gallery_id is not None:
        # The gaps between the numbers would tell how much happens in other galleries.
        last = total - int(after or 0)
        for number, item in enumerate(items):
            item["seq"] = last - number
    return {"items": items, "next": cursor, "total": total}


@router.get("/audit/check", response_model=AuditCheck)
def check_audit(context: Shared, caller: Caller) -> Any:
    """Compute all hashes of the audit again."""
    caller.need("admin")
    caller.need_all_galleries()
    with context.database.read() as connection:
        return check_chain(connection)


@router.get("/galleries/{gallery_id}/erasures", response_model=Page[ErasureAnswer])
def list_erasures(access: ToEnroll, limit: Limit = 50, after: After = None) -> Any:
    """Receipts of a gallery, the newest first."""
    query = select(erasures).where(
        erasures.c.gallery_id == access.gallery_id, erasures.c.state == "done"
    )
    with access.context.database.read() as connection:
        rows, cursor, total = page(
            connection,
            query,
            order=[erasures.c.requested_at.desc()],
            limit=limit,
            after=after,
        )
    return {"items": [row["record"] for row in rows], "next": cursor, "total": total}


@router.get(
    "/galleries/{gallery_id}/erasures/{erasure_id}", response_model=ErasureAnswer
)
def get_erasure(erasure_id: str, access: ToEnroll) -> Any:
    """A receipt."""
    with access.context.database.read() as connection:
        row = connection.execute(
            select(erasures).where(
                erasures.c.id == erasure_id,
                erasures.c.gallery_id == access.gallery_id,
            )
        ).first()
    if row is None:
        raise not_found()
    if row.state != "done":
        raise Problem("not-ready", "The erasure is not complete yet.")
    return row.record


@router.get("/galleries/{gallery_id}/jobs", response_model=Page[JobAnswer])
def list_jobs(access: ToEnroll, limit: Limit = 50, after: After = None) -> Any:
    """Jobs of a gallery, the newest first."""
    query = select(jobs).where(jobs.c.gallery_id == access.gallery_id)
    with access.context.database.read() as connection:
        rows, cursor, total = page(
            connection,
            query,
            order=[jobs.c.created_at.desc()],
            limit=limit,
            after=after,
        )
    return {"items": [job_answer(row) for row in rows], "next": cursor, "total": total}


@router.get("/galleries/{gallery_id}/jobs/{job_id}", response_model=JobAnswer)
def get_job(job_id: str, access: ToEnroll) -> Any:
    """A job."""
    with access.context.database.read() as connection:
        return job_answer(job_row(connection, access.gallery_id, job_id))


@router.delete("/galleries/{gallery_id}/jobs/{job_id}", response_model=JobAnswer)
def cancel_job(job_id: str, access: ToEnroll) -> Any:
    """Cancel a job. One that is done stays done."""
    with access.context.database.write() as connection:
        row = job_row(connection, access.gallery_id, job_id)
        values: dict[str, Any] = {"cancel": True}
        if row["state"] == "queued":
            values |= {"state": "cancelled", "detail": "Cancelled."}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
        return job_answer(job_row(connection, access.gallery_id, job_id))


def job_answer(row: Row) -> dict[str, Any]:
    """A job as an answer."""
    hidden = ("parameters", "cancel")
    return {name: value for name, value in row.items() if name not in hidden}


@router.post("/demo", status_code=202, response_model=JobAnswer)
def load_demo(context: Shared, caller: Caller) -> Any:
    """Load the demo gallery: thirty people of the ORL faces."""
    caller.need("admin")
    caller.need_all_galleries()
    # Raises if the images are not installed.
    orl_files()
    inputs = demo.demo_inputs()
    with context.database.write() as connection:
        known = connection.execute(
            select(galleries.c.id).where(galleries.c.demo)
        ).scalar()
        if known is None:
            known = create_gallery(
                connection,
                name=demo.NAME,
                inputs=inputs,
                keep_photographs=True,
                keep_strangers=True,
                demo=True,
            )
            new_job(connection, known, "demo")
            record(
                context.database,
                connection,
                caller.key_id,
                "gallery.create",
                gallery_id=known,
            )
        row: Row | None = (
            connection.execute(
                select(jobs)
                .where(jobs.c.gallery_id == known, jobs.c.kind == "demo")
                .order_by(jobs.c.created_at.desc())
                .limit(1)
            )
            .mappings()
            .first()
        )
        if row is None or row["state"] in ("failed", "cancelled"):
            job_id = new_job(connection, known, "demo")
            row = job_row(connection, known, job_id)
        return job_answer(row)


@router.get("/galleries/{gallery_id}/demo-probes", response_model=Page[Probe])
def list_probes(access: ToIdentify) -> Any:
    """Pictures of the demo that are not enrolled."""
    gallery = access.context.gallery(access.gallery_id)
    items = demo.probes() if gallery["demo"] else []
    return {"items": items, "next": None, "total": len(items)}


@router.get(
    "/galleries/{gallery_id}/demo-probes/{probe_id}/image",
    responses={200: {"content": {"image/png": {}}}},
)
def probe_image(probe_id: str, access: ToIdentify) -> Response:
    """A picture of the demo."""
    gallery = access.context.gallery(access.gallery_id)
    content = demo.probe_image(probe_id) if gallery["demo"] else None
    if content is None:
        raise not_found()
    return Response(content, media_type="image/png")
