# SPDX-License-Identifier: BSD-3-Clause
"""DualQML in a within-class metric: the extension that leads."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dualqml.core.arrays import Array, Index
from dualqml.extractors._base import SupervisedExtractor
from dualqml.extractors._compat import Interval, StrOptions
from dualqml.extractors._geometry import Geometry
from dualqml.extractors._images import SizeLike
from dualqml.extractors._prepared import PreparedSamples
from dualqml.extractors.dual_qml_classifier import DualQMLClassifier, Rule
from dualqml.extractors.within_metric import Descriptor, KernelChoice, WithinMetric


class DualQMLW(ClassifierMixin, SupervisedExtractor):
    """Exact quadratic matrix learning in a within-class metric (DualQML-W).

    The paper's problem treats all directions alike. Here it is solved, exactly
    and unchanged, in the coordinates of :class:`WithinMetric`, where the
    differences between images of one person are small; the features are the
    signed roots of the quadratic ones. They are decided by cosine similarity
    to the training samples about the mean feature, or by the largest.

    :class:`DualQMLWCV` chooses the parameters; use that unless you know them.

    Read more in the :ref:`user guide <lead>`.

    Parameters
    ----------
    rho : float, default=0.1
        Weight of the prior in the metric, see :class:`WithinMetric`.
    lam : float, default=0.1
        The regularisation parameter lambda of QML; in these coordinates it
        does not depend on the scale of the data.
    rule : {"cosine", "max"}, default="cosine"
        - "cosine": nearest neighbour with cosine similarity of features about
          the mean of the training features. Right where the images of a person
          vary as those of others do: poses, lighting.
        - "max": the class of the largest feature. Right for embeddings.
    own_weight : float, default=0.5
        Factor of a training sample's feature of its own class (rule
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
        Share of small affine motions in the prior, for images.
    descriptor : {"local"}, default=None
        "local" replaces images by their :class:`LocalDescriptors`.
    tol : float, default=1e-6
        Relative duality gap and constraint violation that count as solved.
    n_jobs : int, default=None
        Threads over groups of classes.

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
        Names of features seen during fit, where X has string names.

    See Also
    --------
    DualQMLWCV : Parameters chosen on the training set.
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

    def prepare(self, X: ArrayLike) -> PreparedSamples:
        """Compute what a fit needs of each training sample by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.

        Returns
        -------
        PreparedSamples
            For :meth:`fit_prepared`. Parts can be joined and taken apart, so that
            samples may come and go without preparing the others again.
        """
        self._validate_params()
        data = check_array(X, dtype=np.float64)
        return self._metric(1.0, 1.0).prepare(data)

    def uses_products(self, n_samples: int, n_inputs: int) -> bool:
        """Whether :meth:`fit_prepared` uses the products of all pairs of samples.

        Parameters
        ----------
        n_samples : int
            Number of training samples.
        n_inputs : int
            Number of their inputs, after a descriptor.

        Returns
        -------
        bool
            Else it needs the tangents themselves.
        """
        return self._metric(1.0, 1.0)._uses_products(n_samples, n_inputs)

    def fit_prepared(self, samples: PreparedSamples, y: ArrayLike) -> Self:
        """Learn from samples that have been prepared; the same as ``fit``.

        Parameters
        ----------
        samples : PreparedSamples
            From :meth:`prepare` of an estimator with the same `image_shape`,
            `kappa` and `descriptor`.
        y : array-like of shape (n_samples,)
            Class labels, at least two different ones.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        target = np.asarray(y)
        if target.shape != samples.inputs.shape[:1]:
            raise ValueError(
                f"{samples.inputs.shape[0]} samples need as many labels, got an array "
                f"of shape {target.shape}"
            )
        self.n_features_in_ = samples.n_features
        codes = self._class_codes(target)
        self._fit_samples(samples, codes)
        return self

    def _fit(self, data: Array, codes: Index) -> None:
        self._fit_samples(self._metric(1.0, 1.0).prepare(data), codes)

    def _fit_samples(self, samples: PreparedSamples, codes: Index) -> None:
        metric = self._metric(self.rho, self.width)
        self._fit_at(metric, metric.geometry(samples), codes, self.lam, self.rule)

    def _metric(self, rho: float, width: float) -> WithinMetric:
        return WithinMetric(
            rho=rho,
            kernel=self.kernel,
            width=width,
            image_shape=self.image_shape,
            kappa=self.kappa,
            descriptor=self.descriptor,
        )

    def _fit_at(
        self,
        metric: WithinMetric,
        geometry: Geometry,
        codes: Index,
        lam: float,
        rule: Rule,
    ) -> None:
        """Learn the metric, and in it the matrices of all classes."""
        self.metric_ = metric
        self.metric_.n_features_in_ = self.n_features_in_
        self.metric_.classes_ = self.classes_
        coordinates = self.metric_.learn(geometry, codes)
        self.qml_ = DualQMLClassifier(
            lam,
            rule=rule,
            features="signed-root",
            own_weight=self.own_weight,
            centre=True,
            tol=self.tol,
            # A sample in the very centre has no direction, and no constraint.
            zero_samples="ignore",
            n_jobs=self.n_jobs,
        ).fit(coordinates, self.classes_[codes])

    def _features(self, data: Array) -> Array:
        return np.asarray(self.qml_.transform(self.metric_._features(data)))

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
            of the class. Rule "max": the signed roots. With two classes, the
            score of the second less that of the first.
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

    def _coordinates(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.metric_._features(data)

    @property
    def _n_features_out(self) -> int:
        return int(self.classes_.size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Rows are scaled to unit norm: their length, which may be all that
        # tells classes apart, is not used.
        tags.classifier_tags.poor_score = True
        return tags
