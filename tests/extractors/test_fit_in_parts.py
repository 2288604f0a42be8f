"""Fits in parts against fits to all samples at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.core import SharedSpectrum
from dualqml.core.certificate import certify_directly
from dualqml.core.problem import QMLSolution
from dualqml.core.spectrum import sample_spectrum
from dualqml.exceptions import DualQMLError, InfeasibleError, MethodError
from dualqml.extractors import (
    Background,
    DualQML,
    DualQMLClassifier,
    DualQMLClassifierCV,
    DualQMLW,
    DualQMLWCV,
    Fisherfaces,
    fit_in_parts,
    part_sums,
)
from dualqml.extractors.fit_in_parts import (
    check_profiles,
    check_size,
    checked_recipe,
    class_directions,
    searched_classes,
    solve_rows,
)
from dualqml.extractors.part_sums import PartRows
from tests.datasets import load_samples, split
from tests.extractors.memory_parts import fit_in_memory, qml_of

N_FEATURES = 24


def people(counts, seed=0, n_others=120):
    """Samples in random order, labels, and other samples of the same people."""
    rng = np.random.default_rng(seed)
    spread = 0.9 ** np.arange(N_FEATURES)
    centres = rng.normal(size=(len(counts), N_FEATURES)) * spread + 0.5
    order = rng.permutation(int(np.sum(counts)))
    y = np.repeat(np.arange(len(counts)), counts)[order]
    others = rng.integers(0, len(counts), n_others)
    X, more = (
        centres[codes] + 0.5 * spread * rng.normal(size=(codes.size, N_FEATURES))
        for codes in (y, others)
    )
    return X, y, more


@pytest.fixture(scope="module")
def background():
    X, y, _ = people(np.full(60, 4), seed=77)
    return Background.from_samples(X, y)


RAGGED = np.concatenate([[1, 200], np.random.default_rng(1).integers(1, 30, 22)])
SIZES = {
    "even": np.full(30, 3),
    "ragged": RAGGED,
    "one each": np.ones(30, dtype=int),
    "two classes": np.array([20, 17]),
}
ESTIMATORS = {
    "DualQML": DualQML(1.0),
    "signed root": DualQML(0.1, features="signed-root", lam_scale="auto"),
    "max": DualQMLClassifier(1.0, rule="max"),
    "cosine": DualQMLClassifier(1.0, rule="cosine", centre=True, own_weight=0.5),
    "DualQMLW max": DualQMLW(kernel="linear", rule="max"),
    "DualQMLW cosine": DualQMLW(kernel="linear", rule="cosine"),
    "DualQMLWCV": DualQMLWCV(kernel="linear", random_state=0),
    "background": DualQMLW(kernel="linear", rule="max"),
    "background without weight": DualQMLW(kernel="linear", background_weight=0.0),
    "background CV": DualQMLWCV(kernel="linear", random_state=0),
}


def estimator_of(name, background):
    estimator = ESTIMATORS[name]
    params = estimator.get_params(deep=False)
    if name.startswith("background"):
        params["background"] = background
    return type(estimator)(**params)


def scores(model, X):
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    return model.transform(X)


def assert_same_model(ours, local, X, *, copies=False):
    """The same scores, decisions and public attributes.

    Between copies of samples, decisions and multipliers are chance.
    """
    expected = scores(local, X)
    np.testing.assert_allclose(scores(ours, X), expected, rtol=0, atol=1e-8)
    if hasattr(local, "predict") and not copies:
        np.testing.assert_array_equal(ours.predict(X), local.predict(X))

    def public(model):
        return {name for name in vars(model) if not name.startswith("_")}

    assert public(ours) == public(local)
    a, b = qml_of(ours), qml_of(local)
    assert public(a) == public(b)
    np.testing.assert_array_equal(a.ranks_, b.ranks_)
    np.testing.assert_array_equal(a.status_, b.status_)
    if not copies:
        np.testing.assert_allclose(
            a.dual_coef_, b.dual_coef_, rtol=1e-6, atol=1e-7 * b.dual_coef_.max()
        )
    np.testing.assert_allclose(a.lam_, b.lam_, rtol=1e-12)
    if hasattr(b, "energies_"):
        np.testing.assert_allclose(a.energies_, b.energies_, rtol=1e-6, atol=1e-12)
        assert (a.class_scale_ is None) == (b.class_scale_ is None)


def assert_certified(model, parts):
    """The stored certificates are kept, and true for the samples of all parts."""
    qml = qml_of(model)
    recipe = checked_recipe(type(model)(**model.get_params(deep=False)))
    Z = parts.coordinates(recipe, None if qml is model else parts.linear)
    members = [np.flatnonzero(parts.codes == c) for c in range(parts.labels.size)]
    spectrum = sample_spectrum(Z)
    solution = QMLSolution(
        qml.lam_,
        spectrum.project(qml.components_),
        qml.ranks_,
        qml.dual_coef_,
        np.ones(qml.ranks_.size, dtype=np.int64),
    )
    found = certify_directly(spectrum, members, solution, qml.components_)
    assert (qml.status_ == "optimal").all()
    assert found.worst.max() <= qml.tol
    np.testing.assert_allclose(qml.duality_gap_, found.gap, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_in_parts_is_the_local_fit(name, sizes, background):
    X, y, more = people(SIZES[sizes])
    estimator = estimator_of(name, background)
    ours, parts = fit_in_memory(estimator, X, y)
    local = estimator.fit(X, y)
    assert_same_model(ours, local, more)
    assert_certified(ours, parts)
    if isinstance(local, DualQMLWCV):
        assert ours.best_params_ == local.best_params_


@pytest.mark.parametrize("name", ["DualQML", "DualQMLW max", "background CV"])
def test_one_part_is_the_local_fit(name, background):
    X, y, more = people(np.full(12, 4))
    estimator = estimator_of(name, background)
    ours, parts = fit_in_memory(estimator, X, y, n_parts=1)
    assert_same_model(ours, estimator.fit(X, y), more)
    assert_certified(ours, parts)


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=12).filter(
        lambda counts: sum(counts) > 3
    ),
    n_parts=st.integers(2, 5),
    seed=st.integers(0, 1000),
    name=st.sampled_from(["max", "signed root", "DualQMLW max", "DualQMLW cosine"]),
    scale=st.sampled_from([1.0, 1e3, 1e-3]),
    data=st.data(),
)
def test_any_division_into_parts(counts, n_parts, seed, name, scale, data):
    X, y, more = people(counts, seed=seed, n_others=30)
    params = ESTIMATORS[name].get_params()
    if name == "max":
        params["lam"] /= scale**4
    estimator = type(ESTIMATORS[name])(**params)
    part_of_class = data.draw(
        st.lists(
            st.integers(0, n_parts - 1), min_size=len(counts), max_size=len(counts)
        )
    )
    ours, parts = fit_in_memory(
        estimator, scale * X, y, n_parts, np.array(part_of_class)
    )
    local = estimator.fit(scale * X, y)
    assert_same_model(ours, local, scale * more)
    assert_certified(ours, parts)


def test_rows_of_classes_in_any_mixture_are_the_same_to_the_last_bit():
    X, y, _ = people(np.full(20, 3))
    estimator = DualQMLW(kernel="linear", rule="max")
    ours, _ = fit_in_memory(estimator, X, y)
    by_class = np.argsort(y, kind="stable")
    other, _ = fit_in_memory(estimator, X[by_class], y[by_class])
    np.testing.assert_array_equal(ours.qml_.components_, other.qml_.components_)
    np.testing.assert_array_equal(ours.qml_.duality_gap_, other.qml_.duality_gap_)
    np.testing.assert_array_equal(ours.qml_.dual_coef_[by_class], other.qml_.dual_coef_)


def test_parts_in_small_chunks_are_the_same(monkeypatch):
    X, y, more = people(RAGGED)
    estimator = DualQMLW(kernel="linear", rule="max")
    local = estimator.fit(X, y)
    monkeypatch.setattr(part_sums, "_CHUNK_BYTES", 8 * N_FEATURES * 20)
    ours, parts = fit_in_memory(estimator, X, y)
    assert_same_model(ours, local, more)
    # The largest class, two more chunks at least, and the tree.
    # Additions of chunks and parts, and a few within a chunk.
    assert 4 < parts.longest_sum < 40


@pytest.mark.parametrize("labels", ["text", "numbers"])
def test_labels_of_any_kind(labels):
    X, y, more = people(np.full(10, 3))
    y = np.char.add("person ", y.astype(str)) if labels == "text" else 7 * y - 20
    estimator = DualQMLClassifier(1.0, rule="max")
    ours, _ = fit_in_memory(estimator, X, y)
    assert_same_model(ours, estimator.fit(X, y), more)


def test_choices_on_some_of_the_classes_are_those_of_the_local_fit(monkeypatch):
    monkeypatch.setattr("dualqml.extractors._leave_one_out._MOST_CLASSES", 12)
    X, y, more = people(np.resize([3, 1, 4], 40))
    estimator = DualQMLWCV(kernel="linear", random_state=3)
    assert searched_classes(estimator, np.bincount(y)).size == 12
    ours, _ = fit_in_memory(estimator, X, y)
    local = estimator.fit(X, y)
    assert ours.best_params_ == local.best_params_
    assert_same_model(ours, local, more)


def test_given_parameters_need_no_search():
    counts = np.full(5, 3)
    assert searched_classes(DualQMLW(), counts).size == 0
    assert searched_classes(DualQML(), counts).size == 0


# Samples that are special


def test_zero_vectors_have_no_constraint():
    X, y, more = people(np.full(12, 3))
    X[[4, 20]] = 0.0
    X[7] *= 1e-14
    for name in ("DualQML", "signed root", "max", "cosine"):
        estimator = ESTIMATORS[name]
        with pytest.warns(UserWarning, match="rows 4, 7, 20 of X"):
            ours, _ = fit_in_memory(estimator, X, y)
        with pytest.warns(UserWarning, match="rows 4, 7, 20 of X"):
            local = type(estimator)(**estimator.get_params()).fit(X, y)
        assert_same_model(ours, local, more)
        assert (ours.dual_coef_[[4, 7, 20]] == 0.0).all()
    # The metric moves zero to somewhere else.
    estimator = DualQMLW(kernel="linear", rule="max")
    ours, _ = fit_in_memory(estimator, X, y)
    assert_same_model(ours, estimator.fit(X, y), more)


def test_zero_vectors_may_be_an_error():
    X, y, _ = people(np.full(6, 3))
    X[5] = 0.0
    with pytest.raises(InfeasibleError, match="rows 5 of X"):
        fit_in_memory(DualQML(zero_samples="error"), X, y)
    X[y == 2] = 0.0
    for estimator in (DualQML, DualQMLClassifier):
        with pytest.raises(InfeasibleError, match=r"All samples of class .*2"):
            fit_in_memory(estimator(zero_samples="ignore"), X, y)
    with pytest.raises(InfeasibleError, match="All samples are zero vectors"):
        fit_in_memory(DualQML(), 0.0 * X, y)


def test_equal_samples_are_an_error_without_a_background(background):
    X, y, more = people(np.full(6, 2))
    X = np.tile(X[0], (len(X), 1))
    with pytest.raises(DualQMLError, match="All samples are equal"):
        fit_in_memory(DualQMLW(kernel="linear"), X, y)
    # DualQMLWCV tries it without the background too, if samples can be left out.
    for estimator, n in ((DualQMLW, len(X)), (DualQMLW, 1), (DualQMLWCV, 1)):
        estimator = estimator(kernel="linear", background=background)
        ours, _ = fit_in_memory(estimator, X[:n], y[:n])
        assert_same_model(ours, estimator.fit(X[:n], y[:n]), more, copies=True)


def test_classes_without_variation_and_a_constant_feature(background):
    X, y, more = people(np.full(8, 3))
    copies = X[[np.flatnonzero(y == c)[0] for c in y]]
    for name in ("DualQMLW max", "DualQMLWCV", "background"):
        estimator = estimator_of(name, background)
        ours, _ = fit_in_memory(estimator, copies, y)
        assert_same_model(ours, estimator.fit(copies, y), more, copies=True)
    flat = X.copy()
    flat[:, 5:] = 1.0
    estimator = DualQMLW(kernel="linear", rule="max")
    ours, _ = fit_in_memory(estimator, flat, y)
    assert_same_model(ours, estimator.fit(flat, y), more)


def test_one_person_needs_a_background(background):
    X, y, more = people([5])
    for estimator in (DualQML(), DualQMLW(kernel="linear")):
        with pytest.raises(ValueError, match="at least 2 classes"):
            fit_in_memory(estimator, X, y)
    estimator = DualQMLW(kernel="linear", background=background)
    ours, parts = fit_in_memory(estimator, X, y)
    assert_same_model(ours, estimator.fit(X, y), more)
    assert_certified(ours, parts)


# What cannot be fitted in parts


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (Fisherfaces(), "Fisherfaces cannot be fitted in parts"),
        (DualQMLClassifierCV(), "DualQMLClassifierCV cannot be fitted in parts"),
        (DualQML(solver="lbfgs"), "solver='lbfgs' cannot be used in parts"),
        (DualQMLClassifier(probability=True), "use probability=False"),
        (DualQMLW(kernel="rbf"), "use kernel='linear'"),
        (DualQMLW(image_shape=(4, 6)), "DualQMLW of images cannot be fitted"),
        (DualQMLWCV(descriptor="local"), "DualQMLWCV of images cannot be fitted"),
    ],
)
def test_what_needs_all_samples_is_refused(estimator, message):
    with pytest.raises(MethodError, match=message):
        checked_recipe(estimator)


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="lam"):
        checked_recipe(DualQML(lam=-1.0))


def test_recipes_say_what_tasks_have_to_know():
    assert checked_recipe(DualQML(tol=1e-4, max_iter=9)) == fit_in_parts.Recipe(
        unit=False, signed_root=False, tol=1e-4, max_iter=9
    )
    assert checked_recipe(DualQMLW(tol=1e-5), cosines=True) == fit_in_parts.Recipe(
        unit=True, signed_root=True, tol=1e-5, max_iter=None, cosines=True
    )


def test_sizes_that_need_kernels_are_refused():
    check_size(DualQMLW(kernel="linear"), 10, 1280)
    check_size(DualQML(), 10, 1280)
    check_size(DualQMLW(), 20_001, 128)
    with pytest.raises(MethodError, match="1,281 values cannot be fitted in parts"):
        check_size(DualQML(), 10, 1281)
    with pytest.raises(MethodError, match="use kernel='linear', or fit as usual"):
        check_size(DualQMLW(), 20_000, 128)


def test_too_many_profiles_are_refused():
    check_profiles("cosine", 5000, 5000)
    check_profiles("max", 10**6, 10**6)
    with pytest.raises(MethodError, match=r"25,005,000 of them \(0\.2 GB\)"):
        check_profiles("cosine", 5001, 5000)


# Pieces


def test_directions_of_classes_are_means_at_unit_norm():
    X, y, _ = people([1, 4, 2])
    order = np.argsort(y, kind="stable")
    part = PartRows(X[order], np.bincount(y))
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([units[y == c].mean(axis=0) for c in range(3)])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    recipe = checked_recipe(DualQMLW(), cosines=True)
    np.testing.assert_allclose(class_directions(part, recipe), expected, atol=1e-14)


def test_threads_change_no_bit():
    X, y, _ = people(np.full(60, 3))
    _, parts = fit_in_memory(DualQML(1.0), X, y, n_parts=2)
    assert isinstance(parts.problem.spectrum, SharedSpectrum)
    recipe = checked_recipe(DualQML(1.0))
    one, four = (
        solve_rows(parts.parts[0], recipe, None, parts.problem, n_jobs=n)
        for n in (1, 4)
    )
    np.testing.assert_array_equal(one.components, four.components)
    np.testing.assert_array_equal(one.gap, four.gap)
    np.testing.assert_array_equal(one.energies, four.energies)


@pytest.mark.realdata("ar")
@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("name", ["max", "cosine", "DualQMLW max", "DualQMLWCV"])
def test_real_faces(name, n_parts):
    X, y = load_samples("ar")
    if n_parts > 1:
        # So few samples of 1,024 values are never divided: take 256 values.
        X = X.reshape(-1, 16, 2, 16, 2).mean(axis=(2, 4)).reshape(-1, 256)
    train, test = split(y, 5)
    estimator = estimator_of(name, None)
    ours, parts = fit_in_memory(estimator, X[train], y[train], n_parts)
    local = estimator.fit(X[train], y[train])
    assert_same_model(ours, local, X[test])
    assert_certified(ours, parts)
