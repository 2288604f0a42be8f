"""What holds for every estimator of the package, scikit-learn's checks above all."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualqml
from dualqml import DualQMLClassifier
from dualqml.extractors import Fisherfaces, NearestSample
from dualqml.extractors.tuning import RankSearchCV
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.face_steps import FaceCropper, FaceEmbedder
from dualqml.images.steps import EyeAligner


def public_estimators():
    """All estimators among the public names of the rooms, and the search for some."""
    found = {"RankSearchCV": RankSearchCV}
    for room in pkgutil.iter_modules(dualqml.__path__, "dualqml."):
        module = importlib.import_module(room.name)
        for name in getattr(module, "__all__", ()) if room.ispkg else ():
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, BaseEstimator):
                found[name] = thing
    return [found[name] for name in sorted(found)]


#: What estimators that have no defaults are made with.
PARAMETERS = {
    RankSearchCV: {
        "estimator": NearestSample(),
        "param_grid": {"metric": ["euclidean", "cosine"]},
    }
}
ESTIMATORS = public_estimators()
#: Whose input is not just any table of numbers: photographs, images, and eyes.
SPECIAL_INPUT = {EyeAligner, FaceCropper, FaceEmbedder, LocalDescriptors}


def made(estimator):
    return estimator(**PARAMETERS.get(estimator, {}))


def test_estimators_are_found():
    assert {DualQMLClassifier, Fisherfaces, RankSearchCV} | SPECIAL_INPUT <= set(
        ESTIMATORS
    )


# No check is expected to fail, and every estimator is as users first meet it.
@parametrize_with_checks(
    [made(estimator) for estimator in ESTIMATORS] + [DualQMLClassifier(rule="max")]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_only_special_input_excuses_from_the_checks():
    excused = {
        estimator
        for estimator in ESTIMATORS
        for tags in [get_tags(made(estimator))]
        if not tags.input_tags.two_d_array or tags.no_validation or tags._skip_test
    }
    assert excused == SPECIAL_INPUT


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_constructor_parameters_are_keyword_only(estimator):
    parameters = list(inspect.signature(estimator).parameters.values())
    # lam and lams, the one parameter everybody sets, may be given by position, and
    # what there is no default for.
    positional = [p.name for p in parameters if p.kind != p.KEYWORD_ONLY]
    assert positional in ([], ["lam"], ["lams"], list(PARAMETERS.get(estimator, {})))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_and_fitted_attribute_is_documented(estimator):
    X = np.random.default_rng(0).normal(size=(20, 64))
    fitted = made(estimator).fit(X, np.repeat([0, 1], 10))
    attributes = [
        name for name in vars(fitted) if name.endswith("_") and name[0] != "_"
    ]
    # From Python 3.13 on, docstrings are not indented.
    text = inspect.cleandoc(estimator.__doc__)
    for name in [*fitted.get_params(deep=False), *attributes]:
        assert f"\n{name} : " in text, name
