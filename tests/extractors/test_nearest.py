import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from dualqml.extractors import NearestSample


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_equals_scikit_learn(metric, rng):
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
    assert model.metric_ == "euclidean"
    assert list(model.predict([[2.0], [4.0]])) == ["low", "high"]


def test_zero_vectors_are_no_problem():
    model = NearestSample().fit([[0.0, 0.0], [1.0, 0.0]], [0, 1])
    assert model.predict([[2.0, 0.0]])[0] == 1
    assert np.isfinite(model.decision_function([[0.0, 0.0]])).all()
