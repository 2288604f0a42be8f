# SPDX-License-Identifier: BSD-3-Clause
"""Unknown faces that a gallery has asked to keep, grouped by person.

A face joins the group of the nearest kept face, if their cosine is above what different
enrolled people reach. Groups end after some days. They are never part of a model.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, delete, func, insert, select, update

from dualqml._linalg import unit_rows
from dualqml._typing import Array
from dualqml.service.models import as_inputs
from dualqml.service.people import NewSample, Row, add_samples, touch
from dualqml.service.problems import not_found
from dualqml.service.tables import clusters, new_id, now, strangers

if TYPE_CHECKING:
    from dualqml.recognition import Recognizer

#: Faces that are kept of one group, and groups of one gallery.
_MOST_FACES, _MOST_CLUSTERS = 5, 1000
#: The cosine of two faces of one person, where too few people are enrolled to know: the
#: published threshold of SFace, and a cautious one for other vectors and for crops.
_SFACE_COSINE, _OTHER_COSINE = 0.363, 0.6
#: People whose cosines are compared, and the share of pairs of different people that
#: would be taken for one.
_MOST_COMPARED, _MIXED_UP = 300, 0.005


def same_person_cosine(recognizer: "Recognizer | None", gallery: Row) -> float:
    """The cosine from which on two faces are taken for the same person.

    Parameters
    ----------
    recognizer : Recognizer or None
        The recogniser of the gallery.
    gallery : mapping
        The row of the gallery.

    Returns
    -------
    float
        A cosine that few pairs of different enrolled people reach.
    """
    default = _SFACE_COSINE if gallery["inputs"] == "photographs" else _OTHER_COSINE
    people = [] if recognizer is None else recognizer.subjects()[:_MOST_COMPARED]
    if recognizer is None or len(people) < 10:
        return default
    rows = np.array([recognizer.samples(subject)[0] for subject in people])
    units = _units(rows)
    cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
    return max(default, float(np.quantile(cosines, 1.0 - _MIXED_UP)))


def remember(
    connection: Connection,
    gallery: Row,
    row: bytes,
    *,
    limit: float,
    image: bytes | None = None,
    nearest: tuple[str, float] | None = None,
    not_subject: str | None = None,
) -> str:
    """Keep an unknown face.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery : mapping
        The row of the gallery.
    row : bytes
        The vector or the pixels.
    limit : float
        The result of `same_person_cosine`.
    image : bytes, optional
        A picture of the face, if the gallery keeps pictures.
    nearest : tuple of str and float, optional
        The most similar subject, and its score.
    not_subject : str, optional
        A subject for whom the face was taken by mistake.

    Returns
    -------
    str
        The id of its group.
    """
    gallery_id = gallery["id"]
    cluster_id = _nearest_cluster(connection, gallery, row, limit)
    moment = now()
    seen: dict[str, Any] = {
        "last_seen": moment,
        "expires_at": now(days=gallery["stranger_days"]),
    }
    if nearest is not None:
        seen |= {"nearest_id": nearest[0], "nearest_score": nearest[1]}
    if not_subject is not None:
        seen |= {"not_subject_id": not_subject}
    if cluster_id is None:
        cluster_id = new_id()
        _make_room(connection, gallery_id)
        connection.execute(
            insert(clusters).values(
                id=cluster_id,
                gallery_id=gallery_id,
                state="new",
                first_seen=moment,
                n_seen=1,
                **seen,
            )
        )
    else:
        connection.execute(
            update(clusters)
            .where(clusters.c.id == cluster_id)
            .values(n_seen=clusters.c.n_seen + 1, **seen)
        )
    kept = connection.execute(
        select(func.count())
        .select_from(strangers)
        .where(strangers.c.cluster_id == cluster_id)
    ).scalar_one()
    if kept < _MOST_FACES:
        connection.execute(
            insert(strangers).values(
                id=new_id(),
                gallery_id=gallery_id,
                cluster_id=cluster_id,
                row=row,
                image=image if gallery["keep_photographs"] else None,
                seen_at=moment,
            )
        )
    return cluster_id


def cluster_row(connection: Connection, gallery_id: str, cluster_id: str) -> Row:
    """The row of a group; raises a `Problem` if the gallery has no such group."""
    row = (
        connection.execute(
            select(clusters).where(
                clusters.c.id == cluster_id, clusters.c.gallery_id == gallery_id
            )
        )
        .mappings()
        .first()
    )
    if row is None:
        raise not_found()
    return row


def enroll_cluster(
    connection: Connection, gallery: Row, cluster_id: str, subject_id: str
) -> list[str]:
    """Enrol the faces of a group as samples of a subject.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery : mapping
        The row of the gallery, which is locked.
    cluster_id, subject_id : str
        The group and the subject.

    Returns
    -------
    list of str
        Ids of the new samples.
    """
    cluster_row(connection, gallery["id"], cluster_id)
    faces = (
        connection.execute(
            select(strangers)
            .where(strangers.c.cluster_id == cluster_id)
            .order_by(strangers.c.seen_at)
        )
        .mappings()
        .all()
    )
    new = [
        NewSample(f"seen {face['seen_at'][:16]}", face["row"], None, face["image"])
        for face in faces
    ]
    ids = add_samples(connection, gallery, subject_id, new)
    connection.execute(delete(strangers).where(strangers.c.cluster_id == cluster_id))
    connection.execute(delete(clusters).where(clusters.c.id == cluster_id))
    touch(connection, gallery["id"])
    return ids


def taken_for(
    connection: Connection,
    gallery: Row,
    recognizer: "Recognizer | None",
    subject_id: str,
) -> list[str]:
    """Groups of strangers whom the present model takes for a subject.

    Parameters
    ----------
    connection : Connection
        A connection.
    gallery : mapping
        The row of the gallery.
    recognizer : Recognizer or None
        The recogniser of the gallery.
    subject_id : str
        The subject.

    Returns
    -------
    list of str
        Ids of groups.
    """
    rows = connection.execute(
        select(strangers.c.cluster_id, strangers.c.row).where(
            strangers.c.gallery_id == gallery["id"]
        )
    ).all()
    if recognizer is None or recognizer.threshold is None or not rows:
        return []
    answers = recognizer.identify_many(
        as_inputs(gallery, [row.row for row in rows]), top=1
    )
    return sorted(
        {
            row.cluster_id
            for row, answer in zip(rows, answers, strict=True)
            if answer.subject == subject_id
        }
    )


def _nearest_cluster(
    connection: Connection, gallery: Mapping[Any, Any], row: bytes, limit: float
) -> str | None:
    known = connection.execute(
        select(strangers.c.cluster_id, strangers.c.row)
        .where(strangers.c.gallery_id == gallery["id"])
        .order_by(strangers.c.seen_at.desc())
        .limit(_MOST_FACES * _MOST_CLUSTERS)
    ).all()
    rows = [one.row for one in known if len(one.row) == len(row)]
    if not rows:
        return None
    units = _units(as_rows(gallery, [row, *rows]))
    cosines = units[1:] @ units[0]
    best = int(np.argmax(cosines))
    if cosines[best] < limit:
        return None
    owners = [one.cluster_id for one in known if len(one.row) == len(row)]
    return str(owners[best])


def as_rows(gallery: Mapping[Any, Any], rows: Sequence[bytes]) -> Array:
    """Rows of the database as one matrix of numbers."""
    return as_inputs(gallery, rows).reshape(len(rows), -1).astype(np.float64)


def _units(rows: Array) -> Array:
    """Rows of length one; pixels without their mean brightness."""
    values = np.asarray(rows)
    if values.dtype == np.uint8 or values.min() >= 0.0:
        values = values - values.mean(axis=1, keepdims=True)
    return unit_rows(values.astype(np.float64) + 1e-12)


def _make_room(connection: Connection, gallery_id: str) -> None:
    """Remove the group that was not seen for the longest time, if there are many."""
    query = select(clusters.c.id).where(clusters.c.gallery_id == gallery_id)
    found = connection.execute(query.order_by(clusters.c.last_seen)).scalars().all()
    for cluster_id in found[: max(0, len(found) - _MOST_CLUSTERS + 1)]:
        connection.execute(delete(clusters).where(clusters.c.id == cluster_id))
