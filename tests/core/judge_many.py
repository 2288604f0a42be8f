"""``python -m tests.core.judge_many 600 23``: the exact check of many problems.

Prints for each family the number of classes, of classes wrongly called optimal, and of
classes called inaccurate. The arguments are the number of problems per family and a
seed.
"""

import sys
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from dualqml import DualQML
from tests.core.families import FAMILIES, near_identical, true_gap_and_violation


def judge(family, n_problems, seed, tol=1e-6):
    """Numbers of classes, of wrong ones and of inaccurate ones."""
    n_classes = n_wrong = n_inaccurate = 0
    for number in range(n_problems):
        name = sum(map(ord, family.__name__))
        problem = family(np.random.default_rng([seed, number, name]))
        model = DualQML(problem.lam, tol=tol).fit(problem.X, problem.labels)
        blocks = np.split(model.components_, np.cumsum(model.ranks_)[:-1])
        for c, own in enumerate(problem.members):
            n_classes += 1
            if model.status_[c] != "optimal":
                n_inaccurate += 1
                continue
            truth = true_gap_and_violation(
                problem.X, own, problem.lam, blocks[c], model.dual_coef_[own]
            )
            n_wrong += max(truth) > tol
    return np.array([n_classes, n_wrong, n_inaccurate])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    total = np.zeros(3, dtype=int)
    with threadpool_limits(1, user_api="blas"):
        for family in (*FAMILIES.values(), near_identical):
            found = judge(family, int(sys.argv[1]), int(sys.argv[2]))
            total += found
            print(f"{family.__name__:34s}", *found, flush=True)
    print("classes, wrong, inaccurate:", *total)
