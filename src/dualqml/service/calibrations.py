# SPDX-License-Identifier: BSD-3-Clause
"""The calibration of a gallery: the threshold that its model is to have."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from dualqml.recognition.results import KEPT_AFTER_REMOVAL
from dualqml.service.tables import calibrations, new_id, now


def keep_calibration(
    connection: Connection, gallery_id: str, record: dict[str, Any]
) -> None:
    """Make a calibration that of the gallery; earlier ones are removed.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    gallery_id : str
        The gallery.
    record : dict
        The fields of a `Calibration`.
    """
    connection.execute(
        delete(calibrations).where(calibrations.c.gallery_id == gallery_id)
    )
    connection.execute(
        insert(calibrations).values(
            id=new_id(),
            gallery_id=gallery_id,
            due=False,
            record=record,
            curve=None,
            created_at=now(),
        )
    )


def current_calibration(
    connection: Connection, gallery_id: str
) -> dict[str, Any] | None:
    """The fields of the calibration of a gallery, or None."""
    record: dict[str, Any] | None = connection.execute(
        select(calibrations.c.record).where(calibrations.c.gallery_id == gallery_id)
    ).scalar()
    return record


def measure_again(connection: Connection, gallery_id: str) -> None:
    """Have the threshold measured with the next model.

    Until then the present threshold stays.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`. Its caller raises the revision.
    gallery_id : str
        The gallery.
    """
    connection.execute(
        update(calibrations)
        .where(calibrations.c.gallery_id == gallery_id)
        .values(due=True)
    )


def settled_calibration(
    connection: Connection, gallery_id: str
) -> dict[str, Any] | None:
    """The calibration of a gallery; None if it is to be measured."""
    row = connection.execute(
        select(calibrations.c.record, calibrations.c.due).where(
            calibrations.c.gallery_id == gallery_id
        )
    ).first()
    # A prior depends on the model, and is computed with each.
    if row is None or row.due or row.record["prior"]:
        return None
    return dict(row.record)


def is_stale(record: Mapping[Any, Any], model_id: str | None) -> bool:
    """Whether a threshold was measured on another model than the present one."""
    if record["kind"] == "given":
        return bool(record["source"] == KEPT_AFTER_REMOVAL)
    return bool(record["model_id"] != model_id)
