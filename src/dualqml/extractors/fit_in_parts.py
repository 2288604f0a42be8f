# SPDX-License-Identifier: BSD-3-Clause
"""Fitting DualQML and DualQML-W to parts of the classes.

The steps of a fit, each of which reads one part after the other (or many at once), and
what is computed between them from the merged sums:

1. :class:`~dualqml.extractors.part_sums.InputSums` of every part; then the parameters
   that are chosen, and the map to the coordinates of the metric.
2. :func:`coordinate_sums` of every part; then the spectrum of the scatter.
3. :func:`solve_rows` of every part: factors, multipliers and certificates.
4. :func:`~dualqml.extractors.part_assembly.assembled`, if a usual estimator is wanted.

Coordinates are linear, and samples are vectors of at most 1,280 values.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._linalg import class_means, nearly_exact_gram, unit_rows
from dualqml._sklearn import one_blas_thread
from dualqml._typing import Array, Index
from dualqml.core import SharedSpectrum, shared_spectrum, solve_certified, solve_part
from dualqml.exceptions import MethodError
from dualqml.extractors._coordinates import SumCoordinates
from dualqml.extractors._leave_one_out import contest_classes
from dualqml.extractors.dual_qml import DualQML, DualQMLClassifierCV, class_members
from dualqml.extractors.dual_qml_w import MOST_PROFILES, DualQMLW, DualQMLWCV, Variant
from dualqml.extractors.part_sums import CoordinateSums, InputSums, PartRows, input_rows
from dualqml.extractors.prepared_samples import Descriptor, PreparedSamples
from dualqml.extractors.quadratic_features import energies_in_scatter, own_energies
from dualqml.extractors.within_metric import MOST_INPUTS, MOST_KERNEL_SAMPLES
from dualqml.extractors.zero_samples import are_used, nothing_but_zeros

#: Estimators that can be fitted in parts.
PartEstimator = DualQML | DualQMLW


@dataclass(frozen=True)
class Recipe:
    """What the tasks of a fit have to know of the estimator.

    Attributes
    ----------
    unit : bool
        Whether samples are scaled to unit norm.
    signed_root : bool
        Whether the features are signed roots.
    tol : float
        Relative duality gap and constraint violation that count as solved.
    max_iter : int or None
        Newton iterations allowed.
    cosines : bool
        Whether the class means are needed, as in a recogniser.
    """

    unit: bool
    signed_root: bool
    tol: float
    max_iter: int | None
    cosines: bool = False


def checked_recipe(estimator: Any, *, cosines: bool = False) -> Recipe:
    """The recipe of an estimator, if it can be fitted in parts.

    Parameters
    ----------
    estimator : DualQML, DualQMLClassifier, DualQMLW or DualQMLWCV
        The estimator.
    cosines : bool, default=False
        Whether the class means are needed, as in a recogniser.

    Returns
    -------
    Recipe
        What the tasks have to know.

    Raises
    ------
    MethodError
        The estimator, or one of its parameters, needs all samples at once.
    """
    name = type(estimator).__name__
    if not isinstance(estimator, PartEstimator) or isinstance(
        estimator, DualQMLClassifierCV
    ):
        raise MethodError(
            f"{name} cannot be fitted in parts; DualQML, DualQMLClassifier, DualQMLW "
            "and DualQMLWCV can"
        )
    estimator._validate_params()
    if isinstance(estimator, DualQMLW):
        if estimator.image_shape is not None or estimator.descriptor == "local":
            raise MethodError(
                f"{name} of images cannot be fitted in parts: only vectors can. "
                "Compute descriptors or embeddings first, and leave out image_shape"
            )
        if estimator.kernel == "rbf":
            raise MethodError(
                f"{name} with a Gaussian kernel cannot be fitted in parts; use "
                "kernel='linear'"
            )
        return Recipe(True, True, estimator.tol, None, cosines)
    if estimator.solver != "newton":
        raise MethodError(
            f"solver={estimator.solver!r} cannot be used in parts; use solver='newton'"
        )
    if getattr(estimator, "probability", False):
        raise MethodError(
            "Probabilities are learnt from more fits to all samples, which parts do "
            "not have: use probability=False"
        )
    signed_root = estimator.features == "signed-root"
    return Recipe(False, signed_root, estimator.tol, estimator.max_iter, cosines)


def check_size(estimator: PartEstimator, n_samples: int, n_features: int) -> None:
    """Raise if an estimator cannot be fitted in parts to data of this size.

    Parameters
    ----------
    estimator : estimator
        One that `checked_recipe` has accepted.
    n_samples, n_features : int
        Size of the data.

    Raises
    ------
    MethodError
        It would need a kernel, or products of all pairs of samples.
    """
    if n_features > MOST_INPUTS:
        raise MethodError(
            f"Vectors of {n_features:,} values cannot be fitted in parts, at most "
            f"{MOST_INPUTS:,} can: reduce them first, for example by PCA"
        )
    kernel = getattr(estimator, "kernel", "linear")
    if kernel == "auto" and n_samples <= MOST_KERNEL_SAMPLES:
        raise MethodError(
            f"kernel='auto' is a Gaussian kernel for up to {MOST_KERNEL_SAMPLES:,} "
            "samples, which parts do not have: use kernel='linear', or fit as usual"
        )


def check_profiles(rule: str, n_samples: int, n_classes: int) -> None:
    """Raise if rule "cosine" would keep too many numbers.

    Parameters
    ----------
    rule : {"cosine", "max"}
        The decision rule.
    n_samples, n_classes : int
        Numbers of samples and classes.

    Raises
    ------
    MethodError
        It would.
    """
    n_pairs = n_samples * n_classes
    if rule == "cosine" and n_pairs > MOST_PROFILES:
        raise MethodError(
            "rule='cosine' keeps a number for each pair of a sample and a class, "
            f"{n_pairs:,} of them ({8e-9 * n_pairs:,.1f} GB), and parts allow "
            f"{MOST_PROFILES:,}: use rule='max'"
        )


@dataclass(frozen=True)
class LinearMap:
    """The map from inputs to the coordinates of the metric.

    Attributes
    ----------
    mean : ndarray of shape (n_inputs,)
        What is subtracted first.
    coefficients : ndarray of shape (n_inputs, d)
        The linear map. Then rows are scaled to unit norm.
    """

    mean: Array
    coefficients: Array

    def __call__(self, inputs: Array) -> Array:
        """Coordinates of inputs."""
        return unit_rows((inputs - self.mean) @ self.coefficients)


def coordinate_rows(
    rows: NDArray[np.floating], recipe: Recipe, linear: LinearMap | None
) -> Array:
    """Coordinates of samples, in which QML is solved.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Samples as given.
    recipe : Recipe
        The recipe.
    linear : LinearMap or None
        The map of the metric; None for DualQML, which uses samples as they are.

    Returns
    -------
    ndarray of shape (n_samples, d)
        The coordinates.
    """
    inputs = input_rows(rows, unit=recipe.unit)
    return inputs if linear is None else linear(inputs)


def part_coordinates(part: PartRows, recipe: Recipe, linear: LinearMap | None) -> Array:
    """Coordinates of all samples of a part, computed in chunks.

    Parameters
    ----------
    part : PartRows
        The samples.
    recipe : Recipe
        The recipe.
    linear : LinearMap or None
        The map of the metric.

    Returns
    -------
    ndarray of shape (n_samples, d)
        The coordinates.
    """
    width = part.rows.shape[1] if linear is None else linear.coefficients.shape[1]
    out = np.empty((len(part.rows), width))
    for rows, _ in part.chunks():
        out[rows] = coordinate_rows(part.rows[rows], recipe, linear)
    return out


@dataclass(frozen=True)
class FoundCoordinates:
    """What step 2 finds in a part.

    Attributes
    ----------
    sums : CoordinateSums
        The sums.
    zero_rows : ndarray of int
        Rows of the part that are zero vectors.
    empty_classes : ndarray of int
        Classes of the part that have no other samples.
    """

    sums: CoordinateSums
    zero_rows: Index
    empty_classes: Index


def coordinate_sums(
    part: PartRows, recipe: Recipe, linear: LinearMap | None, largest_square: float
) -> FoundCoordinates:
    """Sums over the coordinates of a part.

    Parameters
    ----------
    part : PartRows
        The samples.
    recipe : Recipe
        The recipe.
    linear : LinearMap or None
        The map of the metric.
    largest_square : float
        Largest squared norm of the coordinates of any sample.

    Returns
    -------
    FoundCoordinates
        The sums, and samples that are zero vectors.
    """
    width = part.rows.shape[1] if linear is None else linear.coefficients.shape[1]
    scatter = np.zeros((width, width))
    zero_rows: list[Index] = []
    lowest, highest, longest_sum = np.inf, 0.0, 0
    for rows, _ in part.chunks():
        Z = coordinate_rows(part.rows[rows], recipe, linear)
        squares = np.einsum("ij,ij->i", Z, Z)
        used = are_used(squares, largest_square)
        if not used.all():
            zero_rows.append(rows.start + np.flatnonzero(~used))
            Z, squares = Z[used], squares[used]
        gram, n_errors = nearly_exact_gram(Z, largest_square)
        scatter += gram
        longest_sum = max(longest_sum, n_errors) + 1
        lowest = min(lowest, float(squares.min(initial=np.inf)))
        highest = max(highest, float(squares.max(initial=0.0)))
    zero = np.concatenate(zero_rows) if zero_rows else np.empty(0, dtype=np.intp)
    left = part.counts - np.bincount(part.codes[zero], minlength=part.counts.size)
    n_used = len(part.rows) - zero.size
    sums = CoordinateSums(scatter, n_used, (lowest, highest), longest_sum)
    return FoundCoordinates(sums, zero, np.flatnonzero(left == 0))


@dataclass(frozen=True)
class PartSolution:
    """What is learnt about the classes of a part.

    Attributes
    ----------
    components : ndarray of shape (sum of ranks, d)
        Factors of all classes of the part, stacked.
    ranks : ndarray of shape (n_classes,)
        Number of factors of each class.
    mean_responses : ndarray of shape (sum of ranks,)
        Scalar product of each factor with the mean of the samples of its class; empty
        for quadratic features.
    multipliers : ndarray of shape (n_samples,)
        The multiplier of the constraint of each sample.
    gap, violation : ndarray of shape (n_classes,)
        The certificate of each class.
    rounding_limited : ndarray of bool of shape (n_classes,)
        Classes that only bounds of rounding errors keep from being certified.
    n_iter : ndarray of shape (n_classes,)
        Iterations of the solver.
    energies : ndarray of shape (n_classes,)
        Mean of x'P_c x over the samples of all other classes.
    means : ndarray of shape (n_classes, n_inputs)
        Means of the inputs at unit norm, for a recogniser; else empty.
    """

    components: Array
    ranks: NDArray[np.int64]
    mean_responses: Array
    multipliers: Array
    gap: Array
    violation: Array
    rounding_limited: NDArray[np.bool_]
    n_iter: NDArray[np.int64]
    energies: Array
    means: Array


@dataclass(frozen=True)
class SharedProblem:
    """What the classes of all parts have in common.

    Attributes
    ----------
    spectrum : SharedSpectrum
        The spectrum of the scatter of all coordinates.
    scatter : ndarray of shape (d, d)
        That scatter.
    lam : float
        Lambda for the coordinates.
    n_samples : int
        Number of all samples.
    largest_square : float
        Largest squared norm of a sample's coordinates.
    n_parts : int
        Number of parts.
    """

    spectrum: SharedSpectrum
    scatter: Array
    lam: float
    n_samples: int
    largest_square: float
    n_parts: int


def shared_problem(
    estimator: PartEstimator,
    lam: float,
    inputs: InputSums,
    found: CoordinateSums,
    n_parts: int,
) -> SharedProblem:
    """What the classes have in common, from the merged sums.

    Parameters
    ----------
    estimator : estimator
        One that `checked_recipe` has accepted.
    lam : float
        Its lambda, given or chosen.
    inputs : InputSums
        Sums over all inputs.
    found : CoordinateSums
        Sums over all coordinates.
    n_parts : int
        Number of parts.

    Returns
    -------
    SharedProblem
        For `solve_rows`.

    Raises
    ------
    InfeasibleError
        All samples are zero vectors.
    """
    if found.n_used == 0:
        raise nothing_but_zeros()
    if isinstance(estimator, DualQML) and estimator.lam_scale == "auto":
        lam = lam / (inputs.square_sum / inputs.n_samples) ** 2
    with one_blas_thread():
        spectrum = shared_spectrum(
            found.scatter,
            found.n_used,
            found.squared_norm_range,
            longest_sum=found.longest_sum,
        )
    return SharedProblem(
        spectrum,
        found.scatter,
        float(lam),
        inputs.n_samples,
        largest_square(estimator, inputs),
        n_parts,
    )


def largest_square(estimator: PartEstimator, inputs: InputSums) -> float:
    """Largest squared norm of the coordinates of a sample.

    Parameters
    ----------
    estimator : estimator
        One that `checked_recipe` has accepted.
    inputs : InputSums
        Sums over all inputs.

    Returns
    -------
    float
        1 where coordinates have unit norm.
    """
    return 1.0 if isinstance(estimator, DualQMLW) else inputs.largest_square


def solve_rows(
    part: PartRows,
    recipe: Recipe,
    linear: LinearMap | None,
    problem: SharedProblem,
    *,
    n_jobs: int = 1,
) -> PartSolution:
    """Solve the classes of a part, and certify them.

    Parameters
    ----------
    part : PartRows
        The samples.
    recipe : Recipe
        The recipe.
    linear : LinearMap or None
        The map of the metric.
    problem : SharedProblem
        What all classes have in common.
    n_jobs : int, default=1
        Number of threads. The result does not depend on it.

    Returns
    -------
    PartSolution
        Factors, multipliers and certificates.
    """
    Z, codes = part_coordinates(part, recipe, linear), part.codes
    n_classes = part.counts.size
    used = are_used(np.einsum("ij,ij->i", Z, Z), problem.largest_square)
    solved_rows, own = (Z, codes) if used.all() else (Z[used], codes[used])
    members = class_members(own, n_classes)
    with one_blas_thread():
        if problem.n_parts == 1:
            # All samples are here, as in a usual fit.
            found = solve_certified(
                solved_rows,
                members,
                problem.lam,
                tol=recipe.tol,
                max_iter=recipe.max_iter,
                n_jobs=n_jobs,
            )
        else:
            found = solve_part(
                solved_rows,
                members,
                problem.lam,
                problem.spectrum,
                tol=recipe.tol,
                max_iter=recipe.max_iter,
                n_jobs=n_jobs,
            )
        everyone = energies_in_scatter(found.components, found.ranks, problem.scatter)
        own_sums = own_energies(Z, codes, found.components, found.ranks)
    n_others = np.maximum(problem.n_samples - part.counts, 1)
    mean_responses = np.empty(0)
    if recipe.signed_root:
        means, _ = class_means(Z, codes)
        own_means = np.repeat(means, found.ranks, axis=0)
        mean_responses = np.einsum("ij,ij->i", found.components, own_means)
    multipliers = np.zeros(codes.size)
    multipliers[used] = found.multipliers
    return PartSolution(
        found.components,
        found.ranks,
        mean_responses,
        multipliers,
        found.certificate.gap,
        found.certificate.violation,
        found.rounding_limited,
        found.n_iter,
        np.maximum(everyone - own_sums, 0.0) / n_others,
        class_directions(part, recipe) if recipe.cosines else np.empty((0, 0)),
    )


def class_directions(part: PartRows, recipe: Recipe) -> Array:
    """Means of the inputs of each class, at unit norm.

    Parameters
    ----------
    part : PartRows
        The samples.
    recipe : Recipe
        The recipe.

    Returns
    -------
    ndarray of shape (n_classes, n_inputs)
        The means.
    """
    out = np.empty((part.counts.size, part.rows.shape[1]))
    for rows, classes in part.chunks():
        counts = part.counts[classes]
        codes = np.repeat(np.arange(counts.size), counts)
        inputs = input_rows(part.rows[rows], unit=recipe.unit)
        out[classes] = unit_rows(class_means(inputs, codes)[0])
    return out


def searched_classes(estimator: PartEstimator, counts: Index) -> Index:
    """Classes whose samples are needed to choose the parameters.

    Parameters
    ----------
    estimator : estimator
        One that `checked_recipe` has accepted.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class, in the order of the labels.

    Returns
    -------
    ndarray of int
        At most 1,000 of them; none if nothing is chosen.
    """
    if not isinstance(estimator, DualQMLWCV):
        return np.empty(0, dtype=np.intp)
    return contest_classes(counts)


@dataclass(frozen=True)
class Chosen:
    """Parameters of the final fit.

    Attributes
    ----------
    lam : float
        Lambda.
    rule : str or None
        The decision rule; None for DualQML, which decides nothing.
    linear : LinearMap or None
        The map of the metric; None for DualQML.
    n_searched : int
        Number of classes on which parameters were chosen; 0 if all were given.
    """

    lam: float
    rule: str | None
    linear: LinearMap | None
    n_searched: int = 0


def choose(
    estimator: PartEstimator, sums: InputSums, inputs: Array, codes: Index
) -> Chosen:
    """Choose what is not given, and compute the map of the metric.

    Parameters
    ----------
    estimator : estimator
        One that `checked_recipe` has accepted. It must have `classes_` and
        `n_features_in_`; a `DualQMLWCV` gets the attributes of its search.
    sums : InputSums
        Sums over all inputs.
    inputs : ndarray of shape (n_rows, n_inputs)
        Inputs of the samples of `searched_classes`.
    codes : ndarray of shape (n_rows,)
        Their classes, from 0.

    Returns
    -------
    Chosen
        The parameters.
    """
    if isinstance(estimator, DualQML):
        rule = getattr(estimator, "rule", None)
        return Chosen(float(estimator.lam), rule, None)
    if not isinstance(estimator, DualQMLWCV):
        variant = Variant(None, estimator.background_weight)
        linear = _linear_map(estimator, sums, variant, estimator.rho)
        return Chosen(float(estimator.lam), estimator.rule, linear)
    grid = estimator._grid(sums.n_samples)
    prepared = PreparedSamples(inputs, None, inputs.shape[1])
    samples: dict[Descriptor | None, PreparedSamples] = {None: prepared}

    def system_of(variant: Variant) -> SumCoordinates:
        return sum_system(estimator, sums, inputs, variant.background_weight)

    if np.bincount(codes).max() > 1 and sums.n_classes > 1:
        variant, choice = estimator._chosen(system_of, codes, grid)
        best = choice.best
    else:
        variant, best = estimator._unsearched(samples, codes, grid)
    linear = _linear_map(estimator, sums, variant, best.rho)
    return Chosen(best.lam, best.rule, linear, n_searched=int(codes.max()) + 1)


def sum_system(
    estimator: DualQMLW, sums: InputSums, inputs: Array, background_weight: float
) -> SumCoordinates:
    """Coordinates of some samples, from sums over all of them.

    Parameters
    ----------
    estimator : DualQMLW
        One that `checked_recipe` has accepted.
    sums : InputSums
        Sums over all inputs.
    inputs : ndarray of shape (n_rows, n_inputs)
        Inputs of some samples.
    background_weight : float
        Weight of a sample of the background.

    Returns
    -------
    SumCoordinates
        The coordinates.
    """
    background = estimator.background
    if background is not None and background_weight > 0.0:
        background.check_inputs(inputs.shape[1], None)
    return SumCoordinates(sums, inputs, background, background_weight)


def _linear_map(
    estimator: DualQMLW, sums: InputSums, variant: Variant, rho: float
) -> LinearMap:
    """The map to the coordinates of the metric."""
    system = sum_system(estimator, sums, sums.mean[None], variant.background_weight)
    metric = estimator._metric(rho, 1.0, Variant(None, 0.0))
    with one_blas_thread():
        metric._learn(system, np.zeros(1, dtype=np.intp))
    assert metric.mean_ is not None
    return LinearMap(metric.mean_, metric.coefficients_)
