# SPDX-License-Identifier: BSD-3-Clause
"""Erase people from everything, and write a receipt.

An erasure has two steps. The first is a transaction that deletes rows and notes the
erasure as "pending". The second follows when the model without the person is published:
the database is scrubbed, and the receipt is completed. If the process is killed between
the two, the next start finishes it. A client gets the receipt after the second step.

The receipt has the hashes of the model before and after. Anybody who has the gallery
can compute the second one again, and so check that the model equals a fresh fit without
the person: `dualqml.service.transfer.check_receipt` does that.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from dualqml.recognition import Calibration
from dualqml.recognition.results import KEPT_AFTER_REMOVAL
from dualqml.service.audit import digest, record
from dualqml.service.calibrations import current_calibration, keep_calibration
from dualqml.service.database import Database
from dualqml.service.people import Row, gallery_row, touch
from dualqml.service.problems import not_found
from dualqml.service.tables import (
    calibrations,
    clusters,
    erasures,
    galleries,
    idempotency,
    jobs,
    models,
    new_id,
    now,
    reports,
    samples,
    strangers,
    subjects,
)


def erase_subject(
    database: Database,
    connection: Connection,
    gallery_id: str,
    subject_id: str,
    *,
    actor: str,
    kind: str = "subject",
    lookalikes: Sequence[str] = (),
) -> str:
    """Delete a subject with all samples: the first step.

    Parameters
    ----------
    database : Database
        The database.
    connection : Connection
        A connection of `Database.write`.
    gallery_id, subject_id : str
        The subject.
    actor : str
        Id of the key, or "service".
    kind : {"subject", "retention"}, default="subject"
        Why.
    lookalikes : sequence of str
        Unnamed strangers whom the model takes for this subject.

    Returns
    -------
    str
        The id of the erasure.
    """
    gallery = gallery_row(connection, gallery_id, lock=True)
    own = (samples.c.gallery_id == gallery_id) & (samples.c.subject_id == subject_id)
    counts = _counts(connection, own)
    n_strangers = _delete_strangers(connection, gallery_id, lookalikes)
    connection.execute(delete(samples).where(own))
    gone = connection.execute(
        delete(subjects).where(
            subjects.c.id == subject_id, subjects.c.gallery_id == gallery_id
        )
    ).rowcount
    if not gone:
        raise not_found()
    # What was said of strangers in relation to this subject.
    for column, values in (
        (clusters.c.nearest_id, {"nearest_id": None, "nearest_score": None}),
        (clusters.c.not_subject_id, {"not_subject_id": None}),
    ):
        connection.execute(
            update(clusters)
            .where(clusters.c.gallery_id == gallery_id, column == subject_id)
            .values(**values)
        )
    counts |= {"subjects": 1, "strangers": n_strangers}
    return _note(database, connection, gallery, subject_id, kind, counts, actor)


def erase_samples(
    database: Database,
    connection: Connection,
    gallery_id: str,
    sample_ids: Sequence[str],
    *,
    actor: str,
    kind: str = "sample",
) -> str:
    """Delete samples: the first step.

    The last sample of a subject may go too; the subject stays without samples.

    Parameters
    ----------
    database : Database
        The database.
    connection : Connection
        A connection of `Database.write`.
    gallery_id : str
        The gallery.
    sample_ids : sequence of str
        The samples.
    actor : str
        Id of the key, or "service".
    kind : {"sample", "retention"}, default="sample"
        Why.

    Returns
    -------
    str
        The id of the erasure.
    """
    gallery = gallery_row(connection, gallery_id, lock=True)
    own = (samples.c.gallery_id == gallery_id) & samples.c.id.in_(sample_ids)
    counts = _counts(connection, own)
    if not connection.execute(delete(samples).where(own)).rowcount:
        raise not_found()
    return _note(database, connection, gallery, sample_ids[0], kind, counts, actor)


def erase_stranger(
    database: Database,
    connection: Connection,
    gallery_id: str,
    cluster_id: str,
    *,
    actor: str,
    kind: str = "stranger",
) -> str:
    """Delete an unnamed stranger: the first step. Models do not know strangers.

    Returns
    -------
    str
        The id of the erasure.
    """
    gallery = gallery_row(connection, gallery_id, lock=True)
    n_strangers = _delete_strangers(connection, gallery_id, [cluster_id])
    if not n_strangers:
        raise not_found()
    counts = {"subjects": 0, "samples": 0, "photographs": 0, "strangers": n_strangers}
    return _note(
        database, connection, gallery, cluster_id, kind, counts, actor, refit=False
    )


def erase_gallery(
    database: Database, connection: Connection, gallery_id: str, *, actor: str
) -> str:
    """Delete a gallery with everybody in it: the first step.

    Returns
    -------
    str
        The id of the erasure.
    """
    gallery = gallery_row(connection, gallery_id, lock=True)
    counts = _counts(connection, samples.c.gallery_id == gallery_id)
    for name, table in (("subjects", subjects), ("strangers", clusters)):
        query = select(func.count()).select_from(table)
        counts[name] = int(
            connection.execute(
                query.where(table.c.gallery_id == gallery_id)
            ).scalar_one()
        )
    found = _note(
        database,
        connection,
        gallery,
        gallery_id,
        "gallery",
        counts,
        actor,
        refit=False,
    )
    connection.execute(delete(galleries).where(galleries.c.id == gallery_id))
    return found


def complete(database: Database, connection: Connection, erasure_id: str) -> None:
    """Complete a receipt: the second step, after the database was scrubbed.

    Parameters
    ----------
    database : Database
        The database.
    connection : Connection
        A connection of `Database.write`.
    erasure_id : str
        The erasure, with its storage noted by `scrubbed`.
    """
    row = (
        connection.execute(select(erasures).where(erasures.c.id == erasure_id))
        .mappings()
        .one()
    )
    if row["state"] == "done":
        return
    content = dict(row["record"])
    content["model_after"] = _model(connection, row["gallery_id"])
    content["completed_at"] = now()
    content["digest"] = digest(content)
    connection.execute(
        update(erasures)
        .where(erasures.c.id == erasure_id)
        .values(state="done", record=content)
    )
    record(
        database,
        connection,
        "service",
        "erasure.complete",
        gallery_id=row["gallery_id"],
        target_id=erasure_id,
        digest=content["digest"],
    )


def scrubbed(connection: Connection, erasure_ids: Sequence[str], storage: Any) -> None:
    """Note what was done to the storage for some pending erasures."""
    for erasure_id in erasure_ids:
        content = connection.execute(
            select(erasures.c.record).where(erasures.c.id == erasure_id)
        ).scalar_one()
        connection.execute(
            update(erasures)
            .where(erasures.c.id == erasure_id)
            .values(record=dict(content) | {"storage": storage})
        )


def ready_to_complete(connection: Connection) -> list[str]:
    """Pending erasures whose galleries are gone, or have a new enough model."""
    rows = connection.execute(
        select(erasures.c.id)
        .outerjoin(models, models.c.gallery_id == erasures.c.gallery_id)
        .outerjoin(galleries, galleries.c.id == erasures.c.gallery_id)
        .where(
            erasures.c.state == "pending",
            galleries.c.id.is_(None) | (models.c.revision >= erasures.c.revision),
        )
        .order_by(erasures.c.requested_at)
    )
    return [row.id for row in rows]


def _counts(connection: Connection, where: Any) -> dict[str, int]:
    row = connection.execute(
        select(func.count(), func.count(samples.c.image)).where(where)
    ).one()
    return {"subjects": 0, "samples": row[0], "photographs": row[1], "strangers": 0}


def _delete_strangers(
    connection: Connection, gallery_id: str, cluster_ids: Sequence[str]
) -> int:
    if not cluster_ids:
        return 0
    connection.execute(
        delete(strangers).where(
            strangers.c.gallery_id == gallery_id,
            strangers.c.cluster_id.in_(cluster_ids),
        )
    )
    return connection.execute(
        delete(clusters).where(
            clusters.c.gallery_id == gallery_id, clusters.c.id.in_(cluster_ids)
        )
    ).rowcount


def _model(connection: Connection, gallery_id: str) -> dict[str, Any] | None:
    row = (
        connection.execute(
            select(models.c.revision, models.c.model_id, models.c.sha256).where(
                models.c.gallery_id == gallery_id
            )
        )
        .mappings()
        .first()
    )
    return None if row is None else dict(row)


def _note(
    database: Database,
    connection: Connection,
    gallery: Row,
    target_id: str,
    kind: str,
    counts: dict[str, int],
    actor: str,
    *,
    refit: bool = True,
) -> str:
    """Remove what was computed from the deleted rows, and note the erasure."""
    gallery_id = gallery["id"]
    if refit:
        _forget_results(connection, gallery_id)
    # An answer to an enrolment, or of a job, may tell of what is gone.
    connection.execute(
        delete(idempotency).where(idempotency.c.gallery_id == gallery_id)
    )
    connection.execute(
        update(jobs).where(jobs.c.gallery_id == gallery_id).values(result=None)
    )
    revision = touch(connection, gallery_id) if refit else int(gallery["revision"])
    connection.execute(
        update(galleries)
        .where(galleries.c.id == gallery_id)
        .values(erasures=galleries.c.erasures + 1)
    )
    erasure_id = new_id()
    content = {
        "id": erasure_id,
        "gallery_id": gallery_id,
        "kind": kind,
        "target_id": target_id,
        "counts": counts,
        "model_before": _model(connection, gallery_id),
        "requested_at": now(),
    }
    connection.execute(
        insert(erasures).values(
            id=erasure_id,
            gallery_id=gallery_id,
            state="pending",
            # A gallery that is deleted or unchanged needs no new model.
            revision=revision if refit else -1,
            record=content,
            requested_at=content["requested_at"],
        )
    )
    record(
        database,
        connection,
        actor,
        f"{kind}.erase",
        gallery_id=gallery_id,
        target_id=target_id,
        erasure=erasure_id,
        **counts,
    )
    return erasure_id


def _forget_results(connection: Connection, gallery_id: str) -> None:
    """Remove what was measured on samples that are gone; keep the threshold."""
    connection.execute(delete(reports).where(reports.c.gallery_id == gallery_id))
    before = current_calibration(connection, gallery_id)
    connection.execute(
        delete(calibrations).where(calibrations.c.gallery_id == gallery_id)
    )
    if before is None or before["prior"]:
        # A prior is computed again with the model.
        return
    if before["kind"] != "given":
        before = Calibration(
            before["threshold"], "given", source=KEPT_AFTER_REMOVAL
        ).as_dict()
    keep_calibration(connection, gallery_id, before)
