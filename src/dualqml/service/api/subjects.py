# SPDX-License-Identifier: BSD-3-Clause
"""Subjects and their samples: enrol, look at, rename, and erase."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import Connection, func, insert, select
from starlette.concurrency import run_in_threadpool

from dualqml.exceptions import DualQMLError
from dualqml.service import erasure
from dualqml.service.api.common import (
    PROBLEMS,
    After,
    Limit,
    Wait,
    findings_of,
    page,
)
from dualqml.service.api.galleries import IfMatch
from dualqml.service.api.pictures import png_of_crop
from dualqml.service.audit import record
from dualqml.service.context import Access, ToEnroll
from dualqml.service.people import (
    NewSample,
    Row,
    add_samples,
    change_subject,
    check_match,
    counts,
    create_subject,
    etag,
    gallery_row,
    subject_named,
    subject_row,
    touch,
    valid_name,
)
from dualqml.service.problems import Problem, as_problem, not_found
from dualqml.service.schemas import (
    EnrollAnswer,
    ErasureAnswer,
    Page,
    SampleAnswer,
    SubjectAnswer,
    SubjectBody,
    SubjectChange,
)
from dualqml.service.strangers import taken_for
from dualqml.service.tables import as_time, idempotency, now, samples, subjects
from dualqml.service.uploads import (
    MANY_PEOPLE,
    MANY_SAMPLES,
    Upload,
    check_kind,
    many_samples,
    people_samples,
    read_body,
)

router = APIRouter(
    prefix="/v1/galleries/{gallery_id}", tags=["people"], responses=PROBLEMS
)

#: For how many days an enrolment can be repeated by its Idempotency-Key.
_IDEMPOTENT_DAYS = 1.0
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]
Several = Annotated[str, Query(pattern="^(error|largest)$")]
Quality = Annotated[float, Query(ge=0.0, le=1.0)]


@router.post("/subjects", status_code=201, response_model=SubjectAnswer)
def create(body: SubjectBody, access: ToEnroll, response: Response) -> Any:
    """Make a subject, without samples yet."""
    database = access.context.database
    with database.write() as connection:
        gallery_row(connection, access.gallery_id, lock=True)
        subject_id = create_subject(
            connection, access.gallery_id, body.name, expires_at=_time(body.expires_at)
        )
        _audit(access, connection, "subject.create", subject_id)
        row = subject_row(connection, access.gallery_id, subject_id)
        response.headers["Location"] = (
            f"/v1/galleries/{access.gallery_id}/subjects/{subject_id}"
        )
        response.headers["ETag"] = etag(row["version"])
        return subject_answers(connection, access.gallery_id, [row])[0]


@router.get("/subjects", response_model=Page[SubjectAnswer])
def list_subjects(
    access: ToEnroll,
    q: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """The subjects of a gallery by name; ``q`` is a part of the name."""
    query = select(subjects).where(subjects.c.gallery_id == access.gallery_id)
    if q:
        query = query.where(subjects.c.name.icontains(q, autoescape=True))
    with access.context.database.read() as connection:
        rows, cursor, total = page(
            connection,
            query,
            order=[subjects.c.name, subjects.c.id],
            limit=limit,
            after=after,
        )
        items = subject_answers(connection, access.gallery_id, rows)
    return {"items": items, "next": cursor, "total": total}


@router.get("/subjects/{subject_id}", response_model=SubjectAnswer)
def get(subject_id: str, access: ToEnroll, response: Response) -> Any:
    """A subject."""
    with access.context.database.read() as connection:
        row = subject_row(connection, access.gallery_id, subject_id)
        response.headers["ETag"] = etag(row["version"])
        return subject_answers(connection, access.gallery_id, [row])[0]


@router.patch("/subjects/{subject_id}", response_model=SubjectAnswer)
def change(
    subject_id: str,
    body: SubjectChange,
    access: ToEnroll,
    response: Response,
    if_match: IfMatch = None,
) -> Any:
    """Rename a subject, or set when it is erased."""
    values = body.model_dump(exclude_unset=True)
    if "name" in values and values["name"] is None:
        raise Problem("invalid", "name cannot be null.")
    if "expires_at" in values:
        values["expires_at"] = _time(values["expires_at"])
    with access.context.database.write() as connection:
        row = subject_row(connection, access.gallery_id, subject_id)
        check_match(if_match, row["version"])
        change_subject(connection, access.gallery_id, subject_id, values)
        _audit(access, connection, "subject.change", subject_id, changed=sorted(values))
        row = subject_row(connection, access.gallery_id, subject_id)
        response.headers["ETag"] = etag(row["version"])
        return subject_answers(connection, access.gallery_id, [row])[0]


@router.delete("/subjects/{subject_id}", response_model=ErasureAnswer)
async def remove(subject_id: str, access: ToEnroll, if_match: IfMatch = None) -> Any:
    """Erase a subject from everything. The answer is the receipt."""
    return await erase_subject(access, subject_id, if_match)


async def erase_subject(
    access: Access, subject_id: str, if_match: str | None = None
) -> dict[str, Any]:
    """Erase a subject, and wait for the receipt.

    Parameters
    ----------
    access : Access
        The gallery.
    subject_id : str
        The subject.
    if_match : str, optional
        The header If-Match.

    Returns
    -------
    dict
        The receipt.
    """

    def delete() -> str:
        database = access.context.database
        recognizer = None
        with database.read() as connection:
            if counts(connection, access.gallery_id)["n_strangers"]:
                recognizer = access.context.model(
                    access.gallery_id, whole=True
                ).recognizer
        with database.write() as connection:
            row = subject_row(connection, access.gallery_id, subject_id)
            check_match(if_match, row["version"])
            gallery = gallery_row(connection, access.gallery_id, lock=True)
            alike = taken_for(connection, gallery, recognizer, subject_id)
            return erasure.erase_subject(
                database,
                connection,
                access.gallery_id,
                subject_id,
                actor=access.principal.key_id,
                lookalikes=alike,
            )

    erasure_id = await run_in_threadpool(delete)
    return await access.context.wait_for_erasure(erasure_id)


@router.get("/subjects/{subject_id}/samples", response_model=Page[SampleAnswer])
def list_samples(
    subject_id: str, access: ToEnroll, limit: Limit = 50, after: After = None
) -> Any:
    """The samples of a subject, in the order of enrolment."""
    query = select(
        samples.c.number,
        samples.c.id,
        samples.c.subject_id,
        samples.c.name,
        samples.c.quality,
        samples.c.image.is_not(None).label("has_image"),
        samples.c.created_at,
    ).where(
        samples.c.gallery_id == access.gallery_id, samples.c.subject_id == subject_id
    )
    with access.context.database.read() as connection:
        subject_row(connection, access.gallery_id, subject_id)
        gallery = gallery_row(connection, access.gallery_id)
        rows, cursor, total = page(
            connection, query, order=[samples.c.number], limit=limit, after=after
        )
        report, findings = findings_of(connection, access.gallery_id)
    fits = {} if report is None else report["record"]["fits"]
    items = [
        {
            **row,
            "has_image": bool(row["has_image"]) or gallery["inputs"] == "crops",
            "fit": fits.get(row["id"]),
            "findings": [one for one in findings if one["sample_id"] == row["id"]],
        }
        for row in rows
    ]
    return {"items": items, "next": cursor, "total": total}


@router.post(
    "/subjects/{subject_id}/samples",
    status_code=201,
    response_model=EnrollAnswer,
    openapi_extra=MANY_SAMPLES,
)
async def enroll(
    subject_id: str,
    access: ToEnroll,
    request: Request,
    several: Several = "error",
    min_quality: Quality = 0.0,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Any:
    """Enrol samples of a subject. Each file has an outcome of its own."""
    body = await read_body(request, access.context.settings)
    uploads = many_samples(body, access.context.settings)

    def work() -> tuple[int, dict[str, Any]]:
        with access.context.database.read() as connection:
            subject_row(connection, access.gallery_id, subject_id)
        return enroll_uploads(
            access,
            uploads,
            subject_id=subject_id,
            several=several,
            min_quality=min_quality,
            token=idempotency_key,
        )

    return await _enrolled(access, await run_in_threadpool(work), wait)


@router.post(
    "/samples", status_code=201, response_model=EnrollAnswer, openapi_extra=MANY_PEOPLE
)
async def enroll_people(
    access: ToEnroll,
    request: Request,
    several: Several = "error",
    min_quality: Quality = 0.0,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Any:
    """Enrol samples of many people. People who are not known are made."""
    body = await read_body(request, access.context.settings)
    uploads = people_samples(body, access.context.settings)

    def work() -> tuple[int, dict[str, Any]]:
        return enroll_uploads(
            access,
            uploads,
            several=several,
            min_quality=min_quality,
            token=idempotency_key,
        )

    return await _enrolled(access, await run_in_threadpool(work), wait)


async def _enrolled(
    access: Access, done: tuple[int, dict[str, Any]], wait: str | None
) -> Any:
    status, answer = done
    if status == 422:
        raise Problem(
            "nothing-enrolled",
            "No sample could be enrolled; the outcomes tell why.",
            **answer,
        )
    if wait is not None:
        await access.context.wait_for_model(access.gallery_id, answer["revision"])
    return JSONResponse(EnrollAnswer(**answer).model_dump(), status_code=status)


@router.get("/samples/{sample_id}/image", responses={200: {"content": {"image/*": {}}}})
def image(sample_id: str, access: ToEnroll) -> Response:
    """The picture of a sample: the crop, or the photograph if it is kept."""
    with access.context.database.read() as connection:
        gallery = gallery_row(connection, access.gallery_id)
        row = connection.execute(
            select(samples.c.row, samples.c.image).where(
                samples.c.id == sample_id, samples.c.gallery_id == access.gallery_id
            )
        ).first()
    if row is None:
        raise not_found()
    return picture(row.image, row.row, gallery)


def picture(kept: bytes | None, row: bytes, gallery: Row) -> Response:
    """A picture that is kept, or the pixels of a crop; raises a `Problem` if none."""
    if kept is not None:
        kind = "image/png" if kept.startswith(b"\x89PNG") else "image/jpeg"
        return Response(kept, media_type=kind)
    if gallery["inputs"] == "crops":
        return Response(png_of_crop(row, gallery), media_type="image/png")
    raise Problem("no-image", "This gallery does not keep photographs.")


@router.delete("/samples/{sample_id}", response_model=ErasureAnswer)
async def remove_sample(sample_id: str, access: ToEnroll) -> Any:
    """Erase one sample from everything. The answer is the receipt."""

    def delete() -> str:
        database = access.context.database
        with database.write() as connection:
            return erasure.erase_samples(
                database,
                connection,
                access.gallery_id,
                [sample_id],
                actor=access.principal.key_id,
            )

    erasure_id = await run_in_threadpool(delete)
    return await access.context.wait_for_erasure(erasure_id)


def enroll_uploads(
    access: Access,
    uploads: Sequence[Upload],
    *,
    subject_id: str | None = None,
    several: Any = "error",
    min_quality: float = 0.0,
    min_detection: float = 0.0,
    token: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Enrol what can be enrolled, in one transaction.

    Parameters
    ----------
    access : Access
        The gallery.
    uploads : sequence of Upload
        The samples.
    subject_id : str, optional
        The subject; if it is not given, each sample names its own.
    several : {"error", "largest"}
        What happens if a photograph has several faces of similar size.
    min_quality : float
        Smallest quality of a face.
    min_detection : float
        Smallest confidence of the detector. Other faces are overlooked.
    token : str, optional
        The Idempotency-Key. The same request gets the same answer.

    Returns
    -------
    int and dict
        Status and members of the answer.
    """
    context, gallery_id = access.context, access.gallery_id
    fingerprint = _fingerprint(uploads, subject_id)
    if token is not None:
        with context.database.read() as connection:
            known = _known_answer(access, connection, token, fingerprint)
        if known is not None:
            return known
    gallery = context.gallery(gallery_id)
    outcomes: list[dict[str, Any]] = []
    new: list[tuple[int, str, NewSample]] = []
    for upload in uploads:
        outcome: dict[str, Any] = {"name": upload.name, "status": "refused"}
        outcomes.append(outcome)
        try:
            sample, remarks = _sample(
                access, upload, gallery, several, min_quality, min_detection
            )
            name = "" if subject_id is not None else valid_name(upload.subject)
        except DualQMLError as error:
            problem = as_problem(error)
            outcome |= {"code": problem.code, "detail": problem.detail}
            continue
        outcome |= {"quality": sample.quality, "remarks": remarks}
        new.append((len(outcomes) - 1, name, sample))
    with context.database.write() as connection:
        locked = gallery_row(connection, gallery_id, lock=True)
        if token is not None:
            # The same request may have come twice at the same time.
            known = _known_answer(access, connection, token, fingerprint)
            if known is not None:
                return known
        if subject_id is not None:
            # It may have been erased while images were decoded.
            subject_row(connection, gallery_id, subject_id)
        for place, name, sample in new:
            owner = subject_id or _subject(access, connection, name)
            try:
                ids = add_samples(connection, locked, owner, [sample])
            except Problem as problem:
                outcomes[place] |= {"code": problem.code, "detail": problem.detail}
                continue
            outcomes[place] |= {
                "status": "enrolled",
                "subject_id": owner,
                "sample_id": ids[0],
            }
        enrolled = sum(one["status"] == "enrolled" for one in outcomes)
        revision = int(locked["revision"])
        if enrolled:
            revision = touch(connection, gallery_id)
            _audit(access, connection, "sample.enrol", subject_id, samples=enrolled)
        answer = {
            "outcomes": outcomes,
            "enrolled": enrolled,
            "refused": len(outcomes) - enrolled,
            "revision": revision,
        }
        status = 201 if enrolled else 422
        if token is not None and enrolled:
            _keep_answer(access, connection, token, fingerprint, status, answer)
    return status, answer


def subject_answers(
    connection: Connection, gallery_id: str, rows: Sequence[Row]
) -> list[dict[str, Any]]:
    """Subjects as answers, with what the last check found."""
    ids = [row["id"] for row in rows]
    numbers = {
        row.subject_id: row[1]
        for row in connection.execute(
            select(samples.c.subject_id, func.count())
            .where(samples.c.subject_id.in_(ids))
            .group_by(samples.c.subject_id)
        )
    }
    _, findings = findings_of(connection, gallery_id)
    return [
        {
            "id": row["id"],
            "name": row["name"],
            "n_samples": numbers.get(row["id"], 0),
            "expires_at": row["expires_at"],
            "created_at": row["created_at"],
            "findings": [one for one in findings if one["subject_id"] == row["id"]],
        }
        for row in rows
    ]


def _sample(
    access: Access,
    upload: Upload,
    gallery: Row,
    several: Any,
    min_quality: float,
    min_detection: float,
) -> tuple[NewSample, list[str]]:
    if upload.problem is not None:
        raise upload.problem
    check_kind(upload, gallery)
    if upload.vector is not None:
        return NewSample(upload.name, upload.vector), []
    assert upload.content is not None
    image = access.context.decoders.decode(
        upload.content, gallery, keep=gallery["keep_photographs"]
    )
    sure = image.confident(min_detection)
    sample = sure.sample(upload.name, several=several, min_quality=min_quality)
    return sample, list(image.remarks)


def _subject(access: Access, connection: Connection, name: str) -> str:
    known = subject_named(connection, access.gallery_id, name)
    if known is not None:
        return str(known["id"])
    created = create_subject(connection, access.gallery_id, name)
    _audit(access, connection, "subject.create", created)
    return created


def _fingerprint(uploads: Sequence[Upload], subject_id: str | None) -> str:
    digest = hashlib.sha256((subject_id or "").encode())
    for upload in uploads:
        for part in (
            upload.name.encode("utf-8", "replace"),
            upload.subject.encode("utf-8", "replace"),
            upload.content or b"",
            upload.vector or b"",
        ):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _known_answer(
    access: Access, connection: Connection, token: str, fingerprint: str
) -> tuple[int, dict[str, Any]] | None:
    row = (
        connection.execute(
            select(idempotency).where(
                idempotency.c.key_id == access.principal.key_id,
                idempotency.c.token == token,
            )
        )
        .mappings()
        .first()
    )
    if row is None or row["created_at"] < now(days=-_IDEMPOTENT_DAYS):
        return None
    if row["gallery_id"] != access.gallery_id or row["fingerprint"] != fingerprint:
        raise Problem("conflict", "This Idempotency-Key was used for another request.")
    return int(row["status"]), dict(row["answer"])


def _keep_answer(
    access: Access,
    connection: Connection,
    token: str,
    fingerprint: str,
    status: int,
    answer: dict[str, Any],
) -> None:
    connection.execute(
        idempotency.delete().where(
            (idempotency.c.created_at < now(days=-_IDEMPOTENT_DAYS))
            | (
                (idempotency.c.key_id == access.principal.key_id)
                & (idempotency.c.token == token)
            )
        )
    )
    connection.execute(
        insert(idempotency).values(
            key_id=access.principal.key_id,
            token=token,
            gallery_id=access.gallery_id,
            fingerprint=fingerprint,
            status=status,
            answer=answer,
            created_at=now(),
        )
    )


def _audit(
    access: Access,
    connection: Connection,
    action: str,
    target_id: str | None,
    **details: Any,
) -> None:
    record(
        access.context.database,
        connection,
        access.principal.key_id,
        action,
        gallery_id=access.gallery_id,
        target_id=target_id,
        **details,
    )


def _time(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    try:
        return as_time(moment)
    except (OverflowError, ValueError) as error:
        raise Problem("invalid", "The time is out of range.") from error
