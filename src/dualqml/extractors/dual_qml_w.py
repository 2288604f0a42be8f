# SPDX-License-Identifier: BSD-3-Clause
"""DualQML-W: quadratic matrix learning in a within-class metric.

This module has the classifier with given parameters, and the classifier that chooses
them on the training set.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._saved_state import (
    DICT,
    NOTHING,
    NUMBER,
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
from dualqml.extractors._coordinates import CoordinateSystem, n_kernel_landmarks
from dualqml.extractors._left_out_scores import class_probabilities
from dualqml.extractors._parameter_search import (
    Candidate,
    Choice,
    Grid,
    is_better,
    search_parameters,
)
from dualqml.extractors.background import Background
from dualqml.extractors.dual_qml import DualQMLClassifier, Rule
from dualqml.extractors.prepared_samples import (
    MOST_MOVING,
    Descriptor,
    PreparedSamples,
    spread_rows,
)
from dualqml.extractors.probabilities import ClassProbabilities
from dualqml.extractors.tuning import check_search_results, search_results
from dualqml.extractors.within_metric import KernelChoice, WithinMetric
from dualqml.images.shapes import SizeLike

InputChoice = Literal["auto", "local"]

#: Profiles of images of at least this number of classes tell more than single responses
#: as a rule.
_ENOUGH_CLASSES = 20
#: Most pairs of a sample and a class for which rule "cosine" is tried: its profiles
#: take 200 MB then.
MOST_PROFILES = 25_000_000


class Variant(NamedTuple):
    """What the metric is made of."""

    descriptor: Descriptor | None
    background_weight: float


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
    background : Background, default=None
        Statistics of other people, who are not in the training set, see
        :class:`WithinMetric`.
    background_weight : float, default=1.0
        Weight of a sample of the background, relative to a training sample.
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
    probabilities_ : ClassProbabilities or None
        What scores mean, see :mod:`dualqml.extractors.probabilities`. None in the model
        of a recogniser, which learns the meaning of its own scores.
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
        metric_=instance_of(WithinMetric),
        qml_=instance_of(DualQMLClassifier),
        probabilities_=instance_of(ClassProbabilities) | NOTHING,
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
        background: Background | None = None,
        background_weight: float = 1.0,
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
        self.descriptor: InputChoice | None = descriptor
        self.background = background
        self.background_weight = background_weight
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
            of the class. Rule "max": the signed roots, divided by
            ``qml_.class_scale_`` if classes have different numbers of samples. With two
            classes, the score of the second minus that of the first.
        """
        coordinates = self._coordinates(X)
        return self.qml_.decision_function(coordinates)

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
        coordinates = self._coordinates(X)
        return self.qml_.class_scores(coordinates)

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

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of every class, if the sample is of one of them.

        What scores mean was learnt from training samples that were left out, one at a
        time, in closed form.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities; those of a sample add up to 1.
        """
        scores = self.class_scores(X)
        return self._known_probabilities().of_classes(scores)

    def predict_unknown_proba(self, X: ArrayLike, *, prior: float = 0.5) -> Array:
        """Probability that a sample is of none of the classes.

        It was learnt from classes that were left out, one at a time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        prior : float, default=0.5
            The probability before the sample was seen, above 0 and below 1.

        Returns
        -------
        ndarray of shape (n_samples,)
            The probabilities u. Those of the classes are then ``(1 - u)`` times
            ``predict_proba``.
        """
        if not 0.0 < prior < 1.0:
            raise ValueError(f"prior must be between 0 and 1, got {prior!r}")
        scores = self.class_scores(X)
        return self._known_probabilities().of_unknown(scores, prior)

    def _known_probabilities(self) -> ClassProbabilities:
        if self.probabilities_ is None:
            raise AttributeError(
                "This model was fitted without probabilities, as those of recognisers "
                "are; fit it by fit"
            )
        return self.probabilities_

    def _fit(self, data: Array, codes: Index) -> None:
        moving = spread_rows(codes, MOST_MOVING)
        self._fit_samples(self._metric(1.0, 1.0)._prepare(data, moving), codes)

    def _fit_samples(
        self, samples: PreparedSamples, codes: Index, *, probabilities: bool = True
    ) -> None:
        """Learn from prepared samples, with or without what scores mean."""
        metric = self._metric(self.rho, self.width)
        system = metric._coordinate_system(samples, codes)
        self._fit_at(
            metric, system, codes, self.lam, self.rule, probabilities=probabilities
        )

    def _fit_at(
        self,
        metric: WithinMetric,
        system: CoordinateSystem,
        codes: Index,
        lam: float,
        rule: Rule,
        *,
        probabilities: bool = True,
    ) -> None:
        """Learn the metric, and in it the matrices of all classes."""
        self.metric_ = metric
        self.metric_.n_features_in_ = self.n_features_in_
        self.metric_.classes_ = self.classes_
        coordinates = self.metric_._learn(system, codes)
        # What it teaches is in the coefficients now. One copy is enough.
        self.metric_.background = None
        qml = self._new_qml(lam, rule)
        # Not by its fit, which needs two classes.
        qml.n_features_in_, qml.classes_ = coordinates.shape[1], self.classes_
        qml._fit(coordinates, codes)
        self.qml_ = qml
        self.probabilities_: ClassProbabilities | None = None
        if not probabilities:
            return
        with one_blas_thread():
            self.probabilities_ = class_probabilities(
                system.coarse(),
                codes,
                kappa=self.kappa,
                rho=metric.rho,
                lam=lam,
                rule=rule,
                own_weight=self.own_weight,
                energy=float(qml.energies_.mean()),
            )

    def _new_qml(self, lam: float, rule: Rule) -> DualQMLClassifier:
        """QML for the coordinates of the metric, not fitted."""
        return DualQMLClassifier(
            lam,
            rule=rule,
            features="signed-root",
            own_weight=self.own_weight,
            centre=True,
            tol=self.tol,
            # A sample exactly at the centre has no direction, so it has no constraint.
            zero_samples="ignore",
            n_jobs=self.n_jobs,
        )

    def _least_classes(self) -> int:
        # A background shows how samples of one person differ from those of others.
        return 2 if self.background is None else 1

    def _metric(
        self, rho: float, width: float, variant: "Variant | None" = None
    ) -> WithinMetric:
        """The metric, not fitted, by default of the preferred variant."""
        if variant is None:
            variant = self._variants()[-1]
        return WithinMetric(
            rho=rho,
            kernel=self.kernel,
            width=width,
            image_shape=self.image_shape,
            kappa=self.kappa,
            descriptor=variant.descriptor,
            background=self.background,
            background_weight=variant.background_weight,
        )

    def _variants(self) -> list["Variant"]:
        """The inputs and weights of the background to try; the last is preferred."""
        descriptor = None if self.descriptor == "auto" else self.descriptor
        return [Variant(descriptor, self.background_weight)]

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
            found = metric.kernel_.samples.shape[0]
            wanted = n_kernel_landmarks(qml.dual_coef_.size, metric.n_inputs_)
            expect_equal(found, wanted, path, "metric_", "samples of a kernel", "qml_")


class DualQMLWCV(DualQMLW):
    """DualQML-W with all important parameters chosen on the training set.

    The weight of the prior, lambda, the decision rule, the width of the kernel and the
    input are chosen for the lowest loss: the mean logarithm of the rank of the true
    class of training samples that are left out, one at a time. Nothing is fitted for
    a left-out sample. What it changes in the metric and in the classifier has a closed
    form, in which linear filters replace QML. The final model is exact.

    This is the estimator to try first.

    Read more in the :ref:`user guide <dual_qml_w>`.

    Parameters
    ----------
    rhos : array-like of shape (n_rhos,), default=(0.0008, 0.004, 0.02, 0.1, 0.5, \
2.5, 12.5, 60.0)
        Weights of the prior to try.
    lams : array-like of shape (n_lams,), default=(0.002, 0.01, 0.05, 0.25, 1.25, 6.0)
        Values of lambda to try. Not all pairs are tried: the search starts with every
        second rho and third lambda, and then tries the values next to the best until
        they are worse.
    rules : sequence of {"cosine", "max"}, default=("cosine", "max")
        Decision rules to try, see :class:`DualQMLW`. "cosine" is preferred for images
        of at least 20 classes, else "max": the preferred rule is chosen unless the
        other one is clearly better: "max" by 2.25 standard errors, "cosine" by 4,
        as it is either far better or worse for vectors. "cosine" is not tried
        for more than 25 million pairs of a sample and a class, as it keeps a number
        for each pair, unless it is the only rule.
    own_weight : float, default=0.5
        Factor of the feature of its own class, for training samples (rule
        "cosine"), see :class:`DualQMLClassifier`.
    kernel : {"auto", "rbf", "linear"}, default="auto"
        The coordinates, see :class:`WithinMetric`.
    widths : array-like of shape (n_widths,), default=(4.0, 16.0)
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
    descriptor : {"auto", "local"} or None, default="auto"
        "local" replaces images by their :class:`~dualqml.images.LocalDescriptors`.
        None uses the rows as they are. "auto" tries both for images (`image_shape` is
        given), and chooses the descriptors unless the pixels are better by more than
        one standard error. Rows that are not images are used as they are.
    background : Background, default=None
        Statistics of other people, who are not in the training set, see
        :class:`WithinMetric`.
    background_weights : array-like of shape (n_weights,), default=(0.0, 1.0)
        Weights of the background to try. 0 means that it is not used. The last one is
        preferred: another one is chosen if it is better by more than one standard
        error.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    n_jobs : int, default=None
        Number of threads over groups of classes in the final fit.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice and the order of the samples that are left out.
    verbose : int, default=0
        1 prints each step of the fit, 2 also the loss of each candidate.

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
    best_descriptor_ : str or None
        The chosen input.
    best_background_weight_ : float
        The chosen weight of the background; 0 if there is none.
    best_params_ : dict
        The chosen rule, rho, lam, width and descriptor, and with a background its
        weight, for :class:`DualQMLW`.
    best_score_ : float
        Minus the mean loss of the chosen parameters on left-out samples; NaN if
        nothing could be left out.
    cv_results_ : dict
        All candidates that were tried, as in
        :class:`sklearn.model_selection.GridSearchCV`: "params", "mean_test_score"
        (minus the mean loss) and "rank_test_score".
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    metric_ : WithinMetric
        The fitted metric.
    qml_ : DualQMLClassifier
        QML fitted on the coordinates of the training samples, with its
        certificate.
    probabilities_ : ClassProbabilities or None
        What scores mean, see :mod:`dualqml.extractors.probabilities`. None in the model
        of a recogniser, which learns the meaning of its own scores.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    See Also
    --------
    DualQMLW : The same with given parameters.

    Notes
    -----
    A left-out sample is compared with all other samples. Then its own class has one
    sample less than the others. With two or three samples per class the wrong rule
    would be chosen by that, so the rules are compared with a gallery in which every
    class has one sample less. This gallery is smaller than the final one, and needs
    more regularisation. So rho and lam of rule "cosine", which hardly depends on the
    number of samples of a class, are chosen with all other samples.

    If only a few left-out samples are not recognised, candidates differ by one or two
    of them. So rho and lam that are far from usual values (0.3 and 0.2 for "cosine", 1
    and 0.03 for "max") must be better by more than that.

    Differences between neighbouring values are often smaller than their standard
    errors. So the chosen rho and lam are means of their logarithms over all candidates,
    each with the weight that its difference to the lowest loss allows.

    The search costs a small multiple of a fit, for any number of samples: it uses at
    most 256 leading coordinates, 1,000 classes and 32 samples of each. So many samples
    of each class are left out in turn that about 25 of them are not recognised.

    If every class has one sample, nothing can be left out. Then rule "max", if it is
    one of `rules`, the smallest lambda and, for images, the descriptors are chosen, and
    rho has no effect. With a background, its rho and lambda are taken, unless the mean
    of the samples shows that they are not of such people.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml import DualQMLWCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DualQMLWCV(image_shape=(8, 8), random_state=0).fit(X[::4], y[::4])
    >>> model.best_rule_, model.best_descriptor_
    ('max', 'local')
    >>> model.score(X[1::4], y[1::4]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: constraint
        for name, constraint in DualQMLW._parameter_constraints.items()
        if name
        not in ("rho", "lam", "rule", "width", "descriptor", "background_weight")
    } | {
        "rhos": ["array-like"],
        "lams": ["array-like"],
        "rules": [tuple, list],
        "widths": ["array-like"],
        "descriptor": [StrOptions({"auto", "local"}), None],
        "background_weights": ["array-like"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    _saved: ClassVar[Saved] = DualQMLW._saved.extended(
        best_lam_=NUMBER,
        best_rho_=NUMBER,
        best_rule_=TEXT,
        best_width_=NUMBER,
        best_descriptor_=TEXT | NOTHING,
        best_background_weight_=NUMBER,
        best_params_=DICT,
        best_score_=SCORE,
        cv_results_=DICT,
    )

    def __init__(
        self,
        *,
        rhos: Sequence[float] = (0.0008, 0.004, 0.02, 0.1, 0.5, 2.5, 12.5, 60.0),
        lams: Sequence[float] = (0.002, 0.01, 0.05, 0.25, 1.25, 6.0),
        rules: Sequence[Rule] = ("cosine", "max"),
        own_weight: float = 0.5,
        kernel: KernelChoice = "auto",
        widths: Sequence[float] = (4.0, 16.0),
        image_shape: SizeLike | None = None,
        kappa: float = 0.2,
        descriptor: InputChoice | None = "auto",
        background: Background | None = None,
        background_weights: Sequence[float] = (0.0, 1.0),
        tol: float = 1e-6,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
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
        self.background = background
        self.background_weights = background_weights
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _variants(self) -> list[Variant]:
        descriptors: list[Descriptor | None] = [None]
        if self.descriptor == "local":
            descriptors = ["local"]
        elif self.descriptor == "auto" and self.image_shape is not None:
            descriptors = [None, "local"]
        if self.background is None:
            return [Variant(descriptor, 0.0) for descriptor in descriptors]
        weights = _positive_values(
            "background_weights", self.background_weights, zero=True
        )
        # A background has samples of one kind.
        kind = self.background.descriptor
        if kind not in descriptors:
            raise ValueError(
                f"The background is of descriptor={kind!r}, which is not tried with "
                f"descriptor={self.descriptor!r} and image_shape={self.image_shape!r}"
            )
        return [
            Variant(descriptor, weight)
            for weight in map(float, weights)
            for descriptor in descriptors
            if weight == 0.0 or descriptor == kind
        ]

    def _fit(self, data: Array, codes: Index) -> None:
        moving = spread_rows(codes, MOST_MOVING)
        samples = {
            variant.descriptor: self._metric(1.0, 1.0, variant)._prepare(data, moving)
            for variant in self._variants()
        }
        self._fit_inputs(samples, codes)

    def _fit_samples(
        self, samples: PreparedSamples, codes: Index, *, probabilities: bool = True
    ) -> None:
        inputs = {self._variants()[-1].descriptor: samples}
        self._fit_inputs(inputs, codes, probabilities=probabilities)

    def _fit_inputs(
        self,
        inputs: dict[Descriptor | None, PreparedSamples],
        codes: Index,
        *,
        probabilities: bool = True,
    ) -> None:
        """Choose the parameters and one of several variants, and fit the model."""
        grid = self._grid(codes.size)
        if np.bincount(codes).max() > 1 and self.classes_.size > 1:

            def system_of(variant: Variant) -> CoordinateSystem | None:
                if variant.descriptor not in inputs:
                    return None
                metric = self._metric(1.0, float(grid.widths[0]), variant)
                return metric._coordinate_system(inputs[variant.descriptor], codes)

            variant, choice = self._chosen(system_of, codes, grid)
            best, system = choice.best, choice.system
        else:
            variant, best = self._unsearched(inputs, codes, grid)
            metric = self._metric(best.rho, best.width, variant)
            system = metric._coordinate_system(inputs[variant.descriptor], codes)
        self._report(1, f"chosen: {self.best_params_}; fitting the final model")
        metric = self._metric(best.rho, best.width, variant)
        self._fit_at(
            metric, system, codes, best.lam, best.rule, probabilities=probabilities
        )

    def _unsearched(
        self,
        inputs: dict[Descriptor | None, PreparedSamples],
        codes: Index,
        grid: Grid,
    ) -> tuple[Variant, Candidate]:
        """The choice with one sample per class: nothing is left out, nothing tried."""
        variant = self._preferred_variant(inputs, codes)
        best = Candidate(
            grid.rules[-1],
            float(grid.rhos[0]),
            float(grid.lams[0]),
            float(grid.widths[0]),
        )
        if variant.background_weight > 0.0 and self.background is not None:
            best = replace(best, rho=self.background.rho, lam=self.background.lam)
        self._keep_results([(variant, best)], [np.nan], variant, best)
        return variant, best

    def _preferred_variant(
        self, inputs: dict[Descriptor | None, PreparedSamples], codes: Index
    ) -> Variant:
        """The last variant; without the background if it is of other people."""
        *others, last = self._variants()
        if self.background is not None and last.background_weight > 0.0:
            rows = inputs[last.descriptor].inputs
            self.background.check_inputs(rows.shape[1], last.descriptor)
            without = last._replace(background_weight=0.0)
            # One or two people do not show what kind of people they are.
            if without in others and self.classes_.size > 2:
                return last if self.background.resembles(rows, codes) else without
        return last

    def _chosen(
        self,
        system_of: Callable[[Variant], CoordinateSystem | None],
        codes: Index,
        grid: Grid,
    ) -> tuple[Variant, Choice]:
        """Search the parameters for each variant, and choose a variant.

        `system_of` gives the coordinate system of a variant, None if there is none.
        """
        # The same samples are left out for each variant.
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        choices: dict[Variant, Choice] = {}
        tried: list[tuple[Variant, Candidate]] = []
        losses: list[float] = []
        for variant in self._variants():
            system = system_of(variant)
            if system is None:
                continue
            name: str = variant.descriptor or "rows as they are"
            if self.background is not None:
                name += f", weight {variant.background_weight:g} of the background"
            self._report(1, f"choosing parameters on {len(codes)} samples, {name}")
            with one_blas_thread():
                choice = search_parameters(
                    system,
                    codes,
                    grid,
                    kappa=self.kappa,
                    own_weight=self.own_weight,
                    random_state=np.random.RandomState(seed),
                    report=lambda text: self._report(2, text),
                )
            choices[variant] = choice
            tried += [(variant, candidate) for candidate in choice.tried]
            losses += choice.losses
        # The last variant, unless another one is better by more than a standard error.
        *others, chosen = choices
        for variant in reversed(others):
            losses_here = choices[variant].by_sample
            if is_better(losses_here, choices[chosen].by_sample, 1.0):
                chosen = variant
        self._keep_results(tried, losses, chosen, choices[chosen].best)
        return chosen, choices[chosen]

    def _keep_results(
        self,
        tried: list[tuple[Variant, Candidate]],
        losses: list[float],
        variant: Variant,
        best: Candidate,
    ) -> None:
        """Set the attributes that tell what was tried and chosen."""
        self.best_rule_, self.best_rho_ = best.rule, best.rho
        self.best_lam_, self.best_width_ = best.lam, best.width
        self.best_descriptor_ = variant.descriptor
        self.best_background_weight_ = variant.background_weight
        candidates = [self._params(*pair) for pair in tried]
        scores = -np.array(losses)
        self.best_params_ = self._params(variant, best)
        self.cv_results_ = search_results(candidates, scores)
        self.best_score_ = float(scores[candidates.index(self.best_params_)])

    def _params(self, variant: Variant, candidate: Candidate) -> dict[str, Any]:
        """Parameters of :class:`DualQMLW` by name."""
        params = candidate.params | {"descriptor": variant.descriptor}
        if self.background is not None:
            params["background_weight"] = variant.background_weight
        return params

    def _grid(self, n_samples: int) -> Grid:
        """The values to try, checked."""
        rhos = np.sort(_positive_values("rhos", self.rhos))
        lams = np.sort(_positive_values("lams", self.lams))
        widths = _positive_values("widths", self.widths)
        if not self.rules or any(rule not in ("cosine", "max") for rule in self.rules):
            raise ValueError(
                "rules must name at least one of 'cosine' and 'max', got "
                f"{self.rules!r}"
            )
        n_classes = self.classes_.size
        one_each = n_samples == n_classes
        too_many = n_samples * n_classes > MOST_PROFILES
        images = self.image_shape is not None or self.descriptor == "local"
        # The preferred rule comes last.
        rules: list[Rule] = sorted(set(self.rules))
        if "max" in rules and (one_each or too_many):
            rules = ["max"]
        elif images and n_classes >= _ENOUGH_CLASSES:
            rules.reverse()
        return Grid(rhos, lams, rules, widths)

    def _report(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(f"[{type(self).__name__}] {text}")

    def _check_saved(self, path: Path) -> None:
        super()._check_saved(path)
        check_search_results(self.cv_results_, path)


def _positive_values(
    name: str, values: Sequence[float], *, zero: bool = False
) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    allowed = array >= 0 if zero else array > 0
    if array.ndim != 1 or array.size == 0 or not allowed.all():
        kind = "numbers that are not negative" if zero else "positive numbers"
        raise ValueError(f"{name} must be a non-empty list of {kind}, got {values!r}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {values!r}")
    return array
