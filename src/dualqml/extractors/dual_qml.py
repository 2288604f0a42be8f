# SPDX-License-Identifier: BSD-3-Clause
"""DualQML: one positive semidefinite quadratic matrix for every class.

The extractor, the classifier with the paper's two decision rules, and the classifier
whose lambda is chosen by cross-validation.
"""

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from dualqml._linalg import class_means, unit_rows
from dualqml._sklearn import Interval, StrOptions, SupervisedExtractor, one_blas_thread
from dualqml._typing import Array, Index
from dualqml.core import Certificate, newton_path, scatter_spectrum, solve_certified
from dualqml.core.solve import DEFAULT_MAX_ITER
from dualqml.exceptions import InfeasibleError
from dualqml.extractors._quadratic_features import (
    centred,
    profile_gallery,
    quadratic_features,
    signed_root_features,
)
from dualqml.extractors.nearest import class_similarities, nearest
from dualqml.extractors.tuning import spread_folds

Features = Literal["quadratic", "signed-root"]

#: Samples this short beside the longest count as zero vectors: they are what rounding
#: leaves of an image without contrast.
_ZERO_NORM = 1e-12

Rule = Literal["cosine", "max"]


class DualQML(SupervisedExtractor):
    r"""Quadratic features by quadratic matrix learning (QML).

    For every class c it learns the positive semidefinite matrix P_c that
    solves, over the samples I_c of the class and E_c of all others,

    .. math::

        \min_{P_c \succeq 0} \tfrac12 \|P_c\|_F^2
        + \lambda \sum_{x \in E_c} x^T P_c x
        \quad \text{s.t.} \quad x^T P_c x \ge 1, \; x \in I_c,

    and describes a sample by the values x'P_c x of all classes [1]_. The
    problem is convex and is solved to a certificate, for all classes at once.

    Read more in the :ref:`user guide <method>`.

    Parameters
    ----------
    lam : float, default=1.0
        The regularisation parameter lambda, with the paper's meaning on the
        data as given: multiplying the data by s has the effect of multiplying
        lam by s**4. On mean-removed rows of unit norm, 1 to 100 is a good
        range.
    features : {"quadratic", "signed-root"}, default="quadratic"
        - "quadratic": the paper's x'P_c x.
        - "signed-root": sign(x'P_c m_c) sqrt(x'P_c x) with the mean m_c of the
          class's samples. A quadratic form cannot tell x from -x; this can.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        - "newton": a semismooth Newton method for all classes at once in
          rational Krylov bases; exact, and thousands of times faster than the
          others. Use this one.
        - "lbfgs": the paper's Algorithm 1 to the letter, one full
          eigendecomposition a step; the reference to check against.
        - "sdp": the standard semidefinite program through CVXPY (install
          ``dualqml[sdp]``); an independent oracle for a few dozen samples.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Iterations a class may take: Newton steps at each level (50), steps of
        L-BFGS-B (200) or of the conic solver (10000).
    lam_scale : {"none", "auto"}, default="none"
        "auto" divides lam by the squared mean of the squared norms of the
        samples, so that it means what it would mean on rows of unit norm and
        does not depend on the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, or shorter than
        1e-12 of the longest, for which x'Px >= 1 has no solution. "warn" gives
        them no constraint and names their rows in a warning, "error" raises,
        "ignore" says nothing.
    n_jobs : int, default=None
        Threads over groups of classes (solver "newton"). The result is the
        same to the last bit for any number. None means 1, -1 all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    components_ : ndarray of shape (sum of ranks, n_features)
        The factors of all classes, stacked: P_c is the sum of v v' over the
        rows v of class c. Class c has ``ranks_[c]`` rows, in the order of
        `classes_`.
    ranks_ : ndarray of shape (n_classes,)
        The rank of each P_c, at most the number of samples of the class.
    mean_responses_ : ndarray of shape (sum of ranks,) or None
        Scalar product of each factor with the mean of its class's samples,
        from which the sign is found. None for features "quadratic".
    dual_coef_ : ndarray of shape (n_samples,)
        The multiplier u of each training sample's constraint; zero where the
        constraint is not active.
    duality_gap_ : ndarray of shape (n_classes,)
        Certified relative duality gap of each class, see
        :func:`dualqml.core.certify`.
    violation_ : ndarray of shape (n_classes,)
        How far x'P_c x stays below 1 on the worst training sample of the
        class.
    status_ : ndarray of shape (n_classes,)
        "optimal" where gap and violation are within `tol`, else "inaccurate".
    n_iter_ : int
        Iterations of the class that took most.
    lam_ : float
        The lambda that was used on the data as given.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    See Also
    --------
    DualQMLClassifier : Features and decision rule in one estimator.
    DualQMLClassifierCV : The same with lambda chosen by cross-validation.

    References
    ----------
    .. [1] Y. Yan, H. Wang, S. Chen, X. Cao, D. Zhang, "Quadratic projection
       based feature extraction with its application to biometric
       recognition", Pattern Recognition, 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQML
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQML(lam=10.0).fit(X[:100], y[:100])
    >>> model.transform(X[100:]).shape
    (1697, 10)
    >>> set(model.status_.tolist())
    {'optimal'}
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "lam": [Interval(Real, 0, None, closed="neither")],
        "features": [StrOptions({"quadratic", "signed-root"})],
        "solver": [StrOptions({"newton", "lbfgs", "sdp"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "lam_scale": [StrOptions({"none", "auto"})],
        "zero_samples": [StrOptions({"warn", "error", "ignore"})],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        lam: float = 1.0,
        *,
        features: Features = "quadratic",
        solver: Literal["newton", "lbfgs", "sdp"] = "newton",
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: Literal["warn", "error", "ignore"] = "warn",
        n_jobs: int | None = None,
    ) -> None:
        self.lam = lam
        self.features = features
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.lam_scale = lam_scale
        self.zero_samples = zero_samples
        self.n_jobs = n_jobs

    def _fit(self, data: Array, codes: Index) -> None:
        self._fit_at(data, codes, self.lam)

    def _features(self, data: Array) -> Array:
        if self.mean_responses_ is None:
            return quadratic_features(data, self.components_, self.ranks_)
        return signed_root_features(
            data, self.components_, self.ranks_, self.mean_responses_
        )

    def quadratic_matrix(self, label: Any) -> Array:
        """The full matrix P_c of one class.

        Parameters
        ----------
        label : object
            A label of `classes_`.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            The positive semidefinite quadratic matrix.
        """
        check_is_fitted(self)
        (found,) = np.nonzero(self.classes_ == label)
        if found.size != 1:
            raise ValueError(
                f"{label!r} is not a class of this model; its {self.classes_.size} "
                "classes are in the attribute classes_"
            )
        c = int(found[0])
        end = int(self.ranks_[: c + 1].sum())
        factor = self.components_[end - int(self.ranks_[c]) : end]
        return np.asarray(factor.T @ factor)

    def _data_lam(self, data: Array, lam: float) -> float:
        """The lambda to use on the data as given."""
        if self.lam_scale == "none":
            return float(lam)
        mean_squared_norm = float(np.einsum("ij,ij->", data, data)) / data.shape[0]
        return float(lam) / mean_squared_norm**2

    def _fit_at(self, data: Array, codes: Index, lam: float) -> None:
        """Learn the matrices of all classes at one lambda, and certify them."""
        used = self._used_samples(data)
        members = class_members(codes[used], self.classes_.size)
        if not all(own.size for own in members):
            empty = [c for c, own in enumerate(members) if not own.size]
            raise InfeasibleError(
                f"All samples of class {self.classes_[empty[0]]!r} are zero vectors; "
                "remove the class or check the preprocessing"
            )
        self.lam_ = self._data_lam(data, lam)
        with one_blas_thread():
            solution = solve_certified(
                data if used.size == data.shape[0] else data[used],
                members,
                self.lam_,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                n_jobs=effective_n_jobs(self.n_jobs),
            )
        certificate = solution.certificate
        self.components_ = solution.components
        self.ranks_ = solution.ranks
        self.mean_responses_ = None
        if self.features == "signed-root":
            means, _ = class_means(data, codes)
            own_means = np.repeat(means, self.ranks_, axis=0)
            self.mean_responses_ = np.einsum("ij,ij->i", self.components_, own_means)
        self.dual_coef_ = np.zeros(data.shape[0])
        self.dual_coef_[used] = solution.multipliers
        self.duality_gap_ = certificate.gap
        self.violation_ = certificate.violation
        self.n_iter_ = int(solution.n_iter.max())
        solved = certificate.worst <= self.tol
        self.status_ = np.where(solved, "optimal", "inaccurate")
        if not solved.all():
            warnings.warn(
                _inaccurate_message(certificate, solution.rounding_limited, self.tol),
                ConvergenceWarning,
                stacklevel=5,
            )

    def _used_samples(self, data: Array, rows: Index | None = None) -> Index:
        """The samples that can satisfy x'Px >= 1: all that are not zero.

        `rows` are the numbers of a part of the samples, which gets no warning.
        """
        norms = np.sqrt(np.einsum("ij,ij->i", data, data))
        used = np.flatnonzero(norms > _ZERO_NORM * norms.max(initial=0.0))
        if used.size == data.shape[0]:
            return used
        if used.size == 0:
            raise InfeasibleError("All samples are zero vectors; nothing can be learnt")
        zero = np.setdiff1d(np.arange(data.shape[0]), used)
        message = _zero_message(zero if rows is None else rows[zero])
        if self.zero_samples == "error":
            raise InfeasibleError(message)
        if self.zero_samples == "warn" and rows is None:
            warnings.warn(message, UserWarning, stacklevel=6)
        return used

    @property
    def _n_features_out(self) -> int:
        return int(self.classes_.size)


def class_members(codes: Index, n_classes: int) -> list[Index]:
    """For each class, the indices of its samples in rising order."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    return np.split(order, np.cumsum(counts)[:-1])


def _zero_message(rows: Index) -> str:
    shown = ", ".join(str(row) for row in rows[:10])
    more = "" if len(rows) <= 10 else f" and {len(rows) - 10} more"
    return (
        "The constraint x'Px >= 1 has no solution for zero vectors: "
        f"rows {shown}{more} of X get none. Remove these rows or check the "
        "preprocessing (an image without contrast becomes zero when its mean is "
        "removed)."
    )


def _inaccurate_message(
    certificate: Certificate, unbounded: NDArray[np.bool_], tol: float
) -> str:
    solved = certificate.worst <= tol
    message = (
        f"{int((~solved).sum())} of {solved.size} classes are not proven to be within "
        f"tol={tol:g}: the largest bound of the relative duality gap is "
        f"{certificate.gap.max():.1e}, of the constraint violation "
        f"{certificate.violation.max():.1e}."
    )
    if unbounded.any():
        message += (
            f" For {int(unbounded.sum())} of them only because rounding may have done "
            "that much: the gap that was computed is smaller."
        )
    return message + (
        " Scale the samples to similar norms, choose a less extreme lam, or allow a "
        "larger tol or more max_iter."
    )


class DualQMLClassifier(ClassifierMixin, DualQML):
    """Recognition by quadratic features, with the paper's two decision rules.

    The features of :class:`DualQML`, decided by the nearest training sample in
    the sense of cosine similarity (the paper's "DualQML") or by the largest
    value (its "DualQML (max)", equation (14)).

    Read more in the :ref:`user guide <method>`.

    Parameters
    ----------
    lam : float, default=1.0
        The regularisation parameter lambda, see :class:`DualQML`.
    rule : {"cosine", "max"}, default="cosine"
        - "cosine": nearest neighbour with cosine similarity between quadratic
          features and those of the training samples.
        - "max": the class of the largest feature.
    features : {"quadratic", "signed-root"}, default="quadratic"
        The paper's features or their signed roots, see :class:`DualQML`.
    own_weight : float, default=1.0
        Factor of a training sample's feature of its own class (rule
        "cosine"). The constraint pins that feature at 1 or more, while an
        unseen sample of the class stays below: 1/2 makes both alike. 1 is the
        paper's rule.
    centre : bool, default=False
        Whether the cosine is taken about the mean of the training features
        (rule "cosine"). False is the paper's rule.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        See :class:`DualQML`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Iterations a class may take, see :class:`DualQML`.
    lam_scale : {"none", "auto"}, default="none"
        "auto" makes lam independent of the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, see
        :class:`DualQML`.
    n_jobs : int, default=None
        Threads over groups of classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    components_ : ndarray of shape (sum of ranks, n_features)
        The factors of all classes, stacked, see :class:`DualQML`.
    ranks_ : ndarray of shape (n_classes,)
        The rank of each quadratic matrix.
    mean_responses_ : ndarray of shape (sum of ranks,) or None
        Responses of the factors to the class means, see :class:`DualQML`.
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
    lam_ : float
        The lambda that was used on the data as given.
    training_features_ : ndarray of shape (n_samples, n_classes) or None
        Features of the training samples, weighted, centred and scaled to unit
        norm. None for rule "max".
    training_mean_ : ndarray of shape (n_classes,) or None
        What is subtracted from features before the cosine. None where `centre`
        is False, and for rule "max".
    training_codes_ : ndarray of shape (n_samples,) or None
        Their classes, as indices into `classes_`. None for rule "max".
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    See Also
    --------
    DualQML : The features alone.
    DualQMLClassifierCV : Lambda chosen by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQMLClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQMLClassifier(lam=10.0).fit(X[:100], y[:100])
    >>> model.predict(X[:4])
    array([0, 1, 2, 3])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DualQML._parameter_constraints,
        "rule": [StrOptions({"cosine", "max"})],
        "own_weight": [Interval(Real, 0, None, closed="left")],
        "centre": ["boolean"],
    }

    def __init__(
        self,
        lam: float = 1.0,
        *,
        rule: Rule = "cosine",
        features: Features = "quadratic",
        own_weight: float = 1.0,
        centre: bool = False,
        solver: Literal["newton", "lbfgs", "sdp"] = "newton",
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: Literal["warn", "error", "ignore"] = "warn",
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            lam,
            features=features,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            lam_scale=lam_scale,
            zero_samples=zero_samples,
            n_jobs=n_jobs,
        )
        self.rule = rule
        self.own_weight = own_weight
        self.centre = centre

    def _fit_at(self, data: Array, codes: Index, lam: float) -> None:
        super()._fit_at(data, codes, lam)
        self.training_features_ = self.training_mean_ = self.training_codes_ = None
        if self.rule == "cosine":
            self.training_features_, self.training_mean_ = profile_gallery(
                self._features(data),
                codes,
                own_weight=self.own_weight,
                centre=self.centre,
            )
            self.training_codes_ = codes

    def decision_function(self, X: ArrayLike) -> Array:
        """Score of every class; the larger, the more like it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Rule "cosine": the largest cosine similarity to a training sample
            of the class. Rule "max": the features themselves. With two classes,
            the score of the second less that of the first.
        """
        features = np.asarray(self.transform(X), dtype=np.float64)
        scores = centred(features, self.training_mean_)
        gallery, codes = self.training_features_, self.training_codes_
        if gallery is not None and codes is not None:
            scores = class_similarities(scores, gallery, codes, self.classes_.size)
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of every sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels. Ties go to the first of the equal training samples (rule
            "cosine") or classes (rule "max").
        """
        check_is_fitted(self)
        features = np.asarray(self.transform(X), dtype=np.float64)
        features = centred(features, self.training_mean_)
        gallery, codes = self.training_features_, self.training_codes_
        return np.asarray(self.classes_[decide(self.rule, features, gallery, codes)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Even functions of x: alone they cannot tell x from -x.
        even = self.features == "quadratic"
        tags.classifier_tags.poor_score = self.rule == "max" and even
        return tags


def decide(
    rule: Rule, features: Array, gallery: Array | None, codes: Index | None
) -> Index:
    """Class of each feature vector by one of the paper's two rules.

    Parameters
    ----------
    rule : {"cosine", "max"}
        The rule.
    features : ndarray of shape (n_samples, n_classes)
        Features, centred if the gallery is.
    gallery : ndarray of shape (n_training, n_classes) or None
        Those of the training samples at unit norm (rule "cosine").
    codes : ndarray of shape (n_training,) or None
        Their classes (rule "cosine").

    Returns
    -------
    ndarray of shape (n_samples,)
        Class numbers.
    """
    if rule == "max" or gallery is None or codes is None:
        # Equation (14).
        return features.argmax(axis=1)
    return np.asarray(codes[nearest(features, gallery)])


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
