# SPDX-License-Identifier: BSD-3-Clause
"""One fit to classes that lie in parts, wherever the parts are.

`ClassParts` is what a fit needs of the parts: they may be in memory, in files, or on
the workers of a cluster. `learn` is the fit: it goes through the parts three times, and
computes what all classes have in common in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualqml._sklearn import one_blas_thread
from dualqml._typing import Array, Index
from dualqml.extractors.dual_qml import DualQML
from dualqml.extractors.fit_in_parts import (
    Chosen,
    LinearMap,
    PartEstimator,
    Recipe,
    SharedProblem,
    check_profiles,
    check_size,
    largest_square,
    shared_problem,
)
from dualqml.extractors.part_sums import CoordinateSums, InputSums
from dualqml.extractors.zero_samples import (
    check_no_class_is_zero,
    nothing_but_zeros,
    report_zero_rows,
)

#: Most bytes of the samples on which parameters are chosen, in double precision.
_SEARCHED_BYTES = 200_000_000

#: Chooses the parameters from the sums over all inputs, and the inputs and class
#: numbers of the samples of some classes.
Choose = Callable[[InputSums, Array, Index], Chosen]


@dataclass(frozen=True)
class FoundSamples:
    """What the second pass over the parts finds.

    Attributes
    ----------
    sums : CoordinateSums
        Sums over the coordinates of all samples.
    zero_rows : ndarray of int
        Numbers of the samples that are zero vectors, ascending.
    empty_classes : ndarray of int
        Numbers of the classes that have no other samples, ascending.
    """

    sums: CoordinateSums
    zero_rows: Index
    empty_classes: Index


class ClassParts(Protocol):
    """Labelled samples in parts, each of which has whole classes."""

    @property
    def labels(self) -> NDArray[Any]:
        """The labels of all classes, sorted."""

    @property
    def counts(self) -> Index:
        """Number of samples of each class, in the order of the labels."""

    @property
    def n_features(self) -> int:
        """Number of values of a sample."""

    @property
    def n_parts(self) -> int:
        """Number of parts."""

    def input_sums(self, recipe: Recipe) -> InputSums:
        """Sums over all samples, merged in a fixed order."""

    def inputs_of(self, classes: Index, recipe: Recipe) -> tuple[Array, Index]:
        """Inputs of the samples of some classes, and their classes from 0.

        The samples of a class are in the order in which they were given.
        """

    def coordinate_sums(
        self, recipe: Recipe, linear: LinearMap | None, largest_square: float
    ) -> FoundSamples:
        """Sums over the coordinates of all samples, merged in a fixed order."""

    def solve(
        self, recipe: Recipe, linear: LinearMap | None, problem: SharedProblem
    ) -> None:
        """Solve and certify the classes of all parts, and keep what is found."""


@dataclass(frozen=True)
class Learnt:
    """What all classes have in common.

    Attributes
    ----------
    sums : InputSums
        Sums over all samples.
    chosen : Chosen
        The parameters, and the map to the coordinates.
    problem : SharedProblem
        The problem of which each class was solved.
    """

    sums: InputSums
    chosen: Chosen
    problem: SharedProblem


def learn(
    parts: ClassParts,
    estimator: PartEstimator,
    recipe: Recipe,
    searched: Index,
    choose: Choose,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> Learnt:
    """Fit all classes of all parts.

    Parameters
    ----------
    parts : ClassParts
        The samples. Its `solve` keeps the solutions.
    estimator : DualQML, DualQMLClassifier, DualQMLW or DualQMLWCV
        What is fitted.
    recipe : Recipe
        From `checked_recipe`.
    searched : ndarray of int
        Classes on whose samples parameters are chosen; may be empty. Of very many
        samples, only some of the classes are used.
    choose : callable
        Chooses the parameters.
    say : callable, optional
        Called with a line of text at the beginning of each step.

    Returns
    -------
    Learnt
        What the classes have in common.

    Raises
    ------
    DualQMLError
        The samples cannot be used.
    """
    n_samples = int(parts.counts.sum())
    check_size(estimator, n_samples, parts.n_features)
    if isinstance(estimator, DualQML):
        rule = getattr(estimator, "rule", None)
        if rule is not None:
            check_profiles(rule, n_samples, parts.counts.size)
    searched = _within_memory(searched, parts.counts, parts.n_features)
    with one_blas_thread():
        say("sums over the samples")
        sums = parts.input_sums(recipe)
        # A metric has its own check, in `choose`: a background can make up for it.
        if not recipe.unit and not sums.square_sum > 0.0:
            raise nothing_but_zeros()
        inputs, codes = np.empty((0, parts.n_features)), np.empty(0, dtype=np.intp)
        if searched.size:
            say(f"choosing parameters on {searched.size:,} classes")
            inputs, codes = parts.inputs_of(searched, recipe)
        chosen = choose(sums, inputs, codes)
        del inputs, codes
        if chosen.rule is not None:
            check_profiles(chosen.rule, n_samples, parts.counts.size)
        say("sums over the coordinates")
        found = parts.coordinate_sums(
            recipe, chosen.linear, largest_square(estimator, sums)
        )
        if found.sums.n_used == 0:
            raise nothing_but_zeros()
        policy = estimator.zero_samples if isinstance(estimator, DualQML) else "ignore"
        report_zero_rows(found.zero_rows, policy, stacklevel=4)
        check_no_class_is_zero(parts.labels, found.empty_classes)
        problem = shared_problem(estimator, chosen.lam, sums, found.sums, parts.n_parts)
        say(f"solving {parts.counts.size:,} classes")
        parts.solve(recipe, chosen.linear, problem)
    return Learnt(sums, chosen, problem)


def _within_memory(searched: Index, counts: Index, n_features: int) -> Index:
    """Some of the classes, evenly spaced, whose samples fit into the memory."""
    while searched.size > 3:
        if 8 * int(counts[searched].sum()) * n_features <= _SEARCHED_BYTES:
            break
        searched = searched[::2]
    return searched
