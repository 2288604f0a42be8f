# SPDX-License-Identifier: BSD-3-Clause
"""A gallery as one file: for a backup, another machine, or to check a receipt.

The file is a safetensors file with a checksum, like that of a model, and has no pickle.
It has the samples, the names of people and the settings. It has no model: that is built
again from them.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, insert, select

from dualqml import __version__
from dualqml.exceptions import DualQMLError, FileError, ModelFileError
from dualqml.persistence.formats import VERSION_KEY
from dualqml.persistence.tensors import strict_json, tensor_parts, tensors_of
from dualqml.recognition import Calibration
from dualqml.service.audit import digest
from dualqml.service.calibrations import current_calibration, keep_calibration
from dualqml.service.models import as_inputs, new_recognizer
from dualqml.service.people import create_gallery, gallery_row, valid_name
from dualqml.service.problems import Problem
from dualqml.service.tables import new_id, samples, subjects

if TYPE_CHECKING:
    from dualqml.recognition import Recognizer

_FORMAT_KEY, _FORMAT = "dualqml.gallery", "1"
#: Columns of a gallery that a file keeps.
_SETTINGS = [
    "name",
    "inputs",
    "height",
    "width",
    "keep_photographs",
    "keep_strangers",
    "stranger_days",
    "retention_days",
    "target_kind",
    "target_rate",
]
_INPUTS = ("photographs", "crops", "vectors")


def export_bytes(connection: Connection, gallery_id: str) -> tuple[bytes, int]:
    """A gallery as the content of a file.

    Parameters
    ----------
    connection : Connection
        A connection, which sees one state of the database.
    gallery_id : str
        The gallery.

    Returns
    -------
    bytes and int
        The content, and the number of erasures so far. If that number changes while
        the content is sent, sending must stop.
    """
    gallery = gallery_row(connection, gallery_id)
    people = (
        connection.execute(
            select(subjects)
            .where(subjects.c.gallery_id == gallery_id)
            .order_by(subjects.c.id)
        )
        .mappings()
        .all()
    )
    rows = (
        connection.execute(
            select(samples)
            .where(samples.c.gallery_id == gallery_id)
            .order_by(samples.c.number)
        )
        .mappings()
        .all()
    )
    places = {person["id"]: place for place, person in enumerate(people)}
    images = [row["image"] or b"" for row in rows]
    state = {
        "gallery": {name: gallery[name] for name in _SETTINGS},
        "id": gallery_id,
        "revision": gallery["revision"],
        "calibration": current_calibration(connection, gallery_id),
        "subjects": [
            {name: person[name] for name in ("id", "name", "expires_at", "created_at")}
            for person in people
        ],
        "samples": [
            {name: row[name] for name in ("id", "name", "quality", "created_at")}
            for row in rows
        ],
    }
    arrays: dict[str, Any] = {
        "owners": np.array([places[row["subject_id"]] for row in rows], np.int64),
        "image_sizes": np.array([len(image) for image in images], np.int64),
        "images": np.frombuffer(b"".join(images), np.uint8),
    }
    if rows:
        inputs = as_inputs(gallery, [row["row"] for row in rows])
        arrays["rows"] = np.ascontiguousarray(inputs.reshape(len(rows), -1))
    text = json.dumps(state, allow_nan=False, ensure_ascii=False)
    arrays["state"] = np.frombuffer(text.encode(), np.uint8)
    metadata = {_FORMAT_KEY: _FORMAT, VERSION_KEY: __version__}
    # Nothing is written to a disk: a process that is killed leaves no copy.
    return b"".join(tensor_parts(arrays, metadata)), int(gallery["erasures"])


def import_bytes(
    connection: Connection, content: bytes, *, name: str | None = None
) -> str:
    """Make a gallery from the content of a file.

    Parameters
    ----------
    connection : Connection
        A connection of `Database.write`.
    content : bytes
        The content of a file of `export_bytes`.
    name : str, optional
        Name of the gallery, instead of that of the file.

    Returns
    -------
    str
        The id of the new gallery. People and samples get new ids if theirs are taken.

    Raises
    ------
    Problem
        It is not the file of a gallery, or is damaged.
    """
    state, arrays = read_export(content)
    taken = connection.execute(
        select(subjects.c.id).where(
            subjects.c.id.in_([person["id"] for person in state["subjects"]][:1])
        )
    ).first()
    fresh = taken is not None
    values = {key: state["gallery"][key] for key in _SETTINGS}
    if name is not None:
        values["name"] = name
    values["name"] = valid_name(values["name"])
    gallery_id = create_gallery(connection, **values)
    ids = [new_id() if fresh else person["id"] for person in state["subjects"]]
    if ids:
        connection.execute(
            insert(subjects),
            [
                {
                    "id": subject_id,
                    "gallery_id": gallery_id,
                    "name": valid_name(person["name"]),
                    "expires_at": person["expires_at"],
                    "version": 1,
                    "created_at": person["created_at"],
                }
                for subject_id, person in zip(ids, state["subjects"], strict=True)
            ],
        )
    ends = np.cumsum(arrays["image_sizes"])
    packed = arrays["images"].tobytes()
    rows = [
        {
            "id": new_id() if fresh else sample["id"],
            "gallery_id": gallery_id,
            "subject_id": ids[int(arrays["owners"][place])],
            "name": sample["name"],
            "row": arrays["rows"][place].tobytes(),
            "quality": sample["quality"],
            "image": packed[
                int(ends[place] - arrays["image_sizes"][place]) : int(ends[place])
            ]
            or None,
            "created_at": sample["created_at"],
        }
        for place, sample in enumerate(state["samples"])
    ]
    if rows:
        connection.execute(insert(samples), rows)
    if state["calibration"] is not None:
        keep_calibration(connection, gallery_id, state["calibration"])
    return gallery_id


def read_export(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state and the arrays of a file, checked.

    Parameters
    ----------
    content : bytes
        The content of the file.

    Returns
    -------
    dict and dict
        The state and the arrays.

    Raises
    ------
    Problem
        It is not the file of a gallery, or is damaged.
    """
    try:
        arrays, metadata = tensors_of(np.frombuffer(content, np.uint8))
        if metadata.get(_FORMAT_KEY) != _FORMAT:
            raise Problem("bad-file", "This is not the file of a gallery.")
        state = strict_json(arrays.pop("state").tobytes().decode())
        _check(state, arrays)
    except Problem:
        raise
    except (ModelFileError, FileError) as error:
        raise Problem("bad-file", "The file is damaged, or of another kind.") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Problem("bad-file", "The content of the file does not fit.") from error
    return state, arrays


def model_of_export(content: bytes) -> "Recognizer":
    """The recogniser of an exported gallery, fitted anew.

    Its ``model_id``, and on the same kind of machine the SHA-256 of its file, are those
    of a receipt that was written for this state of the gallery.

    Parameters
    ----------
    content : bytes
        The content of the file.

    Returns
    -------
    Recognizer
        The recogniser.
    """
    state, arrays = read_export(content)
    recognizer = new_recognizer(state["gallery"])
    order = sorted(
        range(len(state["samples"])),
        key=lambda place: (
            state["subjects"][int(arrays["owners"][place])]["id"],
            place,
        ),
    )
    if order:
        recognizer.enroll_many(
            as_inputs(
                state["gallery"], [arrays["rows"][place].tobytes() for place in order]
            ),
            [state["subjects"][int(arrays["owners"][place])]["id"] for place in order],
            names=[state["samples"][place]["id"] for place in order],
        )
        recognizer.fit()
    if state["calibration"] is not None:
        recognizer.calibration = Calibration(**state["calibration"])
    return recognizer


def _check(state: Any, arrays: dict[str, Any]) -> None:
    """Raise if the parts of a file do not fit together."""
    settings = state["gallery"]
    n_samples, n_subjects = len(state["samples"]), len(state["subjects"])
    wanted = {"owners", "image_sizes", "images"} | ({"rows"} if n_samples else set())
    if set(arrays) != wanted or settings["inputs"] not in _INPUTS:
        raise ValueError("arrays")
    if set(settings) != set(_SETTINGS):
        raise ValueError("settings")
    for key, kind in (
        ("height", int),
        ("width", int),
        ("keep_photographs", bool),
        ("keep_strangers", bool),
    ):
        if type(settings[key]) is not kind:
            raise ValueError(key)
    if not (8 <= settings["height"] <= 256 and 8 <= settings["width"] <= 256):
        raise ValueError("size")
    if settings["target_kind"] not in ("fpir", "fmr"):
        raise ValueError("target")
    if not 0.0 < float(settings["target_rate"]) < 1.0:
        raise ValueError("target")
    for key in ("stranger_days", "retention_days"):
        if settings[key] is not None and not 0.0 < float(settings[key]) <= 36_500.0:
            raise ValueError(key)
    owners, sizes = arrays["owners"], arrays["image_sizes"]
    if owners.shape != (n_samples,) or sizes.shape != (n_samples,):
        raise ValueError("owners")
    if owners.dtype != np.int64 or sizes.dtype != np.int64:
        raise ValueError("owners")
    if n_samples:
        if owners.min() < 0 or owners.max() >= n_subjects or sizes.min() < 0:
            raise ValueError("owners")
        if sizes.max() > arrays["images"].size:
            raise ValueError("images")
        _check_rows(settings, arrays["rows"], n_samples)
    if sizes.sum() != arrays["images"].size or arrays["images"].dtype != np.uint8:
        raise ValueError("images")
    _check_records(state)


def _check_rows(settings: dict[str, Any], rows: Any, n_samples: int) -> None:
    if rows.ndim != 2 or len(rows) != n_samples:
        raise ValueError("rows")
    if settings["inputs"] == "crops":
        if rows.dtype != np.uint8:
            raise ValueError("rows")
        if rows.shape[1] != settings["height"] * settings["width"]:
            raise ValueError("rows")
    elif (
        rows.dtype != np.float32
        or not np.isfinite(rows).all()
        or not rows.any(axis=1).all()
    ):
        raise ValueError("rows")


def _check_records(state: dict[str, Any]) -> None:
    names = [person["name"] for person in state["subjects"]]
    if len(set(names)) != len(names):
        raise ValueError("two subjects of one name")
    for person in state["subjects"]:
        valid_name(person["name"])
        _check_texts(person, "id", "created_at")
        if person["expires_at"] is not None:
            _check_texts(person, "expires_at")
    for sample in state["samples"]:
        _check_texts(sample, "id", "created_at", "name")
        if sample["quality"] is not None:
            float(sample["quality"])
    ids = [one["id"] for kind in ("subjects", "samples") for one in state[kind]]
    if len(set(ids)) != len(ids):
        raise ValueError("an id is there twice")
    if state["calibration"] is not None:
        found = Calibration(**state["calibration"])
        if not np.isfinite(found.threshold) or found.kind not in (
            "fpir",
            "fmr",
            "given",
        ):
            raise ValueError("calibration")
        found.describe()


def _check_texts(record: dict[str, Any], *names: str) -> None:
    for name in names:
        value = record[name]
        limit = 200 if name == "name" else 32
        if type(value) is not str or len(value) > limit or not value.isprintable():
            raise ValueError(name)


def check_receipt(receipt: dict[str, Any], content: bytes) -> bool:
    """Whether a receipt tells the truth about an exported gallery.

    Parameters
    ----------
    receipt : dict
        The receipt of an erasure.
    content : bytes
        The gallery, exported after the erasure and before any other change.

    Returns
    -------
    bool
        Whether its digest is right, and the model after the erasure is a fresh fit to
        the gallery without the erased person.
    """
    rest = {name: value for name, value in receipt.items() if name != "digest"}
    state, _ = read_export(content)
    ids = {one["id"] for kind in ("subjects", "samples") for one in state[kind]}
    after = receipt["model_after"] or {}
    try:
        model_id = model_of_export(content).model_id if state["samples"] else None
    except DualQMLError:
        return False
    return (
        digest(rest) == receipt["digest"]
        and receipt["target_id"] not in ids
        and after.get("model_id") == model_id
    )
