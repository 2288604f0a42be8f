# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.competitors``: errors of all methods, in Markdown.

m random images of each person are used for training and the others for testing. A
person with m images or fewer keeps one for the test. The input is raw pixels from 0 to
1, except for DualQML, which subtracts the mean and scales to unit norm. All parameters
have their default values. The splits are fixed, so that another implementation can be
compared with this table.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml.extractors import LPP, NearestSample
from dualqml.extractors.methods import METHODS, make_trials
from tests.datasets import has_database, split_errors

#: (database, images per person, number of splits), the columns of the table.
CELLS = [
    ("ar", 2, 5),
    ("ar", 4, 5),
    ("ar", 8, 5),
    ("feret", 2, 3),
    ("feret", 4, 3),
    ("pie", 2, 3),
    ("pie", 4, 3),
    ("orl", 2, 5),
    ("orl", 4, 5),
    ("iitd_ear", 2, 5),
]

BASELINES: dict[str, Callable[[], Pipeline]] = {
    "PCA": lambda: make_pipeline(PCA(0.98, svd_solver="full"), NearestSample()),
    "LPP": lambda: make_pipeline(LPP(), NearestSample()),
}


def models_of(name: str) -> list[Any]:
    """The models whose mean error stands for a method."""
    return [BASELINES[name]()] if name in BASELINES else make_trials(name)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", default=[*BASELINES, *METHODS])
    options = parser.parse_args()
    cells = [cell for cell in CELLS if has_database(cell[0])]
    rows = []
    with threadpool_limits(1, user_api="blas"):
        for name in options.methods:
            row = [name]
            for cell in cells:
                measured = split_errors(partial(models_of, name), *cell)
                row.append(f"{np.mean(measured):.1f} ± {np.std(measured):.1f}")
            rows.append(row)
            print("measured", name, flush=True)
    header = ["method", *(f"{database} m={m}" for database, m, _ in cells)]
    print("\nError in per cent, mean and standard deviation over the splits.\n")
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
