# SPDX-License-Identifier: BSD-3-Clause
"""
Saying "unknown": scores and the threshold
==========================================

At a door, most people who pass are not in the gallery. A search must be able to answer
"unknown". For this the highest score of a search is compared with a threshold. Here we
see where the threshold comes from.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualqml.data import load_orl
from dualqml.evaluation import binomial_interval
from dualqml.recognition import Recognizer, WhyDisplay

# %%
# 20 of 40 people are enrolled, with four images each. Ten people are strangers with
# whom we set the threshold. The last ten are strangers for the test.

images = load_orl().images.reshape(40, 10, 32, 32)
names = [f"person {number:02}" for number in range(40)]

recognizer = Recognizer()
recognizer.enroll_many(
    images[:20, :4].reshape(-1, 32, 32), np.repeat(names[:20], 4).tolist()
)

# %%
# The threshold is set for a rate that we choose: of the searches for strangers, one in
# twenty may be accepted (FPIR, the false positive identification rate, of 5 %).

others = np.concatenate(
    [images[20:30].reshape(-1, 32, 32), images[:20, 4:6].reshape(-1, 32, 32)]
)
labels = np.repeat(names[20:30], 10).tolist() + np.repeat(names[:20], 2).tolist()
calibration = recognizer.calibrate(others, labels, fpir=0.05)
print(f"threshold {calibration.threshold:.2f}")

# %%
# Is it right for new people? Now we search for 80 new images of enrolled people, and
# for the 100 images of the last ten people.

enrolled = recognizer.scores(images[:20, 6:].reshape(-1, 32, 32)).max(axis=1)
strangers = recognizer.scores(images[30:].reshape(-1, 32, 32)).max(axis=1)
accepted = int((strangers >= calibration.threshold).sum())
missed = int((enrolled < calibration.threshold).sum())
low_high = binomial_interval(accepted, len(strangers))
print(f"strangers accepted: {accepted} of {len(strangers)}")
print(f"interval: {100 * low_high.low:.1f} % to {100 * low_high.high:.1f} %")
print(f"enrolled people missed: {missed} of {len(enrolled)}")

# %%
# More strangers are accepted than we asked for. Ten people are too few to set a
# threshold for 5 %: some people are hard to tell from an enrolled person on every
# image, and there may be none of them, or two, among ten. Use as many strangers as you
# can.
#
# The figure shows the highest score of every search. A score is the logarithm of a
# likelihood ratio: how much more likely the image is if it shows this person than if it
# shows somebody else.

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
low, high = min(strangers.min(), enrolled.min()), max(strangers.max(), enrolled.max())
bins = np.linspace(low, high, 41)
ax.hist(strangers, bins, alpha=0.6, color="C1", label="strangers")
ax.hist(enrolled, bins, alpha=0.6, color="C0", label="enrolled people")
ax.axvline(calibration.threshold, color="black")
ax.set_ylim(top=1.3 * ax.get_ylim()[1])  # room for the legend
ax.text(
    calibration.threshold,
    ax.get_ylim()[1],
    ' "unknown" | "match" ',
    ha="center",
    va="bottom",
    fontsize=9,
)
ax.set(xlabel="highest score of a search", ylabel="searches")
ax.legend(frameon=False)

# %%
# The two groups overlap, so no threshold is free of errors. A higher threshold accepts
# fewer strangers and misses more enrolled people. The figure below shows every choice.

thresholds = np.linspace(low, high, 300)
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.plot(
    thresholds,
    [100 * (strangers >= t).mean() for t in thresholds],
    "C1",
    label="strangers accepted (FPIR)",
)
ax.plot(
    thresholds,
    [100 * (enrolled < t).mean() for t in thresholds],
    "C0",
    label="enrolled people missed",
)
ax.axvline(calibration.threshold, color="black", linewidth=1, label="our threshold")
ax.set(xlabel="threshold", ylabel="searches, %")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.48, 0.95))

# %%
# Why this answer?
# ----------------
# ``WhyDisplay`` explains one search: the new image and the most similar enrolled one,
# the best candidates beside the threshold, and the parts of their scores.

figure, ax = plt.subplots(figsize=(9, 5), layout="constrained")
display = WhyDisplay.from_estimator(recognizer, images[3, 7], top=5).plot(ax)
