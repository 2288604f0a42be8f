import numpy as np
import pytest

from dualqml.recognition._arrays import LONGEST_TEXT, from_plain, to_plain
from dualqml.recognition.tensors import DTYPES, read_tensors, write_tensors

ARRAYS = {
    "rows first": np.arange(6.0).reshape(2, 3),
    "columns first": np.arange(6.0).reshape(2, 3, order="F"),
    "three axes, columns first": np.zeros((2, 3, 4), order="F"),
    "strided": np.arange(10)[::3],
    "a number": np.array(1.5),
    "empty": np.empty((3, 0, 2)),
    "text": np.array([["Anna", "Zoë"], ["", "李 😀"]]),
    "text, columns first": np.asfortranarray([["a", "b", "c"], ["d", "e", "f"]]),
    "text, strided": np.array(["a", "bb", "ccc"])[::-2],
    "text, big-endian": np.array(["a", "Zoë"], dtype=">U3"),
    "a text": np.array("Anna"),
    "no texts": np.empty((0, 2), "U5"),
    "texts of nothing": np.array(["", ""]),
    "complex": np.array([1 + 2j, complex(np.nan, -0.0)]),
    "complex, single": np.array([[1 + 2j], [3j]], np.complex64),
    "complex, big-endian": np.array([1 + 2j], ">c16"),
    "complex, columns first": (1j * np.ones((2, 3))).copy(order="F"),
    "objects": np.array(["Anna", "Zoë", ""], dtype=object),
    "objects, columns first": np.asfortranarray([["a", "bb"]] * 2).astype(object),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_through_a_file(tmp_path, name):
    array = ARRAYS[name]
    plain, note = to_plain(array)
    assert plain.dtype in DTYPES.values() or not plain.dtype.isnative
    write_tensors(tmp_path / "a", {"x": plain}, {})
    found = from_plain(read_tensors(tmp_path / "a")[0]["x"], note)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    if array.flags.c_contiguous or array.flags.f_contiguous:
        assert found.flags.c_contiguous == array.flags.c_contiguous
        assert found.flags.f_contiguous == array.flags.f_contiguous


def test_plain_numbers_are_not_copied():
    for array in (np.zeros((3, 4)), np.zeros((3, 4), order="F")):
        assert np.shares_memory(to_plain(array)[0], array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1, "a"], dtype=object), "not all strings"),
        (np.array([None]), "not all strings"),
        (np.array(["a\0"], dtype=object), "end in a zero character"),
        (np.array(["a" * (LONGEST_TEXT + 1)], dtype=object), "more than 1,000,000"),
        (np.array(["a" * (LONGEST_TEXT + 1)]), "more than 1,000,000"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.zeros(2, [("a", "f8")]), "cannot be saved"),
        (np.array([b"bytes"]), "cannot be saved"),
        (np.zeros(2, np.longdouble), "cannot be saved"),
    ],
)
def test_what_cannot_be_saved(array, message):
    if array.dtype == np.float64:
        pytest.skip("longdouble is double here")
    with pytest.raises(ValueError, match=message):
        to_plain(array)


@pytest.mark.parametrize(
    ("plain", "note"),
    [
        (np.zeros((2, 3)), {"as": "text"}),
        (np.zeros((2, 3), np.int32), {"as": "text"}),
        (np.uint32(65), {"as": "text"}),
        (np.zeros((2, 0), np.uint32), {"as": "text"}),
        (np.zeros((0, LONGEST_TEXT + 1), np.uint32), {"as": "objects"}),
        (np.full((2, 3), 0x110000, np.uint32), {"as": "text"}),
        (np.full((2, 3), 0xFFFFFFFF, np.uint32), {"as": "objects"}),
        (np.zeros((2, 3)), {"as": "complex"}),
        (np.zeros((2, 2), np.float16), {"as": "complex"}),
        (np.zeros((2, 2), np.int64), {"as": "complex"}),
        (np.float64(0.0), {"as": "complex"}),
        (np.zeros((2, 2)), {"as": "pickle"}),
        (np.zeros((2, 2)), {"as": ["text"]}),
        (np.zeros((2, 2)), {"order": "C"}),
        (np.zeros((2, 2)), {"order": []}),
        (np.zeros((2, 2)), {"more": "F"}),
    ],
)
def test_notes_that_do_not_fit(plain, note):
    with pytest.raises(ValueError, match=r"code points|parts|unknown form"):
        from_plain(np.asarray(plain), note)
