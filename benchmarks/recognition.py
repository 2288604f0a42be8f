# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.recognition``: the cost of enrolment, erasure and search.

CPU seconds with one BLAS thread. The first table compares one enrolment and one
removal, each with the fit that follows, with a full fit from all samples. The second
is a search for one vector in galleries of growing size, loaded from a file.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml.recognition import Recognizer

GALLERIES = [
    ("AR-sized, images", 200, 2, "image"),
    ("FRGC-sized, images", 200, 8, "image"),
    ("AR-sized, vectors", 200, 2, "vector"),
    ("FRGC-sized, vectors", 200, 8, "vector"),
]


def samples(n_people: int, each: int, kind: str, seed: int = 0) -> np.ndarray:
    """Synthetic people: smooth images of 32 x 32, or vectors of length 128."""
    rng = np.random.default_rng(seed)
    size = (32, 32) if kind == "image" else (128,)
    own = rng.normal(size=(n_people, 1, *size))
    rows = own + 0.7 * rng.normal(size=(n_people, each, *size))
    if kind == "vector":
        return rows
    smooth = gaussian_filter(rows, (0, 0, 1.5, 1.5))
    low, high = smooth.min(), smooth.max()
    return np.round(255 * (smooth - low) / (high - low)).astype(np.uint8)


def cpu(action) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def enrolment_rows() -> list[list[str]]:
    out = []
    for title, n_people, each, kind in GALLERIES:
        people = samples(n_people + 1, each, kind)
        names = [f"person {n:04d}" for n in range(n_people + 1)]

        def everybody(people=people, names=names) -> Recognizer:
            recognizer = Recognizer()
            for name, own in zip(names[:-1], people[:-1], strict=True):
                recognizer.enroll(name, own)
            return recognizer.fit()

        recognizer = everybody()
        full = cpu(everybody)
        recognizer.enroll(names[-1], people[-1])
        more = cpu(recognizer.fit)
        recognizer.remove(names[7])
        less = cpu(recognizer.fit)
        out.append(
            [
                title,
                f"{n_people} x {each}",
                f"{full:.2f}",
                f"{more:.2f} ({more / full:.2f})",
                f"{less:.2f} ({less / full:.2f})",
            ]
        )
    return out


_SEARCH = """
import resource, sys, time
import numpy as np
from dualqml.recognition import Recognizer

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() / 1e6


before = resident()
start = time.perf_counter()
recognizer = Recognizer.load(sys.argv[1], verify=False)
loaded = time.perf_counter()
probe = np.random.default_rng(9).normal(size=128)
recognizer.identify(probe)
first = time.perf_counter()
for _ in range(20):
    recognizer.identify(probe)
end = time.perf_counter()
print(loaded - start, first - loaded, (end - first) / 20, resident() - before)
"""


def search_rows() -> list[list[str]]:
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for n_people in (100, 1000, 10_000, 100_000):
            path = Path(folder, f"{n_people}.dualqml")
            recognizer = Recognizer(threshold=0.0)
            people = samples(n_people, 2, "vector").reshape(-1, 128)
            names = np.repeat([f"person {n:06d}" for n in range(n_people)], 2)
            recognizer.enroll_many(people, names.tolist())
            fit = cpu(recognizer.fit)
            recognizer.save(path)
            ended = subprocess.run(
                [sys.executable, "-c", _SEARCH, str(path)],
                capture_output=True,
                text=True,
                check=True,
            )
            load, first, each, memory = map(float, ended.stdout.split())
            out.append(
                [
                    f"{n_people}",
                    f"{fit:.2f}",
                    f"{path.stat().st_size / 1e6:.1f}",
                    f"{load:.3f}",
                    f"{1e3 * first:.1f}",
                    f"{1e3 * each:.2f}",
                    f"{memory:.0f}",
                ]
            )
    return out


def main() -> None:
    """Print the tables."""
    with threadpool_limits(1, user_api="blas"):
        header = ["gallery", "people x samples", "full fit s"]
        header += ["one more s (ratio)", "one less s (ratio)"]
        print(markdown_table(header, enrolment_rows()), flush=True)
        header = ["subjects", "fit s", "file MB", "load s", "first search ms"]
        header += ["next ones ms", "memory MB"]
        print(markdown_table(header, search_rows()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest memory of the whole run: {peak:.0f} MB")


if __name__ == "__main__":
    main()
