# SPDX-License-Identifier: BSD-3-Clause
"""What is measured on a gallery: its threshold, its health, and its errors."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy import select, update
from starlette.concurrency import run_in_threadpool

from dualqml.recognition import Calibration
from dualqml.service.api.administration import job_answer
from dualqml.service.api.common import PROBLEMS, calibration_answer, findings_of
from dualqml.service.audit import record
from dualqml.service.calibrations import keep_calibration, measure_again
from dualqml.service.context import Access, ToAdmin, ToEnroll, ToIdentify
from dualqml.service.jobs import job_row, new_job
from dualqml.service.people import gallery_row, touch
from dualqml.service.problems import Problem, not_found
from dualqml.service.schemas import (
    CalibrationAnswer,
    CalibrationBody,
    CurrentCalibrationAnswer,
    EvaluationAnswer,
    HealthAnswer,
    JobAnswer,
    Page,
)
from dualqml.service.tables import calibrations, galleries, reports

router = APIRouter(
    prefix="/v1/galleries/{gallery_id}", tags=["measures"], responses=PROBLEMS
)


@router.get("/calibrations", response_model=Page[CalibrationAnswer])
def list_calibrations(access: ToIdentify) -> Any:
    """The threshold of a gallery. Earlier ones are not kept."""
    with access.context.database.read() as connection:
        found = calibration_answer(connection, access.gallery_id)
    items = [] if found is None else [found]
    return {"items": items, "next": None, "total": len(items)}


@router.get("/calibrations/current", response_model=CurrentCalibrationAnswer)
def current(access: ToIdentify) -> Any:
    """The threshold, thresholds for other rates, and histograms of scores."""
    with access.context.database.read() as connection:
        found = calibration_answer(connection, access.gallery_id)
        if found is None:
            raise not_found()
        curve = connection.execute(
            select(calibrations.c.curve).where(
                calibrations.c.gallery_id == access.gallery_id
            )
        ).scalar() or {"curve": None, "distributions": None, "reason": None}
    return found | curve


@router.post("/calibrations", status_code=201, response_model=CalibrationAnswer)
async def calibrate(body: CalibrationBody, access: ToAdmin) -> Any:
    """Set the threshold for a rate of false matches, or by hand."""
    given = body.model_dump(exclude_none=True)
    if len(given) != 1:
        raise Problem("invalid", "Give one of fpir, fmr and threshold.")
    (kind, value), *_ = given.items()
    database = access.context.database

    def work() -> int:
        with database.write() as connection:
            gallery_row(connection, access.gallery_id, lock=True)
            if kind == "threshold":
                found = Calibration(value, "given", source="given by the user")
                keep_calibration(connection, access.gallery_id, found.as_dict())
            else:
                measure_again(connection, access.gallery_id)
                connection.execute(
                    update(galleries)
                    .where(galleries.c.id == access.gallery_id)
                    .values(target_kind=kind, target_rate=value)
                )
            revision = touch(connection, access.gallery_id)
            record(
                database,
                connection,
                access.principal.key_id,
                "calibration.set",
                gallery_id=access.gallery_id,
                **given,
            )
            return revision

    revision = await run_in_threadpool(work)
    await access.context.wait_for_model(access.gallery_id, revision)
    with database.read() as connection:
        answer = calibration_answer(connection, access.gallery_id)
    if answer is None:
        raise Problem(
            "no-threshold",
            "Too few people are enrolled to measure a threshold: enrol at least four, "
            "or give a threshold.",
        )
    return answer


@router.get("/health", response_model=HealthAnswer)
def health(access: ToEnroll) -> Any:
    """What the last check has found: outliers, look-alikes, people under two names."""
    with access.context.database.read() as connection:
        report, findings = findings_of(connection, access.gallery_id)
        gallery = gallery_row(connection, access.gallery_id)
    if report is None:
        raise Problem("not-found", "The gallery was not checked yet: POST to check it.")
    return {
        "revision": report["revision"],
        "current": report["revision"] == gallery["revision"],
        "n_checked": report["record"]["n_checked"],
        "not_checked": report["record"]["not_checked"],
        "findings": findings,
        "created_at": report["created_at"],
    }


@router.post("/health", status_code=202, response_model=JobAnswer)
def check(access: ToEnroll) -> Any:
    """Check the gallery, as a job."""
    return _start(access, "health")


@router.get("/evaluation", response_model=EvaluationAnswer)
def evaluation(access: ToEnroll) -> Any:
    """The last evaluation: CMC, DET and open-set curves."""
    with access.context.database.read() as connection:
        gallery = gallery_row(connection, access.gallery_id)
        report = (
            connection.execute(
                select(reports).where(
                    reports.c.gallery_id == access.gallery_id,
                    reports.c.kind == "evaluation",
                )
            )
            .mappings()
            .first()
        )
    if report is None:
        raise Problem(
            "not-found", "The gallery was not evaluated yet: POST to evaluate it."
        )
    return {
        **report["record"],
        "revision": report["revision"],
        "current": report["revision"] == gallery["revision"],
        "created_at": report["created_at"],
    }


@router.post("/evaluation", status_code=202, response_model=JobAnswer)
def evaluate(access: ToEnroll) -> Any:
    """Measure the errors of the gallery, as a job."""
    return _start(access, "evaluation")


def _start(access: Access, kind: str) -> dict[str, Any]:
    with access.context.database.write() as connection:
        job_id = new_job(connection, access.gallery_id, kind)
        return job_answer(job_row(connection, access.gallery_id, job_id))
