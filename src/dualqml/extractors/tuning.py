# SPDX-License-Identifier: BSD-3-Clause
"""Choice of parameters by how well held-out training samples are recognised."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml.core import DualQMLError
from dualqml.core.arrays import Array, Index
from dualqml.extractors._base import class_codes
from dualqml.extractors._compat import _fit_context
from dualqml.extractors._folds import RecognitionFold, rank_loss, recognition_folds
from dualqml.extractors._threads import one_blas_thread

ParamGrid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


class RankSearchCV(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Choose the parameters of a classifier by the ranks of the true classes.

    Made for classes of a few samples, where error rates on held-out samples
    are too coarse to tell candidates apart: the loss of a sample is
    ``log(1 + number of classes that score as high as the true one or higher)``. It is
    averaged over two galleries of each fold: one in which all classes have lost
    a sample, so that the class asked for has no fewer than the others, and one
    with all samples that are not held out.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    estimator : estimator object
        A classifier with `decision_function`. Of a pipeline, the steps before
        the last learn from all training samples of a fold, and the last from
        the gallery. Any other classifier is fitted to the gallery.
    param_grid : dict or list of dict
        Values to try of each parameter, by name, in all combinations; as in
        :class:`sklearn.model_selection.GridSearchCV`.
    random_state : int, RandomState instance or None, default=0
        Shuffles of the folds.
    n_jobs : int, default=None
        Threads over candidates and folds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    best_estimator_ : estimator object
        The classifier with the chosen parameters, fitted to all samples.
    best_params_ : dict
        The candidate of the lowest loss, the first if several are equal.
    cv_results_ : dict
        "params", the list of candidates, and "loss", an ndarray with the mean
        loss of each over all held-out samples: infinite where the classifier
        cannot be fitted with it. Not a number where every class has one
        sample: then nothing can be held out, and the first candidate is taken.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, where X has string names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dualqml.extractors import Fisherfaces, NearestSample
    >>> from dualqml.extractors.tuning import RankSearchCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(Fisherfaces(), NearestSample())
    >>> search = RankSearchCV(model, {"fisherfaces__shrinkage": [0.01, 0.1, 1.0]})
    >>> search.fit(X[:100], y[:100]).best_params_
    {'fisherfaces__shrinkage': 1.0}
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # it speaks for itself when it is fitted
        "param_grid": [dict, list],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        param_grid: ParamGrid,
        *,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.random_state = random_state
        self.n_jobs = n_jobs

    # The parameters of the classifier are still to be validated.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose the parameters and fit with them to all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        data, target = validate_data(self, X, y, dtype=[np.float64, np.float32])
        self.classes_, codes = class_codes(target)
        candidates = list(ParameterGrid(self.param_grid))
        if np.bincount(codes).max() > 1:
            losses = self._losses(candidates, data, target, codes)
            best = int(losses.argmin())
        else:
            losses, best = np.full(len(candidates), np.nan), 0
        self.cv_results_ = {"params": candidates, "loss": losses}
        self.best_params_ = candidates[best]
        self.best_estimator_ = self._candidate(self.best_params_).fit(data, target)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classes that the classifier with the chosen parameters decides for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        data = self._checked(X)
        return np.asarray(self.best_estimator_.predict(data))

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores of the classes by the classifier with the chosen parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Scores; with two classes, a single one for the second.
        """
        data = self._checked(X)
        return np.asarray(self.best_estimator_.decision_function(data))

    def _checked(self, X: ArrayLike) -> NDArray[np.floating]:
        check_is_fitted(self)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)

    def _candidate(self, params: Mapping[str, Any]) -> Any:
        # Values may be estimators themselves, and must not be shared.
        return clone(self.estimator).set_params(**clone(dict(params), safe=False))

    def _losses(
        self,
        candidates: list[dict[str, Any]],
        data: NDArray[np.floating],
        target: NDArray[Any],
        codes: Index,
    ) -> Array:
        """Mean loss of each candidate; infinite where a fold cannot be fitted."""
        folds = recognition_folds(codes, self.random_state)
        models = [self._candidate(params) for params in candidates]
        # Threads of our own and of BLAS together would only collide.
        alone = self.n_jobs is None or self.n_jobs == 1
        with nullcontext() if alone else one_blas_thread():
            results = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(_fold_losses)(model, data, target, codes, fold)
                for model in models
                for fold in folds
            )
        losses = np.full(len(candidates), np.inf)
        error: Exception | None = None
        for c in range(len(candidates)):
            own = results[c * len(folds) : (c + 1) * len(folds)]
            errors = [result for result in own if isinstance(result, Exception)]
            if errors:
                error = errors[-1]
            else:
                losses[c] = np.concatenate(own).mean()
        if error is not None and not np.isfinite(losses).any():
            raise error
        return losses

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = deepcopy(get_tags(self.estimator).classifier_tags)
        return tags


def _fold_losses(
    model: Any,
    data: NDArray[np.floating],
    target: NDArray[Any],
    codes: Index,
    fold: RecognitionFold,
) -> Array | Exception:
    """Losses of the held-out samples, or why there are none."""
    try:
        all_scores = _fold_scores(clone(model), data, target, fold)
    except (ValueError, DualQMLError) as error:
        return error
    losses = []
    for scores in all_scores:
        if scores.ndim == 1:
            scores = np.column_stack([-scores, scores])
        losses.append(rank_loss(scores, codes[fold.held_out]))
    return np.asarray(np.mean(losses, axis=0))


def _fold_scores(
    model: Any, data: NDArray[np.floating], target: NDArray[Any], fold: RecognitionFold
) -> list[Array]:
    """Scores of all classes for the held-out samples, with each gallery."""
    if isinstance(model, Pipeline) and len(model) > 1:
        extractor, model = model[:-1], model[-1]
        extractor.fit(data[fold.train], target[fold.train])
        # Held-out samples are not learnt from; transforming all is simplest.
        data = extractor.transform(data)
    return [
        np.asarray(
            model.fit(data[gallery], target[gallery]).decision_function(
                data[fold.held_out]
            )
        )
        for gallery in fold.galleries
    ]
