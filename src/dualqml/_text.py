# SPDX-License-Identifier: BSD-3-Clause
"""Text from users and files: printed safely, read within limits, listed briefly."""

import json
from collections.abc import Sequence
from typing import Any

#: The largest number of names that a message lists.
_MOST_NAMES = 5
#: The largest depth of nested lists and objects. Files of dualqml need far less.
MOST_LEVELS = 100
#: The largest number of values in one JSON text. Each takes about a hundred bytes in
#: memory.
MOST_VALUES = 250_000
#: The largest number of bits of an integer.
_MOST_BITS = 64


def printable(text: str, longest: int | None = None) -> str:
    r"""Return text in one line, with a mark in place of unprintable characters.

    Control characters can move the cursor, hide text or change its direction.

    Parameters
    ----------
    text : str
        Text from any source.
    longest : int, optional
        The largest length of the result. Longer text is cut and ends in three dots.

    Returns
    -------
    str
        The text; it is not changed if all its characters are printable.

    Examples
    --------
    >>> from dualqml._text import printable
    >>> printable("Ann\tLee")
    'Ann Lee'
    >>> printable("\x1b[2J Ann Lee", 9)
    '�[2J A...'
    """
    if longest is not None and len(text) > longest:
        text = text[: longest - 3] + "..."
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable()
        else " "
        if char.isspace()
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def read_json(text: str | bytes, **hooks: Any) -> Any:
    """Read JSON from a source that is not trusted.

    Parameters
    ----------
    text : str or bytes
        The text.
    **hooks : dict
        Passed to `json.loads`.

    Returns
    -------
    object
        The value of the text.

    Raises
    ------
    ValueError
        It is not JSON, or it has too many levels or values, or an integer of more
        than 64 bits.

    Examples
    --------
    >>> from dualqml._text import read_json
    >>> read_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it has more than 100 levels
    """
    if isinstance(text, bytes):
        text = text.decode()
    # An upper bound of the number of values: strings may have these characters too.
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    too_deep = f"it has more than {MOST_LEVELS} levels"
    try:
        found = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [found]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return found
    raise ValueError(too_deep)


def _inside(value: Any) -> Any:
    """Return the values inside a list or an object; other values have none."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError(f"it has a number of more than {_MOST_BITS} bits")
    return value if isinstance(value, list) else ()


def counted(number: int, noun: str) -> str:
    """A number and a noun, in the plural unless the number is 1.

    Examples
    --------
    >>> from dualqml._text import counted
    >>> counted(1, "sample"), counted(3, "sample")
    ('1 sample', '3 samples')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_few(names: Sequence[str], separator: str = ", ") -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> from dualqml._text import first_few
    >>> first_few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    rest = len(names) - _MOST_NAMES
    text = separator.join(names[:_MOST_NAMES])
    return f"{text} and {rest} more" if rest > 0 else text


def csv_field(value: str | float | bool | None) -> str:
    """A value as a field of a CSV file; text is never a formula of a spreadsheet.

    Examples
    --------
    >>> from dualqml._text import csv_field
    >>> csv_field("=1+1"), csv_field(0.5), csv_field(None)
    ("'=1+1", '0.5', '')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    formula = value.startswith(("\t", "\r")) or value.lstrip()[:1] in tuple("=+-@")
    mark = "'" if formula and not _is_number(value) else ""
    return mark + printable(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
