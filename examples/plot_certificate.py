# SPDX-License-Identifier: BSD-3-Clause
r"""
The certificate along the Newton steps
======================================

How do we know that a solution is the best one? Every point of the dual problem gives a
lower bound of the objective, and every matrix that meets the constraints gives an upper
bound. If the two meet, the matrix is proven to be optimal. Here we watch the bounds
come together, step by step, for Newton's method and for L-BFGS.
"""

# sphinx_gallery_thumbnail_number = 2

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from dualqml import DualQML
from dualqml.core import certify, scatter_spectrum, solve
from dualqml.data import load_orl
from dualqml.evaluation import CertificateDisplay, CertificatePathDisplay

# %%
# Five images of each of 40 people. We stop the solver after 1, 2, 3, ... Newton steps,
# and certify what it has. ``newton_path`` and ``solve`` are the functions behind the
# estimators.

faces = load_orl()
codes = np.unique(faces.labels, return_inverse=True)[1]
is_training = np.arange(400) % 10 < 5
y = codes[is_training]
X = normalize(faces.rows[is_training] - faces.rows[is_training].mean(axis=0))
members = [np.flatnonzero(y == c) for c in range(40)]
spectrum = scatter_spectrum(X)

steps = np.arange(1, 6)
found = [
    certify(spectrum, members, solve(spectrum, members, lam=30.0, max_iter=int(n)))
    for n in steps
]
path = CertificatePathDisplay(steps, [one.worst for one in found], tol=1e-6)
for n, n_optimal in zip(steps, path.n_optimal, strict=True):
    print(f"{n} steps: {n_optimal:2} of 40 people are proven optimal")

# %%
# On the left are the two bounds for ten people, relative to the final value. On the
# right is their distance for all 40 people, on a logarithmic scale: the duality gap,
# relative to the objective. It falls faster with every step. That is how Newton's
# method behaves near the solution.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
best = found[-1].primal[:10]
upper = np.array([one.primal[:10] for one in found]) / best
lower = np.array([one.dual[:10] for one in found]) / best
axes[0].plot(steps, upper, "v-", color="C0", alpha=0.6)
axes[0].plot(steps, lower, "^-", color="C1", alpha=0.6)
axes[0].lines[0].set_label("upper bound")
axes[0].lines[-1].set_label("lower bound")
axes[0].legend(frameon=False)
axes[0].set(xlabel="Newton steps", ylabel="bound / final value", xticks=steps)
axes[0].set_title("bounds for ten people", fontsize=10)
path.plot(axes[1], color="C2")
axes[1].set(xlabel="Newton steps")
axes[1].title.set_fontsize(10)

# %%
# Newton's method and L-BFGS
# --------------------------
# The paper solves the same dual problem with L-BFGS-B. This is ``solver="lbfgs"``,
# which uses the implementation of SciPy. It knows only first derivatives, so it needs
# more steps, and each of them takes all eigenvalues of a matrix with one row for each
# feature. To keep the example short, we take ten people, and principal components of
# the images as features.

few = y < 10
members = [np.flatnonzero(y[few] == c) for c in range(10)]
components = PCA(random_state=0).fit_transform(X)[few]
sizes = (25, 50, 100, 199)
spectra = [scatter_spectrum(normalize(components[:, :size])) for size in sizes]

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for solver, name, colour, steps in (
    ("newton", "Newton", "C2", [1, 2, 3, 4, 6]),
    ("lbfgs", "L-BFGS", "C4", [1, 2, 4, 6, 8, 10, 12, 15, 20, 25]),
):
    worst, seconds = [], []
    for n in steps:
        solution = solve(spectra[2], members, 30.0, solver=solver, max_iter=n)
        worst.append(certify(spectra[2], members, solution).worst)
    path = CertificatePathDisplay(steps, worst, tol=1e-6, name=name)
    path.plot(axes[0], color=colour)
    for spectrum in spectra:
        start = time.process_time()
        solve(spectrum, members, 30.0, solver=solver)
        seconds.append(time.process_time() - start)
    axes[1].plot(sizes, seconds, "o-", color=colour, label=name)
axes[0].set(xlabel="steps", title="with 100 features")
axes[0].legend(frameon=False, fontsize=8)
axes[1].set(xscale="log", yscale="log", xlabel="features", ylim=(0.001, 2))
axes[1].set(ylabel="seconds of processor time", title="time of a solution")
axes[1].set_xticks(sizes, [str(size) for size in sizes])
axes[1].set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
axes[1].legend(frameon=False)
for ax in axes:
    ax.minorticks_off()
    ax.title.set_fontsize(10)

# %%
# On the left, both methods reach the same gap, and Newton's needs far fewer steps. On
# the right is the time of a whole solution. The more features, the larger is the
# difference, because the eigenvalues take ever longer.
#
# The certificate of a fitted model
# ---------------------------------
# Every fit computes the certificate. It is in the attributes ``duality_gap_``,
# ``violation_`` and ``status_`` of an estimator, and ``CertificateDisplay`` draws it.
# The bounds include the errors of rounding, so a gap below the tolerance is a proof,
# not an estimate.

model = DualQML(lam=30.0).fit(X, y)
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
display = CertificateDisplay.from_estimator(model).plot(ax)
ax.set_title(f"{display.n_optimal} of 40 people are proven optimal", fontsize=10)
ax.set(xlabel="people, in the order of gaps")
