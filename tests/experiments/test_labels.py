import pytest

from dualqml.experiments.labels import (
    common_label,
    database_label,
    listed,
    record_key,
    sample_word,
    setting_label,
    size_label,
    variant_label,
    what_differs,
)
from dualqml.experiments.results import Setting

SETTING = Setting("ar", 2, "random", "unit-norm", 0, "f00dfeedf00dfeed")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ar", "AR"),
        ("iitd_ear", "IITD-ear"),
        ("feret:distinct", "FERET (distinct)"),
        ("orl", "ORL"),
        ("my faces", "my faces"),
        ("a:b", "a:b"),
        (
            "bad\x00\udc80name",
            "bad\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}name",
        ),
    ],
)
def test_databases(name, label):
    assert database_label(name) == label


def test_lists():
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        *("", "a", "a and b", "a, b and c"),
    ]


@pytest.mark.parametrize(
    ("change", "differing", "said"),
    [
        ({"m": 4}, (), ""),
        ({"database": "orl", "data": "0"}, (), ""),
        ({"protocol": "visits"}, ("protocol",), "visits split"),
        ({"photometry": "dog"}, ("photometry",), "photometry dog"),
        ({"seed": 7}, ("seed",), "seed 7"),
        ({"input": "local"}, ("input",), "local descriptors"),
        ({"data": "0123456789"}, ("data",), "data 01234567"),
        ({"seed": 7, "photometry": "a\x00b"}, ("photometry", "seed"), None),
    ],
)
def test_what_differs_is_said(change, differing, said):
    other = SETTING._replace(**change)
    assert what_differs([SETTING, other]) == differing
    if said is None:
        said = "photometry a\N{REPLACEMENT CHARACTER}b, seed 7"
    assert variant_label(other, differing) == said


def test_splits_of_the_same_data_and_protocol_are_told_apart():
    fixed = SETTING._replace(m=0, protocol="fixed", split="1234567890")
    other = fixed._replace(split="abcdefghij")
    assert what_differs([fixed, other]) == ("split",)
    assert setting_label(other, ["split"]) == "AR, fixed split, split abcdefgh"
    assert what_differs([fixed, SETTING]) == ()
    # The protocol stands in the place of m and is not said twice.
    assert variant_label(fixed, ["protocol", "seed"]) == "seed 0"


def test_sizes_and_settings():
    assert size_label(SETTING) == "m = 2"
    assert size_label(SETTING._replace(m=0, protocol="visits")) == "visits split"
    assert setting_label(SETTING) == "AR, m = 2"
    assert setting_label(SETTING, ["seed"]) == "AR, m = 2, seed 0"


def test_what_is_common_is_said():
    assert common_label([]) == ""
    assert common_label([SETTING]) == "random splits, photometry unit-norm, seed 0"
    other = SETTING._replace(seed=1)
    assert common_label([SETTING, other]) == "random splits, photometry unit-norm"
    vectors = SETTING._replace(input="vectors")
    assert (
        common_label([vectors]) == "vectors, random splits, scaling unit-norm, seed 0"
    )


def test_the_input_comes_before_the_size():
    local = SETTING._replace(input="local")
    assert setting_label(local, ["input", "seed"]) == ("AR, local, m = 2, seed 0")
    said = setting_label(local, ["input", "seed"], in_full=True)
    assert said == "AR, local descriptors, m = 2, seed 0"
    assert setting_label(local, in_full=True) == "AR, m = 2"


def test_what_is_recognised():
    vectors = SETTING._replace(input="vectors")
    local = SETTING._replace(input="local")
    assert sample_word([SETTING, local]) == "image"
    assert sample_word([vectors]) == "vector"
    assert sample_word([SETTING, vectors]) == "sample"


def test_records_tell_tuned_methods_by_a_field():
    key = ("ar", 2, "random", "unit-norm", "pixels")
    assert record_key(SETTING, "LDA") == (*key, "LDA", False)
    assert record_key(SETTING, "LDA (tuned)") == (*key, "LDA", True)
