# SPDX-License-Identifier: BSD-3-Clause
"""DualQML: one positive semidefinite quadratic matrix for every class.

This module has the extractor, the classifier with the paper's two decision rules, and
the classifier that chooses lambda by cross-validation.
"""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dualqml._linalg import class_means, unit_rows
from dualqml._saved_state import (
    CODES,
    COUNT,
    DICT,
    MATRIX,
    NOTHING,
    NUMBER,
    REPORT,
    REPORT_MATRIX,
    STRINGS,
    VECTOR,
    Path,
    Saved,
    expect,
    expect_codes,
    instance_of,
)
from dualqml._sklearn import Interval, StrOptions, SupervisedExtractor, one_blas_thread
from dualqml._typing import Array, Index
from dualqml.core import newton_path, scatter_spectrum, solve_certified
from dualqml.core.solve import DEFAULT_MAX_ITER
from dualqml.extractors.class_sizes import class_scales
from dualqml.extractors.inaccurate_classes import warn_if_inaccurate
from dualqml.extractors.nearest import class_similarities, nearest
from dualqml.extractors.probabilities import ClassProbabilities
from dualqml.extractors.quadratic_features import (
    centred,
    energies_of_others,
    profile_gallery,
    quadratic_features,
    signed_root_features,
)
from dualqml.extractors.tuning import check_search_results, search_results, spread_folds
from dualqml.extractors.zero_samples import (
    ZeroPolicy,
    are_used,
    check_no_class_is_zero,
    nothing_but_zeros,
    report_zero_rows,
)

Features = Literal["quadratic", "signed-root"]

Rule = Literal["cosine", "max"]

#: Number of fits from which samples are held out to learn probabilities.
_PROBABILITY_FOLDS = 3


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
        The regularisation parameter lambda, as in the paper, for the data as
        given: multiplying the data by s has the same effect as multiplying lam
        by s**4. On mean-removed rows of unit norm, 1 to 100 is a good
        range.
    features : {"quadratic", "signed-root"}, default="quadratic"
        - "quadratic": the paper's x'P_c x.
        - "signed-root": sign(x'P_c m_c) sqrt(x'P_c x) with the mean m_c of the
          samples of the class. Unlike a quadratic form, it distinguishes x and -x.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        - "newton": a semismooth Newton method for all classes at once in
          rational Krylov bases. It is exact, and thousands of times faster than
          the others. Use this one.
        - "lbfgs": the paper's Algorithm 1 exactly as published, with one full
          eigendecomposition per step. A reference for comparison.
        - "sdp": the standard semidefinite program through CVXPY (install
          ``dualqml[sdp]``). An independent reference for a few dozen samples.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Largest number of iterations per class: Newton steps at each level, steps
        of L-BFGS-B or of the conic solver. None means 50, 200 and 10000.
    lam_scale : {"none", "auto"}, default="none"
        "auto" divides lam by the squared mean of the squared norms of the
        samples. Then lam has the same meaning as for rows of unit norm, and does
        not depend on the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, or whose norm is at
        most 1e-12 of the largest, as x'Px >= 1 has no solution for them. "warn"
        gives them no constraint and names their rows in a warning, "error" raises,
        "ignore" gives them no constraint without a warning.
    n_jobs : int, default=None
        Number of threads over groups of classes (solver "newton"). The result is
        the same to the last bit for any number. None means 1, -1 means all
        processors.

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
        Scalar product of each factor with the mean of the samples of its class, from
        which the sign is computed. None for features "quadratic".
    dual_coef_ : ndarray of shape (n_samples,)
        The multiplier u of each training sample's constraint; zero if the
        constraint is not active.
    duality_gap_ : ndarray of shape (n_classes,)
        Certified relative duality gap of each class, see
        :func:`dualqml.core.certify`.
    violation_ : ndarray of shape (n_classes,)
        Largest amount by which x'P_c x is below 1 on a training sample of the
        class.
    status_ : ndarray of shape (n_classes,)
        "optimal" if gap and violation are at most `tol`, else "inaccurate".
    n_iter_ : int
        Largest number of iterations of a class.
    lam_ : float
        The lambda that was used for the data as given.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLClassifier : Features and decision rule in one estimator.
    DualQMLClassifierCV : The classifier with lambda chosen by cross-validation.

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

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        components_=MATRIX.of("n_factors", "n_features"),
        ranks_=CODES.of("n_classes"),
        mean_responses_=(VECTOR | NOTHING).of("n_factors"),
        dual_coef_=REPORT.of("n_samples"),
        duality_gap_=REPORT.of("n_classes"),
        violation_=REPORT.of("n_classes"),
        status_=STRINGS.of("n_classes"),
        n_iter_=COUNT,
        lam_=NUMBER,
    )

    def __init__(
        self,
        lam: float = 1.0,
        *,
        features: Features = "quadratic",
        solver: Literal["newton", "lbfgs", "sdp"] = "newton",
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: ZeroPolicy = "warn",
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

    def _fit(self, data: Array, codes: Index) -> None:
        self._fit_at(data, codes, self.lam)

    def _fit_at(self, data: Array, codes: Index, lam: float) -> None:
        """Learn the matrices of all classes at one lambda, and certify them."""
        used = self._used_samples(data)
        members = class_members(codes[used], self.classes_.size)
        empty = [c for c, own in enumerate(members) if not own.size]
        check_no_class_is_zero(self.classes_, np.array(empty, dtype=np.intp))
        self.lam_ = self._lam_for_data(data, lam)
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
        warn_if_inaccurate(
            certificate.gap,
            certificate.violation,
            solution.rounding_limited,
            self.tol,
            stacklevel=6,
        )

    def _features(self, data: Array) -> Array:
        if self.mean_responses_ is None:
            return quadratic_features(data, self.components_, self.ranks_)
        return signed_root_features(
            data, self.components_, self.ranks_, self.mean_responses_
        )

    @property
    def _n_features_out(self) -> int:
        return int(self.classes_.size)

    def _lam_for_data(self, data: Array, lam: float) -> float:
        """The lambda to use for the data as given."""
        if self.lam_scale == "none":
            return float(lam)
        mean_squared_norm = float(np.einsum("ij,ij->", data, data)) / data.shape[0]
        return float(lam) / mean_squared_norm**2

    def _used_samples(self, data: Array, rows: Index | None = None) -> Index:
        """Indices of the samples that can satisfy x'Px >= 1: all that are not zero.

        `rows` are the row numbers if the data are a part of the training samples.
        A part gets no warning.
        """
        squares = np.einsum("ij,ij->i", data, data)
        used = are_used(squares, float(squares.max(initial=0.0)))
        if used.all():
            return np.arange(data.shape[0])
        if not used.any():
            raise nothing_but_zeros()
        zero = np.flatnonzero(~used)
        if rows is None:
            report_zero_rows(zero, self.zero_samples, stacklevel=7)
        elif self.zero_samples == "error":
            report_zero_rows(rows[zero], self.zero_samples)
        return np.flatnonzero(used)

    def _check_saved(self, path: Path) -> None:
        """Raise if the ranks do not add up to the number of factors."""
        ranks, n_rows = self.ranks_, self.components_.shape[0]
        expect(ranks.min() >= 0, path, "ranks_", "has a rank below zero")
        # First each rank by itself: the sum of forged ranks could overflow.
        valid = ranks.max() <= n_rows and ranks.sum() == n_rows
        what = f"does not add up to the {n_rows} rows of components_"
        expect(bool(valid), path, "ranks_", what)


class DualQMLClassifier(ClassifierMixin, DualQML):
    """Recognition by quadratic features, with the paper's two decision rules.

    The features are those of :class:`DualQML`. The decision is the class of the
    training sample with the largest cosine similarity (the paper's "DualQML"), or
    the class of the largest feature (its "DualQML (max)", equation (14)).

    Read more in the :ref:`user guide <method>`.

    Parameters
    ----------
    lam : float, default=1.0
        The regularisation parameter lambda, see :class:`DualQML`.
    rule : {"cosine", "max"}, default="cosine"
        - "cosine": nearest neighbour with cosine similarity between quadratic
          features and those of the training samples.
        - "max": the class of the largest feature. If classes have different numbers
          of samples, the features are made comparable first (`class_scale_`).
    features : {"quadratic", "signed-root"}, default="quadratic"
        The paper's features or their signed roots, see :class:`DualQML`.
    own_weight : float, default=1.0
        Factor of the feature of its own class, for training samples (rule
        "cosine"). By the constraint that feature is at least 1, while it is
        smaller for an unseen sample of the class. The factor 1/2 makes both
        similar. 1 is the paper's rule.
    centre : bool, default=False
        Whether the cosine is taken about the mean of the training features
        (rule "cosine"). False is the paper's rule.
    probability : bool, default=False
        Whether to learn probabilities, for :meth:`predict_proba`, from samples that
        are held out of three more fits.
    solver : {"newton", "lbfgs", "sdp"}, default="newton"
        See :class:`DualQML`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Largest number of iterations per class, see :class:`DualQML`.
    lam_scale : {"none", "auto"}, default="none"
        "auto" makes lam independent of the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, see
        :class:`DualQML`.
    n_jobs : int, default=None
        Number of threads over groups of classes.

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
        "optimal" or "inaccurate" for each class.
    n_iter_ : int
        Largest number of iterations of a class.
    lam_ : float
        The lambda that was used for the data as given.
    training_features_ : ndarray of shape (n_samples, n_classes) or None
        Features of the training samples, weighted, centred and scaled to unit
        norm. None for rule "max".
    training_mean_ : ndarray of shape (n_classes,) or None
        The mean that is subtracted from features before the cosine. None if
        `centre` is False, and for rule "max".
    training_codes_ : ndarray of shape (n_samples,) or None
        Classes of the training samples, as indices into `classes_`. None for rule
        "max".
    energies_ : ndarray of shape (n_classes,)
        Mean of x'P_c x over the training samples of all other classes.
    class_scale_ : ndarray of shape (n_classes,) or None
        Divisors that make the features of classes of few and of many samples
        comparable, see :mod:`dualqml.extractors.class_sizes`. None for rule "cosine",
        and if all classes have the same number of samples.
    probabilities_ : ClassProbabilities or None
        What scores mean, see :mod:`dualqml.extractors.probabilities`. None without
        `probability`.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQML : The features without a decision rule.
    DualQMLClassifierCV : The classifier with lambda chosen by cross-validation.

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
        "probability": ["boolean"],
    }

    _saved: ClassVar[Saved] = DualQML._saved.extended(
        training_features_=(MATRIX | NOTHING).of("n_samples", "n_classes"),
        training_mean_=(VECTOR | NOTHING).of("n_classes"),
        training_codes_=(CODES | NOTHING).of("n_samples"),
        energies_=VECTOR.of("n_classes"),
        class_scale_=(VECTOR | NOTHING).of("n_classes"),
        probabilities_=instance_of(ClassProbabilities) | NOTHING,
    )

    def __init__(
        self,
        lam: float = 1.0,
        *,
        rule: Rule = "cosine",
        features: Features = "quadratic",
        own_weight: float = 1.0,
        centre: bool = False,
        probability: bool = False,
        solver: Literal["newton", "lbfgs", "sdp"] = "newton",
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: ZeroPolicy = "warn",
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
        self.probability = probability

    def decision_function(self, X: ArrayLike) -> Array:
        """Score of every class; the larger, the more similar.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Rule "cosine": the largest cosine similarity to a training sample
            of the class. Rule "max": the features, divided by `class_scale_`
            ("quadratic": by its square). With two classes, the score of the second
            minus that of the first.
        """
        scores = self.class_scores(X)
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def class_scores(self, X: ArrayLike) -> Array:
        """Score of every class, with one column per class also for two classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The scores of :meth:`decision_function`.
        """
        scores = self._decision_features(X)
        gallery, codes = self.training_features_, self.training_codes_
        if gallery is not None and codes is not None:
            scores = class_similarities(scores, gallery, codes, self.classes_.size)
        return scores

    def _decision_features(self, X: ArrayLike) -> Array:
        """Features as the decision rule compares them."""
        features = np.asarray(self.transform(X), dtype=np.float64)
        if self.class_scale_ is not None:
            return self._scaled(features, self.class_scale_)
        return centred(features, self.training_mean_)

    def _scaled(self, features: Array, scales: Array) -> Array:
        """Features of classes of all sizes, made comparable."""
        return features / (scales if self.features == "signed-root" else scales**2)

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
        features = self._decision_features(X)
        gallery, codes = self.training_features_, self.training_codes_
        return np.asarray(self.classes_[decide(self.rule, features, gallery, codes)])

    @available_if(lambda self: self.probability)
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of every class, with ``probability=True``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities; those of a sample add up to 1.
        """
        check_is_fitted(self)
        if self.probabilities_ is None:
            raise AttributeError("probability was not set when the model was fitted")
        return self.probabilities_.of_classes(self.class_scores(X))

    def _fit_at(self, data: Array, codes: Index, lam: float) -> None:
        super()._fit_at(data, codes, lam)
        self.training_features_ = self.training_mean_ = self.training_codes_ = None
        self.class_scale_ = self.probabilities_ = None
        self.energies_ = energies_of_others(data, codes, self.components_, self.ranks_)
        if self.probability:
            self.probabilities_ = self._learn_probabilities(data, codes, lam)
        if self.rule == "cosine":
            self.training_features_, self.training_mean_ = profile_gallery(
                self._features(data),
                codes,
                own_weight=self.own_weight,
                centre=self.centre,
            )
            self.training_codes_ = codes
            return
        counts = np.bincount(codes)
        if (counts != counts[0]).any():
            self.class_scale_ = class_scales(self.energies_, counts)

    def _learn_probabilities(
        self, data: Array, codes: Index, lam: float
    ) -> ClassProbabilities:
        """Learn what scores mean from samples that are held out in folds."""
        n_classes = self.classes_.size
        scores, classes = [np.empty((0, n_classes))], [codes[:0]]
        folds = []
        if np.bincount(codes).max() > 1:
            folds = spread_folds(codes, _PROBABILITY_FOLDS, 0)
        for train, held_out in folds:
            model = DualQMLClassifier(
                lam,
                rule=self.rule,
                features=self.features,
                own_weight=self.own_weight,
                centre=self.centre,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                lam_scale=self.lam_scale,
                zero_samples="ignore",
                n_jobs=self.n_jobs,
            ).fit(data[train], codes[train])
            scores.append(model.class_scores(data[held_out]))
            classes.append(codes[held_out])
        found, own = np.concatenate(scores), np.concatenate(classes)
        strangers = found.copy()
        strangers[np.arange(own.size), own] = -np.inf
        return ClassProbabilities.fitted(found, own, strangers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Quadratic features are even functions: they cannot tell x from -x.
        even = self.features == "quadratic"
        tags.classifier_tags.poor_score = self.rule == "max" and even
        return tags

    def _check_saved(self, path: Path) -> None:
        """Raise if rule "cosine" does not have a class for every training sample."""
        super()._check_saved(path)
        codes = self.training_codes_
        both = (codes is None) == (self.training_features_ is None)
        what = "and training_features_ are not both there, or both not"
        expect(both, path, "training_codes_", what)
        if codes is not None:
            expect_codes(codes, self.classes_.size, path, "training_codes_")


class DualQMLClassifierCV(DualQMLClassifier):
    """DualQMLClassifier with lambda chosen by cross-validation.

    In each fold, all values of lambda share one eigendecomposition, each solution
    starts from the one before, and held-out samples are scored in the eigenbasis.
    So a grid of nine values and ten folds costs as much as a few fits, not ninety.

    Read more in the :ref:`user guide <method>`.

    Parameters
    ----------
    lams : array-like of shape (n_lams,), default=(0.1, 0.32, 1.0, 3.2, 10.0, \
32.0, 100.0)
        Values of lambda to try. The paper's range is [0.1, 10]. For mean-removed
        rows of unit norm the best value is often larger.
    cv : int, cross-validation generator or iterable, default=10
        An integer is the number of random folds. Samples of one class are put into
        different folds, and the sample of a class with only one is never held out.
        Anything else as in scikit-learn.
    rule : {"cosine", "max"}, default="cosine"
        The decision rule, see :class:`DualQMLClassifier`. The folds use it too.
    probability : bool, default=False
        Whether to learn probabilities, see :class:`DualQMLClassifier`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    max_iter : int, default=None
        Largest number of Newton steps per class at each level; None means 50.
    lam_scale : {"none", "auto"}, default="none"
        "auto" makes the values independent of the scale of the data.
    zero_samples : {"warn", "error", "ignore"}, default="warn"
        What to do with training samples that are zero vectors, see
        :class:`DualQML`.
    n_jobs : int, default=None
        Number of threads over folds, then over groups of classes.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds if `cv` is an integer.

    Attributes
    ----------
    lam_ : float
        The lambda that was used for the data as given.
    best_lam_ : float
        The chosen element of `lams`: the one with the lowest mean error, the first
        if several are equal.
    best_params_ : dict
        The same as ``{"lam": best_lam_}``, for :class:`DualQMLClassifier`.
    best_score_ : float
        Mean accuracy on the held-out samples at the chosen lambda.
    cv_errors_ : ndarray of shape (n_folds, n_lams)
        Error rate on the held-out samples of each fold.
    cv_results_ : dict
        The accuracies as in :class:`sklearn.model_selection.GridSearchCV`:
        "params", "mean_test_score", "std_test_score", "rank_test_score" and
        "split0_test_score" and so on.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    components_ : ndarray of shape (sum of ranks, n_features)
        The factors of all classes, stacked, see :class:`DualQML`.
    ranks_ : ndarray of shape (n_classes,)
        The rank of each quadratic matrix.
    mean_responses_ : None
        Always None: the features are the paper's.
    dual_coef_ : ndarray of shape (n_samples,)
        The multiplier of each training sample's constraint.
    duality_gap_ : ndarray of shape (n_classes,)
        Certified relative duality gap of each class.
    violation_ : ndarray of shape (n_classes,)
        Largest constraint violation of each class.
    status_ : ndarray of shape (n_classes,)
        "optimal" or "inaccurate" for each class.
    n_iter_ : int
        Largest number of iterations of a class.
    training_features_ : ndarray of shape (n_samples, n_classes) or None
        Quadratic features of the training samples, scaled to unit norm. None
        for rule "max".
    training_mean_ : None
        Always None: the rule is the paper's.
    training_codes_ : ndarray of shape (n_samples,) or None
        Classes of the training samples, as indices into `classes_`. None for rule
        "max".
    energies_ : ndarray of shape (n_classes,)
        Mean of x'P_c x over the training samples of all other classes.
    class_scale_ : ndarray of shape (n_classes,) or None
        Divisors that make the features of classes of few and of many samples
        comparable, see :mod:`dualqml.extractors.class_sizes`. None for rule "cosine",
        and if all classes have the same number of samples.
    probabilities_ : ClassProbabilities or None
        What scores mean. None without `probability`.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLClassifier : The classifier with a given lambda.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dualqml import DualQMLClassifierCV
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X - X.mean(axis=0))
    >>> model = DualQMLClassifierCV(cv=5, random_state=0).fit(X[:100], y[:100])
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

    _saved: ClassVar[Saved] = DualQMLClassifier._saved.extended(
        best_lam_=NUMBER,
        best_params_=DICT,
        best_score_=NUMBER,
        cv_errors_=REPORT_MATRIX.of("n_folds", "n_lams"),
        cv_results_=DICT,
    )

    # Fixed here: the solver that follows a path of lambda, and the paper's decision.
    solver = "newton"
    features = "quadratic"
    own_weight = 1.0
    centre = False

    def __init__(
        self,
        lams: Sequence[float] = (0.1, 0.32, 1.0, 3.2, 10.0, 32.0, 100.0),
        *,
        cv: Any = 10,
        rule: Rule = "cosine",
        probability: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        lam_scale: Literal["none", "auto"] = "none",
        zero_samples: ZeroPolicy = "warn",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.lams = lams
        self.cv = cv
        self.rule = rule
        self.probability = probability
        self.tol = tol
        self.max_iter = max_iter
        self.lam_scale = lam_scale
        self.zero_samples = zero_samples
        self.n_jobs = n_jobs
        self.random_state = random_state

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
        accuracies = 1.0 - self.cv_errors_
        candidates = [{"lam": float(lam)} for lam in lams]
        self.cv_results_ = search_results(
            candidates, accuracies.mean(axis=0), splits=accuracies
        )
        best = int(self.cv_errors_.mean(axis=0).argmin())
        self.best_lam_, self.best_params_ = float(lams[best]), candidates[best]
        self.best_score_ = float(accuracies[:, best].mean())
        self._fit_at(data, codes, self.best_lam_)

    def _fold_errors(
        self, data: Array, codes: Index, train: Index, held_out: Index, lams: Array
    ) -> Array:
        """Error rate on the held-out samples of a fold for each lambda."""
        used = self._used_samples(data[train], train)
        spectrum = scatter_spectrum(data[train][used])
        present, fold_codes = np.unique(codes[train][used], return_inverse=True)
        counts = np.bincount(fold_codes)
        probes = spectrum.project(data[held_out])
        errors = np.empty(lams.size)
        order = np.argsort(lams, kind="stable")
        path = newton_path(
            spectrum,
            class_members(fold_codes, present.size),
            [self._lam_for_data(data, lam) for lam in lams[order]],
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
            elif (counts != counts[0]).any():
                energies = energies_of_others(
                    spectrum.coordinates, fold_codes, solution.factors, solution.ranks
                )
                features = self._scaled(features, class_scales(energies, counts))
            decided = decide(self.rule, features, gallery, fold_codes)
            errors[position] = np.mean(present[decided] != codes[held_out])
        return errors

    def _check_saved(self, path: Path) -> None:
        super()._check_saved(path)
        check_search_results(self.cv_results_, path)


def decide(
    rule: Rule, features: Array, gallery: Array | None, codes: Index | None
) -> Index:
    """Class of each feature vector by one of the paper's two rules.

    Parameters
    ----------
    rule : {"cosine", "max"}
        The rule.
    features : ndarray of shape (n_samples, n_classes)
        Features, centred if the gallery is centred.
    gallery : ndarray of shape (n_training, n_classes) or None
        Features of the training samples at unit norm (rule "cosine").
    codes : ndarray of shape (n_training,) or None
        Classes of the training samples (rule "cosine").

    Returns
    -------
    ndarray of shape (n_samples,)
        Class numbers.
    """
    if rule == "max" or gallery is None or codes is None:
        # Equation (14).
        return features.argmax(axis=1)
    return np.asarray(codes[nearest(features, gallery)])


def class_members(codes: Index, n_classes: int) -> list[Index]:
    """For each class, the indices of its samples in ascending order."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_classes)
    return np.split(order, np.cumsum(counts)[:-1])
