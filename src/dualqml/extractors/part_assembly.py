# SPDX-License-Identifier: BSD-3-Clause
"""The arrays of a fitted model, put together from its parts.

The classes of a part come in the order of its files, with their factors stacked. Here
all parts are brought into the order of the labels, and become a usual estimator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from dualqml._typing import Array, Index
from dualqml.extractors.class_sizes import class_scales
from dualqml.extractors.dual_qml import DualQML, DualQMLClassifier
from dualqml.extractors.dual_qml_w import DualQMLWCV, Variant
from dualqml.extractors.fit_in_parts import Chosen, PartEstimator, PartSolution
from dualqml.extractors.quadratic_features import profile_gallery


@dataclass(frozen=True)
class FittedArrays:
    """What all parts have learnt, in the order of the classes.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The labels, sorted.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    n_features : int
        Number of features of a sample.
    solution : PartSolution
        The solutions of all classes; the multipliers are in the order of the samples.
    class_scale : ndarray of shape (n_classes,) or None
        Divisors of the features of classes of different sizes.
    chosen : Chosen
        The parameters.
    lam : float
        Lambda for the data as given.
    """

    classes: NDArray[Any]
    counts: Index
    n_features: int
    solution: PartSolution
    class_scale: Array | None
    chosen: Chosen
    lam: float


class Profiles(NamedTuple):
    """What rule "cosine" compares with; the attributes are those of the classifier.

    Attributes
    ----------
    features : ndarray of shape (n_samples, n_classes)
        `training_features_`.
    mean : ndarray of shape (n_classes,) or None
        `training_mean_`.
    codes : ndarray of shape (n_samples,)
        `training_codes_`.
    """

    features: Array
    mean: Array | None
    codes: Index


def profiles_of(model: Any) -> Profiles | None:
    """What rule "cosine" of a fitted estimator compares with; None for other rules.

    Parameters
    ----------
    model : estimator
        As `assembled` gives it.

    Returns
    -------
    Profiles or None
        The profiles.
    """
    qml = getattr(model, "qml_", model)
    features = getattr(qml, "training_features_", None)
    if features is None:
        return None
    return Profiles(features, qml.training_mean_, qml.training_codes_)


def joined_solutions(
    solutions: Sequence[PartSolution], places: Sequence[Index]
) -> PartSolution:
    """The solutions of all parts in the order of the classes.

    Parameters
    ----------
    solutions : sequence of PartSolution
        One for each part.
    places : sequence of ndarray
        For each part, the numbers of its classes.

    Returns
    -------
    PartSolution
        All classes. The multipliers stay in the order of the parts.
    """
    order = np.argsort(np.concatenate(places))
    ranks = np.concatenate([found.ranks for found in solutions])
    first = np.cumsum(ranks) - ranks
    n_rows = ranks[order]
    starts = np.repeat(first[order] - (np.cumsum(n_rows) - n_rows), n_rows)
    rows = np.arange(int(n_rows.sum())) + starts

    def of_classes(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(found, name) for found in solutions])[order]

    def of_factors(name: str) -> NDArray[Any]:
        values = np.concatenate([getattr(found, name) for found in solutions])
        return values[rows] if len(values) else values

    means = [found.means for found in solutions if found.means.size]
    return PartSolution(
        of_factors("components"),
        n_rows,
        of_factors("mean_responses"),
        np.concatenate([found.multipliers for found in solutions]),
        of_classes("gap"),
        of_classes("violation"),
        of_classes("rounding_limited"),
        of_classes("n_iter"),
        of_classes("energies"),
        np.concatenate(means)[order] if means else np.empty((0, 0)),
    )


def scales_for_rule(rule: str | None, energies: Array, counts: Index) -> Array | None:
    """Divisors of features of classes of different sizes, for rule "max".

    Parameters
    ----------
    rule : str or None
        The decision rule.
    energies : ndarray of shape (n_classes,)
        Mean of x'P_c x over samples of other classes.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.

    Returns
    -------
    ndarray of shape (n_classes,) or None
        None for other rules, and if all classes have the same number of samples.
    """
    if rule != "max" or (counts == counts[0]).all():
        return None
    return class_scales(energies, counts)


def assembled(
    estimator: PartEstimator,
    fitted: FittedArrays,
    coordinates: Array | None = None,
    codes: Index | None = None,
    *,
    profiles: Profiles | None = None,
) -> PartEstimator:
    """A usual fitted estimator.

    Parameters
    ----------
    estimator : estimator
        The estimator that was fitted in parts.
    fitted : FittedArrays
        What was learnt.
    coordinates : ndarray of shape (n_samples, d), optional
        Coordinates of all samples, for rule "cosine".
    codes : ndarray of shape (n_samples,), optional
        Their classes, for rule "cosine".
    profiles : Profiles, optional
        What rule "cosine" compares with, instead of coordinates and codes.

    Returns
    -------
    estimator
        A fitted clone. It has no probabilities.
    """
    model: Any = clone(estimator)
    model.classes_, model.n_features_in_ = fitted.classes, fitted.n_features
    if isinstance(estimator, DualQML):
        _set_qml(model, fitted, coordinates, codes, profiles)
        return model
    if isinstance(estimator, DualQMLWCV):
        for name, value in vars(estimator).items():
            if name.startswith("best_") or name == "cv_results_":
                setattr(model, name, value)
    linear = fitted.chosen.linear
    assert linear is not None
    rho = estimator.best_rho_ if isinstance(estimator, DualQMLWCV) else estimator.rho
    metric = model._metric(rho, 1.0, Variant(None, 0.0))
    metric.kernel, metric.background = "linear", None
    metric.kernel_, metric.mean_ = None, linear.mean
    metric.coefficients_ = linear.coefficients
    metric.classes_, metric.n_features_in_ = fitted.classes, fitted.n_features
    qml = model._new_qml(fitted.chosen.lam, fitted.chosen.rule)
    qml.classes_ = fitted.classes
    qml.n_features_in_ = linear.coefficients.shape[1]
    _set_qml(qml, fitted, coordinates, codes, profiles)
    model.metric_, model.qml_, model.probabilities_ = metric, qml, None
    return model


def _set_qml(
    model: DualQML,
    fitted: FittedArrays,
    coordinates: Array | None,
    codes: Index | None,
    profiles: Profiles | None,
) -> None:
    """Set the fitted attributes of QML."""
    found = fitted.solution
    model.lam_ = fitted.lam
    model.components_, model.ranks_ = found.components, found.ranks
    signed_root = model.features == "signed-root"
    model.mean_responses_ = found.mean_responses if signed_root else None
    model.dual_coef_ = found.multipliers
    model.duality_gap_, model.violation_ = found.gap, found.violation
    model.n_iter_ = int(found.n_iter.max())
    solved = np.maximum(found.gap, found.violation) <= model.tol
    model.status_ = np.where(solved, "optimal", "inaccurate")
    if not isinstance(model, DualQMLClassifier):
        return
    model.energies_, model.class_scale_ = found.energies, fitted.class_scale
    model.probabilities_ = None
    model.training_features_ = model.training_mean_ = model.training_codes_ = None
    if profiles is not None:
        model.training_features_, model.training_mean_ = profiles[:2]
        model.training_codes_ = profiles.codes
    elif model.rule == "cosine":
        assert coordinates is not None
        assert codes is not None
        model.training_features_, model.training_mean_ = profile_gallery(
            model._features(coordinates),
            codes,
            own_weight=model.own_weight,
            centre=model.centre,
        )
        model.training_codes_ = codes


def with_labels(
    estimator: BaseEstimator, classes: NDArray[Any], n_features: int
) -> Any:
    """A clone that knows the classes, for `choose`.

    Parameters
    ----------
    estimator : estimator
        The estimator.
    classes : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features : int
        Number of features.

    Returns
    -------
    estimator
        The clone.

    Raises
    ------
    ValueError
        There is only one class, and no background.
    """
    model: Any = clone(estimator)
    model.classes_, model.n_features_in_ = classes, n_features
    model._check_classes()
    return model
