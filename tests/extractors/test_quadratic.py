import numpy as np
import pytest

from dualqml.extractors import _quadratic
from dualqml.extractors._quadratic import quadratic_features


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
