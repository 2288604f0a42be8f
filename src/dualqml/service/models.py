# SPDX-License-Identifier: BSD-3-Clause
"""Published models: which there are, and what a process needs to read them.

A model is a function of the database alone: of the samples, the settings and the
calibration of its gallery. It knows subjects by their ids, so renaming changes nothing,
and a file has no names.

Every request first reads the row of its model in the table ``models``. So no answer
comes from a model that knows a person whose erasure was confirmed.

Answers about vectors need no scikit-learn. It takes seconds to import, so only what
needs it does.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from dualqml.exceptions import ModelFileError
from dualqml.recognition import Calibration
from dualqml.recognition.decision_model import DecisionModel, load_decision_model
from dualqml.service.database import Database, ReadCache
from dualqml.service.tables import galleries, models

if TYPE_CHECKING:
    from dualqml.recognition import Recognizer

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


def new_recognizer(gallery: Mapping[Any, Any]) -> "Recognizer":
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
    from dualqml.recognition import Recognizer

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


def galleries_due(database: Database) -> list[str]:
    """The galleries whose models are not up to date.

    Parameters
    ----------
    database : Database
        The database.

    Returns
    -------
    list of str
        Their ids.
    """
    with database.read() as connection:
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
            self._whole = _whole(path)

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return self._path is not None

    @property
    def recognizer(self) -> "Recognizer | None":
        """The whole recogniser; None if there is no model.

        Raises a ModelFileError if it was not read yet, and its file was replaced.
        """
        if self._whole is None and self._path is not None:
            self._whole = _whole(self._path)
        return self._whole

    @property
    def decider(self) -> "DecisionModel | Recognizer":
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


def _whole(path: Path) -> "Recognizer":
    from dualqml.recognition import Recognizer

    return Recognizer.load(path)


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
