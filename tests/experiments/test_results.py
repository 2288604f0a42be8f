import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from dualqml.exceptions import DualQMLError, StoreError
from dualqml.experiments.labels import setting_label, what_differs
from dualqml.experiments.results import Result, Results
from tests.experiments.factory import make_failure, make_result, make_results

RATES = st.floats(0.0, 100.0, allow_nan=False).map(lambda rate: round(rate, 3))


@given(st.lists(st.tuples(RATES, RATES), min_size=2, max_size=30))
def test_intervals_are_those_of_the_paired_t_test(errors):
    ours, theirs = np.array(errors).T
    results = make_results({"DualQML": ours, "LDA": theirs})
    found = results.compare(results.settings[0], "DualQML", "LDA")
    assert found.rival == "LDA"
    assert found.n_splits == len(errors)
    assert found.difference == pytest.approx(np.mean(ours - theirs), abs=1e-9)
    if np.ptp(ours - theirs) < 1e-6:
        assert found.low == pytest.approx(found.high, abs=1e-5)
        return
    oracle = ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.low == pytest.approx(oracle.low, rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(oracle.high, rel=1e-6, abs=1e-6)


def test_only_shared_splits_are_compared():
    results = Results(
        [
            make_result("DualQML", k, error)
            for k, error in [(0, 1.0), (1, 2.0), (2, 90.0)]
        ]
        + [make_result("LDA", k, error) for k, error in [(1, 5.0), (0, 3.0), (3, 0.0)]]
        + [make_failure("LDA", 2)]
    )
    found = results.compare(results.settings[0], "DualQML", "LDA")
    assert found.n_splits == 2
    assert found.difference == pytest.approx(-2.5)


def test_one_shared_split_is_not_enough():
    results = make_results({"DualQML": [1.0, 2.0], "LDA": [3.0]})
    setting = results.settings[0]
    assert results.compare(setting, "DualQML", "LDA") is None
    assert results.compare(setting, "DualQML", "MFA") is None


def test_a_record_goes_through_json_and_back():
    result = make_result(
        "DualQML",
        parameters={"best_lam": 0.32, "folds": 2, "best_rule": "max"},
        spectrum={"ranks": [1, 2], "eigenvalues": [1.0, 0.5]},
        database="Zoë's",
        n_short=3,
        mistakes=((7, 0, 5), (9, 0, 8)),
    )
    text = json.dumps(result.as_dict(), allow_nan=False)
    assert Result.from_dict(json.loads(text)) == result


def test_missing_numbers_go_through_json_as_null():
    result = make_failure(reason="ValueError: no")
    record = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert record["error"] is None
    back = Result.from_dict(record)
    for name in ("error", "fit_seconds", "test_seconds"):
        assert math.isnan(getattr(back, name))
    assert back.as_dict() == result.as_dict()
    assert (back.unit, back.status, back.reason) == (
        *(result.unit, "failed", "ValueError: no"),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"error": "much"},
        {"identified": None},
        {"status": "lost"},
        {"unheard": 1},
        {"database": None, "identified": ["a"]},
    ],
)
def test_what_is_no_result_is_refused(change):
    record = make_result().as_dict() | change
    with pytest.raises(StoreError, match="not a result"):
        Result.from_dict(record)


@pytest.mark.parametrize("field", ["database", "repetition", "error", "identified"])
def test_a_missing_field_is_refused(field):
    record = make_result().as_dict()
    del record[field]
    with pytest.raises(DualQMLError, match=field):
        Result.from_dict(record)


def test_results_of_earlier_versions_are_of_pixels():
    record = make_result("DualQML", parameters={"best_lam": 1.0}).as_dict()
    for field in ("input", "spec", "searched", "refit_seconds"):
        del record[field]
    back = Result.from_dict(record)
    assert back.unit == make_result("DualQML").unit
    assert (back.unit.input, back.unit.spec) == ("pixels", "")
    # Who chose parameters had to search for them.
    assert back.searched
    assert math.isnan(back.refit_seconds)
    record["parameters"] = {}
    assert not Result.from_dict(record).searched


def test_inputs_are_columns_in_order():
    results = Results(
        make_result(m=m, input=name)
        for m in (4, 2)
        for name in ("vectors", "local", "pixels")
    )
    assert [(s.input, s.m) for s in results.settings] == [
        *(("pixels", 2), ("pixels", 4), ("local", 2), ("local", 4)),
        *(("vectors", 2), ("vectors", 4)),
    ]


def test_methods_of_your_own_are_the_last_rows():
    results = Results(
        [make_result("mine", spec="a:B"), make_result("LDA", tuned=True)]
        + [make_result("LDA"), make_result("Linear-SVM")]
    )
    assert results.rows == ["LDA", "Linear-SVM", "LDA (tuned)", "mine"]
    assert results.own_rows == {"mine": "a:B"}


def test_the_same_name_with_other_parameters_is_another_row():
    results = Results(
        make_result("mine", error=float(c), spec=f"a.b:C(c={c})") for c in (1, 2)
    )
    assert results.rows == ["mine [C(c=1)]", "mine [C(c=2)]"]
    (setting,) = results.settings
    found = [results.errors(setting, row).tolist() for row in results.rows]
    assert found == [[1.0], [2.0]]


def test_the_last_of_equal_units_counts():
    results = Results(
        [make_result(error=3.0), make_failure("MFA"), make_result("MFA", error=4.0)]
        + [replace(make_result(), error=2.0)]
    )
    setting = results.settings[0]
    assert results.errors(setting, "LDA").tolist() == [2.0]
    assert results.errors(setting, "MFA").tolist() == [4.0]
    assert results.failed == []
    assert {unit.method for unit in results.by_unit} == {"LDA", "MFA"}


def test_runs_are_in_the_order_of_repetitions_and_without_failures():
    results = Results(
        [make_result(repetition=k, error=float(k)) for k in (2, 0, 3)]
        + [make_failure(repetition=1)]
    )
    assert results.errors(results.settings[0], "LDA").tolist() == [0.0, 2.0, 3.0]
    assert [failure.unit.repetition for failure in results.failed] == [1]


def test_databases_settings_and_rows_are_in_order():
    results = Results(
        make_result(method, database=database, m=m, tuned=tuned)
        for method in ("DualQML-W", "LDA", "APCA")
        for database in ("zebra", "orl", "feret:distinct", "feret", "ar")
        for m in (10, 4)
        for tuned in (True, False)
    )
    assert results.databases == ["ar", "feret", "feret:distinct", "orl", "zebra"]
    assert [(s.database, s.m) for s in results.settings[:4]] == [
        *(("ar", 4), ("ar", 10), ("feret", 4), ("feret", 10)),
    ]
    plain = ["APCA", "LDA", "DualQML-W"]
    assert results.rows == plain + [f"{row} (tuned)" for row in plain]


def test_settings_are_not_mixed():
    results = Results(
        make_result(error=error, **change)
        for error, change in enumerate(
            [
                {},
                {"seed": 1},
                {"photometry": "none"},
                {"data": "0"},
                {"protocol": "fixed"},
            ]
        )
    )
    found = [results.errors(setting, "LDA").tolist() for setting in results.settings]
    assert sorted(found) == [[0.0], [1.0], [2.0], [3.0], [4.0]]


def test_best_rows():
    results = make_results(
        {"LDA": [5.0, 7.0], "MFA": [6.0, 6.0], "DualQML": [1.0, 2.0], "ERE": [0.0]}
    )
    setting = results.settings[0]
    # Of equal rows the first.
    assert results.best_rival(setting) == "LDA"
    assert results.best_row(setting, ["MFA", "DualQML"]) == "DualQML"
    assert results.best_row(setting, ["GTDA"]) is None
    assert results.best_row(setting, []) is None


def test_a_tuned_rival_is_a_rival_and_tuned_ours_is_not():
    results = Results(
        [make_result("LDA", error=9.0), make_result("ERE", error=2.0, tuned=True)]
        + [make_result("DualQML", error=1.0, tuned=True)]
    )
    assert results.best_rival(results.settings[0]) == "ERE (tuned)"


def test_identification_is_over_all_images_of_all_runs():
    results = Results(
        [
            make_result(repetition=0, n_test=10, identified=(5, 6, 7)),
            make_result(repetition=1, n_test=30, identified=(15, 30)),
        ]
    )
    setting = results.settings[0]
    assert results.identification(setting, "LDA").tolist() == [20 / 40, 36 / 40]
    assert results.identification(setting, "MFA").size == 0


def test_there_may_be_no_results():
    results = Results([])
    assert (results.databases, results.settings, results.rows) == ([], [], [])
    assert results.failed == []


def test_two_fixed_splits_are_two_columns():
    results = Results(
        make_result("LDA", 0, error, protocol="fixed", m=0, split=split)
        for error, split in [(10.0, "a" * 16), (20.0, "b" * 16)]
    )
    assert [results.errors(s, "LDA").tolist() for s in results.settings] == [
        [10.0],
        [20.0],
    ]
    labels = [
        setting_label(s, what_differs(results.settings)) for s in results.settings
    ]
    assert labels[0].endswith("split aaaaaaaa")
    assert labels[1].endswith("split bbbbbbbb")


def test_a_lucky_first_repetition_does_not_make_the_best():
    results = make_results({"LDA": [5.0, 9.0], "ERE": [6.0, 6.0], "MFA": [1.0]})
    assert results.best_rival(results.settings[0]) == "ERE"


def test_equal_splits_of_two_repetitions_both_count():
    results = Results(
        make_result(method, repetition, error, split="a" * 16)
        for method, errors in {"DualQML": [1.0, 2.0], "LDA": [3.0, 5.0]}.items()
        for repetition, error in enumerate(errors)
    )
    assert results.compare(results.settings[0], "DualQML", "LDA").n_splits == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("error", None),
        ("n_test", "many"),
        ("versions", None),
        ("method", ["LDA"]),
        ("tuned", "yes"),
        ("m", 2.5),
        ("spectrum", []),
    ],
)
def test_fields_of_another_type_are_damage(field, value):
    record = make_result().as_dict() | {field: value}
    with pytest.raises(StoreError, match=f"not a result: {field} is"):
        Result.from_dict(record)


def test_nan_at_any_depth_is_null():
    result = make_result(parameters={"a": math.nan, "b": [1.0, math.nan]})
    text = json.dumps(result.as_dict(), allow_nan=False)
    assert Result.from_dict(json.loads(text)).parameters == {
        "a": None,
        "b": [1.0, None],
    }
