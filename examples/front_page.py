# SPDX-License-Identifier: BSD-3-Clause
"""The figure of the front page: enrol, learn, ask (ORL).

``python examples/front_page.py [FOLDER]`` enrols 20 people with two images each, sets a
threshold with ten others, and asks about a new image of an enrolled person and one of a
stranger. It writes ``front_page_light.svg`` and ``front_page_dark.svg``. It needs
``dualqml[demo]``.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import DualQML
from dualqml.data import load_orl
from dualqml.recognition import Identification, Recognizer

#: People of the figure, of the 20 who are enrolled.
SHOWN = ("s1", "s2", "s5", "s13")
#: Text, quiet text, the right answer and other people, on a light and a dark page.
COLOURS = {
    "light": ("#1f2328", "#59636e", "#0a6b5d", "#8c959f"),
    "dark": ("#e6edf3", "#9aa4af", "#4cc9b0", "#6e7781"),
}
Images = NDArray[np.float64]


def draw_image(axes: plt.Axes, image: Images, **options: object) -> None:
    """Draw one image without ticks."""
    axes.imshow(image, **({"cmap": "gray"} | options))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def draw_scores(axes: plt.Axes, answer: Identification, colours: list[str]) -> None:
    """Draw the scores of the five best candidates and the threshold."""
    text, quiet, right, other = colours
    best = answer.candidates
    scores = [candidate.score for candidate in best]
    found = answer.decision == "match"
    bars = [right if found and k == 0 else other for k in range(len(best))]
    axes.barh(range(len(best)), scores, color=bars, height=0.7)
    axes.axvline(answer.threshold, color=text, linestyle=(0, (4, 2)), linewidth=1.2)
    axes.axvline(0, color=quiet, linewidth=0.6)
    axes.set_yticks(range(len(best)), [candidate.subject for candidate in best])
    axes.set(ylim=(len(best) - 0.5, -0.6), xlim=(-4, 9), xticks=[-4, 0, 4, 8])
    axes.tick_params(colors=quiet, labelsize=10, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"It is {best[0].subject}" if found else "unknown",
        color=right if found else text,
        fontsize=13,
        fontweight="bold",
        loc="left",
    )


def main() -> None:
    """Draw the figure for both kinds of pages."""
    images = load_orl().images.reshape(40, 10, 32, 32)
    sharp = load_orl((112, 92)).images.reshape(40, 10, 112, 92)
    names = [f"s{number}" for number in range(1, 41)]
    recogniser = Recognizer()
    owners = np.repeat(names[:20], 2).tolist()
    recogniser.enroll_many(images[:20, :2].reshape(-1, 32, 32), owners)
    tried = np.concatenate([images[20:30].reshape(-1, 32, 32), images[:20, 3]])
    labels = np.repeat(names[20:30], 10).tolist() + names[:20]
    recogniser.calibrate(tried, labels, fpir=0.05)
    probes = (1, 7), (30, 0)
    answers = [recogniser.identify(images[probe]) for probe in probes]
    for answer in answers:
        best = [(c.subject, round(c.score, 2)) for c in answer.candidates]
        print(answer.decision, round(answer.threshold, 2), best)

    # What P_c looks for: the leading factor of the paper's method on pixels.
    rows = images[:20, :2].reshape(40, -1)
    learn = make_pipeline(StandardScaler(with_std=False), Normalizer(), DualQML(1.0))
    qml = learn.fit(rows, owners)[-1]

    mpl.rcParams["svg.hashsalt"] = "dualqml"
    mpl.rcParams["svg.fonttype"] = "path"
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for page, colours in COLOURS.items():
        text, quiet = colours[:2]
        figure = plt.figure(figsize=(8.4, 4.3))
        parts = figure.add_gridspec(
            1, 3, left=0.01, right=0.99, top=0.77, bottom=0.11, wspace=0.14,
            width_ratios=(1.75, 1.9, 4.3),
        )  # fmt: skip
        heads = (
            (0.01, "1  Enrol", "two images each"),
            (0.255, "2  Learn", "one matrix each"),
            (0.525, "3  Ask", "a new image of s2, and a stranger"),
        )
        for x, head, below in heads:
            figure.text(x, 0.93, head, color=text, fontsize=15, fontweight="bold")
            figure.text(x, 0.865, below, color=quiet, fontsize=11.5)
        enrolled = parts[0].subgridspec(len(SHOWN), 2, hspace=0.06, wspace=0.0)
        learned = parts[1].subgridspec(len(SHOWN), 2, hspace=0.06, wspace=0.0)
        for k, name in enumerate(SHOWN):
            for j in range(2):
                axes = figure.add_subplot(enrolled[k, j])
                draw_image(axes, sharp[names.index(name), j])
            P = qml.quadratic_matrix(name)
            vectors = np.linalg.eigh(P).eigenvectors
            factor = vectors[:, -1].reshape(32, 32)
            factor *= np.sign(
                factor.ravel() @ (rows[2 * names.index(name)] - rows.mean(0))
            )
            top = np.abs(factor).max()
            axes = figure.add_subplot(learned[k, 0])
            draw_image(axes, factor, cmap="RdBu_r", vmin=-top, vmax=top)
            axes = figure.add_subplot(learned[k, 1])
            axes.axis("off")
            axes.text(0, 0.5, f"$P_{{{name}}}$", color=text, fontsize=13, va="center")
        asked = parts[2].subgridspec(
            2, 2, width_ratios=(1, 2.6), hspace=0.55, wspace=0.2
        )
        for k, (probe, answer) in enumerate(zip(probes, answers, strict=True)):
            draw_image(figure.add_subplot(asked[k, 0]), sharp[probe])
            draw_scores(figure.add_subplot(asked[k, 1]), answer, list(colours))
        figure.text(
            0.99, 0.01, "score: log likelihood ratio; dashed: the threshold",
            color=quiet, fontsize=10.5, ha="right",
        )  # fmt: skip
        target = folder / f"front_page_{page}.svg"
        figure.savefig(target, transparent=True, metadata={"Date": None})
        plt.close(figure)
        print("wrote", target)


if __name__ == "__main__":
    main()
