# SPDX-License-Identifier: BSD-3-Clause
"""Decisions: who is on a photograph, whether it is somebody, and where faces are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from dualqml.exceptions import NoThresholdError, RecognitionError
from dualqml.recognition import (
    Calibration,
    Explanation,
    Identification,
    Verification,
)
from dualqml.recognition.decision_model import DecisionModel
from dualqml.service.api.common import PROBLEMS, Wait
from dualqml.service.calibrations import is_stale
from dualqml.service.context import Access, ToIdentify
from dualqml.service.decoding import DecodedImage
from dualqml.service.metrics import FACES
from dualqml.service.models import LoadedModel, as_inputs
from dualqml.service.people import Row, gallery_row, names_of, subject_row
from dualqml.service.problems import Problem
from dualqml.service.schemas import DetectAnswer, IdentifyAnswer, VerifyAnswer
from dualqml.service.strangers import remember, same_person_cosine
from dualqml.service.uploads import (
    ONE_CLAIM,
    ONE_SAMPLE,
    Upload,
    check_kind,
    one_sample,
    read_body,
)

if TYPE_CHECKING:
    from dualqml.recognition import Recognizer

router = APIRouter(
    prefix="/v1/galleries/{gallery_id}", tags=["recognition"], responses=PROBLEMS
)

Top = Annotated[int, Query(ge=1, le=100, description="Number of candidates.")]
#: Times that an answer is computed again because somebody was erased meanwhile.
_TRIES = 5


@dataclass(frozen=True, eq=False)
class Probe:
    """What is to be recognised.

    Attributes
    ----------
    rows : list of bytes
        One for each face.
    image : DecodedImage or None
        The photograph or crop; None for a vector.
    """

    rows: list[bytes]
    image: DecodedImage | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """Decisions of one model about all faces of a probe.

    Attributes
    ----------
    model : LoadedModel
        The model.
    calibration : Calibration
        Where its threshold comes from.
    answers : list of Identification
        One for each face; subjects are ids.
    explanations : list of Explanation or None
        One for each face.
    names : dict of str to str
        Names of subjects by their ids.
    """

    model: LoadedModel
    calibration: Calibration
    answers: list[Identification]
    explanations: list[Explanation] | None
    names: dict[str, str]


@router.post("/identify", response_model=IdentifyAnswer, openapi_extra=ONE_SAMPLE)
async def identify(
    access: ToIdentify,
    request: Request,
    top: Top = 5,
    explain: bool = False,
    wait: Wait = None,
) -> Any:
    """Who is on a photograph: a decision for every face, the largest face first."""
    body = await read_body(request, access.context.settings)
    upload = one_sample(body)
    gallery = access.context.gallery(access.gallery_id)
    check_kind(upload, gallery)
    if wait is not None:
        await access.context.wait_for_model(access.gallery_id, gallery["revision"])
    if upload.vector is not None and not explain and not gallery["keep_strangers"]:
        # So short that another thread would take longer.
        probe = Probe([upload.vector])
        found = decide(access, gallery, probe.rows, top=top)
        return JSONResponse(identify_answer(gallery, probe, found, []))

    def work() -> dict[str, Any]:
        probe = read_probe(access, gallery, upload, keep=gallery["keep_strangers"])
        found = decide(access, gallery, probe.rows, top=top, explain=explain)
        kept = keep_strangers(access, gallery, probe, found)
        return identify_answer(gallery, probe, found, kept)

    return JSONResponse(await run_in_threadpool(work))


@router.post("/verify", response_model=VerifyAnswer, openapi_extra=ONE_CLAIM)
async def verify(access: ToIdentify, request: Request, wait: Wait = None) -> Any:
    """Whether a photograph shows a subject. It must have one face."""
    body = await read_body(request, access.context.settings)
    upload = one_sample(body)
    subject_id = body.text("subject")
    if not subject_id:
        raise Problem("invalid", 'Send the id of the subject as "subject".')
    gallery = access.context.gallery(access.gallery_id)
    check_kind(upload, gallery)
    if wait is not None:
        await access.context.wait_for_model(access.gallery_id, gallery["revision"])

    def work() -> dict[str, Any]:
        with access.context.database.read() as connection:
            subject = subject_row(connection, access.gallery_id, subject_id)
        row = upload.vector or main_face(access, gallery, upload)[0]
        model, (found,) = decide_claims(access, gallery, subject_id, [row])
        return {
            "decision": found.decision,
            "subject": {"id": subject_id, "name": subject["name"]},
            "score": found.score,
            "threshold": found.threshold,
            "probability": found.probability,
            "revision": model.revision,
            "model_id": found.model_id,
        }

    return JSONResponse(await run_in_threadpool(work))


@router.post("/detect", response_model=DetectAnswer, openapi_extra=ONE_SAMPLE)
async def detect(access: ToIdentify, request: Request) -> Any:
    """Where faces are in a photograph, and how good they are."""
    body = await read_body(request, access.context.settings)
    upload = one_sample(body)
    gallery = access.context.gallery(access.gallery_id)
    if upload.content is None or gallery["inputs"] != "photographs":
        raise Problem(
            "wrong-kind", "Faces are found in photographs, in galleries of photographs."
        )
    image = await run_in_threadpool(
        access.context.decoders.decode, upload.content, gallery, describe=False
    )
    return {
        "width": image.width,
        "height": image.height,
        "faces": [
            {
                "box": box_answer(one.face.box),
                "quality": one.face.quality,
                "weakness": one.face.weakness,
                "detection": one.face.score,
            }
            for one in image.faces
        ],
    }


def read_probe(
    access: Access,
    gallery: Row,
    upload: Upload,
    *,
    describe: bool = True,
    keep: bool = False,
) -> Probe:
    """Decode what is to be recognised.

    Parameters
    ----------
    access : Access
        The gallery.
    gallery : mapping
        Its row.
    upload : Upload
        The sample.
    describe : bool, default=True
        Whether faces are described, or only found.
    keep : bool, default=False
        Whether pictures of the faces are wanted, if the gallery keeps pictures.

    Returns
    -------
    Probe
        The faces, the largest first.

    Raises
    ------
    Problem
        There is no face.
    """
    if upload.vector is not None:
        return Probe([upload.vector])
    assert upload.content is not None
    image = access.context.decoders.decode(
        upload.content,
        gallery,
        describe=describe,
        keep=keep and gallery["keep_photographs"],
    )
    if image.row:
        return Probe([image.row], image)
    if not image.faces:
        # The error, with its advice, is that of an enrolment.
        image.sample(upload.name)
    return Probe([one.row for one in image.faces], image)


def main_face(
    access: Access, gallery: Row, upload: Upload
) -> tuple[bytes, bytes | None]:
    """The vector of the only face, or the pixels of a crop, and a picture of the face.

    There is a picture if the gallery keeps photographs.
    """
    assert upload.content is not None
    image = access.context.decoders.decode(
        upload.content, gallery, keep=gallery["keep_photographs"]
    )
    row = image.sample(upload.name).row
    thumbnail = next((one.thumbnail for one in image.faces if one.row == row), b"")
    return row, thumbnail or None


def usable(model: LoadedModel) -> "DecisionModel | Recognizer":
    """What decides; raises a `Problem` if there is no model."""
    if not model.exists:
        raise Problem("no-model", model.reason)
    return model.decider


def checked_inputs(model: LoadedModel, gallery: Row, rows: list[bytes]) -> Any:
    """Rows as the recogniser takes them; raises a `Problem` if they do not fit."""
    if gallery["inputs"] != "crops" and any(
        len(row) != 4 * model.width for row in rows
    ):
        raise Problem(
            "invalid",
            f"The vectors of this gallery have {model.width} values, not "
            f"{len(rows[0]) // 4}.",
        )
    return as_inputs(gallery, rows)


def decide_claims(
    access: Access, gallery: Row, subject_id: str, rows: list[bytes]
) -> tuple[LoadedModel, list[Verification]]:
    """Decide by the published model whether faces are those of a subject.

    Parameters
    ----------
    access : Access
        The gallery.
    gallery : mapping
        Its row.
    subject_id : str
        The subject claimed.
    rows : list of bytes
        One for each face.

    Returns
    -------
    LoadedModel and list of Verification
        The model, and one decision for each face.

    Raises
    ------
    Problem
        The model does not know the subject.
    """
    model = access.context.model(access.gallery_id)
    decider = usable(model)
    if subject_id not in model.subjects:
        raise Problem(
            "no-model",
            "The model does not know this subject yet: enrol samples, or send "
            "?wait=model.",
        )
    inputs = checked_inputs(model, gallery, rows)
    claimed = [subject_id] * len(rows)
    return model, _with_threshold(lambda: decider.verify_many(claimed, inputs))


def decide(
    access: Access,
    gallery: Row,
    rows: list[bytes],
    *,
    top: int = 5,
    explain: bool = False,
) -> Found:
    """Decide for all faces by the published model.

    Parameters
    ----------
    access : Access
        The gallery.
    gallery : mapping
        Its row.
    rows : list of bytes
        One for each face.
    top : int, default=5
        Number of candidates.
    explain : bool, default=False
        Whether answers are explained.

    Returns
    -------
    Found
        The decisions. No candidate was erased before the model was read.
    """
    for _ in range(_TRIES):
        model = access.context.model(access.gallery_id, whole=explain)
        decider = usable(model)
        inputs = checked_inputs(model, gallery, rows)
        explained: list[Explanation] | None = None
        if explain:
            explained = _with_threshold(
                lambda m=model, x=inputs: m.recognizer.explain_many(x, top=top)
            )
            answers = [one.identification for one in explained]
        else:
            answers = _with_threshold(
                lambda d=decider, x=inputs: d.identify_many(x, top=top)
            )
        wanted = {c.subject for one in answers for c in one.candidates}
        names = access.context.names(frozenset(wanted))
        if len(names) == len(wanted):
            calibration = model.calibration
            assert calibration is not None
            return Found(model, calibration, answers, explained, names)
        # Somebody is being erased: a newer model is on its way.
        access.context.cache.refresh()
    return Found(
        model,
        model.calibration or Calibration(0.0, "given"),
        [_without(one, names) for one in answers],
        None,
        names,
    )


def _without(answer: Identification, names: dict[str, str]) -> Identification:
    """A decision without people who are being erased."""
    kept = tuple(c for c in answer.candidates if c.subject in names)
    match = bool(kept) and kept[0].score >= answer.threshold
    return Identification(
        "match" if match else "unknown",
        kept[0].subject if match else None,
        kept[0].score if kept else answer.score,
        answer.threshold,
        kept,
        answer.model_id,
        answer.unknown_probability,
    )


def _with_threshold(call: Any) -> Any:
    try:
        return call()
    except NoThresholdError as error:
        raise Problem(
            "no-threshold",
            "There is no threshold yet: enrol at least four people, or set one with "
            "POST calibrations.",
        ) from error
    except RecognitionError as error:
        raise Problem("invalid", str(error)) from error


def keep_strangers(
    access: Access, gallery: Row, probe: Probe, found: Found
) -> list[str | None]:
    """Keep unknown faces, if the gallery asks for it."""
    unknown = [n for n, one in enumerate(found.answers) if one.decision == "unknown"]
    kept: list[str | None] = [None] * len(probe.rows)
    if not gallery["keep_strangers"] or not unknown:
        return kept
    whole = access.context.model(access.gallery_id, whole=True)
    limit = same_person_cosine(whole.recognizer, gallery)
    with access.context.database.write() as connection:
        locked = gallery_row(connection, access.gallery_id, lock=True)
        if not locked["keep_strangers"]:
            return kept
        for number in unknown:
            # There is none if all candidates are being erased.
            best = next(iter(found.answers[number].candidates), None)
            known = best is not None and best.subject in names_of(
                connection, [best.subject]
            )
            kept[number] = remember(
                connection,
                locked,
                probe.rows[number],
                limit=limit,
                image=_thumbnail(probe, number),
                nearest=(best.subject, best.score) if best and known else None,
            )
    return kept


def _thumbnail(probe: Probe, number: int) -> bytes | None:
    if probe.image is None or not probe.image.faces:
        return None
    return probe.image.faces[number].thumbnail or None


def identify_answer(
    gallery: Row, probe: Probe, found: Found, kept: list[str | None]
) -> dict[str, Any]:
    """Decisions as an answer, with names."""
    calibration = found.calibration
    faces = []
    for number, answer in enumerate(found.answers):
        FACES.labels(answer.decision).inc()
        face = None
        if probe.image is not None and probe.image.faces:
            face = probe.image.faces[number].face
        subject = answer.subject
        faces.append(
            {
                "box": None if face is None else box_answer(face.box),
                "quality": None if face is None else face.quality,
                "detection": None if face is None else face.score,
                "decision": answer.decision,
                "subject": None
                if subject is None
                else {"id": subject, "name": found.names[subject]},
                "score": answer.score,
                "unknown_probability": answer.unknown_probability,
                "candidates": [
                    {
                        "subject_id": one.subject,
                        "name": found.names[one.subject],
                        "score": one.score,
                        "probability": one.probability,
                    }
                    for one in answer.candidates
                ],
                "stranger_id": kept[number] if kept else None,
                "explanation": None
                if found.explanations is None
                else _explained(found.explanations[number], found.names),
            }
        )
    model = found.answers[0]
    return {
        "revision": found.model.revision,
        "model_id": model.model_id,
        "threshold": model.threshold,
        "calibration": {
            "kind": calibration.kind,
            "target": calibration.target,
            "achieved": calibration.achieved,
            "low": calibration.low,
            "high": calibration.high,
            "prior": calibration.prior,
            "stale": is_stale(vars(calibration), model.model_id),
        },
        "width": None if probe.image is None else probe.image.width,
        "height": None if probe.image is None else probe.image.height,
        "faces": faces,
    }


def _explained(one: Explanation, names: dict[str, str]) -> dict[str, Any]:
    """An explanation; samples are named by their ids."""
    nearest = one.nearest
    best = names[nearest.subject]
    margin = abs(one.margin)
    side = "above" if one.margin >= 0.0 else "below"
    text = (
        f"The best candidate is {best}. Its score {one.identification.score:.2f} is "
        f"{margin:.2f} {side} the threshold {one.identification.threshold:.2f}."
    )
    if one.runner_up is not None and one.gap is not None:
        text += f" Next is {names[one.runner_up.subject]}, {one.gap:.2f} lower."
    return {
        "text": text,
        "parts": [{"name": part.name, "value": part.value} for part in one.parts],
        "nearest": {
            "subject_id": nearest.subject,
            "name": best,
            "sample_id": nearest.name,
            "cosine": nearest.cosine,
        },
    }


def box_answer(box: tuple[int, int, int, int]) -> dict[str, int]:
    """A box as an answer."""
    return dict(zip(("top", "left", "bottom", "right"), map(int, box), strict=True))
