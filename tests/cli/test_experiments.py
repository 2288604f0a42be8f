import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from dualqml.exceptions import StoreError
from dualqml.experiments import open_set
from dualqml.experiments.store import ResultStore, read_results
from dualqml.extractors import own_methods
from dualqml.recognition import Recognizer
from tests.cli import commands
from tests.people import make_people, make_vectors
from tests.recognition.test_recognizer import vectors

QUICK = ["--methods", "LDA,DualQML", "--repeats", "2", "--jobs", "1", "--quiet"]


def save(path, people):
    arrays = {"images": people.images, "labels": people.labels}
    if people.visits is not None:
        arrays["visits"] = people.visits
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def database(tmp_path):
    return save(tmp_path / "people.npz", make_people(noise=0.8))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return commands.run("reproduce", *arguments)


def test_a_run_leaves_results_tables_and_report(database, out, capsys):
    assert run(database, "-m", "2,3", *QUICK, "--out", out) == 0
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


def test_resume(database, out, capsys):
    assert run(database, "-m", "2", *QUICK, "--out", out) == 0
    assert run(database, "-m", "2", *QUICK, "--out", out) == 2
    assert "Add --resume" in capsys.readouterr().err
    before = (out / "results.jsonl").read_bytes()
    assert run(database, "-m", "2", *QUICK, "--out", out, "--resume") == 0
    assert (out / "results.jsonl").read_bytes() == before
    assert run(database, "-m", "2,4", *QUICK, "--out", out, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == 8


def test_report_again_with_the_papers_figures(tmp_path, out, capsys):
    save(tmp_path / "ar.npz", make_people(n_images=5))
    arguments = ["ar", "--root", tmp_path, "-m", "2", *QUICK, "--out", out]
    assert run(*arguments) == 0
    assert "6.20" not in capsys.readouterr().out
    (out / "report.html").unlink()
    assert commands.run("report", out, "--with-paper") == 0
    # The paper's error of DualQML on AR at m=2.
    assert "6.20" in capsys.readouterr().out
    assert "6.20" in (out / "report.html").read_text()


def test_json(database, out, capsys):
    assert run(database, "-m", "2", *QUICK, "--out", out, "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["method"] for record in records] == ["LDA", "DualQML"]
    errors = [r.error for r in read_results(out / "results.jsonl")]
    lda = errors[0::2]
    assert records[0]["mean"] == pytest.approx(np.mean(lda))
    assert records[0]["std"] == pytest.approx(np.std(lda, ddof=1))


def test_the_number_of_processes_changes_nothing(database, tmp_path):
    tables = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert run(database, "-m", "2", *QUICK, "--jobs", jobs, "--out", out) == 0
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


def test_failed_units_are_said_and_set_the_exit_code(database, out, capsys):
    assert run(database, "-m", "1", *QUICK, "--out", out) == 1
    shown = capsys.readouterr().err
    assert "2 of 4 units failed" in shown
    assert "every class has one" in shown
    assert "every class has one" in (out / "report.html").read_text()


def test_sizes_left_out_are_said(database, out, capsys):
    assert run(database, "-m", "2,8", *QUICK, "--out", out) == 0
    assert "m=8 is left out" in capsys.readouterr().err
    assert run(database, "-m", "8", *QUICK, "--out", out, "--resume") == 2
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
    [("empty", "No images in"), ("one person", "at least two subjects")],
)
def test_bad_folders(tmp_path, out, capsys, what, message):
    pytest.importorskip("PIL")
    root = bad_folder(tmp_path, what)
    assert run(root, "-m", "2", *QUICK, "--out", out) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert not (out / "results.jsonl").exists()


#: Quick, and without failures if there is one training image.
ONE = ["-m", "1", "--methods", "APCA", *QUICK[2:]]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("text", "0.jpg: not an image of a known format"),
        ("zero bytes", "0.png: the file is empty"),
        ("truncated", "0.png: "),
    ],
)
def test_bad_images_are_left_out_and_named(tmp_path, out, capsys, what, message):
    pytest.importorskip("PIL")
    root = bad_folder(tmp_path, what)
    assert run(root, *ONE, "--out", out, "--on-bad", "stop") == 1
    assert not out.exists()
    said = [line for line in capsys.readouterr().err.splitlines() if message in line]
    assert len(said) == 1
    assert said[0].startswith("dualqml: left out: ")
    assert run(root, *ONE, "--out", out) == 1
    said = capsys.readouterr().err
    assert said.count(message) == 1
    assert f"dualqml: 1 of {10 if what == 'text' else 9} cannot be used." in said
    report = (out / "report.html").read_text()
    assert message.partition(":")[0] in report
    assert str(tmp_path) not in report
    assert run(root, *ONE, "--out", tmp_path / "skip", "--on-bad", "skip") == 0
    said = capsys.readouterr().err
    assert message not in said
    assert "cannot be used." in said


def test_force_keeps_old_results_if_there_is_nothing_to_run(vector_file, out, capsys):
    assert run(vector_file, "-m", "2", *QUICK, "--out", out) == 0
    before = (out / "results.jsonl").read_bytes()
    arguments = ["-m", "2", *QUICK[2:], "--out", out, "--force"]
    assert run(vector_file, "--methods", "MLE", *arguments) == 2
    assert (out / "results.jsonl").read_bytes() == before
    assert run(vector_file, "--methods", "LDA", *arguments) == 0
    assert len(read_results(out / "results.jsonl")) == 2


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
        (["--features", "sound"], "'sound' is no input; choose from pixels, local"),
        (["--labels", "names.txt"], "--labels belongs to a file of vectors"),
        (["--method", "LDA"], "chosen with --methods"),
        (["--method", "a=no.such:Class"], "there is no module 'no'"),
        (["--method", "a=sklearn.svm:Nope"], "has no 'Nope'"),
        (["--method", "a=sklearn.svm:SVC(D=1)"], "Its parameters are C, kernel"),
        (["--method", "a=sklearn.linear_model:Ridge"], "is a regressor"),
    ],
)
def test_wrong_arguments(database, out, capsys, arguments, message):
    places = [] if arguments[0] in ("ar", "no-such-thing") else [database]
    try:
        code = run(*places, *arguments, "--quiet", "--out", out)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def vector_file(tmp_path):
    rows, labels = make_vectors(6, 5, size=12, noise=0.6)
    np.savez(tmp_path / "faces.npz", embeddings=rows, labels=labels)
    return tmp_path / "faces.npz"


def test_vectors(vector_file, out, capsys):
    arguments = ["-m", "2", "--repeats", "1", "--jobs", "1", "--quiet", "--out", out]
    assert run(vector_file, *arguments) == 0
    shown = capsys.readouterr()
    assert shown.err == (
        "dualqml: faces.npz: CFA-OTF, CFA-OEOTF, GTDA and MLE are left out on vectors: "
        "images as such are needed.\n"
    )
    results = read_results(out / "results.jsonl")
    methods = dict.fromkeys(result.unit.method for result in results)
    assert list(methods) == [
        *("APCA", "LDA", "MFA", "ERE", "K-LDA", "ER-KDA"),
        *("DualQML (max)", "DualQML", "DualQML-W"),
        *("NN-cosine", "Mean-cosine", "Linear-SVM", "Logistic", "LDA-shrunk"),
    ]
    report = (out / "report.html").read_text()
    assert "MLE are left out on vectors" in report
    assert "30 vectors of 12 numbers" in report
    assert str(out.parent) not in report
    assert run(vector_file, *arguments, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == len(results)


def test_vectors_with_labels_beside_and_from_below_root(vector_file, out, capsys):
    with np.load(vector_file) as archive:
        np.save(vector_file.with_name("rows.npy"), archive["embeddings"])
        names = "\n".join(archive["labels"])
    (vector_file.parent / "names.txt").write_text(names)
    place = ["rows.npy", "--root", vector_file.parent, "-m", "2", *QUICK, "--out", out]
    assert run(*place) == 2
    assert "give labels (--labels)" in capsys.readouterr().err
    assert run(*place, "--labels", vector_file.parent / "names.txt") == 0
    assert {r.n_subjects for r in read_results(out / "results.jsonl")} == {6}
    settings = json.loads((out / "experiment.json").read_text())
    assert "--labels names.txt" in settings["commands"][0]


def test_only_methods_that_need_images_leave_nothing_to_run(vector_file, out, capsys):
    assert run(vector_file, "--methods", "MLE", "-m", "2", "--out", out) == 2
    shown = capsys.readouterr().err
    assert "MLE is left out on vectors" in shown
    assert "nothing to run" in shown
    assert not out.exists()


def test_pixels_and_local_descriptors(tmp_path, out, capsys):
    place = save(tmp_path / "p.npz", make_people(size=16, noise=0.8))
    arguments = ["-m", "2", "--methods", "LDA,GTDA", *QUICK[2:], "--out", out]
    assert run(place, *arguments) == 0
    old = (out / "results.jsonl").read_bytes()
    assert run(place, *arguments, "--features", "pixels,local", "--resume") == 0
    assert "GTDA is left out on local descriptors" in capsys.readouterr().err
    # Pixels were there already.
    assert (out / "results.jsonl").read_bytes().startswith(old)
    found = [(r.unit.input, r.unit.method) for r in read_results(out / "results.jsonl")]
    assert sorted(found) == sorted(
        2 * [("pixels", "LDA"), ("pixels", "GTDA"), ("local", "LDA")]
    )
    settings = json.loads((out / "experiment.json").read_text())
    assert "--features pixels,local" in settings["commands"][-1]


OWN = """
class Nearest:
    def __init__(self, sign=1):
        self.sign = sign
    def fit(self, X, y):
        self.X, self.y = X, y
        return self
    def predict(self, X):
        return self.y[(self.sign * X @ self.X.T).argmax(axis=1)]
"""


def test_a_class_in_the_folder_of_the_command(
    database, out, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "class_of_mine.py").write_text(OWN)
    mine = ["--method", "mine=class_of_mine:Nearest(sign=1)"]
    arguments = [database, "-m", "2", *QUICK, "--out", out]
    # Other processes find it too.
    assert run(*arguments, *mine, "--jobs", "2") == 0
    shown = capsys.readouterr().out
    assert "| mine |" in shown
    assert "mine: class\\_of\\_mine:Nearest(sign=1)" in shown
    assert "Ours and yours against the best rival" in shown
    before = len(read_results(out / "results.jsonl"))
    assert run(*arguments, *mine, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == before
    worse = ["--method", "mine=class_of_mine:Nearest,sign=-1"]
    assert run(*arguments, *worse, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == before + 2
    shown = capsys.readouterr().out
    assert "mine {[}" not in shown
    assert "| mine [Nearest(sign=-1)] |" in shown.replace("\\", "")
    settings = json.loads((out / "experiment.json").read_text())
    assert "--method 'mine=class_of_mine:Nearest(sign=1)'" in settings["commands"][0]


def test_methods_of_installed_packages_are_known_by_name(
    database, out, capsys, monkeypatch
):
    point = EntryPoint("Boost", "sklearn.svm:LinearSVC", "dualqml.methods")
    monkeypatch.setattr(own_methods, "entry_points", lambda group: [point])
    arguments = [database, "-m", "2", *QUICK[2:], "--out", out]
    assert run(*arguments, "--methods", "LDA,boost") == 0
    units = [result.unit for result in read_results(out / "results.jsonl")]
    assert {(unit.method, unit.spec) for unit in units} == {
        ("LDA", ""),
        ("Boost", "sklearn.svm:LinearSVC"),
    }
    assert run(*arguments, "--methods", "boost", "--resume") == 0


def test_the_same_database_twice(database, out, capsys):
    assert run(database, database, "--out", out) == 2
    assert "asked for twice" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(database, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(database, *QUICK, "--out", tmp_path / "file") == 2
    assert "file" in capsys.readouterr().err
    # Nothing is made for a word that was mistyped.
    assert run(database, *QUICK, "--out", tmp_path / "no" / "out") == 2
    assert "There is no folder" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_store_of_another_version(database, out, capsys):
    out.mkdir()
    (out / "results.jsonl").write_text('{"dualqml results": 99}\n')
    assert run(database, *QUICK, "--out", out, "--resume") == 2
    assert "has format 99" in capsys.readouterr().err


def test_a_full_disk(database, out, capsys, monkeypatch):
    append = ResultStore.append

    def full(self, result):
        if result.unit.repetition == 1:
            raise StoreError(f"{self.path}: No space left on device")
        append(self, result)

    monkeypatch.setattr(ResultStore, "append", full)
    assert run(database, "-m", "2", *QUICK, "--out", out) == 2
    assert "No space left" in capsys.readouterr().err
    monkeypatch.undo()
    assert len(read_results(out / "results.jsonl")) == 2
    assert run(database, "-m", "2", *QUICK, "--out", out, "--resume") == 0


#: Runs the command. After three results the whole group of processes gets the signal,
#: as from a terminal.
_INTERRUPTED = """
import os, signal, sys
from dualqml.cli.main import main
from dualqml.experiments.store import ResultStore

append, kept = ResultStore.append, []

def append_three(store, result):
    if len(kept) == 3:
        os.killpg(0, signal.SIGINT)
        while True:  # until it arrives
            pass
    append(store, result)
    kept.append(result)

ResultStore.append = append_three
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.timeout(1200)  # It may hang, but it may be slow.
def test_ctrl_c(database, out, tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    ended = subprocess.run(
        [sys.executable, script, "reproduce", database, "-m", "2,3,4"]
        + ["--repeats", "20", "--jobs", "2", "--out", out],
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert ended.returncode == 130, ended.stderr
    assert "dualqml: interrupted after 3 of 780 units" in ended.stderr
    assert "Go on with --resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(read_results(out / "results.jsonl")) == 3
    assert "reproduce people.npz -m 2,3,4" in (out / "report.html").read_text()


def on_dask(*arguments):
    pytest.importorskip("distributed")
    return ["--dask", "local", "--memory-limit", "0", *arguments]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.timeout(1200)
def test_ctrl_c_on_a_cluster_leaves_no_process_and_the_rest_can_be_run(
    database, out, tmp_path
):
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    arguments = [database, "-m", "2", "--methods", "LDA,DualQML", "--repeats", "5"]
    # This waits until all processes have closed the output, which they share.
    ended = subprocess.run(
        [sys.executable, script, "reproduce", *arguments, "--out", out]
        + on_dask("--workers", "2"),
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert ended.returncode == 130, ended.stderr
    assert "dualqml: interrupted after 3 of 10 units" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "distributed" not in ended.stderr
    assert len(read_results(out / "results.jsonl")) == 3
    arguments += ["--jobs", "1", "--quiet"]
    assert run(*arguments, "--out", out, "--resume") == 0
    assert len(read_results(out / "results.jsonl")) == 10
    assert run(*arguments, "--out", tmp_path / "calm") == 0
    tables = [folder / "tables" / "errors.csv" for folder in (out, tmp_path / "calm")]
    assert tables[0].read_text() == tables[1].read_text()


def test_a_cluster_changes_nothing(database, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Workers find it too.
    (tmp_path / "class_for_workers.py").write_text(OWN)
    arguments = [database, "-m", "2", "--methods", "LDA", "--repeats", "2"]
    arguments += ["--method", "mine=class_for_workers:Nearest(sign=1)"]
    here = [*arguments, "--jobs", "1", "--quiet", "--out", "here"]
    there = [*arguments, *on_dask("--workers", "1"), "--out", "there"]
    assert run(*here) == 0
    assert capsys.readouterr().err == ""
    assert run(*there) == 0
    # The progress of the workers.
    assert "4/4 (100 %)" in capsys.readouterr().err
    for file in ("tables/errors.csv", "experiment.json"):
        assert Path("here", file).read_text() == Path("there", file).read_text()


@pytest.mark.parametrize("command", ["reproduce", "evaluate"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2"], "--workers belongs to a cluster: add --dask"),
        (["--memory-limit", "4GB"], "--memory-limit belongs to a cluster"),
        (["--scratch", "."], "--scratch belongs to a cluster"),
        (["--dask", "local", "--workers", "0"], "must be at least 1, got 0"),
        (["--dask", "local", "--memory-limit", "4"], "'4' cannot be used"),
        (["--dask", "local", "--scratch", "no"], "There is no folder no"),
        (["--dask", "no.json"], "no.json is no file of a scheduler"),
        (["--dask", "tcp://127.0.0.1"], "missing port number"),
        (["--dask", "tcp://127.0.0.1:1", "--workers", "2"], "a local cluster only"),
        (["--dask", "tcp://127.0.0.1:1", "--scratch", "."], "belongs to --dask local"),
    ],
)
def test_wrong_arguments_of_a_cluster(
    command, database, out, capsys, arguments, message
):
    pytest.importorskip("distributed")
    assert commands.run(command, database, *arguments, "--out", out) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_own_processes_and_a_cluster_do_not_go_together(database, out, capsys):
    assert run(database, "--dask", "local", "--jobs", "2", "--out", out) == 2
    assert "give one of them" in capsys.readouterr().err
    assert not out.exists()


def test_evaluate_on_a_cluster(tmp_path, capsys):
    rows, labels = make_vectors(15, 6, size=12, noise=1.0)
    np.savez(tmp_path / "faces.npz", embeddings=rows, labels=labels)
    arguments = ["evaluate", "--embeddings", tmp_path / "faces.npz", "--repeats", 3]
    arguments += ["--fpir", 0.1, "--json"]
    answers = []
    for name, place in {"here": [], "there": on_dask("--workers", "1")}.items():
        assert commands.run(*arguments, *place, "--out", tmp_path / name) == 0
        shown = capsys.readouterr()
        # What takes long shows its progress.
        lines = shown.err.splitlines()
        assert all(line.startswith("Measuring: ") for line in lines), lines
        answers.append(json.loads(shown.out))
    assert answers[0] == answers[1]
    pages = [tmp_path / name / "open-set.html" for name in ("here", "there")]
    assert pages[0].read_text() == pages[1].read_text()


def test_evaluate(tmp_path, capsys):
    rows = vectors(n_people=15, n_samples=6, noise=1.0)
    file = tmp_path / "faces.npz"
    labels = np.repeat([f"p{n:02d}" for n in range(15)], 6)
    np.savez(file, embeddings=rows.reshape(90, -1), labels=labels)
    arguments = ["evaluate", "--embeddings", file, "-m", 3, "--repeats", 2]
    assert commands.run(*arguments, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    assert "10 people enrolled with 3 vectors each, 5 strangers" in shown.out
    assert shown.err == ""
    page = (tmp_path / "out" / "open-set.html").read_text()
    assert page.count("<svg") == 3
    assert commands.run(*arguments, "--out", tmp_path / "out", "--json") == 2
    assert "has files already; --force replaces a report" in capsys.readouterr().err
    arguments += ["--force"]
    assert commands.run(*arguments, "--out", tmp_path / "out", "--json") == 0
    means = json.loads(capsys.readouterr().out)
    assert set(means) == {
        "DualQML-W",
        "nearest neighbour, cosine",
        "class mean, cosine",
    }
    assert 0 <= means["DualQML-W"]["EER"] < 30
    assert (
        commands.run(*arguments, "--out", tmp_path / "out", "--json", "--fpir", 0.1)
        == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["DualQML-W"] == means["DualQML-W"]
    for checks in answer["thresholds"]:
        assert [check["calibration"]["target"] for check in checks] == [0.1, 0.1]
        assert all(0 <= check["fpir"]["estimate"] <= 1 for check in checks)
    assert "--fpir 0.1" in (tmp_path / "out" / "open-set.html").read_text()


def test_evaluate_with_a_background(tmp_path, capsys, monkeypatch):
    rows = vectors(n_people=30, n_samples=6, noise=1.0)
    labels = np.repeat([f"p{n:02d}" for n in range(30)], 6)
    flat = rows.reshape(180, -1)
    np.savez(tmp_path / "faces.npz", embeddings=flat[:90], labels=labels[:90])
    np.savez(tmp_path / "others.npz", embeddings=flat[90:], labels=labels[90:])
    seen = []

    class Watched(Recognizer):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            seen.append(self.background)

    monkeypatch.setattr(open_set, "Recognizer", Watched)
    arguments = ["--background", tmp_path / "others.npz", "--out", tmp_path / "out"]
    faces = ["--embeddings", tmp_path / "faces.npz", "--repeats", 2]
    assert commands.run("evaluate", *faces, *arguments) == 0
    assert [background.n_people for background in seen] == [15, 15]
    assert seen[0] is seen[1]
    # The command in the report has no private path.
    page = (tmp_path / "out" / "open-set.html").read_text()
    assert "--background others.npz" in page
    assert str(tmp_path) not in page


@pytest.fixture
def photographs(orl_faces, tmp_path):
    """A folder of three photographs each of six people, and one of a wall."""
    from tests.cli import pictures

    folder = pictures.save_people(tmp_path / "photos", orl_faces, range(6), (0, 3, 6))
    pictures.save(np.full((200, 200), 128, np.uint8), folder / "p00" / "wall.png")
    return folder


def test_evaluate_photographs(photographs, tmp_path, capsys):
    arguments = ["evaluate", photographs, "-m", 2, "--repeats", 1, "--jobs", 1]
    arguments += ["--several", "largest", "--min-quality", 0.1]
    assert commands.run(*arguments, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert "are taken for photographs, whose faces are read" in shown.err
    assert shown.err.count("wall.png: no face was found") == 1
    assert "dualqml: 1 of 19 cannot be used. 18 are used." in shown.err
    assert "4 people enrolled with 2 vectors each, 2 strangers" in shown.out
    page = (tmp_path / "out" / "open-set.html").read_text()
    assert "evaluate photos --several largest --min-quality 0.1 -m 2" in page
    assert commands.run(*arguments, "--out", tmp_path / "no" / "out") == 2
    assert "There is no folder" in capsys.readouterr().err


def test_reproduce_photographs(photographs, out, capsys):
    arguments = ["-m", "2", "--methods", "LDA,NN-cosine", "--repeats", "2", "--quiet"]
    arguments += ["--several", "largest", "--jobs", 1, "--out", out]
    assert run(photographs, *arguments) == 1
    said = capsys.readouterr().err
    assert "are taken for photographs, whose faces are read" in said
    assert said.count("wall.png: no face was found") == 1
    results = read_results(out / "results.jsonl")
    assert {result.unit.method for result in results} == {"LDA", "NN-cosine"}
    assert {(result.n_train, result.n_test) for result in results} == {(12, 6)}
    settings = json.loads((out / "experiment.json").read_text())
    assert "--several largest" in settings["commands"][0]
    report = (out / "report.html").read_text()
    assert "18 vectors of 128 numbers" in report
    assert str(out.parent) not in report


def test_reproduce_photographs_as_crops(photographs, out, capsys):
    arguments = ["-m", "2", *QUICK, "--out", out, "--on-bad", "skip"]
    assert run(photographs, *arguments, "--input", "crops") == 0
    assert "photographs" not in capsys.readouterr().err
    settings = json.loads((out / "experiment.json").read_text())
    assert "--input crops --on-bad skip" in settings["commands"][0]
