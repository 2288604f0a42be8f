"""The theory of class sizes against simulations, and its use in the classifier."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml import DualQMLClassifier, DualQMLW
from dualqml.extractors import NearestSample
from dualqml.extractors.class_sizes import (
    class_scales,
    pooled_correlation,
    scales_of_sizes,
    size_gain,
)
from dualqml.extractors.quadratic_features import (
    energies_in_scatter,
    energies_of_others,
    own_energies,
)
from tests.datasets import load_samples
from tests.problems import make_data


def one_class(rng, n_samples, correlation, n_features):
    """Samples of unit norm in the mean: sqrt(r) u + sqrt(1 - r) e."""
    drawn = rng.normal(size=(n_samples + 1, n_features)) / np.sqrt(n_features)
    return np.sqrt(correlation) * drawn[0] + np.sqrt(1 - correlation) * drawn[1:]


@pytest.mark.parametrize("correlation", [0.2, 0.6])
@pytest.mark.parametrize("n_samples", [1, 2, 5, 20])
def test_the_theory_is_that_of_filters_of_least_norm(correlation, n_samples):
    """NumPy's pseudo-inverse gives the filters, and their response to new samples."""
    rng = np.random.default_rng(n_samples)
    own, energies = [], []
    for _ in range(30):
        rows = one_class(rng, n_samples + 20, correlation, 3000)
        known, new = rows[:n_samples], rows[n_samples:]
        weights = np.linalg.pinv(known) @ np.ones(n_samples)
        own.append((new @ weights).mean())
        # In many dimensions, strangers have any direction.
        energies.append(weights @ weights)
    # The energy of a class of one sample is 1.
    gain = size_gain(np.array([n_samples]), correlation)[0]
    assert np.mean(energies) == pytest.approx(gain, rel=0.05)
    assert np.mean(own) == pytest.approx(correlation * gain, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 500))
def test_gains_grow_with_the_size_from_one_to_the_inverse_of_r(correlation, n):
    small, large = size_gain(np.array([n, n + 1]), correlation)
    assert size_gain(np.array([1]), correlation)[0] == 1.0
    assert 1.0 <= small <= large * (1 + 1e-12)
    if correlation > 0:
        assert large <= (1.0 + 1e-12) / correlation


@pytest.mark.parametrize("correlation", [0.05, 0.3, 0.7])
def test_the_correlation_is_found_in_noisy_energies(correlation):
    rng = np.random.default_rng(0)
    counts = rng.choice([1, 2, 3, 8, 30], size=4000)
    gains = counts / (1 + (counts - 1) * correlation)
    energies = 0.07 * gains * rng.gamma(4.0, 0.25, size=counts.size)
    found = pooled_correlation(energies, counts)
    assert found == pytest.approx(correlation, abs=0.03)
    # The scale of the energies does not matter.
    assert pooled_correlation(1e3 * energies, counts) == pytest.approx(found, abs=1e-4)


def test_energies_without_an_effect_of_the_size_mean_full_correlation():
    counts = np.tile([1, 4, 16], 50)
    assert pooled_correlation(np.ones(150), counts) > 0.999
    assert pooled_correlation(counts.astype(float), counts) < 0.001


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=30),
    correlation=st.floats(0.01, 0.99),
    seed=st.integers(0, 999),
)
def test_divisors_grow_with_the_size_and_have_a_geometric_mean_of_one(
    counts, correlation, seed
):
    counts = np.array(counts)
    energies = np.random.default_rng(seed).gamma(2.0, size=counts.size)
    for scales in (
        scales_of_sizes(counts, correlation),
        class_scales(energies, counts),
    ):
        assert np.log(scales).mean() == pytest.approx(0.0, abs=1e-12)
        order = np.argsort(counts)
        assert (np.diff(scales[order]) >= -1e-12).all()
        for size in np.unique(counts):
            assert np.ptp(scales[counts == size]) == 0.0


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 20), n_classes=st.integers(1, 9), seed=st.integers(0, 99))
def test_equal_sizes_have_divisors_of_exactly_one(size, n_classes, seed):
    energies = np.random.default_rng(seed).gamma(2.0, size=n_classes)
    scales = class_scales(energies, np.full(n_classes, size))
    assert scales.tolist() == [1.0] * n_classes


def test_without_any_energy_nothing_is_corrected():
    assert class_scales(np.zeros(3), np.array([1, 2, 3])).tolist() == [1.0] * 3


@pytest.mark.parametrize("n_features", [6, 60])
def test_energies_are_means_over_the_samples_of_other_classes(n_features):
    X, y = make_data([1, 4, 2, 3], n_features, seed=3)
    model = DualQMLClassifier(2.0, rule="max").fit(X, y)
    found = energies_of_others(X, y, model.components_, model.ranks_)
    for c in range(4):
        P = model.quadratic_matrix(c)
        expected = np.mean([x @ P @ x for x in X[y != c]])
        assert found[c] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("block", [1, 5, 4096])
def test_energies_of_all_and_of_own_samples(block, monkeypatch):
    monkeypatch.setattr("dualqml.extractors.quadratic_features._ROW_BLOCK", block)
    rng = np.random.default_rng(0)
    X, y = make_data([1, 4, 2, 3], 6, seed=3)
    order = rng.permutation(y.size)
    X, y = X[order], y[order]
    # A class without factors, and one with several.
    ranks = np.array([1, 0, 3, 2])
    components = rng.normal(size=(6, 6))
    everyone = energies_in_scatter(components, ranks, X.T @ X)
    own = own_energies(X, y, components, ranks)
    for c, factors in enumerate(np.split(components, np.cumsum(ranks)[:-1])):
        squares = ((X @ factors.T) ** 2).sum(axis=1)
        assert everyone[c] == pytest.approx(squares.sum(), rel=1e-12)
        assert own[c] == pytest.approx(squares[y == c].sum(), rel=1e-12)


def unequal_gallery(seed, n_classes=40, n_features=50, noise=1.0):
    """Half of the classes have one sample, half have eight; two test samples each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, n_features))
    counts = np.where(np.arange(n_classes) % 2 == 0, 1, 8)
    y = np.repeat(np.arange(n_classes), counts)
    X = centres[y] + noise * rng.normal(size=(y.size, n_features))
    y_new = np.repeat(np.arange(n_classes), 5)
    new = centres[y_new] + noise * rng.normal(size=(y_new.size, n_features))
    return X, y, new, y_new, counts


@pytest.mark.parametrize("kind", ["quadratic", "signed-root", "DualQMLW"])
def test_classes_of_one_sample_are_recognised_more_often(kind):
    with_scale, without, overall, overall_without = [], [], [], []
    for seed in range(3):
        X, y, new, y_new, counts = unequal_gallery(seed)
        if kind == "DualQMLW":
            model = DualQMLW(rho=1.0, rule="max", kernel="linear").fit(X, y)
            scale = model.qml_.class_scale_
        else:
            X, new = (rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (X, new))
            model = DualQMLClassifier(1.0, rule="max", features=kind).fit(X, y)
            scale = model.class_scale_
        single = counts[y_new] == 1
        assert scale is not None
        assert scale[1] > 1.05 * scale[0]
        plain = model.classes_[model.transform(new).argmax(axis=1)]
        found = model.predict(new)
        with_scale.append((found != y_new)[single].mean())
        without.append((plain != y_new)[single].mean())
        overall.append((found != y_new).mean())
        overall_without.append((plain != y_new).mean())
    assert np.mean(with_scale) < 0.75 * np.mean(without)
    assert np.mean(overall) < 0.9 * np.mean(overall_without)


@pytest.mark.parametrize("features", ["quadratic", "signed-root"])
def test_scores_are_features_over_the_divisors(features):
    X, y = make_data([1, 4, 2, 3], 20, seed=1)
    model = DualQMLClassifier(2.0, rule="max", features=features).fit(X, y)
    counts = np.bincount(y)
    energies = [
        np.mean([x @ model.quadratic_matrix(c) @ x for x in X[y != c]])
        for c in range(4)
    ]
    np.testing.assert_allclose(
        model.class_scale_, class_scales(np.array(energies), counts), rtol=1e-6
    )
    values = model.transform(X)
    power = 2 if features == "quadratic" else 1
    np.testing.assert_allclose(
        model.decision_function(X), values / model.class_scale_**power, rtol=1e-12
    )
    # The features themselves do not know the divisors.
    for c in range(4):
        P = model.quadratic_matrix(c)
        squares = values[:, c] if power == 2 else values[:, c] ** 2
        np.testing.assert_allclose(
            squares, np.einsum("ij,jk,ik->i", X, P, X), atol=1e-9
        )


@pytest.mark.parametrize("features", ["quadratic", "signed-root"])
def test_equal_galleries_are_compared_by_their_features_to_the_last_bit(features):
    X, y = make_data([3] * 5, 20)
    model = DualQMLClassifier(2.0, rule="max", features=features).fit(X, y)
    assert model.class_scale_ is None
    assert model.decision_function(X).tobytes() == model.transform(X).tobytes()


def test_rule_cosine_has_no_divisors():
    X, y = make_data([1, 4, 2, 3], 20)
    assert DualQMLClassifier(2.0).fit(X, y).class_scale_ is None


@pytest.mark.realdata("lfw_embeddings")
def test_faces_of_people_with_one_image_among_people_with_six():
    X, y = load_samples("lfw_embeddings")
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        train, test, single = [], [], []
        for place, person in enumerate(rng.permutation(np.unique(y))[:100]):
            own = rng.permutation(np.flatnonzero(y == person))
            n_train = 1 if place % 2 == 0 else 6
            train.append(own[:n_train])
            test.append(own[n_train:][:3])
            single.append(np.full(test[-1].size, n_train == 1))
        train, test, single = map(np.concatenate, (train, test, single))
        found = []
        for model in (
            DualQMLW(rho=2.5, rule="max", kernel="linear"),
            NearestSample(),
        ):
            wrong = model.fit(X[train], y[train]).predict(X[test]) != y[test]
            found.append(wrong[single].mean())
        errors.append(found)
    ours, nearest = np.mean(errors, axis=0)
    assert ours < nearest - 0.025
