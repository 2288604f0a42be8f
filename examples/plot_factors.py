# SPDX-License-Identifier: BSD-3-Clause
r"""
What a matrix has learnt, as images
===================================

On faces, :math:`P_c` has one row and one column for each pixel. Its rank is at most the
number of training images of the person, so it is a sum of very few products
:math:`v v^T`. Each factor v has one value for each pixel, so we can look at it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import DualQML
from dualqml.data import load_orl
from dualqml.evaluation import QuadraticFormDisplay

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
# One person
# ----------
# ``QuadraticFormDisplay`` shows the matrix of one person. On the left is its diagonal:
# the darker a pixel, the more it matters for this person. Beside it are the factors,
# the strongest first. A factor expects red pixels to be brighter than in the mean face,
# and blue pixels to be darker.

PEOPLE = (2, 10, 19)
display = QuadraticFormDisplay.from_estimator(model, PEOPLE[0], image_shape=(32, 32))
figure, ax = plt.subplots(figsize=(9, 3), layout="constrained")
display.plot(ax)

# %%
# Three people
# ------------
# From left to right: two training images, the strongest factor, and the value
# :math:`x^T P_c x` of all 200 new images. The values of training images are at least 1,
# the black line. New images of the person have smaller values, but most of these are
# larger than those of all other people.

features = model.transform(X[~is_training])
new = codes[~is_training]

figure, axes = plt.subplots(
    3, 4, figsize=(9, 5.6), width_ratios=(1, 1, 1, 2.2), layout="constrained"
)
for row, person in zip(axes, PEOPLE, strict=True):
    own = np.flatnonzero(is_training & (codes == person))
    for ax, image in zip(row[:2], own[:2], strict=True):
        ax.imshow(faces.images[image], cmap="gray")
    display = QuadraticFormDisplay.from_estimator(model, person, image_shape=(32, 32))
    factor = display.pictures[0]
    limit = np.abs(factor).max()
    row[2].imshow(factor, cmap="RdBu_r", vmin=-limit, vmax=limit)
    is_own = new == person
    for place, chosen, colour in ((0, is_own, "C3"), (1, ~is_own, "0.5")):
        values = features[chosen, person]
        row[3].plot(values, np.full(len(values), place), "|", color=colour, ms=18)
    row[3].axvline(1.0, color="black", linewidth=1)
    row[3].set(xlim=(-0.03, 1.1), ylim=(1.6, -0.6))
    row[3].set_yticks([0, 1], ["this person", "39 others"])
    for ax in row[:3]:
        ax.set(xticks=[], yticks=[])
titles = ("training image", "training image", "strongest factor", "$x^T P_c x$")
for ax, title in zip(axes[0], titles, strict=True):
    ax.set_title(title, fontsize=10)

# %%
# The whole matrix
# ----------------
# The matrix itself has 1024 x 1024 entries, one for each pair of pixels. One row of it
# is an image again: it says how one pixel, the black square, works together with all
# others. Where the image is red, both pixels should differ from the mean face in the
# same direction, and where it is blue, in opposite directions.

P = model.quadratic_matrix(PEOPLE[0])
limit = np.quantile(np.abs(P), 0.995)
style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
axes[0].imshow(P, **style)
axes[0].set(title="$P_c$", xlabel="pixel", ylabel="pixel", xticks=[0, 512, 1023])
axes[0].set_yticks([0, 512, 1023])
for ax, name, (up, across) in zip(
    axes[1:], ("an eyebrow", "the chin"), ((9, 9), (25, 15)), strict=True
):
    picture = ax.imshow(P[32 * up + across].reshape(32, 32), **style)
    ax.plot(across, up, "s", color="black", markersize=7, markerfacecolor="none")
    ax.set(title=f"the row of a pixel of {name}", xticks=[], yticks=[])
    ax.title.set_fontsize(10)
figure.colorbar(picture, ax=axes, shrink=0.8)
