import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from dualqml import DualQML, DualQMLClassifier
from tests.problems import make_data

X, y = make_data([4] * 8, 30, noise=1.2)
X_TEST, y_test = make_data([12] * 8, 30, noise=1.2)


def test_max_rule_is_equation_14():
    model = DualQMLClassifier(2.0, rule="max").fit(X, y)
    features = DualQML(2.0).fit(X, y).transform(X_TEST)
    np.testing.assert_array_equal(model.predict(X_TEST), features.argmax(axis=1))
    np.testing.assert_array_equal(model.decision_function(X_TEST), features)


def test_cosine_rule_is_nearest_neighbour_on_the_training_features():
    model = DualQMLClassifier(2.0).fit(X, y)
    extractor = DualQML(2.0).fit(X, y)
    neighbours = KNeighborsClassifier(1, metric="cosine").fit(extractor.transform(X), y)
    np.testing.assert_array_equal(
        model.predict(X_TEST), neighbours.predict(extractor.transform(X_TEST))
    )
    scores = model.decision_function(X_TEST)
    assert scores.shape == (96, 8)
    np.testing.assert_array_equal(model.predict(X_TEST), scores.argmax(axis=1))


def test_training_samples_are_recognised():
    assert DualQMLClassifier().fit(X, y).score(X, y) == 1.0


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_two_classes_have_one_score(rule):
    two = y < 2
    model = DualQMLClassifier(rule=rule).fit(X[two], y[two])
    scores = model.decision_function(X[two])
    assert scores.shape == (8,)
    np.testing.assert_array_equal(model.predict(X[two]), (scores > 0).astype(int))


def test_string_labels_come_back():
    names = np.array([f"person {i}" for i in range(8)])
    model = DualQMLClassifier().fit(X, names[y])
    np.testing.assert_array_equal(model.predict(X), names[y])


def test_ties_go_to_the_first_training_sample():
    # The same image under two names: the first one wins.
    data = np.vstack([X, X[:1]])
    labels = np.append(y, 7)
    model = DualQMLClassifier(tol=1e-9).fit(data, labels)
    features = model.training_features_
    np.testing.assert_allclose(features[0], features[-1], atol=1e-12)
    assert model.predict(data[:1])[0] == labels[0]


def test_ignored_zero_samples_are_never_the_nearest():
    data = np.vstack([np.zeros((1, 30)), X])
    model = DualQMLClassifier(zero_samples="ignore").fit(data, np.append(0, y))
    np.testing.assert_array_equal(model.predict(X), y)
