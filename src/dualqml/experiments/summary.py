# SPDX-License-Identifier: BSD-3-Clause
"""What came out, in sentences that are computed from the results."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dualqml.experiments.labels import (
    database_label,
    input_label,
    listed,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.results import Results, Setting
from dualqml.experiments.tables import (
    FEWEST_SPLITS,
    Pair,
    has_interval,
    has_too_few_splits,
    pairs,
    signed,
    verdict,
)

# No line break between m and its value.
_SIZE = "m\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"


class Finding(NamedTuple):
    """What to take home from some settings.

    Attributes
    ----------
    name : str
        Of which database, and which variant of it.
    sentences : tuple of str
        What is lowest where and by how much, and where ours is behind or level; one
        more sentence on methods of your own.
    """

    name: str
    sentences: tuple[str, ...]


class _Lowest(NamedTuple):
    """The rows with the lowest mean error of a setting, and that error."""

    setting: Setting
    rows: list[str]
    mean: str


def take_home(results: Results) -> list[Finding]:
    """What a reader should remember, in two sentences for each database.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    list of Finding
        One for each group of settings that differ in m and the input only. Groups
        without a finished unit are left out.

    Examples
    --------
    >>> from dualqml.experiments.results import Results
    >>> from dualqml.experiments.summary import take_home
    >>> take_home(Results([]))
    []
    """
    compared = {(pair.setting, pair.row): pair for pair in pairs(results)}
    found = []
    for name, settings in variants(results, apart_from=("input",)):
        lowest, shown = _lowest(results, settings, compared)
        if not lowest:
            continue
        here = [pair for key, pair in compared.items() if key[0] in settings]
        too_few = all(has_too_few_splits(pair.comparison) for pair in here)
        others = [pair for pair in here if pair not in shown]
        by_row = _by_row(results, others)
        yours = {row: by_row.pop(row) for row in results.own_rows if row in by_row}
        parts = (
            lowest,
            _standing(by_row, "nowhere is ours", nowhere_a_verdict=too_few),
            _standing(yours, "nowhere is yours", nowhere_a_verdict=too_few),
        )
        found.append(Finding(name, tuple(filter(None, parts))))
    return found


def variants(
    results: Results, *, apart_from: Sequence[str] = ()
) -> list[tuple[str, list[Setting]]]:
    """Settings that differ in m only, each group with a name.

    Parameters
    ----------
    results : Results
        What was run.
    apart_from : sequence of str
        Further fields in which the settings of a group may differ.

    Returns
    -------
    list of (str, list of Setting)
        The groups, in the order of the tables.
    """
    found: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for database in results.databases:
        settings = [s for s in results.settings if s.database == database]
        differing = [n for n in what_differs(settings) if n not in apart_from]
        for setting in settings:
            parts = [database_label(database), variant_label(setting, differing)]
            parts += [] if setting.m else [size_label(setting)]
            found[database, ", ".join(filter(None, parts))].append(setting)
    return [(name, group) for (_, name), group in found.items()]


def in_words(results: Results, settings: Sequence[Setting]) -> str:
    """The lowest errors, and how ours and yours stand to the best rival.

    Parameters
    ----------
    results : Results
        What was run.
    settings : sequence of Setting
        Settings that differ in m only.

    Returns
    -------
    str
        Some sentences.
    """
    lowest: dict[str, list[tuple[Setting, str]]] = defaultdict(list)
    for setting in settings:
        rows, mean = _best(results, setting)
        if rows:
            lowest[listed(rows)].append((setting, mean))
    if not lowest:
        return "No unit is finished."
    said = [
        f"{rows}{_at(setting for setting, _ in where)} "
        f"({listed([mean for _, mean in where])} %)"
        for rows, where in lowest.items()
    ]
    sentences = [f"Lowest mean error: {'; '.join(said)}."]
    by_row = _by_row(results, [p for p in pairs(results) if p.setting in settings])
    for row, group in by_row.items():
        by_verdict: dict[str, list[Pair]] = defaultdict(list)
        for pair in group:
            by_verdict[verdict(pair.comparison)].append(pair)
        rivals = listed(list(dict.fromkeys(pair.rival for pair in group)))
        said = [
            f"{word}{_at(pair.setting for pair in found)}{_range_of(word, found)}"
            for word, found in by_verdict.items()
        ]
        sentences.append(f"{row} against the best rival, {rivals}: {'; '.join(said)}.")
    return " ".join(sentences)


def _lowest(
    results: Results,
    settings: Sequence[Setting],
    compared: Mapping[tuple[Setting, str], Pair],
) -> tuple[str, list[Pair]]:
    """A sentence on which rows are lowest on which input, and the pairs that it has."""
    groups: dict[str, dict[str, list[_Lowest]]] = defaultdict(dict)
    for setting in settings:
        rows, mean = _best(results, setting)
        if rows:
            of_input = groups[input_label(setting)]
            best = _Lowest(setting, rows, mean)
            of_input.setdefault(listed(rows), []).append(best)
    said, shown = [], list[Pair]()
    for label, of_input in groups.items():
        texts = []
        for names, where in of_input.items():
            means = listed([best.mean for best in where])
            text = f"{names}{_at(best.setting for best in where)} ({means} %"
            of_lowest = _first_pairs(where, compared, [best.rows for best in where])
            ours = _first_pairs(where, compared, [["DualQML-W"]] * len(where))
            # The next sentence says where ours is behind.
            if any(verdict(pair.comparison) == "higher" for pair in ours):
                ours = []
            if of_lowest:
                text += f", {_gaps(of_lowest, 'the best rival there, ')}"
            elif ours:
                text += f"; DualQML-W: {_gaps(ours)}"
            shown += of_lowest or ours
            texts.append(f"{text})")
        said.append(f"on {label} {listed(texts)}")
    return (f"Lowest mean error: {'; '.join(said)}." if said else ""), shown


def _first_pairs(
    where: Sequence[_Lowest],
    compared: Mapping[tuple[Setting, str], Pair],
    rows: Sequence[Sequence[str]],
) -> list[Pair]:
    """In each setting the first row that is compared; empty if one has no verdict."""
    found = []
    for best, names in zip(where, rows, strict=True):
        keys = ((best.setting, name) for name in names)
        pair = next((compared[key] for key in keys if key in compared), None)
        if pair is None or has_too_few_splits(pair.comparison):
            return []
        found.append(pair)
    return found


def _standing(
    pairs_of_rows: Mapping[str, Sequence[Pair]],
    nowhere: str,
    *,
    nowhere_a_verdict: bool,
) -> str:
    """Where rows are behind the best rival, and where no difference is seen.

    If there are too few splits everywhere, the names of the rows are enough.
    """
    said: dict[str, list[str]] = defaultdict(list)
    for row, group in pairs_of_rows.items():
        by_input: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for pair in group:
            by_input[verdict(pair.comparison), input_label(pair.setting)].append(pair)
        for (word, name), own in by_input.items():
            text = f"{row} on {name}{_at(pair.setting for pair in own)}"
            if word == "higher":
                text += f" ({_gaps(own)})"
            said[word].append(text)
    few, alike = said["too few splits"], said["no interval"]
    if nowhere_a_verdict:
        few = list(pairs_of_rows)
    parts = []
    if said["higher"]:
        parts.append(f"behind the best rival is {listed(said['higher'])}")
    elif not (few or alike):
        parts.append(f"{nowhere} seen to be behind the best rival")
    if said["no difference seen"]:
        parts.append(f"no difference is seen for {listed(said['no difference seen'])}")
    if few:
        parts.append(
            f"there is no verdict on {listed(few)}: that takes {FEWEST_SPLITS} splits, "
            "because the spread of fewer differences is itself hardly known"
        )
    if alike:
        parts.append(
            f"there is no verdict on {listed(alike)}: the difference is the same in "
            "all splits, so its noise is not known"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if pairs_of_rows else ""


def _gaps(found: Sequence[Pair], which: str = "") -> str:
    """For example "+0.50 points from LDA (95 % interval +0.10 to +0.90)"."""
    gaps = [pair.comparison for pair in found if pair.comparison is not None]
    differences = listed([signed(gap.difference) for gap in gaps])
    ends = [
        f"{signed(gap.low)} to {signed(gap.high)}" if has_interval(gap) else "none"
        for gap in gaps
    ]
    word = "interval" if len(ends) == 1 else "intervals"
    rivals = listed(list(dict.fromkeys(pair.rival for pair in found)))
    return f"{differences} points from {which}{rivals}, 95 % {word} {listed(ends)}"


def _best(results: Results, setting: Setting) -> tuple[list[str], str]:
    """The rows that print the lowest mean error, and that error."""
    means = {
        row: f"{found.mean():.2f}"
        for row in results.rows
        if (found := results.errors(setting, row)).size
    }
    if not means:
        return [], ""
    best = min(means.values(), key=float)
    return [row for row, mean in means.items() if mean == best], best


def _by_row(results: Results, found: Iterable[Pair]) -> dict[str, list[Pair]]:
    """Pairs by their rows: DualQML-W, DualQML, and methods of your own."""
    by_row: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        by_row[pair.row].append(pair)
    yours = results.own_rows
    ours = sorted((row for row in by_row if row not in yours), reverse=True)
    return {row: by_row[row] for row in [*ours, *(r for r in yours if r in by_row)]}


def _at(settings: Iterable[Setting]) -> str:
    """For example " at m = 2 and 4"; empty for splits without m."""
    sizes = [str(setting.m) for setting in settings if setting.m]
    return f" at {_SIZE}{listed(sizes)}" if sizes else ""


def _range_of(word: str, found: Sequence[Pair]) -> str:
    """For example " by 0.50 to 1.20 points"; empty if no difference was seen."""
    gaps = [abs(p.comparison.difference) for p in found if p.comparison is not None]
    if word not in ("lower", "higher"):
        return ""
    ends = dict.fromkeys([f"{min(gaps):.2f}", f"{max(gaps):.2f}"])
    return f" by {' to '.join(ends)} points"
