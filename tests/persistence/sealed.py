"""Split, change and join model files, written from the description of the format.

It shares no code with the package, so that an error in one is found by the other.
"""

import hashlib
import json
import struct
from contextlib import suppress

import numpy as np

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


TYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
    "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
NAMES = {code: name for name, code in TYPES.items()}


class Forged:
    """The parts of a model file, to be changed and joined again.

    Attributes
    ----------
    strings : dict of str to str
        The metadata.
    tree : object
        The JSON of the recogniser or the model.
    arrays : dict of str to ndarray
        The arrays.
    """

    def __init__(self, content):
        header, data = split(content)
        self.strings = header.pop("__metadata__")
        self.key = next(
            k for k in ("dualqml.state", "dualqml.model") if k in self.strings
        )
        self.tree = json.loads(self.strings[self.key])
        self.arrays = {
            name: np.frombuffer(
                data[slice(*entry["data_offsets"])], TYPES[entry["dtype"]]
            ).reshape(entry["shape"])
            for name, entry in header.items()
        }

    @property
    def state(self):
        """The fields of a recogniser."""
        return self.tree["dict"]

    def seal(self):
        """The file, with a checksum and a model id that fit."""
        header, data, end = {"__metadata__": self.strings}, b"", 0
        order = sorted(self.arrays.items(), key=lambda item: -item[1].itemsize)
        for name, array in order:
            start, end = end, end + array.nbytes
            header[name] = {
                "dtype": NAMES[array.dtype.str],
                "shape": list(array.shape),
                "data_offsets": [start, end],
            }
            data += array.tobytes()
        self.strings[self.key] = json.dumps(self.tree)
        if "dualqml.model_id" in self.strings:
            # A state without a valid id is refused anyway.
            with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
                self.strings["dualqml.model_id"] = self.model_id()
        return join(header, data)

    def model_id(self):
        state = self.state
        parameters = {k: plain(v) for k, v in state["parameters"]["dict"].items()}
        about = [state["method"], state["size"]["tuple"], plain(state["cosine_weight"])]
        about = [[*about, parameters], state["subjects"]]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        counts, rows = self.arrays["counts"], self.arrays.get("rows")
        ends = np.cumsum(counts)
        for end, count in zip(ends, counts, strict=True):
            own = rows[int(end) - int(count) : int(end)]
            digest.update(repr((own.shape, own.dtype.str)).encode() + own.tobytes())
        if state.get("names") is not None:
            names = bytes(self.arrays["names"]).decode().split("\n")
            parts = zip(ends, counts, strict=True)
            own = [names[int(end) - int(count) : int(end)] for end, count in parts]
            digest.update(json.dumps(own).encode())
        if state["background"] is not None:
            fields = state["background"]["object"]["parameters"]
            for name, node in sorted(fields.items()):
                digest.update(f"{name}=".encode() + self._content(node))
        return digest.hexdigest()[:16]

    def _content(self, node):
        """The shape and the content of a field of a background."""
        if node is None or isinstance(node, str):
            return str(node).encode()
        if isinstance(node, dict) and "array" in node:
            array = self.arrays[node["array"]["tensor"]]
            if node["array"].get("order") == "F":
                array = array.T
        else:
            array = np.array(plain(node))
        array = np.ascontiguousarray(array, dtype=np.float64)
        return repr(array.shape).encode() + array.tobytes()


def plain(node):
    """The value of a parameter."""
    if isinstance(node, dict):
        ((tag, content),) = node.items()
        return float(content) if tag == "float" else plain(content)
    return [plain(item) for item in node] if isinstance(node, list) else node
