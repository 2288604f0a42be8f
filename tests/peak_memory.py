"""The peak memory of this process."""

import resource
import sys
from pathlib import Path


def peak_bytes():
    """Most memory that this process has held.

    On Linux `getrusage` also counts what the parent held when it started this process.
    """
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
