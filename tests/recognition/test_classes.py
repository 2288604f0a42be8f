from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from dualqml import data, extractors
from dualqml.extractors.methods import METHODS, make_method
from dualqml.recognition import _classes
from dualqml.recognition._classes import CLASSES


def test_names_are_unique():
    assert len(CLASSES) == len(_classes._ALL)


def test_all_estimators_of_the_package_can_be_saved():
    rooms = [
        getattr(room, name) for room in (extractors, data) for name in room.__all__
    ]
    estimators = [
        kind
        for kind in rooms
        if isinstance(kind, type) and issubclass(kind, BaseEstimator)
    ]
    assert len(estimators) > 20
    assert [kind for kind in estimators if kind.__name__ not in CLASSES] == []


def test_all_parts_of_all_methods_can_be_saved():
    for name in METHODS:
        for tune in (False, True):
            model = make_method(name, tune=tune)
            assert type(model).__name__ in CLASSES
            pipeline = model if isinstance(model, Pipeline) else model.estimator
            for _, step in pipeline.steps:
                assert CLASSES[type(step).__name__].type is type(step)
