import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from dualqml.extractors import _neighbours
from dualqml.extractors._neighbours import class_similarities, nearest, unit_rows


@pytest.mark.parametrize("similarity_bytes", [1, 1000, 10**8])
def test_nearest_equals_scikit_learn(similarity_bytes, rng, monkeypatch):
    monkeypatch.setattr(_neighbours, "_SIMILARITY_BYTES", similarity_bytes)
    gallery, queries = rng.normal(size=(40, 6)), rng.normal(size=(30, 6))
    neighbours = KNeighborsClassifier(1, metric="cosine").fit(gallery, np.arange(40))
    np.testing.assert_array_equal(
        nearest(queries, unit_rows(gallery)), neighbours.predict(queries)
    )


def test_ties_go_to_the_lowest_index():
    gallery = unit_rows(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(nearest(np.array([[3.0, 0.0]]), gallery), [1])


def test_zero_vectors_never_yield_nan():
    gallery = unit_rows(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert np.isfinite(gallery).all()
    scores = class_similarities(np.zeros((1, 2)), gallery, np.array([0, 1]), 2)
    np.testing.assert_array_equal(scores, [[0.0, 0.0]])
    np.testing.assert_array_equal(nearest(np.zeros((1, 2)), gallery), [0])


def test_class_scores_are_the_best_of_each_class(rng):
    gallery, queries = unit_rows(rng.normal(size=(12, 3))), rng.normal(size=(5, 3))
    codes = rng.permutation(np.repeat([0, 1, 2], 4))
    scores = class_similarities(queries, gallery, codes, 3)
    similarity = unit_rows(queries) @ gallery.T
    for c in range(3):
        np.testing.assert_allclose(scores[:, c], similarity[:, codes == c].max(axis=1))
