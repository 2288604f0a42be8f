# SPDX-License-Identifier: BSD-3-Clause
"""Images to samples: hands uploads to processes that decode them."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dualqml.exceptions import DatabaseError
from dualqml.images.faces import DescribedFace, Face, PhotographFaces, Several
from dualqml.service.decoder import read_message, write_message
from dualqml.service.people import NewSample
from dualqml.service.problems import Problem, code_of
from dualqml.service.settings import Settings


@dataclass(frozen=True, eq=False)
class DecodedFace:
    """A face of a photograph.

    Attributes
    ----------
    face : Face
        Where it is, and its quality.
    row : bytes
        Its vector; empty if faces were not described.
    thumbnail : bytes
        A small picture of it; empty if it was not asked for.
    """

    face: Face
    row: bytes
    thumbnail: bytes


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """An image that was decoded.

    Attributes
    ----------
    height, width : int
        Its size, upright.
    faces : tuple of DecodedFace
        The faces of a photograph, the largest first.
    row : bytes
        The pixels of a crop.
    picture : bytes
        The photograph to keep; empty if it was not asked for.
    remarks : tuple of str
        What was lost while it was read.
    """

    height: int
    width: int
    faces: tuple[DecodedFace, ...] = ()
    row: bytes = b""
    picture: bytes = b""
    remarks: tuple[str, ...] = ()

    def confident(self, least: float, *, limit: int = 0) -> "DecodedImage":
        """The same image without faces of which the detector is less sure.

        Parameters
        ----------
        least : float
            Smallest confidence of the detector.
        limit : int, default=0
            Most faces, the largest first; 0 means all.

        Returns
        -------
        DecodedImage
            The image.
        """
        sure = tuple(one for one in self.faces if one.face.score >= least)
        return replace(self, faces=sure[: limit or None])

    def sample(
        self, name: str, *, several: Several = "error", min_quality: float = 0.0
    ) -> NewSample:
        """The sample to enrol.

        Parameters
        ----------
        name : str
            Name of the file.
        several : {"error", "largest"}, default="error"
            What happens if there are several faces of similar size.
        min_quality : float, default=0.0
            Smallest quality of the face.

        Returns
        -------
        NewSample
            The largest face, or the crop.

        Raises
        ------
        Problem
            There is no such face.
        """
        if self.row:
            return NewSample(name, self.row)
        faces = tuple(DescribedFace(one.face, one.row) for one in self.faces)  # type: ignore[arg-type]
        found = PhotographFaces(name or "the photograph", faces)
        try:
            main = found.main_face(several, min_quality)
        except DatabaseError as error:
            raise Problem(code_of(error), str(error)) from error
        row: bytes = main.vector  # type: ignore[assignment]
        return NewSample(name, row, main.face.quality, self.picture or None)


class Decoders:
    """Processes that decode images.

    Parameters
    ----------
    settings : Settings
        Their number, and the limits of images.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        for _ in range(settings.decoders):
            self._idle.put(_Child())

    def decode(
        self,
        content: bytes,
        gallery: Mapping[str, Any],
        *,
        describe: bool = True,
        keep: bool = False,
    ) -> DecodedImage:
        """Decode one image.

        Parameters
        ----------
        content : bytes
            The file.
        gallery : mapping
            The row of the gallery.
        describe : bool, default=True
            Whether faces are described, or only found.
        keep : bool, default=False
            Whether pictures are returned.

        Returns
        -------
        DecodedImage
            The image.

        Raises
        ------
        Problem
            The image cannot be decoded, or takes too long.
        """
        if len(content) > self._settings.max_file_bytes:
            raise Problem(
                "too-large",
                f"A file may have {self._settings.max_file_bytes} bytes, this one has "
                f"{len(content)}.",
            )
        if not content:
            raise Problem("bad-image", "The file is empty.")
        crops = gallery["inputs"] == "crops"
        head = {
            "crop": [gallery["height"], gallery["width"]] if crops else None,
            "describe": describe,
            "keep": keep,
            "most_pixels": self._settings.max_pixels,
        }
        seconds = self._settings.decode_seconds
        try:
            child = self._idle.get(timeout=seconds)
        except queue.Empty:
            raise Problem(
                "not-ready", "Too many images are waiting: try again later."
            ) from None
        try:
            answer, parts = child.ask(head, content, seconds)
        except _ChildDiedError as error:
            raise Problem("bad-image", f"The image {error}.") from error
        finally:
            self._idle.put(child)
        if "code" in answer:
            raise Problem(answer["code"], answer["detail"])
        return _decoded(answer, parts)

    def warm_up(self) -> None:
        """Start the processes, so that the first image does not wait for them."""
        children = [self._idle.get() for _ in range(self._settings.decoders)]
        for child in children:
            child.start()
            self._idle.put(child)

    def close(self) -> None:
        """End the processes."""
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().stop()


def _decoded(answer: dict[str, Any], parts: list[bytes]) -> DecodedImage:
    remarks = tuple(answer["remarks"])
    if "faces" not in answer:
        return DecodedImage(
            answer["height"], answer["width"], row=parts[0], remarks=remarks
        )
    faces = []
    for number, one in enumerate(answer["faces"]):
        face = Face(
            tuple(one["box"]),
            tuple(map(tuple, one["landmarks"])),
            one["score"],
            one["sharpness"],
        )
        faces.append(DecodedFace(face, parts[2 * number], parts[2 * number + 1]))
    return DecodedImage(
        answer["height"],
        answer["width"],
        tuple(faces),
        picture=parts[-1],
        remarks=remarks,
    )


class _ChildDiedError(Exception):
    """A decoder has died or takes too long."""


class _Child:
    """A decoder, which is started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dualqml.service.decoder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the server, which ends its decoders.
                start_new_session=True,
            )
        return self._process

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            self._process = None

    def ask(
        self, head: dict[str, Any], content: bytes, seconds: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        # Whatever it waits for, a process that is killed ends all waiting.
        late = threading.Timer(seconds, process.kill)
        late.daemon = True
        begin = time.monotonic()
        late.start()
        try:
            write_message(process.stdin, head, content)
            message = read_message(process.stdout)
        except (OSError, ValueError):
            message = None
        finally:
            late.cancel()
        if message is None:
            self.stop()
            if time.monotonic() - begin >= seconds:
                raise _ChildDiedError(f"took longer than {seconds:g} s to decode")
            raise _ChildDiedError("could not be decoded: it ended the decoder")
        return message
