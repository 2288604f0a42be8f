# SPDX-License-Identifier: BSD-3-Clause
"""DualQML-W with metric, lambda and decision rule chosen on the training set."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed

from dualqml.core.arrays import Array, Index
from dualqml.extractors._folds import RecognitionFold, rank_loss, recognition_folds
from dualqml.extractors._geometry import Geometry, KernelGeometry
from dualqml.extractors._images import SizeLike
from dualqml.extractors._neighbours import class_similarities
from dualqml.extractors._pinned import PinnedFilters
from dualqml.extractors._prepared import PreparedSamples
from dualqml.extractors._profiles import centred, profile_gallery
from dualqml.extractors._threads import one_blas_thread
from dualqml.extractors._within import within_spectrum
from dualqml.extractors.dual_qml_classifier import Rule
from dualqml.extractors.dual_qml_w import DualQMLW
from dualqml.extractors.within_metric import Descriptor, KernelChoice


class DualQMLWCV(DualQMLW):
    """DualQML-W with all that matters chosen by cross-validation.

    The weight of the prior, lambda, the decision rule and the width of the
    kernel are those of the lowest mean logarithm of the rank of the true class
    among held-out training samples. The folds share the kernel and the
    tangents, each fold one eigenproblem between all rho, and QML is replaced
    there by a closed form that behaves alike; the final model is exact.

    This is the estimator to try first.

    Read more in the :ref:`user guide <lead>`.

    Parameters
    ----------
    rhos : array-like of shape (n_rhos,), default=(0.01, 0.1, 0.5, 5.0, 30.0)
        Weights of the prior to try.
    lams : array-like of shape (n_lams,), default=(0.03, 0.17, 1.0)
        Values of lambda to try.
    rules : sequence of {"cosine", "max"}, default=("cosine", "max")
        Decision rules to try, see :class:`DualQMLW`. The last is taken unless
        another is better by more than a standard error.
    own_weight : float, default=0.5
        Factor of a training sample's feature of its own class (rule
        "cosine"), see :class:`DualQMLClassifier`.
    kernel : {"auto", "rbf", "linear"}, default="auto"
        The coordinates, see :class:`WithinMetric`.
    widths : array-like of shape (n_widths,), default=(16.0, 4.0)
        Variances of the kernel to try, in units of the median squared distance.
        With the first everything is tried; with the others the chosen rule and
        lambda, and rho about the chosen one.
    image_shape : tuple of int, default=None
        Height and width of the images in the rows of X. None means that the
        rows are not images, or with a `descriptor` that they are square images
        of at least 8 x 8 pixels.
    kappa : float, default=0.2
        Share of small affine motions in the prior, for images.
    descriptor : {"local"}, default=None
        "local" replaces images by their :class:`LocalDescriptors`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    n_jobs : int, default=None
        Threads over folds, then over groups of classes.
    random_state : int, RandomState instance or None, default=0
        Shuffle of the folds.

    Attributes
    ----------
    best_rho_ : float
        The chosen weight of the prior.
    best_lam_ : float
        The chosen lambda.
    best_rule_ : str
        The chosen rule.
    best_width_ : float
        The chosen width; the first where the kernel is linear.
    cv_losses_ : ndarray of shape (n_rules, n_rhos, n_lams) or None
        Mean logarithm of the rank of the true class of held-out samples, over
        both galleries (see Notes), at the first of the widths. None
        where every class has one sample, so that nothing could be held out.
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
        Names of features seen during fit, where X has string names.

    See Also
    --------
    DualQMLW : Parameters given.

    Notes
    -----
    In a fold, every class has one sample less to be compared with, as the
    class of the held-out sample has. Otherwise scores of classes of different
    sizes are compared, and with two samples a class the choice of the rule
    goes wrong. That gallery is smaller than the final one and asks for more
    regularisation; so rho and lam are chosen, for the chosen rule, by the
    mean of its loss and that of the gallery with all samples.

    Where every class has one sample nothing can be held out: the last of
    `rules` and the first of `lams` are taken, and rho has no effect.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml import DualQMLWCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DualQMLWCV(image_shape=(8, 8)).fit(X[::4], y[::4])
    >>> model.best_rule_
    'max'
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
        random_state: int | np.random.RandomState | None = 0,
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
        rhos, lams = _positive("rhos", self.rhos), _positive("lams", self.lams)
        widths = _positive("widths", self.widths)
        if not self.rules or any(rule not in ("cosine", "max") for rule in self.rules):
            raise ValueError(
                "rules must name at least one of 'cosine' and 'max', got "
                f"{self.rules!r}"
            )
        geometry = self._metric(1.0, widths[0]).geometry(samples)
        self.cv_losses_ = None
        self.best_rule_ = self.rules[-1]
        self.best_rho_, self.best_lam_ = float(rhos[0]), float(lams[0])
        self.best_width_ = float(widths[0])
        if np.bincount(codes).max() > 1:
            folds = recognition_folds(codes, self.random_state)
            losses = self._losses(geometry, codes, folds, self.rules, rhos, lams)
            self.cv_losses_ = losses.mean(axis=(0, -1))
            rule = _preferred(losses[0])
            of_rule = self.cv_losses_[rule]
            i, j = (int(k) for k in np.unravel_index(of_rule.argmin(), of_rule.shape))
            self.best_rule_ = self.rules[rule]
            self.best_rho_, self.best_lam_ = float(rhos[i]), float(lams[j])
            lowest, nearby = of_rule[i, j], rhos[max(i - 1, 0) : i + 2]
            for width in widths[1:]:
                if not isinstance(geometry, KernelGeometry):
                    break
                other = geometry.at_width(width / self.best_width_)
                tried = self._losses(
                    other, codes, folds, [self.best_rule_], nearby, lams[[j]]
                ).mean(axis=(0, -1))[0, :, 0]
                if tried.min() < lowest:
                    lowest, geometry = tried.min(), other
                    self.best_width_ = float(width)
                    self.best_rho_ = float(nearby[tried.argmin()])
        metric = self._metric(self.best_rho_, self.best_width_)
        self._fit_at(metric, geometry, codes, self.best_lam_, self.best_rule_)

    def _losses(
        self,
        geometry: Geometry,
        codes: Index,
        folds: Sequence[RecognitionFold],
        rules: Sequence[Rule],
        rhos: Array,
        lams: Array,
    ) -> Array:
        """Loss of each gallery, rule, rho, lam and held-out sample."""
        with one_blas_thread():
            parts = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(self._fold_losses)(geometry, codes, fold, rules, rhos, lams)
                for fold in folds
            )
        return np.concatenate(parts, axis=-1)

    def _fold_losses(
        self,
        geometry: Geometry,
        codes: Index,
        fold: RecognitionFold,
        rules: Sequence[Rule],
        rhos: Array,
        lams: Array,
    ) -> Array:
        """Losses of the held-out samples of a fold."""
        placement = geometry.restricted(fold.train)
        spectrum = within_spectrum(placement, codes[fold.train], self.kappa)
        training = placement.training @ spectrum.directions
        probes = geometry.place(placement, fold.train, fold.held_out)
        probes = probes @ spectrum.directions
        true = codes[fold.held_out]
        losses = np.empty((2, len(rules), rhos.size, lams.size, true.size))
        for i, rho in enumerate(rhos):
            whitened = spectrum.whitened(training, rho)
            asked = spectrum.whitened(probes, rho)
            for g, gallery in enumerate(fold.galleries):
                own = codes[gallery]
                known = whitened[np.searchsorted(fold.train, gallery)]
                filters = PinnedFilters(known, asked, own)
                for j, lam in enumerate(lams):
                    responses = filters.responses(lam)
                    for r, rule in enumerate(rules):
                        scores = self._scores(rule, *responses, own)
                        # Where there is no second gallery, the first counts twice.
                        losses[g:, r, i, j] = rank_loss(scores, true)
        return losses

    def _scores(self, rule: Rule, training: Array, probes: Array, own: Index) -> Array:
        """Scores of all classes from responses to all classes."""
        if rule == "max":
            return probes
        profiles, mean = profile_gallery(
            training, own, own_weight=self.own_weight, centre=True
        )
        return class_similarities(centred(probes, mean), profiles, own, probes.shape[1])


def _preferred(losses: Array) -> int:
    """The last rule, unless another is better by more than a standard error.

    Parameters
    ----------
    losses : ndarray of shape (n_rules, n_rhos, n_lams, n_probes)
        Losses of the probes; each rule is judged at its best rho and lam.

    Returns
    -------
    int
        The rule.
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


def _positive(name: str, values: Sequence[float]) -> Array:
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
