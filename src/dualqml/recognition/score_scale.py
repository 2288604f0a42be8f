# SPDX-License-Identifier: BSD-3-Clause
"""From the responses of DualQML-W and the cosines of samples to log-likelihood ratios.

A score is the sum of the response to a subject's matrix and the cosine to the mean of
the subject's samples, each in units of its spread between different people. A line
turns the sum into a log-likelihood ratio.
"""

from dataclasses import dataclass

import numpy as np

from dualqml._typing import Array
from dualqml.exceptions import RecognitionError


@dataclass
class ScoreScale:
    """The numbers that turn responses and cosines into scores.

    Attributes
    ----------
    spread : float
        Spread of responses between different people.
    cosine_weight : float
        Weight of the cosine.
    cosine_mean, cosine_spread : float
        Mean and spread of cosines between different people.
    mean, scale : float
        Mean and spread of the sums for strangers.
    slope, offset : float
        The log-likelihood ratio is ``slope * standard + offset``.
    """

    spread: float = 1.0
    cosine_weight: float = 0.0
    cosine_mean: float = 0.0
    cosine_spread: float = 1.0
    mean: float = 0.0
    scale: float = 1.0
    slope: float = 1.0
    offset: float = 0.0

    def sums(self, responses: Array, units: Array, means: Array) -> dict[str, Array]:
        """The two parts of the sum, by name.

        Parameters
        ----------
        responses : ndarray of shape (n_samples, n_subjects)
            Responses to the subjects' matrices.
        units : ndarray of shape (n_samples, n_inputs)
            Samples at unit norm.
        means : ndarray of shape (n_subjects, n_inputs)
            Means of the subjects' samples, at unit norm.

        Returns
        -------
        dict of str to ndarray
            "response" and, if it has a weight, "cosine".
        """
        parts = {"response": responses / self.spread}
        if self.cosine_weight:
            cosines = (units @ means.T - self.cosine_mean) / self.cosine_spread
            parts["cosine"] = self.cosine_weight * cosines
        return parts

    def scores(self, responses: Array, units: Array, means: Array) -> Array:
        """Log-likelihood ratios; the arguments are those of `sums`.

        Raises
        ------
        RecognitionError
            A score is not finite.
        """
        total = np.asarray(sum(self.sums(responses, units, means).values()))
        scores = self.slope * ((total - self.mean) / self.scale) + self.offset
        if not np.isfinite(scores).all():
            raise RecognitionError("A score is not finite: train the model again")
        return np.asarray(scores)
