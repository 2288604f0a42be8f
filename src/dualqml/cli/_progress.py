# SPDX-License-Identifier: BSD-3-Clause
"""A line that says how far a long command is."""

import sys
import time
from typing import TextIO

from dualqml._text import printable
from dualqml.experiments.runner import Progress

#: Seconds between two lines where the line cannot be overwritten.
_PAUSE = 15.0


class ProgressLine:
    """Show progress on a stream: one line that changes, or now and then a new one.

    Parameters
    ----------
    stream : text stream, optional
        Where; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._changing = self.stream.isatty()
        self._width = 0
        self._shown = time.monotonic()

    def __call__(self, progress: Progress) -> None:
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
        """Leave the changing line behind."""
        if self._changing and self._width:
            self.stream.write("\n")
            self.stream.flush()


def describe(progress: Progress) -> str:
    """State of a run in a line.

    Parameters
    ----------
    progress : Progress
        The state.

    Returns
    -------
    str
        Units, failures, time left, and what came last.
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
    """Seconds as a person would say them.

    Parameters
    ----------
    seconds : float
        How long.

    Returns
    -------
    str
        For example "50 s", "4 min" or "2 h 5 min".
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
