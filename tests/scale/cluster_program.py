"""A cluster in a process of its own, which tests can reach, interrupt and kill.

It prints the address of the scheduler and the numbers of all its processes, then waits
until its input ends.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from dualqml.scale import connected


def with_tests_on_path():
    """The environment of a process that imports from the tests."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def program(scratch):
    """Start the program; give it, the address and the numbers of its workers.

    Its temporary files, which stay if it is killed, are in the folder ``scratch``.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, scratch],
        env=with_tests_on_path(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            address, *workers = process.stdout.readline().split()
            yield process, address, [int(worker) for worker in workers]
        finally:
            # It ends when its input does; what was killed has ended.
            process.stdin.close()


def main():
    settings = {"workers": 1, "memory_limit": 0, "scratch": sys.argv[1]}
    with connected("local", **settings) as client:
        workers = client.run(os.getpid).values()
        print(client.scheduler.address, *workers, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
