# SPDX-License-Identifier: BSD-3-Clause
"""Work that takes longer than a request: the demo, checks and evaluations."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, delete, func, insert, select, update

from dualqml.exceptions import DualQMLError
from dualqml.service.audit import record
from dualqml.service.database import Database, ReadCache
from dualqml.service.demo import enroll_demo
from dualqml.service.logs import logger
from dualqml.service.models import ModelCache
from dualqml.service.people import Row, gallery_row
from dualqml.service.problems import Problem, not_found
from dualqml.service.settings import Settings
from dualqml.service.tables import erasures, jobs, new_id, now, reports

if TYPE_CHECKING:
    from dualqml.recognition import Recognizer

#: Seconds between two notes of the progress.
_PAUSE = 0.2
#: Points of a curve, and ranks of a CMC curve.
_MOST_POINTS, _MOST_RANKS = 200, 20
#: Finished jobs that a gallery keeps.
_MOST_FINISHED = 50

Progress = Callable[[int, int], None]


class _CancelledError(Exception):
    """Somebody has cancelled the job."""


def new_job(
    connection: Connection, gallery_id: str, kind: str, **parameters: Any
) -> str:
    """Ask for a job; one of the same kind that is waiting is taken instead.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery_id : str
        The gallery.
    kind : {"demo", "health", "evaluation"}
        What to do.
    **parameters : dict
        Plain values.

    Returns
    -------
    str
        The id of the job.
    """
    waiting = connection.execute(
        select(jobs.c.id).where(
            jobs.c.gallery_id == gallery_id,
            jobs.c.kind == kind,
            jobs.c.state == "queued",
        )
    ).scalar()
    if waiting is not None:
        return str(waiting)
    finished = (
        connection.execute(
            select(jobs.c.id)
            .where(
                jobs.c.gallery_id == gallery_id,
                jobs.c.state.not_in(("queued", "running")),
            )
            .order_by(jobs.c.created_at.desc())
            .offset(_MOST_FINISHED)
        )
        .scalars()
        .all()
    )
    if finished:
        connection.execute(delete(jobs).where(jobs.c.id.in_(finished)))
    job_id = new_id()
    connection.execute(
        insert(jobs).values(
            id=job_id,
            gallery_id=gallery_id,
            kind=kind,
            state="queued",
            done=0,
            total=None,
            detail="",
            parameters=parameters,
            result=None,
            cancel=False,
            created_at=now(),
        )
    )
    return job_id


def job_row(connection: Connection, gallery_id: str, job_id: str) -> Row:
    """The row of a job; raises a `Problem` if the gallery has no such job."""
    row = (
        connection.execute(
            select(jobs).where(jobs.c.id == job_id, jobs.c.gallery_id == gallery_id)
        )
        .mappings()
        .first()
    )
    if row is None:
        raise not_found()
    return row


class JobRunner:
    """Run jobs, one after the other.

    Parameters
    ----------
    database : Database
        The database.
    settings : Settings
        The settings.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._cache = ReadCache(database)
        self._models = ModelCache(settings.models)
        #: Whether to stop, because the service ends.
        self.stopping: Callable[[], bool] = lambda: False

    def requeue(self) -> None:
        """Queue the jobs again that a killed process has left unfinished."""
        with self._database.write() as connection:
            connection.execute(
                update(jobs).where(jobs.c.state == "running").values(state="queued")
            )

    def step(self) -> bool:
        """Run the oldest job that is waiting.

        Returns
        -------
        bool
            Whether there was one.
        """
        query = (
            select(jobs)
            .where(jobs.c.state == "queued")
            .order_by(jobs.c.created_at)
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            return False
        with self._database.write() as connection:
            connection.execute(
                update(jobs).where(jobs.c.id == row["id"]).values(state="running")
            )
        values: dict[str, Any]
        try:
            result = self._run(row)
            values = {"state": "done", "result": result, "detail": ""}
        except _CancelledError:
            if self.stopping():
                values = {"state": "queued"}
            else:
                values = {"state": "cancelled", "detail": "Cancelled."}
        except DualQMLError as error:
            values = {"state": "failed", "detail": str(error)[:400]}
        # A job that fails for another reason must not be tried again and again.
        except Exception as error:
            logger().error("job failed", kind=row["kind"], error=type(error).__name__)
            values = {"state": "failed", "detail": "It has failed; the log tells more."}
        with self._database.write() as connection:
            connection.execute(
                update(jobs).where(jobs.c.id == row["id"]).values(**values)
            )
        return True

    def _run(self, row: Row) -> dict[str, Any]:
        progress = self._progress(row["id"])
        gallery_id = row["gallery_id"]
        if row["kind"] == "demo":
            with self._database.read() as connection:
                gallery = gallery_row(connection, gallery_id)
            n_samples = enroll_demo(self._database, gallery, progress)
            return {"gallery_id": gallery_id, "enrolled": n_samples}
        self._cache.refresh()
        model = self._models.get(self._cache, gallery_id, whole=True)
        if model.recognizer is None:
            raise Problem("no-model", model.reason)
        work = _check if row["kind"] == "health" else _evaluate
        content = work(model.recognizer, progress)
        with self._database.write() as connection:
            gallery = gallery_row(connection, gallery_id, lock=True)
            if model.revision < _oldest_allowed(connection, gallery):
                raise Problem("erased", "Somebody was erased meanwhile: start again.")
            connection.execute(
                delete(reports).where(
                    reports.c.gallery_id == gallery_id, reports.c.kind == row["kind"]
                )
            )
            connection.execute(
                insert(reports).values(
                    gallery_id=gallery_id,
                    kind=row["kind"],
                    revision=model.revision,
                    record=content,
                    created_at=now(),
                )
            )
            record(
                self._database,
                connection,
                "service",
                f"{row['kind']}.done",
                gallery_id=gallery_id,
                target_id=row["id"],
            )
        return {"revision": model.revision}

    def _progress(self, job_id: str) -> Progress:
        last = time.monotonic()

        def note(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last < _PAUSE and done < total:
                return
            last = time.monotonic()
            with self._database.write() as connection:
                connection.execute(
                    update(jobs)
                    .where(jobs.c.id == job_id)
                    .values(done=done, total=total)
                )
                cancelled = connection.execute(
                    select(jobs.c.cancel).where(jobs.c.id == job_id)
                ).scalar()
            if cancelled or cancelled is None or self.stopping():
                raise _CancelledError

        return note


def _oldest_allowed(connection: Connection, gallery: Row) -> int:
    """The revision of the last erasure: older models know people who are gone."""
    found = connection.execute(
        select(func.max(erasures.c.revision)).where(
            erasures.c.gallery_id == gallery["id"]
        )
    ).scalar()
    return int(found or 0)


def _check(recognizer: "Recognizer", progress: Progress) -> dict[str, Any]:
    """Look for what spoils the gallery."""
    from dualqml.recognition import check_gallery

    found = check_gallery(recognizer, progress=progress)
    content = asdict(found)
    # Samples are named by their ids.
    content.pop("own_scores")
    content["fits"] = {one.name: one.score for one in found.own_scores}
    for finding in content["findings"]:
        finding["sample_id"] = finding.pop("name")
    return content


def _evaluate(recognizer: "Recognizer", progress: Progress) -> dict[str, Any]:
    """Errors of the gallery, with people and samples left out in turn."""
    from dualqml.evaluation import cmc_curve, error_curve, open_set_curve

    progress(0, 1)
    trials = recognizer.left_out_trials()
    mated, codes, nonmated = trials
    if len(mated) == 0:
        raise Problem(
            "conflict",
            "Nobody has two samples: enrol more, so that one can be left out.",
        )
    genuine = mated[np.arange(len(mated)), codes]
    impostors = nonmated.ravel()
    det = error_curve(genuine, impostors)
    searched = open_set_curve(mated, codes, nonmated)
    progress(1, 1)
    return {
        "n_mated": len(mated),
        "n_strangers": len(nonmated),
        "cmc": cmc_curve(mated, codes)[:_MOST_RANKS].tolist(),
        "det": _thinned(fmr=det.fmr, fnmr=det.fnmr),
        "open_set": _thinned(fpir=searched.fpir, fnir=searched.fnir),
    }


def _thinned(**columns: Any) -> dict[str, list[float]]:
    """Some points of a curve, evenly spaced in their order."""
    size = len(next(iter(columns.values())))
    chosen = np.unique(np.linspace(0, size - 1, min(size, _MOST_POINTS)).astype(int))
    return {
        name: np.asarray(values)[chosen].tolist() for name, values in columns.items()
    }
