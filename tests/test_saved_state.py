import math
from dataclasses import dataclass

import numpy as np
import pytest

from dualqml._saved_state import (
    CODES,
    COUNT,
    JOBS,
    LABELS,
    LINE,
    MATRIX,
    MOST_PIXELS,
    NOTHING,
    NUMBER,
    PLAIN,
    REPORT,
    SHAPE,
    SIZE,
    VECTOR,
    ValueProblem,
    check_fields,
    check_kind,
    check_shapes,
    expect_codes,
    fitted,
    from_parameters,
    one_of,
    plain_number,
)

DEEP = []
for _ in range(5000):
    DEEP = [DEEP]

MODEL = fitted(classes_=LABELS.of("n_classes")).extended(
    means_=MATRIX.of("n_classes", "n_features"),
    weights_=(VECTOR | NOTHING).of("n_classes"),
)


@dataclass
class Model:
    """What a fitted estimator looks like to the checks."""

    n_features_in_: int
    classes_: np.ndarray
    means_: np.ndarray
    weights_: np.ndarray | None = None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (COUNT, [0, 3, np.int64(5)], [-1, True, 1.0, "1", None, 2**60]),
        (NUMBER, [0, 1.5, np.float32(2)], [True, "1", None, 1j, math.nan, math.inf]),
        (NOTHING, [None], [0, ""]),
        (SHAPE, [(1, 2)], [(1,), (1, 0), (1, True), [1, 2], None, "12"]),
        (SIZE, [(1, MOST_PIXELS)], [(2, MOST_PIXELS), (30_000, 30_000), (1, -1)]),
        (NUMBER | NOTHING, [1, None], ["1"]),
        (one_of(("a", "b")), ["a"], ["c", None, ["a"], np.str_("a")]),
        (
            plain_number("a rate", 0, 1),
            [0, 0.5, 1.0],
            [-0.1, 2, math.nan, True, None, "0", np.float64(0.5), np.zeros(())],
        ),
        (JOBS, [None, -1, 4], [10**6, -(10**6), 1.0, "2", [1]]),
        (
            LINE,
            ["", "Zo\u00eb"],
            ["\x1b[2J", "a\nb", "\u202e", "\ud800", "x" * 1001, 1],
        ),
        (
            PLAIN,
            [None, True, 3, 0.5, math.inf, "text", [], (1, [2.0, "a"]), [0] * 999],
            [
                np.zeros(3),
                np.float64(1),
                {},
                {"a": 1},
                object(),
                [np.int64(1)],
                [0] * 1000,
                [[0] * 600, [0] * 600],
                DEEP,
                "\x1b",
                "x" * 1001,
                b"a",
            ],
        ),
    ],
)
def test_kinds_accept_good_values_and_refuse_bad_ones(kind, good, bad):
    assert [value for value in good if not kind.holds(value)] == []
    assert [value for value in bad if kind.holds(value)] == []


def test_kinds_of_arrays_check_type_and_shape(rng):
    vector, matrix = rng.random(3), rng.random((3, 2))
    assert VECTOR.holds(vector)
    assert VECTOR.holds(vector.astype(np.float32))
    assert MATRIX.holds(matrix)
    for wrong in (matrix, [1.0], vector.astype(int), vector.astype(str), None):
        assert not VECTOR.holds(wrong)
    assert not VECTOR.holds(vector.astype(np.float16))
    assert not VECTOR.holds(vector[:0])
    assert not MATRIX.holds(matrix[:, :0])
    for labels in (vector, vector.astype(int), vector.astype(str), vector > 0.5):
        assert LABELS.holds(labels)
    assert not LABELS.holds(matrix)
    assert (MATRIX | NOTHING).name == "a matrix or None"
    assert CODES.holds(np.arange(3))
    for dtype in (np.uint64, np.int8, np.float64):
        assert not CODES.holds(np.arange(3).astype(dtype))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(value, rng):
    matrix = rng.random((3000, 800))
    for order in "CF":
        array = np.array(matrix, order=order)
        check_kind(array, MATRIX, ("a",))
        array[-1, -1] = value
        check_kind(array, MATRIX, ("a",), values=False)
        with pytest.raises(ValueProblem, match="a has numbers that are not finite"):
            check_kind(array, MATRIX, ("a",))
        with pytest.raises(ValueProblem, match="not finite"):
            check_kind(array, MATRIX | NOTHING, ("a",))
    check_kind(np.array([value]), REPORT, ("a",))


def test_fields_must_be_complete_and_of_their_kinds():
    kinds = {"a": COUNT, "b": NUMBER | NOTHING}
    check_fields({"a": 1, "b": None}, kinds, ("r",))
    for record, message in [
        (None, "r does not have the fields"),
        ([], "r does not have the fields"),
        ({"a": 1}, "r.b is missing"),
        ({"a": 1, "b": 2, "c": 3}, "r.c is a field that is not known"),
        ({"a": "1", "b": 2}, "r.a is not a whole number"),
    ]:
        with pytest.raises(ValueProblem, match=message):
            check_fields(record, kinds, ("r",))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model(2, np.arange(3), np.ones((3, 2))), None),
        (Model(2, np.arange(3), np.ones((3, 2)), np.ones(3)), None),
        (Model(0, np.arange(3), np.ones((3, 0))), "a.n_features_in_ is zero"),
        (Model(2, np.arange(0), np.ones((0, 2))), "a.classes_ is empty"),
        (
            Model(2, np.arange(3), np.ones((3, 4))),
            r"a.means_ has the shape \(3, 4\), but for n_features_in_ it needs 2 along "
            "axis 1",
        ),
        (
            Model(2, np.arange(3), np.ones((3, 2)), np.ones(2)),
            r"a.weights_ has the shape \(2,\), but for classes_ it needs 3 along "
            "axis 0",
        ),
    ],
)
def test_axes_of_one_name_have_one_length(model, message):
    if message is None:
        check_shapes(model, MODEL, ("a",))
    else:
        with pytest.raises(ValueProblem, match=message):
            check_shapes(model, MODEL, ("a",))


def test_codes_must_use_every_number():
    expect_codes(np.array([1, 0, 2, 1]), 3, (), "codes_")
    for codes in ([0, 1, 1], [0, 2, 2], [-1, 1, 2], [0, 1, 3], [0, 1]):
        with pytest.raises(
            ValueProblem, match="codes_ does not have the whole numbers"
        ):
            expect_codes(np.array(codes), 3, (), "codes_")


def test_errors_of_wrong_parameters_say_where_they_are():
    assert from_parameters(lambda: 3, ("a",)) == 3
    for compute in (lambda: 1 // 0, lambda: {}["x"], lambda: int("x"), lambda: len(3)):
        with pytest.raises(ValueProblem, match="a has parameters that do not fit"):
            from_parameters(compute, ("a",))
