"""Compared with dense matrices in other coordinates, from SVDs and loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline

from dualqml._linalg import unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.extractors import (
    Background,
    NearestSample,
    WithinMetric,
    within_metric,
)
from dualqml.extractors.prepared_samples import PreparedSamples
from dualqml.extractors.within_metric import whitened_at, within_spectrum
from dualqml.images.descriptors import moving_descriptors
from dualqml.images.tangents import tangent_images
from tests.coordinate_systems import (
    SHAPE,
    by_system,
    make_system,
    slow_coordinates,
)
from tests.people import make_vectors
from tests.problems import make_data

X, y = make_data([4] * 6, 36, noise=1.0, unit=False, centre=False)
NEW, _ = make_data([2] * 6, 36, noise=1.0, unit=False, centre=False, seed=1)

OPTIONS = {
    "rbf": {"kernel": "rbf"},
    "linear": {"kernel": "linear"},
    "rbf of images": {"kernel": "rbf", "image_shape": (4, 9)},
    "linear of images": {"kernel": "linear", "image_shape": (4, 9)},
    "local": {"descriptor": "local", "image_shape": (6, 6)},
}
by_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


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


def whitened(spectrum, learnt, rho):
    """Training samples in the metric of rho, at unit norm."""
    rows = learnt.training @ spectrum.directions
    return unit_rows(rows / np.sqrt(spectrum.variances + rho))


def cosines(metric, rows=X):
    """Cosines of rows with the training samples; a rotation does not change them."""
    return metric.transform(rows) @ metric.transform(X).T


def scatter_ratio(features, labels):
    means = np.array([features[labels == c].mean(axis=0) for c in np.unique(labels)])
    within = np.sum((features - means[labels]) ** 2)
    return within / np.sum((features - features.mean(axis=0)) ** 2)


@by_system
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
    learnt = make_system(kind, X, tangents).coordinates()
    assert (learnt.tangent_scatter is None) != images
    spectrum = within_spectrum(learnt, codes, kappa)
    projected = learnt.training @ spectrum.directions
    assert (np.diff(spectrum.variances) >= 0).all()
    for rho in (0.01, 0.3, 5.0):
        expected = slow_gram(
            kind, X, codes, tangents if images else np.empty((0, *X.shape)), rho, kappa
        )
        rows = projected / np.sqrt(spectrum.variances + rho)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-6 * scale)
        norms = np.sqrt(np.diag(expected))
        whitened = unit_rows(rows)
        np.testing.assert_allclose(
            whitened @ whitened.T, expected / np.outer(norms, norms), atol=1e-6
        )


@by_system
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("copies", [1, 2])
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=6),
    kappa=st.sampled_from([0.0, 0.2, 1.0]),
    rho=st.sampled_from([1e-3, 0.1, 20.0]),
    seed=st.integers(0, 10_000),
)
def test_whitening_at_one_rho_equals_the_spectrum_at_that_rho(
    kind, images, copies, sizes, kappa, rho, seed
):
    X, codes = make_data(sizes, 24, seed=seed, centre=False)
    X, codes = np.repeat(X, copies, axis=0), np.repeat(codes, copies)
    tangents = tangent_images(X, SHAPE) if images else None
    learnt = make_system(kind, X, tangents).coordinates()
    before = [np.array(learnt.training), np.array(learnt.projector)]
    training, coefficients = whitened_at(learnt, codes, kappa=kappa, rho=rho)
    spectrum = within_spectrum(learnt, codes, kappa)
    scaled = spectrum.directions / np.sqrt(spectrum.variances + rho)
    expected = learnt.training @ scaled
    # Equal up to a rotation.
    gram = expected @ expected.T
    atol = 1e-7 * np.abs(gram).max()
    np.testing.assert_allclose(training @ training.T, gram, atol=atol)
    cross = expected @ (learnt.projector @ scaled).T
    np.testing.assert_allclose(
        training @ coefficients.T, cross, atol=1e-7 * np.abs(cross).max()
    )
    np.testing.assert_array_equal(learnt.training, before[0])
    np.testing.assert_array_equal(learnt.projector, before[1])


@pytest.mark.parametrize("rho", [1e-9, 1e-13])
def test_a_small_rho_keeps_its_digits(rho):
    # Fewer contrasts than half of the directions: those without variance count most.
    X, codes = make_data([2] * 5 + [1] * 8, 24, noise=1.0, centre=False)
    tangents = tangent_images(X, SHAPE)
    learnt = make_system("gram", X, tangents).coordinates()
    training, _ = whitened_at(learnt, codes, kappa=0.2, rho=rho)
    # A sum of matrices would lose the prior; the spectrum keeps them apart.
    spectrum = within_spectrum(learnt, codes, 0.2)
    expected = whitened(spectrum, learnt, rho)
    units = unit_rows(training)
    np.testing.assert_allclose(units @ units.T, expected @ expected.T, atol=1e-9)


def test_a_tiny_rho_gives_a_finite_metric():
    X, codes = make_data([4, 4, 4], 24, centre=False)
    learnt = make_system("input", X, None).coordinates()
    training, coefficients = whitened_at(learnt, codes, kappa=0.2, rho=1e-300)
    assert np.isfinite(training).all()
    assert np.isfinite(coefficients).all()
    # Only directions without variance within classes count, and there all samples of a
    # class are equal.
    units = unit_rows(training)
    cosines = units @ units.T
    assert cosines[codes[:, None] == codes].min() > 0.999


@pytest.mark.parametrize("images", [False, True])
def test_both_ways_to_linear_coordinates_give_the_same_metric(images):
    X, codes = make_data([3, 2, 4, 4, 5], 24, noise=1.0, centre=False)
    tangents = tangent_images(X, SHAPE) if images else None
    grams = []
    for kind in ("input", "gram"):
        learnt = make_system(kind, X, tangents).coordinates()
        rows, _ = whitened_at(learnt, codes, kappa=0.2, rho=0.1)
        grams.append(rows @ rows.T)
    np.testing.assert_allclose(*grams, atol=1e-9 * np.abs(grams[0]).max())


@by_system
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
def test_the_eigenvectors_diagonalise_both_matrices(kind, kappa):
    X, codes = make_data([3, 2, 4, 1], 24, centre=False)
    system = make_system(kind, X, tangent_images(X, SHAPE))
    learnt = system.coordinates()
    before = learnt.tangent_scatter.copy()
    spectrum = within_spectrum(learnt, codes, kappa)
    np.testing.assert_array_equal(learnt.tangent_scatter, before)
    A, E = learnt.training, spectrum.directions
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


@by_system
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("images", [False, True])
def test_without_differences_in_a_class_only_the_prior_is_left(kind, copies, images):
    X, codes = make_data([1] * 7, 24, centre=False)
    X, codes = np.repeat(X, copies, axis=0), np.repeat(codes, copies)
    system = make_system(kind, X, tangent_images(X, SHAPE) if images else None)
    learnt = system.coordinates()
    # Vectors have coordinates in the whole space, in which samples are zero.
    spanned = learnt.training[:, :6]
    assert np.abs(learnt.training[:, 6:]).sum() == 0.0
    assert np.linalg.matrix_rank(spanned) == learnt.n_directions == 6
    spectrum = within_spectrum(learnt, codes, 0.2)
    np.testing.assert_array_equal(spectrum.variances, 0.0)
    rows = [whitened(spectrum, learnt, rho) for rho in (0.01, 10.0)]
    assert np.isfinite(rows[0]).all()
    # Then rho has no effect.
    np.testing.assert_allclose(*rows, atol=1e-10)


@by_system
def test_a_motion_that_changes_nothing_is_left_out(kind):
    X, codes = make_data([3, 2, 4], 24, centre=False)
    tangents = tangent_images(X, SHAPE)
    tangents[[1, 4]] = 0.0
    grams = []
    for part in (tangents, tangents[[0, 2, 3, 5]]):
        learnt = make_system(kind, X, part).coordinates()
        spectrum = within_spectrum(learnt, codes, 0.2)
        rows = whitened(spectrum, learnt, 0.3)
        grams.append(rows @ rows.T)
    np.testing.assert_allclose(*grams, atol=1e-9)


@by_options
def test_features_have_unit_norm(options):
    metric = WithinMetric(**options).fit(X, y)
    for rows in (X, NEW):
        norms = np.linalg.norm(metric.transform(rows), axis=1)
        np.testing.assert_allclose(norms, 1.0)


@by_options
def test_training_samples_are_transformed_to_what_was_learnt(options):
    metric = WithinMetric(**options)
    samples = metric._prepare(X, np.arange(len(X)))
    learnt = metric._learn(metric._coordinate_system(samples, y), y)
    fitted = WithinMetric(**options).fit(X, y)
    np.testing.assert_allclose(fitted.transform(X), learnt, atol=1e-8)


@by_options
def test_neither_scale_nor_gain_matters(options):
    plain = WithinMetric(**options).fit(X, y)
    scaled = WithinMetric(**options).fit(7.0 * X, y)
    expected = cosines(plain, NEW)
    actual = scaled.transform(7.0 * NEW) @ scaled.transform(7.0 * X).T
    np.testing.assert_allclose(actual, expected, atol=1e-7)
    gains = np.exp(np.random.default_rng(0).normal(size=(24, 1)))
    lit = WithinMetric(**options).fit(gains * X, y)
    np.testing.assert_allclose(cosines(lit, NEW), expected, atol=1e-7)
    np.testing.assert_allclose(cosines(lit, 3.0 * NEW), expected, atol=1e-7)


@by_options
def test_features_of_a_sample_do_not_depend_on_the_others(options):
    metric = WithinMetric(**options).fit(X, y)
    alone = np.vstack([metric.transform(row[None]) for row in NEW])
    np.testing.assert_allclose(alone, metric.transform(NEW), atol=1e-8)


@by_options
def test_single_precision_comes_back_as_single(options):
    metric = WithinMetric(**options).fit(X, y)
    single = metric.transform(NEW.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, metric.transform(NEW), atol=1e-4)
    learnt = WithinMetric(**options).fit(X.astype(np.float32), y)
    assert learnt.coefficients_.dtype == np.float64
    np.testing.assert_allclose(cosines(learnt, NEW), cosines(metric, NEW), atol=1e-3)


@pytest.mark.parametrize(("most", "linear"), [(23, True), (24, False)])
def test_auto_is_the_kernel_up_to_a_number_of_samples(most, linear, monkeypatch):
    assert within_metric.MOST_KERNEL_SAMPLES == 20_000
    monkeypatch.setattr(within_metric, "MOST_KERNEL_SAMPLES", most)
    metric = WithinMetric().fit(X, y)
    assert (metric.kernel_ is None) == linear
    assert (metric.mean_ is None) != linear
    other = WithinMetric(kernel="linear" if linear else "rbf").fit(X, y)
    np.testing.assert_array_equal(metric.transform(NEW), other.transform(NEW))
    # Asked for by name, either is used whatever the number.
    assert WithinMetric(kernel="rbf").fit(X, y).kernel_ is not None
    assert WithinMetric(kernel="linear").fit(X, y).kernel_ is None


@pytest.mark.parametrize("image_shape", [None, (4, 9)])
def test_a_very_wide_kernel_is_linear(image_shape):
    options = {"image_shape": image_shape, "rho": 0.3}
    linear = WithinMetric(kernel="linear", **options).fit(X, y)
    wide = WithinMetric(kernel="rbf", width=1e6, **options).fit(X, y)
    narrow = WithinMetric(kernel="rbf", width=0.5, **options).fit(X, y)
    # Linear coordinates of vectors are those of the whole space.
    n_spanned = wide.coefficients_.shape[1]
    new = unit_rows(linear.transform(NEW)[:, :n_spanned])
    expected = new @ linear.transform(X)[:, :n_spanned].T
    np.testing.assert_allclose(cosines(wide, NEW), expected, atol=1e-4)
    assert np.abs(cosines(narrow, NEW) - expected).max() > 0.05


def test_what_is_like_no_training_sample_makes_new_samples_less_similar():
    metric = WithinMetric(kernel="linear").fit(X[:12], y[:12])
    beyond = np.linalg.svd(X[:12] - X[:12].mean(axis=0))[2][-1]
    similar = [
        float(
            np.max(metric.transform(X[:1] + size * beyond) @ metric.transform(X[:1]).T)
        )
        for size in (0.0, 0.5, 2.0)
    ]
    assert similar[0] == pytest.approx(1.0)
    assert similar[0] > similar[1] > similar[2]


@by_options
def test_differences_within_classes_become_small(options):
    plain = scatter_ratio(unit_rows(X), y)
    ratios = [
        scatter_ratio(WithinMetric(rho=rho, **options).fit(X, y).transform(X), y)
        for rho in (0.01, 0.1, 1.0)
    ]
    assert ratios[0] < ratios[1] < ratios[2] < plain
    assert ratios[0] < 0.05 * plain


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_metric_learns_a_nuisance_that_all_classes_share(kernel):
    # Half of the people are known under both lamps, the others under one.
    rng = np.random.default_rng(0)
    lamp = 3.0 * rng.normal(size=40)
    people = rng.normal(size=(10, 40))

    def images(labels, light):
        noise = 0.2 * rng.normal(size=(labels.size, 40))
        return people[labels] + noise + np.multiply.outer(light, lamp)

    both, one = np.repeat(np.arange(5), 4), np.repeat(np.arange(5, 10), 2)
    known = np.concatenate([both, one])
    gallery = images(known, np.append(np.resize([1.0, -1.0], 20), np.ones(10)))
    probes = images(one, -np.ones(10))
    plain = NearestSample().fit(gallery, known)
    assert plain.score(probes, one) == 0.0
    metric = make_pipeline(WithinMetric(kernel=kernel), NearestSample())
    assert metric.fit(gallery, known).score(probes, one) == 1.0


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_images_that_differ_by_a_small_motion_come_near(kernel):
    # As classes of their own: only the prior can know about shifts.
    rows, columns = np.indices((12, 12))
    rng = np.random.default_rng(0)
    waves = rng.uniform(-0.8, 0.8, size=(8, 5, 2))
    phases = rng.uniform(0.0, 6.0, size=(8, 5))

    def image(i, shift):
        angles = [
            down * rows + right * (columns + shift) + phase
            for (down, right), phase in zip(waves[i], phases[i], strict=True)
        ]
        return np.cos(angles).sum(axis=0).ravel()

    images = np.array([image(i, shift) for shift in (0.0, 0.7) for i in range(8)])

    def cosine_of_pairs(kappa):
        metric = WithinMetric(kernel=kernel, image_shape=(12, 12), kappa=kappa)
        features = metric.fit(images, np.arange(16)).transform(images)
        return np.mean(np.sum(features[:8] * features[8:], axis=1))

    near = [cosine_of_pairs(kappa) for kappa in (0.0, 0.2, 0.5)]
    assert near[0] < near[1] < near[2]
    assert 1.0 - near[2] < 0.85 * (1.0 - near[0])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("shape", [(4, 9), (6, 6)])
@pytest.mark.parametrize("descriptor", [None, "local"])
def test_the_motions_are_those_of_the_rows_that_are_compared(kernel, shape, descriptor):
    if descriptor is None:
        rows = unit_rows(X)
        tangents = tangent_images(rows, shape)
    else:
        rows, tangents = moving_descriptors(X, shape)
    samples = PreparedSamples(rows, tangents, 36)
    options = {"kernel": kernel, "image_shape": shape, "descriptor": descriptor}
    system = WithinMetric(**options)._coordinate_system(samples, y)
    expected = WithinMetric(kappa=0.5)._learn(system, y)
    actual = WithinMetric(kappa=0.5, **options).fit(X, y).transform(X)
    np.testing.assert_allclose(actual, expected, atol=1e-8)


def test_kappa_without_images_has_no_effect():
    plain = WithinMetric(kappa=0.0).fit(X, y).transform(NEW)
    np.testing.assert_array_equal(
        WithinMetric(kappa=0.9).fit(X, y).transform(NEW), plain
    )
    # And images without kappa are rows like any others.
    rows = WithinMetric(kappa=0.0, image_shape=(4, 9)).fit(X, y).transform(NEW)
    np.testing.assert_array_equal(rows, plain)


def test_descriptors_assume_square_images_by_default():
    images, codes = make_data([4] * 6, 64, noise=1.0, unit=False, centre=False)

    def gram(**options):
        metric = WithinMetric(**options).fit(images[::2], codes[::2])
        features = metric.transform(images[1::2])
        return features @ features.T

    square = gram(descriptor="local")
    told = gram(descriptor="local", image_shape=(8, 8))
    np.testing.assert_array_equal(square, told)
    assert np.abs(gram(descriptor="local", image_shape=(4, 16)) - told).max() > 1e-3
    assert np.abs(gram(image_shape=(8, 8)) - told).max() > 1e-3


@pytest.mark.parametrize("descriptor", [None, "local"])
@pytest.mark.parametrize("kappa", [0.0, 0.2])
def test_a_wrong_image_shape_is_an_error(descriptor, kappa):
    wrong = WithinMetric(image_shape=(5, 7), descriptor=descriptor, kappa=kappa)
    with pytest.raises(ValueError, match="35 pixels, but the rows of X have 36"):
        wrong.fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_equal_samples_are_an_error(kernel):
    # Equal but for their gain, which does not count.
    same = np.outer([1.0, 2.0, 3.0, 4.0], np.arange(1.0, 6.0))
    with pytest.raises(DualQMLError, match="All samples are equal"):
        WithinMetric(kernel=kernel).fit(same, [0, 0, 1, 1])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("copies", [1, 2])
def test_without_differences_in_a_class_rho_has_no_effect(kernel, copies):
    rows, labels = np.repeat(X[::4], copies, axis=0), np.repeat(y[::4], copies)
    first, second = (
        WithinMetric(kernel=kernel, rho=rho).fit(rows, labels) for rho in (0.01, 10.0)
    )
    np.testing.assert_allclose(first.transform(NEW), second.transform(NEW), atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_row_of_zeros_has_finite_features_of_unit_norm(kernel):
    rows = np.vstack([X, np.zeros((1, 36))])
    metric = WithinMetric(kernel=kernel, image_shape=(6, 6)).fit(rows, np.append(y, 0))
    np.testing.assert_allclose(np.linalg.norm(metric.transform(rows), axis=1), 1.0)


def test_fitting_again_with_the_other_kernel_forgets_the_first():
    metric = WithinMetric(kernel="rbf").fit(X, y).set_params(kernel="linear").fit(X, y)
    fresh = WithinMetric(kernel="linear").fit(X, y)
    np.testing.assert_array_equal(metric.transform(NEW), fresh.transform(NEW))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rho": 0.0},
        {"kernel": "igo"},
        {"width": 0.0},
        {"kappa": 1.1},
        {"kappa": -0.1},
        {"descriptor": "gabor"},
        {"image_shape": 36},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WithinMetric(**wrong).fit(X, y)


def test_names_of_features_out():
    names = WithinMetric(kernel="linear").fit(X, y).get_feature_names_out()
    assert list(names) == [f"withinmetric{i}" for i in range(36)]


def metric_with_background(X, codes, others, labels, rho, weight):
    """Mean and inverse of S_w + rho B of samples and other people, by loops."""
    size = X.shape[1]

    def class_means_and_scatter(rows, classes):
        means, scatter = [], np.zeros((size, size))
        for c in np.unique(classes):
            own = rows[classes == c]
            means.append(own.mean(axis=0))
            for row in own:
                scatter += np.outer(row - means[-1], row - means[-1])
        return np.array(means), scatter

    means, within = class_means_and_scatter(X, codes)
    other_means, other_within = class_means_and_scatter(others, labels)
    n_others = min(5, len(other_means))
    mean = (means.sum(axis=0) + n_others * other_means.mean(axis=0)) / (
        len(means) + n_others
    )
    pooled = within + weight * other_within
    S = pooled / np.trace(pooled) + rho * np.eye(size) / size
    return mean, np.linalg.inv(S)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    n_others=st.integers(10, 20),
    rho=st.sampled_from([0.1, 1.0, 10.0]),
    weight=st.sampled_from([0.1, 1.0, 7.0]),
    seed=st.integers(0, 999),
)
def test_a_background_adds_its_scatter(sizes, n_others, rho, weight, seed):
    X, codes = make_data(sizes, 12, unit=False, centre=False, seed=seed)
    others, labels = make_vectors(n_others, 3, size=12, noise=0.6, seed=seed + 1)
    background = Background.from_samples(others, labels)
    options = {"rho": rho, "background": background, "background_weight": weight}
    model = WithinMetric(kernel="linear", **options)
    model.classes_, model.n_features_in_ = np.unique(codes), 12
    # Not by its fit, which needs two classes.
    model._fit(X, codes)
    mean, inverse = metric_with_background(
        unit_rows(X), codes, unit_rows(others), labels, rho, weight
    )
    new = make_data([3, 3], 12, unit=False, seed=seed)[0]
    rows = unit_rows(np.concatenate([X, new])) - mean
    products = rows @ inverse @ rows.T
    lengths = np.sqrt(np.diag(products))
    found = model.transform(np.concatenate([X, new]))
    np.testing.assert_allclose(
        found @ found.T, products / np.outer(lengths, lengths), atol=1e-8
    )


@pytest.mark.parametrize("kernel", ["auto", "linear"])
def test_a_background_of_weight_zero_is_none(kernel):
    others = Background.from_samples(*make_vectors(12, 3, size=36, noise=0.6))
    options = {"kernel": kernel, "rho": 0.7}
    plain = WithinMetric(**options).fit(X, y)
    zero = WithinMetric(**options, background=others, background_weight=0.0).fit(X, y)
    one = WithinMetric(**options, background=others).fit(X, y)
    assert plain.transform(NEW).tobytes() == zero.transform(NEW).tobytes()
    products = [model.transform(NEW) @ model.transform(NEW).T for model in (plain, one)]
    assert np.abs(products[0] - products[1]).max() > 0.01
    # With a background the coordinates are linear.
    assert one.kernel_ is None


def test_a_background_of_other_samples_is_an_error():
    others = Background.from_samples(*make_vectors(12, 3, size=35, noise=0.6))
    with pytest.raises(ValueError, match="has 35 values each, and the samples have 36"):
        WithinMetric(background=others).fit(X, y)
    images = Background.from_samples(
        *make_vectors(12, 3, size=36, noise=0.6), image_shape=(6, 6)
    )
    with pytest.raises(ValueError, match=r"descriptors each.*have 36 values each"):
        WithinMetric(background=images).fit(X, y)
    described = {"descriptor": "local", "image_shape": (6, 6)}
    WithinMetric(background=images, **described).fit(X, y)
    for wrong in ({"background": X}, {"background_weight": -1.0}):
        with pytest.raises(ValueError, match="background"):
            WithinMetric(**wrong).fit(X, y)
