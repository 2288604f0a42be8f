# SPDX-License-Identifier: BSD-3-Clause
"""A plot of why an image was recognised, or not."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualqml._typing import Array
from dualqml.evaluation.displays import axes_or_new, draw_picture, panel_axes
from dualqml.recognition.explanation import EnrolledSample, Explanation
from dualqml.recognition.inputs import InputReader, Inputs
from dualqml.recognition.recognizer import Recognizer

#: Longest name that is written in full; of longer ones the beginning is.
_LONGEST_NAME = 18


class WhyDisplay:
    """Plot of an explanation: the image, its candidates, and the parts of the score.

    At the left are the image as the model sees it, and below it the most similar
    enrolled image of the best candidate, by the cosine. If an image of somebody else is
    more similar, it is shown too; the decision is by the score. For vectors, and for
    photographs that the model describes by vectors, there are no pictures unless they
    are given.

    At the top right are the candidates on the scale of scores. A dashed line is the
    threshold: the best candidate is a match if its score reaches the line. Below are
    the parts of the scores of the best candidate and of the runner-up. The parts of
    each add up to its score.

    Parameters
    ----------
    explanation : Explanation
        What to show.
    probe : array-like of shape (height, width), optional
        The image that was recognised.
    nearest : array-like of shape (height, width), optional
        The enrolled image of ``explanation.nearest``.
    nearest_of_all : array-like of shape (height, width), optional
        The enrolled image of ``explanation.nearest_of_all``.

    Attributes
    ----------
    subjects : list of str
        The candidates, in falling order of their scores.
    scores : ndarray of shape (n_candidates,)
        Their scores.
    threshold : float
        The smallest score of a match.
    part_names : list of str
        The parts of a score.
    part_values : ndarray of shape (n_parts, 1 or 2)
        The parts of the scores of the best candidate and, if there is one, of the
        runner-up.
    ax_ : matplotlib Axes
        The axes in whose place all is drawn, once plotted.
    figure_ : matplotlib Figure
        Their figure, once plotted.
    candidates_ax_, parts_ax_ : matplotlib Axes
        The axes of candidates and of parts, once plotted.
    picture_axes_ : list of matplotlib Axes
        The axes of the pictures, once plotted.

    See Also
    --------
    Recognizer.explain : The explanation.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer, WhyDisplay
    >>> rng = np.random.default_rng(0)
    >>> people = {name: rng.normal(size=20) for name in ["Ann", "Bob", "Zoe"]}
    >>> recognizer = Recognizer(threshold=0.5, cosine_weight=0.0)
    >>> for name, face in people.items():
    ...     recognizer.enroll(name, face + 0.2 * rng.normal(size=(3, 20)))
    >>> display = WhyDisplay.from_estimator(recognizer, people["Zoe"])
    >>> display.subjects[0], display.part_names
    ('Zoe', ['quadratic form', 'constant'])
    """

    def __init__(
        self,
        explanation: Explanation,
        *,
        probe: ArrayLike | None = None,
        nearest: ArrayLike | None = None,
        nearest_of_all: ArrayLike | None = None,
    ) -> None:
        if not isinstance(explanation, Explanation):
            raise TypeError(
                "explanation must be what Recognizer.explain returns, got "
                f"{type(explanation).__name__}"
            )
        self.explanation = explanation
        answer = explanation.identification
        self.subjects = [candidate.subject for candidate in answer.candidates]
        self.scores: Array = np.array([one.score for one in answer.candidates])
        self.threshold = float(answer.threshold)
        self.part_names = [part.name for part in explanation.parts]
        columns = [[part.value for part in explanation.parts]]
        if explanation.runner_up is not None:
            columns.append([part.runner_up or 0.0 for part in explanation.parts])
        self.part_values: Array = np.array(columns).T
        self.probe = _picture(probe, "probe")
        self.nearest = _picture(nearest, "nearest")
        self.nearest_of_all = _picture(nearest_of_all, "nearest_of_all")

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation,
        *,
        probe: ArrayLike | None = None,
        nearest: ArrayLike | None = None,
        nearest_of_all: ArrayLike | None = None,
    ) -> Self:
        """Show an explanation, with pictures if they are given.

        Parameters
        ----------
        explanation : Explanation
            From `Recognizer.explain`.
        probe : array-like of shape (height, width), optional
            The image that was recognised; also (height, width, 3).
        nearest : array-like of shape (height, width), optional
            The enrolled image of ``explanation.nearest``.
        nearest_of_all : array-like of shape (height, width), optional
            The enrolled image of ``explanation.nearest_of_all``.

        Returns
        -------
        WhyDisplay
            Ready to plot.
        """
        return cls(
            explanation, probe=probe, nearest=nearest, nearest_of_all=nearest_of_all
        )

    @classmethod
    def from_estimator(
        cls,
        recognizer: Recognizer,
        image: Inputs,
        *,
        top: int = 5,
        threshold: float | None = None,
    ) -> Self:
        """Identify an image, and show the explanation of the answer.

        Parameters
        ----------
        recognizer : Recognizer
            Knows the enrolled people. All displays have this constructor for what was
            fitted.
        image : array, image or path
            One sample, as for `Recognizer.explain`.
        top : int, default=5
            Largest number of candidates.
        threshold : float, optional
            Used instead of the threshold of the recogniser.

        Returns
        -------
        WhyDisplay
            Ready to plot.

        Raises
        ------
        RecognitionError
            There is no threshold, nobody is enrolled, or the sample cannot be used.
        TypeError
            What was given is not a Recognizer.
        """
        if not isinstance(recognizer, Recognizer):
            raise TypeError(
                "The plot explains the answer of a Recognizer, not of "
                f"{type(recognizer).__name__}"
            )
        explanation = recognizer.explain(image, top=top, threshold=threshold)
        if recognizer.inputs != "image":
            return cls(explanation)
        reader = InputReader(size=recognizer.size)
        reader.kind = recognizer.inputs
        (row,) = reader.read(image, enrolling=False)

        def enrolled(sample: EnrolledSample) -> NDArray[Any]:
            row: NDArray[Any] = recognizer.samples(sample.subject)[sample.index]
            return row.reshape(recognizer.size)

        other = explanation.nearest_of_all
        return cls(
            explanation,
            probe=row.reshape(recognizer.size),
            nearest=enrolled(explanation.nearest),
            nearest_of_all=None if other is None else enrolled(other),
        )

    def plot(self, ax: Any = None) -> Self:
        """Draw the pictures, the candidates and the parts of the score.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes in whose place all is drawn; those of a new figure by default.

        Returns
        -------
        WhyDisplay
            The same object, with `ax_`, `figure_`, `candidates_ax_`, `parts_ax_` and
            `picture_axes_`.
        """
        pictures = self._pictures()
        ax = axes_or_new(ax, (8.0 if pictures else 6.0, 4.8))
        left, wide = (0.52, 0.47) if pictures else (0.2, 0.8)
        number = max(len(pictures), 1)
        share = 1.0 / number
        boxes = [(left, 0.6, wide, 0.36), (left, 0.0, wide, 0.36)]
        boxes += [
            (0.0, 1.0 - share * (place + 1), 0.26, share * (0.97 - 0.09 * number))
            for place in range(len(pictures))
        ]
        self.candidates_ax_, self.parts_ax_, *self.picture_axes_ = panel_axes(ax, boxes)
        for panel, (title, picture) in zip(self.picture_axes_, pictures, strict=True):
            draw_picture(panel, picture, title, vmin=0, vmax=255)
            panel.title.set_fontsize("small")
        self._draw_candidates(self.candidates_ax_)
        self._draw_parts(self.parts_ax_)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    def _pictures(self) -> list[tuple[str, NDArray[Any]]]:
        """The pictures that there are, with their titles."""
        nearest, other = self.explanation.nearest, self.explanation.nearest_of_all
        found = []
        if self.probe is not None:
            found.append(("the image", self.probe))
        if self.nearest is not None:
            found.append((_title("most similar image of", nearest), self.nearest))
        if self.nearest_of_all is not None and other is not None:
            found.append((_title("more similar, but of", other), self.nearest_of_all))
        return found

    def _draw_candidates(self, ax: Any) -> None:
        places = np.arange(self.scores.size)
        reached = self.scores[0] >= self.threshold
        first = "C0" if reached else "0.45"
        colours = [first] + ["0.7"] * (places.size - 1)
        lowest = min(self.scores.min(), self.threshold)
        highest = max(self.scores.max(), self.threshold)
        margin = 0.08 * max(highest - lowest, 1e-3)
        ax.hlines(places, lowest - margin, self.scores, colors=colours, linewidth=2.0)
        ax.scatter(self.scores, places, c=colours, zorder=3)
        ax.axvline(self.threshold, color="C3", linestyle="--")
        # Near an edge, the text extends inwards.
        place = (self.threshold - lowest) / max(highest - lowest, 1e-3)
        side = "left" if place < 0.2 else "right" if place > 0.8 else "center"
        ax.annotate(
            f"threshold {self.threshold:.2f}",
            (self.threshold, 1.0),
            (0.0, 3.0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize="small",
            color="C3",
        )
        ax.set_yticks(places, [_short(subject) for subject in self.subjects])
        ax.set(
            xlabel="score",
            xlim=(lowest - margin, highest + margin),
            ylim=(places.size - 0.5, -0.5),
        )
        decision = f"match: {_short(self.subjects[0])}" if reached else "unknown"
        ax.set_title(decision, loc="left", fontweight="bold", pad=16.0)

    def _draw_parts(self, ax: Any) -> None:
        places = np.arange(len(self.part_names) + 1)
        values = np.vstack([self.part_values, self.part_values.sum(axis=0)])
        subjects = [self.explanation.identification.candidates[0].subject]
        if self.explanation.runner_up is not None:
            subjects.append(self.explanation.runner_up.subject)
        reached = self.scores[0] >= self.threshold
        colours = ["C0" if reached else "0.45", "0.7"]
        height = 0.8 / len(subjects)
        for place, subject in enumerate(subjects):
            ax.barh(
                places + height * (place - 0.5 * (len(subjects) - 1)),
                values[:, place],
                height=height,
                color=colours[place],
                label=_short(subject),
            )
        ax.axvline(0.0, color="0.2", linewidth=0.8)
        ax.axhline(places[-1] - 0.5, color="0.2", linewidth=0.8)
        ax.set_yticks(places, [*self.part_names, "score"])
        ax.set(xlabel="part of the score", ylim=(places[-1] + 0.5, -0.5))
        ax.legend(
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=2,
            frameon=False,
            fontsize="small",
            borderpad=0.0,
        )


def _picture(given: ArrayLike | None, name: str) -> NDArray[Any] | None:
    if given is None:
        return None
    picture = np.asarray(given)
    if picture.ndim != 2 and not (picture.ndim == 3 and picture.shape[2] in (3, 4)):
        raise ValueError(
            f"{name} must be an image of shape (height, width) or (height, width, 3), "
            f"got {picture.shape}"
        )
    return picture


def _title(before: str, sample: EnrolledSample) -> str:
    return f"{before} {_short(sample.subject)}\n(cosine {sample.cosine:.2f})"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
