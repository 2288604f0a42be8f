import base64
import io
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from dualqml.exceptions import DualQMLError, FileError
from dualqml.experiments.paper import ODDITIES
from dualqml.experiments.report import (
    Mistakes,
    describe_size,
    render_page,
    render_report,
    write_report,
)
from dualqml.experiments.results import Results
from dualqml.extractors.methods import METHODS
from tests.experiments.factory import (
    make_failure,
    make_result,
    make_results,
    realistic,
)
from tests.experiments.page import Page

pytest.importorskip("matplotlib")

NASTY = '<b>&"x"'


@pytest.fixture(scope="module")
def results():
    runs = realistic(("ar", "feret", NASTY), (2, 4), repeats=4)
    failure = make_failure("MLE", 4, f"ValueError: {NASTY}")
    return Results([*runs.by_unit.values(), failure])


@pytest.fixture(scope="module")
def text(results):
    facts = {
        NASTY: {
            "title": f"title {NASTY}",
            "citation": f"citation {NASTY}",
            "terms": f"terms {NASTY}",
            "subjects": 40,
            "images": 400,
            "copies": 2,
            "skipped": [f"file {NASTY}", "bad\udc80name"],
        },
        "ar": {"citation": "Martinez"},
        "absent": {"citation": "not to be shown"},
    }
    faces = {NASTY: np.zeros((3, 5, 4), dtype=np.uint8)}
    return render_report(results, command=f"dualqml {NASTY}", facts=facts, faces=faces)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def summary_of(results):
    page = Page(render_report(results, with_paper=False))
    section = next(e for e in page.all("section") if e["attrs"]["id"] == "summary")
    return " ".join(section["text"].split()).replace("\N{NO-BREAK SPACE}", " ")


class TestPage:
    def test_it_needs_nothing_else_and_runs_nothing(self, page):
        policy = next(
            e["attrs"]["content"]
            for e in page.all("meta")
            if "http-equiv" in e["attrs"]
        )
        assert policy.startswith(
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        )
        assert page.all("script") == []
        for element in page.elements:
            for name, value in element["attrs"].items():
                assert not name.startswith("on")
                if name in ("src", "href"):
                    assert value.startswith(("#", "data:"))

    def test_the_policy_comes_before_all_that_it_rules(self, page):
        tags = [element["tag"] for element in page.elements[:5]]
        assert tags == ["html", "head", "meta", "meta", "meta"]
        assert page.elements[2]["attrs"] == {"charset": "utf-8"}
        assert "http-equiv" in page.elements[3]["attrs"]

    def test_text_from_outside_is_text(self, page):
        # As an element it would be a tag in the page, or close another.
        assert page.all("b") == []
        whole = page.elements[0]["text"]
        for said in ("title", "citation", "terms", "file", "dualqml", "ValueError:"):
            assert f"{said} {NASTY}" in whole

    def test_ids_are_there_once_and_links_lead_somewhere(self, page):
        ids = [e["attrs"]["id"] for e in page.elements if "id" in e["attrs"]]
        assert len(set(ids)) == len(ids)
        links = [e["attrs"]["href"][1:] for e in page.all("a")]
        sections = [e["attrs"]["id"] for e in page.all("section")]
        # The summary refers to the failures too.
        assert links == [*sections, "failures"]
        assert set(links) <= set(ids)

    def test_headings_are_in_order(self, page):
        levels = [
            int(e["tag"][1]) for e in page.elements if re.fullmatch("h[1-6]", e["tag"])
        ]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert max(np.diff(levels)) == 1

    def test_sections_are_in_the_contents(self, page):
        assert page.texts("a")[: len(page.texts("h2"))] == page.texts("h2")

    def test_it_says_its_language_and_fits_phones(self, page):
        assert page.elements[0]["attrs"]["lang"] == "en"
        assert any(e["attrs"].get("name") == "viewport" for e in page.all("meta"))
        assert "prefers-color-scheme: dark" in page.texts("style")[0]
        assert "@media print" in page.texts("style")[0]

    def test_sizes_in_names_of_rows_do_not_break(self, page):
        names = [th["text"] for th in page.all("th") if "m" in th["text"].split()]
        rows = [name for name in names if name.startswith("AR, ")]
        assert rows
        assert all("m\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}" in name for name in rows)

    def test_every_table_has_a_caption_and_can_be_scrolled(self, page):
        assert len(page.all("caption")) == len(page.all("table")) >= 7
        assert all(page.texts("caption"))
        scrolled = [
            e for e in page.all("div") if "scroll" in e["attrs"].get("class", "")
        ]
        assert len(scrolled) == len(page.all("table"))
        assert all(
            e["attrs"].keys() >= {"tabindex", "role", "aria-label"} for e in scrolled
        )
        assert all(th["attrs"].get("scope") for th in page.all("th"))

    def test_all_plots_are_there(self, page):
        labels = [e["attrs"]["aria-label"] for e in page.all("svg")]
        expected = [
            "Difference in error between ours and the best rival of each setting",
            *(
                f"{name}{what}"
                for name in ("AR", "FERET", NASTY)
                for what in (
                    ": error against the number of training images",
                    ", m = 2: cumulative match characteristic",
                    ", m = 4: ranks and mean relative eigenvalues",
                )
            ),
            "AR, m = 2: error against training time",
        ]
        assert labels == expected
        # The last is of the sample images.
        captions = page.texts("figcaption")
        assert captions[0].startswith("Mean difference in error between ours and")
        assert captions[1].startswith("AR: mean error against the number of training")
        assert captions[-2].startswith(
            "AR, m = 2: mean error against the time to train. Large markers: the whole "
            "training, the choice of parameters included where there is one."
        )
        assert captions[-1] == NASTY
        assert len(captions) == len(labels) + 1

    def test_it_is_the_same_every_time(self, results):
        assert render_report(results) == render_report(results)


class TestContent:
    def test_facts_are_shown(self, page):
        whole = " ".join(page.elements[0]["text"].split())
        assert "400 images of 40 subjects." in whole
        assert "2 subjects are copies of others" in whole
        assert "2 files were skipped" in whole
        assert "Citation: Martinez" in whole
        assert "not to be shown" not in whole

    def test_names_of_files_that_are_no_text(self, page, text):
        text.encode("utf-8")
        assert "bad\N{REPLACEMENT CHARACTER}name" in page.elements[0]["text"]

    def test_methods_have_their_full_names_and_references(self, page):
        section = next(e for e in page.all("section") if e["attrs"]["id"] == "protocol")
        text = " ".join(section["text"].split())
        assert (
            "in each of 4 to 5 random splits, m = 2 and 4 images of each subject"
            in text
        )
        for name, method in METHODS.items():
            assert name in text
            assert method.title in text
            assert method.reference in text

    def test_terms_are_defined(self, page):
        defined = page.texts("dt")
        assert {"m", "error", "95 % interval", "CMC", "best rival"} <= set(defined)

    def test_few_ranks_are_said_instead_of_drawn(self):
        run = make_result(
            "DualQML", spectrum={"ranks": [1, 2, 1], "eigenvalues": [1.0, 0.2]}
        )
        page = Page(render_report(Results([run])))
        said = "m = 2, first repetition: DualQML has 2 of rank 1 and 1 of rank 2."
        assert said in " ".join(page.texts("p"))
        assert not any("ranks and" in e["attrs"]["aria-label"] for e in page.all("svg"))

    def test_splits_are_documented(self, results, page):
        whole = page.elements[0]["text"]
        for unit in results.by_unit:
            assert unit.split in whole
            assert unit.data in whole

    def test_choices_are_counted(self):
        lams = [0.1, 1.0, 1.0, 3.2]
        results = Results(
            make_result(
                "DualQML", k, parameters={"best_lam": lam, "folds": 2, "rule": "max"}
            )
            for k, lam in enumerate(lams)
        )
        cells = Page(render_report(results)).texts("td")
        assert "0.1 (1), 1 (2), 3.2 (1)" in cells
        assert "2 (4)" in cells
        assert "max (4)" in cells

    def test_choices_of_all_kinds_are_shown(self):
        values = [None, True, [1, 2], "x", 0.5, 3]
        results = Results(
            make_result("CFA-OTF", k, parameters={"alpha": value}, tuned=True)
            for k, value in enumerate(values)
        )
        (cell,) = [c for c in Page(render_report(results)).texts("td") if "None" in c]
        assert cell == "0.5 (1), 3 (1), None (1), True (1), [1, 2] (1), x (1)"

    def test_many_different_choices_are_a_range(self):
        results = Results(
            make_result("DualQML", k, parameters={"best_lam": k + 0.5})
            for k in range(9)
        )
        assert "0.5 to 8.5" in Page(render_report(results)).texts("td")

    def test_few_different_choices_of_a_list_are_counted(self):
        # Half of the values occur twice: they were chosen from a list.
        for lams, said in (
            ([0.1, 1, 3.2, 10, 10], "0.1 (1), 1 (1), 3.2 (1), 10 (2)"),
            ([0.10001, 1.23456, 3.2, 10], "0.1 to 10"),
            ([0.10001, 1.23456, 3.2], "0.1 (1), 1.23 (1), 3.2 (1)"),
        ):
            results = Results(
                make_result("DualQML", k, parameters={"best_lam": lam})
                for k, lam in enumerate(lams)
            )
            assert said in Page(render_report(results)).texts("td")

    def test_parameters_are_defined_beside_their_values(self, page):
        defined = page.texts("dt")
        assert {"lam", "folds", "rho", "rule"} <= set(defined)
        plain = Page(render_report(Results([make_result()])))
        assert "lam" not in plain.texts("dt")

    def test_terms_are_defined_where_they_occur_only(self):
        plain = Page(render_report(Results([make_result()]))).texts("dt")
        assert "CMC" in plain
        assert not {"local descriptors", "rank of a matrix"} & set(plain)
        local = Page(render_report(Results([make_result(input="local")])))
        assert "local descriptors" in local.texts("dt")

    def test_the_caption_says_whose_rows_are_in_colour(self):
        def captions(*runs):
            return Page(render_report(Results(runs))).texts("figcaption")

        runs = [make_result(m=m) for m in (2, 4)]
        mine = [make_result("mine", spec="a:B", m=m) for m in (2, 4)]
        assert "In colour: ours and the best rivals." in captions(*runs)[0]
        said = " ".join(captions(*runs, *mine))
        assert "In colour: ours, yours and the best rivals." in said

    def test_the_figure_has_no_verdict_under_five_splits(self, page):
        caption = page.texts("figcaption")[0]
        assert caption.endswith("under 5 splits there is no verdict.")

    def test_times_are_for_people(self):
        def said(*finished):
            runs = [
                make_result(repetition=k, finished=f) for k, f in enumerate(finished)
            ]
            texts = Page(render_report(Results(runs))).texts("p")
            return next(text for text in texts if text.startswith("Computed"))

        one, two = "2026-01-02T03:04:05+00:00", "2026-01-02T06:00:00+02:00"
        assert said(one) == "Computed at 2026-01-02 03:04 UTC."
        assert said(one, one) == said(one)
        assert (
            said(one, two)
            == "Computed from 2026-01-02 03:04 UTC to 2026-01-02 04:00 UTC."
        )
        assert said("some day") == "Computed at some day."

    @pytest.mark.parametrize(
        ("facts", "said"),
        [
            ({}, ""),
            ({"images": 4}, ""),
            ({"subjects": 2}, ""),
            ({"images": 4, "subjects": 2}, "4 images of 2 subjects"),
            (
                {"images": 4, "subjects": 2, "size": [3, 5]},
                "4 images (3 x 5 pixels) of 2 subjects",
            ),
            ({"images": 4, "subjects": 2, "size": 3}, "4 images of 2 subjects"),
            ({"images": 4, "subjects": 2, "size": None}, "4 images of 2 subjects"),
            ({"vectors": 4, "subjects": 2}, "4 vectors of 2 subjects"),
            (
                {"vectors": 4, "features": 9, "subjects": 2},
                "4 vectors of 9 numbers, of 2 subjects",
            ),
        ],
    )
    def test_sizes_of_databases(self, facts, said):
        assert describe_size(facts) == said

    def test_data_are_described_before_the_protocol(self):
        facts = {"ar": {"images": 4, "subjects": 2, "citation": "Martinez."}}
        page = Page(render_report(Results([make_result()]), facts=facts))
        text = next(text for text in page.texts("p") if "Protocol:" in text)
        assert text.startswith("AR has 4 images of 2 subjects (Martinez). Protocol: ")
        page = Page(render_report(Results([make_result()])))
        text = next(text for text in page.texts("p") if "Protocol:" in text)
        assert text.startswith("Data: AR. Protocol: ")

    def test_one_version_is_said(self, page):
        assert "All results: python 3.11.7, dualqml 0.1.0" in page.elements[0]["text"]

    def test_mixed_versions_are_said(self):
        old = make_result()
        new = make_result(
            repetition=1, versions=dict(old.versions) | {"dualqml": "0.2.0"}
        )
        whole = Page(render_report(Results([old, new]))).elements[0]["text"]
        assert "Results of 2 sets of versions are mixed." in whole
        assert "dualqml 0.2.0" in whole
        assert "All results:" not in whole

    def test_failures_are_counted_by_reason(self):
        failed = [make_failure("MFA", k, "one") for k in range(3)]
        failed.append(make_failure("MFA", 3, "two"))
        page = Page(render_report(Results([make_result(), *failed])))
        assert "4 units failed" in page.texts("caption")
        cells = page.texts("td")
        assert cells[cells.index("one") - 1] == "3"
        assert cells[cells.index("two") - 1] == "1"
        assert "4 of 5 units failed" in page.elements[0]["text"]

    def test_without_failures_there_is_no_such_section(self):
        assert "Failures" not in Page(render_report(Results([make_result()]))).texts(
            "h2"
        )

    def test_the_paper_is_there_only_if_asked_for(self, results, page):
        assert set(ODDITIES) <= set(page.texts("li"))
        assert "(6.20 ± 1.5)" in page.texts("small")
        without = Page(render_report(results, with_paper=False))
        assert not set(ODDITIES) & set(without.texts("li"))
        assert without.texts("small") == []

    def test_the_command_is_kept_as_it_is(self):
        command = "dualqml a \\\n  --b 'c & d'"
        page = Page(render_report(Results([make_result()]), command=command))
        assert page.all("code")[0]["text"] == command

    def test_there_may_be_no_results(self):
        page = Page(render_report(Results([])))
        assert "There are no results yet." in page.elements[0]["text"]
        assert page.all("table") == []

    def test_without_matplotlib_it_says_so(self, results, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        page = Page(render_report(results))
        assert page.all("svg") == []
        assert "install dualqml[plot]" in page.elements[0]["text"]
        assert len(page.all("table")) >= 7


class TestSummary:
    def test_ours_lower(self):
        errors = {"LDA": 2 * [6.0, 7.0, 8.0], "DualQML-W": 2 * [4.0, 5.1, 5.9]}
        assert (
            "AR. Lowest mean error: DualQML-W at m = 2 (5.00 %). DualQML-W against the "
            "best rival, LDA: lower at m = 2 by 2.00 points."
        ) in summary_of(make_results(errors))

    def test_ours_higher_and_not_seen(self):
        higher = make_results(
            {"LDA": 2 * [6.0, 7.0, 8.0], "DualQML": 2 * [8.0, 9.1, 9.9]}
        )
        unseen = make_results(
            {"MFA": 2 * [6.0, 7.0, 8.0], "DualQML": 2 * [9.0, 7.0, 5.0]}, m=4
        )
        results = Results([*higher.by_unit.values(), *unseen.by_unit.values()])
        assert (
            "Lowest mean error: LDA at m = 2 (7.00 %); MFA and DualQML at m = 4 "
            "(7.00 %). DualQML against the best rival, LDA and MFA: higher at m = 2 by "
            "2.00 points; no difference seen at m = 4."
        ) in summary_of(results)

    def test_sizes_are_gathered(self):
        parts = [
            make_results(
                {"LDA": 2 * [9.0, 8.0, 8.5], "DualQML-W": 2 * [5.0, 4.0, 4.6]}, m=m
            )
            for m in (2, 4, 6)
        ]
        results = Results(r for part in parts for r in part.by_unit.values())
        found = summary_of(results)
        assert "DualQML-W at m = 2, 4 and 6 (4.53, 4.53 and 4.53 %)" in found
        assert "lower at m = 2, 4 and 6 by 3.97 points" in found

    def test_variants_are_told_apart(self):
        errors = {"LDA": 3 * [9.0, 8.0], "DualQML-W": 3 * [5.0, 4.0]}
        parts = [make_results(errors, seed=seed) for seed in (0, 1)]
        results = Results(r for part in parts for r in part.by_unit.values())
        found = summary_of(results)
        assert "AR, seed 0." in found
        assert "AR, seed 1." in found

    def test_a_split_without_m(self):
        errors = {"LDA": [9.0], "DualQML-W": [5.0]}
        found = summary_of(make_results(errors, m=0, protocol="visits"))
        assert "AR, visits split. Lowest mean error: DualQML-W (5.00 %)." in found
        assert "DualQML-W against the best rival, LDA: too few splits." in found

    def test_nothing_is_finished(self):
        assert "AR. No unit is finished." in summary_of(Results([make_failure()]))


class TestFile:
    def test_it_is_written_whole(self, tmp_path):
        results = Results([make_result()])
        path = tmp_path / "new" / "report.html"
        assert write_report(results, path) == path
        assert path.read_text(encoding="utf-8") == render_report(results)
        assert [file.name for file in path.parent.iterdir()] == ["report.html"]

    def test_an_old_one_stays_if_writing_fails(self, tmp_path, monkeypatch):
        path = tmp_path / "report.html"
        path.write_text("old")

        def full(*args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(FileError, match="No space left"):
            write_report(Results([make_result()]), path)
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


class TestImages:
    def test_mistakes_show_three_images_each(self, rng):
        image = pytest.importorskip("PIL.Image")
        images = rng.integers(0, 255, (2, 3, 6, 4), dtype=np.uint8)
        mistakes = [Mistakes(f"2 are wrong {NASTY}.", images)]
        page = Page(render_report(Results([make_result()]), mistakes=mistakes))
        shown = page.all("img")
        assert len(shown) == 2
        _, _, data = shown[1]["attrs"]["src"].partition("base64,")
        strip = np.asarray(image.open(io.BytesIO(base64.b64decode(data))))
        assert (strip[:, 5:9] == images[1, 1]).all()
        assert any(text.startswith("2 are wrong <b>") for text in page.texts("p"))
        assert "Mistakes" in page.texts("h2")
        without = Page(render_report(Results([make_result()])))
        assert "Mistakes" not in without.texts("h2")

    def test_a_strip_has_all_faces(self, rng):
        image = pytest.importorskip("PIL.Image")
        faces = rng.integers(0, 255, (3, 6, 4), dtype=np.uint8)
        page = Page(render_report(Results([make_result()]), faces={"ar": faces}))
        (element,) = page.all("img")
        assert element["attrs"]["alt"] == "3 sample images of AR"
        _, _, data = element["attrs"]["src"].partition("base64,")
        strip = np.asarray(image.open(io.BytesIO(base64.b64decode(data))))
        assert strip.shape == (6, 3 * 4 + 2)
        for k, face in enumerate(faces):
            assert (strip[:, 5 * k : 5 * k + 4] == face).all()

    def test_at_most_ten_are_shown(self):
        pytest.importorskip("PIL.Image")
        faces = np.zeros((12, 6, 4), dtype=np.uint8)
        page = Page(render_report(Results([make_result()]), faces={"ar": faces}))
        (element,) = page.all("img")
        assert element["attrs"]["alt"] == "10 sample images of AR"
        assert element["attrs"]["width"] == str(2 * (10 * 5 - 1))

    def test_without_pillow_they_are_left_out_and_it_says_so(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "PIL", None)
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        faces = {"ar": np.zeros((3, 6, 4), dtype=np.uint8)}
        page = Page(render_report(Results([make_result()]), faces=faces))
        assert page.all("img") == []
        (section,) = [s for s in page.all("section") if s["attrs"]["id"] == "faces"]
        assert "The sample images are left out." in section["text"]
        assert "install dualqml[images]" in section["text"]

    def test_without_faces_there_is_no_such_section(self):
        page = Page(render_report(Results([make_result()])))
        assert "Sample images" not in page.texts("h2")

    @pytest.mark.parametrize(
        "faces",
        [
            np.zeros((3, 6, 4)),
            np.zeros((6, 4), np.uint8),
            np.zeros((0, 2, 2), np.uint8),
        ],
    )
    def test_other_arrays_are_refused(self, faces):
        with pytest.raises(DualQMLError, match="ar: faces must be 8-bit"):
            render_report(Results([make_result()]), faces={"ar": faces})


def test_databases_of_the_same_label_keep_their_lines():
    one = make_result(database="a\x01", n_test=111)
    two = replace(one, unit=replace(one.unit, database="a\x02"), n_test=222)
    cells = Page(render_report(Results([one, two]))).texts("td")
    assert {"111", "222"} <= set(cells)


def test_pages_escape_what_no_template_has_rendered():
    page = Page(render_page(f"title {NASTY}", [("a", f"heading {NASTY}", NASTY)]))
    assert page.all("b") == []
    assert page.texts("h1") == [f"title {NASTY}"]
    assert page.texts("h2") == [f"heading {NASTY}"]
    assert page.texts("main") == [f"heading {NASTY} {NASTY}"]
