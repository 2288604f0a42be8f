from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml.exceptions import DualQMLError
from dualqml.extractors import ERE, Fisherfaces, NearestSample
from dualqml.extractors.tuning import (
    _ENOUGH_PROBES,
    RankSearchCV,
    rank_loss,
    recognition_folds,
    spread_folds,
)
from tests.problems import make_data

sizes_lists = st.lists(st.integers(1, 9), min_size=2, max_size=12).filter(
    lambda sizes: max(sizes) > 1
)


@given(sizes=sizes_lists, n_folds=st.integers(2, 12), seed=st.integers(0, 99))
def test_folds_are_a_partition_that_keeps_classes_in_training(sizes, n_folds, seed):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    folds = spread_folds(codes, n_folds, seed)
    held_out = np.concatenate([test for _, test in folds])
    expected = np.flatnonzero(np.array(sizes)[codes] > 1)
    np.testing.assert_array_equal(np.sort(held_out), expected)
    for train, test in folds:
        assert np.intersect1d(train, test).size == 0
        assert train.size + test.size == codes.size
        np.testing.assert_array_equal(np.unique(codes[train]), np.arange(len(sizes)))
        # A class's samples are spread as evenly as they can be.
        counts = np.bincount(codes[test], minlength=len(sizes))
        assert (counts <= np.ceil(np.array(sizes) / len(folds))).all()
    lengths = [test.size for _, test in folds]
    assert max(lengths) - min(lengths) <= 1


def test_folds_depend_on_the_seed_only():
    codes = np.repeat(np.arange(5), 4)
    first = spread_folds(codes, 4, 1)
    for a, b in zip(first, spread_folds(codes, 4, 1), strict=True):
        np.testing.assert_array_equal(a[1], b[1])
    other = spread_folds(codes, 4, 2)
    assert any((a[1] != b[1]).any() for a, b in zip(first, other, strict=True))


def test_one_sample_each_cannot_be_validated():
    with pytest.raises(ValueError, match="at least 2 samples"):
        spread_folds(np.arange(6), 3, 0)


@given(sizes=sizes_lists, seed=st.integers(0, 99))
def test_in_recognition_folds_every_class_has_lost_a_sample(sizes, seed):
    sizes = np.array(sizes)
    codes = np.repeat(np.arange(sizes.size), sizes)
    for fold in recognition_folds(codes, seed):
        assert np.intersect1d(fold.train, fold.held_out).size == 0
        assert fold.train.size + fold.held_out.size == codes.size
        assert np.isin(fold.gallery, fold.train).all()
        assert (np.diff(fold.gallery) > 0).all()
        held_out, gallery = (
            np.bincount(codes[rows], minlength=sizes.size)
            for rows in (fold.held_out, fold.gallery)
        )
        # A class of one sample cannot lose it; all others lose one, or those
        # that are held out if they are more.
        lost = np.where(sizes == 1, 0, np.maximum(held_out, 1))
        np.testing.assert_array_equal(gallery, sizes - lost)
        assert gallery.min() >= 1


@pytest.mark.parametrize(
    ("sizes", "n_made"),
    [
        ([2] * 60, 34),  # 12 held out each, until there are 400
        ([2] * 120, 10),
        ([2] * 5, 40),
        ([4] * 30, 17),
        ([3] * 100, 5),
        ([1, 2, 2, 2, 9], 40),
    ],
)
def test_small_sets_are_dealt_several_times(sizes, n_made):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    folds = recognition_folds(codes, 0)
    assert len(folds) == n_made
    held_out = np.bincount(
        np.concatenate([fold.held_out for fold in folds]), minlength=codes.size
    )
    several = np.array(sizes)[codes] > 1
    assert (held_out[~several] == 0).all()
    # No sample more often than any other by more than a deal.
    assert np.ptp(held_out[several]) <= 1


def test_of_large_sets_enough_are_held_out():
    codes = np.repeat(np.arange(1000), 2)
    sizes = [fold.held_out.size for fold in recognition_folds(codes, 0)]
    assert set(sizes) == {200}
    # No fold more than it takes.
    assert sum(sizes[:-1]) < _ENOUGH_PROBES <= sum(sizes)


def test_deals_differ_and_depend_on_the_seed_only():
    codes = np.repeat(np.arange(20), 3)
    first, again, other = (recognition_folds(codes, seed) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.gallery, b.gallery)
        np.testing.assert_array_equal(a.held_out, b.held_out)
    assert any(
        not np.array_equal(a.gallery, b.gallery)
        for a, b in zip(first, other, strict=True)
    )
    assert not np.array_equal(first[0].held_out, first[5].held_out)


def test_one_sample_each_has_no_recognition_folds():
    with pytest.raises(ValueError, match="at least 2 samples"):
        recognition_folds(np.arange(6), 0)


@given(
    n_classes=st.integers(1, 6), n_samples=st.integers(1, 8), seed=st.integers(0, 99)
)
def test_rank_loss_is_that_of_a_slow_loop(n_classes, n_samples, seed):
    rng = np.random.default_rng(seed)
    # Few values, so that many are equal.
    scores = rng.integers(0, 3, size=(n_samples, n_classes)).astype(float)
    codes = rng.integers(0, n_classes, size=n_samples)
    expected = []
    for row, true in zip(scores, codes, strict=True):
        ahead = [c for c in range(n_classes) if c != true and row[c] >= row[true]]
        expected.append(np.log(1 + len(ahead)))
    np.testing.assert_allclose(rank_loss(scores, codes), expected)


def test_ties_count_against_the_true_class():
    scores = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [2.0, 3.0, 2.0]])
    loss = rank_loss(scores, np.array([2, 2, 0]))
    np.testing.assert_allclose(loss, np.log([3, 3, 3]))


def test_the_whole_training_set_is_a_gallery_where_much_larger():
    two = recognition_folds(np.repeat(np.arange(60), 2), 0)[0]
    assert [rows.size for rows in two.galleries] == [two.gallery.size, two.train.size]
    many = recognition_folds(np.repeat(np.arange(10), 30), 0)[0]
    assert len(many.galleries) == 1


X, y = make_data([3] * 12, 30, noise=1.5, unit=False)
GRID = {"fisherfaces__shrinkage": [0.1, 1e-4, 10.0]}


def fisher():
    return make_pipeline(Fisherfaces(), NearestSample())


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that remembers what it was fitted to, and fails on demand."""

    fitted: ClassVar = []

    def __init__(self, *, value=0.0, error=None):
        self.value = value
        self.error = error

    def fit(self, X, y):
        if self.error is not None:
            raise self.error
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.means_ = np.array([X[codes == c].mean(axis=0) for c in np.unique(codes)])
        Recorder.fitted.append(X[:, 0])
        return self

    def decision_function(self, X):
        return -((X[:, None, :] - self.means_) ** 2).sum(axis=2)

    def predict(self, X):
        return self.classes_[self.decision_function(X).argmax(axis=1)]


@pytest.fixture
def recorded():
    Recorder.fitted.clear()
    return Recorder.fitted


@pytest.mark.parametrize("labels", [y, np.array([f"c{c:02}" for c in 11 - y])])
def test_losses_are_those_of_a_loop_by_hand(labels):
    search = RankSearchCV(fisher(), GRID, random_state=3).fit(X, labels)
    _, codes = np.unique(labels, return_inverse=True)
    expected = []
    for shrinkage in GRID["fisherfaces__shrinkage"]:
        losses = []
        for fold in recognition_folds(codes, 3):
            extractor = Fisherfaces(shrinkage=shrinkage)
            extractor.fit(X[fold.train], codes[fold.train])
            probes = extractor.transform(X[fold.held_out])
            own = []
            for gallery in (fold.gallery, fold.train):
                decide = NearestSample()
                decide.fit(extractor.transform(X[gallery]), codes[gallery])
                scores = decide.decision_function(probes)
                own.append(rank_loss(scores, codes[fold.held_out]))
            losses.append(np.mean(own, axis=0))
        expected.append(np.concatenate(losses).mean())
    np.testing.assert_allclose(search.cv_results_["loss"], expected, rtol=1e-12)
    assert len(set(expected)) == 3
    best = {
        "fisherfaces__shrinkage": GRID["fisherfaces__shrinkage"][np.argmin(expected)]
    }
    assert search.best_params_ == best
    assert search.cv_results_["params"][np.argmin(expected)] == best
    refitted = fisher().set_params(**best).fit(X, labels)
    np.testing.assert_array_equal(search.predict(X), refitted.predict(X))
    np.testing.assert_array_equal(
        search.decision_function(X), refitted.decision_function(X)
    )
    np.testing.assert_array_equal(search.classes_, np.unique(labels))
    assert search.score(X, labels) == refitted.score(X, labels)


def test_other_classifiers_are_fitted_to_the_gallery(recorded):
    data = X.copy()
    data[:, 0] = np.arange(36)  # so that rows know who they are
    RankSearchCV(Recorder(), {"value": [0.0]}, random_state=0).fit(data, y)
    folds = recognition_folds(y, 0)
    assert len(recorded) == 2 * len(folds) + 1
    for fold, few, all_ in zip(folds, recorded[::2], recorded[1::2], strict=False):
        np.testing.assert_array_equal(few, fold.gallery)
        np.testing.assert_array_equal(all_, fold.train)
    np.testing.assert_array_equal(recorded[-1], np.arange(36))


def test_the_last_step_of_a_pipeline_is_fitted_to_the_gallery(recorded):
    data = X.copy()
    data[:, 0] = np.arange(36)
    pipeline = Pipeline([("keep", "passthrough"), ("classify", Recorder())])
    RankSearchCV(pipeline, {"classify__value": [0.0]}, random_state=0).fit(data, y)
    for rows, fold in zip(recorded[::2], recognition_folds(y, 0), strict=False):
        np.testing.assert_array_equal(rows, fold.gallery)


@pytest.mark.parametrize("pipeline", [False, True])
def test_the_nearest_sample_alone_has_nothing_to_learn(pipeline):
    model = Pipeline([("n", NearestSample())]) if pipeline else NearestSample()
    name = "n__metric" if pipeline else "metric"
    search = RankSearchCV(model, {name: ["cosine", "euclidean"]}, random_state=0).fit(
        X, y
    )
    losses = []
    for metric in ("cosine", "euclidean"):
        own = []
        for fold in recognition_folds(y, 0):
            for gallery in (fold.gallery, fold.train):
                decide = NearestSample(metric=metric).fit(X[gallery], y[gallery])
                scores = decide.decision_function(X[fold.held_out])
                own.append(rank_loss(scores, y[fold.held_out]))
        losses.append(np.concatenate(own).mean())
    np.testing.assert_allclose(search.cv_results_["loss"], losses)


def test_ties_go_to_the_first_candidate():
    search = RankSearchCV(Recorder(), {"value": [3.0, 1.0, 2.0]}, random_state=0).fit(
        X, y
    )
    assert np.ptp(search.cv_results_["loss"]) == 0.0
    assert search.best_params_ == {"value": 3.0}


def test_two_classes():
    data, labels = make_data([5, 5], 12, noise=2.0, unit=False)
    grid = {"shrinkage": [0.9, 0.1]}
    model = LinearDiscriminantAnalysis(solver="lsqr")
    search = RankSearchCV(model, grid, random_state=0).fit(data, labels)
    for candidate, loss in zip([0.9, 0.1], search.cv_results_["loss"], strict=True):
        missed = []
        for fold in recognition_folds(labels, 0):
            own = clone(model).set_params(shrinkage=candidate)
            for gallery in fold.galleries:
                own.fit(data[gallery], labels[gallery])
                missed.append(own.predict(data[fold.held_out]) != labels[fold.held_out])
        # A miss is rank two of two.
        assert loss == pytest.approx(np.log(2.0) * np.concatenate(missed).mean())
    assert search.decision_function(data).shape == (10,)
    assert max(search.cv_results_["loss"]) > 0.0


@pytest.mark.parametrize("error", [ValueError("no"), DualQMLError("no")])
def test_a_candidate_that_fails_is_not_chosen(error):
    search = RankSearchCV(Recorder(), {"error": [error, None]}, random_state=0).fit(
        X, y
    )
    assert search.best_params_ == {"error": None}
    assert search.cv_results_["loss"][0] == np.inf
    assert np.isfinite(search.cv_results_["loss"][1])


def test_the_last_error_is_raised_where_all_fail():
    errors = [ValueError("first"), DualQMLError("last")]
    with pytest.raises(DualQMLError, match="last"):
        RankSearchCV(Recorder(), {"error": errors}, random_state=0).fit(X, y)


def test_other_errors_are_not_hidden():
    grid = {"error": [TypeError("a bug"), None]}
    with pytest.raises(TypeError, match="a bug"):
        RankSearchCV(Recorder(), grid, random_state=0).fit(X, y)


def test_unknown_parameters_are_an_error():
    with pytest.raises(ValueError, match="Invalid parameter 'mu'"):
        RankSearchCV(
            fisher(), {"mu": [1.0], "fisherfaces__shrinkage": [0.1]}, random_state=0
        ).fit(X, y)
    with pytest.raises(ValueError, match="param_grid"):
        RankSearchCV(fisher(), 3, random_state=0).fit(X, y)


def test_one_sample_per_class_takes_the_first_candidate():
    data, labels = make_data([1] * 6, 20)
    search = RankSearchCV(fisher(), GRID, random_state=0).fit(data, labels)
    assert search.best_params_ == {"fisherfaces__shrinkage": 0.1}
    assert np.isnan(search.cv_results_["loss"]).all()
    assert search.score(data, labels) == 1.0


def test_some_classes_of_one_sample():
    data, labels = make_data([1, 2, 3, 1, 5], 20, noise=1.0)
    search = RankSearchCV(fisher(), GRID, random_state=0).fit(data, labels)
    assert np.isfinite(search.cv_results_["loss"]).all()


def test_results_do_not_depend_on_the_number_of_threads():
    one, two = (
        RankSearchCV(fisher(), GRID, n_jobs=n_jobs, random_state=0).fit(X, y)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.cv_results_["loss"], two.cv_results_["loss"])
    assert one.best_params_ == two.best_params_
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_random_state_deals_the_folds():
    first, again, other = (
        RankSearchCV(fisher(), GRID, random_state=seed).fit(X, y).cv_results_["loss"]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_estimator_and_candidates_are_not_touched():
    estimator, value = fisher(), ERE(mu=2.0)
    grid = {"fisherfaces": [value, Fisherfaces()]}
    search = RankSearchCV(estimator, grid, random_state=0).fit(X, y)
    assert not hasattr(value, "components_")
    assert not hasattr(estimator[0], "components_")
    assert search.estimator is estimator
    copy = clone(search)
    assert not hasattr(copy, "best_params_")
    assert copy.get_params()["estimator__fisherfaces__shrinkage"] == 0.1


def test_a_list_of_grids():
    grids = [{"fisherfaces__shrinkage": [0.1]}, {"fisherfaces": [ERE()]}]
    search = RankSearchCV(fisher(), grids, random_state=0).fit(X, y)
    assert len(search.cv_results_["params"]) == 2


@parametrize_with_checks(
    [RankSearchCV(fisher(), {"fisherfaces__shrinkage": [0.1, 1.0]})]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
