import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dualqml.cli.main import main
from dualqml.exceptions import StoreError
from dualqml.experiments.store import ResultStore, read_results
from tests.people import make_people

QUICK = ["--methods", "LDA,DualQML", "--repeats", "2", "--jobs", "1", "--quiet"]


def save(path, people):
    arrays = {"images": people.images, "labels": people.labels}
    if people.visits is not None:
        arrays["visits"] = people.visits
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def people(tmp_path):
    return save(tmp_path / "people.npz", make_people(noise=0.8))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return main(["reproduce", *map(str, arguments)])


def test_a_run_leaves_results_tables_and_report(people, out, capsys):
    assert run(people, "-m", "2,3", *QUICK, "--out", out) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert str(out / "report.html") in shown.out
    for row in ("LDA", "DualQML"):
        assert f"| {row} |" in shown.out
    assert len(read_results(out / "results.jsonl")) == 8
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    names = sorted(path.name for path in (out / "tables").iterdir())
    assert names == ["errors.csv", "tables.md", "tables.tex"]
    assert (out / "tables" / "tables.md").read_text() in shown.out
    settings = json.loads((out / "experiment.json").read_text())
    assert settings["databases"]["people.npz"]["subjects"] == 6
    # The command is there, the place is not.
    assert "reproduce people.npz -m 2,3" in settings["commands"][0]
    assert str(out.parent) not in (out / "report.html").read_text()


def test_resume(people, out, capsys):
    assert run(people, "-m", "2", *QUICK, "--out", out) == 0
    assert run(people, "-m", "2", *QUICK, "--out", out) == 2
    assert "Add --resume" in capsys.readouterr().err
    before = (out / "results.jsonl").read_bytes()
    assert run(people, "-m", "2", *QUICK, "--out", out, "--resume") == 0
    assert (out / "results.jsonl").read_bytes() == before
    assert run(people, "-m", "2,4", *QUICK, "--out", out, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == 8


def test_report_again_with_the_papers_figures(tmp_path, out, capsys):
    save(tmp_path / "ar.npz", make_people(n_images=5))
    arguments = ["ar", "--root", tmp_path, "-m", "2", *QUICK, "--out", out]
    assert run(*arguments) == 0
    assert "6.20" not in capsys.readouterr().out
    (out / "report.html").unlink()
    assert main(["report", str(out), "--with-paper"]) == 0
    # The paper's error of DualQML on AR at m=2.
    assert "6.20" in capsys.readouterr().out
    assert "6.20" in (out / "report.html").read_text()


def test_json(people, out, capsys):
    assert run(people, "-m", "2", *QUICK, "--out", out, "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["method"] for record in records] == ["LDA", "DualQML"]
    errors = [r.error for r in read_results(out / "results.jsonl")]
    lda = errors[0::2]
    assert records[0]["mean"] == pytest.approx(np.mean(lda))
    assert records[0]["std"] == pytest.approx(np.std(lda, ddof=1))


def test_the_number_of_processes_changes_nothing(people, tmp_path):
    tables = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert run(people, "-m", "2", *QUICK, "--jobs", jobs, "--out", out) == 0
        tables.append((out / "tables" / "errors.csv").read_text())
    assert tables[0] == tables[1]


def test_visits_and_fixed_rows(tmp_path, out, capsys):
    path = save(tmp_path / "p.npz", make_people(visits=True))
    assert run(path, "--protocol", "visits", *QUICK, "--out", out) == 0
    result = read_results(out / "results.jsonl")[0]
    assert (result.n_train, result.n_test) == (18, 12)
    assert run(path, "--protocol", "fixed", *QUICK, "--out", tmp_path / "f") == 2
    assert "needs --train-rows" in capsys.readouterr().err
    rows = tmp_path / "rows.txt"
    rows.write_text("0 1\n5\n6\n10,11\n")
    arguments = ["--protocol", "fixed", "--train-rows", rows]
    assert run(path, *arguments, *QUICK, "--out", tmp_path / "f") == 0
    result = read_results(tmp_path / "f" / "results.jsonl")[0]
    assert (result.n_train, result.n_test, result.n_subjects) == (6, 9, 3)


def test_distinct(tmp_path, out, capsys):
    people = make_people()
    images = people.images.copy()
    images[5:10] = images[:5]
    np.savez(tmp_path / "p.npz", images=images, labels=people.labels)
    names = ["p.npz", "p.npz:distinct", "--root", tmp_path]
    assert run(*names, "-m", "2", *QUICK, "--out", out) == 0
    assert "1 subjects are pixel copies" in capsys.readouterr().err
    subjects = {
        r.unit.database: r.n_subjects for r in read_results(out / "results.jsonl")
    }
    assert subjects == {"p.npz": 6, "p.npz:distinct": 5}


def test_failed_units_are_said_and_set_the_exit_code(people, out, capsys):
    assert run(people, "-m", "1", *QUICK, "--out", out) == 1
    shown = capsys.readouterr().err
    assert "2 of 4 units failed" in shown
    assert "every class has one" in shown
    assert "every class has one" in (out / "report.html").read_text()


def test_sizes_left_out_are_said(people, out, capsys):
    assert run(people, "-m", "2,8", *QUICK, "--out", out) == 0
    assert "m=8 is left out" in capsys.readouterr().err
    assert run(people, "-m", "8", *QUICK, "--out", out, "--resume") == 2
    assert "m can be 1 to 4" in capsys.readouterr().err


def test_orl_is_the_default(out, capsys):
    pytest.importorskip("PIL")
    assert run("-m", "2", *QUICK, "--repeats", "1", "--out", out) == 0
    assert {r.unit.database for r in read_results(out / "results.jsonl")} == {"orl"}
    # ORL may be shown.
    assert "data:image/png" in (out / "report.html").read_text()


def bad_folder(tmp_path, what):
    from PIL import Image

    root = tmp_path / "faces"
    root.mkdir()
    if what == "empty":
        return root
    people = make_people(n_people=1 if what == "one person" else 3, n_images=3)
    for number, (image, label) in enumerate(
        zip(people.images, people.labels, strict=True)
    ):
        file = root / f"{label} Zoë" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(file)
    first = root / "person 00 Zoë" / "0.png"
    if what == "text":
        first.with_suffix(".jpg").write_text("hello")
    elif what == "zero bytes":
        first.write_bytes(b"")
    elif what == "truncated":
        first.write_bytes(first.read_bytes()[:60])
    return root


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("empty", "No images in"),
        ("one person", "at least two subjects"),
        ("text", "0.jpg"),
        ("zero bytes", "0.png"),
        ("truncated", "0.png"),
    ],
)
def test_bad_folders(tmp_path, out, capsys, what, message):
    pytest.importorskip("PIL")
    root = bad_folder(tmp_path, what)
    assert run(root, "-m", "2", *QUICK, "--out", out) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert not (out / "results.jsonl").exists()


def test_broken_images_are_skipped_on_request_and_named(tmp_path, out, capsys):
    pytest.importorskip("PIL")
    root = bad_folder(tmp_path, "truncated")
    assert run(root, "-m", "1", "--skip-broken", *QUICK[:2], "--out", out) in (0, 1)
    assert "1 files could not be read" in capsys.readouterr().err
    report = (out / "report.html").read_text()
    assert "0.png" in report
    assert str(tmp_path) not in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-thing"], "neither a folder nor"),
        (["ar"], "pass root"),
        (["--methods", "PCA"], "'PCA' is not a method"),
        (["--methods", ","], "no method was named"),
        (["-m", "two"], "'two' is not a list of whole numbers"),
        (["-m", "0"], "asked for were 0"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--seed", "-1"], "seed must not be negative"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--protocol", "visits"], "visits of this database are not known"),
    ],
)
def test_wrong_arguments(people, out, capsys, arguments, message):
    places = [] if arguments[0] in ("ar", "no-such-thing") else [people]
    try:
        code = run(*places, *arguments, "--quiet", "--out", out)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_the_same_database_twice(people, out, capsys):
    assert run(people, people, "--out", out) == 2
    assert "asked for twice" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(people, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(people, *QUICK, "--out", tmp_path / "file" / "out") == 2
    assert "results.jsonl" in capsys.readouterr().err


def test_a_store_of_another_version(people, out, capsys):
    out.mkdir()
    (out / "results.jsonl").write_text('{"dualqml results": 99}\n')
    assert run(people, *QUICK, "--out", out, "--resume") == 2
    assert "has format 99" in capsys.readouterr().err


def test_a_full_disk(people, out, capsys, monkeypatch):
    append = ResultStore.append

    def full(self, result):
        if result.unit.repetition == 1:
            raise StoreError(f"{self.path}: No space left on device")
        append(self, result)

    monkeypatch.setattr(ResultStore, "append", full)
    assert run(people, "-m", "2", *QUICK, "--out", out) == 2
    assert "No space left" in capsys.readouterr().err
    monkeypatch.undo()
    assert len(read_results(out / "results.jsonl")) == 2
    assert run(people, "-m", "2", *QUICK, "--out", out, "--resume") == 0


@pytest.mark.timeout(1200)  # It may hang, but it may be slow.
def test_ctrl_c(people, out):
    process = subprocess.Popen(
        [sys.executable, "-m", "dualqml", "reproduce", people, "-m", "2,3,4"]
        + ["--repeats", "1000", "--jobs", "2", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    store = out / "results.jsonl"
    try:
        # However long it takes: the first results say that it runs.
        while process.poll() is None:
            if store.exists() and store.read_bytes().count(b"\n") > 3:
                break
            time.sleep(0.05)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        shown = process.communicate()[1]
    finally:
        process.kill()
    assert process.returncode == 130, shown
    assert "Go on with --resume" in shown
    assert "Traceback" not in shown
    assert len(read_results(store)) >= 3
    assert (out / "report.html").exists()
