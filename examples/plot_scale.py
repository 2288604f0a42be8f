# SPDX-License-Identifier: BSD-3-Clause
"""
Many people: fit in blocks, search a shortlist
==============================================

A gallery may have more rows than the memory holds, and a search has to be fast. Here is
how both look in code, and how time and errors grow with the number of people. The
gallery is made up and small enough to run in seconds. The page :ref:`scale` has the
figures for up to a million people.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from dualqml import DualQMLW
from dualqml.scale import Shortlist, fit_blocks

# %%
# Everybody has three vectors of 64 values. The vectors of one person differ mostly in
# ten directions, which are the same for everybody.

rng = np.random.default_rng(0)
N_FEATURES = 64
people = rng.normal(size=(2000, N_FEATURES))
directions = rng.normal(size=(10, N_FEATURES))


def samples_of(numbers):
    """A new vector for each number of a person."""
    n = len(numbers)
    common = 0.7 * rng.normal(size=(n, 10)) @ directions
    return people[numbers] + common + 0.9 * rng.normal(size=(n, N_FEATURES))


# %%
# Fit in blocks
# -------------
# The rows come from a generator, 125 people at a time: a database, a queue or files
# could be behind it. The model is the same as that of a usual fit, up to rounding.


def blocks(n_people):
    """Rows and their labels, block by block."""
    for start in range(0, n_people, 125):
        numbers = np.repeat(np.arange(start, start + 125), 3)
        yield samples_of(numbers), numbers


estimator = DualQMLW(kernel="linear", rule="max", rho=1.0)
fit_blocks(estimator, blocks(125))  # the first fit also imports modules
sizes = (125, 250, 500, 1000, 2000)
seconds, errors = [], []
for n_people in sizes:
    start = time.process_time()
    model = fit_blocks(estimator, blocks(n_people), part_bytes=1_000_000)
    seconds.append(time.process_time() - start)
    truth = rng.integers(n_people, size=1000)
    errors.append(100 * (model.predict(samples_of(truth)) != truth).mean())

# %%
# Every class has its proof of optimality, as always.

print(model.describe())

# %%
# On the left is the time of a fit, divided by the number of people. A person does not
# cost more in a large gallery, and some steps are done only once. On the right are the
# errors, which change little. Among more people there is more often somebody who looks
# alike, but the metric is learnt from more people too.

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
axes[0].plot(sizes, 1e3 * np.divide(seconds, sizes), "o-")
axes[0].set(ylabel="milliseconds for each person", ylim=(0, None))
axes[1].plot(sizes, errors, "o-", color="C1")
axes[1].set(ylabel="errors on new vectors, %", ylim=(0, None))
for ax in axes:
    ax.set(xscale="log", xlabel="people")
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.minorticks_off()

# %%
# Search a shortlist
# ------------------
# An exact search scores everybody in double precision. A shortlist proposes a few
# people by short vectors in single precision, and scores only these people exactly. It
# pays from about a hundred thousand people on. It may miss somebody, so it measures how
# often.

shortlist = Shortlist(model, index="flat", k=10)
probes = samples_of(np.arange(500))
print(shortlist.search(probes[:5], top=3).classes)
recall = shortlist.recall(probes)
print(f"recall {recall.estimate:.3f}, at least {recall.low:.3f} with 97.5 % confidence")
