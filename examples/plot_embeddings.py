# SPDX-License-Identifier: BSD-3-Clause
"""
Vectors of a network, with few samples of each person
=====================================================

Today faces are described by vectors of a network, and recognised by the nearest vector.
With two or more samples of each person there is something to learn: in which directions
the vectors of one person differ. Here we see how much that helps, for 1 to 10 samples.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import DualQMLWCV
from dualqml.extractors import NearestMean, NearestSample

# %%
# The vectors are made up: 60 people, and 64 values of unit norm. Those of one person
# differ most in sixteen directions, the same for everybody, as those of a network do
# for light, pose and age. No network and no photographs are needed.

N_PEOPLE, N_FEATURES = 60, 64
rng = np.random.default_rng(0)
people = rng.normal(size=(N_PEOPLE, N_FEATURES))
directions = normalize(rng.normal(size=(16, N_FEATURES)))


def vectors(n_samples):
    """Vectors of all people, and the numbers of the people."""
    y = np.repeat(np.arange(N_PEOPLE), n_samples)
    common = 2.2 * rng.normal(size=(len(y), 16)) @ directions
    rest = 1.2 * rng.normal(size=(len(y), N_FEATURES))
    return normalize(people[y] + common + rest), y


X_test, y_test = vectors(20)

# %%
# Three ways to decide. ``DualQMLWCV`` chooses all its parameters on the training
# samples.

models = {
    "nearest vector, cosine": NearestSample(metric="cosine"),
    "nearest mean of a person": NearestMean(metric="cosine"),
    "DualQML-W": DualQMLWCV(random_state=0),
}
samples = (1, 2, 3, 5, 10)
errors = {name: [] for name in models}
for n_samples in samples:
    X, y = vectors(n_samples)
    for name, model in models.items():
        wrong = model.fit(X, y).predict(X_test) != y_test
        errors[name].append(100 * wrong.mean())

# %%
# With one sample of each person nothing can be learnt about the differences, and all
# three are alike. From two samples on, the metric pays.

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, values), marker in zip(errors.items(), "sDo", strict=True):
    ax.plot(samples, values, marker=marker, label=name)
    print(f"{name:25}", " ".join(f"{value:5.1f}" for value in values))
ax.set(xlabel="samples of each person", ylabel="errors on new vectors, %")
ax.set(xticks=samples, ylim=(0, None))
ax.legend(frameon=False)

# %%
# These vectors were made so that the method can help. The pages with :doc:`results on
# embeddings </results/accuracy>` have real ones, also those where it helps little.
# Statistics of other people help with a single sample too: see
# :ref:`sphx_glr_auto_examples_plot_unequal_galleries.py`.
