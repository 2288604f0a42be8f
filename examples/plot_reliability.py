# SPDX-License-Identifier: BSD-3-Clause
"""
Are probabilities right? A reliability diagram
==============================================

A model that says "90 %" should be right in nine of ten such decisions. A reliability
diagram shows whether it is: decisions are sorted by their probability, and for each
group we count how many are right.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualqml import DualQMLW
from dualqml.data import load_orl
from dualqml.evaluation import binomial_interval

# %%
# Two images of each of 40 people to learn from, and eight to decide on. Five random
# divisions give 1,600 decisions.

faces = load_orl()
confidence, is_right = [], []
for split in range(5):
    rng = np.random.default_rng(split)
    is_training = np.zeros((40, 10), dtype=bool)
    for person in is_training:
        person[rng.permutation(10)[:2]] = True
    is_training = is_training.ravel()
    model = DualQMLW(image_shape=(32, 32), descriptor="local")
    model.fit(faces.rows[is_training], faces.labels[is_training])
    chances = model.predict_proba(faces.rows[~is_training])
    decided = model.classes_[chances.argmax(axis=1)]
    confidence.append(chances.max(axis=1))
    is_right.append(decided == faces.labels[~is_training])
confidence, is_right = np.concatenate(confidence), np.concatenate(is_right)
print(f"right: {is_right.mean():.1%}, mean probability: {confidence.mean():.1%}")

# %%
# Each dot is a group of decisions, with a 95 % interval. On the line, probabilities are
# exact. Below it they are too high, above it too low. The lower plot shows how many
# decisions there are in each group: most are certain.

groups = np.minimum((10 * confidence).astype(int), 9)
figure, (above, below) = plt.subplots(
    2, 1, figsize=(5.5, 5.5), sharex=True, height_ratios=(3, 1), layout="constrained"
)
above.plot([0, 1], [0, 1], color="0.6", label="exact")
for group in np.unique(groups):
    inside = groups == group
    middle, share = confidence[inside].mean(), is_right[inside].mean()
    interval = binomial_interval(int(is_right[inside].sum()), int(inside.sum()))
    above.plot([middle, middle], [interval.low, interval.high], color="C0")
    above.plot(middle, share, "o", color="C0")
above.set(ylabel="share of right decisions", xlim=(0, 1), ylim=(0, 1.02))
above.legend(frameon=False)
below.hist(confidence, np.linspace(0, 1, 11), color="C0", alpha=0.6)
below.set(xlabel="probability of the decision", ylabel="decisions", yscale="log")

# %%
# Here the probabilities are too careful. The model learns them from samples that it
# leaves out, and of two samples only one is left then.
