# SPDX-License-Identifier: BSD-3-Clause
"""A gallery in parts, for fits of many subjects in little memory.

A part has the subjects whose names have hashes in its range, so it changes only if one
of these does. Its rows are copied when they are needed. Sums over its inputs are kept:
the next fit computes only those of parts that have changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from dualqml._typing import Array, Index
from dualqml.exceptions import MethodError
from dualqml.extractors import DualQMLW
from dualqml.extractors.class_parts import FoundSamples, learn
from dualqml.extractors.fit_in_parts import (
    Chosen,
    LinearMap,
    PartSolution,
    Recipe,
    SharedProblem,
    check_size,
    choose,
    coordinate_sums,
    solve_rows,
)
from dualqml.extractors.inaccurate_classes import warn_if_inaccurate
from dualqml.extractors.part_assembly import (
    FittedArrays,
    assembled,
    joined_solutions,
    scales_for_rule,
)
from dualqml.extractors.part_sums import (
    CoordinateSums,
    InputSums,
    PartRows,
    count_parts,
    input_rows,
    label_hashes,
    merged_in_tree,
    part_numbers,
)
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.matcher_parts import MatcherInParts

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher

#: Names whose hashes are computed at a time: text in arrays is as wide as the longest.
_HASHED_AT_ONCE = 4096


class KeptSums:
    """Sums over the inputs of parts of a gallery, kept from one fit to the next."""

    def __init__(self) -> None:
        self._n_parts = 0
        self._sums: dict[int, InputSums] = {}

    def forget(self, subject: str) -> None:
        """Delete the sums that a subject is in."""
        if self._sums:
            (part,) = part_numbers(_hashes([subject]), self._n_parts)
            self._sums.pop(int(part), None)

    def of_parts(self, n_parts: int) -> dict[int, InputSums]:
        """The sums of parts by number; none if there was another number of parts.

        Parameters
        ----------
        n_parts : int
            Number of parts.

        Returns
        -------
        dict of int to InputSums
            The sums. What is added to them is kept.
        """
        if n_parts != self._n_parts:
            self._n_parts, self._sums = n_parts, {}
        return self._sums


class GalleryParts:
    """The samples of a gallery in parts, as a fit needs them.

    Parameters
    ----------
    people : dict of str to ndarray
        The samples of each subject in rows, in the order of their names.
    kept : KeptSums
        Sums of earlier fits to the same gallery; it gets those of this one.
    n_jobs : int, default=1
        Number of threads. The result does not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition.gallery_parts import GalleryParts, KeptSums
    >>> people = {name: np.eye(2, 5) for name in ["Ann", "Bob", "Zoe"]}
    >>> parts = GalleryParts(people, KeptSums())
    >>> parts.counts, parts.n_parts
    (array([2, 2, 2]), 1)
    """

    def __init__(
        self, people: dict[str, NDArray[Any]], kept: KeptSums, *, n_jobs: int = 1
    ) -> None:
        self._names, self._rows = list(people), list(people.values())
        self._n_jobs = n_jobs
        self.counts: Index = np.array([len(rows) for rows in self._rows])
        self.n_features = int(self._rows[0].shape[1])
        n_parts = count_parts(int(self.counts.sum()), self.n_features)
        self._kept = kept.of_parts(n_parts)
        numbers = part_numbers(_hashes(self._names), n_parts)
        #: The subjects of each part. Few subjects leave parts empty.
        self._places = {
            part: places
            for part in range(n_parts)
            if (places := np.flatnonzero(numbers == part)).size
        }
        self._solutions: list[PartSolution] = []

    @property
    def labels(self) -> NDArray[Any]:
        """The names of all subjects."""
        return np.array(self._names, dtype=object)

    @property
    def n_parts(self) -> int:
        """Number of parts that have subjects."""
        return len(self._places)

    def _part(self, places: Index) -> PartRows:
        rows = np.concatenate([self._rows[place] for place in places])
        return PartRows(rows, self.counts[places])

    def input_sums(self, recipe: Recipe) -> InputSums:
        """Sums over all samples, merged in a fixed order.

        Parameters
        ----------
        recipe : Recipe
            The recipe, always the same.

        Returns
        -------
        InputSums
            The sums.
        """
        for part, places in self._places.items():
            if part not in self._kept:
                self._kept[part] = InputSums.of_part(
                    self._part(places), unit=recipe.unit, cosines=recipe.cosines
                )
        return merged_in_tree(
            (self._kept[part] for part in self._places), InputSums.merged
        )

    def inputs_of(self, classes: Index, recipe: Recipe) -> tuple[Array, Index]:
        """Inputs of the samples of some subjects.

        Parameters
        ----------
        classes : ndarray of int
            Numbers of the subjects.
        recipe : Recipe
            The recipe.

        Returns
        -------
        inputs : ndarray of shape (n_rows, n_inputs)
            The inputs.
        codes : ndarray of shape (n_rows,)
            Their subjects, from 0.
        """
        part = self._part(classes)
        return input_rows(part.rows, unit=recipe.unit), part.codes

    def coordinate_sums(
        self, recipe: Recipe, linear: LinearMap | None, largest_square: float
    ) -> FoundSamples:
        """Sums over the coordinates of all samples, merged in a fixed order.

        Parameters
        ----------
        recipe : Recipe
            The recipe.
        linear : LinearMap or None
            The map of the metric.
        largest_square : float
            Largest squared norm of the coordinates of any sample.

        Returns
        -------
        FoundSamples
            The sums, and samples that are zero vectors.
        """
        starts = np.cumsum(self.counts) - self.counts
        zero: list[Index] = []
        empty: list[Index] = []
        sums: list[CoordinateSums] = []
        for places in self._places.values():
            part = self._part(places)
            found = coordinate_sums(part, recipe, linear, largest_square)
            sums.append(found.sums)
            own_starts = np.cumsum(part.counts) - part.counts
            shifts = (starts[places] - own_starts)[part.codes[found.zero_rows]]
            zero.append(found.zero_rows + shifts)
            empty.append(places[found.empty_classes])
        return FoundSamples(
            merged_in_tree(sums, CoordinateSums.merged),
            np.sort(np.concatenate(zero)),
            np.sort(np.concatenate(empty)),
        )

    def solve(
        self, recipe: Recipe, linear: LinearMap | None, problem: SharedProblem
    ) -> None:
        """Solve and certify the subjects of all parts, and keep what is found.

        Parameters
        ----------
        recipe : Recipe
            The recipe.
        linear : LinearMap or None
            The map of the metric.
        problem : SharedProblem
            What all subjects have in common.
        """
        self._solutions = [
            solve_rows(self._part(places), recipe, linear, problem, n_jobs=self._n_jobs)
            for places in self._places.values()
        ]

    def joined(self) -> PartSolution:
        """The solutions of all subjects, in their order and that of their samples.

        Returns
        -------
        PartSolution
            The solutions, which are no longer kept here.
        """
        solutions, self._solutions = self._solutions, []
        return joined_people(solutions, list(self._places.values()), self.counts)


def fits_in_parts(matcher: "Matcher", gallery: Gallery) -> bool:
    """Whether a matcher is fitted to a gallery in parts.

    Parameters
    ----------
    matcher : Matcher
        The matcher.
    gallery : Gallery
        The subjects and their samples.

    Returns
    -------
    bool
        Only for vectors of more than 64 MB in double precision.
    """
    n_samples = gallery.n_samples
    n_features = int(gallery[next(iter(gallery))].shape[1])
    if count_parts(n_samples, n_features) == 1:
        return False
    try:
        check_size(MatcherInParts(matcher).estimator, n_samples, n_features)
    except MethodError:
        return False
    return True


def fit_in_parts(
    matcher: "Matcher", gallery: Gallery, kept: KeptSums, *, choosing: bool = True
) -> None:
    """Fit a matcher to a gallery, one part after the other.

    Parameters
    ----------
    matcher : Matcher
        One of which `fits_in_parts` is true. It gets what is learnt.
    gallery : Gallery
        The subjects and their samples.
    kept : KeptSums
        Sums of earlier fits to this gallery.
    choosing : bool, default=True
        Whether what is not given is chosen, and what scores mean is learnt. If not, the
        matcher has both already.
    """
    fitting = MatcherInParts(matcher)
    n_jobs = effective_n_jobs(fitting.estimator.n_jobs)
    people = {subject: gallery[subject] for subject in gallery}
    parts = GalleryParts(people, kept, n_jobs=n_jobs)
    if choosing:
        searched = fitting.searched(parts.counts)
        learnt = learn(
            parts, fitting.estimator, fitting.recipe, searched, fitting.choose
        )
    else:
        learnt = learn(
            parts,
            fitting.estimator,
            fitting.recipe,
            np.empty(0, dtype=np.intp),
            partial(choose, fitting.estimator),
        )
    solution = parts.joined()
    model = people_model(fitting.estimator, parts.counts, solution, learnt.chosen)
    fitting.finish(
        learnt.sums,
        float(solution.energies.mean()),
        parts.counts,
        lambda: (model, solution.means),
    )
    matcher.model, matcher.means = model, solution.means
    warn_if_inaccurate(
        solution.gap,
        solution.violation,
        solution.rounding_limited,
        fitting.recipe.tol,
        stacklevel=5,
    )


def joined_people(
    solutions: Sequence[PartSolution], places: Sequence[Index], counts: Index
) -> PartSolution:
    """The solutions of several groups of people in the order of all people.

    Parameters
    ----------
    solutions : sequence of PartSolution
        One for each group.
    places : sequence of ndarray
        For each group, the numbers of its people among all, ascending.
    counts : ndarray of shape (n_subjects,)
        Number of samples of each of all people.

    Returns
    -------
    PartSolution
        That of all people, with the multipliers in the order of their samples.
    """
    joined = joined_solutions(solutions, places)
    order = np.argsort(np.concatenate(places))
    given = counts[np.concatenate(places)]
    starts = (np.cumsum(given) - given)[order]
    shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    rows = np.arange(shifts.size) + shifts
    return replace(joined, multipliers=joined.multipliers[rows])


def people_model(
    estimator: DualQMLW, counts: Index, solution: PartSolution, chosen: Chosen
) -> DualQMLW:
    """The fitted estimator of a matcher.

    Parameters
    ----------
    estimator : DualQMLW
        The estimator.
    counts : ndarray of shape (n_subjects,)
        Number of samples of each subject.
    solution : PartSolution
        The solutions of all subjects.
    chosen : Chosen
        The parameters.

    Returns
    -------
    DualQMLW
        A fitted clone, without the background.
    """
    fitted = FittedArrays(
        classes=np.arange(counts.size),
        counts=counts,
        n_features=solution.means.shape[1],
        solution=solution,
        class_scale=scales_for_rule("max", solution.energies, counts),
        chosen=chosen,
        lam=chosen.lam,
    )
    model = assembled(estimator, fitted)
    assert isinstance(model, DualQMLW)
    # The recogniser keeps it, and the fitted model does not need it.
    model.background = None
    return model


def _hashes(names: Sequence[str]) -> NDArray[np.uint64]:
    return np.concatenate(
        [
            label_hashes(np.array(names[start : start + _HASHED_AT_ONCE]))
            for start in range(0, len(names), _HASHED_AT_ONCE)
        ]
    )
