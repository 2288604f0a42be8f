import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.data import fixed_split, random_split, visit_split
from dualqml.exceptions import DatabaseError

NAMES = ["Ann", "Zoë", "日本", "", " a", "a", "0"]


@st.composite
def databases(draw, least=1):
    """Labels of subjects with unequal numbers of images, in any order."""
    counts = draw(st.lists(st.integers(least, 7), min_size=2, max_size=len(NAMES)))
    labels = [
        name for name, count in zip(NAMES, counts, strict=False) for _ in range(count)
    ]
    return np.array(draw(st.permutations(labels)))


def count(labels, rows):
    return {str(name): int((labels[rows] == name).sum()) for name in np.unique(labels)}


class TestRandom:
    @given(databases(), st.integers(1, 6), st.integers(0, 99))
    def test_every_image_is_once_in_one_of_the_two(self, labels, m, seed):
        most = max(count(labels, slice(None)).values())
        if most <= m:
            with pytest.raises(DatabaseError, match=f"m={m} leaves nothing to test"):
                random_split(labels, m, seed)
            return
        split = random_split(labels, m, seed)
        assert sorted([*split.train, *split.test]) == list(range(labels.size))
        assert np.all(np.diff(split.train) > 0)
        assert np.all(np.diff(split.test) > 0)

    @given(databases(), st.integers(1, 6), st.integers(0, 99))
    def test_subjects_train_with_m_images_or_all_but_one(self, labels, m, seed):
        images = count(labels, slice(None))
        if max(images.values()) <= m:
            return
        split = random_split(labels, m, seed)
        assert count(labels, split.train) == {
            # A subject with a single image has it in the training set only.
            name: 1 if q == 1 else min(m, q - 1)
            for name, q in images.items()
        }

    def test_seeds_matter_and_repeat(self):
        labels = np.repeat(["a", "b"], 20)
        prints = [random_split(labels, 5, [0, 5, k]).fingerprint for k in range(20)]
        assert len(set(prints)) == 20
        assert random_split(labels, 5, [0, 5, 3]).fingerprint == prints[3]

    def test_every_image_is_chosen_about_equally_often(self):
        labels = np.repeat(["a", "b"], 4)
        trained = [random_split(labels, 1, seed).train for seed in range(400)]
        counts = np.bincount(np.concatenate(trained), minlength=8)
        # 100 each, with a deviation of 8.7.
        assert counts.min() > 60
        assert counts.max() < 140

    @pytest.mark.parametrize("m", [0, -1])
    def test_m_must_be_positive(self, m):
        with pytest.raises(DatabaseError, match="at least 1 training image"):
            random_split(["a", "a", "b"], m, 0)

    @pytest.mark.parametrize("labels", [[], ["a", "a"]])
    def test_there_must_be_two_subjects(self, labels):
        with pytest.raises(DatabaseError, match="at least two subjects"):
            random_split(labels, 1, 0)

    def test_names_in_all_scripts(self):
        labels = np.array(["Zoë", "日本", "Zoë", "日本", "Zoe\u0308", "Zoe\u0308"])
        split = random_split(labels, 1, 0)
        # Two ways to write Zoë are two subjects: nothing is normalised.
        assert set(labels[split.train]) == set(labels)


class TestVisits:
    @given(databases(), st.data())
    def test_visits_are_apart_and_unknown_subjects_left_out(self, labels, data):
        visits = np.array(
            data.draw(
                st.lists(st.integers(1, 3), min_size=labels.size, max_size=labels.size)
            )
        )
        chosen = data.draw(st.sets(st.integers(1, 3), min_size=1, max_size=2))
        in_chosen = np.isin(visits, list(chosen))
        known = set(labels[in_chosen])
        expected = [
            row
            for row in range(labels.size)
            if not in_chosen[row] and labels[row] in known
        ]
        if len(known) < 2 or not expected:
            with pytest.raises(DatabaseError, match=r"leaves|nothing is left"):
                visit_split(labels, visits, chosen)
            return
        split = visit_split(labels, visits, chosen)
        assert split.train.tolist() == np.flatnonzero(in_chosen).tolist()
        assert split.test.tolist() == expected

    def test_the_first_visit_trains_by_default(self):
        split = visit_split(["a", "b", "a", "b"], [1, 1, 2, 2])
        assert (split.train.tolist(), split.test.tolist()) == ([0, 1], [2, 3])

    def test_visits_must_be_known(self):
        with pytest.raises(DatabaseError, match="use the random protocol"):
            visit_split(["a", "b"], None)

    def test_too_few_subjects(self):
        with pytest.raises(
            DatabaseError, match=r"visits \[3\] leaves 0 subjects; .*1, 2"
        ):
            visit_split(["a", "b", "a"], [1, 1, 2], [3])

    def test_nothing_to_test(self):
        with pytest.raises(DatabaseError, match="nothing is left to test"):
            visit_split(["a", "b"], [1, 1])


class TestFixed:
    @given(databases(least=2), st.data())
    def test_given_rows_train_and_others_of_their_subjects_test(self, labels, data):
        rows = data.draw(
            st.lists(st.integers(0, labels.size - 1), min_size=1, unique=True)
        )
        known = set(labels[rows])
        expected = [
            row
            for row in range(labels.size)
            if row not in rows and labels[row] in known
        ]
        if len(known) < 2 or not expected:
            with pytest.raises(DatabaseError, match="two and one are the least"):
                fixed_split(labels, rows)
            return
        split = fixed_split(labels, rows)
        assert split.train.tolist() == sorted(rows)
        assert split.test.tolist() == expected

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([], "non-empty list of integers"),
            ([0.0, 2.0], "non-empty list of integers"),
            ([True, False], "non-empty list of integers"),
            ([[0, 2]], "non-empty list of integers"),
            ([0, 4], "from 0 to 3; they are from 0 to 4"),
            ([-1, 2], "they are from -1 to 2"),
            ([0, 2, 0], "there twice"),
            ([0, 1], "1 subjects to train on"),
            ([0, 1, 2, 3], "0 images of them to test"),
        ],
    )
    def test_what_cannot_be(self, rows, message):
        labels = ["a", "a", "b", "b"]
        with pytest.raises(DatabaseError, match=message):
            fixed_split(labels, rows)


class TestFingerprint:
    def test_it_is_sixteen_digits_of_the_rows(self):
        split = fixed_split(["a", "a", "b", "b", "b"], [0, 2])
        assert len(split.fingerprint) == 16
        assert int(split.fingerprint, 16) >= 0
        assert (
            split.fingerprint
            == fixed_split(["x", "x", "y", "y", "y"], [2, 0]).fingerprint
        )

    def test_it_changes_with_any_row(self):
        labels = ["a"] * 4 + ["b"] * 4
        rows = [[i, j] for i in range(4) for j in range(4, 8)]
        prints = {fixed_split(labels, row).fingerprint for row in rows}
        assert len(prints) == 16

    def test_it_changes_with_the_test_rows_alone(self):
        # The last subject is left out of one of the two.
        one = visit_split(["a", "b", "a", "b", "c"], [1, 1, 2, 2, 2])
        two = visit_split(["a", "b", "a", "b", "a"], [1, 1, 2, 2, 2])
        assert one.train.tolist() == two.train.tolist()
        assert one.fingerprint != two.fingerprint

    def test_rows_do_not_slip_from_one_side_to_the_other(self):
        one = fixed_split(["a", "b", "a", "a"], [0, 1])
        two = fixed_split(["a", "b", "a", "a"], [0, 1, 2])
        assert [*one.train, *one.test] == [*two.train, *two.test]
        assert one.fingerprint != two.fingerprint
