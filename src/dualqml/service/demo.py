# SPDX-License-Identifier: BSD-3-Clause
"""The demo gallery: thirty people of the ORL faces, and ten who stay strangers."""

import io
from collections.abc import Callable, Mapping
from typing import Any

from dualqml.data.orl import orl_files
from dualqml.exceptions import DualQMLError
from dualqml.images.face_networks import import_opencv
from dualqml.images.files import import_pillow, read_image
from dualqml.service.audit import record
from dualqml.service.database import Database
from dualqml.service.people import (
    NewSample,
    add_samples,
    create_subject,
    gallery_row,
    subject_named,
    touch,
    vector_bytes,
)

NAME = "Demo: ORL faces"
#: People who are enrolled, images of each, and images of each that can be tried.
_N_PEOPLE, _N_ENROLLED, _N_PROBES = 30, 4, 2
_ALL_PEOPLE = 40


def demo_inputs() -> str:
    """The kind of samples: "photographs" if the networks are installed, or "crops"."""
    try:
        import_opencv()
        return "photographs"
    except DualQMLError:
        return "crops"


def probes() -> list[dict[str, Any]]:
    """Images that are not enrolled: of people who are, and of strangers.

    Returns
    -------
    list of dict
        Id, person, and whether the person is enrolled.
    """
    found = []
    for person in range(1, _ALL_PEOPLE + 1):
        for image in range(_N_ENROLLED + 1, _N_ENROLLED + 1 + _N_PROBES):
            found.append(
                {
                    "id": f"{person}-{image}",
                    "person": _name(person),
                    "enrolled": person <= _N_PEOPLE,
                }
            )
    return found


def probe_image(probe_id: str) -> bytes | None:
    """An image of `probes` as PNG, or None if there is none of that id."""
    if probe_id not in {probe["id"] for probe in probes()}:
        return None
    person, image = map(int, probe_id.split("-"))
    return _png(orl_files()[person, image])


def enroll_demo(
    database: Database,
    gallery: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> int:
    """Enrol the people of the demo.

    Parameters
    ----------
    database : Database
        The database.
    gallery : mapping
        The row of the gallery, which is empty.
    progress : callable
        Called with the number of images done and of all.

    Returns
    -------
    int
        Number of samples.
    """
    files = orl_files()
    wanted = [key for key in files if key[0] <= _N_PEOPLE and key[1] <= _N_ENROLLED]
    new: dict[int, list[NewSample]] = {}
    if gallery["inputs"] == "photographs":
        from dualqml.images.faces import read_faces

        read = read_faces([files[key] for key in wanted], n_jobs=2, progress=progress)
        for key, found in zip(wanted, read, strict=True):
            if found.faces:
                main = found.faces[0]
                new.setdefault(key[0], []).append(
                    NewSample(
                        _file_name(key),
                        vector_bytes(main.vector),
                        main.face.quality,
                        _png(files[key]),
                    )
                )
    else:
        size = gallery["height"], gallery["width"]
        for done, key in enumerate(wanted, start=1):
            row = read_image(files[key], size).tobytes()
            new.setdefault(key[0], []).append(NewSample(_file_name(key), row))
            progress(done, len(wanted))
    with database.write() as connection:
        locked = gallery_row(connection, gallery["id"], lock=True)
        for person, own in new.items():
            if subject_named(connection, gallery["id"], _name(person)) is None:
                subject = create_subject(connection, gallery["id"], _name(person))
                add_samples(connection, locked, subject, own)
        touch(connection, gallery["id"])
        record(database, connection, "service", "demo.load", gallery_id=gallery["id"])
    return sum(map(len, new.values()))


def _name(person: int) -> str:
    return f"ORL person {person:02d}"


def _file_name(key: tuple[int, int]) -> str:
    return f"s{key[0]}/{key[1]}.pgm"


def _png(path: Any) -> bytes:
    stream = io.BytesIO()
    with import_pillow("Image").open(path) as image:
        image.save(stream, "PNG")
    return stream.getvalue()
