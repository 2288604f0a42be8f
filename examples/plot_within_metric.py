# SPDX-License-Identifier: BSD-3-Clause
"""
The within-class metric: before and after
=========================================

Images of one person differ more in some directions than in others, because of light and
pose. A metric that is learnt from a few images of each person makes these directions
shorter. Here we look at faces before and after.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import WithinMetric
from dualqml.data import load_orl

# %%
# The metric is learnt from two images of each of 40 people. Everything below shows the
# other eight images, which it has not seen. Because the rows are images, the metric
# also knows how a face changes when it is shifted, turned or zoomed a little.

faces = load_orl()
codes = np.unique(faces.labels, return_inverse=True)[1]
is_training = np.arange(400) % 10 < 2
X_train, X = faces.rows[is_training], faces.rows[~is_training]
y_train, y = codes[is_training], codes[~is_training]

metric = WithinMetric(rho=0.1, image_shape=(32, 32)).fit(X_train, y_train)
before = normalize(normalize(X) - normalize(X_train).mean(axis=0))
after = metric.transform(X)

# %%
# Ten people
# ----------
# How similar is every image of ten people to every other? The eight images of a person
# are next to each other, so a good metric shows dark squares on the diagonal and little
# elsewhere.

figure, axes = plt.subplots(1, 2, figsize=(8.5, 4.2), layout="constrained")
for ax, Z, title in zip(axes, (before, after), ("before", "after"), strict=True):
    few = Z[y < 10]
    picture = ax.imshow(few @ few.T, cmap="Blues", vmin=0, vmax=1)
    middle = np.arange(3.5, 80, 8)
    ax.set_xticks(middle, range(1, 11))
    ax.set_yticks(middle, range(1, 11))
    ax.tick_params(length=0)
    ax.set(title=title, xlabel="person")
figure.colorbar(picture, ax=axes, label="cosine", shrink=0.8)

# %%
# All pairs of images
# -------------------
# How similar are two images of one person, and of two people? The less these histograms
# overlap, the easier is the decision. FNMR at FMR 1 % is the share of pairs of one
# person that are missed, if one in a hundred pairs of two people may be accepted.

first, second = np.triu_indices(len(X), 1)
is_same = y[first] == y[second]
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), sharey=True, layout="constrained")
for ax, Z, title in zip(axes, (before, after), ("before", "after"), strict=True):
    cosines = (Z @ Z.T)[first, second]
    bins = np.linspace(-0.6, 1.0, 65)
    for part, label, colour in (
        (~is_same, "two people", "C1"),
        (is_same, "one person", "C0"),
    ):
        ax.hist(cosines[part], bins, density=True, alpha=0.6, label=label, color=colour)
    threshold = np.quantile(cosines[~is_same], 0.99)
    missed = 100 * (cosines[is_same] < threshold).mean()
    ax.axvline(threshold, color="black", linewidth=1)
    ax.set(title=f"{title}: FNMR {missed:.0f} % at FMR 1 %", xlabel="cosine", yticks=[])
    print(f"{title}: FNMR {missed:.1f} % at FMR 1 %")
axes[0].legend(frameon=False)

# %%
# :class:`~dualqml.DualQMLWCV` learns this metric and then the matrices of quadratic
# matrix learning in it. It chooses ``rho``, the weight of what is common to all
# directions, on the training images.
