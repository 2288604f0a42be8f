# SPDX-License-Identifier: BSD-3-Clause
r"""Scores of classes with few and with many samples, made comparable.

The constraint x'P_c x >= 1 holds for all n samples of a class, and P_c is small
otherwise. So the score of a class depends on n. Let the samples of a class have the
correlation r with each other, and those of different classes none. For one sample z,
the filter of least energy with the response 1 is z itself, scaled. For n samples it is
the sum of them over 1 + (n - 1) r. Then

- an unseen sample of the class has the mean response n r / (1 + (n - 1) r): r for one
  sample, nearly 1 for many;
- samples of other classes have responses of variance proportional to the *gain*
  n / (1 + (n - 1) r): 1 for one sample, 1 / r for many.

Without a correction, a class of many samples gets many of the samples that belong to
classes of one. Scores divided by the root of the gain have the same spread over samples
of other classes, so each class attracts strangers at the same rate.

The correlation is the only unknown. It is estimated from the mean energies of all
classes over the training samples of other classes, pooled over all classes: the energy
of a single class is too noisy. In an equal gallery there is nothing to correct.
"""

import numpy as np
from scipy.optimize import minimize_scalar

from dualqml._typing import Array, Index

#: Power of the spread by which scores are divided. With 1, all classes have the same
#: rate of false matches. Classes of many samples then lose about two points of
#: accuracy, with this power about one, and classes of one sample gain nearly as much
#: (docs/results).
_POWER = 0.75


def size_gain(n_samples: Array | Index, correlation: float) -> Array:
    """Mean energy of a class of n samples, relative to a class of one.

    Parameters
    ----------
    n_samples : ndarray
        Numbers of samples, at least 1.
    correlation : float
        Correlation of samples of one class, from 0 to 1.

    Returns
    -------
    ndarray
        ``n / (1 + (n - 1) r)``.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.class_sizes import size_gain
    >>> size_gain(np.array([1, 2, 100]), 0.5)
    array([1.        , 1.33333333, 1.98019802])
    """
    n = np.asarray(n_samples, dtype=np.float64)
    return np.asarray(n / (1.0 + (n - 1.0) * correlation))


def pooled_correlation(energies: Array, counts: Index) -> float:
    """The correlation of samples of one class, from the energies of all classes.

    Parameters
    ----------
    energies : ndarray of shape (n_classes,)
        Mean of x'P_c x over samples of other classes.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.

    Returns
    -------
    float
        The most likely correlation from 0 to 1, if the energies of classes of one size
        are distributed like those of others, times a factor (the quasi-likelihood of
        the gamma distribution).
    """

    def deviance(correlation: float) -> float:
        gains = size_gain(counts, correlation)
        return float(np.log(np.mean(energies / gains)) + np.mean(np.log(gains)))

    found = minimize_scalar(
        deviance, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(found.x)


def class_scales(energies: Array, counts: Index) -> Array:
    """Divisors that make the scores of classes of all sizes comparable.

    Parameters
    ----------
    energies : ndarray of shape (n_classes,)
        Mean of x'P_c x over samples of other classes.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.

    Returns
    -------
    ndarray of shape (n_classes,)
        Divisors of responses (of the roots of x'P_c x). Their geometric mean is 1. All
        are exactly 1 if the classes have equal sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors.class_sizes import class_scales
    >>> class_scales(np.array([0.1, 0.2, 0.15]), np.array([3, 3, 3]))
    array([1., 1., 1.])
    >>> few, many = class_scales(np.array([0.1, 0.2]), np.array([1, 8]))
    >>> round(float((many / few) ** (2 / 0.75)), 1)
    2.0
    """
    if (counts == counts[0]).all() or not (energies > 0.0).any():
        return np.ones(counts.size)
    return scales_of_sizes(counts, pooled_correlation(energies, counts))


def scales_of_sizes(counts: Index, correlation: float) -> Array:
    """Divisors of responses for a known correlation, of geometric mean 1.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    correlation : float
        Correlation of samples of one class, from 0 to 1.

    Returns
    -------
    ndarray of shape (n_classes,)
        The divisors.
    """
    logs = 0.5 * _POWER * np.log(size_gain(counts, correlation))
    return np.asarray(np.exp(logs - logs.mean()))


class MeanResponses:
    """Mean response of an unseen sample, for each size of its class.

    In theory it is n r / (1 + (n - 1) r). The correlation r that explains the mean for
    single samples and the one for the present sizes differ by a little, and it is
    interpolated between them.

    Parameters
    ----------
    single : float
        Mean response of left-out samples to single samples of their class.
    own : ndarray of shape (n_samples,)
        Responses of left-out samples to their classes.
    sizes : ndarray of shape (n_samples,)
        Number of samples of these classes, without the left-out ones.
    """

    def __init__(self, single: float, own: Array, sizes: Index) -> None:
        self.size = float(np.median(sizes))
        #: The correlations that explain both means.
        self.at_one = float(np.clip(single, 0.01, 1.0))

        def misfit(correlation: float) -> float:
            expected = correlation * size_gain(sizes, correlation)
            return float(np.sum((own - expected) ** 2))

        found = minimize_scalar(misfit, bounds=(0.01, 1.0), method="bounded")
        self.at_size = float(found.x)

    def __call__(self, sizes: Index) -> Array:
        """Mean responses for some sizes."""
        share = np.zeros(sizes.size)
        if self.size > 1.0:
            # Linear in 1 / n, and not beyond the larger sizes.
            share = (1.0 / sizes - 1.0 / self.size) / (1.0 - 1.0 / self.size)
        share = np.clip(share, 0.0, 1.0)
        r = self.at_size + share * (self.at_one - self.at_size)
        return np.asarray(r * sizes / (1.0 + (sizes - 1.0) * r))
