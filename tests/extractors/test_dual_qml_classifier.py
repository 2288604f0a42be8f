import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from dualqml import DualQML, DualQMLClassifier, DualQMLClassifierCV
from dualqml._linalg import unit_rows
from dualqml.exceptions import InfeasibleError
from dualqml.extractors.nearest import class_similarities
from tests.problems import make_data

X, y = make_data([4] * 8, 30, noise=1.2)
X_TEST, y_test = make_data([12] * 8, 30, noise=1.2)

GRID = (0.1, 1.0, 10.0)


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


def test_the_defaults_are_the_papers_rule_to_the_last_bit():
    model = DualQMLClassifier().fit(X, y)
    paper = DualQML().fit(X, y)
    gallery = unit_rows(paper.transform(X))
    expected = class_similarities(paper.transform(X_TEST), gallery, y, 8)
    np.testing.assert_array_equal(model.decision_function(X_TEST), expected)
    np.testing.assert_array_equal(model.training_features_, gallery)
    assert model.training_mean_ is None
    assert model.mean_responses_ is None


@pytest.mark.parametrize("features", ["quadratic", "signed-root"])
@pytest.mark.parametrize("own_weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("centre", [False, True])
def test_weight_and_centre_are_those_of_a_computation_by_hand(
    features, own_weight, centre
):
    model = DualQMLClassifier(
        2.0, features=features, own_weight=own_weight, centre=centre
    ).fit(X, y)
    extractor = DualQML(2.0, features=features).fit(X, y)
    gallery, probes = extractor.transform(X), extractor.transform(X_TEST)
    for i, c in enumerate(y):
        gallery[i, c] *= own_weight
    mean = gallery.mean(axis=0) if centre else np.zeros(8)
    expected = np.empty((96, 8))
    for i, probe in enumerate(probes):
        cosines = [
            np.dot(probe - mean, row - mean)
            / (np.linalg.norm(probe - mean) * np.linalg.norm(row - mean))
            for row in gallery
        ]
        expected[i] = [max(np.array(cosines)[y == c]) for c in range(8)]
    np.testing.assert_allclose(model.decision_function(X_TEST), expected, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X_TEST), expected.argmax(axis=1))


def test_mirror_images_are_told_apart_by_the_signed_roots_only():
    faces, _ = make_data([12], 30, noise=0.5, centre=False)
    mirrored, labels = np.vstack([faces, -faces]), np.repeat([0, 1], 12)
    known, asked = np.arange(24) % 2 == 0, np.arange(24) % 2 == 1
    scores = {
        features: DualQMLClassifier(rule="max", features=features)
        .fit(mirrored[known], labels[known])
        .score(mirrored[asked], labels[asked])
        for features in ("quadratic", "signed-root")
    }
    # An even function gives x and -x the same class, right for one of them.
    assert scores == {"quadratic": 0.5, "signed-root": 1.0}


def test_the_rule_max_ignores_weight_and_centre():
    plain = DualQMLClassifier(rule="max").fit(X, y)
    other = DualQMLClassifier(rule="max", own_weight=0.5, centre=True).fit(X, y)
    assert other.training_features_ is other.training_mean_ is None
    np.testing.assert_array_equal(
        plain.decision_function(X_TEST), other.decision_function(X_TEST)
    )


@pytest.mark.parametrize("wrong", [{"own_weight": -0.1}, {"centre": "yes"}])
def test_wrong_weight_or_centre_is_an_error(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DualQMLClassifier(**wrong).fit(X, y)


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_cross_validation_equals_a_grid_search_of_scikit_learn(rule):
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    ours = DualQMLClassifierCV(GRID, cv=cv, rule=rule, tol=1e-8).fit(X, y)
    grid = GridSearchCV(DualQMLClassifier(rule=rule, tol=1e-8), {"lam": GRID}, cv=cv)
    grid.fit(X, y)
    for fold in range(4):
        np.testing.assert_allclose(
            ours.cv_errors_[fold], 1.0 - grid.cv_results_[f"split{fold}_test_score"]
        )
    for name in grid.cv_results_:
        if name.endswith("test_score"):
            np.testing.assert_allclose(
                ours.cv_results_[name], grid.cv_results_[name], err_msg=name
            )
    assert ours.cv_results_["params"] == grid.cv_results_["params"]
    assert ours.best_params_ == grid.best_params_
    assert ours.best_score_ == pytest.approx(grid.best_score_)
    assert ours.best_lam_ == grid.best_params_["lam"] == ours.lam_
    np.testing.assert_allclose(
        ours.components_, grid.best_estimator_.components_, atol=1e-10
    )


def test_the_best_parameters_give_the_same_classifier():
    model = DualQMLClassifierCV(GRID, cv=3, random_state=0).fit(X, y)
    best = DualQMLClassifier(**model.best_params_).fit(X, y)
    np.testing.assert_array_equal(
        model.decision_function(X_TEST), best.decision_function(X_TEST)
    )


def test_folds_of_cross_validation_depend_on_the_seed_only():
    first, again, other = (
        DualQMLClassifierCV(GRID, cv=3, random_state=seed).fit(X, y).cv_errors_
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_cross_validation_does_not_depend_on_n_jobs():
    alone = DualQMLClassifierCV(GRID, cv=3, random_state=0).fit(X, y)
    together = DualQMLClassifierCV(GRID, cv=3, random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(alone.cv_errors_, together.cv_errors_)
    np.testing.assert_array_equal(alone.components_, together.components_)


def test_the_grid_may_be_in_any_order():
    forward = DualQMLClassifierCV(GRID, cv=3, random_state=0).fit(X, y)
    backward = DualQMLClassifierCV(GRID[::-1], cv=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(forward.cv_errors_, backward.cv_errors_[:, ::-1])


def test_lam_scale_auto_in_cross_validation():
    plain = DualQMLClassifierCV(GRID, cv=3, random_state=0, lam_scale="auto").fit(X, y)
    scaled = DualQMLClassifierCV(GRID, cv=3, random_state=0, lam_scale="auto").fit(
        100.0 * X, y
    )
    np.testing.assert_array_equal(plain.cv_errors_, scaled.cv_errors_)
    assert scaled.best_lam_ == plain.best_lam_
    assert scaled.lam_ == pytest.approx(plain.lam_ * 1e-8)


def test_classes_of_two_and_of_one_sample():
    data, labels = make_data([2] * 10 + [1], 40)
    model = DualQMLClassifierCV(GRID, cv=10).fit(data, labels)
    assert model.cv_errors_.shape == (10, 3)
    # Two of twenty samples are held out in each fold; the single one never is.
    assert set(np.unique(model.cv_errors_)) <= {0.0, 0.5, 1.0}
    np.testing.assert_array_equal(model.predict(data), labels)


@pytest.mark.parametrize("lams", [(), (1.0, 0.0), (-1.0,), ((1.0, 2.0),)])
def test_invalid_grid_is_an_error(lams):
    with pytest.raises(ValueError, match="lams must be"):
        DualQMLClassifierCV(lams).fit(X, y)


def test_zero_vector_in_cross_validation_names_the_row():
    data = X.copy()
    data[5] = 0.0
    with pytest.raises(InfeasibleError, match="rows 5 of X"):
        DualQMLClassifierCV(cv=3, random_state=0, zero_samples="error").fit(data, y)
    with pytest.warns(UserWarning, match="rows 5 of X") as caught:
        DualQMLClassifierCV(cv=3, random_state=0).fit(data, y)
    assert len(caught) == 1  # once, and not in every fold
