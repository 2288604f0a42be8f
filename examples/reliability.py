# SPDX-License-Identifier: BSD-3-Clause
"""A figure of how often decisions are right, by their probability (ORL).

``python examples/reliability.py [FILE]`` trains on a few images of each of 40 people
and asks for the probabilities of all other images, ten times. On the left, each person
has two training images. On the right, half of the people have one and the others five.
It takes about two minutes and needs ``dualqml[demo]``.
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from dualqml import DualQMLWCV
from dualqml.data import load_orl
from dualqml.evaluation import binomial_interval

N_SPLITS = 10
N_BINS = 10


def decisions(few: int, many: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Probabilities of the decisions of all splits, and whether they are right.

    Half of the people have `few` training images, the others `many`.
    """
    faces = load_orl()
    people = np.unique(faces.labels)
    confidence, right = [], []
    for split in range(N_SPLITS):
        rng = np.random.default_rng(split)
        has_many = rng.permutation(people.size) < people.size // 2
        train = np.zeros(len(faces.labels), dtype=bool)
        for person, is_many in zip(people, has_many, strict=True):
            own = rng.permutation(np.flatnonzero(faces.labels == person))
            train[own[: many if is_many else few]] = True
        model = DualQMLWCV(image_shape=(32, 32), random_state=0)
        model.fit(faces.rows[train], faces.labels[train])
        chances = model.predict_proba(faces.rows[~train])
        decided = model.classes_[chances.argmax(axis=1)]
        confidence.append(chances.max(axis=1))
        right.append(decided == faces.labels[~train])
    return np.concatenate(confidence), np.concatenate(right)


def draw(
    above: plt.Axes,
    below: plt.Axes,
    confidence: NDArray[np.float64],
    right: NDArray[np.bool_],
) -> None:
    """Draw the share of right decisions in each bin, and the number of decisions."""
    bins = np.minimum((N_BINS * confidence).astype(int), N_BINS - 1)
    counts = np.bincount(bins, minlength=N_BINS)
    gap = 0.0
    above.plot([0, 1], [0, 1], color="0.6", linewidth=1.0, label="exact")
    for number in np.flatnonzero(counts):
        inside = bins == number
        middle, share = confidence[inside].mean(), right[inside].mean()
        interval = binomial_interval(int(right[inside].sum()), int(counts[number]))
        above.plot([middle, middle], [interval.low, interval.high], color="C0")
        name = "DualQML-W" if gap == 0.0 else None
        above.plot(middle, share, "o", color="C0", label=name)
        gap += counts[number] / right.size * abs(middle - share)
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    text = f"right: {100 * right.mean():.1f} %\nmean probability: "
    text += f"{100 * confidence.mean():.1f} %\nmean gap: {100 * gap:.1f} %"
    above.text(0.97, 0.05, text, ha="right", va="bottom", fontsize=8)
    above.legend(frameon=False, fontsize=8, loc="upper left")
    edges = np.arange(N_BINS) / N_BINS
    below.bar(edges, counts, 1.0 / N_BINS, align="edge", color="C0", alpha=0.6)
    below.set(xlim=(0, 1), yscale="log", xlabel="probability of the decision")


def main() -> None:
    """Draw the figure."""
    mpl.rcParams["svg.hashsalt"] = "dualqml"
    figure, axes = plt.subplots(
        2,
        2,
        figsize=(7.5, 5.0),
        sharex=True,
        sharey="row",
        height_ratios=(3, 1),
        layout="constrained",
    )
    for column, title, few, many in (
        (0, "two training images each", 2, 2),
        (1, "one or five training images", 1, 5),
    ):
        axes[0, column].set_title(title)
        draw(axes[0, column], axes[1, column], *decisions(few, many))
    axes[0, 0].set_ylabel("share of right decisions")
    axes[1, 0].set_ylabel("decisions")
    target = sys.argv[1] if len(sys.argv) > 1 else "reliability.svg"
    figure.savefig(target, metadata={"Date": None})
    print("wrote", target)


if __name__ == "__main__":
    main()
