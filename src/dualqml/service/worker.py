# SPDX-License-Identifier: BSD-3-Clause
"""The process that builds models, completes erasures and runs jobs.

There is one for a service. A thread builds models and erases, so that an erasure never
waits for a long job. Another thread runs jobs. Both only follow the database: if the
process is killed, the next one goes on.
"""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select, update
from threadpoolctl import threadpool_limits

from dualqml.exceptions import DualQMLError
from dualqml.recognition import Recognizer, threshold_curve
from dualqml.service import erasure
from dualqml.service.builder import Builder
from dualqml.service.calibrations import is_stale, measure_again
from dualqml.service.database import Database
from dualqml.service.jobs import JobRunner
from dualqml.service.logs import logger, set_up_logs
from dualqml.service.metrics import BUILD_SECONDS, BUILDS, ERASURES
from dualqml.service.models import galleries_due, model_path
from dualqml.service.people import touch
from dualqml.service.settings import Settings
from dualqml.service.tables import (
    calibrations,
    clusters,
    erasures,
    galleries,
    models,
    now,
    samples,
    subjects,
)

#: Seconds between two looks for work, at retention, and at what can wait.
_PAUSE, _RETENTION_PAUSE, _QUIET_PAUSE = 0.01, 1.0, 0.25
#: The first of them for a database that cannot tell whether it has changed.
_PAUSE_WITHOUT = 0.05
#: False positive rates for which the page shows a threshold.
TARGETS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)
#: Bars of a histogram of scores.
_N_BARS = 40
#: Fewest people whose threshold can be measured by leaving them out.
_FEWEST = 4
#: How much the process gives way to those that answer requests.
_NICE = 10
#: Seconds after which a build that has failed is tried again.
_RETRY = 5.0


class Worker:
    """Build models, complete erasures and run jobs until it is stopped.

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
        self._builder = Builder(database, settings.models)
        self._runner = JobRunner(database, settings)
        self._runner.stopping = lambda: self._stop.is_set()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._next_retention = self._next_quiet = 0.0
        self._failed: dict[str, float] = {}

    def start(self) -> None:
        """Start both threads."""
        self._builder.check_files()
        self._runner.requeue()
        for name, step in (("build", self.step), ("jobs", self._runner.step)):
            thread = threading.Thread(
                target=self._loop, args=(step,), name=name, daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop after what is being done."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, step: Callable[[], bool]) -> None:
        seen, look_at = None, 0.0
        # More threads of linear algebra could change the last bits of a model.
        with threadpool_limits(1):
            while not self._stop.is_set():
                try:
                    version = self._database.version()
                    unchanged = seen is not None and version == seen
                    # Some work is due by the time alone, such as retention.
                    if unchanged and time.monotonic() < look_at:
                        self._stop.wait(_PAUSE)
                        continue
                    if step():
                        seen = None
                        continue
                    seen, look_at = version, time.monotonic() + _QUIET_PAUSE
                # The database may be away for a while; everything is tried again.
                except Exception as error:
                    logger().error("worker failed", error=type(error).__name__)
                    self._stop.wait(1.0)
                    continue
                self._stop.wait(_PAUSE if version is not None else _PAUSE_WITHOUT)

    def step(self) -> bool:
        """Do what is most urgent: build a model, complete erasures, or tidy up.

        Returns
        -------
        bool
            Whether there was anything to do.
        """
        moment = time.time()
        due = [
            gallery_id
            for gallery_id in galleries_due(self._database)
            if self._failed.get(gallery_id, 0.0) < moment
        ]
        if due:
            # Somebody waits for an erasure.
            with self._database.read() as connection:
                urgent = set(
                    connection.execute(
                        select(erasures.c.gallery_id).where(
                            erasures.c.state == "pending"
                        )
                    ).scalars()
                )
            self._build(next((g for g in due if g in urgent), due[0]))
        completed = self._complete_erasures()
        if due or completed:
            return True
        moment = time.monotonic()
        if moment >= self._next_retention:
            self._next_retention = moment + _RETENTION_PAUSE
            return self._retain()
        if moment >= self._next_quiet:
            self._next_quiet = moment + _QUIET_PAUSE
            return self._measure()
        return False

    def _build(self, gallery_id: str) -> None:
        begin = time.perf_counter()
        try:
            revision = self._builder.build(gallery_id)
        except (DualQMLError, OSError, ArithmeticError) as error:
            # One gallery that cannot be built must not stop the others.
            self._failed[gallery_id] = time.time() + _RETRY
            logger().error(
                "model failed", gallery=gallery_id, error=type(error).__name__
            )
            return
        self._failed.pop(gallery_id, None)
        # Thresholds are measured again when nothing is built for a while.
        self._next_quiet = time.monotonic() + self._settings.quiet_seconds
        seconds = time.perf_counter() - begin
        BUILDS.inc()
        BUILD_SECONDS.observe(seconds)
        logger().info(
            "model", gallery=gallery_id, revision=revision, seconds=round(seconds, 4)
        )

    def _complete_erasures(self) -> bool:
        with self._database.read() as connection:
            ready = erasure.ready_to_complete(connection)
        if not ready:
            return False
        # Files of galleries that are gone.
        self._builder.check_files()
        storage = self._database.scrub()
        with self._database.write() as connection:
            erasure.scrubbed(connection, ready, storage)
            for erasure_id in ready:
                erasure.complete(self._database, connection, erasure_id)
        ERASURES.inc(len(ready))
        logger().info("erased", erasures=len(ready))
        return True

    def _retain(self) -> bool:
        """Erase what has expired."""
        moment, worked = now(), False
        with self._database.read() as connection:
            people = connection.execute(
                select(subjects.c.gallery_id, subjects.c.id).where(
                    subjects.c.expires_at <= moment
                )
            ).all()
            old = self._old_samples(connection)
            unknown = connection.execute(
                select(clusters.c.gallery_id, clusters.c.id).where(
                    clusters.c.expires_at <= moment
                )
            ).all()
        for gallery_id, subject_id in people:
            with self._database.write() as connection:
                erasure.erase_subject(
                    self._database,
                    connection,
                    gallery_id,
                    subject_id,
                    actor="service",
                    kind="retention",
                )
            worked = True
        for gallery_id, sample_ids in old.items():
            with self._database.write() as connection:
                erasure.erase_samples(
                    self._database,
                    connection,
                    gallery_id,
                    sample_ids,
                    actor="service",
                    kind="retention",
                )
            worked = True
        for gallery_id, cluster_id in unknown:
            with self._database.write() as connection:
                erasure.erase_stranger(
                    self._database,
                    connection,
                    gallery_id,
                    cluster_id,
                    actor="service",
                    kind="retention",
                )
            worked = True
        return worked

    def _old_samples(self, connection: Connection) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        rows = connection.execute(
            select(galleries.c.id, galleries.c.retention_days).where(
                galleries.c.retention_days.is_not(None)
            )
        ).all()
        for gallery_id, days in rows:
            own = (
                connection.execute(
                    select(samples.c.id)
                    .where(
                        samples.c.gallery_id == gallery_id,
                        samples.c.created_at <= now(days=-days),
                    )
                    .limit(500)
                )
                .scalars()
                .all()
            )
            if own:
                found[gallery_id] = list(own)
        return found

    def _measure(self) -> bool:
        """Measure a threshold again, or its curve, for a gallery that is quiet."""
        with self._database.read() as connection:
            rows = (
                connection.execute(
                    select(
                        calibrations.c.id,
                        calibrations.c.gallery_id,
                        calibrations.c.record,
                        calibrations.c.curve.is_(None).label("no_curve"),
                        models.c.model_id,
                        models.c.revision,
                        galleries.c.inputs,
                    )
                    .join(models, models.c.gallery_id == calibrations.c.gallery_id)
                    .join(galleries, galleries.c.id == calibrations.c.gallery_id)
                    .where(
                        models.c.revision == galleries.c.revision,
                        models.c.model_id.is_not(None),
                        galleries.c.changed_at
                        <= now(seconds=-self._settings.quiet_seconds),
                    )
                )
                .mappings()
                .all()
            )
        for row in rows:
            if is_stale(row["record"], row["model_id"]):
                if self._measure_again(row):
                    return True
            elif row["no_curve"]:
                self._add_curve(row)
                return True
        return False

    def _measure_again(self, row: Mapping[Any, Any]) -> bool:
        gallery_id = row["gallery_id"]
        with self._database.write() as connection:
            n_people = connection.execute(
                select(func.count(samples.c.subject_id.distinct())).where(
                    samples.c.gallery_id == gallery_id
                )
            ).scalar_one()
            if n_people < _FEWEST and row["inputs"] != "photographs":
                return False
            measure_again(connection, gallery_id)
            touch(connection, gallery_id)
        return True

    def _add_curve(self, row: Mapping[Any, Any]) -> None:
        recognizer = self._builder.recognizer(row["gallery_id"])
        if recognizer is None or recognizer.model_id != row["model_id"]:
            path = model_path(self._settings.models, row["gallery_id"], row["revision"])
            recognizer = Recognizer.load(path)
        content = _curve(recognizer)
        with self._database.write() as connection:
            # Somebody may have been erased meanwhile: then the row is gone.
            connection.execute(
                update(calibrations)
                .where(calibrations.c.id == row["id"])
                .values(curve=content)
            )


def _curve(recognizer: Recognizer) -> dict[str, Any]:
    """Thresholds for other rates, and histograms of scores."""
    try:
        found = threshold_curve(recognizer, fpir=TARGETS)
    except DualQMLError as error:
        return {"reason": str(error), "curve": [], "distributions": None}
    strangers, enrolled = found.strangers, found.enrolled
    both = np.concatenate([strangers, enrolled])
    edges = np.linspace(both.min(), both.max() + 1e-9, _N_BARS + 1)
    return {
        "reason": None,
        "curve": [one.as_dict() for one in found.calibrations],
        "distributions": {
            "edges": edges.tolist(),
            "strangers": np.histogram(strangers, edges)[0].tolist(),
            "enrolled": np.histogram(enrolled, edges)[0].tolist(),
        },
    }


def main() -> None:
    """Work until the server says stop, or is killed."""
    settings = Settings.from_environment()
    set_up_logs(quiet="--quiet" in sys.argv)
    if hasattr(os, "nice"):
        # Answers come first where both want a processor.
        os.nice(_NICE)
    # Calibrations warn if people are few. How sure a rate is, is part of every answer.
    warnings.simplefilter("ignore", UserWarning)
    # The first word says that the database is up to date.
    if _word() != b"begin":
        return
    database = Database(settings.database())
    worker = Worker(database, settings)
    worker.start()
    with suppress(KeyboardInterrupt):
        _word()
    worker.stop()
    database.close()


def _word() -> bytes:
    """What the server says; if it was killed, this process ends at once.

    Whatever it is doing, the next service does it again.
    """
    said = os.read(0, 4096)
    if not said:
        os._exit(1)
    return said


if __name__ == "__main__":
    main()
