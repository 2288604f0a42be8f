# SPDX-License-Identifier: BSD-3-Clause
"""GTDA: general tensor discriminant analysis of images."""

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualqml._linalg import VARIANCE_TOLERANCE, class_means, within_deviations
from dualqml._saved_state import (
    COUNT,
    MATRIX,
    NUMBER,
    REPORT,
    Path,
    Saved,
    expect_equal,
)
from dualqml._sklearn import Interval, LinearExtractor, StrOptions
from dualqml._typing import Array, Index
from dualqml.extractors.lda import fisher_directions, reduced_pca
from dualqml.images.shapes import ImageShape, SizeLike, read_size, shape_or_row

Order = Literal["svd", "eig"]


class GTDA(LinearExtractor):
    """General tensor discriminant analysis (GTDA), followed by LDA.

    An image A is reduced to the smaller matrix ``U'AV``. The orthonormal bases
    U of the rows and V of the columns are computed in turn. Each is computed from the
    between-class scatter minus ``zeta`` times the within-class scatter of the images
    that the other one has reduced [1]_. The method prepares images for linear
    discriminant analysis, which is part of the estimator.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    image_shape : tuple of int, default=None
        Height and width of the images. None means square images if n_features is a
        square number. Other rows are vectors, that is, images of one row, and only
        the basis of the columns is used.
    n_dims : tuple of int, default=None
        Height and width of the reduced images. None means half of each side,
        rounded up: 16 x 16 for 32 x 32. Our choice.
    order : {"svd", "eig"}, default="svd"
        Which eigenvectors of the difference of scatters to keep: "svd" keeps those
        with the largest magnitude, as in published code of a later method [2]_.
        "eig" keeps those with the largest value, which maximise the objective. Our
        choice: with the default zeta the difference is at first negative
        semidefinite, and its largest values belong to directions in which images
        hardly vary.
    lda : bool, default=True
        Whether linear discriminant analysis follows, as in the original paper.
        Otherwise the features are the reduced images.
    shrinkage : float, default=0.1
        Added to the diagonal of the within-class scatter of that analysis, relative
        to its mean diagonal element. Our choice, as in `Fisherfaces`.
    n_components : int, default=None
        Number of features of that analysis; None means n_classes - 1, the largest
        number. Not used if lda is False.
    max_iter : int, default=30
        Largest number of sweeps over both bases; our choice.
    tol : float, default=1e-6
        Stop when a sweep changes the objective by less than this fraction; our
        choice.
    zeta : float, default=None
        Weight of the within-class scatter. None means the largest generalised
        eigenvalue of the two scatters of the images as they are, over rows and
        columns, or 0 if every class has one sample. The code of [2]_ has one such
        weight per basis. One fixed weight for both is our choice; it gives both
        bases the same objective.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training samples.
    components_ : ndarray of shape (n_components, n_features)
        The directions of both steps together. If every class has one sample, the
        second step is principal component analysis of the reduced images.
    row_basis_ : ndarray of shape (height, n_dims[0])
        The basis U, orthonormal columns.
    column_basis_ : ndarray of shape (width, n_dims[1])
        The basis V, orthonormal columns.
    zeta_ : float
        The weight used.
    objective_ : ndarray of shape (2 * n_sweeps,)
        Between-class scatter minus zeta times within-class scatter of the reduced
        images, after each update of a basis. With order "eig" it never decreases
        from the second value on; before that, V is the identity.
    n_iter_ : int
        Number of sweeps.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    References
    ----------
    .. [1] D. Tao, X. Li, X. Wu, S. Maybank, "General tensor discriminant analysis
       and Gabor features for gait recognition", IEEE PAMI, 2007.
    .. [2] Q. Li, D. Schonfeld, "Multilinear discriminant analysis for
       higher-order tensor data classification", IEEE PAMI, 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors import GTDA
    >>> X, y = load_digits(return_X_y=True)
    >>> model = GTDA(image_shape=(8, 8)).fit(X[:100], y[:100])
    >>> model.transform(X).shape
    (1797, 9)
    >>> model.row_basis_.shape, model.column_basis_.shape
    ((8, 4), (8, 4))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "image_shape": ["array-like", None],
        "n_dims": ["array-like", None],
        "order": [StrOptions({"svd", "eig"})],
        "lda": ["boolean"],
        "shrinkage": [Interval(Real, 0, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "zeta": [Interval(Real, 0, None, closed="left"), None],
    }

    _saved: ClassVar[Saved] = LinearExtractor._saved.extended(
        row_basis_=MATRIX.of("height", "n_rows"),
        column_basis_=MATRIX.of("width", "n_columns"),
        objective_=REPORT.of("n_updates"),
        n_iter_=COUNT,
        zeta_=NUMBER,
    )

    def __init__(
        self,
        *,
        image_shape: SizeLike | None = None,
        n_dims: SizeLike | None = None,
        order: Order = "svd",
        lda: bool = True,
        shrinkage: float = 0.1,
        n_components: int | None = None,
        max_iter: int = 30,
        tol: float = 1e-6,
        zeta: float | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.n_dims = n_dims
        self.order = order
        self.lda = lda
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.zeta = zeta

    def _learn(self, data: Array, codes: Index) -> tuple[Array | None, Array]:
        shape = shape_or_row(self.image_shape, data.shape[1])
        n_dims = resolved_dims(self.n_dims, shape)
        between, within = deviation_images(data, codes, shape)
        self.zeta_ = float(
            largest_ratio(between, within) if self.zeta is None else self.zeta
        )
        bases = alternate(
            between,
            within,
            n_dims,
            self.zeta_,
            order=self.order,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        if not bases.converged:
            warnings.warn(
                f"The bases still change after max_iter={self.max_iter} sweeps. "
                "Increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.row_basis_, self.column_basis_ = bases.rows, bases.columns
        self.objective_ = bases.objective
        self.n_iter_ = bases.objective.size // 2

        reduced = bases.rows.T @ data.reshape(-1, *shape) @ bases.columns
        directions = self._directions(reduced.reshape(data.shape[0], -1), codes)
        # The inner product of U'AV and a direction D is that of A and UDV'.
        images = bases.rows @ directions.T.reshape(-1, *n_dims) @ bases.columns.T
        return data.mean(axis=0), images.reshape(-1, data.shape[1]).T

    def _directions(self, reduced: Array, codes: Index) -> Array:
        """Directions of the step after the reduction, one per column."""
        if not self.lda:
            return np.eye(reduced.shape[1])
        n_classes = self.classes_.size
        pca = reduced_pca(reduced, "n-c", n_classes)
        if np.bincount(codes).max() == 1:
            return pca.basis[:, : self.n_components]
        return np.asarray(
            pca.basis
            @ fisher_directions(
                pca.coordinates,
                codes,
                self.shrinkage,
                self.n_components or n_classes - 1,
            )
        )

    def _check_saved(self, path: Path) -> None:
        """Raise if the bases or the objective do not fit the number of features."""
        n_pixels = self.row_basis_.shape[0] * self.column_basis_.shape[0]
        what = "pixels together with column_basis_"
        source = "n_features_in_"
        expect_equal(n_pixels, self.n_features_in_, path, "row_basis_", what, source)
        wanted = 2 * int(self.n_iter_)
        expect_equal(
            self.objective_.size, wanted, path, "objective_", "values", "n_iter_"
        )


@dataclass(frozen=True)
class TensorBases:
    """Bases of the rows and columns of images.

    Attributes
    ----------
    rows : ndarray of shape (height, L1)
        Orthonormal columns.
    columns : ndarray of shape (width, L2)
        Orthonormal columns.
    objective : ndarray
        The objective after each update of a basis.
    converged : bool
        Whether the last sweep changed the objective by less than the tolerance.
    """

    rows: Array
    columns: Array
    objective: Array
    converged: bool


def resolved_dims(n_dims: SizeLike | None, shape: ImageShape) -> ImageShape:
    """Height and width of the reduced images; half of each side for None.

    Parameters
    ----------
    n_dims : sequence of int or None
        The parameter of the estimator.
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    ValueError
        The reduced images are empty or larger than the images.
    """
    height, width = shape
    if n_dims is None:
        return (height + 1) // 2, (width + 1) // 2
    rows, columns = read_size(n_dims, "n_dims")
    if rows > height or columns > width:
        raise ValueError(
            f"n_dims={(rows, columns)} must be at most the sides of the images, "
            f"{height} and {width}"
        )
    return rows, columns


def deviation_images(
    data: Array, codes: Index, shape: ImageShape
) -> tuple[Array, Array]:
    """Images whose squares add up to the scatters between and within classes.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    shape : tuple of int
        Height and width of the images.

    Returns
    -------
    between : ndarray of shape (n_classes, height, width)
        Class means minus the mean, times the root of the class size.
    within : ndarray of shape (n_samples, height, width)
        Samples minus their class mean.
    """
    means, counts = class_means(data, codes)
    between = np.sqrt(counts)[:, None] * (means - data.mean(axis=0))
    within = within_deviations(data, codes)
    return between.reshape(-1, *shape), within.reshape(-1, *shape)


def largest_ratio(between: Array, within: Array) -> float:
    """Largest generalised eigenvalue of the two scatters of rows or columns.

    Parameters
    ----------
    between, within : ndarray of shape (n_images, height, width)
        Images from :func:`deviation_images`.

    Returns
    -------
    float
        The largest ratio of the scatters in a direction where the second is not
        zero; 0 if there is no such direction.
    """
    scale = np.abs(between).max()
    # Rounding errors of equal images do not count as scatter.
    if np.abs(within).max() <= VARIANCE_TOLERANCE * scale:
        return 0.0
    ratios = []
    for turned in (False, True):
        W = _row_scatter(within, None, turned=turned)
        B = _row_scatter(between, None, turned=turned)
        # Pixels that do not vary within classes make W singular; they are left out.
        values, vectors = np.linalg.eigh(W)
        kept = values > VARIANCE_TOLERANCE * values[-1]
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        ratios.append(np.linalg.eigvalsh(whitening.T @ B @ whitening)[-1])
    return float(max(*ratios, 0.0))


def alternate(
    between: Array,
    within: Array,
    n_dims: ImageShape,
    zeta: float,
    *,
    order: Order = "svd",
    max_iter: int = 30,
    tol: float = 1e-6,
) -> TensorBases:
    """Compute the bases of rows and columns in turn.

    Parameters
    ----------
    between, within : ndarray of shape (n_images, height, width)
        Images from :func:`deviation_images`.
    n_dims : tuple of int
        Number of directions of the rows and of the columns.
    zeta : float
        Weight of the within-class scatter.
    order : {"svd", "eig"}, default="svd"
        Keep the eigenvectors with the largest magnitude or with the largest value.
    max_iter : int, default=30
        Largest number of sweeps.
    tol : float, default=1e-6
        Stop if a sweep changes the objective by less than this fraction.

    Returns
    -------
    TensorBases
        The bases and the values of the objective.
    """
    # With the identity the first update uses the whole images, and the result is the
    # same in every run.
    columns = np.eye(between.shape[2])
    objective: list[float] = []
    converged = False
    for sweep in range(max_iter):
        rows, value = _update(between, within, columns, n_dims[0], zeta, order)
        objective.append(value)
        columns, value = _update(
            between, within, rows, n_dims[1], zeta, order, turned=True
        )
        objective.append(value)
        if sweep > 0 and abs(value - objective[-3]) <= tol * abs(value):
            converged = True
            break
    return TensorBases(rows, columns, np.array(objective), converged)


def _update(
    between: Array,
    within: Array,
    other: Array,
    n_directions: int,
    zeta: float,
    order: Order,
    *,
    turned: bool = False,
) -> tuple[Array, float]:
    """New basis given the other one, and the objective with it."""
    difference = _row_scatter(between, other, turned=turned)
    if zeta > 0.0:
        difference = difference - zeta * _row_scatter(within, other, turned=turned)
    values, vectors = np.linalg.eigh(difference)
    ranking = np.argsort(-(np.abs(values) if order == "svd" else values), kind="stable")
    kept = ranking[:n_directions]
    return vectors[:, kept], float(values[kept].sum())


def _row_scatter(images: Array, other: Array | None, *, turned: bool) -> Array:
    """Sum of ``AVV'A'`` over images A, or over their transposes if turned."""
    oriented = images.transpose(0, 2, 1) if turned else images
    projected = oriented if other is None else oriented @ other
    unfolded = projected.transpose(1, 0, 2).reshape(projected.shape[1], -1)
    return np.asarray(unfolded @ unfolded.T)
