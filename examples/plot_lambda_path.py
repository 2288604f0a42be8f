# SPDX-License-Identifier: BSD-3-Clause
r"""
The path of lambda
==================

Quadratic matrix learning has one parameter: :math:`\lambda`. It weighs how small the
responses of all other people should be against how small the matrix is. All values of a
path share one decomposition of the data, and each solution starts from the one before.
So a path is much cheaper than many fits.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import DualQML, DualQMLClassifierCV
from dualqml.core import newton_path, scatter_spectrum
from dualqml.data import load_orl

# %%
# Four images of each of 40 people to learn from, and six to try it on.

faces = load_orl()
codes = np.unique(faces.labels, return_inverse=True)[1]
is_training = np.arange(400) % 10 < 4
X = normalize(faces.rows - faces.rows[is_training].mean(axis=0))
X_train, y_train, X_test, y_test = (
    X[is_training],
    codes[is_training],
    X[~is_training],
    codes[~is_training],
)

# %%
# 25 values of lambda for all 40 people. ``newton_path`` yields one solution for each.

lams = np.logspace(-3, 4, 25)
members = [np.flatnonzero(y_train == c) for c in range(40)]
start = time.perf_counter()
spectrum = scatter_spectrum(X_train)
path = list(newton_path(spectrum, members, lams))
seconds = time.perf_counter() - start
start = time.perf_counter()
DualQML(lam=1.0).fit(X_train, y_train)
print(f"25 values take {seconds / (time.perf_counter() - start):.0f} times one fit")

# %%
# For each value we look at the responses of a new image to its own person and to the
# others, and at the errors if the largest response decides.

own, others, errors = [], [], []
for solution in path:
    factors = spectrum.back_project(solution.factors)
    squares = (X_test @ factors.T) ** 2
    responses = np.add.reduceat(squares, solution.first_rows[:-1], axis=1)
    is_own = y_test[:, None] == np.arange(40)
    own.append(np.median(responses[is_own]))
    others.append(np.quantile(responses[~is_own], 0.95))
    errors.append(100 * (responses.argmax(axis=1) != y_test).mean())

chosen = DualQMLClassifierCV(rule="max", random_state=0).fit(X_train, y_train)
print(f"chosen by cross-validation: {chosen.best_lam_:g}")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].plot(lams, own, label="own person, median")
axes[0].plot(lams, others, label="other people: 5 % are above")
axes[0].set(ylabel="response of new images", yscale="log", ylim=(0.01, 1.5))
axes[0].legend(frameon=False, loc="lower left")
axes[1].plot(lams, errors, color="C3")
axes[1].axvline(chosen.best_lam_, color="black", linewidth=1)
axes[1].text(chosen.best_lam_, 1, " chosen by cross-validation", fontsize=9)
axes[1].set(ylabel="errors on new images, %", ylim=(0, None))
for ax in axes:
    ax.set(xscale="log", xlabel="lambda")

# %%
# A small lambda lets other people respond. A large lambda pushes them down, but the
# response of the person's own new images falls too: the matrix trusts the training
# samples more than it should. In between, errors change little over three powers of
# ten, so a coarse grid is enough.
