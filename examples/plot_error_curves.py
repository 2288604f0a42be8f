# SPDX-License-Identifier: BSD-3-Clause
"""
Error curves with intervals: CMC, DET and open-set search
=========================================================

One number does not describe a biometric system. Three curves are usual, one for each
question: is the right person among the first candidates (CMC), are these two images of
one person (DET), and is this person in the gallery at all (open-set search)? A curve
from few people is uncertain, so each has an interval.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import normalize

from dualqml import DualQMLW
from dualqml.data import load_orl
from dualqml.evaluation import (
    CMCDisplay,
    DETDisplay,
    OpenSetDisplay,
    bootstrap_interval,
    equal_error_rate,
    fnir_at_fpir,
)

# %%
# 30 people are enrolled with two images each. Their other images are the searches that
# should find somebody. The images of the last ten people should find nobody.

faces = load_orl()
codes = np.arange(400) // 10
is_enrolled = codes < 30
is_training = is_enrolled & (np.arange(400) % 10 < 2)
is_search = is_enrolled & ~is_training
X, y = faces.rows[is_training], codes[is_training]

model = DualQMLW(rho=0.1, lam=0.1, rule="max", image_shape=(32, 32)).fit(X, y)
unit = normalize(faces.rows - X.mean(axis=0))
all_scores = {
    "DualQML-W": model.class_scores(faces.rows),
    # The best of the two images of each person.
    "cosine of pixels": (unit @ unit[is_training].T).reshape(400, 30, 2).max(axis=2),
}

# %%
# The displays draw a curve from scores.

truth = codes[is_search]
own = np.arange(30) == truth[:, None]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for name, scores in all_scores.items():
    known, strangers = scores[is_search], scores[~is_enrolled]
    CMCDisplay.from_scores(known, truth, max_rank=10, name=name).plot(axes[0])
    DETDisplay.from_scores(known[own], known[~own], name=name).plot(axes[1])
    OpenSetDisplay.from_scores(known, truth, strangers, name=name).plot(axes[2])
axes[0].set_title("CMC", fontsize=10)
axes[1].set_title("DET", fontsize=10)
axes[2].set_title("open-set search", fontsize=10)
axes[0].legend(frameon=False, loc="center right")

# %%
# How certain are they?
# ---------------------
# The images of one person are alike, so an interval must draw people, not images.
# ``bootstrap_interval`` does. With 30 people and ten strangers the intervals are wide.


def rank_1_error(known, truth):
    """Share of searches in which somebody else comes first."""
    return (known.argmax(axis=1) != truth).mean()


def equal_error(known, truth):
    """Equal error rate of all comparisons of a search with a person."""
    own = np.arange(30) == truth[:, None]
    return equal_error_rate(known[own], known[~own])


def missed(known, truth, strangers):
    """Share of enrolled people missed if one stranger in ten is accepted."""
    return fnir_at_fpir(known, truth, strangers, fpir=0.1).fnir


intervals = {}
for name, scores in all_scores.items():
    known, strangers = scores[is_search], scores[~is_enrolled]
    mated, nonmated = (known, truth, truth), (strangers, codes[~is_enrolled])
    intervals[name] = {
        "rank-1 error": bootstrap_interval(rank_1_error, mated, n_resamples=200),
        "equal error rate": bootstrap_interval(equal_error, mated, n_resamples=200),
        "missed at FPIR 10 %": bootstrap_interval(
            missed, mated, nonmated, n_resamples=200
        ),
    }

# %%
# The bars are 95 % intervals.

figure, ax = plt.subplots(figsize=(7.5, 3), layout="constrained")
for shift, (name, found) in zip((-0.12, 0.12), intervals.items(), strict=True):
    for place, (measure, interval) in enumerate(found.items()):
        low, middle, high = (
            100 * value for value in (interval.low, interval.estimate, interval.high)
        )
        ax.plot([low, high], [place + shift] * 2, color=f"C{int(shift > 0)}")
        label = name if place == 0 else None
        ax.plot(middle, place + shift, "o", color=f"C{int(shift > 0)}", label=label)
        print(f"{name:17} {measure:20} {middle:5.1f} % ({low:.1f} to {high:.1f})")
ax.set_yticks(range(3), list(found))
ax.invert_yaxis()
ax.set(xlabel="per cent", xlim=(0, None))
ax.legend(frameon=False)
