import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import extractors, images
from dualqml.exceptions import ModelFileError
from dualqml.extractors import (
    ERKDA,
    GTDA,
    MLE,
    Background,
    DualQMLClassifier,
    DualQMLW,
    Fisherfaces,
    KernelLDA,
    NearestSample,
    WithinMetric,
)
from dualqml.extractors.methods import METHODS, make_method
from dualqml.extractors.tuning import RankSearchCV
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.steps import Resizer
from dualqml.persistence import schema
from dualqml.persistence.codec import Encoder
from dualqml.persistence.model_files import FORMAT, load, save
from dualqml.persistence.schema import CLASSES
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition import Recognizer
from tests.people import make_people, make_vectors
from tests.persistence.sealed import edited_model
from tests.persistence.test_model_files import SETTINGS, X, few_folds, y

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

#: Extractors whose number of features does not depend on the number of classes. The
#: next step of a pipeline may know other classes.
EXTRACTORS = ["ERE", "ERKDA", "Fisherfaces", "GTDA", "KernelLDA", "LPP", "MFA", "MLE"]

#: Lengths that are not used: class, attribute and axis.
FREE = {
    *((name, "classes_", 0) for name in [*EXTRACTORS, "WithinMetric"]),
    # These bases are reports; `components_` is used.
    ("GTDA", "row_basis_", 1),
    ("GTDA", "column_basis_", 1),
    # Directions without variance have no row.
    ("Background", "within", 0),
    ("Background", "between", 0),
    ("Background", "scores_by_size", 0),
    ("Background", "scores_of_others", 0),
    # Results for lists of parameters, which may have been changed since the fit.
    *(("DualQMLClassifierCV", "cv_errors_", axis) for axis in range(2)),
}
#: Models that do not keep the training samples to which `dual_coef_` belongs.
WITHOUT_SAMPLES = [
    "DualQML",
    "DualQML(signed-root)",
    "DualQMLClassifier(max)",
    "unequal DualQMLClassifier(max)",
    "DualQMLW(linear)",
    "DualQMLW(background)",
    "local DualQMLW(linear)",
    "method DualQML (max)",
    "recogniser DualQML (max)",
    "recogniser DualQML-W",
]

FIVE_CLASSES = np.repeat(np.arange(5), 4)

NARROW = slice(16)


def with_nearest(estimator):
    """An estimator; a transformer is followed by a classifier of its features."""
    if hasattr(estimator, "predict"):
        return estimator
    return make_pipeline(estimator, NearestSample())


def named_columns():
    model = NearestSample().fit(X, y)
    model.feature_names_in_ = np.array([f"pixel {i}" for i in range(64)], dtype=object)
    return model


def gaps_counted():
    """A scaler that has counted the samples of each column."""
    gappy = X.copy()
    gappy[0, 3] = np.nan
    return StandardScaler().fit(gappy)


class Statistics:
    """A background that is computed by a fit."""

    def __init__(self, **options):
        self.options = options

    def fit(self, X, y):
        with pytest.warns(UserWarning, match="Only 5 people"):
            return Background.from_samples(X, y, **self.options)


class ManyPeople:
    """A background of so many people that it has learnt about their scores."""

    def fit(self, X, y):
        return Background.from_samples(*make_vectors(12, 3, size=8, noise=0.3))


class UnequalSizes:
    """A model of classes of different sizes."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        return clone(self.estimator).fit(X[2:], y[2:])


#: All methods and estimators, in all settings with different arrays; not fitted yet.
MODELS = {
    name: with_nearest(clone(estimator)) for name, estimator in SETTINGS.items()
} | {
    "tuned LDA": make_method("LDA", tune=True, image_shape=(8, 8)),
    "local LDA": make_method("LDA", preprocessing="local", image_shape=(8, 8)),
    "local DualQMLW": DualQMLW(descriptor="local", rule="max"),
    "local DualQMLW(linear)": DualQMLW(
        descriptor="local", rule="max", kernel="linear", image_shape=(4, 16)
    ),
    "ERKDA(igo)": with_nearest(ERKDA(kernel="igo", image_shape=(4, 16))),
    "GTDA(one row)": with_nearest(GTDA(image_shape=(1, 64))),
    "Background": Statistics(),
    "Background(images)": Statistics(image_shape=(8, 8)),
    "Background(scores)": ManyPeople(),
    "unequal DualQMLClassifier(max)": UnequalSizes(
        DualQMLClassifier(rule="max", lam_scale="auto")
    ),
}
MODELS |= {
    f"method {name}": make_method(name, image_shape=(8, 8), **few_folds(name))
    for name in METHODS
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def arrays_in(node, holder=None, name=None):
    """Class, attribute and JSON of all arrays in JSON, except those of parameters."""
    if isinstance(node, list):
        for item in node:
            yield from arrays_in(item, holder, name)
    elif isinstance(node, dict) and "array" in node:
        yield holder, name, node["array"]
    elif isinstance(node, dict) and "object" in node:
        inside = node["object"]
        kind, values = inside["class"], dict(inside["attributes"])
        for key in CLASSES[kind].saved.parameters:
            values[key] = inside["parameters"].get(key)
        for key, value in values.items():
            yield from arrays_in(value, kind, key)
    elif isinstance(node, dict):
        for value in node.values():
            yield from arrays_in(value, holder, name)


def other_lengths(array):
    """Each axis of an array, and the array with one item less and one more along it."""
    for axis, size in enumerate(array.shape):
        if size > 1:
            yield axis, np.delete(array, -1, axis)
        yield axis, np.concatenate([array, np.take(array, [-1], axis)], axis)


def check_lengths(path, load, key, case):
    """Change all lengths of all arrays of a file: only those that are free load."""
    arrays, metadata = read_tensors(path)
    # An array that is used in several places is there once, for the first.
    held = {}
    for holder, name, node in arrays_in(json.loads(metadata[key])):
        held.setdefault(node["tensor"], (holder, name, node))
    assert held
    free, accepted = set(), set()
    for tensor, (holder, name, node) in held.items():
        plain = arrays[tensor]
        if name == "dual_coef_" and case in WITHOUT_SAMPLES:
            free.add((holder, name, 0))
        free |= {entry for entry in FREE if entry[:2] == (holder, name)}
        for axis, array in other_lengths(plain):
            if "as" in node and axis == plain.ndim - 1:
                # The characters of the longest string.
                continue
            write_tensors(path, arrays | {tensor: array}, metadata)
            try:
                load(path)
            except ModelFileError:
                continue
            turned = node.get("order") == "F"
            accepted.add((holder, name, plain.ndim - 1 - axis if turned else axis))
    assert accepted == free
    write_tensors(path, arrays, metadata)
    load(path)


def parts_of(value):
    """An object of a saved class, and all such objects that it holds."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from parts_of(item)
    elif type(value).__name__ in CLASSES:
        yield value
        for inner in vars(value).values():
            yield from parts_of(inner)


def forged(model, path):
    """A file of a model as it is, which `save` would not write."""
    encoder = Encoder()
    text = json.dumps(encoder.encode(model))
    metadata = {"dualqml.format": str(FORMAT), "dualqml.model": text}
    write_tensors(path, encoder.arrays, metadata)


def refused(model, path):
    """Why a model cannot be loaded, nor saved."""
    forged(model, path)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    message = str(caught.value)
    with pytest.raises(ModelFileError):
        save(model, path)
    return message


def fitted(estimator, columns=slice(None)):
    return estimator.fit(X[:, columns], y)


def change(model, **values):
    for name, value in values.items():
        setattr(model, name, value)
    return model


def test_names_of_classes_are_unique():
    assert len(CLASSES) == len(schema._ALL)


def test_the_list_has_all_estimators_of_the_package():
    public = [
        getattr(room, name) for room in (extractors, images) for name in room.__all__
    ]
    estimators = {
        kind.__name__
        for kind in public
        if isinstance(kind, type) and issubclass(kind, BaseEstimator)
    }
    of_scikit_learn = {"Normalizer", "Pipeline", "StandardScaler"}
    parts = {
        "Background",
        "CentredKernel",
        "ClassProbabilities",
        "PatchMaps",
        "RankSearchCV",
    }
    assert set(CLASSES) == estimators | of_scikit_learn | parts


def test_all_parts_of_all_methods_can_be_saved():
    for name in METHODS:
        for tune in (False, True):
            model = make_method(name, tune=tune)
            assert type(model).__name__ in CLASSES
            pipeline = model if isinstance(model, Pipeline) else model.estimator
            for _, step in pipeline.steps:
                assert CLASSES[type(step).__name__].type is type(step)


@pytest.mark.parametrize("name", MODELS)
def test_every_length_of_a_model_is_checked(path, name):
    save(MODELS[name].fit(X, y), path)
    check_lengths(path, load, "dualqml.model", name)


@pytest.mark.parametrize("make", [named_columns, gaps_counted])
def test_every_length_of_optional_attributes_is_checked(path, make):
    save(make(), path)
    check_lengths(path, load, "dualqml.model", None)


@pytest.mark.parametrize("method", ["LDA", "DualQML (max)", "DualQML", "DualQML-W"])
def test_every_length_of_a_recogniser_is_checked(path, method):
    people = make_people(n_images=4)
    recognizer = Recognizer(method, size=(8, 8), threshold=0.0)
    recognizer.enroll_many(people.images, people.labels.tolist())
    recognizer.save(path)
    check_lengths(path, Recognizer.load, "dualqml.state", f"recogniser {method}")


def test_all_arrays_of_all_classes_have_a_shape():
    shapes = [(1,) * ndim for ndim in range(1, 4)]
    samples = [np.zeros(s, t) for s in shapes for t in (float, int, "U1")]
    for listed in CLASSES.values():
        saved = listed.saved
        kinds = {**saved.attributes, **saved.optional, **saved.parameters}
        for name, kind in kinds.items():
            sizes = {sample.ndim for sample in samples if kind.holds(sample)}
            assert sizes == ({len(kind.axes)} if kind.axes else set()), (listed, name)


def check_declared(part):
    """Whether an object has the attributes that its class declares, and no others."""
    saved = CLASSES[type(part).__name__].saved
    found = set(vars(part))
    if not isinstance(part, BaseEstimator):
        assert found == set(saved.parameters), type(part)
        return
    found -= set(part.get_params(deep=False))
    # The estimator of a search is a pattern, and stays unfitted.
    if "n_features_in_" in found or "n_features_in_" not in saved.attributes:
        assert set(saved.attributes) <= found, type(part)
        assert found <= {*saved.attributes, *saved.optional}, type(part)


def test_every_fitted_attribute_of_every_class_is_declared():
    tried = set()
    for model in MODELS.values():
        for part in parts_of(model.fit(X, y)):
            check_declared(part)
            tried.add(type(part).__name__)
    # These take photographs, and colour or eyes beside the pixels of grey images.
    special = {"FaceCropper", "FaceEmbedder", "GreyConverter", "EyeAligner"}
    assert set(CLASSES) - tried <= special


@pytest.mark.parametrize(
    "wrong",
    [
        FIVE_CLASSES - 1,
        FIVE_CLASSES + 1,
        np.where(FIVE_CLASSES == 4, 5, FIVE_CLASSES),
        np.where(FIVE_CLASSES == 2, 3, FIVE_CLASSES),
        np.zeros(20, dtype=np.int64),
        np.where(FIVE_CLASSES == 4, 2**62, FIVE_CLASSES),
    ],
)
def test_codes_of_no_class_are_refused(path, wrong):
    model = NearestSample().fit(X, y)
    model.codes_ = wrong
    assert "codes_ does not have the whole numbers from 0 to 4" in refused(model, path)
    model = DualQMLW().fit(X, y)
    model.qml_.training_codes_ = wrong
    assert "qml_.training_codes_ does not have the whole" in refused(model, path)


@pytest.mark.parametrize("dtype", [np.uint64, np.uint8, np.int8])
def test_codes_of_types_that_overflow_are_refused(path, dtype):
    model = NearestSample().fit(X, y)
    model.codes_ = model.codes_.astype(dtype)
    assert "codes_ is not a vector of whole numbers" in refused(model, path)


def test_training_samples_without_codes_are_refused(path):
    model = DualQMLClassifier(lam_scale="auto").fit(X, y)
    model.training_codes_ = None
    assert "training_codes_ and training_features_" in refused(model, path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda ranks: ranks + 1, "does not add up to the"),
        (lambda ranks: ranks - ranks[0] - 1, "has a rank below zero"),
        (lambda ranks: np.array([*ranks[:3], ranks[3] + 9, ranks[4] - 9]), "below"),
        # Their sum overflows to the right one.
        (
            lambda ranks: np.array([2**62] * 4 + [ranks.sum()]),
            "does not add up to the",
        ),
    ],
)
def test_ranks_that_do_not_fit_the_factors_are_refused(path, wrong, message):
    model = DualQMLClassifier(lam_scale="auto", rule="max").fit(X, y)
    model.ranks_ = wrong(model.ranks_)
    assert message in refused(model, path)


def test_patches_that_do_not_exist_are_refused(path):
    model = MLE(theta=1.0, n_components=1).fit(X, y)
    n_patches = model.n_patches_
    assert n_patches > 2
    right, maps = model.patches_, dict(vars(model._maps))
    for wrong in (right - 1, right + 1, np.zeros_like(right)):
        model.patches_ = wrong
        assert "patches_ does not have the whole numbers" in refused(model, path)
    model.patches_, model.n_patches_ = right, n_patches + 1
    assert "patches_ does not have the whole numbers" in refused(model, path)
    model.n_patches_ = n_patches
    owners = maps["owners"]
    for wrong in (owners - 1, owners + 1, np.zeros_like(owners)):
        model._maps = type(model._maps)(**maps | {"owners": wrong})
        assert "_maps.owners does not have the whole" in refused(model, path)
    model._maps = type(model._maps)(**maps | {"owners": owners[::-1]})
    assert "_maps.owners is not in rising order" in refused(model, path)
    model._maps = MLE(theta=np.inf).fit(X, y)._maps
    assert f"_maps has 1 patches, but for n_patches_ it needs {n_patches}" in refused(
        model, path
    )
    model._maps = type(model._maps)(**maps)
    model.mean_ = None
    assert "mean_ is None" in refused(model, path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: change(fitted(NearestSample()), n_features_in_=0),
            "n_features_in_ is zero",
        ),
        (
            lambda: change(fitted(NearestSample()), n_features_in_=63),
            "gallery_ has the shape (20, 64), but for n_features_in_ it needs 63 along "
            "axis 1",
        ),
        (lambda: change(fitted(Fisherfaces()), classes_=y[:0]), "classes_ is empty"),
        (lambda: change(fitted(ERKDA()), kernel_=None), "kernel_ is not CentredKernel"),
        (
            lambda: change(fitted(ERKDA()), kernel_=fitted(ERKDA(), NARROW).kernel_),
            "kernel_ has 16 inputs, but for n_features_in_ it needs 64",
        ),
        (
            lambda: change(
                fitted(KernelLDA(kernel="igo")),
                kernel_=fitted(
                    KernelLDA(kernel="igo", image_shape=(4, 4)), NARROW
                ).kernel_,
            ),
            "kernel_ has 16 inputs, but for n_features_in_ it needs 64",
        ),
        (
            lambda: change(
                fitted(ERKDA(kernel="igo")),
                kernel_=replace(fitted(ERKDA(kernel="igo")).kernel_, shape=(8, 9)),
            ),
            "kernel_.origin has 128 values, but for shape it needs 144",
        ),
        (
            lambda: change(fitted(WithinMetric()), kernel_=None),
            "kernel_ and mean_ are both there, or both not",
        ),
        (
            lambda: change(fitted(WithinMetric(kernel="linear")), descriptor="local"),
            "mean_ has 64 inputs, but for descriptor it needs 168",
        ),
        (
            lambda: change(fitted(WithinMetric(descriptor="local")), descriptor=None),
            "kernel_ has 168 inputs, but for n_features_in_ it needs 64",
        ),
        (
            lambda: change(
                fitted(WithinMetric(descriptor="local")), image_shape=(1, 64)
            ),
            "kernel_ has 168 inputs, but for descriptor it needs",
        ),
        (
            lambda: change(
                fitted(WithinMetric(descriptor="local")), image_shape=(8, 9)
            ),
            "the model has parameters that do not fit: image_shape=(8, 9) has 72",
        ),
        (
            lambda: change(
                fitted(WithinMetric(descriptor="local")), image_shape=("a", None)
            ),
            "the model has parameters that do not fit",
        ),
        (
            lambda: change(
                fitted(WithinMetric(descriptor="local")), n_features_in_=2**52
            ),
            "kernel_ has 168 inputs, but for n_features_in_ it needs",
        ),
        (
            lambda: change(fitted(DualQMLW()), metric_=WithinMetric()),
            "metric_ is not fitted",
        ),
        (
            lambda: change(fitted(DualQMLW()), metric_=fitted(WithinMetric(), NARROW)),
            "metric_ has 16 features, but for n_features_in_ it needs 64",
        ),
        (
            lambda: change(
                fitted(DualQMLW()), qml_=fitted(DualQMLW(kernel="linear"), NARROW).qml_
            ),
            "qml_ has 16 features, but for metric_ it needs 19",
        ),
        (
            lambda: change(fitted(DualQMLW()), classes_=np.unique(y)[:4]),
            "metric_ has other classes than classes_",
        ),
        (
            lambda: change(fitted(LocalDescriptors()), image_shape_=(8, 9)),
            "image_shape_ has 72 pixels, but for n_features_in_ it needs 64",
        ),
        (
            lambda: make_pipeline(
                fitted(LocalDescriptors()),
                fitted(Normalizer()),
                fitted(NearestSample()),
            ),
            "steps.1.1 has 64 features, but for the step before it needs 168",
        ),
        (
            lambda: make_pipeline(
                change(fitted(LocalDescriptors()), parts=["smell"]),
                fitted(NearestSample()),
            ),
            "steps.0.1 has parameters that do not fit: 'smell'",
        ),
        (
            lambda: make_pipeline(
                fitted(Resizer(size=(4, 4))), fitted(NearestSample())
            ),
            "steps.1.1 has 64 features, but for the step before it needs 16",
        ),
        (
            lambda: make_pipeline(
                fitted(Fisherfaces()), "passthrough", fitted(NearestSample())
            ),
            "steps.2.1 has 64 features, but for the step before it needs 4",
        ),
        (
            lambda: change(
                fitted(RankSearchCV(NearestSample(), {"metric": ["cosine"]})),
                best_estimator_=fitted(NearestSample(), NARROW),
            ),
            "best_estimator_ has 16 features, but for n_features_in_ it needs 64",
        ),
        (
            lambda: change(
                fitted(RankSearchCV(NearestSample(), {"metric": ["cosine"]})),
                best_estimator_=NearestSample().fit(X, FIVE_CLASSES > 2),
            ),
            "best_estimator_ has 2 classes, but for classes_ it needs 5",
        ),
        (
            lambda: change(
                fitted(RankSearchCV(NearestSample(), {"metric": ["cosine"]})),
                cv_results_={"params": [{}], "loss": "low"},
            ),
            "cv_results_ does not have a loss for each candidate",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(path, make, message):
    assert message in refused(make(), path)


@pytest.mark.parametrize(
    ("images", "changes", "message"),
    [
        (False, {"n_people": 1}, "n_people is below 2"),
        (False, {"n_samples": 5}, "n_samples is not above n_people"),
        (False, {"n_samples": -1}, "n_samples is not a whole number"),
        (False, {"n_people": 2.0}, "n_people is not a whole number"),
        (False, {"n_features": 0}, "n_features is zero"),
        (False, {"n_features": 63}, "mean has 64 inputs, but for n_features it needs"),
        (False, {"n_people": 4}, "between has 4 rows, but at most 3 are possible"),
        (False, {"n_samples": 19}, "within has 15 rows, but at most 14 are possible"),
        (False, {"within": np.ones((2, 63))}, "within has the shape (2, 63), but for"),
        (False, {"between": np.empty((0, 64))}, "between is not a matrix"),
        (False, {"mean": np.full(64, np.nan)}, "mean has numbers that are not finite"),
        (False, {"descriptor": "local"}, "descriptor and image_shape are not both"),
        (False, {"image_shape": (8, 8)}, "descriptor and image_shape are not both"),
        (True, {"descriptor": "global"}, "descriptor is not one of 'local' or None"),
        (True, {"image_shape": (8, 9)}, "the model has parameters that do not fit"),
        (True, {"image_shape": (1, 64)}, "mean has 168 inputs, but for descriptor it"),
        (True, {"image_shape": (2**20, 2)}, "image_shape is not a height and a width"),
        (True, {"n_features": 2**52}, "mean has 168 inputs, but for n_features it"),
        (False, {"rho": 0.0}, "rho is not positive"),
        (False, {"lam": -1.0}, "lam is not positive"),
        (False, {"rho": np.nan}, "rho is not a finite number"),
        (False, {"cosine_weight": -0.1}, "cosine_weight is negative"),
        (False, {"scores_by_size": np.ones((2, 5))}, "does not have 6 columns"),
        (False, {"scores_by_size": np.zeros((2, 6))}, "that is not positive"),
        (False, {"scores_by_size": np.ones((2, 6)) - np.eye(2, 6, 3)}, "not positive"),
        (False, {"scores_by_size": np.full((1, 6), np.inf)}, "scores_by_size"),
        (False, {"scores_by_size": np.ones(6)}, "scores_by_size is not"),
    ],
)
def test_a_background_that_does_not_fit_together_is_refused(
    path, images, changes, message
):
    background = MODELS["Background(images)" if images else "Background"].fit(X, y)
    assert message in refused(replace(background, **changes), path)


@pytest.mark.parametrize("name", ["slope", "unknown_slope"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_probabilities_that_fall_with_scores_are_refused(path, name, value):
    model = fitted(DualQMLW())
    model.probabilities_ = replace(model.probabilities_, **{name: value})
    assert f"probabilities_.{name} is not" in refused(model, path)


def test_steps_with_an_unknown_number_of_features_are_accepted(path):
    """They are not fitted, or a forged file states a size that is too large."""
    steps = [Normalizer(), LocalDescriptors(), Fisherfaces(), Resizer()]
    for step in steps:
        save(make_pipeline(step, fitted(NearestSample())), path)
        assert type(load(path)[0]) is type(step)
    large = fitted(LocalDescriptors())
    large.image_shape_, large.n_features_in_ = (1, 2**51), 2**51
    forged(make_pipeline(large, fitted(NearestSample())), path)
    assert load(path)[0].image_shape_ == (1, 2**51)


def test_a_pipeline_has_no_names_of_features_of_its_own(path):
    forged(make_pipeline(named_columns()), path)
    load(path)

    def name_columns(model):
        inside = model["object"]
        (step,) = inside["parameters"]["steps"]
        names = step["tuple"][1]["object"]["attributes"]["feature_names_in_"]
        inside["attributes"]["feature_names_in_"] = names

    edited_model(path, name_columns)
    with pytest.raises(ModelFileError, match="that Pipeline does not have"):
        load(path)
