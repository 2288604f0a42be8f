import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dualqml.core import DualQMLError
from dualqml.extractors import NearestSample, WithinMetric, within_metric
from dualqml.extractors._motions import tangent_features, tangent_images
from dualqml.extractors._neighbours import unit_rows
from dualqml.extractors._prepared import PreparedSamples
from dualqml.extractors.local_descriptors import local_descriptors
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


def grams(metric, rows=X):
    """Cosines of rows with the training samples: the same in turned coordinates."""
    return metric.transform(rows) @ metric.transform(X).T


def scatter_ratio(features, labels):
    means = np.array([features[labels == c].mean(axis=0) for c in np.unique(labels)])
    within = np.sum((features - means[labels]) ** 2)
    return within / np.sum((features - features.mean(axis=0)) ** 2)


@by_options
def test_features_have_unit_norm(options):
    metric = WithinMetric(**options).fit(X, y)
    for rows in (X, NEW):
        norms = np.linalg.norm(metric.transform(rows), axis=1)
        np.testing.assert_allclose(norms, 1.0)


@by_options
def test_training_samples_are_transformed_to_what_was_learnt(options):
    metric = WithinMetric(**options)
    learnt = metric.learn(metric.geometry(metric.prepare(X)), y)
    fitted = WithinMetric(**options).fit(X, y)
    np.testing.assert_allclose(fitted.transform(X), learnt, atol=1e-8)


@by_options
def test_neither_scale_nor_gain_matters(options):
    plain = WithinMetric(**options).fit(X, y)
    scaled = WithinMetric(**options).fit(7.0 * X, y)
    expected = grams(plain, NEW)
    actual = scaled.transform(7.0 * NEW) @ scaled.transform(7.0 * X).T
    np.testing.assert_allclose(actual, expected, atol=1e-7)
    gains = np.exp(np.random.default_rng(0).normal(size=(24, 1)))
    lit = WithinMetric(**options).fit(gains * X, y)
    np.testing.assert_allclose(grams(lit, NEW), expected, atol=1e-7)
    np.testing.assert_allclose(grams(lit, 3.0 * NEW), expected, atol=1e-7)


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
    np.testing.assert_allclose(grams(learnt, NEW), grams(metric, NEW), atol=1e-3)


@pytest.mark.parametrize(("most", "linear"), [(23, True), (24, False)])
def test_auto_is_the_kernel_up_to_a_number_of_samples(most, linear, monkeypatch):
    assert within_metric._MOST_KERNEL_SAMPLES == 3000
    monkeypatch.setattr(within_metric, "_MOST_KERNEL_SAMPLES", most)
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
    np.testing.assert_allclose(grams(wide, NEW), grams(linear, NEW), atol=1e-4)
    assert np.abs(grams(narrow, NEW) - grams(linear, NEW)).max() > 0.05


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
    def rows_of(images):
        local = descriptor == "local"
        return unit_rows(local_descriptors(images, shape) if local else images)

    rows = rows_of(X)
    if descriptor is None:
        tangents = tangent_images(rows, shape)
    else:
        tangents = tangent_features(X, shape, rows_of)
    samples = PreparedSamples(rows, tangents, 36)
    geometry = WithinMetric(kernel=kernel).geometry(samples)
    options = {"kernel": kernel, "image_shape": shape, "descriptor": descriptor}
    expected = WithinMetric(kappa=0.5).learn(geometry, y)
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


def test_descriptors_take_images_for_square_unless_told():
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
def test_a_row_of_zeros_is_not_nan(kernel):
    rows = np.vstack([X, np.zeros((1, 36))])
    metric = WithinMetric(kernel=kernel, image_shape=(6, 6)).fit(rows, np.append(y, 0))
    assert np.isfinite(metric.transform(rows)).all()


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
    assert list(names) == [f"withinmetric{i}" for i in range(23)]
