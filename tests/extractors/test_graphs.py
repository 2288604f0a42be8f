import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from dualqml.extractors._graphs import (
    connected_neighbour_mask,
    geodesic_distances,
    laplacian_form,
    neighbour_mask,
    pair_distances,
    same_class_only,
)


@pytest.fixture
def Z():
    return np.random.default_rng(0).normal(size=(30, 6))


def test_pair_distances_are_those_of_the_definition(Z):
    distances = pair_distances(Z)
    np.testing.assert_allclose(distances, cdist(Z, Z, "sqeuclidean"), atol=1e-12)
    np.testing.assert_array_equal(distances, distances.T)


def test_equal_samples_have_distance_zero_far_from_the_origin(Z):
    distances = pair_distances(np.concatenate([Z, Z]) + 10.0)
    assert (distances[np.arange(30), np.arange(30) + 30] == 0.0).all()
    assert (distances >= 0.0).all()
    assert (distances == 0.0).sum() == 4 * 30


def test_a_pair_is_joined_if_either_is_among_the_nearest_of_the_other():
    # The sample at 10 has 4 as its nearest, which has a nearer one itself.
    points = np.array([[0.0], [1.0], [4.0], [10.0]])
    mask = neighbour_mask(pair_distances(points), 1)
    expected = np.zeros((4, 4), dtype=bool)
    for i, j in [(0, 1), (1, 2), (2, 3)]:
        expected[i, j] = expected[j, i] = True
    np.testing.assert_array_equal(mask, expected)


def test_every_sample_has_at_least_its_own_neighbours(Z):
    distances = pair_distances(Z)
    mask = neighbour_mask(distances, 4)
    np.testing.assert_array_equal(mask, mask.T)
    assert not mask.diagonal().any()
    for i in range(30):
        nearest = np.argsort(distances[i])[1:5]
        assert mask[i, nearest].all()
    assert (mask.sum(axis=1) >= 4).all()
    assert mask.sum() <= 2 * 4 * 30


def test_more_neighbours_than_samples_means_all(Z):
    mask = neighbour_mask(pair_distances(Z), 99)
    np.testing.assert_array_equal(mask, ~np.eye(30, dtype=bool))


def test_neighbours_stay_in_the_class(Z):
    codes = np.repeat([0, 1, 2, 3], [1, 4, 10, 15])
    mask = neighbour_mask(same_class_only(pair_distances(Z), codes), 5)
    same = codes[:, None] == codes
    assert not mask[~same].any()
    assert not mask[0].any()
    # Four samples cannot have five neighbours: they have all three.
    assert mask[1:5, 1:5].sum() == 4 * 3


@pytest.mark.parametrize("n_neighbors", [1, 3, 8])
def test_neighbours_are_added_until_the_graph_is_connected(n_neighbors):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(40, 3))
    Z[25:] += 100.0
    distances = pair_distances(Z)
    mask, used = connected_neighbour_mask(distances, n_neighbors)
    np.testing.assert_array_equal(mask, mask.T)
    assert connected_components(mask)[0] == 1
    # The smaller group has 15 samples, so 14 neighbours stay in the group.
    assert used == 15
    assert connected_components(neighbour_mask(distances, used - 1))[0] == 2


def test_a_connected_graph_is_not_changed(Z):
    distances = pair_distances(Z)
    mask, used = connected_neighbour_mask(distances, 6)
    assert used == 6
    np.testing.assert_array_equal(mask, neighbour_mask(distances, 6))
    assert connected_neighbour_mask(distances, 99)[1] == 29


@pytest.mark.parametrize("n_neighbors", [2, 3])
def test_copies_are_neighbours_however_many_there_are(n_neighbors):
    # The three last samples need three neighbours to reach the eight copies.
    points = np.array([[0.0]] * 8 + [[100.0], [101.0], [102.5]])
    distances = pair_distances(points)
    mask, used = connected_neighbour_mask(distances, n_neighbors)
    assert used == 3
    assert connected_components(mask)[0] == 1
    assert mask[:8, :8].sum() == 8 * 7


def test_geodesics_follow_the_graph_also_along_edges_of_length_zero():
    points = np.array([[0.0], [1.0], [1.0], [3.0]])
    lengths = cdist(points, points)
    mask = np.zeros((4, 4), dtype=bool)
    for i, j in [(0, 1), (1, 2), (2, 3)]:
        mask[i, j] = mask[j, i] = True
    np.testing.assert_allclose(geodesic_distances(lengths, mask), lengths)
    # Without the edge of length zero there is no path.
    mask[1, 2] = mask[2, 1] = False
    assert np.isinf(geodesic_distances(lengths, mask)[0, 3])


def test_geodesics_are_never_shorter_than_straight_lines(Z):
    lengths = np.sqrt(pair_distances(Z))
    mask, _ = connected_neighbour_mask(lengths, 3)
    paths = geodesic_distances(lengths, mask)
    assert (paths >= lengths * (1 - 1e-12)).all()
    np.testing.assert_allclose(paths[mask], lengths[mask])
    assert (paths > lengths * 1.01).any()


def test_laplacian_form_is_the_weighted_sum_over_pairs(Z):
    weights = np.random.default_rng(2).random((30, 30))
    weights += weights.T
    expected = np.zeros((6, 6))
    for i in range(30):
        for j in range(i):
            expected += weights[i, j] * np.outer(Z[i] - Z[j], Z[i] - Z[j])
    form = laplacian_form(Z, weights)
    np.testing.assert_allclose(form, expected)
    np.testing.assert_array_equal(form, form.T)


def test_laplacian_form_ignores_constants(Z):
    weights = neighbour_mask(pair_distances(Z), 3).astype(float)
    np.testing.assert_allclose(
        laplacian_form(Z + 7.0, weights), laplacian_form(Z, weights), atol=1e-10
    )
