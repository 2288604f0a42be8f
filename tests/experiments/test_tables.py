import csv
import io
import re

import pytest

from dualqml.experiments.results import Comparison, Results
from dualqml.experiments.table_formats import MISSING, Cell, Heading
from dualqml.experiments.tables import (
    comparison_table,
    error_csv,
    error_table,
    has_interval,
    our_rows,
    paper_tables,
    signed,
    time_table,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    verdict,
)
from tests.experiments.factory import make_failure, make_result, make_results, realistic


@pytest.mark.parametrize("n_splits", [5, 6])
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
    table = comparison_table(
        make_results({"LDA": 3 * [5.0, 6.0], "DualQML": 3 * [5.0, 6.0]})
    )
    texts = [cell.text for cell in table.rows[0].cells]
    assert texts[4:] == ["0.00", "none", "6", "no difference seen"]


def test_splits_that_differ_have_an_interval():
    table = comparison_table(make_results({"LDA": [5.0, 6.0], "DualQML": [4.0, 5.5]}))
    assert " to " in table.rows[0].cells[5].text
    assert "No interval" not in to_markdown(table)
    assert has_interval(Comparison("LDA", 2, -1.0, -1.1, -0.9))
    assert verdict(Comparison("LDA", 5, -1.0, -1.0, -1.0)) == "no interval"


CSV_COLUMNS = (
    "table,database,m,protocol,photometry,input,method,tuned,repeats,mean,std,"
    "paper_mean,paper_std,seed,data"
)
NASTY = '<b>&"x"'


def column(table, number=0):
    return {row.label: row.cells[number] for row in table.rows}


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def both(*parts):
    return Results(result for part in parts for result in part.by_unit.values())


class TestErrorTable:
    def test_means_and_deviations_as_the_paper_prints_them(self):
        table = error_table(
            make_results({"LDA": [5.0, 6.0, 7.0], "MFA": [6.115, 6.125]})
        )
        cells = column(table)
        assert cells["LDA"][::2] == ("6.00", "± 1.0")
        assert cells["MFA"][::2] == ("6.12", "± 0.0")

    def test_one_repetition_has_no_deviation(self):
        table = error_table(make_results({"LDA": [5.0]}))
        assert column(table)["LDA"] == Cell("5.00", bold=True)
        assert "deviation" not in table.title

    def test_all_rows_that_print_the_lowest_mean_are_bold(self):
        errors = {"APCA": [6.01], "LDA": [5.001], "MFA": [5.0042], "GTDA": [5.01]}
        bold = {
            k
            for k, cell in column(error_table(make_results(errors))).items()
            if cell.bold
        }
        assert bold == {"LDA", "MFA"}

    def test_lower_is_judged_by_number_not_by_text(self):
        cells = column(error_table(make_results({"LDA": [10.0], "MFA": [9.0]})))
        assert [cells["LDA"].bold, cells["MFA"].bold] == [False, True]

    def test_rows_and_columns_are_in_the_order_of_the_results(self):
        results = realistic(("orl", "ar"), (4, 2), repeats=2)
        table = error_table(results)
        assert [row.label for row in table.rows] == results.rows
        assert table.headings == [
            *("Method", "AR, m = 2", "AR, m = 4", "ORL, m = 2", "ORL, m = 4"),
        ]
        assert table.header[0] == (Heading("AR", 2), Heading("ORL", 2))

    def test_databases_can_be_chosen(self):
        results = realistic(("orl", "ar"), (2,), repeats=2)
        assert error_table(results, databases=["orl"]).headings[1:] == ["ORL, m = 2"]

    def test_what_is_the_same_is_in_the_title(self):
        title = error_table(make_results({"LDA": [5.0, 6.0]})).title
        assert "random splits, photometry unit-norm, seed 0" in title
        assert "2 repetitions" in title

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"seed": 7}, "seed 7"),
            ({"photometry": "dog"}, "photometry dog"),
            ({"data": "0123456789"}, "data 01234567"),
        ],
    )
    def test_what_differs_is_in_the_columns(self, change, said):
        results = both(
            make_results({"LDA": [5.0]}), make_results({"LDA": [9.0]}, **change)
        )
        table = error_table(results)
        assert sorted(cell.text for cell in table.rows[0].cells) == ["5.00", "9.00"]
        assert len(set(table.headings)) == 3
        number = [said in heading for heading in table.headings].index(True)
        assert table.rows[0].cells[number - 1].text == "9.00"
        assert said not in table.title

    def test_a_protocol_without_m_is_said_instead_of_it(self):
        results = both(
            make_results({"LDA": [5.0]}),
            make_results({"LDA": [9.0]}, protocol="visits", m=0),
        )
        table = error_table(results, with_paper=True)
        assert table.headings[1:] == ["AR, visits split", "AR, m = 2"]
        assert "random splits" not in table.title
        # The paper's splits are random.
        assert [cell.aside != "" for cell in table.rows[0].cells] == [False, True]

    def test_incomplete_columns_are_noted(self):
        results = make_results(
            {"LDA": [5.0, 6.0, 7.0], "MFA": [1.0], "ERE": [1.0, 2.0]}
        )
        notes = " ".join(error_table(results).notes)
        assert (
            "AR, m = 2 is incomplete: of 3 repetitions MFA has 1 and ERE has 2" in notes
        )

    def test_rows_with_as_many_but_other_repetitions_are_noted(self):
        results = Results([make_result("LDA", 0), make_result("MFA", 1)])
        notes = " ".join(error_table(results).notes)
        assert "of 2 repetitions LDA has 1 and MFA has 1" in notes

    def test_complete_columns_are_not_noted(self):
        notes = error_table(make_results({"LDA": [5.0, 6.0], "MFA": [1.0, 2.0]})).notes
        assert notes == ("Bold: the lowest mean of a column.",)

    def test_failures_are_noted_with_the_first_reason(self):
        results = Results(
            [make_result("LDA", 0), make_failure("MFA", 0, "ValueError: first\nline")]
            + [make_failure("MFA", 1, "other"), make_failure("LDA", 1, "third")]
        )
        table = error_table(results)
        assert (
            "AR, m = 2: 3 failed (MFA 2, LDA 1). First reason: ValueError: first line"
            in table.notes
        )
        assert column(table)["MFA"].text == MISSING

    def test_means_over_seeds_are_noted(self):
        runs = [make_result("LDA", 0), make_result("MLE", 0, n_seeds=5)]
        said = "MLE: in each repetition the mean over 5 seeds of the method."
        assert said in error_table(Results(runs)).notes
        assert said in time_table(Results(runs)).notes
        assert not [note for note in error_table(Results(runs)).notes if "LDA" in note]
        runs.append(make_result("MLE", 1, n_seeds=1))
        notes = error_table(Results(runs)).notes
        assert any("mean over 1 and 5 seeds" in note for note in notes)

    def test_different_numbers_of_repetitions_are_noted(self):
        results = both(
            make_results({"LDA": [5.0]}), make_results({"LDA": [5.0, 6.0]}, m=4)
        )
        table = error_table(results)
        assert "Repetitions: 1 for AR, m = 2; 2 for AR, m = 4." in table.notes
        assert "repetitions" not in table.title

    def test_there_may_be_no_results(self):
        table = error_table(Results([]))
        assert (table.rows, table.notes) == ((), ())
        assert to_csv(table) == CSV_COLUMNS + "\n"
        for write in (to_markdown, to_html):
            assert "Error rates: error in %" in write(table)
        assert r"\caption{Error rates: error in \%}" in to_latex(table)


class TestInputs:
    def test_they_are_blocks_of_columns(self):
        results = both(
            *(make_results({"LDA": [float(m)], "GTDA": [9.0]}, m=m) for m in (2, 4)),
            *(make_results({"LDA": [m / 2]}, m=m, input="local") for m in (2, 4)),
        )
        table = error_table(results)
        assert table.header == (
            (Heading("AR", 4),),
            (Heading("pixels", 2), Heading("local descriptors", 2)),
            tuple(Heading(f"m = {m}") for m in (2, 4, 2, 4)),
        )
        lda, gtda = table.rows
        assert [cell.text for cell in lda.cells] == ["2.00", "4.00", "1.00", "2.00"]
        assert [cell.text for cell in gtda.cells[2:]] == [MISSING, MISSING]
        assert (
            "GTDA: left out on local descriptors, because they need images as such."
        ) in table.notes

    def test_the_paper_is_compared_with_pixels_only(self):
        results = both(
            make_results({"LDA": [5.0]}), make_results({"LDA": [4.0]}, input="local")
        )
        (row,) = error_table(results, with_paper=True).rows
        assert [cell.aside != "" for cell in row.cells] == [True, False]

    def test_vectors_are_not_called_images(self):
        results = make_results(
            {"LDA": [5.0, 6.0], "DualQML": [4.0, 5.5]}, database="f", input="vectors"
        )
        assert "vectors, random splits, scaling unit-norm" in error_table(results).title
        assert time_table(results).header[1][-1].text == "test, ms per vector"
        assert "share vectors" in " ".join(comparison_table(results).notes)

    def test_the_best_rival_has_the_same_input(self):
        results = both(
            make_results({"LDA": [5.0, 6.0], "DualQML": [7.0, 7.5]}),
            make_results({"MFA": [1.0, 2.0], "DualQML": [2.0, 2.5]}, input="local"),
        )
        rows = comparison_table(results).rows
        assert [(row.label, row.cells[0].text) for row in rows] == [
            ("AR, pixels, m = 2", "LDA"),
            ("AR, local, m = 2", "MFA"),
        ]


class TestYours:
    def test_the_class_is_noted(self):
        spec = "sklearn.svm:LinearSVC(C=1.0)"
        results = both(
            make_results({"LDA": [5.0]}), make_results({"mine": [4.0]}, spec=spec)
        )
        table = error_table(results)
        assert [row.label for row in table.rows] == ["LDA", "mine"]
        assert f"mine: {spec}" in table.notes

    def test_all_others_are_its_rivals(self):
        results = both(
            make_results({"LDA": [5.0, 6.0], "DualQML-W": [4.0, 4.5]}),
            make_results({"mine": [3.0, 4.0]}, spec="a:B"),
        )
        table = comparison_table(results)
        found = [(row.cells[2].text, row.cells[0].text) for row in table.rows]
        assert found == [("DualQML-W", "mine"), ("mine", "DualQML-W")]
        assert table.title.startswith("Ours and yours against the best rival")

    def test_a_name_like_ours_is_not_ours(self):
        results = both(
            make_results({"LDA": [5.0, 6.0], "DualQML": [4.0, 4.5]}),
            make_results({"DualQML-mine": [3.0, 4.0]}, spec="a:B"),
        )
        assert our_rows(results) == ["DualQML"]
        assert results.best_rival(results.settings[0]) == "DualQML-mine"


class TestPaperFigures:
    def test_they_are_shown_where_the_paper_has_them(self):
        results = make_results({"LDA": [5.0], "DualQML": [4.0], "DualQML-W": [3.0]})
        cells = column(error_table(results, with_paper=True))
        assert cells["DualQML"].aside == "(6.20 ± 1.5)"
        assert cells["DualQML-W"].aside == ""
        assert column(error_table(results))["DualQML"].aside == ""

    @pytest.mark.parametrize(
        "change",
        [{"database": "orl"}, {"database": "polyu_palm", "m": 3}, {"tuned": True}],
    )
    def test_and_not_elsewhere(self, change):
        results = make_results({"LDA": [5.0]}, **change)
        table = error_table(results, with_paper=True)
        assert table.rows[0].cells[0].aside == ""
        assert not any("paper" in note for note in table.notes)

    def test_a_variant_is_compared_with_the_same_figures(self):
        results = make_results({"ERE": [5.0]}, database="feret:distinct", m=6)
        cell = error_table(results, with_paper=True).rows[0].cells[0]
        assert cell.aside == "(5.19 ± 1.8)"


class TestPaperTables:
    def test_they_are_grouped_as_in_the_paper(self):
        names = (
            *("orl", "iitd_ear", "casia_palm", "polyu_palm", "frgc", "feret:distinct"),
            *("feret", "pie", "ar", "zebra"),
        )
        results = Results(make_result(database=name) for name in names)
        titles = [table.title.partition(":")[0] for table in paper_tables(results)]
        assert titles == [
            "Table 1. AR and PIE",
            "Table 2. FERET, FERET (distinct) and FRGC",
            "Table 3. PolyU and CASIA",
            "Table 4. IITD-ear",
            "ORL",
            "zebra",
        ]

    def test_absent_databases_are_left_out(self):
        results = Results([make_result(database="casia_palm")])
        (table,) = paper_tables(results)
        assert table.title.startswith("Table 3. CASIA:")
        assert table.headings[1:] == ["CASIA, m = 2"]

    def test_rows_of_other_databases_are_left_out(self):
        results = Results(
            [make_result("LDA", database="orl"), make_result("MFA", database="ar")]
        )
        first, second = paper_tables(results)
        assert [row.label for row in first.rows] == ["MFA"]
        assert [row.label for row in second.rows] == ["LDA"]


class TestCSV:
    def test_long_format_in_full_precision(self):
        results = make_results({"LDA": [1.0, 2.0, 2.0], "DualQML-W": [1 / 3]})
        text = error_csv(results)
        assert text.splitlines()[0] == CSV_COLUMNS
        lda, ours = read_csv(text)
        assert (lda["table"], lda["database"], lda["m"]) == ("1", "ar", "2")
        assert (lda["method"], lda["tuned"], lda["repeats"]) == ("LDA", "false", "3")
        assert float(lda["mean"]) == 5.0 / 3.0
        assert float(lda["std"]) == pytest.approx((1 / 3) ** 0.5, rel=1e-15)
        assert (lda["paper_mean"], lda["paper_std"]) == ("10.88", "2.1")
        assert (ours["std"], ours["paper_mean"]) == ("", "")
        assert float(ours["mean"]) == 1 / 3

    def test_tuned_and_other_databases(self):
        (line,) = read_csv(
            error_csv(Results([make_result(tuned=True, database=NASTY)]))
        )
        assert (line["tuned"], line["method"], line["table"]) == ("true", "LDA", "")
        assert line["database"] == NASTY

    def test_all_tables_have_lines_for_all_settings(self):
        results = realistic(("ar", "orl"), (2, 4), repeats=2)
        settings = [(d, m) for d in ("ar", "orl") for m in ("2", "4")]

        def found(text):
            return [(r["database"], r["m"], r["method"]) for r in read_csv(text)]

        errors = found(error_csv(results))
        assert errors == [(*where, row) for where in settings for row in results.rows]
        times = found(to_csv(time_table(results)))
        assert times == [("ar", "2", row) for row in results.rows]
        compared = found(to_csv(comparison_table(results)))
        ours = ("DualQML", "DualQML-W")
        assert compared == [(*where, row) for where in settings for row in ours]


class TestTimes:
    def test_medians_of_ar_with_two_images(self):
        results = both(
            make_results({"LDA": [5.0]}, database="ar", m=4),
            Results(
                make_result(repetition=k, fit_seconds=s, test_seconds=s / 10, n_test=50)
                for k, s in enumerate([1.0, 200.0, 3.0])
            ),
        )
        table = time_table(results)
        assert "AR, m = 2" in table.title
        # Nothing was chosen: one training with the defaults.
        assert [cell.text for cell in table.rows[0].cells] == [MISSING, "3", "6"]

    def test_the_choice_of_parameters_is_told_apart(self):
        results = Results(
            make_result(
                *("DualQML", k, 5.0),
                fit_seconds=30.0 + k,
                refit_seconds=2.0 + k,
                searched=True,
            )
            for k in range(3)
        )
        table = time_table(results)
        assert [cell.text for cell in table.rows[0].cells[:2]] == ["31", "3"]
        assert [text.text for text in table.header[1][:2]] == [
            "training with choice, s",
            "training fixed, s",
        ]
        assert "with and without the choice of parameters" in table.title
        (line,) = read_csv(to_csv(table))
        assert float(line["fit_with_choice_seconds"]) == 31.0
        assert float(line["fit_fixed_seconds"]) == 3.0

    def test_a_choice_whose_training_alone_was_not_timed(self):
        results = Results([make_result("DualQML", searched=True, fit_seconds=7.0)])
        cells = time_table(results).rows[0].cells
        assert [cell.text for cell in cells[:2]] == ["7", MISSING]

    def test_inputs_are_beside_each_other(self):
        results = both(
            make_results({"LDA": [5.0], "GTDA": [6.0]}),
            make_results({"LDA": [4.0]}, input="local"),
        )
        table = time_table(results)
        assert [heading.text for heading in table.header[0]] == [
            "pixels",
            "local descriptors",
        ]
        lda, gtda = table.rows
        assert len(lda.cells) == 6
        assert [cell.text for cell in gtda.cells[3:]] == [MISSING] * 3
        assert any("include the computation" in note for note in table.notes)

    def test_who_chooses_parameters_is_said(self):
        with_choice = make_result("DualQML", searched=True, refit_seconds=0.5)
        table = time_table(Results([with_choice, make_result("LDA")]))
        (said,) = [note for note in table.notes if "many trainings" in note]
        assert said.startswith("DualQML chooses parameters by cross-validation")
        assert "LDA has given parameters and one training" in said
        alone = time_table(Results([make_result("LDA")]))
        assert not any("many trainings" in note for note in alone.notes)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("pixels", "Reading the images and their photometry are not in them"),
            ("vectors", "Making, reading and scaling the vectors are not in them"),
        ],
    )
    def test_what_is_in_the_times_is_said(self, name, said):
        notes = time_table(make_results({"LDA": [1.0]}, input=name)).notes
        assert notes[0].endswith(f"{said}; all else is.")

    def test_the_first_setting_stands_in(self):
        results = realistic(("orl",), (4, 6), repeats=1)
        assert "ORL, m = 4" in time_table(results).title

    def test_the_times_of_the_paper_are_beside(self):
        table = time_table(make_results({"LDA": [5.0], "MFA": [1.0]}), with_paper=True)
        assert table.headings[4:] == [
            "Paper, AR, m = 2, training, s",
            "Paper, AR, m = 2, test, ms per image",
        ]
        lda, mfa = table.rows
        assert [cell.text for cell in lda.cells[1:]] == ["1.5", "2.5", "83.5", "8"]
        assert [cell.text for cell in mfa.cells[3:]] == [MISSING, MISSING]

    def test_there_may_be_no_results(self):
        assert time_table(Results([]), with_paper=True).rows == ()


class TestComparison:
    def test_a_line_for_each_of_ours(self):
        results = make_results(
            {
                "LDA": 2 * [5.0, 6.0, 7.0],
                "MFA": 2 * [9.0, 9.0, 9.0],
                "DualQML (max)": 2 * [0.0, 0.0, 0.0],
                "DualQML": 2 * [5.1, 5.9, 7.05],
                "DualQML-W": 2 * [4.0, 4.9, 6.1],
            }
        )
        table = comparison_table(results)
        texts = [[cell.text for cell in row.cells] for row in table.rows]
        assert [row[:4] for row in texts] == [
            ["LDA", "6.00", "DualQML", "6.02"],
            ["LDA", "6.00", "DualQML-W", "5.00"],
        ]
        assert [row[4] for row in texts] == ["+0.02", "\N{MINUS SIGN}1.00"]
        assert [row[6:] for row in texts] == [
            ["6", "no difference seen"],
            ["6", "lower"],
        ]
        assert re.fullmatch("\N{MINUS SIGN}1.09 to \N{MINUS SIGN}0.91", texts[1][5])
        lines = read_csv(to_csv(table))
        exact = results.compare(results.settings[0], "DualQML-W", "LDA")
        assert float(lines[1]["low"]) == exact.low
        assert float(lines[1]["high"]) == exact.high

    def test_one_split_is_too_few(self):
        table = comparison_table(make_results({"LDA": [5.0], "DualQML": [4.0]}))
        assert [cell.text for cell in table.rows[0].cells][4:] == [
            *(MISSING, MISSING, MISSING, "too few splits"),
        ]

    def test_under_five_splits_there_is_no_verdict_and_the_table_says_why(self):
        errors = {"LDA": [5.0, 6.0, 7.0, 6.0], "DualQML": [1.0, 2.1, 2.9, 2.0]}
        table = comparison_table(make_results(errors))
        assert [c.text for c in table.rows[0].cells][6:] == ["4", "too few splits"]
        assert "under 5 splits there is no verdict" in to_markdown(table)
        five = {row: [*found, found[0]] for row, found in errors.items()}
        table = comparison_table(make_results(five))
        assert table.rows[0].cells[-1].text == "lower"
        assert "there is no verdict" not in to_markdown(table)

    def test_without_rivals_or_ours_there_is_nothing(self):
        assert comparison_table(make_results({"LDA": [5.0]})).rows == ()
        assert comparison_table(make_results({"DualQML": [5.0]})).rows == ()

    def test_the_short_name_of_local_descriptors_is_explained(self):
        errors = {"LDA": 3 * [9.0, 8.0], "DualQML": 3 * [5.0, 4.0]}
        said = "Local: on local descriptors."
        local = make_results(errors, input="local")
        # Alone, local descriptors are in the title, in full.
        assert said not in comparison_table(local).notes
        table = comparison_table(both(make_results(errors), local))
        assert said in table.notes
        assert table.rows[1].label == "AR, local, m = 2"

    def test_settings_that_differ_are_told_apart(self):
        errors = {"LDA": [5.0, 6.0], "DualQML": [4.0, 5.5]}
        results = both(make_results(errors), make_results(errors, seed=3))
        labels = [row.label for row in comparison_table(results).rows]
        assert labels == ["AR, m = 2, seed 0", "AR, m = 2, seed 3"]

    def test_tuned_rows_of_ours_are_compared(self):
        results = Results(
            make_result(method, tuned=True)
            for method in ("LDA", "DualQML", "DualQML (max)")
        )
        assert our_rows(results) == ["DualQML (tuned)"]

    @pytest.mark.parametrize(
        ("low", "high", "word"),
        [
            (-2.0, -0.1, "lower"),
            (0.1, 2.0, "higher"),
            (-0.1, 0.1, "no difference seen"),
            (0.0, 0.0, "no difference seen"),
            (-1.0, 0.0, "no difference seen"),
        ],
    )
    def test_verdicts(self, low, high, word):
        assert verdict(Comparison("LDA", 9, (low + high) / 2, low, high)) == word

    def test_what_rounds_to_zero_has_no_sign(self):
        assert [signed(value) for value in (-0.004, 0.004, 0.0, 0.006)] == [
            *("0.00", "0.00", "0.00", "+0.01"),
        ]


def test_a_database_with_the_name_of_a_formula():
    text = error_csv(Results([make_result(database="=1+1")]))
    assert "'=1+1" in text
    assert all(not line.startswith("=") for line in text.splitlines())
