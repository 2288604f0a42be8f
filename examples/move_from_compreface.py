# SPDX-License-Identifier: BSD-3-Clause
"""Copy the faces of a CompreFace service to a gallery of ``dualqml serve``.

Usage: ``python move_from_compreface.py OLD_URL OLD_KEY NEW_URL NEW_KEY``. The old key
is that of a recognition service which has saved its images. The new key is for one
gallery, with the scope "enrol". A face that is refused is listed with the reason, and
the others go on.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any


def ask(url: str, key: str, body: bytes | None = None, kind: str = "") -> bytes:
    """The answer to a request: GET, or POST if there is a body."""
    headers = {"x-api-key": key} | ({"Content-Type": kind} if kind else {})
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        content: bytes = answer.read()
    return content


def faces(url: str, key: str) -> Iterator[dict[str, Any]]:
    """All faces of a service, in parts."""
    page = 0
    while True:
        place = f"{url}/api/v1/recognition/faces?page={page}&size=100"
        found = json.loads(ask(place, key))
        yield from found["faces"]
        page += 1
        if page >= found["total_pages"]:
            return


def enrol(url: str, key: str, subject: str, image: bytes) -> None:
    """Enrol one image."""
    boundary = uuid.uuid4().hex
    body = (
        f"--{boundary}\r\nContent-Disposition: form-data; "
        'name="file"; filename="face.jpg"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    body += image + f"\r\n--{boundary}--\r\n".encode()
    place = f"{url}/api/v1/recognition/faces?subject={urllib.parse.quote(subject)}"
    ask(place, key, body, f"multipart/form-data; boundary={boundary}")


def main(old_url: str, old_key: str, new_url: str, new_key: str) -> int:
    """Copy everything; the number of faces that were refused."""
    done = refused = 0
    for face in faces(old_url, old_key):
        subject, image_id = face["subject"], face["image_id"]
        try:
            place = f"{old_url}/api/v1/recognition/faces/{image_id}/img"
            enrol(new_url, new_key, subject, ask(place, old_key))
            done += 1
        except urllib.error.HTTPError as error:
            answer = error.read()
            try:
                why = json.loads(answer)["message"]
            except (ValueError, KeyError, TypeError):
                why = error.reason
            print(f"left out: {subject}, {image_id}: {why}", file=sys.stderr)
            refused += 1
    print(f"{done} faces are enrolled, {refused} were left out.")
    return refused


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(1 if main(*sys.argv[1:]) else 0)
