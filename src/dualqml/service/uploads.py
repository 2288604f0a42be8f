# SPDX-License-Identifier: BSD-3-Clause
"""Samples in the bodies of requests: files of a form, or base64 and vectors in JSON.

Files stay in memory: nothing of an upload is written to a disk before it is enrolled.
"""

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from dualqml._text import printable
from dualqml.service.people import Row, vector_bytes
from dualqml.service.problems import Problem
from dualqml.service.settings import Settings

#: Most fields of a form that are not files, and characters of a name.
_MOST_FIELDS, _LONGEST_NAME = 50, 200

#: What the OpenAPI document says of bodies with one sample, and with many.
_BINARY = {"type": "string", "format": "binary"}
_VECTOR = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_IMAGE = {"type": "string", "format": "byte", "description": "Base64 of a file."}


def body_document(
    form: dict[str, Any], plain: dict[str, Any], example: Any
) -> dict[str, Any]:
    """What the OpenAPI document says about a body: a form, or JSON."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {"type": "object", "properties": form}
                },
                "application/json": {
                    "schema": {"type": "object", "properties": plain},
                    "example": example,
                },
            },
        }
    }


ONE_SAMPLE = body_document(
    {"file": _BINARY},
    {"image": _IMAGE, "vector": _VECTOR},
    {"vector": [0.1, -0.2, 0.3]},
)
ONE_CLAIM = body_document(
    {"file": _BINARY, "subject": {"type": "string"}},
    {"image": _IMAGE, "vector": _VECTOR, "subject": {"type": "string"}},
    {"subject": "0123456789abcdef0123456789abcdef", "vector": [0.1, -0.2, 0.3]},
)
ONE_MISTAKE = body_document(
    {"file": _BINARY, "not_subject": {"type": "string"}},
    {"image": _IMAGE, "vector": _VECTOR, "not_subject": {"type": "string"}},
    {"vector": [0.1, -0.2, 0.3]},
)
MANY_SAMPLES = body_document(
    {"files": {"type": "array", "items": _BINARY}},
    {
        "images": {"type": "array", "items": _IMAGE},
        "vectors": {"type": "array", "items": _VECTOR},
    },
    {"vectors": [[0.1, -0.2, 0.3], [0.1, -0.1, 0.4]]},
)
MANY_PEOPLE = body_document(
    {"files": {"type": "array", "items": _BINARY}},
    {"samples": {"type": "array", "items": {"type": "object"}}},
    {"samples": [{"subject": "Ann Lee", "vector": [0.1, -0.2, 0.3]}]},
)
ONE_FILE = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": _BINARY}}
            }
        },
    }
}


class _InMemory(MultiPartParser):
    """Parser of forms that keeps files in memory; the size of bodies is limited."""

    spool_max_size = 2**62


@dataclass(frozen=True, eq=False)
class Upload:
    """One sample of a request.

    Attributes
    ----------
    name : str
        Name of the file; "" if it has none.
    content : bytes or None
        The file.
    vector : bytes or None
        The vector.
    subject : str
        The person, where a request has several.
    problem : Problem or None
        Why it cannot be used.
    """

    name: str = ""
    content: bytes | None = None
    vector: bytes | None = None
    subject: str = ""
    problem: Problem | None = None


@dataclass(frozen=True, eq=False)
class Body:
    """The body of a request.

    Attributes
    ----------
    files : list of (str, Upload)
        The files of a form, with the names of their fields.
    fields : dict
        The other fields, or the members of JSON.
    """

    files: list[tuple[str, Upload]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """A field that is text, or None if it is missing."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            raise Problem("invalid", f"{name} must be text.")
        return value


async def read_body(request: Request, settings: Settings) -> Body:
    """Read the body of a request.

    Parameters
    ----------
    request : Request
        The request.
    settings : Settings
        The limits.

    Returns
    -------
    Body
        Files and fields.

    Raises
    ------
    Problem
        It cannot be read.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "application/json":
        return Body(fields=parse_json(await request.body()))
    if kind == "multipart/form-data":
        return await _read_form(request, settings)
    raise Problem(
        "wrong-type", "Send multipart/form-data with files, or application/json."
    )


def parse_json(content: bytes) -> dict[str, Any]:
    """An object of JSON; raises a `Problem` if it is none."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no number")

    try:
        found = json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Problem("bad-request", f"The body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Problem("invalid", "The body must be an object of JSON.")
    return found


async def _read_form(request: Request, settings: Settings) -> Body:
    parser = _InMemory(
        request.headers,
        request.stream(),
        max_files=settings.max_files,
        max_fields=_MOST_FIELDS,
        max_part_size=settings.max_file_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem("bad-request", f"The form cannot be read: {error}") from error
    # A form without a boundary, or with one that is not text.
    except (KeyError, ValueError, UnicodeError) as error:
        raise Problem("bad-request", "The form cannot be read.") from error
    body = Body()
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            content = await value.read()
            shown = printable(value.filename or "", _LONGEST_NAME)
            body.files.append((name, Upload(shown, content)))
        else:
            body.fields[name] = value
    await form.close()
    return body


def one_sample(body: Body, *, field_name: str = "file") -> Upload:
    """The only sample of a body.

    Parameters
    ----------
    body : Body
        The body.
    field_name : str, default="file"
        Field of the form.

    Returns
    -------
    Upload
        The sample.

    Raises
    ------
    Problem
        There is none, or there are several.
    """
    files = [upload for name, upload in body.files if name == field_name]
    found = files + [
        _from_json(body.fields, kind)
        for kind in ("image", "vector")
        if body.fields.get(kind) is not None
    ]
    if len(found) != 1:
        raise Problem(
            "invalid",
            f'Send one sample: a file in the field "{field_name}", or "image" or '
            '"vector" in JSON.',
        )
    if found[0].problem is not None:
        raise found[0].problem
    return found[0]


def many_samples(body: Body, settings: Settings) -> list[Upload]:
    """The samples of one person in a body.

    Raises
    ------
    Problem
        There are none, or too many.
    """
    found = [upload for name, upload in body.files if name in ("files", "file")]
    for plural, kind in (("images", "image"), ("vectors", "vector")):
        values = body.fields.get(plural)
        if values is None:
            continue
        if not isinstance(values, list):
            raise Problem("invalid", f'"{plural}" must be a list.')
        found += [_from_json({kind: value}, kind) for value in values]
    return _counted(found, settings)


def people_samples(body: Body, settings: Settings) -> list[Upload]:
    """The samples of several people in a body.

    Files are named "Ann/1.jpg". JSON has a list of objects with a subject and a vector
    or an image.

    Raises
    ------
    Problem
        There are none, or too many.
    """
    found = []
    for name, upload in body.files:
        if name not in ("files", "file"):
            continue
        person = upload.name.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
        problem = None
        if not person:
            problem = Problem("invalid", 'Name the file "PERSON/FILE".')
        found.append(Upload(upload.name, upload.content, None, person, problem))
    values = body.fields.get("samples")
    if values is not None:
        if not isinstance(values, list):
            raise Problem("invalid", '"samples" must be a list.')
        found += [_of_person(value) for value in values]
    return _counted(found, settings)


def check_kind(upload: Upload, gallery: Row) -> None:
    """Raise a `Problem` if a sample is not of the kind of a gallery."""
    if (gallery["inputs"] == "vectors") != (upload.vector is not None):
        # A vector of the same network is as good as its photograph.
        if gallery["inputs"] == "photographs" and upload.vector is not None:
            return
        raise Problem(
            "wrong-kind",
            f"This gallery is of {gallery['inputs']}: "
            + (
                'send "vector".'
                if gallery["inputs"] == "vectors"
                else "send an image file."
            ),
        )


def _counted(found: list[Upload], settings: Settings) -> list[Upload]:
    most = settings.max_files if any(u.content for u in found) else 20_000
    if not found:
        raise Problem("invalid", "There is no sample: send at least one.")
    if len(found) > most:
        raise Problem("too-large", f"At most {most} samples in one request.")
    return found


def _of_person(value: Any) -> Upload:
    if not isinstance(value, dict) or not isinstance(value.get("subject"), str):
        return Upload(problem=Problem("invalid", 'A sample needs a "subject".'))
    kinds = [kind for kind in ("image", "vector") if value.get(kind) is not None]
    if len(kinds) != 1:
        problem = Problem("invalid", 'A sample needs an "image" or a "vector".')
        return Upload(subject=value["subject"], problem=problem)
    return _from_json(value, kinds[0])


def _from_json(value: dict[str, Any], kind: str) -> Upload:
    name, subject = value.get("name", ""), value.get("subject", "")
    name = printable(name, _LONGEST_NAME) if isinstance(name, str) else ""
    subject = subject if isinstance(subject, str) else ""
    try:
        if kind == "vector":
            return Upload(name, None, vector_bytes(value[kind]), subject)
        return Upload(name, _decoded(value[kind]), None, subject)
    except Problem as problem:
        return Upload(name, None, None, subject, problem)


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise Problem("invalid", "An image in JSON is text in base64.")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem("invalid", "The base64 of an image cannot be read.") from error
