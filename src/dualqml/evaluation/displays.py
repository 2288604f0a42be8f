# SPDX-License-Identifier: BSD-3-Clause
"""Plots of error rates and of scores, with the interface of scikit-learn's displays.

Error rates are step functions and are drawn as steps. The height of a curve at a given
rate of false positives is the error at the lowest threshold that does not exceed this
rate, as in `fnmr_at_fmr`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from dualqml._typing import Array
from dualqml.evaluation._scores import as_scores
from dualqml.evaluation.cmc import cmc_curve
from dualqml.evaluation.identification import OpenSetCurve, open_set_curve
from dualqml.evaluation.verification import ErrorCurve, error_curve
from dualqml.exceptions import MissingDependencyError, ScoreError

Curve = TypeVar("Curve", ErrorCurve, OpenSetCurve)

#: Rates at which axes of normal deviates have ticks.
DEVIATE_TICKS = np.array(
    [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99]
)
#: Room for a letter below an axis, as a share of the axis of a small figure.
_WIDTH_OF_LETTER = 0.02
#: The rates 0 and 1 have no finite deviate. They are drawn at this rate and its
#: complement, outside of all ticks.
BEYOND = 1e-12


class _CurveDisplay(ABC, Generic[Curve]):
    """A curve of one error rate against another."""

    def __init__(self, curve: Curve, *, name: str | None = None) -> None:
        self.curve: Curve = curve
        self.name = name

    @abstractmethod
    def _points(self) -> tuple[Array, Array]:
        """Return the points of the curve, in the order of ascending thresholds."""

    @abstractmethod
    def _format_axes(self, ax: Any, earlier_limit: float) -> None:
        """Set scales, labels and limits; the lower limit is at most `earlier_limit`."""

    def plot(self, ax: Any = None, name: str | None = None, **line_kwargs: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new axes by default. They may have other curves already.
        name : str, optional
            Name in the legend; by default the name of the display.
        **line_kwargs : dict
            Passed to ``ax.plot``.

        Returns
        -------
        Self
            The same object, with `ax_`, `figure_` and `line_`.
        """
        ax = axes_or_new(ax)
        earlier_limit = float(ax.get_xlim()[0]) if ax.lines else np.inf
        label = self.name if name is None else name
        style = {"drawstyle": "steps-pre", "label": label} | line_kwargs
        (self.line_,) = ax.plot(*_corners(*self._points()), **style)
        self._format_axes(ax, earlier_limit)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


class _VerificationDisplay(_CurveDisplay[ErrorCurve]):
    """A curve of error rates of one-to-one comparisons."""

    @classmethod
    def from_scores(
        cls, mated: ArrayLike, nonmated: ArrayLike, *, name: str | None = None
    ) -> Self:
        """Compute the curve.

        Parameters
        ----------
        mated : array-like of shape (n_mated,)
            Similarities of pairs of samples of the same subject.
        nonmated : array-like of shape (n_nonmated,)
            Similarities of pairs of samples of different subjects.
        name : str, optional
            Name in the legend.

        Returns
        -------
        Self
            Ready to plot.
        """
        return cls(error_curve(mated, nonmated), name=name)


class ROCDisplay(_VerificationDisplay):
    """Plot of the true match rate, 1 - FNMR, against the false match rate.

    Parameters
    ----------
    curve : ErrorCurve
        The error rates.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    line_ : matplotlib Line2D
        The curve, once plotted.

    Examples
    --------
    >>> from dualqml.evaluation import ROCDisplay
    >>> display = ROCDisplay.from_scores([0.9, 0.5], [0.5, 0.1], name="mine")
    >>> display.curve.fmr
    array([1. , 0.5, 0. , 0. ])
    """

    def _points(self) -> tuple[Array, Array]:
        return 100.0 * self.curve.fmr, 100.0 * (1.0 - self.curve.fnmr)

    def _format_axes(self, ax: Any, earlier_limit: float) -> None:
        ax.set(xlabel="false match rate, %", ylabel="true match rate, %")


class DETDisplay(_VerificationDisplay):
    """Plot of the detection error trade-off: FNMR against FMR, as normal deviates.

    Normally distributed scores give straight lines. Rates of 0 and 1 cannot be shown
    on such axes; there the curve leaves the plot.

    Parameters
    ----------
    curve : ErrorCurve
        The error rates.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    line_ : matplotlib Line2D
        The curve, once plotted.

    Examples
    --------
    >>> from dualqml.evaluation import DETDisplay
    >>> display = DETDisplay.from_scores([0.9, 0.5], [0.5, 0.1], name="mine")
    >>> display.curve.fnmr
    array([0. , 0. , 0.5, 1. ])
    """

    def _points(self) -> tuple[Array, Array]:
        return _deviates(self.curve.fmr), _deviates(self.curve.fnmr)

    def _format_axes(self, ax: Any, earlier_limit: float) -> None:
        labels = [f"{100.0 * share:g}" for share in DEVIATE_TICKS]
        places = norm.ppf(DEVIATE_TICKS)
        smallest = min(_smallest(self.curve.fmr), _smallest(self.curve.fnmr))
        low = DEVIATE_TICKS[smallest >= DEVIATE_TICKS].max(initial=DEVIATE_TICKS[0])
        first = min(norm.ppf(low), earlier_limit)
        ax.set_xticks(places, _without_collisions(labels, places, first))
        ax.set_yticks(places, labels)
        _limit(ax, first, places[-1])
        ax.set(xlabel="false match rate, %", ylabel="false non-match rate, %")


class OpenSetDisplay(_CurveDisplay[OpenSetCurve]):
    """Plot of FNIR against FPIR on logarithmic axes.

    A rate of 0 cannot be shown on such axes; there the curve leaves the plot.

    Parameters
    ----------
    curve : OpenSetCurve
        The error rates, from `open_set_curve` or `open_set_curve_by_acceptance`.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    line_ : matplotlib Line2D
        The curve, once plotted.

    Examples
    --------
    >>> from dualqml.evaluation import OpenSetDisplay
    >>> mated, strangers = [[0.9, 0.2], [0.3, 0.6]], [[0.1, 0.7]]
    >>> display = OpenSetDisplay.from_scores(mated, [0, 1], strangers, name="mine")
    >>> display.curve.fnir
    array([0. , 0.5, 0.5, 1. ])
    """

    @classmethod
    def from_scores(
        cls,
        mated_scores: ArrayLike,
        mated_codes: ArrayLike,
        nonmated_scores: ArrayLike,
        *,
        rank: int = 1,
        name: str | None = None,
    ) -> Self:
        """Compute the curve.

        Parameters
        ----------
        mated_scores : array-like of shape (n_mated, n_subjects)
            Similarities of probes of enrolled subjects to all enrolled subjects.
        mated_codes : array-like of int of shape (n_mated,)
            Column of the true subject of each probe.
        nonmated_scores : array-like of shape (n_nonmated, n_subjects)
            Similarities of probes of strangers to the same enrolled subjects.
        rank : int, default=1
            The largest number of candidates that a search returns.
        name : str, optional
            Name in the legend.

        Returns
        -------
        OpenSetDisplay
            Ready to plot.
        """
        curve = open_set_curve(mated_scores, mated_codes, nonmated_scores, rank=rank)
        return cls(curve, name=name)

    def _points(self) -> tuple[Array, Array]:
        return 100.0 * self.curve.fpir, 100.0 * self.curve.fnir

    def _format_axes(self, ax: Any, earlier_limit: float) -> None:
        if ax.get_xscale() != "log":
            earlier_limit = np.inf
        ax.set(xscale="log", yscale="log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        smallest = min(_smallest(self.curve.fpir), _smallest(self.curve.fnir))
        low = 10.0 ** np.floor(np.log10(100.0 * smallest))
        _limit(ax, min(low, earlier_limit), 100.0)
        ax.set(
            xlabel="false-positive identification rate, %",
            ylabel="false-negative identification rate, %",
        )


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
    figure_ : matplotlib Figure
        Their figure, once plotted.
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
            Axes to draw on; new axes by default.
        **line_kwargs : dict
            Passed to ``ax.plot``.

        Returns
        -------
        CMCDisplay
            The same object, with `ax_`, `figure_` and `line_`.
        """
        ax = axes_or_new(ax)
        ranks = np.arange(1, self.rates.size + 1)
        (self.line_,) = ax.plot(
            ranks, 100.0 * self.rates, **({"label": self.name} | line_kwargs)
        )
        ax.set(xlabel="rank", ylabel="identified, %")
        if ax.get_xscale() == "linear":
            ax.set_xticks(_rank_ticks(int(ax.dataLim.x1)))
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


class ScoreHistogramDisplay:
    """Plot of the distributions of mated and non-mated scores.

    Parameters
    ----------
    edges : array-like of shape (n_bins + 1,)
        Edges of the bins, the same for both kinds of scores.
    mated, nonmated : array-like of shape (n_bins,)
        Share of the mated and of the non-mated comparisons in each bin.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    mated_, nonmated_ : matplotlib StepPatch
        The histograms, once plotted.

    Examples
    --------
    >>> from dualqml.evaluation import ScoreHistogramDisplay
    >>> display = ScoreHistogramDisplay.from_scores([0.9, 0.5], [0.4, 0.1], bins=2)
    >>> display.edges, display.mated, display.nonmated
    (array([0.1, 0.5, 0.9]), array([0., 1.]), array([1., 0.]))
    """

    def __init__(
        self,
        edges: ArrayLike,
        mated: ArrayLike,
        nonmated: ArrayLike,
        *,
        name: str | None = None,
    ) -> None:
        self.edges = np.asarray(edges, dtype=np.float64)
        self.mated = np.asarray(mated, dtype=np.float64)
        self.nonmated = np.asarray(nonmated, dtype=np.float64)
        self.name = name

    @classmethod
    def from_scores(
        cls,
        mated: ArrayLike,
        nonmated: ArrayLike,
        *,
        bins: int | str | ArrayLike = 50,
        name: str | None = None,
    ) -> Self:
        """Count the scores.

        Parameters
        ----------
        mated : array-like of shape (n_mated,)
            Similarities of pairs of samples of the same subject.
        nonmated : array-like of shape (n_nonmated,)
            Similarities of pairs of samples of different subjects.
        bins : int, str or array-like, default=50
            Number or edges of the bins, as for ``numpy.histogram_bin_edges``.
        name : str, optional
            Name in the legend.

        Returns
        -------
        ScoreHistogramDisplay
            Ready to plot. Missing and infinite scores are in no bin but are counted
            in the denominators, so the shares then add up to less than 1.

        Raises
        ------
        ScoreError
            No score is finite, or the bins are not valid.
        """
        own, other = as_scores(mated, "mated"), as_scores(nonmated, "nonmated")
        both = np.concatenate([own, other])
        finite = both[np.isfinite(both)]
        if finite.size == 0:
            raise ScoreError("No score is finite: there is nothing to count in bins")
        try:
            edges = np.histogram_bin_edges(finite, bins)
        except (TypeError, ValueError) as error:
            raise ScoreError(f"bins={bins!r} does not suit: {error}") from error
        shares = (np.histogram(part, edges)[0] / part.size for part in (own, other))
        return cls(edges, *shares, name=name)

    def plot(self, ax: Any = None, name: str | None = None, **bar_kwargs: Any) -> Self:
        """Draw both histograms.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new axes by default.
        name : str, optional
            Name before "mated" and "non-mated" in the legend; by default that of
            the display.
        **bar_kwargs : dict
            Passed to ``ax.stairs`` for both histograms.

        Returns
        -------
        ScoreHistogramDisplay
            The same object, with `ax_`, `figure_`, `mated_` and `nonmated_`.
        """
        ax = axes_or_new(ax)
        title = self.name if name is None else name
        before = "" if title is None else f"{title}, "
        style = {"label": f"{before}non-mated", "fill": True, "alpha": 0.5}
        self.nonmated_ = ax.stairs(
            100.0 * self.nonmated, self.edges, **(style | bar_kwargs)
        )
        style["label"] = f"{before}mated"
        self.mated_ = ax.stairs(100.0 * self.mated, self.edges, **(style | bar_kwargs))
        ax.set(xlabel="score", ylabel="comparisons, %")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


def axes_or_new(ax: Any, size: tuple[float, float] | None = None) -> Any:
    """Return the axes to draw on.

    Parameters
    ----------
    ax : matplotlib Axes or None
        Axes that were given; None means those of a new figure.
    size : tuple of float, optional
        Width and height of a new figure in inches.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    MissingDependencyError
        Plots need matplotlib, which is not installed.
    TypeError
        What was given is not one matplotlib Axes.
    """
    try:
        from matplotlib.axes import Axes

        if ax is None:
            # Only here, because pyplot chooses how figures are shown.
            from matplotlib import pyplot
    except ImportError as error:
        raise MissingDependencyError(
            "Plots need matplotlib: install dualqml[plot]"
        ) from error
    if ax is None:
        return pyplot.subplots(figsize=size)[1]
    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax must be one matplotlib Axes, got {type(ax).__name__}; of several "
            "axes, give the one to draw on"
        )
    return ax


def panel_axes(ax: Any, boxes: Sequence[tuple[float, float, float, float]]) -> Any:
    """Hide axes, and put others in their place.

    Parameters
    ----------
    ax : matplotlib Axes
        The axes. They may be part of any layout.
    boxes : sequence of tuple of float
        For each panel, left, bottom, width and height in units of the axes.

    Returns
    -------
    list of matplotlib Axes
        The panels.
    """
    ax.set_axis_off()
    return [ax.inset_axes(list(box)) for box in boxes]


def draw_picture(ax: Any, picture: Array, title: str = "", **image_kwargs: Any) -> Any:
    """Draw an image without ticks.

    Parameters
    ----------
    ax : matplotlib Axes
        The axes.
    picture : ndarray of shape (height, width)
        The image.
    title : str, default=""
        Its title.
    **image_kwargs : dict
        Passed to ``ax.imshow``; by default the image is grey.

    Returns
    -------
    matplotlib AxesImage
        The image.
    """
    style = {"cmap": "gray", "interpolation": "nearest"} | image_kwargs
    drawn = ax.imshow(picture, **style)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize="medium")
    return drawn


def _corners(x: Array, y: Array) -> tuple[Array, Array]:
    """Leave out points in the middle of straight lines; there are many of them."""
    still_x, still_y = np.diff(x) == 0.0, np.diff(y) == 0.0
    straight = (still_x[:-1] & still_x[1:]) | (still_y[:-1] & still_y[1:])
    # The ends stay.
    keep = np.r_[True, ~straight, True][: x.size]
    return x[keep], y[keep]


def _deviates(shares: Array) -> Array:
    return np.asarray(norm.ppf(np.clip(shares, BEYOND, 1.0 - BEYOND)))


def _without_collisions(
    labels: Sequence[str], places: Array, first: float
) -> list[str]:
    """Labels side by side, from `first` on; those that would meet others are empty."""
    width = _WIDTH_OF_LETTER * float(places[-1] - first)
    shown, end = [], -np.inf
    for label, place in zip(labels, places, strict=True):
        half = 0.5 * len(label) * width
        # Before the first there is no axis, and no label that could be met.
        fits = place < first or place - half >= end
        end = place + half if fits and place >= first else end
        shown.append(label if fits else "")
    return shown


def _rank_ticks(last: int) -> list[int]:
    """Ticks of an axis of ranks: the first rank, and then round ones."""
    step = 1
    while last > 10 * step:
        # 1, 5, 10, 50, 100, 500, ...
        step *= 5 if str(step)[0] == "1" else 2
    return sorted({1, *range(step, last + 1, step)})


def _smallest(shares: Array) -> float:
    """Return the smallest rate above 0, at most 1 %."""
    return float(shares[shares > 0.0].min(initial=0.01))


def _limit(ax: Any, low: float, high: float) -> None:
    ax.set(xlim=(low, high), ylim=(low, high))
