import numpy as np
import pytest

from dualqml.extractors import _quadratic
from dualqml.extractors._quadratic import quadratic_features, signed_root_features


@pytest.mark.parametrize("ranks", [[1, 1, 1], [2, 2, 2], [1, 3, 2], [0, 2, 1], [2, 0]])
@pytest.mark.parametrize("product_bytes", [1, 10**7])
def test_features_are_segmented_sums_of_squares(ranks, product_bytes, rng, monkeypatch):
    monkeypatch.setattr(_quadratic, "_PRODUCT_BYTES", product_bytes)
    ranks = np.array(ranks)
    components, X = rng.normal(size=(ranks.sum(), 7)), rng.normal(size=(50, 7))
    first = np.concatenate([[0], np.cumsum(ranks)])
    expected = np.column_stack(
        [
            ((X @ components[first[c] : first[c + 1]].T) ** 2).sum(axis=1)
            for c in range(ranks.size)
        ]
    )
    out = quadratic_features(X, components, ranks)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_no_samples_give_no_features():
    out = quadratic_features(np.empty((0, 3)), np.ones((2, 3)), np.array([1, 1]))
    assert out.shape == (0, 2)


def test_single_precision_input_is_summed_in_double(rng):
    X = rng.normal(size=(5, 4)).astype(np.float32)
    components = rng.normal(size=(2, 4))
    out = quadratic_features(X, components, np.array([1, 1]))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, (X.astype(float) @ components.T) ** 2)


@pytest.mark.parametrize(
    "ranks", [[1, 1, 1], [2, 2, 2], [1, 3, 2], [0, 2, 1], [2, 0], [0, 0]]
)
@pytest.mark.parametrize("product_bytes", [1, 10**7])
def test_signed_roots_are_those_of_full_matrices(
    ranks, product_bytes, rng, monkeypatch
):
    monkeypatch.setattr(_quadratic, "_PRODUCT_BYTES", product_bytes)
    ranks = np.array(ranks)
    components, X = rng.normal(size=(ranks.sum(), 7)), rng.normal(size=(50, 7))
    means = rng.normal(size=(ranks.size, 7))
    responses = np.einsum("ij,ij->i", components, np.repeat(means, ranks, axis=0))
    first = np.concatenate([[0], np.cumsum(ranks)])
    expected = np.empty((50, ranks.size))
    for c, mean in enumerate(means):
        factor = components[first[c] : first[c + 1]]
        P = factor.T @ factor
        for i, x in enumerate(X):
            expected[i, c] = np.sqrt(x @ P @ x) * np.sign(x @ P @ mean)
    out = signed_root_features(X, components, ranks, responses)
    np.testing.assert_allclose(out, expected, atol=1e-7)
    # The other sample of each pair x, -x, and the features that know no sign.
    mirrored = signed_root_features(-X, components, ranks, responses)
    np.testing.assert_array_equal(mirrored, -out)
    squares = quadratic_features(X, components, ranks)
    np.testing.assert_allclose(out**2, squares, rtol=1e-12)
    if ranks.sum():
        assert (out < 0).any()
        assert (out > 0).any()


def test_signed_roots_at_a_right_angle_to_the_mean_are_positive():
    components, X = np.eye(2), np.array([[0.0, -3.0]])
    out = signed_root_features(X, components, np.array([2]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(out, [[3.0]])


def test_signed_roots_of_single_precision_are_in_double(rng):
    X = rng.normal(size=(5, 4)).astype(np.float32)
    components = rng.normal(size=(2, 4))
    out = signed_root_features(X, components, np.array([1, 1]), np.array([1.0, -1.0]))
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, X.astype(float) @ components.T * [1.0, -1.0])
