# SPDX-License-Identifier: BSD-3-Clause
"""Fitting a matcher to parts of the subjects.

The driver of such a fit, `dualqml.extractors.class_parts.learn`, asks what to do with
the samples. `MatcherInParts` answers for a matcher: it chooses the parameters as a
usual fit does, and learns what scores mean from sums over all samples. So no step needs
the samples, or the factors, of all subjects at once.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dualqml._typing import Array, Index
from dualqml.exceptions import MethodError
from dualqml.extractors import Background, DualQMLW
from dualqml.extractors.fit_in_parts import Chosen, checked_recipe, choose, sum_system
from dualqml.extractors.open_set_search import (
    CosineScale,
    OpenSetChoice,
    classes_in_search,
)
from dualqml.extractors.part_sums import InputSums
from dualqml.extractors.prepared_samples import PreparedSamples

if TYPE_CHECKING:
    from dualqml.recognition.matcher import Matcher

#: The fitted estimator and the means of the subjects at unit norm.
FittedPeople = tuple[DualQMLW, Array]


class MatcherInParts:
    """What a fit in parts has to know of a matcher.

    Parameters
    ----------
    matcher : Matcher
        The matcher, which gets what is learnt: first the parameters by `choose`, then
        what scores mean by `finish`. Model, means and subjects are left to the caller.

    Attributes
    ----------
    matcher : Matcher
        The same matcher.
    recipe : Recipe
        What the tasks of the fit have to know.

    Raises
    ------
    MethodError
        The matcher needs all samples at once.

    Examples
    --------
    >>> from dualqml.recognition.matcher import Matcher
    >>> from dualqml.recognition.matcher_parts import MatcherInParts
    >>> vectors = Matcher("DualQML-W", None, None, {"lam": 0.2})
    >>> MatcherInParts(vectors).recipe.cosines
    True
    >>> MatcherInParts(Matcher("LDA", None, None, {}))
    Traceback (most recent call last):
        ...
    dualqml.exceptions.MethodError: A recogniser with LDA cannot be fitted in parts; \
DualQML-W can
    """

    def __init__(self, matcher: "Matcher") -> None:
        if matcher.method != "DualQML-W":
            raise MethodError(
                f"A recogniser with {matcher.method} cannot be fitted in parts; "
                "DualQML-W can"
            )
        if not matcher.has_log_ratios:
            raise MethodError(
                f"A recogniser with rule={matcher.given['rule']!r} cannot be fitted in "
                "parts; use rule='max'"
            )
        self.matcher = matcher
        self.recipe = checked_recipe(matcher.estimator(), cosines=True)
        self._choice: OpenSetChoice | None = None

    @property
    def estimator(self) -> DualQMLW:
        """The estimator with the present parameters, not fitted."""
        found = self.matcher.estimator()
        assert isinstance(found, DualQMLW)
        return found

    def searched(self, counts: Index) -> Index:
        """Subjects on whose samples parameters are chosen, and meanings learnt.

        Parameters
        ----------
        counts : ndarray of shape (n_subjects,)
            Number of samples of each, in the order of their names.

        Returns
        -------
        ndarray of int
            Their numbers: all, or about a thousand.
        """
        return classes_in_search(counts)

    def choose(self, sums: InputSums, inputs: Array, codes: Index) -> Chosen:
        """Choose what is not given, and compute the map of the metric.

        Parameters
        ----------
        sums : InputSums
            Sums over the inputs of all subjects.
        inputs : ndarray of shape (n_rows, n_inputs)
            Inputs of the samples of `searched`.
        codes : ndarray of shape (n_rows,)
            Their subjects, from 0.

        Returns
        -------
        Chosen
            The parameters. The matcher has them too.
        """
        estimator = self.estimator
        self._choice = self.matcher._choose(
            estimator,
            PreparedSamples(inputs, None, inputs.shape[1]),
            codes,
            system_of=partial(sum_system, estimator, sums, inputs),
            resembles=partial(_resembles, sums),
        )
        return choose(self.estimator, sums, inputs[:0], codes[:0])

    def finish(
        self,
        sums: InputSums,
        energy: float,
        counts: Index,
        local: Callable[[], FittedPeople],
    ) -> None:
        """Learn what scores mean.

        Parameters
        ----------
        sums : InputSums
            Sums over the inputs of all subjects, with those for cosines.
        energy : float
            Mean of the energies of all subjects.
        counts : ndarray of shape (n_subjects,)
            Number of samples of each.
        local : callable
            Gives the fitted estimator and the means of the subjects. It is called only
            for fewer than 20 subjects with a background.
        """
        matcher = self.matcher
        if matcher._needs_strangers(counts.size):
            matcher.model, matcher.means = local()
            matcher.model.background = None
        matcher._set_cosine_scale(cosine_scale(sums))
        if self._choice is not None:
            matcher._learn_log_ratios(self._choice, energy, counts)


def cosine_scale(sums: InputSums) -> CosineScale | None:
    """The distribution of cosines between different people, from sums.

    Parameters
    ----------
    sums : InputSums
        Sums over all samples, with those for cosines.

    Returns
    -------
    CosineScale or None
        That of ``CosineScale.fitted``; None if there is only one class.
    """
    cosines = sums.cosines
    assert cosines is not None
    if sums.n_classes < 2:
        return None
    total = sums.n_samples * float(sums.mean @ cosines.mean_sum)
    squares = float(np.vdot(sums.input_scatter, cosines.mean_scatter))
    return CosineScale.of_sums(
        total - cosines.own,
        squares - cosines.own_squares,
        n_samples=sums.n_samples,
        n_means=sums.n_classes,
        n_inputs=sums.mean.size,
    )


def _resembles(sums: InputSums, background: Background) -> bool:
    """Whether the people could be of the population of a background."""
    # It is asked only where each of them has one sample.
    counts = np.ones(sums.n_classes, dtype=np.intp)
    return background.resembles_people(sums.class_mean_sum / sums.n_classes, counts)
