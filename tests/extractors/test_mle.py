import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from dualqml.extractors import mle as module
from dualqml.extractors._graphs import (
    connected_neighbour_mask,
    geodesic_distances,
    pair_distances,
)
from dualqml.extractors.lda import fisher_directions
from dualqml.extractors.mle import (
    MLE,
    classical_scaling,
    content_order,
    linear_patches,
    nonlinearity,
    patch_maps,
)
from tests.problems import make_data


def halves(n_samples):
    return np.arange(n_samples) % 2


def rotated(points, n_features, seed=0):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n_features, points.shape[1])))
    return points @ basis.T


def flat_sheet(n_samples, seed=0):
    return np.random.default_rng(seed).random((n_samples, 2)) * [1.5, 1.0]


def half_circle(n_samples, seed=0):
    angles = np.pi * np.sort(np.random.default_rng(seed).random(n_samples))
    return angles, np.stack([np.cos(angles), np.sin(angles)], axis=1)


def graph_of(Z, n_neighbors):
    distances = np.sqrt(pair_distances(Z))
    mask, _ = connected_neighbour_mask(distances, n_neighbors)
    return distances, geodesic_distances(distances, mask), mask


@pytest.mark.parametrize("theta", [1.0, 1.05, 1.3])
def test_patches_are_a_connected_partition(theta):
    _, points = half_circle(120)
    distances, geodesics, mask = graph_of(points, 4)
    order = np.random.default_rng(0).permutation(120)
    patches = linear_patches(distances, geodesics, mask, theta, order)
    sizes = np.bincount(patches)
    assert patches.min() == 0
    assert (sizes > 0).all()
    assert sizes.sum() == 120
    assert patches[order[0]] == 0
    for patch in range(sizes.size):
        own = np.flatnonzero(patches == patch)
        assert connected_components(mask[np.ix_(own, own)])[0] == 1


def test_patches_are_linear_and_maximal():
    theta = 1.05
    _, points = half_circle(120)
    distances, geodesics, mask = graph_of(points, 4)
    patches = linear_patches(distances, geodesics, mask, theta, np.arange(120))
    ratio = nonlinearity(distances, geodesics)
    assert patches.max() >= 1
    for patch in range(patches.max() + 1):
        own = patches == patch
        # Each sample was within theta of those before it, so all pairs are.
        pairs = ratio[np.ix_(own, own)][~np.eye(own.sum(), dtype=bool)]
        assert pairs.size == 0 or pairs.mean() <= theta + 1e-12
        later = patches > patch
        beside = later & mask[own].any(axis=0)
        assert (ratio[np.ix_(beside, own)].mean(axis=1) > theta).all()


def test_more_curvature_is_allowed_by_a_larger_theta():
    _, points = half_circle(150)
    X = rotated(points, 40)
    counts = [
        MLE(random_state=0, theta=theta, n_components=1).fit(X, halves(150)).n_patches_
        for theta in (1.0, 1.01, 1.1, np.inf)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2] >= counts[3] == 1


def test_nonlinearity_is_at_least_one_and_one_for_neighbours():
    _, points = half_circle(80)
    distances, geodesics, mask = graph_of(points, 4)
    ratio = nonlinearity(distances, geodesics)
    assert (ratio >= 1.0).all()
    np.testing.assert_allclose(ratio[mask], 1.0)
    # Half the circumference over the diameter, for the two ends.
    assert ratio.max() == pytest.approx(np.pi / 2, rel=0.02)
    # The bound must not come from the clipping.
    off = ~np.eye(80, dtype=bool)
    np.testing.assert_allclose(ratio[off], (geodesics[off] / distances[off]))


def test_nonlinearity_of_copies_is_one():
    zeros = np.zeros((3, 3))
    np.testing.assert_array_equal(nonlinearity(zeros, zeros), np.ones((3, 3)))


def test_a_flat_sheet_is_one_patch_and_keeps_its_distances():
    sheet = flat_sheet(600)
    X = rotated(sheet, 40)
    mle = MLE(random_state=0, theta=1.5, n_components=2, whiten=False).fit(
        X, halves(600)
    )
    assert mle.n_patches_ == 1
    new = flat_sheet(100, seed=1)
    for points in (sheet, new):
        features = mle.transform(rotated(points, 40))
        assert np.corrcoef(pdist(features), pdist(points))[0, 1] > 0.999


def test_a_bent_line_is_straightened():
    angles, points = half_circle(300)
    X = rotated(points, 40)
    mle = MLE(random_state=0, theta=1.02, n_components=1, whiten=False).fit(
        X, halves(300)
    )
    assert mle.n_patches_ > 2
    assert abs(np.corrcoef(mle.embedding_[:, 0], angles)[0, 1]) > 0.999
    new_angles, new = half_circle(100, seed=1)
    features = mle.transform(rotated(new, 40))
    assert abs(np.corrcoef(features[:, 0], new_angles)[0, 1]) > 0.99


def test_one_patch_is_a_linear_map():
    X, y = make_data([5] * 8, 60, noise=1.0)
    mle = MLE(random_state=0, theta=np.inf).fit(X, y)
    assert mle.n_patches_ == 1
    np.testing.assert_array_equal(mle.patches_, 0)
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20, 60))
    blend = mle.transform(0.3 * a + 0.7 * b)
    expected = 0.3 * mle.transform(a) + 0.7 * mle.transform(b)
    np.testing.assert_allclose(blend, expected, atol=1e-9)
    # Several patches are not.
    mle = MLE(random_state=0, theta=1.0).fit(X, y)
    assert mle.n_patches_ > 1
    difference = mle.transform(0.3 * a + 0.7 * b)
    difference -= 0.3 * mle.transform(a) + 0.7 * mle.transform(b)
    assert np.abs(difference).max() > 1e-3


def test_small_patches_reproduce_the_embedding():
    X, y = make_data([3] * 12, 200, noise=1.0)
    mle = MLE(random_state=0, n_neighbors=3, theta=1.05).fit(X, y)
    largest = np.bincount(mle.patches_).max()
    assert 2 <= largest <= mle.embedding_.shape[1] + 1
    assert mle.n_patches_ > 1
    np.testing.assert_allclose(mle.transform(X), mle.embedding_, atol=1e-8)


def test_maps_are_least_squares_on_the_principal_directions_of_the_patch():
    rng = np.random.default_rng(0)
    Z, embedding = rng.normal(size=(30, 6)), rng.normal(size=(30, 3))
    maps = patch_maps(Z, embedding, np.zeros(30, dtype=np.intp))
    local = PCA(3).fit_transform(Z)
    design = np.column_stack([local, np.ones(30)])
    solution = np.linalg.lstsq(design, embedding, rcond=None)[0]
    np.testing.assert_allclose(maps.apply(Z), design @ solution, atol=1e-9)


def test_a_sample_goes_to_the_patch_that_reconstructs_it_best():
    rng = np.random.default_rng(0)
    patches = np.repeat([0, 1, 2], [5, 1, 4])
    Z, embedding = rng.normal(size=(10, 8)), rng.normal(size=(10, 2))
    maps = patch_maps(Z, embedding, patches)
    assert maps.centres.shape == (3, 8)
    new = rng.normal(size=(50, 8))
    # Some near the patch of one sample, which is the best for few others.
    new[:10] = Z[5] + 0.1 * new[:10]
    mapped = maps.apply(new)
    chosen = []
    for z, features in zip(new, mapped, strict=True):
        errors, outcomes = [], []
        for patch in range(3):
            own = patches == patch
            pca = PCA(min(2, own.sum() - 1)) if own.sum() > 1 else None
            if pca is None:
                errors.append(np.sum((z - Z[own][0]) ** 2))
                outcomes.append(embedding[own][0])
                continue
            design = np.column_stack([pca.fit_transform(Z[own]), np.ones(own.sum())])
            solution = np.linalg.lstsq(design, embedding[own], rcond=None)[0]
            local = pca.transform(z[None])
            errors.append(np.sum((z - pca.inverse_transform(local)) ** 2))
            outcomes.append(np.append(local[0], 1.0) @ solution)
        chosen.append(int(np.argmin(errors)))
        np.testing.assert_allclose(features, outcomes[chosen[-1]], atol=1e-9)
    assert set(chosen) == {0, 1, 2}


def test_the_nearest_centre_decides_where_all_patches_reconstruct_a_sample():
    # Two patches that both span the space, so rounding alone tells them apart.
    rng = np.random.default_rng(0)
    Z, new = rng.normal(size=(12, 3)), rng.normal(size=(40, 3))
    patches = np.repeat([0, 1], 6)
    Z[patches == 1] += 5.0
    new[20:] += 5.0
    slope = rng.normal(size=(3, 3))
    maps = patch_maps(Z, np.where(patches[:, None] == 0, Z @ slope, 9.0), patches)
    mapped = maps.apply(new)
    np.testing.assert_allclose(mapped[:20], new[:20] @ slope, atol=1e-9)
    np.testing.assert_allclose(mapped[20:], 9.0)


def test_classical_scaling_recovers_euclidean_points():
    points = np.random.default_rng(0).normal(size=(20, 3))
    distances = squareform(pdist(points))
    # There is no fourth dimension.
    scaled = classical_scaling(distances, 7)
    assert scaled.shape == (20, 3)
    np.testing.assert_allclose(squareform(pdist(scaled)), distances, atol=1e-9)
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-12)
    assert (np.diff(scaled.var(axis=0)) < 0).all()


def test_patches_depend_on_the_random_state_only():
    X, y = make_data([6] * 8, 60, noise=1.0)
    one, two = MLE(random_state=3).fit(X, y), MLE(random_state=3).fit(X, y)
    np.testing.assert_array_equal(one.patches_, two.patches_)
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    others = [MLE(random_state=seed).fit(X, y).patches_ for seed in range(4, 8)]
    assert any((one.patches_ != other).any() for other in others)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), lda=st.booleans(), whiten=st.booleans())
def test_the_order_of_rows_does_not_matter(seed, lda, whiten):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(40, 6))
    # Copies, in and across classes, and zeros of both signs.
    data[rng.integers(40, size=8)] = data[rng.integers(40, size=8)]
    data[:, 0] = rng.choice([-0.0, 0.0, 1.0], size=40)
    labels = rng.permutation(np.arange(40) % 4)
    order = rng.permutation(40)
    model = MLE(random_state=1, lda=lda, whiten=whiten, theta=1.02, n_neighbors=3)
    new = rng.normal(size=(20, 6))
    expected = model.fit(data, labels)
    features, patches = expected.transform(new), expected.patches_
    embedding = expected.embedding_
    model.fit(data[order], labels[order])
    np.testing.assert_array_equal(model.transform(new), features)
    # Equal samples of one class may have changed places.
    equal = content_order(data, labels), content_order(data[order], labels[order])
    np.testing.assert_array_equal(model.patches_[equal[1]], patches[equal[0]])
    np.testing.assert_array_equal(model.embedding_[equal[1]], embedding[equal[0]])


def test_patches_and_embedding_are_in_the_order_of_the_samples():
    data, labels = make_data([12] * 5, 10)
    shuffled = np.random.default_rng(0).permutation(60)
    model = MLE(random_state=0, theta=1.02, n_neighbors=4).fit(
        data[shuffled], labels[shuffled]
    )
    assert model.n_patches_ > 1
    Z = (data[shuffled] - model.mean_) @ model.components_.T
    for patch, centre in enumerate(model._maps.centres):
        np.testing.assert_allclose(Z[model.patches_ == patch].mean(axis=0), centre)
        own = model.embedding_[model.patches_ == patch]
        np.testing.assert_allclose(own.mean(axis=0), model._maps.offsets[patch])


def test_labels_matter_only_for_the_discriminant_analysis():
    X, y = make_data([4] * 8, 60, noise=1.0)
    other = np.roll(y, 2)
    plain = MLE(random_state=0).fit(X, y)
    assert plain.discriminants_ is None
    np.testing.assert_array_equal(
        plain.transform(X), MLE(random_state=0).fit(X, other).transform(X)
    )
    one = MLE(random_state=0, lda=True).fit(X, y).transform(X)
    two = MLE(random_state=0, lda=True).fit(X, other).transform(X)
    assert np.abs(cosine_similarity(one) - cosine_similarity(two)).max() > 0.01


def test_discriminant_analysis_follows_the_embedding():
    X, y = make_data([4] * 5, 60, noise=1.0)
    plain = MLE(random_state=0, n_components=9).fit(X, y)
    mle = MLE(random_state=0, n_components=9, lda=True, shrinkage=0.3).fit(X, y)
    assert plain.transform(X).shape == (20, 9)
    assert mle.transform(X).shape == (20, 4)
    assert list(mle.get_feature_names_out()) == ["mle0", "mle1", "mle2", "mle3"]
    directions = fisher_directions(plain.embedding_, y, 0.3, 4)
    np.testing.assert_allclose(
        cosine_similarity(mle.transform(X)),
        cosine_similarity(plain.transform(X) @ directions),
        atol=1e-8,
    )


def test_discriminant_analysis_is_left_out_with_one_sample_in_every_class():
    X, y = make_data([1] * 9, 60)
    mle = MLE(random_state=0, lda=True).fit(X, y)
    assert mle.discriminants_ is None
    np.testing.assert_array_equal(
        mle.transform(X), MLE(random_state=0).fit(X, y).transform(X)
    )


def test_whitening_makes_the_scale_of_features_irrelevant():
    X, y = make_data([6] * 6, 5, noise=1.0, unit=False)
    stretched = X * [1.0, 10.0, 0.1, 1.0, 5.0]
    options = {"energy": 1.0, "n_components": 4}
    one = MLE(random_state=0, **options).fit(X, y).transform(X)
    two = MLE(random_state=0, **options).fit(stretched, y).transform(stretched)
    np.testing.assert_allclose(
        cosine_similarity(one), cosine_similarity(two), atol=1e-6
    )
    options["whiten"] = False
    one = MLE(random_state=0, **options).fit(X, y).transform(X)
    two = MLE(random_state=0, **options).fit(stretched, y).transform(stretched)
    assert np.abs(cosine_similarity(one) - cosine_similarity(two)).max() > 0.01


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("copies", [2, 12])
def test_copies_of_samples_are_allowed_and_share_their_features(whiten, copies):
    X, y = make_data([3] * 4, 30)
    X, y = np.tile(X, (copies, 1)), np.tile(y, copies)
    mle = MLE(random_state=0, whiten=whiten).fit(X, y)
    features = mle.transform(X)
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features, np.tile(features[:12], (copies, 1)))
    np.testing.assert_allclose(
        mle.embedding_, np.tile(mle.embedding_[:12], (copies, 1)), atol=1e-6
    )


def test_groups_far_apart_are_connected():
    X, y = make_data([10, 10], 30)
    X[y == 1] += 1000.0
    mle = MLE(random_state=0, n_neighbors=2, whiten=False).fit(X, y)
    assert mle.n_neighbors_ == 10
    assert np.isfinite(mle.embedding_).all()


def test_batches_do_not_change_the_features(monkeypatch):
    X, y = make_data([6] * 6, 30)
    mle = MLE(random_state=0).fit(X, y)
    whole = mle.transform(X)
    monkeypatch.setattr(module, "BATCH_SIZE", 5)
    np.testing.assert_allclose(mle.transform(X), whole, atol=1e-10)


def test_single_precision_is_kept():
    X, y = make_data([6] * 6, 30)
    mle = MLE(random_state=0).fit(X, y)
    single = mle.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, mle.transform(X), atol=1e-4)
