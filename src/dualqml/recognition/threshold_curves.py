# SPDX-License-Identifier: BSD-3-Clause
"""The thresholds of a gallery for several rates, and the scores behind them.

`Recognizer.calibrate` answers for one rate and keeps the answer. To choose a rate one
must see several: which threshold each has, and how many people it would miss. The
scores are the same for all rates, so they are computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dualqml._typing import Array
from dualqml.evaluation import true_ranks
from dualqml.recognition.calibration import (
    SimulatedStrangers,
    Trials,
    gallery_calibration,
    gallery_scores,
)
from dualqml.recognition.results import Calibration

if TYPE_CHECKING:
    from dualqml.recognition.recognizer import Recognizer


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """Thresholds for several rates, and the scores from which they were found.

    A threshold lets in the share of `strangers` that reach it. It misses the share of
    `enrolled` that are below it or not `ranked_first`.

    Attributes
    ----------
    calibrations : tuple of Calibration
        One for each target, in the order of the targets.
    strangers : ndarray of shape (n_strangers,)
        The best score of each search for a stranger. For a prior the strangers are
        simulated from the background in two ways. Then the k-th best score is the
        higher one of both ways.
    enrolled : ndarray of shape (n_mated,)
        The score of the true subject in each search for an enrolled person. Empty for
        a prior, and if nobody has several samples.
    ranked_first : ndarray of bool of shape (n_mated,)
        Whether nobody else had that score or a higher one.
    """

    calibrations: tuple[Calibration, ...]
    strangers: Array
    enrolled: Array
    ranked_first: NDArray[np.bool_]


def threshold_curve(
    recognizer: "Recognizer", *, fpir: Sequence[float]
) -> ThresholdCurve:
    """The thresholds of a gallery for several rates.

    Parameters
    ----------
    recognizer : Recognizer
        The recogniser. It is not changed, and keeps its calibration. Other threads wait
        with changes until the curve is there.
    fpir : sequence of float
        False positive identification rates of a search among all subjects.

    Returns
    -------
    ThresholdCurve
        For each rate what ``recognizer.calibrate(fpir=rate)`` would give, without its
        warning of too few comparisons.

    Raises
    ------
    RecognitionError
        Too few people are enrolled, or a rate is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer, threshold_curve
    >>> rng = np.random.default_rng(0)
    >>> recognizer = Recognizer()
    >>> for number in range(20):
    ...     face = rng.normal(size=20)
    ...     recognizer.enroll(f"{number}", face + 0.8 * rng.normal(size=(4, 20)))
    >>> curve = threshold_curve(recognizer, fpir=[0.05, 0.2])
    >>> strict, lenient = curve.calibrations
    >>> strict.threshold > lenient.threshold
    True
    >>> strict.missed >= lenient.missed
    True
    >>> float(np.mean(curve.strangers >= strict.threshold)) == strict.achieved
    True
    >>> recognizer.calibration is None
    True
    """
    with recognizer._lock:
        matcher, gallery = recognizer._fitted_matcher(), recognizer._gallery
        scores = gallery_scores(
            gallery, matcher, recognizer._cache, recognizer.background
        )
        calibrations = tuple(
            gallery_calibration(
                scores, gallery, matcher, kind="fpir", target=float(target)
            )
            for target in fpir
        )
    strangers, enrolled, ranked_first = _searches(scores)
    return ThresholdCurve(calibrations, strangers, enrolled, ranked_first)


def _searches(
    scores: Trials | SimulatedStrangers,
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Best scores of strangers, scores of enrolled people, and who was the first."""
    if isinstance(scores, SimulatedStrangers):
        # At any threshold, the higher rate of both ways counts.
        ways = [np.sort(way.max(axis=1)) for way in (scores.drawn, scores.normal)]
        return np.maximum(*ways)[::-1], np.empty(0), np.empty(0, dtype=np.bool_)
    mated, codes, nonmated = scores
    first = np.empty(0, dtype=np.bool_)
    if len(mated):
        first = true_ranks(mated, codes) == 1
    return nonmated.max(axis=1), mated[np.arange(len(mated)), codes], first
