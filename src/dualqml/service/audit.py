# SPDX-License-Identifier: BSD-3-Clause
"""Who did what, when: a log that can only be appended to.

Each entry has the SHA-256 of its content and of the entry before it. Whoever changes or
removes an entry has to change all that follow. Entries have ids, and never names or
samples.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, insert, select

from dualqml.service.database import Database
from dualqml.service.tables import audit, now

#: The hash before the first entry.
_BEGIN = "0" * 64
#: Entries that are checked at a time.
_CHUNK = 1000


def record(
    database: Database,
    connection: Connection,
    actor: str,
    action: str,
    *,
    gallery_id: str | None = None,
    target_id: str | None = None,
    **details: Any,
) -> int:
    """Append an entry, in the transaction of what it tells.

    Parameters
    ----------
    database : Database
        The database.
    connection : Connection
        A connection of `Database.write`.
    actor : str
        Id of the key, or "service".
    action : str
        What was done, for example "subject.create".
    gallery_id, target_id : str, optional
        What it was done to.
    **details : dict
        Plain values: counts and ids.

    Returns
    -------
    int
        The number of the entry.
    """
    database.lock_audit(connection)
    last = connection.execute(
        select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
    ).first()
    seq, before = (1, _BEGIN) if last is None else (last.seq + 1, last.hash)
    entry = {
        "seq": seq,
        "at": now(),
        "actor": actor,
        "action": action,
        "gallery_id": gallery_id,
        "target_id": target_id,
        "details": details,
    }
    connection.execute(insert(audit).values(**entry, hash=_hash(before, entry)))
    return int(seq)


def check_chain(connection: Connection) -> dict[str, Any]:
    """Compute all hashes again.

    Parameters
    ----------
    connection : Connection
        A connection.

    Returns
    -------
    dict
        Whether all is right, the number of entries, the last hash, and the number of
        the first entry that is not right.
    """
    before, wanted = _BEGIN, 1
    while True:
        rows = (
            connection.execute(
                select(audit)
                .where(audit.c.seq >= wanted)
                .order_by(audit.c.seq)
                .limit(_CHUNK)
            )
            .mappings()
            .all()
        )
        for row in rows:
            entry = {name: value for name, value in row.items() if name != "hash"}
            if row["seq"] != wanted or _hash(before, entry) != row["hash"]:
                return {
                    "ok": False,
                    "entries": _count(connection),
                    "head": before,
                    "first_wrong": wanted,
                }
            before, wanted = row["hash"], wanted + 1
        if len(rows) < _CHUNK:
            break
    return {"ok": True, "entries": wanted - 1, "head": before, "first_wrong": None}


def digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of plain values, in one order and without spaces.

    Parameters
    ----------
    content : dict
        Values that JSON has.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _hash(before: str, entry: Mapping[str, Any]) -> str:
    return digest({"before": before, **entry})


def _count(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(audit)).scalar_one())
