import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from dualqml._linalg import unit_rows
from dualqml.extractors import NearestMean, NearestSample
from dualqml.extractors import nearest as nearest_module
from dualqml.extractors.nearest import class_similarities, nearest


def test_the_nearest_mean_by_hand(rng):
    X, y = rng.normal(size=(12, 3)), np.repeat(["a", "b", "c"], 4)
    queries = rng.normal(size=(20, 3))
    model = NearestMean().fit(X, y)
    means = np.array([unit_rows(X[y == name]).mean(axis=0) for name in "abc"])
    cosines = unit_rows(queries) @ unit_rows(means).T
    np.testing.assert_allclose(model.decision_function(queries), cosines)
    assert model.predict(queries).tolist() == ["abc"[k] for k in cosines.argmax(axis=1)]


def test_the_nearest_mean_by_distance_is_that_of_scikit_learn(rng):
    X, y = rng.normal(size=(12, 3)), rng.permutation(np.repeat([3, 5, 9], 4))
    queries = rng.normal(size=(20, 3))
    ours = NearestMean(metric="euclidean").fit(X, y)
    theirs = NearestCentroid().fit(X, y)
    np.testing.assert_allclose(ours.gallery_, theirs.centroids_)
    np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))


@pytest.mark.parametrize("similarity_bytes", [1, 1000, 10**8])
def test_nearest_rows_are_those_of_scikit_learn(similarity_bytes, rng, monkeypatch):
    monkeypatch.setattr(nearest_module, "_SIMILARITY_BYTES", similarity_bytes)
    gallery, queries = rng.normal(size=(40, 6)), rng.normal(size=(30, 6))
    neighbours = KNeighborsClassifier(1, metric="cosine").fit(gallery, np.arange(40))
    np.testing.assert_array_equal(
        nearest(queries, unit_rows(gallery)), neighbours.predict(queries)
    )


def test_ties_of_rows_go_to_the_lowest_index():
    gallery = unit_rows(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(nearest(np.array([[3.0, 0.0]]), gallery), [1])


def test_zero_vectors_never_yield_nan():
    gallery = unit_rows(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert np.isfinite(gallery).all()
    scores = class_similarities(np.zeros((1, 2)), gallery, np.array([0, 1]), 2)
    np.testing.assert_array_equal(scores, [[0.0, 0.0]])
    np.testing.assert_array_equal(nearest(np.zeros((1, 2)), gallery), [0])


def test_class_scores_are_the_best_of_each_class(rng):
    gallery, queries = unit_rows(rng.normal(size=(12, 3))), rng.normal(size=(5, 3))
    codes = rng.permutation(np.repeat([0, 1, 2], 4))
    scores = class_similarities(queries, gallery, codes, 3)
    similarity = unit_rows(queries) @ gallery.T
    for c in range(3):
        np.testing.assert_allclose(scores[:, c], similarity[:, codes == c].max(axis=1))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_classifier_equals_that_of_scikit_learn(metric, rng):
    X, y = rng.normal(size=(60, 5)), rng.integers(0, 7, 60)
    queries = rng.normal(size=(40, 5))
    ours = NearestSample(metric=metric).fit(X, y)
    theirs = KNeighborsClassifier(1, metric=metric).fit(X, y)
    np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))
    scores = ours.decision_function(queries)
    np.testing.assert_array_equal(
        ours.classes_[scores.argmax(1)], ours.predict(queries)
    )


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ties_go_to_the_first_training_sample(metric):
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    model = NearestSample(metric=metric).fit(X, ["c", "b", "a"])
    assert model.predict([[1.0, 0.0]])[0] == "b"


def test_a_single_feature_is_compared_by_distance():
    model = NearestSample().fit([[1.0], [5.0]], ["low", "high"])
    assert model.effective_metric_ == "euclidean"
    assert list(model.predict([[2.0], [4.0]])) == ["low", "high"]


def test_a_zero_vector_has_the_cosine_zero():
    model = NearestSample().fit([[0.0, 0.0], [1.0, 0.0]], [0, 1])
    assert model.predict([[2.0, 0.0]])[0] == 1
    np.testing.assert_array_equal(model.decision_function([[0.0, 0.0]]), [0.0])
