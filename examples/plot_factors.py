# SPDX-License-Identifier: BSD-3-Clause
r"""
What a matrix has learnt: P_c and its factors as images
=======================================================

On faces, :math:`P_c` has one row and one column for each pixel. Its rank is at most the
number of images of the person, so it is a sum of very few products
:math:`v v^T`. Each factor v is itself an image of the size of a face.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import DualQML
from dualqml.data import load_orl

# %%
# Five images of each of 40 people to learn from, and five to try it on. We subtract the
# mean face and scale every image to unit norm.

faces = load_orl()
codes = np.unique(faces.labels, return_inverse=True)[1]
is_training = np.arange(400) % 10 < 5
mean_face = faces.rows[is_training].mean(axis=0)
X = normalize(faces.rows - mean_face)
model = DualQML(lam=1.0).fit(X[is_training], codes[is_training])
print("ranks:", np.bincount(model.ranks_)[1:], "people have rank 1, 2, ...")

# %%
# Three people
# ------------
# From left to right: two training images, the factor with the largest norm, and the
# value :math:`x^T P_c x` of all 200 new images. The factor expects red pixels to be
# brighter than in the mean face, and blue pixels to be darker. The values of training
# images are at least 1. New images of the person have smaller values, but most of these
# are larger than those of all other people.

first = np.concatenate([[0], np.cumsum(model.ranks_)])
features = model.transform(X[~is_training])
new = codes[~is_training]

figure, axes = plt.subplots(
    3, 4, figsize=(9, 5.6), width_ratios=(1, 1, 1, 2.4), layout="constrained"
)
for row, person in zip(axes, (2, 10, 19), strict=True):
    own = np.flatnonzero(is_training & (codes == person))
    for ax, image in zip(row[:2], own[:2], strict=True):
        ax.imshow(faces.images[image], cmap="gray")
    factors = model.components_[first[person] : first[person + 1]]
    factor = max(factors, key=np.linalg.norm)
    # A factor and its negative give the same matrix. Show the one like the person.
    factor = factor * np.sign(factor @ X[own].mean(axis=0))
    limit = np.abs(factor).max()
    row[2].imshow(factor.reshape(32, 32), cmap="RdBu_r", vmin=-limit, vmax=limit)
    is_own = new == person
    bins = np.linspace(0, 1.6, 41)
    row[3].hist(features[~is_own, person], bins, color="0.6", label="other people")
    row[3].plot(
        features[is_own, person], np.full(5, 30.0), "o", color="C3", label="the person"
    )
    row[3].axvline(1.0, color="black", linewidth=1)
    row[3].set(yscale="log", ylim=(0.7, 300))
    for ax in row[:3]:
        ax.set(xticks=[], yticks=[])
axes[0, 0].set_title("training image", fontsize=10)
axes[0, 1].set_title("training image", fontsize=10)
axes[0, 2].set_title("factor v", fontsize=10)
axes[0, 3].set_title("$x^T P_c x$ of new images", fontsize=10)
axes[0, 3].legend(frameon=False, fontsize=8)

# %%
# The whole matrix
# ----------------
# The matrix itself has 1024 x 1024 entries, one for each pair of pixels. An entry is
# positive (red) if the two pixels should differ from the mean face in the same
# direction, and negative (blue) if they should differ in opposite directions. The
# pattern repeats every 32 entries, which is one row of the image.

P = model.quadratic_matrix(2)
limit = np.quantile(np.abs(P), 0.995)
figure, ax = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
picture = ax.imshow(P, cmap="RdBu_r", vmin=-limit, vmax=limit)
figure.colorbar(picture, ax=ax, shrink=0.8)
ax.set(title="$P_c$ of the first person above", xlabel="pixel", ylabel="pixel")
