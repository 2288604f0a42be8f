import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from dualqml import data, extractors
from dualqml.extractors.methods import METHODS, make_method
from dualqml.recognition import _classes
from dualqml.recognition._classes import (
    CLASSES,
    COUNT,
    LABELS,
    MATRIX,
    NOTHING,
    NUMBER,
    SHAPE,
    VECTOR,
)


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


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (COUNT, [0, 3], [-1, True, 1.0, "1", None]),
        (NUMBER, [0, 1.5, float("nan")], [True, "1", None, 1j]),
        (NOTHING, [None], [0, ""]),
        (SHAPE, [(1, 2)], [(1,), (1, 0), (1, True), [1, 2], None, "12"]),
        (NUMBER | NOTHING, [1, None], ["1"]),
    ],
)
def test_kinds_of_values(kind, good, bad):
    assert all(kind.holds(value) for value in good)
    assert not any(kind.holds(value) for value in bad)


def test_kinds_of_arrays(rng):
    vector, matrix = rng.random(3), rng.random((3, 2))
    assert VECTOR.holds(vector)
    assert MATRIX.holds(matrix)
    for wrong in (matrix, [1.0], vector.astype(int), vector.astype(str), None):
        assert not VECTOR.holds(wrong)
    for labels in (vector, vector.astype(int), vector.astype(str), vector > 0.5):
        assert LABELS.holds(labels)
    assert not LABELS.holds(matrix)
    assert (MATRIX | NOTHING).name == "a matrix or None"
