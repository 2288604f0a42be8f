# SPDX-License-Identifier: BSD-3-Clause
r"""
The method in two dimensions
============================

For every class c, quadratic matrix learning finds a matrix :math:`P_c`. The value
:math:`x^T P_c x` is at least 1 for the samples of the class, and as small as possible
for all others. In two dimensions we can look at it, beside two methods that everybody
knows: linear discriminant analysis and the Mahalanobis distance.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dualqml import DualQML

# %%
# Three classes with four samples each. The position of zero matters for a quadratic
# form, so we subtract the mean of all samples.

rng = np.random.default_rng(4)
centres = np.array([[1.6, 0.5], [-0.5, 1.1], [-0.9, -1.3]])
y = np.repeat([0, 1, 2], 4)
X = centres[y] + 0.28 * rng.normal(size=(12, 2))
X -= X.mean(axis=0)

# %%
# One class, three methods
# ------------------------
# Each plot shows how strongly a method responds to "class 0" at every point of the
# plane. LDA has straight level lines: its score is linear. The Mahalanobis distance has
# ellipses around the mean of the class. The quadratic form has a valley through zero:
# all of class 0 is on or outside of the black lines, where the value is 1, and the
# other classes are inside the valley. A quadratic form has the same value at x and at
# -x, so the valley has two sides. With many features this matters little, and
# :class:`~dualqml.DualQMLW` adds a sign.

lda = LinearDiscriminantAnalysis().fit(X, y)
within = np.linalg.inv(sum(np.cov(X[y == c].T) for c in range(3)) / 3)
mean = X[y == 0].mean(axis=0)
qml = DualQML(lam=10.0).fit(X, y)

across, up = np.meshgrid(np.linspace(-2.4, 2.4, 161), np.linspace(-2.4, 2.4, 161))
grid = np.column_stack([across.ravel(), up.ravel()])
responses = {
    "LDA: score": lda.decision_function(grid)[:, 0],
    "Mahalanobis: - distance": -np.sqrt(
        np.einsum("ij,jk,ik->i", grid - mean, within, grid - mean)
    ),
    "QML: $x^T P_c x$": qml.transform(grid)[:, 0],
}


def draw_samples(ax):
    """Draw the samples and zero."""
    for c, marker in enumerate("osD"):
        own = X[y == c]
        ax.scatter(*own.T, marker=marker, color=f"C{c}", edgecolor="white", zorder=3)
    ax.plot(0, 0, "+", color="black", markersize=9)
    ax.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), xticks=[], yticks=[], aspect="equal")


figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for ax, (name, values) in zip(axes, responses.items(), strict=True):
    values = values.reshape(across.shape)
    ax.contourf(across, up, values, levels=12, cmap="Blues", alpha=0.8)
    if name.startswith("QML"):
        ax.contour(across, up, values, levels=[1.0], colors="black", linewidths=1.5)
    draw_samples(ax)
    ax.set_title(name, fontsize=10)

# %%
# A matrix for each class
# -----------------------
# The values :math:`x^T P_c x` of all classes are the features of a sample. Here each
# matrix has rank one: a single direction is enough to tell the class from the others.
# The arrow is that direction. Samples on the black line are those that decide about the
# matrix, as the support vectors of an SVM do.

features = qml.transform(grid)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for c, ax in enumerate(axes):
    values = features[:, c].reshape(across.shape)
    ax.contourf(across, up, values, levels=12, cmap="Blues", alpha=0.8)
    ax.contour(across, up, values, levels=[1.0], colors="black", linewidths=1.5)
    direction = np.linalg.eigh(qml.quadratic_matrix(c))[1][:, -1]
    direction *= np.sign(direction @ X[y == c].mean(axis=0))
    ax.annotate(
        "", xy=direction, xytext=(0, 0), arrowprops={"arrowstyle": "->", "lw": 1.8}
    )
    draw_samples(ax)
    ax.set_title(f"class {c}: rank {qml.ranks_[c]}", fontsize=10)

# %%
# The solver does not only find these matrices, it also proves that they are the best.
# The proof is a number for each class: the objective is at most this far above the
# smallest possible value, relative to its size.

print(qml.status_)
print(f"largest gap: {qml.duality_gap_.max():.0e}")
