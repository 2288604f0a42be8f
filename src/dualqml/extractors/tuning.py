# SPDX-License-Identifier: BSD-3-Clause
"""Choose parameters by how well held-out training samples are recognised.

The folds imitate recognition, and the loss is the logarithm of the rank of the true
class.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dualqml._saved_state import (
    DICT,
    ESTIMATOR,
    LABELS,
    SCORE,
    STATELESS,
    Path,
    Saved,
    expect,
    expect_equal,
    fitted,
)
from dualqml._sklearn import _fit_context, class_codes, one_blas_thread
from dualqml._typing import Array, Index
from dualqml.exceptions import DualQMLError

ParamGrid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]

#: Folds are made until this number of samples have been held out.
_ENOUGH_PROBES = 400
#: Most times that the samples are shuffled and split into folds.
_MOST_SHUFFLES = 4


class RankSearchCV(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Choose the parameters of a classifier by the ranks of the true classes.

    It is made for classes of a few samples, where error rates on held-out samples
    are too coarse to compare candidates. The loss of a sample is
    ``log(1 + number of other classes that score at least as high as the true one)``.
    It is averaged over two galleries of each fold. In the first gallery, all classes
    have one sample less, not only the class of the held-out sample. The second
    gallery has all samples that are not held out.

    Read more in the :ref:`user guide <competitors>`.

    Parameters
    ----------
    estimator : estimator object
        A classifier with `decision_function`. In a pipeline, the steps before the
        last are fitted to all training samples of a fold, and the last step to the
        gallery. Any other classifier is fitted to the gallery.
    param_grid : dict or list of dict
        Values to try for each parameter, by name, in all combinations, as in
        :class:`sklearn.model_selection.GridSearchCV`.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds.
    n_jobs : int, default=None
        Number of threads over candidates and folds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    best_estimator_ : estimator object
        The classifier with the chosen parameters, fitted to all samples.
    best_params_ : dict
        The candidate with the lowest loss, the first if several are equal.
    best_score_ : float
        Mean score of the chosen candidate: minus its mean loss.
    cv_results_ : dict
        "params", the list of candidates, and arrays with one value per candidate:
        "loss", the mean loss over all held-out samples, "mean_test_score", minus
        the loss, and "rank_test_score", 1 for the best. The loss is infinite if the
        classifier cannot be fitted. It is NaN if every class has one sample: then
        nothing can be held out, and the first candidate is chosen.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, if X has string names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dualqml.extractors import Fisherfaces, NearestSample
    >>> from dualqml.extractors.tuning import RankSearchCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(Fisherfaces(), NearestSample())
    >>> grid = {"fisherfaces__shrinkage": [0.01, 0.1, 1.0]}
    >>> search = RankSearchCV(model, grid, random_state=0)
    >>> search.fit(X[:100], y[:100]).best_params_
    {'fisherfaces__shrinkage': 1.0}
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # it validates itself when it is fitted
        "param_grid": [dict, list],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    _saved: ClassVar[Saved] = replace(
        fitted(
            classes_=LABELS.of("n_classes"),
            best_estimator_=ESTIMATOR,
            best_params_=DICT,
            best_score_=SCORE,
            cv_results_=DICT,
        ),
        parameters={**STATELESS.parameters, "estimator": ESTIMATOR},
    )

    def __init__(
        self,
        estimator: BaseEstimator,
        param_grid: ParamGrid,
        *,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.random_state = random_state
        self.n_jobs = n_jobs

    # The parameters of the classifier have not been validated yet.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose the parameters, and fit the classifier with them to all samples.

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
        self.cv_results_ = search_results(candidates, -losses) | {"loss": losses}
        self.best_params_ = candidates[best]
        self.best_score_ = float(-losses[best])
        self.best_estimator_ = self._candidate(self.best_params_).fit(data, target)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict classes with the chosen parameters.

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
        """Scores of all classes with the chosen parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Scores. With two classes there is one score, for the second class.
        """
        data = self._checked(X)
        return np.asarray(self.best_estimator_.decision_function(data))

    def _checked(self, X: ArrayLike) -> NDArray[np.floating]:
        check_is_fitted(self)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)

    def _candidate(self, params: Mapping[str, Any]) -> Any:
        # Values may be estimators, which candidates must not share.
        return clone(self.estimator).set_params(**clone(dict(params), safe=False))

    def _losses(
        self,
        candidates: list[dict[str, Any]],
        data: NDArray[np.floating],
        target: NDArray[Any],
        codes: Index,
    ) -> Array:
        """Mean loss of each candidate; infinite if a fold cannot be fitted."""
        folds = recognition_folds(codes, self.random_state)
        models = [self._candidate(params) for params in candidates]
        # Threads over folds and threads of BLAS would slow each other down.
        one_job = self.n_jobs is None or self.n_jobs == 1
        with nullcontext() if one_job else one_blas_thread():
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

    def _check_saved(self, path: Path) -> None:
        """Raise if the best estimator has other features or classes than the search."""
        best = self.best_estimator_
        found, wanted = getattr(best, "n_features_in_", None), self.n_features_in_
        if found is not None:
            source = "n_features_in_"
            expect_equal(found, wanted, path, "best_estimator_", "features", source)
        classes, wanted = getattr(best, "classes_", None), self.classes_.size
        if classes is not None:
            found = classes.size
            expect_equal(found, wanted, path, "best_estimator_", "classes", "classes_")
        check_search_results(self.cv_results_, path)


@dataclass(frozen=True)
class RecognitionFold:
    """A fold that imitates recognition: training samples, gallery and probes.

    Attributes
    ----------
    train : ndarray of int
        Samples to learn a metric or features from: all samples that are not held
        out, in ascending order.
    gallery : ndarray of int
        Training samples to compare with. Every class has one sample less.
    held_out : ndarray of int
        The samples to recognise (probes).
    """

    train: Index
    gallery: Index
    held_out: Index

    @property
    def galleries(self) -> list[Index]:
        """The gallery, and the whole training set if that is much larger.

        Neither equals the gallery of the final model. In the first, every class has
        one sample less. This is fair, but needs more regularisation than the final
        model. In the second, only the class of the probe has one sample less.
        Parameters are best chosen by the average of both. A choice between rules that
        compare different things should be fair, so it uses only the first.
        """
        if self.gallery.size > 0.9 * self.train.size:
            return [self.gallery]
        return [self.gallery, self.train]


def spread_folds(
    codes: Index, n_folds: int, random_state: int | np.random.RandomState | None
) -> list[tuple[Index, Index]]:
    """Random folds of equal size that separate the samples of each class.

    The samples of a class are put into different folds as far as possible, so that a
    class of two samples is always in the training set. The only sample of a class is
    never held out.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Class of each sample, 0 to n_classes - 1.
    n_folds : int
        Number of folds, at most the number of samples that can be held out. Fewer
        than two folds raise an error.
    random_state : int, RandomState instance or None
        Seed of the shuffle.

    Returns
    -------
    list of (train, held_out)
        Index arrays, one pair per fold.
    """
    rng = check_random_state(random_state)
    counts = np.bincount(codes)
    shuffled = rng.permutation(codes.size)
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    order = order[counts[codes[order]] > 1]
    n_folds = min(n_folds, order.size)
    if n_folds < 2:
        raise ValueError(
            "Cross-validation needs a class with at least 2 samples; every class "
            "has one. Choose lam yourself and use DualQMLClassifier."
        )
    # The samples are sorted by class, so consecutive samples of one class go to
    # different folds.
    fold = np.full(codes.size, -1)
    fold[order] = np.arange(order.size) % n_folds
    return [
        (np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)
    ]


def recognition_folds(
    codes: Index, random_state: int | np.random.RandomState | None
) -> list[RecognitionFold]:
    """Folds in which every class has one sample less in the gallery.

    If only the class of a probe had one sample less, scores that grow with the
    number of samples would be judged wrongly. With two samples per class the error
    is large. So of each class of several samples without a held-out sample, one
    random sample is left out of the gallery. It stays in the training set.

    There are ten folds if classes have two samples, else five. Few probes give a
    noisy loss, and very many cost time. So the samples are shuffled and split again
    until some hundreds of samples have been held out, and folds after that are not
    used.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Class of each sample, 0 to n_classes - 1.
    random_state : int, RandomState instance or None
        Seed of the shuffles.

    Returns
    -------
    list of RecognitionFold
        The folds.
    """
    rng = check_random_state(random_state)
    counts = np.bincount(codes)
    n_folds = 10 if np.median(counts) <= 2 else 5
    n_shuffles = _MOST_SHUFFLES if codes.size <= _ENOUGH_PROBES // 2 else 1
    folds: list[RecognitionFold] = []
    n_probes = 0
    for _ in range(n_shuffles):
        for train, held_out in spread_folds(codes, n_folds, rng):
            if n_probes >= _ENOUGH_PROBES:
                return folds
            n_probes += held_out.size
            untouched = np.setdiff1d(np.flatnonzero(counts > 1), codes[held_out])
            shuffled = rng.permutation(train)
            _, first = np.unique(codes[shuffled], return_index=True)
            left_out = shuffled[first][np.isin(codes[shuffled[first]], untouched)]
            gallery = np.setdiff1d(train, left_out)
            folds.append(RecognitionFold(train, gallery, held_out))
    return folds


def rank_loss(scores: Array, codes: Index) -> Array:
    """Logarithm of the rank of the true class, 0 if it comes first.

    It is far less noisy than the error rate, as it also measures how bad an error
    is.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
        Similarities.
    codes : ndarray of shape (n_samples,)
        True classes.

    Returns
    -------
    ndarray of shape (n_samples,)
        ``log(1 + number of other classes with a score at least as large)``. A tie
        counts as an error.
    """
    true = np.take_along_axis(scores, codes[:, None], axis=1)
    return np.asarray(np.log((scores >= true).sum(axis=1)))


def search_results(
    candidates: list[dict[str, Any]], scores: Array, splits: Array | None = None
) -> dict[str, Any]:
    """The `cv_results_` of a search, under the names that scikit-learn uses.

    Parameters
    ----------
    candidates : list of dict
        The parameters that were tried.
    scores : ndarray of shape (n_candidates,)
        The mean score of each candidate; the larger, the better.
    splits : ndarray of shape (n_folds, n_candidates), optional
        The scores of each fold.

    Returns
    -------
    dict
        "params", "mean_test_score" and "rank_test_score"; with `splits` also
        "std_test_score" and "split0_test_score" and so on.
    """
    results: dict[str, Any] = {
        "params": candidates,
        "mean_test_score": scores,
        # As in scikit-learn, candidates with equal scores share the lowest rank.
        "rank_test_score": rankdata(-scores, method="min").astype(np.int64)
        if np.isfinite(scores).any()
        else np.ones(scores.size, dtype=np.int64),
    }
    if splits is not None:
        results["std_test_score"] = splits.std(axis=0)
        for fold, own in enumerate(splits):
            results[f"split{fold}_test_score"] = own
    return results


def check_search_results(results: dict[str, Any], path: Path) -> None:
    """Raise if the results of a search do not have one value per candidate.

    Parameters
    ----------
    results : dict
        The `cv_results_` of an estimator that was loaded.
    path : tuple of str
        Where the estimator is, for messages.

    Raises
    ------
    ValueProblem
        A list or an array has another length than the list of candidates.
    """
    candidates = results.get("params")
    n_candidates = len(candidates) if isinstance(candidates, list) else 0
    expect(n_candidates > 0, path, "cv_results_", "does not have the list 'params'")
    for name, values in results.items():
        # A list from a file may be very long: it is not made an array of.
        one_each = isinstance(values, np.ndarray) and values.shape == (n_candidates,)
        what = f"does not have a {name} for each candidate"
        expect(name == "params" or one_each, path, "cv_results_", what)


def _fold_losses(
    model: Any,
    data: NDArray[np.floating],
    target: NDArray[Any],
    codes: Index,
    fold: RecognitionFold,
) -> Array | Exception:
    """Losses of the held-out samples, or the error if the fit fails."""
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
    """Scores of all classes for the held-out samples, one array per gallery."""
    if isinstance(model, Pipeline) and len(model) > 1:
        extractor, model = model[:-1], model[-1]
        extractor.fit(data[fold.train], target[fold.train])
        # The fit does not use held-out samples. Transforming all samples is simplest.
        data = extractor.transform(data)
    return [
        np.asarray(
            model.fit(data[gallery], target[gallery]).decision_function(
                data[fold.held_out]
            )
        )
        for gallery in fold.galleries
    ]
