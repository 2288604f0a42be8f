# SPDX-License-Identifier: BSD-3-Clause
"""Where all commands print."""

import sys

from dualqml._text import printable


def say(text: str, *, error: bool = False) -> None:
    """Print lines, without characters that a terminal would obey.

    Names of people, files and databases come from files of others, and their
    control characters could rewrite the screen.

    Parameters
    ----------
    text : str
        One line or several.
    error : bool, default=False
        Whether to print to standard error.
    """
    lines = map(printable, text.split("\n"))
    print("\n".join(lines), file=sys.stderr if error else sys.stdout)
