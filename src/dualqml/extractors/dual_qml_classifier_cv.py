# SPDX-License-Identifier: BSD-3-Clause
"""DualQML with lambda chosen by cross-validation."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import check_cv

from dualqml.core import newton_path, scatter_spectrum
from dualqml.core.arrays import Array, Index
from dualqml.core.solve import DEFAULT_MAX_ITER
from dualqml.extractors._compat import Interval
from dualqml.extractors._folds import spread_folds
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._quadratic import quadratic_features
from dualqml.extractors._threads import one_blas_thread
from dualqml.extractors.dual_qml import class_members
from dualqml.extractors.dual_qml_classifier import (
    DualQMLClassifier,
    Rule,
    decide,
)


class DualQMLClassifierCV(DualQMLClassifier):
    """DualQMLClassifier with lambda chosen by cross-validation.

    Each fold shares one eigendecomposition between all values of lambda, each
    solution starts from the one before, and held-out samples are scored in the
    eigenbasis: a grid of nine costs a few fits, not ninety.

    Read more in the :ref:`user guide <method>`.

    Parameters
    ----------
    lams : array-like of shape (n_lams,), default=(0.1, 0.32, 1.0, 3.2, 10.0, \
32.0, 100.0)
        Values of lambda to try. The paper's range is [0.1, 10]; on mean-removed
        rows of unit norm the best is often above it.
    cv : int, cross-validation generator or iterable, default=10
        An integer deals the samples into that many random folds, those of one
        class to different ones; samples of classes with a single sample are
        never held out. Anything else as in scikit-learn.
    rule : {"cosine", "max"}, default="cosine"
        The decision rule, see :class:`DualQMLClassifier`. It is used in the
        folds too.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Newton steps that a class may take at each level; None means 50.
    lam_scale : {"none", "auto"}, default="none"
        "auto" makes the values independent of the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, see
        :class:`DualQML`.
    n_jobs : int, default=None
        Threads over folds, then over groups of classes.
    random_state : int, RandomState instance or None, default=0
        Shuffle of the folds when `cv` is an integer.

    Attributes
    ----------
    lam_ : float
        The lambda that was used on the data as given.
    best_lam_ : float
        The chosen element of `lams`: the one of the lowest mean error, the
        first in the order given if several are equal.
    cv_errors_ : ndarray of shape (n_folds, n_lams)
        Error rate on the held-out samples of each fold.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    components_ : ndarray of shape (sum of ranks, n_features)
        The factors of all classes, stacked, see :class:`DualQML`.
    ranks_ : ndarray of shape (n_classes,)
        The rank of each quadratic matrix.
    mean_responses_ : None
        Used by other features than the paper's.
    dual_coef_ : ndarray of shape (n_samples,)
        The multiplier of each training sample's constraint.
    duality_gap_ : ndarray of shape (n_classes,)
        Certified relative duality gap of each class.
    violation_ : ndarray of shape (n_classes,)
        Largest constraint violation of each class.
    status_ : ndarray of shape (n_classes,)
        "optimal" or "inaccurate", class by class.
    n_iter_ : int
        Iterations of the class that took most.
    training_features_ : ndarray of shape (n_samples, n_classes) or None
        Quadratic features of the training samples, scaled to unit norm. None
        for rule "max".
    training_mean_ : None
        Used by other rules than the paper's.
    training_codes_ : ndarray of shape (n_samples,) or None
        Their classes, as indices into `classes_`. None for rule "max".
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    See Also
    --------
    DualQMLClassifier : Lambda given.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQMLClassifierCV
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQMLClassifierCV(cv=5).fit(X[:100], y[:100])
    >>> model.cv_errors_.shape
    (5, 7)
    >>> model.best_lam_
    0.32
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: constraint
        for name, constraint in DualQMLClassifier._parameter_constraints.items()
        if name not in ("lam", "features", "own_weight", "centre", "solver")
    } | {
        "lams": ["array-like"],
        "cv": [Interval(Integral, 2, None, closed="left"), "cv_object"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        lams: Sequence[float] = (0.1, 0.32, 1.0, 3.2, 10.0, 32.0, 100.0),
        *,
        cv: Any = 10,
        rule: Rule = "cosine",
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: Literal["warn", "error", "ignore"] = "warn",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.lams = lams
        self.cv = cv
        self.rule = rule
        self.tol = tol
        self.max_iter = max_iter
        self.lam_scale = lam_scale
        self.zero_samples = zero_samples
        self.n_jobs = n_jobs
        self.random_state = random_state

    # The exact solver that can follow a path is the only one used here, and the
    # decision is the paper's.
    solver = "newton"
    features = "quadratic"
    own_weight = 1.0
    centre = False

    def _fit(self, data: Array, codes: Index) -> None:
        lams = np.asarray(self.lams, dtype=np.float64)
        if lams.ndim != 1 or lams.size == 0 or not (lams > 0).all():
            raise ValueError(
                f"lams must be a non-empty list of positive numbers, got {self.lams!r}"
            )
        folds: Iterable[tuple[Index, Index]]
        if isinstance(self.cv, Integral):
            folds = spread_folds(codes, int(self.cv), self.random_state)
        else:
            folds = check_cv(self.cv, codes, classifier=True).split(data, codes)
        with one_blas_thread():
            errors = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(self._fold_errors)(data, codes, train, held_out, lams)
                for train, held_out in folds
            )
        self.cv_errors_ = np.array(errors)
        self.best_lam_ = float(lams[self.cv_errors_.mean(axis=0).argmin()])
        self._fit_at(data, codes, self.best_lam_)

    def _fold_errors(
        self, data: Array, codes: Index, train: Index, held_out: Index, lams: Array
    ) -> Array:
        """Error rate on the held-out samples for each lambda."""
        used = self._used_samples(data[train], train)
        spectrum = scatter_spectrum(data[train][used])
        present, fold_codes = np.unique(codes[train][used], return_inverse=True)
        probes = spectrum.project(data[held_out])
        errors = np.empty(lams.size)
        order = np.argsort(lams, kind="stable")
        path = newton_path(
            spectrum,
            class_members(fold_codes, present.size),
            [self._data_lam(data, lam) for lam in lams[order]],
            tol=self.tol,
            max_iter=self.max_iter or DEFAULT_MAX_ITER["newton"],
        )
        for position, solution in zip(order, path, strict=True):
            features = quadratic_features(probes, solution.factors, solution.ranks)
            gallery = None
            if self.rule == "cosine":
                training = quadratic_features(
                    spectrum.coordinates, solution.factors, solution.ranks
                )
                gallery = unit_rows(training)
            decided = decide(self.rule, features, gallery, fold_codes)
            errors[position] = np.mean(present[decided] != codes[held_out])
        return errors
