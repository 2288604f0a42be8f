from collections import Counter
from itertools import groupby

import pytest

from dualqml.experiments.paper import ODDITIES, paper_cell, paper_results, paper_times
from dualqml.extractors.methods import METHODS

COLUMNS = {
    "AR": (1, [2, 4, 6, 8]),
    "PIE": (1, [2, 4, 6, 8]),
    "FERET": (2, [2, 4, 6]),
    "FRGC": (2, [2, 4, 6, 8]),
    "PolyU": (3, [2, 4, 6, 8]),
    "CASIA": (3, [2, 4, 6, 8]),
    "IITD-ear": (4, [2, 3]),
}


def column_of(cell):
    return cell.table, cell.database, cell.m


def test_there_are_300_different_cells():
    cells = [(cell.database, cell.m, cell.method) for cell in paper_results()]
    assert len(cells) == 300
    assert max(Counter(cells).values()) == 1


def test_the_columns_are_those_of_the_paper():
    expected = [
        (table, database, m) for database, (table, ms) in COLUMNS.items() for m in ms
    ]
    assert [key for key, _ in groupby(paper_results(), column_of)] == expected


def test_every_column_has_the_methods_in_the_order_of_the_registry():
    # DualQML-W is ours.
    expected = [name for name in METHODS if name != "DualQML-W"]
    for _, cells in groupby(paper_results(), column_of):
        assert [cell.method for cell in cells] == expected


def test_the_values_are_percentages_of_the_printed_precision():
    for cell in paper_results():
        assert 0.0 < cell.std < cell.mean < 100.0
        assert cell.std == round(cell.std, 1)
        assert cell.mean == round(cell.mean, 2) or cell.mean == 3.121


@pytest.mark.parametrize(
    ("database", "m", "method", "mean", "std"),
    [
        ("AR", 2, "APCA", 9.35, 2.2),
        ("AR", 8, "GTDA", 5.58, 1.5),
        ("AR", 8, "DualQML (max)", 3.121, 1.1),
        ("PIE", 6, "CFA-OEOTF", 14.43, 1.3),
        ("PIE", 8, "DualQML", 5.32, 0.4),
        ("FERET", 2, "CFA-OTF", 42.96, 2.0),
        ("FERET", 6, "ERE", 5.19, 1.8),
        ("FRGC", 2, "DualQML", 43.22, 1.4),
        ("FRGC", 8, "ER-KDA", 26.66, 1.8),
        ("PolyU", 2, "APCA", 25.61, 1.8),
        ("PolyU", 6, "DualQML", 7.87, 1.3),
        ("CASIA", 2, "K-LDA", 19.02, 3.2),
        ("CASIA", 8, "MFA", 8.10, 1.3),
        ("IITD-ear", 2, "LDA", 24.98, 0.8),
        ("IITD-ear", 3, "DualQML", 5.72, 0.4),
    ],
)
def test_cells_as_read_in_the_paper(database, m, method, mean, std):
    cell = paper_cell(database, m, method)
    assert (cell.database, cell.m, cell.method) == (database, m, method)
    assert (cell.mean, cell.std) == (mean, std)
    assert cell.table == COLUMNS[database][0]


def test_the_lowest_errors_are_those_in_bold():
    bold = {key: "DualQML" for key, _ in groupby(paper_results(), column_of)}
    bold[2, "FERET", 6] = "ERE"
    lowest = {
        key: min(cells, key=lambda cell: cell.mean).method
        for key, cells in groupby(paper_results(), column_of)
    }
    assert lowest == bold


def test_errors_fall_with_the_number_of_training_samples():
    def of_a_row(cell):
        return cell.database, cell.method

    for _, cells in groupby(sorted(paper_results(), key=of_a_row), of_a_row):
        means = [cell.mean for cell in cells]
        assert means == sorted(means, reverse=True)


def test_times():
    assert [tuple(time) for time in paper_times()] == [
        ("AR", 2, "APCA", 65.83, 0.008),
        ("AR", 2, "LDA", 83.54, 0.008),
        ("AR", 2, "K-LDA", 522.21, 3.501),
        ("AR", 2, "ER-KDA", 1031.53, 3.802),
        ("AR", 2, "DualQML", 5201.27, 1.431),
    ]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (("ORL", 2, "LDA"), "database='ORL'; it has AR, PIE"),
        (("FERET", 8, "LDA"), "m=8 on FERET; it has 2, 4, 6"),
        (("AR", 2, "DualQML-W"), "method='DualQML-W' on AR; it has APCA, LDA"),
    ],
)
def test_a_missing_cell_is_named(cell, message):
    with pytest.raises(KeyError, match=message):
        paper_cell(*cell)


def test_every_oddity_names_its_table():
    assert all(oddity.startswith("Table ") for oddity in ODDITIES)
    assert len(set(ODDITIES)) == len(ODDITIES)


@pytest.mark.parametrize(
    ("database", "m", "n_tested", "rounding", "expected"),
    [
        # Errors of a run are whole halves of a percent: only the mean is rounded.
        ("FERET", 6, 200, 0.005, {"MFA", "CFA-OTF", "ERE", "K-LDA", "ER-KDA"}),
        # Runs may have been rounded to two decimals as well, as the mean was.
        ("IITD-ear", 3, 118, 0.01, {"LDA", "ERE", "ER-KDA", "DualQML"}),
    ],
)
def test_the_means_said_to_be_impossible_are(database, m, n_tested, rounding, expected):
    unit = 100.0 / (30 * n_tested)
    impossible = {
        cell.method
        for cell in paper_results()
        if (cell.database, cell.m) == (database, m)
        and abs(cell.mean - unit * round(cell.mean / unit)) > rounding + 1e-9
    }
    assert impossible == expected
