import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dualqml
from dualqml.exceptions import DatabaseError
from dualqml.extractors import Background, WithinMetric
from dualqml.extractors.probabilities import LogRatio
from dualqml.images.descriptors import local_descriptors
from tests.people import make_people, make_vectors

pytestmark = pytest.mark.filterwarnings("ignore:Only:UserWarning")


def statistics_by_loops(inputs, labels):
    """Mean, scatter within people and scatter of their means, one sample at a time."""
    size = len(inputs[0])
    own = {}
    for row, label in zip(inputs, labels, strict=True):
        own.setdefault(label, []).append(row)
    means = {label: sum(rows) / len(rows) for label, rows in own.items()}
    mean = sum(means.values()) / len(means)
    within, between = np.zeros((size, size)), np.zeros((size, size))
    for label, rows in own.items():
        between += np.outer(means[label] - mean, means[label] - mean)
        for row in rows:
            within += np.outer(row - means[label], row - means[label])
    return mean, within, between


def at_unit_norm(rows):
    return [row / np.sqrt(sum(value * value for value in row)) for row in rows]


def assert_same(one, other):
    for name in vars(one):
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            assert mine.tobytes() == theirs.tobytes(), name
        else:
            assert mine == theirs, name


def uneven(seed, n_people, size):
    """Samples of people who have one to five of them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, n_people)
    counts[0] = 3
    labels = np.repeat(np.arange(n_people), counts)
    centres = rng.normal(size=(n_people, size))
    return centres[labels] + 0.4 * rng.normal(size=(labels.size, size)), labels


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    n_people=st.integers(2, 14),
    size=st.integers(2, 30),
    scale=st.sampled_from([1e-3, 1.0, 1e5]),
)
def test_the_scatters_of_a_loop(seed, n_people, size, scale):
    X, y = uneven(seed, n_people, size)
    found = Background.from_samples(scale * X, y)
    mean, within, between = statistics_by_loops(at_unit_norm(X), y)
    np.testing.assert_allclose(found.mean, mean, atol=1e-14)
    np.testing.assert_allclose(found.within.T @ found.within, within, atol=1e-12)
    np.testing.assert_allclose(found.between.T @ found.between, between, atol=1e-12)
    assert (found.n_people, found.n_samples) == (n_people, len(y))
    assert found.n_repeats == len(y) - n_people
    assert len(found.within) <= min(size, found.n_repeats)
    assert len(found.between) <= min(size, n_people - 1)
    assert (found.n_features, found.image_shape, found.descriptor) == (size, None, None)


def test_as_numpy_sees_people_of_equal_size():
    X, y = make_vectors(40, 5, size=6, noise=0.5)
    found = Background.from_samples(X, y)
    inputs = np.array(at_unit_norm(X)).reshape(40, 5, 6)
    expected = sum(np.cov(own, rowvar=False) for own in inputs) * 4
    np.testing.assert_allclose(found.within.T @ found.within, expected, atol=1e-12)
    expected = np.cov(inputs.mean(axis=1), rowvar=False) * 39
    np.testing.assert_allclose(found.between.T @ found.between, expected, atol=1e-12)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 20))
def test_the_order_of_the_samples_does_not_matter(seed, size):
    X, y = uneven(seed, 12, size)
    order = np.random.default_rng(seed).permutation(len(y))
    assert_same(
        Background.from_samples(X, y), Background.from_samples(X[order], y[order])
    )


def test_the_order_of_images_does_not_matter():
    people = make_people(n_people=11, n_images=3, size=12)
    order = np.random.default_rng(0).permutation(33)
    one = Background.from_samples(people.images, people.labels)
    assert_same(
        one, Background.from_samples(people.images[order], people.labels[order])
    )


def test_signs_are_fixed_and_rows_fall():
    X, y = make_vectors(30, 4, size=20, noise=0.4)
    found = Background.from_samples(X, y)
    for rows in (found.within, found.between):
        largest = np.abs(rows).argmax(axis=1)
        assert (rows[np.arange(len(rows)), largest] > 0.0).all()
        norms = np.linalg.norm(rows, axis=1)
        assert (np.diff(norms) <= 1e-12).all()
        # Rows are orthogonal.
        gram = rows @ rows.T
        np.testing.assert_allclose(gram, np.diag(norms**2), atol=1e-12)


@pytest.mark.parametrize("flat", [False, True])
def test_images_are_described(flat):
    people = make_people(n_people=12, n_images=3, size=16)
    rows = people.images.reshape(36, -1)
    if flat:
        found = Background.from_samples(rows, people.labels, image_shape=[16, 16])
    else:
        found = Background.from_samples(people.images, people.labels)
    assert (found.image_shape, found.descriptor) == ((16, 16), "local")
    assert found.n_features == 256
    inputs = at_unit_norm(local_descriptors(rows.astype(float), (16, 16)))
    mean, within, _ = statistics_by_loops(inputs, people.labels)
    np.testing.assert_allclose(found.mean, mean, atol=1e-13)
    np.testing.assert_allclose(found.within.T @ found.within, within, atol=1e-12)


def test_inputs_are_those_of_the_metric():
    people = make_people(n_people=10, n_images=2, size=8)
    rows = people.images.reshape(20, -1).astype(float)
    metric = WithinMetric(kernel="linear", descriptor="local").fit(rows, people.labels)
    found = Background.from_samples(people.images, people.labels)
    assert found.mean.size == metric.n_inputs_
    # With as many samples of each person, both means are the same.
    np.testing.assert_allclose(found.mean, metric.mean_, atol=1e-13)


def test_many_inputs_keep_the_leading_rows():
    X, y = make_vectors(60, 6, size=1281, noise=0.5)
    found = Background.from_samples(X, y)
    assert found.within.shape == (256, 1281)
    assert found.between.shape == (59, 1281)
    means = np.repeat([row.mean(axis=0) for row in _grouped(X)], 6, axis=0)
    deviations = np.array(at_unit_norm(X)) - means
    singular = np.linalg.svd(deviations, compute_uv=False)
    norms = np.linalg.norm(found.within, axis=1)
    np.testing.assert_allclose(norms, singular[:256], rtol=1e-10)
    exact = Background.from_samples(X[:, :1280], y)
    assert len(exact.within) == 300


def _grouped(X):
    return np.array(at_unit_norm(X)).reshape(60, 6, -1)


def test_a_single_feature_has_a_size():
    X = np.array([[1.0], [3.0], [5.0], [9.0]])
    found = Background.from_samples(X, ["a", "a", "b", "b"])
    assert found.mean.tolist() == [4.5]
    np.testing.assert_allclose(found.within, [[np.sqrt(10.0)]])
    np.testing.assert_allclose(found.between, [[np.sqrt(2 * 2.5**2)]])
    assert len(np.unique(found.strangers(100))) == 100


class TestStrangers:
    def test_they_have_the_covariance(self):
        # Far from the origin the scaling to unit norm hardly bends the distribution.
        X, y = make_vectors(300, 4, size=5, noise=0.5)
        X = 0.05 * X
        X[:, 0] += 10.0
        found = Background.from_samples(X, y)
        drawn = found.strangers(200_000)
        _, within, between = statistics_by_loops(at_unit_norm(X), y)
        expected = between / 299 + within / 900
        np.testing.assert_allclose(
            np.cov(drawn, rowvar=False), expected, atol=0.02 * np.abs(expected).max()
        )
        np.testing.assert_allclose(drawn.mean(axis=0), found.mean, atol=1e-4)

    def test_they_are_at_unit_norm_and_the_same_for_a_seed(self):
        X, y = make_vectors(12, 3, size=9, noise=0.5)
        found = Background.from_samples(X, y)
        drawn = found.strangers(50)
        assert drawn.shape == (50, 9)
        np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0, rtol=1e-12)
        assert drawn.tobytes() == found.strangers(50, random_state=0).tobytes()
        assert (drawn != found.strangers(50, random_state=1)).any()
        rng = np.random.default_rng(0)
        assert drawn.tobytes() == found.strangers(50, random_state=rng).tobytes()
        # More samples are the same and some more.
        np.testing.assert_allclose(found.strangers(60)[:50], drawn, atol=1e-12)

    @pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", None])
    def test_a_number_is_needed(self, wrong):
        X, y = make_vectors(12, 3, size=9, noise=0.5)
        with pytest.raises(ValueError, match="n_samples must be at least 1"):
            Background.from_samples(X, y).strangers(wrong)


class TestBadSamples:
    X, y = make_vectors(12, 3, size=9, noise=0.5)

    def refused(self, X, y, **options):
        with pytest.raises(DatabaseError) as caught:
            Background.from_samples(X, y, **options)
        return str(caught.value)

    def test_shapes(self):
        assert "got (9,)" in self.refused(self.X[0], self.y[:1])
        assert "got (0, 9)" in self.refused(self.X[:0], self.y[:0])
        assert "got (36, 0)" in self.refused(self.X[:, :0], self.y)
        assert "got (0, 3, 3)" in self.refused(np.empty((0, 3, 3)), [])
        images = self.X.reshape(9, 4, 3, 3)
        assert "grey images of shape (n_samples, height, width)" in self.refused(
            images, self.y[:9]
        )
        assert "different lengths" in self.refused([[1.0], [1.0, 2.0]], ["a", "b"])
        assert "Samples are numbers, not <U" in self.refused(
            [["x", "y"]] * 3, list("aab")
        )

    def test_labels(self):
        assert "36 samples need as many labels" in self.refused(self.X, self.y[:-1])
        assert "labels of shape (36, 1)" in self.refused(self.X, self.y[:, None])
        mixed = np.array([*range(35), "x"], dtype=object)
        assert "all of one type" in self.refused(self.X, mixed)
        assert "text or whole numbers" in self.refused(self.X, np.arange(36) / 7)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
    def test_values_that_are_not_finite(self, wrong):
        X = self.X.copy()
        X[7, 2] = wrong
        assert "Sample 7 has values that are not finite" in self.refused(X, self.y)

    def test_values_without_direction(self):
        X = self.X.copy()
        X[7] = 0.0
        assert "Sample 7 is all zeros" in self.refused(X, self.y)
        X[7] = 1e-200
        assert "too large or too small" in self.refused(X, self.y)
        X[7] = 1e200
        assert "too large or too small" in self.refused(X, self.y)

    def test_people(self):
        message = "at least 2 people, and at least one of them with 2 samples"
        assert message in self.refused(self.X, ["Ann"] * 36)
        said = self.refused(self.X, np.arange(36))
        assert message in said
        assert "got 36 samples of 36" in said

    def test_copies(self):
        X = np.repeat(self.X[::3], 3, axis=0)
        assert "The samples of each person are equal" in self.refused(X, self.y)
        X = np.tile(self.X[:3], (12, 1))
        assert "The means of all people are equal" in self.refused(X, self.y)

    def test_image_shapes(self):
        assert "has 8 pixels, but the" in self.refused(
            self.X, self.y, image_shape=(2, 4)
        )
        assert "not a height and a width" in self.refused(
            self.X, self.y, image_shape=(9,)
        )
        images = self.X.reshape(36, 3, 3)
        assert "not the size of the images, 3 x 3" in self.refused(
            images, self.y, image_shape=(9, 1)
        )
        large = np.ones((3, 1025, 1024), dtype=np.uint8)
        assert "at most 1,048,576 pixels, not 1025 x 1024" in self.refused(
            large, list("aab")
        )


def test_few_people_are_a_warning():
    X, y = make_vectors(10, 2, size=9, noise=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Background.from_samples(X, y)
    # One more person does not help if there is only one sample.
    X, y = X[:-1], y[:-1]
    with pytest.warns(UserWarning, match=r"Only 9 people .* say much about each"):
        Background.from_samples(X, y)


def test_it_is_a_public_name():
    assert dualqml.Background is Background


def test_it_does_not_change():
    X, y = make_vectors(10, 2, size=9, noise=0.5)
    found = Background.from_samples(X, y)
    with pytest.raises(AttributeError):
        found.n_people = 3
    assert found != Background.from_samples(X, y)
    assert hash(found) == hash(found)


def test_types_and_lists():
    people = make_people(n_people=10, n_images=2, size=8)
    pixels = people.images.reshape(20, -1)
    one = Background.from_samples(pixels, people.labels)
    assert_same(one, Background.from_samples(pixels.tolist(), people.labels.tolist()))
    names = np.array(people.labels, dtype=object)
    assert_same(one, Background.from_samples(pixels.astype(np.float32), names))
    for name in ("mean", "within", "between"):
        assert getattr(one, name).dtype == np.float64
    assert all(
        type(value) is int for value in (one.n_people, one.n_samples, one.n_features)
    )


def trials_by_loops(inputs, codes, size, rho, lam=0.1):
    """Responses and cosines of people of five parts in the metric of the others."""
    responses, cosines, is_own = [], [], []
    for part in range(5):
        inside = codes % 5 == part
        others = {c: inputs[codes == c] for c in np.unique(codes[~inside])}
        mean = np.mean([rows.mean(axis=0) for rows in others.values()], axis=0)
        S = sum(
            np.outer(row - rows.mean(axis=0), row - rows.mean(axis=0))
            for rows in others.values()
            for row in rows
        )
        S = S / np.trace(S) * len(S) + rho * np.eye(len(S))
        root = np.linalg.cholesky(np.linalg.inv(S))
        Z = np.array(at_unit_norm((inputs - mean) @ root))
        usable = [c for c in np.unique(codes) if np.sum(codes == c) > size]
        gallery = np.concatenate([Z[codes == c][:size] for c in usable])
        R = np.linalg.inv(gallery.T @ gallery + np.eye(len(S)) / lam)
        filters, means = [], []
        for c in usable:
            own = Z[codes == c][:size]
            weights = np.linalg.solve(own @ R @ own.T, np.ones(size))
            filters.append(R @ own.T @ weights)
            means.append(inputs[codes == c][:size].mean(axis=0))
        means = np.array(at_unit_norm(means))
        for c in usable:
            if c % 5 != part:
                continue
            for k in np.flatnonzero(codes == c)[size : size + 4]:
                responses.append([f @ Z[k] for f in filters])
                cosines.append(means @ inputs[k])
                is_own.append([other == c for other in usable])
    return map(np.array, (responses, cosines, is_own))


def test_what_is_learnt_about_scores_is_that_of_loops():
    rows, labels = uneven(3, 40, 8)
    found = Background.from_samples(rows, labels)
    order = sorted(range(len(rows)), key=lambda k: (labels[k], rows[k].tobytes()))
    inputs, codes = np.array(at_unit_norm(rows[order])), labels[order]
    table = found.scores_by_size
    counts = np.bincount(codes)
    wanted = [size for size in (1, 2, 4) if np.sum(counts > size) >= 10]
    assert table[:, 0].tolist() == wanted
    for size, spread, mean, deviation, slope, offset in table:
        responses, cosines, is_own = trials_by_loops(
            inputs, codes, int(size), found.rho
        )
        scores = [
            (values - values[~is_own].mean()) / values[~is_own].std()
            for values in (responses, cosines)
        ]
        weight = found.cosine_weight
        joined = scores[0] + weight * scores[1]
        joined = (joined - joined[~is_own].mean()) / joined[~is_own].std()
        if size == 1:
            levels = (np.arange(1000) + 0.5) / 1000
            quantiles = np.quantile(joined[~is_own], levels)
            np.testing.assert_allclose(found.scores_of_others, quantiles, atol=1e-6)
        assert spread == pytest.approx(responses[~is_own].std(), rel=1e-5)
        assert mean == pytest.approx(joined[is_own].mean(), rel=1e-5)
        assert deviation == pytest.approx(joined[is_own].std(), rel=1e-5)
        ratio = LogRatio.fitted(joined[is_own], joined[~is_own])
        assert (slope, offset) == pytest.approx((ratio.slope, ratio.offset), rel=1e-4)


def test_the_ratio_is_that_of_the_nearest_size():
    found = Background.from_samples(*make_vectors(15, 6, size=8, noise=0.5))
    assert found.scores_by_size[:, 0].tolist() == [1, 2, 4]
    for size, row in ((1, 0), (2, 1), (3, 2), (4, 2), (99, 2)):
        slope, offset = found.scores_by_size[row, 4:]
        assert found.log_ratio(size) == LogRatio(slope, offset)
    few = Background.from_samples(*make_vectors(9, 6, size=8, noise=0.5))
    assert few.scores_by_size is None
    assert few.log_ratio(3) == LogRatio()


def test_the_weight_of_the_prior_follows_the_noise_within_people():
    """A nuisance that all people share asks for a small weight."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 4)
    people = rng.normal(size=(60, 30))[labels]
    nuisance = np.zeros((240, 30))
    nuisance[:, :6] = 5.0 * rng.normal(size=(240, 6))
    shared = Background.from_samples(people + nuisance, labels)
    even = Background.from_samples(people + 0.6 * rng.normal(size=(240, 30)), labels)
    assert 3.0 * shared.rho < even.rho
    assert shared.cosine_weight < 0.5 < even.cosine_weight


def test_samples_of_the_same_people_resemble_the_background():
    """The squared distance of two means has the expectation that is compared with."""
    people, each, size = 40, 3, 60
    same, other = 0, 0
    for seed in range(30):
        rows, _ = make_vectors(people + 25, each, size=size, noise=0.5, seed=seed)
        labels = np.repeat(np.arange(people + 25), each)
        inside = labels < people
        found = Background.from_samples(rows[inside], labels[inside])
        inputs = np.array(at_unit_norm(rows[~inside]))
        codes = labels[~inside] - people
        same += found.resembles(inputs, codes)
        moved = np.array(at_unit_norm(rows[~inside] + 0.7))
        other += found.resembles(moved, codes)
    assert same >= 29
    assert other == 0
