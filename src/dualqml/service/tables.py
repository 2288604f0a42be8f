# SPDX-License-Identifier: BSD-3-Clause
"""The tables of the database.

Ids are random, so that nobody can guess them. Times are text in UTC, which sorts. Names
of people are in ``subjects`` alone. Models and the audit know ids only.
"""

import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData()

_ID = String(32)
_TIME = String(32)
_PLAIN = JSON(none_as_null=True)


def new_id() -> str:
    """A random id of 32 hexadecimal digits."""
    return secrets.token_hex(16)


def now(*, days: float = 0.0, seconds: float = 0.0) -> str:
    """The time in UTC, or some time after it, as it is kept.

    Parameters
    ----------
    days, seconds : float, default=0.0
        How much later; negative for the past.

    Returns
    -------
    str
        For example "2026-11-18T09:30:00.000000Z".
    """
    return as_time(datetime.now(UTC) + timedelta(days=days, seconds=seconds))


def as_time(moment: datetime) -> str:
    """A time as it is kept; without a time zone it is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _owner(*, index: bool = True) -> Column[str]:
    return Column(
        "gallery_id",
        _ID,
        ForeignKey("galleries.id", ondelete="CASCADE"),
        nullable=False,
        index=index,
    )


galleries = Table(
    "galleries",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("inputs", String(16), nullable=False),
    Column("height", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("keep_photographs", Boolean, nullable=False),
    Column("keep_strangers", Boolean, nullable=False),
    Column("stranger_days", Float, nullable=False),
    Column("retention_days", Float),
    Column("target_kind", String(8), nullable=False),
    Column("target_rate", Float, nullable=False),
    Column("demo", Boolean, nullable=False),
    # Changes with every change of this row, for ETag.
    Column("version", Integer, nullable=False),
    # Changes with everything that the model depends on.
    Column("revision", Integer, nullable=False),
    # Number of erasures. An export that sees it change stops.
    Column("erasures", Integer, nullable=False),
    Column("changed_at", _TIME, nullable=False),
    Column("created_at", _TIME, nullable=False),
)

subjects = Table(
    "subjects",
    metadata,
    Column("id", _ID, primary_key=True),
    _owner(index=False),
    Column("name", String(200), nullable=False),
    Column("expires_at", _TIME, index=True),
    Column("version", Integer, nullable=False),
    Column("created_at", _TIME, nullable=False),
    UniqueConstraint("gallery_id", "name"),
)

samples = Table(
    "samples",
    metadata,
    # The order of enrolment, which is the order of rows in the model.
    Column(
        "number",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("id", _ID, nullable=False, unique=True),
    _owner(),
    Column(
        "subject_id",
        _ID,
        ForeignKey("subjects.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("name", String(200), nullable=False),
    Column("row", LargeBinary, nullable=False),
    Column("quality", Float),
    Column("image", LargeBinary),
    Column("created_at", _TIME, nullable=False),
    sqlite_autoincrement=True,
)

#: The model that answers, one for each gallery. Its file has the revision as its name.
models = Table(
    "models",
    metadata,
    Column(
        "gallery_id",
        _ID,
        ForeignKey("galleries.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("revision", Integer, nullable=False),
    Column("model_id", String(32)),
    Column("sha256", String(64)),
    # Why there is no model; None if there is one.
    Column("reason", String(400)),
    Column("created_at", _TIME, nullable=False),
)

calibrations = Table(
    "calibrations",
    metadata,
    Column("id", _ID, primary_key=True),
    _owner(),
    # Whether it is to be measured again with the next model.
    Column("due", Boolean, nullable=False),
    Column("record", _PLAIN, nullable=False),
    # Thresholds for other rates, and histograms of scores.
    Column("curve", _PLAIN),
    Column("created_at", _TIME, nullable=False),
)

#: The last check and evaluation of a gallery.
reports = Table(
    "reports",
    metadata,
    Column(
        "gallery_id",
        _ID,
        ForeignKey("galleries.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("kind", String(16), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("record", _PLAIN, nullable=False),
    Column("created_at", _TIME, nullable=False),
)

clusters = Table(
    "clusters",
    metadata,
    Column("id", _ID, primary_key=True),
    _owner(),
    Column("state", String(16), nullable=False),
    Column("not_subject_id", _ID),
    Column("nearest_id", _ID),
    Column("nearest_score", Float),
    # More than the faces that are kept of it.
    Column("n_seen", Integer, nullable=False),
    Column("first_seen", _TIME, nullable=False),
    Column("last_seen", _TIME, nullable=False),
    Column("expires_at", _TIME, nullable=False, index=True),
)

strangers = Table(
    "strangers",
    metadata,
    Column("id", _ID, primary_key=True),
    _owner(),
    Column(
        "cluster_id",
        _ID,
        ForeignKey("clusters.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("row", LargeBinary, nullable=False),
    Column("image", LargeBinary),
    Column("seen_at", _TIME, nullable=False),
)

#: Receipts. They outlive their galleries.
erasures = Table(
    "erasures",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("gallery_id", _ID, nullable=False, index=True),
    Column("state", String(16), nullable=False, index=True),
    # The model must have this revision, or a later one.
    Column("revision", Integer, nullable=False),
    Column("record", _PLAIN, nullable=False),
    Column("requested_at", _TIME, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _ID, primary_key=True),
    _owner(),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("done", Integer, nullable=False),
    Column("total", Integer),
    Column("detail", String(400), nullable=False),
    Column("parameters", _PLAIN, nullable=False),
    Column("result", _PLAIN),
    Column("cancel", Boolean, nullable=False),
    Column("created_at", _TIME, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("label", String(200), nullable=False),
    Column("scopes", String(64), nullable=False),
    # None means all galleries.
    Column("gallery_id", _ID, ForeignKey("galleries.id", ondelete="CASCADE")),
    Column("expires_at", _TIME),
    Column("created_at", _TIME, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("key_id", _ID, ForeignKey("keys.id", ondelete="CASCADE"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("expires_at", _TIME, nullable=False, index=True),
)

#: Answers to enrolments that a client may repeat.
idempotency = Table(
    "idempotency",
    metadata,
    Column("key_id", _ID, primary_key=True),
    Column("token", String(200), primary_key=True),
    _owner(),
    Column("fingerprint", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", _PLAIN, nullable=False),
    Column("created_at", _TIME, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", _TIME, nullable=False),
    Column("actor", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("gallery_id", _ID),
    Column("target_id", _ID),
    Column("details", _PLAIN, nullable=False),
    Column("hash", String(64), nullable=False),
)
Index("audit_gallery", audit.c.gallery_id)
