"""One person with one photograph, and what becomes of a threshold."""

import json
import shutil

import pytest

from dualqml.recognition import Recognizer
from tests.cli.commands import run, run_alone
from tests.cli.pictures import save_people


@pytest.fixture(scope="module")
def one(orl_faces, tmp_path_factory):
    """A model of one person with one photograph, and photographs of others."""
    root = tmp_path_factory.mktemp("one")
    save_people(root / "people", orl_faces, [0], [0])
    save_people(root / "own", orl_faces, [0], range(1, 9))
    save_people(root / "others", orl_faces, range(1, 17), [0])
    assert run_alone("train", root / "people", "-o", root / "one.dualqml") == 0
    return root


@pytest.fixture
def model(one, tmp_path):
    return shutil.copy(one / "one.dualqml", tmp_path / "one.dualqml")


def decisions(capsys):
    answers = json.loads(capsys.readouterr().out)
    return [answer["decision"] for answer in answers]


def test_one_photograph_of_one_person(one, capsys):
    model = one / "one.dualqml"
    assert run_alone("identify", model, one / "own", "--json") in (0, 3)
    assert decisions(capsys).count("match") >= 7
    assert run_alone("identify", model, one / "others", "--json") == 3
    assert decisions(capsys).count("unknown") >= 15


def test_inspect_says_where_the_threshold_comes_from(one, capsys):
    model = one / "one.dualqml"
    assert run("inspect", model) == 0
    *_, last = capsys.readouterr().out.splitlines()
    loaded = Recognizer.load(model)
    assert last.startswith(
        f"Threshold {loaded.threshold:.4g}: a prior, from strangers simulated from a "
        "background of 151 people, for a false positive identification rate of 1 %."
    )
    assert run("inspect", model, "--json") == 0
    about = json.loads(capsys.readouterr().out)
    assert about["calibration"]["prior"] is True
    assert about["stale_calibration"] is False


def test_without_the_statistics(one, tmp_path, capsys):
    model = tmp_path / "m.dualqml"
    arguments = ["train", one / "people", "-o", model, "--background", "none"]
    assert run_alone(*arguments) == 2
    said = capsys.readouterr().err
    assert "enrol at least two subjects, or one and give a background" in said
    assert not model.exists()


def test_enroll_and_remove_refresh_a_prior(one, model, capsys):
    assert run_alone("enroll", model, "Ann", one / "others" / "p01") == 0
    loaded = Recognizer.load(model)
    shown = capsys.readouterr()
    assert shown.out == (
        "Ann: 1 sample added. 2 subjects are enrolled.\n"
        f"The threshold is now {loaded.threshold:.4g}, again a prior.\n"
    )
    assert shown.err == ""
    assert loaded.calibration.prior
    assert loaded.calibration.model_id == loaded.model_id
    assert run("remove", model, "p00") == 0
    loaded = Recognizer.load(model)
    shown = capsys.readouterr()
    assert shown.out == (
        "1 erased. 1 subject is enrolled.\n"
        f"The threshold is now {loaded.threshold:.4g}, again a prior.\n"
    )
    assert shown.err == ""
    assert not loaded.calibration_is_stale
    arguments = ["enroll", model, "Ann", one / "others" / "p01", "--json"]
    assert run_alone(*arguments) == 0
    assert json.loads(capsys.readouterr().out)["stale_calibration"] is False


def test_a_measured_threshold_becomes_stale(one, model, capsys):
    arguments = ["calibrate", model, one / "others", "--fpir", 0.2]
    assert run_alone(*arguments) == 0
    assert "measured on 16 samples" in capsys.readouterr().out
    threshold = Recognizer.load(model).threshold
    assert run_alone("enroll", model, "Ann", one / "others" / "p01") == 0
    shown = capsys.readouterr()
    assert shown.out == "Ann: 1 sample added. 2 subjects are enrolled.\n"
    assert shown.err == (
        "dualqml: the threshold was calibrated before this change, and may no longer "
        "keep its rate: run dualqml calibrate\n"
    )
    assert Recognizer.load(model).threshold == threshold
    assert run("inspect", model) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "The gallery has changed since then: run dualqml calibrate."
    assert run("remove", model, "Ann", "--json") == 0
    assert json.loads(capsys.readouterr().out)["stale_calibration"] is True
    assert run_alone(*arguments) == 0
    assert not Recognizer.load(model).calibration_is_stale


def test_a_threshold_given_by_hand_stays(one, tmp_path, capsys):
    model = tmp_path / "m.dualqml"
    arguments = ["train", one / "people", "-o", model, "--threshold", 2.5]
    assert run_alone(*arguments) == 0
    assert "Threshold 2.5: given by the user." in capsys.readouterr().out
    assert run_alone("enroll", model, "Ann", one / "others" / "p01") == 0
    shown = capsys.readouterr()
    assert shown.out == "Ann: 1 sample added. 2 subjects are enrolled.\n"
    assert shown.err == ""
    assert Recognizer.load(model).threshold == 2.5


def test_the_last_person_can_be_erased(one, model, capsys):
    assert run("remove", model, "p00") == 0
    shown = capsys.readouterr()
    assert shown.out == "1 erased. 0 subjects are enrolled.\n"
    assert shown.err == ""
    assert b"p00" not in model.read_bytes()
    assert run("inspect", model) == 0
    assert "subjects: 0\n" in capsys.readouterr().out


def test_check(one, model, capsys):
    assert run("check", model) == 1
    (few, last) = capsys.readouterr().out.splitlines()
    assert "p00" in few
    assert last.startswith("1 finding: 0 of 1 samples were compared")
    assert run("check", model, "--few", 1) == 0
    assert capsys.readouterr().out.startswith("no findings: ")
    assert run("check", model, "--json") == 1
    record = json.loads(capsys.readouterr().out)
    assert len(record["findings"]) == 1
    assert "own_scores" not in record


def test_check_finds_a_photograph_in_a_wrong_folder(gallery, tmp_path, capsys):
    people = shutil.copytree(gallery / "people", tmp_path / "people")
    (people / "p01" / "0.png").rename(people / "p02" / "wrong.png")
    model = tmp_path / "m.dualqml"
    assert run_alone("train", people, "-o", model) == 0
    capsys.readouterr()
    assert run("check", model) == 1
    (line, last) = capsys.readouterr().out.splitlines()
    assert "p02/wrong.png" in line
    assert "p01" in line
    assert last.startswith("1 finding: ")
