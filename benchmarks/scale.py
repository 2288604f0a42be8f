# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.scale``: fits in blocks, clusters, and search among many.

Every fit is measured in a process of its own, in turn with its rival, with one BLAS
thread. CPU times are those of all processes that take part: of a cluster, the workers
and the process that leads them, after the start. Peaks are those of the resident
memory (``VmHWM``).

    python -m benchmarks.scale                      # all tables, about half an hour
    python -m benchmarks.scale --only fits,million  # some of them
    python -m benchmarks.scale --dask tcp://host:8786 --scratch /shared --only cluster
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import cluster_experiments, search
from benchmarks.timing import markdown_table, peak_resident_megabytes
from dualqml import DualQMLW
from dualqml.scale import connected, fit_blocks
from tests.datasets import has_database, load_samples

EACH, WIDTH = 3, 128
#: Bytes of parts where a cluster needs more of them: ten for 10^5 classes.
_SMALL_PARTS = 32_000_000
#: Sizes of the galleries that are searched.
_SEARCHED = (100_000, 1_000_000)
_TEN_PARTS = ("Dask, one worker, ten parts", "Dask, two workers, ten parts")


def make_people(n_people: int, folder: Path) -> Path:
    """Write three samples each of made-up people to a file, in random order.

    With the LFW embeddings at hand, people and samples have their covariances; else a
    decaying spectrum.
    """
    path = folder / f"people-{n_people}.npy"
    if path.exists():
        return path
    between, within = _factors()
    rng = np.random.default_rng(n_people)
    shape = (EACH * n_people, WIDTH)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, n_people, 10_000):
        n_own = min(10_000, n_people - start)
        means = rng.normal(size=(n_own, WIDTH)) @ between
        noise = rng.normal(size=(EACH * n_own, WIDTH)) @ within
        block = slice(EACH * start, EACH * (start + n_own))
        rows[block] = np.repeat(means, EACH, axis=0) + noise
    rows.flush()
    return path


def _factors() -> tuple[NDArray[Any], NDArray[Any]]:
    """Roots of the scatters between and within people."""
    if not has_database("lfw_embeddings"):
        between = np.diag(0.97 ** np.arange(WIDTH))
        return between, 0.5 * between
    rows, labels = load_samples("lfw_embeddings")
    _, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes)
    means = np.zeros((counts.size, rows.shape[1]))
    np.add.at(means, codes, rows)
    means /= counts[:, None]
    return _root(np.cov(means.T)), _root(np.cov((rows - means[codes]).T))


def _root(scatter: NDArray[Any]) -> NDArray[Any]:
    variances, directions = np.linalg.eigh(scatter)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0))[:, None] * directions.T)


# What runs in a process of its own


def fit_once(kind: str, path: str, **options: Any) -> dict[str, float]:
    """Fit in one of the ways, and tell what it took."""
    people = np.load(path, mmap_mode="r")
    labels = np.repeat(np.arange(len(people) // EACH), EACH)
    estimator = DualQMLW(kernel="linear", rule="max")
    if kind == "local":
        rows = np.array(people)
        start = time.process_time()
        model = estimator.fit(rows, labels)
        seconds = time.process_time() - start
        return {
            "cpu": seconds,
            "peak": peak_resident_megabytes(),
            "gap": float(model.qml_.duality_gap_.max()),
        }
    if kind == "limited":
        # Private memory; the pages of files that are read are not part of it.
        resource.setrlimit(resource.RLIMIT_DATA, 2 * (options["limit"],))
    if kind != "cluster":
        start, clock = time.process_time(), time.perf_counter()
        blocks = fit_blocks(estimator, path, labels)
        return {
            "cpu": time.process_time() - start,
            "wall": time.perf_counter() - clock,
            "peak": peak_resident_megabytes(),
            "gap": float(blocks.duality_gap_.max()),
            "shards": blocks.n_shards,
        }
    with connected(
        options["place"],
        workers=options.get("workers"),
        memory_limit=options.get("memory_limit"),
        scratch=options.get("scratch"),
    ) as client:
        if options.get("workers"):
            client.wait_for_workers(options["workers"])
        # Imports are part of the start.
        client.run(_import_all)
        before = sum(client.run(time.process_time).values()) + time.process_time()
        clock = time.perf_counter()
        blocks = fit_blocks(
            estimator,
            path,
            labels,
            client=client,
            scratch=options.get("shared"),
            part_bytes=options["part_bytes"],
        )
        wall = time.perf_counter() - clock
        after = sum(client.run(time.process_time).values()) + time.process_time()
        peaks = client.run(peak_resident_megabytes)
        return {
            "cpu": after - before,
            "wall": wall,
            "peak": max(*peaks.values(), peak_resident_megabytes()),
            "gap": float(blocks.duality_gap_.max()),
            "shards": blocks.n_shards,
        }


def _import_all() -> None:
    import dualqml.scale.fitting  # noqa: F401


def measure(kind: str, path: Path, **options: Any) -> dict[str, float]:
    """Run `fit_once` in a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.scale", "--fit", kind, str(path)]
    found = subprocess.run(
        [*command, "--options", json.dumps(options)],
        env=os.environ | threads,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.median([run[name] for run in runs])) for name in runs[0]}


# The tables


def fits_table(folder: Path, repeats: int = 2) -> str:
    """Blocks in order against a local fit, at 10^5 people."""
    path = make_people(100_000, folder)
    runs: dict[str, list[dict[str, float]]] = {"local": [], "blocks": []}
    for _ in range(repeats):
        for kind, found in runs.items():
            found.append(measure(kind, path))
    local, blocks = (_medians(found) for found in runs.values())
    rows = [
        ["local fit", f"{local['cpu']:.1f}", "", "", f"{local['peak']:.0f}", ""],
        [
            "blocks in order",
            f"{blocks['cpu']:.1f}",
            f"{blocks['cpu'] / local['cpu']:.2f}",
            "1.0",
            f"{blocks['peak']:.0f}",
            "600",
        ],
    ]
    header = ["10^5 x 3 x 128", "CPU s", "ratio", "bar", "peak MB", "bar"]
    return markdown_table(header, rows)


def cluster_table(
    folder: Path, repeats: int = 5, place: str = "local", **options: Any
) -> str:
    """Dask with one and two workers against blocks in order, at 10^5 people."""
    path = make_people(100_000, folder)
    settings = {"place": place, "part_bytes": 64_000_000, **options}
    kinds: dict[str, Callable[[], dict[str, float]]] = {
        "blocks in order": lambda: measure("blocks", path),
        "Dask, one worker": lambda: measure("cluster", path, workers=1, **settings),
    }
    if place == "local":
        small = settings | {"part_bytes": _SMALL_PARTS}
        kinds[_TEN_PARTS[0]] = lambda: measure("cluster", path, workers=1, **small)
        kinds[_TEN_PARTS[1]] = lambda: measure("cluster", path, workers=2, **small)
    else:
        del kinds["Dask, one worker"]
        kinds["Dask"] = lambda: measure("cluster", path, **settings)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(repeats):
        for name, run in kinds.items():
            runs[name].append(run())
    found = {name: _medians(results) for name, results in runs.items()}
    base = found["blocks in order"]
    rows = [
        [
            name,
            f"{one['cpu']:.1f}",
            f"{one['cpu'] / base['cpu']:.2f}",
            f"{one['wall']:.1f}",
            f"{one['peak']:.0f}",
        ]
        for name, one in found.items()
    ]
    text = markdown_table(
        ["10^5 x 3 x 128", "CPU s", "ratio to in order", "s", "largest peak MB"], rows
    )
    if place == "local":
        one, two = (found[name]["wall"] for name in _TEN_PARTS)
        text += f"\n\nFrom one to two workers: {one / two:.2f} times as fast (bar 1.6)."
    return text


def million_table(folder: Path) -> str:
    """From 10^4 to 10^6 people: blocks in order, and at 10^6 one and two workers."""
    rows, per_class, seconds = [], [], []
    for n_people in (10_000, 100_000, 1_000_000):
        path = make_people(n_people, folder)
        # Data of one part are fitted as usual.
        found = measure("blocks", path)
        per_class.append(found["cpu"] / n_people)
        rows.append(_size_row(n_people, "in order", found))
    for workers, name in ((1, "one worker"), (2, "two workers")):
        found = measure(
            "cluster", path, place="local", workers=workers, part_bytes=64_000_000
        )
        seconds.append(found["wall"])
        rows.append(_size_row(n_people, name, found))
    header = ["people", "", "CPU s", "ms a class", "s", "peak MB", "shards", "gap"]
    ratio = max(per_class) / min(per_class)
    return markdown_table(header, rows) + (
        f"\n\nCPU time for a class, largest to smallest: {ratio:.2f} (bar 1.4). "
        f"From one to two workers: {seconds[0] / seconds[1]:.2f} times as fast."
    )


def _size_row(n_people: int, how: str, found: dict[str, float]) -> list[str]:
    return [
        f"{n_people:,}",
        how,
        f"{found['cpu']:.1f}",
        f"{1e3 * found['cpu'] / n_people:.3f}",
        f"{found['wall']:.1f}",
        f"{found['peak']:.0f}",
        f"{found['shards']:.0f}",
        f"{found['gap']:.0e}",
    ]


def limit_table(folder: Path) -> str:
    """Data four times larger than the limit of private memory of the process."""
    single = np.load(make_people(1_000_000, folder), mmap_mode="r")
    path = folder / "people-double.npy"
    rows = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float64, shape=single.shape
    )
    for start in range(0, len(single), 100_000):
        rows[start : start + 100_000] = single[start : start + 100_000]
    rows.flush()
    size = path.stat().st_size
    limit = size // 4
    found = measure("limited", path, limit=limit)
    row = [
        "10^6 x 3 x 128",
        f"{size / 1e6:.0f}",
        f"{limit / 1e6:.0f}",
        f"{found['peak']:.0f}",
        f"{found['cpu']:.0f}",
    ]
    header = ["people", "data MB", "RLIMIT_DATA MB", "peak resident MB", "CPU s"]
    return markdown_table(header, [row])


def search_table(folder: Path) -> str:
    """Searches; see `benchmarks.search`."""
    return search.table(_SEARCHED)


def experiments_table(folder: Path) -> str:
    """Units of an experiment; see `benchmarks.cluster_experiments`."""
    return cluster_experiments.table()


TABLES: dict[str, Callable[[Path], str]] = {
    "fits": fits_table,
    "cluster": cluster_table,
    "million": million_table,
    "limit": limit_table,
    "search": search_table,
    "experiments": experiments_table,
}


@contextmanager
def _data_folder(path: Path | None) -> Iterator[Path]:
    """The folder for made-up people."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    """Print the tables, or fit once if asked to by `measure`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help=f"some of {','.join(TABLES)}, by commas")
    parser.add_argument("--data", type=Path, help="keep the made-up people here")
    parser.add_argument("--dask", default="local", help="as of dualqml reproduce")
    parser.add_argument("--memory-limit", help="of each process of --dask local")
    parser.add_argument("--scratch", help="a folder that all workers see")
    parser.add_argument("--fit", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--options", default="{}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit_once(*options.fit, **json.loads(options.options))))
        return
    names = options.only.split(",") if options.only else list(TABLES)
    with _data_folder(options.data) as folder:
        for name in names:
            if name == "cluster":
                cluster = {"place": options.dask, "memory_limit": options.memory_limit}
                if options.dask != "local":
                    cluster["shared"] = options.scratch
                text = cluster_table(folder, **cluster)
            else:
                text = TABLES[name](folder)
            print(f"\n## {name}\n\n{text}", flush=True)


if __name__ == "__main__":
    main()
