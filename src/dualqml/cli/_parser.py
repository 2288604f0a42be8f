# SPDX-License-Identifier: BSD-3-Clause
"""How the words of a command are parsed, and how its help looks."""

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """Parse the words after the name of a command.

    Options may stand anywhere between the other arguments. Words after ``--`` are
    never options.

    Parameters
    ----------
    **settings : dict
        Settings of `argparse.ArgumentParser`.

    Examples
    --------
    >>> from dualqml.cli._parser import CommandParser
    >>> parser = CommandParser(prog="show")
    >>> _ = parser.add_argument("model")
    >>> _ = parser.add_argument("images", nargs="*")
    >>> _ = parser.add_argument("--json", action="store_true")
    >>> options = parser.parse_args(["m", "a.png", "--json", "b.png", "--", "-c.png"])
    >>> options.images, options.json
    (['a.png', 'b.png', '-c.png'], True)
    """

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)
        self._positionals.title = "arguments"

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse words, options anywhere between them.

        Parameters
        ----------
        args : sequence of str
            The words.
        namespace : argparse.Namespace, optional
            Where to put the values.

        Returns
        -------
        argparse.Namespace
            The values.
        """
        words = list(args)
        if "--" in words:
            # Several versions of argparse lose the mark between their two passes.
            end = words.index("--")
            words[end:] = map(_Argument, words[end + 1 :])
        options, unknown = self.parse_known_intermixed_args(words, namespace)
        if unknown:
            hint = suggestion(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options

    def _parse_optional(self, arg_string: str) -> Any:
        # argparse asks this for every word that may be an option.
        if isinstance(arg_string, _Argument):
            return None
        return super()._parse_optional(arg_string)


class _Argument(str):
    """A word that is not an option, whatever its first character."""

    __slots__ = ()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant by a word that is not known.

    Parameters
    ----------
    word : str
        The word.
    known : iterable of str
        The words that are known.

    Returns
    -------
    str
        The end of a message; empty if no known word is near.

    Examples
    --------
    >>> from dualqml.cli._parser import suggestion
    >>> suggestion("identfy", ["identify", "verify"])
    '; did you mean identify?'
    """
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def paragraph(text: str, *, indent: str = "") -> str:
    """Break text into lines of the width that argparse gives its help.

    Parameters
    ----------
    text : str
        The text, in one line.
    indent : str, default=""
        What each line begins with.

    Returns
    -------
    str
        The lines.
    """
    width = shutil.get_terminal_size().columns - 2
    return textwrap.fill(
        text,
        max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def table(rows: Mapping[str, str]) -> str:
    """Write names and what they mean, as argparse lists options.

    Parameters
    ----------
    rows : dict of str to str
        The text for each name.

    Returns
    -------
    str
        The lines.

    Examples
    --------
    >>> from dualqml.cli._parser import table
    >>> print(table({"0": "done", "130": "interrupted"}))
      0    done
      130  interrupted
    """
    start = max(map(len, rows)) + 4
    return "\n".join(
        f"  {name}".ljust(start) + paragraph(text, indent=" " * start).lstrip()
        for name, text in rows.items()
    )
