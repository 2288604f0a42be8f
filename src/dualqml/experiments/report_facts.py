# SPDX-License-Identifier: BSD-3-Clause
"""Sections of a report on what it was computed from, and how."""

import base64
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._text import printable
from dualqml.exceptions import DualQMLError
from dualqml.experiments.labels import (
    common_label,
    database_label,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.paper import ODDITIES
from dualqml.experiments.results import Result, Results, Setting, row_of
from dualqml.experiments.table_formats import Cell, Heading, Row, Table, to_html

#: Images of a database that are shown.
_N_SAMPLES = 10

#: Different values of a parameter that are counted one by one.
_MOST_VALUES = 6


def data(results: Results, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Sizes and fingerprints of the splits; citations and terms of the databases."""
    if not results.by_unit:
        return ""
    settings = results.settings
    differing = what_differs(settings)
    done: dict[Setting, list[Result]] = defaultdict(list)
    splits: dict[Setting, dict[int, str]] = defaultdict(dict)
    for unit, result in results.by_unit.items():
        splits[Setting.of(unit)][unit.repetition] = unit.split
        if result.status == "done":
            done[Setting.of(unit)].append(result)
    sizes = _table(
        "Subjects and images; " + common_label(settings),
        "Setting",
        *("Subjects", "Training images", "Test images", "Subjects with fewer than m"),
        "Splits",
        rows=[
            (
                setting_label(setting, differing),
                _range(result.n_subjects for result in done[setting]),
                _range(result.n_train for result in done[setting]),
                _range(result.n_test for result in done[setting]),
                _range(result.n_short for result in done[setting]),
                str(len(splits[setting])),
            )
            for setting in settings
        ],
    )
    prints = _table(
        "Fingerprints of the data and, in the order of the repetitions, of the splits",
        "Setting",
        *("Data", "Splits"),
        rows=[
            (
                setting_label(setting, differing),
                setting.data,
                " ".join(split for _, split in sorted(splits[setting].items())),
            )
            for setting in settings
        ],
        align="lp",
    )
    known = [_facts(name, facts[name]) for name in results.databases if name in facts]
    return "\n".join(
        [
            to_html(sizes),
            _details("Fingerprints of data and splits", to_html(prints)),
            f"<dl>{''.join(known)}</dl>" if known else "",
        ]
    )


def samples(faces: Mapping[str, NDArray[np.uint8]]) -> str:
    """A strip of images for each database that may be shown."""
    parts = []
    for name, images in faces.items():
        shown = np.asarray(images)[:_N_SAMPLES]
        if shown.ndim != 3 or shown.dtype != np.uint8 or not shown.size:
            raise DualQMLError(
                f"{name}: faces must be 8-bit images of shape (n, height, width), got "
                f"{shown.dtype} of shape {shown.shape}"
            )
        # A strip has a pixel of white between faces.
        strip = np.pad(shown, ((0, 0), (0, 0), (0, 1)), constant_values=255)
        strip = strip.transpose(1, 0, 2).reshape(shown.shape[1], -1)[:, :-1]
        label = escape(database_label(name))
        source = base64.b64encode(png(strip)).decode("ascii")
        parts.append(
            f'<figure><img src="data:image/png;base64,{source}" '
            f'width="{2 * strip.shape[1]}" height="{2 * strip.shape[0]}" '
            f'alt="{len(shown)} sample images of {label}">'
            f"<figcaption>{label}</figcaption></figure>"
        )
    return "\n".join(parts)


def png(pixels: ArrayLike) -> bytes:
    r"""A grey image as a PNG file.

    Parameters
    ----------
    pixels : array-like of uint8 of shape (height, width)
        The image.

    Returns
    -------
    bytes
        The file.

    Examples
    --------
    >>> from dualqml.experiments.report_facts import png
    >>> png([[0, 255]])[:4]
    b'\x89PNG'
    """
    rows = np.asarray(pixels, dtype=np.uint8)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
        )

    # Eight bits, grey; each row after the number of its filter, none.
    header = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 0, 0, 0, 0)
    lines = np.pad(rows, ((0, 0), (1, 0))).tobytes()
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def chosen(results: Results) -> str:
    """What methods chose on their training sets, and how often."""
    parts = []
    for database in results.databases:
        settings = [s for s in results.settings if s.database == database]
        differing = what_differs(settings)
        headings = [
            ", ".join(filter(None, [size_label(s), variant_label(s, differing)]))
            for s in settings
        ]
        rows = []
        for row in results.rows:
            choices = [_choices(results.runs(setting, row)) for setting in settings]
            for name in dict.fromkeys(name for found in choices for name in found):
                label = f"{row}: {printable(name)}"
                rows.append((label, *(found.get(name, "") for found in choices)))
        if rows:
            title = f"{database_label(database)}: values, and in how many repetitions"
            parts.append(
                to_html(
                    _table(
                        title,
                        "Method: parameter",
                        *headings,
                        rows=rows,
                        align="p" * len(headings),
                    )
                )
            )
    return "\n".join(parts)


def versions(results: Results) -> str:
    """Which versions computed the results, and when."""
    found = Counter(tuple(r.versions.items()) for r in results.by_unit.values())
    if not found:
        return ""
    named = {
        ", ".join(f"{printable(str(n))} {printable(str(v))}" for n, v in key)
        or "not recorded": count
        for key, count in found.items()
    }
    if len(named) == 1:
        text = f"<p>All results: {escape(next(iter(named)))}.</p>"
    else:
        items = "".join(
            f"<li>{escape(name)}: {count} units</li>" for name, count in named.items()
        )
        text = (
            f"<p><strong>Results of {len(named)} sets of versions are mixed.</strong>"
            f"</p><ul>{items}</ul>"
        )
    moments = sorted(r.finished for r in results.by_unit.values() if r.finished)
    if moments:
        text += f"<p>Computed from {escape(moments[0])} to {escape(moments[-1])}.</p>"
    return text


def failures(results: Results) -> str:
    """Units that failed, by reason; empty if none did."""
    if not results.failed:
        return ""
    differing = what_differs(results.settings)
    groups = Counter(
        (setting_label(Setting.of(r.unit), differing), row_of(r.unit), r.reason)
        for r in results.failed
    )
    rows = tuple(
        Row(label, (Cell(row), Cell(str(count)), Cell(printable(reason))))
        for (label, row, reason), count in groups.items()
    )
    headings = (Heading("Method"), Heading("Units"), Heading("Reason"))
    title = f"{len(results.failed)} units failed"
    return to_html(Table(title, "Setting", (headings,), rows, "llrp"))


def oddities() -> str:
    """What is odd in the paper's printed tables."""
    items = "".join(f"<li>{escape(oddity)}</li>" for oddity in ODDITIES)
    return (
        "<p>The paper's figures are as printed. Some look wrong, or do not fit what "
        "its text says.</p>"
        + _details(
            f"{len(ODDITIES)} oddities of the printed tables", f"<ul>{items}</ul>"
        )
    )


def commands(command: str | None) -> str:
    """The commands that repeat it; empty if they are not known."""
    if not command:
        return ""
    return (
        '<pre tabindex="0" role="region" aria-label="Commands"><code>'
        f"{escape(command)}</code></pre>"
    )


def _facts(name: str, known: Mapping[str, Any]) -> str:
    title = printable(str(known.get("title") or database_label(name)))
    lines = []
    if known.get("images") is not None and known.get("subjects") is not None:
        lines.append(
            escape(f"{known['images']} images of {known['subjects']} subjects.")
        )
    if known.get("copies"):
        lines.append(
            escape(f"{known['copies']} subjects are copies of others, pixel for pixel.")
        )
    for key in ("citation", "terms"):
        if known.get(key):
            lines.append(f"{key.capitalize()}: {escape(printable(str(known[key])))}")
    skipped = [printable(str(file)) for file in known.get("skipped") or ()]
    if skipped:
        items = "".join(f"<li>{escape(file)}</li>" for file in skipped)
        lines.append(
            _details(f"{len(skipped)} files were skipped", f"<ul>{items}</ul>")
        )
    return f"<dt>{escape(title)}</dt>" + "".join(f"<dd>{line}</dd>" for line in lines)


def _choices(runs: Iterable[Result]) -> dict[str, str]:
    """By parameter, its values with the number of runs that chose them."""
    counts: dict[str, Counter[float | str]] = defaultdict(Counter)
    for run in runs:
        for name, value in run.parameters.items():
            counts[name.removeprefix("best_")][_key(value)] += 1
    said = {}
    for name, values in counts.items():
        order = sorted(values, key=lambda value: (isinstance(value, str), value))
        last = order[-1]
        if len(order) > _MOST_VALUES and not isinstance(last, str):
            said[name] = f"{order[0]:g} to {last:g}"
        else:
            texts = [f"{_text(value)} ({values[value]})" for value in order]
            said[name] = printable(", ".join(texts))
    return said


def _key(value: Any) -> float | str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number else str(value)


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _table(
    title: str,
    corner: str,
    *headings: str,
    rows: Iterable[tuple[str, ...]],
    align: str | None = None,
) -> Table:
    return Table(
        title=title,
        corner=corner,
        header=(tuple(map(Heading, headings)),),
        rows=tuple(
            Row(label, tuple(Cell(text) if text else Cell() for text in texts))
            for label, *texts in rows
        ),
        align="l" + (align or "r" * len(headings)),
    )


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return " to ".join(str(value) for value in dict.fromkeys(found[:1] + found[-1:]))


def _details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>"
