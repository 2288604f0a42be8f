# SPDX-License-Identifier: BSD-3-Clause
"""Models of galleries: built from the database, written to files, and read by all.

A model is a function of the database alone: of the samples, the settings and the
calibration of its gallery. Built again, it has the same bytes on the same machine. It
knows subjects by their ids, so renaming changes nothing, and a file has no names.

One process builds models. It publishes a model by its row in the table ``models``, in
one step. Every request reads that row first. So no answer comes from a model that knows
a person whose erasure was confirmed.
"""

import hashlib
import shutil
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, insert, select, update

from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.recognition import Calibration, Recognizer
from dualqml.recognition.decision_model import DecisionModel, load_decision_model
from dualqml.service.database import Database, ReadCache
from dualqml.service.tables import (
    calibrations,
    galleries,
    models,
    new_id,
    now,
    samples,
)

#: Recognisers that the builder keeps, so that a change costs less than a new fit.
_MOST_KEPT = 8
#: How often a file is looked for that another model has replaced in the meantime.
_TRIES = 5
#: Seconds before it is looked for again.
_PAUSE = 0.01


@lru_cache(maxsize=1)
def _photographs() -> tuple[Any, Any]:
    """What describes the faces of photographs, and its statistics of other people."""
    from dualqml.images import FaceEmbedder
    from dualqml.recognition.front_end import network_background

    embedder = FaceEmbedder()
    return embedder, network_background(embedder)


def new_recognizer(gallery: Mapping[Any, Any]) -> Recognizer:
    """A recogniser with the settings of a gallery, without anybody.

    Parameters
    ----------
    gallery : mapping
        A row of the table ``galleries``.

    Returns
    -------
    Recognizer
        The recogniser.
    """
    if gallery["inputs"] == "photographs":
        embedder, background = _photographs()
        return Recognizer(embedding=embedder, background=background)
    return Recognizer(size=(gallery["height"], gallery["width"]))


def as_inputs(gallery: Mapping[Any, Any], rows: Sequence[bytes]) -> NDArray[Any]:
    """Rows of the database as a recogniser takes them.

    Parameters
    ----------
    gallery : mapping
        A row of the table ``galleries``.
    rows : sequence of bytes
        Pixels or vectors.

    Returns
    -------
    ndarray
        Images (n, height, width) of 8 bits, or vectors (n, p) in single precision.
    """
    joined = b"".join(rows)
    if gallery["inputs"] == "crops":
        shape = (len(rows), gallery["height"], gallery["width"])
        return np.frombuffer(joined, dtype=np.uint8).reshape(shape)
    return np.frombuffer(joined, dtype="<f4").reshape(len(rows), -1)


def model_path(folder: Path, gallery_id: str, revision: int) -> Path:
    """The file of a model."""
    return folder / gallery_id / f"{revision}.dualqml"


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

    def due(self) -> list[str]:
        """The galleries whose models are not up to date.

        Returns
        -------
        list of str
            Their ids.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                select(galleries.c.id)
                .outerjoin(models, models.c.gallery_id == galleries.c.id)
                .where(
                    (models.c.revision.is_(None))
                    | (models.c.revision < galleries.c.revision)
                )
                .order_by(galleries.c.changed_at)
            )
            return [row.id for row in rows]

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
            The revision of the model; None if the gallery is gone.
        """
        with self._database.read() as connection:
            gallery = _gallery(connection, gallery_id)
            if gallery is None:
                self._forget(gallery_id)
                return None
            kept = self._updated(connection, gallery)
            record = _settled_calibration(connection, gallery_id)
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
            _publish(connection, gallery_id, values)
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
        with warnings.catch_warnings():
            # How sure the rate is, is part of every answer.
            warnings.simplefilter("ignore", UserWarning)
            return None, recognizer.calibrate(**rate).as_dict()
    except RecognitionError:
        # Too few people; there is no threshold yet.
        return None, None


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


def _settled_calibration(
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


class LoadedModel:
    """A published model.

    Decisions about vectors need a few arrays of its file, and no scikit-learn. The
    whole recogniser is read when something else is asked for.

    Parameters
    ----------
    revision : int
        Its revision; -1 if there was none yet.
    path : Path, optional
        Its file; None if there is no model.
    reason : str, default=""
        Why there is none.
    """

    def __init__(
        self, revision: int, path: Path | None = None, reason: str = ""
    ) -> None:
        self.revision = revision
        self.reason = reason
        self._path = path
        self._quick = None if path is None else load_decision_model(path)
        self._whole: Recognizer | None = None
        if self._quick is None and path is not None:
            self._whole = Recognizer.load(path)

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return self._path is not None

    @property
    def recognizer(self) -> Recognizer | None:
        """The whole recogniser; None if there is no model.

        Raises a ModelFileError if it was not read yet, and its file was replaced.
        """
        if self._whole is None and self._path is not None:
            self._whole = Recognizer.load(self._path)
        return self._whole

    @property
    def decider(self) -> DecisionModel | Recognizer:
        """What decides."""
        if self._quick is not None:
            return self._quick
        found = self.recognizer
        assert found is not None
        return found

    @property
    def subjects(self) -> list[str]:
        """The subjects that it knows."""
        found = self.decider.subjects
        return found() if callable(found) else found

    @property
    def calibration(self) -> Calibration | None:
        """Where its threshold comes from."""
        return self.decider.calibration

    @property
    def width(self) -> int:
        """Number of values of a sample."""
        if self._quick is not None:
            return self._quick.n_features
        found = self.recognizer
        assert found is not None
        return int(found.samples(found.subjects()[0]).shape[1])


class ModelCache:
    """The published models that this process has read.

    Files are mapped into memory: processes that read the same file share it.

    Parameters
    ----------
    folder : Path
        Folder of the models.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[str, LoadedModel] = {}
        self._lock = threading.Lock()

    def get(
        self, cache: ReadCache, gallery_id: str, *, whole: bool = False
    ) -> LoadedModel:
        """The published model of a gallery.

        Parameters
        ----------
        cache : ReadCache
            The database, which is asked each time whether it has changed.
        gallery_id : str
            The gallery.
        whole : bool, default=False
            Whether the whole recogniser will be needed.

        Returns
        -------
        LoadedModel
            The model.
        """
        query = select(models.c.revision, models.c.sha256, models.c.reason).where(
            models.c.gallery_id == gallery_id
        )
        for attempt in range(_TRIES):
            row = cache.get(
                ("model", gallery_id),
                lambda connection: connection.execute(query).first(),
            )
            if row is None:
                return LoadedModel(-1, None, "The model is not ready yet.")
            try:
                found = self._models.get(gallery_id)
                if found is None or found.revision != row.revision:
                    found = self._load(gallery_id, row)
                if whole:
                    with self._lock:
                        found.recognizer  # noqa: B018 (it is read here)
                return found
            except ModelFileError:
                # A newer model has replaced it after the row was read.
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE)
                cache.refresh()
        raise AssertionError("the last try returns or raises")

    def drop_old(self, database: Database) -> None:
        """Forget models that were replaced."""
        with database.read() as connection:
            rows = connection.execute(select(models.c.gallery_id, models.c.revision))
            published = {row.gallery_id: row.revision for row in rows}
        for gallery_id, known in list(self._models.items()):
            if published.get(gallery_id) != known.revision:
                self._models.pop(gallery_id, None)

    def _load(self, gallery_id: str, row: Any) -> LoadedModel:
        with self._lock:
            known = self._models.get(gallery_id)
            if known is not None and known.revision >= row.revision:
                # Another thread was quicker.
                return known
            if row.sha256 is None:
                found = LoadedModel(row.revision, None, row.reason)
            else:
                path = model_path(self._folder, gallery_id, row.revision)
                found = LoadedModel(row.revision, path)
            self._models[gallery_id] = found
            return found


def _publish(connection: Connection, gallery_id: str, values: dict[str, Any]) -> None:
    done = connection.execute(
        update(models).where(models.c.gallery_id == gallery_id).values(**values)
    )
    if done.rowcount == 0:
        connection.execute(insert(models).values(gallery_id=gallery_id, **values))


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
