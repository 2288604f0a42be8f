"""Load thousands of damaged and forged model files, and use what loads, under watch.

``python -m tests.persistence.fuzz_model_files FOLDER 13000 1`` loads 13,000 damaged
files and every one of those made by hand (2: every second). A program of its own: its
memory is limited, and what Python does is watched by an audit hook, which cannot be
taken off again.
"""

import contextlib
import copy
import io
import json
import random
import re
import resource
import struct
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from dualqml.cli.main import main as command
from dualqml.exceptions import DualQMLError, ModelFileError
from dualqml.extractors import Background, DualQMLW
from dualqml.persistence.model_files import load
from dualqml.recognition import Recognizer
from tests.peak_memory import peak_bytes
from tests.persistence.crafted import bases, crafted
from tests.persistence.sealed import join, split

#: Memory that all files together may take beyond what the libraries have.
ROOM = 500_000_000

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
    "\x1b[2J", "\u202e", "image", "vector", "given", "LDA", "DualQML",
    [], {}, [[]], [0], [-1], [2**62, 2**62], [0, 2**63], [1] * 100, DEEP,
    {"float": "nan"}, {"float": "1"}, {"tuple": []}, {"tuple": [1, 2]}, {"dict": {}},
    {"tuple": [30000, 30000]}, {"dict": {"self": 1}}, {"dict": {"lam": 0.5}},
    {"dict": {"a": {"tuple": []}}}, {"array": {"tensor": "gallery_"}},
    {"array": {"tensor": "classes_", "as": "objects"}}, {"array": {"tensor": ""}},
    {"array": {"tensor": "rows"}}, {"array": {"tensor": "counts"}},
    {"scalar": {"dtype": "int8", "value": 300}},
    {"scalar": {"dtype": "float32", "value": 1e300}},
    {"scalar": {"dtype": "uint8", "value": 64}},
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


def edit_numbers(data, chance):
    """Other numbers in the data, of the same length."""
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 4, 30])):
        place = 8 * chance.randrange(len(data) // 8)
        value = chance.choice([np.nan, np.inf, 0.0, -1.0, 1e300, 1e-300, 1e38])
        kind = chance.choice(["<d", "<f", "<q"])
        number = chance.randrange(-3, 9) if kind == "<q" else value
        with contextlib.suppress(OverflowError):
            struct.pack_into(kind, data, place, number)
    return bytes(data)


def damaged(content, chance):
    """A damaged file; most have a checksum that fits, to come further."""
    action = chance.randrange(10)
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
    if action <= 5 and len(data) >= 8:
        return join(header, edit_numbers(data, chance))
    strings = header["__metadata__"]
    key = next(k for k in ("dualqml.state", "dualqml.model") if k in strings)
    if action == 6:
        edit_tree(header, chance)
    elif action == 7:
        text = edit_bytes(strings[key].encode(), chance)
        strings[key] = text.decode("latin-1")
    else:
        tree = json.loads(strings[key])
        edit_tree(tree, chance)
        strings[key] = json.dumps(tree)
    return join(header, data)


def loaded(path):
    """A recogniser or a model."""
    content = path.read_bytes()
    is_recognizer = b'"dualqml.recognizer"' in content
    return (Recognizer.load if is_recognizer else load)(path)


def use(model, path):
    """Do all that can be done with a model that was loaded."""
    if isinstance(model, Recognizer):
        return use_recognizer(model, path)
    if isinstance(model, Background):
        assert model.strangers(3).shape == (3, model.mean.size)
        return show(path, ["inspect"], ["inspect", "--json"])
    width = getattr(model, "n_features_in_", 16)
    samples = np.random.default_rng(1).random((3, min(int(width), 1000)))
    for method in ("transform", "predict", "decision_function"):
        # Errors of scikit-learn about the samples.
        with contextlib.suppress(ValueError):
            if hasattr(model, method):
                getattr(model, method)(samples)
    return None


def show(path, *commands):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        for words in commands:
            assert command([words[0], str(path), *words[1:]]) == 0
    assert all(line.isprintable() for line in shown.getvalue().split("\n"))


def use_recognizer(model, path):
    rng = np.random.default_rng(1)
    wide = model._reader.width or 12
    images = model.inputs == "image"
    probe = rng.integers(0, 255, (9, 9), np.uint8) if images else rng.random(wide)
    show(path, ["inspect"], ["inspect", "--json"], ["subjects"])
    someone = (model.subjects() or ["nobody"])[0]
    for step in (
        lambda: finite(model.identify(probe)),
        lambda: model.verify(someone, probe),
        lambda: model.enroll("somebody", probe),
        lambda: finite(model.identify(probe, threshold=0.0)),
        lambda: model.remove(someone),
        lambda: finite(model.identify(probe, threshold=0.0)),
        lambda: model.save(path),
    ):
        with contextlib.suppress(DualQMLError):
            step()


def finite(answer):
    assert np.isfinite(answer.score), answer


def limit_memory():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


class Watch:
    """Loads files and uses what loads; nothing but typed errors may come out."""

    def __init__(self, path):
        self.path = path
        self.loading = False
        self.seen, self.wrong = [], []
        self.tried = self.refused = 0
        self.reasons = set()
        self.slowest = 0.0, ""
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if self.loading and FORBIDDEN.fullmatch(event):
            self.seen.append((event, repr(arguments)[:200]))

    def try_file(self, name, content):
        self.path.write_bytes(content)
        self.tried += 1
        start = time.perf_counter()
        model, self.loading = None, True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = loaded(self.path)
        except ModelFileError as error:
            self.refused += 1
            message = str(error).replace(str(self.path), "")
            if len(message) > 2000 or not message.isprintable():
                self.wrong.append((name, "message", ascii(message[:2000])))
            self.reasons.add(re.sub(r"\d+", "#", message))
        except BaseException:
            self.wrong.append((name, "load", traceback.format_exc()))
        finally:
            self.loading = False
        self.slowest = max(self.slowest, (time.perf_counter() - start, name))
        if self.seen:
            self.wrong.append((name, "audit", repr(self.seen)))
            self.seen = []
        if model is not None:
            try:
                use(model, self.path)
            except BaseException:
                self.wrong.append((name, "use", traceback.format_exc()))


def main(folder, n_files, step):
    warnings.simplefilter("ignore")
    contents = bases(Path(folder))
    path = Path(folder, "fuzzed.safetensors")
    for content in contents.values():
        # Whatever the libraries import when first used is there now.
        path.write_bytes(content)
        use(loaded(path), path)
    repr(DualQMLW())
    watch = Watch(path)
    if sys.platform == "linux":
        limit_memory()
    chance = random.Random(0)
    originals = list(contents.values())
    for number in range(n_files):
        watch.try_file(f"number {number}", damaged(chance.choice(originals), chance))
    n_crafted = 0
    for name, make in list(crafted(contents).items())[::step]:
        watch.try_file(name, make())
        n_crafted += 1
    print(
        json.dumps(
            {
                "tried": watch.tried,
                "crafted": n_crafted,
                "refused": watch.refused,
                "reasons": len(watch.reasons),
                "wrong": len(watch.wrong),
                "slowest load": watch.slowest,
                "peak MB": peak_bytes() >> 20,
            }
        )
    )
    return watch


if __name__ == "__main__":
    found = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    if "-v" in sys.argv:
        print("\n".join(sorted(found.reasons)))
    for what in found.wrong[:20]:
        print(*what, sep="\n", file=sys.stderr)
    sys.exit(bool(found.wrong))
