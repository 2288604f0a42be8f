from importlib.metadata import EntryPoint

import numpy as np
import pytest
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from dualqml.exceptions import DualQMLError, MethodError
from dualqml.extractors import NearestSample, own_methods
from dualqml.extractors.own_methods import OwnMethod, installed_methods
from tests.problems import make_data

MODULE = """
import sys

class Duck:
    '''A classifier that knows nothing of scikit-learn.'''
    def __init__(self, answer=0):
        self.answer = answer
    def fit(self, X, y):
        return self
    def predict(self, X):
        return [self.answer] * len(X)

class Mute:
    def fit(self, X, y):
        return self

def make():
    return Duck(answer=1)

def fail():
    raise RuntimeError("out of order")

number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "ducks_of_tests.py").write_text(MODULE)
    (tmp_path / "broken_of_tests.py").write_text("raise SystemExit('no')")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "svm=sklearn.svm:LinearSVC(C=1.0, penalty='l2')",
        "svm=sklearn.svm:LinearSVC,C=1.0,penalty='l2'",
        ' svm = sklearn.svm:LinearSVC( penalty="l2", C=1.0 ) ',
    ],
)
def test_the_ways_to_write_a_method(text):
    method = OwnMethod.parse(text)
    assert method.name == "svm"
    assert method.parameters == {"C": 1.0, "penalty": "l2"}
    # The same for any order: it tells results apart.
    assert method.spec == "sklearn.svm:LinearSVC(C=1.0, penalty='l2')"
    assert OwnMethod.from_spec("svm", method.spec) == method


def test_values_are_literals():
    text = "m=a:B(x=-1, y=[1, (2.5, None)], z={'k': True}, w='a, b=c(d)')"
    assert OwnMethod.parse(text).parameters == {
        "x": -1,
        "y": [1, (2.5, None)],
        "z": {"k": True},
        "w": "a, b=c(d)",
    }


@pytest.mark.parametrize(
    "value", ["open('x')", "__import__('os')", "np.inf", "1e999", "[x for x in y]", "C"]
)
def test_nothing_is_evaluated(value):
    with pytest.raises(MethodError, match="the value of C is not a literal"):
        OwnMethod.parse(f"svm=sklearn.svm:LinearSVC(C={value})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LDA", "names no class: expected name=package.module:Class.*--methods"),
        ("svm=LinearSVC", "names no class"),
        ("sklearn.svm:LinearSVC(C=1.0)", "names no class"),
        ("svm=sklearn.svm:LinearSVC(1.0)", "parameters are given by name"),
        ("svm=sklearn.svm:LinearSVC(**{'C': 1})", "parameters are given by name"),
        ("svm=sklearn.svm:LinearSVC(C=1", "expected name=package"),
        ("svm=sklearn.svm:LinearSVC(C=1)(2)", "expected name=package"),
        ("svm=sklearn.svm:LinearSVC)+(", "expected name=package"),
        ("svm=sklearn.svm:LinearSVC(C=1, C=2)", "expected name|given twice"),
        ("=sklearn.svm:LinearSVC", "cannot be the name"),
        ("a,b=sklearn.svm:LinearSVC", "cannot be the name"),
        ("a (tuned)=sklearn.svm:LinearSVC", "cannot be the name"),
        ("lda=sklearn.svm:LinearSVC", "lda is the name of a method of dualqml"),
        ("nn-COSINE=sklearn.svm:LinearSVC", "is the name of a method of dualqml"),
    ],
)
def test_what_cannot_be_read(text, message):
    with pytest.raises(MethodError, match=message) as raised:
        OwnMethod.parse(text)
    assert isinstance(raised.value, DualQMLError)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module.x:Y", "there is no module 'no_such_module'. Install"),
        ("sklearn.svm:Nope", "has no 'Nope'; its classes are LinearSVC"),
        ("broken_of_tests:X", "its import failed: SystemExit: no"),
        ("sklearn.svm:LinearSVC(D=1)", "argument 'D'.* Its parameters are penalty"),
        ("ducks_of_tests:fail", "cannot be made: RuntimeError: out of order"),
        ("ducks_of_tests:number", "neither a class nor a function"),
        ("os:getcwd", "is no estimator: it has no method fit"),
        ("ducks_of_tests:Mute", "neither predict nor transform"),
        ("sklearn.linear_model:Ridge", "is a regressor, not a classifier"),
        ("sklearn.cluster:KMeans", "is a clusterer, not a classifier"),
        ("sklearn.svm:OneClassSVM", "is an outlier detector, not"),
    ],
)
def test_what_cannot_be_made(spec, message):
    with pytest.raises(MethodError, match=message):
        OwnMethod.from_spec("mine", spec).make()


def test_a_classifier_is_used_as_it_is():
    model = OwnMethod.parse("svm=sklearn.svm:LinearSVC(C=3.0)").make()
    assert isinstance(model, LinearSVC)
    assert (model.C, model.random_state) == (3.0, 0)
    text = "svm=sklearn.svm:LinearSVC(random_state=7)"
    assert OwnMethod.parse(text).make().random_state == 7


def test_a_transformer_is_followed_by_the_nearest_sample():
    method = OwnMethod.parse("pca=sklearn.decomposition:PCA(n_components=3)")
    model = method.make()
    assert isinstance(model, Pipeline)
    assert isinstance(model[-1], NearestSample)
    X, y = make_data([3] * 4, 10, noise=0.1)
    assert model.fit(X, y).score(X, y) == 1.0


def test_what_does_not_know_scikit_learn():
    duck = OwnMethod.from_spec("d", "ducks_of_tests:Duck(answer=2)").make()
    assert duck.predict(np.zeros((2, 1))) == [2, 2]
    assert OwnMethod.from_spec("d", "ducks_of_tests:make").make().answer == 1


def test_local_descriptors_come_first():
    method = OwnMethod.parse("svm=sklearn.svm:LinearSVC")
    model = method.make(local=True, image_shape=(8, 9))
    assert list(model.named_steps) == ["describe", "normalise", "classify"]
    assert model["describe"].image_shape == (8, 9)


def test_an_estimator_that_asks_for_it_knows_the_shape_of_images():
    method = OwnMethod.parse("w=dualqml:DualQMLWCV")
    assert method.make(image_shape=(8, 9)).image_shape == (8, 9)
    assert method.make().image_shape is None
    # Descriptors are not images.
    assert method.make(local=True, image_shape=(8, 9))[-1].image_shape is None


def test_versions():
    assert OwnMethod.parse("a=pytest:X").package_version() == {
        "pytest": pytest.__version__
    }
    assert OwnMethod.parse("a=sklearn.svm:SVC").package_version() == {}
    assert OwnMethod.parse("a=ducks_of_tests:Duck").package_version() == {}


def test_installed_packages_offer_methods(monkeypatch):
    def points(group):
        assert group == "dualqml.methods"
        return [
            EntryPoint("duck", "ducks_of_tests:make", group),
            EntryPoint("extra", "ducks_of_tests:make [fast]", group),
            # Names of dualqml stay its own, and what names no class is no method.
            EntryPoint("LDA", "ducks_of_tests:make", group),
            EntryPoint("module", "ducks_of_tests", group),
        ]

    monkeypatch.setattr(own_methods, "entry_points", points)
    found = installed_methods()
    assert list(found) == ["duck", "extra"]
    assert {m.spec for m in found.values()} == {"ducks_of_tests:make"}
    assert found["duck"].make().answer == 1
