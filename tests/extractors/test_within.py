"""Against dense matrices in other coordinates, from singular vectors and loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh

from dualqml.extractors import WithinMetric
from dualqml.extractors._motions import tangent_images
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._within import _low_rank_eigh, whitened_at, within_spectrum
from tests.geometries import (
    SHAPE,
    bandwidth_of,
    by_geometry,
    everyone,
    fold_of,
    make_geometry,
    slow_coordinates,
)
from tests.problems import make_data


def slow_gram(kind, X, codes, tangents, rho, kappa):
    """A (S_w + rho B)^-1 A' of the training samples, written out."""
    A, moved = slow_coordinates(kind, X, tangents)
    size = A.shape[1]
    within = np.zeros((size, size))
    for c in np.unique(codes):
        mean = A[codes == c].mean(axis=0)
        for row in A[codes == c]:
            within += np.outer(row - mean, row - mean)
    within /= np.trace(within)
    prior = np.eye(size) / size
    if len(tangents):
        scatter = np.zeros((size, size))
        for rows in moved:
            scatter += rows.T @ rows / np.trace(rows.T @ rows)
        prior = (1.0 - kappa) * prior + kappa * scatter / np.trace(scatter)
    return A @ np.linalg.solve(within + rho * prior, A.T)


@by_geometry
@pytest.mark.parametrize("images", [False, True])
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=6).filter(
        lambda sizes: max(sizes) > 1
    ),
    kappa=st.sampled_from([0.0, 0.2, 0.7]),
    seed=st.integers(0, 10_000),
)
def test_one_eigenproblem_serves_every_rho(kind, images, sizes, kappa, seed):
    X, codes = make_data(sizes, 24, seed=seed, centre=False)
    tangents = tangent_images(X, SHAPE) if images else None
    placement = make_geometry(kind, X, tangents).restricted(everyone(X))
    assert (placement.tangent_scatter is None) != images
    spectrum = within_spectrum(placement, codes, kappa)
    projected = placement.training @ spectrum.directions
    assert (np.diff(spectrum.variances) >= 0).all()
    for rho in (0.01, 0.3, 5.0):
        expected = slow_gram(
            kind, X, codes, tangents if images else np.empty((0, *X.shape)), rho, kappa
        )
        rows = projected / np.sqrt(spectrum.variances + rho)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-6 * scale)
        norms = np.sqrt(np.diag(expected))
        whitened = spectrum.whitened(projected, rho)
        np.testing.assert_allclose(
            whitened @ whitened.T, expected / np.outer(norms, norms), atol=1e-6
        )


@by_geometry
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("copies", [1, 2])
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=6),
    kappa=st.sampled_from([0.0, 0.2, 1.0]),
    rho=st.sampled_from([1e-3, 0.1, 20.0]),
    seed=st.integers(0, 10_000),
)
def test_one_rho_is_the_spectrum_at_it(kind, images, copies, sizes, kappa, rho, seed):
    X, codes = make_data(sizes, 24, seed=seed, centre=False)
    X, codes = np.repeat(X, copies, axis=0), np.repeat(codes, copies)
    tangents = tangent_images(X, SHAPE) if images else None
    placement = make_geometry(kind, X, tangents).restricted(everyone(X))
    before = [np.array(placement.training), np.array(placement.projector)]
    training, coefficients = whitened_at(placement, codes, kappa=kappa, rho=rho)
    spectrum = within_spectrum(placement, codes, kappa)
    scaled = spectrum.directions / np.sqrt(spectrum.variances + rho)
    expected = placement.training @ scaled
    # Any rotation serves as well.
    gram = expected @ expected.T
    atol = 1e-7 * np.abs(gram).max()
    np.testing.assert_allclose(training @ training.T, gram, atol=atol)
    cross = expected @ (placement.projector @ scaled).T
    np.testing.assert_allclose(
        training @ coefficients.T, cross, atol=1e-7 * np.abs(cross).max()
    )
    np.testing.assert_array_equal(placement.training, before[0])
    np.testing.assert_array_equal(placement.projector, before[1])


@pytest.mark.parametrize("rho", [1e-9, 1e-13])
def test_a_small_rho_keeps_its_digits(rho):
    # Fewer contrasts than half of the directions: those without variance count most.
    X, codes = make_data([2] * 5 + [1] * 8, 24, noise=1.0, centre=False)
    tangents = tangent_images(X, SHAPE)
    placement = make_geometry("gram", X, tangents).restricted(everyone(X))
    training, _ = whitened_at(placement, codes, kappa=0.2, rho=rho)
    # A sum of matrices would lose the prior; the spectrum keeps them apart.
    spectrum = within_spectrum(placement, codes, 0.2)
    expected = spectrum.whitened(placement.training @ spectrum.directions, rho)
    units = unit_rows(training)
    np.testing.assert_allclose(units @ units.T, expected @ expected.T, atol=1e-9)


def test_a_rho_of_nothing_has_a_metric_still():
    X, codes = make_data([4, 4, 4], 24, centre=False)
    placement = make_geometry("input", X, None).restricted(everyone(X))
    training, coefficients = whitened_at(placement, codes, kappa=0.2, rho=1e-300)
    assert np.isfinite(training).all()
    assert np.isfinite(coefficients).all()
    # Directions in which nobody varies are all that counts, and there samples of a
    # person are the same.
    units = unit_rows(training)
    cosines = units @ units.T
    assert cosines[codes[:, None] == codes].min() > 0.999


@pytest.mark.parametrize("images", [False, True])
def test_both_ways_to_linear_coordinates_give_the_same_metric(images):
    X, codes = make_data([3, 2, 4, 4, 5], 24, noise=1.0, centre=False)
    tangents = tangent_images(X, SHAPE) if images else None
    grams = []
    for kind in ("input", "gram"):
        placement = make_geometry(kind, X, tangents).restricted(everyone(X))
        rows, _ = whitened_at(placement, codes, kappa=0.2, rho=0.1)
        grams.append(rows @ rows.T)
    np.testing.assert_allclose(*grams, atol=1e-9 * np.abs(grams[0]).max())


@by_geometry
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
def test_the_eigenvectors_diagonalise_both_matrices(kind, kappa):
    X, codes = make_data([3, 2, 4, 1], 24, centre=False)
    geometry = make_geometry(kind, X, tangent_images(X, SHAPE))
    placement = geometry.restricted(everyone(X))
    before = placement.tangent_scatter.copy()
    spectrum = within_spectrum(placement, codes, kappa)
    np.testing.assert_array_equal(placement.tangent_scatter, before)
    A, E = placement.training, spectrum.directions
    means = np.array([A[codes == c].mean(axis=0) for c in range(4)])
    within = (A - means[codes]).T @ (A - means[codes])
    within /= np.trace(within)
    prior = kappa * before + max(1.0 - kappa, 1e-6) * np.eye(len(E)) / len(E)
    assert np.trace(before) == pytest.approx(1.0)
    np.testing.assert_allclose(E.T @ prior @ E, np.eye(len(E)), atol=1e-8)
    np.testing.assert_allclose(
        E.T @ within @ E,
        np.diag(spectrum.variances),
        atol=1e-9 * spectrum.variances.max(),
    )


@by_geometry
def test_samples_are_placed_where_the_metric_would_put_them(kind):
    X, codes = make_data([4] * 6, 24, noise=1.0, centre=False)
    train, held_out = fold_of(24)
    # Not images: motions have the weights of the whole set.
    metric = WithinMetric(
        rho=0.3,
        kernel="rbf" if kind == "rbf" else "linear",
        width=bandwidth_of(X) / bandwidth_of(X[train], 1.0),
    ).fit(X[train], codes[train])
    geometry = make_geometry(kind, X, None)
    placement = geometry.restricted(train)
    spectrum = within_spectrum(placement, codes[train], metric.kappa)
    known, asked = (
        spectrum.whitened(rows @ spectrum.directions, 0.3)
        for rows in (placement.training, geometry.place(placement, train, held_out))
    )
    expected = metric.transform(X[held_out]) @ metric.transform(X[train]).T
    np.testing.assert_allclose(asked @ known.T, expected, atol=1e-8)


@by_geometry
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("images", [False, True])
def test_without_differences_in_a_class_the_prior_is_all_there_is(kind, copies, images):
    X, codes = make_data([1] * 7, 24, centre=False)
    X, codes = np.repeat(X, copies, axis=0), np.repeat(codes, copies)
    geometry = make_geometry(kind, X, tangent_images(X, SHAPE) if images else None)
    placement = geometry.restricted(everyone(X))
    assert placement.training.shape[1] == 6
    spectrum = within_spectrum(placement, codes, 0.2)
    np.testing.assert_array_equal(spectrum.variances, 0.0)
    projected = placement.training @ spectrum.directions
    whitened = [spectrum.whitened(projected, rho) for rho in (0.01, 10.0)]
    assert np.isfinite(whitened[0]).all()
    # Then rho has no effect.
    np.testing.assert_allclose(*whitened, atol=1e-10)


@by_geometry
def test_a_motion_that_changes_nothing_is_left_out(kind):
    X, codes = make_data([3, 2, 4], 24, centre=False)
    tangents = tangent_images(X, SHAPE)
    tangents[[1, 4]] = 0.0
    grams = []
    for part in (tangents, tangents[[0, 2, 3, 5]]):
        placement = make_geometry(kind, X, part).restricted(everyone(X))
        spectrum = within_spectrum(placement, codes, 0.2)
        rows = spectrum.whitened(placement.training @ spectrum.directions, 0.3)
        grams.append(rows @ rows.T)
    np.testing.assert_allclose(*grams, atol=1e-9)


@pytest.mark.parametrize("n_rows", [0, 1, 4, 9])
def test_a_low_factor_has_the_eigenvalues_of_the_whole_problem(n_rows):
    rng = np.random.default_rng(n_rows)
    factor, root = rng.normal(size=(n_rows, 9)), rng.normal(size=(9, 9))
    prior = root @ root.T + np.eye(9)
    variances, directions = _low_rank_eigh(factor, prior.copy())
    scatter = factor.T @ factor
    np.testing.assert_allclose(variances, eigh(scatter, prior)[0], atol=1e-10)
    np.testing.assert_allclose(directions.T @ prior @ directions, np.eye(9), atol=1e-10)
    np.testing.assert_allclose(
        directions.T @ scatter @ directions, np.diag(variances), atol=1e-10
    )
