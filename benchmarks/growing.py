# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.growing``: enrolling and erasing in large galleries.

Each size and each kind of refit is measured in a process of its own, with one BLAS
thread. Times are CPU seconds. A change is timed together with the fit that follows it.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml.recognition import Recognizer

SIZES = (10_000, 100_000)
EACH, WIDTH = 3, 128
#: Probes whose scores are compared before and after the refit.
_PROBES = 20

#: Rows of the table, in order.
_ROWS = {
    "first": "first fit",
    "enrol": "enrol one person, first",
    "enrol again": "enrol one person, again",
    "erase": "erase one person",
    "search": "identify one, first after a change",
    "search again": "identify one, later",
    "refit": "the exact refit",
    "peak": "peak memory, MB",
    "change": "largest change of a score by the refit",
    "typical": "root mean square of these changes",
    "top": "searches with another best person",
}


def _person(number: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(number)
    mean = rng.normal(size=WIDTH)
    rows = mean + 0.8 * rng.normal(size=(EACH + 1, WIDTH)) + 0.3
    return rows.astype(np.float32)


def _peak() -> float:
    """The most memory of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1e3


def measure(n_people: int, refit: str) -> dict[str, float]:
    """Costs of one size and one kind of refit.

    Parameters
    ----------
    n_people : int
        People at first.
    refit : {"exact", "deferred"}
        The kind.

    Returns
    -------
    dict of str to float
        CPU seconds, and the other rows of the table.
    """
    found: dict[str, float] = {}

    def timed(name: str, action: Callable[[], Any]) -> None:
        start = time.process_time()
        action()
        found[name] = time.process_time() - start

    with threadpool_limits(1, user_api="blas"):
        recognizer: Any = Recognizer(threshold=5.0, refit=refit)
        for number in range(n_people):
            recognizer.enroll(f"person {number:07d}", _person(number)[:EACH])
        timed("first", recognizer.fit)

        def enrol(number: int) -> None:
            recognizer.enroll(f"person {number:07d}", _person(number)[:EACH])
            assert recognizer.chosen_parameters

        def erase(number: int) -> None:
            recognizer.remove(f"person {number:07d}")
            assert recognizer.chosen_parameters

        timed("enrol", lambda: enrol(n_people))
        timed("enrol again", lambda: enrol(n_people + 1))
        timed("erase", lambda: erase(5))
        probe = _person(n_people)[EACH]
        timed("search", lambda: recognizer.identify(probe))
        timed("search again", lambda: recognizer.identify(probe))
        assert recognizer.identify(probe).subject == f"person {n_people:07d}"
        if refit == "deferred":
            places = np.linspace(10, n_people - 1, _PROBES).astype(int)
            probes = np.array([_person(int(place))[EACH] for place in places])
            before = recognizer.scores(probes)
            timed("refit", recognizer.fit)
            after = recognizer.scores(probes)
            found["change"] = float(np.abs(after - before).max())
            found["typical"] = float(np.sqrt(np.mean((after - before) ** 2)))
            same = after.argmax(axis=1) == before.argmax(axis=1)
            found["top"] = float(np.sum(~same))
        found["peak"] = _peak()
    return found


def table(sizes: tuple[int, ...] = SIZES) -> str:
    """The costs of all sizes in Markdown.

    Parameters
    ----------
    sizes : tuple of int
        Numbers of people.

    Returns
    -------
    str
        The table.
    """
    found: dict[str, dict[str, float]] = {}
    for n_people in sizes:
        for refit in ("exact", "deferred"):
            # A process of its own, as memory is not given back.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                title = f"{n_people:,} people, {refit}"
                found[title] = pool.submit(measure, n_people, refit).result()
    rows = [
        [text, *(_shown(name, one.get(name)) for one in found.values())]
        for name, text in _ROWS.items()
    ]
    return markdown_table(["CPU seconds", *found], rows)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "peak":
        return f"{value:,.0f}"
    return f"{value:.0f}" if name == "top" else f"{value:.3g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=SIZES)
    print(table(tuple(parser.parse_args().people)))


if __name__ == "__main__":
    main()
