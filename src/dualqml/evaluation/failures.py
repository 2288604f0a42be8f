# SPDX-License-Identifier: BSD-3-Clause
"""Failures to enrol and to acquire, and error rates that count them.

A system that refuses all difficult samples makes few errors on the others. The
generalised rates of ISO/IEC 19795-1 count refused samples as errors. So they can
compare systems that refuse different samples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dualqml._typing import Mask
from dualqml.evaluation._scores import as_share
from dualqml.exceptions import ScoreError


@dataclass(frozen=True)
class FailureCounts:
    """Number of failures to make a template.

    Attributes
    ----------
    n_enrolments : int
        Number of subjects who should be enrolled.
    n_failed_enrolments : int
        Number of these subjects who could not be enrolled.
    n_acquisitions : int
        Number of samples that should be recognised.
    n_failed_acquisitions : int
        Number of these samples that could not be used.
    """

    n_enrolments: int
    n_failed_enrolments: int
    n_acquisitions: int
    n_failed_acquisitions: int

    def __post_init__(self) -> None:
        for what, failed, total in (
            ("enrolments", self.n_failed_enrolments, self.n_enrolments),
            ("acquisitions", self.n_failed_acquisitions, self.n_acquisitions),
        ):
            if total < 1 or not 0 <= failed <= total:
                raise ScoreError(
                    f"There must be at least one of the {what}, and failures from 0 "
                    f"to their number; got {failed} failures of {total}"
                )

    @property
    def fte(self) -> float:
        """Failure-to-enrol rate."""
        return self.n_failed_enrolments / self.n_enrolments

    @property
    def fta(self) -> float:
        """Failure-to-acquire rate."""
        return self.n_failed_acquisitions / self.n_acquisitions


@dataclass(frozen=True)
class GeneralisedRates:
    """Error rates of transactions with a single attempt.

    Attributes
    ----------
    far : float
        False accept rate: an impostor's sample is acquired and matches.
    frr : float
        False reject rate: a sample is not acquired or does not match.
    gfar : float
        Generalised false accept rate: an impostor's sample is acquired and matches,
        and the claimed subject is enrolled.
    gfrr : float
        Generalised false reject rate: the subject is not enrolled, or a sample is
        not acquired or does not match.
    """

    far: float
    frr: float
    gfar: float
    gfrr: float


def count_failures(enrolled: ArrayLike, acquired: ArrayLike) -> FailureCounts:
    """Count failures to enrol and to acquire.

    Parameters
    ----------
    enrolled : array-like of bool of shape (n_subjects,)
        For each subject who should be enrolled, whether this succeeded.
    acquired : array-like of bool of shape (n_samples,)
        For each sample that should be recognised, whether a template could be made.

    Returns
    -------
    FailureCounts
        The counts. Their rates are the properties `fte` and `fta`.

    Raises
    ------
    ScoreError
        One of the lists is empty, or its values are not True or False.

    Examples
    --------
    >>> from dualqml.evaluation import count_failures
    >>> failures = count_failures([True, True, True, False], [True, False])
    >>> failures.fte, failures.fta
    (0.25, 0.5)
    """
    enrolments = _as_successes(enrolled, "enrolled")
    acquisitions = _as_successes(acquired, "acquired")
    return FailureCounts(
        n_enrolments=enrolments.size,
        n_failed_enrolments=int(np.count_nonzero(~enrolments)),
        n_acquisitions=acquisitions.size,
        n_failed_acquisitions=int(np.count_nonzero(~acquisitions)),
    )


def generalised_rates(
    fmr: float, fnmr: float, failures: FailureCounts
) -> GeneralisedRates:
    """Compute error rates that count failures to enrol and to acquire.

    FAR = FMR (1 - FTA), FRR = FTA + FNMR (1 - FTA), GFAR = FAR (1 - FTE) and
    GFRR = FTE + FRR (1 - FTE), for transactions with one attempt and independent
    failures.

    Parameters
    ----------
    fmr, fnmr : float
        Error rates of completed comparisons, without missing scores. Do not give
        rates that count missing scores as errors: the same failures would be counted
        twice.
    failures : FailureCounts
        The failures.

    Returns
    -------
    GeneralisedRates
        The rates.

    Raises
    ------
    ScoreError
        A rate is not from 0 to 1.

    Examples
    --------
    >>> from dualqml.evaluation import FailureCounts, generalised_rates
    >>> failures = FailureCounts(100, 2, 1000, 50)
    >>> rates = generalised_rates(0.001, 0.04, failures)
    >>> round(rates.far, 6), round(rates.frr, 6)
    (0.00095, 0.088)
    >>> round(rates.gfar, 6), round(rates.gfrr, 6)
    (0.000931, 0.10624)
    """
    far = as_share(fmr, "fmr") * (1.0 - failures.fta)
    frr = failures.fta + as_share(fnmr, "fnmr") * (1.0 - failures.fta)
    return GeneralisedRates(
        far=far,
        frr=frr,
        gfar=far * (1.0 - failures.fte),
        gfrr=failures.fte + frr * (1.0 - failures.fte),
    )


def _as_successes(values: ArrayLike, name: str) -> Mask:
    successes: Mask = np.asarray(values)
    if successes.ndim != 1 or successes.size == 0 or successes.dtype != np.bool_:
        raise ScoreError(
            f"{name} must be a list with at least one True or False; got "
            f"{successes.dtype} of shape {successes.shape}"
        )
    return successes
