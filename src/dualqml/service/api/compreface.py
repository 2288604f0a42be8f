# SPDX-License-Identifier: BSD-3-Clause
"""The routes of CompreFace, so that its clients work without a change.

A key is for one gallery, as a key of CompreFace is for one of its services. There are
four differences. A face that reaches no threshold has no subjects: it is unknown. To
delete everybody by leaving out a name is refused. A picture is compared with all
samples of its person. And what is deleted is erased, with a receipt (``/v1``).
"""

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from dualqml.service.api import subjects as people_routes
from dualqml.service.api.common import page
from dualqml.service.api.compreface_answers import (
    ERRORS,
    CompareAnswer,
    CompareVectorsAnswer,
    DeletedAnswer,
    DetectAnswer,
    EmbeddingPair,
    EmbeddingsBody,
    ErrorBody,
    FacesAnswer,
    ImageAnswer,
    RecogniseAnswer,
    RecogniseVectorsAnswer,
    SubjectBody,
    SubjectsAnswer,
    UpdatedAnswer,
    VerifyPhotographsAnswer,
    error_answer,
    similarity,
)
from dualqml.service.api.recognition import (
    Found,
    Probe,
    decide,
    decide_claims,
    keep_strangers,
    read_probe,
)
from dualqml.service.audit import record
from dualqml.service.context import Access, Caller, context_of
from dualqml.service.metrics import FACES
from dualqml.service.models import as_inputs, new_recognizer
from dualqml.service.people import (
    Row,
    change_subject,
    counts,
    gallery_row,
    merge_subjects,
    subject_named,
    valid_name,
    vector_bytes,
)
from dualqml.service.problems import Problem, not_found
from dualqml.service.schemas import SubjectBody as NewSubject
from dualqml.service.security import Scope, authorise
from dualqml.service.tables import galleries, samples, subjects
from dualqml.service.uploads import (
    Body,
    Upload,
    body_document,
    check_kind,
    one_sample,
    read_body,
)

__all__ = ["error_answer", "router"]

router = APIRouter(prefix="/api/v1", tags=["compreface"], responses=ERRORS)

_BINARY = {"type": "string", "format": "binary"}
_BASE64 = {"type": "string", "format": "byte", "description": "Base64 of a file."}


def _images(*names: str) -> dict[str, Any]:
    """What the OpenAPI document says of a body with images."""
    return body_document(
        dict.fromkeys(names, _BINARY),
        dict.fromkeys(names, _BASE64),
        dict.fromkeys(names, "/9j/4AAQSkZJRg=="),
    )


_ONE_IMAGE = _images("file")
#: The names of what finds and describes faces, and of what takes crops.
_VERSIONS = {
    "photographs": {"detector": "YuNet 2023mar", "calculator": "SFace 2021dec"},
    "crops": {"detector": "none", "calculator": "none"},
}
#: Why a request without a name is refused.
_NOT_EVERYBODY = (
    "Name the subject. To erase everybody by leaving out the name is refused: delete "
    "the gallery instead, with DELETE /v1/galleries/{gallery_id}."
)
#: The enrolled one of two photographs that are compared.
_SOURCE = "source"


@dataclass(frozen=True)
class Options:
    """What clients may ask for.

    Attributes
    ----------
    limit : int
        Most faces, the largest first; 0 means all.
    det_prob_threshold : float
        Smallest confidence of the detector.
    face_plugins : str
        What is told of faces: "landmarks" and "calculator". Others are ignored.
    status : bool
        Whether times and names of networks are told.
    detect_faces : bool
        Accepted, without effect: a gallery of photographs always searches for faces,
        a gallery of crops never does.
    """

    limit: Annotated[int, Query(ge=0)] = 0
    det_prob_threshold: Annotated[float, Query(ge=0.0, le=1.0)] = 0.0
    face_plugins: Annotated[str, Query(max_length=200)] = ""
    status: bool = False
    detect_faces: bool = True

    def wants(self, plugin: str) -> bool:
        """Whether a plugin was asked for."""
        return plugin in [name.strip() for name in self.face_plugins.split(",")]


Chosen = Annotated[Options, Depends()]
Predictions = Annotated[int, Query(ge=1, le=1000)]


def _access(scope: Scope) -> Any:
    async def check(request: Request, principal: Caller) -> Access:
        context = context_of(request)
        gallery_id = principal.gallery_id
        if gallery_id is None:
            # Its clients cannot name a gallery.
            query = select(galleries.c.id).limit(2)
            found = context.cache.get(
                ("first galleries",),
                lambda connection: connection.execute(query).scalars().all(),
            )
            if not found:
                raise Problem("conflict", "There is no gallery yet: make one first.")
            if len(found) > 1:
                raise Problem(
                    "conflict",
                    "There are several galleries, and this key is for all of them: "
                    "send a key that was made for one gallery.",
                )
            gallery_id = found[0]
        authorise(principal, context.cache, gallery_id, scope)
        return Access(context, principal, gallery_id)

    return Depends(check)


#: Access to the gallery of the key.
OwnToIdentify = Annotated[Access, _access("identify")]
OwnToEnrol = Annotated[Access, _access("enrol")]


@router.post(
    "/recognition/recognize", response_model=RecogniseAnswer, openapi_extra=_ONE_IMAGE
)
async def recognise(
    access: OwnToIdentify,
    request: Request,
    options: Chosen,
    prediction_count: Predictions = 1,
) -> Any:
    """Who is on a photograph. Faces that are unknown have no subjects.

    With ``prediction_count``, a match has the next similar subjects too.
    """
    (upload,) = await _uploads(access, request, "file")

    def work() -> dict[str, Any]:
        gallery = access.context.gallery(access.gallery_id)
        seen = _Seen.of(access, gallery, upload, options, keep=True)
        found = _decided(access, gallery, seen.probe, prediction_count)
        people = _people(found, len(seen.probe.rows))
        return seen.answer([{"subjects": own} for own in people])

    return JSONResponse(await run_in_threadpool(work))


@router.post("/recognition/embeddings/recognize", response_model=RecogniseVectorsAnswer)
def recognise_vectors(
    body: EmbeddingsBody, access: OwnToIdentify, prediction_count: Predictions = 1
) -> Any:
    """Whose vectors these are. Vectors that are unknown have no similarities."""
    gallery, rows = _vectors(access, body.embeddings)
    found = _decided(access, gallery, Probe(rows), prediction_count)
    people = _people(found, len(rows))
    return JSONResponse(
        {
            "result": [
                {"embedding": vector, "similarities": own}
                for vector, own in zip(body.embeddings, people, strict=True)
            ]
        }
    )


@router.post(
    "/recognition/faces",
    status_code=201,
    response_model=ImageAnswer,
    openapi_extra=_ONE_IMAGE,
)
async def add_face(
    access: OwnToEnrol,
    request: Request,
    subject: Annotated[str, Query(max_length=200)] = "",
    det_prob_threshold: Annotated[float, Query(ge=0.0, le=1.0)] = 0.0,
) -> Any:
    """Enrol a sample of a subject, who is made if there is no such subject.

    The next request finds it in the model.
    """
    name = (
        valid_name(subject) if subject else _refuse("Name the person: ?subject=NAME.")
    )
    (upload,) = await _uploads(access, request, "file")
    _, done = await run_in_threadpool(
        people_routes.enroll_uploads,
        access,
        [replace(upload, subject=name)],
        min_detection=det_prob_threshold,
    )
    (outcome,) = done["outcomes"]
    if outcome["status"] != "enrolled":
        raise Problem(outcome["code"], outcome["detail"])
    await _wait(access, done["revision"])
    answer = {"image_id": _uuid(outcome["sample_id"]), "subject": name}
    return JSONResponse(answer, status_code=201)


@router.get("/recognition/faces", response_model=FacesAnswer)
def list_faces(
    access: OwnToEnrol,
    number: Annotated[int, Query(alias="page", ge=0, le=1_000_000)] = 0,
    size: Annotated[int, Query(ge=1, le=1000)] = 20,
    subject: str = "",
) -> Any:
    """The samples of all subjects, or of one."""
    query = (
        select(samples.c.number, samples.c.id, subjects.c.name)
        .join(subjects, subjects.c.id == samples.c.subject_id)
        .where(samples.c.gallery_id == access.gallery_id)
    )
    if subject:
        query = query.where(subjects.c.name == subject)
    with access.context.database.read() as connection:
        rows, _, total = page(
            connection,
            query,
            order=[samples.c.number],
            limit=size,
            after=str(number * size),
        )
    return {
        "faces": [
            {"image_id": _uuid(row["id"]), "subject": row["name"]} for row in rows
        ],
        "page_number": number,
        "page_size": size,
        "total_pages": -(-total // size),
        "total_elements": total,
    }


@router.delete("/recognition/faces", response_model=DeletedAnswer)
async def remove_faces(access: OwnToEnrol, subject: str = "") -> Any:
    """Erase a subject with all samples. Without a name, nobody is erased."""
    if not subject:
        _refuse(_NOT_EVERYBODY)
    with access.context.database.read() as connection:
        row = subject_named(connection, access.gallery_id, subject)
    if row is None:
        return {"deleted": 0}
    receipt = await people_routes.erase_subject(access, row["id"])
    return {"deleted": receipt["counts"]["samples"]}


@router.delete("/recognition/faces/{image_id}", response_model=ImageAnswer)
async def remove_face(image_id: str, access: OwnToEnrol) -> Any:
    """Erase one sample."""
    row = _sample(access, image_id)
    await people_routes.remove_sample(row["id"], access)
    return {"image_id": _uuid(row["id"]), "subject": row["name"]}


@router.get(
    "/recognition/faces/{image_id}/img",
    responses={200: {"content": {"image/*": {}}}},
    response_class=Response,
)
def face_image(image_id: str, access: OwnToEnrol) -> Response:
    """The picture of a sample, if it is kept."""
    return people_routes.image(_sample_id(image_id), access)


@router.post(
    "/recognition/faces/{image_id}/verify",
    response_model=CompareAnswer,
    openapi_extra=_ONE_IMAGE,
)
async def verify_face(
    image_id: str, access: OwnToIdentify, request: Request, options: Chosen
) -> Any:
    """Compare the faces of a photograph with the person of a sample."""
    (upload,) = await _uploads(access, request, "file")

    def work() -> dict[str, Any]:
        row = _sample(access, image_id)
        gallery = access.context.gallery(access.gallery_id)
        seen = _Seen.of(access, gallery, upload, options)
        found = _claimed(access, gallery, row, seen.probe.rows)
        return seen.answer([{"similarity": one} for one in found])

    return JSONResponse(await run_in_threadpool(work))


@router.post(
    "/recognition/embeddings/faces/{image_id}/verify",
    response_model=CompareVectorsAnswer,
)
def verify_vectors(image_id: str, body: EmbeddingsBody, access: OwnToIdentify) -> Any:
    """Compare vectors with the person of a sample."""
    row = _sample(access, image_id)
    gallery, rows = _vectors(access, body.embeddings)
    return _compared(body.embeddings, _claimed(access, gallery, row, rows))


@router.get("/recognition/subjects", response_model=SubjectsAnswer)
@router.get("/recognition/subjects/", include_in_schema=False)
def list_subjects(access: OwnToEnrol) -> Any:
    """The names of all subjects."""
    query = select(subjects.c.name).where(subjects.c.gallery_id == access.gallery_id)
    with access.context.database.read() as connection:
        names = connection.execute(query.order_by(subjects.c.name)).scalars().all()
    return {"subjects": names}


@router.post("/recognition/subjects", status_code=201, response_model=SubjectBody)
def add_subject(body: SubjectBody, access: OwnToEnrol, response: Response) -> Any:
    """Make a subject, without samples yet."""
    name = valid_name(body.subject)
    people_routes.create(NewSubject(name=name), access, response)
    return {"subject": name}


@router.put("/recognition/subjects/{subject:path}", response_model=UpdatedAnswer)
async def rename_subject(subject: str, body: SubjectBody, access: OwnToEnrol) -> Any:
    """Rename a subject. If there is one of the new name, both become one."""
    revision = await run_in_threadpool(_rename, access, subject, body.subject)
    if revision is not None:
        await _wait(access, revision)
    return {"updated": True}


@router.delete("/recognition/subjects", status_code=400, response_model=ErrorBody)
def remove_subjects(access: OwnToEnrol) -> Any:
    """Refused: nobody erases everybody by leaving out a name."""
    _refuse(_NOT_EVERYBODY)


@router.delete("/recognition/subjects/{subject:path}", response_model=SubjectBody)
async def remove_subject(subject: str, access: OwnToEnrol) -> Any:
    """Erase a subject with all samples."""
    if not subject:
        _refuse(_NOT_EVERYBODY)
    with access.context.database.read() as connection:
        row = subject_named(connection, access.gallery_id, subject)
    if row is None:
        raise not_found()
    await people_routes.erase_subject(access, row["id"])
    return {"subject": subject}


@router.post("/detection/detect", response_model=DetectAnswer, openapi_extra=_ONE_IMAGE)
async def detect(access: OwnToIdentify, request: Request, options: Chosen) -> Any:
    """Where faces are in a photograph."""
    (upload,) = await _uploads(access, request, "file")

    def work() -> dict[str, Any]:
        gallery = access.context.gallery(access.gallery_id)
        describe = options.wants("calculator")
        seen = _Seen.of(access, gallery, upload, options, describe=describe)
        return seen.answer([{} for _ in seen.probe.rows])

    return JSONResponse(await run_in_threadpool(work))


@router.post(
    "/verification/verify",
    response_model=VerifyPhotographsAnswer,
    openapi_extra=_images("source_image", "target_image"),
)
async def verify_photographs(
    access: OwnToIdentify, request: Request, options: Chosen
) -> Any:
    """Compare the face of a photograph with all faces of another. None is kept."""
    uploads = await _uploads(access, request, "source_image", "target_image")

    def work() -> dict[str, Any]:
        gallery = _of_photographs(access)
        whole = replace(options, limit=0)
        source, target = (
            _Seen.of(access, gallery, upload, chosen)
            for upload, chosen in zip(uploads, (whole, options), strict=True)
        )
        main = source.main()
        found = _compare(gallery, main.probe.rows[0], target.probe.rows)
        faces = target.answer([{"similarity": one} for one in found])
        matches = faces.pop("result")
        (own,) = main.answer([{}])["result"]
        pair = {"source_image_face": own, "face_matches": matches, **faces}
        return {"result": [pair]}

    return JSONResponse(await run_in_threadpool(work))


@router.post("/verification/embeddings/verify", response_model=CompareVectorsAnswer)
def verify_pair(body: EmbeddingPair, access: OwnToIdentify) -> Any:
    """Compare a vector with others. None is kept."""
    gallery = _of_photographs(access)
    source, *targets = (vector_bytes(one) for one in (body.source, *body.targets))
    return _compared(body.targets, _compare(gallery, source, targets))


def _refuse(why: str) -> Any:
    raise Problem("invalid", why)


@dataclass(frozen=True, eq=False)
class _Seen:
    """The faces of an image, what is to be told of them, and how long it took."""

    probe: Probe
    gallery: Row
    options: Options
    begin: float
    seconds: float

    @classmethod
    def of(
        cls,
        access: Access,
        gallery: Row,
        upload: Upload,
        options: Options,
        *,
        describe: bool = True,
        keep: bool = False,
    ) -> "_Seen":
        """Find the faces; raise a `Problem` if there is none."""
        check_kind(upload, gallery)
        begin = time.perf_counter()
        keep = keep and gallery["keep_strangers"]
        probe = read_probe(access, gallery, upload, describe=describe, keep=keep)
        image = probe.image
        assert image is not None
        if image.faces:
            image = image.confident(options.det_prob_threshold, limit=options.limit)
            if not image.faces:
                # The error is that of an enrolment.
                image.sample(upload.name)
            probe = Probe([one.row for one in image.faces], image)
        seconds = time.perf_counter() - begin
        return cls(probe, gallery, options, begin, seconds)

    def main(self) -> "_Seen":
        """The only face that is not in the background; raises a `Problem` if none."""
        image = self.probe.image
        assert image is not None
        row = image.sample("").row
        faces = tuple(one for one in image.faces if one.row == row)[:1]
        return replace(self, probe=Probe([row], replace(image, faces=faces)))

    def answer(self, members: list[dict[str, Any]]) -> dict[str, Any]:
        """All faces, each with some members of its own."""
        faces = [self._face(n) | own for n, own in enumerate(members)]
        if not self.options.status:
            return {"result": faces}
        rest = time.perf_counter() - self.begin - self.seconds
        times = {
            "detector": round(1000.0 * self.seconds, 1),
            "calculator": round(1000.0 * rest, 1),
        }
        return {
            "result": [face | {"execution_time": times} for face in faces],
            "plugins_versions": _VERSIONS[self.gallery["inputs"]],
        }

    def _face(self, number: int) -> dict[str, Any]:
        image = self.probe.image
        assert image is not None
        if not image.faces:
            # A crop is all face.
            return {"box": _box((0, 0, image.height, image.width), 1.0)}
        one = image.faces[number]
        found: dict[str, Any] = {"box": _box(one.face.box, one.face.score)}
        if self.options.wants("landmarks"):
            found["landmarks"] = [
                [round(column), round(row)] for row, column in one.face.landmarks
            ]
        if self.options.wants("calculator"):
            found["embedding"] = np.frombuffer(one.row, dtype="<f4").tolist()
        return found


def _box(box: tuple[int, int, int, int], probability: float) -> dict[str, Any]:
    top, left, bottom, right = map(int, box)
    return {
        "probability": round(float(probability), 5),
        "x_min": left,
        "y_min": top,
        "x_max": right,
        "y_max": bottom,
    }


async def _uploads(access: Access, request: Request, *names: str) -> list[Upload]:
    """The images of a request: files of a form, or base64 in JSON."""
    body = await read_body(request, access.context.settings)
    return [_upload(body, name) for name in names]


def _upload(body: Body, name: str) -> Upload:
    text = body.fields.get(name)
    if text is not None:
        return one_sample(Body(fields={"image": text}))
    files = [upload for field, upload in body.files if field == name]
    if len(files) != 1:
        _refuse(f'Send one image as "{name}": a file of a form, or base64 in JSON.')
    return files[0]


def _vectors(access: Access, vectors: Iterable[list[float]]) -> tuple[Row, list[bytes]]:
    """The gallery, and vectors that it takes."""
    gallery = access.context.gallery(access.gallery_id)
    rows = [vector_bytes(vector) for vector in vectors]
    check_kind(Upload(vector=rows[0]), gallery)
    return gallery, rows


def _decided(access: Access, gallery: Row, probe: Probe, top: int) -> Found | None:
    """Decide, and keep strangers if wanted; None if nobody is enrolled."""
    try:
        found = decide(access, gallery, probe.rows, top=top)
    except Problem as problem:
        if problem.code != "no-model":
            raise
        with access.context.database.read() as connection:
            if counts(connection, access.gallery_id)["n_samples"]:
                raise
        return None
    for answer in found.answers:
        FACES.labels(answer.decision).inc()
    keep_strangers(access, gallery, probe, found)
    return found


def _people(found: Found | None, n_faces: int) -> list[list[dict[str, Any]]]:
    """For each face the similar people; nobody for an unknown face."""
    if found is None:
        return [[] for _ in range(n_faces)]
    return [
        [
            {
                "subject": found.names[one.subject],
                "similarity": similarity(one.score, answer.threshold),
            }
            for one in answer.candidates
            if answer.decision == "match"
        ]
        for answer in found.answers
    ]


def _claimed(
    access: Access, gallery: Row, sample: Row, rows: list[bytes]
) -> list[float]:
    """Similarities of faces to the person of a sample."""
    _, found = decide_claims(access, gallery, sample["subject_id"], rows)
    return [similarity(one.score, one.threshold) for one in found]


def _of_photographs(access: Access) -> Row:
    """The gallery; raises a `Problem` if it is not one of photographs.

    What is known of other people's faces belongs to the network for photographs.
    """
    gallery = access.context.gallery(access.gallery_id)
    if gallery["inputs"] != "photographs":
        raise Problem(
            "wrong-kind", "Two photographs can be compared in galleries of photographs."
        )
    return gallery


def _compare(gallery: Row, source: bytes, targets: list[bytes]) -> list[float]:
    """Similarities of two photographs' faces, in the light of many other people.

    A recogniser of the first face alone is made, and forgotten.
    """
    recognizer = new_recognizer(gallery)
    assert recognizer.background is not None
    wanted = recognizer.background.n_features
    if any(len(row) != 4 * wanted for row in (source, *targets)):
        _refuse(f"The vectors of photographs have {wanted} values.")
    recognizer.enroll(_SOURCE, as_inputs(gallery, [source]))
    recognizer.calibrate(fmr=gallery["target_rate"])
    found = recognizer.verify_many(
        [_SOURCE] * len(targets), as_inputs(gallery, targets)
    )
    return [similarity(one.score, one.threshold) for one in found]


def _compared(vectors: list[list[float]], found: list[float]) -> Response:
    pairs = zip(vectors, found, strict=True)
    result = [{"embedding": vector, "similarity": one} for vector, one in pairs]
    return JSONResponse({"result": result})


def _rename(access: Access, old: str, new: str) -> int | None:
    """Rename or merge; the revision that a model must have, if it changes."""
    new = valid_name(new)
    database, gallery_id = access.context.database, access.gallery_id
    with database.write() as connection:
        gallery_row(connection, gallery_id, lock=True)
        source = subject_named(connection, gallery_id, old)
        if source is None:
            raise not_found()
        target = subject_named(connection, gallery_id, new)
        revision, details = None, {"changed": ["name"]}
        if target is None or target["id"] == source["id"]:
            target = source
            change_subject(connection, gallery_id, source["id"], {"name": new})
        else:
            revision = merge_subjects(connection, gallery_id, source, target)
            details = {"merged": [source["id"]]}
        record(
            database,
            connection,
            access.principal.key_id,
            "subject.change" if revision is None else "subject.merge",
            gallery_id=gallery_id,
            target_id=target["id"],
            **details,
        )
    return revision


async def _wait(access: Access, revision: int) -> None:
    """Wait for the model: clients expect that the next request knows a change."""
    try:
        await access.context.wait_for_model(access.gallery_id, revision)
    except Problem as problem:
        # The change is durable. Told of an error, clients would make it twice.
        if problem.code != "not-ready":
            raise


def _sample(access: Access, image_id: str) -> Row:
    """A sample of the gallery, with the name of its subject."""
    query = (
        select(samples.c.id, samples.c.subject_id, subjects.c.name)
        .join(subjects, subjects.c.id == samples.c.subject_id)
        .where(
            samples.c.id == _sample_id(image_id),
            samples.c.gallery_id == access.gallery_id,
        )
    )
    with access.context.database.read() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        raise not_found()
    return row


def _uuid(sample_id: str) -> str:
    """The id of a sample as CompreFace writes ids."""
    return str(uuid.UUID(hex=sample_id))


def _sample_id(image_id: str) -> str:
    try:
        return uuid.UUID(image_id).hex
    except ValueError:
        raise not_found() from None
