# SPDX-License-Identifier: BSD-3-Clause
"""What reports say of their protocol, methods and terms, in one place."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dualqml._text import printable
from dualqml.experiments.labels import (
    database_label,
    input_label,
    listed,
    sample_word,
)
from dualqml.experiments.results import TUNED, Results, Setting
from dualqml.experiments.table_formats import Cell, Heading, Row, Table
from dualqml.extractors.methods import ALL_METHODS, Method
from dualqml.extractors.nearest import NearestMean

#: Parameters that DualQML and DualQML-W choose.
_PARAMETERS: Mapping[str, str] = {
    "lam": "weight of the regularisation of the quadratic forms, lambda",
    "folds": "number of parts of the training set in the cross-validation",
    "rule": (
        "what decides: the cosine with the responses of training samples, or the "
        "largest response (max)"
    ),
    "rho": "weight of the prior in the within-class metric",
    "width": "variance of the kernel, in units of the median squared distance",
    "descriptor": "what is learned from: local descriptors (local) or the input (None)",
}

#: What is done to each sample before any method sees it.
_PHOTOMETRIES: Mapping[str, str] = {
    "unit-norm": "each {sample} is scaled to unit norm",
    "mean-removed": "the mean of each {sample} is subtracted, then unit norm",
    "z-score": "each {sample} has zero mean and unit variance",
    "equalise": "each pixel becomes the share of pixels that are not brighter",
    "tan-triggs": "gamma, difference of Gaussians, equal contrast; Tan and Triggs 2010",
    "none": "{sample}s are taken as they are",
}

#: As many different ranks are said in words.
_FEW_RANKS = 3

#: A term and its definition, in the order of their first use. "{sample}" stands for
#: what was recognised.
TERMS: Mapping[str, str] = {
    "error": "share of the test {sample}s that get the name of a wrong subject",
    "m": "number of training {sample}s of each subject",
    "split": (
        "one division of the {sample}s into training and test {sample}s; each "
        "repetition has its own, which all methods share"
    ),
    "local descriptors": (
        "histograms of the directions of edges, magnitudes of Gabor filters and pixels "
        "around the points of a grid, each {sample} on its own. They change less with "
        "light and small displacement than pixels do"
    ),
    "±": "standard deviation over the splits; it is not an error of the mean",
    "best rival": (
        "the method other than ours (DualQML and DualQML-W) with the lowest mean "
        "error in the same setting"
    ),
    "paired difference": (
        "the errors of two methods on the same split, one minus the other, so that "
        "the luck of the split cancels"
    ),
    "95 % interval": (
        "where the mean difference over all possible splits lies, with 95 % "
        "confidence; if it contains zero, no difference is seen"
    ),
    "CMC": (
        "cumulative match characteristic: share of the test {sample}s whose subject is "
        "among the first k of the list; k = 1, 2, … is the rank"
    ),
    "rank of a matrix": (
        "number of directions that the matrix of a class uses; one means that a "
        "single projection describes the class"
    ),
    "CPU time": "time of computation on one core, without waiting",
    "enrolled people, strangers": (
        "the gallery knows enrolled people only; a stranger is everybody else"
    ),
    "mated, non-mated search": (
        "a search for an enrolled person, and a search for a stranger"
    ),
    "rank-1 error": (
        "share of the mated searches in which another person comes first, whatever "
        "the score"
    ),
    "FMR": (
        "false match rate: share of the comparisons of different people whose score "
        "reaches the threshold"
    ),
    "FNMR": (
        "false non-match rate: share of the comparisons of the same person whose score "
        "is below the threshold"
    ),
    "EER": "equal error rate: FMR and FNMR at the threshold where they are equal",
    "FPIR": (
        "false-positive identification rate: share of the searches for strangers that "
        "find somebody"
    ),
    "FNIR": (
        "false-negative identification rate: share of the searches for enrolled people "
        "that do not find them, because another person comes first or the score is "
        "below the threshold"
    ),
    "FNIR at FPIR 1 %": (
        "the threshold is set so that 1 % of the strangers find somebody; FNIR is what "
        "that costs the enrolled people. In the same way FNMR at FMR 0.1 %"
    ),
    "people drawn anew": (
        "the interval is that of the bootstrap: people, each with all of their images, "
        "are drawn with replacement many times, and the rate is computed again"
    ),
    "DET": (
        "detection error trade-off: FNMR against FMR over all thresholds, on axes "
        "that make curves of normal scores straight"
    ),
}


def terms(*names: str, sample: str = "image") -> list[tuple[str, str]]:
    """Terms with their definitions.

    Parameters
    ----------
    *names : str
        Keys of `TERMS`.
    sample : str, default="image"
        What was recognised; see `sample_word`.

    Returns
    -------
    list of (str, str)
        Each term with its definition.

    Examples
    --------
    >>> from dualqml.experiments.explanations import terms
    >>> terms("m", sample="vector")
    [('m', 'number of training vectors of each subject')]
    """
    return [(name, TERMS[name].replace("{sample}", sample)) for name in names]


def parameter_terms(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Definitions of the parameters that DualQML and DualQML-W choose.

    Parameters
    ----------
    found : iterable of (str, str)
        Rows of the tables, each with the name of a parameter.

    Returns
    -------
    list of (str, str)
        The names with their definitions. Parameters of other methods are left out.

    Examples
    --------
    >>> from dualqml.experiments.explanations import parameter_terms
    >>> parameter_terms([("DualQML", "lam"), ("LDA", "n_components")])
    [('lam', 'weight of the regularisation of the quadratic forms, lambda')]
    """
    own = {name for row, name in found if row.startswith("DualQML")}
    return [(name, _PARAMETERS[name]) for name in _PARAMETERS if name in own]


def protocol_sentences(results: Results) -> list[str]:
    """How the errors were measured.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    list of str
        Some sentences; empty without results.

    Examples
    --------
    >>> from dualqml.experiments.explanations import protocol_sentences
    >>> from dualqml.experiments.results import Results
    >>> protocol_sentences(Results([]))
    []
    """
    settings = results.settings
    if not settings:
        return []
    word = sample_word(settings)
    names = listed([database_label(name) for name in results.databases])
    sentences = [f"Data: {names}."]
    random = [s for s in settings if s.protocol == "random"]
    others = [s for s in settings if s.protocol != "random"]
    if random:
        sizes = listed([str(m) for m in sorted({s.m for s in random})])
        counts = _splits(results, random)
        sentences.append(
            f"Protocol: in each of {counts} random splits, m = {sizes} {word}s of each "
            f"subject train the methods, and all other {word}s test them."
        )
    for setting in others:
        sentences.append(
            f"Protocol {setting.protocol} on {database_label(setting.database)}: "
            f"{_splits(results, [setting])} fixed division into training and test "
            f"{word}s."
        )
    inputs = listed(list(dict.fromkeys(input_label(s) for s in settings)))
    scaled = sorted({printable(s.photometry) for s in settings})
    what = "Scaling" if word == "vector" else "Photometry"
    said = [_PHOTOMETRIES.get(name, "").replace("{sample}", word) for name in scaled]
    named = [
        f"{name} ({text})" if text else name
        for name, text in zip(scaled, said, strict=True)
    ]
    sentences.append(
        f"All methods get the same splits and the same input: {inputs}. {what}: "
        f"{listed(named)}. A test {word} gets the name of one subject; the error is "
        "the share of wrong names."
    )
    if any(result.searched for result in results.by_unit.values()):
        sentences.append("Parameters are chosen on the training set alone.")
    return sentences


def methods_table(results: Results) -> Table:
    """The methods of some results: full names, how they decide, references.

    Parameters
    ----------
    results : Results
        What was run.

    Returns
    -------
    Table
        A row for each row of the tables of errors. Names and references are those of
        `dualqml.extractors.methods`.
    """
    rows = []
    for row in results.rows:
        method = ALL_METHODS.get(row.removesuffix(TUNED))
        runs = [run for s in results.settings for run in results.runs(s, row)]
        chosen = any(run.searched for run in runs)
        parameters = "chosen on the training set" if chosen else "given"
        spec = results.own_rows.get(row)
        if spec is not None or method is None:
            texts = (printable(spec or row), "its own", parameters, "a method of yours")
        else:
            texts = method.title, _decision(method), parameters, method.reference
        rows.append(Row(row, tuple(map(Cell, texts))))
    return Table(
        title="Methods",
        corner="Method",
        header=(
            tuple(map(Heading, ("Full name", "Decision", "Parameters", "Reference"))),
        ),
        rows=tuple(rows),
        align="lpllp",
        notes=(
            "Decision: who the subject is, once the features are there. Its own: the "
            "method is a classifier.",
        ),
    )


def ranks_in_words(results: Results, setting: Setting) -> str:
    """How many classes have a matrix of which rank, in the first repetition.

    Parameters
    ----------
    results : Results
        What was run.
    setting : Setting
        In which setting.

    Returns
    -------
    str
        A sentence; empty if no rank is known, or if there are more than three
        different ones, which a figure shows better.
    """
    said = []
    for row in results.rows:
        runs = [run for run in results.runs(setting, row) if run.spectrum]
        if runs:
            counts = Counter(runs[0].spectrum["ranks"])
            if len(counts) > _FEW_RANKS:
                return ""
            found = [f"{n} of rank {rank}" for rank, n in sorted(counts.items())]
            said.append(f"{row} has {listed(found)}")
    if not said:
        return ""
    where = f"m = {setting.m}, first" if setting.m else "First"
    return (
        f"Matrices of the classes, {where} repetition: {'; '.join(said)}. A matrix of "
        "rank 1 is a single projection."
    )


def _decision(method: Method) -> str:
    if method.metric is None:
        return "its own"
    nearest = "mean" if method.rule is NearestMean else "sample"
    metric = "Euclidean" if method.metric == "euclidean" else method.metric
    return f"nearest {nearest}, {metric}"


def _splits(results: Results, settings: Sequence[Setting]) -> str:
    """The number of splits of each setting, or the lowest and the highest."""
    repetitions: dict[Setting, set[int]] = {setting: set() for setting in settings}
    for unit in results.by_unit:
        if (setting := Setting.of(unit)) in repetitions:
            repetitions[setting].add(unit.repetition)
    counts = sorted(map(len, repetitions.values()))
    return " to ".join(str(n) for n in dict.fromkeys([counts[0], counts[-1]]))
