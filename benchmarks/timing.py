# SPDX-License-Identifier: BSD-3-Clause
"""Timing that is robust on a noisy machine, and tables in Markdown."""

import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np


def interleaved_medians(
    actions: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, float]:
    """Median CPU seconds of each action, after a warm-up.

    The actions run in turn, so that all of them meet the same noise. Compare ratios
    rather than seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.process_time()
            action()
            seconds[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def peak_megabytes(action: Callable[[], object]) -> float:
    """The most memory that an action has allocated at any moment."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def peak_resident_megabytes() -> float:
    """The most memory that this process has had in RAM, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1e3


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Rows of text as a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
