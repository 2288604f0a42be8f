# SPDX-License-Identifier: BSD-3-Clause
"""DualQML-W: quadratic matrix learning in a within-class metric.

This module has the classifier with given parameters, and the classifier that chooses
them on the training set.
"""

from collections.abc import Sequence
from itertools import product
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._saved_state import (
    DICT,
    NOTHING,
    NUMBER,
    REPORT_CUBE,
    SCORE,
    TEXT,
    Path,
    Saved,
    expect,
    expect_equal,
    instance_of,
)
from dualqml._sklearn import Interval, StrOptions, SupervisedExtractor, one_blas_thread
from dualqml._typing import Array, Index
from dualqml.extractors._coordinates import CoordinateSystem, KernelCoordinates
from dualqml.extractors._quadratic_features import centred, profile_gallery
from dualqml.extractors._surrogate import SurrogateFilters
from dualqml.extractors.dual_qml import DualQMLClassifier, Rule
from dualqml.extractors.nearest import class_similarities
from dualqml.extractors.prepared_samples import PreparedSamples
from dualqml.extractors.tuning import (
    RecognitionFold,
    check_search_results,
    rank_loss,
    recognition_folds,
    search_results,
)
from dualqml.extractors.within_metric import (
    Descriptor,
    KernelChoice,
    WithinMetric,
    within_spectrum,
)
from dualqml.images.shapes import SizeLike


class DualQMLW(ClassifierMixin, SupervisedExtractor):
    """Exact quadratic matrix learning in a within-class metric (DualQML-W).

    The paper's problem treats all directions in the same way. Here it is solved,
    exactly and unchanged, in the coordinates of :class:`WithinMetric`, where the
    differences between images of one person are small. The features are the signed
    roots of the quadratic features. The decision is by cosine similarity to the
    training samples, with centred features, or by the largest feature.

    :class:`DualQMLWCV` chooses the parameters. Use it unless you know them.

    Read more in the :ref:`user guide <dual_qml_w>`.

    Parameters
    ----------
    rho : float, default=0.1
        Weight of the prior in the metric, see :class:`WithinMetric`.
    lam : float, default=0.1
        The regularisation parameter lambda of QML; in these coordinates it
        does not depend on the scale of the data.
    rule : {"cosine", "max"}, default="cosine"
        - "cosine": nearest neighbour by cosine similarity, after the mean of the
          training features is subtracted. Use it if the images of all people vary
          in the same way: pose, lighting.
        - "max": the class of the largest feature. Use it for embeddings.
    own_weight : float, default=0.5
        Factor of the feature of its own class, for training samples (rule
        "cosine"), see :class:`DualQMLClassifier`.
    kernel : {"auto", "rbf", "linear"}, default="auto"
        The coordinates, see :class:`WithinMetric`.
    width : float, default=16.0
        Variance of the kernel in units of the median squared distance.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. None means that the
        rows are not images, or with a `descriptor` that they are square images
        of at least 8 x 8 pixels.
    kappa : float, default=0.2
        Weight of small affine motions in the prior, from 0 to 1, for images.
    descriptor : {"local"}, default=None
        "local" replaces images by their :class:`~dualqml.images.LocalDescriptors`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    n_jobs : int, default=None
        Number of threads over groups of classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    metric_ : WithinMetric
        The fitted metric.
    qml_ : DualQMLClassifier
        QML fitted on the coordinates of the training samples, with its
        certificate.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLWCV : The same with parameters chosen on the training set.
    DualQMLClassifier : The paper's method.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml import DualQMLW
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DualQMLW(rho=1.0, rule="max", image_shape=(8, 8))
    >>> model.fit(X[::4], y[::4]).score(X[1::4], y[1::4]) > 0.95
    True
    >>> set(model.qml_.status_.tolist())
    {'optimal'}
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **WithinMetric._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="neither")],
        "rule": [StrOptions({"cosine", "max"})],
        "own_weight": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
    }

    _saved: ClassVar[Saved] = SupervisedExtractor._saved.extended(
        metric_=instance_of(WithinMetric), qml_=instance_of(DualQMLClassifier)
    )

    def __init__(
        self,
        *,
        rho: float = 0.1,
        lam: float = 0.1,
        rule: Rule = "cosine",
        own_weight: float = 0.5,
        kernel: KernelChoice = "auto",
        width: float = 16.0,
        image_shape: SizeLike | None = None,
        kappa: float = 0.2,
        descriptor: Descriptor | None = None,
        tol: float = 1e-6,
        n_jobs: int | None = None,
    ) -> None:
        self.rho = rho
        self.lam = lam
        self.rule = rule
        self.own_weight = own_weight
        self.kernel = kernel
        self.width = width
        self.image_shape = image_shape
        self.kappa = kappa
        self.descriptor = descriptor
        self.tol = tol
        self.n_jobs = n_jobs

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
            of the class. Rule "max": the signed roots. With two classes, the
            score of the second minus that of the first.
        """
        coordinates = self._coordinates(X)
        return self.qml_.decision_function(coordinates)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of every sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        coordinates = self._coordinates(X)
        return self.qml_.predict(coordinates)

    def _fit(self, data: Array, codes: Index) -> None:
        self._fit_samples(self._metric(1.0, 1.0)._prepare(data), codes)

    def _fit_samples(self, samples: PreparedSamples, codes: Index) -> None:
        metric = self._metric(self.rho, self.width)
        self._fit_at(
            metric, metric._coordinate_system(samples), codes, self.lam, self.rule
        )

    def _fit_at(
        self,
        metric: WithinMetric,
        system: CoordinateSystem,
        codes: Index,
        lam: float,
        rule: Rule,
    ) -> None:
        """Learn the metric, and in it the matrices of all classes."""
        self.metric_ = metric
        self.metric_.n_features_in_ = self.n_features_in_
        self.metric_.classes_ = self.classes_
        coordinates = self.metric_._learn(system, codes)
        self.qml_ = DualQMLClassifier(
            lam,
            rule=rule,
            features="signed-root",
            own_weight=self.own_weight,
            centre=True,
            tol=self.tol,
            # A sample exactly at the centre has no direction, so it has no constraint.
            zero_samples="ignore",
            n_jobs=self.n_jobs,
        ).fit(coordinates, self.classes_[codes])

    def _metric(self, rho: float, width: float) -> WithinMetric:
        return WithinMetric(
            rho=rho,
            kernel=self.kernel,
            width=width,
            image_shape=self.image_shape,
            kappa=self.kappa,
            descriptor=self.descriptor,
        )

    def _features(self, data: Array) -> Array:
        return np.asarray(self.qml_.transform(self.metric_._features(data)))

    def _coordinates(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.metric_._features(data)

    @property
    def _n_features_out(self) -> int:
        return int(self.classes_.size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows are scaled to unit norm, so classes that differ only in the norm of
        # their samples cannot be recognised.
        tags.classifier_tags.poor_score = True
        return tags

    def _check_saved(self, path: Path) -> None:
        """Raise if the metric and QML do not fit the samples and each other."""
        metric, qml = self.metric_, self.qml_
        for name, part in (("metric_", metric), ("qml_", qml)):
            expect(hasattr(part, "n_features_in_"), path, name, "is not fitted")
        found, wanted = metric.n_features_in_, self.n_features_in_
        expect_equal(found, wanted, path, "metric_", "features", "n_features_in_")
        found, wanted = qml.n_features_in_, metric.coefficients_.shape[1]
        expect_equal(found, wanted, path, "qml_", "features", "metric_")
        for name, part in (("metric_", metric), ("qml_", qml)):
            same = np.array_equal(part.classes_, self.classes_)
            expect(same, path, name, "has other classes than classes_")
        if metric.kernel_ is not None:
            found, wanted = qml.dual_coef_.size, metric.kernel_.samples.shape[0]
            expect_equal(found, wanted, path, "qml_", "training samples", "metric_")


class DualQMLWCV(DualQMLW):
    """DualQML-W with all important parameters chosen by cross-validation.

    The weight of the prior, lambda, the decision rule and the width of the kernel
    are chosen for the lowest loss: the mean logarithm of the rank of the true class
    of held-out training samples. All folds share the kernel and the tangents. In
    each fold, all values of rho share one eigenproblem, and a closed form that
    behaves in a similar way replaces QML. The final model is exact.

    This is the estimator to try first.

    Read more in the :ref:`user guide <dual_qml_w>`.

    Parameters
    ----------
    rhos : array-like of shape (n_rhos,), default=(0.01, 0.1, 0.5, 5.0, 30.0)
        Weights of the prior to try.
    lams : array-like of shape (n_lams,), default=(0.03, 0.17, 1.0)
        Values of lambda to try.
    rules : sequence of {"cosine", "max"}, default=("cosine", "max")
        Decision rules to try, see :class:`DualQMLW`. The last rule is chosen unless
        another one is better by more than one standard error.
    own_weight : float, default=0.5
        Factor of the feature of its own class, for training samples (rule
        "cosine"), see :class:`DualQMLClassifier`.
    kernel : {"auto", "rbf", "linear"}, default="auto"
        The coordinates, see :class:`WithinMetric`.
    widths : array-like of shape (n_widths,), default=(16.0, 4.0)
        Variances of the kernel to try, in units of the median squared distance.
        All other parameters are tried with the first width. With the other widths,
        only the chosen rule and lambda are tried, with the chosen rho and the
        values next to it.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. None means that the
        rows are not images, or with a `descriptor` that they are square images
        of at least 8 x 8 pixels.
    kappa : float, default=0.2
        Weight of small affine motions in the prior, from 0 to 1, for images.
    descriptor : {"local"}, default=None
        "local" replaces images by their :class:`~dualqml.images.LocalDescriptors`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    n_jobs : int, default=None
        Number of threads over folds, then over groups of classes.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds.

    Attributes
    ----------
    best_rho_ : float
        The chosen weight of the prior.
    best_lam_ : float
        The chosen lambda.
    best_rule_ : str
        The chosen rule.
    best_width_ : float
        The chosen width; the first of `widths` if the kernel is linear.
    best_params_ : dict
        The chosen rule, rho, lam and width, for :class:`DualQMLW`.
    best_score_ : float
        Minus the mean loss of the chosen parameters on held-out samples; NaN if
        nothing could be held out.
    cv_results_ : dict
        All candidates, as in :class:`sklearn.model_selection.GridSearchCV`:
        "params", "mean_test_score" (minus the mean loss) and "rank_test_score".
    cv_losses_ : ndarray of shape (n_rules, n_rhos, n_lams) or None
        Mean logarithm of the rank of the true class of held-out samples, over both
        galleries (see Notes), with the first width. None if every class has one
        sample, so that nothing could be held out.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    metric_ : WithinMetric
        The fitted metric.
    qml_ : DualQMLClassifier
        QML fitted on the coordinates of the training samples, with its
        certificate.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLW : The same with given parameters.

    Notes
    -----
    A held-out sample is compared with a gallery in which every class has one sample
    less, not only the class of the held-out sample. Otherwise classes of different
    sizes would be compared, and with two samples per class the wrong rule would be
    chosen. This gallery is smaller than the final one, and needs more
    regularisation. So rho and lam are chosen, for the chosen rule, by the mean of
    two losses: with this gallery, and with all samples that are not held out.

    If every class has one sample, nothing can be held out. Then the last of `rules`
    and the first of `lams` are chosen, and rho has no effect.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml import DualQMLWCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DualQMLWCV(image_shape=(8, 8), random_state=0).fit(X[::4], y[::4])
    >>> model.best_params_
    {'rule': 'max', 'rho': 0.01, 'lam': 0.03, 'width': 16.0}
    >>> model.score(X[1::4], y[1::4]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: constraint
        for name, constraint in DualQMLW._parameter_constraints.items()
        if name not in ("rho", "lam", "rule", "width")
    } | {
        "rhos": ["array-like"],
        "lams": ["array-like"],
        "rules": [tuple, list],
        "widths": ["array-like"],
        "random_state": ["random_state"],
    }

    _saved: ClassVar[Saved] = DualQMLW._saved.extended(
        best_lam_=NUMBER,
        best_rho_=NUMBER,
        best_rule_=TEXT,
        best_width_=NUMBER,
        best_params_=DICT,
        best_score_=SCORE,
        cv_losses_=(REPORT_CUBE | NOTHING).of("n_rules", "n_rhos", "n_lams"),
        cv_results_=DICT,
    )

    def __init__(
        self,
        *,
        rhos: Sequence[float] = (0.01, 0.1, 0.5, 5.0, 30.0),
        lams: Sequence[float] = (0.03, 0.17, 1.0),
        rules: Sequence[Rule] = ("cosine", "max"),
        own_weight: float = 0.5,
        kernel: KernelChoice = "auto",
        widths: Sequence[float] = (16.0, 4.0),
        image_shape: SizeLike | None = None,
        kappa: float = 0.2,
        descriptor: Descriptor | None = None,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.rhos = rhos
        self.lams = lams
        self.rules = rules
        self.own_weight = own_weight
        self.kernel = kernel
        self.widths = widths
        self.image_shape = image_shape
        self.kappa = kappa
        self.descriptor = descriptor
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_samples(self, samples: PreparedSamples, codes: Index) -> None:
        rhos = _positive_values("rhos", self.rhos)
        lams = _positive_values("lams", self.lams)
        widths = _positive_values("widths", self.widths)
        if not self.rules or any(rule not in ("cosine", "max") for rule in self.rules):
            raise ValueError(
                "rules must name at least one of 'cosine' and 'max', got "
                f"{self.rules!r}"
            )
        system = self._metric(1.0, widths[0])._coordinate_system(samples)
        self.cv_losses_ = None
        self.best_rule_ = self.rules[-1]
        self.best_rho_, self.best_lam_ = float(rhos[0]), float(lams[0])
        self.best_width_ = float(widths[0])
        tried: list[tuple[Rule, float, float, float]] = []
        scores: list[float] = []
        if np.bincount(codes).max() > 1:
            folds = recognition_folds(codes, self.random_state)
            losses = self._losses(system, codes, folds, self.rules, rhos, lams)
            self.cv_losses_ = losses.mean(axis=(0, -1))
            tried += product(self.rules, rhos, lams, widths[:1])
            scores += (-self.cv_losses_).ravel().tolist()
            rule = _preferred_rule(losses[0])
            rule_losses = self.cv_losses_[rule]
            lowest_at = np.unravel_index(rule_losses.argmin(), rule_losses.shape)
            i, j = (int(k) for k in lowest_at)
            self.best_rule_ = self.rules[rule]
            self.best_rho_, self.best_lam_ = float(rhos[i]), float(lams[j])
            lowest, nearby = rule_losses[i, j], rhos[max(i - 1, 0) : i + 2]
            for width in widths[1:]:
                if not isinstance(system, KernelCoordinates):
                    break
                other = system.at_width(width / self.best_width_)
                found = self._losses(
                    other, codes, folds, [self.best_rule_], nearby, lams[[j]]
                ).mean(axis=(0, -1))[0, :, 0]
                tried += product([self.best_rule_], nearby, lams[[j]], [width])
                scores += (-found).tolist()
                if found.min() < lowest:
                    lowest, system = found.min(), other
                    self.best_width_ = float(width)
                    self.best_rho_ = float(nearby[found.argmin()])
        best = (self.best_rule_, self.best_rho_, self.best_lam_, self.best_width_)
        self.best_params_ = _candidate_params(*best)
        # With one sample per class nothing is held out, and nothing is tried.
        candidates = [_candidate_params(*candidate) for candidate in tried or [best]]
        mean_scores = np.array(scores or [np.nan])
        self.cv_results_ = search_results(candidates, mean_scores)
        self.best_score_ = float(mean_scores[candidates.index(self.best_params_)])
        metric = self._metric(self.best_rho_, self.best_width_)
        self._fit_at(metric, system, codes, self.best_lam_, self.best_rule_)

    def _losses(
        self,
        system: CoordinateSystem,
        codes: Index,
        folds: Sequence[RecognitionFold],
        rules: Sequence[Rule],
        rhos: Array,
        lams: Array,
    ) -> Array:
        """Losses by gallery, rule, rho, lam and held-out sample."""
        with one_blas_thread():
            parts = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(self._fold_losses)(system, codes, fold, rules, rhos, lams)
                for fold in folds
            )
        return np.concatenate(parts, axis=-1)

    def _fold_losses(
        self,
        system: CoordinateSystem,
        codes: Index,
        fold: RecognitionFold,
        rules: Sequence[Rule],
        rhos: Array,
        lams: Array,
    ) -> Array:
        """Losses of the held-out samples of a fold."""
        learnt = system.learnt_from(fold.train)
        spectrum = within_spectrum(learnt, codes[fold.train], self.kappa)
        training = learnt.training @ spectrum.directions
        probes = system.coordinates_of(learnt, fold.train, fold.held_out)
        probes = probes @ spectrum.directions
        true = codes[fold.held_out]
        losses = np.empty((2, len(rules), rhos.size, lams.size, true.size))
        for i, rho in enumerate(rhos):
            whitened = spectrum.whitened(training, rho)
            whitened_probes = spectrum.whitened(probes, rho)
            for g, gallery in enumerate(fold.galleries):
                own = codes[gallery]
                known = whitened[np.searchsorted(fold.train, gallery)]
                filters = SurrogateFilters(known, whitened_probes, own)
                for j, lam in enumerate(lams):
                    responses = filters.responses(lam)
                    for r, rule in enumerate(rules):
                        scores = self._scores(rule, *responses, own)
                        # Where there is no second gallery, the first counts twice.
                        losses[g:, r, i, j] = rank_loss(scores, true)
        return losses

    def _scores(self, rule: Rule, training: Array, probes: Array, own: Index) -> Array:
        """Scores of all classes from the responses of the filters of all classes."""
        if rule == "max":
            return probes
        profiles, mean = profile_gallery(
            training, own, own_weight=self.own_weight, centre=True
        )
        return class_similarities(centred(probes, mean), profiles, own, probes.shape[1])

    def _check_saved(self, path: Path) -> None:
        super()._check_saved(path)
        check_search_results(self.cv_results_, path)


def _candidate_params(
    rule: Rule, rho: float, lam: float, width: float
) -> dict[str, Any]:
    return {"rule": rule, "rho": float(rho), "lam": float(lam), "width": float(width)}


def _preferred_rule(losses: Array) -> int:
    """The last rule, unless another one is better by more than one standard error.

    Parameters
    ----------
    losses : ndarray of shape (n_rules, n_rhos, n_lams, n_probes)
        Losses of the probes. Each rule is judged at its best rho and lam.

    Returns
    -------
    int
        Index of the rule.
    """
    means = losses.mean(axis=-1)
    at_best = [
        own[np.unravel_index(mean.argmin(), mean.shape)]
        for own, mean in zip(losses, means, strict=True)
    ]
    chosen = len(at_best) - 1
    for rule in reversed(range(chosen)):
        gain = at_best[chosen] - at_best[rule]
        if gain.mean() > gain.std() / np.sqrt(gain.size):
            chosen = rule
    return chosen


def _positive_values(name: str, values: Sequence[float]) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or array.size == 0 or not (array > 0).all():
        raise ValueError(
            f"{name} must be a non-empty list of positive numbers, got {values!r}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {values!r}")
    return array
