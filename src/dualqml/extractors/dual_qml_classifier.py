# SPDX-License-Identifier: BSD-3-Clause
"""DualQML with the paper's two decision rules."""

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dualqml.core.arrays import Array, Index
from dualqml.extractors._compat import Interval, StrOptions
from dualqml.extractors._neighbours import class_similarities, nearest
from dualqml.extractors._profiles import centred, profile_gallery
from dualqml.extractors.dual_qml import DualQML, Features

Rule = Literal["cosine", "max"]


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
