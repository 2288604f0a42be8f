# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a large gallery without a fit: the next exact fit is due later.

An exact fit learns from everybody together, so it costs the same whether one person or
all have changed. In between, most of what it has learnt can stay as it is: the metric,
the matrices of the people who stay, and what scores mean. The rows, the matrix and the
mean of an erased person are deleted at once. The problem of a new person is solved in
the frozen coordinates, against the scatter of all samples that are there now, and its
solution is certified.

Until the next exact fit the model still depends on those who were erased. `RefitDue`
says how, and counts them. It has no names.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from dualqml._sklearn import one_blas_thread
from dualqml._text import counted
from dualqml._typing import Array, Index
from dualqml.core import shared_spectrum
from dualqml.exceptions import RecognitionError
from dualqml.extractors import DualQMLW
from dualqml.extractors.fit_in_parts import (
    Chosen,
    LinearMap,
    PartSolution,
    SharedProblem,
    coordinate_sums,
    solve_rows,
)
from dualqml.extractors.part_sums import CoordinateSums, PartRows
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.gallery_parts import (
    GalleryParts,
    KeptSums,
    joined_people,
    people_model,
)
from dualqml.recognition.matcher_parts import MatcherInParts

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher

#: When a change leads to a new fit.
Refit = Literal["exact", "deferred"]

#: Squared norm of the coordinates of any sample.
_UNIT = 1.0


@dataclass(frozen=True)
class RefitDue:
    """What has changed since the last exact fit of a recogniser.

    Attributes
    ----------
    n_enrolled : int
        Enrolments: of new people, or of more samples of known people.
    n_erased : int
        People who were erased.
    n_samples_enrolled, n_samples_erased : int
        Samples of these changes, and samples that were erased alone.

    Examples
    --------
    >>> from dualqml.recognition import RefitDue
    >>> print(RefitDue(n_erased=1, n_samples_erased=3).describe())
    A refit is due: 0 enrolments (0 samples) and 3 samples erased (1 person as a \
whole) since the last one. Until then the metric, the matrices of the other people \
and the scale of scores still depend on the samples that were erased.
    """

    n_enrolled: int = 0
    n_erased: int = 0
    n_samples_enrolled: int = 0
    n_samples_erased: int = 0

    def describe(self) -> str:
        """What the model still depends on, in words.

        Returns
        -------
        str
            Two sentences.
        """
        enrolled = counted(self.n_samples_enrolled, "sample")
        changes = f"{counted(self.n_enrolled, 'enrolment')} ({enrolled})"
        if not self.n_samples_erased:
            return (
                f"A refit is due: {changes} since the last one. Until then the metric, "
                "the matrices of the other people and the scale of scores do not know "
                "of these samples."
            )
        people = "1 person" if self.n_erased == 1 else f"{self.n_erased:,} people"
        return (
            f"A refit is due: {changes} and {counted(self.n_samples_erased, 'sample')} "
            f"erased ({people} as a whole) since the last one. Until then the metric, "
            "the matrices of the other people and the scale of scores still depend on "
            "the samples that were erased."
        )


@dataclass(frozen=True)
class DeferredFit:
    """People with their solutions, in coordinates that stay as they are.

    It never changes: each change makes a new one.

    Attributes
    ----------
    frozen : Matcher
        Parameters and the scale of scores, without people.
    chosen : Chosen
        Lambda, and the map to the coordinates.
    subjects : list of str
        The people with solutions, in order.
    counts : ndarray of shape (n_subjects,)
        Number of samples of each that the solution knows: the first ones.
    solution : PartSolution
        Their solutions.
    pending : frozenset of str
        People of the gallery whose present samples have not been used yet.
    sums : CoordinateSums or None
        Sums over the coordinates of the people with solutions, if they are known.
    most_used : int
        The largest number of samples that were in these sums.
    due : RefitDue
        What has changed.
    """

    frozen: "Matcher"
    chosen: Chosen
    subjects: list[str]
    counts: Index
    solution: PartSolution
    pending: frozenset[str] = frozenset()
    sums: CoordinateSums | None = None
    most_used: int = 0
    due: RefitDue = RefitDue()

    @classmethod
    def of(
        cls, matcher: "Matcher", gallery: Gallery, due: RefitDue | None = None
    ) -> "DeferredFit":
        """Freeze what a matcher has learnt.

        Parameters
        ----------
        matcher : Matcher
            Fitted to the gallery.
        gallery : Gallery
            The people and their samples.
        due : RefitDue, optional
            What has changed before.

        Returns
        -------
        DeferredFit
            The same people and solutions.

        Raises
        ------
        MethodError
            The matcher needs all samples at once.
        ValueError
            The model is not of these samples.
        """
        frozen = matcher.without_people()
        MatcherInParts(frozen)
        model, means = matcher.model, matcher.means
        metric, qml = model.metric_, model.qml_
        counts = np.array([len(gallery[subject]) for subject in matcher.subjects])
        if means is None or metric.mean_ is None or metric.descriptor is not None:
            raise ValueError("a refit can be deferred only for linear coordinates")
        if qml.mean_responses_ is None:
            raise ValueError("a refit can be deferred only for signed roots")
        if qml.dual_coef_.size != counts.sum():
            raise ValueError("there is not one multiplier for each sample")
        # Copies: a view would keep the file of the model, with those who were erased.
        linear = LinearMap(np.array(metric.mean_), np.array(metric.coefficients_))
        solution = PartSolution(
            qml.components_,
            qml.ranks_,
            qml.mean_responses_,
            qml.dual_coef_,
            qml.duality_gap_,
            qml.violation_,
            np.zeros(counts.size, dtype=bool),
            np.full(counts.size, qml.n_iter_),
            qml.energies_,
            means,
        )
        chosen = Chosen(float(frozen.parameters["lam"]), "max", linear)
        subjects = list(matcher.subjects)
        return cls(frozen, chosen, subjects, counts, solution, due=due or RefitDue())

    def enrolled(self, subject: str, n_samples: int) -> "DeferredFit":
        """The same after an enrolment.

        Parameters
        ----------
        subject : str
            New, or known.
        n_samples : int
            Number of new samples.

        Returns
        -------
        DeferredFit
            It solves the problem of the subject later, with those of others.
        """
        due = replace(
            self.due,
            n_enrolled=self.due.n_enrolled + 1,
            n_samples_enrolled=self.due.n_samples_enrolled + n_samples,
        )
        return replace(self, pending=self.pending | {subject}, due=due)

    def erased(
        self, subject: str, rows: NDArray[np.floating], n_erased: int
    ) -> "DeferredFit":
        """The same before samples of a subject are erased.

        Parameters
        ----------
        subject : str
            The subject.
        rows : ndarray of shape (n_samples, n_features)
            Its samples until now.
        n_erased : int
            How many of them are erased.

        Returns
        -------
        DeferredFit
            It has nothing of the subject. If samples stay, their problem is solved
            later.
        """
        whole = n_erased == len(rows)
        due = replace(
            self.due,
            n_erased=self.due.n_erased + whole,
            n_samples_erased=self.due.n_samples_erased + n_erased,
        )
        left = self.pending - {subject}
        if not whole:
            left |= {subject}
        return replace(self._without({subject: rows}), pending=left, due=due)

    def _without(self, people: dict[str, NDArray[np.floating]]) -> "DeferredFit":
        """The same without the solutions of some people, if they have any."""
        known = {
            place: rows
            for subject, rows in people.items()
            if (place := self._place(subject)) is not None
        }
        if not known:
            return self
        places = np.array(sorted(known))
        kept = np.ones(self.counts.size, dtype=bool)
        kept[places] = False
        sums, most_used = self.sums, self.most_used
        if sums is not None:
            # Samples that were added later are not in the sums.
            rows = [known[place][: self.counts[place]] for place in places.tolist()]
            part = PartRows(np.concatenate(rows), self.counts[places])
            sums = _difference(sums, self._sums_of(part))
            if 2 * sums.n_used < most_used:
                # Its rounding errors are those of larger sums.
                sums, most_used = None, 0
        subjects = [self.subjects[place] for place in np.flatnonzero(kept).tolist()]
        return replace(
            self,
            subjects=subjects,
            counts=self.counts[kept],
            solution=_some_people(self.solution, self.counts, kept),
            sums=sums,
            most_used=most_used,
        )

    def _place(self, subject: str) -> int | None:
        place = bisect_left(self.subjects, subject)
        found = place < len(self.subjects) and self.subjects[place] == subject
        return place if found else None

    def _sums_of(self, part: PartRows) -> CoordinateSums:
        """Sums over the coordinates of some people."""
        recipe = MatcherInParts(self.frozen).recipe
        return coordinate_sums(part, recipe, self.chosen.linear, _UNIT).sums

    def solved(self, gallery: Gallery) -> "DeferredFit | None":
        """Solve the problems of all people whose samples have changed.

        Parameters
        ----------
        gallery : Gallery
            The people and their samples.

        Returns
        -------
        DeferredFit or None
            It has a solution for everybody in the gallery. None if a problem cannot be
            solved in these coordinates, or a change was interrupted: an exact fit is
            needed.
        """
        people = {
            subject: gallery[subject]
            for subject in sorted(self.pending)
            if subject in gallery
        }
        found: DeferredFit | None = replace(self, pending=frozenset())
        if people:
            with one_blas_thread():
                found = self._solved(gallery, people)
        if found is None or found.subjects != list(gallery):
            return None
        return found

    def _solved(
        self, gallery: Gallery, people: dict[str, NDArray[np.floating]]
    ) -> "DeferredFit | None":
        others = self._without(people)
        fitting = MatcherInParts(self.frozen)
        recipe, linear = fitting.recipe, self.chosen.linear
        counts = np.array([len(rows) for rows in people.values()])
        part = PartRows(np.concatenate(list(people.values())), counts)
        found = coordinate_sums(part, recipe, linear, _UNIT)
        if found.empty_classes.size:
            return None
        sums = found.sums
        if others.subjects:
            known = others.sums
            if known is None:
                rest = {subject: gallery[subject] for subject in others.subjects}
                parts = GalleryParts(rest, KeptSums())
                known = parts.coordinate_sums(recipe, linear, _UNIT).sums
            # After subtractions, errors are relative to the largest scatter that there
            # was, and add up.
            longest_sum = known.longest_sum + sums.longest_sum + 1
            sums = replace(known.merged(sums), longest_sum=longest_sum)
        most_used = max(others.most_used, sums.n_used)
        problem = SharedProblem(
            shared_spectrum(
                sums.scatter,
                sums.n_used,
                sums.squared_norm_range,
                # Of at most twice as many samples, some of which were subtracted.
                longest_sum=2 * sums.longest_sum,
            ),
            sums.scatter,
            self.chosen.lam,
            int(others.counts.sum() + counts.sum()),
            _UNIT,
            # The other people are not here.
            n_parts=2,
        )
        n_jobs = effective_n_jobs(fitting.estimator.n_jobs)
        new = solve_rows(part, recipe, linear, problem, n_jobs=n_jobs)
        solved = np.maximum(new.gap, new.violation) <= recipe.tol
        if not (solved | new.rounding_limited).all():
            return None
        subjects = sorted([*others.subjects, *people])
        is_new = np.array([subject in people for subject in subjects])
        places = [np.flatnonzero(~is_new), np.flatnonzero(is_new)]
        all_counts = np.empty(is_new.size, dtype=np.intp)
        all_counts[~is_new], all_counts[is_new] = others.counts, counts
        return replace(
            others,
            subjects=subjects,
            counts=all_counts,
            solution=joined_people([others.solution, new], places, all_counts),
            pending=frozenset(),
            sums=sums,
            most_used=most_used,
        )

    def matcher(self) -> "Matcher":
        """A matcher of the people with solutions.

        Returns
        -------
        Matcher
            A new one.
        """
        found = self.frozen.without_people()
        estimator = found.estimator()
        assert isinstance(estimator, DualQMLW)
        found.model = people_model(estimator, self.counts, self.solution, self.chosen)
        found.means, found.subjects = self.solution.means, self.subjects
        return found


def check_refit(refit: Any, matcher: "Matcher") -> None:
    """Raise if the refits of a recogniser cannot be as asked for.

    Parameters
    ----------
    refit : object
        "exact" or "deferred".
    matcher : Matcher
        The method, not fitted.

    Raises
    ------
    RecognitionError
        It is neither, or the method cannot defer them.
    """
    if refit not in ("exact", "deferred"):
        raise RecognitionError(f"refit must be 'exact' or 'deferred', not {refit!r}")
    if refit == "deferred":
        usual = matcher.has_log_ratios and matcher.given.get("kernel") == "linear"
        if not usual or matcher.given.get("descriptor") is not None:
            raise RecognitionError(
                "refit='deferred' needs vectors, such as embeddings of images, and "
                "DualQML-W with rule='max' and a linear kernel; use refit='exact'"
            )


def _difference(sums: CoordinateSums, gone: CoordinateSums) -> CoordinateSums:
    """Sums without some of their samples, up to rounding."""
    return replace(
        sums,
        scatter=sums.scatter - gone.scatter,
        n_used=sums.n_used - gone.n_used,
        longest_sum=sums.longest_sum + gone.longest_sum + 1,
    )


def _some_people(
    solution: PartSolution, counts: Index, kept: NDArray[np.bool_]
) -> PartSolution:
    """The solutions of some people, in arrays of their own."""
    factors = np.repeat(kept, solution.ranks)
    samples = np.repeat(kept, counts)
    responses: Array = solution.mean_responses
    return PartSolution(
        solution.components[factors],
        solution.ranks[kept],
        responses[factors],
        solution.multipliers[samples],
        solution.gap[kept],
        solution.violation[kept],
        solution.rounding_limited[kept],
        solution.n_iter[kept],
        solution.energies[kept],
        solution.means[kept],
    )
