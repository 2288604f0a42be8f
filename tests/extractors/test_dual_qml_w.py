import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from dualqml import DualQMLClassifier, DualQMLW
from dualqml.data import load_orl
from dualqml.exceptions import DualQMLError
from dualqml.extractors import Background, WithinMetric
from dualqml.extractors.prepared_samples import fit_prepared, prepare_samples
from dualqml.persistence import load, save
from tests.people import make_vectors
from tests.problems import make_data

X, y = make_data([3, 4, 2, 3, 1], 36, noise=1.0, unit=False, centre=False)
NEW, _ = make_data([3] * 5, 36, noise=1.0, unit=False, centre=False, seed=1)

METRICS = {
    "default": {},
    "linear": {"kernel": "linear"},
    "images": {"image_shape": (4, 9), "kappa": 0.4},
    "narrow": {"width": 2.0},
    "local": {"descriptor": "local", "image_shape": (6, 6)},
}


def equivalent(rho=0.1, lam=0.1, rule="cosine", own_weight=0.5, **metric):
    qml = DualQMLClassifier(
        lam, rule=rule, features="signed-root", own_weight=own_weight, centre=True
    )
    return make_pipeline(WithinMetric(rho=rho, **metric), qml)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_it_is_the_metric_and_then_the_classifier(metric, rule):
    options = {"rho": 0.5, "lam": 0.3, "rule": rule, **metric}
    model = DualQMLW(**options).fit(X, y)
    parts = equivalent(**options).fit(X, y)
    for rows in (X, NEW):
        np.testing.assert_allclose(
            model.decision_function(rows), parts.decision_function(rows), atol=1e-9
        )
        np.testing.assert_array_equal(model.predict(rows), parts.predict(rows))
        np.testing.assert_allclose(
            model.transform(rows), parts.transform(rows), atol=1e-9
        )


@pytest.mark.parametrize("own_weight", [0.0, 1.0])
def test_the_weight_of_the_own_class_is_passed_on(own_weight):
    model = DualQMLW(own_weight=own_weight).fit(X, y)
    parts = equivalent(own_weight=own_weight).fit(X, y)
    scores = model.decision_function(NEW)
    np.testing.assert_allclose(scores, parts.decision_function(NEW), atol=1e-9)
    default = DualQMLW().fit(X, y).decision_function(NEW)
    assert np.abs(scores - default).max() > 1e-3


def test_the_defaults_are_the_documented_ones():
    model, parts = DualQMLW().fit(X, y), equivalent().fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(NEW), parts.decision_function(NEW), atol=1e-9
    )


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_labels_of_any_type_come_back(rule):
    names = np.array(["emil", "dora", "cleo", "bert", "anna"])
    model = DualQMLW(rule=rule).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, np.sort(names))
    np.testing.assert_array_equal(model.predict(X), names[y])
    # The same problem with its classes in the opposite order.
    np.testing.assert_allclose(
        model.decision_function(NEW)[:, ::-1],
        DualQMLW(rule=rule).fit(X, y).decision_function(NEW),
        atol=1e-6,
    )
    numbers = DualQMLW(rule=rule).fit(X, 10 * y - 7)
    np.testing.assert_array_equal(numbers.predict(X), 10 * y - 7)


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_two_classes_have_one_score(rule):
    two = y < 2
    model = DualQMLW(rule=rule).fit(X[two], np.array(["b", "a"])[y[two]])
    scores = model.decision_function(X[two])
    assert scores.shape == (7,)
    np.testing.assert_array_equal(model.predict(X[two]), np.where(scores > 0, "b", "a"))
    np.testing.assert_array_equal(model.predict(X[two]), np.array(["b", "a"])[y[two]])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_one_sample_in_every_class(kernel, rule):
    rows, labels = make_data([1] * 7, 36, unit=False, centre=False)
    model = DualQMLW(kernel=kernel, rule=rule, image_shape=(6, 6)).fit(rows, labels)
    assert set(model.qml_.status_) == {"optimal"}
    np.testing.assert_array_equal(model.predict(rows), labels)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_row_of_zeros_does_no_harm(kernel):
    rows = X.copy()
    rows[4] = 0.0
    model = DualQMLW(kernel=kernel).fit(rows, y)
    assert set(model.qml_.status_) == {"optimal"}
    assert np.isfinite(model.decision_function(rows)).all()
    np.testing.assert_array_equal(model.predict(rows), y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_row_in_the_very_centre_has_no_constraint(kernel):
    # Rows of unit norm and zero mean, and among them one of zeros.
    rows = np.vstack([np.eye(4), -np.eye(4), np.zeros((1, 4))])
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3, 0])
    model = DualQMLW(kernel=kernel).fit(rows, labels)
    assert set(model.qml_.status_) == {"optimal"}
    np.testing.assert_array_equal(model.predict(rows[:8]), labels[:8])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_copies_within_and_across_classes(kernel):
    rows = X.copy()
    rows[1] = rows[0]  # twice in one class
    rows[7] = rows[3]  # the same image in two classes
    model = DualQMLW(kernel=kernel, own_weight=1.0).fit(rows, y)
    assert set(model.qml_.status_) == {"optimal"}
    predicted = model.predict(rows)
    clear = ~np.isin(np.arange(13), [3, 7])
    np.testing.assert_array_equal(predicted[clear], y[clear])
    assert predicted[3] == predicted[7]
    assert predicted[3] in (y[3], y[7])
    # With half the weight the two classes may be confused, but no others.
    halved = DualQMLW(kernel=kernel).fit(rows, y).predict(rows)
    apart = ~np.isin(y, [y[3], y[7]])
    np.testing.assert_array_equal(halved[apart], y[apart])


def test_equal_samples_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        DualQMLW().fit(np.ones((4, 3)), [0, 0, 1, 1])


def test_single_precision_gives_the_same_answers():
    single = DualQMLW().fit(X.astype(np.float32), y)
    assert single.transform(NEW.astype(np.float32)).dtype == np.float32
    double = DualQMLW().fit(X, y)
    np.testing.assert_allclose(
        single.decision_function(NEW.astype(np.float32)),
        double.decision_function(NEW),
        atol=1e-3,
    )


def test_n_jobs_does_not_change_a_bit():
    alone, together = (DualQMLW(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(
        alone.decision_function(NEW), together.decision_function(NEW)
    )


def test_the_tolerance_is_passed_on():
    model = DualQMLW(tol=1e-9).fit(X, y)
    assert model.qml_.tol == 1e-9
    assert model.qml_.duality_gap_.max() <= 1e-9


def test_clone_and_pickle_work():
    model = DualQMLW(rho=0.3, image_shape=(6, 6)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert clone(model).get_params() == model.get_params()


def test_unfitted_prediction_is_an_error():
    for method in ("predict", "decision_function", "transform"):
        with pytest.raises(NotFittedError):
            getattr(DualQMLW(), method)(X)


def test_wrong_number_of_features_is_an_error():
    with pytest.raises(ValueError, match="35 features"):
        DualQMLW().fit(X, y).predict(X[:, :35])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rho": 0.0},
        {"lam": 0.0},
        {"rule": "min"},
        {"own_weight": -1.0},
        {"kernel": "igo"},
        {"width": 0.0},
        {"kappa": 2.0},
        {"descriptor": "gabor"},
        {"tol": 0.0},
        {"image_shape": (5, 7)},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DualQMLW(**wrong).fit(X, y)


@pytest.mark.parametrize("descriptor", [None, "local"])
def test_prepared_samples_give_the_same_fit(descriptor):
    X, y = load_digits(return_X_y=True)
    X, y = X[:60], y[:60]
    model = DualQMLW(image_shape=(8, 8), descriptor=descriptor, rule="max")
    parts = [prepare_samples(model, X[rows]) for rows in (slice(0, 25), slice(25, 70))]
    joined = type(parts[0]).joined(parts)
    order = np.random.default_rng(0).permutation(60)
    prepared = fit_prepared(clone(model), joined.take(order), y[order])
    fresh = clone(model).fit(X[order], y[order])
    np.testing.assert_allclose(
        prepared.decision_function(X), fresh.decision_function(X), atol=1e-9
    )
    assert prepared.n_features_in_ == 64
    with pytest.raises(ValueError, match="60 samples need as many labels"):
        fit_prepared(model, joined, y[:-1])
    with pytest.raises(ValueError, match="at least 2 classes"):
        fit_prepared(model, joined, np.zeros(60))


OTHERS = Background.from_samples(*make_vectors(14, 3, size=36, noise=1.0, seed=3))


@pytest.mark.parametrize("rule", ["cosine", "max"])
def test_with_a_background_it_is_the_metric_and_then_the_classifier(rule):
    options = {"rho": 0.5, "rule": rule, "background": OTHERS}
    model = DualQMLW(**options, background_weight=2.0).fit(X, y)
    parts = equivalent(**options, background_weight=2.0).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(NEW), parts.decision_function(NEW), atol=1e-9
    )
    # The statistics are kept once, as a parameter.
    assert model.metric_.background is None
    assert model.background is OTHERS


def test_a_background_of_weight_zero_changes_no_bit():
    plain = DualQMLW().fit(X, y)
    zero = DualQMLW(background=OTHERS, background_weight=0.0).fit(X, y)
    for method in ("decision_function", "predict_proba", "predict_unknown_proba"):
        one, other = (getattr(model, method)(NEW) for model in (plain, zero))
        assert one.tobytes() == other.tobytes(), method


@pytest.mark.parametrize("rule", ["cosine", "max"])
@pytest.mark.parametrize("n_samples", [1, 3])
def test_one_class_needs_a_background(rule, n_samples):
    rows, labels = X[:n_samples], y[:n_samples]
    with pytest.raises(ValueError, match="at least 2 classes"):
        DualQMLW(rule=rule).fit(rows, labels)
    model = DualQMLW(rule=rule, background=OTHERS).fit(rows, labels)
    scores = model.class_scores(NEW)
    assert scores.shape == (len(NEW), 1)
    assert np.isfinite(scores).all()
    assert (model.predict(NEW) == labels[0]).all()
    own = model.class_scores(X)
    assert own[:n_samples].min() >= own.max() - 1e-6


def test_a_background_is_saved_cloned_and_pickled(tmp_path):
    model = DualQMLW(rho=0.5, background=OTHERS, rule="max").fit(X, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        for method in ("decision_function", "predict_proba", "predict_unknown_proba"):
            one, two = (getattr(m, method)(NEW) for m in (model, other))
            assert one.tobytes() == two.tobytes()
    assert loaded.background.within.tobytes() == OTHERS.within.tobytes()
    again = clone(loaded)
    assert not hasattr(again, "metric_")
    np.testing.assert_array_equal(
        again.fit(X, y).decision_function(NEW), model.decision_function(NEW)
    )


def test_other_faces_help_to_recognise_single_images():
    faces = load_orl()
    numbers = np.unique(faces.labels, return_inverse=True)[1]
    rows = faces.images[:, ::2, ::2].reshape(len(numbers), -1).astype(float)
    known = numbers < 20
    others = Background.from_samples(
        rows[~known], numbers[~known], image_shape=(16, 16)
    )
    options = {"rule": "max", "descriptor": "local", "image_shape": (16, 16)}
    errors = []
    for place in (0, 4, 8):
        train = known & (np.arange(400) % 10 == place)
        test = known & ~train
        models = [
            DualQMLW(**options, rho=others.rho, background=others),
            DualQMLW(**options),
        ]
        for model in models:
            model.fit(rows[train], numbers[train])
        errors.append([1.0 - m.score(rows[test], numbers[test]) for m in models])
    helped, alone = np.mean(errors, axis=0)
    assert helped < alone - 0.03
