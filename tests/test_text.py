import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml._text import MOST_LEVELS, MOST_VALUES, printable, read_json


@given(st.text())
def test_all_that_is_printed_prints(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    "text",
    ["\x1b[31m", "\x9b1m", "\x07", "\x7f", "\u202e", "\u2066", "\ud800", "\u2028"],
)
def test_what_a_terminal_obeys_is_marked(text):
    assert text[0] not in printable(f"a{text}b")


def test_long_text_is_cut():
    assert printable("x" * 100, 10) == "xxxxxxx..."
    assert printable("x" * 10, 10) == "x" * 10


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_is_read(value):
    text = json.dumps(value)
    assert read_json(text) == value
    assert read_json(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "levels"),
        ("[" * 100_000 + "]" * 100_000, "levels"),
        ('{"a":' * 100_000, "levels"),
        ("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), "levels"),
        ("[0" + ",0" * MOST_VALUES + "]", "values"),
        (str(2**65), "64 bits"),
        ("[1" + "0" * 4000 + "]", "64 bits"),
        ("1" * 100_000, None),
        ("{", None),
        (b"\xff", None),
    ],
    ids=range(10),
)
def test_json_beyond_bounds_is_a_value_error(text, message):
    with pytest.raises(ValueError, match=message):
        read_json(text)


def test_depth_within_bounds():
    text = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert json.dumps(read_json(text)) == text
