# SPDX-License-Identifier: BSD-3-Clause
"""How commands print: text, JSON, and a line of progress."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

from dualqml._text import printable

if TYPE_CHECKING:
    from dualqml.experiments.runner import Progress as RunState

#: Seconds between two lines where the line cannot be overwritten, and where it can.
_PAUSE, _FRAME = 15.0, 0.1
#: Seconds in which a step may end without a line of progress.
_WAIT = 2.0


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
    if _shown is not None:
        _shown.wipe()
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


class _Line:
    """A line of progress on a stream: it changes, or is a new one at times.

    Parameters
    ----------
    stream : text stream or None
        The stream; None is standard error.
    wait : float
        Seconds in which nothing is shown at first.
    log : bool
        Whether a stream that is no terminal gets a new line at times, rather than
        nothing.
    quiet : bool
        Whether nothing is shown at all.
    """

    def __init__(
        self, stream: TextIO | None, *, wait: float, log: bool, quiet: bool
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._changes = self._stream.isatty()
        self._silent = quiet or not (self._changes or log)
        self._pause = _FRAME if self._changes else _PAUSE
        self._first = time.monotonic() + wait
        self._next = self._first + (0.0 if self._changes else _PAUSE)
        self._width = 0

    def is_due(self, *, ends: bool) -> bool:
        """Whether to show something now. A log is told the end too."""
        last = ends and not self._changes
        return not self._silent and time.monotonic() >= (
            self._first if last else self._next
        )

    def show(self, *texts: str) -> None:
        """Show the first text that fits into the line, or the begin of the last."""
        global _shown
        self._next = time.monotonic() + self._pause
        if not self._changes:
            self._stream.write(printable(texts[0]) + "\n")
        else:
            # In the last column, a terminal may start the next line.
            room = _columns(self._stream) - 1
            known = [_encodable(printable(text), self._stream) for text in texts]
            text = next((text for text in known if _width(text) <= room), known[-1])
            text = _cut(text, room)
            width = _width(text)
            self._stream.write(
                "\r" + text + " " * min(self._width - width, room - width)
            )
            self._width = width
            _shown = self
        self._stream.flush()

    def wipe(self) -> None:
        """Take the line away, so that the next text starts in its place."""
        global _shown
        if self._width:
            room = _columns(self._stream) - 1
            self._stream.write("\r" + " " * min(self._width, room) + "\r")
            self._stream.flush()
            self._width = 0
        if _shown is self:
            _shown = None


#: The line that a terminal shows now.
_shown: _Line | None = None


class Progress:
    """Show how far a step is and how long it still takes, on standard error.

    A terminal sees one line that changes, from the third second on. It is gone when
    the step ends. Other streams get nothing unless they are asked to.

    Parameters
    ----------
    title : str
        What is done, such as "Reading photographs".
    total : int, optional
        How many items there are, if that is known.
    quiet : bool, default=False
        Whether to show nothing.
    log : bool, default=False
        Whether a stream that is no terminal gets a line at times.
    stream : text stream, optional
        The stream; standard error by default.

    Examples
    --------
    >>> from dualqml.cli._output import Progress
    >>> with Progress("Reading photographs", 3) as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    """

    def __init__(
        self,
        title: str,
        total: int | None = None,
        *,
        quiet: bool = False,
        log: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self.title = title
        self.done = 0
        self.total = total
        self._line = _Line(stream, wait=_WAIT, log=log, quiet=quiet)
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how many items are done.

        Parameters
        ----------
        done : int
            How many items are done.
        total : int, optional
            How many items there are, if that was not known or has changed.
        """
        self.done = done
        self.total = self.total if total is None else total
        if self._line.is_due(ends=done == self.total):
            counts = ", ".join(_counts(done, self.total, self._remaining()))
            self._line.show(f"{self.title}: {counts}", counts)

    def advance(self, count: int = 1) -> None:
        """Count further items that are done.

        Parameters
        ----------
        count : int, default=1
            How many.
        """
        self(self.done + count)

    def close(self) -> None:
        """Take the line away."""
        self._line.wipe()

    def _remaining(self) -> float | None:
        if self.total is None or self.done <= 0:
            return None
        spent = time.monotonic() - self._start
        return spent / self.done * (self.total - self.done)


class StepProgress:
    """Show how far a fit in blocks is; see `dualqml.scale.fit_blocks`.

    Parameters
    ----------
    stream : text stream, optional
        The stream; standard error by default.

    Examples
    --------
    >>> from dualqml.cli._output import StepProgress
    >>> with StepProgress() as progress:
    ...     progress("shuffle", 0, 2)
    ...     progress("shuffle", 2, 2)
    ...     progress("solve", 0, 4)
    """

    _TITLES: ClassVar[Mapping[str, str]] = {
        "shuffle": "Sorting blocks of rows",
        "gather": "Gathering parts",
        "scatter": "Adding up parts",
        "solve": "Solving parts",
    }

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._step: tuple[str, Progress] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show how many tasks of a step are done."""
        if self._step is None or self._step[0] != step:
            self.close()
            shown = Progress(self._TITLES[step], total, log=True, stream=self._stream)
            self._step = step, shown
        self._step[1](done, total)

    def close(self) -> None:
        """Take the line away."""
        if self._step is not None:
            self._step[1].close()
            self._step = None


class ProgressLine:
    """Show the progress of an experiment, which may take hours.

    A terminal sees one line that changes, and a log a new line at times.

    Parameters
    ----------
    stream : text stream, optional
        The stream; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._line = _Line(stream, wait=0.0, log=True, quiet=False)

    def __call__(self, state: "RunState") -> None:
        """Show the state of a run."""
        if self._line.is_due(ends=state.done == state.total):
            self._line.show(describe(state))

    def close(self) -> None:
        """Take the line away."""
        self._line.wipe()


def describe(state: "RunState") -> str:
    """Describe the state of a run in one line.

    Parameters
    ----------
    state : dualqml.experiments.Progress
        The state.

    Returns
    -------
    str
        Units done, failures, time left, and the last unit.
    """
    first, *left = _counts(state.done, state.total, state.remaining)
    failed = [f"{state.failed} failed"] if state.failed else []
    parts = [first, *failed, *left]
    if state.last is not None:
        unit = state.last.unit
        size = f" m={unit.m}" if unit.m else ""
        parts.append(f"{printable(unit.database)}{size} {unit.method}")
    return ", ".join(parts)


def _counts(done: int, total: int | None, remaining: float | None) -> list[str]:
    """Say how much is done, and how long the rest takes if that is known."""
    if total is None:
        return [f"{done}"]
    parts = [f"{done}/{total} ({100 * done // max(total, 1)} %)"]
    if remaining is not None and done < total:
        parts.append(f"about {duration(remaining)} left")
    return parts


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


def _columns(stream: TextIO) -> int:
    """Return the width of a terminal in columns."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0  # as terminals say that do not know it
    return columns or shutil.get_terminal_size().columns


def _width(text: str) -> int:
    """Return the number of columns that printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    # Marks stand on the character before them.
    return sum(
        0
        if unicodedata.combining(char)
        else 1 + (unicodedata.east_asian_width(char) in "FW")
        for char in text
    )


def _cut(text: str, room: int) -> str:
    """Return the beginning of a text that fits into some columns."""
    while _width(text) > room and text:
        text = text[:-1]
    return text


def _encodable(text: str, stream: TextIO) -> str:
    """Replace characters that a stream would write as longer escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
