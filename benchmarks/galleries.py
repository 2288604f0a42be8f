# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.galleries``: unequal galleries, strangers and backgrounds.

A cell is a question, a set of samples and a number m of enrolled samples. A division
says at random who is enrolled, who is a stranger and who is in the background: other
people, from whom a method may learn what all people have in common. All methods have
the same divisions. A division depends only on the cell and its seed, and the people of
a set are divided in the same way for every m.

The questions:

- unequal: half of the people have one training sample, the others m.
- open-set: some people are enrolled, the others are strangers.
- background: the same with a background.
- one-person: one person is enrolled, with one sample.
- calibration: do probabilities tell how often a decision is right?
- thresholds: does a threshold for an FPIR of 5 % hold?
- log-ratios: how often are comparisons of strangers, and of people themselves, far from
  what their scores say?

Each result is written to a file at once, one line per result. A second run continues
there.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.timing import markdown_table
from dualqml._linalg import unit_rows
from dualqml._typing import Array, Index
from dualqml.evaluation import cmc_curve, fnir_at_fpir, fnmr_at_fmr
from dualqml.extractors import Background, DualQMLW, DualQMLWCV
from dualqml.extractors.methods import make_method
from dualqml.recognition import Recognizer
from tests.datasets import has_database, load_samples

FIRST_SEED = 9000
IMAGES = ("ar", "orl")
IMAGE_SHAPE = (32, 32)
#: Most probes of an enrolled person, and most samples of a stranger.
MOST_PROBES = 30
#: Most samples of strangers for one enrolled person.
MOST_IMPOSTORS = 200
#: The false positive identification rate for which thresholds are set.
TARGET_FPIR = 0.05

OURS = "DualQML-W"
FIXED = "DualQML-W fixed"
RECOGNIZER = "Recognizer"
NEAREST = "nearest sample"
CLASS_MEAN = "class mean"
KERNEL_LDA = "K-LDA"
COSINE = "cosine"
#: What the name of a method with a background ends in.
WITH_BACKGROUND = " + background"
#: What the name of a rival ends in that compares local descriptors of images.
OF_DESCRIPTORS = " of descriptors"
#: Keys of the rivals in `make_method`.
RIVALS = {NEAREST: "NN-cosine", CLASS_MEAN: "Mean-cosine", KERNEL_LDA: "K-LDA"}


@dataclass(frozen=True)
class Cell:
    """A question about a set of samples.

    Attributes
    ----------
    question : str
        What is measured.
    database : str
        The samples.
    m : int
        Enrolled samples of each person; all but one of people with m or fewer.
    enrolled, background : float
        Shares of the people. All others are strangers.
    unequal : bool
        Whether half of the people have one sample instead of m.
    other : str
        Another set, all of whose people are the background.
    most_people : int
        Most people that are enrolled; zero for all. Others of them are strangers.
    """

    question: str
    database: str
    m: int
    enrolled: float = 1.0
    background: float = 0.0
    unequal: bool = False
    other: str = ""
    most_people: int = 0

    @property
    def title(self) -> str:
        """The set and the samples of each person."""
        text = f"{self.database} m={self.m}"
        if self.unequal:
            text = f"{self.database} m=1 or {self.m}"
        if self.most_people:
            text += f", {self.most_people} people"
        return text + (", easier background" if self.other else "")

    @property
    def name(self) -> str:
        """The question and the title."""
        return f"{self.question}: {self.title}"

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images in the rows; None for vectors."""
        return IMAGE_SHAPE if self.database in IMAGES else None

    @property
    def n_divisions(self) -> int:
        """Number of divisions by default: fewer for images, which take long."""
        return 10 if self.image_shape is None else 5

    @property
    def methods(self) -> list[str]:
        """The methods; the others are compared with the first."""
        if self.question == "unequal":
            rivals = [NEAREST, CLASS_MEAN]
            if self.image_shape is None:
                return [OURS, FIXED, *rivals]
            rivals.append(KERNEL_LDA)
            return [OURS, *rivals, *(name + OF_DESCRIPTORS for name in rivals)]
        if self.question == "open-set":
            return [RECOGNIZER, OURS, CLASS_MEAN, NEAREST]
        if self.question == "background":
            ours = [RECOGNIZER, RECOGNIZER + WITH_BACKGROUND]
            return [*ours, OURS, OURS + WITH_BACKGROUND, CLASS_MEAN]
        if self.question == "one-person":
            return [RECOGNIZER + WITH_BACKGROUND, COSINE]
        if self.question == "calibration":
            return [OURS]
        if self.question == "log-ratios":
            return [RECOGNIZER]
        return [RECOGNIZER + WITH_BACKGROUND, RECOGNIZER]


def _cells() -> list[Cell]:
    """All cells."""
    unequal = {"lfw_embeddings": 8, "agegap_sface": 4, "agegap_edgeface": 4}
    unequal |= {"ar": 4, "orl": 4}
    cells = [Cell("unequal", name, m, unequal=True) for name, m in unequal.items()]
    for name, sizes, share in (
        ("agegap_sface", (2, 4), 0.6),
        ("agegap_edgeface", (2,), 0.6),
        ("lfw_embeddings", (2, 5, 8), 2.0 / 3.0),
        ("lfw_sface", (2,), 2.0 / 3.0),
    ):
        cells += [Cell("open-set", name, m, share) for m in sizes]
    vectors = ("agegap_sface", "agegap_edgeface", "lfw_embeddings", "lfw_sface")
    shares = (0.4, 0.35)
    cells += [Cell("background", v, m, *shares) for v in vectors for m in (1, 2, 4)]
    cells += [
        Cell("background", "agegap_sface", m, *shares, other="lfw_sface")
        for m in (1, 2, 4)
    ]
    cells += [Cell("background", i, m, *shares) for i in IMAGES for m in (1, 2)]
    cells += [Cell("one-person", name, 1, *shares) for name in vectors]
    for name, sizes in (
        ("lfw_embeddings", (2, 5)),
        ("agegap_sface", (2, 4)),
        ("orl", (4,)),
    ):
        cells += [Cell("calibration", name, m) for m in sizes]
        if name != "orl":
            cells.append(Cell("calibration", name, unequal[name], unequal=True))
    cells += [
        Cell("log-ratios", name, m, 0.6, most_people=most)
        for name in (*vectors, *IMAGES)
        for most, m in ((4, 2), (0, 1), (0, 2), (0, 4))
    ]
    return cells + [
        Cell("thresholds", v, m, *shares, most_people=most)
        for v in vectors
        for most in (0, 8)
        for m in (1, 2, 4)
    ]


CELLS = _cells()


#: People of other sets who are probably in the age-gap set too: the means of their five
#: largest cosines with one of its people are above 0.6, those of all others below 0.42.
PROBABLY_IN_BOTH = {"lfw_sface": (7, 11, 83, 122, 139)}


@lru_cache(maxsize=2)
def samples(database: str) -> tuple[Array, NDArray[np.int64]]:
    """Vectors, or rows of 8-bit pixels, and labels."""
    X, labels = load_samples(database)
    return (np.round(255.0 * X) if database in IMAGES else X), labels


@dataclass(frozen=True)
class Division:
    """Samples of one division.

    Attributes
    ----------
    cell : Cell
        The cell.
    X : ndarray of shape (n_samples, n_features)
        Samples.
    labels : ndarray of int of shape (n_samples,)
        The person of each sample.
    people : ndarray of int of shape (n_people,)
        The enrolled people, sorted.
    one_sample : ndarray of int
        Those of them who have one sample by design.
    train, mated, nonmated, background : ndarray of int
        Rows that are enrolled, other rows of the same people, rows of strangers and
        rows of the background.
    """

    cell: Cell
    X: Array
    labels: NDArray[np.int64]
    people: Index
    one_sample: Index
    train: Index
    mated: Index
    nonmated: Index
    background: Index

    @property
    def codes(self) -> Index:
        """The column of the person of each row in `mated`."""
        return np.searchsorted(self.people, self.labels[self.mated])

    @cached_property
    def known_people(self) -> Background:
        """The background, as the library wants it."""
        if self.cell.other:
            X, labels = samples(self.cell.other)
            others = ~np.isin(labels, PROBABLY_IN_BOTH.get(self.cell.other, ()))
            return Background.from_samples(X[others], labels[others])
        rows = self.background
        return Background.from_samples(
            self.X[rows], self.labels[rows], image_shape=self.cell.image_shape
        )


def divide(cell: Cell, seed: int) -> Division:
    """Divide the people and their samples at random."""
    X, labels = samples(cell.database)
    rng = np.random.default_rng(seed)
    dealt = rng.permutation(np.unique(labels))
    n_enrolled = round(cell.enrolled * dealt.size)
    n_background = round(cell.background * dealt.size)
    people = np.sort(dealt[: cell.most_people or n_enrolled])
    others = dealt[n_enrolled : n_enrolled + n_background]
    one_sample = np.sort(dealt[: dealt.size // 2]) if cell.unequal else dealt[:0]
    train, mated, nonmated, background = ([dealt[:0]] for _ in range(4))
    for person in np.sort(dealt):
        own = rng.permutation(np.flatnonzero(labels == person))
        if person in people:
            size = 1 if person in one_sample else min(cell.m, own.size - 1)
            train.append(own[:size])
            mated.append(own[size : size + MOST_PROBES])
        elif person in others:
            background.append(own)
        else:
            nonmated.append(own[:MOST_PROBES])
    rows = [np.concatenate(part) for part in (train, mated, nonmated, background)]
    return Division(cell, X, labels, people, one_sample, *rows)


def classifier(method: str, division: Division) -> Any:
    """A classifier, not fitted."""
    shape = division.cell.image_shape
    name = method.removesuffix(WITH_BACKGROUND)
    options: dict[str, Any] = {}
    if name != method:
        options["background"] = division.known_people
    if name == OURS:
        return DualQMLWCV(random_state=0, image_shape=shape, **options)
    if name == FIXED:
        return DualQMLW(rho=2.5, lam=0.1, rule="max", kernel="linear", **options)
    inputs = "local" if name.endswith(OF_DESCRIPTORS) else "unit-norm"
    rival = RIVALS[name.removesuffix(OF_DESCRIPTORS)]
    return make_method(rival, preprocessing=inputs, image_shape=shape)


def recognizer(method: str, division: Division, rows: Index) -> Recognizer:
    """A recogniser with some samples enrolled."""
    options: dict[str, Any] = {}
    if method.endswith(WITH_BACKGROUND):
        options["background"] = division.known_people
    model = Recognizer(**options)
    names = [f"{label:06d}" for label in division.labels[rows]]
    model.enroll_many(recognizer_inputs(division, rows), names)
    return model


def recognizer_inputs(division: Division, rows: Index) -> NDArray[Any]:
    """Samples in the form that a recogniser reads: 8-bit images, or vectors."""
    shape = division.cell.image_shape
    if shape is None:
        return division.X[rows]
    return division.X[rows].astype(np.uint8).reshape(-1, *shape)


def open_set(method: str, division: Division) -> dict[str, float]:
    """Errors of searches for enrolled people and for strangers."""
    if method.startswith(RECOGNIZER):
        model: Any = recognizer(method, division, division.train)
        mated, nonmated = (
            model.scores(recognizer_inputs(division, rows))
            for rows in (division.mated, division.nonmated)
        )
    else:
        model = classifier(method, division)
        model.fit(division.X[division.train], division.labels[division.train])
        mated, nonmated = (
            model.decision_function(division.X[rows])
            for rows in (division.mated, division.nonmated)
        )
    codes = division.codes
    out = {"rank-1 error": 1.0 - float(cmc_curve(mated, codes)[0])}
    for rate in (0.1, 0.01):
        point = fnir_at_fpir(mated, codes, nonmated, fpir=rate)
        out[f"FNIR at FPIR {100 * rate:g} %"] = float(point.fnir)
    return out


def unequal(method: str, division: Division) -> dict[str, float]:
    """Errors for people with one training sample and for the others."""
    model = classifier(method, division)
    model.fit(division.X[division.train], division.labels[division.train])
    truth = division.labels[division.mated]
    wrong = model.predict(division.X[division.mated]) != truth
    few = np.isin(truth, division.one_sample)
    return {
        "error, one sample": float(wrong[few].mean()),
        "error, more samples": float(wrong[~few].mean()),
        "error, all": float(wrong.mean()),
    }


def one_person(method: str, division: Division) -> dict[str, float]:
    """Errors of verification when one person is enrolled, with one sample."""
    genuine, impostor = [], []
    is_background = np.isin(division.labels, division.labels[division.background])
    for person, row in zip(division.people, division.train, strict=True):
        rng = np.random.default_rng([int(row), int(person)])
        strangers = np.flatnonzero(~is_background & (division.labels != person))
        if strangers.size > MOST_IMPOSTORS:
            strangers = rng.choice(strangers, MOST_IMPOSTORS, replace=False)
        own = division.mated[division.labels[division.mated] == person]
        if method == COSINE:
            enrolled = unit_rows(division.X[[row]])
            found = [
                unit_rows(division.X[rows]) @ enrolled[0] for rows in (own, strangers)
            ]
        else:
            model = recognizer(method, division, np.array([row]))
            found = [
                model.scores(recognizer_inputs(division, rows))[:, 0]
                for rows in (own, strangers)
            ]
        genuine.append(found[0])
        impostor.append(found[1])
    point = fnmr_at_fmr(np.concatenate(genuine), np.concatenate(impostor), fmr=0.01)
    return {"FNMR at FMR 1 %": float(point.fnmr)}


def expected_calibration_error(
    confidence: Array, correct: NDArray[np.bool_], n_bins: int = 10
) -> float:
    """Mean gap between confidence and accuracy over bins of equal width.

    Parameters
    ----------
    confidence : ndarray of shape (n_samples,)
        The probability of each decision, from 0 to 1.
    correct : ndarray of bool of shape (n_samples,)
        Whether it was right.
    n_bins : int, default=10
        Number of bins of the confidence.

    Returns
    -------
    float
        The mean over the bins, each with the share of its samples as weight.
    """
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, confidence - correct, minlength=n_bins)
    return float(np.abs(gaps).sum() / confidence.size)


def calibration(method: str, division: Division) -> dict[str, float]:
    """How well the probability of a decision tells whether it is right."""
    model = classifier(method, division)
    model.fit(division.X[division.train], division.labels[division.train])
    chances = model.predict_proba(division.X[division.mated])
    correct = chances.argmax(axis=1) == division.codes
    confidence = chances.max(axis=1)
    return {
        "calibration error": expected_calibration_error(confidence, correct),
        "accuracy": float(correct.mean()),
        "mean confidence": float(confidence.mean()),
    }


def log_ratios(method: str, division: Division) -> dict[str, float]:
    """How often the scores of strangers, and of people themselves, mislead."""
    model = recognizer(method, division, division.train)
    mated, nonmated = (
        model.scores(recognizer_inputs(division, rows))
        for rows in (division.mated, division.nonmated)
    )
    own = mated[np.arange(division.codes.size), division.codes]
    return {
        "strangers above 2.3": float((nonmated > np.log(10.0)).mean()),
        "strangers above 6.9": float((nonmated > np.log(1000.0)).mean()),
        "own below 0": float((own < 0.0).mean()),
    }


def thresholds(method: str, division: Division) -> dict[str, float]:
    """Error rates at a threshold that was set without other people's samples."""
    model = recognizer(method, division, division.train)
    with warnings.catch_warnings():
        # It warns that there are few searches.
        warnings.simplefilter("ignore", UserWarning)
        threshold = model.calibrate(fpir=TARGET_FPIR).threshold
    mated, nonmated = (
        model.scores(recognizer_inputs(division, rows))
        for rows in (division.mated, division.nonmated)
    )
    right = (mated.argmax(axis=1) == division.codes) & (mated.max(axis=1) >= threshold)
    return {
        "FPIR": float((nonmated.max(axis=1) >= threshold).mean()),
        "FNIR": 1.0 - float(right.mean()),
    }


QUESTIONS = {
    "unequal": unequal,
    "open-set": open_set,
    "background": open_set,
    "one-person": one_person,
    "calibration": calibration,
    "thresholds": thresholds,
    "log-ratios": log_ratios,
}

#: Measures in per cent, by cell, seed and method.
Results = dict[tuple[str, int, str], dict[str, float]]


def measure(cell: Cell, seed: int, method: str) -> dict[str, Any]:
    """Measures of a method on one division, in per cent, and the CPU time."""
    with threadpool_limits(1, user_api="blas"):
        division = divide(cell, seed)
        start = time.process_time()
        found = QUESTIONS[cell.question](method, division)
        seconds = time.process_time() - start
    return {
        "cell": cell.name,
        "seed": seed,
        "method": method,
        "measures": {name: 100.0 * value for name, value in found.items()},
        "seconds": seconds,
    }


def read(store: Path) -> Results:
    """Results so far."""
    lines = store.read_text().splitlines() if store.exists() else []
    records = [json.loads(line) for line in lines]
    return {(r["cell"], r["seed"], r["method"]): r["measures"] for r in records}


def _mean(values: Sequence[float], sign: str = "") -> str:
    """Mean and standard error."""
    text = f"{np.mean(values):{sign}.2f}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}"
    return text


def table(question: str, results: Results, before: Results | None = None) -> str:
    """Means and standard errors, and differences over shared divisions.

    Parameters
    ----------
    question : str
        Which table.
    results : dict
        The results.
    before : dict, optional
        Results of older code. Then differences are to the same method there, instead
        of to the first method of the cell.

    Returns
    -------
    str
        A table in Markdown.
    """
    rows: list[list[str]] = []
    measures: list[str] = []
    for cell in CELLS:
        if cell.question != question:
            continue
        first = None
        for method in cell.methods:
            own = {
                s: v
                for (c, s, w), v in results.items()
                if (c, w) == (cell.name, method)
            }
            if not own:
                continue
            first = first or method
            reference, other = (results, first) if before is None else (before, method)
            shared = [s for s in own if (cell.name, s, other) in reference]
            measures = list(next(iter(own.values())))
            texts = []
            for name in measures:
                text = _mean([found[name] for found in own.values()])
                if shared and (before is not None or method != first):
                    gaps = [
                        own[s][name] - reference[cell.name, s, other][name]
                        for s in shared
                    ]
                    text += f" ({_mean(gaps, '+')})"
                texts.append(text)
            rows.append([cell.title, method, f"{len(own)}", *texts])
    return markdown_table(["cell", "method", "divisions", *measures], rows)


def chosen_cells(wanted: list[str]) -> list[Cell]:
    """Cells whose name begins with one of the given texts."""
    cells = [cell for cell in CELLS if cell.name.startswith(tuple(wanted))]
    if not cells:
        names = ", ".join(cell.name for cell in CELLS)
        raise SystemExit(f"No cell begins with {wanted}; there are: {names}")
    return cells


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("galleries.jsonl"))
    parser.add_argument(
        "--cells",
        nargs="+",
        default=[""],
        help="what the names of the cells begin with",
    )
    parser.add_argument("--methods", help="names with commas between them")
    parser.add_argument("--divisions", type=int, help="number of divisions of a cell")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument(
        "--before", type=Path, help="print differences to the results in this file"
    )
    options = parser.parse_args()
    cells = [
        cell
        for cell in chosen_cells(options.cells)
        if has_database(cell.database) and (not cell.other or has_database(cell.other))
    ]
    methods = [name.strip() for name in (options.methods or "").split(",") if name]
    done = read(options.store)
    numbers = [
        range(cell.n_divisions if options.divisions is None else options.divisions)
        for cell in cells
    ]
    missing = [
        task
        for number in range(max(map(len, numbers)))
        for cell, own in zip(cells, numbers, strict=True)
        for method in cell.methods
        if number in own
        and (not methods or method in methods)
        and (task := (cell, options.first_seed + number, method))
        and (cell.name, *task[1:]) not in done
    ]
    for task in missing:
        record = measure(*task)
        with options.store.open("a") as out:
            out.write(json.dumps(record) + "\n")
    print("In per cent, with standard errors over the divisions. In brackets is the")
    other = "first method of the cell" if options.before is None else "results before"
    print(f"difference to the {other}, over the same divisions.")
    results = read(options.store)
    before = None if options.before is None else read(options.before)
    for question in dict.fromkeys(cell.question for cell in cells):
        print(f"\n{question}\n\n{table(question, results, before)}", flush=True)


if __name__ == "__main__":
    main()
