"""scikit-learn's own checks of every estimator."""

import inspect

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_estimators_dtypes,
    parametrize_with_checks,
)

import dualqml
from dualqml import DualQML, DualQMLClassifier, DualQMLClassifierCV, extractors
from dualqml.core import InfeasibleError

QML = [DualQML, DualQMLClassifier, DualQMLClassifierCV]
OTHERS = [
    getattr(extractors, name)
    for name in extractors.__all__
    if getattr(extractors, name) not in QML
]
ESTIMATORS = QML + OTHERS


def test_every_public_estimator_is_checked():
    public = {
        thing
        for module in (dualqml, extractors)
        for thing in vars(module).values()
        if inspect.isclass(thing) and hasattr(thing, "fit")
    }
    assert public == set(ESTIMATORS)


# One check fits integers of which one row is all zeros, for which the QML
# problem has no solution and the default is an error. So these estimators pass
# all checks with zero_samples="ignore", and by default all the others.
@parametrize_with_checks(
    [estimator(zero_samples="ignore") for estimator in QML]
    + [DualQMLClassifier(rule="max", zero_samples="ignore")]
    + [estimator() for estimator in OTHERS]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def without_zero_rows(estimator):
    reason = "fits a zero vector, which is an InfeasibleError by default"
    return {"check_estimators_dtypes": reason}


@parametrize_with_checks(
    [DualQML(), DualQMLClassifier(), DualQMLClassifierCV(cv=3)],
    expected_failed_checks=without_zero_rows,
)
def test_scikit_learn_checks_with_default_parameters(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", QML)
def test_the_zero_row_of_that_check_is_the_only_obstacle(estimator):
    with pytest.raises(InfeasibleError, match="rows 15 of X"):
        check_estimators_dtypes(estimator.__name__, estimator())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_constructor_parameters_are_keyword_only(estimator):
    parameters = list(inspect.signature(estimator).parameters.values())
    # lam and lams, the one parameter everybody sets, may be given by position.
    positional = [p.name for p in parameters if p.kind != p.KEYWORD_ONLY]
    assert positional in ([], ["lam"], ["lams"])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_and_fitted_attribute_is_documented(estimator):
    X = np.random.default_rng(0).normal(size=(20, 4))
    fitted = estimator().fit(X, np.repeat([0, 1], 10))
    attributes = [
        name for name in vars(fitted) if name.endswith("_") and name[0] != "_"
    ]
    for name in [*fitted.get_params(), *attributes]:
        assert f"\n    {name} : " in estimator.__doc__, name
