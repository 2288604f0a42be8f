"""Methods that compare all pairs of samples ask for memory before they take it."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dualqml.exceptions import DualQMLError, NotEnoughMemoryError
from dualqml.extractors import (
    CFA,
    ERKDA,
    LPP,
    MFA,
    MLE,
    DualQMLW,
    DualQMLWCV,
    Fisherfaces,
    KernelLDA,
    WithinMetric,
    _memory,
)
from dualqml.extractors._memory import available_memory, require_pairs

N_SAMPLES = 300
IMAGES = {"tangents": 0.3, "image_shape": (6, 6)}
#: Estimators, and how much more memory than estimated they may use, in matrices of all
#: pairs.
PAIRWISE = [
    pytest.param(KernelLDA(), 1, id="KernelLDA"),
    pytest.param(KernelLDA(kernel="linear"), 1, id="KernelLDA-linear"),
    pytest.param(KernelLDA(**IMAGES), 2, id="KernelLDA-tangents"),
    pytest.param(ERKDA(), 2.5, id="ERKDA"),  # 2.1 with Python 3.14
    pytest.param(ERKDA(kernel="linear"), 1, id="ERKDA-linear"),
    pytest.param(ERKDA(kernel="igo", image_shape=(6, 6)), 1, id="ERKDA-igo"),
    pytest.param(ERKDA(**IMAGES), 4, id="ERKDA-tangents"),
    pytest.param(LPP(), 1, id="LPP"),
    pytest.param(LPP(supervised=True), 1, id="LPP-supervised"),
    pytest.param(MFA(), 1, id="MFA"),
    pytest.param(MLE(), 1, id="MLE"),
    pytest.param(CFA(filter="otf"), 1, id="CFA"),
    pytest.param(WithinMetric(kernel="rbf"), 1, id="WithinMetric"),
    pytest.param(
        WithinMetric(kernel="rbf", image_shape=(6, 6)), 2, id="WithinMetric-images"
    ),
]


def samples():
    data = np.random.default_rng(0).normal(size=(N_SAMPLES, 36))
    return data, np.arange(N_SAMPLES) % 10


def estimated_matrices(monkeypatch, estimator):
    """Number of matrices of all pairs that an estimator needs by its own estimate."""
    with monkeypatch.context() as patch:
        patch.setattr(_memory, "available_memory", lambda: 0.0)
        patch.setattr(_memory, "_gigabytes", lambda n_bytes: f"[{n_bytes}]")
        with pytest.raises(NotEnoughMemoryError) as refused:
            estimator.fit(*samples())
    return float(str(refused.value).partition("[")[2].partition("]")[0]) / (
        8 * N_SAMPLES**2
    )


@pytest.mark.parametrize(("estimator", "slack"), PAIRWISE)
def test_the_estimate_is_close_to_the_memory_used_and_not_above(
    monkeypatch, estimator, slack
):
    estimated = estimated_matrices(monkeypatch, estimator)
    data, labels = samples()
    # What the libraries load once, at the first fit, is not counted.
    estimator.fit(data, labels)
    tracemalloc.start()
    try:
        estimator.fit(data, labels)
        used = tracemalloc.get_traced_memory()[1] / (8 * N_SAMPLES**2)
    finally:
        tracemalloc.stop()
    # A larger estimate would refuse fits that are possible.
    assert estimated <= used <= estimated + slack


@pytest.mark.parametrize(
    "estimator",
    [case.values[0] for case in PAIRWISE[:-1]] + [DualQMLW(kernel="rbf"), DualQMLWCV()],
)
def test_no_memory_is_allocated_if_there_is_not_enough(monkeypatch, estimator):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2e5)
    data, labels = samples()
    # What the libraries load once, at the first fit, is not counted.
    with pytest.raises(NotEnoughMemoryError):
        estimator.fit(data, labels)
    tracemalloc.start()
    try:
        with pytest.raises(NotEnoughMemoryError, match=r"300 samples, and 0\.0002 GB"):
            estimator.fit(data, labels)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used < 0.9 * 8 * N_SAMPLES**2


def test_methods_without_such_matrices_do_not_check(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 0.0)
    Fisherfaces().fit(*samples())
    DualQMLW(kernel="linear").fit(*samples())


def test_the_error_is_of_both_kinds_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 16e9)
    require_pairs("KernelLDA", 10_000, 7)
    with pytest.raises(MemoryError) as refused:
        require_pairs("KernelLDA", 100_000, 7)
    assert isinstance(refused.value, DualQMLError)
    assert str(refused.value).startswith(
        "KernelLDA needs about 560 GB of memory for matrices of all pairs of 100000 "
        "samples, and 16 GB are available. Use fewer samples, or "
    )


def test_available_memory_is_read_from_the_system(monkeypatch, tmp_path):
    monkeypatch.setattr(_memory, "_process_memory", lambda: np.inf)
    for name in ("_MEMINFO", "_CGROUP_LIMIT"):
        monkeypatch.setattr(_memory, name, tmp_path / name)
    meminfo = "MemTotal: 9000 kB\nMemAvailable:  3000 kB\nSwapFree:   1000 kB\n"
    (tmp_path / "_MEMINFO").write_text(meminfo)
    (tmp_path / "_CGROUP_LIMIT").write_text("max\n")
    assert available_memory() == 4000 * 1024
    (tmp_path / "_CGROUP_LIMIT").write_text("1000000\n")
    assert available_memory() == 1_000_000
    # A system of another kind.
    (tmp_path / "_CGROUP_LIMIT").unlink()
    for content in ("", "MemTotal: 9000 kB\n", "MemAvailable:\nSwapFree:\n"):
        (tmp_path / "_MEMINFO").write_text(content)
        assert available_memory() > 1e6
    monkeypatch.delattr("os.sysconf")
    assert available_memory() == np.inf


_LIMITED = """
import resource
import numpy as np
from dualqml.core import NotEnoughMemoryError
from dualqml.extractors import {name}
from tests.peak_memory import peak_bytes
X = np.random.default_rng(0).normal(size=(20_000, 4))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY))
try:
    {name}().fit(X, np.arange(20_000) % 7)
except NotEnoughMemoryError as error:
    print(error, peak_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize("name", ["KernelLDA", "ERKDA", "LPP", "MFA", "MLE"])
def test_a_limit_of_the_process_is_kept(name):
    ended = subprocess.run(
        [sys.executable, "-c", _LIMITED.format(name=name)],
        capture_output=True,
        text=True,
        # Threads of BLAS take of the limit too, many on large machines.
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{name} needs about")
    # Not a single matrix of all pairs was there: it would have used 3.2 GB.
    assert int(ended.stdout.split()[-1]) < 1_000_000_000
