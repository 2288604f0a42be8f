from dualqml.experiments.results import Results
from dualqml.experiments.summary import take_home
from tests.experiments.factory import make_failure, make_results


def said(*parts):
    """What is to be taken home from some results, by the names of the databases."""
    results = Results(r for part in parts for r in part.by_unit.values())
    return {
        name: " ".join(sentences)
        .replace("\N{NO-BREAK SPACE}", " ")
        .replace("\N{MINUS SIGN}", "-")
        for name, sentences in take_home(results)
    }


PIXELS = {
    "LDA": 2 * [6.0, 7.0, 8.0],
    "DualQML": 2 * [9.0, 10.1, 10.9],
    "DualQML-W": 2 * [6.1, 6.9, 8.3],
}
LOCAL = {
    "LDA": 2 * [4.0, 5.0, 6.0],
    "DualQML": 2 * [4.1, 4.9, 6.1],
    "DualQML-W": 2 * [2.0, 3.1, 3.9],
}


def test_what_is_lowest_on_each_input_and_where_ours_is_behind():
    found = said(make_results(PIXELS), make_results(LOCAL, input="local"))
    text = found["AR"]
    assert text.startswith(
        "Lowest mean error: on pixels LDA at m = 2 (7.00 %; DualQML-W: +0.10 points "
        "from LDA, 95 % interval -0.09 to +0.29); on local descriptors DualQML-W at "
        "m = 2 (3.00 %, -2.00 points from the best rival there, LDA, 95 % interval "
        "-2.09 to -1.91)."
    )
    assert text.endswith(
        "Behind the best rival is DualQML on pixels at m = 2 (+3.00 points from LDA, "
        "95 % interval +2.91 to +3.09); no difference is seen for DualQML on local "
        "descriptors at m = 2."
    )
    # Two sentences.
    assert text.count(". ") == 1


def test_sizes_are_gathered():
    text = said(*(make_results(LOCAL, m=m) for m in (2, 4)))["AR"]
    assert "DualQML-W at m = 2 and 4 (3.00 and 3.00 %, -2.00 and -2.00 points" in text
    assert "95 % intervals -2.09 to -1.91 and -2.09 to -1.91" in text
    assert "Nowhere is ours seen to be behind the best rival" in text


def test_where_dual_qml_w_is_behind_is_said_with_the_others():
    errors = {
        "LDA": 2 * [1.0, 2.0, 3.0],
        "DualQML": 2 * [8.0, 9.1, 9.9],
        "DualQML-W": 2 * [5.0, 6.1, 6.9],
    }
    assert said(make_results(errors))["AR"] == (
        "Lowest mean error: on pixels LDA at m = 2 (2.00 %). Behind the best rival is "
        "DualQML-W on pixels at m = 2 (+4.00 points from LDA, 95 % interval +3.91 to "
        "+4.09) and DualQML on pixels at m = 2 (+7.00 points from LDA, 95 % interval "
        "+6.91 to +7.09)."
    )


def test_one_split_gives_no_differences():
    errors = {"LDA": [1.0], "DualQML-W": [5.0]}
    assert said(make_results(errors))["AR"] == (
        "Lowest mean error: on pixels LDA at m = 2 (1.00 %). There is no verdict on "
        "DualQML-W: that takes 5 splits, because the spread of fewer differences is "
        "itself hardly known."
    )


def test_where_some_sizes_have_too_few_splits_they_are_named():
    few = make_results({"LDA": [1.0], "DualQML-W": [5.0]}, m=4)
    assert (
        "no verdict on DualQML-W on pixels at m = 4: that takes 5 splits"
        in (said(make_results(PIXELS), few)["AR"])
    )


def test_four_splits_give_no_verdict_and_five_do():
    four = {"LDA": [6.0, 7.0, 8.0, 7.0], "DualQML-W": [4.0, 5.1, 5.9, 5.0]}
    text = said(make_results(four))["AR"]
    assert "interval" not in text
    assert "no verdict on DualQML-W" in text
    five = {row: [*errors, errors[0]] for row, errors in four.items()}
    text = said(make_results(five))["AR"]
    assert "95 % interval" in text
    assert "no verdict" not in text


def test_equal_differences_have_no_verdict():
    text = said(make_results({"LDA": 6 * [5.0], "DualQML": 6 * [6.0]}))["AR"]
    assert text.endswith(
        "There is no verdict on DualQML on pixels at m = 2: the difference is the same "
        "in all splits, so its noise is not known."
    )


def test_yours_has_a_sentence_of_its_own():
    mine = make_results({"mine": 2 * [8.0, 9.1, 9.9]}, spec="a:B")
    text = said(make_results(PIXELS), mine)["AR"]
    assert text.endswith(
        " Behind the best rival is mine on pixels at m = 2 (+2.00 points from LDA, "
        "95 % interval +1.91 to +2.09)."
    )


def test_without_ours_the_lowest_is_said():
    text = said(make_results({"LDA": [1.0, 2.0], "MFA": [3.0, 4.0]}))["AR"]
    assert text == "Lowest mean error: on pixels LDA at m = 2 (1.50 %)."


def test_databases_and_variants_are_apart():
    changes = ({}, {"database": "orl"}, {"database": "orl", "seed": 3})
    parts = [make_results({"LDA": [1.0]}, **change) for change in changes]
    assert list(said(*parts)) == ["AR", "ORL, seed 0", "ORL, seed 3"]
    visits = make_results({"LDA": [1.0]}, m=0, protocol="visits")
    assert said(visits) == {
        "AR, visits split": "Lowest mean error: on pixels LDA (1.00 %)."
    }


def test_nothing_is_finished():
    assert take_home(Results([make_failure()])) == []
