# SPDX-License-Identifier: BSD-3-Clause
"""Whether memory will do, asked before it is taken.

Systems promise more memory than they have, and end a process that takes them at
their word. So a method whose memory grows with the square of the number of samples
asks first.
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
    """Bytes that this process can still be given.

    Returns
    -------
    float
        The least of what the machine, the limit of the process and that of its
        container leave; infinity where the system does not tell.
    """
    return max(0.0, min(_of_machine(), _of_process(), _of_container()))


def require_pairs(who: str, n_samples: int, n_matrices: float) -> None:
    """Check that there is memory for matrices of all pairs of samples.

    Parameters
    ----------
    who : str
        What needs them, for the error.
    n_samples : int
        Number of samples.
    n_matrices : float
        How many such matrices, in double precision, are held at a time at most.

    Raises
    ------
    NotEnoughMemoryError
        They would not fit.

    Examples
    --------
    >>> from dualqml.extractors._memory import require_pairs
    >>> require_pairs("KernelLDA", 100, 7)
    """
    needed = 8.0 * n_matrices * n_samples**2
    available = available_memory()
    if needed > available:
        raise NotEnoughMemoryError(
            f"{who} needs about {_size(needed)} of memory for matrices of all pairs "
            f"of {n_samples} samples, and {_size(available)} are available. Use fewer "
            "samples, or a method without such matrices, for example Fisherfaces, or "
            "DualQMLW with kernel='linear'."
        )


def _of_machine() -> float:
    try:
        lines = _MEMINFO.read_text().splitlines()
        kibibytes = {line.split(":")[0]: line.split()[1] for line in lines}
        return 1024.0 * (int(kibibytes["MemAvailable"]) + int(kibibytes["SwapFree"]))
    except (OSError, KeyError, IndexError, ValueError):
        pass
    try:
        # Better than nothing: all the memory there is.
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _of_process() -> float:
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


def _of_container() -> float:
    try:
        # "max" where there is no limit.
        return float(int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):
        return math.inf


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.3g} GB"
