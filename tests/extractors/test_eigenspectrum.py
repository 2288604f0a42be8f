import numpy as np
import pytest

from dualqml.extractors._eigenspectrum import (
    balanced_weights,
    eigenspectrum_directions,
    regularised_spectrum,
    regularised_whitening,
)
from tests.problems import make_data

# A spectrum as images have: it falls steeply first and levels off later.
STEEP = 100.0 / np.arange(1.0, 41.0) ** 2
SHAPES = [([4] * 6, 100), ([2] * 12, 50), ([5, 2, 3, 1, 7], 60), ([9] * 5, 8)]


def problem(sizes, n_features):
    # Features of very different scale make the spectrum steep, as in STEEP.
    X, codes = make_data(sizes, n_features, unit=False)
    return X / np.arange(1, n_features + 1), codes


def within_scatter(X, codes):
    n_classes = codes.max() + 1
    return sum(
        np.cov(X[codes == c].T, bias=True) / n_classes
        for c in range(n_classes)
        if np.count_nonzero(codes == c) > 1
    )


def test_curve_is_that_of_the_paper_through_the_first_and_the_last_reliable_one():
    model = regularised_spectrum(STEEP, 1.0)
    m, rank = model.n_reliable, STEEP.size
    first, last = STEEP[0], STEEP[m - 1]
    alpha = first * last * (m - 1) / (first - last)
    beta = (m * last - first) / (first - last)
    assert 2 < m < rank
    assert beta > -1
    np.testing.assert_allclose(alpha / (1 + beta), first)
    np.testing.assert_allclose(alpha / (m + beta), last)
    k = np.arange(1, rank + 1)
    np.testing.assert_array_equal(model.values[:m], STEEP[:m])
    np.testing.assert_allclose(model.values[m:], (alpha / (k + beta))[m:])
    np.testing.assert_allclose(model.null_value, alpha / (rank + 1 + beta))


def test_first_unreliable_variance_is_the_largest_below_the_limit():
    spectrum = np.array([9.0, 8.0, 5.0, 3.0, 2.9, 1.0, 0.9])
    # Median 3, smallest 0.9: limits 3, 5.1 and 9.3.
    counts = [regularised_spectrum(spectrum, mu).n_reliable for mu in (0, 1, 3)]
    assert counts == [4, 2, 1]


def test_a_variance_at_the_limit_is_reliable():
    spectrum = np.array([8.0, 4.0, 2.0, 1.0, 0.0625])
    assert regularised_spectrum(spectrum, 0.0).n_reliable == 3


def test_larger_mu_trusts_fewer_variances():
    counts = [
        regularised_spectrum(STEEP, mu).n_reliable for mu in (0.0, 0.5, 1.0, 5.0, 50.0)
    ]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("power", [0.3, 1.0, 2.0, 4.0])
def test_modelled_spectrum_falls_and_ends_in_the_null_value(mu, power):
    model = regularised_spectrum(np.arange(1.0, 31.0) ** -power, mu)
    whole = np.append(model.values, model.null_value)
    assert np.all(np.diff(whole) <= 0)
    assert model.null_value > 0


@pytest.mark.parametrize("spectrum", [[3.0], [3.0, 1.0], [3.0, 2.9, 1.0]])
def test_one_reliable_variance_makes_the_model_flat(spectrum):
    model = regularised_spectrum(np.array(spectrum), 1.0)
    assert model.n_reliable == 1
    np.testing.assert_array_equal(model.values, 3.0)
    assert model.null_value == 3.0


def test_equal_variances_make_the_model_flat():
    model = regularised_spectrum(np.full(5, 2.0), 1.0)
    np.testing.assert_allclose([*model.values, model.null_value], 2.0)


def test_equal_reliable_variances_make_the_model_flat():
    model = regularised_spectrum(np.array([5.0, 5.0, 5.0, 1.0, 0.8, 0.6, 0.5]), 1.0)
    assert model.n_reliable == 3
    np.testing.assert_allclose([*model.values, model.null_value], 5.0)


def test_weights_give_every_class_the_same_total():
    codes = np.array([0, 1, 1, 2, 2, 2])
    weights = balanced_weights(codes)
    np.testing.assert_allclose(np.bincount(codes, weights), 1 / 3)


@pytest.mark.parametrize(("sizes", "n_features"), SHAPES)
def test_whitened_within_scatter_is_measured_over_modelled(sizes, n_features):
    X, codes = problem(sizes, n_features)
    whitening = regularised_whitening(X, codes, 1.0)
    model, rank = whitening.spectrum, whitening.spectrum.eigenvalues.size
    assert rank == min(n_features, sum(sizes) - len(sizes))
    measured = np.linalg.eigvalsh(within_scatter(X, codes))[::-1]
    np.testing.assert_allclose(model.eigenvalues, measured[:rank])
    S = within_scatter(whitening.apply(X), codes)
    V = whitening.vectors
    ratios = model.eigenvalues / model.values
    np.testing.assert_allclose(V.T @ S @ V, np.diag(ratios), atol=1e-9)
    np.testing.assert_allclose(ratios[: model.n_reliable], 1.0)
    np.testing.assert_allclose(np.trace(S), ratios.sum())


def test_whitening_divides_by_the_null_value_outside_the_range(rng):
    X, codes = problem([3] * 4, 30)
    whitening = regularised_whitening(X, codes, 1.0)
    V = whitening.vectors
    outside = rng.normal(size=(2, 30))
    outside -= outside @ V @ V.T
    np.testing.assert_allclose(
        whitening.apply(outside), outside / np.sqrt(whitening.spectrum.null_value)
    )


@pytest.mark.parametrize(("sizes", "n_features"), SHAPES)
def test_directions_are_those_of_the_full_matrices(sizes, n_features):
    X, codes = problem(sizes, n_features)
    values, vectors = np.linalg.eigh(within_scatter(X, codes))
    values, vectors = values[::-1], vectors[:, ::-1]
    model = regularised_spectrum(values[values > 1e-10 * values[0]], 1.0)
    modelled = np.full(n_features, model.null_value)
    modelled[: model.values.size] = model.values
    Y = X @ vectors / np.sqrt(modelled)
    between = np.array([Y[codes == c].mean(axis=0) for c in range(len(sizes))])
    total = within_scatter(Y, codes) + np.cov(between.T, bias=True)
    _, principal = np.linalg.eigh(total)
    n = 4
    expected = Y @ principal[:, ::-1][:, :n]
    actual = X @ eigenspectrum_directions(X, codes, mu=1.0, n_components=n)
    np.testing.assert_allclose(actual @ actual.T, expected @ expected.T, atol=1e-8)


def test_directions_do_not_depend_on_the_coordinates(rng):
    X, codes = problem([3] * 5, 14)
    rotation, _ = np.linalg.qr(rng.normal(size=(40, 14)))
    grams = []
    for Z in (X, X @ rotation.T):
        features = Z @ eigenspectrum_directions(Z, codes, mu=1.0, n_components=None)
        grams.append(features @ features.T)
    np.testing.assert_allclose(*grams, atol=1e-9)


@pytest.mark.parametrize("copies", [1, 3])
def test_classes_that_do_not_vary_are_not_whitened(copies, rng):
    # The means of three equal rows are not exact; what is left is no scatter.
    X = np.repeat(rng.normal(size=(6, 9)) + 7.3, copies, axis=0)
    whitening = regularised_whitening(X, np.repeat(np.arange(6), copies), 1.0)
    assert whitening.vectors.shape == (9, 0)
    np.testing.assert_array_equal(whitening.apply(X), X)
