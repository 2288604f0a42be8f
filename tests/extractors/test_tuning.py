from inspect import signature
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml.exceptions import DualQMLError
from dualqml.extractors import (
    ERE,
    MLE,
    DualQMLClassifierCV,
    DualQMLWCV,
    Fisherfaces,
    NearestSample,
)
from dualqml.extractors.tuning import (
    _ENOUGH_PROBES,
    RankSearchCV,
    rank_loss,
    recognition_folds,
    search_results,
    spread_folds,
)
from tests.problems import make_data

sizes_lists = st.lists(st.integers(1, 9), min_size=2, max_size=12).filter(
    lambda sizes: max(sizes) > 1
)

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


def fixed_scores(scores):
    """A grid search of scikit-learn with these scores, (n_folds, n_candidates)."""
    return GridSearchCV(
        Recorder(),
        {"value": list(range(scores.shape[1]))},
        cv=[([0, 1], [2 + fold]) for fold in range(len(scores))],
        scoring=lambda model, X, y: scores[int(X[0, 0]), model.value],
        refit=False,
    ).fit(np.array([[0.0], [1.0], *([f] for f in range(len(scores)))]), [0, 1, 0, 1, 0])


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


def test_one_sample_per_class_has_no_folds():
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
def test_small_sets_are_shuffled_several_times(sizes, n_made):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    folds = recognition_folds(codes, 0)
    assert len(folds) == n_made
    held_out = np.bincount(
        np.concatenate([fold.held_out for fold in folds]), minlength=codes.size
    )
    several = np.array(sizes)[codes] > 1
    assert (held_out[~several] == 0).all()
    # No sample is held out more than once more often than any other.
    assert np.ptp(held_out[several]) <= 1


def test_large_sets_hold_out_enough_samples_and_no_more():
    codes = np.repeat(np.arange(1000), 2)
    sizes = [fold.held_out.size for fold in recognition_folds(codes, 0)]
    assert set(sizes) == {200}
    # No fold more than it takes.
    assert sum(sizes[:-1]) < _ENOUGH_PROBES <= sum(sizes)


def test_shuffles_differ_and_depend_on_the_seed_only():
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


def test_one_sample_per_class_has_no_recognition_folds():
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


@pytest.mark.parametrize(
    "scores",
    [
        np.array([[0.5, 1.0, 0.5, 1.0, 0.0], [0.5, 0.5, 0.5, 0.5, 0.25], np.ones(5)]),
        np.full((3, 4), 0.75),
        np.array([[0.25, 0.5], [0.5, 0.25], [0.0, 1.0]]),
    ],
)
def test_search_results_are_those_of_scikit_learn(scores):
    expected = fixed_scores(scores).cv_results_
    results = search_results(expected["params"], scores.mean(axis=0), splits=scores)
    for name, values in results.items():
        if name != "params":
            np.testing.assert_allclose(values, expected[name], err_msg=name)
    assert results["params"] == expected["params"]
    same = {name for name in expected if name.endswith("test_score")}
    assert set(results) == same | {"params"}


def test_search_results_without_folds_have_no_deviations():
    results = search_results([{"a": 1}, {"a": 2}], np.array([0.5, 0.75]))
    assert set(results) == {"params", "mean_test_score", "rank_test_score"}
    np.testing.assert_array_equal(results["rank_test_score"], [2, 1])


@pytest.mark.parametrize(
    "kind",
    [DualQMLClassifierCV, DualQMLWCV, MLE, RankSearchCV],
    ids=lambda k: k.__name__,
)
def test_there_is_no_seed_by_default(kind):
    assert signature(kind).parameters["random_state"].default is None


def test_folds_without_a_seed_differ():
    codes = np.repeat(np.arange(20), 3)
    first, second = (spread_folds(codes, 4, None) for _ in range(2))
    assert any((a[1] != b[1]).any() for a, b in zip(first, second, strict=True))


def test_ties_count_against_the_true_class():
    scores = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [2.0, 3.0, 2.0]])
    loss = rank_loss(scores, np.array([2, 2, 0]))
    np.testing.assert_allclose(loss, np.log([3, 3, 3]))


def test_the_whole_training_set_is_a_second_gallery_if_much_larger():
    two = recognition_folds(np.repeat(np.arange(60), 2), 0)[0]
    assert [rows.size for rows in two.galleries] == [two.gallery.size, two.train.size]
    many = recognition_folds(np.repeat(np.arange(10), 30), 0)[0]
    assert len(many.galleries) == 1


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
    scores = search.cv_results_["mean_test_score"]
    np.testing.assert_array_equal(scores, -search.cv_results_["loss"])
    assert search.best_score_ == scores.max()
    ranks = np.argsort(np.argsort(expected)) + 1
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], ranks)
    refitted = fisher().set_params(**best).fit(X, labels)
    np.testing.assert_array_equal(search.predict(X), refitted.predict(X))
    np.testing.assert_array_equal(
        search.decision_function(X), refitted.decision_function(X)
    )
    np.testing.assert_array_equal(search.classes_, np.unique(labels))
    assert search.score(X, labels) == refitted.score(X, labels)


def test_other_classifiers_are_fitted_to_the_gallery(recorded):
    data = X.copy()
    data[:, 0] = np.arange(36)  # the number of the row
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
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], [1, 1, 1])


def test_two_classes_have_one_score():
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
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], [2, 1])


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
    assert np.isnan(search.best_score_)
    assert np.isnan(search.cv_results_["loss"]).all()
    assert np.isnan(search.cv_results_["mean_test_score"]).all()
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], [1, 1, 1])
    assert search.score(data, labels) == 1.0


def test_classes_of_one_sample_are_in_every_gallery(recorded):
    data, labels = make_data([1, 2, 3, 1, 5], 20, noise=1.0)
    data[:, 0] = np.arange(12)
    search = RankSearchCV(Recorder(), {"value": [0.0]}, random_state=0)
    assert np.isfinite(search.fit(data, labels).cv_results_["loss"]).all()
    for rows in recorded:
        assert np.isin([0, 6], rows).all()


def test_results_do_not_depend_on_the_number_of_threads():
    one, two = (
        RankSearchCV(fisher(), GRID, n_jobs=n_jobs, random_state=0).fit(X, y)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.cv_results_["loss"], two.cv_results_["loss"])
    assert one.best_params_ == two.best_params_
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_folds_of_a_search_depend_on_the_seed_only():
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
    first, second = search.cv_results_["params"]
    assert first == {"fisherfaces__shrinkage": 0.1}
    assert type(second["fisherfaces"]) is ERE
    alone = [RankSearchCV(fisher(), g, random_state=0).fit(X, y) for g in grids]
    losses = [float(one.cv_results_["loss"][0]) for one in alone]
    np.testing.assert_array_equal(search.cv_results_["loss"], losses)


@parametrize_with_checks(
    [RankSearchCV(fisher(), {"fisherfaces__shrinkage": [0.1, 1.0]})]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
