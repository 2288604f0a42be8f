"""What the import of the core loads."""

import subprocess
import sys

import pytest

HEAVY = ("sklearn", "joblib", "threadpoolctl", "cvxpy", "matplotlib", "PIL")


def loaded_by(code):
    """Top-level packages that a new interpreter has loaded after some code."""
    code += "\nimport sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import dualqml.core",
        "from dualqml.core import scatter_spectrum, solve_certified",
        "import dualqml; dualqml.core",
    ],
)
def test_core_loads_numpy_and_scipy_only(code):
    loaded = loaded_by(code)
    assert {"dualqml", "numpy", "scipy"} <= loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_check_would_notice_scikit_learn():
    assert "sklearn" in loaded_by("from dualqml.extractors import DualQML")
