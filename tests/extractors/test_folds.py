import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.extractors._folds import (
    _ENOUGH_PROBES,
    rank_loss,
    recognition_folds,
    spread_folds,
)

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


@given(sizes=sizes_lists, seed=st.integers(0, 99))
def test_in_recognition_folds_every_class_has_lost_a_sample(sizes, seed):
    sizes = np.array(sizes)
    codes = np.repeat(np.arange(sizes.size), sizes)
    for fold in recognition_folds(codes, seed):
        assert np.intersect1d(fold.train, fold.held_out).size == 0
        assert fold.train.size + fold.held_out.size == codes.size
        assert np.isin(fold.gallery, fold.train).all()
        assert (np.diff(fold.gallery) > 0).all()
        held_out, gallery = (
            np.bincount(codes[rows], minlength=sizes.size)
            for rows in (fold.held_out, fold.gallery)
        )
        # A class of one sample cannot lose it; all others lose one, or those
        # that are held out if they are more.
        lost = np.where(sizes == 1, 0, np.maximum(held_out, 1))
        np.testing.assert_array_equal(gallery, sizes - lost)
        assert gallery.min() >= 1


@pytest.mark.parametrize(
    ("sizes", "n_made"),
    [
        ([2] * 60, 34),  # 12 held out each, until there are 400
        ([2] * 120, 10),
        ([2] * 5, 40),
        ([4] * 30, 17),
        ([3] * 100, 5),
        ([1, 2, 2, 2, 9], 40),
    ],
)
def test_small_sets_are_dealt_several_times(sizes, n_made):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    folds = recognition_folds(codes, 0)
    assert len(folds) == n_made
    held_out = np.bincount(
        np.concatenate([fold.held_out for fold in folds]), minlength=codes.size
    )
    several = np.array(sizes)[codes] > 1
    assert (held_out[~several] == 0).all()
    # No sample more often than any other by more than a deal.
    assert np.ptp(held_out[several]) <= 1


def test_of_large_sets_enough_are_held_out():
    codes = np.repeat(np.arange(1000), 2)
    sizes = [fold.held_out.size for fold in recognition_folds(codes, 0)]
    assert set(sizes) == {200}
    # No fold more than it takes.
    assert sum(sizes[:-1]) < _ENOUGH_PROBES <= sum(sizes)


def test_deals_differ_and_depend_on_the_seed_only():
    codes = np.repeat(np.arange(20), 3)
    first, again, other = (recognition_folds(codes, seed) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.gallery, b.gallery)
        np.testing.assert_array_equal(a.held_out, b.held_out)
    assert any(
        not np.array_equal(a.gallery, b.gallery)
        for a, b in zip(first, other, strict=True)
    )
    assert not np.array_equal(first[0].held_out, first[5].held_out)


def test_one_sample_each_has_no_recognition_folds():
    with pytest.raises(ValueError, match="at least 2 samples"):
        recognition_folds(np.arange(6), 0)


@given(
    n_classes=st.integers(1, 6), n_samples=st.integers(1, 8), seed=st.integers(0, 99)
)
def test_rank_loss_is_that_of_a_slow_loop(n_classes, n_samples, seed):
    rng = np.random.default_rng(seed)
    # Few values, so that many are equal.
    scores = rng.integers(0, 3, size=(n_samples, n_classes)).astype(float)
    codes = rng.integers(0, n_classes, size=n_samples)
    expected = []
    for row, true in zip(scores, codes, strict=True):
        ahead = [c for c in range(n_classes) if c != true and row[c] >= row[true]]
        expected.append(np.log(1 + len(ahead)))
    np.testing.assert_allclose(rank_loss(scores, codes), expected)


def test_ties_count_against_the_true_class():
    scores = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [2.0, 3.0, 2.0]])
    loss = rank_loss(scores, np.array([2, 2, 0]))
    np.testing.assert_allclose(loss, np.log([3, 3, 3]))


def test_the_whole_training_set_is_a_gallery_where_much_larger():
    two = recognition_folds(np.repeat(np.arange(60), 2), 0)[0]
    assert [rows.size for rows in two.galleries] == [two.gallery.size, two.train.size]
    many = recognition_folds(np.repeat(np.arange(10), 30), 0)[0]
    assert len(many.galleries) == 1
