# SPDX-License-Identifier: BSD-3-Clause
"""The plan of the house in figures: modules, imports, and what the four ways touch.

Print the table that ``docs/design.md`` shows::

    python scripts/house.py

The four ways of the data are run, and every module is counted of which a function was
called.
"""

import ast
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dualqml

SOURCE = Path(dualqml.__file__).parent


def module_name(file: Path) -> str:
    """As it is imported."""
    parts = ("dualqml", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Modules of this package that a module imports, wherever in its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(module: str) -> str:
    """The folder below dualqml, empty for modules beside the folders."""
    parts = module.split(".")
    inner = parts[1] if len(parts) > 1 else ""
    return inner if inner and (SOURCE / inner).is_dir() else ""


def crosses_privately(source: str, target: str) -> bool:
    """Whether a module imports a private module of another room."""
    hidden = target.rpartition(".")[2].startswith("_")
    return hidden and room_of(target) not in ("", room_of(source))


def plan() -> dict[str, str]:
    """Figures of files and imports."""
    files = {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}
    texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    modules = set(files)
    edges = {
        (name, target)
        for name, text in texts.items()
        for target in imports_of(ast.parse(text), modules)
        if target in modules and target != name
    }
    # Lists of public names are no modules to read.
    rooms = {name: len(text.splitlines()) for name, text in texts.items()}
    inner = {n: k for n, k in rooms.items() if files[n].name != "__init__.py"}
    largest = max(inner, key=lambda name: inner[name])
    crossing = sum(crosses_privately(*edge) for edge in edges)
    return {
        "modules": str(len(inner)),
        "private modules": str(sum("._" in name for name in inner)),
        "lines": f"{sum(rooms.values()):,}",
        "import edges": str(len(edges)),
        "imports of another room's private module": str(crossing),
        "median module, lines": f"{statistics.median(inner.values()):.0f}",
        "largest module, lines": f"{inner[largest]} (`{largest[8:]}`)",
    }


def touched(way: Callable[[], Any]) -> list[str]:
    """Modules of which a function is called."""
    found: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        way()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = (Path(name) for name in found if name.startswith(str(SOURCE)))
    return sorted(module_name(file)[8:] for file in inside)


def reproduce(folder: Path) -> None:
    """A small experiment by its command, with tables and a report."""
    from dualqml.cli.main import main

    command = ["reproduce", "-m", "2", "--repeats", "1", "--methods", "LDA,DualQML"]
    stdout = sys.stdout
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = nowhere
        try:
            main([*command, "--out", str(folder / "run"), "--jobs", "1"])
        finally:
            sys.stdout = stdout


def ways(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The four ways of the data."""
    from dualqml import DualQMLWCV
    from dualqml.data import load_orl
    from dualqml.persistence.model_files import load, save
    from dualqml.recognition import Recognizer

    faces = load_orl()
    few = np.flatnonzero(faces.codes < 8)
    images, labels = faces.images[few], faces.labels[few]
    rows = faces.rows[few]
    model = DualQMLWCV(image_shape=(32, 32), random_state=0)
    people = Recognizer()

    def enrol_and_identify() -> None:
        people.enroll_many(images[::2], [str(label) for label in labels[::2]])
        people.calibrate(fpir=0.1)
        people.identify_many(images[1::2])

    def save_and_load() -> None:
        save(model, folder / "model.safetensors")
        load(folder / "model.safetensors")

    yield "reproduce", lambda: reproduce(folder)
    yield "DualQMLWCV.fit", lambda: model.fit(rows, labels)
    yield "enrol and identify", enrol_and_identify
    yield "save and load", save_and_load


def main() -> None:
    """Print the table, and with ``--modules`` the modules of each way."""
    for name, figure in plan().items():
        print(f"| {name} | {figure} |")
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways(Path(folder)):
            modules = touched(way)
            print(f"| modules on the way: {name} | {len(modules)} |")
            if "--modules" in sys.argv:
                print(*(f"    {module}" for module in modules), sep="\n")


if __name__ == "__main__":
    main()
