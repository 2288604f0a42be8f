"""Uploads that a service must refuse: broken images, bombs, wrong types, slow bodies.

All are made from a seed. A broken image may still be one that a decoder reads, so an
answer about it may be a success.
"""

import base64
import http.client
import io
import json
import os
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress

import numpy as np
from PIL import Image

BOUNDARY = "dualqml-boundary"
#: Image formats that are damaged.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")
#: Codes of answers to what is no image, or has no face.
REFUSED = range(400, 500)


def sound_images():
    """A small picture in every format, with and without colour."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:60, 0:50]
    grey = (120 + 60 * np.sin(x / 6) + 40 * np.cos(y / 9)).astype(np.uint8)
    colour = np.stack([grey, grey[::-1], rng.integers(0, 255, grey.shape)], -1)
    found = []
    for kind in FORMATS:
        for pixels in (grey, colour.astype(np.uint8)):
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, kind)
            found.append((kind.lower(), stream.getvalue()))
    return found


def damaged(rng, content):
    """The bytes of an image with random faults."""
    data = bytearray(content)
    fault = rng.integers(6)
    if fault == 0:
        return bytes(data[: rng.integers(len(data))])
    if fault == 1:
        for place in rng.integers(len(data), size=rng.integers(1, 40)):
            data[place] ^= 1 << rng.integers(8)
    elif fault == 2:
        begin, size = rng.integers(len(data)), rng.integers(1, 200)
        data[begin : begin + size] = rng.bytes(size)
    elif fault == 3:
        begin, size = rng.integers(len(data)), rng.integers(1, 200)
        del data[begin : begin + size]
    elif fault == 4:
        # Sizes and offsets are near the beginning: the largest numbers there.
        for place in rng.integers(4, min(64, len(data)), size=4):
            data[place] = 255
    else:
        cut, other = rng.integers(len(data)), rng.integers(len(data))
        data = data[:cut] + data[other:]
    return bytes(data)


def _chunk(kind, content):
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png(width, height, *, depth=8, colour=2, rows=None, extra=b""):
    """A PNG file whose header says what it likes; its rows are zeros."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    packed = zlib.compress(bytes(rows if rows is not None else 1000), 9)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", head),
            extra,
            _chunk(b"IDAT", packed),
            _chunk(b"IEND", b""),
        ]
    )


def bombs():
    """Small files that promise, or have, very much."""
    text = _chunk(b"zTXt", b"a\x00\x00" + zlib.compress(bytes(200_000_000), 9))
    profile = _chunk(b"iCCP", b"a\x00\x00" + zlib.compress(bytes(100_000_000), 9))
    jpeg = io.BytesIO()
    Image.new("L", (8, 8)).save(jpeg, "JPEG")
    huge = bytearray(jpeg.getvalue())
    place = huge.index(b"\xff\xc0")
    huge[place + 5 : place + 9] = struct.pack(">HH", 65_500, 65_500)
    tiff = struct.pack("<2sHIH", b"II", 42, 8, 3) + b"".join(
        struct.pack("<HHII", tag, 4, 1, value)
        for tag, value in ((256, 2_000_000), (257, 2_000_000), (273, 8))
    )
    found = {
        "png promises": png(60_000, 60_000),
        "png of many pixels": png(20_000, 20_000, rows=60_020_000),
        "png with zeros": png(25_000, 25_000, colour=0, rows=200_000_000),
        "png of one row": png(2**31 - 1, 1),
        "png text": png(10, 10, rows=310, extra=text),
        "png profile": png(10, 10, rows=310, extra=profile),
        "png 16 bits": png(9_000, 9_000, depth=16, colour=6),
        "jpeg promises": bytes(huge),
        "gif promises": b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + bytes(40),
        "bmp promises": b"BM"
        + struct.pack("<4I2i2H", 99, 0, 54, 40, 90_000, 90_000, 1, 24)
        + bytes(24),
        "tiff promises": tiff,
        "ppm promises": b"P6 99999 99999 255\n" + bytes(100),
        "pgm text": b"P2 9999 9999 255\n" + b"0 " * 100,
        "webp promises": b"RIFF\xff\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10"
        + bytes(3)
        + b"\xff" * 6
        + bytes(60),
        "avif": b"\x00\x00\x00\x20ftypavif" + bytes(400),
        "many frames": _frames(),
    }
    return list(found.items())


def _frames():
    stream = io.BytesIO()
    frames = [Image.new("P", (2000, 2000), number % 7) for number in range(40)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    return stream.getvalue()


def others(rng):
    """Files that are no images."""
    return [
        ("empty", b""),
        ("one byte", b"\xff"),
        ("text", b"hello" * 100),
        ("svg", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/x"/></svg>'),
        ("eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n"),
        ("pdf", b"%PDF-1.7\n1 0 obj<<>>endobj\n"),
        ("zip", b"PK\x03\x04" + rng.bytes(200)),
        ("program", b"\x7fELF" + rng.bytes(300)),
        ("noise", rng.bytes(int(rng.integers(1, 5000)))),
        ("html", b"<!doctype html><script>alert(1)</script>"),
        ("pickle", b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94."),
        ("npy", b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'shape': (1,)}"),
    ]


def form(content, *, field="file", name="a.jpg", kind="image/jpeg"):
    """A form with one file."""
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; '
        f'filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    )
    return (
        head.encode("utf-8", "surrogateescape")
        + content
        + b"\r\n--%s--\r\n" % (BOUNDARY.encode())
    )


FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"content-type": "application/json"}


def wrong_bodies(rng, content):
    """Bodies that are not what their headers say, or not what is asked for."""
    plain = form(content)
    vector = [0.5] * 7
    return [
        ("no boundary", plain, {"content-type": "multipart/form-data"}),
        ("wrong boundary", plain, {"content-type": "multipart/form-data; boundary=x"}),
        ("cut form", plain[: rng.integers(1, len(plain))], FORM),
        ("no file", form(content, field="picture"), FORM),
        ("strange name", form(content[:40], name="../../etc/passwd\x00\u202e"), FORM),
        ("long name", form(content[:40], name="a" * 70_000), FORM),
        ("two files", form(content).replace(b"--\r\n", b"\r\n") + form(content), FORM),
        ("no type", content, {}),
        ("text", content, {"content-type": "text/plain"}),
        ("xml", b"<a/>", {"content-type": "application/xml"}),
        (
            "urlencoded",
            b"file=a",
            {"content-type": "application/x-www-form-urlencoded"},
        ),
        ("not json", content, JSON),
        ("a list", b"[1, 2]", JSON),
        ("deep", b"[" * 100_000, JSON),
        ("deep object", b'{"image":' * 50_000, JSON),
        ("not base64", b'{"image": "%%%%"}', JSON),
        ("a number", b'{"image": 7}', JSON),
        ("an address", b'{"image": "http://127.0.0.1/a.jpg"}', JSON),
        ("a path", b'{"file": "/etc/passwd"}', JSON),
        ("short vector", json.dumps({"vector": vector}).encode(), JSON),
        ("endless vector", b'{"vector": [1e999, 1]}', JSON),
        ("no numbers", b'{"vector": ["a", {}]}', JSON),
        ("nan", b'{"vector": [NaN]}', JSON),
        ("huge number", b'{"vector": [' + b"9" * 5000 + b"]}", JSON),
        ("zeros", json.dumps({"vector": [0.0] * 128}).encode(), JSON),
        ("both", json.dumps({"vector": vector, "image": "aaaa"}).encode(), JSON),
        ("surrogate", b'{"image": "\\ud800", "name": "\\ud800"}', JSON),
        ("not utf-8", b'{"image": "\xff\xfe"}', JSON),
    ]


def requests_of(seed, count):
    """Malformed requests: a kind, a body and headers of each."""
    rng = np.random.default_rng(seed)
    sound, heavy = sound_images(), bombs()
    for number in range(count):
        choice = rng.random()
        kind, image = sound[rng.integers(len(sound))]
        if choice < 0.70:
            content = damaged(rng, image)
            if rng.random() < 0.2:
                text = base64.b64encode(content).decode()
                yield f"damaged {kind}", json.dumps({"image": text}).encode(), JSON
            else:
                yield f"damaged {kind}", form(content), FORM
        elif choice < 0.78:
            name, content = heavy[number % len(heavy)]
            yield f"bomb: {name}", form(content), FORM
        elif choice < 0.86:
            files = others(rng)
            name, content = files[rng.integers(len(files))]
            yield f"file: {name}", form(content), FORM
        else:
            bodies = wrong_bodies(rng, image)
            name, content, headers = bodies[rng.integers(len(bodies))]
            yield f"body: {name}", content, headers


def send_all(url, key, paths, seed, count):
    """Send malformed requests; statuses by kind, and what is wrong with answers."""
    host, port = url.removeprefix("http://").split(":")
    statuses, faults = Counter(), []
    connection = http.client.HTTPConnection(host, int(port), timeout=90)
    for number, (kind, content, headers) in enumerate(requests_of(seed, count)):
        path = paths[number % len(paths)]
        connection.request("POST", path, content, {"x-api-key": key} | headers)
        answer = connection.getresponse()
        text = answer.read()
        statuses[kind.split(":")[0], answer.status] += 1
        harmless = kind.startswith(("damaged", "bomb")) and answer.status in (200, 201)
        if not harmless and answer.status not in REFUSED:
            faults.append(f"{kind}: {answer.status} {text[:200]!r}")
        elif answer.status in REFUSED and not _is_typed(answer, text):
            faults.append(f"{kind}: {answer.status} without a code: {text[:200]!r}")
    connection.close()
    return statuses, faults


def _is_typed(answer, text):
    kind = answer.getheader("content-type", "")
    body = json.loads(text)
    return isinstance(body.get("code"), str) and kind == "application/problem+json"


class SlowSender(threading.Thread):
    """A client that sends a body one byte at a time; it notes the answer."""

    def __init__(self, url, key, path):
        super().__init__(daemon=True)
        self._host, self._port = url.removeprefix("http://").split(":")
        self._key, self._path = key, path
        self.answer = b""

    def run(self):
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: a\r\nx-api-key: {self._key}\r\n"
            f"Content-Type: {FORM['content-type']}\r\nContent-Length: 5000000\r\n\r\n"
        )
        with socket.create_connection((self._host, int(self._port))) as sent:
            sent.sendall(head.encode() + form(b"\xff\xd8\xff").rpartition(b"\r\n--")[0])
            sent.settimeout(0.2)
            end = time.monotonic() + 90.0
            while time.monotonic() < end and not self.answer:
                try:
                    sent.sendall(b"a")
                    self.answer = sent.recv(65_536)
                except TimeoutError:
                    continue
                except OSError:
                    return
            sent.settimeout(10.0)
            # The body may come after the headers.
            while b"\r\n\r\n{" not in self.answer and (more := sent.recv(65_536)):
                self.answer += more


def memory_of(pid):
    """Bytes of a process and of all its descendants; what they share counts once."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat") as stream:
            # The name of a program, in brackets, may have spaces.
            parent = int(stream.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        with suppress(OSError), open(f"/proc/{one}/smaps_rollup") as stream:
            sizes = dict(line.split(":", 1) for line in stream.readlines()[1:])
            total += 1024 * int(sizes["Pss"].split()[0])
    return total


class MemoryWatch(threading.Thread):
    """Looks at the memory of a service all the time; ``most`` is the largest."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self._pid, self._over = pid, threading.Event()
        self.most = 0

    def run(self):
        while not self._over.wait(0.1):
            self.most = max(self.most, memory_of(self._pid))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self.join()
