"""Load a thousand damaged and forged model files, under watch.

A program of its own: its memory is limited, and what Python does is watched by an
audit hook, which cannot be taken off again.
"""

import copy
import json
import random
import re
import resource
import struct
import sys
import warnings
from pathlib import Path

import numpy as np

from dualqml.extractors import NearestSample
from dualqml.extractors.methods import make_method
from dualqml.recognition import ModelFileError, load, save
from tests.recognition.sealed import join, split

#: Memory that all files together may take beyond what the libraries have.
ROOM = 300_000_000

#: What must not happen because of a file.
FORBIDDEN = re.compile(
    r"exec|compile|import|pickle\..*|os\.(system|exec|fork|posix_spawn|remove|rename)"
    r"|subprocess\..*|socket\..*|ctypes\..*|marshal\..*|shutil\..*|code\..*"
)

DEEP = "x"
for _ in range(300):
    DEEP = [DEEP]

NASTY = [
    None, True, -1, 0, 1, 3, 2**31, 2**53, 2**63, 2**70, 10**400, 0.5, -1e308, 1e308,
    "", "x", "nan", "F", "text", "objects", "complex", "F64", "U32", "BOOL", "Pipeline",
    "os.system", "__import__('os').system('false')", "x" * 2000, "\ud800", "\0",
    [], {}, [[]], [0], [-1], [2**62, 2**62], [0, 2**63], [1] * 100, DEEP,
    {"float": "nan"}, {"float": "1"}, {"tuple": []}, {"tuple": [1, 2]}, {"dict": {}},
    {"dict": {"a": {"tuple": []}}}, {"array": {"tensor": "gallery_"}},
    {"array": {"tensor": "classes_", "as": "objects"}}, {"array": {"tensor": ""}},
    {"scalar": {"dtype": "int8", "value": 300}},
    {"scalar": {"dtype": "float32", "value": 1e300}},
    {"object": {"class": "Pipeline", "parameters": {}, "attributes": {}}},
    {"object": {"class": "NearestSample", "parameters": {}, "attributes": {}}},
    {"object": {"class": "builtins.eval", "parameters": {}, "attributes": {}}},
]  # fmt: skip


def places(node):
    """All (container, key) of a tree of JSON."""
    found, rest = [], [node]
    while rest:
        node = rest.pop()
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                rest.append(node[key])
    return found


def edit_tree(tree, chance):
    """Change a tree of JSON somewhere."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        spots = places(tree)
        if not spots:
            return
        container, key = chance.choice(spots)
        action = chance.randrange(5)
        if action <= 1:
            container[key] = copy.deepcopy(chance.choice(NASTY))
        elif action == 2:
            other, place = chance.choice(spots)
            container[key] = copy.deepcopy(other[place])
        elif action == 3:
            del container[key]
        elif isinstance(container, dict):
            container[chance.choice(["x", "", "a.b", f"{key}_"])] = container.pop(key)
        else:
            container.append(copy.deepcopy(container[key]))


def edit_bytes(content, chance):
    """Flip, cut out, insert or repeat some bytes."""
    content = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 10])):
        place = chance.randrange(len(content) + 1)
        length = chance.choice([1, 2, 8, 100])
        action = chance.randrange(5)
        if action == 0 and content:
            content[place % len(content)] ^= 1 << chance.randrange(8)
        elif action == 1:
            del content[place : place + length]
        elif action == 2:
            content[place:place] = chance.randbytes(length)
        elif action == 3:
            content[place:place] = content[place : place + length]
        else:
            del content[place:]
    return bytes(content)


def damaged(content, chance):
    """A damaged file; most have a checksum that fits, to come further."""
    action = chance.randrange(8)
    if action == 0:
        return edit_bytes(content, chance)
    if action == 1:
        length = chance.choice([0, 1, 7, 2**20, 2**40, 2**63, 2**64 - 1])
        return struct.pack("<Q", length) + content[8:]
    header, data = split(content)
    if action == 2:
        text = json.dumps(header, separators=(",", ":")).encode()
        return join(edit_bytes(text, chance), data)
    if action == 3:
        return join(header, edit_bytes(data, chance))
    strings = header["__metadata__"]
    if action == 4:
        edit_tree(header, chance)
    elif action == 5:
        strings["dualqml.model"] = edit_bytes(
            strings["dualqml.model"].encode(), chance
        ).decode("latin-1")
    else:
        model = json.loads(strings["dualqml.model"])
        edit_tree(model, chance)
        strings["dualqml.model"] = json.dumps(model)
    return join(header, data)


def limit_memory():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def main(folder, n_files):
    warnings.simplefilter("error")
    chance = random.Random(0)
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 16)), np.repeat(["Anna", "Bo", "Zoë"], 4)
    models = [
        NearestSample().fit(X, y.astype(object)),
        make_method("MLE").fit(X, y),
        make_method("LDA", tune=True).fit(X, y),
        make_method("DualQML-W", rhos=(1.0,), lams=(0.1,)).fit(X, y),
    ]
    path = Path(folder, "fuzzed.safetensors")
    contents = []
    for model in models:
        save(model, path)
        contents.append(path.read_bytes())
        # Whatever the libraries import when first used is there now.
        load(path).predict(X)
        repr(model)

    watched, seen = [False], []

    def watch(event, arguments):
        if watched[0] and FORBIDDEN.fullmatch(event):
            seen.append((event, repr(arguments)[:200]))

    sys.addaudithook(watch)
    if sys.platform == "linux":
        limit_memory()
    refused, reasons = 0, set()
    for number in range(n_files):
        path.write_bytes(damaged(chance.choice(contents), chance))
        watched[0] = True
        try:
            load(path)
        except ModelFileError as error:
            refused += 1
            message = str(error).replace(str(path), "")
            reasons.add(re.sub(r"\d+", "#", message))
        finally:
            watched[0] = False
        assert not seen, (number, seen)
    print(json.dumps({"tried": n_files, "refused": refused, "reasons": len(reasons)}))
    return reasons


if __name__ == "__main__":
    reasons = main(sys.argv[1], int(sys.argv[2]))
    if "-v" in sys.argv:
        print("\n".join(sorted(reasons)))
