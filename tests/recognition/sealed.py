"""Model files taken apart and put together, written after the format's description.

It shares no code with the package, so that either can be wrong alone.
"""

import hashlib
import json
import struct

KEY = "dualqml.sha256"


def split(content):
    """Header as a dictionary, and data."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(header, data):
    """A file with a checksum that fits, if the header has room for one."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    content = bytearray(struct.pack("<Q", len(header)) + header + data)
    start = content.find(f'"{KEY}":"'.encode(), 8, 8 + len(header))
    if start >= 0:
        digits = slice(start + len(KEY) + 4, start + len(KEY) + 4 + 64)
        content[digits] = b"0" * 64
        content[digits] = hashlib.sha256(content).hexdigest().encode()
    return bytes(content)


def edited(path, change):
    """Change the header of a file in place, with a checksum that fits."""
    header, data = split(path.read_bytes())
    change(header)
    path.write_bytes(join(header, data))


def edited_model(path, change):
    """Change the model in the header of a file in place."""

    def change_header(header):
        strings = header["__metadata__"]
        model = json.loads(strings["dualqml.model"])
        change(model)
        strings["dualqml.model"] = json.dumps(model)

    edited(path, change_header)
