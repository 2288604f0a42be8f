import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from dualqml import DualQMLClassifier, DualQMLClassifierCV
from dualqml.core import InfeasibleError
from tests.problems import make_data

X, y = make_data([4] * 8, 30, noise=1.2)
GRID = (0.1, 1.0, 10.0)


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_cross_validation_equals_a_grid_search(rule):
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    ours = DualQMLClassifierCV(GRID, cv=cv, rule=rule, tol=1e-8).fit(X, y)
    grid = GridSearchCV(DualQMLClassifier(rule=rule, tol=1e-8), {"lam": GRID}, cv=cv)
    grid.fit(X, y)
    for fold in range(4):
        np.testing.assert_allclose(
            ours.cv_errors_[fold], 1.0 - grid.cv_results_[f"split{fold}_test_score"]
        )
    assert ours.best_lam_ == grid.best_params_["lam"] == ours.lam_
    np.testing.assert_allclose(
        ours.components_, grid.best_estimator_.components_, atol=1e-10
    )


def test_cross_validation_does_not_depend_on_n_jobs():
    alone = DualQMLClassifierCV(GRID, cv=3).fit(X, y)
    together = DualQMLClassifierCV(GRID, cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(alone.cv_errors_, together.cv_errors_)
    np.testing.assert_array_equal(alone.components_, together.components_)


def test_the_grid_may_be_in_any_order():
    forward = DualQMLClassifierCV(GRID, cv=3).fit(X, y)
    backward = DualQMLClassifierCV(GRID[::-1], cv=3).fit(X, y)
    np.testing.assert_array_equal(forward.cv_errors_, backward.cv_errors_[:, ::-1])


def test_lam_scale_auto_in_cross_validation():
    plain = DualQMLClassifierCV(GRID, cv=3, lam_scale="auto").fit(X, y)
    scaled = DualQMLClassifierCV(GRID, cv=3, lam_scale="auto").fit(100.0 * X, y)
    np.testing.assert_array_equal(plain.cv_errors_, scaled.cv_errors_)
    assert scaled.best_lam_ == plain.best_lam_
    assert scaled.lam_ == pytest.approx(plain.lam_ * 1e-8)


def test_classes_of_two_and_of_one_sample():
    data, labels = make_data([2] * 10 + [1], 40)
    model = DualQMLClassifierCV(GRID, cv=10).fit(data, labels)
    assert model.cv_errors_.shape == (10, 3)
    assert model.classes_.size == 11


@pytest.mark.parametrize("lams", [(), (1.0, 0.0), (-1.0,), ((1.0, 2.0),)])
def test_invalid_grid_is_an_error(lams):
    with pytest.raises(ValueError, match="lams must be"):
        DualQMLClassifierCV(lams).fit(X, y)


def test_zero_vector_in_cross_validation_names_the_row():
    data = X.copy()
    data[5] = 0.0
    with pytest.raises(InfeasibleError, match="rows 5 of X"):
        DualQMLClassifierCV(cv=3, zero_samples="error").fit(data, y)
    with pytest.warns(UserWarning, match="rows 5 of X") as caught:
        DualQMLClassifierCV(cv=3).fit(data, y)
    assert len(caught) == 1  # once, and not in every fold
