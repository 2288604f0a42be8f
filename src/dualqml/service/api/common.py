# SPDX-License-Identifier: BSD-3-Clause
"""What routes share: documented problems, parts of lists, and rows as answers."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import Connection, func, select

from dualqml.recognition import Calibration, EnrolledSample, Finding
from dualqml.service.calibrations import is_stale
from dualqml.service.people import Row, counts, names_of
from dualqml.service.problems import CODES, Problem
from dualqml.service.schemas import ProblemBody
from dualqml.service.tables import calibrations, models, reports

#: Answers that any route may give, for the OpenAPI document.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": "; ".join(t for s, t in CODES.values() if s == status),
        "content": {
            "application/problem+json": {
                "schema": {"$ref": "#/components/schemas/ProblemBody"}
            }
        },
    }
    for status in sorted({status for status, _ in CODES.values() if status != 500})
}
#: Makes the schema of problems part of the document.
PROBLEMS[400] = PROBLEMS[400] | {"model": ProblemBody}

_GALLERY_COLUMNS = (
    "id",
    "name",
    "inputs",
    "keep_photographs",
    "keep_strangers",
    "stranger_days",
    "retention_days",
    "demo",
    "revision",
    "created_at",
)

Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str | None, Query(max_length=300)]
Wait = Annotated[
    str | None,
    Query(pattern="^model$", description='"model": wait for the newest model.'),
]


def page(
    connection: Connection,
    query: Any,
    *,
    order: Iterable[Any],
    limit: int,
    after: str | None,
) -> tuple[list[Row], str | None, int]:
    """A part of a list.

    Parameters
    ----------
    connection : Connection
        A connection.
    query : Select
        All rows.
    order : iterable of columns
        Their order.
    limit : int
        Most rows.
    after : str or None
        The cursor of the part before.

    Returns
    -------
    rows, cursor, total : list, str or None, int
        The rows, the next cursor, and the number of all rows.
    """
    try:
        begin = 0 if after is None else int(after)
        if not 0 <= begin < 2**31:
            raise ValueError
    except ValueError:
        raise Problem(
            "invalid", 'Send as "after" what the part before had as "next".'
        ) from None
    total = connection.execute(
        select(func.count()).select_from(query.subquery())
    ).scalar_one()
    rows = connection.execute(query.order_by(*order).offset(begin).limit(limit))
    found: list[Row] = list(rows.mappings())
    end = begin + len(found)
    return found, str(end) if end < total else None, int(total)


def gallery_answer(connection: Connection, row: Row) -> dict[str, Any]:
    """A gallery as an answer."""
    model = (
        connection.execute(select(models).where(models.c.gallery_id == row["id"]))
        .mappings()
        .first()
    )
    return {
        **{name: row[name] for name in _GALLERY_COLUMNS},
        "size": (row["height"], row["width"]),
        "target": {"kind": row["target_kind"], "rate": row["target_rate"]},
        **counts(connection, row["id"]),
        "model": {
            "revision": -1 if model is None else model["revision"],
            "model_id": None if model is None else model["model_id"],
            "sha256": None if model is None else model["sha256"],
            "current": model is not None and model["revision"] >= row["revision"],
            "reason": "The model is not ready yet."
            if model is None
            else model["reason"],
        },
        "calibration": calibration_answer(connection, row["id"]),
    }


def calibration_answer(
    connection: Connection, gallery_id: str
) -> dict[str, Any] | None:
    """The calibration of a gallery as an answer; None if there is none."""
    row = connection.execute(
        select(calibrations.c.record, calibrations.c.created_at, models.c.model_id)
        .outerjoin(models, models.c.gallery_id == calibrations.c.gallery_id)
        .where(calibrations.c.gallery_id == gallery_id)
    ).first()
    if row is None:
        return None
    return {
        **row.record,
        "stale": is_stale(row.record, row.model_id),
        "text": Calibration(**row.record).describe(),
        "created_at": row.created_at,
    }


def findings_of(
    connection: Connection, gallery_id: str
) -> tuple[Row | None, list[dict[str, Any]]]:
    """The last check of a gallery, and its findings with the names of people."""
    report = (
        connection.execute(
            select(reports).where(
                reports.c.gallery_id == gallery_id, reports.c.kind == "health"
            )
        )
        .mappings()
        .first()
    )
    if report is None:
        return None, []
    raw = report["record"]["findings"]
    names = names_of(
        connection,
        [one[key] for one in raw for key in ("subject", "other") if one[key]],
    )
    return report, [
        _finding(one, names)
        for one in raw
        if one["subject"] in names and (one["other"] is None or one["other"] in names)
    ]


def _finding(raw: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A finding with names; in the report people have ids."""
    nearest = raw["nearest"]
    if nearest is not None:
        # Its name is the id of a sample, which says nothing to a reader.
        nearest = EnrolledSample(
            names.get(nearest["subject"], ""), nearest["index"], "", nearest["cosine"]
        )
    known = {field.name for field in fields(Finding)} & set(raw)
    values = {name: raw[name] for name in known}
    other = raw["other"]
    values |= {
        "subject": names[raw["subject"]],
        "other": None if other is None else names[other],
        "nearest": nearest,
        "name": "",
    }
    return {
        "kind": raw["kind"],
        "text": Finding(**values).in_words(),
        "subject_id": raw["subject"],
        "name": names[raw["subject"]],
        "sample_id": raw["sample_id"] or None,
        "other_id": other,
        "other_name": None if other is None else names[other],
        "score": raw["score"],
        "severity": raw["severity"],
    }
