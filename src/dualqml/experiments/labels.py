# SPDX-License-Identifier: BSD-3-Clause
"""Names of databases and settings in tables, plots and reports."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dualqml._text import printable
from dualqml.data import DATABASES
from dualqml.experiments.protocol import paper_name
from dualqml.experiments.results import TUNED, Setting

#: Inputs in words.
_INPUTS = {"local": "local descriptors"}

#: Names of the fields of `record_key`.
RECORD_KEY = ("database", "m", "protocol", "photometry", "input", "method", "tuned")


def record_key(setting: Setting, row: str) -> tuple[str, int, str, str, str, str, bool]:
    """The first fields of a CSV record, as in `RECORD_KEY`."""
    method = row.removesuffix(TUNED)
    return (*setting[:4], setting.input, method, method != row)


def input_label(setting: Setting) -> str:
    """What the methods got, in words."""
    return printable(_INPUTS.get(setting.input, setting.input))


def sample_word(settings: Iterable[Setting]) -> str:
    """What was recognised: "image", "vector", or "sample" if there are both.

    Examples
    --------
    >>> from dualqml.experiments.labels import sample_word
    >>> from dualqml.experiments.results import Setting
    >>> one = Setting("ar", 2, "random", "unit-norm", 0, "f00d")
    >>> sample_word([one]), sample_word([one, one._replace(input="vectors")])
    ('image', 'sample')
    """
    words = {"vector" if s.input == "vectors" else "image" for s in settings}
    return words.pop() if len(words) == 1 else "sample"


def database_label(database: str) -> str:
    """The name of a database for readers.

    Parameters
    ----------
    database : str
        Its name in the results.

    Returns
    -------
    str
        The paper's name or that of the registry, with a variant in parentheses. Other
        databases keep their names, without characters that cannot be printed.

    Examples
    --------
    >>> from dualqml.experiments.labels import database_label
    >>> database_label("feret:distinct"), database_label("orl"), database_label("mine")
    ('FERET (distinct)', 'ORL', 'mine')
    """
    base, _, variant = database.partition(":")
    known = paper_name(database)
    if known is None and base in DATABASES:
        known = DATABASES[base].title
    if known is None:
        return printable(database)
    return f"{known} ({printable(variant)})" if variant else known


def size_label(setting: Setting) -> str:
    """The number m of training images of each subject, or the protocol without m."""
    return f"m = {setting.m}" if setting.m else f"{setting.protocol} split"


def what_differs(settings: Iterable[Setting]) -> tuple[str, ...]:
    """The fields in which settings differ, beside the database and m.

    Parameters
    ----------
    settings : iterable of Setting
        The settings that are shown together.

    Returns
    -------
    tuple of str
        Those of "input", "protocol", "photometry", "seed", "data" and "split" that are
        not the same for all settings. Different databases always have different data
        and splits; these count only where settings of one database differ in them. A
        protocol without m does not count, because it is named in place of m.

    Examples
    --------
    >>> from dualqml.experiments.labels import variant_label, what_differs
    >>> from dualqml.experiments.results import Setting
    >>> one = Setting("ar", 2, "random", "unit-norm", 0, "f00d")
    >>> two = one._replace(m=4, seed=1)
    >>> what_differs([one, two])
    ('seed',)
    >>> variant_label(two, ["seed"])
    'seed 1'
    """
    settings = list(settings)
    found = []
    if len({setting.input for setting in settings}) > 1:
        found.append("input")
    if len({setting.protocol for setting in settings if setting.m}) > 1:
        found.append("protocol")
    for name in ("photometry", "seed"):
        if len({getattr(setting, name) for setting in settings}) > 1:
            found.append(name)
    data, splits = defaultdict(set), defaultdict(set)
    for setting in settings:
        data[setting.database].add(setting.data)
        if setting.split:
            key = setting.database, setting.data, setting.protocol
            splits[key].add(setting.split)
    if any(len(prints) > 1 for prints in data.values()):
        found.append("data")
    if any(len(prints) > 1 for prints in splits.values()):
        found.append("split")
    return tuple(found)


def variant_label(setting: Setting, names: Iterable[str]) -> str:
    """The named fields of a setting, in words."""
    words = {
        "input": input_label(setting),
        "protocol": f"{setting.protocol} split",
        "photometry": f"photometry {setting.photometry}",
        "seed": f"seed {setting.seed}",
        "data": f"data {setting.data[:8]}",
        "split": f"split {setting.split[:8]}",
    }
    names = [name for name in names if name != "protocol" or setting.m]
    names = [name for name in names if name != "split" or setting.split]
    return printable(", ".join(words[name] for name in names))


def setting_label(
    setting: Setting, differing: Iterable[str] = (), *, in_full: bool = False
) -> str:
    """A setting in words.

    Parameters
    ----------
    setting : Setting
        The setting.
    differing : iterable of str
        The fields to name beside the database and m; see `what_differs`.
    in_full : bool, default=False
        Whether the input has its full name, which is too long for most tables.

    Returns
    -------
    str
        For example "AR, m = 2, seed 1".
    """
    names = list(differing)
    named = input_label(setting) if in_full else printable(setting.input)
    parts = (
        database_label(setting.database),
        named if "input" in names else "",
        size_label(setting),
        variant_label(setting, [name for name in names if name != "input"]),
    )
    return ", ".join(part for part in parts if part)


def common_label(settings: Sequence[Setting]) -> str:
    """The fields that are the same for all settings, in words."""
    if not settings:
        return ""
    first = settings[0]
    # Vectors have no light.
    scaling = "scaling" if sample_word(settings) == "vector" else "photometry"
    words = {
        "input": input_label(first),
        "protocol": f"{first.protocol} splits",
        "photometry": f"{scaling} {first.photometry}",
        "seed": f"seed {first.seed}",
    }
    same = [n for n in words if len({getattr(s, n) for s in settings}) == 1]
    # Pixels go without saying.
    same = [n for n in same if n != "input" or first.input != "pixels"]
    return printable(", ".join(words[name] for name in same))


def listed(words: Sequence[str]) -> str:
    """Words with commas and a final "and".

    Examples
    --------
    >>> from dualqml.experiments.labels import listed
    >>> listed(["AR", "PIE", "ORL"])
    'AR, PIE and ORL'
    """
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
