# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks``: print the tables of speed in Markdown."""

import platform

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_limits

from benchmarks import scaling, solver


def main() -> None:
    """Measure with one BLAS thread and print."""
    with threadpool_limits(1, user_api="blas"):
        comparison = solver.table()
        growth = scaling.table()
    print(
        f"\nPython {platform.python_version()}, NumPy {np.__version__}, SciPy "
        f"{scipy.__version__}, scikit-learn {sklearn.__version__}; CPU time, one BLAS "
        "thread, medians of interleaved runs.\nPairs are for lam = 1 and lam = 100.\n"
    )
    print(comparison)
    print(
        "\nCost against classes, samples of each and features (synthetic, lam = 1):\n"
    )
    print(growth)


if __name__ == "__main__":
    main()
