# SPDX-License-Identifier: BSD-3-Clause
r"""
The certificate along the Newton steps
======================================

How do we know that a solution is the best one? Every point of the dual problem gives a
lower bound of the objective, and every matrix that meets the constraints gives an upper
bound. If the two meet, the matrix is proven to be optimal. Here we watch the bounds
come together, step by step.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml.core import certify, newton_path, scatter_spectrum
from dualqml.data import load_orl

# %%
# Five images of each of 40 people. We stop the solver after 1, 2, 3, ... Newton steps,
# and certify what it has.

faces = load_orl()
codes = np.unique(faces.labels, return_inverse=True)[1]
is_training = np.arange(400) % 10 < 5
X = normalize(faces.rows[is_training] - faces.rows[is_training].mean(axis=0))
members = [np.flatnonzero(codes[is_training] == c) for c in range(40)]
spectrum = scatter_spectrum(X)

steps = range(1, 6)
found = []
for n_steps in steps:
    (solution,) = newton_path(spectrum, members, [30.0], max_iter=n_steps)
    found.append(certify(spectrum, members, solution))
gaps = np.array([certificate.gap for certificate in found])
for n_steps, gap in zip(steps, gaps, strict=True):
    print(f"{n_steps} steps: {(gap <= 1e-6).sum():2} of 40 people are proven optimal")

# %%
# On the left are the two bounds for ten people, relative to the final value. On the
# right is their relative distance, the gap, for all people (lines) and the tolerance.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
best = found[-1].primal[:10]
upper = np.array([certificate.primal[:10] for certificate in found]) / best
lower = np.array([certificate.dual[:10] for certificate in found]) / best
axes[0].plot(steps, upper, "v-", color="C0", alpha=0.6)
axes[0].plot(steps, lower, "^-", color="C1", alpha=0.6)
axes[0].lines[0].set_label("upper bound")
axes[0].lines[-1].set_label("lower bound")
axes[0].legend(frameon=False)
axes[0].set(ylabel="bound / final value")
axes[1].plot(steps, np.maximum(gaps, 1e-16), ".-", linewidth=0.8, color="C2")
axes[1].axhline(1e-6, color="black", linewidth=1)
axes[1].text(5, 1.3e-6, "tolerance", ha="right", va="bottom", fontsize=9)
axes[1].set(ylabel="certified gap", yscale="log")
for ax in axes:
    ax.set(xlabel="Newton steps", xticks=steps)

# %%
# Two or three steps are enough. Every fit computes this certificate: the attributes
# ``duality_gap_``, ``violation_`` and ``status_`` of an estimator. The bounds include
# the errors of rounding, so a gap below the tolerance is a proof, not an estimate.
