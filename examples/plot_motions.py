# SPDX-License-Identifier: BSD-3-Clause
"""
Motions and descriptors
=======================

Two images of one person are never cropped alike: the face is shifted, turned or larger.
Here we move faces, and see how alike they stay to themselves and to other people: as
pixels, and as local descriptors.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import shift
from sklearn.preprocessing import normalize

from dualqml.data import load_orl
from dualqml.images import LocalDescriptors

# %%
# One image, moved to the right by 0 to 4 pixels. The image has 32 x 32 pixels.

images = load_orl().images.astype(float)
pixels = np.arange(5)
figure, axes = plt.subplots(1, 5, figsize=(8.5, 2), layout="constrained")
for ax, distance in zip(axes, pixels, strict=True):
    ax.imshow(shift(images[0], (0, distance), mode="nearest"), cmap="gray")
    ax.set_title(f"{distance} pixels", fontsize=10)
    ax.set(xticks=[], yticks=[])

# %%
# A descriptor says which directions edges have in each part of the image, and how
# strong stripes of several widths are. Then we compare the first image of each of 40
# people with its moved copies, and with the first images of all other people.

describe = LocalDescriptors(image_shape=(32, 32))
first = images[::10]


def as_pixels(moved):
    """Pixels at unit norm, after the mean face is subtracted."""
    return normalize((moved - first.mean(axis=0)).reshape(40, -1))


def as_descriptors(moved):
    """Local descriptors at unit norm, after their mean is subtracted."""
    rows = describe.fit_transform(moved.reshape(40, -1))
    mean = describe.fit_transform(first.reshape(40, -1)).mean(axis=0)
    return normalize(rows - mean)


distances = np.arange(0, 4.1, 0.5)
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), sharey=True, layout="constrained")
for ax, (name, represent) in zip(
    axes,
    {"pixels": as_pixels, "local descriptors": as_descriptors}.items(),
    strict=True,
):
    original = represent(first)
    same, others = [], []
    for distance in distances:
        cosines = original @ represent(shift(first, (0, 0, distance), mode="nearest")).T
        same.append(np.diag(cosines).mean())
        others.append(np.quantile(cosines[~np.eye(40, dtype=bool)], 0.95))
    ax.plot(distances, same, label="the same image, moved")
    ax.plot(distances, others, label="other people: 5 % are above")
    ax.set(title=name, xlabel="moved by, pixels")
    print(f"{name}: {same[4]:.2f} after 2 pixels")
axes[0].set(ylabel="cosine")
axes[0].legend(frameon=False, fontsize=9)

# %%
# What counts is the distance between the two lines. Both kinds of rows change when a
# face moves, about equally fast. But with descriptors other people are less alike.
#
# :class:`~dualqml.DualQMLWCV` chooses between pixels and descriptors on the training
# images. It also computes how small motions change each of them, and adds that to the
# within-class metric.
