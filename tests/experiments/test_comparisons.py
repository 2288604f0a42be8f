import csv
import io

import pytest

from dualqml.experiments.comparisons import comparison_table, has_interval, verdict
from dualqml.experiments.rendering import to_csv, to_markdown
from dualqml.experiments.results import Comparison
from tests.experiments.factory import make_results


@pytest.mark.parametrize("n_splits", [2, 3])
@pytest.mark.parametrize("ours", [4.0, 6.0])
def test_splits_that_differ_alike_have_neither_interval_nor_verdict(ours, n_splits):
    # 0.1 is not exact in binary: the differences are equal but for rounding.
    shift = [0.1 * split for split in range(n_splits)]
    results = make_results(
        {"LDA": [5.0 + s for s in shift], "DualQML": [ours + s for s in shift]}
    )
    table = comparison_table(results)
    sign = "\N{MINUS SIGN}" if ours < 5.0 else "+"
    texts = [cell.text for cell in table.rows[0].cells]
    assert texts[4:] == [f"{sign}1.00", "none", str(n_splits), "no interval"]
    assert "No interval: the difference is the same in all splits" in to_markdown(table)
    (line,) = csv.DictReader(io.StringIO(to_csv(table)))
    assert float(line["difference"]) == pytest.approx(ours - 5.0)
    assert (line["low"], line["high"]) == ("", "")


def test_equal_errors_are_no_difference_and_have_no_interval():
    table = comparison_table(make_results({"LDA": [5.0, 6.0], "DualQML": [5.0, 6.0]}))
    texts = [cell.text for cell in table.rows[0].cells]
    assert texts[4:] == ["0.00", "none", "2", "no difference seen"]


def test_splits_that_differ_have_an_interval():
    table = comparison_table(make_results({"LDA": [5.0, 6.0], "DualQML": [4.0, 5.5]}))
    assert " to " in table.rows[0].cells[5].text
    assert "No interval" not in to_markdown(table)
    assert has_interval(Comparison("LDA", 2, -1.0, -1.1, -0.9))
    assert verdict(Comparison("LDA", 2, -1.0, -1.0, -1.0)) == "no interval"
