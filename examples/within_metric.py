# SPDX-License-Identifier: BSD-3-Clause
"""A figure of what the within-class metric does to new faces (ORL).

``python examples/within_metric.py [FILE]`` learns the metric from two images of each of
40 people and draws the other eight images: on the left scaled to unit norm, on the
right in the metric. It needs ``dualqml[demo]``.
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from dualqml import DualQMLWCV, WithinMetric
from dualqml.data import load_orl

Rows = NDArray[np.float64]


def draw_people(axes: plt.Axes, Z: Rows, codes: NDArray[np.int64], people: int) -> None:
    """Draw the first people in the plane that separates their means best."""
    means = np.array([Z[codes == c].mean(axis=0) for c in range(people)])
    plane = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2][:2]
    for c in range(people):
        x, y = (Z[codes == c] @ plane.T).T
        axes.scatter(x, y, s=18, color=f"C{c}")
    axes.set(xticks=[], yticks=[])


def draw_similarities(axes: plt.Axes, Z: Rows, codes: NDArray[np.int64]) -> None:
    """Draw how similar images are, of one person and of two people."""
    above = np.triu_indices(len(Z), 1)
    cosines = (Z @ Z.T)[above]
    same = codes[above[0]] == codes[above[1]]
    bins = np.linspace(-0.5, 1.0, 61)
    axes.hist(cosines[~same], bins, density=True, alpha=0.6, label="two people")
    axes.hist(cosines[same], bins, density=True, alpha=0.6, label="one person")
    missed = np.mean(cosines[same] < np.quantile(cosines[~same], 0.99))
    axes.set(yticks=[], xlabel=f"cosine (FNMR {100 * missed:.0f} % at FMR 1 %)")
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    """Draw the figure."""
    faces = load_orl()
    codes = np.unique(faces.labels, return_inverse=True)[1]
    X_train, X, train_codes, codes = train_test_split(
        faces.rows, codes, train_size=80, stratify=codes, random_state=0
    )
    chosen = DualQMLWCV(image_shape=(32, 32), random_state=0).fit(X_train, train_codes)
    metric = WithinMetric(rho=chosen.best_rho_, image_shape=(32, 32))
    metric.fit(X_train, train_codes)
    mpl.rcParams["svg.hashsalt"] = "dualqml"
    figure, axes = plt.subplots(2, 2, figsize=(7.5, 5.5), layout="constrained")
    rows = normalize(X) - normalize(X_train).mean(axis=0)
    for column, title, Z in (
        (0, "unit norm, centred", normalize(rows)),
        (1, f"within-class metric, rho = {chosen.best_rho_:g}", metric.transform(X)),
    ):
        axes[0, column].set_title(title)
        draw_people(axes[0, column], Z, codes, people=8)
        draw_similarities(axes[1, column], Z, codes)
    target = sys.argv[1] if len(sys.argv) > 1 else "within_metric.svg"
    figure.savefig(target, metadata={"Date": None})
    print("wrote", target)


if __name__ == "__main__":
    main()
