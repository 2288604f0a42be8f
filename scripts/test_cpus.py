#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run the numerical tests with OpenBLAS's kernels for several processors.

OpenBLAS picks its kernels by the processor it finds; ``OPENBLAS_CORETYPE`` makes it
take others, which round differently. Kernels that this processor cannot run are
named and left out. ``--quick`` runs the part that is most sensitive to rounding.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROCESSORS = (
    "Haswell",
    "SkylakeX",
    "Cooperlake",
    "Zen",
    "Sandybridge",
    "Nehalem",
    "Prescott",
)
ALL = ["tests/core", "tests/extractors"]
QUICK = [
    "tests/core/test_exact_judge.py::test_nearly_identical_samples",
    "tests/core/test_exact_judge.py::test_a_class_in_dropped_directions_is_solved",
    "tests/core/test_newton.py",
    "tests/core/test_certificate.py",
    "tests/core/test_solve_part.py::test_any_division_of_the_classes_is_the_local_solution",
    "tests/extractors/test_dual_qml.py",
    "tests/extractors/test_leave_one_out.py",
    "--deselect",
    "tests/extractors/test_dual_qml.py::test_interrupt_stops_a_long_fit_promptly",
]
PROBE = """
import numpy, scipy.linalg, threadpoolctl
a = numpy.random.default_rng(0).normal(size=(200, 200))
numpy.linalg.eigh(a @ a.T), scipy.linalg.svd(a)
print(*{pool.get("architecture") for pool in threadpoolctl.threadpool_info()
        if pool["internal_api"] == "openblas"})
"""


def environment(kernel: str) -> dict[str, str]:
    """The environment of a process that uses a kernel, one thread each."""
    return {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}


def kernel_in_use(name: str) -> str:
    """The kernel that OpenBLAS takes for a processor; empty if it cannot run here."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=environment(name),
        capture_output=True,
        text=True,
        check=False,
    )
    return probe.stdout.strip() if probe.returncode == 0 else ""


def run_tests(kernel: str, tests: list[str], n_processes: int) -> tuple[bool, str]:
    """Whether the tests pass with a kernel, and what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(n_processes), *tests]
    done = subprocess.run(
        command,
        env=environment(kernel),
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout


def main() -> int:
    """Run the tests with every kernel that there is; 1 if any fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="in under a minute")
    parser.add_argument("processors", nargs="*", default=PROCESSORS)
    options = parser.parse_args()
    used: dict[str, str] = {}
    for name in options.processors:
        kernel = kernel_in_use(name)
        if not kernel:
            print(f"{name}: its kernel does not run on this processor, left out")
        elif kernel in used:
            print(f"{name}: the same kernel as {used[kernel]}")
        else:
            used[kernel] = name
    # Small jobs side by side, large ones one after the other in parallel.
    tests, side_by_side = (QUICK, 2) if options.quick else (ALL, 1)
    n_processes = 0 if options.quick else 2
    failed = []
    with ThreadPoolExecutor(side_by_side) as pool:
        results = pool.map(
            lambda name: run_tests(name, tests, n_processes), used.values()
        )
        for name, (passed, output) in zip(used.values(), results, strict=True):
            print(f"{name}: {output.strip().splitlines()[-1]}", flush=True)
            if not passed:
                print(output)
                failed.append(name)
    if failed:
        print(f"Tests fail with the kernels of {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
