# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.design``: the figures behind the decisions of docs/design.md.

The share of a fit that LAPACK and BLAS do already, the private memory that two readers
of safetensors take, the CPU time of imports, and that of one search in photographs.
"""

import cProfile
import pstats
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dualqml import DualQML
from dualqml.data import load_orl
from dualqml.persistence import write_tensors
from tests.datasets import training_set

#: Functions whose own time is an eigendecomposition or a matrix product.
_LINEAR_ALGEBRA = {"eigh", "scatter_spectrum", "back_project", "_append"}

_READ = """
import sys
from pathlib import Path

def private_kilobytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    dirty = next(line for line in lines if line.startswith("Private_Dirty"))
    return int(dirty.split()[1])

from dualqml.persistence import read_tensors
from safetensors.numpy import load_file

before = private_kilobytes()
reader, path = sys.argv[1:]
if reader == "package":
    arrays = load_file(path)
else:
    arrays, _ = read_tensors(path, verify=False)
arrays["a"][::1000].sum()
print(private_kilobytes() - before)
"""


def share_of_linear_algebra(per_class: int = 8) -> float:
    """Share of the time of a fit on AR that LAPACK and BLAS take."""
    data = training_set("ar", per_class)
    DualQML().fit(data.X, data.y)
    profile = cProfile.Profile()
    with threadpool_limits(1, user_api="blas"):
        profile.runcall(DualQML().fit, data.X, data.y)
    own = {key: row[2] for key, row in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]
    known = sum(time for key, time in own.items() if key[2] in _LINEAR_ALGEBRA)
    return known / sum(own.values())


def private_megabytes(reader: str, path: Path) -> float:
    """Private memory that a process takes to read a file."""
    command = [sys.executable, "-c", _READ, reader, str(path)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout) / 1024


def import_seconds(module: str) -> float:
    """CPU time of an import, least of five, less that of an empty process."""
    return cpu_seconds("-c", f"import {module}") - cpu_seconds("-c", "pass")


def cpu_seconds(*words: str) -> float:
    """CPU time of a process of Python, least of five."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Nobody who is enrolled is an answer too, with exit code 3.
        subprocess.run([sys.executable, *words], check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
    return min(times)


def identify_seconds(folder: Path) -> float:
    """CPU time of ``dualqml identify`` on one photograph: an ORL face on a wall."""
    from PIL import Image

    image = np.full((264, 264), 128, dtype=np.uint8)
    face = load_orl(size=(224, 184)).images[0]
    image[20:244, 40:224] = face
    photograph = folder / "photographs" / "Ann" / "1.png"
    photograph.parent.mkdir(parents=True)
    Image.fromarray(image).save(photograph)
    model = str(folder / "people.dualqml")
    people, train = (
        str(photograph.parents[1]),
        [sys.executable, "-m", "dualqml", "train"],
    )
    subprocess.run(
        [*train, people, "-o", model, "--input", "photographs"],
        check=True,
        capture_output=True,
    )
    return cpu_seconds("-m", "dualqml", "identify", model, str(photograph))


def main() -> None:
    """Measure and print."""
    print(f"eigendecomposition and products in a fit: {share_of_linear_algebra():.0%}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.safetensors")
        write_tensors(path, {"a": np.random.default_rng(0).random(40_000_000)}, {})
        size = path.stat().st_size / 1e6
        for reader in ("package", "ours"):
            taken = private_megabytes(reader, path)
            print(f"private memory for {size:.0f} MB, {reader}: {taken:.0f} MB")
    for module in ("argparse", "click", "sklearn.base"):
        print(f"import {module}: {import_seconds(module):.3f} s of CPU time")
    print(f"dualqml --help: {cpu_seconds('-m', 'dualqml', '--help'):.3f} s of CPU time")
    with tempfile.TemporaryDirectory() as folder:
        seconds = identify_seconds(Path(folder))
        print(f"dualqml identify, one photograph: {seconds:.3f} s of CPU time")


if __name__ == "__main__":
    main()
