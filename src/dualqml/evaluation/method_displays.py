# SPDX-License-Identifier: BSD-3-Clause
"""Plots of what the method has learnt: the matrices P_c, and their certificate."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dualqml._sklearn import one_blas_thread
from dualqml._typing import Array
from dualqml.core import certify, scatter_spectrum, solve
from dualqml.core.spectrum import norm_scale
from dualqml.evaluation.displays import axes_or_new, draw_picture, panel_axes
from dualqml.exceptions import NothingToPlotError
from dualqml.extractors import DualQML, DualQMLW
from dualqml.extractors.dual_qml import class_members
from dualqml.extractors.zero_samples import are_used
from dualqml.images.shapes import SizeLike, resolved_shape

#: Gaps and violations below this are drawn at this value: a logarithmic axis has no 0.
SMALLEST_DRAWN = 1e-12
#: The axis of a certificate ends at this multiple of the tolerance, or above.
_HEADROOM = 1e3
#: Factors whose energy is below this fraction of that of the first are rounding noise.
_LEAST_ENERGY = 1e-12


class QuadraticFormDisplay:
    r"""Pictures of the matrix P_c of one class, for samples that are images.

    P_c is a sum of products v v' of its factors v, so that the feature of a sample is
    a sum of squares, :math:`x^T P_c x = \sum_v (v^T x)^2`. A factor has one value for
    each pixel and can be seen as an image: where it is red, a brighter pixel makes v'x
    larger; where it is blue, a darker one does; white pixels do not matter. The
    factors are orthogonal. The strongest comes first.

    The first picture is the diagonal of P_c: the sum of the squares of all factors in
    a pixel. It shows which pixels matter to this class, whatever the sign. The rank of
    P_c is at most the number of training samples of the class. If samples have more
    features than there are samples, it is nearly as large as that; else it is 1 as a
    rule.

    Parameters
    ----------
    factors : array-like of shape (n_factors, n_pixels)
        The orthogonal factors of P_c, in the order of falling energy.
    image_shape : tuple of int
        Height and width of the images.
    name : str, optional
        Name of the class in the titles.

    Attributes
    ----------
    pictures : ndarray of shape (n_factors, height, width)
        The factors as images.
    diagonal : ndarray of shape (height, width)
        The diagonal of P_c as an image.
    energies : ndarray of shape (n_factors,)
        Share of each factor in the trace of P_c.
    ax_ : matplotlib Axes
        The axes in whose place the pictures are, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    axes_ : list of matplotlib Axes
        The axes of the pictures, once plotted: the diagonal, then the factors.
    images_ : list of matplotlib AxesImage
        The pictures, once plotted.

    See Also
    --------
    CertificateDisplay : How good the solutions are.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQML
    >>> from dualqml.evaluation import QuadraticFormDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQML(lam=10.0).fit(X[:100], y[:100])
    >>> display = QuadraticFormDisplay.from_estimator(model, 3, image_shape=(8, 8))
    >>> display.diagonal.shape
    (8, 8)
    """

    def __init__(
        self, factors: ArrayLike, *, image_shape: SizeLike, name: str | None = None
    ) -> None:
        rows = np.asarray(factors, dtype=np.float64)
        if rows.ndim != 2:
            raise ValueError(
                "factors must have a row for each factor, got an array of shape "
                f"{rows.shape}"
            )
        if not rows.any():
            raise NothingToPlotError(
                "P_c is zero or has no factors: there is nothing to show"
            )
        shape = resolved_shape(image_shape, rows.shape[1], without="another plot")
        self.pictures = rows.reshape(-1, *shape)
        self.diagonal = np.square(self.pictures).sum(axis=0)
        squares = np.square(rows).sum(axis=1)
        self.energies = squares / squares.sum()
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        label: Any,
        *,
        image_shape: SizeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Take P_c of a class from a fitted estimator.

        Parameters
        ----------
        estimator : DualQML, DualQMLClassifier, DualQMLW or one with "CV"
            The fitted estimator. P_c of DualQML-W is mapped from the coordinates of
            its metric back to the pixels, which needs linear coordinates of the
            pixels: ``kernel="linear"`` and ``descriptor=None``.
        label : object
            A label of ``estimator.classes_``.
        image_shape : tuple of int, optional
            Height and width of the images in the rows of X. None means that of the
            estimator, or square images.
        name : str, optional
            Name of the class in the titles; by default its label.

        Returns
        -------
        QuadraticFormDisplay
            Ready to plot. If the features are signed roots, the signs of the factors
            are such that the mean sample of the class has positive products with
            them; else the largest value of each factor is positive.

        Raises
        ------
        NothingToPlotError
            P_c cannot be mapped back to pixels, or is zero.
        TypeError
            The estimator is of another method.
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        ValueError
            It has no such class, or the rows are no images of that shape.
        """
        qml = _fitted_qml(estimator)
        c = _class_number(estimator, label)
        end = int(qml.ranks_[: c + 1].sum())
        own = slice(end - int(qml.ranks_[c]), end)
        rows, responses = qml.components_[own], qml.mean_responses_
        if isinstance(estimator, DualQMLW):
            rows = rows @ _linear_map(estimator).T
            if image_shape is None:
                image_shape = estimator.image_shape
        shape = resolved_shape(image_shape, rows.shape[1], without="another plot")
        # In the space of the pixels the factors of DualQML-W are not orthogonal.
        turn, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        factors = sizes[:, None] * directions
        if responses is None:
            largest = np.abs(factors).argmax(axis=1)
            signs = np.sign(factors[np.arange(len(factors)), largest])
        else:
            signs = np.where(turn.T @ responses[own] < 0.0, -1.0, 1.0)
        kept = sizes**2 > _LEAST_ENERGY * sizes.max(initial=0.0) ** 2
        return cls(
            (signs[:, None] * factors)[kept],
            image_shape=shape,
            name=str(label) if name is None else name,
        )

    def plot(
        self,
        ax: Any = None,
        *,
        n_factors: int = 2,
        cmap: str = "RdBu_r",
        colour_bar: bool = True,
        **image_kwargs: Any,
    ) -> Self:
        """Draw the diagonal of P_c, and its first factors.

        All factors have the same colours, with white at zero.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes in whose place the pictures are drawn; those of a new figure by
            default.
        n_factors : int, default=2
            Largest number of factors to draw. With 0 there is only the diagonal.
        cmap : str, default="RdBu_r"
            Colours of the factors; it should diverge from its middle.
        colour_bar : bool, default=True
            Whether to add a scale of the colours to each picture.
        **image_kwargs : dict
            Passed to ``imshow`` for all pictures.

        Returns
        -------
        QuadraticFormDisplay
            The same object, with `ax_`, `figure_`, `axes_` and `images_`.
        """
        if n_factors < 0:
            raise ValueError(f"n_factors must not be negative, got {n_factors}")
        shown = self.pictures[:n_factors]
        number = 1 + len(shown)
        height, width = self.diagonal.shape
        inches = 0.7 + 2.3 * min(height / width, 2.0)
        ax = axes_or_new(ax, (3.0 * number, inches))
        share = 1.0 / number
        # The colour bars and their numbers are to the right of each picture.
        used = share * (0.72 if colour_bar else 0.94)
        boxes = [(share * place, 0.0, used, 1.0) for place in range(number)]
        self.axes_ = panel_axes(ax, boxes)
        limit = float(np.abs(shown).max()) if len(shown) else 1.0
        before = "" if self.name is None else f"class {self.name}\n"
        first, *others = self.axes_
        style = {"cmap": "Purples", "vmin": 0.0}
        title = f"{before}diagonal of P"
        self.images_ = [
            draw_picture(first, self.diagonal, title, **(style | image_kwargs))
        ]
        style = {"cmap": cmap, "vmin": -limit, "vmax": limit}
        for place, panel in enumerate(others):
            title = f"factor {place + 1}, {_percent(self.energies[place])} of trace"
            self.images_.append(
                draw_picture(panel, shown[place], title, **(style | image_kwargs))
            )
        self.ax_ = ax
        self.figure_ = ax.figure
        if colour_bar:
            for panel, image in zip(self.axes_, self.images_, strict=True):
                bar = panel.inset_axes([1.04, 0.0, 0.06, 1.0])
                self.figure_.colorbar(image, cax=bar)
                bar.locator_params(axis="y", nbins=5)
                bar.tick_params(labelsize="small")
        return self


class CertificateDisplay:
    """Plot of the certificates of all classes: relative duality gaps and violations.

    The duality gap bounds by how much the objective of a class is above the optimum;
    the violation is how much the worst constraint of a class falls short. A class is
    proven optimal if both are at most the tolerance. Classes are in the order of their
    gaps, so a glance at the right end shows the worst. Values below 1e-12 are drawn at
    1e-12.

    Parameters
    ----------
    gap : array-like of shape (n_classes,)
        Relative duality gap of each class.
    violation : array-like of shape (n_classes,)
        Largest constraint violation of each class.
    tol : float
        The tolerance.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    n_optimal : int
        Number of classes that are proven optimal.
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    gaps_, violations_ : matplotlib Line2D
        The points, once plotted.
    tolerance_ : matplotlib Line2D
        The line at the tolerance, once plotted.

    See Also
    --------
    CertificatePathDisplay : The certificate along the steps of the solver.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQML
    >>> from dualqml.evaluation import CertificateDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQML(lam=10.0).fit(X[:100], y[:100])
    >>> display = CertificateDisplay.from_estimator(model)
    >>> display.n_optimal, display.gap.size
    (10, 10)
    """

    def __init__(
        self,
        gap: ArrayLike,
        violation: ArrayLike,
        *,
        tol: float,
        name: str | None = None,
    ) -> None:
        self.gap = np.asarray(gap, dtype=np.float64)
        self.violation = np.asarray(violation, dtype=np.float64)
        if self.gap.ndim != 1 or self.gap.shape != self.violation.shape:
            raise ValueError(
                "gap and violation must have one value per class, got the shapes "
                f"{self.gap.shape} and {self.violation.shape}"
            )
        self.tol = float(tol)
        worst = np.maximum(self.gap, self.violation)
        self.n_optimal = int(np.count_nonzero(worst <= self.tol))
        self.name = name

    @classmethod
    def from_estimator(cls, estimator: Any, *, name: str | None = None) -> Self:
        """Take the certificates from a fitted estimator.

        Parameters
        ----------
        estimator : DualQML, DualQMLClassifier, DualQMLW or one with "CV"
            The fitted estimator.
        name : str, optional
            Name in the legend.

        Returns
        -------
        CertificateDisplay
            Ready to plot.

        Raises
        ------
        TypeError
            The estimator is of another method.
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        """
        qml = _fitted_qml(estimator)
        return cls(qml.duality_gap_, qml.violation_, tol=qml.tol, name=name)

    def plot(self, ax: Any = None, name: str | None = None, **line_kwargs: Any) -> Self:
        """Draw gaps and violations.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new axes by default.
        name : str, optional
            Name in the legend; by default the name of the display.
        **line_kwargs : dict
            Passed to ``ax.plot`` for gaps and violations.

        Returns
        -------
        CertificateDisplay
            The same object, with `ax_`, `figure_`, `gaps_`, `violations_` and
            `tolerance_`.
        """
        ax = axes_or_new(ax)
        title = self.name if name is None else name
        before = "" if title is None else f"{title}, "
        order = np.argsort(self.gap, kind="stable")
        ranks = np.arange(1, order.size + 1)
        style = {"linestyle": "none", "markersize": 5.0}
        (self.gaps_,) = ax.plot(
            ranks,
            _drawn(self.gap[order]),
            **(style | {"marker": "o", "label": f"{before}duality gap"} | line_kwargs),
        )
        label = f"{before}constraint violation"
        n_below = int(np.count_nonzero(self.violation < SMALLEST_DRAWN))
        if n_below:
            label += f" ({n_below} below {SMALLEST_DRAWN:g})"
        (self.violations_,) = ax.plot(
            ranks,
            _drawn(self.violation[order]),
            **(style | {"marker": "x", "label": label} | line_kwargs),
        )
        self.tolerance_ = _draw_tolerance(ax, self.tol)
        ax.set(
            xlabel="class, in the order of gaps",
            ylabel="duality gap, violation",
            title=f"{self.n_optimal} of {order.size} classes proven optimal",
        )
        ax.locator_params(axis="x", integer=True)
        # Above the line of the tolerance there is room for the legend.
        ax.set_ylim(top=max(ax.get_ylim()[1], _HEADROOM * self.tol))
        ax.legend()
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


class CertificatePathDisplay:
    """Plot of the certificate along the steps of the solver.

    The problem is solved again with at most 1, 2, 3, ... iterations, and each result
    is certified. A line shows the median class, a dashed one the worst class. Newton's
    method doubles the number of right digits with each step, until the tolerance is
    reached: a few steps are enough.

    Parameters
    ----------
    steps : array-like of shape (n_steps,)
        Numbers of iterations that were allowed.
    worst : array-like of shape (n_steps, n_classes)
        The larger of gap and violation after that number of iterations.
    tol : float
        The tolerance.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    n_optimal : ndarray of shape (n_steps,)
        Number of classes that are proven optimal after each number of iterations.
    ax_ : matplotlib Axes
        The axes, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    median_, worst_ : matplotlib Line2D
        The lines, once plotted.
    tolerance_ : matplotlib Line2D
        The line at the tolerance, once plotted.

    See Also
    --------
    CertificateDisplay : The certificates of all classes at the end.

    Notes
    -----
    With solver "newton" an iteration is one at each level of the solver, and classes
    whose P_c has rank one may be solved without any. The last resort of
    :func:`dualqml.core.solve_certified`, to solve classes one by one, is not used.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQML
    >>> from dualqml.evaluation import CertificatePathDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))[:50]
    >>> model = DualQML(lam=10.0).fit(X, y[:50])
    >>> display = CertificatePathDisplay.from_estimator(model, X, y[:50], max_iter=4)
    >>> display.worst.shape
    (4, 10)
    >>> int(display.n_optimal[-1])
    10
    """

    def __init__(
        self,
        steps: ArrayLike,
        worst: ArrayLike,
        *,
        tol: float,
        name: str | None = None,
    ) -> None:
        self.steps = np.asarray(steps)
        self.worst = np.asarray(worst, dtype=np.float64)
        if self.worst.ndim != 2 or self.steps.shape != self.worst.shape[:1]:
            raise ValueError(
                "worst must have a row for each of the steps, got the shapes "
                f"{self.worst.shape} and {self.steps.shape}"
            )
        self.tol = float(tol)
        self.n_optimal = np.count_nonzero(self.worst <= self.tol, axis=1)
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        max_iter: int = 6,
        name: str | None = None,
    ) -> Self:
        """Solve the problem of a fitted estimator again, with few iterations.

        Parameters
        ----------
        estimator : DualQML, DualQMLClassifier, DualQMLW or one with "CV"
            The fitted estimator, which gives lambda, solver, tolerance and metric.
        X : array-like of shape (n_samples, n_features)
            The training samples.
        y : array-like of shape (n_samples,)
            Their labels.
        max_iter : int, default=6
            The largest number of iterations.
        name : str, optional
            Name in the legend.

        Returns
        -------
        CertificatePathDisplay
            Ready to plot.

        Raises
        ------
        TypeError
            The estimator is of another method.
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        ValueError
            X and y are not the training samples, or max_iter is below 1.
        """
        if max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got {max_iter}")
        qml = _fitted_qml(estimator)
        rows = np.asarray(X, dtype=np.float64)
        labels, codes = np.unique(np.asarray(y), return_inverse=True)
        shape = (qml.dual_coef_.size, estimator.n_features_in_)
        same = rows.shape == shape and codes.shape == shape[:1]
        if not same or not np.array_equal(labels, estimator.classes_):
            raise ValueError("X and y are not what the estimator was fitted to")
        if isinstance(estimator, DualQMLW):
            rows = np.asarray(estimator.metric_.transform(rows))
        squares = np.einsum("ij,ij->i", rows, rows)
        used = are_used(squares, float(squares.max()))
        rows, members = rows[used], class_members(codes[used], labels.size)
        # As in dualqml.core.solve_certified: rows with a norm of about one.
        scale = norm_scale(float(squares[used].mean()))
        spectrum = scatter_spectrum(rows / scale)
        steps = np.arange(1, max_iter + 1)
        worst = np.empty((max_iter, labels.size))
        with one_blas_thread():
            for place, step in enumerate(steps):
                solution = solve(
                    spectrum,
                    members,
                    qml.lam_ * scale**4,
                    solver=qml.solver,
                    tol=qml.tol,
                    max_iter=int(step),
                )
                found = certify(spectrum, members, solution, tol=qml.tol)
                worst[place] = found.worst
        return cls(steps, worst, tol=qml.tol, name=name)

    def plot(self, ax: Any = None, name: str | None = None, **line_kwargs: Any) -> Self:
        """Draw the certificate against the number of iterations.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new axes by default.
        name : str, optional
            Name in the legend; by default the name of the display.
        **line_kwargs : dict
            Passed to ``ax.plot`` for both lines.

        Returns
        -------
        CertificatePathDisplay
            The same object, with `ax_`, `figure_`, `median_`, `worst_` and
            `tolerance_`.
        """
        ax = axes_or_new(ax)
        title = self.name if name is None else name
        before = "" if title is None else f"{title}, "
        style = {"marker": "o", "label": f"{before}median class"}
        (self.median_,) = ax.plot(
            self.steps,
            _drawn(np.median(self.worst, axis=1)),
            **(style | line_kwargs),
        )
        style = {"marker": "s", "label": f"{before}worst class", "linestyle": "--"}
        style["color"] = self.median_.get_color()
        (self.worst_,) = ax.plot(
            self.steps, _drawn(self.worst.max(axis=1)), **(style | line_kwargs)
        )
        self.tolerance_ = _draw_tolerance(ax, self.tol)
        n_classes = self.worst.shape[1]
        ax.set(
            xlabel="iterations allowed",
            ylabel="duality gap or violation",
            title=f"{self.n_optimal[-1]} of {n_classes} classes proven optimal at last",
        )
        if ax.get_xscale() == "linear":
            ax.locator_params(axis="x", integer=True)
        ax.legend()
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


def _fitted_qml(estimator: Any) -> DualQML:
    """The fitted DualQML in an estimator."""
    if not isinstance(estimator, DualQML | DualQMLW):
        raise TypeError(
            "The plot shows DualQML and DualQML-W, not "
            f"{type(estimator).__name__}; of a pipeline, give its last step"
        )
    check_is_fitted(estimator)
    qml: DualQML = estimator.qml_ if isinstance(estimator, DualQMLW) else estimator
    return qml


def _class_number(estimator: Any, label: Any) -> int:
    # A list of labels would be compared with the classes one by one.
    one = np.ndim(label) == 0
    found = np.flatnonzero(estimator.classes_ == label) if one else np.array([])
    if found.size != 1:
        raise ValueError(
            f"{label!r} is not a class of this model; its {estimator.classes_.size} "
            "classes are in the attribute classes_"
        )
    return int(found[0])


def _linear_map(estimator: DualQMLW) -> Array:
    """The map from pixels to the coordinates of the metric, one column for each."""
    metric = estimator.metric_
    if metric.descriptor is not None:
        raise NothingToPlotError(
            "This model sees local descriptors and not pixels, so P_c is no image. Fit "
            "DualQMLW with descriptor=None and kernel='linear' to see pixels."
        )
    if metric.kernel_ is not None:
        raise NothingToPlotError(
            "The coordinates of this model are those of a kernel, so P_c is no image. "
            "Fit DualQMLW with kernel='linear', which is nearly the same, to see it."
        )
    return np.asarray(metric.coefficients_)


def _drawn(values: Array) -> Array:
    """Values for a logarithmic axis. What is not finite is left out by matplotlib."""
    return np.maximum(values, SMALLEST_DRAWN)


def _draw_tolerance(ax: Any, tol: float) -> Any:
    ax.set_yscale("log")
    label = f"tolerance, {tol:g}"
    # Several curves on the same axes need it once in the legend.
    if label in ax.get_legend_handles_labels()[1]:
        label = "_nolegend_"
    return ax.axhline(tol, color="0.4", linestyle=":", label=label)


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share >= 0.01 else "below 1 %"
