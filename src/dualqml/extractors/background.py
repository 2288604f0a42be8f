# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of people who are not enrolled: how people differ, and how samples do.

A recogniser with few samples of each person knows little about how the samples of one
person vary. Many samples of other people show it. What they show is kept here as a
mean and two scatters, without any sample.
"""

import math
import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from dualqml._linalg import class_means, unit_rows, within_contrasts
from dualqml._saved_state import (
    COUNT,
    MATRIX,
    NOTHING,
    NUMBER,
    SIZE,
    VECTOR,
    Path,
    Saved,
    expect,
    expect_equal,
    from_parameters,
    one_of,
)
from dualqml._sklearn import class_codes, one_blas_thread
from dualqml._typing import Array, Index
from dualqml.exceptions import DatabaseError
from dualqml.extractors._people_trials import (
    USUAL_COSINE_WEIGHT,
    USUAL_LAM,
    USUAL_RHO,
    learn_from_people,
)
from dualqml.extractors.prepared_samples import Descriptor, sample_inputs
from dualqml.extractors.probabilities import LogRatio
from dualqml.images.shapes import ImageShape, SizeLike, shape_or_row

#: Fewer people with several samples say too little about people in general.
_FEW_PEOPLE = 10
#: Up to this number of inputs the scatters are exact.
_MOST_EXACT = 1280
#: Most rows of a scatter if there are more inputs.
_MOST_ROWS = 256
#: Most standard deviations by which a squared distance of means may be too large.
_MOST_DEVIATIONS = 2.5
#: A sum of squared deviations at or below this share of that of the samples is
#: rounding.
_ROUNDING = 1e-20


@dataclass(frozen=True, eq=False)
class Background:
    """Statistics of people who are not enrolled.

    Inputs are samples as :class:`WithinMetric` sees them: rows scaled to unit norm, or
    the local descriptors of images, also at unit norm. The statistics hold no sample
    and no name. Those of few people say much about each of them, so use many people.

    Make it with :meth:`from_samples`. It is saved by
    :func:`dualqml.save <dualqml.persistence.save>` and loaded by
    :func:`dualqml.load <dualqml.persistence.load>`.

    Attributes
    ----------
    mean : ndarray of shape (n_inputs,)
        Mean, over people, of the mean input of a person.
    within : ndarray of shape (n_within, n_inputs)
        Rows W. ``W'W`` is the sum, over all samples, of the outer products of the
        deviations from the mean of their person. With more than 1,280 inputs there are
        at most 256 rows, those with the largest norms, and the rest is left out.
    between : ndarray of shape (n_between, n_inputs)
        The same for the deviations of people's means from `mean`. Each person counts
        once.
    n_people : int
        Number of people.
    n_samples : int
        Number of samples.
    n_features : int
        Number of values of a sample before it becomes an input.
    image_shape : tuple of int or None, default=None
        Height and width of the images; None for vectors.
    descriptor : {"local"} or None, default=None
        "local" for images, whose inputs are their local descriptors; None for vectors.
    rho, lam, cosine_weight : float
        Parameters for galleries of one sample per person, in which nothing can be left
        out. They were chosen on the background: people of one part were enrolled in
        turn, with the statistics of the other parts.
    scores_by_size : ndarray of shape (n_sizes, 6) or None
        What was learnt about scores then, one row for each number of enrolled samples
        (1, 2, 4 and 8, if enough people have more): that number; the spread of
        responses between different people; mean and spread of the scores of a
        person's other samples, in units of the spread between different people; slope
        and offset of their log-likelihood ratios. None if fewer than ten people have
        several samples.
    scores_of_others : ndarray of shape (1000,) or None
        Quantiles of the scores of samples for other people, in ascending order and in
        the same units, with one enrolled sample each.

    See Also
    --------
    WithinMetric : A metric for differences between samples of one person.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.extractors import Background
    >>> rng = np.random.default_rng(0)
    >>> people = np.repeat(np.arange(50), 4)
    >>> faces = rng.normal(size=(50, 8))[people] + 0.3 * rng.normal(size=(200, 8))
    >>> background = Background.from_samples(faces, people)
    >>> background.n_people, background.n_samples, background.n_repeats
    (50, 200, 150)
    >>> background.strangers(1000).shape
    (1000, 8)
    """

    _saved: ClassVar[Saved] = Saved(
        parameters={
            "mean": VECTOR.of("n_inputs"),
            "within": MATRIX.of("n_within", "n_inputs"),
            "between": MATRIX.of("n_between", "n_inputs"),
            "n_people": COUNT,
            "n_samples": COUNT,
            "n_features": COUNT,
            "image_shape": SIZE | NOTHING,
            "descriptor": one_of(("local",)) | NOTHING,
            "rho": NUMBER,
            "lam": NUMBER,
            "cosine_weight": NUMBER,
            "scores_by_size": (MATRIX | NOTHING).of("n_sizes", "n_columns"),
            "scores_of_others": (VECTOR | NOTHING).of("n_quantiles"),
        }
    )

    mean: Array
    within: Array
    between: Array
    n_people: int
    n_samples: int
    n_features: int
    image_shape: ImageShape | None = None
    descriptor: Descriptor | None = None
    rho: float = USUAL_RHO
    lam: float = USUAL_LAM
    cosine_weight: float = USUAL_COSINE_WEIGHT
    scores_by_size: Array | None = None
    scores_of_others: Array | None = None

    def __repr__(self) -> str:
        return (
            f"<Background of {self.n_samples} samples of {self.n_people} people, "
            f"{self.mean.size} inputs>"
        )

    def log_ratio(self, n_samples: int) -> LogRatio:
        """What scores of classes of a size mean, as learnt from the background.

        Parameters
        ----------
        n_samples : int
            Number of samples of a class.

        Returns
        -------
        LogRatio
            That of the nearest size that was learnt, or what is usual.
        """
        row = self._row_of_size(n_samples)
        return LogRatio() if row is None else LogRatio(float(row[4]), float(row[5]))

    def own_scores(self, n_samples: int) -> tuple[float, float] | None:
        """Mean and spread of the scores of a person's other samples.

        Parameters
        ----------
        n_samples : int
            Number of enrolled samples of the person.

        Returns
        -------
        tuple of float or None
            Those of the nearest size that was learnt, in units of the spread between
            different people and from their mean; None if nothing was learnt.
        """
        row = self._row_of_size(n_samples)
        return None if row is None else (float(row[2]), float(row[3]))

    def _row_of_size(self, n_samples: int) -> Array | None:
        """The row of `scores_by_size` with the nearest number of samples."""
        if self.scores_by_size is None:
            return None
        sizes = self.scores_by_size[:, 0]
        nearest = np.abs(np.log(sizes / n_samples)).argmin()
        return np.asarray(self.scores_by_size[nearest])

    @property
    def n_repeats(self) -> int:
        """Number of samples beyond the first of each person.

        These are the degrees of freedom of `within`.
        """
        return self.n_samples - self.n_people

    @classmethod
    def from_samples(
        cls, X: ArrayLike, y: ArrayLike, *, image_shape: SizeLike | None = None
    ) -> Self:
        """Compute the statistics of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, height, width)
            Vectors or images. The images in flat rows need an `image_shape`.
        y : array-like of shape (n_samples,)
            The person of each sample. People with one sample count for `between` only.
        image_shape : sequence of int, default=None
            Height and width of the images in the rows of X. None means that flat rows
            are vectors.

        Returns
        -------
        Background
            The statistics. They do not depend on the order of the samples, to the last
            bit: samples are sorted by person, and then by their values.

        Raises
        ------
        DatabaseError
            The samples cannot be used, or they are of too few people.

        Warns
        -----
        UserWarning
            Fewer than 10 people have several samples.
        """
        rows, shape = _rows(X, image_shape)
        codes = _codes(y, len(rows))
        order = sorted(range(len(rows)), key=lambda k: (codes[k], rows[k].tobytes()))
        rows, codes = rows[order], codes[order]
        counts = np.bincount(codes)
        n_repeated = int((counts > 1).sum())
        if counts.size < 2 or n_repeated < 1:
            raise DatabaseError(
                "A background needs at least 2 people, and at least one of them with "
                f"2 samples; got {len(rows)} samples of {counts.size}. Check the "
                "labels, or give more samples."
            )
        if n_repeated < _FEW_PEOPLE:
            warnings.warn(
                f"Only {n_repeated} people of the background have several samples. "
                "Statistics of so few people are noisy, and say much about each of "
                f"them. Give {_FEW_PEOPLE} people or more.",
                UserWarning,
                stacklevel=2,
            )
        descriptor: Descriptor | None = None if shape is None else "local"
        inputs = _inputs(rows, shape, descriptor)
        with one_blas_thread():
            learnt = learn_from_people(inputs, codes)
        means, _ = class_means(inputs, codes)
        mean = means.mean(axis=0)
        scale = float(np.einsum("ij,ij->", inputs, inputs))
        return cls(
            mean=mean,
            within=_leading_rows(
                within_contrasts(inputs, codes),
                _most_rows(len(rows) - counts.size, mean.size),
                scale,
                "The samples of each person are equal",
            ),
            between=_leading_rows(
                means - mean,
                _most_rows(counts.size - 1, mean.size),
                scale,
                "The means of all people are equal",
            ),
            n_people=int(counts.size),
            n_samples=len(rows),
            n_features=int(rows.shape[1]),
            image_shape=shape,
            descriptor=descriptor,
            rho=learnt.rho,
            lam=USUAL_LAM,
            cosine_weight=learnt.cosine_weight,
            scores_by_size=learnt.scores_by_size,
            scores_of_others=learnt.scores_of_others,
        )

    def check_inputs(self, n_inputs: int, descriptor: Descriptor | None) -> None:
        """Raise if samples are not of the same kind as those of the background.

        Parameters
        ----------
        n_inputs : int
            Number of inputs of a sample.
        descriptor : {"local"} or None
            The descriptor that they come from.

        Raises
        ------
        ValueError
            The number or the descriptor is another one.
        """
        if (n_inputs, descriptor) != (self.mean.size, self.descriptor):
            raise ValueError(
                f"The background has {_in_words(self.mean.size, self.descriptor)}, and "
                f"the samples have {_in_words(n_inputs, descriptor)}: make the "
                "background from samples of the same kind and size"
            )

    def resembles(self, inputs: Array, codes: Index) -> bool:
        """Whether samples could be of the same population as the background.

        Other photographs, or people of another age, have another mean. A scatter that
        was learnt from them can do harm, so without any sample to leave out the
        background is not used then.

        Parameters
        ----------
        inputs : ndarray of shape (n_samples, n_inputs)
            Inputs of the samples.
        codes : ndarray of shape (n_samples,)
            Their people.

        Returns
        -------
        bool
            Whether the squared distance of the means exceeds its expectation for
            people of one population by at most 2.5 standard deviations.
        """
        means, counts = class_means(inputs, codes)
        return self.resembles_people(means.mean(axis=0), counts)

    def resembles_people(self, mean: Array, counts: Index) -> bool:
        """The same as `resembles`, from the mean of the people's means.

        Parameters
        ----------
        mean : ndarray of shape (n_inputs,)
            Mean of the means of the people.
        counts : ndarray of shape (n_people,)
            Number of samples of each.

        Returns
        -------
        bool
            As `resembles`.
        """
        between = float(np.vdot(self.between, self.between)) / (self.n_people - 1)
        within = float(np.vdot(self.within, self.within)) / self.n_repeats
        expected = between * (1.0 / len(counts) + 1.0 / self.n_people) + within * (
            float(np.mean(1.0 / counts)) / len(counts) + 1.0 / self.n_samples
        )
        difference = mean - self.mean
        # The squared norm of a normal vector has the relative variance 2 tr(T^2) / (tr
        # T)^2, where T is its covariance.
        factor = self._factor()
        few_rows = factor.shape[0] <= factor.shape[1]
        gram = factor @ factor.T if few_rows else factor.T @ factor
        spread = np.sqrt(2.0) * np.linalg.norm(gram) / np.trace(gram)
        most = 1.0 + _MOST_DEVIATIONS * float(spread)
        return float(difference @ difference) <= most * expected

    def strangers(
        self,
        n_samples: int,
        *,
        random_state: int | np.random.Generator | None = 0,
    ) -> Array:
        """Simulate samples of new people, one sample of each.

        A person is drawn from the normal distribution of `between`, and the sample
        from that of `within` around the person.

        Parameters
        ----------
        n_samples : int
            Number of samples.
        random_state : int, Generator or None, default=0
            Seed of the random numbers. An int gives the same samples at every call.

        Returns
        -------
        ndarray of shape (n_samples, n_inputs)
            Inputs at unit norm.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples!r}")
        rng = np.random.default_rng(random_state)
        factor = self._factor()
        drawn = self.mean + rng.standard_normal((n_samples, len(factor))) @ factor
        # A single value has no direction, only a size.
        return drawn if self.mean.size == 1 else unit_rows(drawn)

    def _factor(self) -> Array:
        """Rows F, where F'F is the covariance of samples of different people."""
        return np.vstack(
            [
                self.between / math.sqrt(self.n_people - 1),
                self.within / math.sqrt(self.n_repeats),
            ]
        )

    def _check_saved(self, path: Path) -> None:
        """Raise if the counts, the inputs and the rows do not fit together."""
        expect(self.n_people >= 2, path, "n_people", "is below 2")
        what = "is not above n_people"
        expect(self.n_samples > self.n_people, path, "n_samples", what)
        both = (self.image_shape is None) == (self.descriptor is None)
        what = "and image_shape are not both there, nor both not"
        expect(both, path, "descriptor", what)
        wanted, source = int(self.n_features), "n_features"
        expect(wanted > 0, path, "n_features", "is zero")
        # Descriptors contain the pixels. With more pixels than inputs the check fails
        # anyway, and counting the descriptors could take much memory.
        if self.image_shape is not None and wanted <= self.mean.size:
            no_samples = np.empty((0, wanted))
            described = from_parameters(
                lambda: sample_inputs(no_samples, self.descriptor, self.image_shape),
                path,
            )
            wanted = described.shape[1]
            source = "descriptor"
        expect_equal(self.mean.size, wanted, path, "mean", "inputs", source)
        for name, rows, freedom in (
            ("within", self.within, self.n_repeats),
            ("between", self.between, self.n_people - 1),
        ):
            most = _most_rows(int(freedom), self.mean.size)
            what = f"has {len(rows)} rows, but at most {most} are possible"
            expect(len(rows) <= most, path, name, what)
        for name in ("rho", "lam"):
            expect(getattr(self, name) > 0.0, path, name, "is not positive")
        expect(self.cosine_weight >= 0.0, path, "cosine_weight", "is negative")
        table = self.scores_by_size
        if table is None:
            return
        expect(table.shape[1] == 6, path, "scores_by_size", "does not have 6 columns")
        positive = (table[:, [1, 4]] > 0.0).all() and (table[:, 0] >= 1.0).all()
        what = "has a size, a spread or a slope that is not positive"
        expect(bool(positive), path, "scores_by_size", what)
        both = self.scores_of_others is not None
        expect(both, path, "scores_of_others", "is missing")


def _in_words(n_inputs: int, descriptor: Descriptor | None) -> str:
    return f"{n_inputs} {'values' if descriptor is None else 'descriptors'} each"


def _rows(
    X: ArrayLike, image_shape: SizeLike | None
) -> tuple[Array, ImageShape | None]:
    """Samples as rows of numbers, and the shape of images."""
    try:
        array: NDArray[Any] = np.asarray(X)
    except ValueError as error:
        raise DatabaseError(
            "The samples have different lengths: all must be of one size"
        ) from error
    if array.dtype.kind not in "biuf":
        raise DatabaseError(f"Samples are numbers, not {array.dtype}")
    if array.ndim == 3 and array.size:
        _, height, width = array.shape
        if image_shape is None:
            image_shape = height, width
        elif tuple(image_shape) != (height, width):
            raise DatabaseError(
                f"image_shape={tuple(image_shape)} is not the size of the images, "
                f"{height} x {width}. Leave it out, or give flat rows."
            )
        array = array.reshape(len(array), -1)
    if array.ndim != 2 or not array.size:
        raise DatabaseError(
            "Samples are vectors of shape (n_samples, n_features) or grey images of "
            f"shape (n_samples, height, width); got {array.shape}"
        )
    shape = None
    if image_shape is not None:
        try:
            shape = shape_or_row(image_shape, array.shape[1])
        except ValueError as error:
            raise DatabaseError(str(error)) from error
        if not SIZE.holds(shape):
            raise DatabaseError(
                f"Images have {SIZE.name}, not {shape[0]} x {shape[1]}. Resize them."
            )
    rows = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DatabaseError(
            f"Sample {int(finite.argmin())} has values that are not finite. Leave it "
            "out, or correct it."
        )
    zero = ~rows.any(axis=1)
    if zero.any():
        raise DatabaseError(
            f"Sample {int(zero.argmax())} is all zeros, which has no direction. Leave "
            "it out."
        )
    return rows, shape


def _codes(y: ArrayLike, n_samples: int) -> Index:
    """The number of the person of each sample."""
    labels = np.asarray(y)
    if labels.shape != (n_samples,):
        raise DatabaseError(
            f"{n_samples} samples need as many labels, one for each; got labels of "
            f"shape {labels.shape}"
        )
    try:
        return class_codes(labels)[1]
    # Labels of several types have no order.
    except (TypeError, ValueError) as error:
        raise DatabaseError(
            f"Labels are text or whole numbers, all of one type: {error}"
        ) from error


def _inputs(
    rows: Array, shape: ImageShape | None, descriptor: Descriptor | None
) -> Array:
    """Inputs of the metric; raise if one is not at unit norm."""
    with np.errstate(over="ignore"):
        inputs = sample_inputs(rows, descriptor, shape)
    if inputs.shape[1] > 1:
        squares = np.einsum("ij,ij->i", inputs, inputs)
        if np.abs(squares - 1.0).max() > 1e-6:
            raise DatabaseError(
                "A sample has values whose squares are too large or too small for "
                "double precision. Scale the samples."
            )
    return inputs


def _most_rows(freedom: int, n_inputs: int) -> int:
    """Largest number of rows of a scatter with some degrees of freedom."""
    return min(freedom, n_inputs if n_inputs <= _MOST_EXACT else _MOST_ROWS)


def _leading_rows(rows: Array, most: int, scale: float, equal: str) -> Array:
    """The fewest rows R with the same ``R'R``, largest first; at most so many.

    Raises
    ------
    DatabaseError
        All rows are zero, up to rounding in samples of this sum of squares.
    """
    if np.einsum("ij,ij->", rows, rows) <= _ROUNDING * scale:
        raise DatabaseError(
            f"{equal}: a background is about how samples vary. Check that the samples "
            "are not copies."
        )
    few_rows = rows.shape[0] <= rows.shape[1]
    gram = rows @ rows.T if few_rows else rows.T @ rows
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=(max(0, size - most), size - 1))
    kept = values > size * np.finfo(np.float64).eps * values[-1]
    directions = vectors[:, kept][:, ::-1].T
    if few_rows:
        found = directions @ rows
    else:
        found = np.sqrt(values[kept][::-1])[:, None] * directions
    # The sign of an eigenvector is arbitrary.
    largest = np.abs(found).argmax(axis=1)
    return np.asarray(found * np.sign(found[np.arange(len(found)), largest])[:, None])
