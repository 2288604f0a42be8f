# SPDX-License-Identifier: BSD-3-Clause
"""The paper's tables from our results, and ours compared with the best rival."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from dualqml._text import printable
from dualqml.experiments.labels import (
    RECORD_KEY,
    common_label,
    database_label,
    input_label,
    listed,
    record_key,
    sample_word,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.paper import (
    PaperResult,
    paper_cell,
    paper_results,
    paper_times,
)
from dualqml.experiments.protocol import paper_name
from dualqml.experiments.results import (
    TUNED,
    Comparison,
    Result,
    Results,
    Setting,
)
from dualqml.experiments.table_formats import (
    MISSING,
    Cell,
    Heading,
    Row,
    Table,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
)
from dualqml.extractors.methods import ALL_METHODS

__all__ = [
    "Table",
    "comparison_table",
    "error_csv",
    "error_table",
    "paper_tables",
    "time_settings",
    "time_table",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
]

#: Percentage points. Smaller gaps between two differences come from rounding.
_ROUNDING = 1e-9

#: With fewer splits there is no verdict.
FEWEST_SPLITS = 5

_TOO_FEW_NOTE = (
    f"Too few splits: under {FEWEST_SPLITS} splits there is no verdict, because the "
    "spread of so few differences is itself hardly known. Run more splits (--repeats)."
)
_NO_INTERVAL_NOTE = (
    "No interval: the difference is the same in all splits, so its noise is not known, "
    "and neither is said to be better. Run more splits."
)


class Pair(NamedTuple):
    """A row of ours, or of your own, and its best rival, in one setting."""

    setting: Setting
    row: str
    rival: str
    comparison: Comparison | None


def error_table(
    results: Results,
    *,
    databases: Iterable[str] | None = None,
    with_paper: bool = False,
) -> Table:
    r"""Mean errors and their deviations, as in the paper's Tables 1 to 4.

    Parameters
    ----------
    results : Results
        What was run.
    databases : iterable of str, optional
        The databases to show; all by default.
    with_paper : bool, default=False
        Whether to show the paper's own figures too, where it has them.

    Returns
    -------
    Table
        Methods in rows; databases, inputs and training sizes in columns. Settings
        that differ in something else have their own columns, which say so.

    Examples
    --------
    >>> from dualqml.experiments.protocol import Unit
    >>> from dualqml.experiments.results import Result, Results
    >>> from dualqml.experiments.tables import error_table, to_markdown
    >>> def result(method, run, error):
    ...     key = "ar", "", "random", 2, method, False, "unit-norm", 0, run, str(run)
    ...     return Result(Unit(*key), "done", error=error)
    >>> results = Results(
    ...     result(method, run, error + run)
    ...     for method, error in [("LDA", 7.5), ("DualQML", 6.25)]
    ...     for run in range(2)
    ... )
    >>> table = error_table(results, with_paper=True)
    >>> print("\n".join(to_markdown(table).splitlines()[2:6]))
    | Method | AR, m = 2 |
    | :--- | ---: |
    | LDA | 8.00 ± 0.7 (10.88 ± 2.1) |
    | DualQML | **6.75** ± 0.7 (6.20 ± 1.5) |
    """
    chosen = results.databases if databases is None else list(databases)
    return _error_table(results, chosen, "Error rates", with_paper=with_paper)


def error_csv(results: Results) -> str:
    """All errors as a CSV file, one line for each method and setting.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    str
        The text of the file, with the paper's figures where it has them.
    """
    return to_csv(error_table(results))


def paper_tables(results: Results, *, with_paper: bool = False) -> list[Table]:
    """The paper's Tables 1 to 4, and one for each database that it does not use.

    Parameters
    ----------
    results : Results
        What was run.
    with_paper : bool, default=False
        Whether to show the paper's own figures too, where it has them.

    Returns
    -------
    list of Table
        The tables for which there are results. Variants of a database have their
        own columns beside it.

    Examples
    --------
    >>> from dualqml.experiments.results import Results
    >>> from dualqml.experiments.tables import paper_tables
    >>> paper_tables(Results([]))
    []
    """
    numbers = [(_table_number(name) or name, name) for name in results.databases]
    tables = []
    for key, group in groupby(numbers, key=lambda pair: pair[0]):
        names = [name for _, name in group]
        title = listed([database_label(name) for name in names])
        if isinstance(key, int):
            title = f"Table {key}. {title}"
        tables.append(_error_table(results, names, title, with_paper=with_paper))
    return tables


def comparison_table(results: Results) -> Table:
    """DualQML, DualQML-W and methods of your own compared with the best rival.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    Table
        A row for each setting and each row of ours or yours: the rival with the lowest
        mean error, both errors, the mean paired difference, its 95 % interval and a
        verdict. To a method of your own all other rows are rivals.
    """
    differing = what_differs(results.settings)
    rows, records, without, few = [], [], list[str](), list[str]()
    for pair in pairs(results):
        setting, gap = pair.setting, pair.comparison
        theirs = float(results.errors(setting, pair.rival).mean())
        ours = float(results.errors(setting, pair.row).mean())
        difference = interval = splits = Cell()
        found = gap or Comparison(pair.rival, 0, np.nan, np.nan, np.nan)
        if gap is not None:
            difference = Cell(signed(gap.difference))
            splits = Cell(str(gap.n_splits))
            if has_interval(gap):
                interval = Cell(f"{signed(gap.low)} to {signed(gap.high)}")
            else:
                interval, without = Cell("none"), [_NO_INTERVAL_NOTE]
                found = gap._replace(low=np.nan, high=np.nan)
        if has_too_few_splits(gap):
            few = [_TOO_FEW_NOTE]
        cells = (
            *(Cell(pair.rival), Cell(f"{theirs:.2f}")),
            *(Cell(pair.row), Cell(f"{ours:.2f}")),
            *(difference, interval, splits, Cell(verdict(gap))),
        )
        rows.append(Row(setting_label(setting, differing), cells))
        records.append(
            (*record_key(setting, pair.row), ours, pair.rival, theirs)
            + (found.n_splits, found.difference, found.low, found.high)
            + (verdict(gap), setting.seed, setting.data)
        )
    yours = bool(results.own_rows)
    headings = (
        *("Best rival", "its error, %", "Method" if yours else "Ours", "its error, %"),
        *("Difference", "95 % interval", "Splits", "Verdict"),
    )
    return Table(
        title=(
            f"{'Ours and yours' if yours else 'Ours'} against the best rival; "
            f"{common_label(results.settings)}"
        ).rstrip("; "),
        corner="Setting",
        header=(tuple(map(Heading, headings)),),
        rows=tuple(rows),
        align="llrlrrrrl",
        notes=(
            f"Difference: {'the' if yours else 'our'} error minus the rival's in "
            "percentage points, mean over the splits that both have. Negative: "
            f"{'the method' if yours else 'ours'} is better.",
            "Verdict: lower or higher if the whole interval is below or above zero; "
            "otherwise the difference is within the noise of the splits.",
            "The interval is Student's t on paired differences, over random splits of "
            f"one database, which share {sample_word(results.settings)}s. It says "
            "nothing about other people.",
            "The rival is the one with the lowest mean error on the same splits.",
            *(["Local: on local descriptors."] * _says_local(results.settings)),
            *(["To a method of your own all other rows are rivals."] * yours),
            *without,
            *few,
        ),
        columns=(
            *(*RECORD_KEY, "error"),
            *("rival", "rival_error", "splits", "difference", "low", "high"),
            *("verdict", "seed", "data"),
        ),
        records=tuple(records),
    )


def time_settings(results: Results) -> list[Setting]:
    """The settings whose times are shown: AR with m = 2, as in the paper, or the first.

    Settings that differ from it only in the input follow.
    """
    settings = results.settings
    wanted = [s for s in settings if paper_name(s.database) == "AR" and s.m == 2]
    first = next(iter(wanted or settings), None)
    if first is None:
        return []
    return [s for s in settings if s._replace(input=first.input) == first]


def time_table(results: Results, *, with_paper: bool = False) -> Table:
    """Times to train and to test, as in the paper's Table 5.

    Parameters
    ----------
    results : Results
        What was run.
    with_paper : bool, default=False
        Whether to show the paper's times too; they are of AR with m = 2.

    Returns
    -------
    Table
        Medians over the repetitions for AR with m = 2, or for the first setting
        if it was not run, on every input. Training has two columns: with the choice
        of parameters on the training set, and with the parameters fixed.
    """
    settings = time_settings(results)
    theirs = {time.method: time for time in paper_times()} if with_paper else {}
    rows, records = [], []
    for row in _rows(results, settings):
        paper = theirs.get(row)
        paper_test = 1e3 * paper.test_seconds_per_image if paper else None
        printed = (paper.train_seconds, paper_test) if paper else (None, None)
        shown: list[float | None] = []
        for setting in settings:
            runs = results.runs(setting, row)
            times = _times(runs)
            shown += times
            if runs:
                records.append(
                    (*record_key(setting, row), len(runs), *times, *printed)
                    + (setting.seed, setting.data)
                )
        if any(time is not None for time in shown):
            shown += printed if with_paper else ()
            rows.append(Row(row, tuple(Cell(_time(time)) for time in shown)))
    first = settings[0] if settings else None
    inputs = [input_label(s) if len(settings) > 1 else "This run" for s in settings]
    word = sample_word(settings) if settings else "image"
    test = Heading(f"test, ms per {word}")
    own = [Heading("training with choice, s"), Heading("training fixed, s"), test]
    top = [Heading(text, 3) for text in inputs or ["This run"]]
    top += [Heading("Paper, AR, m = 2", 2)] * with_paper
    below = own * max(len(settings), 1) + [Heading("training, s"), test] * with_paper
    # Vectors come from a network, whose time is not known here.
    before = (
        "Making, reading and scaling the vectors"
        if word == "vector"
        else f"Reading the {word}s and their photometry"
    )
    notes = [
        "Medians over the repetitions: CPU time with one BLAS thread. "
        f"{before} are not in them; all else is.",
        "With choice: the whole training of a method that chooses parameters on the "
        "training set, the choice included. Fixed: one training with given parameters. "
        "These are the chosen ones, trained again, or the defaults where nothing is "
        "chosen.",
    ]
    if any(setting.input == "local" for setting in settings):
        notes.append(
            "Times on local descriptors include the computation of the descriptors."
        )
    notes += _search_notes(results, settings)
    notes += _seed_notes(results, settings, results.rows)
    if with_paper:
        notes.append("The paper's: MATLAB on one core of a 2.4 GHz Xeon E5620.")
    where = "no results" if first is None else setting_label(first)
    said = ", ".join(filter(None, [where, common_label(settings)]))
    return Table(
        title=(
            f"{'Table 5. ' if with_paper else ''}Times, with and without the choice of "
            f"parameters: {said}"
        ),
        corner="Method",
        header=(tuple(top), tuple(below)),
        rows=tuple(rows),
        align="l" + "r" * len(below),
        notes=tuple(notes),
        columns=(
            *(*RECORD_KEY, "repeats", "fit_with_choice_seconds", "fit_fixed_seconds"),
            "test_milliseconds_per_image",
            *("paper_fit_seconds", "paper_test_milliseconds_per_image"),
            *("seed", "data"),
        ),
        records=tuple(records),
    )


def _search_notes(results: Results, settings: Sequence[Setting]) -> list[str]:
    """Which rows choose parameters: a reader should not mix their times up."""
    searched: dict[str, bool] = {}
    for row in results.rows:
        runs = [run for s in settings for run in results.runs(s, row)]
        if runs:
            searched[row] = any(run.searched for run in runs)
    choose = [row for row, found in searched.items() if found]
    given = [row for row, found in searched.items() if not found]
    if not choose or not given:
        return []
    return [
        f"{listed(choose)} {'chooses' if len(choose) == 1 else 'choose'} parameters by "
        "cross-validation on the training set, which is many trainings; "
        f"{listed(given)} {'has' if len(given) == 1 else 'have'} given parameters and "
        "one training. Compare the columns of fixed training, or tune all methods "
        "(--tune)."
    ]


def _times(
    runs: Sequence[Result],
) -> tuple[float | None, float | None, float | None]:
    """Training with the choice and without it, and test in milliseconds."""
    if not runs:
        return None, None, None
    searched = any(run.searched for run in runs)
    whole = _median([run.fit_seconds for run in runs])
    fixed = _median([run.refit_seconds for run in runs]) if searched else whole
    test = _median([1e3 * run.test_seconds / max(run.n_test, 1) for run in runs])
    return whole if searched else None, fixed, test


def _median(values: Sequence[float]) -> float | None:
    """The median of the values that are known."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else None


def pairs(results: Results) -> list[Pair]:
    """All rows of ours and yours with the best rival of their setting."""
    ours, yours = our_rows(results), results.own_rows
    found = []
    for setting in results.settings:
        for row in [*ours, *yours]:
            others = [other for other in results.rows if other != row]
            rival = (
                results.best_row(setting, others)
                if row in yours
                else results.best_rival(setting)
            )
            if rival is not None and results.runs(setting, row):
                compared = results.compare(setting, row, rival)
                found.append(Pair(setting, row, rival, compared))
    return found


def _says_local(settings: Sequence[Setting]) -> bool:
    """Whether labels of settings have the short name of local descriptors."""
    named = "input" in what_differs(settings)
    return named and any(setting.input == "local" for setting in settings)


def our_rows(results: Results) -> list[str]:
    """The rows of ours that are compared with rivals: DualQML and DualQML-W."""
    compared = {"DualQML", "DualQML-W"}
    return [row for row in results.rows if row.removesuffix(TUNED) in compared]


def verdict(comparison: Comparison | None) -> str:
    """What an interval says, in words.

    Examples
    --------
    >>> from dualqml.experiments.results import Comparison
    >>> from dualqml.experiments.tables import verdict
    >>> verdict(Comparison("LDA", 30, -1.2, -2.0, -0.4))
    'lower'
    >>> verdict(Comparison("LDA", 30, -1.2, -2.5, 0.1))
    'no difference seen'
    >>> verdict(Comparison("LDA", 5, -1.2, -1.2, -1.2))
    'no interval'
    >>> verdict(Comparison("LDA", 4, -1.2, -2.0, -0.4))
    'too few splits'
    """
    if comparison is None or has_too_few_splits(comparison):
        return "too few splits"
    if not has_interval(comparison) and abs(comparison.difference) > _ROUNDING:
        return "no interval"
    if comparison.high < 0.0:
        return "lower"
    return "higher" if comparison.low > 0.0 else "no difference seen"


def has_too_few_splits(comparison: Comparison | None) -> bool:
    """Whether there are too few splits for a verdict, or none in common."""
    return comparison is None or comparison.n_splits < FEWEST_SPLITS


def has_interval(comparison: Comparison) -> bool:
    """Whether the splits differ; if not, the noise of their mean is not known."""
    return comparison.high - comparison.low > _ROUNDING


def signed(value: float) -> str:
    """A number with two decimals and its sign; zero has no sign."""
    text = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    return text if text.strip("+\N{MINUS SIGN}0.") else "0.00"


def _error_table(
    results: Results, databases: Sequence[str], title: str, *, with_paper: bool
) -> Table:
    settings = [s for s in results.settings if s.database in databases]
    rows = _rows(results, settings)
    body: list[list[Cell]] = [[] for _ in rows]
    records = []
    for setting in settings:
        errors = {row: results.errors(setting, row) for row in rows}
        printed = {row: f"{e.mean():.2f}" for row, e in errors.items() if e.size}
        best = min(printed.values(), key=float, default="")
        for cells, (row, found) in zip(body, errors.items(), strict=True):
            paper = _paper_cell(setting, row)
            mean, std = None, None
            cell = Cell()
            if found.size:
                mean = float(found.mean())
                std = float(found.std(ddof=1)) if found.size > 1 else None
                cell = Cell(printed[row], printed[row] == best, _deviation(std))
            if with_paper and paper:
                cell = cell._replace(aside=_in_parentheses(paper))
            cells.append(cell)
            if mean is None:
                continue
            theirs = (paper.mean, paper.std) if paper else (None, None)
            records.append(
                (_table_number(setting.database), *record_key(setting, row), found.size)
                + (mean, std, *theirs, setting.seed, setting.data)
            )
    return Table(
        title=_title(results, settings, title),
        corner="Method",
        header=_header(settings),
        rows=tuple(
            Row(row, tuple(cells)) for row, cells in zip(rows, body, strict=True)
        ),
        align="l" + "r" * len(settings),
        notes=_notes(results, settings, rows, with_paper),
        columns=(
            *("table", *RECORD_KEY),
            *("repeats", "mean", "std", "paper_mean", "paper_std"),
            # Not in the printed table, but lines may differ in these fields only.
            *("seed", "data"),
        ),
        records=tuple(records),
    )


def _rows(results: Results, settings: Sequence[Setting]) -> list[str]:
    """Rows with a result, or a failure, in one of the settings."""
    chosen = set(settings)
    units = (unit for unit in results.by_unit if Setting.of(unit) in chosen)
    present = {results.row_of(unit) for unit in units}
    return [row for row in results.rows if row in present]


def _header(settings: Sequence[Setting]) -> tuple[tuple[Heading, ...], ...]:
    differing = what_differs(settings)
    # The input has a line of its own in the header.
    others = [name for name in differing if name != "input"]

    def spans(
        level: Callable[[Setting], Hashable], text: Callable[[Setting], str]
    ) -> tuple[Heading, ...]:
        groups = (list(group) for _, group in groupby(settings, key=level))
        return tuple(Heading(text(group[0]), len(group)) for group in groups)

    header: tuple[tuple[Heading, ...], ...] = (
        spans(lambda s: s.database, lambda s: database_label(s.database)),
    )
    if "input" in differing:
        header += (spans(lambda s: (s.database, s.input), input_label),)
    header += (spans(lambda s: (s.database, s.input, size_label(s)), size_label),)
    if others:
        header += (spans(lambda s: s, lambda s: variant_label(s, others)),)
    return header


def _title(results: Results, settings: Sequence[Setting], what: str) -> str:
    repeats = {_n_repeats(results, setting) for setting in settings}
    parts = [f"{what}: error in %", common_label(settings)]
    if len(repeats) == 1 and repeats != {1}:
        parts[0] += ", mean ± standard deviation"
        parts.append(f"{repeats.pop()} repetitions")
    return ", ".join(filter(None, parts))


def _notes(
    results: Results, settings: Sequence[Setting], rows: Sequence[str], paper: bool
) -> tuple[str, ...]:
    differing = what_differs(settings)
    notes = ["Bold: the lowest mean of a column."] if settings else []
    if paper and any(_paper_cell(s, row) for s in settings for row in rows):
        notes.append("In parentheses: what the paper printed.")
    notes += _seed_notes(results, settings, rows)
    notes += [
        f"{row}: {printable(spec)}"
        for row, spec in results.own_rows.items()
        if row in rows
    ]
    notes += _image_notes(settings, rows)
    totals = {setting: _n_repeats(results, setting) for setting in settings}
    if len(set(totals.values())) > 1:
        said = [f"{n} for {setting_label(s, differing)}" for s, n in totals.items()]
        notes.append(f"Repetitions: {'; '.join(said)}.")
    for setting, total in totals.items():
        label = setting_label(setting, differing)
        counts = {row: len(results.runs(setting, row)) for row in rows}
        short = [f"{row} has {n}" for row, n in counts.items() if 0 < n < total]
        if short:
            notes.append(
                f"{label} is incomplete: of {total} repetitions {listed(short)}; means "
                "over different splits are not comparable."
            )
        failed = [r for r in results.failed if Setting.of(r.unit) == setting]
        if failed:
            by_row = Counter(results.row_of(result.unit) for result in failed)
            said = [f"{row} {n}" for row, n in by_row.items()]
            notes.append(
                f"{label}: {len(failed)} failed ({', '.join(said)}). First reason: "
                f"{printable(failed[0].reason)}"
            )
    return tuple(notes)


def _seed_notes(
    results: Results, settings: Sequence[Setting], rows: Sequence[str]
) -> list[str]:
    """Rows whose figures are means over several seeds of the method."""
    seeds = {
        row: sorted({run.n_seeds for s in settings for run in results.runs(s, row)})
        for row in rows
    }
    return [
        f"{row}: in each repetition the mean over {listed([str(n) for n in found])} "
        "seeds of the method."
        for row, found in seeds.items()
        if max(found, default=1) > 1
    ]


def _image_notes(settings: Sequence[Setting], rows: Sequence[str]) -> list[str]:
    """Rows that are empty on some inputs because the methods need images."""
    inputs = {s.input: input_label(s) for s in settings if s.input != "pixels"}
    need = [
        row
        for row in rows
        if (method := ALL_METHODS.get(row.removesuffix(TUNED))) and method.needs_images
    ]
    if not inputs or not need:
        return []
    return [
        f"{listed(need)}: left out on {listed(list(inputs.values()))}, because "
        "they need images as such."
    ]


def _n_repeats(results: Results, setting: Setting) -> int:
    """Repetitions that at least one row has finished."""
    runs = (run for row in results.rows for run in results.runs(setting, row))
    return len({run.unit.repetition for run in runs})


def _table_number(database: str) -> int | None:
    numbers = {cell.database: cell.table for cell in paper_results()}
    return numbers.get(paper_name(database) or "")


def _paper_cell(setting: Setting, row: str) -> PaperResult | None:
    name = paper_name(setting.database)
    # The paper has random splits of pixels, no tuned rows and no DualQML-W.
    if name is None or (setting.protocol, setting.input) != ("random", "pixels"):
        return None
    try:
        return paper_cell(name, setting.m, row)
    except KeyError:
        return None


def _deviation(std: float | None) -> str:
    return "" if std is None else f"± {std:.1f}"


def _in_parentheses(paper: PaperResult) -> str:
    return f"({paper.mean:.2f} {_deviation(paper.std)})"


def _time(value: float | None) -> str:
    if value is None or np.isnan(value):
        return MISSING
    return f"{value:.0f}" if value >= 100.0 else f"{value:.3g}"
