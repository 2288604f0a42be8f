# SPDX-License-Identifier: BSD-3-Clause
"""A report of results: one HTML file that needs nothing else.

The functions here collect the data of each section. The templates in ``templates``
say how it looks.
"""

import base64
import io
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml._files import write_text
from dualqml._text import printable
from dualqml.exceptions import (
    DualQMLError,
    MissingDependencyError,
    NothingToPlotError,
)
from dualqml.experiments import plots
from dualqml.experiments.explanations import (
    methods_table,
    parameter_terms,
    protocol_sentences,
    ranks_in_words,
    terms,
)
from dualqml.experiments.labels import (
    common_label,
    database_label,
    listed,
    sample_word,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.paper import ODDITIES
from dualqml.experiments.results import Result, Results, Setting
from dualqml.experiments.summary import in_words, take_home, variants
from dualqml.experiments.table_formats import Cell, Heading, Row, Table
from dualqml.experiments.tables import (
    FEWEST_SPLITS,
    comparison_table,
    paper_tables,
    time_settings,
    time_table,
)
from dualqml.experiments.templates import render
from dualqml.images.files import import_pillow

#: How many images of a database are shown.
_N_FACES = 10

#: A parameter with more values than this is shown as a range.
_MOST_VALUES = 6


class Plot(NamedTuple):
    """A plot in a report: the text of an ``svg`` element, and what stands below."""

    svg: str
    caption: str = ""


class Mistakes(NamedTuple):
    """Test images of a database that got the name of a wrong subject.

    Attributes
    ----------
    said : str
        Which method made them, and how many there are.
    images : ndarray of shape (n, 3, height, width)
        8-bit images: the test image, a training image of the subject whose name it
        got, and one of the right subject.
    """

    said: str
    images: NDArray[np.uint8]


class _Strip(NamedTuple):
    """Sample images of a database side by side, as one PNG file in base64."""

    database: str
    n_images: int
    png: str
    width: int
    height: int


class _DatabaseFacts(NamedTuple):
    """What is known of a database; None or empty where it is not."""

    title: str
    size: str
    n_copies: Any
    left_out: tuple[str, ...]
    citation: str
    terms: str
    skipped: tuple[str, ...]


def write_report(
    results: Results,
    path: str | os.PathLike[str],
    *,
    with_paper: bool = True,
    command: str | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    faces: Mapping[str, NDArray[np.uint8]] | None = None,
    mistakes: Sequence[Mistakes] = (),
) -> Path:
    """Write a report of results.

    Parameters
    ----------
    results : Results
        What was run.
    path : path
        The HTML file. It is written whole or not at all: an old report stays until
        the new one is complete.
    with_paper : bool, default=True
        Whether to show the paper's own figures beside ours.
    command : str, optional
        The commands that repeat the run.
    facts : dict of str to dict, optional
        By the name of a database: its "title", "citation", "terms", numbers of
        "subjects" and "images", the "size" of images as height and width, or numbers
        of "vectors" and their "features", the files that
        were "skipped", sentences on methods that were "left_out", and the number of
        subjects that are "copies". Each of them may be missing.
    faces : dict of str to ndarray of shape (n, height, width), optional
        By the name of a database: 8-bit images to show. The caller checks that the
        terms of the database allow it. Without Pillow they are left out.
    mistakes : sequence of Mistakes
        Test images that were taken for others, under the same terms.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FileError
        The file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dualqml.experiments.report import write_report
    >>> from dualqml.experiments.results import Results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(Results([]), Path(folder, "report.html"))
    ...     "There are no results yet" in path.read_text(encoding="utf-8")
    True
    """
    text = render_report(
        results,
        with_paper=with_paper,
        command=command,
        facts=facts,
        faces=faces,
        mistakes=mistakes,
    )
    write_text(path, text)
    return Path(path)


def render_report(
    results: Results,
    *,
    with_paper: bool = True,
    command: str | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    faces: Mapping[str, NDArray[np.uint8]] | None = None,
    mistakes: Sequence[Mistakes] = (),
) -> str:
    """The text of a report; see `write_report`."""
    sections = [
        ("summary", "Summary", _summary(results)),
        ("protocol", "Data, protocol and methods", _protocol(results, facts or {})),
        ("errors", "Errors", _errors(results, with_paper)),
        ("rival", "Against the best rival", _comparison(results)),
        ("databases", "By database", _databases(results)),
        ("times", "Times", _times(results, with_paper)),
        ("mistakes", "Mistakes", _mistakes(mistakes)),
        ("data", "Data and splits", _data(results, facts or {})),
        ("faces", "Sample images", _faces(faces or {})),
        ("chosen", "Chosen on the training sets", _chosen(results)),
        ("versions", "Versions", _versions(results)),
        ("failures", "Failures", _failures(results)),
        ("paper", "The paper's tables", _oddities() if with_paper else ""),
        ("repeat", "How to repeat it", render_commands(command)),
    ]
    names = [database_label(name) for name in results.databases]
    title = " on ".join(filter(None, ["Recognition errors", listed(names)]))
    return render_page(title, sections)


def render_page(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    title : str
        Its heading, as plain text.
    sections : sequence of (str, str, str)
        Anchor, heading and content of each section. Those without content are left
        out. The content is what `dualqml.experiments.templates.render` returns;
        plain text is escaped.

    Returns
    -------
    str
        The page.

    Examples
    --------
    >>> from dualqml.experiments.report import render_page
    >>> page = render_page("A & B", [("one", "One", "1 < 2"), ("two", "Two", "")])
    >>> "<h1>A &amp; B</h1>" in page, "1 &lt; 2" in page, "Two" in page
    (True, True, False)
    """
    shown = [section for section in sections if section[2]]
    page = render("page.html", title=title, sections=shown)
    # Names of files may hold bytes that are not text.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def render_commands(command: str | None) -> str:
    """The commands that repeat a run; empty if they are not known."""
    return render("commands.html", command=command) if command else ""


def _summary(results: Results) -> str:
    """What came out, in sentences, database by database."""
    return render(
        "summary.html",
        take_home=take_home(results),
        findings=[
            (name, in_words(results, settings)) for name, settings in variants(results)
        ],
        n_failed=len(results.failed),
        n_units=len(results.by_unit),
        why_no_plots=_why_no_plots(),
    )


def _protocol(results: Results, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """What was measured on what and how, and what the methods are."""
    if not results.by_unit:
        return ""
    said = []
    for name in results.databases:
        known = _database_facts(name, facts.get(name, {}))
        if known.size:
            said.append(describe_data(name, known.size, known.citation))
    sentences = protocol_sentences(results)
    names = ["m", "split"]
    if any(setting.input == "local" for setting in results.settings):
        names.append("local descriptors")
    return render(
        "protocol.html",
        sentences=[
            # The sizes of all databases, or else their names.
            *(said if len(said) == len(results.databases) else sentences[:1]),
            *sentences[1:],
        ],
        methods=methods_table(results),
        terms=terms(*names, sample=sample_word(results.settings)),
    )


def describe_size(known: Mapping[str, Any]) -> str:
    """How many samples of how many subjects a database has.

    Parameters
    ----------
    known : dict
        Facts on the database; see `write_report`.

    Returns
    -------
    str
        Such as "400 images (32 x 32 pixels) of 40 subjects"; empty if the numbers are
        not known.

    Examples
    --------
    >>> from dualqml.experiments.report import describe_size
    >>> describe_size({"vectors": 400, "features": 128, "subjects": 40})
    '400 vectors of 128 numbers, of 40 subjects'
    """
    number, what, each = known.get("images"), "images", ""
    # The facts come from a file, which somebody may have changed.
    match known.get("size"):
        case [height, width]:
            each = f" ({height} x {width} pixels)"
    if known.get("vectors") is not None:
        number, what = known["vectors"], "vectors"
        each = f" of {known['features']} numbers," if known.get("features") else ""
    if number is None or known.get("subjects") is None:
        return ""
    return printable(f"{number} {what}{each} of {known['subjects']} subjects")


def describe_data(name: str, size: str, citation: str) -> str:
    """A sentence on a database.

    Parameters
    ----------
    name : str
        Its name.
    size : str
        What `describe_size` says of it.
    citation : str
        How to cite it, or nothing.

    Returns
    -------
    str
        The sentence.

    Examples
    --------
    >>> from dualqml.experiments.report import describe_data
    >>> describe_data("orl", "400 images of 40 subjects", "F. Samaria, 1994.")
    'ORL has 400 images of 40 subjects (F. Samaria, 1994).'
    """
    cited = f" ({citation.rstrip('.')})" if citation else ""
    return f"{database_label(name)} has {size}{cited}."


def _errors(results: Results, with_paper: bool) -> str:
    """The tables of errors."""
    return _tables(
        paper_tables(results, with_paper=with_paper),
        terms=terms("error", "±", sample=sample_word(results.settings)),
    )


def _comparison(results: Results) -> str:
    """Ours against the best rival: the table and the picture."""
    table = comparison_table(results)
    if not table.rows:
        return ""
    whose = "ours or yours" if results.own_rows else "ours"
    figures = _figures(
        (
            f"Mean difference in error between {whose} and the best rival of each "
            f"setting, with 95 % intervals. Left of zero {whose} is lower. Where the "
            "interval contains zero no difference is seen, and under "
            f"{FEWEST_SPLITS} splits there is no verdict.",
            lambda: plots.paired_differences(results),
        )
    )
    defined = terms("best rival", "paired difference", "95 % interval")
    return _tables([table], figures, defined)


def _databases(results: Results) -> str:
    """Pictures for each database."""
    groups = []
    for name, settings in variants(results):
        ranks = ranks_in_words(results, settings[-1])
        figures = _figures_of_variant(results, name, settings, with_ranks=not ranks)
        if figures:
            groups.append((name, figures, ranks))
    known = any(result.spectrum for result in results.by_unit.values())
    defined = terms(
        *("CMC", *["rank of a matrix"] * known), sample=sample_word(results.settings)
    )
    return render("databases.html", groups=groups, terms=defined) if groups else ""


def _figures_of_variant(
    results: Results, name: str, settings: Sequence[Setting], *, with_ranks: bool
) -> list[Plot]:
    """The pictures of settings that differ in m only."""
    first, last = settings[0], settings[-1]
    most = f"{name}, {size_label(last)}" if last.m else name
    where = f"{name}, {size_label(first)}" if first.m else name
    word = sample_word([first])
    against = f" against the number of training {word}s" if first.m else ""
    return _figures(
        (
            f"{name}: mean error{against}. Bars are one standard deviation. In colour: "
            f"ours{', yours' * bool(results.own_rows)} and the best rivals.",
            lambda: plots.error_against_size(results, first.database, like=first),
        ),
        (
            f"{where}: share of the test {word}s whose subject is among the first "
            "of the list (CMC), over all repetitions. The highest curve is the best.",
            lambda: plots.cmc(results, first),
        ),
        *[
            (
                f"{most}, first repetition. Above: how many classes have a matrix of "
                "which rank. Below: the eigenvalues of the matrices relative to the "
                "first, mean over the classes. The faster they fall, the fewer "
                "directions describe a class.",
                lambda: plots.spectrum_and_ranks(results, last),
            )
        ]
        * with_ranks,
    )


def _times(results: Results, with_paper: bool) -> str:
    """Times to train and test: the table and the picture."""
    table = time_table(results, with_paper=with_paper)
    if not table.rows:
        return ""
    settings = time_settings(results)
    differing = [name for name in what_differs(settings) if name == "input"]
    figures = _figures(
        *(
            (
                f"{setting_label(setting, differing, in_full=True)}: mean error "
                "against the time to "
                "train. Large markers: the whole training, the choice of parameters "
                "included where there is one. A line leads from there to a small "
                "marker: one training with the chosen parameters, to be compared with "
                "methods whose parameters were given. Lower left is better.",
                partial(plots.time_against_error, results, setting),
            )
            for setting in settings
        )
    )
    return _tables([table], figures, terms("CPU time"))


def _data(results: Results, facts: Mapping[str, Mapping[str, Any]]) -> str:
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
    word = sample_word(settings)
    sizes = _table(
        f"Subjects and {word}s; " + common_label(settings),
        "Setting",
        *("Subjects", f"Training {word}s", f"Test {word}s"),
        *("Subjects with fewer than m", "Splits"),
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
    fingerprints = _table(
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
    return render(
        "data.html",
        sizes=sizes,
        fingerprints=fingerprints,
        databases=[
            _database_facts(name, facts[name])
            for name in results.databases
            if name in facts
        ],
    )


def _faces(faces: Mapping[str, NDArray[np.uint8]]) -> str:
    """A strip of images for each database that may be shown."""
    if not faces:
        return ""
    strips, why_not = [], ""
    for name, images in faces.items():
        shown = np.asarray(images)[:_N_FACES]
        if shown.ndim != 3 or shown.dtype != np.uint8 or not shown.size:
            raise DualQMLError(
                f"{name}: faces must be 8-bit images of shape (n, height, width), got "
                f"{shown.dtype} of shape {shown.shape}"
            )
        try:
            strips.append(_strip(database_label(name), shown))
        except MissingDependencyError as error:
            why_not = str(error)
    return render("faces.html", strips=strips, why_no_images=why_not)


def _mistakes(mistakes: Sequence[Mistakes]) -> str:
    """Images that were taken for others, for each database that may be shown."""
    if not mistakes:
        return ""
    groups, why_not = [], ""
    for found in mistakes:
        try:
            strips = [_strip("", images) for images in found.images]
        except MissingDependencyError as error:
            why_not = str(error)
            continue
        groups.append({"said": found.said, "strips": strips})
    return render("mistakes.html", groups=groups, why_no_images=why_not)


def _chosen(results: Results) -> str:
    """What methods chose on their training sets, and how often."""
    tables, chosen = [], list[tuple[str, str]]()
    for database in results.databases:
        settings = [s for s in results.settings if s.database == database]
        differing = what_differs(settings)
        headings = [
            ", ".join(filter(None, [size_label(s), variant_label(s, differing)]))
            for s in settings
        ]
        rows, named = [], []
        for row in results.rows:
            choices = [_choices(results.runs(setting, row)) for setting in settings]
            for name in dict.fromkeys(name for found in choices for name in found):
                label = f"{row}: {printable(name)}"
                named.append((row, name))
                rows.append((label, *(found.get(name, "") for found in choices)))
        if rows:
            tables.append(
                _table(
                    f"{database_label(database)}: values, and in how many repetitions",
                    "Method: parameter",
                    *headings,
                    rows=rows,
                    align="p" * len(headings),
                )
            )
            chosen += named
    return _tables(tables, terms=parameter_terms(chosen))


def _versions(results: Results) -> str:
    """Which versions computed the results, and when."""
    every = results.by_unit.values()
    if not every:
        return ""
    counts = Counter(
        ", ".join(f"{printable(n)} {printable(v)}" for n, v in result.versions.items())
        or "not recorded"
        for result in every
    )
    finished = sorted(result.finished for result in every if result.finished)
    times = [printable(_readable(time)) for time in finished[:1] + finished[-1:]]
    return render("versions.html", counts=counts, finished=list(dict.fromkeys(times)))


def _failures(results: Results) -> str:
    """Units that failed, by reason; empty if none did."""
    if not results.failed:
        return ""
    differing = what_differs(results.settings)
    groups = Counter(
        (setting_label(Setting.of(r.unit), differing), results.row_of(r.unit), r.reason)
        for r in results.failed
    )
    table = _table(
        f"{len(results.failed)} units failed",
        "Setting",
        *("Method", "Units", "Reason"),
        rows=[
            (label, row, str(count), printable(reason))
            for (label, row, reason), count in groups.items()
        ],
        align="lrp",
    )
    return _tables([table])


def _oddities() -> str:
    """What is odd in the paper's printed tables."""
    return render("paper.html", oddities=ODDITIES)


def _tables(
    tables: Sequence[Table],
    figures: Sequence[Plot] = (),
    terms: Sequence[tuple[str, str]] = (),
) -> str:
    """Tables with figures and definitions below them; empty without any."""
    if not tables:
        return ""
    return render("tables.html", tables=tables, figures=figures, terms=terms)


def _figures(*wanted: tuple[str, Callable[[], str]]) -> list[Plot]:
    """Captions and functions that draw, as figures; none for what has no data."""
    if _why_no_plots():
        return []
    figures = []
    for caption, draw in wanted:
        try:
            figures.append(Plot(draw(), caption))
        except NothingToPlotError:
            continue
    return figures


def _why_no_plots() -> str:
    """What has to be installed before anything can be drawn; empty if nothing."""
    try:
        with plots.style():
            return ""
    except MissingDependencyError as error:
        return str(error)


def _database_facts(name: str, known: Mapping[str, Any]) -> _DatabaseFacts:
    """The facts on a database, ready to print; they were read from a file."""

    def text(key: str) -> str:
        return printable(str(known.get(key) or ""))

    return _DatabaseFacts(
        title=text("title") or database_label(name),
        size=describe_size(known),
        n_copies=known.get("copies"),
        left_out=tuple(printable(str(said)) for said in known.get("left_out") or ()),
        citation=text("citation"),
        terms=text("terms"),
        skipped=tuple(printable(str(file)) for file in known.get("skipped") or ()),
    )


def _strip(database: str, images: NDArray[np.uint8]) -> _Strip:
    """Images side by side, with one white pixel between them, at double size."""
    strip = np.pad(images, ((0, 0), (0, 0), (0, 1)), constant_values=255)
    strip = strip.transpose(1, 0, 2).reshape(images.shape[1], -1)[:, :-1]
    file = io.BytesIO()
    import_pillow("Image").fromarray(strip).save(file, format="PNG", optimize=True)
    return _Strip(
        database=database,
        n_images=len(images),
        png=base64.b64encode(file.getvalue()).decode("ascii"),
        width=2 * strip.shape[1],
        height=2 * strip.shape[0],
    )


def _choices(runs: Iterable[Result]) -> dict[str, str]:
    """By parameter, its values with the number of runs that chose them."""
    counts: dict[str, Counter[float | str]] = defaultdict(Counter)
    for run in runs:
        for name, value in run.parameters.items():
            counts[name.removeprefix("best_")][_as_key(value)] += 1
    said = {}
    for name, values in counts.items():
        # Numbers before words.
        order = sorted(values, key=lambda value: (isinstance(value, str), value))
        last = order[-1]
        # Values that are computed, and not chosen from a list, hardly occur twice.
        most = _MOST_VALUES if max(values.values()) > 1 else _MOST_VALUES // 2
        if len(order) > most and not isinstance(last, str):
            said[name] = f"{order[0]:.3g} to {last:.3g}"
        else:
            texts = [f"{_as_text(value)} ({values[value]})" for value in order]
            said[name] = printable(", ".join(texts))
    return said


def _as_key(value: Any) -> float | str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number else str(value)


def _as_text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _readable(time: str) -> str:
    """A time of ISO 8601 as people write it, if it is one."""
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return time


def _range(values: Iterable[int]) -> str:
    """The lowest and the highest value, or the only one."""
    found = sorted(set(values))
    return " to ".join(str(value) for value in dict.fromkeys(found[:1] + found[-1:]))


def _table(
    title: str,
    corner: str,
    *headings: str,
    rows: Iterable[tuple[str, ...]],
    align: str | None = None,
) -> Table:
    """A table of texts: first the label of a row, then its cells."""
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
