# SPDX-License-Identifier: BSD-3-Clause
"""Closed-set identification: at which rank the true subject comes."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml.exceptions import DualQMLError, MissingDependencyError


def true_ranks(scores: ArrayLike, codes: ArrayLike) -> NDArray[np.int64]:
    """Rank of the true subject of each probe, from 1.

    Parameters
    ----------
    scores : array-like of shape (n_probes, n_subjects)
        Similarities; a missing score (NaN) is below all others.
    codes : array-like of int of shape (n_probes,)
        Column of the true subject of each probe.

    Returns
    -------
    ndarray of shape (n_probes,)
        Ranks. Ties go to the first column, as in ``scores.argmax(axis=1)``, so
        that rank 1 is what a decision for the largest score recognises.

    Examples
    --------
    >>> from dualqml.evaluation import true_ranks
    >>> true_ranks([[0.9, 0.2, 0.5], [0.1, 0.7, 0.7]], [2, 1])
    array([2, 1])
    """
    values = np.asarray(scores, dtype=np.float64)
    own = np.asarray(codes)
    if values.ndim != 2 or own.shape != values.shape[:1]:
        raise DualQMLError(
            "scores must have a row for each probe and a column for each subject, and "
            f"codes an integer for each probe; got {values.shape} and {own.shape}"
        )
    if own.size and (own.min() < 0 or own.max() >= values.shape[1]):
        raise DualQMLError(
            f"codes must be columns of scores, 0 to {values.shape[1] - 1}; got "
            f"{own.min()} to {own.max()}"
        )
    missing = np.isnan(values)
    true = np.take_along_axis(values, own[:, None], axis=1)
    before = np.arange(values.shape[1]) < own[:, None]
    # No comparison with NaN is true: missing scores are nowhere ahead, but for a true
    # one that is missing itself.
    ahead = (values > true) | ((values == true) & before)
    ahead |= np.isnan(true) & (~missing | before)
    return np.asarray(1 + ahead.sum(axis=1))


def cmc_curve(
    scores: ArrayLike, codes: ArrayLike, *, max_rank: int | None = None
) -> NDArray[np.float64]:
    """Cumulative match characteristic.

    Parameters
    ----------
    scores : array-like of shape (n_probes, n_subjects)
        Similarities.
    codes : array-like of int of shape (n_probes,)
        Column of the true subject of each probe.
    max_rank : int, optional
        The last rank; by default the number of subjects.

    Returns
    -------
    ndarray of shape (max_rank,)
        Share of the probes whose true subject is among the first k, for k from 1.

    Examples
    --------
    >>> from dualqml.evaluation import cmc_curve
    >>> cmc_curve([[0.9, 0.2, 0.5], [0.1, 0.8, 0.7]], [2, 1])
    array([0.5, 1. , 1. ])
    """
    ranks = true_ranks(scores, codes)
    if ranks.size == 0:
        raise DualQMLError("There are no probes: a CMC curve needs at least one")
    n_subjects = np.asarray(scores).shape[1]
    last = n_subjects if max_rank is None else min(max_rank, n_subjects)
    counts = np.bincount(ranks, minlength=last + 1)[1 : last + 1]
    return np.asarray(np.cumsum(counts) / ranks.size)


class CMCDisplay:
    """Plot of a cumulative match characteristic.

    Parameters
    ----------
    rates : array-like of shape (n_ranks,)
        Identification rates at ranks 1, 2, ...
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once plotted.
    line_ : matplotlib Line2D
        The curve, once plotted.

    Examples
    --------
    >>> from dualqml.evaluation import CMCDisplay
    >>> display = CMCDisplay.from_scores([[0.9, 0.2], [0.1, 0.8]], [1, 1], name="mine")
    >>> display.rates
    array([0.5, 1. ])
    """

    def __init__(self, rates: ArrayLike, *, name: str | None = None) -> None:
        self.rates = np.asarray(rates, dtype=np.float64)
        self.name = name

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        codes: ArrayLike,
        *,
        max_rank: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Compute the curve.

        Parameters
        ----------
        scores : array-like of shape (n_probes, n_subjects)
            Similarities.
        codes : array-like of int of shape (n_probes,)
            Column of the true subject of each probe.
        max_rank : int, optional
            The last rank.
        name : str, optional
            Name in the legend.

        Returns
        -------
        CMCDisplay
            Ready to plot.
        """
        return cls(cmc_curve(scores, codes, max_rank=max_rank), name=name)

    def plot(self, ax: Any = None, **line_kwargs: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where; new axes by default.
        **line_kwargs : dict
            Passed to ``ax.plot``.

        Returns
        -------
        CMCDisplay
            The same object, with `ax_` and `line_`.
        """
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise MissingDependencyError(
                    "Plots need matplotlib: install dualqml[plot]"
                ) from error
            _, ax = pyplot.subplots()
        ranks = np.arange(1, self.rates.size + 1)
        (self.line_,) = ax.plot(
            ranks, 100.0 * self.rates, **({"label": self.name} | line_kwargs)
        )
        ax.set(xlabel="rank", ylabel="identified, %")
        ax.locator_params(axis="x", integer=True)
        self.ax_ = ax
        return self
