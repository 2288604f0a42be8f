import numpy as np
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize

from dualqml.exceptions import DualQMLError
from dualqml.extractors.methods import (
    METHODS,
    TUNED_LAMS,
    VECTOR_METHODS,
    make_method,
    without_search,
)
from dualqml.extractors.tuning import RankSearchCV
from tests.problems import make_data

NAMES = list(METHODS)
PAPERS_OWN = ("DualQML (max)", "DualQML")
OWN_RULE = (*PAPERS_OWN, "DualQML-W")


def few_folds(name):
    """Parameters that keep the cross-validated methods quick."""
    if name == "DualQML-W":
        return {"rhos": (0.1,), "lams": (0.1,)}
    return {"cv": 2, "lams": (1.0,)} if name in OWN_RULE else {}


def test_every_method_has_its_full_name_and_a_reference():
    known = [*METHODS.values(), *VECTOR_METHODS.values()]
    assert all(method.reference for method in known)
    assert len({method.title for method in known} - {""}) == len(known)


def test_rows_are_those_of_the_papers_tables():
    assert NAMES == [
        "APCA",
        "LDA",
        "MFA",
        "CFA-OTF",
        "CFA-OEOTF",
        "GTDA",
        "ERE",
        "K-LDA",
        "MLE",
        "ER-KDA",
        "DualQML (max)",
        "DualQML",
        "DualQML-W",
    ]


def test_unknown_method_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match="choose from APCA, LDA"):
        make_method("PCA")


def test_unknown_parameter_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match="ERE has no parameter 'alpha'; its"):
        make_method("ERE", alpha=1.0)


def test_overrides_reach_the_extractor():
    assert make_method("LDA", shrinkage=0.5)["extract"].shrinkage == 0.5
    assert make_method("DualQML", cv=3)["classify"].cv == 3
    assert make_method("CFA-OTF")["extract"].filter == "otf"


def test_image_shape_is_passed_to_methods_that_use_it():
    assert make_method("GTDA", image_shape=(4, 8))["extract"].image_shape == (4, 8)
    make_method("ERE", image_shape=(4, 8))  # and does not disturb the others


def test_wrong_image_shape_is_an_error():
    X, y = make_data([3, 3, 3], 30)
    for name in ("GTDA", "CFA-OTF"):
        with pytest.raises(ValueError, match="32 pixels, but the rows of X have 30"):
            make_method(name, image_shape=(4, 8)).fit(X, y)


@pytest.mark.parametrize("preprocessing", ["none", "unit-norm", "centred-unit-norm"])
def test_preprocessing_can_be_chosen(preprocessing):
    names = list(make_method("ERE", preprocessing=preprocessing).named_steps)
    assert ("centre" in names) == (preprocessing == "centred-unit-norm")
    assert ("normalise" in names) == (preprocessing != "none")


@pytest.mark.parametrize("name", NAMES)
def test_every_method_recognises_easy_classes(name):
    X, y = make_data([6] * 10, 64, noise=0.3, unit=False)
    train = np.arange(60) % 6 < 4
    model = make_method(name, **few_folds(name))
    assert isinstance(model, Pipeline)
    model.fit(X[train], y[train])
    assert model.score(X[~train], y[~train]) > 0.9
    clone(model)


def one_sample_each():
    return make_data([1] * 8, 36, unit=False)


def unequal_classes():
    return make_data([1, 2, 2, 3, 5, 8], 36, noise=0.3, unit=False)


def more_samples_than_features():
    return make_data([15] * 4, 9, noise=0.3, unit=False)


def duplicate_images():
    X, y = make_data([4] * 5, 36, noise=0.3, unit=False)
    X[1], X[9] = X[0], X[8]  # twice in a class
    X[12] = X[16]  # and once in two classes
    return X, y


def constant_image():
    X, y = make_data([4] * 5, 36, noise=0.3, unit=False)
    X[2] = 0.7
    return X, y


def two_classes():
    return make_data([5, 5], 36, noise=0.3, unit=False)


def single_precision():
    X, y = make_data([4] * 5, 36, noise=0.3, unit=False)
    return X.astype(np.float32), y


def string_labels():
    X, y = make_data([4] * 5, 36, noise=0.3, unit=False)
    return X, np.array(["anna", "bert", "cleo", "dora", "emil"])[y]


EDGES = [
    one_sample_each,
    unequal_classes,
    more_samples_than_features,
    duplicate_images,
    constant_image,
    two_classes,
    single_precision,
    string_labels,
]


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_edge_cases_work(name, edge):
    X, y = edge()
    model = make_method(name, **few_folds(name))
    if edge is one_sample_each and name in PAPERS_OWN:
        # Nothing can be held out to choose lambda: an error that says so.
        with pytest.raises(ValueError, match="at least 2 samples"):
            model.fit(X, y)
        return
    model.fit(X, y)
    predicted = model.predict(X)
    assert predicted.dtype == y.dtype
    # Training samples are recognised, but for the image under two names, and
    # but for methods that do not interpolate the training set.
    assert np.mean(predicted == y) >= 0.75
    if name not in OWN_RULE:
        features = model[:-1].transform(X)
        assert np.isfinite(features).all()
        assert features.dtype == X.dtype


def test_equal_images_raise_an_error_of_the_package():
    X, y = np.ones((6, 16)), np.repeat([0, 1, 2], 2)
    for name in NAMES:
        if name in (*OWN_RULE, "CFA-OTF", "APCA"):
            continue
        with pytest.raises((DualQMLError, ValueError)):
            make_method(name).fit(X, y)


RIVALS = [name for name in NAMES if name not in OWN_RULE]
WITH_TANGENTS = ["APCA", "LDA", "MFA", "ERE", "K-LDA", "ER-KDA"]


@pytest.mark.parametrize("name", RIVALS)
def test_a_tuned_method_is_a_search_that_starts_from_the_defaults(name):
    search = make_method(name, tune=True, image_shape=(8, 8))
    assert isinstance(search, RankSearchCV)
    plain = make_method(name, image_shape=(8, 8))
    assert repr(search.estimator) == repr(plain)
    candidates = list(ParameterGrid(search.param_grid))
    assert 3 <= len(candidates) <= 12
    assert ("extract__tangents" in candidates[0]) == (name in WITH_TANGENTS)
    parameters = plain.get_params()
    assert {key: parameters[key] for key in candidates[0]} == candidates[0]
    clone(search)


@pytest.mark.parametrize("name", WITH_TANGENTS)
def test_tangents_are_tried_on_images_only(name):
    grid = make_method(name, tune=True).param_grid
    assert "extract__tangents" not in grid
    assert grid
    fixed = make_method(name, tune=True, image_shape=(8, 8), tangents=0.2)
    assert "extract__tangents" not in fixed.param_grid
    assert fixed.estimator["extract"].tangents == 0.2


def test_overrides_are_not_tuned():
    search = make_method("K-LDA", tune=True, width=2.0)
    assert set(search.param_grid) == {"extract__regularisation"}
    assert search.estimator["extract"].width == 2.0
    # Where nothing is left to tune, a single candidate is.
    assert list(
        ParameterGrid(make_method("MLE", tune=True, energy=0.9).param_grid)
    ) == [{}]
    with pytest.raises(ValueError, match="ERE has no parameter 'alpha'; its"):
        make_method("ERE", tune=True, alpha=1.0)


@pytest.mark.parametrize("name", PAPERS_OWN)
def test_dual_qml_tunes_itself_over_a_wider_range(name):
    model = make_method(name, tune=True)
    assert isinstance(model, Pipeline)
    assert model["classify"].lams == TUNED_LAMS
    assert model["classify"].rule == make_method(name)["classify"].rule
    assert make_method(name, tune=True, lams=(1.0, 2.0))["classify"].lams == (1.0, 2.0)


@pytest.mark.filterwarnings("ignore:The bases still change")
@pytest.mark.parametrize("edge", [unequal_classes, one_sample_each, two_classes])
@pytest.mark.parametrize("name", RIVALS)
def test_tuned_methods_work_at_the_edges(name, edge):
    X, y = edge()
    search = make_method(name, tune=True, image_shape=(6, 6)).fit(X, y)
    assert np.mean(search.predict(X) == y) >= 0.75
    if edge is one_sample_each:
        assert search.best_params_ == search.cv_results_["params"][0]
    else:
        assert np.isfinite(search.cv_results_["loss"]).all()


def test_preprocessing_is_part_of_what_is_tuned():
    search = make_method("LDA", tune=True, preprocessing="unit-norm")
    assert list(search.estimator.named_steps) == ["normalise", "extract", "classify"]


def test_local_descriptors_come_before_every_method():
    model = make_method("LDA", preprocessing="local", image_shape=(6, 6))
    assert list(model.named_steps) == ["describe", "normalise", "extract", "classify"]
    assert model["describe"].image_shape == (6, 6)
    tuned = make_method("LDA", tune=True, preprocessing="local", image_shape=(6, 6))
    assert "extract__tangents" not in tuned.param_grid
    X, y = unequal_classes()
    assert model.fit(X, y).score(X, y) >= 0.75


def test_descriptors_are_centred_where_images_are():
    model = make_method("DualQML", preprocessing="local", image_shape=(6, 6))
    assert list(model.named_steps) == ["describe", "centre", "normalise", "classify"]


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("name", VECTOR_METHODS)
def test_usual_classifiers_recognise_easy_classes(name, tune):
    X, y = make_data([4] * 5, 12, seed=1)
    model = make_method(name, tune=tune).fit(X, y)
    assert model.score(X, y) == 1.0
    assert isinstance(model, RankSearchCV) == (tune and "cosine" not in name)
    assert model.decision_function(X).shape == (20, 5)


@pytest.mark.parametrize("name", ["Linear-SVM", "Logistic", "LDA-shrunk"])
def test_the_search_of_a_usual_classifier_starts_from_its_defaults(name):
    search = make_method(name, tune=True)
    first = next(iter(ParameterGrid(search.param_grid)))
    parameters = make_method(name).get_params()
    assert {key: parameters[key] for key in first} == first


def test_shrunk_lda_decides_as_lda_does(rng):
    means = 2 * rng.normal(size=(9, 6))
    X = rng.normal(size=(90, 6)) + np.repeat(means, 10, axis=0)
    y = np.repeat(np.arange(9), 10)
    queries = 2 * rng.normal(size=(100, 6))
    model = make_method("LDA-shrunk").fit(X, y)
    plain = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)
    plain.fit(normalize(X), y)
    np.testing.assert_array_equal(
        model.predict(queries), plain.predict(normalize(queries))
    )


@pytest.mark.parametrize(
    ("name", "tune"),
    [("DualQML", False), ("DualQML-W", False), ("LDA", True), ("Linear-SVM", True)],
)
def test_without_its_search_a_model_is_the_same(name, tune):
    X, y = make_data([4] * 5, 16, seed=2)
    model = make_method(name, tune=tune).fit(X, y)
    fixed = without_search(model)
    assert not hasattr(fixed[-1], "classes_")
    fixed.fit(X, y)
    np.testing.assert_allclose(
        fixed.decision_function(X), model.decision_function(X), atol=1e-8
    )
    assert without_search(fixed) is None


def test_dual_qml_w_computes_the_descriptors_itself():
    model = make_method("DualQML-W", preprocessing="local", image_shape=(6, 6))
    assert list(model.named_steps) == ["classify"]
    assert model["classify"].descriptor == "local"
    assert model["classify"].image_shape == (6, 6)


def test_rows_are_images_for_dual_qml_w_only_with_an_image_shape():
    assert make_method("DualQML-W")["classify"].image_shape is None
    tuned = make_method("DualQML-W", tune=True, image_shape=(6, 6))
    assert tuned["classify"].image_shape == (6, 6)
