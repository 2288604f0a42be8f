# SPDX-License-Identifier: BSD-3-Clause
"""Text from outside: shown without harm, read within bounds, listed briefly."""

import json
from collections.abc import Sequence
from typing import Any

#: Names that a message lists.
_NAMED = 5
#: Levels of lists and objects in each other. No file of ours comes near.
MOST_LEVELS = 100
#: Values in one JSON text. Each takes some hundred bytes once it is read.
MOST_VALUES = 250_000
#: Bits of a whole number.
_MOST_BITS = 64


def printable(text: str, longest: int | None = None) -> str:
    r"""Text in one line, with a mark for each character that does not print.

    Control characters can move the cursor, hide text or change its direction.

    Parameters
    ----------
    text : str
        From anywhere.
    longest : int, optional
        Characters to show; what is longer ends in three dots.

    Returns
    -------
    str
        The same where all of it prints.

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
    """Read JSON that somebody else may have written.

    Parameters
    ----------
    text : str or bytes
        The text.
    **hooks : dict
        Passed on to `json.loads`.

    Returns
    -------
    object
        What it says.

    Raises
    ------
    ValueError
        It is not JSON, has too many levels or values, or a number of more than 64
        bits.

    Examples
    --------
    >>> from dualqml._text import read_json
    >>> read_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it has more than 100 levels
    """
    if isinstance(text, bytes):
        text = text.decode()
    # Rather too many, as some may stand in strings.
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
    """What a value holds, if it holds others."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError(f"it has a number of more than {_MOST_BITS} bits")
    return value if isinstance(value, list) else ()


def first_few(names: Sequence[str], separator: str = ", ") -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> from dualqml._text import first_few
    >>> first_few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    rest = len(names) - _NAMED
    text = separator.join(names[:_NAMED])
    return f"{text} and {rest} more" if rest > 0 else text
