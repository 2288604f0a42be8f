# SPDX-License-Identifier: BSD-3-Clause
"""The process that decodes images, which strangers may have sent.

Decoders of images are large programs with faults of their own. So they run in a process
that has nothing to lose: it knows no database, no key and no model, and its memory is
bounded. If it dies or hangs, it is replaced, and one image is refused.

It reads requests from its standard input and writes answers to its standard output. A
message is a line of JSON, which tells the sizes of the bytes that follow it.
"""

import io
import json
import sys
from contextlib import suppress
from typing import IO, Any

import numpy as np

from dualqml.exceptions import DatabaseError, DualQMLError
from dualqml.images.files import (
    import_pillow,
    photograph_size,
    read_photograph,
    read_pixels,
)
from dualqml.images.geometry import standard_grey

#: Bytes of address space that the process may have.
_MOST_MEMORY = 6 * 2**30
#: How image files begin that are read. Other formats, such as those that call other
#: programs, are refused.
_BEGINNINGS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"BM",
    b"II*\x00",
    b"MM\x00*",
    b"P1",
    b"P2",
    b"P3",
    b"P4",
    b"P5",
    b"P6",
)
#: Longest side of a picture that is kept.
_KEPT_SIDE = 1024
_KEPT_QUALITY = 88


def write_message(stream: IO[bytes], head: dict[str, Any], *parts: bytes) -> None:
    """Write a message.

    Parameters
    ----------
    stream : binary stream
        Where it goes.
    head : dict
        Plain values.
    *parts : bytes
        What follows.
    """
    sizes = [len(part) for part in parts]
    line = json.dumps({"head": head, "sizes": sizes}).encode()
    stream.write(b"".join([line, b"\n", *parts]))
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read a message.

    Parameters
    ----------
    stream : binary stream
        Where it comes from.

    Returns
    -------
    tuple of dict and list of bytes, or None
        What was written; None at the end of the stream.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message = json.loads(line)
    parts = [stream.read(size) for size in message["sizes"]]
    if [len(part) for part in parts] != message["sizes"]:
        return None
    return message["head"], parts


def decode(head: dict[str, Any], content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Decode one image.

    Parameters
    ----------
    head : dict
        ``crop`` with the size of crops, or None for photographs; ``describe``, whether
        faces are described; ``keep``, whether a picture is returned; ``most_pixels``.
    content : bytes
        The file.

    Returns
    -------
    dict and list of bytes
        For photographs, the faces with their boxes, then for each face its vector and
        a small picture of it. For crops, the pixels. The last bytes are the picture to
        keep; empty if it is not wanted.

    Raises
    ------
    DatabaseError
        The image cannot be read.
    """
    name = "the image"
    if not _is_known(content):
        raise DatabaseError(
            f"{name}: not an image of a known format; send JPEG, PNG or WebP"
        )
    height, width = photograph_size(content, name)
    if height * width > head["most_pixels"]:
        raise _TooManyPixelsError(
            f"{name}: {height} x {width} pixels are more than the "
            f"{head['most_pixels'] / 1e6:g} million that are allowed. Save it smaller."
        )
    if head["crop"] is not None:
        pixels = read_pixels(content, name)
        if min(pixels.shape[:2]) < 2:
            raise DatabaseError(f"{name}: it has {height} x {width} pixels, too few")
        row = standard_grey(pixels, head["crop"], colour=pixels.ndim == 3)
        return {"height": height, "width": width, "remarks": []}, [row.tobytes(), b""]
    return _photograph(head, content, name)


def _photograph(
    head: dict[str, Any], content: bytes, name: str
) -> tuple[dict[str, Any], list[bytes]]:
    from dualqml.images.face_networks import FaceNetwork
    from dualqml.images.faces import describe_face, detect_faces

    read = read_photograph(content, name)
    found = detect_faces(read.pixels)
    network = FaceNetwork()
    faces, parts = [], []
    for face in found:
        faces.append(
            {
                "box": face.box,
                "landmarks": face.landmarks,
                "score": face.score,
                "sharpness": face.sharpness,
            }
        )
        vector = b""
        if head["describe"]:
            described = describe_face(read.pixels, face, network)
            vector = np.asarray(described, dtype="<f4").tobytes()
        thumbnail = _cut(read.pixels, face.box) if head["keep"] else b""
        parts += [vector, thumbnail]
    height, width = read.pixels.shape[:2]
    parts.append(_picture(read.pixels) if head["keep"] else b"")
    answer = {
        "height": height,
        "width": width,
        "faces": faces,
        "remarks": list(read.remarks),
    }
    return answer, parts


class _TooManyPixelsError(DatabaseError):
    """An image has more pixels than are allowed."""


def _is_known(content: bytes) -> bool:
    if content.startswith(_BEGINNINGS):
        return True
    webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    # HEIC and AVIF, where a package can read them.
    return webp or content[4:8] == b"ftyp"


def _picture(pixels: Any) -> bytes:
    """A photograph as JPEG, without what the camera noted, such as the place."""
    module = import_pillow("Image")
    image = module.fromarray(pixels)
    image.thumbnail((_KEPT_SIDE, _KEPT_SIDE))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_KEPT_QUALITY)
    return stream.getvalue()


def _cut(pixels: Any, box: tuple[int, int, int, int]) -> bytes:
    """The face with some of what is around it, as JPEG."""
    top, left, bottom, right = box
    margin = max(bottom - top, right - left) // 3
    part = pixels[
        max(top - margin, 0) : bottom + margin, max(left - margin, 0) : right + margin
    ]
    return _picture(np.ascontiguousarray(part))


def _answer(head: dict[str, Any], content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    from dualqml.service.problems import code_of

    try:
        return decode(head, content)
    except _TooManyPixelsError as error:
        return {"code": "too-many-pixels", "detail": str(error)}, []
    except MemoryError:
        return {"code": "too-many-pixels", "detail": "the image: too large"}, []
    except DualQMLError as error:
        code = code_of(error)
        if "refused as too large" in str(error):
            code = "too-many-pixels"
        return {"code": code, "detail": str(error)}, []
    # Whatever a decoder raises, the next image has another chance.
    except Exception as error:
        detail = f"the image: it cannot be decoded ({type(error).__name__})"
        return {"code": "bad-image", "detail": detail}, []


def main() -> None:
    """Answer requests until the standard input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # What a library prints must not come between the messages.
    sys.stdout = sys.stderr
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ImportError):
        import cv2

        cv2.setNumThreads(1)
    while True:
        message = read_message(source)
        if message is None:
            return
        head, parts = message
        answer, blobs = _answer(head, parts[0])
        write_message(sink, answer, *blobs)


if __name__ == "__main__":
    main()
