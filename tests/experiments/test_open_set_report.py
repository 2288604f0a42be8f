import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from dualqml.experiments.open_set import (
    NEAREST,
    OpenSetEvaluation,
    Trial,
    evaluate_open_set,
)
from dualqml.experiments.open_set_report import (
    _draw_cmc,
    open_set_table,
    write_open_set,
)
from dualqml.experiments.table_formats import to_markdown
from dualqml.extractors.methods import ALL_METHODS
from tests.experiments.page import Page
from tests.people import make_people, make_vectors

pytest.importorskip("matplotlib")


def people(n_people=30):
    return make_vectors(n_people, 8, size=20, noise=0.9)


def open_set_people(n_people=12, n_samples=5, noise=1.2, seed=0):
    return make_vectors(n_people, n_samples, size=30, noise=noise, seed=seed)


@pytest.fixture(scope="module")
def found():
    return evaluate_open_set(*open_set_people(), m=3, repeats=2, name="made up")


def test_the_lowest_is_bold():
    better = Trial(np.array([[0.9, 0.1]]), np.array([0]), np.array([[0.2, 0.1]]), ["s"])
    worse = Trial(np.array([[0.1, 0.9]]), np.array([0]), np.array([[0.2, 0.1]]), ["s"])
    found = OpenSetEvaluation("x", 1, 2, 1, {"good": [better], "bad": [worse]})
    table = open_set_table(found)
    assert all(cell.bold for cell in table.rows[0].cells)
    assert not table.rows[1].cells[0].bold
    assert table.rows[1].cells[0].text == "100.00"


@pytest.mark.parametrize(
    ("m", "said", "fewer"),
    [
        (3, "8 people enrolled with 3 vectors each, 4 strangers", False),
        (1, "8 people enrolled with 1 vector each, 4 strangers", False),
        # Everybody has five vectors; one of them is searched for.
        (20, "8 people enrolled with 4 vectors each, 4 strangers", True),
    ],
)
def test_as_many_images_are_told_as_were_enrolled(m, said, fewer):
    found = evaluate_open_set(*open_set_people(), m=m, repeats=1)
    text = to_markdown(open_set_table(found))
    assert said in text
    assert (f"{m} vectors of each person were asked for" in text) == fewer


def test_uneven_people_are_told_with_their_median():
    rows, labels = open_set_people()
    few = np.concatenate(
        [np.flatnonzero(labels == p)[2:] for p in np.unique(labels)[:6]]
    )
    kept = np.r_[few, np.flatnonzero(~np.isin(labels, np.unique(labels)[:6]))]
    found = evaluate_open_set(rows[kept], labels[kept], m=4, repeats=3)
    counts = np.concatenate(found.images_each)
    assert counts.shape == (24,)
    assert set(counts) == {2, 4}
    said = f"enrolled with 2 to 4 vectors each (median {np.median(counts):g})"
    assert said in to_markdown(open_set_table(found))
    # Those who were really enrolled.
    for each, trial in zip(found.images_each, found.trials[NEAREST], strict=True):
        assert trial.mated.shape[0] == sum(3 if n == 2 else 5 for n in each) - sum(each)


def test_equal_divisions_have_no_standard_error(found):
    trials = {row: [own[0], own[0]] for row, own in found.trials.items()}
    same = to_markdown(open_set_table(replace(found, trials=trials)))
    assert "± 0.00" not in same
    assert "Without ±: the same in all divisions" in same
    one = {row: own[:1] for row, own in found.trials.items()}
    single = to_markdown(open_set_table(replace(found, trials=one)))
    assert "Without ±" not in single


def test_intervals_without_width_are_not_told_as_intervals(found, tmp_path):
    n_people = found.n_enrolled
    # Every search finds its person, and no stranger comes near.
    right = Trial(
        np.eye(n_people),
        np.arange(n_people),
        np.zeros((4, n_people)),
        np.array([*"abcd"]),
    )
    never = right._replace(mated=np.roll(right.mated, 1, axis=1))
    for trial, said in [
        (right, "0.0 % (no interval: it is the same for all people, however drawn); "),
        (right, f"with no error among {n_people} people it could be 38 %"),
        (never, "100.0 % (no interval: it is the same for all people, however drawn)<"),
    ]:
        made = OpenSetEvaluation("x", 3, n_people, 4, {"DualQML-W": [trial]})
        page = write_open_set(made, tmp_path)[0].read_text()
        assert said in page
        assert "95 % interval" not in page
    page = write_open_set(found, tmp_path)[0].read_text()
    assert "(95 % interval " in page


def test_the_report_is_escaped_and_whole(found, tmp_path):
    odd = OpenSetEvaluation("<b>&", 3, 8, 4, found.trials)
    path, text = write_open_set(odd, tmp_path / "new", command="dualqml evaluate <x>")
    page = Page(path.read_text())
    assert page.all("b") == page.all("script") == []
    assert page.texts("h1") == ["Recognition of <b>&"]
    assert page.texts("code") == ["dualqml evaluate <x>"]
    labels = [svg["attrs"]["aria-label"] for svg in page.all("svg")]
    assert labels == ["CMC of <b>&", "DET of <b>&", "open set of <b>&"]
    assert page.texts("h2") == page.texts("a")
    assert (tmp_path / "new" / "open-set.md").read_text() == text
    assert "DualQML-W" in text


def test_figures_have_captions_and_terms_are_defined(found, tmp_path):
    page = Page(write_open_set(found, tmp_path)[0].read_text())
    captions = page.texts("figcaption")
    assert len(captions) == 3
    assert all("in the first division" in text for text in captions)
    assert {"FPIR", "FNIR", "FMR", "FNMR", "EER", "CMC", "DET"} <= set(page.texts("dt"))


def test_data_protocol_and_methods_come_first(found, tmp_path):
    page = Page(write_open_set(found, tmp_path)[0].read_text())
    assert page.texts("h2")[0] == "Data, protocol and methods"
    assert page.texts("p")[0].startswith(
        "made up has 60 vectors of 30 numbers, of 12 subjects. In each of 2 random "
        "divisions of the people, 8 are enrolled"
    )
    assert page.texts("caption")[0] == "Methods"
    cells = page.texts("td")
    for name in ("DualQML-W", "NN-cosine", "Mean-cosine"):
        assert ALL_METHODS[name].title in cells
        assert ALL_METHODS[name].reference in cells
    assert "local descriptors" not in page.texts("dt")
    cited = Page(write_open_set(found, tmp_path, citation="Who, 1994.")[0].read_text())
    assert "of 12 subjects (Who, 1994). In each" in cited.texts("p")[0]
    # What is not known is not said.
    bare = OpenSetEvaluation("x", 3, 8, 4, found.trials)
    page = Page(write_open_set(bare, tmp_path)[0].read_text())
    assert page.texts("p")[0].startswith("In each of 2 random divisions of the people")


def test_images_are_described_with_their_descriptors(tmp_path):
    people = make_people(n_people=6, n_images=4, size=16)
    images = np.concatenate([people.images, people.images[:1]])
    labels = [*people.labels, "alone"]
    found = evaluate_open_set(images, labels, m=2, repeats=1, name="orl")
    page_text = write_open_set(found, tmp_path)[0].read_text()
    page = Page(page_text)
    assert page.texts("h1") == ["Recognition of ORL"]
    # One sample is too few to be enrolled, and is no reason to hide it.
    said = "ORL has 25 images (16 x 16 pixels) of 7 subjects. In one random division"
    assert page.texts("p")[0].startswith(said)
    assert "local descriptors" in page.texts("dt")
    title = ALL_METHODS["NN-cosine"].title
    assert f"{title}, on local descriptors" in page.texts("td")
    # Two rows of five are dashed, on the curve and in the legend of three figures.
    svg = re.findall(r"<svg.*?</svg>", page_text, re.DOTALL)
    assert [text.count("stroke-dasharray") for text in svg] == [4, 4, 4]
    captions = page.texts("caption")
    assert captions[1].startswith("ORL: 4 people enrolled with 2 images each")


def test_rates_have_a_space_before_the_sign_of_per_cent(found, tmp_path):
    text = write_open_set(found, tmp_path)[0].read_text()
    # Apart from the sheet of styles.
    assert not re.search(r"\d%", text[text.index("<body>") : text.index("<svg")])


def test_axes_end_at_a_hundred_per_cent(found):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    for row, trials in found.trials.items():
        _draw_cmc(ax, row, trials[0], {})
    assert ax.get_ylim()[1] == 100.0
    firsts = [line.get_ydata()[0] for line in ax.lines]
    assert ax.get_ylim()[0] <= min(firsts)


def test_the_evaluation_writes_it(tmp_path):
    plain = evaluate_open_set(*people(), m=3, repeats=1)
    assert plain.thresholds == []
    found = evaluate_open_set(*people(), m=3, repeats=2, fpir=0.1)
    assert [len(checks) for checks in found.thresholds] == [2, 2]
    page, text = write_open_set(found, tmp_path)
    for written in (page.read_text(), text, (tmp_path / "open-set.md").read_text()):
        assert "does a threshold for an FPIR of 10 % hold?" in written
    _, without = write_open_set(plain, tmp_path)
    assert "threshold" not in without
    assert "One random division." in without


def test_one_stranger_is_enough_for_a_report(tmp_path):
    found = evaluate_open_set(*people(5), m=3, strangers=0.2, repeats=1, fpir=0.1)
    assert found.n_strangers == 1
    page, _ = write_open_set(found, tmp_path)
    text = page.read_text()
    assert "1 strangers; errors in %" in text
    # One stranger does not tell how strangers differ.
    assert "FNIR of DualQML-W at FPIR" not in text
    assert Page(text).texts("h2")[-1] == "Strangers"


def test_without_matplotlib_it_says_what_to_install(found, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path, _ = write_open_set(found, tmp_path)
    page = Page(path.read_text())
    assert page.all("svg") == page.all("figure") == []
    message = "Plots need matplotlib: install dualqml[plot]"
    assert page.texts("p")[1:] == 3 * [message]
    assert page.texts("caption")[1].startswith("made up: 8 people enrolled")
