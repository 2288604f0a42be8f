# SPDX-License-Identifier: BSD-3-Clause
"""How commands print: text, JSON, and a line of progress."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from dualqml._text import printable

if TYPE_CHECKING:
    from dualqml.experiments.runner import Progress

#: Seconds between two lines where the line cannot be overwritten.
_PAUSE = 15.0


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


def say_json(value: Any, *, ensure_ascii: bool = True) -> None:
    """Print a value as JSON.

    Parameters
    ----------
    value : object
        Lists, dictionaries, text, numbers.
    ensure_ascii : bool, default=True
        Whether to print other characters than those of ASCII as escapes.
    """
    say(json.dumps(value, indent=2, ensure_ascii=ensure_ascii))


class ProgressLine:
    """Show progress on a stream: one line that changes, or a new line at times.

    Parameters
    ----------
    stream : text stream, optional
        The stream; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._changing = self.stream.isatty()
        self._width = 0
        self._shown = time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        """Show the state of a run."""
        now = time.monotonic()
        ends = progress.done == progress.total
        pause = 0.1 if self._changing else _PAUSE
        if now - self._shown < pause and not ends:
            return
        self._shown = now
        text = describe(progress)
        if self._changing:
            self.stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def close(self) -> None:
        """End the changing line, so that the next text starts below it."""
        if self._changing and self._width:
            self.stream.write("\n")
            self.stream.flush()


def describe(progress: "Progress") -> str:
    """Describe the state of a run in one line.

    Parameters
    ----------
    progress : Progress
        The state.

    Returns
    -------
    str
        Units done, failures, time left, and the last unit.
    """
    share = 100 * progress.done // max(progress.total, 1)
    parts = [f"{progress.done}/{progress.total} ({share} %)"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.remaining is not None and progress.done < progress.total:
        parts.append(f"about {duration(progress.remaining)} left")
    if progress.last is not None:
        unit = progress.last.unit
        size = f" m={unit.m}" if unit.m else ""
        parts.append(f"{printable(unit.database)}{size} {unit.method}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Round a time to a unit that is easy to read.

    Parameters
    ----------
    seconds : float
        The time.

    Returns
    -------
    str
        For example "50 s", "4 min" or "2 h 5 min".

    Examples
    --------
    >>> from dualqml.cli._output import duration
    >>> duration(7500)
    '2 h 5 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
