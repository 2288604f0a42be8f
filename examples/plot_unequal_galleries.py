# SPDX-License-Identifier: BSD-3-Clause
"""
One photo each: what other people teach
=======================================

With one sample of each person, nothing says how the samples of one person differ.
Samples of other people, who are never enrolled, say it: a *background*. Here some
people have one vector and others five, and we see whom a background helps.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualqml import Background
from dualqml.recognition import Recognizer

# %%
# The vectors are made up. Those of one person differ most in ten directions, which are
# the same for everybody.

rng = np.random.default_rng(0)
directions = rng.normal(size=(10, 48))


def people(n_people, n_samples):
    """Vectors of shape (n_people, n_samples, 48)."""
    centres = rng.normal(size=(n_people, 1, 48))
    common = 0.5 * rng.normal(size=(n_people, n_samples, 10)) @ directions
    return centres + common + 0.8 * rng.normal(size=(n_people, n_samples, 48))


# %%
# The background: 200 people with four vectors each, who are not enrolled. It keeps
# statistics of them, no vector and no name.

others = people(200, 4).reshape(-1, 48)
background = Background.from_samples(others, np.repeat(np.arange(200), 4))

# %%
# 40 people are enrolled, in four ways: with one vector each, or half of them with five;
# without the background, and with it.

everybody = people(40, 25)
new = everybody[:, 5:].reshape(-1, 48)
truth = np.repeat(np.arange(40), 20)
errors = {}
for gallery, sizes in {
    "one vector each": np.ones(40, dtype=int),
    "half with five": np.where(np.arange(40) < 20, 1, 5),
}.items():
    names = np.repeat([f"person {number:02}" for number in range(40)], sizes)
    rows = np.concatenate(
        [own[:size] for own, size in zip(everybody, sizes, strict=True)]
    )
    for kind, known in (("alone", None), ("with a background", background)):
        recognizer = Recognizer(background=known)
        recognizer.enroll_many(rows, names.tolist())
        wrong = recognizer.scores(new).argmax(axis=1) != truth
        for size in np.unique(sizes):
            error = 100 * wrong[sizes[truth] == size].mean()
            errors[gallery, f"{size} vector{'s'[: size - 1]}", kind] = error
            print(f"{gallery}, people with {size}, {kind}: {error:.1f} % errors")

# %%
# The background helps most where there is only one vector of each person. If others
# have several, the metric is learnt from them, and helps everybody.

cases = list(dict.fromkeys((gallery, size) for gallery, size, _ in errors))
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for shift, kind, colour in ((-0.2, "alone", "0.6"), (0.2, "with a background", "C0")):
    values = [errors[gallery, size, kind] for gallery, size in cases]
    bars = ax.bar(np.arange(3) + shift, values, 0.38, label=kind, color=colour)
    ax.bar_label(bars, fmt="%.1f", fontsize=9)
ax.set_xticks(range(3), [f"{gallery}:\npeople with {size}" for gallery, size in cases])
ax.set(ylabel="errors on new vectors, %")
ax.legend(frameon=False)
