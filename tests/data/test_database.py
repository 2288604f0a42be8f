import dataclasses

import numpy as np
import pytest

from dualqml.data import Database
from dualqml.exceptions import DatabaseError, DualQMLError


def make(**changes):
    fields = {
        "name": "made up",
        "images": np.full((3, 2, 4), 255, dtype=np.uint8),
        "labels": np.array(["Zoë Ann", "b", "Zoë Ann"]),
        "citation": "",
        "terms": "",
    }
    return Database(**(fields | changes))


def test_codes_number_the_sorted_subjects():
    database = make()
    assert database.subjects.tolist() == ["Zoë Ann", "b"]
    assert database.codes.tolist() == [0, 1, 0]
    assert database.codes.dtype == np.int64
    assert (database.subjects[database.codes] == database.labels).all()


def test_rows_are_images_from_zero_to_one():
    assert make().rows.shape == (3, 8)
    assert make().rows.max() == 1.0


def test_optional_fields_are_absent_by_default():
    database = make()
    assert database.visits is None
    assert database.views is None
    assert database.skipped == ()


@pytest.mark.parametrize("field", ["labels", "visits", "views"])
def test_every_image_needs_one_value(field):
    with pytest.raises(DatabaseError, match=f"3 images and {field} of shape"):
        make(**{field: np.array([1, 2])})


@pytest.mark.parametrize(
    "images", [np.zeros((3, 8), dtype=np.uint8), np.zeros((3, 2, 4))]
)
def test_images_are_three_dimensional_and_of_8_bits(images):
    with pytest.raises(DualQMLError, match="must be 8-bit"):
        make(images=images)


def test_a_database_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().name = "other"


def with_copies():
    rng = np.random.default_rng(0)
    ann, bob = rng.integers(0, 256, (2, 3, 4, 4), dtype=np.uint8)
    # Cid has Ann's images in another order; Dan shares only one with Bob.
    dan = bob.copy()
    dan[0, 0, 0] ^= 1
    return Database(
        name="four",
        images=np.concatenate([ann, bob, ann[[2, 0, 1]], dan]),
        labels=np.repeat(["Ann", "Bob", "Cid", "Dan"], 3),
        citation="",
        terms="",
        visits=np.tile([1, 2, 3], 4),
        views=np.tile(["a", "b", "c"], 4),
    )


def test_subjects_that_are_pixel_copies():
    database = with_copies()
    assert database.copies == {"Cid": "Ann"}
    distinct = database.without_copies()
    assert distinct.subjects.tolist() == ["Ann", "Bob", "Dan"]
    assert distinct.copies == {}
    assert distinct.without_copies() is distinct


def test_a_subset_keeps_what_belongs_to_its_rows():
    part = with_copies().subset(np.array([5, 0]))
    assert part.labels.tolist() == ["Bob", "Ann"]
    assert part.visits.tolist() == [3, 1]
    assert part.views.tolist() == ["c", "a"]
    np.testing.assert_array_equal(part.images, with_copies().images[[5, 0]])
