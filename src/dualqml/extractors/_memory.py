# SPDX-License-Identifier: BSD-3-Clause
"""Check that there is enough memory before it is used.

Operating systems may promise more memory than there is, and then end the process that
uses it. So a method whose memory grows with the square of the number of samples checks
first.
"""

import math
import os
import sys
from pathlib import Path

from dualqml.exceptions import NotEnoughMemoryError

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def available_memory() -> float:
    """Number of bytes that this process can still use.

    Returns
    -------
    float
        The smallest of the memory of the machine and of the limits of the process and
        of its container; infinity if the system does not say.
    """
    return max(0.0, min(_machine_memory(), _process_memory(), _container_memory()))


def require_pairs(
    who: str, n_samples: int, n_matrices: float, *, n_others: int | None = None
) -> None:
    """Check that there is memory for matrices of pairs of samples.

    Parameters
    ----------
    who : str
        The method that needs them, for the error.
    n_samples : int
        Number of samples.
    n_matrices : float
        Largest number of such matrices, in double precision, at the same time.
    n_others : int, optional
        Number of samples that all samples are paired with; all of them if not given.

    Raises
    ------
    NotEnoughMemoryError
        There is not enough memory.

    Examples
    --------
    >>> from dualqml.extractors._memory import require_pairs
    >>> require_pairs("KernelLDA", 100, 7)
    """
    n_others = n_samples if n_others is None else n_others
    needed = 8.0 * n_matrices * n_samples * n_others
    available = available_memory()
    if needed > available:
        pairs = f"all pairs of {n_samples} samples"
        if n_others < n_samples:
            pairs = f"{n_samples} samples and {n_others} landmarks"
        raise NotEnoughMemoryError(
            f"{who} needs about {_gigabytes(needed)} of memory for matrices of "
            f"{pairs}, and {_gigabytes(available)} are available. "
            "Use fewer samples, or a method without such matrices, for example "
            "Fisherfaces, or DualQMLW with kernel='linear'."
        )


def _machine_memory() -> float:
    try:
        lines = _MEMINFO.read_text().splitlines()
        kibibytes = {line.split(":")[0]: line.split()[1] for line in lines}
        return 1024.0 * (int(kibibytes["MemAvailable"]) + int(kibibytes["SwapFree"]))
    except (OSError, KeyError, IndexError, ValueError):
        pass
    try:
        # Less exact: all memory of the machine, used or not.
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _process_memory() -> float:
    if sys.platform == "win32":
        return math.inf
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    try:
        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        used = 0
    return float(limit - used)


def _container_memory() -> float:
    try:
        # The file contains "max" if there is no limit.
        return float(int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):
        return math.inf


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.3g} GB"
