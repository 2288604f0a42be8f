"""What tests let workers do."""

import os
import signal
import time

import dask
import numpy as np
from threadpoolctl import threadpool_info


def state():
    """What a worker's process is like, and its number."""
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    ready = {
        "BLAS threads": max(info["num_threads"] for info in libraries),
        "spills": dask.config.get("distributed.worker.memory.spill"),
        "deaf to Ctrl-C": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "new pages": new_pages() > 5_000,
    }
    return ready, os.getpid()


def new_pages():
    """How often large arrays come from the system instead of from freed memory."""
    import resource

    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            np.ones(2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def run_for_ever(pipe):
    """Tell that it runs; the other end of the pipe sees when this process ends."""
    with open(pipe, "wb", buffering=0) as out:
        out.write(b"!")
        while True:
            time.sleep(3600)


def length(shared, item):
    """How much has arrived."""
    return len(shared) + len(item)


def take_memory(_, megabytes):
    """Take memory; if it is much, until this process is killed."""
    taken = np.ones(125_000 * megabytes)
    if megabytes > 100:
        time.sleep(3600)
    return int(taken[-1])
