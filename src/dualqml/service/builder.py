# SPDX-License-Identifier: BSD-3-Clause
"""Build models from the database, and publish them.

Built again, a model has the same bytes on the same machine. One process of a service
builds models. It publishes a model by its row in the table ``models``, in one step.
"""

import hashlib
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from dualqml.exceptions import RecognitionError
from dualqml.recognition import Calibration, Recognizer
from dualqml.service.calibrations import (
    current_calibration,
    keep_calibration,
    settled_calibration,
)
from dualqml.service.database import Database
from dualqml.service.models import as_inputs, model_path, new_recognizer
from dualqml.service.tables import galleries, models, now, samples

#: Recognisers that the builder keeps, so that a change costs less than a new fit.
_MOST_KEPT = 8


class _Kept(NamedTuple):
    """A recogniser, and the samples of each subject that it knows."""

    recognizer: Recognizer
    people: dict[str, tuple[str, ...]]


class Builder:
    """Build and publish models. One process of a service does that.

    Parameters
    ----------
    database : Database
        The database.
    folder : Path
        Folder of the models.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._kept: dict[str, _Kept] = {}

    def check_files(self) -> None:
        """Forget models whose files are missing or damaged, and remove other files."""
        with self._database.read() as connection:
            published = connection.execute(select(models)).mappings().all()
            alive = set(connection.execute(select(galleries.c.id)).scalars())
        for row in published:
            if row["sha256"] is None:
                continue
            path = model_path(self._folder, row["gallery_id"], row["revision"])
            try:
                sound = _sha256(path) == row["sha256"]
            except OSError:
                sound = False
            if not sound:
                with self._database.write() as connection:
                    connection.execute(
                        delete(models).where(models.c.gallery_id == row["gallery_id"])
                    )
            self._remove_others(row["gallery_id"], row["revision"] if sound else None)
        if self._folder.is_dir():
            for own in self._folder.iterdir():
                if own.name not in alive:
                    shutil.rmtree(own, ignore_errors=True)

    def build(self, gallery_id: str) -> int | None:
        """Build the model of a gallery from the database, and publish it.

        Parameters
        ----------
        gallery_id : str
            The gallery.

        Returns
        -------
        int or None
            The revision of the model; None if the gallery is gone, or has a newer
            model.
        """
        with self._database.read() as connection:
            gallery = _gallery(connection, gallery_id)
            if gallery is None:
                self._forget(gallery_id)
                return None
            kept = self._updated(connection, gallery)
            record = settled_calibration(connection, gallery_id)
        revision = int(gallery["revision"])
        recognizer = kept.recognizer
        reason, new_record = _fitted(recognizer, gallery, record)
        path = model_path(self._folder, gallery_id, revision)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        values: dict[str, Any] = {
            "revision": revision,
            "model_id": None,
            "sha256": None,
            "reason": reason,
            "created_at": now(),
        }
        if reason is None:
            # Models have samples: they are for the owner only.
            path.touch(mode=0o600)
            recognizer.save(path)
            values |= {"model_id": recognizer.model_id, "sha256": _sha256(path)}
        with self._database.write() as connection:
            if _gallery(connection, gallery_id, lock=True) is None:
                self._forget(gallery_id)
                return None
            if not _publish(connection, gallery_id, values):
                # A process that was thought dead must not bring an old model back.
                path.unlink(missing_ok=True)
                return None
            if new_record is not None:
                keep_calibration(connection, gallery_id, new_record)
        self._remove_others(gallery_id, revision if reason is None else None)
        return revision

    def recognizer(self, gallery_id: str) -> Recognizer | None:
        """The recogniser that was built last, if it is still kept."""
        kept = self._kept.get(gallery_id)
        return None if kept is None else kept.recognizer

    def _updated(self, connection: Connection, gallery: Mapping[Any, Any]) -> _Kept:
        """The recogniser with the samples of the database, changed where needed."""
        gallery_id = gallery["id"]
        rows = connection.execute(
            select(samples.c.subject_id, samples.c.id)
            .where(samples.c.gallery_id == gallery_id)
            .order_by(samples.c.subject_id, samples.c.number)
        ).all()
        wanted = {
            subject: tuple(row.id for row in own)
            for subject, own in groupby(rows, key=lambda row: row.subject_id)
        }
        # The one that was used last is at the end.
        kept = self._kept.pop(gallery_id, None)
        if kept is None or not wanted:
            kept = _Kept(new_recognizer(gallery), {})
        changed = [s for s, own in wanted.items() if kept.people.get(s) != own]
        # Whatever fails from here on, a half-changed recogniser is not kept.
        for subject in set(kept.people) - set(wanted) | set(changed) & set(kept.people):
            kept.recognizer.remove(subject)
            del kept.people[subject]
        for part in _parts(changed, 500):
            found = connection.execute(
                select(samples.c.subject_id, samples.c.id, samples.c.row)
                .where(samples.c.subject_id.in_(part))
                .order_by(samples.c.subject_id, samples.c.number)
            ).all()
            if found:
                kept.recognizer.enroll_many(
                    as_inputs(gallery, [row.row for row in found]),
                    [row.subject_id for row in found],
                    names=[row.id for row in found],
                )
        kept.people.update({subject: wanted[subject] for subject in changed})
        self._kept[gallery_id] = kept
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept

    def _forget(self, gallery_id: str) -> None:
        self._kept.pop(gallery_id, None)
        shutil.rmtree(self._folder / gallery_id, ignore_errors=True)

    def _remove_others(self, gallery_id: str, revision: int | None) -> None:
        """Remove all files of a gallery but that of one revision."""
        folder = self._folder / gallery_id
        keep = None if revision is None else f"{revision}.dualqml"
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                if path.name != keep:
                    path.unlink(missing_ok=True)


def _fitted(
    recognizer: Recognizer, gallery: Mapping[Any, Any], record: dict[str, Any] | None
) -> tuple[str | None, dict[str, Any] | None]:
    """Fit and calibrate; why that is not possible, and a new calibration."""
    recognizer.calibration = None
    if not recognizer.subjects():
        return "Nobody is enrolled.", None
    try:
        recognizer.fit()
    except RecognitionError as error:
        return str(error), None
    if record is not None:
        recognizer.calibration = Calibration(**record)
        return None, None
    rate = {gallery["target_kind"]: gallery["target_rate"]}
    try:
        return None, recognizer.calibrate(**rate).as_dict()
    except RecognitionError:
        # Too few people; there is no threshold yet.
        return None, None


def rebuilt(connection: Connection, gallery_id: str) -> Recognizer:
    """The recogniser of a gallery, built anew from the database alone.

    Parameters
    ----------
    connection : Connection
        A connection.
    gallery_id : str
        The gallery.

    Returns
    -------
    Recognizer
        Saved, it has the bytes of the published model.

    Raises
    ------
    RecognitionError
        There is no model of so few people.
    """
    gallery = _gallery(connection, gallery_id)
    if gallery is None:
        raise RecognitionError(f"There is no gallery {gallery_id!r}")
    recognizer = new_recognizer(gallery)
    rows = connection.execute(
        select(samples.c.subject_id, samples.c.id, samples.c.row)
        .where(samples.c.gallery_id == gallery_id)
        .order_by(samples.c.subject_id, samples.c.number)
    ).all()
    if rows:
        recognizer.enroll_many(
            as_inputs(gallery, [row.row for row in rows]),
            [row.subject_id for row in rows],
            names=[row.id for row in rows],
        )
    recognizer.fit()
    record = current_calibration(connection, gallery_id)
    if record is not None:
        recognizer.calibration = Calibration(**record)
    return recognizer


def _publish(connection: Connection, gallery_id: str, values: dict[str, Any]) -> bool:
    """Make a model the one that answers; False if a newer one does."""
    known = connection.execute(
        select(models.c.revision).where(models.c.gallery_id == gallery_id)
    ).scalar()
    if known is None:
        connection.execute(insert(models).values(gallery_id=gallery_id, **values))
        return True
    if known > values["revision"]:
        return False
    connection.execute(
        update(models).where(models.c.gallery_id == gallery_id).values(**values)
    )
    return True


def _gallery(
    connection: Connection, gallery_id: str, *, lock: bool = False
) -> Mapping[Any, Any] | None:
    query = select(galleries).where(galleries.c.id == gallery_id)
    if lock:
        query = query.with_for_update()
    return connection.execute(query).mappings().first()


def _parts(items: list[str], size: int) -> list[list[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _sha256(path: Path) -> str:
    with open(path, "rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
