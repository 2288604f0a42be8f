# SPDX-License-Identifier: BSD-3-Clause
"""Galleries, subjects and samples in the database.

Each function is one step of a transaction that its caller begins. Whatever the model
depends on raises the revision of the gallery (`touch`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from dualqml.exceptions import RecognitionError
from dualqml.recognition.gallery import checked_name
from dualqml.service.problems import Problem, not_found
from dualqml.service.tables import (
    clusters,
    galleries,
    new_id,
    now,
    samples,
    subjects,
)

#: Most values of a vector.
_LONGEST_VECTOR = 16_384

#: A row of a table, by the names of its columns.
Row = Mapping[Any, Any]


@dataclass(frozen=True, eq=False)
class NewSample:
    """A sample to enrol.

    Attributes
    ----------
    name : str
        Name of its file; "" if it has none.
    row : bytes
        Pixels, or a vector.
    quality : float or None
        Quality of the face.
    image : bytes or None
        The picture, if the gallery keeps it.
    """

    name: str
    row: bytes
    quality: float | None = None
    image: bytes | None = None


def vector_bytes(vector: Any) -> bytes:
    """A vector as it is kept.

    Parameters
    ----------
    vector : sequence of float
        The values.

    Returns
    -------
    bytes
        Single precision, little-endian.

    Raises
    ------
    Problem
        It is not a vector of finite numbers, or all are zero.
    """
    try:
        values: NDArray[Any] = np.asarray(vector, dtype=np.float64)
        with np.errstate(over="ignore"):
            row = values.astype("<f4")
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem("invalid", "A vector is a list of numbers.") from error
    if row.ndim != 1 or not 1 <= row.size <= _LONGEST_VECTOR:
        raise Problem(
            "invalid", f"A vector is a list of 1 to {_LONGEST_VECTOR} numbers."
        )
    if not np.isfinite(row).all() or not row.any():
        raise Problem(
            "invalid",
            "The numbers of a vector are finite in single precision, and not all zero.",
        )
    return row.tobytes()


def valid_name(name: str) -> str:
    """The name of a subject, if it can be used; else raise a `Problem`."""
    try:
        return checked_name(name)
    except RecognitionError as error:
        raise Problem("invalid", str(error)) from error


def gallery_row(connection: Connection, gallery_id: str, *, lock: bool = False) -> Row:
    """The row of a gallery.

    Parameters
    ----------
    connection : Connection
        A connection.
    gallery_id : str
        The gallery.
    lock : bool, default=False
        Whether other changes of the gallery wait until this transaction ends.

    Returns
    -------
    mapping
        The row.

    Raises
    ------
    Problem
        There is none.
    """
    query = select(galleries).where(galleries.c.id == gallery_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings()
    found = row.first()
    if found is None:
        raise not_found()
    return found


def touch(connection: Connection, gallery_id: str) -> int:
    """Say that the model of a gallery must be built again.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery_id : str
        The gallery.

    Returns
    -------
    int
        The new revision.
    """
    connection.execute(
        update(galleries)
        .where(galleries.c.id == gallery_id)
        .values(revision=galleries.c.revision + 1, changed_at=now())
    )
    return int(gallery_row(connection, gallery_id)["revision"])


def create_gallery(connection: Connection, **values: Any) -> str:
    """Make a gallery.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    **values : dict
        Columns of the table; those that are missing have their defaults.

    Returns
    -------
    str
        Its id.
    """
    gallery_id = values.pop("id", None) or new_id()
    defaults = {
        "inputs": "photographs",
        "height": 32,
        "width": 32,
        "keep_photographs": False,
        "keep_strangers": False,
        "stranger_days": 30.0,
        "retention_days": None,
        "target_kind": "fpir",
        "target_rate": 0.01,
        "demo": False,
        "version": 1,
        "revision": 1,
        "erasures": 0,
        "changed_at": now(),
        "created_at": now(),
    }
    connection.execute(insert(galleries).values(id=gallery_id, **(defaults | values)))
    return str(gallery_id)


def subject_row(connection: Connection, gallery_id: str, subject_id: str) -> Row:
    """The row of a subject; raises a `Problem` if the gallery has no such subject."""
    row = (
        connection.execute(
            select(subjects).where(
                subjects.c.id == subject_id, subjects.c.gallery_id == gallery_id
            )
        )
        .mappings()
        .first()
    )
    if row is None:
        raise not_found()
    return row


def subject_named(connection: Connection, gallery_id: str, name: str) -> Row | None:
    """The row of the subject with a name, or None."""
    return (
        connection.execute(
            select(subjects).where(
                subjects.c.gallery_id == gallery_id, subjects.c.name == name
            )
        )
        .mappings()
        .first()
    )


def create_subject(
    connection: Connection,
    gallery_id: str,
    name: str,
    *,
    expires_at: str | None = None,
    subject_id: str | None = None,
) -> str:
    """Make a subject without samples.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery_id : str
        The gallery.
    name : str
        The name, which no other subject of the gallery has.
    expires_at : str, optional
        When the subject is to be erased.
    subject_id : str, optional
        Its id; a random one by default.

    Returns
    -------
    str
        Its id.

    Raises
    ------
    Problem
        The name cannot be used, or is taken.
    """
    name = valid_name(name)
    if subject_named(connection, gallery_id, name) is not None:
        raise Problem(
            "conflict",
            "The gallery has a subject of this name: choose another one, or add "
            "samples to that subject.",
        )
    subject_id = subject_id or new_id()
    connection.execute(
        insert(subjects).values(
            id=subject_id,
            gallery_id=gallery_id,
            name=name,
            expires_at=expires_at,
            version=1,
            created_at=now(),
        )
    )
    return subject_id


def change_subject(
    connection: Connection, gallery_id: str, subject_id: str, values: dict[str, Any]
) -> None:
    """Change the name or the expiry of a subject.

    Raises
    ------
    Problem
        The name cannot be used, or is taken.
    """
    if "name" in values:
        values["name"] = valid_name(values["name"])
    try:
        with connection.begin_nested():
            connection.execute(
                update(subjects)
                .where(subjects.c.id == subject_id, subjects.c.gallery_id == gallery_id)
                .values(**values, version=subjects.c.version + 1)
            )
    except IntegrityError as error:
        raise Problem(
            "conflict", "Another subject of the gallery has this name."
        ) from error


def merge_subjects(
    connection: Connection, gallery_id: str, source: Row, target: Row
) -> int:
    """Give the samples of a subject to another one, and remove the first.

    Nothing of the samples changes. If one of the two is to be erased, the one that is
    left is erased at the earlier of the two times.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`. The gallery is locked.
    gallery_id : str
        The gallery.
    source, target : mapping
        Rows of both subjects.

    Returns
    -------
    int
        The new revision of the gallery.
    """
    ends = [row["expires_at"] for row in (source, target) if row["expires_at"]]
    for table, column in (
        (samples, samples.c.subject_id),
        (clusters, clusters.c.nearest_id),
        (clusters, clusters.c.not_subject_id),
    ):
        connection.execute(
            update(table)
            .where(table.c.gallery_id == gallery_id, column == source["id"])
            .values({column: target["id"]})
        )
    connection.execute(delete(subjects).where(subjects.c.id == source["id"]))
    change_subject(
        connection,
        gallery_id,
        target["id"],
        {"expires_at": min(ends, default=None)},
    )
    return touch(connection, gallery_id)


def check_width(connection: Connection, gallery: Row, rows: Sequence[bytes]) -> None:
    """Raise a `Problem` if vectors are not as long as those that are enrolled.

    Parameters
    ----------
    connection : Connection
        A connection.
    gallery : mapping
        The row of the gallery.
    rows : sequence of bytes
        The new vectors.
    """
    if not rows or gallery["inputs"] == "crops":
        return
    known = connection.execute(
        select(func.length(samples.c.row))
        .where(samples.c.gallery_id == gallery["id"])
        .limit(1)
    ).scalar()
    wanted = len(rows[0]) if known is None else int(known)
    for row in rows:
        if len(row) != wanted:
            raise Problem(
                "invalid",
                f"The vectors of this gallery have {wanted // 4} values, not "
                f"{len(row) // 4}.",
            )


def add_samples(
    connection: Connection,
    gallery: Row,
    subject_id: str,
    new: Sequence[NewSample],
) -> list[str]:
    """Enrol samples of a subject.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery : mapping
        The row of the gallery, which is locked.
    subject_id : str
        The subject.
    new : sequence of NewSample
        The samples.

    Returns
    -------
    list of str
        Their ids.

    Raises
    ------
    Problem
        Vectors are of another length than those that are enrolled.
    """
    check_width(connection, gallery, [one.row for one in new])
    ids = [new_id() for _ in new]
    if new:
        connection.execute(
            insert(samples),
            [
                {
                    "id": sample_id,
                    "gallery_id": gallery["id"],
                    "subject_id": subject_id,
                    "name": one.name,
                    "row": one.row,
                    "quality": one.quality,
                    "image": one.image if gallery["keep_photographs"] else None,
                    "created_at": now(),
                }
                for sample_id, one in zip(ids, new, strict=True)
            ],
        )
    return ids


def counts(connection: Connection, gallery_id: str) -> dict[str, int]:
    """Numbers of subjects, samples and unnamed strangers of a gallery."""

    def count(table: Any) -> int:
        query = select(func.count()).select_from(table)
        return int(
            connection.execute(query.where(table.c.gallery_id == gallery_id)).scalar()
            or 0
        )

    return {
        "n_subjects": count(subjects),
        "n_samples": count(samples),
        "n_strangers": count(clusters),
    }


def names_of(connection: Connection, subject_ids: Sequence[str]) -> dict[str, str]:
    """Names of subjects by their ids; those that are gone are left out."""
    wanted = sorted(set(subject_ids))
    if not wanted:
        return {}
    rows = connection.execute(
        select(subjects.c.id, subjects.c.name).where(subjects.c.id.in_(wanted))
    )
    return {row.id: row.name for row in rows}


def etag(version: int) -> str:
    """The ETag of a version of a row."""
    return f'"{version}"'


def check_match(given: str | None, version: int) -> None:
    """Raise a `Problem` if a row has changed since the client read it.

    Parameters
    ----------
    given : str or None
        The header If-Match.
    version : int
        The version of the row.
    """
    if given is None:
        return
    tags = [tag.strip() for tag in given.split(",")]
    if "*" not in tags and etag(version) not in tags:
        raise Problem(
            "precondition-failed",
            "It has changed since you read it. Read it again, and repeat the change.",
        )
