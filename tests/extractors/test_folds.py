import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.extractors._folds import spread_folds

sizes_lists = st.lists(st.integers(1, 9), min_size=2, max_size=12).filter(
    lambda sizes: max(sizes) > 1
)


@given(sizes=sizes_lists, n_folds=st.integers(2, 12), seed=st.integers(0, 99))
def test_folds_are_a_partition_that_keeps_classes_in_training(sizes, n_folds, seed):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    folds = spread_folds(codes, n_folds, seed)
    held_out = np.concatenate([test for _, test in folds])
    expected = np.flatnonzero(np.array(sizes)[codes] > 1)
    np.testing.assert_array_equal(np.sort(held_out), expected)
    for train, test in folds:
        assert np.intersect1d(train, test).size == 0
        assert train.size + test.size == codes.size
        np.testing.assert_array_equal(np.unique(codes[train]), np.arange(len(sizes)))
        # A class's samples are spread as evenly as they can be.
        counts = np.bincount(codes[test], minlength=len(sizes))
        assert (counts <= np.ceil(np.array(sizes) / len(folds))).all()
    lengths = [test.size for _, test in folds]
    assert max(lengths) - min(lengths) <= 1


def test_folds_depend_on_the_seed_only():
    codes = np.repeat(np.arange(5), 4)
    first = spread_folds(codes, 4, 1)
    for a, b in zip(first, spread_folds(codes, 4, 1), strict=True):
        np.testing.assert_array_equal(a[1], b[1])
    other = spread_folds(codes, 4, 2)
    assert any((a[1] != b[1]).any() for a, b in zip(first, other, strict=True))


def test_one_sample_each_cannot_be_validated():
    with pytest.raises(ValueError, match="at least 2 samples"):
        spread_folds(np.arange(6), 3, 0)
