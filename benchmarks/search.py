# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.search``: one search among very many people.

The people are made up, with three samples each, and the library solves for them. Those
of "lfw-like" have the covariances of real face embeddings, between people and within
them, or, where these are not available, spectra that decay alike. Those of "sphere" are
the same in all directions. The probes are new samples of enrolled people.

Each way is compared with the one that came before all of them, which is written here:
two products of matrices in double precision, and a full sort. A time is the median of
interleaved runs in CPU time, with one BLAS thread. In a run, a way answers several
probes one after the other, or a batch of them.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved_medians, markdown_table
from dualqml._typing import Array, Index
from dualqml.extractors.quadratic_features import signed_root_features
from dualqml.recognition import Recognizer
from dualqml.recognition.exact_scorer import ArrayScorer, ExactScorer
from dualqml.recognition.folded_search import FoldedGallery, searching_part
from dualqml.scale import Shortlist, fit_blocks
from tests.datasets import has_database, load_samples

SIZES = (100_000,)
KINDS = ("lfw-like", "sphere")
N_FEATURES, N_SAMPLES = 128, 3
N_PROBES, BATCH, TOP = 3000, 64, 5
#: Single searches in a run. With one, other work comes between any two of them, and
#: nothing of a gallery is left in the caches.
IN_TURN = 10
REPEATS = 15
#: Spread of the samples of a person of "sphere", relative to that of people.
NOISE = 0.8
#: Above this number of people, they are solved in blocks.
MOST_LOCAL = 200_000
#: Probes of which the full sort is computed, to compare all of its places.
N_SORTED = 100

#: The least speed-up and, of shortlists, the least recall of the best class.
BARS: dict[str, tuple[float, float | None]] = {
    "folded": (2.5, 1.0),
    "flat, k = 10": (4.0, 0.999),
    "folded, 64 at once": (20.0, None),
    "flat, k = 10, 64 at once": (20.0, None),
}
#: On vectors that differ in few directions only.
IVF_BAR = (20.0, 0.99)


@dataclass(frozen=True)
class Gallery:
    """Enrolled people and new samples of them.

    Attributes
    ----------
    scorer : ArrayScorer
        The model.
    probes : ndarray of shape (n_probes, n_features)
        New samples.
    people : ndarray of int of shape (n_probes,)
        The class of each.
    """

    scorer: ArrayScorer
    probes: Array
    people: Index


def spectra(kind: str) -> tuple[Array, Array, Array]:
    """Mean, and factors of the covariances between people and within them."""
    if kind == "sphere":
        factor = np.eye(N_FEATURES) / np.sqrt(N_FEATURES)
        return np.zeros(N_FEATURES), factor, NOISE * factor
    if has_database("lfw_embeddings"):
        rows, labels = load_samples("lfw_embeddings")
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        codes, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
        means = np.zeros((counts.size, rows.shape[1]))
        np.add.at(means, codes, rows)
        means /= counts[:, None]
        residuals = rows - means[codes]
        within = residuals.T @ residuals / (len(rows) - counts.size)
        mean = rows.mean(axis=0)
        between = (means - mean).T @ (means - mean) / (counts.size - 1)
        between -= within * np.mean(1.0 / counts)
        return mean, _root(between), _root(within)
    decay = 1.0 / (1.0 + np.arange(N_FEATURES) / 8.0)
    mean = np.full(N_FEATURES, 0.9 / np.sqrt(N_FEATURES))
    return mean, np.diag(0.12 * decay), np.diag(0.06 * np.sqrt(decay))


def _root(covariance: Array) -> Array:
    values, axes = np.linalg.eigh(covariance)
    return (axes * np.sqrt(np.maximum(values, 0.0))).T


def make_gallery(kind: str, n_classes: int) -> Gallery:
    """Make up people, enrol them, and solve for them."""
    rng = np.random.default_rng(0)
    mean, between, within = spectra(kind)

    def noise(n_rows: int) -> Array:
        return rng.normal(size=(n_rows, len(within))) @ within

    centres = mean + rng.normal(size=(n_classes, len(between))) @ between
    people = rng.integers(0, n_classes, N_PROBES)
    probes = (centres[people] + noise(N_PROBES)).astype(np.float32)
    rows = np.repeat(centres.astype(np.float32), N_SAMPLES, axis=0)
    for start in range(0, len(rows), 1 << 16):
        part = rows[start : start + (1 << 16)]
        part += noise(len(part))
    names = [f"person {number:08d}" for number in range(n_classes)]
    if n_classes <= MOST_LOCAL:
        recognizer = Recognizer()
        recognizer.enroll_many(rows, np.repeat(names, N_SAMPLES).tolist())
        scorer = searching_part(recognizer).exact_scorer()
    else:
        numbers = np.repeat(np.arange(n_classes), N_SAMPLES)
        scorer = in_memory(fit_blocks(Recognizer(), rows, numbers).exact_scorer())
    return Gallery(scorer, probes, people)


def in_memory(scorer: ExactScorer) -> ArrayScorer:
    """The arrays of a model whose parts lie in files."""
    blocks = list(scorer.class_blocks())

    def joined(name: str) -> Any:
        parts = [getattr(block, name) for block in blocks]
        return None if parts[0] is None else np.concatenate(parts)

    return ArrayScorer(
        mean=np.array(scorer.mean),
        coefficients=np.array(scorer.coefficients),
        components=joined("components"),
        ranks=joined("ranks"),
        mean_responses=joined("mean_responses"),
        class_scale=joined("class_scale"),
        means=joined("means"),
        scale=scorer.scale,
        labels=np.asarray(scorer.labels),
    )


def sorted_classes(scorer: ArrayScorer, rows: Array, top: int) -> Index:
    """The best classes as they were found before: all scores, and a full sort."""
    z, units = scorer.queries(rows)
    responses = signed_root_features(
        z, scorer.components, scorer.ranks, scorer.mean_responses
    )
    if scorer.class_scale is not None:
        responses = responses / scorer.class_scale
    scores = scorer.scale.scores(responses, units, scorer.means)
    return np.argsort(-scores, axis=1, kind="stable")[:, :top]


def one_by_one(search: Callable[[Array], object], probes: Array) -> Callable[[], None]:
    """Searches for probes, one after the other."""

    def run() -> None:
        for number in range(len(probes)):
            search(probes[number : number + 1])

    return run


def measured(
    kind: str, n_classes: int, *, with_ivf: bool = True, in_turn: int = IN_TURN
) -> list[list[str]]:
    """The lines of the table for a gallery."""
    gallery = make_gallery(kind, n_classes)
    scorer, probes = gallery.scorer, gallery.probes
    folded = FoldedGallery(scorer)
    best = folded.search(probes, 1)
    in_order = sorted_classes(scorer, probes[:N_SORTED], TOP)
    same = np.mean(folded.search(probes[:N_SORTED], TOP).classes == in_order)
    shortlists = {
        "flat, k = 10": Shortlist(scorer, k=10),
        "flat, k = 100": Shortlist(scorer, k=100),
    }
    if with_ivf:
        shortlists |= {
            "ivf, k = 10": Shortlist(scorer, index="ivf", k=10),
            "ivf, k = 100": Shortlist(scorer, index="ivf", k=100),
        }
    found = {
        name: float(np.mean(shortlist.search(probes, 1).scores >= best.scores))
        for name, shortlist in shortlists.items()
    }
    found["folded"] = float(same)

    turn, batch = probes[:in_turn], probes[:BATCH]
    searches: dict[str, Callable[[Array], object]] = {
        "folded": lambda rows: folded.search(rows, TOP)
    }
    for name, shortlist in shortlists.items():
        searches[name] = lambda rows, own=shortlist: own.search(rows, TOP)
    actions: dict[str, Callable[[], object]] = {
        "before": one_by_one(lambda rows: sorted_classes(scorer, rows, TOP), turn)
    }
    for name, search in searches.items():
        actions[name] = one_by_one(search, turn)
        actions[f"{name}, {BATCH} at once"] = lambda search=search: search(batch)
    seconds = interleaved_medians(actions, REPEATS)
    before = seconds["before"] / in_turn
    rank_one = np.mean(best.classes[:, 0] == gallery.people)
    lines = []
    for name, taken in seconds.items():
        per_query = taken / (BATCH if name.endswith("at once") else in_turn)
        bar = BARS.get(name)
        if name == "ivf, k = 10" and kind == "lfw-like":
            bar = IVF_BAR
        lines.append(
            [
                kind,
                f"{n_classes:,}",
                name,
                f"{1e3 * per_query:.2f}",
                f"{before / per_query:.1f}",
                f"{found[name]:.4f}" if name in found else "",
                _verdict(bar, before / per_query, found.get(name)),
            ]
        )
    lines[0][5] = f"rank-1 rate {rank_one:.3f}"
    return lines


def _verdict(
    bar: tuple[float, float | None] | None, speed_up: float, share: float | None
) -> str:
    if bar is None:
        return ""
    least, least_share = bar
    text = f"{least:g} x"
    held = speed_up >= least
    if least_share is not None:
        text += f", {least_share:g}"
        held &= share is not None and share >= least_share
    return f"{text}: {'held' if held else 'missed'}"


HEADER = [
    "people",
    "number",
    "search",
    "ms a query",
    "times as fast",
    "best class found",
    "bar",
]


def table(
    sizes: Sequence[int] = SIZES,
    kinds: Sequence[str] = KINDS,
    *,
    with_ivf: bool = True,
    in_turn: int = IN_TURN,
) -> str:
    """Times of searches among some numbers of people."""
    lines = []
    with threadpool_limits(1):
        for n_classes in sizes:
            for kind in kinds:
                lines += measured(kind, n_classes, with_ivf=with_ivf, in_turn=in_turn)
    return markdown_table(HEADER, lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    # Its groups of a million people take many minutes.
    parser.add_argument("--without-ivf", action="store_true")
    parser.add_argument(
        "--in-turn", type=int, default=IN_TURN, help="single searches in a run"
    )
    options = parser.parse_args()
    print(
        table(
            options.sizes,
            options.kinds,
            with_ivf=not options.without_ivf,
            in_turn=options.in_turn,
        )
    )


if __name__ == "__main__":
    main()
